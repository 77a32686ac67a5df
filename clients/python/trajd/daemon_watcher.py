"""DaemonWatcher: restarts a private daemon that dies while a feed uses it."""
from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any, Optional

from .errors import Error
from .launch import Private, StartKilled

CHECK_INTERVAL_S = 1.0  # between two checks whether the daemon is alive
LONGEST_PAUSE_S = 60.0  # between two starts of a daemon that dies again and again
COPIES_INTERVAL_S = 10.0  # between two looks for daemons of other configurations with the same data
STABLE_AFTER_S = 60.0  # a daemon that has lived so long is not dying again and again

log = logging.getLogger("trajd")


class DaemonWatcher:
    """Restarts a private daemon that dies while a feed of this process uses it. The feed then goes on where it was.

    It also reports datasets that a daemon of another configuration holds in memory, too, if `reports_copies`.

    A context manager around the connecting. Its thread runs until the feed is closed or deleted."""

    def __init__(self, private: Private, reports_copies: bool):
        self._private, self._over = private, threading.Event()
        self._reports_copies = reports_copies
        self._feed: Optional["weakref.ref[Any]"] = None

    def __enter__(self) -> "DaemonWatcher":
        threading.Thread(target=self._run, name="trajd-watcher", daemon=True).start()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._over.set()

    def watch(self, feed: Any) -> Any:
        self._feed = weakref.ref(feed)
        return feed

    def _report_copies(self, reported_at: float) -> float:
        """Reports datasets that another daemon holds, too. Returns when it last did."""
        if not self._reports_copies or time.monotonic() - reported_at < COPIES_INTERVAL_S:
            return reported_at
        self._private.report_copies()
        return time.monotonic()

    def _is_over(self) -> bool:
        feed = self._feed() if self._feed is not None else None
        return self._feed is not None and (feed is None or feed.closed)

    def _run(self) -> None:
        pause, started_at = CHECK_INTERVAL_S, -STABLE_AFTER_S
        reported_at = -COPIES_INTERVAL_S
        while not self._over.wait(pause) and not self._is_over():
            try:
                is_stable = time.monotonic() - started_at > STABLE_AFTER_S
                if is_stable:
                    pause = CHECK_INTERVAL_S
                if not self._private.is_gone():
                    reported_at = self._report_copies(reported_at)
                    continue
                if not is_stable:  # a daemon that dies again and again is started less and less often
                    pause = min(2 * pause, LONGEST_PAUSE_S)
                self._private.ensure()
                started_at = time.monotonic()
            except StartKilled as error:
                log.warning("%s", error)
                started_at = time.monotonic()
            except (Error, OSError) as error:
                log.error("the private daemon died and does not start again: %s", error)
                return
