#!/usr/bin/env python3
"""Several GPUs of one machine with one daemon: each worker reads from its own GPU. Skipped, and counted, where
there are fewer than two.

    BUNDLE/gpu_run.sh test_two_gpus.py"""
import subprocess
import sys

import gpu_checks
import gpu_feed
import torch


def read(feed, epoch):
    return {batch.position: {name: value.cpu() for name, value in gpu_feed.snapshot(batch).items()} for batch in feed.epoch(epoch)}


def test_each_from_its_own():
    """The same batches on each GPU, bit for bit. Rows are resident on each."""
    with gpu_feed.daemon() as one:
        found = []
        for index in range(torch.cuda.device_count()):
            with one.connect(device=f"cuda:{index}", job=f"job {index}") as feed:
                batch = next(feed.epoch(3))
                assert gpu_feed.is_direct(feed) and batch["actions"].device == torch.device("cuda", index)
                del batch
                found.append(read(feed, 3))
                gpus = feed.status()["gpus"]
        assert len(gpus) == torch.cuda.device_count() and sum(gpu["filled_bytes"] > 0 for gpu in gpus) == len(gpus)
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for position, tensors in found[0].items():
            for name, value in tensors.items():
                assert torch.equal(value, other[position][name]), (position, name)


def test_beside_each_other():
    """Two feeds on two GPUs in one process, in turns. Each is read on a stream of its own GPU while the other GPU
    is current."""
    with gpu_feed.daemon(slots=4) as one, one.connect(device="cuda:0", job="left", credit=4) as left, \
            one.connect(device="cuda:1", job="right", credit=4) as right:
        with one.connect(device="cpu", zero_copy=False, job="host") as host:
            wanted = {batch.position: batch.raw("actions").double().sum().item() for batch in host.epoch(0)}
        sums = ({}, {})
        for a, b in zip(left.epoch(0), right.epoch(0)):
            for batch, index in ((a, 1), (b, 0)):
                with torch.cuda.device(index):
                    sums[1 - index][batch.position] = batch["actions"].double().sum()
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
    for found in sums:
        assert found.keys() == wanted.keys()
        for position, total in found.items():
            assert abs(total.item() - wanted[position]) < 1e-3, position


def test_late_streams_of_both():
    """A stream of each GPU is far behind: no slot is filled again before its own GPU has read it."""
    for index in (0, 1):
        with torch.cuda.device(index):
            stream = torch.cuda.Stream(index)
            with gpu_feed.daemon(slots=4) as one:
                with one.connect(device="cpu", zero_copy=False, job="host") as host:
                    wanted = {batch.position: (batch.raw("window_id").clone(), batch.raw("actions").double().sum().item()) for batch in host.epoch(0)}
                with one.connect(device=f"cuda:{index}", job="gpu", credit=4) as feed:
                    found = gpu_feed.read_slowly(feed, stream)
            assert found.keys() == wanted.keys()
            for position, (ids, total) in found.items():
                assert torch.equal(ids, wanted[position][0]) and abs(total - wanted[position][1]) < 1e-3, (index, position)


def test_a_killed_worker_of_one():
    """The other GPU's feed goes on. The next worker gets the killed worker's batches."""
    text = gpu_feed.WORKER.replace('device="cuda"', 'device="cuda:1"').replace("torch.cuda._sleep", "torch.cuda.set_device(1); torch.cuda._sleep")
    with gpu_feed.daemon(slots=4) as one, one.connect(device="cuda:0", job="steady") as steady:
        epoch = steady.epoch(0)
        next(epoch)
        worker = subprocess.Popen([sys.executable, "-c", text.format(python=str(gpu_feed.BUNDLE / "python"), endpoint=str(one.endpoint))],
                                  stdout=subprocess.PIPE, text=True)
        assert worker.stdout.readline().split() == ["0", "64"]
        with one.connect(device="cuda:1") as feed:
            rest = feed.epoch(0)
            worker.kill()
            worker.wait()
            positions = sorted(batch.position for batch in rest)
        assert positions == list(range(64, 64 + 64 * len(positions), 64)), positions[:4]
        assert sum(1 for _ in epoch) > 10


if __name__ == "__main__":
    sys.exit(gpu_checks.main(globals(), gpu_feed.LIMIT_S, gpu_count=2))
