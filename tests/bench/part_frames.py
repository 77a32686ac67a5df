"""Part `frames`: encoded rows against pread and h5py, packing against a copy, and the start over 200 compressed ALOHA episodes."""
import json
import os
import subprocess
import sys
import time

import h5py
import numpy as np

from bench_daemon import ROOT, figure, middle
from part_start import starts

sys.path.insert(0, str(ROOT / "tests/tools"))
from make_frame_files import LAYOUT, pad, variable  # noqa: E402

ROWS, EPISODES, CAMERAS, FRAME_BYTES = 400, 200, 4, 20_000
MANY_ROWS = 4000  # 100 MB for each form: more than the processor's caches hold
ROUNDS = 5
READ_RATIO, H5PY_RATIO, PACK_RATIO, READY_MS, CACHED_MS = 0.9, 4, 0.8, 1000, 50
OPEN_MS = {"first": 150, "cached": 50}
STREAMS = """\
  action: {kind: previous}
  "cams/*": {path: observations/images/*, kind: previous, image: {color: rgb, size: [480, 640]}}
"""
CONFIG = """datasets:
  lab: {{path: {path}, layout: {layout}}}
feeds:
  train:
    dataset: lab
    global_batch: 256
    anchor: {{clock: robot}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      action: {{at: 0..15}}
"""


