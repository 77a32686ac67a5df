"""`trajctl pack`: frames in one piece, byte for byte those of the input, and everything else as it was."""
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from paths import RECORDINGS, ROOT, TRAJCTL

sys.path.insert(0, str(ROOT / "tests/tools"))
from make_frame_files import LAYOUT, LAYOUTS, SHARED, jpeg, pad, png, rows_of, variable  # noqa: E402

STREAMS = """\
  action: {kind: linear}
  "cams/*": {path: images/*, kind: previous, image: {color: rgb, flip: v, size: [24, 32]}}
  depth: {path: depth, kind: previous, image: {unit: mm}}
"""
ROWS = 12


def pack(*arguments, check=True):
    done = subprocess.run([TRAJCTL, "pack", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture
def layout(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(LAYOUT.format(name="lab", groups="/data/ep_*", streams=STREAMS))
    return path


def write(path, seed=1):
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        file.attrs["note"] = "of the file"
        file["about/calibration"] = np.eye(4)
        file["about/link"] = h5py.SoftLink("/about/calibration")
        for e in range(2):
            group = file.create_group(f"data/ep_{e}")
            group.attrs["success"] = True
            group.create_dataset("action", data=random.normal(size=(ROWS, 7)), compression="gzip", chunks=(5, 7))
            group["compress_len"] = np.zeros((2, ROWS), "f4")
            group["words"] = np.array([b"grasp"] * ROWS)
            images = group.create_group("images")
            stored = [jpeg(size=int(size)) for size in random.integers(20, 9000, ROWS)]
            images.create_dataset("padded", data=pad(stored, 9300 + e), chunks=(1, 9300 + e))
            images["padded"].attrs["serial"] = 17
            images["strings"] = np.array(stored, "S9400")
            stored[3], stored[5] = b"", random.integers(1, 256, 24 * 32 * 3, dtype=np.uint8).tobytes()
            variable(images, "variable", stored)
            images["pixels"] = random.integers(0, 256, (ROWS, 24, 32, 3), dtype=np.uint8)
            variable(group, "depth", [png() for _ in range(ROWS)])
    return path


def members(file):
    """Returns all objects below a file: their attributes, and the values of datasets. Packed groups count as datasets."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Group) and not {"bytes", "offsets"} <= set(item):
            found[name] = dict(item.attrs)
        elif isinstance(item, h5py.Dataset) and name.rsplit("/", 1)[-1] not in ("bytes", "offsets"):
            found[name] = (dict(item.attrs), item.dtype, item.chunks, item.compression, item[()].tolist())
    file.visititems(visit)
    return found


def test_frames_are_packed_and_the_rest_is_copied(tmp_path, layout):
    source, out = write(tmp_path / "in.h5"), tmp_path / "out.h5"
    text = pack(source, "-o", out, "--layout", layout).stdout
    assert "8 datasets, 96 frames" in text
    with h5py.File(source) as before, h5py.File(out) as after:
        forms = ["images/padded", "images/strings", "images/variable", "depth"]
        for e in range(2):
            for name in forms:
                made, original = after[f"data/ep_{e}/{name}"], before[f"data/ep_{e}/{name}"]
                assert rows_of(made) == rows_of(original), name
                assert made["bytes"].dtype == np.uint8 and made["offsets"].dtype == np.int64 and made["offsets"].shape == (ROWS + 1,)
                assert not made["bytes"].chunks and not made["offsets"].chunks
        words = dict(after["data/ep_0/images/padded"].attrs)
        assert words.pop("size").tolist() == [24, 32]
        assert words == {"encoding": "jpeg", "color": "rgb", "flip": "v", "unit": "none", "serial": 17}
        assert after["data/ep_0/images/variable"].attrs["encoding"] == "auto"  # JPEG and raw pixels
        assert {k: after["data/ep_0/depth"].attrs[k] for k in ("encoding", "color", "unit")} == {
            "encoding": "png", "color": "depth", "unit": "mm"}
        packed = {f"data/ep_{e}/{name}" for e in range(2) for name in forms}
        assert {k: v for k, v in members(before).items() if k not in packed} == {
            k: v for k, v in members(after).items() if k not in packed}
        assert dict(after.attrs) == dict(before.attrs)
        assert after["about"].get("link", getlink=True).path == "/about/calibration"
    assert os.listdir(tmp_path).count("out.h5.partial") == 0
    again = pack(out, "-o", tmp_path / "again.h5", "--layout", layout, check=False)
    assert again.returncode and "nothing to pack: its frames are raw pixels without compression" in again.stderr


def test_a_packed_file_is_not_resampled(tmp_path, layout):
    """The message tells what to do; the streams without frames can be resampled."""
    pack(write(tmp_path / "in.h5"), "-o", tmp_path / "out.h5", "--layout", layout)
    command = [TRAJCTL, "resample", tmp_path / "out.h5", "-o", tmp_path / "slow.h5", "--layout", layout, "--rate", "10", "--assume-rate"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode and "holds packed frames: resample the file before `trajctl pack`, or choose other streams" in refused.stderr
    done = subprocess.run([*command, "--streams", "action"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "slow.h5") as file:
        assert len(file["data/ep_0/action"]) == 4


def test_several_files_and_resume(tmp_path, layout):
    inputs = [write(tmp_path / f"in_{i}.h5", i) for i in range(3)]
    refused = pack(*inputs, "-o", tmp_path / "none/packed", "--layout", layout, check=False)
    assert refused.returncode and "none/packed" in refused.stderr
    refused = pack(*inputs, "-o", inputs[0], "--layout", layout, check=False)
    assert refused.returncode and "no folder" in refused.stderr
    (tmp_path / "packed").mkdir()
    pack(inputs[0], "-o", tmp_path / "packed", "--layout", layout)
    stamp = (tmp_path / "packed/in_0.h5").stat().st_mtime_ns
    refused = pack(inputs[0], "-o", tmp_path / "packed", "--layout", layout, check=False)
    assert refused.returncode and "--force" in refused.stderr
    text = pack(*inputs, "-o", tmp_path / "packed", "--layout", layout, "--resume").stdout
    assert "in_0.h5: is there, skipped" in text and "in_2.h5: 8 datasets" in text
    assert sorted(os.listdir(tmp_path / "packed")) == ["in_0.h5", "in_1.h5", "in_2.h5"]
    assert (tmp_path / "packed/in_0.h5").stat().st_mtime_ns == stamp
    pack(inputs[0], "-o", tmp_path / "packed", "--layout", layout, "--force")
    assert (tmp_path / "packed/in_0.h5").stat().st_mtime_ns != stamp


def test_a_row_that_cannot_be_read_leaves_no_output(tmp_path, layout):
    source, out = write(tmp_path / "in.h5"), tmp_path / "out.h5"
    with h5py.File(source) as file:
        place = file["data/ep_1/images/variable"].id.get_offset()  # row 8 is none of those that the index samples
    with open(source, "r+b") as file:
        file.seek(place + 16 * 8 + 4)
        file.write((1 << 50).to_bytes(8, "little"))
    refused = pack(source, "-o", out, "--layout", layout, check=False)
    assert refused.returncode and "data/ep_1/images/variable: row 8: its reference" in refused.stderr
    assert not out.exists() and not (tmp_path / "out.h5.partial").exists()


def test_a_frame_that_the_layout_leaves_out_is_not_lost(tmp_path, layout):
    """Sets with one frame more than their clock has stamps, as ManiSkill and Minari have them: the last one is packed, too."""
    layout.write_text(layout.read_text().replace("clocks: {robot: {rate: 30}}", "clocks: {robot: {path: t, unit: s}}"))
    source = write(tmp_path / "in.h5")
    with h5py.File(source, "r+") as file:
        for group in file["data"].values():
            group["t"] = np.arange(ROWS - 1) / 30
    pack(source, "-o", tmp_path / "out.h5", "--layout", layout)
    with h5py.File(source) as before, h5py.File(tmp_path / "out.h5") as after:
        for name in ("images/padded", "images/strings", "images/variable", "depth"):
            assert len(rows_of(after[f"data/ep_1/{name}"])) == ROWS
            assert rows_of(after[f"data/ep_1/{name}"]) == rows_of(before[f"data/ep_1/{name}"])


RAW = """\
  action: {kind: linear}
  "cams/*": {path: images/*, kind: previous, image: {color: rgb, flip: 180}}
  "depth/*": {path: depth/*, kind: previous, image: {unit: mm}}
"""


def write_raw(path, **first):
    """Raw pixels in the ways that recorders compress and cut them. `first` sets the first frames of some cameras."""
    random = np.random.default_rng(3)
    pixels = {name: random.integers(0, 256, (ROWS, 24, 32, 3), dtype=np.uint8) for name in ("gzip", "tiles", "whole", "plain", "inflated")}
    pixels["gzip"][4], pixels["tiles"][ROWS - 1, 20:] = 0, 0  # frames of zeros, and with zeros at their end
    for name, frame in first.items():
        pixels[name][0] = frame
    with h5py.File(path, "w") as file:
        group = file.create_group("data/ep_0")
        group["action"] = random.normal(size=(ROWS, 7))
        images = group.create_group("images")
        images.create_dataset("gzip", data=pixels["gzip"], chunks=(5, 12, 32, 3), compression="gzip")
        images.create_dataset("tiles", data=pixels["tiles"], chunks=(3, 12, 16, 2))
        images.create_dataset("whole", data=pixels["whole"], chunks=(1, 24, 32, 3))
        images["plain"] = pixels["plain"]
        images.create_dataset("inflated", data=pixels["inflated"], chunks=(1, 24, 32, 3), compression="gzip", shuffle=True)
        depth = random.integers(0, 5000, (ROWS, 24, 32, 1)).astype("u2")
        group.create_dataset("depth/u16", data=depth, compression="gzip")
        group.create_dataset("depth/f32", data=depth[..., 0].astype("f4") / 1000, compression="gzip")
    return path


def test_raw_pixels_become_rows(tmp_path, layout):
    """Compressed pixels and pixels in tiles are packed, each frame in one piece; others are such frames already."""
    layout.write_text(LAYOUT.format(name="lab", groups="/data/ep_*", streams=RAW))
    source, out = write_raw(tmp_path / "in.h5"), tmp_path / "out.h5"
    text = pack(source, "-o", out, "--layout", layout).stdout
    assert "5 datasets, 60 frames" in text and "2 datasets of raw pixels kept as stored" in text
    with h5py.File(source) as before, h5py.File(out) as after:
        for name in ("images/whole", "images/plain"):
            assert (after[f"data/ep_0/{name}"][:] == before[f"data/ep_0/{name}"][:]).all()
        for name in ("images/gzip", "images/tiles", "images/inflated", "depth/u16", "depth/f32"):
            made, pixels = after[f"data/ep_0/{name}"], before[f"data/ep_0/{name}"]
            assert made.attrs["encoding"] == "raw" and made.attrs["size"].tolist() == [24, 32]
            assert rows_of(made) == [row.tobytes() for row in pixels[:]], name
    for path in (source, out):
        seen = subprocess.run([TRAJCTL, "inspect", "--json", "--layout", layout, path], capture_output=True, text=True, timeout=60)
        assert seen.returncode == 0, seen.stderr
        streams = {s["name"]: s for s in json.loads(seen.stdout)[0]["streams"]}
        assert [streams[n]["row_shape"][:2] for n in ("cams/gzip", "depth/f32")] == [[24, 32]] * 2
        assert [streams[n]["dtype"] for n in ("cams/gzip", "depth/u16", "depth/f32")] == ["u8", "u16", "f32"]
        png = tmp_path / f"{path.stem}.png"
        shown = subprocess.run([TRAJCTL, "inspect", "--layout", layout, "--frame", "cams/tiles:7", "-o", png, path], capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "in.png").read_bytes() == (tmp_path / "out.png").read_bytes()


def test_raw_pixels_like_a_jpeg(tmp_path, layout):
    """A frame whose first pixel is FF D8 FF would be taken for a JPEG, unless the layout says that frames are raw."""
    layout.write_text(LAYOUT.format(name="lab", groups="/data/ep_*", streams=RAW))
    source = write_raw(tmp_path / "in.h5", gzip=np.tile(np.array([255, 216, 255], np.uint8), (24, 32, 1)))
    refused = pack(source, "-o", tmp_path / "out.h5", "--layout", layout, check=False)
    assert refused.returncode and "images/gzip: the raw pixels of row 0 begin like a JPEG or PNG; write encoding: raw" in refused.stderr
    assert not (tmp_path / "out.h5").exists()
    layout.write_text(layout.read_text().replace("flip: 180", "flip: 180, encoding: raw"))
    pack(source, "-o", tmp_path / "out.h5", "--layout", layout)
    one = "  cam: {path: images/gzip, kind: previous, image: {color: rgb, flip: 180, encoding: jpeg}}\n"
    layout.write_text(LAYOUT.format(name="lab", groups="/data/ep_*", streams=one))
    seen = subprocess.run([TRAJCTL, "inspect", "--layout", layout, tmp_path / "out.h5"], capture_output=True, text=True, timeout=60)
    assert "its attribute encoding is raw, the layout says jpeg" in seen.stdout + seen.stderr


@pytest.mark.parametrize("zeros", [1, 500])
def test_padded_raw_frames_that_end_in_zeros(tmp_path, layout, zeros):
    """Zeros at the end of raw pixels are pixels, not padding."""
    layout.write_text(LAYOUT.format(name="lab", groups="/data/ep_*", streams=STREAMS.rsplit("  depth", 1)[0]))
    source = tmp_path / "in.h5"
    pixels = np.random.default_rng(4).integers(1, 256, (ROWS, 24 * 32 * 3 + 40), dtype=np.uint8)
    pixels[:, 24 * 32 * 3 - zeros:] = 0
    with h5py.File(source, "w") as file:
        file["data/ep_0/action"] = np.zeros((ROWS, 7))
        file["data/ep_0/images/padded"] = pixels
    pack(source, "-o", tmp_path / "out.h5", "--layout", layout)
    with h5py.File(tmp_path / "out.h5") as after:
        assert rows_of(after["data/ep_0/images/padded"]) == [row[:24 * 32 * 3].tobytes() for row in pixels]


@pytest.mark.parametrize("name, layout, path", [(name, layout, path) for name, layout, _, path in SHARED])
def test_files_of_public_recorders(tmp_path, name, layout, path):
    source = RECORDINGS / "images" / name
    if not source.exists():
        pytest.skip(f"there is no {source}")
    groups, streams = LAYOUTS[layout]
    (tmp_path / "lab.yaml").write_text(LAYOUT.format(name=layout, groups=groups, streams="".join(f"  {s}\n" for s in streams)))
    pack(source, "-o", tmp_path / name, "--layout", tmp_path / "lab.yaml")
    with h5py.File(source) as before, h5py.File(tmp_path / name) as after:
        parent = path.split("/{}")[0] if "{}" in path else None
        names = [path] if parent is None else [path.format(camera) for camera in before[parent]]
        for one in names:
            assert rows_of(after[one]) == rows_of(before[one])


def test_the_folder_of_several_outputs_is_made(tmp_path, layout):
    inputs = [write(tmp_path / f"{name}.hdf5") for name in "ab"]
    pack(*inputs, "--layout", layout, "-o", tmp_path / "packed")
    assert sorted(os.listdir(tmp_path / "packed")) == ["a.hdf5", "b.hdf5"]
    refused = pack(*inputs, "--layout", layout, "-o", tmp_path / "no/packed", check=False)
    assert refused.returncode == 1 and "no/packed: the folder cannot be made: No such file or directory" in refused.stderr
    refused = pack(*inputs, "--layout", layout, "-o", inputs[0], check=False)
    assert refused.returncode == 1 and "is not a folder: several files need one" in refused.stderr
    (tmp_path / "several").mkdir()
    for name in "ab":
        os.replace(tmp_path / f"{name}.hdf5", tmp_path / f"several/{name}.hdf5")
    refused = pack(tmp_path / "several", "--layout", layout, "-o", tmp_path / "out.hdf5", check=False)
    assert refused.returncode == 1 and f"not a folder: trajctl pack {tmp_path}/several/*.hdf5 -o FOLDER" in refused.stderr
