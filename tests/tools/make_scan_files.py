"""Writes small HDF5 files at the edges of what an index keeps, and their layouts: FOLDER/LAYOUT/NAME.hdf5, FOLDER/LAYOUT.yaml.

usage: make_scan_files.py FOLDER"""

import json
import pathlib
import sys

import h5py
import numpy as np

FOLDER = pathlib.Path(sys.argv[1])
LAYOUTS = {
    "whole": """layout: whole
episodes: {files: "*.hdf5", groups: /}
clocks: {steps: {rate: 20}}
streams:
  a: {path: a, kind: linear, optional: true}
  b: {path: b, kind: linear, optional: true}
  c: {path: c, kind: previous, optional: true}
""",
    "stamped": """layout: stamped
episodes: {files: "*.hdf5", groups: /}
clocks: {arm: {path: t, unit: ms}}
streams:
  a: {path: a, kind: linear}
  b: {path: b, kind: linear, optional: true}
""",
    "groups": """layout: groups
episodes: {files: "*.hdf5", groups: /top/*/ep_?}
filter: /lists/{key}
meta:
  task: {attribute: "@task"}
  more: {attribute: ../@info, json: a.b}
  text: {path: words/text}
clocks:
  steps: {rate: {attribute: "@hz"}}
  fixed: {rate: {attribute: /@rates, json: deep.fixed, default: 30}}
streams:
  a: {path: a, clock: steps, kind: linear}
  "obs/*": {path: obs/*, clock: steps, kind: linear}
  "obs/*_held": {path: obs/*_held, clock: steps, kind: previous}
  "*/quat": {path: "*/quat", clock: fixed, kind: slerp, order: xyzw}
  left: {path: pair, clock: fixed, kind: linear, columns: "0:2", optional: true}
  right: {path: pair, clock: fixed, kind: angle, columns: "2:3", unit: deg, optional: true}
""",
    "rows": """layout: rows
episodes: {files: "*.hdf5", groups: /ep_*}
clocks:
  steps: {rate: {attribute: "@hz"}, rows: a, start: {path: t0, unit: ms}}
  same: {rate: 20, start: {path: t0, unit: ms}}
  arm: {path: t, unit: ms}
  late: {rate: {attribute: "@hz"}, start: {path: t0, unit: ms}}
streams:
  a: {path: a, clock: steps, kind: linear}
  b: {path: b, clock: steps, kind: linear, optional: true}
  c: {path: c, clock: same, kind: linear, optional: true}
  d: {path: d, clock: arm, kind: linear, optional: true}
  e: {path: e, clock: late, kind: linear, optional: true}
""",
    "types": """layout: types
episodes: {files: "*.hdf5", groups: /ep_*}
clocks: {steps: {rate: 20}}
streams:
  a: {path: a, kind: linear}
  "x/*": {path: x/*, kind: previous}
""",
}
for kind in ("flags: [ends, stops]", "lengths: n", "ends: n", "starts: n"):
    LAYOUTS["split_" + kind.split(":")[0]] = f"""layout: split
episodes: {{files: "*.hdf5", groups: /, split: {{{kind}}}}}
clocks: {{steps: {{rate: 20}}}}
streams:
  a: {{path: a, kind: linear}}
  b: {{path: b, kind: linear, optional: true}}
"""
for name, text in LAYOUTS.items():
    (FOLDER / f"{name}.yaml").write_text(text)
    (FOLDER / name).mkdir()


def filled(*shape, dtype="f4"):
    return (np.arange(np.prod(shape)) % 11 / 8).reshape(shape).astype(dtype)


def write(layout, name, arrays):
    with h5py.File(FOLDER / layout / f"{name}.hdf5", "w") as f:
        for path, data in arrays.items():
            f[path] = data


def marked(rows, *places):
    flags = np.zeros(rows)
    flags[list(places)] = 1
    return flags


