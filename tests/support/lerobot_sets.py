"""Small LeRobot data sets, written with pyarrow alone: v3.0, v2.1 and v2.0."""
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

TASKS = ("pick the cube", "open the drawer")
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": [3], "names": ["x", "y", "z"]},
    "observation.gripper": {"dtype": "float32", "shape": [1], "names": None},
    "observation.matrix": {"dtype": "float64", "shape": [2, 3], "names": None},
    "observation.note": {"dtype": "string", "shape": [1], "names": None},
    "observation.images.top": {"dtype": "image", "shape": [8, 12, 3], "names": ["height", "width", "channel"]},
    "action": {"dtype": "float32", "shape": [2], "names": ["left", "right"]},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
}
STEPS = {name: {"dtype": "float32" if name == "timestamp" else "int64", "shape": [1], "names": None}
         for name in ("timestamp", "frame_index", "episode_index", "index", "task_index")}


def png(row):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 12, 3), row % 256, np.uint8)).save(file, "PNG")
    return file.getvalue()


def values(number, length):
    """Returns what an episode's numeric features hold."""
    rows = np.arange(length) + 100 * number
    return {"observation.state": np.stack([rows, rows + 0.25, rows + 0.5], 1).astype(np.float32),
            "observation.gripper": (rows / 7).astype(np.float32)[:, None],
            "observation.matrix": (rows[:, None, None] + np.arange(6).reshape(2, 3)).astype(float),
            "action": np.stack([rows * 2, -rows], 1).astype(np.float32),
            "next.done": (np.arange(length) == length - 1)[:, None]}


def table(number, length, fps=10, task=None, features=FEATURES, first=0):
    held = values(number, length)
    columns = {name: pa.array(held[name][:, 0] if held[name].shape[1:] == (1,) else held[name].tolist(),
                              pa.bool_() if name == "next.done" else
                              pa.float32() if held[name].shape[1:] == (1,) else
                              pa.list_(pa.list_(pa.float64())) if held[name].ndim == 3 else
                              pa.list_(pa.float32(), held[name].shape[1]))
               for name in held if name in features}
    if "observation.images.top" in features:
        columns["observation.images.top"] = pa.array([{"bytes": png(row), "path": f"{row}.png"} for row in range(length)],
                                                     pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    if "observation.note" in features:
        columns["observation.note"] = pa.array(["x"] * length)
    frames = np.arange(length)
    columns.update(timestamp=pa.array((frames / fps).astype(np.float32)), frame_index=frames,
                   episode_index=np.full(length, number), index=first + frames,
                   task_index=np.full(length, number % 2) if task is None else np.asarray(task))
    return pa.table(columns)


def info(version, fps=10, features=FEATURES, **more):
    paths = ({"data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
              "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"} if version == "v3.0" else
             {"data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
              "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"})
    return {"codebase_version": version, "fps": fps, "chunks_size": 1000, "robot_type": "toy", **paths,
            "features": {**features, **STEPS}, **more}


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_table(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path)


def make_v3(folder, lengths=(5, 7, 4), fps=10, features=FEATURES, videos=None, tables=None, **more):
    """Writes a v3.0 set. `videos`: by camera, for each episode (chunk, file, from_timestamp)."""
    write_json(folder / "meta/info.json", info("v3.0", fps, features, **more))
    write_table(folder / "meta/tasks.parquet", pa.table({"task_index": [0, 1], "__index_level_0__": list(TASKS)}))
    tables = tables or [table(number, length, fps, features=features) for number, length in enumerate(lengths)]
    half = (len(lengths) + 1) // 2  # the episodes are in two files
    for file, part in enumerate((tables[:half], tables[half:])):
        if part:
            write_table(folder / f"data/chunk-000/file-{file:03d}.parquet", pa.concat_tables(part))
    rows = {"episode_index": list(range(len(lengths))), "length": list(lengths),
            "tasks": [[TASKS[number % 2]] for number in range(len(lengths))], "data/chunk_index": [0] * len(lengths),
            "data/file_index": [int(number >= half) for number in range(len(lengths))]}
    for key, places in (videos or {}).items():
        for column, name in enumerate(("chunk_index", "file_index", "from_timestamp")):
            rows[f"videos/{key}/{name}"] = [place[column] for place in places]
    write_table(folder / "meta/episodes/chunk-000/file-000.parquet", pa.table(rows))
    return folder


def make_v2(folder, version="v2.1", lengths=(5, 7, 4), fps=10, features=FEATURES, **more):
    write_json(folder / "meta/info.json", info(version, fps, features, **more))
    lines = {"tasks": [{"task_index": index, "task": task} for index, task in enumerate(TASKS)],
             "episodes": [{"episode_index": number, "tasks": [TASKS[number % 2]], "length": length}
                          for number, length in enumerate(lengths)]}
    for name, entries in lines.items():
        (folder / f"meta/{name}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    for number, length in enumerate(lengths):
        write_table(folder / f"data/chunk-000/episode_{number:06d}.parquet", table(number, length, fps, features=features))
    return folder
