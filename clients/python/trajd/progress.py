"""Passes on what a private daemon does until it can serve, such as how far its index is."""
import pathlib
import re
import sys
import time
from typing import Any, List, Optional

from .errors import ArgumentError

MESSAGE_INTERVAL_S = 10.0  # between lines, where standard error is no terminal
TERMINAL_INTERVAL_S = 0.5  # between two looks into the log
LOG_BYTES = 16384          # read from the end of the log

# daemon/base/progress: "2026-11-22T20:00:00.000Z info: index of /data: 1200 of 10000 files, 812 files/s, 11 s left"
_LINE = re.compile(r" info: (.+): ([0-9.]+) of ([0-9.]+) (\w+)(?:, .*)?$")


def check(how: Optional[str]) -> None:
    """Raises ArgumentError if this is no value of progress=."""
    if how not in (None, "tqdm"):
        raise ArgumentError(f"progress {how!r}: must be None or \"tqdm\"")
    if how == "tqdm":
        _import_tqdm()


def _import_tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ArgumentError("progress=\"tqdm\" needs tqdm, which is not installed") from None
    return tqdm


def last_lines(log: pathlib.Path) -> List[str]:
    """Returns the lines at the end of a log; [] if there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


class Waiting:
    """Shows the last line of a private daemon's log while a process waits for the daemon."""

    def __init__(self, log: pathlib.Path, how: Optional[str] = None):
        self._log, self._how = log, how
        self._is_terminal = sys.stderr.isatty()
        self._interval = TERMINAL_INTERVAL_S if self._is_terminal or how else MESSAGE_INTERVAL_S
        self._shown_at = time.monotonic()
        self._is_drawn = False
        self._bar: Any = None
        self._work = ""  # that the bar shows

    def show(self) -> None:
        """Shows the line, if it is time. Call it often."""
        now = time.monotonic()
        if now - self._shown_at < self._interval:
            return
        self._shown_at = now
        lines = last_lines(self._log)
        found = _LINE.search(lines[-1]) if lines else None
        if self._how == "tqdm":
            if found:
                self._update_bar(found[1], float(found[2]), float(found[3]), found[4])
        elif not self._is_terminal:
            self._print(f"trajd: waiting for the private daemon: {(lines or ['(its log is empty)'])[-1]}\n")
        elif found:
            self._print(f"\rtrajd: {lines[-1].partition(' info: ')[2]}\x1b[K")
            self._is_drawn = True

    @staticmethod
    def _print(text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)

    def _update_bar(self, work: str, done: float, total: float, unit: str) -> None:
        if self._bar is None or self._work != work:
            self._close_bar()
            self._work = work
            self._bar = _import_tqdm()(total=total, unit=f" {unit}", desc=work)
        self._bar.update(done - self._bar.n)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def close(self) -> None:
        """Erases the line, and ends the bar."""
        if self._is_drawn:
            self._print("\r\x1b[K")
            self._is_drawn = False
        self._close_bar()
