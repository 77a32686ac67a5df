"""`trajctl pack`: frames in one piece, byte for byte those of the input, and everything else as it was."""
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
    assert again.returncode and "no stream of layout lab holds encoded frames that are not packed" in again.stderr


def test_several_files_and_resume(tmp_path, layout):
    inputs = [write(tmp_path / f"in_{i}.h5", i) for i in range(3)]
    refused = pack(*inputs, "-o", tmp_path / "packed", "--layout", layout, check=False)
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
    """A set with one frame more than its clock has stamps: packing would drop the last one."""
    layout.write_text(layout.read_text().replace("clocks: {robot: {rate: 30}}", "clocks: {robot: {path: t, unit: s}}"))
    source = write(tmp_path / "in.h5")
    with h5py.File(source, "r+") as file:
        for group in file["data"].values():
            group["t"] = np.arange(ROWS - 1) / 30
    refused = pack(source, "-o", tmp_path / "out.h5", "--layout", layout, check=False)
    assert refused.returncode and "depth has another number of rows than its episode: it cannot be packed" in refused.stderr
    assert not (tmp_path / "out.h5").exists()


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
