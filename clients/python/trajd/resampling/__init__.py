"""Resampling of arrays in this process: trajd.resample and trajd.resample_many.

It runs the kernels of the daemon (libtrajd_kernels), so the values are those of a feed, bit for bit.
"""
from __future__ import annotations

import functools
import re
import reprlib
import sys
from fractions import Fraction
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

from . import cuda_tensors
from .. import _core
from ..errors import ArgumentError, Unsupported

DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ns|us|ms|s)\s*")
UNITS_NS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}
NO_DURATION = "a time is a number and a unit, such as '50ms' (ns, us, ms or s)"


def resample(values: Any, times: Any, targets: Any, *, kind: str = "linear", order: Optional[str] = None,
             max_gap: Optional[str] = None, max_age: Optional[str] = None, width: Optional[str] = None, causal: bool = False,
             pad: str = "edge", period: Optional[float] = None, range_low: Optional[float] = None, row_splits: Any = None,
             dtype: Any = None, out: Any = None) -> Tuple[Any, Any]:
    """Returns the values of a time series at other times, and a mask that says which of them are valid.

        values  float32 [B, S, D]    rows of a batch: S rows of D features each
        times   int64   [B, S]       when each row was recorded, in ns; ascending along S
        targets int64   [B, T]       the times to resample to, in ns, in any order
        result  float32 [B, T, D] and uint8 [B, T]

    Each of the three may lack the batch dimension: then all rows of the batch share it. If all lack it, so does the
    result: values [S, D], times [S] and targets [T] give [T, D] and [T].

    values     numpy array or torch tensor of float16, bfloat16, float32, float64, an integer type or bool. Strided and
               expanded arrays are read where they lie, if each row is dense and rows do not go backwards; others are
               copied first. A row of a numpy masked array that has a masked element is missing: the rows beside it
               are neighbours then, as if it had not been recorded. So is a row whose time is masked.
    times, targets
               both int64 ns, or both float64 seconds. Seconds are rounded to the nearest ns. Seconds from 97 days on
               are refused, because neighbouring numbers are more than a ns apart: subtract the same time from both.
               Integers of us are taken as ns, for rows may be 1 us apart: "50ms" would be 50 s then. Multiply by 1000.
    row_splits int64 [B + 1], for rows of different lengths: values [N, D] and times [N] have the rows of all B, one
               after the other. Rows of b are row_splits[b] to row_splits[b + 1] - 1. A list will do.

    kind       how a value at target x is formed, from the last row i at or before x and the row after it:
                 linear    between both
                 previous  row i (a zero-order hold)
                 nearest   the nearer row; at the middle the later one
                 slerp     quaternions, on the shorter arc; D is a multiple of 4, and `order` is needed
                 angle     as linear, the short way round, for angles of `period`
                 mean      the average of the rows in (x - width, x], without NaN; row i if there are none
    order      of kind slerp: "xyzw" (scalar last: scipy, ROS) or "wxyz" (scalar first: MuJoCo)
    width      of kind mean
    max_gap    a target between two rows that are farther apart is masked 3. None: no limit
    max_age    a target after the last row gets that row; it is valid up to this age, and masked 7 beyond. None: such
               targets are masked 2 (with causal: held without a limit)
    causal     True: a row of the batch uses no row of values after its latest target, as an observation of a feed.
               Targets before the latest are still interpolated; the latest holds the last row, up to max_age.
    pad        value before the first and after the last row: "edge" (the nearest row), "zero" or "nan"
    period     of kind angle, in the unit of values. None: 2 pi
    range_low  of kind angle: wraps the result into [range_low, range_low + period). None: not wrapped
    dtype      element type of the result. None: as values; float32 if integers are interpolated or averaged
    out        numpy array or torch tensor for the result, or a pair of them for result and mask; both are returned

    max_gap, max_age and width are texts with a unit: "50ms", "0.05s", "50000us" or "50000000ns". A number without a unit
    is refused.

    The mask has a code for each target: 0 valid, 1 before the first row, 2 after the last row, 3 gap, 4 no target (the
    least int64), 5 not finite (NaN, infinite, or too large for the type of the result), 7 too old.

    Numpy arrays give numpy arrays, and torch tensors give torch tensors. CUDA tensors are resampled on their GPU, on torch's
    current stream: the call launches and returns without waiting, also while a graph is captured. There all arguments
    are tensors on the same GPU, times are int64 ns, and neither their order nor row_splits are checked.

    On the CPU, large calls use up to 8 threads. A
    process made by fork, such as a worker of a DataLoader, uses one. The GIL is released meanwhile, so several Python
    threads may call it at once. Raises trajd.ArgumentError (a ValueError) before anything is written.

        >>> t = np.arange(5) * 10_000_000                      # 100 Hz
        >>> q = np.array([[0.], [1.], [2.], [3.], [4.]], "float32")
        >>> out, mask = trajd.resample(q, t, np.array([5_000_000, 41_000_000]))
        >>> out.ravel(), mask
        (array([0.5, 4. ], dtype=float32), array([0, 2], dtype=uint8))
    """
    result, mask = out if type(out) is tuple and len(out) == 2 else (out, None)
    if dtype is None and type(values) is type(times) is type(targets) is np.ndarray and (
            result is None or type(result) is np.ndarray) and (mask is None or type(mask) is np.ndarray) and (
            row_splits is None or type(row_splits) is np.ndarray):
        return _core.resample(((None, values, None, times, row_splits, kind, order,
                                None if max_gap is None else _ns(max_gap, "max_gap"),
                                None if max_age is None else _ns(max_age, "max_age"),
                                None if width is None else _ns(width, "width"),
                                causal, pad, period, range_low, None, result, mask),), targets, np.empty)[0]
    if cuda_tensors.is_on_gpu(values):
        return cuda_tensors.run([_on_gpu(None, "", values, times, row_splits, kind, order, max_gap, max_age, width, causal, pad, period,
                                 range_low, dtype, out)], targets)[0]
    stream = _prepare(None, "", values, times, row_splits, kind, order, max_gap, max_age, width, causal, pad, period, range_low,
                      dtype, out)
    return _run([stream], targets)[0]


