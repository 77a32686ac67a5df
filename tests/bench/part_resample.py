"""Part `resample`: trajctl resample against the same in h5py, numpy and scipy, and against reading and writing the
bytes only.

There are four files: many small episodes, quaternions, wide rows, images. The three programs take turns on each.
Files are in memory (/dev/shm) where there is room, to leave out the disk's speed. Each program syncs the file that
it wrote."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import h5py
import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from bench_daemon import figure, middle

RATE_FROM, RATE = 20, 30
ROOM_BYTES = 12 << 30
BLOCK_BYTES = 4 << 20
TURNS_MAX = 3


def quaternions(random, rows):
    walk = np.cumsum(random.normal(scale=0.02, size=(rows, 4)), axis=0) + [0, 0, 0, 1]
    return walk / np.linalg.norm(walk, axis=1, keepdims=True)


def small(random, rows):
    return {"actions": random.normal(size=(rows, 7)), "obs/robot0_eef_pos": random.normal(size=(rows, 3)),
            "obs/robot0_eef_quat": quaternions(random, rows), "obs/robot0_gripper_qpos": random.normal(size=(rows, 2)),
            "obs/robot0_joint_pos": random.normal(size=(rows, 7)), "rewards": random.normal(size=rows)}


def turning(random, rows):
    return {"actions": random.normal(size=(rows, 7)), **{f"obs/body{k}_quat": quaternions(random, rows) for k in range(4)}}


def wide(random, rows):
    return {"actions": random.normal(size=(rows, 7)), "obs/state": random.normal(size=(rows, 64)).astype(np.float32)}


def images(random, rows):
    return {"actions": random.normal(size=(rows, 7)), "obs/agentview_image": random.integers(0, 256, (rows, 128, 128, 3), np.uint8)}


# name, episodes, rows per episode, streams of an episode, budget
CASES = [("5000 episodes of 50 rows, 6 low-dimensional streams", 5000, 50, small, 10),
         ("4 quaternions, 40 episodes of 25,000 rows", 40, 25_000, turning, 10),
         ("64 float32 features, 40 episodes of 50,000 rows", 40, 50_000, wide, None),
         ("images of 128 x 128 x 3, 40 episodes of 500 rows", 40, 500, images, None)]


def write_dataset(path, episodes, rows, content):
    """Writes four different episodes again and again."""
    random = np.random.default_rng(0)
    made = [content(random, rows) for _ in range(4)]
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Bench", "type": 1, "env_kwargs": {"control_freq": RATE_FROM}})
        for episode in range(episodes):
            group = data.create_group(f"demo_{episode}")
            group.attrs["num_samples"] = rows
            for name, values in made[episode % 4].items():
                group[name] = values


def resampled(name, values, source, target, rows_before):
    """Resamples with numpy and scipy as people write it, by the kind of each stream."""
    if name.endswith("_quat"):
        return Slerp(source, Rotation.from_quat(values))(target).as_quat()
    if name.endswith("_image") or not name.startswith("obs/"):
        return values[rows_before]
    low, high = values[rows_before], values[np.minimum(rows_before + 1, len(values) - 1)]
    share = ((target - source[rows_before]) * RATE_FROM)[:, None]
    return (low + share * (high - low)).astype(values.dtype)


def by_scipy(source_path, path):
    with h5py.File(source_path) as source, h5py.File(path, "w") as made:
        data = made.create_group("data")
        for key, value in source["data"].attrs.items():
            data.attrs[key] = value
        for demo, was in source["data"].items():
            group, rows = data.create_group(demo), len(was["actions"])
            steps = (rows - 1) * RATE // RATE_FROM + 1
            at, source_at = np.arange(steps) / RATE, np.arange(rows) / RATE_FROM
            rows_before = np.arange(steps) * RATE_FROM // RATE
            group.attrs["num_samples"] = steps
            for name in list_datasets(was):
                group[name] = resampled(name, was[name][...], source_at, at, rows_before)
    sync(path)


def list_datasets(group):
    return [name if not isinstance(item, h5py.Group) else f"{name}/{below}" for name, item in group.items()
            for below in (item if isinstance(item, h5py.Group) else [""])]


def by_trajctl(trajctl, source_path, path):
    subprocess.run([trajctl, "resample", source_path, "-o", path, "--rate", str(RATE), "--force"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def by_copying(source_path, path, size):
    """Reads the whole source and writes as many bytes as the output has: no program can be faster."""
    block = bytearray(BLOCK_BYTES)
    with open(source_path, "rb", buffering=0) as source, open(path, "wb", buffering=0) as made:
        while source.readinto(block):
            pass
        for begin in range(0, size, BLOCK_BYTES):
            made.write(memoryview(block)[:min(BLOCK_BYTES, size - begin)])
    sync(path)


def sync(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def seconds(what, *arguments):
    begin = time.perf_counter()
    what(*arguments)
    return time.perf_counter() - begin


def check_same(ours, theirs):
    """Fails where the values differ: then the times cannot be compared."""
    with h5py.File(ours) as a, h5py.File(theirs) as b:
        for demo in ("demo_0", "demo_3"):
            for name in list_datasets(b["data"][demo]):
                left, right = a["data"][demo][name][...], b["data"][demo][name][...]
                if name.endswith("_quat"):
                    right = right * np.sign(np.sum(left * right, axis=1, keepdims=True))
                same = np.array_equal if left.dtype == np.uint8 else lambda x, y: np.allclose(x, y, atol=1e-5)
                assert left.shape == right.shape and same(left, right), (demo, name)


def run_case(trajctl, folder, rounds, name, episodes, rows, content, budget):
    source, ours, theirs, plain = (folder / f"{part}.hdf5" for part in ("source", "ours", "theirs", "plain"))
    taken = {"ours": [], "theirs": [], "plain": []}
    write_dataset(source, episodes, rows, content)
    for turn in range(rounds):
        taken["ours"].append(seconds(by_trajctl, trajctl, source, ours))
        taken["plain"].append(seconds(by_copying, source, plain, ours.stat().st_size))
        taken["theirs"].append(seconds(by_scipy, source, theirs))
    check_same(ours, theirs)
    megabytes = (source.stat().st_size + ours.stat().st_size) / 1e6
    ratio = middle([b / a for a, b in zip(taken["ours"], taken["theirs"])])
    one = figure(name, middle([1e3 * t for t in taken["ours"]], 0), "ms", ratio=ratio, ratio_to="h5py, numpy, scipy", megabytes=round(megabytes),
                 plain_ms=middle([1e3 * t for t in taken["plain"]], 0), share_of_plain=middle([p / a for p, a in zip(taken["plain"], taken["ours"])], 2))
    if budget:
        one.update(budget=f">= {budget}x", met=ratio["median"] >= budget)
    figures = [one, figure(f"    reading and writing the {round(megabytes)} MB alone", middle([1e3 * t for t in taken["plain"]], 0), "ms",
                           ratio=one["share_of_plain"], ratio_to="the time of the above")]
    for path in (source, ours, theirs, plain):
        path.unlink()
    return figures


def run(options):
    memory = pathlib.Path("/dev/shm")
    room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ROOM_BYTES
    with tempfile.TemporaryDirectory(dir=memory if room else options.work) as folder:
        figures = [one for case in CASES for one in run_case(options.build / "clients/cli/trajctl", pathlib.Path(folder),
                                                             min(options.rounds, TURNS_MAX), *case)]
    return {"figures": figures, "in_memory": room}
