"""Other ways to load the same dataset and windows as the feed of bench_device_feed.

Loader: torch's DataLoader over arrays in memory gathers the rows around the anchors of 256 windows (one index per
key, in worker processes), they are copied to the GPU from pinned memory, and searchsorted and lerp (slerp for the
pose) make the steps there. Resident: all rows are tensors on the GPU, and the same is done without copying anything
but 256 numbers. A process that needs no other process cannot do better.

To their advantage they make no masks, do not limit the age of held values, and keep no order that can be resumed.
The values are the feed's up to rounding. However, a joint's steps across the end of the circle are blended as plain
numbers."""
import json
import os
import pathlib
import subprocess
import sys
import time

import h5py
import numpy as np
import torch

from report import figure, middle

FOLDER = pathlib.Path(__file__).resolve().parent
BATCH, STEP_NS = 256, 100_000_000
PAST, AHEAD = (-1, 0), tuple(range(16))
KEYS = {  # name: stamps, rows, steps, rows around the anchor (before, after) that contain them
    "joints": ("joint_t", "joint_pos", PAST, (64, 4)),
    "pose": ("pose_t", "pose_quat", PAST, (6, 2)),
    "place": ("pose_t", "pose_pos", PAST, (6, 2)),
    "gripper": ("gripper_t", "gripper_cmd", PAST, (6, 2)),
    "actions": ("pose_t", "pose_pos", AHEAD, (2, 34)),
    "grips": ("gripper_t", "gripper_cmd", AHEAD, (2, 50)),
}


class Arrays:
    """All episodes end to end. The stamps of different episodes are farther apart than any window."""

    def __init__(self, path):
        names = {name for stamps, rows, _, _ in KEYS.values() for name in (stamps, rows)}
        with h5py.File(path) as file:
            demos = list(file["data"].values())
            self.arrays = {name: np.concatenate([self._rows(demo, name, n) for n, demo in enumerate(demos)]) for name in names}
            counts = {name: np.array([demo[name].shape[0] for demo in demos]) for name in names}
        self.spans = {name: (np.cumsum(count) - count, np.cumsum(count) - 1) for name, count in counts.items()}
        self.anchors = self.arrays["pose_t"]
        self.episode = np.repeat(np.arange(len(counts["pose_t"])), counts["pose_t"])

    @staticmethod
    def _rows(demo, name, n):
        rows = demo[name][:]
        return rows - demo["pose_t"][0] + n * 10**12 if name.endswith("_t") else rows.astype(np.float32)


