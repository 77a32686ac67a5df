"""Shows how far long work of a daemon is: its index before it can serve, and statistics."""
import pathlib
import re
import sys
import time
from typing import Any, List, Optional

from .errors import ArgumentError

MESSAGE_INTERVAL_S = 10.0  # between lines, where standard error is not a terminal
TERMINAL_INTERVAL_S = 0.5  # between two looks into the log
LOG_BYTES = 16384          # read from the end of the log

# daemon/base/progress: "2026-11-22T20:00:00.000Z info: index of /data: 1200 of 10000 files, 812 files/s, 11 s left"
_LINE = re.compile(r" info: (.+): ([0-9.]+) of ([0-9.]+) (\w+)(?:, .*)?$")


def check(how: Optional[str]) -> None:
    """Raises ArgumentError if this is not a value of progress=."""
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


class Display:
    """Shows how far long work is: on a terminal in one line, elsewhere in a line now and then, or with "tqdm" as a bar."""

    def __init__(self, how: Optional[str] = None):
        self.is_bar, self.is_terminal = how == "tqdm", sys.stderr.isatty()
        self._interval = TERMINAL_INTERVAL_S if self.is_terminal or how else MESSAGE_INTERVAL_S
        self._shown_at = time.monotonic()
        self._is_drawn = False
        self._bar: Any = None
        self._work = ""  # that the bar shows

    def is_due(self) -> bool:
        """Returns True if it is time to show something. The next time is an interval later."""
        now = time.monotonic()
        if now - self._shown_at < self._interval:
            return False
        self._shown_at = now
        return True

    def show_line(self, text: str) -> None:
        if self.is_terminal:
            self._print(f"\rtrajd: {text}\x1b[K")
            self._is_drawn = True
        else:
            self._print(f"trajd: {text}\n")

    def show_bar(self, work: str, done: float, total: float, unit: str) -> None:
        if self._bar is None or self._work != work:
            self._close_bar()
            self._work = work
            self._bar = _import_tqdm()(total=total, unit=f" {unit}", desc=work)
        self._bar.update(done - self._bar.n)

    @staticmethod
    def _print(text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)

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


class Waiting:
    """Shows the last line of a private daemon's log while a process waits for the daemon."""

    def __init__(self, log: pathlib.Path, how: Optional[str] = None):
        self._log, self._display = log, Display(how)

    def show(self) -> None:
        """Shows the line, if it is time. Call it often."""
        display = self._display
        if not display.is_due():
            return
        lines = last_lines(self._log)
        found = _LINE.search(lines[-1]) if lines else None
        if display.is_bar:
            if found:
                display.show_bar(found[1], float(found[2]), float(found[3]), found[4])
        elif not display.is_terminal:
            display.show_line(f"waiting for the private daemon: {(lines or ['(its log is empty)'])[-1]}")
        elif found:
            display.show_line(lines[-1].partition(" info: ")[2])

    def close(self) -> None:
        self._display.close()


class Share:
    """Shows which share of a piece of work is done, in percent, and how long the rest takes."""

    def __init__(self, work: str, how: Optional[str] = None):
        self._work, self._display = work, Display(how)
        self._begun_at, self._begun = time.monotonic(), 0.0

    def show(self, share: float) -> None:
        """Shows it, if it is time. `share` is from 0 to 1. Call it often."""
        if not self._begun and share:  # before, the work waited for other work
            self._begun_at, self._begun = time.monotonic(), share
        if not self._display.is_due():
            return
        if self._display.is_bar:
            self._display.show_bar(self._work, round(100 * share, 1), 100.0, "%")
        else:
            self._display.show_line(f"{self._work}: {100 * share:.0f} %{self._describe_rest(share)}")

    def _describe_rest(self, share: float) -> str:
        if share <= self._begun:
            return ""
        seconds = (time.monotonic() - self._begun_at) / (share - self._begun) * (1 - share)
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"

    def close(self) -> None:
        self._display.close()
