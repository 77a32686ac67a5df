"""The datasets of `make bench-gate`: small, written once, the same bytes every time."""
import hashlib
import io
import pathlib
import shutil

import h5py
import numpy as np

import part_resample
import part_targets
from bench_daemon import demo_dataset

FRAMES, SOURCES, HEIGHT, WIDTH = 320, 16, 480, 640
# episodes, rows of each, streams
CONVERSIONS = {"short": (30, 50, part_resample.small), "long": (1, 30_000, part_resample.small),
               "images": (2, 80, part_resample.images)}
FILES = 24


def jpeg_frames():
    from PIL import Image
    random, (y, x) = np.random.default_rng(8), np.mgrid[:HEIGHT, :WIDTH]
    for k in range(SOURCES):
        values = 127 + 50 * np.sin(x / 17 + k) + 40 * np.cos(y / (11 + k))
        pixels = values[..., None] + [0, 20, -30] + random.normal(0, 4, (HEIGHT, WIDTH, 3))
        memory = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(memory, "JPEG", quality=80)
        yield np.frombuffer(memory.getvalue(), np.uint8)


# A layout of its own, which every version of trajd reads alike: later ones do not guess the colours of shipped layouts.
CAMERA = """layout: camera
version: 1
episodes: {files: "**/episode_*.hdf5", groups: /}
clocks: {steps: {rate: 50}}
streams:
  observations/images/cam: {path: observations/images/cam, kind: previous, image: {color: rgb}}
"""


def write_camera(folder):
    """Writes an episode whose camera has padded JPEG rows, and its layout."""
    folder.mkdir()
    (folder / "camera.yaml").write_text(CAMERA)
    frames = list(jpeg_frames())
    rows = np.zeros((FRAMES, max(map(len, frames))), np.uint8)
    for i, row in enumerate(rows):
        row[:len(frames[i % SOURCES])] = frames[i % SOURCES]
    with h5py.File(folder / "episode_0.hdf5", "w") as file:
        file.create_dataset("observations/images/cam", data=rows, chunks=(1, rows.shape[1]))


def write(folder):
    """Writes what the rows of gate_rows.py read, unless this version of the file has written it."""
    version = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    if (folder / "written").exists() and (folder / "written").read_text() == version:
        return
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "many").mkdir(parents=True)
    demo_dataset(folder)
    part_targets.write_dataset(folder / "pose.hdf5", 20)
    write_camera(folder / "camera")
    for name, case in CONVERSIONS.items():
        part_resample.write_dataset(folder / f"{name}.hdf5", *case)
    for i in range(FILES):
        part_resample.write_dataset(folder / f"many/{i}.hdf5", 2, 50, part_resample.small)
    (folder / "written").write_text(version)
