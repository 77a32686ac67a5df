#!/usr/bin/env python3
"""One Python worker for part `feed` of run.py: reads batches for a while through libtrajd and ctypes, prints JSON.

    feed_worker.py BUILD ENDPOINT FEED SECONDS CREDIT views|copies

With `views` it holds, for each batch, numpy arrays of every tensor in the slot's memory. A slot's views are made when it is first
seen: slots stay where they are. With `copies` it copies all of them, which is what a loader's collate does.
"""
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import libtrajd as trajd  # noqa: E402


def batches(client, feed, credit):
    epoch = 0
    while True:
        client.open(feed, job="bench_python", credit=credit, epoch=epoch)
        while (batch := client.next()) is not None:
            yield batch
        epoch += 1


def main():
    build, endpoint, feed, seconds, credit, what = sys.argv[1:]
    library = trajd.load(build)
    client = trajd.Client(library, endpoint, timeout_ms=30000)
    slots, count, windows, size = {}, 0, 0, 0
    begin = cpu = None
    for batch in batches(client, feed, int(credit)):
        address = library.trajd_batch_tensor(batch.handle, 0).contents.data
        arrays = slots.get(address)
        if arrays is None:
            arrays = slots[address] = batch.arrays()
            size = sum(array.nbytes for array in arrays.values())
        held = {name: array.copy() for name, array in arrays.items()} if what == "copies" else arrays
        assert held
        if begin is None:
            begin, cpu = time.perf_counter(), time.process_time()
        count, windows = count + 1, windows + batch.rows
        batch.release()
        if (elapsed := time.perf_counter() - begin) >= float(seconds):
            break
    print(json.dumps({"batches": count, "windows": windows, "seconds": elapsed, "cpu_s": time.process_time() - cpu,
                      "batches_per_s": count / elapsed, "windows_per_s": windows / elapsed, "batch_bytes": size}))
    client.close()


main()
