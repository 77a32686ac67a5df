#!/usr/bin/env python3
"""The rows of `make bench-gate`, and the process that measures them with one build.

    gate_rows.py BUILD DATA SLOWER ROW...

DATA is the folder of gate_data.py. The process prints "ready". It answers each line `ROW SECONDS` of its standard input
(ROW is a number of the list) with a slice of that length: the units of work done, and the seconds that they took. A slice
has one unit at least. SLOWER is the share of its time by which each slice is made longer on purpose. gate.py runs two such
processes, which take turns. The daemons of a row are stopped (SIGSTOP) while the row is not measured."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import part_feed
import part_targets
from bench_daemon import Daemon, find_built
from image_bytes import arrays_of, read_all

MS = 1_000_000
MEMORY = "memory: {{store: {store}MiB, rings: 128MiB, reserve: 0}}\n"
ON_GPU = "gpu: {devices: all, rows: 1GiB, rings: 512MiB, fall_back: false}\nlimits: {credit: 64}\n"
IMAGES = MEMORY + """datasets: {{d: {{path: {path}, layout: {path}/camera.yaml}}}}
feeds:
  images:
    dataset: d
    global_batch: {batch}
    slots: 3
    anchor: {{clock: steps}}
    outputs:
      cam: {{from: observations/images/cam, at: 0, image: {{resize: [224, 224]}}, layout: chw, norm: unit}}
