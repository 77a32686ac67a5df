"""T6 frames: LeRobot v3.0 sets with video whose tables are off, as they are found in the field, and which frames arrive.

Each frame shows its episode and its number in it as bars, so a frame of another moment is recognised."""
import json

import numpy as np

from .formulas import STAMP_UNIT, draw_stamp, read_stamp

LENGTHS, FPS, KEY = (20, 25, 15, 20), 30, "observation.images.top"
CASES = {
    "clean": {},
    "from_timestamp 4 ms late per episode": {"late": 0.004},  # a running sum of container durations: lerobot#3177
    "from_timestamp a frame late per episode": {"late": 1 / FPS},
    "merged files, times go on in the second": {"files": 2, "goes_on": True},  # lerobot#2627
    "merged files": {"files": 2},
    "B frames": {"b_frames": 2},
}
BAR = 8
FEATURES = {KEY: {"dtype": "video", "shape": [8 * BAR, 12 * BAR, 3], "names": ["height", "width", "channels"]},
            "action": {"dtype": "float32", "shape": [1], "names": None}}
STEPS = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}


def numbers(episode):
    return episode * 1000 + np.arange(LENGTHS[episode])


def write_video(path, episodes, b_frames):
    import av
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 12 * BAR, 8 * BAR, "yuv420p"
        stream.options = {"crf": "18", "g": "10", "bf": str(b_frames)}
        for number in np.concatenate([numbers(episode) for episode in episodes]):
            for packet in stream.encode(av.VideoFrame.from_ndarray(draw_stamp([number * STAMP_UNIT], BAR)[0], "rgb24")):
                file.mux(packet)
        for packet in stream.encode():
            file.mux(packet)


def write_set(folder, late=0.0, files=1, goes_on=False, b_frames=0):
    """Writes a LeRobot set. `late`: seconds that from_timestamp is off by, more with each episode."""
    import pandas
    count = len(LENGTHS)
    ends = np.cumsum(LENGTHS)
    steps = {name: {"dtype": kind, "shape": [1], "names": None} for name, kind in STEPS.items()}
    file_of = [episode * files // count for episode in range(count)]
    info = {"codebase_version": "v3.0", "fps": FPS, "features": {**FEATURES, **steps}, "total_episodes": count, "robot_type": "none",
            "total_frames": int(ends[-1]), "total_tasks": 1, "chunks_size": 1000, "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200, "splits": {"train": f"0:{count}"},
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"}
    for path in ("meta/episodes/chunk-000", "data/chunk-000"):
        (folder / path).mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info))
    pandas.DataFrame({"task_index": [0]}, index=["none"]).to_parquet(folder / "meta/tasks.parquet")
    rows, table = [], []
    for episode, length in enumerate(LENGTHS):
        before = sum(LENGTHS[other] for other in range(episode) if goes_on or file_of[other] == file_of[episode])
        start = before / FPS + late * episode
        rows.append({"episode_index": episode, "tasks": ["none"], "length": length, "data/chunk_index": 0, "data/file_index": 0,
                     "dataset_from_index": int(ends[episode] - length), "dataset_to_index": int(ends[episode]),
                     f"videos/{KEY}/chunk_index": 0, f"videos/{KEY}/file_index": file_of[episode],
                     f"videos/{KEY}/from_timestamp": start, f"videos/{KEY}/to_timestamp": start + length / FPS,
                     "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        frame = np.arange(length)
        table.append(pandas.DataFrame({
            "action": frame.astype(np.float32), "timestamp": (frame / FPS).astype(np.float32), "frame_index": frame,
            "episode_index": episode, "index": ends[episode] - length + frame, "task_index": 0}))
    pandas.DataFrame(rows).to_parquet(folder / "meta/episodes/chunk-000/file-000.parquet")
    pandas.concat(table).to_parquet(folder / "data/chunk-000/file-000.parquet", index=False)
    for file in range(files):
        write_video(folder / f"videos/{KEY}/chunk-000/file-{file:03d}.mp4", [e for e in range(count) if file_of[e] == file], b_frames)


def score(delivered):
    """Returns how many frames came, how many of them are of another moment, and how many were refused with an error.

    `delivered` yields (episode, number, image or None), None where the loader says that it has no such frame."""
    wrong = errors = count = 0
    for episode, number, image in delivered:
        if image is None:
            errors += 1
        else:
            count += 1
            shown = round(float(read_stamp(np.asarray(image)[None])[0, 0]) * 1e6 / STAMP_UNIT)
            wrong += shown != episode * 1000 + number
    return {"wrong": wrong, "frames": count, "refused": errors, "silent": sum(LENGTHS) - count - errors}


def frames(run):
    """Yields (case, score) of T6, of loaders that read video."""
    for case, faults in CASES.items():
        driver = run.make()
        write_set(driver.folder / "video", **faults)
        try:
            yield case, score(driver.frames(driver.folder / "video"))
        finally:
            driver.close()
