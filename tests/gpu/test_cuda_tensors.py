#!/usr/bin/env python3
"""trajd.resample and resample_many on CUDA tensors, against the same calls on the CPU.

    BUNDLE/gpu_run.sh test_cuda_tensors.py [CHECK...]

tests/python/test_resample_cuda.py runs the checks without `_gpu` in their names on the simulated GPU (simulated_torch.py)."""
import os
import pathlib
import subprocess
import sys
import threading

PACKAGE = pathlib.Path(__file__).resolve().parent / "python"  # of a bundle
sys.path.insert(0, str(PACKAGE))

import gpu_checks  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

import trajd  # noqa: E402

LIMIT_S = 240
SIMULATED = "SIMULATED" in os.environ
if SIMULATED:
    from simulated_torch import to_cpu, to_gpu
else:
    to_gpu, to_cpu = lambda tensor: tensor.cuda(), lambda tensor: tensor.cpu()
MS = 1_000_000
TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
FLOATS = TYPES[:4]
KINDS = ("linear", "previous", "nearest", "slerp xyzw", "slerp wxyz", "angle", "mean")
SLACK = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-11}  # of max(1, |value|),
INPUT_SLACK = .1  # and this part of it of the largest input: two large rows may blend to a small value


def make_times(rng, batch, rows):
    return np.cumsum(rng.integers(1, 12 * MS, (batch, rows)), axis=1) - rng.integers(0, 20 * MS, (batch, 1))


def make_targets(rng, times, shape):
    low, high = (times.min(), times.max()) if times.size else (0, 10)
    targets = rng.integers(low - 9 * MS, high + 9 * MS, shape)
    if times.size:
        exact = rng.random(shape) < .3
        targets[exact] = rng.choice(times.ravel(), exact.sum())
    targets[rng.random(shape) < .03] = np.iinfo("i8").min
    return torch.from_numpy(targets)


def make_values(rng, shape, name):
    if name == "bool":
        return torch.from_numpy(rng.random(shape) < .5)
    if name in FLOATS:
        values = rng.standard_normal(shape)
        values[rng.random(shape) < .02] = np.nan
        return torch.from_numpy(values).to(getattr(torch, name))
    limits = np.iinfo(name)
    return torch.from_numpy(rng.integers(max(limits.min, -2**40), min(limits.max, 2**40), shape, dtype=name))


def lay_out(rng, values):
    """Returns the same values on the GPU, in another layout."""
    choice, there = rng.integers(6), to_gpu(values)
    if choice == 1:  # some columns of wider rows
        return to_gpu(torch.nn.functional.pad(values, (2, 3)))[..., 2:2 + values.shape[-1]]
    if choice == 2:  # each second row
        return there.repeat_interleave(2, -2)[..., ::2, :]
    if choice == 3:  # features first
        return there.transpose(-1, -2).contiguous().transpose(-1, -2)
    if choice == 4 and values.dim() == 3:  # time first
        return there.transpose(0, 1).contiguous().transpose(0, 1)
    if choice == 5:  # at an odd address
        return torch.nn.functional.pad(there.reshape(-1), (1, 0))[1:].view(values.shape)
    return there


def compare(found, expected, exact, largest=1):
    """Compares a result and a mask of the GPU with those of the CPU. largest: magnitude of the values that were resampled."""
    (result, mask), (wanted, wanted_mask) = (tuple(to_cpu(one) for one in found), expected)
    assert result.dtype == wanted.dtype and result.shape == wanted.shape and mask.dtype == torch.uint8
    assert torch.equal(mask, wanted_mask), (mask, wanted_mask)
    if exact or not wanted.dtype.is_floating_point:
        assert torch.equal(result.nan_to_num(77), wanted.nan_to_num(77)) if wanted.dtype.is_floating_point else torch.equal(result, wanted)
        return
    a, b = result.double(), wanted.double()
    assert torch.equal(a.isnan(), b.isnan())
    far = ((a - b).abs() / b.abs().clamp(min=max(1, INPUT_SLACK * largest))).nan_to_num(0)
    assert far.numel() == 0 or far.max() <= SLACK[str(wanted.dtype)[6:]], float(far.max())


