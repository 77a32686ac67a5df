"""`trajctl pack --prepare` of converted videos: the feed of the copy is that of the packets."""
import re
import shutil
import subprocess
import sys
import zlib

import h5py
import numpy as np
import pytest
from paths import TRAJCTL, clean_environment, package_environment
from image_files import assert_near
from video_groups import VIDEO

FEED = """
datasets: {{data: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: data
    global_batch: 4
    tail: short
    order: sequential
    bad_rows: keep
    anchor: {{clock: {clock}}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      {outputs}
"""
SIZE = (24, 30)


def trajctl(*arguments, check=True):
    done = subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=clean_environment())
    assert not check or done.returncode == 0, done.stderr
    return done


def outputs_of(*cameras, keys="resize: [24, 30]"):
    return "\n      ".join(f"{name}: {{from: observation/images/{name}, at: -1..0, image: {{{keys}}}}}" for name in cameras)


def deliver(daemon, path, outputs, layout="lerobot"):
    """Reads an epoch; returns its arrays, and the daemon's counts of frames."""
    client = daemon(FEED.format(path=path, outputs=outputs, layout=layout, clock="robot" if layout == "droid" else "steps"), folder=f"daemon_{path.stem}").client()
    client.open("train")
    batches = [arrays for _, arrays in client.epoch()]
    status = client.status()
    client.close()
    names = [name for name in batches[0] if name not in ("window_id", "slot_generation")]
    return {name: np.concatenate([b[name] for b in batches]) for name in names}, status["datasets"][0]["frames"]


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture
def converted(tmp_path):
    """converted(source, name) converts a recorded set."""
    def convert(source, name):
        folder = VIDEO / "lerobot" / name if source == "lerobot" else shutil.copytree(VIDEO / name, tmp_path / name)
        done = subprocess.run([sys.executable, "-m", "trajd.convert", source, folder, "-o", tmp_path / "set.hdf5"], capture_output=True, text=True,
                              env=clean_environment(**package_environment()))
        assert done.returncode == 0, done.stderr
        return tmp_path / "set.hdf5"
    return convert


SETS = {"av1": ("lerobot", "v30_av1", ("top", "wrist")), "h264": ("lerobot", "v30_h264_g30", ("top",)),
        "droid": ("droid", "droid", ("wrist", "exterior_1"))}


@pytest.mark.parametrize("name", SETS)
def test_prepared_frames_are_those_of_the_videos(daemon, tmp_path, converted, name):
    """Also where the packets stay in MP4 files, and frames that were not recorded stay masked."""
    source, folder, cameras = SETS[name]
    path, out = converted(source, folder), tmp_path / "copy.hdf5"
    done = trajctl("pack", path, "-o", out, "--prepare", "24x30")
    assert "0 of the frames cannot be decoded" in done.stdout
    with h5py.File(path) as before, h5py.File(out) as after:
        for episode in before["data"]:
            video, copy = (file[f"data/{episode}/observation/images/{cameras[0]}"] for file in (before, after))
            assert set(copy) == {"bytes", "offsets"} and set(copy.attrs) - set(video.attrs) == {"flip", "unit", "preparation"}
            assert not {"codec", "media", "media_size", "largest_unit", "pixel_format", "matrix", "range", "version"} & set(copy.attrs)
            assert copy.attrs["size"].tolist() == [*SIZE] and copy.attrs["encoding"] == "raw"
            lengths = np.diff(copy["offsets"][()])
            assert set(lengths[:-1]) == {SIZE[0] * SIZE[1] * 3} and lengths[-1] == (0 if name == "droid" else lengths[0])
    prepared, counts = deliver(daemon, out, outputs_of(*cameras), source)
    assert counts["decoded"] == 0
    original, _ = deliver(daemon, path, outputs_of(*cameras), source)
    assert_same(prepared, original)


@pytest.mark.parametrize("name", SETS)
def test_jpegs_of_videos_are_near_the_raw_copy(daemon, tmp_path, converted, name):
    """Frames that were not recorded stay masked. Measured: means of 1.51 to 1.75 and maxima of 15 to 19 levels."""
    source, folder, cameras = SETS[name]
    path, raw, out = converted(source, folder), tmp_path / "raw.hdf5", tmp_path / "jpeg.hdf5"
    trajctl("pack", path, "-o", raw, "--prepare", "24x30")
    trajctl("pack", path, "-o", out, "--prepare", "24x30", "--jpeg", "95")
    jpegs, counts = deliver(daemon, out, outputs_of(*cameras), source)
    assert counts["decoded"] > 0 and counts["prepared"] == 0
    assert_near(jpegs, deliver(daemon, raw, outputs_of(*cameras), source)[0], cameras, mean=2, most=24)


def test_a_damaged_packet_costs_its_frames(tmp_path, converted):
    """The crc32 is right, so only the decoder sees it."""
    path, out = converted("lerobot", "v30_av1"), tmp_path / "copy.hdf5"
    with h5py.File(path, "r+") as file:
        video = file["data/episode_000000/observation/images/top"]
        position, size, _ = video["packets"][3]
        video["bytes"][position:position + size] = 255
        video["packets"][3, 2] = zlib.crc32(b"\xff" * size)
    done = trajctl("pack", path, "-o", out, "--prepare", "24x30")
    assert "; 1 of the frames cannot be decoded" in done.stdout
    reason, = re.findall("images/top: row 3: (packet 1 of its decode unit: .*): it stays a bad frame", done.stderr)
    with h5py.File(out) as file:
        copy = file["data/episode_000000/observation/images/top"]
        assert copy["bytes"][copy["offsets"][3]:copy["offsets"][4]].tobytes().decode() == reason


@pytest.mark.parametrize("value, message", [
    ("24x", "--prepare:1: image.preset: 24x is not one of the choices"),
    ("0x24", "--prepare:1: "),
    ("24x99999", "--prepare:1: "),
])
def test_sizes_that_cannot_be(tmp_path, converted, value, message):
    done = trajctl("pack", converted("lerobot", "v30_av1"), "-o", tmp_path / "copy.hdf5", "--prepare", value, check=False)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert not (tmp_path / "copy.hdf5").exists()