def resample_many(streams: Mapping[str, Any], targets: Any, *, times: Any = None, row_splits: Any = None,
                  kind: str = "linear", max_gap: Optional[str] = None, max_age: Optional[str] = None, causal: bool = False,
                  pad: str = "edge", dtype: Any = None) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Resamples several streams to the same targets in one run. Returns two dicts by name: results and masks.

    streams    dict of names to dicts of the arguments of `resample`: "values", and where they differ from the
               keywords of this call "times", "row_splits", "kind", "order", "max_gap", "max_age", "width", "causal",
               "pad", "period", "range_low", "dtype" and "out". An array alone is {"values": array}.
    targets    int64 ns [B, T] or [T], or float64 seconds; the times of all streams are of the same type

    B and T are the same for all streams; S, D and the types may differ. Streams whose times are the same array (the
    same memory) share one search. The other keywords are defaults for all streams, and described at `resample`.

        >>> values, masks = trajd.resample_many({
        ...     "joints": {"values": q, "times": t_joints},
        ...     "wrist": {"values": quat, "times": t_joints, "kind": "slerp", "order": "xyzw"},
        ...     "force": {"values": force, "times": t_force, "kind": "mean", "width": "50ms"},
        ... }, targets, max_gap="100ms")
    """
    defaults = {**KEYS, "times": times, "row_splits": row_splits, "kind": kind, "max_gap": max_gap, "max_age": max_age,
                "causal": causal, "pad": pad, "dtype": dtype}
    given_by_name = {}
    for name, stream in streams.items():
        given = {**defaults, **(stream if isinstance(stream, dict) else {"values": stream})}
        if len(given) != len(KEYS):
            unknown = next(key for key in given if key not in KEYS)
            raise ArgumentError(f"streams[{name!r}]: {unknown!r} is not an argument of a stream: {', '.join(KEYS)}")
        given_by_name[name] = given.values()
    is_on_gpu = any(cuda_tensors.is_on_gpu(next(iter(given))) for given in given_by_name.values())
    prepared = [(_on_gpu if is_on_gpu else _prepare)(str(name), f"streams[{name!r}]: ", *given) for name, given in given_by_name.items()]
    pairs = dict(zip(streams, (cuda_tensors.run if is_on_gpu else _run)(prepared, targets)))
    return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}


# The arguments of a stream, in the order of _prepare, with their defaults.
KEYS = {"values": None, "times": None, "row_splits": None, "kind": "linear", "order": None, "max_gap": None, "max_age": None,
        "width": None, "causal": False, "pad": "edge", "period": None, "range_low": None, "dtype": None, "out": None}


def _on_gpu(label, place, values, times, row_splits, kind, order, max_gap, max_age, width, *rest):
    """Returns the tuple of cuda_tensors.run."""
    if values is None or times is None:
        raise ArgumentError(f"{place}{'values' if values is None else 'times'} is missing")
    return (label, place, values, times, row_splits, kind, order, *_durations(place, max_gap, max_age, width), *rest)


def _prepare(label, place, values, times, row_splits, kind, order, max_gap, max_age, width, causal, pad, period, range_low,
             dtype, out):
    """Returns the tuple of _core.resample, the type of torch's result (None: numpy), and the caller's outputs."""
    if values is None or times is None:
        raise ArgumentError(f"{place}{'values' if values is None else 'times'} is missing")
    result, mask = out if isinstance(out, (tuple, list)) and len(out) == 2 else (out, None)
    if isinstance(result, (tuple, list)):
        raise ArgumentError(f"{place}out must be an array, or a pair of result and mask")
    for name, output in ("out", result), ("out[1] (the mask)", mask):
        if not (output is None or isinstance(output, np.ndarray) or _is_torch(output)) or _is_masked(output):
            raise ArgumentError(f"{place}{name} is a {type(output).__name__}: pass a numpy array or a torch tensor")
    if _is_masked(row_splits):
        raise ArgumentError(f"{place}row_splits is a masked array: pass one without a mask")
    torch = sys.modules["torch"] if _is_torch(values) else None
    if _is_masked(values) or _is_masked(times):
        if torch:
            raise ArgumentError(f"{place}times is a masked array, and values is a tensor: pass numpy arrays for both")
        values, times, row_splits = _leave_out(place, values, times, row_splits)
    source = "bf16" if torch and values.dtype is torch.bfloat16 else None
    if dtype is not None and not isinstance(dtype, str):
        dtype = str(dtype)[6:] if str(dtype).startswith("torch.") else np.dtype(dtype).name
    dtype = "bfloat16" if dtype == "bf16" else dtype
    is_out_bf16 = _is_torch(result) and result.dtype is sys.modules["torch"].bfloat16
    if is_out_bf16 and dtype not in (None, "bfloat16"):
        raise ArgumentError(f"{place}dtype is {dtype}, and out has bfloat16: leave dtype out")
    if dtype == "bfloat16" and result is not None and not is_out_bf16:
        raise ArgumentError(f"{place}dtype is bfloat16, and out has {result.dtype}: pass out of torch.bfloat16")
    dtype = "bfloat16" if is_out_bf16 else dtype
    if dtype == "bfloat16" and not torch:
        name = "out" if is_out_bf16 else "dtype"
        raise ArgumentError(f"{place}{name} is bfloat16, which numpy does not have: pass values as a torch tensor")
    is_bf16 = torch and (dtype == "bfloat16" or (source and dtype is None and result is None))
    arguments = (
        label, _plain(values, place, "values"), source, _plain(times, place, "times"),
        row_splits if row_splits is None else _plain(row_splits, place, "row_splits"), kind, order,
        *_durations(place, max_gap, max_age, width), causal, pad, period, range_low, dtype,
        result if result is None else _plain(result, place, "out"), mask if mask is None else _plain(mask, place, "out[1] (the mask)"))
    return arguments, torch, is_bf16, result, mask


def _run(prepared, targets):
    if _is_masked(targets):
        raise ArgumentError("targets is a masked array: leave the masked targets out, or fill them with np.iinfo('int64').min, "
                            "which is not a target")
    found = _core.resample(tuple(one[0] for one in prepared), _plain(targets, "", "targets"), np.empty)
    return [_finish(*one[1:], *pair) for one, pair in zip(prepared, found)]


def _finish(torch, is_bf16, result, mask, made, made_mask):
    """Returns the caller's outputs, or those that were made, as tensors if `torch` is not None."""
    if torch and result is None:
        made = torch.from_numpy(made)
        made = made.view(torch.bfloat16) if is_bf16 else made
    if torch and mask is None:
        made_mask = torch.from_numpy(made_mask)
    return made if result is None else result, made_mask if mask is None else mask


