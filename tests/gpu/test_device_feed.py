#!/usr/bin/env python3
"""Batches that are born in a GPU's memory and read there: a real daemon, real workers, a real GPU, kills of both.

    BUNDLE/gpu_run.sh test_device_feed.py            # on the GPU machine; tests/tools/gpu_bundle.sh has made the bundle
    BUNDLE/gpu_run.sh test_device_feed.py test_values test_fallback     # only these

Needs a Python from 3.9 whose torch has CUDA, and nothing else. tests/integration/test_gpu_feed.py and tests/python/test_python_gpu.py test the same
without a GPU; here are the streams, the driver and the kernels."""
import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOOL = shlex.split(os.environ.get("GPU_DAEMON_TOOL", ""))  # stands before the daemon: a sanitizer
LIMIT_S = 90 if not TOOL else 240
BUNDLE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BUNDLE / "python"))

import gpu_checks  # noqa: E402
import torch  # noqa: E402

import trajd  # noqa: E402

CONFIG = """
version: 1
runtime: run
state: state
memory: {{store: 1GiB, rings: 512MiB, reserve: 0}}
gpu: {{devices: all, rows: {rows}, rings: {rings}, fall_back: {fall_back}}}
limits: {{credit: 64}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: {batch}
    slots: {slots}
    rate: 10
    anchor: {{clock: pose}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      joints:  {{from: joint_pos, at: -1..0}}
      pose:    {{from: pose_quat, at: -1..0}}
      place:   {{from: pose_pos, at: -1..0}}
      gripper: {{from: gripper_cmd, at: -1..0, max_age: 100ms}}
      actions: {{from: [pose_pos, gripper_cmd], at: 0..15, role: action}}
"""
OUTPUTS = ("joints", "pose", "place", "gripper", "actions")
EXACT = ("gripper", "gripper.mask", "actions.mask", "joints.mask", "pose.mask", "window_id", "anchor_ns", "episode_index")


