"""Writes one small HDF5 file for each property that an index must keep, quarantine or reject.

usage: make_index_files.py FOLDER [bench]

With `bench` it writes FOLDER/large.hdf5 (200 episodes) and FOLDER/small/ (10,000 files of 50 datasets) instead."""

import json
import os
import sys

import h5py
import numpy as np

FOLDER = sys.argv[1]
RNG = np.random.default_rng(7)
T = 40


def new(name, **kwargs):
    return h5py.File(os.path.join(FOLDER, name + ".hdf5"), "w", **kwargs)


def demo(file, number, rows=T, **kwargs):
    """Writes one robomimic episode."""
    group = file.create_group(f"data/demo_{number}")
    group.attrs["num_samples"] = rows
    group.create_dataset("actions", data=RNG.uniform(-1, 1, (rows, 7)), **kwargs)
    group.create_dataset("obs/robot0_eef_pos", data=RNG.normal(size=(rows, 3)), **kwargs)
    quat = RNG.normal(size=(rows, 4))
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    group.create_dataset("obs/robot0_eef_quat", data=quat, **kwargs)
    return group


def robomimic():
    with new("good") as f:
        for i in (0, 1, 2, 9, 10, 14):
            demo(f, i, rows=T + i)
        f["data"].attrs["env_args"] = json.dumps({"env_name": "Lift \"x\" {", "l": [1, {"a": 2}],
                                                  "env_kwargs": {"x": None, "control_freq": 25}})
        f["mask/train"] = np.array(["demo_10", "demo_2", "demo_0"], dtype="S")
        f.create_dataset("mask/valid", data=["demo_9", "demo_77"], dtype=h5py.string_dtype())
        f["data/demo_9/obs/agentview_image"] = RNG.integers(0, 255, (T + 9, 8, 8, 3), dtype=np.uint8)
        f["data/demo_9/obs/camera_rgb"] = RNG.integers(0, 255, (T + 9, 8, 8, 3), dtype=np.uint8)
        f["data/demo_9/obs/grasped"] = np.ones(T + 9, dtype=bool)
    with new("storage") as f:
        demo(f, 1, compression="gzip", shuffle=True, fletcher32=True)
        demo(f, 2, compression="gzip", chunks=True)
        demo(f, 3, compression="lzf")
        g = demo(f, 4)
        g["obs/half"] = RNG.normal(size=(T, 5)).astype(np.float16)
        g["obs/flat"] = RNG.normal(size=T).astype(np.float32)
        g.create_dataset("rewards", (T,), dtype="f8")                                       # never written
        holes = g.create_dataset("obs/holes", (T, 4), dtype="f4", chunks=(8, 3), fillvalue=2.5)
        holes[8:16] = 1.0
        space = h5py.h5s.create_simple((T, 2))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        compact = h5py.h5d.create(g.id, b"obs/compact", h5py.h5t.IEEE_F32LE, space, plist)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(2 * T, dtype="f4").reshape(T, 2))
    with new("user_block_contiguous", userblock_size=1024) as f:
        demo(f, 0)
    with new("user_block_chunks", userblock_size=1024) as f:
        demo(f, 0, chunks=True)
    with new("missing_dataset") as f:
        del demo(f, 0)["actions"]
        demo(f, 1)
    with new("unequal") as f:                                                               # T+1 and shorter, regular clock
        g = demo(f, 0)
        g["obs/longer"] = RNG.normal(size=(T + 1, 2))
        g["obs/shorter"] = RNG.normal(size=(T - 5, 2))
    with new("no_rows") as f:
        demo(f, 0, rows=0)
        demo(f, 1, rows=1)
    with new("zero_width") as f:
        demo(f, 0)["obs/left_dpos"] = np.zeros((T, 0))
    with new("other_shape") as f:
        demo(f, 0)
        g = demo(f, 1)
        del g["obs/robot0_eef_pos"]
        g["obs/robot0_eef_pos"] = RNG.normal(size=(T, 2))
        g = demo(f, 2)
        del g["actions"]
        g["actions"] = RNG.normal(size=(T, 7)).astype("f4")
    with new("odd_quat") as f:
        g = demo(f, 0)
        g["obs/bad_quat"] = RNG.normal(size=(T, 3))
        demo(f, 1)
    with new("states_group") as f:
        demo(f, 0)["states/robot"] = np.zeros((T, 3))
    with new("no_demos") as f:
        f.create_group("data")
    for name, rate in (("resampled", "25/2"), ("resampled_badly", "soon")):
        with new(name) as f:
            demo(f, 0)
            f["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 25}})
            f.attrs["trajd_resample"] = json.dumps({"by": "trajd", "rate": rate})
    with new("bad_rate") as f:
        demo(f, 0)
        f["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": "fast"}})


