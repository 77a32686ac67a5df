"""Writes HDF5 files with frames in every form that trajd reads, and beside each what h5py reads from it.

usage: make_frame_files.py FOLDER [--shared FOLDER]

FOLDER/frames.txt has a line for each file: its name, its layout, and the name of a file with the rows that h5py reads:
for each stream u32 length, name, u64 rows, and for each row u64 length, bytes. With --shared, files of the folder that
the public recorders' own calls wrote are listed as well, by their absolute paths."""
import argparse
import pathlib
import struct
import zlib

import h5py
import numpy as np

RNG = np.random.default_rng(16)
LAYOUT = """\
layout: {name}
episodes: {{files: "*", groups: {groups}}}
clocks: {{robot: {{rate: 30}}}}
streams:
{streams}"""
LAYOUTS = {
    "frames": ("/", ['"cams/*": {path: cams/*, kind: previous, image: {color: rgb}}',
                     '"grays/*": {path: grays/*, kind: previous, image: {color: gray, size: [24, 32]}}',
                     '"sized/*": {path: sized/*, kind: previous, image: {color: rgb, size: [24, 32]}}',
                     '"depth/*": {path: depth/*, kind: previous, image: {unit: mm, size: [24, 32]}}',
                     "phase: {kind: previous, optional: true}", "state: {kind: linear}"]),
    "aloha_frames": ("/", ['"cams/*": {path: observations/images/*, kind: previous, image: {color: rgb}}',
                           "action: {kind: previous}"]),
    "robotwin_frames": ("/", ['"cams/*": {path: observation/*/rgb, kind: previous, image: {color: bgr}}']),
    "robomind_frames": ("/", ['"rgb/*": {path: observations/rgb_images/*, kind: previous, image: {color: rgb}}',
                              '"depth/*": {path: observations/depth_images/*, kind: previous, image: {unit: mm}}']),
    "minari_frames": ("/episode_*", ["observations: {kind: previous, image: {color: rgb}}"]),
}
SHARED = [("mobile_aloha.hdf5", "aloha_frames", "cams/", "observations/images/{}"),
          ("robotwin.hdf5", "robotwin_frames", "cams/", "observation/{}/rgb"),
          ("robomind.hdf5", "robomind_frames", "rgb/", "observations/rgb_images/{}"),
          ("robomind.hdf5", "robomind_frames", "depth/", "observations/depth_images/{}"),
          ("minari_jpeg_vlen.hdf5", "minari_frames", "observations", "episode_0/observations"),
          ("minari_jpeg_equal.hdf5", "minari_frames", "observations", "episode_0/observations")]


def noise(count):
    """Returns bytes without a zero at their end."""
    return RNG.integers(1, 256, count, dtype=np.uint8).tobytes()


def jpeg(height=24, width=32, components=3, size=700, progressive=False):
    """Returns a JPEG header with noise behind it: nothing here decodes it."""
    comment = b"\xff\xfe" + struct.pack(">H", 12) + noise(10)
    frame = struct.pack(">BHHB", 8, height, width, components) + b"\x01\x11\x00" * components
    sof = b"\xff\xff\xc2" if progressive else b"\xff\xc0"  # any number of FF may stand before a marker
    head = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF" + bytes(10) + comment + sof
    return head + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xda" + noise(size) + b"\xff\xd9"


def png(height=24, width=32, bits=16, color=0, size=500):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", noise(size)) + chunk(b"IEND", b"")


def pad(rows, width=0):
    width = width or max(map(len, rows))
    return np.frombuffer(b"".join(row.ljust(width, b"\0") for row in rows), np.uint8).reshape(len(rows), width)


def variable(group, name, rows, **options):
    made = group.create_dataset(name, (len(rows),), dtype=h5py.vlen_dtype(np.uint8), **options)
    for i, row in enumerate(rows):
        if row:
            made[i] = np.frombuffer(row, np.uint8)
    return made


def frames(count=20, low=300, high=9000, **options):
    return [jpeg(size=int(size), **options) for size in RNG.integers(low, high, count)]


def state(file, rows):
    file.create_dataset("state", data=RNG.normal(size=(rows, 3)))


