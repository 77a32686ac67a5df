"""trajd.resample and resample_many: against the definition of the kernels, numpy and scipy, in all kinds, types and layouts."""
import concurrent.futures
import doctest
import os
import sys
import threading
import time
from fractions import Fraction

import numpy as np
import pytest

import trajd
import trajd.resampling
from kernel_reference import resample as reference

MS = 1_000_000
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


def make_times(rng, batch, rows):
    times = np.cumsum(rng.integers(1, 12 * MS, (batch, rows)), axis=1)
    return times - rng.integers(0, 20 * MS, (batch, 1))


def make_values(rng, shape, name):
    if name == "bool":
        return rng.random(shape) < .5
    if name in FLOATS:
        values = rng.standard_normal(shape).astype(name)
        values[rng.random(shape) < .02] = np.nan
        return values
    limits = np.iinfo(name)
    return rng.integers(max(limits.min, -2**40), min(limits.max, 2**40), shape, dtype=name)


def make_targets(rng, times, batch, steps):
    low, high = (times.min(), times.max()) if times.size else (0, 10)
    targets = rng.integers(low - 9 * MS, high + 9 * MS, (batch, steps))
    if times.size:  # some exactly at a row
        exact = rng.random((batch, steps)) < .3
        targets[exact] = rng.choice(times.ravel(), exact.sum())
    return targets


def lay_out(rng, values):
    """Returns the same values in another layout."""
    choice = rng.integers(7)
    batch, rows, features = values.shape
    if choice == 1:  # some columns of wider rows
        wide = np.zeros((batch, rows, features + 5), values.dtype)
        wide[..., 2:2 + features] = values
        return wide[..., 2:2 + features]
    if choice == 2:  # each second row
        wide = np.zeros((batch, rows * 2, features), values.dtype)
        wide[:, ::2] = values
        return wide[:, ::2]
    if choice == 3:  # time first
        return np.ascontiguousarray(values.transpose(1, 0, 2)).transpose(1, 0, 2)
    if choice == 4:
        return np.asfortranarray(values)
    if choice == 5:
        return np.ascontiguousarray(values[:, ::-1, ::-1])[:, ::-1, ::-1]
    if choice == 6:
        return np.ascontiguousarray(values[::-1])[::-1]
    return values


@pytest.mark.parametrize("kind", ["linear", "previous", "nearest", "slerp xyzw", "slerp wxyz", "angle", "mean"])
@pytest.mark.parametrize("seed", range(60))
def test_it_equals_the_definition(kind, seed):
    rng = np.random.default_rng([seed, len(kind), ord(kind[-1])])
    batch, rows, steps, features = rng.integers(1, 6), rng.integers(1, 30), rng.integers(1, 20), rng.integers(1, 40)
    picks = kind in ("previous", "nearest")
    source = str(rng.choice(FLOATS if kind.startswith("slerp") else FLOATS + INTEGERS))
    features = (features + 3) // 4 * 4 if kind.startswith("slerp") else features
    outputs = [name for name in FLOATS if name != "float64" or source == "float64"] + [source] * picks
    dtype = None if rng.random() < .5 else str(rng.choice(outputs))
    target = dtype or (source if picks or source in FLOATS else "float32")
    pad = str(rng.choice(["edge", "zero", "nan"] if target in FLOATS else ["edge", "zero"]))
    times = make_times(rng, batch, rows)
    values, targets = make_values(rng, (batch, rows, features), source), make_targets(rng, times, batch, steps)
    if rng.random() < .3:
        times = np.broadcast_to(times[:1], times.shape)
    if rng.random() < .3:
        values = np.broadcast_to(values[:1], values.shape)
    if rng.random() < .3:
        targets = np.broadcast_to(targets[:1], targets.shape)
    causal, gap, age = bool(rng.random() < .3), rng.choice([-1, 5 * MS]), rng.choice([-1, 4 * MS])
    width, low = 15 * MS if kind == "mean" else 0, -np.pi if kind == "angle" and rng.random() < .5 else np.nan
    counts = [np.count_nonzero(times[b] <= targets[b].max()) if causal else rows for b in range(batch)]
    expected, mask = reference(np.ascontiguousarray(values), np.ascontiguousarray(times), np.ascontiguousarray(targets), counts, kind,
                               source, target, pad, gap, 2**63 - 1 if age < 0 and causal else age, width, low=low)
    name, _, order = kind.partition(" ")
    found, found_mask = trajd.resample(
        lay_out(rng, values) if values.strides[0] else values, times, targets, kind=name, order=order or None, pad=pad, causal=causal,
        max_gap=None if gap < 0 else f"{gap}ns", max_age=None if age < 0 else f"{age}ns", width=f"{width}ns" if width else None, dtype=dtype,
        range_low=None if np.isnan(low) else low)
    assert found.dtype == target and found.shape == (batch, steps, features) and found_mask.dtype == "u1"
    np.testing.assert_array_equal(found_mask, mask)
    expected = expected.view(target)
    if order:
        np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=0, atol={"float16": 1e-3, "float32": 1.2e-7}.get(target, 4e-13))
    else:
        assert found.tobytes() == expected.tobytes() or np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("seed", range(10))
