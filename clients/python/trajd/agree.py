"""Compares what the ranks of a job see, before their first batch: the data, its order, and how values are made of it.

The nodes of a job have a daemon each, so they could read different files. The ranks compare over the TCPStore of
torchrun's agent, or through torch.distributed if it is initialised. Where there is neither, nothing is compared."""
from __future__ import annotations

import base64
import datetime
import json
import os
import socket
import zlib
from typing import Any, Dict, List, Optional, Tuple

from .connection import CONNECT_LIMIT_S, Connection
from .errors import StateError, Timeout
from .feed_info import FeedInfo
from .settings import Settings
from .topology import Topology, initialized

Seen = Dict[str, Any]  # what a rank says: its rank, node, endpoint and digests

_LISTED_RANKS = 8  # in a message
_EPISODES_BYTES = 4 << 20  # longest list of episodes that is sent over the store, packed
_REASONS = {
    "data": ("see different data", ""),
    "order": ("read the windows in another order", "give them the same seed, global_batch and order. "),
    "norm": ("get differently normalised values", "give their daemons the same `norm:` and the same files of statistics. "),
    "images": ("get different images", "give their daemons the same `image:` keys and the same layouts. "),
}


class _Group:
    """Compares through torch.distributed. The timeout of the process group limits the waits."""

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed

    def first_other(self, seen: Seen) -> Optional[Tuple[Seen, Seen]]:
        """Returns what rank 0 sees and what the first rank sees that has other digests, in all ranks."""
        all_seen: List[Any] = [None] * self._distributed.get_world_size()
        self._distributed.all_gather_object(all_seen, seen)
        other = next((one for one in all_seen if one["digests"] != all_seen[0]["digests"]), None)
        return None if other is None else (all_seen[0], other)

    def share(self, rank: int, text: Optional[str]) -> str:
        """Returns the text of `rank`, in all ranks."""
        texts = [text]
        self._distributed.broadcast_object_list(texts, src=rank)
        return texts[0] or ""


class _Store:
    """Compares over the TCPStore of torchrun's agent, with a number of requests per rank that does not depend on the
    number of ranks."""

    def __init__(self, ranks: Topology, title: str, timeout: float) -> None:
        self._ranks, self._title, self._limit = ranks, title, datetime.timedelta(seconds=timeout)
        self._store = self._connect()
        # The store outlives ranks that are started again, and a job may open the feed several times.
        attempt = [os.environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")]
        self._feed = "/".join(["trajd", *attempt, title, str(ranks.world_size)])
        # Each rank counts its own openings: a rank that opens again after a failure must not stand for another one.
        self._opening = self._store.add(f"{self._feed}/opened/{ranks.rank}", 1)
        self._prefix = f"{self._feed}/{self._opening}"

    def _connect(self) -> Any:
        import torch.distributed
        return torch.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                                          wait_for_workers=False, timeout=self._limit)

    def _get(self, key: str) -> str:
        try:
            return bytes(self._store.get(f"{self._prefix}/{key}")).decode()
        except RuntimeError as error:
            raise Timeout(f"feed {self._title}: the ranks cannot compare what they see: {self._missing()} "
                          f"({self._limit.total_seconds():g} s; timeout=SECONDS changes that). A feed that only some ranks "
                          f'open needs mode="queue". {error}') from error

    def _missing(self) -> str:
        """Names the ranks that did not come. The connection that a wait was broken off on is not used again."""
        world = self._ranks.world_size
        try:
            store = self._connect()
            missing = [rank for rank in range(world) if store.add(f"{self._feed}/opened/{rank}", 0) < self._opening]
        except RuntimeError:
            return "torchrun's store has ended"
        shown = ", ".join(map(str, missing[:_LISTED_RANKS])) + (", ..." if len(missing) > _LISTED_RANKS else "")
        return f"{len(missing)} of {world} did not answer: {shown}" if missing else "one of them has ended"

    def first_other(self, seen: Seen) -> Optional[Tuple[Seen, Seen]]:
        store, prefix = self._store, self._prefix
        if self._ranks.rank == 0:
            store.set(f"{prefix}/first", json.dumps(seen))
        first = json.loads(self._get("first"))
        if seen["digests"] != first["digests"]:
            store.set(f"{prefix}/other", json.dumps(seen))
            store.add(f"{prefix}/others", 1)
        if store.add(f"{prefix}/compared", 1) == self._ranks.world_size:  # the last one tells all
            store.set(f"{prefix}/end", self._get("other") if store.add(f"{prefix}/others", 0) else "null")
        other = json.loads(self._get("end"))
        return None if other is None else (first, other)

    def share(self, rank: int, text: Optional[str]) -> str:
        if text is not None:
            self._store.set(f"{self._prefix}/text/{rank}", text)
        return self._get(f"text/{rank}")