def write_padded(file):
    state(file, 20)
    file.create_dataset("cams/contiguous", data=pad(frames()))
    rows = pad(frames())
    file.create_dataset("cams/chunked", data=rows, chunks=(1, rows.shape[1]))
    rows = pad(frames())
    file.create_dataset("cams/split", data=rows, chunks=(6, rows.shape[1] // 2 + 1))
    file.create_dataset("cams/gzip", data=pad(frames()), compression="gzip", shuffle=True)
    file.create_dataset("cams/progressive", data=pad(frames(progressive=True)))
    file.create_dataset("grays/jpeg", data=pad(frames(components=1)))
    file.create_dataset("phase", data=np.arange(20) % 3, dtype=h5py.enum_dtype({"REACH": 0, "GRASP": 1, "LIFT": 2}, "i1"))


def write_padded_wider(file):
    """The same streams; the rows have other widths."""
    state(file, 7)
    for name in ("contiguous", "chunked", "split", "gzip", "progressive"):
        file.create_dataset(f"cams/{name}", data=pad(frames(7), 9999))


def write_strings(file):
    state(file, 20)
    rows = frames()
    file.create_dataset("cams/contiguous", data=np.array(rows, f"S{max(map(len, rows))}"))
    rows = frames()
    file.create_dataset("cams/gzip", data=np.array(rows, f"S{max(map(len, rows)) + 5}"), chunks=(3,), compression="gzip",
                        shuffle=True, fletcher32=True)
    file.create_dataset("depth/png", data=np.array([png() for _ in range(20)], "S2000"))


def write_heap(file):
    state(file, 20)
    variable(file, "cams/large", frames())
    variable(file, "cams/small", frames(low=20, high=200))
    variable(file, "cams/chunked", frames(), chunks=(6,), maxshape=(None,))
    variable(file, "cams/shuffled", frames(), chunks=(6,), shuffle=True, compression="gzip")
    rows = frames(low=20, high=20000)
    rows[3] = rows[19] = b""
    variable(file, "cams/with_empty_rows", rows)
    raw = noise(24 * 32 * 3)
    variable(file, "sized/mixed_with_raw", [raw if i % 5 == 2 else row for i, row in enumerate(frames())])
    depth = noise(24 * 32 * 2)
    variable(file, "depth/mixed_with_raw", [depth if i == 0 else png() for i in range(20)])
    variable(file, "depth/float", [noise(24 * 32 * 4) for i in range(20)])


def write_new_format(file):
    state(file, 20)
    variable(file, "cams/large", frames())
    rows = pad(frames())
    file.create_dataset("cams/padded", data=rows, chunks=(1, rows.shape[1]))


def packed(group, name, rows, **attributes):
    """Writes frames one after another, as `trajctl pack` does."""
    made = group.create_group(name)
    made["bytes"] = np.frombuffer(b"".join(rows), np.uint8)
    made["offsets"] = np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)
    made.attrs.update(attributes)


def write_packed(file):
    state(file, 20)
    rows = frames()
    rows[6] = b""
    packed(file, "cams/large", rows, color="rgb", flip="none")
    packed(file, "cams/one_length", [jpeg(size=500)] * 20)
    packed(file, "depth/mixed_with_raw", [noise(24 * 32 * 2) if i == 0 else png() for i in range(20)], unit="mm")


def write_prepared(file):
    """As `trajctl pack --prepare` writes them; row 3 stands for a frame that cannot be decoded."""
    state(file, 20)
    preparation = ('{"source": [24, 32], "crop": [0, 0, 24, 32], "filter": "nearest", "resize": [12, 16], "at": [0, 0], '
                   '"shape": [12, 16, 3], "pad_value": 0, "cv2": "bgr"}')
    rows = [b"it ends too early" if i == 3 else noise(12 * 16 * 3) for i in range(20)]
    packed(file, "cams/prepared", rows, encoding="raw", color="rgb", flip="none", size=[12, 16], preparation=preparation)
    filled = np.zeros(20 * 12 * 16 * 3, np.uint8)  # as long as if all frames were there
    used = file["cams/prepared/bytes"][:]
    filled[:len(used)] = used
    del file["cams/prepared/bytes"]
    file["cams/prepared/bytes"] = filled


def row_bytes(row):
    """Returns the bytes of a row as h5py gives it."""
    if isinstance(row, bytes):
        return row
    return row.tobytes()


def rows_of(dataset):
    if isinstance(dataset, h5py.Group):
        data, ends = dataset["bytes"][:].tobytes(), dataset["offsets"][:]
        return [data[begin:end] for begin, end in zip(ends, ends[1:])]
    padded = dataset.ndim == 2
    return [row_bytes(row).rstrip(b"\0") if padded else row_bytes(row) for row in dataset[:]]


def write_truth(path, streams):
    with open(path, "wb") as out:
        for name, rows in streams:
            out.write(struct.pack("<I", len(name)) + name.encode() + struct.pack("<Q", len(rows)))
            for row in rows:
                out.write(struct.pack("<Q", len(row)) + row)


def streams_below(group):
    found = []
    for folder in ("cams", "grays", "sized", "depth"):
        found += [(f"{folder}/{name}", rows_of(group[folder][name])) for name in group.get(folder, ())]
    return found


def shared_streams(file, prefix, path):
    if "{}" not in path:
        return [(prefix, rows_of(file[path]))]
    parent, rest = path.split("/{}")
    return [(prefix + name, rows_of(file[parent][name + rest])) for name in file[parent]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shared", type=pathlib.Path)
    options = parser.parse_args()
    folder = options.folder
    for name, (groups, streams) in LAYOUTS.items():
        (folder / f"{name}.yaml").write_text(
            LAYOUT.format(name=name, groups=groups, streams="".join(f"  {stream}\n" for stream in streams)))
    listed = []
    for name, write in [("padded", write_padded), ("padded_wider", write_padded_wider), ("strings", write_strings),
                        ("heap", write_heap), ("new_format", write_new_format), ("packed", write_packed), ("prepared", write_prepared)]:
        with h5py.File(folder / f"{name}.h5", "w", libver="latest" if name == "new_format" else None) as file:
            write(file)
            write_truth(folder / f"{name}.rows", streams_below(file))
        listed.append((folder / f"{name}.h5", "frames", f"{name}.rows"))
    for number, (name, layout, prefix, path) in enumerate(SHARED):
        if options.shared and (options.shared / name).exists():
            with h5py.File(options.shared / name) as file:
                write_truth(folder / f"shared_{number}.rows", shared_streams(file, prefix, path))
            listed.append((options.shared / name, layout, f"shared_{number}.rows"))
    (folder / "frames.txt").write_text("".join(f"{path} {layout} {rows}\n" for path, layout, rows in listed))


if __name__ == "__main__":
    main()
