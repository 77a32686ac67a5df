"""`trajctl pack --prepare`: frames that were decoded, cropped, resized and padded once, as a feed gets them from the original file."""
import json
import os
import re
import shutil
import subprocess

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from paths import ROOT, TRAJCTL
from image_files import assert_near, nearest, random_frames, smooth_frames, write_encoded

FEED = """
datasets: {{arm: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: arm
    global_batch: 4
    tail: short
    order: sequential
    bad_rows: {bad_rows}
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      {outputs}
"""
OUTPUTS = """top: {from: observations/images/top, at: -1..0, image: {crop: {top: 3, left: 5, height: 40, width: 50}, resize: [20, 31]}}
      wrist: {from: observations/images/wrist, at: 0, image: {resize: [30, 60], fit: pad, pad_value: 7, augment: [{crop: [24, 24]}]}}
      side: {from: observations/images/side, at: 0, layout: chw}
      blue: {from: observations/images/top, at: 0, image: {crop: {top: 3, left: 5, height: 40, width: 50}, resize: [20, 31], channels: cv2}}"""
ROWS = 9


def config_of(path, outputs=OUTPUTS, layout="aloha, color: rgb", bad_rows="error"):
    return FEED.format(path=path, outputs=outputs, layout=layout, bad_rows=bad_rows)


def write_config(folder, **config):
    path = folder / "train.yaml"
    path.write_text("version: 2\n" + config_of(folder / "recorded", **config))
    return path


