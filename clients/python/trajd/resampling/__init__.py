"""Resampling of arrays in this process: trajd.resample and trajd.resample_many.

It runs the kernels of the daemon (libtrajd_kernels), so the values are those of a feed, bit for bit.
"""
from __future__ import annotations

import functools
import re
import sys
from fractions import Fraction
from typing import Any, Dict, Mapping, Optional, Tuple, Union

import numpy as np

from . import cuda_tensors
from .. import _core
from ..errors import ArgumentError, Unsupported

Duration = Union[str, int, float, None]
DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ns|us|ms|s)\s*")
UNITS_NS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}
SHORTEST_GPU_WIDTH_NS = 1000  # of a width without a unit: times are not read
SHORTEST_WIDTH = 100  # steps between rows have at most so many widths, where width has no unit
NO_DURATION = "a time is a number and a unit, such as '50ms' (ns, us, ms or s)"


def resample(values: Any, times: Any, targets: Any, *, kind: str = "linear", order: Optional[str] = None,
             max_gap: Duration = None, max_age: Duration = None, width: Duration = None, causal: bool = False,
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
               copied first.
    times, targets
               both int64 ns, or both float64 seconds. Seconds are rounded to the nearest ns. Seconds from 97 days on
               are refused, because neighbouring numbers are more than a ns apart: subtract the same time from both.
               Integers of us are taken as ns, for rows may be 1 us apart: "50ms" would be 50 s then. Multiply by 1000.
    row_splits int64 [B + 1], for rows of different lengths: values [N, D] and times [N] have the rows of all B, one
               after the other. Rows of b are row_splits[b] to row_splits[b + 1] - 1. A list will do.

    kind       how a value at target x is formed, from the last row i at or before x and the row after it:
                 linear    between both                       previous  row i (a zero-order hold)
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

    max_gap, max_age and width are texts with a unit ("50ms"), or in the unit of times: an int of ns or a float of
    seconds. The other way round is refused. For 50,000 us write "50000us": the int 50000 is 50 us, and the float
    50000.0 is 50,000 s. Such a slip is noticed only in part. On the CPU an int for width is refused if it is at most a
    hundredth of the shortest step between rows: 50000 for rows at 100 Hz, but not at 500 Hz, where each mean is then one
    row. On a GPU times are not read, so only an int below 1000 is refused, and 50000 is taken at any rate. Nothing
    checks whether a float is too long, or whether max_gap and max_age are too short or too long.

    The mask has a code for each target: 0 valid, 1 before the first row, 2 after the last row, 3 gap, 4 no target (the
    least int64), 5 NaN in the source, 7 too old.

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
        if type(width) is not str and kind == "mean":
            _check_width("", width, times)
        return _core.resample(((None, values, None, times, row_splits, kind, order,
                                _ns(max_gap, "max_gap") if type(max_gap) is str else max_gap,
                                _ns(max_age, "max_age") if type(max_age) is str else max_age,
                                _ns(width, "width") if type(width) is str else width,
                                causal, pad, period, range_low, None, result, mask),), targets, np.empty)[0]
    if cuda_tensors.is_on_gpu(values):
        return cuda_tensors.run([_on_gpu(None, "", values, times, row_splits, kind, order, max_gap, max_age, width, causal, pad, period,
                                 range_low, dtype, out)], targets)[0]
    stream = _prepare(None, "", values, times, row_splits, kind, order, max_gap, max_age, width, causal, pad, period, range_low,
                      dtype, out)
    return _run([stream], targets)[0]


def resample_many(streams: Mapping[str, Any], targets: Any, *, times: Any = None, row_splits: Any = None,
                  kind: str = "linear", max_gap: Duration = None, max_age: Duration = None, causal: bool = False,
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
            raise ArgumentError(f"streams[{name!r}]: {unknown!r} is no argument of a stream: {', '.join(KEYS)}")
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
    if kind == "mean" and isinstance(width, (int, np.integer)) and 0 < width < SHORTEST_GPU_WIDTH_NS:
        raise ArgumentError(f"{place}width is {width} ns, and times on a GPU are not read, so a width without a unit is at "
                            f"least {SHORTEST_GPU_WIDTH_NS} ns there: give width with its unit, such as '50ms'")
    return (label, place, values, times, row_splits, kind, order,
            _ns(max_gap, place + "max_gap") if type(max_gap) is str else max_gap,
            _ns(max_age, place + "max_age") if type(max_age) is str else max_age,
            _ns(width, place + "width") if type(width) is str else width, *rest)


def _prepare(label, place, values, times, row_splits, kind, order, max_gap, max_age, width, causal, pad, period, range_low,
             dtype, out):
    """Returns the tuple of _core.resample, the type of torch's result (None: numpy), and the caller's outputs."""
    if values is None or times is None:
        raise ArgumentError(f"{place}{'values' if values is None else 'times'} is missing")
    result, mask = out if isinstance(out, (tuple, list)) and len(out) == 2 else (out, None)
    if isinstance(result, (tuple, list)):
        raise ArgumentError(f"{place}out must be an array, or a pair of result and mask")
    for name, output in ("out", result), ("out[1] (the mask)", mask):
        if not (output is None or isinstance(output, np.ndarray) or _is_torch(output)):
            raise ArgumentError(f"{place}{name} is a {type(output).__name__}: pass a numpy array or a torch tensor")
    torch = sys.modules["torch"] if _is_torch(values) else None
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
        _ns(max_gap, place + "max_gap") if isinstance(max_gap, str) else max_gap,
        _ns(max_age, place + "max_age") if isinstance(max_age, str) else max_age,
        _ns(width, place + "width") if isinstance(width, str) else width, causal, pad, period, range_low, dtype,
        result if result is None else _plain(result, place, "out"), mask if mask is None else _plain(mask, place, "out[1] (the mask)"))
    if type(width) is not str and kind == "mean":
        _check_width(place, width, arguments[3])
    return arguments, torch, is_bf16, result, mask


def _run(prepared, targets):
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


def _check_width(place, width, times):
    """Refuses an int of ns that is far shorter than all steps between rows: it was meant in another unit."""
    if not isinstance(width, (int, np.integer)) or times.dtype != np.int64 or times.ndim == 0:
        return
    steps = np.diff(times)
    step = int(steps.min()) if steps.size else 0
    if 0 < width <= step // SHORTEST_WIDTH:
        raise ArgumentError(f"{place}width is {width} ns, and the rows are at least {step} ns apart, so no mean has more than one "
                            "row: give width with its unit, such as '50ms'")


class _Ns(tuple):
    """(ns,) of a text such as "50ms". A number alone has the unit of the times; tuples of the caller are refused."""

    __slots__ = ()


@functools.lru_cache(64)
def _ns(text, name):
    match = DURATION.fullmatch(text)
    if not match:
        raise ArgumentError(f"{name} is {text!r}: {NO_DURATION}")
    ns = Fraction(match[1]) * UNITS_NS[match[2]]
    if ns.denominator != 1:
        raise ArgumentError(f"{name} is {text!r}, which is no whole number of ns")
    return _Ns((int(ns),))


def _is_torch(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _plain(value, place, name):
    """Returns a numpy array that shares the memory of an array or tensor. bfloat16 becomes int16."""
    if np.ma.is_masked(value):
        raise ArgumentError(f"{place}{name} has masked numbers, which trajd.resample does not know: fill them first, for example "
                            f"with {name}.filled(np.nan), or leave these rows out")
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
