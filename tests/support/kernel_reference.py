"""trajd_resample_reference of libtrajd_kernels through ctypes, for dense arrays: the definition of the correct result."""
import ctypes

import numpy as np

from paths import BUILD

KINDS = {"linear": 0, "previous": 1, "nearest": 2, "slerp xyzw": 3, "slerp wxyz": 4, "angle": 5, "mean": 6}
EDGES = {"edge": 0, "zero": 1, "nan": 2}
TYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "float64": 4, "int8": 5, "int16": 6, "int32": 7, "int64": 8, "uint8": 9,
         "uint16": 10, "uint32": 11, "uint64": 12, "bool": 13}
U32, I64, U64, F64, POINTER = ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double, ctypes.c_void_p


class Clock(ctypes.Structure):
    _fields_ = [("stamps", POINTER), ("num", I64), ("den", I64), ("reserved", U64 * 4)]


class Grid(ctypes.Structure):
    _fields_ = [("unit", U32), ("step_count", U32), ("offsets", POINTER), ("per_window", U64), ("reserved", U64 * 4)]


class Bracket(ctypes.Structure):
    _fields_ = [("clock", U32), ("grid", U32), ("row_begin", POINTER), ("row_count", POINTER), ("anchor", POINTER),
                ("reserved", U64 * 4)]


class Stream(ctypes.Structure):
    _fields_ = [("bracket", U32), ("kind", U32), ("source_type", U32), ("feature_count", U32), ("first_column", U32),
                ("row_stride", U64), ("base", POINTER), ("bases", POINTER), ("edge", U32), ("max_gap", I64), ("max_age", I64),
                ("mean_width", I64), ("total", U32), ("total_gamma", F64), ("total_width", I64), ("period", F64), ("low", F64),
                ("scale", POINTER), ("offset", POINTER), ("output_type", U32), ("output", POINTER), ("window_stride", U64),
                ("step_stride", U64), ("mask", POINTER), ("mask_stride", U64), ("mask_joins", ctypes.c_uint8),
                ("derivative", POINTER), ("d_window", U64), ("d_step", U64), ("reserved", U64 * 8)]


class Request(ctypes.Structure):
    _fields_ = [("windows", U32), ("clock_count", U32), ("grid_count", U32), ("bracket_count", U32), ("stream_count", U32),
                ("clocks", POINTER), ("grids", POINTER), ("brackets", POINTER), ("streams", POINTER), ("rows", POINTER),
                ("output_rows", U32), ("reserved", U64 * 6)]


def resample(values, times, targets, counts, kind, source, target, pad="edge", max_gap=-1, max_age=-1, width=0,
             period=2 * np.pi, low=np.nan):
    """Returns the result as bytes of its type and the mask. values [B, S, D], times [B, S], targets [B, T], all dense;
    counts [B]: the rows that a row of the batch may see. source, target: names of types."""
    library = ctypes.CDLL(str(BUILD / "kernels/library/libtrajd_kernels.so.1"))
    (batch, rows, features), steps = values.shape, targets.shape[1]
    size = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}.get(target, np.dtype(target if target != "bfloat16" else "i2").itemsize)
    result, mask = np.zeros((batch, steps, features * size), "u1"), np.full((batch, steps), 99, "u1")
    begin, anchor = np.arange(batch, dtype="i8") * rows, np.zeros(batch, "i8")
    counts = np.ascontiguousarray(counts, "i8")
    clock, grid = Clock(times.ctypes.data), Grid(0, steps, targets.ctypes.data, steps)
    bracket = Bracket(0, 0, begin.ctypes.data, counts.ctypes.data, anchor.ctypes.data)
    stream = Stream(kind=KINDS[kind], source_type=TYPES[source], feature_count=features, row_stride=features * values.itemsize,
                    base=values.ctypes.data, edge=EDGES[pad], max_gap=max_gap, max_age=max_age, mean_width=width, period=period,
                    low=low, output_type=TYPES[target], output=result.ctypes.data, window_stride=steps * features * size,
                    step_stride=features * size, mask=mask.ctypes.data, mask_stride=steps)
    request = Request(batch, 1, 1, 1, 1, *(ctypes.addressof(item) for item in (clock, grid, bracket, stream)))
    message = ctypes.create_string_buffer(1024)
    status = library.trajd_resample_check(ctypes.byref(request), message)
    assert status == 0, message.raw[8:].split(b"\0")[0]
    library.trajd_resample_reference(ctypes.byref(request), 0, batch)
    return result, mask
