"""The daemon's status of one feed as numbers for W&B and TensorBoard (Feed.metrics)."""
import re
from typing import Any, Dict, List, Mapping, Optional


def _of_feed(items: List[Dict[str, Any]], feed: Optional[str]) -> List[Dict[str, Any]]:
    """Returns the items of all productions of a feed: NAME, NAME@GPU, NAME#NUMBER. None: of feeds that jobs sent."""
    def is_of_feed(name: str) -> bool:
        return name.startswith("spec:") if feed is None else re.split("[@#]", name)[0] == feed

    return [item for item in items if is_of_feed(item["name"])]


def _wait_seconds(sessions: List[Dict[str, Any]]) -> Dict[str, float]:
    causes: Dict[str, float] = {}
    for session in sessions:
        for cause, seconds in session.get("waited_seconds", {}).items():
            causes[cause] = causes.get(cause, 0.0) + seconds
    return causes


def flatten(status: Mapping[str, Any], feed: Optional[str], pid: int) -> Dict[str, float]:
    """Returns the numbers of this process and its feed. An older daemon does not have all of them."""
    feeds, producers = _of_feed(status["feeds"], feed), _of_feed(status.get("producers", []), feed)
    ids = {item["feed_id"] for item in feeds}
    own = [session for session in status["sessions"] if session["pid"] == pid and session["feed_id"] in ids]
    used = {dataset["name"] for producer in producers for dataset in producer["datasets"]}
    datasets = [dataset for dataset in status.get("datasets", []) if dataset["name"] in used]
    numbers: Dict[str, float] = {f"wait_seconds/{cause}": seconds for cause, seconds in _wait_seconds(own).items()}
    numbers["nobody_asks_seconds"] = sum(session["stalled_by_seconds"] for session in own)
    numbers["batches_held"] = sum(session["held"] for session in own)
    numbers["windows_made"] = sum(producer["windows"] for producer in producers)
    numbers["batches_failed"] = sum(producer["failed_batches"] for producer in producers)
    numbers["episodes_quarantined"] = max((producer["episodes_quarantined"] for producer in producers), default=0)
    numbers["slots_ready"] = sum(item["slots"]["ready"] for item in feeds)
    numbers["ring_bytes"] = sum(item["ring_bytes"] for item in feeds)
    numbers["row_cache_bytes"] = sum(dataset["store"]["resident_bytes"] for dataset in datasets)
    numbers["row_cache_evictions"] = sum(dataset["store"]["pieces_evicted"] for dataset in datasets)
    numbers["bad_frames"] = sum(dataset.get("frames", {}).get("bad", 0) for dataset in datasets)
    return {f"trajd/{name}": float(number) for name, number in numbers.items()}
