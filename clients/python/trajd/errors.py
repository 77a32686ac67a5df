"""What can go wrong, as exceptions; the message is the daemon's own, with file, row, key or name."""
from __future__ import annotations

from . import _core


class Error(Exception):
    """Of which all others here are kinds."""

    status = "error"


class ArgumentError(Error, ValueError):
    """A call or a configuration that is wrong: correct it, then try again."""

    status = "argument"


class StateError(ArgumentError):
    """A state that is not of this feed: another dataset or seed, or not a state at all."""


class NotFound(Error, LookupError):
    """No feed, stream, file or episode of that name; the message names those that there are."""

    status = "not_found"


class DataError(Error):
    """This batch could not be made: file and row stand in the message. The next one can be asked for."""

    status = "data"


class Unsupported(Error):
    """Understood and refused: another protocol version, file, filter or kernel."""

    status = "unsupported"


class StorageError(Error, OSError):
    """Reading failed, and not because of what stands in the file."""

    status = "io"


class MemoryLimit(Error, MemoryError):
    """A limit, or the machine's memory, is too small for what was asked."""

    status = "memory"


class ProtocolError(Error):
    """The other side broke the protocol."""

    status = "protocol"


class Timeout(Error, TimeoutError):
    """Not in the time that was given."""

    status = "timeout"


class Closed(Error, ConnectionError):
    """The daemon is gone, or this connection was closed."""

    status = "closed"


class Busy(Error):
    """Somebody else has it: all batches are held, or another job reads the feed."""

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


class LaunchError(Error, RuntimeError):
    """A private daemon could not be started; the message ends with what the daemon said."""


# By the numbers of `enum trajd_status`; behind them the one for forks.
_core.set_errors([Error, ArgumentError, NotFound, DataError, Unsupported, StorageError, MemoryLimit, ProtocolError, Timeout,
                  Closed, Busy, SystemFailure, DeviceError, Error, ForkError])
