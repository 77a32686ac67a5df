"""Checks across the processes of a job, and the closing of feeds when the interpreter ends."""
from __future__ import annotations

import atexit
import contextlib
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from .episodes import first_difference
from .errors import StateError

if TYPE_CHECKING:
    from .feed import Feed
    from .topology import Topology

_feeds: "weakref.WeakSet[Feed]" = weakref.WeakSet()


def remember(feed: "Feed") -> None:
    """Closes the feed when the interpreter ends, so that the daemon learns which batches are DONE."""
    _feeds.add(feed)


def has_other_feed(feed: "Feed") -> bool:
    """Returns True if another open feed of this process is a worker of the same job in mode queue."""
    def reads(one: "Feed") -> Any:
        settings = one._settings
        return settings.endpoint, settings.feed, settings.spec, settings.job, settings.shard

    return not feed._settings.shard and any(
        other is not feed and other.pid == feed.pid and not other.closed and reads(other) == reads(feed)
        for other in list(_feeds))


@atexit.register
def _close_all() -> None:
    for feed in list(_feeds):
        if feed.pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # a daemon thread is in a call of the feed
                feed.close()


def _distributed() -> Any:
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


def ranks_beside(gpu: Optional[str], topology: "Topology") -> Tuple[int, ...]:
    """Returns the ranks whose workers use this process's GPU, its own rank included.

    Without torch.distributed that is only its own rank. A collective call: all ranks make it."""
    distributed = _distributed()
    if distributed is None or (
            distributed.get_rank(), distributed.get_world_size()) != (topology.rank, topology.world_size):
        return (topology.rank,)
    gpus: "List[Optional[str]]" = [None] * topology.world_size
    distributed.all_gather_object(gpus, gpu)
    return tuple(rank for rank, one in enumerate(gpus) if one == gpu)


def _compare_values(distributed: Any, digests: Tuple[int, int]) -> None:
    """Raises StateError in all ranks if two of them get the same windows with other values. A collective call."""
    all_digests = [(0, 0)] * distributed.get_world_size()
    distributed.all_gather_object(all_digests, digests)
    what = (("differently normalised values", "the same `norm:` and the same files of statistics"),
            ("different pictures", "the same `image:` keys and the same layouts"))
    for index, (found, cure) in enumerate(what):
        of_ranks = [one[index] for one in all_digests]
        other = next((rank for rank, one in enumerate(of_ranks) if one != of_ranks[0]), None)
        if other is not None:
            raise StateError(f"ranks 0 and {other} get {found} (digests {of_ranks[0]:016x} and {of_ranks[other]:016x}): "
                             f"give their daemons {cure}")


def compare_fingerprints(fingerprint: int, digests: Tuple[int, int],
                         fetch_episodes: Callable[[], List[Dict[str, Any]]]) -> None:
    """Raises StateError in all ranks of torch.distributed if two of them see different data, or make other values of it.

    `digests` are those of normalisation and pictures.

    The message names an episode that differs. A collective call: all ranks make it. Does nothing without
    torch.distributed."""
    distributed = _distributed()
    if distributed is None:
        return
    prints = [None] * distributed.get_world_size()
    distributed.all_gather_object(prints, f"{fingerprint:016x}")
    other = next((rank for rank, one in enumerate(prints) if one != prints[0]), None)
    if other is None:
        _compare_values(distributed, digests)
        return
    episodes = [None] * distributed.get_world_size()
    distributed.all_gather_object(episodes, fetch_episodes() if distributed.get_rank() in (0, other) else None)
    raise StateError(f"ranks 0 and {other} see different data (fingerprints {prints[0]} and {prints[other]}): "
                     + first_difference(episodes[0], episodes[other]))  # type: ignore[arg-type]
