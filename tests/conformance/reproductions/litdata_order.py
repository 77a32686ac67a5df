"""litdata: which windows make a global batch depends on the number of ranks, so a run with more ranks is another run."""
import pathlib
import tempfile

import torch
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache
from litdata.utilities.env import _DistributedEnv

folder = str(pathlib.Path(tempfile.mkdtemp()) / "chunks")
cache = Cache(folder, chunk_size=8)
for number in range(64):
    cache[number] = {"number": torch.tensor(number)}
cache.done()
cache.merge()
for world in (1, 2, 4):
    first = []
    for rank in range(world):
        dataset = StreamingDataset(folder, shuffle=True, seed=0)
        dataset.distributed_env = _DistributedEnv(world, rank, 1)  # as torch.distributed gives it
        first += next(iter(StreamingDataLoader(dataset, batch_size=8 // world)))["number"].tolist()
    print(f"{world} ranks: the first batch of 8 is", *sorted(first))