def frames(random, rows=MANY_ROWS):
    """Returns JPEG headers with noise: 75 % to 125 % of FRAME_BYTES each."""
    noise = random.integers(1, 256, 2 * FRAME_BYTES, dtype=np.uint8).tobytes()
    head = bytes.fromhex("ffd8ffc0001108" + "01e0" + "0280" + "03012200021101031101ffda")
    return [head + noise[:size] + b"\xff\xd9" for size in random.integers(FRAME_BYTES * 3 // 4, FRAME_BYTES * 5 // 4, rows)]


def write_families(path):
    random = np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        file["action"] = np.zeros((MANY_ROWS, 14), "f4")
        images = file.create_group("observations/images")
        rows = pad(frames(random))
        images["padded"] = rows
        images.create_dataset("padded_in_chunks", data=rows, chunks=(1, rows.shape[1]))
        images["strings"] = np.array(frames(random), f"S{FRAME_BYTES * 5 // 4 + 200}")
        variable(images, "variable", frames(random))


def sparse(group, name, rows):
    """Makes a dataset of ROWS padded frames, a chunk each, all allocated: the first are `rows`, the others are holes in the file."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk((1, rows.shape[1]))
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((ROWS, rows.shape[1]))
    made = h5py.Dataset(h5py.h5d.create(group.id, name.encode(), h5py.h5t.STD_U8LE, space, creation))
    made[:len(rows)] = rows


def write_episodes(folder):
    """Writes 200 files of ACT's compressed form."""
    if (folder / "done").exists():
        return
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(6)
    for e in range(EPISODES):
        with h5py.File(folder / f"episode_{e}.hdf5", "w") as file:
            for name in "action", "observations/qpos", "observations/qvel":
                file[name] = random.normal(size=(ROWS, 14)).astype("f4")
            images = file.create_group("observations/images")
            for camera in range(CAMERAS):
                sparse(images, f"cam_{camera}", pad(frames(random, 2), FRAME_BYTES * 5 // 4 + 200))
    (folder / "done").touch()


def h5py_seconds(path, name):
    best = 1e9
    with h5py.File(path) as file:
        dataset = file[name]
        for _ in range(ROUNDS):
            begin = time.thread_time()
            dataset[:]
            best = min(best, time.thread_time() - begin)
    return best


def reading(options, layout):
    path = options.work / "frames.hdf5"
    write_families(path)
    command = [options.build / "tests/bench/bench_frames", path, layout, options.build / "daemon/hdf5/trajd-indexer"]
    figures = []
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        name, form, _, size, plain_size, ours, plain = line.split("\t")
        rate, plain_rate = (int(plain_size) / float(seconds) / 1e9 for seconds in (ours, plain))
        h5py_time = h5py_seconds(path, name.replace("cams/", "observations/images/"))
        ratio, against = rate / plain_rate, h5py_time / float(ours)
        budget = f">= {READ_RATIO} of pread" + (f", >= {H5PY_RATIO}x h5py" if form == "variable length" else "")
        met = ratio >= READ_RATIO and (form != "variable length" or against >= H5PY_RATIO)
        figures.append(figure(f"{name[5:]}: frames read", round(rate, 2), "GB/s", of_pread=round(ratio, 3), of_h5py=round(against, 2),
                              frame_bytes=int(size), budget=budget, met=met))
    return figures


def copy(source, target):
    """Copies a file and waits until it is on disk, as `trajctl pack` does. Returns the seconds."""
    begin = time.perf_counter()
    with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as write:
        while block := read.read(4 << 20):
            write.write(block)
        os.fsync(write.fileno())
    return time.perf_counter() - begin


def packing(options):
    """Packs a file of each form with 30 episodes, in turns with a copy of it."""
    random, figures = np.random.default_rng(7), []
    forms = {"padded": lambda images, rows: images.create_dataset("cam", data=pad(rows), chunks=(1, max(map(len, rows)))),
             "strings": lambda images, rows: images.create_dataset("cam", data=np.array(rows, f"S{max(map(len, rows))}")),
             "variable": lambda images, rows: variable(images, "cam", rows)}
    source, target, layout = options.work / "to_pack.hdf5", options.work / "packed.hdf5", options.work / "pack_bench.yaml"
    layout.write_text(LAYOUT.format(name="pack_bench", groups="/data/demo_*", streams=STREAMS))
    for form, write in forms.items():
        with h5py.File(source, "w") as file:
            for e in range(3 * MANY_ROWS // ROWS):
                file[f"data/demo_{e}/action"] = np.zeros((ROWS, 14), "f4")
                write(file.create_group(f"data/demo_{e}/observations/images"), frames(random, ROWS))
        ours, plain = [], []
        for _ in range(max(3, options.rounds)):
            begin = time.perf_counter()
            subprocess.run([options.build / "clients/cli/trajctl", "pack", source, "-o", target, "--layout", layout, "--force"],
                           check=True, stdout=subprocess.DEVNULL)
            ours.append(time.perf_counter() - begin)
            plain.append(copy(source, options.work / "copied.hdf5"))
        ratio = min(plain) / min(ours)
        figures.append(figure(f"{form}: packed", round(source.stat().st_size / min(ours) / 1e6), "MB/s", of_copy=round(ratio, 3),
                              mb_before=round(source.stat().st_size / 1e6, 1), mb_after=round(target.stat().st_size / 1e6, 1),
                              budget=f">= {PACK_RATIO} of a copy", met=ratio >= PACK_RATIO))
    return figures


def opened(options, config):
    """trajd.open until it returns, in turns: the first index of a daemon, and a cached one."""
    path = options.work / "open.yaml"
    path.write_text(f"version: 2\n{config}")
    seen = {index: [] for index in OPEN_MS}
    for _ in range(max(3, options.rounds)):
        for index, times in seen.items():
            out = subprocess.run([sys.executable, ROOT / "tests/bench/open_worker.py", options.build, options.work / "open", path, index],
                                 check=True, capture_output=True, text=True)
            times.append(json.loads(out.stdout)["open_ms"])
    for index, times in seen.items():
        one = figure(f"{EPISODES} compressed episodes, {index} index: trajd.open", middle(times), "ms")
        one["budget"], one["met"] = f"<= {OPEN_MS[index]} ms", one["value"]["median"] <= OPEN_MS[index]
        yield one


def run(options):
    layout = options.work / "frames_bench.yaml"
    layout.write_text(LAYOUT.format(name="frames_bench", groups="/", streams=STREAMS))
    figures = reading(options, layout) + packing(options)
    write_episodes(options.work / "aloha")
    config = CONFIG.format(path=options.work / "aloha", layout=layout)
    for keep_cache, limit in (False, READY_MS), (True, CACHED_MS):
        seen = starts(options, "frames_start", config, "train", keep_cache, max(3, options.rounds))[0]
        one = figure(f"{EPISODES} compressed episodes, {'cached index' if keep_cache else 'first start'}: exec to READY", middle(seen), "ms")
        one["budget"], one["met"] = f"<= {limit} ms", one["value"]["median"] <= limit
        figures.append(one)
    return {"figures": figures + list(opened(options, config)), "note": ""}
