#!/usr/bin/env python3
"""Measures how fast torch's DataLoader delivers the policy's windows from arrays in memory. Writes JSON to stdout.

    bench_torch_loader.py FILE.hdf5 [--seconds 5] [--batch 256] [--filter train] [--modes gathered single] [--workers 0 1 2]

The arrays are those of FILE (from tests/tools/make_demo_dataset.py), float32, episodes behind one another. A window
is 2 rows of each observation and 16 rows of the actions, padded with edge rows, with is_pad. `single`: a Dataset
whose item is one window; default_collate makes batches. `gathered`: the sampler gives 256 numbers at once, and one
fancy index per key makes the batch; a DataLoader cannot be faster. Needs torch, numpy and h5py. Workers persist,
the start is not timed, and nothing is done with a batch."""
import argparse
import json
import multiprocessing
import os
import re
import time

import h5py
import numpy as np
import torch

OBS = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object")
HISTORY, CHUNK = 2, 16


class Windows(torch.utils.data.Dataset):
    def __init__(self, path, filter_key):
        with h5py.File(path) as file:
            names = [name.decode() for name in file["mask"][filter_key][:]] if filter_key else list(file["data"])
            demos = [file["data"][name] for name in sorted(names, key=lambda name: int(re.search(r"\d+", name)[0]))]
            self.obs = {key: np.concatenate([demo["obs"][key][:] for demo in demos]).astype(np.float32) for key in OBS}
            self.actions = np.concatenate([demo["actions"][:] for demo in demos]).astype(np.float32)
            counts = [len(demo["actions"]) for demo in demos]
        ends = np.cumsum(counts)
        self.first = np.repeat(ends - counts, counts)
        self.last = np.repeat(ends - 1, counts)
        self.past, self.ahead = np.arange(1 - HISTORY, 1), np.arange(1 - HISTORY, 1 - HISTORY + CHUNK)

    def __len__(self):
        return len(self.actions)

    def __getitem__(self, index):
        """Returns one window, or the windows of a list of numbers."""
        anchor = np.asarray(index)
        first, last = self.first[anchor][..., None], self.last[anchor][..., None]
        past = np.clip(anchor[..., None] + self.past, first, last)
        steps = anchor[..., None] + self.ahead
        batch = {key: rows[past] for key, rows in self.obs.items()}
        return {"obs": batch, "actions": self.actions[np.clip(steps, first, last)], "is_pad": (steps < first) | (steps > last)}


def as_tensors(batch):
    return {key: as_tensors(value) if isinstance(value, dict) else torch.from_numpy(value) for key, value in batch.items()}


def make_loader(dataset, mode, workers, batch):
    order = torch.utils.data.RandomSampler(dataset)
    settings = {"num_workers": workers, "persistent_workers": workers > 0}
    if mode == "single":
        return torch.utils.data.DataLoader(dataset, batch_size=batch, sampler=order, drop_last=True, **settings)
    return torch.utils.data.DataLoader(dataset, batch_size=None, collate_fn=as_tensors,
                                       sampler=torch.utils.data.BatchSampler(order, batch, True), **settings)


def endless(loader):
    while True:
        yield from loader


def cpu_seconds():
    """Returns the CPU seconds of this process and of the loader's workers, which live on."""
    total = time.process_time()
    for child in multiprocessing.active_children():
        with open(f"/proc/{child.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(loader, mode, workers, batch, seconds):
    stream = endless(loader)
    for _ in range(8):
        next(stream)
    batches, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        next(stream)
        batches += 1
    return {"mode": mode, "workers": workers, "windows_per_s": round(batches * batch / elapsed, 1),
            "cpu_us_per_batch": round(1e6 * (cpu_seconds() - cpu) / batches, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--filter")
    parser.add_argument("--modes", nargs="+", choices=("gathered", "single"), default=("gathered", "single"))
    parser.add_argument("--workers", nargs="+", type=int, default=(0, 1, 2))
    options = parser.parse_args()
    torch.manual_seed(0)
    dataset = Windows(options.file, options.filter)
    results = [measure(make_loader(dataset, mode, workers, options.batch), mode, workers, options.batch, options.seconds)
               for mode in options.modes for workers in options.workers]
    print(json.dumps({"bench": "torch DataLoader", "torch": torch.__version__, "windows": len(dataset), "results": results}, indent=1))


if __name__ == "__main__":
    main()
