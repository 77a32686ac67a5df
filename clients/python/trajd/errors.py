"""The exceptions and the warning of trajd. Messages come from the daemon and name the file, row, key or feed."""
from __future__ import annotations

import difflib
import sys
import warnings
from typing import Callable, Iterable, Optional

from . import _core


def nearest(name: object, known: Iterable[str]) -> Optional[str]:
    """Returns the name that `name` may be a slip of, or None."""
    near = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
    return near[0] if near else None


def names_there_are(name: object, known: Iterable[str]) -> str:
    """Returns the end of a message: "did you mean a? there are: a, b"."""
    known = list(known)
    near = nearest(name, known)
    return f"{f'did you mean {near}? ' if near else ''}there are: {', '.join(known)}"


def level_of_caller() -> int:
    """Returns the stacklevel, for warnings.warn in the calling function, of the first frame outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
        level, frame = level + 1, frame.f_back
    return level


class Error(Exception):
    """The base class of all other exceptions of trajd."""

    status = "error"


class ArgumentError(Error, ValueError):
    """A wrong argument or a wrong configuration."""

    status = "argument"


class StateError(ArgumentError):
    """A state that does not belong to this feed (another dataset or seed), or is not a state at all."""


class NotFound(Error, LookupError):
    """There is no feed, stream, file or episode of that name. The message lists the names that exist."""

    status = "not_found"


class MissingFile(Error, FileNotFoundError):
    """A configuration, or the path of a dataset in it, does not exist. `filename` has the path."""

    status = "not_found"


class DataError(Error):
    """A batch could not be made, or an encoded frame not decoded. The message names file and row, or the stream. Iteration,
    and pushing, can go on with the next one."""

    status = "data"


class Unsupported(Error):
    """The daemon does not support a protocol version, file, filter or kernel."""

    status = "unsupported"


class StorageError(Error, OSError):
    """Reading from the storage failed. The file's content is not the cause."""

    status = "io"


class MemoryLimit(Error, MemoryError):
    """A limit, or the machine's memory, is too small for the request."""

    status = "memory"


class ProtocolError(Error):
    """The daemon broke the protocol."""

    status = "protocol"


class Timeout(Error, TimeoutError):
    """No reply, no batch or no daemon within the timeout."""

    status = "timeout"


class Closed(Error, ConnectionError):
    """The daemon is gone, or the feed was closed."""

    status = "closed"


class Busy(Error):
    """All batches of the credit are held, or another job uses the feed: try again later."""

    status = "busy"


class SystemFailure(Error, RuntimeError):
    """A system call failed."""

    status = "system"


class DeviceError(Error, RuntimeError):
    """The GPU failed."""

    status = "device"


class ForkError(Error, RuntimeError):
    """A connection was used in a process forked after it was made."""

    status = "argument"


class DataWarning(UserWarning):
    """A feed leaves episodes out of the training, or its plan is doubtful: issued once for each feed of a process. Or a job
    goes on with other images than it had. Or a stream of trajd.Live refuses rows, has stopped, or comes at another rate.

    `warnings.simplefilter("error", trajd.DataWarning)` ends the program instead."""


class LaunchError(Error, RuntimeError):
    """A private daemon could not be started. The message ends with the daemon's own errors."""


def shown(text: str) -> str:
    """Returns a text for a terminal, in which names from an unknown file cannot act on it."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def run_command(program: str, extra: str, command: Callable[[], None], show: Callable[[str], str] = str,
                interrupted: str = "") -> int:
    """Runs what a command line asks for, and shows an error, which is one sentence. Returns the exit status: 2 after an
    error. `extra` is that of the package without which an import fails; `interrupted` is said after Ctrl-C."""
    warnings.simplefilter("ignore", DataWarning)  # the package has printed what they say
    try:
        command()
        return 0
    except ImportError as error:  # one without a name: packages do not fit each other, such as pyarrow and numpy
        what = f"{error.name} is not installed: pip install" if error.name else f"{show(str(error).strip().splitlines()[0])}: pip install -U"
        print(f"{program}: {what} 'trajd[{extra}]'", file=sys.stderr)
    except (Error, OSError) as error:
        print(f"{program}: {show(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        if interrupted:
            print(f"{program}: {interrupted}", file=sys.stderr)
        return 130
    return 2


# In the order of `enum trajd_status`, and ForkError at the end.
_core.set_errors([Error, ArgumentError, NotFound, DataError, Unsupported, StorageError, MemoryLimit, ProtocolError,
                  Timeout, Closed, Busy, SystemFailure, DeviceError, Error, ForkError])
