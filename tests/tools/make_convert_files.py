"""Writes small HDF5 files and layouts for tests of whole conversions: FOLDER/NAME.hdf5 and FOLDER/NAME.yaml.

usage: make_convert_files.py FOLDER"""

import json
import pathlib
import sys

import h5py
import numpy as np

FOLDER = pathlib.Path(sys.argv[1])
LAB = """layout: lab
episodes: {files: "*.hdf5", groups: /runs/ep_*}
tables: [calibration/camera_*]
clocks:
  arm: {path: t/arm, unit: ms, repeated: keep_last, backward: drop, lost_rows: 50%, latency: 3ms}
  cam: {path: t/cam, column: 1, unit: s, offset: 5ms}
  force: {rate: {attribute: "@force_hz"}, start: {path: t/force0, unit: us}}
  base: {rate: {attribute: info@clocks, json: base.hz}, start: {path: t/base0, unit: s}}
streams:
  pos: {path: q, clock: arm, kind: linear, columns: "0:3", max_gap: 90ms}
  heading: {path: q, clock: arm, kind: angle, columns: "3:4", unit: deg}
  quat: {path: q, clock: arm, kind: slerp, order: wxyz, columns: "4:8"}
  rgb: {path: rgb, clock: cam, kind: nearest}
  wrench: {path: wrench, clock: force, kind: mean}
  base: {path: base, clock: base, kind: previous, optional: true}
"""
ONE = """layout: one
episodes: {files: "*.hdf5", groups: /}
clocks: {arm: {path: t, unit: ns}}
streams:
  q: {path: q, clock: arm, kind: linear, max_gap: 90ms}
  jpeg: {path: jpeg, clock: arm, kind: previous, optional: true}
"""

DEEP = """layout: deep
episodes: {files: "*.hdf5", groups: /GROUPS/ep_*}
clocks: {steps: {rate: 20}}
streams:
  q: {path: q, kind: linear}
""".replace("GROUPS", "/".join("d" * 30))

STATES = """layout: states
episodes: {files: "*.hdf5", groups: /ep_*}
clocks: {arm: {path: s, column: 0, unit: ms}}
streams:
  q: {path: s, kind: linear, columns: "1:3"}
"""


def ramp(rows, columns, dtype="f8"):
    return (np.arange(rows)[:, None] * np.arange(1, columns + 1) * 0.5).astype(dtype)


def quaternions(rows):
    angle = np.arange(rows) * 0.1
    return np.stack([0 * angle, 0 * angle, np.sin(angle / 2), np.cos(angle / 2)], axis=1)


def attributes(thing):
    """Adds one attribute of each kind, of which a reference cannot be copied."""
    thing.attrs["text"] = "variable"
    thing.attrs["fixed"] = np.bytes_("fixed")
    thing.attrs["list"] = [1, 2, 3]
    thing.attrs["texts"] = ["a", "bc"]
    thing.attrs["flag"] = True
    thing.attrs["empty"] = h5py.Empty("f4")
    thing.attrs["none"] = np.zeros(0, "i2")
    thing.attrs["pair"] = np.array((1, 2.5), dtype=[("a", "i4"), ("b", "f8")])
    thing.attrs["reference"] = thing.ref


def robo(name, rows, env_args, number=0):
    """Writes a file of layout robomimic, with objects beside the streams."""
    with h5py.File(FOLDER / f"{name}.hdf5", "w") as f:
        for i, count in enumerate(rows, number):
            g = f.create_group(f"data/demo_{i}")
            g.attrs["num_samples"] = count
            g["actions"] = ramp(count, 3) + i
            g["rewards"] = np.arange(count, dtype="f4")
            g["dones"] = (np.arange(count) == count - 1).astype("i1")
            g.create_dataset("obs/eef_pos", data=ramp(count, 3, "f4") - i, chunks=(4, 2), compression="gzip", shuffle=True)
            g["obs/eef_quat"] = quaternions(count)
            g.create_dataset("obs/front_image", data=(np.arange(count * 24) % 251).reshape(count, 4, 2, 3).astype("u1"),
                             chunks=(5, 4, 2, 3), compression="gzip")
            g["obs/grasped"] = np.arange(count) % 3 == 0
            g["obs/half"] = ramp(count, 2, "f2")
            g["obs/nan"] = np.where(np.arange(count) == 4, np.nan, 1.0)
            g["obs/count"] = np.arange(count, dtype="i4") * 10
        attributes(f["data"])
        attributes(f[f"data/demo_{number}"])
        attributes(f[f"data/demo_{number}/actions"])
        attributes(f[f"data/demo_{number}/obs/eef_pos"])
        f["data"].attrs["total"] = sum(rows)
        f["data"].attrs["num_demos"] = len(rows)
        f["data"].attrs["env_args"] = env_args
        f["data/notes"] = "beside the episodes"
        f["about/more/table"] = np.arange(6).reshape(2, 3)
        attributes(f["about/more/table"])
        f["about/again"] = h5py.SoftLink("/about/more")
        f["about/nowhere"] = h5py.SoftLink("/nothing")
        f["about/type"] = np.dtype("i8")
        f["mask/train"] = np.array([f"demo_{number}", f"demo_{number + 1}"], dtype="S")
        f["mask/valid"] = np.array([f"demo_{number + 1}"], dtype="S")


