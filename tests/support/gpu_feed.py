"""A feed on a real GPU: starts the daemon of the bundle that tests/tools/gpu_bundle.sh makes, and compares batches.

GPU_DAEMON_TOOL is a command that runs the daemon: a sanitizer."""
import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOOL = shlex.split(os.environ.get("GPU_DAEMON_TOOL", ""))
LIMIT_S = 90 if not TOOL else 240
BUNDLE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BUNDLE / "python"))

import torch  # noqa: E402

import trajd  # noqa: E402

CONFIG = """
version: 2
runtime: run
state: state
memory: {{store: 1GiB, rings: 512MiB, reserve: 0}}
gpu: {{devices: all, rows: {rows}, rings: {rings}, fall_back: {fall_back}}}
{limits}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: {batch}
    {slots}
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
    """A daemon with one feed. slots None: slots and credit are the defaults."""

    def __init__(self, folder, batch=64, slots=8, rows="2GiB", rings="256MiB", fall_back="false", path=None, text=None,
                 environment=None):
        self.folder = pathlib.Path(folder)
        self.environment = environment
        self.endpoint = self.folder / "run"
        (self.folder / "trajd.yaml").write_text(text or CONFIG.format(
            path=path or BUNDLE / "demo.hdf5", batch=batch, slots=f"slots: {slots}" if slots else "",
            limits="limits: {credit: 64}" if slots else "", rows=rows, rings=rings, fall_back=fall_back))
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
        return trajd.connect(str(self.endpoint), **{"feed": "train", "timeout": 60, "device": "cuda", "zero_copy": True, "mode": "queue", **options})

    def _send(self, number):
        """Sends a signal to the daemon itself, not to the tool that runs it."""
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


def read_slowly(feed, stream, side=None, drop=None):
    """Reads every batch on a stream that is far behind. The values must be those of the batch, and not of the batch
    that fills the slot next."""
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