def test_numpy_and_scipy_agree(seed):
    from scipy.spatial.transform import Rotation, Slerp
    rng = np.random.default_rng(seed)
    batch, rows, steps = 3, 25, 40
    times = make_times(rng, batch, rows)
    targets = np.stack([rng.integers(one[0], one[-1] + 1, steps) for one in times])
    values, quaternions = rng.standard_normal((batch, rows, 5)), Rotation.from_quat(rng.standard_normal((batch * rows, 4))).as_quat().reshape(batch, rows, 4)
    results, masks = trajd.resample_many({
        "linear": values, "mean": {"values": values, "kind": "mean", "width": "20ms"}, "previous": {"values": values, "kind": "previous"},
        "wrist": {"values": quaternions, "kind": "slerp", "order": "xyzw"},
        "flipped": {"values": quaternions[..., [3, 0, 1, 2]], "kind": "slerp", "order": "wxyz"}}, targets, times=times)
    assert all(not mask.any() for mask in masks.values())
    for b in range(batch):
        t, x, v = times[b], targets[b], values[b]
        np.testing.assert_allclose(results["linear"][b], np.stack([np.interp(x, t, column) for column in v.T], -1), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(results["previous"][b], v[np.searchsorted(t, x, "right") - 1])
        means = [v[(t > at - 20 * MS) & (t <= at)] for at in x]
        last = v[np.searchsorted(t, x, "right") - 1]
        np.testing.assert_allclose(results["mean"][b], [m.mean(0) if len(m) else last[i] for i, m in enumerate(means)], atol=1e-12)
        expected = Slerp(t - t[0], Rotation.from_quat(quaternions[b]))(x - t[0])
        angle = (expected.inv() * Rotation.from_quat(results["wrist"][b])).magnitude()
        assert angle.max() < 1e-7
    np.testing.assert_allclose(results["flipped"], results["wrist"][..., [3, 0, 1, 2]], atol=1e-15)


def test_masks_say_why():
    times, values = np.array([0, 10, 20, 60, 60, 70]) * MS, np.array([[0.], [1], [np.nan], [3], [4], [5]])
    targets = np.array([-1, 0, 5, 15, 40, 65, 71, 90]) * MS
    found, mask = trajd.resample(values, times, targets, max_gap="30ms", max_age="10ms")
    assert mask.tolist() == [1, 0, 0, 5, 5, 0, 0, 7] and found.shape == (8, 1)
    assert trajd.resample(values, times, targets, kind="previous", max_gap="30ms")[1].tolist() == [1, 0, 0, 0, 5, 0, 2, 2]
    targets[0] = np.iinfo("i8").min
    assert trajd.resample(np.ones_like(values), times, targets, max_gap="30ms")[1].tolist() == [4, 0, 0, 0, 3, 0, 2, 2]


def test_a_result_that_is_not_finite_is_masked():
    times, targets = np.array([0, 10, 20, 30]) * MS, np.array([0, 5, 10, 15, 20, 25, 30, 31]) * MS

    def masks(rows, dtype="float32", **how):
        result, mask = trajd.resample(np.array(rows, how.pop("source", dtype))[:, None], times, targets, dtype=dtype, **how)
        assert np.array_equal(mask == 5, ~np.isfinite(result[:, 0])), (result.ravel(), mask)
        return mask.tolist()

    inf, huge = np.inf, 3e38
    assert masks([0, inf, 1, 2]) == [0, 5, 5, 5, 0, 0, 0, 2]
    assert masks([-inf, inf, 1, 2], kind="nearest") == [5, 5, 5, 0, 0, 0, 0, 2]
    assert masks([0, inf, 1, 2], kind="previous") == [0, 0, 5, 5, 0, 0, 0, 2]
    assert masks([0, inf, 1, 2], kind="mean", width="15ms") == [0, 0, 5, 5, 5, 0, 0, 2]
    assert masks([0, inf, 1, 2], kind="angle") == [0, 5, 5, 5, 0, 0, 0, 2]
    assert masks([0, 1, 2, -inf], max_age="5ms") == [0, 0, 0, 0, 0, 5, 5, 5]
    assert masks([-huge, huge, 0, 0]) == [0, 0, 0, 0, 0, 0, 0, 2]  # the arithmetic is in float64
    assert masks([-1e308, 1.5e308, 0, 0], "float64") == [0, 5, 0, 0, 0, 0, 0, 2]
    assert masks([0, 2 * huge, 0, 0], source="f8") == [0, 0, 5, 0, 0, 0, 0, 2]  # 3e38 between them fits
    assert masks([0, 70000, 0, 0], "float16", source="u4") == [0, 0, 5, 0, 0, 0, 0, 2]
    assert masks([0, 65519.9, 65520, 0], "float16", source="f8", kind="previous") == [0, 0, 0, 0, 5, 5, 0, 2]
    mask = trajd.resample(np.float32([[0, inf, 1, 2], [0, 0, 0, 1], [inf] * 4, [0, 0, 1, 0]]), times, targets, kind="slerp", order="xyzw")[1]
    assert mask.tolist() == [5, 5, 0, 5, 5, 5, 0, 2]
    whole = np.zeros((4, 100), "f4")  # long rows
    whole[2, 77] = inf
    assert trajd.resample(whole, times, targets)[1].tolist() == [0, 0, 0, 5, 5, 5, 0, 2]


def test_masked_arrays_have_missing_rows():
    rng = np.random.default_rng(5)
    values, times = rng.standard_normal((3, 20, 2)), make_times(rng, 3, 20)
    targets, lost = make_targets(rng, times, 3, 30), rng.random((3, 20)) < .3
    lost[2] = True
    masked = np.ma.array(values, mask=np.stack([lost, np.zeros_like(lost)], -1))
    found, mask = trajd.resample(masked, times, targets, max_gap="12ms")
    by_times = trajd.resample(values, np.ma.array(times, mask=lost), targets, max_gap="12ms")
    shared = trajd.resample(np.ma.array(values[0], mask=masked.mask[0]), times[0], targets, max_gap="12ms")
    assert type(found) is type(mask) is np.ndarray and (mask[2] == 1).all() and (mask == 3).any()
    np.testing.assert_array_equal(by_times[0], found)
    for b in range(3):
        alone = trajd.resample(values[b, ~lost[b]], times[b, ~lost[b]], targets[b], max_gap="12ms")
        np.testing.assert_array_equal(found[b], alone[0])
        np.testing.assert_array_equal(mask[b], alone[1])
    np.testing.assert_array_equal(shared[0][0], found[0])
    splits = np.array([0, 20, 40, 60])
    ragged = trajd.resample_many({"x": {"values": np.ma.array(values.reshape(60, 2), mask=masked.mask.reshape(60, 2)), "times": times.ravel(),
                                        "row_splits": splits}}, targets, max_gap="12ms")
    np.testing.assert_array_equal(ragged[0]["x"], found)
    np.testing.assert_array_equal(ragged[1]["x"], mask)
    with pytest.raises(trajd.ArgumentError, match=r"row_splits \[2\] is 15: splits"):
        trajd.resample(masked.reshape(60, 2), times.ravel(), targets, row_splits=np.array([0, 16, 15, 60]))


def test_shapes_without_a_batch():
    rng = np.random.default_rng(1)
    times, values = make_times(rng, 1, 30), rng.standard_normal((1, 30, 3))
    targets = make_targets(rng, times, 4, 6)
    whole, mask = trajd.resample(np.repeat(values, 4, 0), np.repeat(times, 4, 0), targets)
    for v, t in (values[0], times[0]), (values[0], np.repeat(times, 4, 0)), (np.repeat(values, 4, 0), times[0]):
        found, other = trajd.resample(v, t, targets)
        assert found.shape == (4, 6, 3) and found.tobytes() == whole.tobytes() and other.tobytes() == mask.tobytes()
    found, other = trajd.resample(values[0], times[0], targets[2])
    assert found.shape == (6, 3) and found.tobytes() == whole[2].tobytes() and other.tobytes() == mask[2].tobytes()


@pytest.mark.parametrize("causal", [False, True])
def test_ragged_rows_equal_rows_one_by_one(causal):
    rng = np.random.default_rng(2)
    lengths = np.array([5, 0, 17, 1])
    splits = np.concatenate([[0], np.cumsum(lengths)])
    times = np.concatenate([make_times(rng, 1, n)[0] for n in lengths])
    values, targets = rng.standard_normal((len(times), 3)).astype("f4"), make_targets(rng, times, 4, 9)
    found, mask = trajd.resample(values, times, targets, row_splits=splits, causal=causal)
    for b in range(4):
        rows = slice(splits[b], splits[b + 1])
        one, one_mask = trajd.resample(values[rows], times[rows], targets[b], causal=causal)
        assert found[b].tobytes() == one.tobytes() and mask[b].tobytes() == one_mask.tobytes()
    assert (mask[1] == 1).all() and not found[1].any()


def test_row_splits_may_be_a_list():
    values, times, targets = np.arange(5.0)[:, None], np.arange(5) * 10, np.array([[5, 41], [35, 39]])
    expected, mask = trajd.resample(values, times, targets, row_splits=np.array([0, 3, 5]))
    found, found_mask = trajd.resample(values, times, targets, row_splits=[0, 3, 5])
    assert (found == expected).all() and (found_mask == mask).all()
    one = {"values": values, "times": times}
    results, masks = trajd.resample_many({"list": {**one, "row_splits": [0, 3, 5]}, "array": {**one, "row_splits": np.array([0, 3, 5])},
                                          "other": {**one, "row_splits": [0, 4, 5]}}, targets)
    assert (results["list"] == expected).all() and (results["array"] == expected).all()
    assert masks["list"].tolist() == mask.tolist() and masks["other"].tolist() == [[0, 2], [1, 1]]


def test_row_splits_written_by_another_thread_stay_within_the_rows():
    rows, more = 1_000_000, 500
    times, values = np.arange(rows + more) / 1e6, np.ones((rows + more, 1), "f4")
    splits, targets, stop = np.array([0, rows]), times[rows + 1:rows + 3][None], threading.Event()

    def write():
        while not stop.is_set():
            for end_of_rows in rows + more, rows:
                splits[1] = end_of_rows
                sum(range(1000))

    thread, masks, end = threading.Thread(target=write), [], time.monotonic() + 60
    thread.start()
    try:
        while len(masks) < 20 and time.monotonic() < end:
            try:
                masks += trajd.resample(values[:rows], times[:rows], targets, row_splits=splits)[1].tolist()
            except trajd.ArgumentError as error:
                assert "row_splits" in str(error)
    finally:
        stop.set()
        thread.join()
    assert masks == [[2, 2]] * 20  # the targets are after the last row of values


def test_causal_rows_do_not_look_ahead():
    rng = np.random.default_rng(3)
    times, values = make_times(rng, 8, 40), rng.standard_normal((8, 40, 2))
    targets = np.sort(make_targets(rng, times, 8, 5), axis=1)
    found, mask = trajd.resample(values, times, targets, causal=True, max_age="3ms")
    spoilt = np.where((times > targets[:, -1:])[..., None], np.nan, values)
    again, again_mask = trajd.resample(spoilt, times, targets, causal=True, max_age="3ms")
    assert found.tobytes() == again.tobytes() and mask.tobytes() == again_mask.tobytes()
    assert set(np.unique(mask)) >= {0, 7}


def test_seconds_become_the_nearest_ns():
    rng = np.random.default_rng(4)
    seconds = np.concatenate([rng.uniform(-8e6, 8e6, 4000), rng.uniform(-1, 1, 4000), rng.integers(-2**40, 2**40, 4000) / 2.0**18,
                              np.arange(-50, 50) / 1024, [0.0, -0.0, 1e-300]])

    def nearest(value):
        exact = abs(Fraction(float(value)) * 10**9)
        whole = int(exact + Fraction(1, 2))
        return whole if value >= 0 else -whole

    seconds = np.sort(seconds)
    stamps = np.array([nearest(value) for value in seconds])
    rows = np.arange(len(stamps))[:, None]
    keep = np.concatenate([[True], np.diff(stamps) > 0])
    found, mask = trajd.resample(rows[keep], seconds[keep], stamps[keep] * 0.0 + seconds[keep], kind="previous")
    assert (found == rows[keep]).all() and not mask.any()
    # the stamps themselves: a target 1 ns earlier, in ns, lies before the row
    as_ns, _ = trajd.resample(rows[keep], stamps[keep], stamps[keep] - 1, kind="previous", pad="edge")
    assert (as_ns[1:, 0] == rows[keep][:-1, 0]).all()
    values = np.arange(2.0)[:, None]
    for value in seconds[:: 97]:  # a line of 1 ns a step shows the ns exactly
        base = float(int(value)) - 1
        line, _ = trajd.resample(values, np.array([base, base + 4]), np.array([value]))
        assert round(Fraction(float(line[0, 0])) * 4 * 10**9) == nearest(value) - int(base) * 10**9


def test_out_is_filled_and_returned():
    rng = np.random.default_rng(5)
    times, values = make_times(rng, 6, 20), rng.standard_normal((6, 20, 3)).astype("f4")
    targets = make_targets(rng, times, 6, 7)
    expected, mask = trajd.resample(values, times, targets)
    wide, wide_mask = np.zeros((6, 9, 8), "f4"), np.full((6, 9), 77, "u1")
    out = wide[:, 1:8, 2:5], wide_mask[:, :7]
    found, found_mask = trajd.resample(values, times, targets, out=out)
    assert found is out[0] and found_mask is out[1]
    assert (out[0] == expected).all() and (out[1] == mask).all() and (wide_mask[:, 7:] == 77).all()
    assert wide[:, 0].sum() == 0 == wide[:, 8].sum() == wide[..., :2].sum() == wide[..., 5:].sum()
    half = np.empty((6, 7, 3), "f2")
    assert trajd.resample(values, times, targets, out=half)[0] is half and half.tobytes() == expected.astype("f2").tobytes()


@pytest.mark.parametrize("batch, rows, steps", [(0, 5, 3), (3, 5, 0), (3, 0, 4), (0, 0, 0)])
def test_empty_arrays(batch, rows, steps):
    found, mask = trajd.resample(np.ones((batch, rows, 2)), np.zeros((batch, rows), "i8"), np.zeros((batch, steps), "i8"), pad="nan")
    assert found.shape == (batch, steps, 2) and mask.shape == (batch, steps) and (mask == 1).all() and np.isnan(found).all()


B, S, T, D = 4, 6, 3, 2
GOOD = {"values": np.zeros((B, S, D), "f4"), "times": np.tile(np.arange(S) * MS, (B, 1)), "targets": np.zeros((B, T), "i8")}
READ_ONLY = np.zeros((B, T, D), "f4")
READ_ONLY.flags.writeable = False


class Copied:
    """An array that numpy only gets a copy of, as a dataset of h5py."""
    shape, dtype = (B, T, D), np.dtype("f4")

    def __array__(self, dtype=None, copy=None):
        return np.zeros(self.shape, dtype or self.dtype)


@pytest.mark.parametrize("change, words", [
    ({"values": np.zeros((B, S - 1, D))}, r"times of shape \(4, 6\) does not fit values of shape \(4, 5, 2\): .* must be 5"),
    ({"times": GOOD["times"][:3]}, r"times of shape \(3, 6\) is for B = 3, but an argument before it is for B = 4"),
    ({"targets": np.zeros((5, T), "i8")}, r"targets of shape \(5, 3\) is for B = 5"),
    ({"values": np.zeros(S)}, r"values has 1 dimension: pass \[B, S, D\], or \[S, D\] .*; values\[:, None\] makes one column of it"),
    ({"values": np.zeros((B, S))}, r"values has the shape \(4, 6\), as times do: pass \[B, S, D\]; values\[..., None\] makes one column"),
    ({"values": np.zeros((B, S, 0))}, r"values has the shape \(4, 6, 0\): .* D, must be at least 1"),
    ({"values": np.zeros((B, S, D), "c8")}, "values has elements of kind 'c'"),
    ({"values": np.zeros((B, S, D), ">f4")}, "values has the byte order of another machine"),
    ({"times": GOOD["times"].astype("i4")}, "times has type i32: pass int64 ns, or float64 seconds"),
    ({"times": GOOD["times"] * 1.0, "targets": np.zeros((B, T), "i8")}, "targets have type i64, but times have f64"),
    ({"times": GOOD["times"][:, ::-1]}, "times must ascend along S: row 0, element 1 is 1000000 ns before"),
    ({"times": np.full((B, S), np.nan), "targets": np.zeros((B, T))}, r"times \[0, 0\] is not a number"),
    ({"times": np.full((B, S), 1.7e9), "targets": np.zeros((B, T))}, r"times \[0, 0\] is 1700000000 s, where .* 238 ns apart"),
    ({"times": GOOD["times"] * 0.0, "targets": np.full((B, T), np.inf)}, r"targets \[0, 0\] is not a number"),
    ({"kind": "cubic"}, "kind is 'cubic': it must be linear, previous"),
    ({"kind": "slerp"}, r"order is missing or unknown: .* needs order='xyzw'"),
    ({"kind": "slerp", "order": "xyzw"}, r"values has the shape \(4, 6, 2\): kind='slerp' needs D to be a multiple of 4"),
    ({"order": "xyzw"}, "order is only for kind='slerp'"),
    ({"kind": "mean"}, "width is missing: .* such as '50ms'"),
    ({"width": "5ms"}, "width is only for kind='mean'"),
    ({"period": 2.0}, "period and range_low are only for kind='angle'"),
    ({"kind": "angle", "period": -1}, "period must be above 0"),
    ({"kind": "angle", "period": "x"}, "period must be a finite number"),
    ({"pad": "wrap"}, "pad is 'wrap': it must be edge, zero or nan"),
    ({"pad": "nan", "kind": "previous", "values": np.zeros((B, S, D), "i4")}, "pad is 'nan', which i32 cannot hold"),
    ({"max_gap": 100}, r"max_gap is 100 without a unit: 100ns\? 100ms\? Write it as a text, such as max_gap='100ms'"),
    ({"max_age": 0.5}, r"max_age is 0.5 without a unit: 0.5ns\? 0.5ms\?"),
    ({"max_gap": np.int64(-1)}, "max_gap is -1 without a unit"),
    ({"kind": "mean", "width": 50 * MS}, r"width is 50000000 without a unit: .* width='50000000ms'"),
    ({"max_gap": np.float32(.5), "times": GOOD["times"] * 1e-9, "targets": np.zeros((B, T))}, "max_gap is 0.5 without a unit"),
    ({"max_gap": 1e-3, "dtype": "float16"}, "max_gap is 0.001 without a unit"),
    ({"max_age": "5 parsecs"}, "max_age is '5 parsecs': a time is a number and a unit"),
    ({"max_age": "0.1ns"}, "max_age is '0.1ns', which is not a whole number of ns"),
    ({"max_age": [1]}, r"max_age is \[1\]: a time is a number and a unit, such as '50ms'"),
    ({"max_gap": (5, 6)}, r"max_gap is \(5, 6\): a time is a number and a unit"),
    ({"max_gap": True}, "max_gap is True: a time is a number and a unit"),
    ({"max_gap": np.timedelta64(5, "ms")}, "max_gap is .*: a time is a number and a unit"),
    ({"max_gap": "9223372037s"}, "max_gap is '9223372037s', which is 2\\^63 ns or more"),
    ({"times": GOOD["times"].astype("f4"), "targets": np.zeros((B, 0), "i8")}, "times has type f32: pass int64 ns"),
    ({"targets": np.zeros((B, 0), "i4")}, "targets has type i32: pass int64 ns"),
    ({"times": np.array([2**63 - 1, -2**63]), "values": np.zeros((2, D), "f4")}, "row 0, element 1 is 18446744073709551615 ns before"),
    ({"times": GOOD["times"].astype("M8[ns]")}, r"times has elements of datetime64: .* array.astype\('datetime64\[ns\]'\).view\('int64'\)"),
    ({"targets": GOOD["targets"].astype("m8[ms]")}, r"targets has elements of timedelta64: .*\('timedelta64\[ns\]'\)"),
    ({"kind": "lin\0ear"}, "kind has a NUL character"),
    ({"kind": None}, "kind must be a text"),
    ({"kind": "mean", "pad": "\ud800"}, "pad has a lone surrogate"),
    ({"order": 5}, "order must be a text"),
    ({"causal": np.array([1, 0])}, "causal must be True or False"),
    ({"out": Copied()}, "out is a Copied: pass a numpy array or a torch tensor"),
    ({"out": (None, Copied())}, r"out\[1\] \(the mask\) is a Copied: pass a numpy array"),
    ({"dtype": "bf16"}, "dtype is bfloat16, which numpy does not have"),
    ({"out": np.ma.zeros((B, T, D), "f4")}, "out is a MaskedArray: pass a numpy array"),
    ({"targets": np.ma.zeros((B, T), "i8")}, "targets is a masked array"),
    ({"row_splits": np.ma.arange(5)}, "row_splits is a masked array"),
    ({"values": np.ma.zeros((B, S + 1, D), "f4")}, "times of shape .* does not fit values of shape"),
    ({"values": np.ma.zeros(S, "f4")}, "values has 1 dimension"),
    ({"dtype": "float64"}, r"float64 needs values of float64, and these are f32: pass values.astype\('float64'\)"),
    ({"dtype": "int32"}, "dtype i32 needs values of that type"),
    ({"dtype": "float31"}, "dtype 'float31' is not an element type"),
    ({"dtype": "bfloat16"}, "dtype is bfloat16, which numpy does not have"),
    ({"out": np.zeros((B, T, 3), "f4")}, r"out has the shape \(4, 3, 3\), and the result has \(4, 3, 2\)"),
    ({"out": np.zeros((B, T, D), "f4"), "dtype": "float16"}, "out has type f32, and the result has f16"),
    ({"out": READ_ONLY}, "out is read-only"),
    ({"out": np.zeros((B, T, D * 2), "f4")[..., ::2]}, "out has gaps in its last dimension"),
    ({"out": np.zeros((B, T, D), "f4")[:, ::-1]}, "out has rows that overlap or go backwards"),
    ({"out": GOOD["values"][:, :T]}, "out shares memory with another argument"),
    ({"out": (None, np.zeros((B, T), "i8"))}, r"out\[1\] \(the mask\) has type i64, and the result has u8"),
    ({"out": (None, None, None)}, "out must be an array, or a pair"),
    ({"row_splits": np.arange(5)}, r"row_splits needs values of shape \[N, D\]"),
    ({"values": np.zeros((S, D)), "times": GOOD["times"][0], "row_splits": np.array([0, 4, 3, 6, 6])}, r"row_splits \[2\] is 3: splits"),
    ({"values": np.zeros((S, D)), "times": GOOD["times"][0], "row_splits": np.array([0, 1, 2, 3, 4])}, "ends with 4, but values has 6"),
    ({"values": np.zeros((S, D)), "times": GOOD["times"][0], "row_splits": np.array([0, 1, 2, 3, 9])}, r"row_splits \[4\] is 9"),
])
def test_wrong_calls_are_refused_before_anything_is_written(change, words):
    out = np.full((B, T, D), 7, "f4")
    arguments = {**GOOD, "out": out, **change}
    if "dtype" in change or arguments["values"].dtype != "f4" or arguments["values"].ndim != 3:
        arguments["out"] = change.get("out")
    with pytest.raises(trajd.ArgumentError, match=words) as caught:
        trajd.resample(**arguments)
    assert isinstance(caught.value, ValueError) and (out == 7).all()


def test_many_names_the_stream():
    with pytest.raises(ValueError, match=r"streams\['wrist'\]: order is missing"):
        trajd.resample_many({"wrist": {"values": GOOD["values"], "kind": "slerp"}}, GOOD["targets"], times=GOOD["times"])
    with pytest.raises(ValueError, match=r"streams\['q'\]: 'widht' is not an argument of a stream: values, times"):
        trajd.resample_many({"q": {"values": GOOD["values"], "widht": 1}}, GOOD["targets"], times=GOOD["times"])
    with pytest.raises(ValueError, match=r"streams\['q'\]: times is missing"):
        trajd.resample_many({"q": GOOD["values"]}, GOOD["targets"])
    with pytest.raises(ValueError, match=r"streams\['b'\]: values of shape .* is for B = 3"):
        trajd.resample_many({"a": GOOD["values"], "b": GOOD["values"][:3]}, GOOD["targets"], times=GOOD["times"][0])
    with pytest.raises(ValueError, match="the name of a stream has a NUL character"):
        trajd.resample_many({"a\0b": GOOD["values"]}, GOOD["targets"], times=GOOD["times"])
    with pytest.raises(ValueError, match="the name of a stream has a lone surrogate"):
        trajd.resample_many({"\udc80": GOOD["values"]}, GOOD["targets"], times=GOOD["times"])
    with pytest.raises(ValueError, match=r"streams\['b'\]: times has type u64"):  # in the memory of a's times
        trajd.resample_many({"a": {"values": GOOD["values"], "times": GOOD["times"]},
                             "b": {"values": GOOD["values"], "times": GOOD["times"].view("u8")}}, GOOD["targets"])
    assert trajd.resample_many({}, GOOD["targets"]) == ({}, {})


def test_durations_are_the_same_for_ns_and_seconds():
    times, values = np.array([0, 10, 40]), np.zeros((3, 1))
    assert trajd.resample(values, times, np.array([5, 20]), max_gap="29ns")[1].tolist() == [0, 3]
    assert trajd.resample(values, times * 1e-9, np.array([5e-9, 20e-9]), max_gap="29ns")[1].tolist() == [0, 3]
    with pytest.raises(ValueError, match=r"streams\['f'\]: width is 40000 without a unit: 40000ns\? 40000ms\?"):
        trajd.resample_many({"f": {"values": values, "kind": "mean", "width": 40_000}}, times, times=times)


def test_many_equals_each_alone():
    rng = np.random.default_rng(6)
    targets = make_targets(rng, make_times(rng, 5, 30), 5, 8)
    streams = {}
    for i in range(12):  # more than a plan is kept for
        times = make_times(rng, 5, 10 + i) if i % 3 == 0 else streams[f"s{i - i % 3}"]["times"]
        streams[f"s{i}"] = {"values": rng.standard_normal((5, times.shape[1], i + 1)).astype("f4"), "times": times,
                            "kind": ("linear", "nearest", "previous")[i % 3], "causal": i % 2 == 0}
    results, masks = trajd.resample_many(streams, targets, max_gap="8ms")
    for name, stream in streams.items():
        alone, mask = trajd.resample(targets=targets, max_gap="8ms", **stream)
        assert results[name].tobytes() == alone.tobytes() and masks[name].tobytes() == mask.tobytes()


def test_threads_and_many_shapes():
    rng = np.random.default_rng(7)
    times, values = make_times(rng, 300, 50), rng.standard_normal((300, 50, 7)).astype("f4")
    targets = make_targets(rng, times, 300, 20)
    whole, mask = trajd.resample(values, times, targets)

    def part(i):
        count = i % 40 + 1  # more shapes than plans are kept
        found, found_mask = trajd.resample(values[:count * 7], times[:count * 7], targets[:count * 7])
        return found.tobytes() == whole[:count * 7].tobytes() and found_mask.tobytes() == mask[:count * 7].tobytes()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(part, range(400)))
    before = [sys.getrefcount(array) for array in (values, times, targets)]
    for i in range(100):
        part(i)
    assert [sys.getrefcount(array) for array in (values, times, targets)] == before