"""
MIXED = MEMORY + """datasets: {{d: {{path: {path}, layout: demo}}}}
feeds:
  mixed:
    dataset: d
    global_batch: 256
    slots: 16
    rate: 20
    anchor: {{clock: pose}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      joints:  {{from: joint_pos, at: -3..0}}
      turn:    {{from: pose_quat, at: -1..0}}
      place:   {{from: pose_pos, at: -1..0}}
"""
GPU_BATCHES, GPU_CALLS = 32, 20  # of a unit: its end waits for the GPU
GPU_SHAPES = [(32, 100, 256, 128), (32, 500, 256, 128), (64, 4096, 1024, 32), (256, 500, 250, 16), (1024, 300, 50, 14), (64, 400, 16, 7),
              (256, 100, 2048, 256)]  # those of kernels/README.md


class Side:
    """A build, the datasets, and a new folder for each daemon."""

    def __init__(self, build, data, folder):
        self.build, self.data, self._folder, self._count = pathlib.Path(build), pathlib.Path(data), pathlib.Path(folder), 0

    def folder(self):
        self._count += 1
        made = self._folder / str(self._count)
        made.mkdir()
        return made

    def program(self, name):
        return find_built(self.build, name)


# ---- rows: each is a context that gives a unit of work, and the processes that rest between slices ----

@contextlib.contextmanager
def feed_of(side, config, name, credit=part_feed.CREDIT, **options):
    import trajd
    with Daemon(side.build, side.folder(), config) as daemon:
        with trajd.connect(str(daemon.endpoint), feed=name, mode="queue", credit=credit, timeout=60, **options) as feed:
            yield feed, [daemon.process.pid]


@contextlib.contextmanager
def reads(side, config, name, credit=part_feed.CREDIT, before=0):
    """A unit is a batch, of which each byte is read. Some batches come before the first slice."""
    import trajd
    with feed_of(side, config, name, credit) as (feed, processes):
        batches = feed.forever()

        def unit():
            batch = next(batches)
            read_all(arrays_of(batch))
            batch.release()
        for _ in range(before):
            unit()
        yield unit, processes


def pose_config(side):
    return MEMORY.format(store=256) + part_targets.CONFIG.format(path=side.data / "pose.hdf5") + part_targets.FEED.format(name="pose", keys=part_targets.POSE)


def image_config(side, store, batch=8):
    return IMAGES.format(store=store, path=side.data / "camera", batch=batch)


def mixed_config(side):
    return MIXED.format(store=256, path=side.data / "demo.hdf5")


def feed_policy(side):
    return reads(side, part_feed.config(side.data / "demo.hdf5"), "policy")


def feed_pose(side):
    return reads(side, pose_config(side), "pose")


def images_first(side):
    """The store has room for few frames. So nearly all are decoded when they are used, as in a first epoch."""
    return reads(side, image_config(side, 16), "images", 2)


def images_prepared(side):
    return reads(side, image_config(side, 256), "images", 2, before=40)


@contextlib.contextmanager
def hand_over(side):
    """The producer writes nothing into its slots of 4 MiB."""
    import trajd
    folder = side.folder()
    command = [side.program("fake_producer"), folder, "slots=18", "credit=16", "batch=8", f"payload={512 << 10}", f"length={1 << 40}"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(side.build)}  # a bundle has the libraries beside it
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as producer:
        producer.stdout.readline()
        with trajd.connect(str(folder), feed="train", mode="queue", credit=16, timeout=60) as feed:
            batches = feed.forever()
            yield lambda: next(batches).release(), [producer.pid]
        producer.stdin.close()


def call_on(shape):
    @contextlib.contextmanager
    def row(side):
        import bench_arrays
        import trajd
        arrays = bench_arrays.make(*shape)
        out = trajd.resample(*arrays)
        yield lambda: trajd.resample(*arrays, out=out), []
    return row


@contextlib.contextmanager
def live(side):
    """A unit is 100 ms of a robot: joints at 500 Hz, a pose at 20 Hz, and five observations."""
    import trajd
    with feed_of(side, mixed_config(side), "mixed") as (feed, _):
        robot = trajd.Live(feed)
    now, joints, turn, place = 0, np.zeros(7, np.float32), np.array([0, 0, 0, 1.0]), np.zeros(3)

    def unit():
        nonlocal now
        for step in range(50):
            now += 2 * MS
            robot.push("joint_pos", now, joints)
            if step % 25 == 0:
                robot.push("pose_quat", now, turn)
                robot.push("pose_pos", now, place)
            if step % 10 == 9:
                robot.observation(now - 2 * MS)
    for step in range(500):
        robot.push("joint_pos", (now := now + 2 * MS), joints)
        if step % 25 == 0:
            robot.push("pose_quat", now, turn)
            robot.push("pose_pos", now, place)
    yield unit, []


@contextlib.contextmanager
def runs(*command):
    """A unit is a run of a program."""
    yield lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), []


def converts(name):
    return lambda side: runs(side.program("trajctl"), "resample", side.data / f"{name}.hdf5", "-o", side.folder() / "out.hdf5", "--rate", "30", "--force")


def inspect(side):
    return runs(side.program("trajctl"), "inspect", side.data / "many")


@contextlib.contextmanager
def start(side):
    """A unit is trajd.open with a private daemon that has its index in the cache, the first batch, and the daemon's end."""
    import trajd
    folder = side.folder()
    (folder / "gate.yaml").write_text("version: 1\n" + part_feed.config(side.data / "demo.hdf5"))
    os.environ.update(TRAJD_RUNTIME_DIR=str(folder), TRAJD_JOB="gate")

    def unit():
        with trajd.open(folder / "gate.yaml", feed="policy") as feed:
            next(feed.forever()).release()
        daemon = trajd.launch._started[-1]
        daemon.terminate()
        daemon.wait()
    unit()
    yield unit, []


# ---- rows on a GPU ----

@contextlib.contextmanager
def takes_on_gpu(side, config, name, use, credit=12):
    """A unit is some batches in GPU memory."""
    import torch
    with feed_of(side, ON_GPU + config, name, credit, device="cuda", zero_copy=True) as (feed, processes):
        batches = feed.forever()

        def unit():
            for _ in range(GPU_BATCHES):
                use(next(batches))
            torch.cuda.synchronize()
        for _ in range(3):
            unit()
        yield unit, processes


def every_tensor(batch):
    for key in ("joints", "turn", "place"):
        batch[key].sum()


def gpu_kernel(shape):
    """A unit is a graph of launches of the kernel for the shape."""
    @contextlib.contextmanager
    def row(side):
        import torch
        import trajd
        batch, rows, steps, features = shape
        times = torch.arange(rows, device="cuda") * 2 * MS + torch.randint(0, MS // 5, (batch, rows), device="cuda")
        targets = (times[:, -1:] * torch.linspace(.02, .93, steps, device="cuda", dtype=torch.float64)).long()
        values = torch.randn(batch, rows, features, device="cuda", dtype=torch.bfloat16)
        out = trajd.resample(values, times, targets)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(GPU_CALLS):
                trajd.resample(values, times, targets, out=out)

        def unit():
            graph.replay()
            torch.cuda.synchronize()
        yield unit, []
    return row


CPU_ROWS = {"feed, every tensor read": feed_policy, "feed with poses": feed_pose, "hand-over of 4 MiB": hand_over,
            "images, first use": images_first, "images, prepared": images_prepared, "trajd.resample, small": call_on((1, 4, 2, 1)),
            "trajd.resample, large": call_on((256, 500, 250, 16)), "trajctl resample, short": converts("short"),
            "trajctl resample, long": converts("long"), "trajctl resample, images": converts("images"), "Live": live, "trajd.open": start,
            "trajctl inspect": inspect}
GPU_ROWS = {"GPU feed, every tensor read": lambda side: takes_on_gpu(side, mixed_config(side), "mixed", every_tensor),
            "GPU feed, none read": lambda side: takes_on_gpu(side, mixed_config(side), "mixed", lambda batch: None),
            "GPU feed with poses": lambda side: takes_on_gpu(side, pose_config(side), "pose", lambda batch: batch["actions"]),
            "GPU images": lambda side: takes_on_gpu(side, image_config(side, 256, 32), "images", lambda batch: batch["cam"], 3),
            **{"GPU kernel {} {} {} {}".format(*shape): gpu_kernel(shape) for shape in GPU_SHAPES}}
ROWS = {**CPU_ROWS, **GPU_ROWS}


# ---- slices ----

def take_slice(unit, seconds, slower):
    """Returns units and seconds."""
    count, begin = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - begin < seconds:
        unit()
        count += 1
    end = (time.perf_counter() - begin) * (1 + slower) + begin
    while slower and time.perf_counter() < end:
        pass
    return count, time.perf_counter() - begin


def signal_all(processes, number):
    for process in processes:
        os.kill(process, number)


@contextlib.contextmanager
def prepared(row, side):
    """Gives a call that takes a slice of the row. The row's daemons run during its slices, and at the end."""
    with row(side) as (unit, processes):
        def measure(seconds, slower=0):
            signal_all(processes, signal.SIGCONT)
            done = take_slice(unit, seconds, slower)
            signal_all(processes, signal.SIGSTOP)
            return done
        measure(0.01)
        try:
            yield measure
        finally:
            signal_all(processes, signal.SIGCONT)


def main(build, data, slower, *rows):
    sys.path.insert(0, str(find_built(build, "package")))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="gate", dir=memory) as folder, contextlib.ExitStack() as stack:
        side = Side(build, data, folder)
        measures = [stack.enter_context(prepared(ROWS[row], side)) for row in rows]
        print("ready", flush=True)
        for line in sys.stdin:
            row, seconds = line.split()
            print(*measures[int(row)](float(seconds), float(slower)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
