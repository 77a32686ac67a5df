#!/usr/bin/env python3
"""Writes the LeRobot sets that the tests of video read: tests/golden/video/lerobot/. tests/golden/video/README.md lists them.

    python3.11 -m venv /tmp/lerobot && /tmp/lerobot/bin/pip install lerobot==0.4.4 pyarrow==26.0.1
    /tmp/lerobot/bin/python tests/tools/video_sets.py v30       # torch 2.10.0, PyAV 15.1.0, datasets 4.8.5
    python3.11 -m venv /tmp/lerobot21 && /tmp/lerobot21/bin/pip install lerobot==0.3.3
    /tmp/lerobot21/bin/pip install numpy==2.2.6 av==15.1.0 pyarrow==21.0.0
    /tmp/lerobot21/bin/python tests/tools/video_sets.py v21     # torch 2.7.1, datasets 3.6.0; 0.3.3 is the last with v2.1

LeRobotDataset writes all files, and then some are edited to be as faulty as sets that people have published. No set
says when it was made, but Parquet files differ with the versions of pyarrow.
"""
import argparse
import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
from fractions import Fraction

os.environ.update(HF_HUB_OFFLINE="1", SVT_LOG="1", HF_DATASETS_CACHE="/tmp/trajd_video_sets")

import av  # noqa: E402 (the lines above are read when it is imported)
import lerobot.datasets.lerobot_dataset as writer  # noqa: E402
import numpy as np  # noqa: E402
import pandas  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from video_mp4s import draw  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "video" / "lerobot"
LENGTHS = (12, 16, 14, 20, 13)
HEIGHT, WIDTH, FPS = 96, 128, 30
TASKS = ("Put the red cube into the box.", "Open the drawer, slowly.")
JOINTS = ["shoulder", "elbow", "wrist", "gripper"]
KEYS = ("observation.images.top", "observation.images.wrist")


def features(images, dtype="video", height=HEIGHT, width=WIDTH):
    return {
        "observation.state": {"dtype": "float32", "shape": (4,), "names": JOINTS},
        "action": {"dtype": "float32", "shape": (4,), "names": {"motors": JOINTS}},
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
        **{key: {"dtype": dtype, "shape": (height, width, 3), "names": ["height", "width", "channels"]} for key in images},
    }


def make_row(episode, row, length):
    """Every number tells its episode and row."""
    state = np.float32([episode + 0.25 * row, np.sin(0.3 * row + episode), -row / 7, row % 2])
    return {"observation.state": state, "action": state + np.float32([1, 2, 3, 0.5]),
            "next.reward": np.float32([row / 10]), "next.done": np.array([row == length - 1])}


def number_of(episode, row):
    """The number that a frame shows as its bar code."""
    return episode * 32 + row


@contextlib.contextmanager
def encoder_options(**options):
    """LeRobot's own encoder, with another distance of key frames or another rate than it takes from its caller."""
    own = writer.encode_video_frames
    writer.encode_video_frames = lambda images, path, fps, **kept: own(images, path, options.get("fps", fps),
                                                                        **{**kept, **{k: v for k, v in options.items() if k != "fps"}})
    yield
    writer.encode_video_frames = own


def write_set(name, images=KEYS, lengths=LENGTHS, fps=FPS, codec="libsvtav1", limits=None, height=HEIGHT, width=WIDTH,
              more_features=None, more_row=None, dtype="video", task_of=None, plain=False):
    """Writes a set. `limits` are the sizes of data and video files in MB, so small that a new file begins after some episodes."""
    root = FOLDER / name
    shutil.rmtree(root, ignore_errors=True)
    wanted = {**features(images, dtype, height, width), **(more_features or {})}
    options = {"vcodec": codec} if dtype == "video" and writer.CODEBASE_VERSION == "v3.0" else {}
    dataset = writer.LeRobotDataset.create(f"trajd/{name}", fps, wanted, root=root, robot_type="so101", use_videos=dtype == "video", **options)
    if limits:
        dataset.meta.info["data_files_size_in_mb"], dataset.meta.info["video_files_size_in_mb"] = limits
    for episode, length in enumerate(lengths):
        for row in range(length):
            frame = make_row(episode, row, length)
            for camera, key in enumerate(images):
                frame[key] = draw(number_of(episode, row), height, width, camera, noise=0 if plain else 6 * (camera + 1))
            frame.update(more_row(episode, row) if more_row else {})
            task = task_of(episode, row) if task_of else TASKS[episode % 2]
            add_frame(dataset, frame, task)
        dataset.save_episode()
    if hasattr(dataset, "finalize"):
        dataset.finalize()
    shutil.rmtree(root / "images", ignore_errors=True)
    if limits:
        set_info(root, data_files_size_in_mb=100, video_files_size_in_mb=200)
    return root