class Windows(torch.utils.data.Dataset):
    """An item is a whole batch: the index is the list of its window numbers."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays.anchors)

    def __getitem__(self, numbers):
        numbers = np.asarray(numbers)
        anchor, episode = self.arrays.anchors[numbers], self.arrays.episode[numbers]
        found = {"anchor": torch.from_numpy(anchor)}
        for key, (stamps, rows, _, (before, behind)) in KEYS.items():
            times = self.arrays.arrays[stamps]
            first, last = (span[episode][:, None] for span in self.arrays.spans[stamps])
            at = np.searchsorted(times, anchor)[:, None] + np.arange(-before, behind)
            at = np.clip(at, first, last)
            found[key + ".t"] = torch.from_numpy(times[at])
            found[key] = torch.from_numpy(self.arrays.arrays[rows][at])
        return found


def steps_of(steps, device):
    return torch.tensor(steps, device=device, dtype=torch.int64) * STEP_NS


def blend(left, right, share):
    return left + (right - left) * share


def slerp(left, right, share):
    dot = (left * right).sum(-1, keepdim=True)
    right = torch.where(dot < 0, -right, right)
    angle = torch.acos(dot.abs().clamp(max=1.0))
    sine = torch.sin(angle)
    near = sine < 1e-6
    a = torch.where(near, 1 - share, torch.sin((1 - share) * angle) / sine.clamp(min=1e-6))
    b = torch.where(near, share, torch.sin(share * angle) / sine.clamp(min=1e-6))
    return torch.nn.functional.normalize(a * left + b * right, dim=-1)


def at_times(times, rows, index, targets, how):
    """Takes times [B, N] or [N], rows of the same shape with D values each, and index [B, T]: the last row at or
    before each target."""
    if times.dim() == 2:
        pick = lambda x, i: torch.gather(x, 1, i)  # noqa: E731
        row = lambda i: torch.gather(rows, 1, i[..., None].expand(-1, -1, rows.shape[-1]))  # noqa: E731
    else:
        pick, row = (lambda x, i: x[i]), (lambda i: rows[i])
    if how == "hold":
        return row(index)
    after = (index + 1).clamp(max=times.shape[-1] - 1)
    t0, t1 = pick(times, index), pick(times, after)
    share = ((targets - t0).double() / (t1 - t0).clamp(min=1)).clamp(0, 1).float()[..., None]
    return (slerp if how == "slerp" else blend)(row(index), row(after), share)


HOW = {"pose": "slerp", "gripper": "hold", "grips": "hold"}


def resample(batch, device):
    found = {}
    for key, (_, _, steps, _) in KEYS.items():
        targets = batch["anchor"][:, None] + steps_of(steps, device)
        times = batch[key + ".t"]
        index = (torch.searchsorted(times, targets, right=True) - 1).clamp(min=0)
        found[key] = at_times(times, batch[key], index, targets, HOW.get(key, "blend"))
    found["actions"] = torch.cat([found["actions"], found.pop("grips")], -1)
    return found


def loader_batches(arrays, place, workers):
    windows = Windows(arrays)
    order = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(windows), BATCH, True)
    loader = torch.utils.data.DataLoader(windows, batch_size=None, sampler=order, num_workers=workers, persistent_workers=workers > 0,
                                         pin_memory=place.has_gpu)
    while True:
        for batch in loader:
            yield resample({key: value.to(place.device, non_blocking=True) for key, value in batch.items()}, place.device)


def resident_batches(arrays, place):
    there = {name: torch.from_numpy(rows).to(place.device) for name, rows in arrays.arrays.items()}
    anchors = torch.from_numpy(arrays.anchors).to(place.device)
    generator = torch.Generator().manual_seed(0)
    while True:
        for numbers in torch.randperm(len(anchors), generator=generator).split(BATCH):
            if len(numbers) < BATCH:
                continue
            anchor = anchors[numbers.to(place.device, non_blocking=True)]
            found = {}
            for key, (stamps, rows, steps, _) in KEYS.items():
                targets = anchor[:, None] + steps_of(steps, place.device)
                index = (torch.searchsorted(there[stamps], targets, right=True) - 1).clamp(min=0)
                found[key] = at_times(there[stamps], there[rows], index, targets, HOW.get(key, "blend"))
            found["actions"] = torch.cat([found["actions"], found.pop("grips")], -1)
            yield found


def rate(place, batches, seconds):
    for _ in range(8):
        next(batches)
    place.wait()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        next(batches)
        count += 1
    place.wait()
    return count / (time.perf_counter() - begin)


def robomimic(options):
    """Measures robomimic's own loader on the CPU, without a copy to the GPU. Returns None and the reason where it
    does not run."""
    cores = len(os.sched_getaffinity(0))
    counts = sorted({0, 2, min(4, cores), min(8, cores), max(1, cores - 4)})
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(FOLDER / "robomimic_site")]).lstrip(os.pathsep)
    done = subprocess.run([sys.executable, FOLDER / "bench_robomimic.py", options.dataset, "--seconds", str(options.seconds), "--cpus", str(cores),
                           "--modes", "low_dim", "all", "--workers", *map(str, counts)], capture_output=True, text=True, timeout=240,
                          env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["no word"])[-1]
    results = json.loads(done.stdout)["results"]
    best = max(results, key=lambda one: one["windows_per_s"])
    return best, f"cache {best['cache_mode']}, {best['workers']} workers"


def run(options, feeds, turn, nothing):
    place, arrays = options.place, Arrays(options.dataset)
    cores = len(os.sched_getaffinity(0))
    tried = {n: loader_batches(arrays, place, n) for n in sorted({0, min(4, cores), min(8, cores), max(1, cores - 4)})}
    best = max(tried, key=lambda n: rate(place, tried[n], options.seconds / 2))
    kinds = {f"DataLoader of {best} workers, a copy, searchsorted and lerp": tried[best],
             "all rows on the GPU, searchsorted and lerp": resident_batches(arrays, place)}
    ours, theirs = [], {name: [] for name in kinds}
    with feeds(options) as (feed,):
        batches = feed.forever()
        for _ in range(options.rounds):
            ours.append(turn(place, feed, batches, options.seconds, nothing)["rate"])
            for name, stream in kinds.items():
                theirs[name].append(rate(place, stream, options.seconds))
    yield figure("the feed, one worker", middle(ours), "batches/s")
    for name, rates in theirs.items():
        yield figure(name, middle(rates), "batches/s", ratio=middle([one / other for one, other in zip(ours, rates)], 2), ratio_to="the feed is")
    found, how = robomimic(options)
    if found is None:
        yield figure(f"robomimic does not run here: {how[:120]}", 0, "batches/s")
    else:
        yield figure(f"robomimic, {how}, on the CPU", found["batches_per_s"], "batches/s",
                     ratio=round(middle(ours)["median"] / found["batches_per_s"], 1), ratio_to="the feed is")
