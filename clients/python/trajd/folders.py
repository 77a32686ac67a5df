"""The folders of private daemons: which exist, which daemons run, which folders are old."""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import stat
import tempfile
import time
from typing import Iterator, List, NamedTuple, Set

from .errors import ArgumentError, LaunchError

# Without a daemon. A process that still uses the daemon starts it again sooner, and needs the journals in the folder.
ENDED_AFTER_S = 300.0      # if it ended by itself
OLD_AFTER_S = 24 * 3600.0  # if it was killed or did not start: its log may be wanted


def private_folder() -> pathlib.Path:
    """Returns this user's folder for private daemons, and makes it if needed.

    It is in $TRAJD_RUNTIME_DIR, else in $XDG_RUNTIME_DIR if that exists, else in the folder for temporary files."""
    given, session = os.environ.get("TRAJD_RUNTIME_DIR"), os.environ.get("XDG_RUNTIME_DIR")
    if given:
        folder = pathlib.Path(os.path.abspath(given))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder /= f"trajd-{os.geteuid()}"
    elif session and os.path.isdir(session) and os.stat(session).st_uid == os.geteuid():
        folder = pathlib.Path(session) / "trajd"
    else:
        folder = pathlib.Path(tempfile.gettempdir()) / f"trajd-{os.geteuid()}"
    return make_private(folder)


def make_private(folder: pathlib.Path) -> pathlib.Path:
    """Makes a folder with mode 0700, or checks that an existing one is ours alone. Raises LaunchError.

    The check matters in folders where other users may write, such as /tmp."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise LaunchError(f"{folder}: this must be a folder of yours, and it is "
                          f"{'a symbolic link' if stat.S_ISLNK(found.st_mode) else 'no folder'}"
                          "; set $TRAJD_RUNTIME_DIR to another place")
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise LaunchError(f"{folder}: it belongs to uid {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):04o}; "
                          f"it must be yours alone (uid {os.geteuid()}, mode 0700); set $TRAJD_RUNTIME_DIR to "
                          "another place")
    return folder


def cache_folder(place: pathlib.Path) -> pathlib.Path:
    """Returns the folder for indexes, which outlive the daemon: in $XDG_CACHE_HOME or ~/.cache if it is writable."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = pathlib.Path(base) / "trajd"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    return make_private(place / "cache")


def read_regular(path: "str | os.PathLike[str]") -> str:
    """Returns the text of a file. Raises ArgumentError where it is a FIFO or a device, of which reading may not end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ArgumentError(f"{os.fspath(path)}: not a regular file")
    return pathlib.Path(path).read_text(errors="replace")


class Lock:
    """An open lock file. close() also unlocks it, because a process forked by another thread may have it open too."""

    def __init__(self, path: pathlib.Path, flags: int = 0):
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        self.is_daemons = False

    def is_at(self, path: pathlib.Path) -> bool:
        """Returns True if this is the file at `path`, and not one that was removed after it was opened."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self.fd), os.stat(path))
        return False

    def close(self) -> None:
        if not self.is_daemons:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


def opened(path: pathlib.Path, flags: int = os.O_CREAT) -> "contextlib.closing[Lock]":
    return contextlib.closing(Lock(path, flags))


def is_alive(place: pathlib.Path) -> bool:
    """Returns True if a daemon holds the lock of the runtime directory.

    The caller holds launch.lock, so no daemon is just starting."""
    try:
        with opened(place / "run" / "lock", 0) as lock:
            fcntl.flock(lock.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def runs(place: pathlib.Path) -> bool:
    """Returns True if a daemon runs there that is not just being started."""
    try:
        with opened(place / "launch.lock", 0) as lock:
            fcntl.flock(lock.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return is_alive(place)
    except OSError:
        return False


class Held(NamedTuple):
    """What the daemon of a folder holds in memory, and for whom."""

    name: str    # of the configuration
    config: str  # its path
    job: str
    paths: List[str]


def note_datasets(place: pathlib.Path, held: Held) -> None:
    """Writes it for the daemons of other configurations."""
    paths = [os.path.realpath(path) for path in held.paths]
    (place / "datasets").write_text(json.dumps(held._replace(paths=paths)._asdict()))


def _read_datasets(place: pathlib.Path) -> Held:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Held(**json.loads((place / "datasets").read_text()))
    return Held("", "", "", [])


def _why_twice(own: Held, other: Held) -> str:
    if own.config != other.config:
        first, second = sorted((own.name, other.name) if own.name != other.name else (own.config, other.config))
        return (f", for {first} and for {second}. One configuration with the feeds of both, opened with the same "
                "$TRAJD_JOB, has one daemon, which holds it once")
    if own.job != other.job:
        return f", for two jobs with {own.name}. If both have the same $TRAJD_JOB, one daemon holds it once"
    return (f": {own.name}, its data or trajd has changed, and the daemon of before still runs. It ends when no "
            "process has used it for some time")


def held_twice(place: pathlib.Path) -> Set[str]:
    """Returns a line for each reason why another running private daemon of this user holds datasets of this one, too."""
    own, lines = _read_datasets(place), set()
    for file in place.parent.glob("*/datasets"):
        other = _read_datasets(file.parent)
        paths = sorted(set(own.paths) & set(other.paths))
        if paths and file.parent != place and runs(file.parent):
            what = f"{paths[0]} is" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more are"
            lines.add(f"trajd: {what} in memory twice{_why_twice(own, other)}")
    return lines


def _newest_s(folder: pathlib.Path) -> float:
    """Returns the time of the newest change in a folder."""
    return max((path.lstat().st_mtime for path in (folder, *folder.rglob("*"))), default=0.0)


def _places(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for lock in folder.glob("*/launch.lock"):
        yield lock.parent


def _has_ended(place: pathlib.Path) -> bool:
    """Returns True if a daemon ran there and removed its sockets at its end."""
    return (place / "run" / "lock").exists() and not (place / "run" / "feed.sock").exists()


def remove_old(folder: pathlib.Path) -> None:
    """Removes the folders of daemons that have ended, and the configurations that only they used."""
    now = time.time()
    for place in _places(folder):
        with contextlib.suppress(OSError):  # another process removes it, too
            if now - _newest_s(place) < (ENDED_AFTER_S if _has_ended(place) else OLD_AFTER_S):
                continue
            with opened(place / "launch.lock", 0) as lock:
                fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not is_alive(place):
                    shutil.rmtree(place)
    used = {place.name.rpartition("-")[0] for place in _places(folder)}
    for config in (folder / "configs").glob("*.json"):
        with contextlib.suppress(OSError):
            if config.stem not in used and now - config.stat().st_mtime >= OLD_AFTER_S:
                config.unlink()
