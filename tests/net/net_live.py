"""The part `live`: observations of trajd.Live over recordings whose rows come late, are lost, or
come at other times."""

import os
import pathlib
import shutil
import warnings

import net_image_families
from net_draw import Draw
from net_families import lab
from net_items import Chain
from net_special_files import CAMERA_LAYOUT, LAB_LAYOUT

DATASETS = {
    "lab": {"path": "data/lab.hdf5", "layout": "./data/lab.yaml"},
    **net_image_families.DATASETS,
}
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
PERIOD_NS = 37_000_000  # from one observation to the next
EPISODES = (0, 3, 8)

_POSE = {
    "from": ["pos", "axis"],
    "at": "-2..0",
    "rotation": {"from": "axis_angle", "to": "rot6d", "columns": "3:6", "position": "0:3"},
    "relative_to": {"from": ["pos", "axis"]},
}
FEEDS = {
    "grid": lab(
        {
            "joints": {"at": "-4..0", "range_low": -3},
            "velocity": {"at": "-4..0", "max_age": "40ms"},
            "degrees": {"at": "-1..0"},
            "pos": {"at": "-4..0", "max_gap": "25ms"},
            "quat": {"at": "-2..0"},
            "wxyz": {"at": "-2..0"},
            "grip": {"at": "-4..0", "max_age": "30ms"},
            "grip_near": {"at": "-4..0"},
            "wrench": {"at": "-3..0", "width": "22ms"},
            "holes": {"at": "-3..0"},
            "types/f2": {"at": "-1..0"},
            "types/u4": {"at": "-1..0"},
            "flags/bool": {"at": "-1..0"},
            "delta": {"at": "-4..-1"},
            "touch": {"at": "-2..0", "missing": "zero"},
            "frame": {"at": "-1..0"},
            "actions": {"at": "0..5"},
        },
        clock="arm",
        rate=20,
    ),
    "rows": lab(
        {
            "pos": {"at": "-4..0"},
            "quat": {"at": "-1..0", "rotation": {"from": "quat_xyzw", "to": "rot6d"}},
            "relative": _POSE,
            "before": {
                **_POSE,
                "relative_to": {"from": ["pos", "axis"], "step": "before", "frame": "base"},
                "rotation": {"from": "axis_angle", "to": "quat_xyzw", "columns": "3:6"},
            },
            "joints": {"at": "-2..0"},
            "wrench": {"at": "-9..0 @ 100"},
        }
    ),
    "anchors": lab(
        {
            "joints": {"at": "-100ms..0ms @ 100"},
            "pos": {"at": "-2..0"},
            "ahead": {"from": "pos", "at": "-2..0", "lookahead": "30ms"},
            "move": {"at": "-3..-1"},
        },
        clock={"rate": 29.97},
    ),
    "scaled": lab(
        {
            "joints": {"at": "-1..0", "norm": "q01_q99"},
            "pos": {"at": "-2..0", "norm": {"by": "mean_std", "per": "step"}},
            "half": {"from": "pos", "at": "-1..0", "dtype": "float16", "norm": "min_max"},
            "state": {
                "from": ["pos", "quat", "grip"],
                "at": 0,
                "norm": {"by": "min_max", "mask": [True] * 3 + [False] * 5},
            },
        },
        rate=25,
    ),
    "pad_zero": lab(
        {"pos": {"at": "-9..0"}, "wrench": {"at": "-9..0"}},
        rate=25,
        pad={"before": "any", "after": "any", "with": "zero"},
    ),
    "frames": {
        "dataset": "lab",
        "global_batch": 8,
        "anchor": {"clock": "cam"},
        "pad": {"with": "edge"},
        "outputs": {"frame": {"at": "-2..0"}, "pos": {"at": "-3..0"}},
    },
    "cameras": net_image_families.feed(
        {
            "qpos": {"at": "-1..0"},
            "exact": {
                "from": "qpos",
                "at": "-100ms..0ms @ 40",
                "max_gap": "50ms",
                "max_age": "25ms",
            },
            "raw": net_image_families.image("raw", resize=[20, 30]),
            "jpeg": net_image_families.image("jpeg", crop=[40, 50]),
            "png": net_image_families.image(
                "png_180", resize=24, fit="pad", more={"norm": "imagenet", "layout": "chw"}
            ),
            "text": net_image_families.augmented(
                {"crop": [40, 56]}, {"hue": 0.1}, stream="jpeg_text"
            ),
            "gray": net_image_families.image("jpeg_gray"),
            "depth": net_image_families.image("depth16", resize=[24, 32], filter="nearest"),
        }
    ),
}
ARRIVALS = ("plain", "late", "lost", "jitter")


def record(part, build):
    """Fetches descriptions from a daemon, saves them, and plays recordings to the loaded ones."""
    artefacts = build.artefacts or pathlib.Path("artefacts")
    pathlib.Path("live").mkdir(exist_ok=True)
    artefacts.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    chosen = [name for name in FEEDS if part.has(name)]
    if not chosen:
        return
    with (
        part.case("daemon"),
        build.daemon({"datasets": DATASETS, "feeds": FEEDS}, "live_daemon") as endpoint,
    ):
        for name in chosen:
            with part.case(name):
                record_description(part, name, endpoint)
    for name in chosen:
        if not (
            artefacts / f"{name}.live"
        ).exists():  # the first record keeps its descriptions for later ones
            shutil.copy(f"live/{name}.live", artefacts)
        for arrival in ARRIVALS:
            with part.case(f"{name}/{arrival}"):
                play(part, f"{name}/{arrival}", name, f"live/{name}.live", arrival)
        with part.case(f"{name}/of_the_first_record"):
            play(part, f"{name}/of_the_first_record", name, artefacts / f"{name}.live", "plain")


