"""The loop over the episodes of a source, and the HDF5 file that it writes."""
from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import stat
import sys
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Union

import h5py

from ..errors import ArgumentError, shown
from ..progress import Share
from .objects import Object, write_attributes, write_group

DATA_GROUP = "data"


class LeftOut(Exception):
    """An episode cannot be converted. The message is one sentence with the file and the numbers."""


class Episode(NamedTuple):
    """An episode that was read: everything that can be wrong with it has been checked."""

    rows: int
    attributes: Dict[str, Any]
    objects: Dict[str, Object]  # by their paths in the episode's group
    notes: Sequence[str] = ()   # for the summary: what the episode has not, though it is converted
    suffix: str = ""            # of its name, where a recording has several


Episodes = Sequence[Tuple[int, Callable[[], Union[Episode, Iterator[Episode]]]]]


class Source:
    """A data set of another project, to be derived from."""

    attributes: Dict[str, Any]  # of the group /data
    notes: List[str]            # sentences for the summary: what is left out of all episodes, and what is doubtful

    def episodes(self) -> Episodes:
        """Returns the number of each episode, and a function that reads it or raises LeftOut. It may be several."""
        raise NotImplementedError

    def show(self, share: float) -> None:
        """Tells which share of an episode is read. Set by convert."""

    def expect(self, episodes: Episodes) -> List[str]:
        """Returns what to say before these episodes are converted."""
        return []

    def finish(self, path: pathlib.Path) -> None:
        """Is called when all episodes are written, before the file gets the name `path`."""

    def after(self) -> None:
        """Is called when the file has its name."""


class Summary:
    """What was converted and what was not."""

    def __init__(self, total: int):
        self.total, self.episodes, self.rows = total, 0, 0
        self._said: Dict[Tuple[str, str], List[int]] = {}  # the episodes, by how they were handled and why

    def say(self, what: str, number: int, reason: str) -> None:
        self._said.setdefault((what, reason), []).append(number)

    def lines(self, path: pathlib.Path, size: int, notes: List[str]) -> Iterator[str]:
        yield f"{path}: {self.episodes} of {self.total} episodes, {self.rows} rows, {size} bytes"
        yield from notes
        for (what, reason), numbers in sorted(self._said.items(), key=lambda said: said[0][0]):
            yield f"{what}: {_describe(numbers)}: {reason}"


def _describe(numbers: List[int]) -> str:
    """Returns "episode 3" or "episodes 3, 5 to 9"."""
    runs: List[List[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return f"episode{'s' if len(numbers) > 1 else ''} " + ", ".join(" to ".join(map(str, run)) for run in runs)


def first_line(error: Exception) -> str:
    return getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]


def episode_name(number: int) -> str:
    return f"episode_{number:06d}"


@contextlib.contextmanager
def _partial(path: pathlib.Path, force: bool) -> Iterator[h5py.File]:
    """Opens a new file beside `path` that gets its name when all is written.

    The file of a run that was killed is removed: a run begins from nothing. A file that another run writes is locked
    by HDF5. A run that fails leaves nothing."""
    partial = path.with_name(path.name + ".partial")
    if not path.parent.is_dir():
        raise ArgumentError(f"{path.parent}: it is not a folder")
    if path.exists() and not force:
        raise ArgumentError(f"{path}: it exists; --force replaces it")
    with contextlib.suppress(FileNotFoundError):
        _remove_old(partial)
    try:
        with h5py.File(partial, "x", locking=True) as file:
            own = os.stat(partial)
            yield file
        if not os.path.samestat(own, os.stat(partial)):
            raise ArgumentError(f"{partial}: another file has this name now")
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError, NameError):
            if os.path.samestat(own, os.lstat(partial)):
                partial.unlink()
        raise


def _remove_old(partial: pathlib.Path) -> None:
    found = os.lstat(partial)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise ArgumentError(f"{partial}: it is not a file of a conversion of yours; remove it")
    with open(partial, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ArgumentError(f"{partial}: another conversion is writing it") from None
    partial.unlink()


def convert(source: Source, episodes: Episodes, path: pathlib.Path, force: bool = False) -> None:
    """Writes episodes of a source into a file and prints the summary. Raises ArgumentError if there is none."""
    summary = Summary(len(episodes))
    progress = Share(f"converting to {path.name}", "tqdm" if _has_bar() else None)
    with contextlib.closing(progress), _partial(path, force) as file:
        data = file.create_group(DATA_GROUP)
        data.attrs.update(source.attributes)
        for done, (number, read) in enumerate(episodes):
            source.show = lambda share, done=done: progress.show((done + share) / len(episodes))  # type: ignore[method-assign]
            try:
                found = read()
                for piece, episode in enumerate([found] if isinstance(found, Episode) else found):
                    summary.total += piece > 0
                    name = episode_name(number) + episode.suffix
                    _write(h5py.Group(write_group(data.id, name)), episode)
                    summary.episodes += 1
                    summary.rows += episode.rows
                    for note in episode.notes:
                        what, _, rest = note.partition(": ")
                        summary.say(*(what, number, rest) if what == "left out" else ("kept", number, note))
            except LeftOut as error:
                summary.say("left out", number, str(error))
            progress.show((done + 1) / len(episodes))
        if summary.episodes:
            source.finish(path)
        file.flush()
        for line in summary.lines(path, file.id.get_filesize(), source.notes):
            print(shown(line))
        if not summary.episodes:
            raise ArgumentError("no episode could be converted, so no file was written")


def _has_bar() -> bool:
    """Tells whether a bar of tqdm can be shown; otherwise lines are."""
    if not sys.stderr.isatty():
        return False
    with contextlib.suppress(ImportError):
        import tqdm.auto  # noqa: F401
        return True
    return False


def _write(group: h5py.Group, episode: Episode) -> None:
    write_attributes(group.id, episode.attributes)
    for path, one in episode.objects.items():
        one.write(group, path)