def add_frame(dataset, frame, task):
    if writer.CODEBASE_VERSION == "v3.0":
        dataset.add_frame({**frame, "task": task})
    else:
        dataset.add_frame(frame, task)


def set_info(root, **values):
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    info.update(values)
    path.write_text(json.dumps(info, indent=4))


def edit_episodes(root, change):
    """Lets `change` edit the rows of the episodes, a list of dictionaries. Statistics are left out, as files get small by it."""
    for path in sorted((root / "meta" / "episodes").rglob("*.parquet")):
        table = pq.read_table(path)
        table = table.select([name for name in table.column_names if not name.startswith("stats/")])
        rows = table.to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def copy_set(source, name):
    root = FOLDER / name
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(FOLDER / source, root)
    return root


# Sets with faults.


def write_drifted():
    """from_timestamp as a running sum that is too long: by 4 ms per episode, and by 12 ms (a frame is 33 ms)."""
    for name, drift in (("v30_drift_small", 0.004), ("v30_drift_large", 0.012)):
        root = copy_set("v30_h264_g10", name)

        def change(rows):
            for row in rows:
                for key in KEYS:
                    first = min(other["episode_index"] for other in rows if same_file(other, row, key))
                    row[f"videos/{key}/from_timestamp"] += drift * (row["episode_index"] - first)
                    row[f"videos/{key}/to_timestamp"] += drift * (row["episode_index"] - first + 1)
        edit_episodes(root, change)


def same_file(one, other, key):
    return all(one[f"videos/{key}/{part}"] == other[f"videos/{key}/{part}"] for part in ("chunk_index", "file_index"))


def write_reordered():
    """The second camera shows episode 2 before episode 1."""
    root = copy_set("v30_h264_g10", "v30_order")

    def change(rows):
        key = f"videos/{KEYS[1]}"
        one, two = (next(row for row in rows if row["episode_index"] == number) for number in (1, 2))
        start = one[f"{key}/from_timestamp"]
        assert same_file(one, two, KEYS[1])
        for row in (two, one):
            row[f"{key}/from_timestamp"] = start
            start += row["length"] / FPS
            row[f"{key}/to_timestamp"] = start
    edit_episodes(root, change)


def rewrite_video(path, change):
    """Copies the packets that `change` returns of all."""
    with av.open(str(path)) as source:
        packets = [packet for packet in source.demux(video=0) if packet.size]
        with av.open(str(path) + ".new.mp4", "w", options={"movflags": "faststart"}) as target:
            stream = target.add_stream_from_template(source.streams.video[0], opaque=True)
            stream.time_base = source.streams.video[0].time_base
            for packet in change(packets):
                packet.stream = stream
                target.mux(packet)
    os.replace(str(path) + ".new.mp4", path)


def write_short():
    """The first camera's last file lacks its last three frames."""
    root = copy_set("v30_av1", "v30_short_video")
    rewrite_video(sorted((root / "videos" / KEYS[0]).rglob("*.mp4"))[-1], lambda packets: packets[:-3])
    edit_episodes(root, lambda rows: None)