def pack(*arguments, check=True):
    done = subprocess.run([TRAJCTL, "pack", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def deliver(daemon, path, **config):
    """Reads an epoch; returns its arrays, the windows in their order, and the daemon's status."""
    client = daemon(config_of(path, **config), folder=f"daemon_{path.name}").client()
    client.open("train")
    batches = [arrays for _, arrays in client.epoch()]
    status = client.status()
    client.close()
    names = [name for name in batches[0] if name not in ("window_id", "slot_generation")]
    return {name: np.concatenate([b[name] for b in batches]) for name in names}, status["datasets"][0]["frames"]


def check(path, **config):
    path.with_suffix(".yaml").write_text("version: 2\n" + config_of(path, **config))
    return subprocess.run([TRAJCTL, "check", path.with_suffix(".yaml")], capture_output=True, text=True, timeout=60)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture
def recorded(tmp_path):
    """An episode with three cameras: padded PNG rows, raw pixels in chunks of compressed rows, and raw pixels."""
    (tmp_path / "recorded").mkdir()
    path = tmp_path / "recorded/episode_0.hdf5"
    write_encoded(path, {"top": random_frames(ROWS, 48, 64, 1), "wrist": random_frames(ROWS, 40, 44, 2)})
    with h5py.File(path, "r+") as file:
        file["observations/images/side"] = random_frames(ROWS, 16, 16, 3)
        file["observations/images"].move("wrist", "encoded")
        file["observations/images"].create_dataset("wrist", data=random_frames(ROWS, 40, 44, 4), chunks=(4, 40, 44, 3), compression="gzip")
        del file["observations/images/encoded"]
    return path


def test_prepared_frames_are_those_of_the_original(daemon, tmp_path, recorded):
    """One camera is resized, one padded, and one stays as it is; the values are the same, and nothing is decoded."""
    (tmp_path / "packed").mkdir()
    done = pack(recorded, "-o", tmp_path / "packed", "--prepare", f"{write_config(tmp_path)}:train")
    assert "2 datasets, 18 frames" in done.stdout and "prepared: 2 datasets; 0 of the frames" in done.stdout
    with h5py.File(tmp_path / "packed/episode_0.hdf5") as file:
        top = file["observations/images/top"]
        assert dict(top.attrs, size=0, preparation=0) == {"encoding": "raw", "color": "rgb", "flip": "none", "unit": "none", "size": 0,
                                                          "preparation": 0}
        assert top.attrs["size"].tolist() == [20, 31] and json.loads(top.attrs["preparation"]) == {
            "source": [48, 64], "crop": [3, 5, 40, 50], "filter": "pillow-bilinear", "resize": [20, 31], "at": [0, 0], "shape": [20, 31, 3],
            "pad_value": 0, "cv2": "bgr"}
        assert np.diff(top["offsets"][:]).tolist() == [20 * 31 * 3] * ROWS
        assert file["observations/images/side"].shape == (ROWS, 16, 16, 3)
    original, frames = deliver(daemon, tmp_path / "recorded")
    assert frames["decoded"] == 3 * ROWS and frames["prepared"] == ROWS  # of the side camera, whose pixels are taken as they lie
    prepared, frames = deliver(daemon, tmp_path / "packed")
    assert_same(prepared, original)
    assert frames["decoded"] == ROWS and frames["prepared"] == 3 * ROWS  # colours in another order pass through the helper program
    assert frames["reused"] == frames["used"] - 4 * ROWS


def test_frames_that_are_only_decoded(daemon, tmp_path, recorded):
    """A feed that takes them whole, as ACT's does, had them decoded in each run: pack left them as they were recorded."""
    outputs = """top: {from: observations/images/top, at: -1..0, image: {}}
      side: {from: observations/images/side, at: 0, layout: chw}"""
    (tmp_path / "packed").mkdir()
    config = write_config(tmp_path, outputs=outputs)
    done = pack(recorded, "-o", tmp_path / "packed", "--prepare", f"{config}:train")
    assert "prepared: 1 dataset; 0 of the frames" in done.stdout
    with h5py.File(tmp_path / "packed/episode_0.hdf5") as file:
        top = file["observations/images/top"]
        assert top.attrs["encoding"] == "raw" and top.attrs["size"].tolist() == [48, 64]
        assert np.diff(top["offsets"][:]).tolist() == [48 * 64 * 3] * ROWS
        assert file["observations/images/side"].shape == (ROWS, 16, 16, 3)
    original, frames = deliver(daemon, tmp_path / "recorded", outputs=outputs)
    assert frames["decoded"] == ROWS
    prepared, frames = deliver(daemon, tmp_path / "packed", outputs=outputs)
    assert_same(prepared, original)
    assert frames["decoded"] == 0
    done = pack(recorded, "-o", tmp_path / "jpeg.hdf5", "--prepare", f"{config}:train", "--jpeg", 95, check=False)
    assert done.returncode == 1 and "nothing to prepare" in done.stderr and "--jpeg leaves" in done.stderr


def test_a_feed_may_fill_in_another_value_and_name_another_filter_where_they_change_nothing(daemon, tmp_path, recorded):
    crop = "top: {from: observations/images/top, at: 0, image: {crop: [40, 40]}}"
    out = tmp_path / "packed"
    out.mkdir()
    pack(recorded, "-o", out, "--prepare", write_config(tmp_path, outputs=crop))
    same = crop.replace("[40, 40]", "[40, 40], resize: [40, 40], filter: area, pad_value: 3")
    assert_same(deliver(daemon, out, outputs=same)[0], deliver(daemon, tmp_path / "recorded", outputs=same)[0])


def test_check_and_inspect_say_how_frames_were_prepared(tmp_path, recorded):
    (tmp_path / "packed").mkdir()
    pack(recorded, "-o", tmp_path / "packed", "--prepare", write_config(tmp_path))
    told = "frames of top are prepared in the files: 48x64, crop 40x50 at (3, 5), resized to 20x31 by pillow-bilinear"
    assert told in check(tmp_path / "packed").stdout and "prepared in the files" not in check(tmp_path / "recorded").stdout
    done = subprocess.run([TRAJCTL, "inspect", tmp_path / "packed"], capture_output=True, text=True, timeout=60)
    line, = [line for line in done.stdout.splitlines() if "images/top" in line]
    assert 'raw 20x31 rgb (file), packed, contiguous, prepared: {"source": [48, 64], ' in line and line.endswith('"cv2": "bgr"}')


def test_init_asks_for_the_frames_of_the_file(tmp_path, recorded):
    (tmp_path / "packed").mkdir()
    outputs = OUTPUTS.replace("fit: pad", "fit: pad_topleft, filter: area")
    pack(recorded, "-o", tmp_path / "packed", "--prepare", write_config(tmp_path, outputs=outputs))
    done = subprocess.run([TRAJCTL, "init", tmp_path / "packed", "-o", tmp_path / "drafted.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "drafted.yaml").read_text()
    assert "image: {crop: {top: 3, left: 5, height: 40, width: 50}, resize: [20, 31], filter: pillow-bilinear}}" in text
    assert "image: {resize: [30, 60], fit: pad_topleft, filter: area, pad_value: 7}}" in text
    done = subprocess.run([TRAJCTL, "check", tmp_path / "drafted.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count("are prepared in the files") == 2, done.stderr


def test_a_row_of_another_length_is_a_bad_frame(daemon, tmp_path, recorded):
    out = tmp_path / "packed/episode_0.hdf5"
    out.parent.mkdir()
    pack(recorded, "-o", out, "--prepare", write_config(tmp_path))
    with h5py.File(out, "r+") as file:
        file["observations/images/top/offsets"][4] += 5
    client = daemon(config_of(out.parent)).client()
    client.open("train")
    with pytest.raises(trajd.TrajdError, match="top: row 3: 1865 bytes, and a frame of 20x31 has 1860"):
        list(client.epoch())
    client.close()


@pytest.mark.parametrize("options", [[], ["--decode"]], ids=["headers", "decode"])
def test_validate_counts_prepared_frames_and_tells_why_one_is_bad(tmp_path, options):
    path, out = tmp_path / "recorded/episode_0.hdf5", tmp_path / "packed/episode_0.hdf5"
    path.parent.mkdir(), out.parent.mkdir()
    frames = random_frames(ROWS, 32, 32, 1)
    frames[2] = ord("t")  # pixels that could be a text
    write_encoded(path, {"top": frames}, bad=[("top", 5)])
    pack(path, "-o", out, "--prepare", write_config(tmp_path, outputs="top: {from: observations/images/top, at: 0, image: {resize: [10, 14]}}"))
    done = subprocess.run([TRAJCTL, "validate", *options, out], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"{ROWS} frames prepared by trajctl pack --prepare: only sizes were checked" in done.stdout
    assert "images/top: 1 frame cannot be decoded, the first is row 5: it ends too early" in done.stdout and "not decoded" not in done.stdout


@pytest.mark.parametrize("asked, words", [
    ("image: {crop: {top: 3, left: 5, height: 40, width: 50}, resize: [20, 32]}", "48x64, crop 40x50 at (3, 5), resized to 20x32 by pillow-bilinear"),
    ("image: {crop: {top: 3, left: 5, height: 40, width: 50}, resize: [20, 31], filter: area}", "48x64, crop 40x50 at (3, 5), resized to 20x31 by area"),
    ("image: {resize: [20, 31]}", "48x64, resized to 20x31 by pillow-bilinear"),
    ("dtype: float32", "48x64 as they are"),
], ids=["size", "filter", "crop", "none"])
def test_another_preparation_is_refused_with_both(tmp_path, recorded, asked, words):
    (tmp_path / "packed").mkdir()
    pack(recorded, "-o", tmp_path / "packed", "--prepare", write_config(tmp_path))
    done = check(tmp_path / "packed", outputs=f"top: {{from: observations/images/top, at: 0, {asked}}}")
    assert done.returncode
    assert ("image: the files have frames of observations/images/top that `trajctl pack --prepare` made of 48x64, crop 40x50 at (3, 5), "
            f"resized to 20x31 by pillow-bilinear; this output asks for {words} (for those of the files: image: "
            "{crop: {top: 3, left: 5, height: 40, width: 50}, resize: [20, 31], filter: pillow-bilinear})") in done.stderr, done.stderr


LIES = {
    "another size": ({"preparation": lambda t: t.replace('"shape": [20, 31', '"shape": [20, 30').replace('"resize": [20, 31]', '"resize": [20, 30]')},
                     "it makes frames of 20x30, and these have 20x31"),
    "a crop outside": ({"preparation": lambda t: t.replace("[3, 5, 40, 50]", "[9, 5, 40, 50]")}, "the crop box must lie inside the source"),
    "huge numbers": ({"preparation": lambda t: t.replace("[48, 64]", "[48, 99999999999999999999]")}, "preparation:1: source"),
    "no JSON": ({"preparation": lambda t: t[:40]}, "attribute preparation of its packed frames is wrong"),
    "another order": ({"preparation": lambda t: t.replace('"bgr"', '"rbg"')}, "preparation:1: cv2"),
    "other channels": ({"preparation": lambda t: t.replace("20, 31, 3]", "20, 31, 1]")}, "the frames have 3 channels"),
    "no channels": ({"preparation": lambda t: t.replace("20, 31, 3]", "20, 31]")}, "the frames have 3 channels"),
    "no text": ({"preparation": lambda t: 7}, "its attribute preparation is not a text of one line"),
    "an empty text": ({"preparation": lambda t: ""}, "its attribute preparation is not a text of one line"),
    "a long text": ({"preparation": lambda t: t.replace(" ", " " * 40)}, "its attribute preparation is not a text of one line"),
    "a missing key": ({"preparation": lambda t: t.replace('"at": [0, 0], ', "")}, "at is missing"),
    "two lines": ({"preparation": lambda t: t.replace(", ", ",\n")}, "its attribute preparation is not a text of one line"),
    "another encoding": ({"encoding": lambda t: "png"}, "its attribute encoding is png, the layout says raw"),
    "the other encoding": ({"encoding": lambda t: "jpeg"}, "attribute preparation of its packed frames is wrong: it makes raw frames, and these are jpeg"),
    "a quality": ({"preparation": lambda t: t.replace("}", ', "jpeg": 95}')}, "attribute preparation of its packed frames is wrong: it makes jpeg frames, and these are raw"),
    "another flip": ({"flip": lambda t: "v"}, "its attribute flip is v, the layout says none"),
    "a size that does not fit": ({"size": lambda t: [20, 32]}, "packed frames: bytes does not hold raw pixels of the attribute size"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_about_its_preparation_is_refused(tmp_path, recorded, lie):
    changes, message = LIES[lie]
    outputs = OUTPUTS.splitlines()[0]
    out = tmp_path / "packed/episode_0.hdf5"
    out.parent.mkdir()
    pack(recorded, "-o", out, "--prepare", write_config(tmp_path, outputs=outputs))
    assert check(out.parent, outputs=outputs).returncode == 0
    with h5py.File(out, "r+") as file:
        top = file["observations/images/top"]
        for name, change in changes.items():
            top.attrs[name] = change(top.attrs[name])
    done = check(out.parent, outputs=outputs)
    assert done.returncode
    if message.startswith(("its ", "packed")):  # an optional stream is left out, and noted
        done = subprocess.run([TRAJCTL, "inspect", out], capture_output=True, text=True, timeout=60)
    assert message in done.stderr + done.stdout, done.stderr + done.stdout


@pytest.mark.parametrize("zeros", ["keep", "mask"])
def test_bad_and_masked_frames_stay_what_they_are(daemon, tmp_path, zeros):
    """Colours and flips of the layout are done; a frame that cannot be decoded stays bad with its reason, one that is masked masked."""
    layout = tmp_path / "lab.yaml"
    layout.write_text(f"""\
layout: lab
episodes: {{files: "**/episode_*.hdf5", groups: /}}
clocks: {{steps: {{rate: 50, rows: action}}}}
streams:
  action: {{path: action, kind: previous}}
  observations/qpos: {{path: observations/qpos, kind: linear}}
  observations/images/top: {{path: observations/images/top, kind: previous, image: {{color: bgr, flip: 180, size: [32, 32], zero_frames: {zeros}}}}}
  depth: {{path: depth, kind: previous, image: {{unit: mm}}}}
""")
    path = tmp_path / "recorded/episode_0.hdf5"
    path.parent.mkdir()
    frames = random_frames(8, 32, 32, 1)
    frames[6] = 0  # black, but not zeros in the file
    write_encoded(path, {"top": frames}, bad=[("top", 5)])
    with h5py.File(path, "r+") as file:
        rows = file["observations/images/top"][:]
        rows[2] = 0
        file["observations/images/top"][:] = rows
        file["depth"] = np.random.default_rng(5).integers(0, 65536, (8, 20, 24), dtype=np.uint16)
    outputs = """top: {from: observations/images/top, at: 0, image: {resize: [10, 14], filter: nearest, pad_value: 9}}
      depth: {from: depth, at: 0, image: {resize: [7, 9]}}"""
    config = {"outputs": outputs, "layout": layout}
    out = tmp_path / "packed/episode_0.hdf5"
    out.parent.mkdir()
    done = pack(path, "-o", out, "--prepare", write_config(tmp_path, **config))
    bad = 1 if zeros == "mask" else 2
    assert f"prepared: 2 datasets; {bad} of the frames cannot be decoded" in done.stdout
    assert "observations/images/top: row 5: " in done.stderr and "it stays a bad frame" in done.stderr
    original, _ = deliver(daemon, path.parent, bad_rows="keep", **config)
    prepared, counts = deliver(daemon, out.parent, bad_rows="keep", **config)
    assert_same(prepared, original)
    assert prepared["top.mask"][:, 0].tolist() == [0, 0, 8, 0, 0, 8, 0, 0] and counts["decoded"] == 0
    np.testing.assert_array_equal(prepared["top"][1, 0], nearest(frames[1][::-1, ::-1, ::-1], 10, 14))
    assert not prepared["top"][6].any() and prepared["depth"].dtype == np.uint16
    errors = []
    for folder in (path.parent, out.parent):
        client = daemon(config_of(folder, **config), folder=f"strict_{folder.name}").client()
        client.open("train")
        with pytest.raises(trajd.TrajdError) as error:
            list(client.epoch())
        errors.append(str(error.value).rsplit("top: row ", 1)[1])
        client.close()
    assert errors[0] == errors[1] if zeros == "mask" else errors[0].startswith("2: ") and errors[1].startswith("2: "), errors


def test_packed_files_and_several_files_are_prepared(daemon, tmp_path, recorded):
    """A file that is packed already is prepared from its packed frames; a prepared one is not prepared again."""
    shutil.copy(recorded, recorded.parent / "episode_1.hdf5")
    for folder in ("packed", "prepared"):
        (tmp_path / folder).mkdir()
    config = write_config(tmp_path)
    pack(*sorted(recorded.parent.iterdir()), "-o", tmp_path / "packed", "--layout", "aloha")
    inputs = sorted((tmp_path / "packed").iterdir())
    pack(*inputs, "-o", tmp_path / "prepared", "--prepare", config)
    assert_same(deliver(daemon, tmp_path / "prepared")[0], deliver(daemon, recorded.parent)[0])
    again = pack(tmp_path / "prepared/episode_0.hdf5", "-o", tmp_path / "again.hdf5", "--prepare", config, check=False)
    assert again.returncode == 1 and "its frames are prepared already" in again.stderr
    assert not (tmp_path / "again.hdf5").exists()
    os.replace(inputs[1], tmp_path / "prepared/episode_1.hdf5")  # one prepared, one not: one of them is left out, with both
    done = subprocess.run([TRAJCTL, "inspect", tmp_path / "prepared", "--layout", "aloha"], capture_output=True, text=True, timeout=60)
    assert "its rows are encoded frames of 48x64x3" in done.stdout + done.stderr, done.stdout


def test_a_preset_prepares_all_cameras(daemon, tmp_path):
    recorded, out = tmp_path / "recorded/episode_0.hdf5", tmp_path / "packed"
    recorded.parent.mkdir(), out.mkdir()
    write_encoded(recorded, {"top": random_frames(3, 240, 320, 1), "wrist": random_frames(3, 256, 256, 2)})
    refused = pack(recorded, "-o", out, "--prepare", "umi", check=False)
    assert refused.returncode == 1 and "use --prepare CONFIG:FEED, with `color: rgb` or `color: bgr` in the entry" in refused.stderr
    layout = tmp_path / "own.yaml"
    layout.write_text((ROOT / "configs/layouts/aloha.yaml").read_text().replace("undecided", "rgb"))
    done = pack(recorded, "-o", out, "--prepare", "umi", "--layout", layout)
    assert "2 datasets, 6 frames" in done.stdout
    outputs = "\n      ".join(f"{name}: {{from: observations/images/{name}, at: 0, image: {{preset: umi}}}}" for name in ("top", "wrist"))
    same, frames = deliver(daemon, out, outputs=outputs)
    assert frames["decoded"] == 0
    assert_same(same, deliver(daemon, tmp_path / "recorded", outputs=outputs)[0])


JPEG_CROP = "crop: {top: 3, left: 5, height: 20, width: 30}, resize: [16, 24]"
JPEG_OUTPUTS = f"""top: {{from: observations/images/top, at: -1..0, image: {{{JPEG_CROP}}}}}
      wrist: {{from: observations/images/wrist, at: 0, image: {{resize: [30, 60], fit: pad, augment: [{{crop: [24, 24]}}]}}}}
      blue: {{from: observations/images/top, at: 0, image: {{{JPEG_CROP}, channels: cv2}}}}
      depth: {{from: depth, at: 0, image: {{resize: [7, 9]}}}}"""
JPEG_LAYOUT = """
layout: lab
episodes: {files: "**/episode_*.hdf5", groups: /}
clocks: {steps: {rate: 50, rows: action}}
streams:
  action: {path: action, kind: previous}
  observations/qpos: {path: observations/qpos, kind: linear}
  observations/images/*: {path: observations/images/*, kind: previous, image: {color: rgb}}
  depth: {path: depth, kind: previous, image: {unit: mm}}
"""
JPEG_FILES = "420", "422", "444", "progressive", "restart"


@pytest.fixture
def jpegs(tmp_path):
    """An episode with JPEG rows, one of which is cut off, with raw pixels in compressed chunks, and with depth."""
    (tmp_path / "recorded").mkdir()
    path, layout = tmp_path / "recorded/episode_0.hdf5", tmp_path / "lab.yaml"
    layout.write_text(JPEG_LAYOUT)
    rows = [(ROOT / f"tests/golden/decoded/{name}.jpg").read_bytes() for name in JPEG_FILES]
    write_encoded(path, {"top": rows + rows[:ROWS - 5]}, bad=[("top", 6)], encode=lambda row: row)
    with h5py.File(path, "r+") as file:
        wrist = smooth_frames(ROWS, 40, 44, 4)
        file["observations/images"].create_dataset("wrist", data=wrist, chunks=(4, 40, 44, 3), compression="gzip")
        file["depth"] = np.random.default_rng(5).integers(0, 65536, (ROWS, 20, 24), dtype=np.uint16)
    return path, {"outputs": JPEG_OUTPUTS, "layout": layout}


def pack_twice(tmp_path, path, config, quality=95):
    """Packs a file with raw frames and with JPEGs. Returns the folders, and what was printed for the second."""
    value, raw, jpeg = write_config(tmp_path, **config), tmp_path / "raw", tmp_path / "jpeg"
    raw.mkdir(), jpeg.mkdir()
    pack(path, "-o", raw, "--prepare", value)
    return raw, jpeg, pack(path, "-o", jpeg, "--prepare", value, "--jpeg", quality)


def test_rows_of_a_jpeg_copy(tmp_path, jpegs):
    """A frame that cannot be decoded stays a row with the reason, and depth stays raw."""
    path, config = jpegs
    raw, out, done = pack_twice(tmp_path, path, config)
    assert "3 datasets, 27 frames" in done.stdout
    assert "prepared: 3 datasets; 1 of the frames cannot be decoded" in done.stdout
    with h5py.File(out / path.name) as file, h5py.File(raw / path.name) as other:
        top, same = (f["observations/images/top"] for f in (file, other))
        assert top.attrs["encoding"] == "jpeg" and top.attrs["size"].tolist() == [16, 24]
        assert json.loads(top.attrs["preparation"]) == json.loads(same.attrs["preparation"]) | {"jpeg": 95}
        frames = [top["bytes"][a:b].tobytes() for a, b in zip(top["offsets"][:-1], top["offsets"][1:])]
        assert [frame[:2] == b"\xff\xd8" for frame in frames] == [row != 6 for row in range(ROWS)]
        assert top["bytes"].size == top["offsets"][-1]
        assert file["depth"].attrs["encoding"] == "raw" and "jpeg" not in file["depth"].attrs["preparation"]


def test_jpegs_are_near_the_raw_copy(daemon, tmp_path, jpegs):
    """The same frames are bad, for the same reasons. Measured: a mean of 1.67 and a maximum of 13 levels."""
    path, config = jpegs
    raw, out, _ = pack_twice(tmp_path, path, config)
    packed, counts = deliver(daemon, out, bad_rows="keep", **config)
    # decoded: the top camera in two orders of colours, and the wrist; as they are: depth
    assert counts["decoded"] == 3 * ROWS and counts["prepared"] == ROWS
    expected, _ = deliver(daemon, raw, bad_rows="keep", **config)
    assert expected["top.mask"][6:8, 1].tolist() == [8, 0]
    assert_near(packed, expected, ["top", "wrist", "blue"], mean=2, most=20)
    np.testing.assert_array_equal(packed["top"][:, 1, :, :, ::-1], packed["blue"][:, 0])
    errors = []
    for folder in (path.parent, raw, out):
        client = daemon(config_of(folder, **config), folder=f"strict_{folder.name}").client()
        client.open("train")
        with pytest.raises(trajd.TrajdError) as error:
            list(client.epoch())
        errors.append(str(error.value).rsplit("top: row ", 1)[1])
        client.close()
    assert errors[0] == errors[1] == errors[2] and errors[0].startswith("6: "), errors


def test_all_commands_know_jpegs(daemon, tmp_path, jpegs):
    path, config = jpegs
    _, out, _ = pack_twice(tmp_path, path, config, quality=80)
    told = "29x42, crop 20x30 at (3, 5), resized to 16x24 by pillow-bilinear, as JPEG of quality 80"
    assert f"frames of top are prepared in the files: {told}" in check(out, **config).stdout
    other = "top: {from: observations/images/top, at: 0, image: {resize: [16, 24]}}"
    refused = check(out, **(config | {"outputs": other}))
    assert refused.returncode and "this output asks for 29x42, resized to 16x24 by pillow-bilinear" in refused.stderr
    client = daemon(config_of(out, bad_rows="keep", **config), folder="explaining").client()
    client.open("train")
    assert client.ask("explain", window=0, name="top")["outputs"][0]["picture"]["prepared"] == told
    client.close()

    def trajctl(*arguments):
        command = [TRAJCTL, *arguments, "--layout", config["layout"], out / path.name]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

    line, = [line for line in trajctl("inspect").splitlines() if "images/top" in line]
    assert "jpeg 16x24 rgb (file), packed, contiguous, prepared: " in line and line.endswith('"jpeg": 80}')
    with h5py.File(out / path.name, "r+") as file:
        wrist = file["observations/images/wrist"]
        end = wrist["offsets"][3]
        wrist["bytes"][end - 30:end] = 0  # the end of row 2
    decoded = trajctl("validate", "--decode")
    assert f"{ROWS} frames prepared by trajctl pack --prepare: only sizes were checked" in decoded  # those of depth
    assert "images/top: 1 frame cannot be decoded, the first is row 6: " in decoded
    assert "images/wrist: 1 frame cannot be decoded, the first is row 2: " in decoded
    assert "not decoded" not in decoded and f"{2 * ROWS} frames not decoded" in trajctl("validate")


def test_a_jpeg_that_would_be_larger_than_its_pixels_is_refused(tmp_path):
    path = tmp_path / "recorded/episode_0.hdf5"
    path.parent.mkdir()
    write_encoded(path, {"top": random_frames(2, 512, 513, 1) // 128 * 255})
    config = write_config(tmp_path, outputs="top: {from: observations/images/top, at: 0, image: {crop: [512, 512]}}")
    done = pack(path, "-o", tmp_path / "out.hdf5", "--prepare", config, "--jpeg", 100, check=False)
    assert done.returncode == 1
    assert "images/top: row 0: as a JPEG of quality 100 the frame is larger than its pixels: leave --jpeg" in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["recorded", "train.yaml"]


@pytest.mark.parametrize("options, message", [
    (["--jpeg", "95"], "--jpeg stores prepared frames: it needs --prepare"),
    (["--prepare", "8x8", "--jpeg", "0"], "--jpeg 0: choose 1 to 100"),
    (["--prepare", "8x8", "--jpeg", "101"], "--jpeg 101: choose 1 to 100"),
])
def test_qualities_that_cannot_be(tmp_path, recorded, options, message):
    done = pack(recorded, "-o", tmp_path / "out.hdf5", *options, check=False)
    assert done.returncode == 2 and message in done.stderr and not (tmp_path / "out.hdf5").exists()


def test_the_size_of_raw_frames_is_told_before(tmp_path):
    path = tmp_path / "recorded/episode_0.hdf5"
    path.parent.mkdir()
    write_encoded(path, {"top": smooth_frames(120, 120, 160, 3)})
    config = {"outputs": "top: {from: observations/images/top, at: 0, image: {resize: [100, 132]}}"}
    raw, _, done = pack_twice(tmp_path, path, config)
    assert "the frames will have" not in done.stderr  # JPEGs
    done = pack(path, "-o", raw, "--force", "--prepare", tmp_path / "train.yaml")
    told, free = re.search(r"the frames will have ([0-9.]+) MB, and ([0-9.]+) MB are free", done.stderr).groups()
    with h5py.File(raw / path.name) as file:
        top = file["observations/images/top"]
        assert float(told) == round((top["bytes"].size + 8 * top["offsets"].size) / 1e6, 1) < float(free)


def test_a_copy_without_room_is_refused_before_it_is_written(tmp_path):
    """A frame of one pixel is prepared to 96 MB, and the rows are as many as it takes."""
    path, out = tmp_path / "recorded/episode_0.hdf5", tmp_path / "out"
    path.parent.mkdir(), out.mkdir()
    about = os.statvfs(tmp_path)
    free, frame = about.f_bavail * about.f_frsize, 4000 * 8000 * 3
    rows = 2 * free // frame + 8
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = False
        file["action"] = file["observations/qpos"] = np.zeros((rows, 14), np.float32)
        pixels = np.zeros((rows, 1, 1, 3), np.uint8)
        file.create_dataset("observations/images/top", data=pixels, compression="gzip")
    done = pack(path, "-o", out / "copy.hdf5", "--prepare", "4000x8000", "--layout", "aloha", check=False)
    assert done.returncode == 1
    words = r"copy.hdf5: the file needs about ([0-9.]+) MB, and (.*) has ([0-9.]+) MB free: make room, or name another"
    needed, folder, room = re.search(words, done.stderr).groups()
    assert float(needed) * 1e6 >= rows * frame and folder == f"{out}/"
    assert float(room) * 1e6 == pytest.approx(free, rel=0.5)
    assert not list(out.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted by root alone")
def test_a_small_disk(tmp_path):
    """The disk has 2 MB. Raw frames need 5.7 MB, JPEGs of quality 50 have room once, and no others beside them."""
    path, disk = tmp_path / "recorded/episode_0.hdf5", tmp_path / "disk"
    path.parent.mkdir(), disk.mkdir()
    write_encoded(path, {"top": smooth_frames(100, 120, 170, 3)})
    outputs = "top: {from: observations/images/top, at: 0, image: {resize: [118, 160]}}"
    options = "--prepare", write_config(tmp_path, outputs=outputs)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk]).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert "needs about 5.7 MB" in pack(path, "-o", disk / "raw.hdf5", *options, check=False).stderr
        pack(path, "-o", disk / "jpeg.hdf5", *options, "--jpeg", 50)
        refused = pack(path, "-o", disk / "second.hdf5", *options, "--jpeg", 99, check=False)
        assert refused.returncode == 1 and "No space left on device" in refused.stderr, refused.stderr
        assert {file.name for file in disk.iterdir()} <= {"jpeg.hdf5", "second.hdf5.partial"}
    finally:
        subprocess.run(["umount", disk], check=True)


MIXED = """\
datasets:
  recorded: {{path: {folder}/recorded, layout: aloha, color: rgb}}
  packed: {{path: {folder}/{second}, layout: aloha, color: rgb}}
feeds:
  train:
    mix: {{recorded: 1, packed: 1}}
    global_batch: 6
    anchor: {{clock: steps}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      top: {{from: observations/images/top, at: 0, image: {{resize: [20, 31], augment: [{{crop: [18, 18]}}]}}}}
"""


def test_a_mixture_of_prepared_and_recorded_files(daemon, tmp_path, recorded):
    """One dataset of a mixture is prepared: its preparation is that of one member, which --prepare names."""
    (tmp_path / "other").mkdir(), (tmp_path / "packed").mkdir()
    write_encoded(tmp_path / "other/episode_0.hdf5", {"top": random_frames(ROWS, 60, 80, 5)})
    config = tmp_path / "mixed.yaml"
    config.write_text("version: 2\n" + MIXED.format(folder=tmp_path, second="other"))
    unnamed = pack(tmp_path / "other/episode_0.hdf5", "-o", tmp_path / "packed", "--prepare", f"{config}:train", check=False)
    assert unnamed.returncode == 1 and "feed train has 2 datasets: name one, CONFIG:FEED:DATASET" in unnamed.stderr
    pack(tmp_path / "other/episode_0.hdf5", "-o", tmp_path / "packed", "--prepare", f"{config}:train:packed")
    delivered = []
    for second in ("other", "packed"):
        client = daemon(MIXED.format(folder=tmp_path, second=second), folder=f"mixed_{second}").client()
        client.open("train")
        delivered.append({(int(a["dataset_index"][w]), int(a["window_id"][w])): (a["top"][w].tobytes(), a["top.augment"][w].tobytes())
                          for _, a in client.epoch() for w in range(len(a["window_id"]))})
        counts = client.status()["datasets"][1]["frames"]
        assert (counts["prepared"] > 0) == (second == "packed") and (counts["decoded"] > 0) == (second == "other")
        client.close()
    assert len(delivered[0]) == 2 * ROWS and delivered[0] == delivered[1]  # the order is another one, as the fingerprint


MISTAKES = {
    "two preparations": ("{config}", OUTPUTS + "\n      small: {from: observations/images/top, at: 0, image: {resize: [10, 10]}}",
                         "the feed asks for two preparations of observations/images/top, and a file holds one: top: 48x64, crop 40x50 at (3, 5), resized to "
                         "20x31 by pillow-bilinear; small: 48x64, resized to 10x10 by pillow-bilinear"),
    "a crop that is too large": ("{config}", "top: {from: observations/images/top, at: 0, image: {crop: [50, 50]}}",
                                 "top: observations/images/top: crop: 50x50 is larger than the frames, which have 48x64"),
    "no file": ("nowhere.yaml:train", OUTPUTS, "--prepare nowhere.yaml:train: no such file; expected CONFIG[:FEED[:DATASET]]"),
    "no preset": ("umu", OUTPUTS, "--prepare:1: image.preset: "),
    "a preset with wrists": ("octo", OUTPUTS, "--prepare octo: it resizes wrist cameras in another way"),
    "only pixels that are taken whole": ("{config}", "side: {from: observations/images/side, at: 0, layout: chw}", "nothing to prepare"),
    "no feed": ("{config}:eval", OUTPUTS, "the configuration has no feed eval"),
    "no dataset": ("{config}:train:leg", OUTPUTS, "feed train has no dataset leg"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(tmp_path, recorded, mistake):
    value, outputs, message = MISTAKES[mistake]
    config = write_config(tmp_path, outputs=outputs)
    done = pack(recorded, "-o", tmp_path / "out.hdf5", "--prepare", value.format(config=config), check=False)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert not (tmp_path / "out.hdf5").exists() and not (tmp_path / "out.hdf5.partial").exists()
