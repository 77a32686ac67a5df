#!/usr/bin/env python3
"""trajd.resample against what people write by hand: numpy.interp for each feature, scipy's Slerp, and torch's searchsorted,
gather and lerp. All in this process, by turns, with the same float32 arrays; each result is compared with the others.

    PYTHONPATH=build/release/clients/python bench_arrays.py [--rounds 5] [--seconds 0.3] [--json]

Rows are 500 Hz with 10 % of jitter, and targets a regular grid that spans them, from another moment in each row of the
batch. trajd.resample also makes masks and checks that times ascend. run.py starts it as part `arrays`.
"""
import argparse
import json
import statistics
import time

import numpy as np
import trajd

SHAPES = [(1, 64, 16, 7), (256, 32, 16, 7), (64, 400, 16, 7), (1024, 300, 50, 14), (256, 500, 250, 16), (32, 100, 256, 128),
          (32, 500, 256, 128), (64, 4096, 1024, 32)]
PERIOD_NS = 2_000_000


def make(batch, rows, steps, features):
    rng = np.random.default_rng(1)
    times = np.arange(rows) * PERIOD_NS + rng.integers(0, PERIOD_NS // 10, (batch, rows))
    targets = times[:, -1:] * np.linspace(.02, .93, steps) + rng.integers(0, PERIOD_NS, (batch, 1))
    return rng.standard_normal((batch, rows, features)).astype("f4"), times, targets.astype("i8")


def interp(values, times, targets):
    out = np.empty((*targets.shape, values.shape[2]), "f4")
    for b in range(len(values)):
        for d in range(values.shape[2]):
            out[b, :, d] = np.interp(targets[b], times[b], values[b, :, d])
    return out


def slerp(values, times, targets):
    from scipy.spatial.transform import Rotation, Slerp
    return np.stack([Slerp(t, Rotation.from_quat(v))(x).as_quat() for v, t, x in zip(values, times, targets)])


def with_torch(values, times, targets):
    import torch
    before = (torch.searchsorted(times, targets, right=True) - 1).clamp(0, times.shape[1] - 2)
    low, high = times.gather(1, before), times.gather(1, before + 1)
    share = ((targets - low).double() / (high - low).double()).clamp(0, 1).float()[..., None]
    rows = before[..., None].expand(*targets.shape, values.shape[2])
    return torch.lerp(values.gather(1, rows), values.gather(1, rows + 1), share)


def time_call(function, seconds):
    """Returns the shortest of calls for so long, in us."""
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        function()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now > end:
            return 1e6 * best


def compare(name, ours, peers, options):
    turns = {peer: [] for peer in ("trajd", *peers)}
    for _ in range(options.rounds):
        for peer, function in {"trajd": ours, **peers}.items():
            turns[peer].append(time_call(function, options.seconds))
    result = {"name": name, "us": {peer: round(statistics.median(times), 1) for peer, times in turns.items()},
              "ratio": {peer: round(statistics.median(a / b for a, b in zip(turns[peer], turns["trajd"])), 1) for peer in peers}}
    if not options.json:
        print(f"{name:<34}" + "".join(f"{peer} {us:>10.1f} us  " for peer, us in result["us"].items())
              + "  ".join(f"{peer} {ratio}x" for peer, ratio in result["ratio"].items()), flush=True)
    return result


def measure(shape, options):
    arrays = make(*shape)
    out = trajd.resample(*arrays)
    assert not out[1].any() and np.allclose(interp(*arrays), out[0], atol=1e-5)
    peers = {"numpy": lambda: interp(*arrays)}
    try:
        import torch
        tensors = [torch.from_numpy(one) for one in arrays]
        peers["torch"] = lambda: with_torch(*tensors)
        assert np.allclose(with_torch(*tensors).numpy(), out[0], atol=1e-5)
    except ImportError:
        pass
    return compare("linear B {}, S {}, T {}, D {}".format(*shape), lambda: trajd.resample(*arrays, out=out), peers, options)


def measure_slerp(shape, options):
    values, times, targets = make(*shape, 4)
    arrays = (values / np.linalg.norm(values, axis=2, keepdims=True)).astype("f8"), times, targets
    run = lambda: trajd.resample(*arrays, kind="slerp", order="xyzw", out=out)  # noqa: E731
    out = trajd.resample(*arrays, kind="slerp", order="xyzw")
    wanted = slerp(*arrays)
    assert np.allclose(np.abs((wanted * out[0]).sum(-1)), 1, atol=1e-9)
    return compare("slerp B {}, S {}, T {}, D 4".format(*shape), run, {"scipy": lambda: slerp(*arrays)}, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=.3, help="length of a turn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tiny = make(1, 4, 2, 1)
    results = [compare("one step of two rows", lambda: trajd.resample(*tiny), {}, options)]
    results += [measure(shape, options) for shape in SHAPES]
    try:
        import scipy  # noqa: F401
        results += [measure_slerp(shape, options) for shape in ((256, 32, 16), (64, 400, 16))]
    except ImportError:
        pass
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
