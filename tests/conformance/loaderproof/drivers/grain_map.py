"""Grain: a MapDataset of windows, shuffled, sharded and batched by it."""
import multiprocessing

import grain
import numpy as np

from ..driver import Driver
from ..rules import as_batch, one_rate, window


class Windows:
    def __init__(self, path):
        with np.load(path) as file:
            self.episodes = [{name.split("/")[1]: file[name] for name in file.files if name.startswith(f"{number}/")}
                             for number in range(int(file["count"]))]
        self.places = [(number, tick) for number, rows in enumerate(self.episodes) for tick in range(len(rows["action"]))]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        number, tick = self.places[index]
        item = {"id": np.array([number, tick])}
        for name, rows in self.episodes[number].items():
            item[name], inside = window(rows, name, tick, len(rows))
            item[f"{name}_is_pad"] = ~inside
        return item


class Grain(Driver):
    name = "Grain"
    docs = "https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html"
    rule = "one rate, by the nearest stamp, at conversion"
    package = "grain"
    workers = (0, 1, 2)
    iterator = None

    def write(self, recording):
        rows = {f"{number}/{name}": values for number, episode in enumerate(one_rate(recording, "nearest"))
                for name, values in episode.items()}
        np.savez(self.folder / "rows.npz", count=len(recording.episodes), **rows)

    def read(self, share, state=None):
        data = grain.MapDataset.source(Windows(self.folder / "rows.npz"))
        if share.shuffle:
            data = data.shuffle(seed=share.seed + share.epoch)
        data = data[share.rank::share.world].batch(share.batch // share.world)
        rows = data.to_iter_dataset()
        if share.workers:
            multiprocessing.set_start_method("spawn", force=True)
            rows = rows.mp_prefetch(grain.MultiprocessingOptions(num_workers=share.workers))
        self.iterator = iter(rows)
        if state:
            self.iterator.set_state(state)
        yield from map(as_batch, self.iterator)

    def state(self):
        return self.iterator.get_state()
