#!/usr/bin/env python3
"""How fast robomimic's own SequenceDataset under torch's DataLoader delivers batches, as JSON on stdout.

    bench_robomimic.py FILE.hdf5 [--seconds 5] [--batch 256] [--cpus 2] [--filter train] [--modes all low_dim None] [--workers 0 1 2]

FILE is what tests/tools/make_demo_dataset.py writes, or any robomimic file with its usual low-dimensional keys. The windows are
those of tests/golden/robomimic: frame_stack 2, seq_length 16, so 17 rows of every key, with pad_mask. Needs robomimic and torch.

Where there is a choice it is made in robomimic's favour: workers persist between epochs, the start is not timed, nothing is
done with a batch, and the conversion to float32 that training adds afterwards is left out.
"""
import argparse
import contextlib
import io
import json
import os
import platform
import resource
import subprocess
import sys
import time

import robomimic
import robomimic.utils.obs_utils as obs_utils
import torch
from robomimic.utils.dataset import SequenceDataset

from bench_torch_loader import cpu_seconds, endless
from image_bytes import kinds_of, read_all

OBS_KEYS = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object")
DATASET_KEYS = ("actions", "rewards", "dones")


def cpu_name():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), platform.machine())


def commit():
    described = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=os.path.dirname(os.path.abspath(__file__)),
                               capture_output=True, text=True)
    return described.stdout.strip() or "unknown"


def quietly(function, *arguments, **keywords):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return function(*arguments, **keywords)


def open_dataset(options, mode):
    keys, frame_stack, seq_length = (DATASET_KEYS[:1], 1, 10) if options.template else (DATASET_KEYS, 2, 16)
    return quietly(SequenceDataset, options.file, OBS_KEYS, keys, frame_stack=frame_stack, seq_length=seq_length, pad_frame_stack=True,
                   pad_seq_length=True, get_pad_mask=not options.template, load_next_obs=False,
                   hdf5_cache_mode=None if mode == "None" else mode, filter_by_attribute=options.filter)


def tensors_of(batch):
    """Returns all tensors but the numbers of the windows."""
    return [t for key, value in batch.items() if key != "index" for t in (value.values() if isinstance(value, dict) else [value])]


def take(stream, reads):
    """Takes a batch. Returns its bytes."""
    tensors = tensors_of(next(stream))
    return read_all([t.numpy() for t in tensors]) if reads else sum(t.numel() * t.element_size() for t in tensors)


def time_batches(loader, seconds, reads):
    """Warms up for one epoch, or `seconds` of one, and then measures for `seconds`. Returns batches, seconds, CPU
    seconds and bytes of a batch."""
    stream = endless(loader)
    begin = time.perf_counter()
    for _ in range(len(loader)):
        size = take(stream, reads)
        if time.perf_counter() - begin > seconds:
            break
    batches, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        take(stream, reads)
        batches += 1
    return batches, elapsed, cpu_seconds() - cpu, size


def measure(options, dataset, mode, workers, setup_s):
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(dataset, batch_size=options.batch, shuffle=True, drop_last=True,
                                         num_workers=workers, persistent_workers=workers > 0)
    batches, elapsed, cpu_s, size = time_batches(loader, options.seconds, options.template)
    return {"cache_mode": mode, "workers": workers, "windows_per_s": round(batches * options.batch / elapsed, 1),
            "batches_per_s": round(batches / elapsed, 2), "batches": batches, "seconds": round(elapsed, 3),
            "cpu_us_per_batch": round(1e6 * cpu_s / batches, 1),
            "batch_bytes": size, "kinds": kinds_of([t.numpy() for t in tensors_of(next(iter(loader)))]), "setup_s": round(setup_s, 3),
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--filter")
    parser.add_argument("--template", action="store_true", help="the settings of robomimic's own templates: frame_stack 1, seq_length 10, no rewards "
                        "and dones; and every byte is read")
    parser.add_argument("--modes", nargs="+", choices=("all", "low_dim", "None"), default=("None", "low_dim", "all"))
    parser.add_argument("--workers", nargs="+", type=int, default=(0, 1, 2))
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[:options.cpus]
    os.sched_setaffinity(0, cpus)
    torch.set_num_threads(len(cpus))
    quietly(obs_utils.initialize_obs_utils_with_obs_specs, {"obs": {"low_dim": list(OBS_KEYS), "rgb": []}})
    results = []
    for mode in options.modes:
        begin = time.perf_counter()
        dataset = open_dataset(options, mode)
        setup_s = time.perf_counter() - begin
        if len(dataset) < options.batch:
            sys.exit(f"{options.file}: {len(dataset)} windows are less than a batch of {options.batch}")
        results += [measure(options, dataset, mode, workers, setup_s) for workers in options.workers]
    print(json.dumps({"bench": "robomimic", "robomimic": robomimic.__version__, "torch": torch.__version__,
                      "device": cpu_name(), "cpus": len(cpus), "commit": commit(), "command": sys.argv,
                      "batch": options.batch, "windows": len(dataset), "rows_per_window": 10 if options.template else 17, "results": results,
                      "best_windows_per_s": max(r["windows_per_s"] for r in results)}, indent=1))


if __name__ == "__main__":
    main()
