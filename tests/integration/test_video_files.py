"""Packed video as the index and the tools see it. Nothing is decoded here: the packets are noise."""
import json
import os
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL
from video_groups import Video

LAYOUT = """\
layout: lab
episodes: {files: "*.h5", groups: /ep_*}
clocks: {robot: {rate: 30}}
streams:
  state: {kind: linear}
  cam: {kind: previous, image: {%s}}
"""


def trajctl(*arguments, check=True):
    done = subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def write_layout(folder, words="color: rgb"):
    path = folder / "lab.yaml"
    path.write_text(LAYOUT % words)
    return path


@pytest.fixture
def layout(tmp_path):
    return write_layout(tmp_path)


def write(path, *videos):
    """Writes an episode for each video."""
    with h5py.File(path, "w") as file:
        for e, video in enumerate(videos):
            group = file.create_group(f"ep_{e}")
            group["state"] = np.random.default_rng(e).random((len(video.rows), 3), "f4")
            video.write(group.create_group("cam"))
    return path


def inspect(path, layout, **more):
    found, = json.loads(trajctl("inspect", path, "--layout", layout, "--json", check=False).stdout)
    return found


def reason(path, layout):
    """Returns why the second episode is left out; the first one is good."""
    found = inspect(path, layout)
    assert "episodes" in found, found
    good, bad = found["episodes"]
    assert good["quarantine"] is None
    return bad["quarantine"]


def test_a_stream_of_video(tmp_path, layout):
    path = write(tmp_path / "a.h5", Video(), Video(rows=30, gop=3, seed=1))
    found = inspect(path, layout)
    stream = next(s for s in found["streams"] if s["name"] == "cam")
    assert (stream["dtype"], stream["row_shape"], stream["kind"]) == ("u8", [24, 32, 3], "previous")
    assert stream["storage"] == "av1 24x32 rgb (file), yuv420p, 2.0 frames per unit, packets in the file, contiguous"
    assert (stream["color"], stream["color_from"]) == ("rgb", "file")
    assert found["kept_count"] == 2
    validated = trajctl("validate", path, "--layout", layout, check=False)  # finds the assumed rate
    assert "42 frames not decoded" in validated.stdout and "cam" not in validated.stdout + validated.stderr


@pytest.mark.parametrize("words", ["color: rgb", "color: undecided", "color: rgb, encoding: video", "color: rgb, size: [24, 32]"])
def test_words_that_fit(tmp_path, words):
    layout = write_layout(tmp_path, words) if "undecided" not in words else write_layout(tmp_path, "color: rgb")
    assert inspect(write(tmp_path / "a.h5", Video()), layout)["kept_count"] == 1


@pytest.mark.parametrize("words, message", [
    ("color: bgr", "packed video: its attribute color is rgb, the layout says bgr"),
    ("unit: mm", "packed video: the layout says that its frames are depth"),
    ("color: rgb, size: [48, 64]", "packed video: its frames are 24x32, the layout says 48x64"),
    ("color: rgb, encoding: jpeg", "packed video: its attribute encoding is video, the layout says jpeg"),
    ("color: rgb, zero_frames: mask", "packed video: the layout says zero_frames: mask"),
])
def test_words_that_do_not_fit(tmp_path, words, message):
    found = inspect(write(tmp_path / "a.h5", Video()), write_layout(tmp_path, words))
    assert message in found["error"]


def set_entry(table, *place_and_value):
    *place, value = place_and_value
    return lambda video: getattr(video, table).__setitem__(tuple(place), value)


def set_attribute(name, value):
    return lambda video: video.attributes.__setitem__(name, value)


def many_packets(video):
    video.__init__(rows=4200, gop=4200, largest=3)


def large_packets(video):
    """Packets that overlap: more bytes than the limit, though the file is small."""
    video.packets = [bytes(15 << 20)] * 12
    video.table[:] = 0, 15 << 20
    video.units = video.units[:1]
    video.rows[:, 1] = 0


