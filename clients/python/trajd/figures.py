"""Fetches statistics from the daemon, which computes them once and sends them page by page."""
from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from .progress import Share

_PAUSE_S = 0.1


def _fetch_one(ask: Callable[..., str], name: str, dataset: int, progress: Share) -> Dict[str, Any]:
    """Returns the statistics of all features of one output. Waits while the daemon computes them."""
    joined: Dict[str, Any] = {}
    first: Optional[int] = 0
    while first is not None:
        page = json.loads(ask("statistics", name=name, first=first, window=dataset))
        if page["state"] != "ready":
            progress.show(page["done"])
            time.sleep(_PAUSE_S)
            continue
        first = page.pop("next")
        norm = page.get("norm", {})
        for part, target in ((page, joined), (norm, joined.setdefault("norm", {}))):
            for key, value in part.items():
                if isinstance(value, list):
                    target.setdefault(key, []).extend(value)
                elif key != "norm":
                    target.setdefault(key, value)
    return joined


def _fetch_shown(ask: Callable[..., str], title: str, name: str, dataset: int, how: Optional[str]) -> Dict[str, Any]:
    with contextlib.closing(Share(f"statistics of {title}", how)) as progress:
        return _fetch_one(ask, name, dataset, progress)


def fetch(ask: Callable[..., str], names: Optional[List[str]] = None, how: Optional[str] = None) -> Any:
    """Returns trajd.Stats of the outputs `names`. None: all outputs except pictures. `how` is progress= of Feed.stats.

    In a feed of several datasets the names are DATASET:NAME. A dataset that lacks an output has none for it."""
    from .stats import Stats, by_step
    listing = json.loads(ask("statistics"))
    lacking = {output["name"]: output["lacking"] for output in listing["outputs"]}
    if names is None:
        names = [output["name"] for output in listing["outputs"] if not output["picture"]]
    several = len(listing["datasets"]) > 1
    wanted = {f"{dataset}:{name}" if several else name: (name, number)
              for number, dataset in enumerate(listing["datasets"]) for name in names
              if number not in lacking.get(name, ())}
    outputs = {title: _fetch_shown(ask, title, *one, how) for title, one in wanted.items()}
    figures = {name: by_step({key: np.array([np.nan if number is None else number for number in value], dtype=np.float64)
                              for key, value in one.items() if isinstance(value, list)}, one) for name, one in outputs.items()}
    return Stats(figures, *({name: one[key] for name, one in outputs.items() if one.get(key)}
                            for key in ("norm", "chain", "fingerprint")))