def record_description(part, name, endpoint):
    import trajd

    os.environ["TRAJD_ENDPOINT"] = endpoint
    try:
        live = trajd.Live("live_daemon.yaml", feed=name)
    finally:
        del os.environ["TRAJD_ENDPOINT"]
    live.save(f"live/{name}.live")
    part.text(f"{name}/description", pathlib.Path(f"live/{name}.live").read_text())
    part.json(
        f"{name}/streams", {stream: list(map(str, about)) for stream, about in live.streams.items()}
    )
    part.json(f"{name}/left_out", live.left_out)


# ---- rows of a recording ----


def rows_of(episode, layout, names):
    """Returns (stamp_ns, stream, row) of all streams of an episode, as the recorder would have had
    them."""
    found = []
    for name in names:
        about = layout["streams"].get(name) or {
            "path": name,
            **layout["streams"][f"{name.split('/')[0]}/*"],
        }
        path = about["path"].replace("*", name.split("/")[-1])
        if path not in episode:
            continue
        data = episode[path]
        rows = [frame_of(row, about) for row in data] if "image" in about else list(data)
        if "columns" in about:
            begin, end = map(int, about["columns"].split(":"))
            rows = [row[begin:end] for row in rows]
        clock = layout["clocks"][about.get("clock", "steps")]
        found += zip(stamps_of(episode, clock, len(rows)), [name] * len(rows), rows)
    return found


def frame_of(row, about):
    """Returns the bytes of an encoded frame as it is stored; pixels are pushed upright and with red
    first."""
    if isinstance(row, bytes):
        return row
    if row.ndim == 1:
        return row.tobytes()
    row = {"v": row[::-1], "h": row[:, ::-1]}.get(about["image"].get("flip"), row)
    return row[..., ::-1] if about["image"].get("color") == "bgr" else row


def stamps_of(episode, clock, rows):
    import numpy as np

    if "rate" in clock:
        start = int(episode[clock["start"]["path"]][()]) if "start" in clock else 0
        return [
            (
                start + n * 1_001_000_000 // 30_000
                if clock["rate"] == 29.97
                else start + n * 1_000_000_000 // clock["rate"]
            )
            for n in range(rows)
        ]
    stamps = episode[clock["path"]][()]
    stamps = stamps[:, clock["column"]] if "column" in clock else stamps
    return (
        np.rint(stamps * UNITS_NS[clock["unit"]]).astype(np.int64).tolist()
        if stamps.dtype.kind == "f"
        else (stamps * UNITS_NS[clock["unit"]]).tolist()
    )


def arrange(rows, arrival, draw):
    """Returns (when it comes, stamp, stream, row) of the rows that come: in order, or as `arrival`
    says."""
    drawn = draw.integers(0, 1000, len(rows)).tolist()
    if arrival == "lost":
        rows = [row for row, one in zip(rows, drawn) if one > 60]
    late = [one * 40_000 if arrival == "late" and one % 9 == 0 else 0 for one in drawn]
    moved = [one * 2_000 if arrival == "jitter" else 0 for one in drawn]
    found = [
        (stamp + later, stamp + more, name, row)
        for (stamp, name, row), later, more in zip(rows, late, moved)
    ]
    return sorted(found, key=lambda one: (one[0], one[2]))


def play(part, item, feed, path, arrival):
    """Plays episodes, and observes on the way: the newest rows, a moment ago, and before each
    stream has a row."""
    import h5py
    import trajd

    live = trajd.Live(path)
    chains, draw = {}, Draw(len(arrival))
    is_lab = FEEDS[feed]["dataset"] == "lab"
    with h5py.File("data/lab.hdf5" if is_lab else "data/cameras.hdf5") as file:
        for number in EPISODES if is_lab else (0, 1):
            live.reset()
            rows = rows_of(
                file[f"data/demo_{number}"], LAB_LAYOUT if is_lab else CAMERA_LAYOUT, live.streams
            )
            play_episode(live, arrange(rows, arrival, draw), chains)
            part.json(f"{item}/state/{number}", live.state())
    for name, chain in chains.items():
        part.chain(f"{item}/{name}", chain)


def play_episode(live, rows, chains):
    import numpy as np

    at, next_ns = 0, rows[0][0] + 5_000_000
    while next_ns <= rows[-1][0] + 400_000_000:
        while at < len(rows) and rows[at][0] <= next_ns:
            _, stamp, name, row = rows[at]
            taken = live.push(name, stamp, row)
            chains.setdefault("taken", Chain()).add(np.array([taken]))
            at += 1
        observe(live, next_ns, chains, "now", partial=True)
        observe(live, next_ns - 110_000_000, chains, "ago", partial=False)
        next_ns += PERIOD_NS


def observe(live, t_ns, chains, when, partial):
    """Adds an observation, or the kind of error that it is."""
    import numpy as np
    import trajd

    try:
        seen = live.observation(t_ns, partial=partial)
    except trajd.Error as error:
        return chains.setdefault(f"{when}/errors", Chain()).add(
            np.array([type(error).__name__], dtype="S24")
        )
    chains.setdefault(f"{when}/anchor_ns", Chain()).add(np.array([seen.anchor_ns]))
    for name in sorted(FEEDS[live.feed]["outputs"]):
        if name not in live.left_out:
            chains.setdefault(f"{when}/{name}", Chain()).add(seen.raw(name))
            chains.setdefault(f"{when}/{name}.mask", Chain()).add(seen.mask(name))
