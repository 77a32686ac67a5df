"""Files with layouts of the net's own: many clocks, all kinds and types (lab), cameras, and odd
contents."""

import json

import h5py
import numpy as np
from net_build import write_config
from net_draw import jpeg, png

EPOCH_NS = 1_700_000_000_000_000_000
LAB_TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")

_POSE = {"clock": "pose"}
LAB_LAYOUT = {
    "layout": "lab",
    "version": 1,
    "episodes": {"files": "**/*.hdf5", "groups": "/data/demo_*"},
    "filter": "/mask/{key}",
    "tables": ["calibration/camera_*"],
    "meta": {
        "language": {"attribute": "@task"},
        "place": {"path": "room"},
        "robot": {"attribute": "/@lab", "json": "robot.name"},
    },
    "clocks": {
        "arm": {"path": "time/arm", "unit": "ns"},
        "pose": {"path": "time/pose", "unit": "us", "offset": "1ms", "latency": "4ms"},
        "cam": {"path": "time/cam", "unit": "s", "latency": "38ms"},
        "grip": {
            "path": "time/grip",
            "unit": "ms",
            "repeated": "drop",
            "backward": "keep_last",
            "lost_rows": "20%",
        },
        "table": {"path": "table", "column": 2, "unit": "ns"},
        "force": {"rate": 1000, "rows": "wrench", "start": {"path": "time/force0", "unit": "ns"}},
        "steps": {"rate": 29.97, "rows": "actions", "start": {"path": "time/steps0", "unit": "ns"}},
    },
    "streams": {
        "joints": {"path": "joints", "clock": "arm", "kind": "angle", "unit": "rad"},
        "degrees": {"path": "degrees", "clock": "arm", "kind": "angle", "unit": "deg"},
        "velocity": {"path": "velocity", "clock": "arm", "kind": "linear", "max_gap": "50ms"},
        "delta": {
            "path": "delta",
            "clock": "arm",
            "kind": "previous",
            "semantics": "delta",
            "max_gap": "90ms",
        },
        "move": {"path": "move", "clock": "steps", "kind": "previous", "semantics": "delta"},
        "pos": {"path": "pos", "kind": "linear", **_POSE},
        "quat": {"path": "quat", "kind": "slerp", "order": "xyzw", **_POSE},
        "wxyz": {"path": "wxyz", "kind": "slerp", "order": "wxyz", **_POSE},
        "axis": {"path": "axis", "kind": "previous", **_POSE},
        "euler": {"path": "euler", "kind": "previous", **_POSE},
        "matrix": {"path": "matrix", "kind": "previous", **_POSE},
        "rot6d": {"path": "rot6d", "kind": "previous", **_POSE},
        "holes": {"path": "holes", "kind": "linear", **_POSE},
        "wrench": {"path": "wrench", "clock": "force", "kind": "mean", "unit": "N"},
        "wrench16": {"path": "wrench16", "clock": "force", "kind": "mean", "optional": True},
        "grip": {"path": "grip", "clock": "grip", "kind": "previous"},
        "grip_near": {"path": "grip_near", "clock": "grip", "kind": "nearest"},
        "touch": {"path": "touch", "clock": "grip", "kind": "linear", "optional": True},
        "table_pos": {"path": "table", "clock": "table", "kind": "linear", "columns": "0:2"},
        "table_quat": {
            "path": "table",
            "clock": "table",
            "kind": "slerp",
            "order": "xyzw",
            "columns": "3:7",
        },
        "actions": {"path": "actions", "clock": "steps", "kind": "previous"},
        "reward": {"path": "reward", "clock": "steps", "kind": "previous"},
        "done": {"path": "done", "clock": "steps", "kind": "previous"},
        "frame": {"path": "frame", "clock": "cam", "kind": "previous"},
        "near_frame": {"path": "near_frame", "clock": "cam", "kind": "nearest", "optional": True},
        "types/*": {"path": "types/*", "clock": "steps", "kind": "linear"},
        "flags/*": {"path": "flags/*", "clock": "steps", "kind": "linear"},
    },
}