def refused_types():
    def one(name, write):
        with new(name) as f:
            g = demo(f, 0)
            del g["actions"]
            write(g)
            demo(f, 1)

    one("type_big_endian", lambda g: g.create_dataset("actions", data=np.zeros((T, 7), ">f8")))
    one("type_compound", lambda g: g.create_dataset("actions", data=np.zeros(T, dtype=[("a", "f4")])))
    one("type_vlen", lambda g: g.create_dataset("actions", (T,), dtype=h5py.vlen_dtype(np.uint8)))
    one("type_vlen_string", lambda g: g.create_dataset("actions", (T,), dtype=h5py.string_dtype()))
    one("type_string", lambda g: g.create_dataset("actions", data=np.array([b"x"] * T)))
    one("type_complex", lambda g: g.create_dataset("actions", (T,), dtype="c8"))
    one("scalar", lambda g: g.create_dataset("actions", data=3.0))
    one("null", lambda g: g.create_dataset("actions", data=h5py.Empty("f8")))
    one("filter_scaleoffset", lambda g: g.create_dataset("actions", data=np.zeros((T, 7), "i4"), scaleoffset=4))
    one("rank_seven", lambda g: g.create_dataset("actions", data=np.zeros((T, 1, 1, 1, 1, 1, 1))))

    def external(g):
        g.create_dataset("actions", (T, 7), dtype="f8", external=[("/etc/passwd", 0, T * 56)])

    def virtual(g):
        layout = h5py.VirtualLayout((T, 7), dtype="f8")
        layout[:] = h5py.VirtualSource("good.hdf5", "data/demo_0/actions", (T, 7))
        g.create_virtual_dataset("actions", layout)

    def link(g):
        g["actions"] = h5py.ExternalLink("good.hdf5", "/data/demo_0/actions")

    def dangling(g):
        g["actions"] = h5py.SoftLink("/nowhere")

    one("external_storage", external)
    one("virtual", virtual)
    one("external_link", link)
    one("dangling_link", dangling)
    one("huge_row", lambda g: g.create_dataset("actions", (2, 200_000_000), dtype="f4"))  # not written: it takes no space
    with new("linked_groups") as f:
        demo(f, 0)
        f["data/demo_1"] = h5py.ExternalLink("good.hdf5", "/data/demo_0")
        f["data/demo_2"] = h5py.SoftLink("/nowhere")
    with new("only_linked_groups") as f:
        f["data/demo_0"] = h5py.ExternalLink("good.hdf5", "/data/demo_0")
    with new("linked_data") as f:
        f["data"] = h5py.ExternalLink("good.hdf5", "/data")
    one("soft_link", lambda g: g.__setitem__("actions", h5py.SoftLink("/data/demo_1/actions")))
    with new("family_vlen") as f:
        demo(f, 0).create_dataset("obs/language", (T,), dtype=h5py.string_dtype())


