"""litdata: windows in optimized chunks."""
import os

import torch.distributed
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache

from ..driver import Driver
from ..rules import as_batch, windows


class LitData(Driver):
    name = "litdata"
    docs = "https://github.com/Lightning-AI/litData#readme"
    rule = "one rate, by the nearest stamp, at conversion"
    package = "litdata torch"
    workers = (0, 1, 2)
    loader = None

    def write(self, recording):
        cache = Cache(str(self.folder / "chunks"), chunk_bytes="8MB")
        for number, item in enumerate(windows(recording, "nearest")):
            cache[number] = {name: torch.from_numpy(value) for name, value in item.items()}
        cache.done()
        cache.merge()

    def read(self, share, state=None):
        if share.world > 1:
            os.environ.update(RANK=str(share.rank), WORLD_SIZE=str(share.world), MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=os.environ["LOADERPROOF_PORT"])
            torch.distributed.init_process_group("gloo")
        dataset = StreamingDataset(str(self.folder / "chunks"), shuffle=share.shuffle, seed=share.seed, drop_last=False)
        self.loader = StreamingDataLoader(dataset, batch_size=share.batch // share.world, num_workers=share.workers)
        if state:
            self.loader.load_state_dict(state)
        for _ in range(share.epoch):  # epochs follow one another in one process
            for _ in self.loader:
                pass
        yield from map(as_batch, self.loader)

    def state(self):
        return self.loader.state_dict()
