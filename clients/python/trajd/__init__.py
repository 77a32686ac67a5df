"""trajd: batches of robot-learning data from a daemon's shared memory.

    feed = trajd.connect("/run/trajd/main", feed="train", device="cuda")
    for batch in feed.epoch(0):
        loss = policy(batch["obs"], batch["actions"], batch["actions_is_pad"])
"""
from ._core import version as __version__
from .batch import Batch
from .connect import connect, open
from .connection import Explanation
from .errors import (ArgumentError, Busy, Closed, DataError, DataWarning, DeviceError, Error, ForkError, LaunchError,
                     MemoryLimit, MissingFile, NotFound, ProtocolError, StateError, StorageError, SystemFailure,
                     Timeout, Unsupported)
from .feed import Epoch, Feed
from .feed_info import FeedInfo
from .live import Live, Observation
from .resampling import resample, resample_many
from .stats import Stats

__all__ = ["ArgumentError", "Batch", "Busy", "Closed", "DataError", "DataWarning", "DeviceError", "Epoch", "Error",
           "Explanation", "Feed", "FeedInfo", "ForkError", "LaunchError", "Live", "MemoryLimit", "MissingFile", "NotFound",
           "Observation", "ProtocolError", "StateError", "Stats", "StorageError", "SystemFailure", "Timeout", "Unsupported",
           "__version__", "connect", "open", "resample", "resample_many"]
