#!/usr/bin/env python3
"""One Python worker for the parts `defaults` and `image_feeds` of run.py: reads every byte of each batch. Prints JSON.

    image_worker.py BUILD ENDPOINT FEED CREDIT DAEMON_PID first|SECONDS [PEER]

CREDIT 0: the default. With PEER it reads the tensors that the loader of that project delivers (PEERS).
With `first` it reads epoch 0, of a daemon that has just started. With SECONDS it reads epoch 0, which makes the frames, and
then measures whole epochs until that time is over. The processor time of the daemon has that of its helper programs in it."""
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_daemon import tree_cpu_s  # noqa: E402
from image_bytes import arrays_of, kinds_of, read_all  # noqa: E402

build, endpoint, feed_name, credit, pid, length = sys.argv[1:7]
CAMERAS = ("cam_high", "cam_left_wrist", "cam_right_wrist")
PEERS = {  # the style, and the keys of a batch
    "": ("raw", None), "robomimic": ("raw", ("obs", "actions")),
    "act float32": ("act", ("image", "qpos", "action", "is_pad")), "act u8": ("raw", (*CAMERAS, "qpos", "action", "action_is_pad"))}
style, keys = PEERS[sys.argv[7] if len(sys.argv) > 7 else ""]
sys.path.insert(0, str(pathlib.Path(build) / "clients/python"))
import trajd  # noqa: E402


def wanted(batch):
    """Returns the arrays to read: all of the batch, or those that the peer delivers."""
    return arrays_of(batch if keys is None else {key: batch[key] for key in keys})


def read_epoch(feed, epoch):
    """Returns batches, windows and bytes of a batch."""
    batches = windows = size = 0
    for batch in feed.epoch(epoch):
        size = max(size, read_all(wanted(batch)))
        batches, windows = batches + 1, windows + batch.rows
        batch.release()
    return batches, windows, size


def main():
    at_start = tree_cpu_s(int(pid))
    feed = trajd.connect(endpoint, feed=feed_name, job="bench_images", mode="queue", timeout=60, style=style,
                         credit=int(credit) or None)
    epoch, seconds = 0, 0.0 if length == "first" else float(length)
    if seconds:
        read_epoch(feed, 0)
        epoch = 1
    batches = windows = 0
    begin, worker, daemon = time.perf_counter(), time.process_time(), at_start if length == "first" else tree_cpu_s(int(pid))
    while True:
        more = read_epoch(feed, epoch)
        batches, windows, size, epoch = batches + more[0], windows + more[1], more[2], epoch + 1
        if time.perf_counter() - begin >= seconds:
            break
    elapsed = time.perf_counter() - begin
    worker_s, daemon_s = time.process_time() - worker, tree_cpu_s(int(pid)) - daemon
    kinds = kinds_of(wanted(next(feed.epoch(epoch))))
    print(json.dumps({"batches": batches, "batch_bytes": size, "windows_per_s": windows / elapsed, "batches_per_s": batches / elapsed,
                      "worker_us": 1e6 * worker_s / windows, "daemon_us": 1e6 * daemon_s / windows, "kinds": kinds}))
    feed.close()


main()