FORMS = {
    # axis 0 counts episodes
    "stacked": {"a": filled(5, 32, 7), "b": filled(5, 32, 3)},
    "stacked_short": {"a": filled(5, 31, 7), "b": filled(5, 31, 3)},
    "stacked_widest": {"a": filled(5, 32, 64), "b": filled(5, 32)},
    "stacked_too_wide": {"a": filled(5, 32, 65), "b": filled(5, 32)},
    "stacked_once": {"a": filled(5, 32, 7)},
    "stacked_with_image": {"a": filled(5, 32, 7), "c": filled(5, 32, 3, dtype="u1")},
    "stacked_of_others": {"a": filled(5, 32, 7), "b": filled(6, 32, 7)},
    "stacked_of_other_rows": {"a": filled(5, 32, 7), "b": filled(5, 33, 7)},
    "stacked_with_list": {"a": filled(5, 32, 7), "b": filled(5, 32, 3), "c": filled(5)},
    # the time is on the last axis
    "turned": {"a": filled(3, 32), "b": filled(7, 32)},
    "turned_short": {"a": filled(3, 31), "b": filled(7, 31)},
    "turned_square": {"a": filled(32, 32), "b": filled(7, 32)},
    "turned_alike": {"a": filled(16, 65), "b": filled(16, 65)},
    "turned_alike_short": {"a": filled(16, 64), "b": filled(16, 64)},
    "turned_alike_many": {"a": filled(17, 67), "b": filled(17, 67)},
    "turned_alike_less": {"a": filled(17, 68), "b": filled(17, 68)},
    "turned_once": {"a": filled(2, 90)},
    "turned_witness": {"a": filled(3, 9), "b": filled(9)},
    "turned_no_witness": {"a": filled(3, 9), "b": filled(8)},
    "turned_low_witness": {"a": filled(3, 32), "b": filled(3), "c": filled(32)},
    "turned_of_others": {"a": filled(3, 32), "b": filled(7, 33)},
    "empty": {"a": filled(0, 40), "b": filled(3, 40), "c": filled(3, 40)},
    # flags inside the arrays
    "done_last": {"a": filled(40, 3), "dones": marked(40, 39)},
    "done_twice": {"a": filled(40, 3), "dones": marked(40, 20, 39)},
    "done_from_then_on": {"a": filled(40, 3), "done": marked(40, 38, 39)},
    "done_first": {"a": filled(40, 3), "terminated": marked(40, 0)},
    "done_of_others": {"a": filled(40, 3), "truncated": marked(41, 20)},
    "done_late": {"a": filled(5000, 1), "terminations": marked(5000, 4095)},
    "done_later": {"a": filled(5000, 1), "truncations": marked(5000, 4096)},
    "done_column": {"a": filled(40, 3), "terminals": marked(40, 20)[:, None]},
    "done_columns": {"a": filled(40, 3), "timeouts": np.stack([marked(40, 20)] * 2, axis=1)},
    "done_deep": {"a": filled(40, 3), "is_last": marked(40, 20)[:, None, None]},
    "done_bool": {"a": filled(40, 3), "is_last": marked(40, 20).astype(bool)},
    "done_words": {"a": filled(3, 3), "is_last": np.array([b"", b"x", b""])},
    "first_once": {"a": filled(40, 3), "is_first": marked(40, 0)},
    "first_twice": {"a": filled(40, 3), "is_first": marked(40, 0, 39)},
    "label_same": {"a": filled(40, 3), "episode_index": marked(40) + 7},
    "label_other": {"a": filled(40, 3), "episode_id": marked(40, 1)},
    "ends_once": {"a": filled(40, 3), "episode_ends": np.array([40])},
    "ends_twice": {"a": filled(40, 3), "episode_ends": np.array([1, 40])},
    "ends_elsewhere": {"a": filled(40, 3), "meta/episode_ends": np.array([20, 40])},
    "ends_of_others": {"a": filled(40, 3), "meta/episode_ends": np.array([20, 41])},
    "ends_at_zero": {"a": filled(40, 3), "episode_ends": np.array([0, 40])},
    "ends_equal": {"a": filled(40, 3), "episode_ends": np.array([40, 40])},
    "ends_one": {"a": filled(1, 3), "episode_ends": np.array([0.5, 1])},
}
for name, arrays in FORMS.items():
    write("whole", name, arrays)
write("stamped", "stacked", {"t": np.arange(40.0), "a": filled(40, 32, 7), "b": filled(40, 32, 3)})  # stamps count the rows
write("stamped", "turned", {"t": np.arange(3.0), "a": filled(3, 40), "b": filled(3, 40)})
write("stamped", "kinds", {"t": np.arange(5, dtype="u2"), "a": filled(5)})
write("stamped", "of_two_columns", {"t": filled(40, 2), "a": filled(40, 3)})
write("stamped", "of_words", {"t": np.array([b"x"] * 40), "a": filled(40, 3)})
write("stamped", "without", {"a": filled(40, 3)})


