"""Writes FOLDER/stats.hdf5 and FOLDER/stats.yaml: 20 episodes with streams of each type on three clocks, for statistics.

usage: make_stats_files.py FOLDER"""

import pathlib
import sys

import h5py
import numpy as np

FOLDER = pathlib.Path(sys.argv[1])
LAYOUT = """layout: stats
episodes: {files: "*.hdf5", groups: /ep_*}
filter: /lists/{key}
clocks:
  arm: {path: t, unit: ms, repeated: keep_last, lost_rows: 50%}
  act: {rate: 20, start: {path: t0, unit: ms}}
  cam: {rate: 8, start: {path: t0, unit: ms}}
streams:
  pos: {path: pos, clock: arm, kind: linear, columns: "0:3", max_gap: 120ms}
  heading: {path: pos, clock: arm, kind: angle, columns: "3:4", unit: deg}
  quat: {path: quat, clock: arm, kind: slerp, order: xyzw}
  act: {path: act, clock: act, kind: previous}
  force: {path: force, clock: act, kind: mean}
  count: {path: count, clock: act, kind: previous}
  large: {path: large, clock: act, kind: previous}
  half: {path: half, clock: act, kind: linear}
  grip: {path: grip, clock: act, kind: nearest}
  image: {path: image, clock: cam, kind: previous}
  depth: {path: depth, clock: cam, kind: previous}
  extra: {path: extra, clock: cam, kind: linear, optional: true}
"""


def wave(rows, columns, seed):
    """Numbers that no two columns share and that do not repeat."""
    return (np.arange(rows * columns).reshape(rows, columns) * 0.618 + seed) % 7 * np.arange(1, columns + 1)


(FOLDER / "stats.yaml").write_text(LAYOUT)
with h5py.File(FOLDER / "stats.hdf5", "w") as f:
    for e in range(20):
        g = f.create_group(f"ep_{e}")
        rows = 9 + e * 7 % 13
        stamps = 5000.0 + np.arange(rows) * 50 + np.arange(rows) % 3
        if e % 4 == 1:
            stamps[4] = stamps[3]                                                           # one row of two is kept
        if e % 4 == 2:
            stamps[6:] += 150                                                               # a gap
        g["t"], g["t0"] = stamps, 5000.0 + 20 * (e % 3)
        g["pos"] = wave(rows, 4, e)
        if e % 5 == 3:
            g["pos"][5, 1], g["pos"][2, 2], g["pos"][3, 2] = np.nan, np.inf, -np.inf
        angle = np.arange(rows) * 0.2 + e
        g["quat"] = np.round(np.stack([0 * angle, np.sin(angle / 2), 0 * angle, np.cos(angle / 2)], axis=1), 6)
        g["act"] = wave(rows, 2, e + 0.25).astype("f4")
        g["force"] = wave(rows, 3, 2 * e).astype("f4") - 8
        g["count"] = (np.arange(rows) + 100 * e).astype("i4") - 700
        g["large"] = (1 << 60) + np.arange(rows)[:, None] * [[1, 1 << 40]] - e
        g["half"] = wave(rows, 2, e).astype("f2")
        g["grip"] = (np.arange(rows) * 37 + e).astype("u1")
        frames = rows * 8 // 20 + 2
        g["image"] = (np.arange(frames * 12) * 13 + e).reshape(frames, 2, 2, 3).astype("u1")
        g["depth"] = (np.arange(frames * 12) * 5 + e).reshape(frames, 3, 4).astype("u1")
        if e % 3:
            g["extra"] = wave(frames, 1, e)[:, 0]
    f["lists/some"] = np.array([f"ep_{e}" for e in (1, 2, 3, 5, 8, 13)], dtype="S")
