"""Fetches the list of a feed's episodes from the daemon."""
from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional, Tuple

Place = Tuple[int, int]  # dataset_index, episode_index


def fetch(ask: Callable[..., str], name: Optional[str] = None) -> Tuple[List[Dict[str, Any]], List[str]]:
    """Returns all episodes, with the text `name` of each, and the names of the datasets.

    `ask` sends a question and returns the JSON text of the answer."""
    first: Optional[int] = 0
    items: List[Dict[str, Any]] = []
    while first is not None:
        page = json.loads(ask("episodes", name=name, first=first))
        items += page["items"]
        first = page["next"]
    return items, [dataset["name"] for dataset in page["datasets"]]


def fetch_texts(ask: Callable[..., str], name: str) -> Dict[Place, Optional[str]]:
    """Returns the text `name` of each episode. Raises NotFound if no layout of the feed's datasets has such a text."""
    items, datasets = fetch(ask, name)
    number = {dataset: index for index, dataset in enumerate(datasets)}
    return {(number[item["dataset"]], item["episode_index"]): item["meta"].get(name) for item in items}


def first_difference(ours: List[Dict[str, Any]], theirs: List[Dict[str, Any]]) -> str:
    """Describes the first episode that differs between the lists of two daemons."""
    for a, b in zip(ours, theirs):
        where = [f"dataset {item['dataset']}, {item['file']}, episode {item['episode']}" for item in (a, b)]
        if where[0] != where[1]:
            return f"{where[0]} is there, and here at the same place {where[1]}"
        if a["digest"] != b["digest"]:
            return (f"{where[0]} ({a['rows']} and {b['rows']} rows) has another content "
                    f"(digests {a['digest']} and {b['digest']})")
    if len(ours) != len(theirs):
        longer = ours if len(ours) > len(theirs) else theirs
        item = longer[min(len(ours), len(theirs))]
        return f"dataset {item['dataset']}, {item['file']}, episode {item['episode']} is on one side only"
    return "all episodes are the same; the specifications of the windows or the layouts differ"