def write_late():
    """The first camera shows the frames of episode 3 by 20 ms later than their number says: more than half a frame."""
    root = copy_set("v30_h264_g10", "v30_late")

    def delay(packets):
        for packet in packets[sum(LENGTHS[:3]):]:
            late = round(packet.time_base.denominator * 0.02)
            packet.pts, packet.dts = packet.pts + late, packet.dts + late
        return packets
    rewrite_video(root / "videos" / KEYS[0] / "chunk-000" / "file-000.mp4", delay)
    edit_episodes(root, lambda rows: None)


def write_v30():
    write_set("v30_av1", limits=(0.0055, 0.031))
    two_tasks = lambda episode, row: TASKS[row >= 10 if episode == 3 else episode % 2]  # noqa: E731
    with encoder_options(g=10):
        write_set("v30_h264_g10", codec="h264", limits=(0.0055, 0.015), task_of=two_tasks)
    with encoder_options(g=30):
        write_set("v30_h264_g30", images=KEYS[:1], codec="h264", lengths=(40, 33), height=48, width=64)
    with encoder_options(fps=Fraction(30000, 1001)):
        write_set("v30_2997", images=KEYS[:1], fps=30000 / 1001, lengths=(12, 14), height=48, width=64)
    more = {"observation.tactile": {"dtype": "float32", "shape": (2, 3), "names": None},
            "observation.mode": {"dtype": "int64", "shape": (1,), "names": None},
            "note": {"dtype": "string", "shape": (1,), "names": None}}
    more_row = lambda episode, row: {"observation.tactile": np.float32(np.arange(6).reshape(2, 3) + row),  # noqa: E731
                                     "observation.mode": np.array([row % 3]), "note": f"episode {episode} row {row}"}
    write_set("v30_image", images=KEYS[:1], dtype="image", lengths=(6, 5), height=48, width=64, more_features=more,
              more_row=more_row, plain=True)
    write_drifted()
    write_reordered()
    write_short()
    write_late()


# openpi.


def write_openpi():
    """As openpi's examples/libero/convert_libero_data_to_lerobot.py creates and fills its set, with smaller images."""
    root = FOLDER / f"openpi_libero_{writer.CODEBASE_VERSION.replace('.', '')}"
    shutil.rmtree(root, ignore_errors=True)
    image = {"dtype": "image", "shape": (48, 64, 3), "names": ["height", "width", "channel"]}
    dataset = writer.LeRobotDataset.create(repo_id="trajd/libero", root=root, robot_type="panda", fps=10, features={
        "image": image, "wrist_image": image, "state": {"dtype": "float32", "shape": (8,), "names": ["state"]},
        "actions": {"dtype": "float32", "shape": (7,), "names": ["actions"]}}, image_writer_threads=2)
    for episode, length in enumerate((7, 5)):
        for row in range(length):
            number = number_of(episode, row)
            add_frame(dataset, {"image": draw(number, 48, 64, 0, noise=0), "wrist_image": draw(number, 48, 64, 1, noise=0),
                                "state": np.float32(np.arange(8) + number), "actions": np.float32(np.arange(7) - number / 4)},
                      TASKS[episode])
        dataset.save_episode()
    if hasattr(dataset, "finalize"):
        dataset.finalize()
    dataset.stop_image_writer()
    shutil.rmtree(root / "images", ignore_errors=True)


# v2.1 and v2.0.


def write_v21():
    write_set("v21_av1", lengths=LENGTHS[:3])
    root = copy_set("v21_av1", "v20_av1")
    set_info(root, codebase_version="v2.0")
    stats = [json.loads(line) for line in (root / "meta" / "episodes_stats.jsonl").read_text().splitlines()]
    (root / "meta" / "stats.json").write_text(json.dumps(stats[0]["stats"], indent=4))
    (root / "meta" / "episodes_stats.jsonl").unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", choices=("v30", "v21"))
    version = parser.parse_args().version
    assert writer.CODEBASE_VERSION.replace(".", "") == version, writer.CODEBASE_VERSION
    FOLDER.mkdir(parents=True, exist_ok=True)
    {"v30": write_v30, "v21": write_v21}[version]()
    write_openpi()


if __name__ == "__main__":
    main()
