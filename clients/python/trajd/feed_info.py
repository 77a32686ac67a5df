"""What is known of an open feed: FeedInfo, what is reported of its data, and the numbers of Feed.metrics."""
from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from .errors import DataWarning, level_of_caller
from .settings import Settings
from .topology import Topology

_reported: Set[Tuple[str, int]] = set()  # (feed, fingerprint)
_reported_ranks: Set[str] = set()        # lines


@dataclass(frozen=True)
class FeedInfo:
    """The description of an open feed. Positions and lengths count windows over all ranks. It does not change.

    global_batch          rows of a batch over all ranks
    row_begin, row_count  this worker's rows of it: the first one, and how many
    credit                the most batches that may be held or on their way, as granted
    epoch                 the epoch that was opened
    next                  the position at which delivery began
    epoch_length          windows that an epoch delivers
    window_count          windows of an epoch, before `tail`
    dropped_count         windows left out at the end of an epoch
    fingerprint, seed     the data and windows as a number, and the seed of the order
    norm_digest           of all scales and offsets; 1: nothing is normalised; 0: a daemon of 0.1.0, which does not say
    episodes_found        episodes of the feed's datasets; a file that gives no episode counts as one. This and the next
                          three are 0 if the daemon has version 0.1.0
    episodes_kept         those that can be read
    episodes_quarantined  left out: they cannot be read, or break a rule
    episodes_used         kept ones of which the feed has windows: see filter, where, split and pad
    quarantine_reasons    of the first quarantined ones: file, episode, array, rule
    warnings              what else to know about the feed's data
    values_digest         of how images are made; 1: there are none; 0: a daemon of 0.1.0, which does not say"""

    global_batch: int
    row_begin: int
    row_count: int
    credit: int
    epoch: int
    next: int
    epoch_length: int
    window_count: int
    dropped_count: int
    fingerprint: int
    seed: int
    norm_digest: int = 0
    episodes_found: int = 0
    episodes_kept: int = 0
    episodes_quarantined: int = 0
    episodes_used: int = 0
    quarantine_reasons: Tuple[str, ...] = ()
    warnings: Tuple[str, ...] = ()
    values_digest: int = 0

    @property
    def batches(self) -> int:
        """The number of global batches of a whole epoch."""
        return -(-self.epoch_length // self.global_batch)


def _describe(info: FeedInfo) -> str:
    """Returns "48 of 50 episodes, 2 quarantined: REASON; 1 warning: TEXT", or "" if there is nothing to say."""
    parts = []
    if info.episodes_quarantined:
        parts.append(f"{info.episodes_kept} of {info.episodes_found} episodes, {info.episodes_quarantined} quarantined: "
                     f"{info.quarantine_reasons[0] if info.quarantine_reasons else 'no reason given'}")
    if info.warnings:
        count = len(info.warnings)
        parts.append(f"{count} warning{'s' if count > 1 else ''}: {info.warnings[0]}")
    return "; ".join(parts)


def _report_ranks(ranks: Topology) -> None:
    """Says once in a process who gave it its rank."""
    line = f"trajd: rank {ranks.rank} of {ranks.world_size}, from {ranks.source}"
    if ranks.local_ranks is not None:
        line += f"; this node's daemon serves ranks {ranks.local_ranks[0]} to {ranks.local_ranks[-1]}"
    if ranks.source and line not in _reported_ranks:
        _reported_ranks.add(line)
        print(line, file=sys.stderr, flush=True)


def report(info: FeedInfo, settings: Settings) -> None:
    """Prints where the rank comes from, and one line with a DataWarning if episodes are quarantined or the plan has
    warnings.

    In mode shard only the first rank of each node does."""
    text = _describe(info)
    ranks = settings.topology
    if settings.shard and ranks.rank == min(ranks.local_ranks or (0,)):
        _report_ranks(ranks)
    key = (settings.title, info.fingerprint)
    if not text or key in _reported or (settings.shard and ranks.rank != min(ranks.local_ranks or (0,))):
        return
    _reported.add(key)
    print(f"trajd: feed {settings.title}: {text}; `trajctl check CONFIG` lists all", file=sys.stderr, flush=True)
    more = info.quarantine_reasons[1:] + info.warnings[1:]
    warnings.warn(f"feed {settings.title}: {text}" + "".join(f"; {line}" for line in more), DataWarning,
                  stacklevel=level_of_caller())


# ---- the daemon's status of one feed as numbers for W&B and TensorBoard ----


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
