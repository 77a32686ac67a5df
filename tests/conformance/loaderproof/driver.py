"""What a driver is: one class that lets a loader read a recording. README.md has an example of 40 lines."""
import importlib
import importlib.metadata
from dataclasses import dataclass

import numpy as np

from .formulas import window_ids


@dataclass
class Share:
    """Which part of an epoch a reader gets, and how."""

    rank: int = 0
    world: int = 1
    workers: int = 0  # loader processes
    batch: int = 24  # windows of a batch, over all ranks
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True


@dataclass
class Batch:
    """Some windows. `episode` and `tick` say which: the number of the episode, and of the row of its control loop."""

    episode: np.ndarray  # int64 [B]
    tick: np.ndarray  # int64 [B]
    values: dict  # {stream: [B, T, D]; images [B, T, H, W, 3]}
    valid: dict  # {stream: bool [B, T]}: what the loader marks as a value that was recorded. Empty: it has no such marks

    def ids(self):
        return [int(episode) * 100_000 + int(tick) for episode, tick in zip(self.episode, self.tick)]


class Driver:
    """One loader. A subclass sets the texts below and has write() and read().

    name     of the loader, as it stands in the tables
    docs     links to the documentation that the settings follow
    rule     how times become rows, in a sentence. A loader without a notion of time gets its converter's usual rule
    package  the distribution whose version is recorded
    workers  the numbers of loader processes that it can run
    worlds   the world sizes that it can run
    tests    the tests that make sense for it
    server_names  the names of processes that serve the data, if they are not loader processes of the trainer"""

    name = docs = rule = package = ""
    workers = (0,)
    worlds = (1, 2, 3, 4)
    tests = ("T1", "T2", "T3", "T4", "T5", "T7", "T8")  # and T6, of loaders that read video
    server_names = ()

    def __init__(self, folder):
        self.folder = folder  # of this driver alone; it may write there

    def write(self, recording):
        """Writes the recording in the format of the loader."""
        raise NotImplementedError

    def windows(self, recording):
        """Returns the windows of an epoch. A loader may leave some out, and its rule says which."""
        return window_ids(recording)

    def read(self, share, state=None):
        """Yields the batches of one epoch. `state` is what state() has returned in a run before."""
        raise NotImplementedError

    def state(self):
        """Returns the state after the batch that was yielded last, as JSON can hold it. None: the loader has none."""
        return None

    def close(self):
        """Ends what the driver has started."""

    def frames(self, folder):
        """Yields (episode, number, image [H, W, 3] or None) of a LeRobot set with video (T6). None: it has refused that frame."""
        raise NotImplementedError

    def versions(self):
        return {name: importlib.metadata.version(name) for name in self.package.split()}


DRIVERS = {
    "reference": "reference:Reference",
    "trajd": "trajd_feed:Trajd",
    "plain": "plain:Plain",
    "stateful": "stateful:Stateful",
    "lerobot": "lerobot_local:LeRobot",
    "lerobot-streaming": "lerobot_streaming:Streaming",
    "robomimic": "robomimic_sequences:Robomimic",
    "diffusion-policy": "replay_sampler:DiffusionPolicy",
    "mosaicml": "mosaicml_shards:MosaicML",
    "grain": "grain_map:Grain",
    "litdata": "litdata_chunks:LitData",
    "rerun": "rerun_catalog:Rerun",
    "rlds": "rlds_windows:RLDS",
    "embodied-sync": "embodied_aligner:EmbodiedSync",
}


def load(name):
    """Returns the class of a driver: a name of DRIVERS, or `module:Class` of yours."""
    module, _, attribute = DRIVERS.get(name, name).partition(":")
    prefix = "loaderproof.drivers." if name in DRIVERS else ""
    return getattr(importlib.import_module(prefix + module), attribute)
