"""A dataset with two cameras for chaos trials, and the check of what a worker gets from it.

Each episode of the demonstration dataset gets `place`, the number of the episode and of each row, and two cameras: `obs/top` is
PNG in padded rows, `obs/wrist` is JPEG in rows of variable length. The check reads the files with h5py and Pillow."""
import io
import pathlib
import shutil

import h5py
import numpy as np
from PIL import Image

from datasets import natural
from paths import ROOT

HEIGHT, WIDTH, BLOCK = 48, 64, 8
STREAMS = """\
  place: {path: place, clock: actions, kind: previous}
  obs/top: {path: obs/top, clock: actions, kind: previous, image: {color: rgb, encoding: png}}
  obs/wrist: {path: obs/wrist, clock: actions, kind: previous, image: {color: rgb, encoding: jpeg}}
"""
CAMERAS = ("obs/top", "obs/wrist")
# the outputs of the feed with their steps; beyond the ends of an episode they have its edge and a mask
STEPS = (("obs/top", -1, 0), ("obs/wrist", 0, 0), ("obs/robot0_eef_pos", -1, 0), ("actions", 0, 7))
BEFORE, AFTER = 1, 2
OUTPUTS = """\
      place: {at: 0}
      obs/top: {at: -1..0}
      obs/wrist: {at: 0}
"""


def encode(pixels, form):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form)
    return np.frombuffer(out.getvalue(), np.uint8)


def decode(data):
    return np.asarray(Image.open(io.BytesIO(bytes(data))).convert("RGB"))


def add_cameras(demo, number, rows):
    """Writes the place and the frames of an episode. No two frames are equal."""
    coarse = np.random.default_rng(number).integers(0, 256, (2, rows, HEIGHT // BLOCK, WIDTH // BLOCK, 3), dtype=np.uint8)
    top, wrist = coarse.repeat(BLOCK, axis=2).repeat(BLOCK, axis=3)
    encoded = [encode(frame, "PNG") for frame in top]
    padded = np.zeros((rows, max(map(len, encoded))), np.uint8)
    for row, data in zip(padded, encoded):
        row[:len(data)] = data
    demo["obs/top"] = padded
    frames = demo.create_dataset("obs/wrist", rows, h5py.vlen_dtype(np.uint8))
    for i, frame in enumerate(wrist):
        frames[i] = encode(frame, "JPEG")
    demo["place"] = np.stack([np.full(rows, number), np.arange(rows)], axis=1).astype(np.float32)


def make_image_files(path, folder):
    """Copies the demonstration dataset to the folder and adds cameras. Returns the paths of the copy and of its layout."""
    copy, layout = pathlib.Path(folder) / "chaos.hdf5", pathlib.Path(folder) / "chaos.yaml"
    shutil.copy(path, copy)
    with h5py.File(copy, "r+") as file:
        for number, name in enumerate(sorted(file["data"], key=natural)):
            add_cameras(file["data"][name], number, len(file["data"][name]["actions"]))
    layout.write_text((ROOT / "configs/layouts/demo.yaml").read_text() + STREAMS)
    return copy, layout


class Checker:
    """Compares the windows of batches with the file."""

    def __init__(self, path):
        self.file = h5py.File(path, "r")
        self.demos = [self.file["data"][name] for name in sorted(self.file["data"], key=natural)]

    def check(self, arrays):
        """Returns the place of each window, and a line for each output that differs from the file."""
        places, faults = [tuple(map(int, place)) for place in arrays["place"][:, 0]], []
        for w, (number, row) in enumerate(places):
            demo = self.demos[number]
            for name, first, last in STEPS:
                steps = np.arange(row + first, row + last + 1)
                rows = np.clip(steps, 0, len(demo["actions"]) - 1)
                expected = np.stack([decode(demo[name][i]) if name in CAMERAS else demo[name][i].astype(np.float32) for i in rows])
                mask = np.where(steps < rows, BEFORE, np.where(steps > rows, AFTER, 0))
                if not (np.array_equal(arrays[name][w], expected) and np.array_equal(arrays[f"{name}.mask"][w], mask)):
                    faults.append(f"{name} is not that of row {row} of episode {number}")
        return places, faults
