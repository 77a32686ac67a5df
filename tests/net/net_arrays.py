"""The part `arrays`: trajd.resample and trajd.resample_many over kinds, types, edges, layouts of
memory and devices."""

import warnings

from net_draw import Draw

KINDS = {
    "linear": {},
    "previous": {},
    "nearest": {},
    "angle": {},
    "angle_degrees": {"kind": "angle", "period": 360.0, "range_low": -180.0},
    "slerp_xyzw": {"kind": "slerp", "order": "xyzw"},
    "slerp_wxyz": {"kind": "slerp", "order": "wxyz"},
    "mean": {"width": "35ms"},
    "mean_narrow": {"kind": "mean", "width": "900us"},
}
TYPES = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)
LIMITS = {
    "none": {},
    "gap": {"max_gap": "15ms"},
    "age": {"max_age": "20ms"},
    "both": {"max_gap": "12ms", "max_age": "5ms"},
    "causal": {"causal": True},
    "causal_age": {"causal": True, "max_age": "9ms"},
    **{f"pad_{pad}": {"pad": pad} for pad in ("zero", "nan")},
}
SHAPES = {
    "tiny": (1, 5, 4, 4),
    "one_row": (3, 1, 6, 4),
    "usual": (6, 40, 17, 8),
    "wide": (2, 30, 25, 132),
    "long": (3, 700, 333, 4),
    "large": (48, 120, 64, 16),
}
NOTHING = -(2**63)