class Daemon:
    def __init__(self, folder, batch=64, slots=8, rows="2GiB", rings="256MiB", fall_back="false", path=None, text=None,
                 environment=None):
        self.folder = pathlib.Path(folder)
        self.environment = environment
        self.endpoint = self.folder / "run"
        (self.folder / "trajd.yaml").write_text(text or CONFIG.format(
            path=path or BUNDLE / "demo.hdf5", batch=batch, slots=slots, rows=rows, rings=rings, fall_back=fall_back))
        self.start()

    def start(self):
        begin = time.monotonic()
        ready, told = os.pipe()
        self.log = open(self.folder / "log", "a")
        self.process = subprocess.Popen([*TOOL, BUNDLE / "python/trajd/bin/trajd", "--config", self.folder / "trajd.yaml", "--ready-fd", str(told)],
                                        stderr=self.log, pass_fds=[told], env=self.environment)
        os.close(told)
        with os.fdopen(ready) as line:
            assert line.readline() == "ready\n", (self.folder / "log").read_text()
        return time.monotonic() - begin

    def text(self):
        return (self.folder / "log").read_text()

    def connect(self, **options):
        return trajd.connect(str(self.endpoint), feed="train", timeout=60, **{"device": "cuda", "zero_copy": True, "mode": "queue", **options})

    def _send(self, number):
        """To the daemon itself, whatever stands before it."""
        config = os.fsencode(self.folder / "trajd.yaml")
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if config in words and os.path.basename(words[0]) == b"trajd":
                    os.kill(int(folder.name), number)

    def kill(self):
        self._send(signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def stop(self):
        self._send(signal.SIGTERM)
        return self.process.wait(30 if not TOOL else 120)


@contextlib.contextmanager
def daemon(**options):
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        one = Daemon(folder, **options)
        try:
            yield one
            if one.process.poll() is None:
                status = one.stop()
                assert status == 0, (status, one.text())
        finally:
            if one.process.poll() is None:
                one.kill()


def is_direct(feed):
    return feed._stage is not None and feed._stage.__class__.__name__ == "Direct" and feed._stage._copying is None


def snapshot(batch):
    names = [name for output in OUTPUTS for name in (output, output + ".mask")] + ["window_id", "anchor_ns", "episode_index"]
    return {name: batch.raw(name).clone() for name in names}


def same(a, b, where):
    for name, value in a.items():
        other = b[name].to(value.device)
        if name in EXACT or not value.is_floating_point():
            assert torch.equal(value, other), (where, name)
        else:
            worst = (value - other).abs().max().item()
            assert worst <= 2e-6, (where, name, worst)


def test_values():
    """What the CPU makes and what the GPU makes of the same windows: ids, masks and held values are equal, blended ones to rounding."""
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


def read_slowly(feed, stream, side=None, drop=None):
    """Every batch is read on a stream that is far behind; what is read must be the batch, not what the ring has been filled with since."""
    sums = []
    delay = 30_000_000  # about 15 ms of the GPU's clock
    for batch in feed.epoch(0):
        with torch.cuda.stream(stream):
            if side is not None:
                batch.record_stream(side)
            on = side if side is not None else stream
            with torch.cuda.stream(on):
                actions, ids = batch.raw("actions"), batch.raw("window_id")
                if len(sums) % 8 == 0:
                    torch.cuda._sleep(delay)
                sums.append((batch.position, ids.clone(), actions.double().sum()))
        if drop is not None:
            dropper = threading.Thread(target=drop, args=([actions, ids],))
            del actions, ids
            dropper.start()
            dropper.join()
        batch = None
    torch.cuda.synchronize()
    return {position: (ids.cpu(), total.item()) for position, ids, total in sums}


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
    """The graph holds the batch; backward, which frees it in autograd's thread, is queued behind a long wait."""
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


WORKER = """
import sys, time
sys.path.insert(0, {python!r})
import torch, trajd
feed = trajd.connect({endpoint!r}, feed="train", device="cuda", zero_copy=True, mode="queue", credit=3, timeout=60)
epoch = feed.epoch(0)
first = next(epoch)
position = first.position
torch.cuda._sleep(20_000_000_000)
first["actions"].mul_(2)
del first
second = next(epoch)
print(position, second.position, flush=True)
time.sleep(60)
"""


def test_a_killed_worker():
    """It holds one batch and has another under a kernel that runs for seconds: both are dealt with, and the rest is right."""
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
    """A held batch stays as it is; the feed goes on in the next daemon's ring, and nothing repeats."""
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
    """A ring that does not fit lies in host memory: batches come by copies, and it is said why."""
    with daemon(rings="1MiB") as one:
        with one.connect() as feed:
            positions = [batch.position for batch in feed.epoch(0) if batch["actions"].is_cuda]
            assert positions == list(range(0, 64 * len(positions), 64)) and len(positions) > 20
            assert not is_direct(feed) and "gpu.rings on" in feed._client.gpu_refusal


def test_rows_that_do_not_fit():
    """They come from host memory, batch by batch; what is made of them is what resident rows give, bit for bit."""
    with daemon() as one, one.connect(job="resident") as feed:
        wanted = {batch.position: {k: v.cpu() for k, v in snapshot(batch).items()} for batch in feed.epoch(1)}
    with daemon(rows="64KiB") as one, one.connect(job="guests") as feed:
        count = 0
        for batch in feed.epoch(1):
            for name, value in snapshot(batch).items():
                assert torch.equal(value.cpu(), wanted[batch.position][name]), (batch.position, name)
            count += 1
        assert is_direct(feed) and count == len(wanted)
        assert "host" in {rows["place"] for rows in feed.status()["gpus"][0]["resident"]}


MIXTURE = """
version: 1
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
    """Windows of two datasets in one batch, each made by a launch of its own into rows of their own: what the CPU makes of them."""
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