def make_case(rng, kind):
    """Returns the arguments of a call on the CPU. Values and times are dense."""
    batch, rows, steps, features = (int(rng.integers(*limits)) for limits in ((1, 9), (1, 60), (1, 40), (1, 40)))
    slerp, picks = kind.startswith("slerp"), kind in ("previous", "nearest")
    source = str(rng.choice(FLOATS if slerp or kind == "angle" else TYPES))  # large integers are angles of no precision
    features = (features + 3) // 4 * 4 if slerp else features
    outputs = [name for name in FLOATS if name != "float64" or source == "float64"] + [source] * picks
    dtype = None if rng.random() < .5 else str(rng.choice(outputs))
    target = dtype or (source if picks or source in FLOATS else "float32")
    name, _, order = kind.partition(" ")
    times, form = make_times(rng, batch, rows), rng.integers(6)
    case = {"kind": name, "order": order or None, "dtype": dtype, "causal": bool(rng.random() < .3),
            "pad": str(rng.choice(["edge", "zero", "nan"] if target in FLOATS else ["edge", "zero"])),
            "max_gap": None if rng.random() < .5 else "5ms", "max_age": None if rng.random() < .5 else "4ms",
            "width": "15ms" if name == "mean" else None, "range_low": -np.pi if name == "angle" and rng.random() < .5 else None}
    if form == 0:  # ragged
        ends = np.sort(rng.integers(0, rows + 1, batch - 1))
        case["row_splits"] = torch.from_numpy(np.concatenate([[0], ends, [rows]]))
    one_values, one_times = form in (0, 1, 2), form in (0, 1, 3)  # 1: all rows of the batch share both
    case["values"] = make_values(rng, (rows, features) if one_values else (batch, rows, features), source)
    case["times"] = torch.from_numpy(times[0] if one_times else times)
    shared = rng.random() < .3 and form != 1
    case["targets"] = make_targets(rng, times, (steps,) if shared else (batch, steps))
    return case


def there(rng, case):
    moved = {key: to_gpu(value) if isinstance(value, torch.Tensor) else value for key, value in case.items()}
    moved["values"] = lay_out(rng, case["values"])
    if rng.random() < .2:
        moved["targets"] = to_gpu(case["targets"].repeat_interleave(2, -1))[..., ::2]
    if rng.random() < .2:
        moved["times"] = to_gpu(case["times"].repeat_interleave(2, -1))[..., ::2]
    return moved


def outputs_like(rng, expected):
    """Returns outputs for a result: dense ones, or parts of larger ones."""
    result, mask = (to_gpu(torch.zeros_like(one)) for one in expected)
    if rng.random() < .4:
        result = to_gpu(torch.zeros(*result.shape[:-2], result.shape[-2] + 2, result.shape[-1] + 3, dtype=result.dtype))
        result = result[..., 1:-1, 2:-1]
    return [(result, mask), (result, None), result][rng.integers(3)]


def test_all_kinds_and_layouts():
    for seed in range(150):
        for kind in KINDS:
            rng = np.random.default_rng([seed, KINDS.index(kind)])
            case = make_case(rng, kind)
            expected = trajd.resample(**case)
            moved = there(rng, case)
            exact = SIMULATED or case["kind"] in ("previous", "nearest")
            largest = float(case["values"].double().nan_to_num(0).abs().max()) if case["values"].numel() else 1
            try:
                compare(trajd.resample(**moved), expected, exact, largest)
                if case["dtype"] is None:
                    out = outputs_like(rng, expected)
                    found = trajd.resample(**moved, out=out)
                    assert found[0] is (out[0] if isinstance(out, tuple) else out)
                    assert not isinstance(out, tuple) or out[1] is None or found[1] is out[1]
                    compare(found, expected, exact, largest)
            except Exception:
                print(seed, kind, {key: (value.shape, value.stride()) if isinstance(value, torch.Tensor) else value
                                   for key, value in moved.items()}, flush=True)
                raise


