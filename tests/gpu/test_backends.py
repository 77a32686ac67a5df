#!/usr/bin/env python3
"""trajctl resample on its own GPU and on a daemon's: the same values as on the CPU, and the times.

    BUNDLE/gpu_run.sh test_backends.py
    BUNDLE/gpu_run.sh test_backends.py test_the_same_values      # without the large files

Needs h5py and numpy beside torch. Prints a line of JSON per file; all but the first have several hundred MB. It has
the seconds of each backend (the median of turns), MB/s read and written, and the CPU seconds."""
import contextlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import gpu_checks
import gpu_feed
import h5py
import numpy as np

LIMIT_S = 280
TRAJCTL = gpu_feed.BUNDLE / "python/trajd/bin/trajctl"
BACKENDS = ("cpu", "cuda", "daemon")
TURNS = 3
HELD = ("previous", "nearest")
RATE_FROM, RATE = 20, 30


def resample(one, backend, source, output, *arguments):
    """Returns the run's events, its wall time and its CPU time in seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([TRAJCTL, "resample", source, "-o", output, "--force", "--json", "--backend", backend, "--endpoint", one.endpoint,
                           *map(str, arguments)], capture_output=True, text=True, timeout=120)
    took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    events = {event["event"]: event for event in map(json.loads, done.stdout.splitlines())}
    return events, took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def datasets(file):
    names = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def compare(path, other, plan):
    """Held values and integers must be equal, blended values up to rounding. Returns the number of datasets of each
    kind."""
    kinds = {stream["name"]: stream["kind"] for stream in plan["streams"]}
    held = blended = 0
    with h5py.File(path) as a, h5py.File(other) as b:
        assert datasets(a) == datasets(b) and datasets(a)
        for name in datasets(a):
            x, y = a[name][...], b[name][...]
            assert x.dtype == y.dtype and x.shape == y.shape, name
            kind = kinds.get(name.split("/", 2)[-1], "previous")
            if x.dtype.kind != "f" or (kind in HELD and not name.endswith("obs/object")):  # of obs/object, parts are blended
                assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), (name, kind)
                held += 1
                continue
            apart = np.abs(x.astype(np.float64) - y.astype(np.float64))
            if kind == "angle":
                apart = np.minimum(apart, np.abs(2 * np.pi - apart))
            limit = 2e-6 * np.maximum(1, np.abs(x.astype(np.float64)))
            assert np.array_equal(np.isnan(x), np.isnan(y)) and not (apart > limit).any(), (name, kind, np.nanmax(apart / limit))
            blended += 1
    return held, blended


@contextlib.contextmanager
def folder(need_bytes=0):
    """Returns a folder in memory where there is room: then the disk does not limit the speed."""
    memory = os.statvfs("/dev/shm")
    roomy = memory.f_bavail * memory.f_frsize > 2 * need_bytes
    with tempfile.TemporaryDirectory(prefix="trajd", dir="/dev/shm" if roomy else None) as place:
        yield pathlib.Path(place)


def test_the_same_values():
    """Every kind and storage form of the demonstration dataset. The output names its backend."""
    ways = [["--rate", 50], ["--rate", 70, "--window", "40ms", "--kind", "joint_pos=mean", "--kind", "pose_pos=nearest", "--compress", "gzip:1"],
            ["--rate", "30000/1001", "--dtype", "float32", "--max-gap", "200ms"]]
    with folder() as place, gpu_feed.daemon() as one:
        for way in ways:
            plans = {}
            for backend in BACKENDS:
                events, _, _ = resample(one, backend, gpu_feed.BUNDLE / "demo.hdf5", place / f"{backend}.hdf5", "--layout", "demo", *way)
                plans[backend], done = events["plan"], events["done"]
                assert (done["backend"], done["fell_back"], done["pieces_here"]) == (backend, False, 0) and done["pieces"] > 20, done
            assert "GPU" not in plans["cpu"]["by"] and str(one.endpoint) in plans["daemon"]["by"] and "CPU" not in plans["daemon"]["by"], plans
            for backend in BACKENDS[1:]:
                held, blended = compare(place / "cpu.hdf5", place / f"{backend}.hdf5", plans["cpu"])
                assert held > 20 and blended > 20, (held, blended)


# ---- large files ----

def quaternions(random, rows):
    walk = np.cumsum(random.normal(scale=0.02, size=(rows, 4)), axis=0) + [0, 0, 0, 1]
    return walk / np.linalg.norm(walk, axis=1, keepdims=True)


def turning(random, rows):
    return {"actions": random.normal(size=(rows, 7)), **{f"obs/body{k}_quat": quaternions(random, rows) for k in range(4)}}


def wide(random, rows):
    return {"actions": random.normal(size=(rows, 7)), "obs/state": random.normal(size=(rows, 64)).astype(np.float32)}


# name: episodes, rows per episode, streams of an episode
CASES = {"4 quaternions, 40 episodes of 25,000 rows": (40, 25_000, turning), "64 float32 features, 40 episodes of 25,000 rows": (40, 25_000, wide),
         "4 quaternions, 4000 episodes of 250 rows": (4000, 250, turning)}


def write(path, episodes, rows, content):
    """Writes four different episodes again and again."""
    random = np.random.default_rng(0)
    made = [content(random, rows) for _ in range(4)]
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Large", "type": 1, "env_kwargs": {"control_freq": RATE_FROM}})
        for episode in range(episodes):
            group = data.create_group(f"demo_{episode}")
            group.attrs["num_samples"] = rows
            for name, values in made[episode % 4].items():
                group[name] = values


def measure(one, source, place, threads):
    """Measures the backends in turns. Keeps the outputs of the last turn."""
    arguments = ["--threads", threads] if threads else []
    seconds, busy, done = ({backend: [] for backend in BACKENDS} for _ in range(3))
    for _ in range(TURNS):
        for backend in BACKENDS:
            done[backend], took, used = resample(one, backend, source, place / f"{backend}.hdf5", "--rate", RATE, *arguments)
            assert (done[backend]["done"]["backend"], done[backend]["done"]["fell_back"]) == (backend, False), done[backend]
            seconds[backend].append(took)
            busy[backend].append(used)
    size = (done["cpu"]["done"]["bytes_read"] + done["cpu"]["done"]["bytes_written"]) / 1e6
    median = {backend: statistics.median(seconds[backend]) for backend in BACKENDS}
    print(json.dumps({"megabytes": round(size, 1), "threads": threads or os.cpu_count(),
                      "seconds": {backend: round(value, 3) for backend, value in median.items()},
                      "megabytes_per_s": {backend: round(size / value) for backend, value in median.items()},
                      "processor_seconds": {backend: round(statistics.median(busy[backend]), 2) for backend in BACKENDS}}), flush=True)
    return done["cpu"]["plan"]


def test_large_files():
    """The values are the same in large files. Prints the times."""
    need_bytes = 3 << 30
    with folder(need_bytes) as place, gpu_feed.daemon() as one:
        print("   demo.hdf5, of which a run is mostly its start:", flush=True)
        measure(one, gpu_feed.BUNDLE / "demo.hdf5", place, None)
        for name, (episodes, rows, content) in CASES.items():
            source = place / "source.hdf5"
            write(source, episodes, rows, content)
            print(f"   {name}:", flush=True)
            for threads in (None, 1):
                plan = measure(one, source, place, threads)
            for backend in BACKENDS[1:]:
                held, blended = compare(place / "cpu.hdf5", place / f"{backend}.hdf5", plan)
                assert held >= episodes and blended >= episodes, (held, blended)


if __name__ == "__main__":
    sys.exit(gpu_checks.main(globals(), LIMIT_S))