def groups():
    """Writes episodes two levels below the root, with rates, texts and lists of each kind."""
    rates = [20, 12.5, "30000/1001", np.bytes_("15"), [20], [20, 30], "fast", 0, -5, None, 1e300, h5py.Empty("f4"), True, "20" * 40]
    with h5py.File(FOLDER / "groups" / "rates.hdf5", "w") as f:
        f.attrs["rates"] = json.dumps({"x": {"fixed": 1}, "deep": {"other": "fixed", "fixed": "25/2"}})
        for i, rate in enumerate(rates):
            g = f.create_group(f"top/{'ab'[i % 2]}/ep_{i:x}")
            g["a"] = np.arange(6.0) + i
            g["obs/p"] = np.arange(12.0).reshape(6, 2)
            g["obs/q_held"] = np.arange(6)
            g["more/quat"] = np.array([[0, 0, 0, 1.0]] * 6)
            g["pair"] = np.arange(18.0).reshape(6, 3)
            if rate is not None:
                g.attrs["hz"] = rate
        f["top/a"].attrs["info"] = json.dumps({"a": {"b": "of a"}})
        f["top/b"].attrs["info"] = json.dumps({"a": {"c": "of b"}})
        f["top/a/ep_0"].attrs["task"] = "lift"
        f["top/a/ep_2"].attrs["task"] = 3
        f["top/b/ep_1/words/text"] = "a text"
        f["top/b/ep_3/words/text"] = 2.5
        f["top/a/no_episode/a"] = np.arange(6.0)
        f["top/ep_1"] = np.arange(3)
        f["top/a/ep_10/a"] = np.arange(6.0)                                                 # two characters
        f["lists/first"] = np.array([b"a/ep_0", b"b/ep_1", b"a/ep_0", b"none"])
        f["lists/second"] = np.array(["b/ep_1", "a/ep_2"], dtype=h5py.string_dtype())
        f["lists/empty"] = np.zeros(0, "S4")
        f["lists/numbers"] = np.arange(3)
        f["lists/group/inside"] = np.array([b"a/ep_4"])
        f["lists/nowhere"] = h5py.SoftLink("/nothing")
    with h5py.File(FOLDER / "groups" / "defaults.hdf5", "w") as f:
        g = f.create_group("top/x/ep_0")
        g["a"], g.attrs["hz"] = np.arange(4.0), 10
        g["x/quat"] = np.array([[0, 0, 0, 1.0]] * 5)                                        # one row more than its clock
        g.create_group("empty")
        g = f.create_group("top/x/ep_1")
        g["a"], g.attrs["hz"] = np.arange(4.0), 10
        g.create_group("obs").attrs["x"] = 1
        g = f.create_group("top/x/ep_2")
        g["a"], g.attrs["hz"] = np.arange(4.0), 10
        g["besides"] = 1
        g = f.create_group("top/x/ep_3")
        g["a"], g.attrs["hz"] = np.arange(4.0), 10
        g["a"].attrs["x"] = 1


def padded_type():
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(24)
    return kind


def types():
    """Writes arrays of each type, storage and filter."""
    numbers = np.arange(60).reshape(12, 5)
    with h5py.File(FOLDER / "types" / "types.hdf5", "w") as f:
        g = f.create_group("ep_0")
        g["a"] = numbers.astype("f8")
        for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"):
            g[f"x/{np.dtype(kind).name}"] = numbers.astype(kind)
        g["x/big"] = numbers.astype(">i4")
        g["x/enum"] = numbers.astype("i1").view(h5py.enum_dtype({"NO": 0, "YES": 1}, "i1"))
        g["x/complex"] = numbers.astype("c8")
        g["x/text"] = np.array([b"ab"] * 12)
        g["x/null"] = h5py.Empty("f4")
        g["x/scalar"] = 1.5
        g["x/rank_six"] = filled(12, 1, 2, 1, 2, 1)
        g["x/rank_seven"] = filled(12, 1, 2, 1, 2, 1, 1)
        g["x/no_columns"] = filled(12, 0)
        g["x/no_rows"] = filled(0, 5)
        space = h5py.h5s.create_simple((12, 5))
        h5py.h5d.create(g["x"].id, b"padded", padded_type(), space).write(h5py.h5s.ALL, h5py.h5s.ALL, numbers.astype("i4"))
        g["x"].create_group("group")
        g["x/link"] = h5py.SoftLink("/ep_0/a")
        g["x/nowhere"] = h5py.SoftLink("/ep_0/nothing")
        g["x/outside"] = h5py.ExternalLink("nowhere.hdf5", "/a")
        g["x/type"] = np.dtype("f4")
        g["x/i8_with_attribute"] = numbers
        g["x/i8_with_attribute"].attrs["unit"] = "m"
    with h5py.File(FOLDER / "types" / "storage.hdf5", "w") as f:
        g = f.create_group("ep_0")
        g["a"] = numbers.astype("f8")
        make = g.create_dataset
        make("x/chunks", data=numbers, chunks=(5, 2))
        make("x/one_chunk", data=numbers, chunks=(12, 5))
        make("x/wide_chunk", data=numbers, chunks=(40, 5), maxshape=(None, 5))
        make("x/grown", (12, 5), "i8", maxshape=(None, None), chunks=(4, 4))[:] = numbers
        make("x/gzip", data=numbers, chunks=(5, 2), compression="gzip")
        make("x/shuffle", data=numbers, chunks=(5, 2), compression="gzip", shuffle=True)
        make("x/check", data=numbers, chunks=(5, 2), compression="gzip", shuffle=True, fletcher32=True)
        make("x/only_check", data=numbers, chunks=(5, 2), fletcher32=True)
        make("x/lzf", data=numbers, chunks=(5, 2), compression="lzf", shuffle=True)
        make("x/offset", data=numbers, chunks=(5, 2), scaleoffset=8)
        make("x/unwritten", (12, 5), "f4")
        make("x/unwritten_chunks", (12, 5), "f4", chunks=(4, 5), fillvalue=2.5)
        make("x/filled", (12, 5), "i4", fillvalue=-3)
        holes = make("x/holes", (12, 5), "i2", chunks=(4, 5), fillvalue=7)
        holes[4:8] = numbers[:4]
        virtual = h5py.VirtualLayout((12, 5), "i8")
        virtual[:] = h5py.VirtualSource(g["x/chunks"])
        g.create_virtual_dataset("x/virtual", virtual)
        make("x/external", (12, 5), "f4", external=[("nowhere.raw", 0, 240)])
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((12, 5))
        h5py.h5d.create(g["x"].id, b"early", h5py.h5t.IEEE_F32LE, space, early)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(g["x"].id, b"compact", h5py.h5t.STD_I64LE, space, compact).write(h5py.h5s.ALL, h5py.h5s.ALL, numbers)
        skipped = make("x/skipped", (12, 5), "i8", chunks=(4, 5), compression="gzip")        # its filter is optional
        skipped[:] = numbers
        skipped.id.write_direct_chunk((0, 0), np.ascontiguousarray(numbers[:4]).tobytes(), filter_mask=1)
    with h5py.File(FOLDER / "types" / "behind.hdf5", "w") as f:
        f["ep_0/a"] = numbers.astype("f8")
        f["ep_1"] = h5py.SoftLink("/ep_0")
        f["ep_2"] = h5py.ExternalLink("types.hdf5", "/ep_0")
        f["ep_3"] = h5py.SoftLink("/nothing")
        f["ep_4"] = np.arange(3)
        f.create_group("ep_5")
        f["ep_6/a/b"] = numbers
        f["ep_7/a"] = np.dtype("f4")


