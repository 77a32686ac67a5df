"""diffusion_policy: ReplayBuffer and SequenceSampler. $DIFFUSION_POLICY is a checkout: it is not a package of a registry."""
import json
import os
import subprocess
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(os.environ.get("DIFFUSION_POLICY", "."))
from diffusion_policy.common.replay_buffer import ReplayBuffer  # noqa: E402
from diffusion_policy.common.sampler import SequenceSampler  # noqa: E402
from diffusion_policy.common.timestamp_accumulator import TimestampObsAccumulator  # noqa: E402

from ..driver import Batch, Driver  # noqa: E402
from ..formulas import CONTROL_HZ, SECOND, ticks  # noqa: E402
from ..rules import row_steps  # noqa: E402


class Windows(Dataset):
    """As its data sets do it (dataset/robomimic_replay_lowdim_dataset.py)."""

    def __init__(self, path):
        past, ahead = -row_steps("arm")[0], row_steps("action")[-1]
        self.sampler = SequenceSampler(ReplayBuffer.copy_from_path(path), past + 1 + ahead, pad_before=past, pad_after=ahead)

    def __len__(self):
        return len(self.sampler)

    def __getitem__(self, index):
        return {name: torch.from_numpy(value) for name, value in self.sampler.sample_sequence(index).items()}


class DiffusionPolicy(Driver):
    name = "diffusion_policy"
    docs = "https://github.com/real-stanford/diffusion_policy#-adding-a-task"
    rule = "recorded by its TimestampObsAccumulator: the first row of each period"
    package = "zarr numba torch"
    workers = (0, 1, 2)
    worlds = (1,)  # its training has no ranks

    def write(self, recording):
        buffer = ReplayBuffer.create_empty_numpy()
        for number, episode in enumerate(recording.episodes):
            count, data = ticks(episode), {}
            for name, stream in episode.streams.items():
                taken = TimestampObsAccumulator(start_time=0, dt=1 / CONTROL_HZ)
                taken.put({"x": stream.values}, stream.stamps / SECOND)
                rows = taken.data["x"]
                data[name] = rows[np.minimum(np.arange(count), len(rows) - 1)]
            data["id"] = np.stack([np.full(count, number), np.arange(count)], 1)
            buffer.add_episode(data)
        buffer.save_to_path(str(self.folder / "data.zarr"))
        (self.folder / "names.json").write_text(json.dumps(recording.names))

    def read(self, share, state=None):
        names = ("action", *json.loads((self.folder / "names.json").read_text()))
        past = -row_steps("arm")[0]
        torch.manual_seed(share.seed + share.epoch)
        dataset = Windows(str(self.folder / "data.zarr"))
        for item in DataLoader(dataset, share.batch, shuffle=share.shuffle, num_workers=share.workers):
            ids = item["id"][:, past].numpy()
            yield Batch(ids[:, 0], ids[:, 1], {name: item[name][:, past + row_steps(name)].numpy() for name in names}, {})

    def versions(self):
        done = subprocess.run(["git", "-C", os.environ["DIFFUSION_POLICY"], "rev-parse", "--short", "HEAD"], capture_output=True,
                              text=True)
        return {"diffusion_policy": done.stdout.strip() or "5ba07ac", **super().versions()}
