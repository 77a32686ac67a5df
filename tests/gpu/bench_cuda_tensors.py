#!/usr/bin/env python3
"""trajd.resample on CUDA tensors: host time of a call, graph replay against the kernel alone, and other ways to do the same.

    BUNDLE/gpu_run.sh bench_cuda_tensors.py [--rounds 9] [--out FILE.json] [--robocache robocache.so]

    host      time of a call with out= until it returns, in us, while the GPU is busy with something else: the median of
              the rounds, each the median of 200 calls. Budget 20 us for dense arrays
    replay    a graph of 20 calls, replayed, per call, against the same launches without Python: the hot time of
              `bench_resample budget` (beside this file, or its JSON by --kernels). Budget 1.05 times
    others    torch's searchsorted, gather and lerp, eager and by torch.compile, and resample_trajectories and
              fuse_multimodal of the library from which this project grew, in graphs too. Budget: 3 times at the median
              of the shapes. --robocache is its two kernels, with the flags of its setup.py:
              nvcc -O3 --use_fast_math -arch=sm_90 -shared -Xcompiler -fPIC -cudart static -o robocache.so
                  robocache/csrc/cuda/resample_kernel.cu robocache/csrc/cuda/multimodal_kernel.cu

Things that are compared take turns in one run. Ratios are medians of the turns. The shapes are the dense bf16 ones of
kernels/README.md, and the policy's streams in one resample_many."""
import argparse
import ctypes
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER / "python")]

import torch  # noqa: E402

import trajd  # noqa: E402
from report import figure, middle, print_figure  # noqa: E402

SHAPES = [(32, 100, 256, 128), (32, 500, 256, 128), (64, 4096, 1024, 32), (256, 500, 250, 16), (1024, 300, 50, 14), (64, 400, 16, 7),
          (256, 100, 2048, 256)]
PERIOD_NS = 2_000_000
CALLS = 20  # in a graph
FUSED = {"vision": (30, 512), "proprioception": (100, 32), "force": (500, 16)}  # rows of a second and features; 50 steps
MANY = {"joints": (64, 7), "pose": (10, 3), "gripper": (10, 2)}  # rows and features; 17 steps


def make(batch, rows, steps, features, dtype=torch.bfloat16, period_ns=PERIOD_NS):
    times = torch.arange(rows, device="cuda") * period_ns + torch.randint(0, period_ns // 10, (batch, rows), device="cuda")
    targets = (times[:, -1:] * torch.linspace(.02, .93, steps, device="cuda", dtype=torch.float64)).long()
    return torch.randn(batch, rows, features, device="cuda", dtype=dtype), times.contiguous(), targets


def outputs(values, targets):
    return (torch.empty(*targets.shape, values.shape[-1], device="cuda", dtype=values.dtype),
            torch.empty(targets.shape, device="cuda", dtype=torch.uint8))


def by_torch(values, times, targets):
    before = (torch.searchsorted(times, targets, right=True) - 1).clamp(0, times.shape[1] - 2)
    low, high = times.gather(1, before), times.gather(1, before + 1)
    share = ((targets - low).float() / (high - low).float()).clamp(0, 1)[..., None].to(values.dtype)
    rows = before[..., None].expand(*targets.shape, values.shape[2])
    return torch.lerp(values.gather(1, rows), values.gather(1, rows + 1), share)


def host_us(call, rounds):
    """Returns the medians of the rounds. The GPU sleeps meanwhile, so that a call that waited would show."""
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)
        turns = []
        for _ in range(200):
            begin = time.perf_counter_ns()
            call()
            turns.append(time.perf_counter_ns() - begin)
        found.append(statistics.median(turns) / 1000)
    torch.cuda.synchronize()
    return found


def graph_of(calls):
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def replay_us(graph, count):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000)
    begin.record()
    for _ in range(10):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / 10 / count


def kernels_alone(options):
    """Returns the hot time of a launch by shape, as bench_resample measures it."""
    path, program = options.kernels, FOLDER / "bench_resample"
    if not path and program.exists():
        path = "/tmp/bench_resample_budget.json"
        subprocess.run([program, "budget", path], check=True, timeout=300, stdout=subprocess.DEVNULL, env={"LD_LIBRARY_PATH": str(FOLDER)})
    rows = json.loads(pathlib.Path(path).read_text())["rows"] if path else []
    return {tuple(row[key] for key in "BSTD"): statistics.median(row["hot_us"]) for row in rows
            if (row["layout"], row["source"], row["output"], row["kind"]) == ("dense", "bf16", "bf16", 0)}