def robo_beside():
    """Writes datasets that no stream names: of the length of the episode, of another, and of no length at all."""
    with h5py.File(FOLDER / "beside.hdf5", "w") as f:
        for i, count in enumerate((12, 14)):
            g = f.create_group(f"data/demo_{i}")
            g["actions"] = ramp(count, 3)
            g["obs/eef_pos"] = ramp(count, 3, "f4")
            g["obs/front_image"] = (np.arange(count * 15) % 251).reshape(count, 1, 5, 3).astype("u1")
            g["lengths"] = np.arange(count) + 100
            g["info/last_axis"] = np.arange(2 * count).reshape(2, count)
            g.create_dataset("info/words", data=[f"word {k}" for k in range(count)], dtype=h5py.string_dtype(), chunks=(5,))
            g["info/one_longer"] = np.arange(count + 1)
            g["info/long"] = np.arange(count - 2)
            g["info/short"] = np.arange(3)
            g["info/scalar"] = 2.5
            g["info/damaged"] = h5py.SoftLink("/nothing")
            g.create_dataset("info/packed", data=np.arange(count * 4).reshape(count, 4), chunks=(3, 2), compression="gzip")
            g["info/deep/er"] = np.arange(2)
            attributes(g["lengths"])
            attributes(g["info"])
        f["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 20}})


def robo_unclear():
    """Writes datasets that no stream names and whose rows cannot be found, and groups that are nested too deep."""
    for name, shapes in (("square", [(12, 12)]), ("sometimes", [(12, 2), (5, 2)]), ("other_axis", [(12, 2), (2, 12)]), ("nested", [(3,)])):
        with h5py.File(FOLDER / f"{name}.hdf5", "w") as f:
            for i, shape in enumerate(shapes):
                f[f"data/demo_{i}/actions"] = ramp(12, 3)
                f[f"data/demo_{i}/beside"] = np.zeros(shape)
            if name == "nested":
                f["data/demo_0/" + "/".join("g" * 40) + "/deep"] = 1
            f["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 20}})
    (FOLDER / "deep.yaml").write_text(DEEP)
    with h5py.File(FOLDER / "deep.hdf5", "w") as f:
        f["/".join("d" * 30) + "/ep_0/q"] = ramp(9, 2)
        f["/".join("d" * 30) + "/beside"] = 1


def lab():
    """Writes stamped and regular clocks in one file: two episodes, of which one has a gap and rows that its clock drops."""
    (FOLDER / "lab.yaml").write_text(LAB)
    with h5py.File(FOLDER / "lab.hdf5", "w") as f:
        for e in range(2):
            g = f.create_group(f"runs/ep_{e}")
            stamps = np.arange(20) * 30.0 + 1000.0
            if e:
                stamps[10:] += 200                                                          # a gap of 230 ms
                stamps[5] = stamps[4]
                stamps[15] = stamps[13]
            g["t/arm"] = stamps.astype("f8" if e else "i8")
            g["q"] = np.concatenate([ramp(20, 3), np.arange(20)[:, None] * 40.0 % 360, quaternions(20)[:, [3, 0, 1, 2]],
                                     np.full((20, 1), 7.0)], axis=1)
            g["q"][2, 8] = np.nan                                                           # in a column that no stream has
            g["t/cam"] = np.stack([np.zeros(9), np.arange(9) * 0.1 + 0.99], axis=1)
            g["rgb"] = np.arange(9 * 12).reshape(9, 2, 2, 3).astype("u1")
            g["frame_numbers"] = np.arange(9) * 10                                          # a number for each image
            g["t/force0"] = np.int64(1_001_000 + 7 * e)
            g["wrench"] = ramp(900, 2, "f4")
            g.attrs["force_hz"] = 1000.0
            g["t/base0"] = np.array([0.995])
            g["t/base0"].attrs["unit"] = "s"
            g["base"] = ramp(40, 1)[:, 0]
            g.create_group("info").attrs["clocks"] = np.bytes_(json.dumps({"base": {"hz": 50}, "more": [1, "x"]}))
            g["calibration/camera_front"] = np.arange(20.0)                                 # as long as the arm by coincidence


def states():
    """Writes stamps in a column beside the values, as numbers of floating point and as integers."""
    (FOLDER / "states.yaml").write_text(STATES)
    for name, kind in (("states", "f8"), ("whole_states", "i4")):
        with h5py.File(FOLDER / f"{name}.hdf5", "w") as f:
            f["ep_0/s"] = np.concatenate([np.arange(10)[:, None] * 20, ramp(10, 2) * 2], axis=1).astype(kind)


def one():
    """Writes one episode a file, with gaps: each of its parts becomes a file."""
    (FOLDER / "one.yaml").write_text(ONE)
    with h5py.File(FOLDER / "one.hdf5", "w") as f:
        stamps = np.arange(24) * 20_000_000
        stamps[8:] += 500_000_000
        stamps[20:] += 300_000_000
        f["t"] = stamps
        f["q"] = ramp(24, 2)
        f["jpeg"] = (np.arange(24 * 7) % 251).reshape(24, 7).astype("u1")
        f["lengths"] = np.arange(24) % 7
        f["about"] = "a text"
        attributes(f["q"])
        f.attrs["by"] = "a robot"
    with h5py.File(FOLDER / "plain.hdf5", "w") as f:
        f["t"] = np.arange(10) * 20_000_000
        f["q"] = ramp(10, 2)


def long():
    """Writes many episodes of many segments."""
    with h5py.File(FOLDER / "long.hdf5", "w") as f:
        for i in range(70):
            f[f"data/demo_{i}/actions"] = ramp(300 if i else 90000, 2, "f4")
            f[f"data/demo_{i}/obs/eef_pos"] = ramp(300 if i else 90000, 3, "f4")
        f["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 20}})


(FOLDER / "out").mkdir()
robo("first", (12, 9, 15), json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20, "x": [1, {"y": 2}]}}))
robo("second", (11, 8), json.dumps({"env_name": "Stack", "env_kwargs": {"control_freq": 20}}), number=1)
robo("assumed", (10, 10), np.bytes_(json.dumps({"env_name": "Lift"})))
robo_beside()
robo_unclear()
lab()
states()
one()
long()
