"""What the daemon tells of a feed's episodes, asked for once."""
from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional, Tuple

from .errors import NotFound


class Episodes:
    def __init__(self, fingerprint: str, items: List[Dict[str, Any]], datasets: List[str]) -> None:
        self.fingerprint, self.items = fingerprint, items
        number = {name: index for index, name in enumerate(datasets)}
        self._by_index: Dict[Tuple[int, int], Dict[str, Any]] = {}
        for item in items:
            dataset = item["dataset"] if isinstance(item["dataset"], int) else number[item["dataset"]]
            self._by_index[dataset, item["episode_index"]] = item

    def meta(self, pair: Tuple[int, int], name: str) -> Optional[str]:
        item = self._by_index.get(pair)
        if item is None:
            raise NotFound(f"episode {pair[1]} of dataset {pair[0]} is not one that the daemon tells of")
        return item.get("meta", {}).get(name)


def fetch(ask: Callable[..., str]) -> Episodes:
    """All pages of the question "episodes"."""
    first: Optional[int] = 0
    items: List[Dict[str, Any]] = []
    while first is not None:
        page = json.loads(ask("episodes", first=first))
        items += page["items"]
        first = page["next"]
    return Episodes(page["fingerprint"], items, [dataset["name"] for dataset in page["datasets"]])


def first_difference(ours: List[Dict[str, Any]], theirs: List[Dict[str, Any]]) -> str:
    """Names the first episode that two daemons see differently."""
    for a, b in zip(ours, theirs):
        where = [f"dataset {item['dataset']}, {item['file']}, episode {item['episode']}" for item in (a, b)]
        if where[0] != where[1]:
            return f"{where[0]} is there, and here at the same place {where[1]}"
        if a["digest"] != b["digest"]:
            return f"{where[0]} ({a['rows']} and {b['rows']} rows) has another content (digests {a['digest']} and {b['digest']})"
    if len(ours) != len(theirs):
        longer = ours if len(ours) > len(theirs) else theirs
        item = longer[min(len(ours), len(theirs))]
        return f"dataset {item['dataset']}, {item['file']}, episode {item['episode']} is on one side only"
    return "all episodes are the same; the specifications of the windows or the layouts differ"
