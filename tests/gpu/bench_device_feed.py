#!/usr/bin/env python3
"""Measures batches in GPU memory against the budgets and against other ways to load data.

    BUNDLE/gpu_run.sh feed | tensors | workers | targets | loaders | train | fill [--rounds 3] [--seconds 2] [--out FILE.json]
    bench_device_feed.py PART... --without-gpu      # the same through host memory, to test the script

    feed    batches/s of 256 low-dimensional windows to one Python worker that does nothing with them, reads them, or
            sums them on its stream or on another; READY to tensor; two productions for one worker; streamed rows;
            and `workers`
    tensors one process and 2 and 4 ranks of one job that read all five tensors of each batch, or none; slots and credit are
            the defaults
    workers 2 and 4 workers, each a job or ranks of one, on one GPU, and on two where there are two
    targets a policy's batches with relative_to, rot6d and norm, against the same without
    loaders torch: a DataLoader over the arrays, a copy, searchsorted and lerp on the GPU; the same with all rows on
            the GPU; robomimic
    train   a step of a policy of some 50 M parameters on one constant batch and on the feed's, in time slices and
            beside an MPS server
    fill    rows to the GPU, once, against a pinned copy

Prints a short table and writes JSON as tests/bench/run.py does. Things that are compared take turns in one run. The
table has the median and, in brackets, the least and the greatest value."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

import torch  # noqa: E402

import gpu_feed  # noqa: E402
from report import command_line, figure, middle, print_figure  # noqa: E402

BATCH = 256


class Place:
    """The memory in which batches come: a GPU's, or the host's to test a script."""

    def __init__(self, has_gpu):
        self.has_gpu = has_gpu
        self.name = torch.cuda.get_device_name() if has_gpu else "no GPU"
        self.device = "cuda" if has_gpu else "cpu"
        self.fall_back = "false" if has_gpu else "true"
        self.options = {"device": self.device, "zero_copy": True} if has_gpu else {"device": "cpu", "zero_copy": False}

    def wait(self):
        if self.has_gpu:
            torch.cuda.synchronize()

    def side_stream(self):
        return torch.cuda.stream(torch.cuda.Stream()) if self.has_gpu else contextlib.nullcontext()

    def check(self, feed):
        assert not self.has_gpu or gpu_feed.is_direct(feed), "batches come in host memory"


def dataset(folder, episodes=200):
    path = pathlib.Path(folder) / "bench.hdf5"
    if not path.exists():
        subprocess.run([sys.executable, FOLDER / "make_demo_dataset.py", path, "--episodes", str(episodes)], check=True, stdout=subprocess.DEVNULL)
    return path


@contextlib.contextmanager
def feeds(options, count=1, **how):
    """Starts a daemon and opens feeds. Each is a job of one worker with a production of its own."""
    with gpu_feed.daemon(batch=BATCH, slots=16, path=options.dataset, fall_back=options.place.fall_back, **how) as one, contextlib.ExitStack() as stack:
        yield [stack.enter_context(one.connect(mode="shard", rank=0, world_size=1, credit=12, job=f"job {n}", **options.place.options))
               for n in range(count)]


# ---- feed ----

def nothing(batch):
    pass


def one_tensor(batch):
    batch["actions"]


def all_tensors(batch):
    for name in gpu_feed.OUTPUTS:
        batch[name]


def consume(batch):
    batch["actions"].sum()


def turn(place, feed, batches, seconds, use, count=None):
    """Returns batches/s, READY to tensor in us, and the share of the time that next() waited, over `count` batches
    or some seconds."""
    for _ in range(100):
        use(next(batches))
    place.wait()
    waits, begin, waited = [], time.perf_counter(), feed.dataloading_s
    while len(waits) < count if count else time.perf_counter() - begin < seconds:
        batch = next(batches)
        use(batch)
        waits.append(time.monotonic_ns() - batch.ready_ns)
    took = time.perf_counter() - begin
    place.wait()
    waits.sort()
    return {"rate": len(waits) / took, "p50": waits[len(waits) // 2] / 1e3, "p99": waits[int(len(waits) * 0.99)] / 1e3,
            "waited": (feed.dataloading_s - waited) / took}


def tell(name, turns, **more):
    return figure(name, middle([one["rate"] for one in turns]), "batches/s", ready_to_tensor_p50_us=middle([one["p50"] for one in turns]),
                  ready_to_tensor_p99_us=middle([one["p99"] for one in turns]), share_waited=middle([one["waited"] for one in turns], 3), **more)


def in_turns(options, kinds):
    """Returns {name: [turn...]} for {name: call that takes a turn}."""
    found = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, call in kinds.items():
            found[name].append(call())
    return found


def alternate(first, second):
    while True:
        yield next(first)
        yield next(second)


def one_worker(options):
    place = options.place
    with feeds(options, 3) as (feed, left, right):
        batches, both = feed.forever(), alternate(left.forever(), right.forever())
        next(batches)
        place.check(feed)

        def on_side(batch):
            with side:
                batch["actions"].sum()
        side = place.side_stream()
        kinds = {use.__name__: lambda use=use: turn(place, feed, batches, options.seconds, use)
                 for use in (nothing, one_tensor, all_tensors, consume)}
        kinds["on_side"] = lambda: turn(place, feed, batches, options.seconds, on_side)
        kinds["both"] = lambda: turn(place, left, both, options.seconds, nothing)
        found = in_turns(options, kinds)
        status = feed.status()
    rate = middle([one["rate"] for one in found["nothing"]])
    yield tell("one worker, takes", found["nothing"], budget=">= 20,000", met=rate["median"] >= 20000)
    yield tell("one worker, asks for one tensor", found["one_tensor"])
    yield tell("one worker, asks for five", found["all_tensors"])
    yield tell("one worker, sums one on its stream", found["consume"])
    yield tell("one worker, sums one on another stream", found["on_side"])
    ratio = [two["rate"] / one["rate"] for two, one in zip(found["both"], found["nothing"])]
    yield tell("one worker, two productions in turns", found["both"], ratio=middle(ratio, 2), ratio_to="one production")
    for producer in status["producers"]:
        if producer["batches"] and (producer.get("gpu") or not place.has_gpu):
            yield figure(f"preparing and launching a batch, {producer['plan'][:30]}", round(producer["resample_ns"] / producer["batches"] / 1e3, 1), "us")
            break


def host_copy(options):
    """Measures the same windows made on the CPU and copied by the worker."""
    place = options.place
    kind = {"device": place.device, "zero_copy": False}
    with gpu_feed.daemon(batch=BATCH, slots=16, path=options.dataset, fall_back=place.fall_back) as one:
        with one.connect(mode="shard", rank=0, world_size=1, credit=12, **kind) as feed:
            batches = feed.forever()
            turns = [turn(place, feed, batches, options.seconds, one_tensor) for _ in range(options.rounds)]
    yield tell("one worker, host ring and a copy, one tensor", turns)


def rows_along(options):
    with feeds(options, rows="64KiB") as (feed,):
        batches = feed.forever()
        turns = [turn(options.place, feed, batches, options.seconds, nothing) for _ in range(options.rounds)]
        gpus = feed.status()["gpus"]
    places = sorted({rows["place"] for gpu in gpus for rows in gpu["resident"]})
    yield tell("one worker, rows come along", turns, places=places)


WORKER = """
import json, sys
sys.path[:0] = [{folder!r}]
sys.argv = ["bench_device_feed.py"]
import bench_device_feed as b
place = b.Place({has_gpu!r})
import trajd
feed = trajd.connect({endpoint!r}, feed="train", timeout=60, **{terms!r}, **place.options)
batches = feed.forever()
next(batches)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(b.turn(place, feed, batches, {seconds!r}, b.{use}, {count!r})), flush=True)
sys.stdin.readline()
feed.close()
"""


def several(options, workers, apart, gpu_count=1, use="one_tensor", slots=32):
    """Runs workers in processes of their own on the GPUs in turn: each a job, or ranks of one job. slots None: slots and
    credit are the defaults."""
    place = options.place
    with gpu_feed.daemon(batch=BATCH, slots=slots, path=options.dataset, fall_back=place.fall_back) as one:
        children = []
        for n in range(workers):
            rank, world, job = (0, 1, f"job {n}") if apart else (n, workers, "all")
            beside = [0] if apart else [other for other in range(world) if other % gpu_count == n % gpu_count]
            terms = {"mode": "shard", "rank": rank, "world_size": world, "job": job, "gpu_ranks": beside, **({"credit": 8} if slots else {})}
            # ranks end together: a rank that stopped earlier would keep the others waiting
            count = None if apart else int(options.seconds * (10000 if place.has_gpu else 300))
            text = WORKER.format(folder=str(FOLDER), has_gpu=place.has_gpu, endpoint=str(one.endpoint), terms=terms, seconds=options.seconds,
                                 use=use, count=count)
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(n % gpu_count)} if gpu_count > 1 else None
            children.append(subprocess.Popen([sys.executable, "-c", text], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        try:
            for child in children:
                assert child.stdout.readline() == "ready\n"
            for child in children:
                print(file=child.stdin, flush=True)
            turns = [json.loads(child.stdout.readline()) for child in children]
            for child in children:
                print(file=child.stdin, flush=True)
                child.wait(60)
        finally:
            for child in children:
                child.kill()
    rate = sum(one["rate"] for one in turns) / (1 if apart else workers)
    return {"rate": rate, "p50": max(one["p50"] for one in turns), "p99": max(one["p99"] for one in turns),
            "waited": sum(one["waited"] for one in turns) / workers}


def workers(options):
    asked = [(1, True, 1), (2, True, 1), (4, True, 1), (2, False, 1), (4, False, 1)]
    if options.place.has_gpu and torch.cuda.device_count() > 1:
        asked += [(2, True, 2), (4, True, 2), (2, False, 2), (4, False, 2)]
    found = in_turns(options, {one: lambda one=one: several(options, *one) for one in asked})
    for (count, apart, gpu_count), turns in found.items():
        name = "one worker in a process" if count == 1 else f"{count} workers, {'each a job of its own' if apart else 'ranks of one job'}"
        name += f", on {gpu_count} GPUs" if gpu_count > 1 else ""
        ratio = [several["rate"] / one["rate"] for several, one in zip(turns, found[asked[0]])]
        yield tell(f"{name}, one tensor", turns, ratio=middle(ratio, 2), ratio_to="one worker")


def tensors(options):
    """What a training loop gets: slots and credit are the defaults, and a process reads all five tensors of each batch. Beside
    it, one that reads none. One process, and 2 and 4 ranks of one job."""
    found = in_turns(options, {(count, use): lambda count=count, use=use: several(options, count, False, use=use, slots=None)
                               for count in (1, 2, 4) for use in ("all_tensors", "nothing")})
    for (count, use), turns in found.items():
        ratio = [several["rate"] / one["rate"] for several, one in zip(turns, found[1, use])]
        budget = {"budget": ">= 1.0x", "met": middle(ratio, 2)["median"] >= 1} if count > 1 else {}
        if (count, use) == (1, "all_tensors"):
            budget = {"budget": ">= 20,000", "met": middle([one["rate"] for one in turns])["median"] >= 20000}
        yield tell(f"{'one process' if count == 1 else f'{count} ranks of one job'}, {'all five tensors' if use == 'all_tensors' else 'no tensor'}",
                   turns, ratio=middle(ratio, 2), ratio_to="one process", **budget)


def feed(options):
    for part in (one_worker, host_copy, rows_along, workers):
        yield from part(options)


# ---- the other parts ----

def loaders(options):
    import loaders as them
    return them.run(options, feeds, turn, nothing)


def train(options):
    import training_step as them
    return them.run(options)


TARGETS_CONFIG = """
version: 2
runtime: run
state: state
memory: {{store: 1GiB, rings: 512MiB, reserve: 0}}
gpu: {{devices: all, rows: 2GiB, rings: 512MiB, fall_back: {fall_back}}}
limits: {{credit: 64}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
"""
TARGETS_FEED = """
  {name}:
    dataset: demo
    global_batch: {batch}
    slots: 16
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      eef:     {{from: obs/robot0_eef_pos, at: -1..0}}
      turn:    {{from: obs/robot0_eef_quat, at: -1..0}}
      object:  {{from: obs/object, at: -1..0}}
      actions: {{at: 0..15{keys}}}
"""
RELATIVE = """, relative_to: {from: [obs/robot0_eef_pos, obs/robot0_eef_quat], mask: [true, true, true, true, true, true, false]},
                rotation: {from: axis_angle, to: rot6d, columns: "3:6", position: "0:3"}, norm: min_max"""


def targets(options):
    """Feeds of one daemon take turns, each with a worker that takes batches."""
    place, keys = options.place, {"plain": "", "relative": RELATIVE}
    text = TARGETS_CONFIG.format(path=options.dataset, fall_back=place.fall_back)
    text += "".join(TARGETS_FEED.format(name=name, batch=BATCH, keys=more) for name, more in keys.items())
    with gpu_feed.daemon(text=text) as one, contextlib.ExitStack() as stack:
        opened = {name: stack.enter_context(one.connect(feed=name, mode="shard", rank=0, world_size=1, credit=12, job=name, **place.options))
                  for name in keys}
        batches = {name: feed.forever() for name, feed in opened.items()}
        for name, feed in opened.items():
            next(batches[name])
            place.check(feed)
        found = in_turns(options, {name: lambda name=name: turn(place, opened[name], batches[name], options.seconds, nothing) for name in keys})
    ratio = [plain["rate"] / relative["rate"] for plain, relative in zip(found["plain"], found["relative"])]
    yield tell("actions as recorded", found["plain"])
    yield tell("relative actions, rot6d, norm", found["relative"], ratio=middle(ratio, 2), ratio_to="the time of actions as recorded",
               budget="<= 1.1", met=middle(ratio, 2)["median"] <= 1.1)


FILL_LAYOUT = """
layout: wide
version: 1
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks: {rows: {rate: 20, rows: wide}}
streams: {wide: {path: wide, clock: rows, kind: previous}}
"""
FILL_CONFIG = """
version: 2
runtime: run
state: state
memory: {{store: {store}MiB, rings: 64MiB, reserve: 0}}
gpu: {{devices: all, rows: {store}MiB, rings: 256MiB, fall_back: {fall_back}}}
datasets: {{wide: {{path: {path}, layout: {layout}}}}}
feeds:
  train: {{dataset: wide, global_batch: 64, slots: 4, anchor: {{clock: rows}}, outputs: {{wide: {{at: 0}}}}}}
"""


def ceiling(place, mib):
    """Returns the GB/s of a pinned copy."""
    size = min(mib, 1024) << 20
    there = torch.empty(size, dtype=torch.uint8, device=place.device)
    here = torch.empty(size, dtype=torch.uint8, pin_memory=place.has_gpu)
    rates = []
    for _ in range(5):
        place.wait()
        begin = time.perf_counter()
        there.copy_(here, non_blocking=True)
        place.wait()
        rates.append(size / (time.perf_counter() - begin) / 1e9)
    return rates


def fill(options):
    import h5py
    import numpy as np
    mib, episodes = (4096, 64) if options.place.has_gpu else (64, 4)
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="trajd", dir=base) as folder:
        path, layout = pathlib.Path(folder) / "wide.hdf5", pathlib.Path(folder) / "wide.yaml"
        layout.write_text(FILL_LAYOUT)
        rows = np.arange((mib << 20) // episodes // 4, dtype=np.float32).reshape(-1, 1024)
        with h5py.File(path, "w") as file:
            for n in range(episodes):
                file[f"data/demo_{n}/wide"] = rows
        reach = ceiling(options.place, mib)
        rates = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="trajd") as place:
                text = FILL_CONFIG.format(store=mib + 512, path=path, layout=layout, fall_back=options.place.fall_back)
                one = gpu_feed.Daemon(place, text=text)
                try:
                    with one.connect(**options.place.options) as feed:
                        next(feed.epoch(0))
                        gpus = feed.status()["gpus"]
                finally:
                    one.stop()
                rates += [gpu["filled_bytes"] / gpu["fill_seconds"] / 1e9 for gpu in gpus if gpu["fill_seconds"]]
    yield figure(f"pinned copy of {min(mib, 1024)} MiB", middle(reach, 2), "GB/s")
    if rates:
        yield figure(f"rows to the GPU, {mib} MiB", middle(rates, 2), "GB/s", ratio=round(middle(rates, 2)["median"] / middle(reach, 2)["median"], 2),
                     ratio_to="a pinned copy")


PARTS = {"feed": feed, "tensors": tensors, "workers": workers, "targets": targets, "loaders": loaders, "train": train, "fill": fill}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--seconds", type=float, default=2, help="a turn's (2)")
    parser.add_argument("--out", help="the JSON; default: ./device_PARTS.json")
    parser.add_argument("--mps", action="store_true", help="all of it beneath an MPS server of its own, in place of time slices")
    parser.add_argument("--without-gpu", action="store_true", help="through host memory, no figure of which is one")
    return parser.parse_args()


def commit():
    told = FOLDER / "commit"
    return " ".join(told.read_text().split()) if told.exists() else "unknown"


def run_beneath_mps():
    from gpu_mps import mps
    with mps() as environment:
        if environment is None:
            print("no MPS server can be started here")
            return 1
        return subprocess.run([sys.executable, *(one for one in sys.argv if one != "--mps")], env={**environment, "TRAJD_BENCH_MPS": "1"}).returncode


def main():
    options = parse_arguments()
    if options.mps:
        return run_beneath_mps()
    options.place = Place(not options.without_gpu)
    report = {"device": options.place.name, "cores": len(os.sched_getaffinity(0)), "commit": commit(),
              "sharing": "MPS" if os.environ.get("TRAJD_BENCH_MPS") else "time slices",
              "command": command_line("gpu_run.sh"), "date": datetime.date.today().isoformat(),
              "load_before": [round(one, 2) for one in os.getloadavg()], "python": platform.python_version(), "torch": torch.__version__,
              "parts": {}}
    print(f"{report['device']}, {report['cores']} cores, commit {report['commit']}, torch {report['torch']}, {report['date']}, {report['sharing']}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        options.dataset = dataset(folder, 200 if options.place.has_gpu else 24)
        for part in options.parts:
            begin, figures = time.monotonic(), []
            print(f"\n{part}", flush=True)
            try:
                for one in PARTS[part](options):  # the figures before a failure are kept
                    figures.append(one)
                    print_figure(one)
                    sys.stdout.flush()
            except Exception as error:
                failed += 1
                print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
            report["parts"][part] = {"figures": figures, "took_s": round(time.monotonic() - begin, 1)}
    out = pathlib.Path(options.out or f"device_{'_'.join(options.parts)}.json")
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{out}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