def _durations(place, *durations):
    """Returns the ns of max_gap, max_age and width."""
    return tuple(None if duration is None else _ns(duration, place + name)
                 for name, duration in zip(("max_gap", "max_age", "width"), durations))


def _ns(duration, name):
    if isinstance(duration, str):
        return _ns_of(duration, name)
    if isinstance(duration, (int, float, np.number)) and not isinstance(duration, (bool, np.timedelta64)):
        raise ArgumentError(f"{name} is {duration} without a unit: {duration}ns? {duration}ms? Write it as a text, such as "
                            f"{name.split()[-1]}='{duration}ms'")
    raise ArgumentError(f"{name} is {reprlib.repr(duration)}: {NO_DURATION}")


@functools.lru_cache(64)
def _ns_of(text, name):
    match = DURATION.fullmatch(text)
    if not match:
        raise ArgumentError(f"{name} is {text!r}: {NO_DURATION}")
    ns = Fraction(match[1]) * UNITS_NS[match[2]]
    if ns.denominator != 1:
        raise ArgumentError(f"{name} is {text!r}, which is not a whole number of ns")
    if ns >= 2**63:
        raise ArgumentError(f"{name} is {text!r}, which is 2^63 ns or more")
    return int(ns)


def _is_masked(value):
    return isinstance(value, np.ma.MaskedArray)