def problem(name, seed, dtype="float32"):
    """Returns values [B, S, D], times [B, S] and targets [B, T]; some targets are none, and some
    values NaN."""
    import numpy as np

    batch, rows, steps, features = SHAPES[name]
    draw = Draw(seed)
    times = np.stack([draw.stamps(rows, 100, 0.8, 10**9) for _ in range(batch)])
    targets = draw.integers(10**9 - 30_000_000, int(times.max()) + 40_000_000, batch, steps)
    targets[:, ::3] = times[:, (np.arange(len(targets[0, ::3])) * 7) % rows]
    targets[-1, -1] = NOTHING
    if dtype == "bool":
        return draw.integers(0, 2, batch, rows, features).astype(bool), times, targets
    if "int" in dtype:
        high = min(np.iinfo(dtype).max, 2**40)
        return (
            (
                draw.integers(0, high, batch, rows, features)
                - (high // 2 if dtype[0] == "i" else 0)
            ).astype(dtype),
            times,
            targets,
        )
    values = np.stack([draw.walk(rows, features, 0.4) for _ in range(batch)]).astype(dtype)
    values[0, rows // 2, 0] = np.nan
    return values, times, targets


def rotations(name, seed, dtype="float32"):
    """The same, with unit quaternions in each four columns."""
    import numpy as np

    values, times, targets = problem(name, seed)
    batch, rows, features = values.shape
    draw = Draw(seed + 1)
    values = np.stack(
        [np.hstack([draw.quaternions(rows) for _ in range(features // 4)]) for _ in range(batch)]
    )
    return values.astype(dtype), times, targets


def exact(name, seed):
    """Rows each 10 ms, and targets on them, between them, and at the end: limits of 10 and 20 ms
    are met exactly."""
    import numpy as np

    values, times, targets = (rotations if name.startswith("slerp") else problem)("usual", seed)
    times = np.broadcast_to(np.arange(times.shape[1]) * 10_000_000, times.shape).copy()
    times[:, 20:] += 10_000_000
    steps = np.arange(targets.shape[1]) * 5_000_000 + np.arange(len(targets))[:, None] * 60_000_000
    return values, times, steps + 80_000_000


class Device:
    """Where a call runs: numpy arrays, or tensors of torch on the CPU or the GPU."""

    def __init__(self, device):
        self.device = device

    def put(self, array):
        if self.device == "numpy":
            return array
        import torch

        return torch.from_numpy(array).to(self.device)

    def get(self, array):
        return array.detach().cpu().numpy() if hasattr(array, "detach") else array


def has_tensors_of(dtype):
    return dtype not in ("uint16", "uint32", "uint64")


def record(part, build):
    """Runs all calls. On a GPU those that a GPU takes."""
    warnings.simplefilter("ignore")
    device = Device(build.device)
    record_kinds(part, device)
    record_layouts(part, device)
    record_many(part, device)
    if build.device == "numpy":
        record_seconds(part)


def call(part, name, device, values, times, targets, **options):
    """Adds result and mask of a call, or the kind of error that it is."""
    import trajd

    if not part.has(name):
        return
    try:
        result, mask = trajd.resample(
            device.put(values), device.put(times), device.put(targets), **options
        )
    except trajd.Error as error:
        return part.put(name, {"error": type(error).__name__})
    part.array(name, device.get(result))
    part.array(f"{name}.mask", device.get(mask))


def record_kinds(part, device):
    for seed, (label, options) in enumerate(KINDS.items()):
        options = {"kind": label, **options}
        make = rotations if options["kind"] == "slerp" else problem
        for shape in SHAPES:
            for limit, more in LIMITS.items():
                call(
                    part,
                    f"kinds/{label}/{shape}/{limit}",
                    device,
                    *make(shape, seed),
                    **options,
                    **more,
                )
        for limit in ("10ms", "9999999ns", "20ms"):
            more = {"width": limit} if options["kind"] == "mean" else {}
            call(
                part,
                f"exact/{label}/{limit}",
                device,
                *exact(label, seed),
                **{**options, **more},
                max_gap=limit,
                max_age=limit,
            )
        for dtype in TYPES:
            if device.device == "numpy" or has_tensors_of(dtype):
                call(part, f"types/{label}/{dtype}", device, *make("usual", seed, dtype), **options)
        for dtype in ("float16", "float32", "float64"):
            call(
                part,
                f"to/{label}/{dtype}",
                device,
                *make("usual", seed, "float64"),
                **options,
                dtype=dtype,
            )


def record_layouts(part, device):
    """Arrays that the batch shares, strided and expanded ones, rows of different lengths, and
    outputs of the caller."""
    import numpy as np

    for seed, kind in enumerate(("linear", "previous", "nearest", "angle")):
        values, times, targets = problem("usual", 100 + seed)
        calls = {
            "shared_values": (values[0], times, targets),
            "shared_times": (values, times[0], targets),
            "shared_targets": (values, times, targets[0]),
            "shared_all": (values[0], times[0], targets[0]),
            "strided": (values[:, ::2], times[:, ::2], targets),
            "columns": (values[..., 2:5], times, targets),
            "backwards": (values[::-1], times[::-1], targets[::-1]),
            "transposed": (values.transpose(1, 0, 2).copy().transpose(1, 0, 2), times, targets),
            "no_rows": (values[:, :0], times[:, :0], targets),
            "expanded": (
                np.broadcast_to(values[:1], values.shape),
                np.broadcast_to(times[:1], times.shape),
                targets,
            ),
            "no_targets": (values, times, targets[:, :0]),
        }
        for name, arrays in calls.items():
            if device.device == "numpy" or all(
                stride >= 0 for array in arrays for stride in array.strides
            ):
                call(part, f"layouts/{kind}/{name}", device, *arrays, kind=kind)
        record_ragged(part, device, kind, values, times, targets)


def record_ragged(part, device, kind, values, times, targets):
    import numpy as np

    lengths = [0, 40, 1, 17, 40, 23]
    splits = np.cumsum([0, *lengths])
    rows = np.concatenate([values[n, :length] for n, length in enumerate(lengths)])
    stamps = np.concatenate([times[n, :length] for n, length in enumerate(lengths)])
    for name, options in {
        "ragged": {},
        "ragged_causal": {"causal": True},
        "ragged_gap": {"max_gap": "11ms"},
    }.items():
        call(
            part,
            f"layouts/{kind}/{name}",
            device,
            rows,
            stamps,
            targets,
            kind=kind,
            row_splits=device.put(splits),
            **options,
        )
    if device.device == "numpy":
        out, mask = np.full((6, 17, 8), 7, "f4"), np.full((6, 17), 9, "u1")
        call(
            part, f"layouts/{kind}/out", device, values, times, targets, kind=kind, out=(out, mask)
        )


def record_many(part, device):
    """Several streams in one run, of different lengths, kinds and types."""
    import trajd

    if not part.has("many"):
        return
    values, times, targets = problem("usual", 50)
    quaternions, others = rotations("usual", 51)[0], problem("long", 52)
    streams = {
        "joints": {"values": values, "times": times},
        "wrist": {"values": quaternions, "times": times, "kind": "slerp", "order": "wxyz"},
        "force": {"values": others[0][0], "times": others[1][0], "kind": "mean", "width": "50ms"},
        "held": {
            "values": problem("usual", 53, "int32")[0],
            "times": times,
            "kind": "previous",
            "max_age": "10ms",
        },
        "double": {
            "values": values.astype("f8"),
            "times": times + 3_000_000,
            "pad": "nan",
            "causal": True,
        },
    }
    placed = {
        name: {
            key: device.put(value) if hasattr(value, "dtype") else value
            for key, value in stream.items()
        }
        for name, stream in streams.items()
    }
    for name, options in {
        "plain": {},
        "gap": {"max_gap": "14ms"},
        "causal": {"causal": True},
        "half": {"dtype": "float16"},
    }.items():
        found = trajd.resample_many(placed, device.put(targets), **options)
        for label, results in zip(("values", "masks"), found):
            for stream, array in results.items():
                part.array(f"many/{name}/{stream}/{label}", device.get(array))


def record_seconds(part):
    """Times in seconds, and times in ns."""
    values, times, targets = problem("usual", 70)
    targets[-1, -1] = targets[0, 0]
    seconds = (values, times / 1e9, targets / 1e9)
    device = Device("numpy")
    for kind in ("linear", "previous", "nearest"):
        call(part, f"seconds/{kind}", device, *seconds, kind=kind, max_gap="12ms", max_age="20ms")
        call(
            part,
            f"nanoseconds/{kind}",
            device,
            values,
            times,
            targets,
            kind=kind,
            max_gap="12ms",
        )
    call(part, "seconds/mean", device, *seconds, kind="mean", width="50ms")
    call(part, "seconds/epoch", device, values, times / 1e9 + 1.7e9, targets / 1e9 + 1.7e9)
