"""MosaicML Streaming: windows in MDS shards."""
import os

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from ..driver import Driver
from ..rules import as_batch, windows


class MosaicML(Driver):
    name = "MosaicML Streaming"
    docs = "https://docs.mosaicml.com/projects/streaming/en/stable/dataset_configuration/shuffling.html"
    rule = "one rate, by the nearest stamp, at conversion"
    package = "mosaicml-streaming torch"
    workers = (0, 1, 2)
    loader = None

    def write(self, recording):
        items = windows(recording, "nearest")
        first = next(items)
        columns = {name: f"ndarray:{value.dtype}:{','.join(map(str, value.shape))}" if value.dtype != bool else "ndarray:uint8"
                   for name, value in first.items()}
        with MDSWriter(out=str(self.folder / "shards"), columns=columns) as writer:
            for item in (first, *items):
                writer.write({name: value.astype("uint8") if value.dtype == bool else value for name, value in item.items()})

    def read(self, share, state=None):
        os.environ.update(RANK=str(share.rank), WORLD_SIZE=str(share.world), LOCAL_RANK=str(share.rank),
                          LOCAL_WORLD_SIZE=str(share.world), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=os.environ.get("LOADERPROOF_PORT", "29500"))
        if share.world == 1:
            clean_stale_shared_memory()  # as its documentation advises after a crash
        dataset = StreamingDataset(local=str(self.folder / "shards"), shuffle=share.shuffle, shuffle_seed=share.seed,
                                   batch_size=share.batch // share.world, num_canonical_nodes=1)
        self.loader = StreamingDataLoader(dataset, batch_size=share.batch // share.world, num_workers=share.workers)
        if state:
            self.loader.load_state_dict(state)
        for _ in range(share.epoch):  # epochs follow one another in one process
            for _ in self.loader:
                pass
        yield from map(as_batch, self.loader)

    def state(self):
        return self.loader.state_dict()
