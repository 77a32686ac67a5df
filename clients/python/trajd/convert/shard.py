"""Runs that convert a data set together, each a range of its episodes into a file of its own: --shard I/N."""
from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import re
from typing import Any, List, NamedTuple, Sequence

from ..errors import ArgumentError

SHARDS_MAX = 10000


class Shard(NamedTuple):
    index: int
    count: int

    def __str__(self) -> str:
        return f"shard {self.index}/{self.count}"

    def part(self, episodes: Sequence[Any]) -> Sequence[Any]:
        return episodes[len(episodes) * self.index // self.count:len(episodes) * (self.index + 1) // self.count]

    def path(self, output: pathlib.Path) -> pathlib.Path:
        return output.with_name(f"{output.stem}-{self.index:05d}-of-{self.count:05d}{output.suffix}")

    def paths(self, output: pathlib.Path, episodes: int) -> List[pathlib.Path]:
        """Returns the files of all shards that have episodes."""
        shards = (Shard(index, self.count) for index in range(self.count))
        return [shard.path(output) for shard in shards if shard.part(range(episodes))]


def parse(text: str) -> Shard:
    found = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    if not found or not int(found[1]) < int(found[2]) <= SHARDS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: write I/N with I from 0 to N-1, and N up to {SHARDS_MAX}")
    return Shard(int(found[1]), int(found[2]))


def recipe(options: argparse.Namespace, episodes: int) -> str:
    """Returns a digest of what all shards of a conversion have in common. Folders may have other names elsewhere."""
    apart = ("output", "force", "folder", "media", "shard")
    common = {name: value for name, value in vars(options).items() if name not in apart}
    common.update(count=options.shard.count, episodes=episodes, files=[path.name for path in common.get("files", ())])
    return hashlib.sha256(json.dumps(common, sort_keys=True, default=str).encode()).hexdigest()[:32]


def is_complete(path: pathlib.Path, recipe: str) -> bool:
    """Tells whether a shard's file is there, which gets its name when it is complete. Raises ArgumentError if it is of
    another conversion."""
    import h5py
    if not path.exists():
        return False
    try:
        with h5py.File(path, "r") as file:
            made = file["data"].attrs.get("recipe")
    except (OSError, KeyError):
        made = None
    if made != recipe:
        raise ArgumentError(f"{path}: it exists, and is of another set, of other options or of another --shard .../N: "
                            "--force replaces it")
    return True
