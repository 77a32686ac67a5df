#!/usr/bin/env python3
"""Batches that are made and read in GPU memory, with a real daemon, real workers, a real GPU, and kills of both.

    BUNDLE/gpu_run.sh test_device_feed.py            # on the GPU machine; tests/tools/gpu_bundle.sh has made the bundle
    BUNDLE/gpu_run.sh test_device_feed.py test_values test_fallback     # only these

Needs a Python from 3.9 whose torch has CUDA, and nothing else. tests/integration/test_gpu_*.py and
tests/python/test_python_gpu.py test the same without a GPU. Here the streams, the driver and the kernels are real."""
import json
import signal
import subprocess
import sys

import gpu_checks
import torch
from gpu_feed import BUNDLE, LIMIT_S, WORKER, daemon, is_direct, read_slowly, same, snapshot


def test_values():
    """CPU and GPU make the same windows: ids, masks and held values are equal, blended values up to rounding."""
    with daemon() as one:
        with one.connect(device="cpu", zero_copy=False, job="host") as host:
            wanted = {batch.position: snapshot(batch) for batch in host.epoch(2)}
        with one.connect(job="gpu") as feed:
            count = 0
            for batch in feed.epoch(2):
                assert batch["actions"].is_cuda
                same(wanted[batch.position], {k: v.cpu() for k, v in snapshot(batch).items()}, batch.position)
                count += 1
            assert is_direct(feed) and count == len(wanted) > 20
            print("  ", json.dumps(feed.status()["gpus"])[:300])


def check_slow(**how):
    with daemon(slots=4) as one:
        with one.connect(device="cpu", zero_copy=False, job="host") as host:
            wanted = {batch.position: (batch.raw("window_id").clone(), batch.raw("actions").double().sum().item()) for batch in host.epoch(0)}
        with one.connect(job="gpu", credit=4) as feed:
            found = read_slowly(feed, **how)
            assert is_direct(feed) and found.keys() == wanted.keys()
    for position, (ids, total) in found.items():
        assert torch.equal(ids, wanted[position][0]), f"overwritten: {position}"
        assert abs(total - wanted[position][1]) < 1e-3, position


def test_the_consumers_stream_is_late():
    check_slow(stream=torch.cuda.Stream())


def test_a_side_stream_is_late():
    check_slow(stream=torch.cuda.default_stream(), side=torch.cuda.Stream())


def test_tensors_dropped_by_another_thread():
    check_slow(stream=torch.cuda.Stream(), drop=lambda kept: kept.clear())


def test_dropped_by_autograd():
    """The graph holds the batch. backward, which frees it in autograd's thread, is queued behind a long wait."""
    with daemon(slots=4) as one, one.connect(job="gpu", credit=4) as feed, one.connect(device="cpu", zero_copy=False, job="host") as host:
        weight = torch.ones(4, device="cuda", dtype=torch.double, requires_grad=True)
        grads, wanted = [], []
        for batch in host.epoch(0):
            actions = batch.raw("actions").double()
            wanted.append(actions.sum((0, 1)))
        for batch in feed.epoch(0):
            actions = batch.raw("actions")
            torch.cuda._sleep(10_000_000)
            loss = (actions.double() * weight).sum()
            del actions
            batch = None
            (grad,) = torch.autograd.grad(loss, weight)
            del loss
            grads.append(grad)
        torch.cuda.synchronize()
        for mine, theirs in zip(grads, wanted):
            assert (mine.cpu() - theirs).abs().max() < 1e-3


def test_a_killed_worker():
    """The worker holds one batch, and a kernel that runs for seconds reads another. Both come again, and all others
    are right."""
    with daemon(slots=4) as one:
        worker = subprocess.Popen([sys.executable, "-c", WORKER.format(python=str(BUNDLE / "python"), endpoint=str(one.endpoint))],
                                  stdout=subprocess.PIPE, text=True)
        assert worker.stdout.readline().split() == ["0", "64"]
        with one.connect() as feed:
            epoch = feed.epoch(0)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            positions = sorted(batch.position for batch in epoch)
        assert positions == list(range(64, 64 + 64 * len(positions), 64)), positions[:4]