def damaged():
    with new("truncated") as f:
        demo(f, 0, rows=400)
    path = os.path.join(FOLDER, "truncated.hdf5")
    os.truncate(path, os.path.getsize(path) // 2)
    open(os.path.join(FOLDER, "empty.hdf5"), "w").close()
    with open(os.path.join(FOLDER, "text.hdf5"), "w") as f:
        f.write("this is not an HDF5 file\n" * 100)
    # Writes an offset far beyond the end of the file in place of the data's: the 8 bytes of the offset h5py reports.
    with new("offset_beyond") as f:
        offset = demo(f, 0)["actions"].id.get_offset()
        demo(f, 1)
    path = os.path.join(FOLDER, "offset_beyond.hdf5")
    data = open(path, "rb").read()
    size = (T * 7 * 8).to_bytes(8, "little")
    needle = offset.to_bytes(8, "little") + size
    assert data.count(needle) == 1
    with open(path, "wb") as f:
        f.write(data.replace(needle, (1 << 40).to_bytes(8, "little") + size))
    with new("bad_chunk") as f:
        dataset = demo(f, 0, compression="gzip")["actions"]
        chunk = dataset.id.get_chunk_info(0)
        demo(f, 1)
    with open(os.path.join(FOLDER, "bad_chunk.hdf5"), "r+b") as f:
        f.seek(chunk.byte_offset + 4)
        f.write(b"\xff" * 16)
    with new("many_chunks") as f:
        demo(f, 1)
        f.create_dataset("data/demo_0/actions", (5_000_000, 7), "f8", chunks=(1, 7))
    # Damages the list of an array's chunks, which is the only tree of type 1 in the file.
    with new("bad_chunk_list") as f:
        demo(f, 0, compression="gzip")
        demo(f, 1)
    path = os.path.join(FOLDER, "bad_chunk_list.hdf5")
    data = open(path, "rb").read()
    assert b"TREE\1" in data
    with open(path, "wb") as f:
        f.write(data.replace(b"TREE\1", b"TRXX\1"))


def stamped():
    """Writes robosuite_raw files, whose clock is column 0 of `states`, and a layout of its own for the properties
    that robosuite_raw lacks."""
    def one(name, stamps, **extra):
        with new("raw_" + name) as f:
            g = f.create_group("data/demo_1")
            states = RNG.normal(size=(len(stamps), 5))
            states[:, 0] = stamps
            g["states"] = states
            for key, value in extra.items():
                g[key] = value
            g = f.create_group("data/demo_2")
            g["states"] = np.stack([np.arange(T) * 0.05, np.zeros(T)] + [np.ones(T)] * 3, axis=1)

    even = np.arange(T) * 0.05
    one("even", even, right_dpos=np.zeros((T, 3)), left_dpos=np.zeros((T, 0)))
    one("repeats", np.where(np.arange(T) == 7, even[6], even))
    one("backward", np.where(np.arange(T) == 7, even[4], even))
    one("nan", np.where(np.arange(T) == 7, np.nan, even))
    one("infinite", np.where(np.arange(T) == 7, np.inf, even))
    one("longer", even, actions=np.zeros((T + 1, 7)))
    one("much_longer", even, actions=np.zeros((T + 2, 7)))
    with new("raw_many") as f:
        f.create_dataset("data/demo_1/states", (1 << 28, 5), dtype="f8")  # never written
        f["data/demo_2/states"] = np.stack([even] + [np.ones(T)] * 4, axis=1)
    with new("wide_columns") as f:
        for i, width in enumerate((9, 9, 8, 12)):  # all of them have columns 0:6 and 7:8
            f[f"ep_{i}/t/arm"] = np.arange(T) * 2_000_000
            f[f"ep_{i}/q"] = RNG.normal(size=(T, width))
    with new("lab") as f:
        g = f.create_group("ep_1")
        g["t/arm"] = 1_700_000_000_000_000_000 + np.arange(T) * 2_000_000
        g["t/wrist"] = (1_700_000_000_000_010 + np.arange(8) * 33_333).astype("u8")         # us
        g["t/force0"] = np.int64(1_700_000_000_000_004_000)
        g["q"] = RNG.normal(size=(T, 8))
        g["rgb"] = RNG.integers(0, 255, (8, 4, 4, 3), dtype=np.uint8)
        g["wrench"] = RNG.normal(size=(100, 6))
        g = f.create_group("ep_2")
        g["t/arm"] = np.float32(1_700_000_000) + np.arange(T, dtype="f4") * np.float32(0.002)  # one value
        g["q"] = RNG.normal(size=(T, 8))


def texts():
    """Writes texts that `meta:` finds, and texts that it cannot read."""
    with new("texts") as f:
        f["data/title"] = "kitchen"
        f["data"].attrs["problem_info"] = json.dumps({
            "language_instruction": "put \"the\" bl\u00e4ck\tbowl\n\U0001f600 there\\/", "count": 12, "no": None,
            "deep": {"x": ["not a text"], "y": "\\u00e4"}, "bell": "a\u0007b"})
        f.attrs["by"] = np.bytes_("a robot")
        f.attrs["speed"] = np.bytes_(b"\x1ffast\n\x01 or\x7f ~")
        g = demo(f, 0)
        g.attrs["task"] = "lift"
        g.attrs["whole"] = np.int64(-3)
        g.attrs["fraction"] = 0.1
        g.attrs["list"] = [1, 2, 3]
        g.attrs["yes"] = True
        g["words"] = "a dataset of one text"
        g.attrs["json"] = '{"broken": "\\u12, \\ud83d\\ude00 \\ud83d \\u0000 \\q \\u"}'
        g = demo(f, 1)
        g.attrs["task"] = "x" * 4097
        g["words"] = h5py.ExternalLink("good.hdf5", "/data/demo_0/actions")
        g.attrs.create("list", np.bytes_(["one"]))
        g.attrs["whole"] = ""


def aloha():
    with h5py.File(os.path.join(FOLDER, "episode_0.hdf5"), "w") as f:
        f.attrs["sim"] = True
        f["action"] = np.zeros((T, 14), "f4")
        f["observations/qpos"] = np.zeros((T, 14), "f4")
        f.create_dataset("observations/images/cam_high", data=RNG.integers(0, 255, (T, 12, 16, 3), dtype=np.uint8),
                         chunks=(1, 12, 16, 3))


def padded():
    """Writes ALOHA episodes as the compressed recorder does: each image is a row of JPEG bytes, padded to the longest
    one of its episode. One episode also has another number of joints."""
    os.makedirs(os.path.join(FOLDER, "padded"), exist_ok=True)
    for i, (high, low) in enumerate(((7, 5), (9, 6), (9, 6), (8, 5), (9, 6))):
        with new(f"padded/episode_{i}") as f:
            f["action"] = np.zeros((T, 13 if i == 1 else 14), "f4")
            f["observations/qpos"] = np.zeros((T, 14), "f4")
            f["observations/images/cam_high"] = np.zeros((T, high), "u1")
            f["observations/images/cam_low"] = np.zeros((T, low), "u1")


def slow():
    """Writes files to interrupt: libhdf5 1.10 needs seconds to list their chunks, and the order of attributes makes a header that
    only libhdf5 can read."""
    for name, rows in (("slow", 30000), ("less_slow", 6000)):
        with new(name) as f:
            g = f.create_group("data/demo_0")
            g["obs/x"] = np.zeros((8, 2))
            g.create_dataset("actions", data=np.zeros((rows, 2)), chunks=(1, 2), track_order=True)


def bench():
    with new("large") as f:
        for i in range(200):
            g = demo(f, i, rows=150)
            for k in range(16):
                g[f"obs/extra_{k}"] = RNG.normal(size=(150, 7))
    os.makedirs(os.path.join(FOLDER, "small"), exist_ok=True)
    with new("small/ep_0") as f:
        g = f.create_group("data/demo_0")
        for k in range(49):
            g[f"obs/x_{k}"] = RNG.normal(size=(30, 7))
        g["actions"] = RNG.normal(size=(30, 7))
    data = open(os.path.join(FOLDER, "small/ep_0.hdf5"), "rb").read()
    for i in range(1, 10000):
        with open(os.path.join(FOLDER, f"small/ep_{i}.hdf5"), "wb") as f:
            f.write(data)


if len(sys.argv) > 2:
    bench()
else:
    for write in (robomimic, refused_types, damaged, stamped, texts, aloha, padded, slow):
        write()