def without_rows(stamps, draw, share):
    """Returns the indices of the rows that a recorder kept: some single ones are lost, and one long
    stretch."""
    keep = draw.integers(0, share, len(stamps)) != 0
    begin = len(stamps) // 3
    keep[begin : begin + len(stamps) // 9] = False
    keep[[0, -1]] = True
    return np.flatnonzero(keep)


def write_lab(path, draw, episodes=9):
    """Writes episodes of one to six seconds, each with seven clocks that begin and end at different
    times."""
    write_config(path.with_name("lab.yaml"), LAB_LAYOUT)
    with h5py.File(path, "w") as file:
        file.attrs["lab"] = json.dumps({"robot": {"name": "arm 1"}})
        names = []
        for number in range(episodes):
            names.append(f"demo_{number}")
            demo = file.create_group(f"data/demo_{number}")
            demo.attrs["task"] = ["pick", "place", "fold"][number % 3]
            demo["room"] = f"room {number % 2}"
            write_lab_episode(demo, draw, 1.0 + number * 0.6, number)
        file["mask/train"] = np.array(names[:6], dtype="S")
        file["mask/valid"] = np.array(names[6:], dtype="S")


def write_lab_episode(demo, draw, seconds, number):
    start = EPOCH_NS + number * 3_600_000_000_000 + int(draw.integers(0, 10**9))
    arm = draw.stamps(int(seconds * 500), 500, 0.4, start)
    pose = draw.stamps(int(seconds * 100) - 9, 100, 0.8, start + 31_000_000)
    arm, pose = arm[without_rows(arm, draw, 200)], pose[without_rows(pose, draw, 30)]
    cam = draw.stamps(int(seconds * 30), 30, 0.2, start + 44_000_000)
    demo["time/arm"], demo["time/pose"] = arm, pose // 1000
    demo["time/cam"] = cam / 1e9
    demo["time/force0"], demo["time/steps0"] = np.int64(start + 3_141_592), np.int64(
        start + 11_000_000
    )
    write_grip(demo, draw, seconds, start)
    write_arm(demo, draw, len(arm))
    write_poses(demo, draw, len(pose))
    rows = int(seconds * 1000) - 40
    demo["wrench"] = draw.walk(rows, 6, 0.5).astype("f4")
    if number % 2 == 0:
        demo["wrench16"] = draw.walk(rows, 2, 0.25).astype("f2")
    table = draw.walk(int(seconds * 50), 2, 0.1)
    demo["table"] = np.hstack(
        [
            table,
            draw.stamps(len(table), 50, 0.1, 10**9)[:, None] + (start - 10**9),
            draw.quaternions(len(table)),
        ]
    )
    demo["frame"] = draw.images(len(cam), 16, 24)
    if number % 3:
        demo["near_frame"] = draw.images(len(cam), 8, 8, 1)
    write_steps(demo, draw, int(seconds * 29.97) - 2)
    demo.create_dataset("calibration/camera_top", data=draw.uniform(4, 4))
    demo["notes"] = "a text that is copied"


def write_grip(demo, draw, seconds, start):
    """Stamps in ms of which some repeat and some go back."""
    rows = int(seconds * 50)
    stamps = draw.stamps(rows, 50, 0.1, start) / 1e6
    stamps[5], stamps[20] = stamps[4], stamps[18]
    demo["time/grip"] = stamps
    demo["grip"] = draw.uniform(rows, 1).astype("f4")
    demo["grip_near"] = draw.integers(-5, 6, rows, 2).astype("i4")
    if draw.integers(0, 3):
        demo["touch"] = draw.walk(rows, 3).astype("f4")


def write_arm(demo, draw, rows):
    angles = np.mod(draw.walk(rows, 7, 0.2) + np.pi, 2 * np.pi) - np.pi
    demo.create_dataset("joints", data=angles, chunks=(64, 7), compression="gzip", shuffle=True)
    demo.create_dataset(
        "degrees",
        data=np.mod(draw.walk(rows, 2, 9), 360).astype("f4"),
        chunks=(100, 2),
        compression="lzf",
    )
    demo.create_dataset(
        "velocity", data=draw.walk(rows, 7).astype("f4"), chunks=(50, 7), fletcher32=True
    )
    demo["delta"] = draw.uniform(rows, 3, low=-0.1, high=0.1).astype("f4")


def write_poses(demo, draw, rows):
    """Rotations in each form. They need not show the same rotation."""
    demo["pos"] = draw.walk(rows, 3, 0.03).astype("f4")
    demo["quat"], demo["wxyz"] = draw.quaternions(rows), draw.quaternions(rows).astype("f4")
    demo["axis"], demo["euler"] = draw.walk(rows, 3, 0.1), draw.walk(rows, 3, 0.1).astype("f4")
    w, x, y, z = draw.quaternions(rows).T
    matrix = np.stack(
        [
            1 - 2 * (y * y + z * z),
            2 * (x * y - z * w),
            2 * (x * z + y * w),
            2 * (x * y + z * w),
            1 - 2 * (x * x + z * z),
            2 * (y * z - x * w),
            2 * (x * z - y * w),
            2 * (y * z + x * w),
            1 - 2 * (x * x + y * y),
        ],
        axis=1,
    )
    demo["matrix"], demo["rot6d"] = matrix, matrix[:, :6].astype("f4")
    holes = draw.walk(rows, 4).astype("f4")
    holes[draw.integers(0, 12, rows) == 0, 1] = np.nan
    holes[rows // 2 : rows // 2 + 3] = np.nan
    demo["holes"] = holes


def write_steps(demo, draw, rows):
    demo["actions"] = draw.uniform(rows, 7, low=-1).astype("f4")
    demo["move"] = draw.uniform(rows, 3, low=-0.05, high=0.05)
    demo["reward"] = draw.uniform(rows).astype("f4")
    demo["done"] = (np.arange(rows) == rows - 1).astype("u1")
    for name in LAB_TYPES:
        high = 100 if name[0] == "f" else min(np.iinfo(name).max, 2**40)
        drawn = draw.integers(0, high, rows, 2)
        demo[f"types/{name}"] = (drawn - (high // 2 if name[0] == "i" else 0)).astype(name)
    demo["flags/bool"] = draw.integers(0, 2, rows, 3).astype(bool)


# ---- cameras ----

HEIGHT, WIDTH = 48, 64
CAMERA_LAYOUT = {
    "layout": "cameras",
    "version": 1,
    "episodes": {"files": "**/*.hdf5", "groups": "/data/demo_*"},
    "clocks": {"steps": {"rate": 20, "rows": "actions"}},
    "streams": {
        "actions": {"path": "actions", "kind": "previous"},
        "qpos": {"path": "qpos", "kind": "linear"},
        **{
            name: {"path": name, "kind": "previous", "image": image}
            for name, image in {
                "raw": {"color": "rgb"},
                "raw_bgr": {"color": "bgr", "flip": "v"},
                "raw_gray": {"color": "gray", "flip": "h"},
                "png": {"color": "rgb"},
                "png_180": {"color": "bgr", "flip": "180"},
                "jpeg": {"color": "rgb"},
                "jpeg_text": {"color": "bgr", "encoding": "jpeg"},
                "jpeg_gray": {"color": "gray"},
                "mixed": {"color": "rgb", "size": [HEIGHT, WIDTH]},
                "zeros": {"color": "rgb", "zero_frames": "mask"},
                "bad": {"color": "rgb"},
                "depth16": {"unit": "mm"},
                "depth32": {"unit": "m"},
                "depth_png": {"unit": "mm"},
                "big": {"color": "rgb"},
                "packed": {"color": "rgb"},
            }.items()
        },
        "near": {"path": "jpeg", "kind": "nearest", "image": {"color": "rgb"}},
        "plain": {"path": "plain", "kind": "previous"},
    },
}


def pad_rows(files):
    padded = np.zeros((len(files), max(map(len, files))), np.uint8)
    for row, data in zip(padded, files):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    return padded


def write_vlen(group, name, files):
    values = group.create_dataset(name, (len(files),), dtype=h5py.vlen_dtype(np.uint8))
    for row, data in enumerate(files):
        values[row] = np.frombuffer(data, np.uint8)


def write_packed(group, name, files):
    packed = group.create_group(name)
    packed["bytes"] = np.frombuffer(b"".join(files), np.uint8)
    packed["offsets"] = np.cumsum([0, *map(len, files)]).astype("i8")


def write_cameras(path, draw, lengths=(19, 12, 1, 23)):
    """Writes episodes with a camera for each form that frames have in files."""
    write_config(path.with_name("cameras.yaml"), CAMERA_LAYOUT)
    with h5py.File(path, "w") as file:
        for number, rows in enumerate(lengths):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"] = draw.walk(rows, 7).astype("f4")
            demo["qpos"] = draw.walk(rows, 7).astype("f4")
            write_raw_cameras(demo, draw, rows)
            write_encoded_cameras(demo, draw, rows)


def write_raw_cameras(demo, draw, rows):
    shape = (rows, HEIGHT, WIDTH)
    demo["raw"] = draw.images(*shape)
    demo.create_dataset(
        "raw_bgr",
        data=draw.images(*shape),
        chunks=(min(rows, 4), *shape[1:], 3),
        compression="gzip",
    )
    demo["raw_gray"] = draw.images(*shape, 1)
    zeros = draw.images(*shape)
    zeros[::5] = 0
    demo["zeros"] = zeros
    demo["depth16"] = draw.integers(0, 5000, *shape, 1).astype("u2")
    demo["depth32"] = draw.uniform(*shape, 1, high=4).astype("f4")
    demo["big"] = draw.images(rows, 250, 330)
    demo["plain"] = draw.images(rows, 12, 16)


def write_encoded_cameras(demo, draw, rows):
    demo["png"] = pad_rows([png(draw.image(HEIGHT, WIDTH)) for _ in range(rows)])
    write_vlen(demo, "png_180", [png(draw.image(HEIGHT, WIDTH)) for _ in range(rows)])
    write_vlen(
        demo,
        "jpeg",
        [jpeg(draw, HEIGHT, WIDTH, halved=bool(n % 2), restart=n % 3 * 4) for n in range(rows)],
    )
    texts = [jpeg(draw, HEIGHT, WIDTH) for _ in range(rows)]
    demo["jpeg_text"] = np.array(texts, dtype=f"S{max(map(len, texts))}")
    demo["jpeg_gray"] = pad_rows([jpeg(draw, HEIGHT, WIDTH, 1) for _ in range(rows)])
    mixed = [
        png(draw.image(HEIGHT, WIDTH)),
        jpeg(draw, HEIGHT, WIDTH),
        draw.image(HEIGHT, WIDTH).tobytes(),
    ]
    write_vlen(demo, "mixed", [mixed[n % 3] for n in range(rows)])
    bad = [png(draw.image(HEIGHT, WIDTH)) for _ in range(rows)]
    demo["bad"] = pad_rows(
        [one[: len(one) // 2] if n % 7 == 3 else one for n, one in enumerate(bad)]
    )
    write_vlen(
        demo,
        "depth_png",
        [png(draw.integers(0, 5000, HEIGHT, WIDTH).astype("u2")) for _ in range(rows)],
    )
    write_packed(demo, "packed", [jpeg(draw, HEIGHT, WIDTH) for _ in range(rows)])


# ---- odd contents ----


def odd_layout(name, **episodes):
    return {
        "layout": name,
        "version": 1,
        "episodes": {"files": "**/*.hdf5", "groups": "/data", **episodes},
        "clocks": {"steps": {"rate": 25, "rows": "actions"}},
        "streams": {
            "actions": {"path": "actions", "kind": "previous"},
            "pos": {"path": "pos", "kind": "linear"},
        },
    }


SPLITS = {
    "flags": ["terminals", "timeouts"],
    "lengths": "lengths",
    "ends": "ends",
    "starts": "starts",
}


def write_odd(folder, draw):
    """Writes arrays that hold several episodes, and files with faults that `validate` and `inspect`
    name."""
    folder.mkdir(parents=True)
    lengths = [31, 1, 17, 44]
    with h5py.File(folder / "joined.hdf5", "w") as file:
        data, ends = file.create_group("data"), np.cumsum(lengths)
        data["actions"], data["pos"] = draw.uniform(ends[-1], 3), draw.walk(ends[-1], 3)
        data["terminals"] = np.isin(np.arange(ends[-1]), ends[[0, 2, 3]] - 1)
        data["timeouts"] = np.isin(np.arange(ends[-1]), ends[[1]] - 1)
        data["lengths"], data["ends"], data["starts"] = np.array(lengths), ends, ends - lengths
    for kind, value in SPLITS.items():
        write_config(folder / f"{kind}.yaml", odd_layout(kind, split={kind: value}))
    write_faulty(folder, draw)


def write_faulty(folder, draw):
    """Episodes with repeated and backward stamps, NaN, constants, sign flips, idle rows, and
    lengths that differ."""
    layout = odd_layout("faulty", groups="/data/demo_*")
    for policy in ("error", "drop", "keep_last"):
        clock = {
            "path": "t",
            "unit": "ns",
            "repeated": policy,
            "backward": policy,
            "lost_rows": "30%",
        }
        write_config(folder / f"stamps_{policy}.yaml", {**layout, "clocks": {"steps": clock}})
    with h5py.File(folder / "faulty.hdf5", "w") as file:
        for number in range(6):
            demo, rows = file.create_group(f"data/demo_{number}"), 60 + number
            stamps = draw.stamps(rows, 25, 0.2, 10**9)
            demo["actions"], pos = draw.uniform(rows, 3), draw.walk(rows, 3)
            if number == 1:
                stamps[[10, 30]] = stamps[[9, 29]]
            if number == 2:
                stamps[20] = stamps[17]
            if number == 3:
                stamps[40:] += 700_000_000
            if number == 4:
                pos[12:14] = np.nan
            if number == 5:
                pos[15:55], pos[:, 1] = pos[15], 0.5
            demo["t"], demo["pos"] = stamps, pos
            demo["quat"] = draw.quaternions(rows)
    write_config(
        folder / "faulty.yaml",
        {
            **layout,
            "clocks": {
                "steps": {"path": "t", "unit": "ns", "repeated": "drop", "backward": "drop"}
            },
            "streams": {**layout["streams"], "quat": {"path": "quat", "kind": "linear"}},
        },
    )
    with h5py.File(folder / "stranger.hdf5", "w") as file:
        for number in range(3):
            run, rows = file.create_group(f"runs/run{number}"), 50 + number
            run["stamp"] = draw.stamps(rows, 30, 0.1, EPOCH_NS)
            run["arm/position"], run["arm/orientation"] = draw.walk(rows, 3), draw.quaternions(rows)
            run["command"], run["camera"] = draw.uniform(rows, 4), draw.images(rows, 24, 32)
            run["temperature"] = draw.uniform(rows)