def test_many_streams():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        batch, steps = int(rng.integers(1, 6)), int(rng.integers(1, 20))
        streams, shared = {}, bool(rng.random() < .3)
        for i in range(int(rng.integers(1, 15))):
            again = i % 3 and rng.random() < .7
            times = streams[f"s{i - 1}"]["times"] if again else torch.from_numpy(make_times(rng, batch, int(rng.integers(1, 30))))
            times = times[0] if not again and (shared or rng.random() < .2) else times
            shape = (*times.shape, i + 1) if times.dim() == 1 or rng.random() < .8 else (times.shape[-1], i + 1)
            streams[f"s{i}"] = {"values": make_values(rng, shape, "float32"), "times": times, "causal": i % 5 == 4,
                                "kind": ("linear", "nearest", "previous")[i % 3]}
        targets = make_targets(rng, streams["s0"]["times"].numpy(), (batch, steps))
        moved, seen = {}, {}
        for name, stream in streams.items():
            times = seen.setdefault(id(stream["times"]), to_gpu(stream["times"]))
            moved[name] = {**stream, "times": times, "values": lay_out(rng, stream["values"])}
        results, masks = trajd.resample_many(moved, to_gpu(targets), max_gap="8ms")
        wanted, wanted_masks = trajd.resample_many(streams, targets, max_gap="8ms")
        for name in streams:
            compare((results[name], masks[name]), (wanted[name], wanted_masks[name]), SIMULATED)


def test_streams_whose_stamps_are_columns():
    """Copies of strided stamps are as long as those of the next stream, and may lie where they lay."""
    rng = np.random.default_rng(5)
    columns = torch.from_numpy(make_times(rng, 6, 40).T.copy())
    streams = {f"s{i}": {"values": make_values(rng, (3, 40, 2), "float32"), "times": columns[:, i]} for i in range(6)}
    targets = make_targets(rng, columns.numpy(), (3, 10))
    wanted = trajd.resample_many(streams, targets)
    there = to_gpu(columns)
    found = trajd.resample_many({name: {"values": to_gpu(stream["values"]), "times": there[:, i]}
                                 for i, (name, stream) in enumerate(streams.items())}, to_gpu(targets))
    for name in streams:
        compare((found[0][name], found[1][name]), (wanted[0][name], wanted[1][name]), SIMULATED)


def test_streams_whose_splits_begin_at_one_address():
    rng = np.random.default_rng(6)
    times = torch.from_numpy(make_times(rng, 1, 40)[0])
    bounds = torch.tensor([0, 3, 40, 40, 40])
    values = make_values(rng, (40, 2), "float32")
    targets = make_targets(rng, times.numpy(), (2, 10))

    def run(move):
        splits, rows, stamps = move(bounds), move(values), move(times)
        return trajd.resample_many({"each": {"values": rows, "times": stamps, "row_splits": splits[:3]},
                                    "second": {"values": rows, "times": stamps, "row_splits": splits[::2]}}, move(targets))

    found, wanted = run(to_gpu), run(lambda tensor: tensor)
    for name in "each", "second":
        compare((found[0][name], found[1][name]), (wanted[0][name], wanted[1][name]), SIMULATED)


def test_empty():
    for batch, rows, steps in (0, 5, 3), (3, 5, 0), (3, 0, 4), (0, 0, 0):
        for causal in False, True:
            case = {"values": torch.ones(batch, rows, 2), "times": torch.zeros(batch, rows, dtype=torch.int64),
                    "targets": torch.zeros(batch, steps, dtype=torch.int64), "pad": "nan", "causal": causal}
            compare(trajd.resample(**{key: to_gpu(one) if isinstance(one, torch.Tensor) else one for key, one in case.items()}),
                    trajd.resample(**case), True)
    case = {"values": torch.ones(0, 2), "times": torch.zeros(0, dtype=torch.int64), "targets": torch.zeros(4, 3, dtype=torch.int64)}
    compare(trajd.resample(**{key: to_gpu(one) for key, one in case.items()}), trajd.resample(**case), True)


