"""torchdata's StatefulDataLoader on the data set of plain.py."""
import pickle

from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from ..rules import as_batch
from .plain import Plain, Windows


class Stateful(Plain):
    name = "StatefulDataLoader"
    docs = "https://meta-pytorch.org/data/0.11/torchdata.stateful_dataloader.html"
    package = "torchdata torch h5py"
    loader = None

    def read(self, share, state=None):
        dataset = Windows(self.folder / "data.hdf5")
        sampler = StatefulDistributedSampler(dataset, share.world, share.rank, share.shuffle, share.seed)
        sampler.set_epoch(share.epoch)
        self.loader = StatefulDataLoader(dataset, share.batch // share.world, sampler=sampler, num_workers=share.workers)
        if state:
            self.loader.load_state_dict(pickle.loads(bytes.fromhex(state)))
        yield from map(as_batch, self.loader)

    def state(self):
        return pickle.dumps(self.loader.state_dict()).hex()