def test_a_killed_daemon():
    """A held batch stays as it is. The feed goes on in the next daemon's ring, and nothing repeats."""
    with daemon(slots=4) as one:
        with one.connect(mode="shard", rank=0, world_size=1) as feed:
            epoch = feed.epoch(0)
            held = next(epoch)
            was = held["actions"].clone()
            one.kill()
            assert torch.equal(held["actions"], was)
            one.start()
            seen = [held.position] + [batch.position for batch in epoch]
            assert seen == list(range(0, 64 * len(seen), 64)) and is_direct(feed)
            assert torch.equal(held["actions"], was)


def test_fallback():
    """A ring that does not fit is made in host memory: batches are copied, and the client has the reason."""
    with daemon(rings="1MiB") as one:
        with one.connect() as feed:
            positions = [batch.position for batch in feed.epoch(0) if batch["actions"].is_cuda]
            assert positions == list(range(0, 64 * len(positions), 64)) and len(positions) > 20
            assert not is_direct(feed) and "gpu.rings on" in feed._client.gpu_refusal


def test_rows_that_do_not_fit():
    """Rows that do not fit are streamed from host memory. The batches are the same as with resident rows, bit for
    bit."""
    with daemon() as one, one.connect(job="resident") as feed:
        wanted = {batch.position: {k: v.cpu() for k, v in snapshot(batch).items()} for batch in feed.epoch(1)}
    with daemon(rows="64KiB") as one, one.connect(job="streamed") as feed:
        count = 0
        for batch in feed.epoch(1):
            for name, value in snapshot(batch).items():
                assert torch.equal(value.cpu(), wanted[batch.position][name]), (batch.position, name)
            count += 1
        assert is_direct(feed) and count == len(wanted)
        assert "host" in {rows["place"] for rows in feed.status()["gpus"][0]["resident"]}


MIXTURE = """
version: 2
runtime: run
state: state
memory: {{store: 1GiB, rings: 512MiB, reserve: 0}}
gpu: {{devices: all, rows: 2GiB, rings: 256MiB}}
limits: {{credit: 64}}
datasets: {{left: {{path: {path}, layout: demo}}, right: {{path: {path}, layout: demo}}}}
feeds:
  train:
    global_batch: 64
    slots: 8
    rate: 10
    mix: {{left: {{weight: 2}}, right: {{weight: 1, filter: train}}}}
    epoch: 6400
    anchor: {{clock: pose}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      joints:  {{from: joint_pos, at: -1..0}}
      pose:    {{from: pose_quat, at: -1..0}}
      place:   {{from: pose_pos, at: -1..0}}
      gripper: {{from: gripper_cmd, at: -1..0, max_age: 100ms}}
      actions: {{from: [pose_pos, gripper_cmd], at: 0..15, role: action}}
"""


def test_a_mixture():
    """Windows of two datasets in one batch. A launch per dataset writes the rows of that dataset. The values are
    the CPU's."""
    with daemon(text=MIXTURE.format(path=BUNDLE / "demo.hdf5")) as one:
        with one.connect(device="cpu", zero_copy=False, job="host") as host:
            wanted = {batch.position: snapshot(batch) for batch in host.epoch(0)}
        with one.connect(job="gpu") as feed:
            found = {batch.position: {k: v.cpu() for k, v in snapshot(batch).items()} for batch in feed.epoch(0)}
            assert is_direct(feed)
        assert found.keys() == wanted.keys() and len(found) == 100
        for position, tensors in wanted.items():
            same(tensors, found[position], position)


if __name__ == "__main__":
    sys.exit(gpu_checks.main(globals(), LIMIT_S))