def test_an_empty_stream_beside_another():
    streams = {"none": {"values": torch.ones(0, 2), "times": torch.zeros(0, dtype=torch.int64)},
               "some": {"values": torch.arange(5.)[:, None], "times": torch.arange(5) * MS}}
    targets = torch.arange(12).view(4, 3) * MS // 2
    wanted = trajd.resample_many(streams, targets)
    moved = {name: {key: to_gpu(one) for key, one in stream.items()} for name, stream in streams.items()}
    found = trajd.resample_many(moved, to_gpu(targets))
    for name in streams:
        compare((found[0][name], found[1][name]), (wanted[0][name], wanted[1][name]), True)


def test_splits_of_each_stream():
    """Streams with the same times and other splits see other rows."""
    values, times = torch.arange(10.)[:, None], torch.arange(10) * MS
    splits = {"a": [0, 4, 10], "b": [0, 7, 10], "c": [0, 4, 10]}
    streams = {name: {"values": values, "row_splits": torch.tensor(one)} for name, one in splits.items()}
    targets = torch.tensor([[0, 6 * MS], [5 * MS, 9 * MS]])
    wanted, there = trajd.resample_many(streams, targets, times=times), to_gpu(times)
    moved = {name: {key: to_gpu(one) for key, one in stream.items()} for name, stream in streams.items()}
    found = trajd.resample_many(moved, to_gpu(targets), times=there)
    for name in streams:
        compare((found[0][name], found[1][name]), (wanted[0][name], wanted[1][name]), True)
    assert wanted[1]["a"].tolist() != wanted[1]["b"].tolist()


def test_numbers_that_torch_negates_later():
    values = torch.complex(torch.zeros(2, 3, 1), torch.ones(2, 3, 1))
    times = to_gpu(torch.arange(3).repeat(2, 1) * MS)
    found = trajd.resample(to_gpu(values).conj().imag, times, times)
    assert (to_cpu(found[0]) == -1).all()


def test_splits_that_lie():
    """Nothing outside the rows is read. The values are those of some rows."""
    values, times = to_gpu(torch.ones(50, 3)), to_gpu(torch.arange(50) * MS)
    targets = to_gpu(torch.full((4, 5), 10 * MS))
    for splits in [0, 60, -5, 70, 50], [9, 8, 7, 6, 5], [2**62, -2**62, 0, 50, 2**62], [-1, -1, -1, -1, -1]:
        for causal in False, True:
            result, _ = trajd.resample(values, times, targets, row_splits=to_gpu(torch.tensor(splits)), causal=causal, pad="zero")
            assert all(one in (0, 1) for one in to_cpu(result).unique().tolist())


def refused(words, error=trajd.ArgumentError, **change):
    good = {"values": to_gpu(torch.zeros(4, 6, 2)), "times": to_gpu(torch.arange(6).repeat(4, 1)),
            "targets": to_gpu(torch.zeros(4, 3, dtype=torch.int64))}
    out = to_gpu(torch.full((4, 3, 2), 7.0))
    try:
        trajd.resample(**{**good, "out": out, **change})
    except error as caught:
        assert words in str(caught), str(caught)
        assert (to_cpu(out) == 7).all()
        return
    raise AssertionError(f"not refused: {change}")