BAD_TABLES = {
    "a row beyond the packets": (set_entry("rows", 5, 0, 12), "row 5: it shows packet 12 of unit 2, and there are 12 packets and 6 units"),
    "a row beyond the units": (set_entry("rows", 11, 1, 6), "row 11: it shows packet 11 of unit 6"),
    "a negative row": (set_entry("rows", 0, 0, -1), "row 0: it shows packet -1"),
    "a row in another unit": (set_entry("rows", 5, 0, 7), "row 5: it shows packet 7, which is not in its unit 2 (packets 4 to 5)"),
    "units that descend": (set_entry("rows", 5, slice(None), [0, 0]), "row 5: it is in unit 0, and the row before it in unit 2"),
    "a negative position": (set_entry("table", 3, 0, -8), "packet 3: "),
    "a negative size": (set_entry("table", 3, 1, -8), "packet 3: -8 bytes"),
    "a packet beyond the bytes": (set_entry("table", 11, 1, 9000), "packet 11: 9000 bytes"),
    "a position that overflows": (set_entry("table", 11, slice(None), [2**63 - 8, 16]), "packet 11: 16 bytes"),
    "a packet of 17 MiB": (set_entry("table", 1, 1, 17 << 20), "packet 1: 17825792 bytes"),
    "units that do not ascend": (set_entry("units", 2, 0, 2), "unit 1: it begins at packet 2 and ends before packet 2"),
    "the first unit later": (set_entry("units", 0, 0, 1), "unit 0: it begins at packet 1"),
    "a negative unit": (set_entry("units", 3, 0, -4), "unit 2: it begins at packet 4 and ends before packet -4"),
    "a unit beyond the packets": (set_entry("units", 5, 0, 12), "unit 5: it begins at packet 12 and ends before packet 12, of 12"),
    "closed of 2": (set_entry("units", 4, 1, 2), "unit 4: closed is 2"),
    "no such extradata": (set_entry("units", 4, 2, 1), "unit 4: closed is 1, which must be 0 or 1, and its extradata is number 1 of 1"),
    "too many packets": (many_packets, "unit 0: 4200 packets, the limit is 4096"),
    "too many bytes": (large_packets, "unit 0: 188743680 bytes, the limit is 67108864"),
    "an unknown codec": (set_attribute("codec", "mpeg4"), "packed video: its attribute codec is mpeg4, which is not supported"),
    "no codec": (lambda video: video.attributes.pop("codec"), "packed video: its attribute codec is no text of one line"),
    "a number as codec": (set_attribute("codec", 1), "packed video: its attribute codec is no text of one line"),
    "an unknown matrix": (set_attribute("matrix", "ycgco"), "packed video: its attribute matrix is ycgco"),
    "an unknown range": (set_attribute("range", "pc"), "packed video: its attribute range is pc"),
    "no size": (set_attribute("size", 24), "packed video: its attribute size must be height and width"),
    "a large size": (set_attribute("size", [24, 9000]), "packed video: its attribute size must be height and width"),
    "tables of other columns": (lambda video: setattr(video, "units", video.units[:, :2]), "its dataset units must be a table with 3 columns"),
    "tables of another type": (lambda video: setattr(video, "rows", video.rows.astype("i4")), "its dataset rows must be i64"),
    "no rows": (lambda video: setattr(video, "rows", video.rows[:0]), "packed video: it has no rows"),
    "no units": (lambda video: setattr(video, "units", video.units[:0]), "12 packets, 0 units"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables(tmp_path, layout, name):
    change, message = BAD_TABLES[name]
    bad = Video(seed=1)
    change(bad)
    path = write(tmp_path / "a.h5", Video(), bad)
    found = reason(path, layout)
    assert found.startswith("a.h5: ep_1: cam: ") and message in found
    validated = trajctl("validate", path, "--layout", layout, check=False)
    assert validated.returncode and message in validated.stdout


def test_compressed_tables(tmp_path, layout):
    path = write(tmp_path / "a.h5", Video(), Video())
    with h5py.File(path, "a") as file:
        units = file["ep_1/cam/units"][()]
        del file["ep_1/cam/units"]
        file["ep_1/cam"].create_dataset("units", data=units, compression="gzip")
    assert "its dataset units must be contiguous, without compression" in reason(path, layout)


def test_extradata_ends(tmp_path, layout):
    path = write(tmp_path / "a.h5", Video(), Video())
    for ends, message in (([23], "extradata 0: it begins at 0 and ends at 23, of 22 bytes"), ([-1], "extradata 0: it begins at 0 and ends at -1")):
        with h5py.File(path, "a") as file:
            file["ep_1/cam/extradata_ends"][...] = ends
        assert message in reason(path, layout)


# ---- media files ----

def test_a_video_by_reference(tmp_path, layout):
    videos = [Video(rows=200, gop=20), Video(seed=1)]
    copied = inspect(write(tmp_path / "copied.h5", *videos), layout)
    for n, video in enumerate(videos):
        video.write_media(tmp_path, f"videos/chunk-000/{n}.mp4")
    found = inspect(write(tmp_path / "a.h5", *videos), layout)
    assert found["kept_count"] == 2
    assert "20.0 frames per unit, packets in MP4" in next(s for s in found["streams"] if s["name"] == "cam")["storage"]
    # the same frames: both files have the same fingerprint under the same name
    (tmp_path / "copied.h5").rename(tmp_path / "a.h5")
    assert inspect(tmp_path / "a.h5", layout)["fingerprint"] == found["fingerprint"] != copied["fingerprint"]


def by_reference(tmp_path):
    """Returns the file with a good and a bad episode, and the video and the media file of the bad one."""
    good, bad = Video(), Video(seed=1)
    good.write_media(tmp_path, "videos/good.mp4")
    media = bad.write_media(tmp_path, "videos/bad.mp4")
    return write(tmp_path / "a.h5", good, bad), bad, media


def test_changed_media(tmp_path, layout):
    path, video, media = by_reference(tmp_path)
    content = media.read_bytes()
    changes = {"another size": (content + b"x", f"it has {len(content) + 1} bytes, and had {len(content)} when the episode was converted"),
               "another moov": (content.replace(b"moov box", b"MOOV BOX"), "its contents are not those from which the episode was converted")}
    at = int(video.table[7, 0])
    changes["another packet"] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1:], "its contents are not those"
    for changed, message in changes.values():
        media.unlink()
        media.write_bytes(changed)
        assert f"cam: media file videos/bad.mp4 has changed: {message}" in reason(path, layout)
    media.unlink()
    assert f"media file videos/bad.mp4 below {tmp_path}: No such file or directory" in reason(path, layout)
    validated = trajctl("validate", path, "--layout", layout, check=False)
    assert validated.returncode and "media file videos/bad.mp4" in validated.stdout
    media.write_bytes(content)
    assert reason(path, layout) is None


def test_media_that_are_no_files(tmp_path, layout):
    path, _, media = by_reference(tmp_path)
    elsewhere = tmp_path / "elsewhere.mp4"
    media.rename(elsewhere)
    media.symlink_to("../elsewhere.mp4")
    assert "media file videos/bad.mp4 below" in reason(path, layout) and "a symbolic link, which is not followed" in reason(path, layout)
    media.unlink()
    os.mkfifo(media)
    assert "it is not a regular file" in reason(path, layout)
    media.unlink()
    media.mkdir()
    assert "it is not a regular file" in reason(path, layout)
    media.rmdir()
    elsewhere.rename(media)
    assert reason(path, layout) is None
    (tmp_path / "videos").rename(tmp_path / "real")
    (tmp_path / "videos").symlink_to("real")
    found = inspect(path, layout)
    assert "a symbolic link, which is not followed" in found["error"]


@pytest.mark.parametrize("media", ["/etc/passwd", "../outside.mp4", "videos/../../outside.mp4", "videos//good.mp4", "./videos/good.mp4", "videos/", "."])
def test_paths_that_lead_out(tmp_path, layout, media):
    (tmp_path / "in").mkdir()
    good, bad = Video(), Video(seed=1)
    bad.write_media(tmp_path, "outside.mp4")
    bad.attributes["media"] = media
    path = write(tmp_path / "in/a.h5", good, bad)
    assert f'packed video: its attribute media is {media}: it must be a relative path without "." and ".."' in reason(path, layout)


def test_media_attributes(tmp_path, layout):
    for name, value, message in (("media_size", 5, "media_size and media_moov are out of range"), ("media_moov", [-5, 10], "has changed"),
                                 ("media_moov", [0, 2**62], "media_size and media_moov are out of range"),
                                 ("media_moov", [1], "must be one, two and one numbers"), ("media_crc32", 2**40, "must be one, two and one"),
                                 ("media_crc32", "0", "must be one, two and one"), ("media", "", "its attribute media is no text of one line"),
                                 ("media", "a\nb", "its attribute media is no text of one line")):
        path, bad, _ = by_reference(tmp_path)
        with h5py.File(path, "a") as file:
            file["ep_1/cam"].attrs[name] = value
        assert message in reason(path, layout), name


# ---- tools ----

def test_resample_refuses_video_by_name(tmp_path, layout):
    path = write(tmp_path / "a.h5", Video())
    command = ["resample", path, "-o", tmp_path / "slow.h5", "--layout", layout, "--rate", "10", "--assume-rate"]
    refused = trajctl(*command, check=False)
    assert refused.returncode and "cam holds packed video, whose frames are not resampled: choose other streams with --streams" in refused.stderr
    trajctl(*command, "--streams", "state")
    with h5py.File(tmp_path / "slow.h5") as file:
        assert len(file["ep_0/state"]) == 4 and "cam" not in file["ep_0"]


def test_pack_copies_video(tmp_path):
    layout = tmp_path / "lab.yaml"
    layout.write_text(LAYOUT % "color: rgb" + "  other: {kind: previous, image: {color: rgb, encoding: raw, size: [4, 4]}}\n")
    video = Video()
    video.write_media(tmp_path, "videos/a.mp4")
    path = write(tmp_path / "a.h5", video)
    with h5py.File(path, "a") as file:
        file["ep_0"].create_dataset("other", data=np.zeros((12, 4, 4, 3), "u1"), compression="gzip", chunks=(4, 4, 4, 3))
    trajctl("pack", path, "-o", tmp_path / "out.h5", "--layout", layout)
    with h5py.File(path) as before, h5py.File(tmp_path / "out.h5") as after:
        assert set(after["ep_0/other"]) == {"bytes", "offsets"} and set(after["ep_0/cam"]) == set(before["ep_0/cam"])
        for name, data in before["ep_0/cam"].items():
            assert np.array_equal(after["ep_0/cam"][name], data) and not after["ep_0/cam"][name].chunks
        assert dict(after["ep_0/cam"].attrs)["media"] == "videos/a.mp4"
    (tmp_path / "far").mkdir()
    refused = trajctl("pack", path, "-o", tmp_path / "far/out.h5", "--layout", layout, check=False)
    assert refused.returncode and f"media file videos/a.mp4 below {tmp_path}/far: No such file or directory" in refused.stderr
    refused = trajctl("pack", path, "-o", tmp_path / "small.h5", "--layout", layout, "--prepare", "openpi", check=False)
    assert refused.returncode and "cam holds packed video, of which no prepared frames are made" in refused.stderr