def test_another_thread_runs_meanwhile():
    """With so long a switch interval, a thread runs only where another one gives the GIL away."""
    rng = np.random.default_rng(12)
    times, values = make_times(rng, 400, 200), rng.standard_normal((400, 200, 20)).astype("f4")
    targets = make_targets(rng, times, 400, 100)
    out = trajd.resample(values, times, targets)
    gate, ran, before = threading.Event(), [], sys.getswitchinterval()
    thread = threading.Thread(target=lambda: (gate.wait(), ran.append(True)))
    thread.start()
    sys.setswitchinterval(1000)
    try:
        gate.set()
        end = time.monotonic() + 60
        while not ran and time.monotonic() < end:
            trajd.resample(values, times, targets, out=out)
        assert ran
    finally:
        sys.setswitchinterval(before)
        thread.join()


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a forked child of an instrumented process has no threads to wait for")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_can_resample():
    rng = np.random.default_rng(8)
    times, values = make_times(rng, 300, 50), rng.standard_normal((300, 50, 7)).astype("f4")
    targets = make_targets(rng, times, 300, 20)
    whole, _ = trajd.resample(values, times, targets)  # with threads
    child = os.fork()
    if child == 0:
        same = False
        try:
            same = trajd.resample(values, times, targets)[0].tobytes() == whole.tobytes()
        finally:
            os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_example_of_the_docstring():
    found = doctest.DocTestFinder(recurse=False).find(trajd.resample, "resample", globs={"np": np, "trajd": trajd})
    assert doctest.DocTestRunner().run(found[0]).failed == 0 and found[0].examples


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(9)
    times, values = make_times(rng, 4, 20), rng.standard_normal((4, 20, 6)).astype("f4")
    targets = make_targets(rng, times, 4, 9)
    expected, mask = trajd.resample(values, times, targets)
    tensors = torch.from_numpy(values), torch.from_numpy(times), torch.from_numpy(targets)
    found, found_mask = trajd.resample(*tensors)
    assert found.dtype == torch.float32 and found_mask.dtype == torch.uint8
    assert (found.numpy() == expected).all() and (found_mask.numpy() == mask).all()
    half, _ = trajd.resample(tensors[0].bfloat16(), *tensors[1:])
    assert half.dtype == torch.bfloat16
    rounded, _ = trajd.resample(tensors[0].bfloat16().float(), *tensors[1:])
    assert torch.equal(half, rounded.bfloat16())
    assert torch.equal(trajd.resample(*tensors, dtype=torch.bfloat16)[0], found.bfloat16())
    out = torch.empty(4, 9, 6, dtype=torch.bfloat16), torch.empty(4, 9, dtype=torch.uint8)
    again = trajd.resample(*tensors, out=out)
    assert again[0] is out[0] and again[1] is out[1] and torch.equal(out[0], found.bfloat16())
    for name in "bf16", "bfloat16":
        assert torch.equal(trajd.resample(*tensors, dtype=name)[0], found.bfloat16())
    for wrong in torch.float16, torch.int16:
        wrong = torch.full((4, 9, 6), 7, dtype=wrong)
        for dtype in "bf16", torch.bfloat16:
            with pytest.raises(trajd.ArgumentError, match=f"dtype is bfloat16, and out has {wrong.dtype}: pass out of torch.bfloat16"):
                trajd.resample(tensors[0].bfloat16(), *tensors[1:], dtype=dtype, out=wrong)
        assert (wrong == 7).all()
    for kind in "previous", "linear":
        with pytest.raises(trajd.ArgumentError, match="out is bfloat16, which numpy does not have: pass values as a torch tensor"):
            trajd.resample(values.astype("i2"), times, targets, kind=kind, out=out[0])
    halves = trajd.resample(tensors[0].bfloat16(), *tensors[1:], out=torch.empty(4, 9, 6, dtype=torch.float16))[0]
    assert torch.equal(halves, rounded.half())
    expanded = tensors[0][:1].expand(4, 20, 6)
    assert torch.equal(trajd.resample(expanded, *tensors[1:])[0], trajd.resample(expanded.clone(), *tensors[1:])[0])
    with pytest.raises(trajd.ArgumentError, match=r"values requires gradients, .*: pass values.detach\(\)"):
        trajd.resample(tensors[0].clone().requires_grad_(), *tensors[1:])
    with pytest.raises(trajd.Unsupported, match="values is on meta: pass values.cpu\\(\\), or all tensors on one NVIDIA GPU"):
        trajd.resample(tensors[0].to("meta"), *tensors[1:])
    results, _ = trajd.resample_many({"a": tensors[0], "b": {"values": values}}, targets, times=times)
    assert isinstance(results["a"], torch.Tensor) and isinstance(results["b"], np.ndarray)


def test_a_mean_of_an_empty_batch():
    values, times, targets = np.zeros((0, 5, 2), "f4"), np.zeros((0, 5), "i8"), np.zeros((0, 3), "i8")
    result, mask = trajd.resample(values, times, targets, kind="mean", width="50ms")
    assert result.shape == (0, 3, 2) and mask.shape == (0, 3)