def _means(settings: Settings) -> "_Group | _Store | None":
    """Returns how the ranks of the job can compare, the same in all of them. None: they cannot."""
    ranks, environment, distributed = settings.topology, os.environ, initialized()
    if ranks.world_size == 1:
        return None
    has_agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if has_agent and environment.get("WORLD_SIZE") == str(ranks.world_size):
        return _Store(ranks, settings.title, settings.timeout or CONNECT_LIMIT_S)
    if distributed is not None and (distributed.get_rank(), distributed.get_world_size()) == (ranks.rank, ranks.world_size):
        return _Group(distributed)
    return None


def _pack(episodes: List[Dict[str, Any]]) -> str:
    """Returns the list as text, or an empty text if it is too long to be sent."""
    packed = zlib.compress(json.dumps([[one.get(key) for key in ("dataset", "file", "episode", "rows", "digest")]
                                       for one in episodes]).encode())
    return base64.b64encode(packed).decode() if len(packed) <= _EPISODES_BYTES else ""


def _first_difference(ours: str, theirs: str) -> str:
    """Describes the first episode that differs between the lists of two daemons."""
    if not ours or not theirs:
        return ""
    first, second = (json.loads(zlib.decompress(base64.b64decode(packed))) for packed in (ours, theirs))
    for a, b in zip(first, second):
        where = [f"dataset {one[0]}, {one[1]}, episode {one[2]}" for one in (a, b)]
        if where[0] != where[1]:
            return f"{where[1]} is there, and here at the same place {where[0]}. "
        if a[4] != b[4]:
            return f"{where[0]} ({a[3]} and {b[3]} rows) has another content (digests {a[4]} and {b[4]}). "
    if len(first) != len(second):
        dataset, file, episode, *_ = max(first, second, key=len)[min(len(first), len(second))]
        return f"dataset {dataset}, {file}, episode {episode} is on one side only. "
    return "All episodes are the same; the specifications of the windows or the layouts differ. "


def compare(settings: Settings, info: FeedInfo, connection: Connection) -> None:
    """Raises StateError in all ranks if two of them see different data, or make other batches of it. The message names
    their nodes and what differs. Raises Timeout if ranks do not come. A collective call: all ranks make it."""
    means = _means(settings)
    if means is None:
        return
    rank = settings.topology.rank
    found = means.first_other({
        "rank": rank, "node": socket.gethostname(), "endpoint": connection.endpoint,
        "digests": {"data": f"{info.fingerprint:016x}", "order": f"{info.seed}, {info.global_batch}, {info.epoch_length}",
                    "norm": f"{info.norm_digest:016x}", "images": f"{info.values_digest:016x}"}})
    if found is None:
        return
    first, other = found
    kind = next(kind for kind in _REASONS if first["digests"][kind] != other["digests"][kind])
    what, cure = _REASONS[kind]
    if kind == "data":
        mine = _pack(connection.episodes()) if rank in (0, other["rank"]) else None
        theirs = means.share(0, mine if rank == 0 else None) if rank in (0, other["rank"]) or isinstance(means, _Group) else ""
        difference = _first_difference(theirs, mine or "") if rank == other["rank"] else None
        cure = means.share(other["rank"], difference)
    raise StateError(
        f"ranks 0 and {other['rank']} {what} (nodes {first['node']} and {other['node']}, "
        f"digests {first['digests'][kind]} and {other['digests'][kind]}): {cure}"
        f"`trajctl diff {first['endpoint']} {other['endpoint']} {settings.title}` lists episodes that differ")
