#!/usr/bin/env python3
"""Opens a feed by trajd.open, reads one batch and ends the private daemon. Prints JSON: the times of both in ms.

    open_worker.py BUILD FOLDER CONFIG first|cached      runtime folder and cache of the daemon are in FOLDER"""
import json
import os
import pathlib
import shutil
import sys
import time

from bench_daemon import find_built

build, folder, config, index = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), *sys.argv[3:]
sys.path.insert(0, str(find_built(build, "package")))
import trajd  # noqa: E402

if index == "first":
    shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True, exist_ok=True)
os.environ.update(TRAJD_RUNTIME_DIR=str(folder), XDG_CACHE_HOME=str(folder / "cache"), TRAJD_JOB="bench")
begin = time.perf_counter()
with trajd.open(config) as feed:
    opened = time.perf_counter()
    for batch in feed.epoch(0):
        for key in batch:
            assert batch[key] is not None
        break
    got = time.perf_counter()
print(json.dumps({"open_ms": 1e3 * (opened - begin), "first_batch_ms": 1e3 * (got - opened)}))
daemon = trajd.launch._started[-1]
daemon.kill()
daemon.wait()