def rows():
    """Writes episodes in which arrays of one clock have different numbers of rows, and clocks different rates."""
    with h5py.File(FOLDER / "rows" / "rows.hdf5", "w") as f:
        for i, hz in enumerate((10, 20, None, 20, 50)):
            g = f.create_group(f"ep_{i}")
            g["a"], g["b"], g["c"] = filled(6 + i), filled((4, 7, 9, 10, 12)[i]), filled(8)
            g["t"] = 1000 + np.arange(5 + i) ** 2
            g["d"] = filled(5 + i)
            g["t0"] = 1003.5 - i
            if i != 1:
                g["e"] = filled(9)
            if hz:
                g.attrs["hz"] = hz


def split():
    """Writes several episodes one after another: at flags, by lengths, ends and starts, good ones and bad ones."""
    numbers = {"one": [12], "three": [4, 3, 5], "empty": [4, 0, 8], "short": [4, 3], "long": [4, 3, 6], "none": [], "half": [4.5, 7.5],
               "negative": [-1, 13], "words": [b"a", b"b"], "table": [[4, 1], [8, 1]], "missing": None}
    for name, lengths in numbers.items():
        arrays = {"a": np.arange(24.0).reshape(12, 2), "b": filled(11 if name == "three" else 12)}
        for kind in ("lengths", "ends", "starts"):
            n = lengths
            if name not in ("words", "table", "missing"):
                n = {"lengths": lengths, "ends": list(np.cumsum(lengths)), "starts": list(np.cumsum([0, *lengths])[:-1])}[kind]
            write(f"split_{kind}", name, arrays if n is None else {**arrays, "n": np.array(n)})
    write("split_ends", "back", {"a": filled(12), "n": np.array([8, 4, 12])})
    write("split_starts", "late", {"a": filled(12), "n": np.array([1, 4])})
    write("split_starts", "beyond", {"a": filled(12), "n": np.array([0, 13])})
    write("split_lengths", "many", {"a": filled(2600), "n": np.full(1300, 2)[:1030]})
    for name, (ends, stops) in {"both": ((3, 11), (7,)), "one": ((11,), ()), "open": ((3,), ()), "none": ((), ()), "each": (range(4), (11,)),
                                "same": ((3, 11), (3,))}.items():
        write("split_flags", name, {"a": filled(12, 2), "ends": marked(12, *ends), "stops": marked(12, *stops)})
    write("split_flags", "unequal", {"a": filled(12, 2), "ends": marked(12, 11), "stops": marked(11, 10)})
    write("split_flags", "missing", {"a": filled(12, 2), "ends": marked(12, 11)})


write("whole", "many_links", {"a": filled(5, 2), **{f"g{i:03}/x": 1 for i in range(150)}})
groups()
rows()
split()
types()
