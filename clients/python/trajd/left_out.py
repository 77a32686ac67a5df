"""Tells the user what a feed leaves out of its data, and of bad frames, once for each feed of a process."""
from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, Set, Tuple

import numpy as np

from .errors import DataWarning

if TYPE_CHECKING:
    from .batch import Layout
    from .feed import FeedInfo
    from .settings import Settings

_BAD_FRAME = 8  # mask code of kernels/resample.h
_reported: Set[Tuple[str, int]] = set()  # (feed, fingerprint)


def describe(info: FeedInfo) -> str:
    """Returns "48 of 50 episodes, 2 quarantined: REASON; 1 warning: TEXT", or "" if there is nothing to say."""
    parts = []
    if info.episodes_quarantined:
        parts.append(f"{info.episodes_kept} of {info.episodes_found} episodes, {info.episodes_quarantined} quarantined: "
                     f"{info.quarantine_reasons[0] if info.quarantine_reasons else 'no reason given'}")
    if info.warnings:
        count = len(info.warnings)
        parts.append(f"{count} warning{'s' if count > 1 else ''}: {info.warnings[0]}")
    return "; ".join(parts)


def level_of_caller() -> int:
    """Returns the stacklevel, for warnings.warn in the calling function, of the first frame outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
        level, frame = level + 1, frame.f_back
    return level


def report(info: FeedInfo, settings: Settings) -> None:
    """Prints one line and issues a DataWarning if episodes are quarantined or the plan has warnings.

    In mode shard only the first rank of each node does."""
    text = describe(info)
    ranks = settings.topology
    key = (settings.title, info.fingerprint)
    if not text or key in _reported or (settings.shard and ranks.rank != min(ranks.local_ranks or (0,))):
        return
    _reported.add(key)
    print(f"trajd: feed {settings.title}: {text}; `trajctl check CONFIG` lists all", file=sys.stderr, flush=True)
    more = info.quarantine_reasons[1:] + info.warnings[1:]
    warnings.warn(f"feed {settings.title}: {text}" + "".join(f"; {line}" for line in more), DataWarning,
                  stacklevel=level_of_caller())


def report_bad_frames(core: Any, layout: Layout, settings: Settings) -> bool:
    """Issues a DataWarning if a batch in host memory has steps with a bad frame. Returns whether it did."""
    found = []
    for tensor in layout.schema:
        if len(tensor.shape) == 4 and tensor.name in layout.masks:
            mask = np.asarray(core.tensor(layout.masks[tensor.name]))
            count = int(np.count_nonzero(mask == _BAD_FRAME))
            if count:
                found.append(f"output {tensor.name}: {count} of {mask.size} steps")
    if found:
        warnings.warn(f"feed {settings.title}, the batch at position {core.position}: bad frames (they cannot be decoded, or "
                      f"are zeros that the layout masks), delivered as pad_value: {'; '.join(found)}. batch.mask(OUTPUT) == "
                      f"{_BAD_FRAME} is True there, is_pad is not; feed.metrics() counts bad frames. Further ones give no "
                      "warning", DataWarning, stacklevel=level_of_caller())
    return bool(found)
