"""The perfect loader, in numpy: what each test is compared with."""
import pickle

import numpy as np

from ..driver import Batch, Driver
from ..formulas import tick_times, window_ids
from ..rules import perfect, steps_of


class Reference(Driver):
    name = "perfect"
    docs = "loaderproof/rules.py"
    rule = "blends between rows that were sensed until the anchor, and holds the newest one after them"
    workers = (0, 1, 2)  # it has none, and says so by giving the same
    waits = False  # True: the limit of the data
    position = 0

    def write(self, recording):
        (self.folder / "recording.pickle").write_bytes(pickle.dumps(recording))

    def read(self, share, state=None):
        recording = pickle.loads((self.folder / "recording.pickle").read_bytes())
        ids = np.array(window_ids(recording))
        if share.shuffle:
            ids = ids[np.random.default_rng([share.seed, share.epoch]).permutation(len(ids))]
        self.position = state["position"] if state else 0
        while self.position < len(ids):
            mine = np.array_split(ids[self.position: self.position + share.batch], share.world)[share.rank]
            self.position += share.batch
            yield self.batch(recording, mine // 100_000, mine % 100_000)

    def state(self):
        return {"position": self.position}

    def batch(self, recording, episodes, ticks):
        values, valid = {}, {}
        for number in np.unique(episodes):
            here = episodes == number
            for name, stream in recording.episodes[number].streams.items():
                value, mask = perfect(stream, tick_times(ticks[here]), steps_of(name), self.waits)
                values.setdefault(name, np.empty((len(ticks), *value.shape[1:]), value.dtype))[here] = value
                valid.setdefault(name, np.empty((len(ticks), *mask.shape[1:]), bool))[here] = mask
        return Batch(episodes, ticks, values, valid)


class Waiting(Reference):
    name = "perfect, but waits"
    waits = True
