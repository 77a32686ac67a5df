"""torch's DataLoader on one HDF5 file of one rate: the example of a driver."""
import h5py
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from ..driver import Driver
from ..rules import as_batch, one_rate, window


class Windows(Dataset):
    def __init__(self, path):
        with h5py.File(path) as file:
            self.episodes = [{name: rows[()] for name, rows in file[str(number)].items()} for number in range(len(file))]
        self.places = [(number, tick) for number, rows in enumerate(self.episodes) for tick in range(len(rows["action"]))]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        number, tick = self.places[index]
        item = {"id": torch.tensor([number, tick])}
        for name, rows in self.episodes[number].items():
            item[name], inside = window(rows, name, tick, len(rows))
            item[f"{name}_is_pad"] = ~inside
        return item


class Plain(Driver):
    name = "h5py + DataLoader"
    docs = "https://docs.pytorch.org/docs/stable/data.html"
    rule = "one rate, by the nearest stamp, at conversion"
    package = "torch h5py"
    workers = (0, 1, 2)

    def write(self, recording):
        with h5py.File(self.folder / "data.hdf5", "w") as file:
            for number, rows in enumerate(one_rate(recording, "nearest")):
                for name, values in rows.items():
                    file[f"{number}/{name}"] = values

    def read(self, share, state=None):
        dataset = Windows(self.folder / "data.hdf5")
        sampler = DistributedSampler(dataset, share.world, share.rank, share.shuffle, share.seed)
        sampler.set_epoch(share.epoch)
        yield from map(as_batch, DataLoader(dataset, share.batch // share.world, sampler=sampler, num_workers=share.workers))