def test_wrong_calls_are_refused():
    seconds = to_gpu(torch.zeros(4, 6, dtype=torch.float64))
    refused("times has type torch.float64. On a GPU times are int64 ns", times=seconds)
    refused("(seconds * 1e9).round().long()", times=seconds, targets=to_gpu(torch.zeros(4, 3, dtype=torch.float64)))
    refused("times is on cpu, but values is on cuda:0", times=torch.arange(6).repeat(4, 1))
    refused("times is not a torch tensor, but values is on cuda:0", times=np.arange(6))
    refused("values requires gradients", values=to_gpu(torch.zeros(4, 6, 2)).requires_grad_())
    refused("times of shape (4, 5) does not fit values of shape (4, 6, 2)", times=to_gpu(torch.arange(5).repeat(4, 1)))
    refused("is for B = 5", targets=to_gpu(torch.zeros(5, 3, dtype=torch.int64)))
    refused("values has 1 dimension", values=to_gpu(torch.zeros(6)))
    refused("is for B = 3", times=to_gpu(torch.arange(6).repeat(3, 1)), values=to_gpu(torch.zeros(6, 2)))
    refused("kind is 'cubic'", kind="cubic")
    refused("width is missing", kind="mean")
    refused("width is 50 without a unit: 50ns? 50ms?", kind="mean", width=50)
    refused("max_age is '5 parsecs'", max_age="5 parsecs")
    refused("row_splits needs values of shape [N, D]", row_splits=to_gpu(torch.arange(5)))
    refused("row_splits must be int64", values=to_gpu(torch.zeros(6, 2)), times=to_gpu(torch.arange(6)), row_splits=to_gpu(torch.zeros(5)))
    refused("float64 needs values of float64", out=None, dtype=torch.float64)
    refused("out has the shape (4, 2, 2), and the result has (4, 3, 2)", out=to_gpu(torch.zeros(4, 2, 2)))
    refused("has type i16, and the result has bf16", dtype=torch.bfloat16, out=to_gpu(torch.zeros(4, 3, 2, dtype=torch.int16)))
    values = to_gpu(torch.zeros(4, 6, 2))
    refused("out shares memory with another argument", values=values, out=values[:, :3])
    refused("has type torch.complex64", values=to_gpu(torch.zeros(4, 6, 2, dtype=torch.complex64)))
    refused("out is not a torch tensor", out=np.zeros((4, 3, 2)))
    refused("out is not a torch tensor", out=((1, 2), 3))
    for other, words in (torch.zeros(4, 6, 2), "values is on cpu, but values is on cuda:0"), (np.zeros((6, 2)), "values is not a torch tensor"):
        try:
            trajd.resample_many({"a": {"values": values[0]}, "b": {"values": other}}, to_gpu(torch.zeros(4, 3, dtype=torch.int64)),
                                times=to_gpu(torch.arange(6)))
        except ValueError as error:
            assert f"streams['b']: {words}" in str(error)
        else:
            raise AssertionError("not refused")


def test_many_shapes():
    rng = np.random.default_rng(7)
    case = make_case(rng, "linear")
    for count in range(1, 60):  # more than plans are kept
        times = torch.from_numpy(make_times(rng, count, 5))
        values, targets = make_values(rng, (count, 5, 3), "float32"), make_targets(rng, times.numpy(), (count, 4))
        compare(trajd.resample(*(to_gpu(one) for one in (values, times, targets))), trajd.resample(values, times, targets), SIMULATED)
    assert case


def fixed_case(rng, form, batch=64, rows=50, steps=20, features=7):
    times = torch.from_numpy(make_times(rng, batch, rows))
    values = make_values(rng, (batch, rows, features), "float32")
    targets = make_targets(rng, times.numpy(), (batch, steps))
    if form == "dense":
        return {"values": values, "times": times, "targets": targets}
    if form == "shared":
        return {"values": values[0], "times": times[0], "targets": targets}
    if form == "causal":
        return {"values": values, "times": times, "targets": targets, "causal": True}
    if form == "ragged":
        splits = torch.arange(batch + 1) * rows // 2
        half = batch * rows // 2
        return {"values": values.flatten(0, 1)[:half], "times": times.flatten()[:half].sort().values, "targets": targets,
                "row_splits": splits, "causal": True}
    return {"values": values, "times": times[0], "targets": targets}


FORMS = ("dense", "shared", "causal", "ragged", "mixed")


def test_no_call_waits_gpu():
    """While the stream is busy, calls return. torch raises an error where one of its own operations waits."""
    for form in FORMS:
        case = fixed_case(np.random.default_rng(1), form)
        moved = {key: to_gpu(one) if isinstance(one, torch.Tensor) else one for key, one in case.items()}
        wanted = trajd.resample(**case)
        trajd.resample(**moved)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.cuda._sleep(400_000_000)
            event = torch.cuda.Event()
            found = [trajd.resample(**moved) for _ in range(20)]
            event.record()
            assert not event.query(), form
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for one in found:
            compare(one, wanted, False)


