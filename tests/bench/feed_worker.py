#!/usr/bin/env python3
"""One Python worker for the part `feed` of run.py: reads batches through the package for some time and prints JSON.

    feed_worker.py BUILD ENDPOINT FEED SECONDS CREDIT views|copies|tensors

With `views` it takes every output and actions_is_pad of each batch as numpy views of the ring. With `copies` it
copies them, as a loader's collate function does. With `tensors` they are torch tensors. `ready_to_arrays_us` covers
the batches for which the worker was waiting when they became READY: the others were ready earlier, and their times
show how far the daemon was ahead."""
import json
import pathlib
import sys
import time

build, endpoint, feed_name, seconds, credit, what = sys.argv[1:]
sys.path[:0] = [str(pathlib.Path(build) / "clients/python"), str(pathlib.Path(__file__).parent)]
import trajd  # noqa: E402
from image_bytes import IDS  # noqa: E402


def outputs_of(batch):
    """Returns the keys of every output, as a training loop writes them, and the key of the actions' padding."""
    obs = [("obs", name) for name in batch["obs"]]
    flat = [(key,) for key in batch if key not in IDS and not key.endswith("_is_pad") and key not in ("obs", "obs_is_pad")]
    return obs + flat + [("actions_is_pad",)]


def fetch(batch, keys):
    return [batch[key[0]][key[1]] if len(key) == 2 else batch[key[0]] for key in keys]


def share(values, part):
    return values[min(len(values) - 1, int(part * len(values)))] if values else None


def main():
    feed = trajd.connect(endpoint, feed=feed_name, job="bench_python", mode="queue", credit=int(credit), timeout=30,
                         device="cpu" if what == "tensors" else None)
    keys, waits, count, windows = None, [], 0, 0
    begin = cpu = None
    asked = time.monotonic_ns()
    for batch in feed.forever():
        if keys is None:
            keys = outputs_of(batch)
            size = sum(array.numel() * array.element_size() if what == "tensors" else array.nbytes for array in fetch(batch, keys))
            begin, cpu = time.perf_counter(), time.process_time()
        arrays = fetch(batch, keys)
        now = time.monotonic_ns()
        if batch.ready_ns > asked:
            waits.append((now - batch.ready_ns) / 1000)
        if what == "copies":
            arrays = [array.copy() for array in arrays]
        count, windows = count + 1, windows + batch.rows
        if (elapsed := time.perf_counter() - begin) >= float(seconds):
            break
        del arrays, batch  # before the next one is requested: its slot is free again
        asked = time.monotonic_ns()
    waits.sort()
    print(json.dumps({"batches": count, "windows": windows, "seconds": elapsed, "cpu_s": time.process_time() - cpu,
                      "batches_per_s": count / elapsed, "windows_per_s": windows / elapsed, "batch_bytes": size,
                      "waited_for": len(waits),
                      "ready_to_arrays_us": {"p50": share(waits, 0.5), "p99": share(waits, 0.99)} if waits else None}))
    feed.close()


main()
