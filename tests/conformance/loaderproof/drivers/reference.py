"""The perfect loader, in numpy: what each test is compared with."""
import pickle

import numpy as np

from ..driver import Batch, Driver
from ..recordings import tick_times, window_ids
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
        for name in recording.episodes[0].streams:
            both = [perfect(recording.episodes[episode].streams[name], tick_times([tick]), steps_of(name), self.waits)
                    for episode, tick in zip(episodes, ticks)]
            values[name] = np.concatenate([value for value, _ in both])
            valid[name] = np.concatenate([mask for _, mask in both])
        return Batch(episodes, ticks, values, valid)


class Waiting(Reference):
    name = "perfect, but waits"
    waits = True