def test_other_streams_gpu():
    """A call is ordered with the work before and after it on the current stream. Copies that it makes are not reused too soon."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    for turn in range(60):
        rng = np.random.default_rng(turn)
        case = fixed_case(rng, FORMS[turn % len(FORMS)])
        wanted = trajd.resample(**case)
        moved = {key: to_gpu(one) if isinstance(one, torch.Tensor) else one for key, one in case.items()}
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[turn % 3]):
            late = torch.zeros_like(moved["values"])
            torch.cuda._sleep(2_000_000)
            late.copy_(moved["values"])
            wide = torch.nn.functional.pad(late, (0, 1))[..., :-1].transpose(-1, -2).contiguous().transpose(-1, -2)
            found = [trajd.resample(**{**moved, "values": one}) for one in (late, wide)]
            late.fill_(float("nan"))
            noise = [torch.full_like(late, float("nan")) for _ in range(4)]  # in the place of the copies
            copies = [(result.clone(), mask.clone()) for result, mask in found]
        streams[turn % 3].synchronize()
        assert noise
        for one in copies:
            compare(one, wanted, False)


def capture(moved, out):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        trajd.resample(**moved, out=out)
    return graph


def test_graphs_gpu():
    """A graph gives the result of new inputs at each replay, also if many other shapes ran in between."""
    for form in FORMS:
        case = fixed_case(np.random.default_rng(2), form)
        moved = {key: to_gpu(one) if isinstance(one, torch.Tensor) else one for key, one in case.items()}
        out = tuple(torch.zeros_like(one) for one in trajd.resample(**moved))
        graph = capture(moved, out)
        test_many_shapes()
        for seed in range(3, 8):
            new = fixed_case(np.random.default_rng(seed), form)
            for key, one in new.items():
                if isinstance(one, torch.Tensor):
                    moved[key].copy_(one)
            for one in out:
                one.fill_(55)
            graph.replay()
            compare(out, trajd.resample(**new), False)


COLD = """
import torch, trajd
values, times = torch.ones(4, 6, 2, device="cuda"), torch.arange(6, device="cuda").repeat(4, 1)
out = torch.zeros(4, 3, 2, device="cuda"), torch.zeros(4, 3, dtype=torch.uint8, device="cuda")
targets, graph = torch.zeros(4, 3, dtype=torch.int64, device="cuda"), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    trajd.resample(values, times, targets, out=out)
graph.replay()
assert (out[0] == 1).all() and (out[1] == 0).all()
"""


def test_first_call_in_a_capture_gpu():
    subprocess.run([sys.executable, "-c", COLD], check=True, timeout=120, env={**os.environ, "PYTHONPATH": str(PACKAGE)})


def test_threads_gpu():
    failures = []

    def work(seed):
        try:
            case = fixed_case(np.random.default_rng(seed), FORMS[seed % len(FORMS)], batch=seed + 1)
            wanted = trajd.resample(**case)
            with torch.cuda.stream(torch.cuda.Stream()):
                moved = {key: to_gpu(one) if isinstance(one, torch.Tensor) else one for key, one in case.items()}
                for _ in range(50):
                    compare(trajd.resample(**moved), wanted, False)
        except BaseException as error:  # noqa: B036
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_another_device_gpu():
    if torch.cuda.device_count() < 2:
        raise gpu_checks.Skipped("one GPU")
    torch.cuda.set_device(0)
    case = fixed_case(np.random.default_rng(3), "dense")
    for form in FORMS:
        case = fixed_case(np.random.default_rng(3), form)
        moved = {key: one.to("cuda:1") if isinstance(one, torch.Tensor) else one for key, one in case.items()}
        found = trajd.resample(**moved)
        assert torch.cuda.current_device() == 0 and found[0].device == torch.device("cuda", 1)
        compare(found, trajd.resample(**case), False)
    try:
        trajd.resample(**{**moved, "times": moved["times"].to("cuda:0")})
    except ValueError as error:
        assert "times is on cuda:0, but values is on cuda:1" in str(error)
    else:
        raise AssertionError("not refused")


if __name__ == "__main__":
    if SIMULATED:
        checks = [check for name, check in globals().items() if name.startswith("test_") and not name.endswith("_gpu")]
        failed, _ = gpu_checks.run(checks, LIMIT_S)
        sys.exit(1 if failed else 0)
    sys.exit(gpu_checks.main(globals(), LIMIT_S))