def _leave_out(place, values, times, row_splits):
    """Leaves out the missing rows of masked arrays. Returns values, times and row_splits. Arrays that do not fit each other are
    returned whole, for _core to refuse them."""
    masks = [np.ma.getmaskarray(array) if _is_masked(array) else None for array in (values, times)]
    values, times = (np.ma.getdata(array) if _is_masked(array) else _plain(array, place, name)
                     for array, name in ((values, "values"), (times, "times")))
    splits = None if row_splits is None else _plain(row_splits, place, "row_splits")
    if (values.ndim not in (2, 3) or times.ndim not in (1, 2) or values.shape[-2] != times.shape[-1] or
            values.ndim + times.ndim == 5 and len(values) != len(times) or splits is not None and values.ndim + times.ndim > 3):
        return values, times, splits
    keep = ~((masks[0] is not None and masks[0].any(-1)) | (masks[1] is not None and masks[1]))
    if keep.ndim == 2:  # each row of the batch keeps its own
        values, times = np.broadcast_to(values, (*keep.shape, values.shape[-1]))[keep], np.broadcast_to(times, keep.shape)[keep]
        return values, times, np.concatenate([[0], np.cumsum(keep.sum(1))])
    if splits is not None and splits.dtype == np.int64 and splits.size and 0 <= splits.min() and splits.max() <= len(keep) and (
            np.diff(splits) >= 0).all():
        splits = np.concatenate([[0], np.cumsum(keep)])[splits]
    return np.compress(keep, values, axis=-2), times[..., keep], splits


def _is_torch(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _plain(value, place, name):
    """Returns a numpy array that shares the memory of an array or tensor. bfloat16 becomes int16."""
    if isinstance(value, np.ndarray):
        return value
    if not _is_torch(value):
        return np.asarray(value)
    if not value.is_cpu:
        raise Unsupported(f"{place}{name} is on {value.device}: pass {name}.cpu(), or all tensors on one NVIDIA GPU")
    if value.requires_grad:
        raise ArgumentError(f"{place}{name} requires gradients, which trajd.resample does not have: pass {name}.detach()")
    torch = sys.modules["torch"]
    return (value.view(torch.int16) if value.dtype is torch.bfloat16 else value).numpy()