class RoboCache:
    """The kernels of the library from which this project grew, as its torch extension calls them: times are float32."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        self._resample = library.launch_resample_bf16
        self._fuse = library._Z22multimodal_fusion_cudaPKvPKfS0_S2_S0_S2_S2_PviiiiiiiibP11CUstream_st

    @staticmethod
    def _arguments(*values):
        return [ctypes.c_void_p(value.data_ptr()) if isinstance(value, torch.Tensor) else value for value in values]

    def resample_trajectories(self, values, times, targets):
        out = values.new_empty(values.shape[0], targets.shape[1], values.shape[2])
        self._resample(*self._arguments(values, times, targets, out), values.shape[0], values.shape[1], targets.shape[1], values.shape[2],
                       ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return out

    def fuse_multimodal(self, streams, targets):
        (first, _), *_ = streams
        out = first.new_empty(first.shape[0], targets.shape[1], sum(values.shape[2] for values, _ in streams))
        self._fuse(*self._arguments(*(one for stream in streams for one in stream), targets, out), first.shape[0],
                   *(size for values, _ in streams for size in values.shape[1:]), targets.shape[1], ctypes.c_bool(first.dtype == torch.bfloat16),
                   ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return out


def seconds(times, zero):
    return ((times - zero).double() * 1e-9).float().contiguous()


def measure_shape(shape, options, compiled, robocache, alone):
    name = "B {}, S {}, T {}, D {}".format(*shape)
    one = make(*shape)
    out = outputs(one[0], one[2])
    host = host_us(lambda: trajd.resample(*one, out=out), options.rounds)
    figures = [figure(f"{name}: host time of a call", middle(host, 2), "us", budget="<= 20 us", met=statistics.median(host) <= 20)]
    calls = {"trajd": lambda: trajd.resample(*one, out=out), "torch, eager": lambda: by_torch(*one)}
    if compiled:
        calls["torch, compiled"] = lambda: compiled(*one)
    if robocache:
        when = [seconds(times, one[1].min()) for times in one[1:]]
        calls["RoboCache"] = lambda: robocache.resample_trajectories(one[0], *when)
        assert torch.allclose(robocache.resample_trajectories(one[0], *when).float(), trajd.resample(*one)[0].float(), atol=.1)
    assert torch.allclose(by_torch(*one).float(), trajd.resample(*one)[0].float(), atol=.1)
    graphs = {peer: graph_of([call] * CALLS) for peer, call in calls.items()}
    turns = {peer: [] for peer in graphs}
    for _ in range(options.rounds):
        for peer, graph in graphs.items():
            turns[peer].append(replay_us(graph, CALLS))
    more = {}
    if shape in alone:
        ratio = round(statistics.median(turns["trajd"]) / alone[shape], 3)
        more = {"ratio": ratio, "ratio_to": f"the kernel alone ({alone[shape]} us)", "budget": "<= 1.05x", "met": ratio <= 1.05}
    figures.append(figure(f"{name}: replay", middle(turns["trajd"], 2), "us", **more))
    for peer in list(graphs)[1:]:
        ratio = round(statistics.median(b / a for a, b in zip(turns["trajd"], turns[peer])), 1)
        figures.append(figure(f"  the same by {peer}", middle(turns[peer], 2), "us", ratio=ratio, ratio_to="trajd.resample"))
    return figures


def measure_fusion(options, robocache):
    """The three streams of its example: vision of 30 Hz, proprioception of 100 Hz, force of 500 Hz, onto 50 steps."""
    named = {name: make(32, rows, 50, features, period_ns=10**9 // rows) for name, (rows, features) in FUSED.items()}
    targets = named["vision"][2]
    out = {name: outputs(values, targets) for name, (values, _, _) in named.items()}
    streams = {name: {"values": values, "times": times, "out": out[name]} for name, (values, times, _) in named.items()}
    zero = min(times.min() for _, times, _ in named.values())
    theirs = [(values, seconds(times, zero)) for values, times, _ in named.values()]
    when = seconds(targets, zero)
    expected = torch.cat(list(trajd.resample_many(streams, targets)[0].values()), -1)
    assert torch.allclose(robocache.fuse_multimodal(theirs, when).float(), expected.float(), atol=.1)
    ours = graph_of([lambda: trajd.resample_many(streams, targets)] * CALLS)
    peer = graph_of([lambda: robocache.fuse_multimodal(theirs, when)] * CALLS)
    turns = [(replay_us(ours, CALLS), replay_us(peer, CALLS)) for _ in range(options.rounds)]
    ratio = round(statistics.median(b / a for a, b in turns), 1)
    return [figure("resample_many of vision, proprioception, force: replay", middle([a for a, _ in turns], 2), "us"),
            figure("  fuse_multimodal of RoboCache", middle([b for _, b in turns], 2), "us", ratio=ratio,
                   ratio_to="trajd.resample_many", budget=">= 3x", met=ratio >= 3)]


def measure_many(options, robocache):
    """The policy's streams in one call, and other layouts: what their torch kernels cost."""
    streams, outs = {}, {}
    for name, (rows, features) in MANY.items():
        values, times, targets = make(256, rows, 17, features, torch.float32)
        streams[name] = {"values": values, "times": times, "out": outputs(values, targets)}
    host = host_us(lambda: trajd.resample_many(streams, targets), options.rounds)
    figures = [figure(f"resample_many of {len(MANY)} streams: host time", middle(host, 2), "us")]
    graph = graph_of([lambda: trajd.resample_many(streams, targets)] * CALLS)
    figures.append(figure("  replay", middle([replay_us(graph, CALLS) for _ in range(options.rounds)], 2), "us"))
    if robocache:
        figures += measure_fusion(options, robocache)
    values, times, targets = make(256, 64, 17, 7)
    splits = torch.arange(257, device="cuda") * 64
    out = outputs(values, targets)
    layouts = {"one episode for all": ((values[0], times[0], targets), {}), "causal": ((values, times, targets), {"causal": True}),
               "ragged": ((values.flatten(0, 1), times.flatten(), targets), {"row_splits": splits}),
               "features first": ((values.transpose(1, 2).contiguous().transpose(1, 2), times, targets), {}),
               "without out": ((values, times, targets), {"out": None})}
    for name, (arguments, how) in layouts.items():
        host = host_us(lambda: trajd.resample(*arguments, **{"out": out, **how}), options.rounds)
        figures.append(figure(f"256, 64, 17, 7 {name}: host time", middle(host, 2), "us"))
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    parser.add_argument("--robocache")
    parser.add_argument("--kernels")
    parser.add_argument("--without-compiler", action="store_true", help="leaves torch.compile out, which needs triton and a C compiler")
    options = parser.parse_args()
    if not torch.cuda.device_count():
        print("no GPU: skipped")
        return
    compiled = None if options.without_compiler or not hasattr(torch, "compile") else torch.compile(by_torch, dynamic=False)
    try:
        if compiled:
            compiled(*make(*SHAPES[0]))
    except Exception as why:  # no triton, or no compiler
        print(f"torch.compile is left out: {type(why).__name__}: {str(why).splitlines()[0] if str(why) else ''}")
        compiled = None
    robocache = RoboCache(options.robocache) if options.robocache else None
    alone, figures = kernels_alone(options), []
    for shape in (*SHAPES, None):
        found = measure_shape(shape, options, compiled, robocache, alone) if shape else measure_many(options, robocache)
        for one in found:
            print_figure(one)
        sys.stdout.flush()
        figures += found
    for peer in sorted({one["name"] for one in figures if one["name"].startswith("  the same by")}):
        ratio = statistics.median(one["ratio"] for one in figures if one["name"] == peer)
        figures.append(figure(f"{peer.strip()}, median shape", ratio, "x", budget=">= 3x", met=ratio >= 3))
        print_figure(figures[-1])
    commit = FOLDER / "commit"
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps({
            "device": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version(),
            "commit": commit.read_text().strip() if commit.exists() else "", "command": "gpu_run.sh " + " ".join(pathlib.Path(part).name for part in sys.argv),
            "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
