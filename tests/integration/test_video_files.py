"""Packed video as the index and the tools see it. Most packets are noise, which is not decoded."""
import json
import os
import subprocess
import zlib

import h5py
import numpy as np
import pytest

from bar_codes import read_bar_code
from paths import PROGRAM, ROOT, TRAJCTL
from image_files import read_png
from video_groups import Video, of_mp4
from waiting import wait_for

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


def many_rows(video):
    video.rows = np.zeros(4200, np.int64)
    video.units = video.units[:1]
    video.attributes["largest_unit"] = np.array([12, 1 << 20])


def overlapping_packets(video):
    """More bytes than the limit, though the file is small."""
    video.packets = [bytes(15 << 20)] * 12
    video.table[:, :2] = 0, 15 << 20
    video.units = video.units[:1]
    video.attributes["largest_unit"] = np.array([12, 64 << 20])


BAD_TABLES = {
    "a row beyond the packets": (set_entry("rows", 5, 12), "row 5: it shows packet 12, which is not in its unit 2 (packets 4 to 5)"),
    "a negative row": (set_entry("rows", 0, -1), "row 0: it shows packet -1, which is not in its unit 0"),
    "a row of another unit": (set_entry("rows", 5, 3), "row 5: it shows packet 3, which is not in its unit 2 (packets 4 to 5)"),
    "a negative position": (set_entry("table", 3, 0, -8), "packet 3: "),
    "a negative size": (set_entry("table", 3, 1, -8), "packet 3: -8 bytes"),
    "a packet beyond the bytes": (set_entry("table", 11, 1, 9000), "packet 11: 9000 bytes"),
    "a position that overflows": (set_entry("table", 11, slice(0, 2), [2**63 - 8, 16]), "packet 11: 16 bytes"),
    "a packet of 17 MiB": (set_entry("table", 1, 1, 17 << 20), "packet 1: 17825792 bytes"),
    "a crc32 of 33 bits": (set_entry("table", 1, 2, 1 << 32), "with crc32 4294967296"),
    "another crc32": (set_entry("table", 11, 2, 5), "cam: the bytes of packet 11 have changed since the conversion"),
    "packets that do not ascend": (set_entry("units", 2, 0, 2), "unit 1: packets from 2 to before 2 of 12, rows from 2 to before 4 of 12: units must ascend"),
    "rows that do not ascend": (set_entry("units", 2, 1, 2), "unit 1: packets from 2 to before 4 of 12, rows from 2 to before 2 of 12: units must ascend"),
    "the first unit later": (set_entry("units", 0, 0, 1), "unit 0: packets from 1 to before 2 of 12, rows from 0 to before 2 of 12: the first unit must begin"),
    "rows before the first unit": (set_entry("units", 0, 1, 1), "the first unit must begin at packet 0 and row 0"),
    "a negative unit": (set_entry("units", 3, 0, -4), "unit 2: packets from 4 to before -4 of 12"),
    "negative rows": (set_entry("units", 3, 1, -4), "unit 2: packets from 4 to before 6 of 12, rows from 4 to before -4 of 12"),
    "a unit beyond the packets": (set_entry("units", 5, 0, 13), "unit 4: packets from 8 to before 13 of 12, rows from 8 to before 10 of 12: there are not so many"),
    "a unit beyond the rows": (set_entry("units", 5, 1, 13), "unit 4: packets from 8 to before 10 of 12, rows from 8 to before 13 of 12: there are not so many"),
    "no such extradata": (set_entry("units", 4, 2, 1), "unit 4: its extradata is number 1 of 1"),
    "negative extradata": (set_entry("units", 4, 2, -1), "unit 4: its extradata is number -1 of 1"),
    "a unit of more packets": (set_attribute("largest_unit", [1, 1 << 20]), "unit 0: packets from 0 to before 2 of 12, rows from 0 to before 2 of 12: the attribute largest_unit says less"),
    "a unit of more bytes": (set_attribute("largest_unit", [2, 10]), "bytes, the attribute largest_unit says 10"),
    "too many packets": (many_packets, "packed video: its largest unit has 4200 packets of"),
    "too many bytes": (set_attribute("largest_unit", [2, (64 << 20) + 1]), "packed video: its largest unit has 2 packets of 67108865 bytes, the limits are"),
    "overlapping packets": (overlapping_packets, "unit 0: 188743680 bytes, the attribute largest_unit says 67108864"),
    "too many rows": (many_rows, "unit 0: packets from 0 to before 12 of 12, rows from 0 to before 4200 of 4200: the limit is 4096 rows"),
    "no largest unit": (lambda video: video.attributes.pop("largest_unit"), "packed video: its attribute largest_unit must be two numbers"),
    "another version": (set_attribute("version", 2), "packed video: its attribute version is 2, this trajd reads version 1"),
    "no version": (lambda video: video.attributes.pop("version"), "packed video: its attribute version must be one number"),
    "an unknown codec": (set_attribute("codec", "mpeg4"), "packed video: its attribute codec is mpeg4, which is not supported"),
    "no codec": (lambda video: video.attributes.pop("codec"), "packed video: its attribute codec is not a text of one line"),
    "a number as codec": (set_attribute("codec", 1), "packed video: its attribute codec is not a text of one line"),
    "an unknown matrix": (set_attribute("matrix", "ycgco"), "packed video: its attribute matrix is ycgco"),
    "an unknown range": (set_attribute("range", "pc"), "packed video: its attribute range is pc"),
    "no size": (set_attribute("size", 24), "packed video: its attribute size must be height and width"),
    "a large size": (set_attribute("size", [24, 9000]), "packed video: its attribute size must be height and width"),
    "tables of other columns": (lambda video: setattr(video, "units", video.units[:, :2]), "its dataset units must be a table with 3 columns"),
    "tables of another type": (lambda video: setattr(video, "rows", video.rows.astype("i4")), "its dataset rows must be i64"),
    "no rows": (lambda video: setattr(video, "rows", video.rows[:0]), "packed video: it has no rows"),
    "no units": (lambda video: setattr(video, "units", video.units[:0]), "12 rows, 12 packets, 0 units"),
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

    def rewrite(changed):
        media.unlink()
        media.write_bytes(changed)

    rewrite(content + b"x")
    assert f"cam: media file videos/bad.mp4 has {len(content) + 1} bytes, and had {len(content)} when the episode was converted" in reason(path, layout)
    rewrite(os.urandom(len(content)))
    assert "cam: media file videos/bad.mp4: the bytes of packet 0 have changed since the conversion" in reason(path, layout)
    media.unlink()
    assert f"media file videos/bad.mp4 below {tmp_path}: No such file or directory" in reason(path, layout)
    validated = trajctl("validate", path, "--layout", layout, check=False)
    assert validated.returncode and "media file videos/bad.mp4" in validated.stdout
    media.write_bytes(content)
    assert reason(path, layout) is None


@pytest.mark.parametrize("by_reference", [False, True])
def test_validate_reads_all_packets(tmp_path, layout, by_reference):
    """A changed packet that the index does not sample costs the frames of its unit from there on."""
    video = Video(rows=40, gop=10)
    if by_reference:
        video.write_media(tmp_path, "videos/a.mp4")
    path = write(tmp_path / "a.h5", video)
    with h5py.File(path) as file:
        start = 0 if by_reference else file["ep_0/cam/bytes"].id.get_offset()
    with open(tmp_path / "videos/a.mp4" if by_reference else path, "r+b") as file:
        file.seek(start + int(video.table[16, 0]))
        file.write(bytes([video.packets[16][0] ^ 1]))
    validated = trajctl("validate", path, "--layout", layout, check=False)
    assert validated.returncode
    assert "4 frames cannot be decoded, the first is row 16: the bytes of packet 16 have changed since the conversion" in validated.stdout


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
    for name, value, message in (("media_size", -5, "packet 0: "), ("media_size", 5, "there are 5 bytes"),
                                 ("media_size", 1 << 40, "media file videos/bad.mp4 has"),
                                 ("media_size", [1, 2], "its attribute media_size must be one number"),
                                 ("media_size", "0", "its attribute media_size must be one number"),
                                 ("media", "", "its attribute media is not a text of one line"),
                                 ("media", "a\nb", "its attribute media is not a text of one line")):
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


# ---- decoding ----

MP4S = ROOT / "tests/golden/video/mp4"


@pytest.mark.parametrize("name, gop, codec, config", [("h264", 6, "h264", b"avcC"), ("av1", 2, "av1", b"av1C")])
def test_frames_are_shown_and_decoded(tmp_path, layout, name, gop, codec, config):
    video = of_mp4(MP4S / f"{name}.mp4", gop, codec, config)
    video.rows = np.arange(len(video.packets)).reshape(-1, gop)[:, ::-1].reshape(-1)  # of each unit the last frame first
    path = write(tmp_path / "a.h5", video)
    for row in (0, 1, 11, len(video.rows) - 1):
        shown = trajctl("inspect", path, "--layout", layout, "--frame", f"cam:{row}", "-o", tmp_path / f"{row}.png").stdout
        assert f"row {row}: 48x64 rgb" in shown and f"stored as {codec}" in shown
        image = read_png(tmp_path / f"{row}.png")
        for left in (0, image.shape[1] - 64):  # as a standard decoder gives it, and upright
            assert read_bar_code(image[:48, left:left + 64]) == video.rows[row]
    strip = trajctl("plot", path, "cam", "--layout", layout, "-o", tmp_path / "strip.png")
    assert strip.stderr == "" and read_png(tmp_path / "strip.png").shape[1] > 64
    decoded = trajctl("validate", path, "--layout", layout, "--decode", check=False).stdout
    assert "cannot be decoded" not in decoded and "not decoded" not in decoded


def test_frames_behind_a_damaged_packet_are_bad(tmp_path, layout):
    """The crc32 is right, so only a decoder sees it."""
    video = of_mp4(MP4S / "h264.mp4", 6)
    video.packets[8] = video.packets[8][:5] + bytes(len(video.packets[8]) - 5)
    video.table[8, 2] = zlib.crc32(video.packets[8])
    path = write(tmp_path / "a.h5", video)
    found = trajctl("validate", path, "--layout", layout, "--decode", check=False).stdout
    assert "4 frames cannot be decoded, the first is row 8" in found
    assert "cannot be decoded" not in trajctl("validate", path, "--layout", layout, check=False).stdout
    shown = trajctl("inspect", path, "--layout", layout, "--frame", "cam:8", "-o", tmp_path / "row.png", check=False)
    assert shown.returncode and "cam: row 8: " in shown.stderr


# ---- the configuration and the cache ----

CONFIG = """\
version: 2
cache: {folder}/cache
datasets: {{lab: {{path: a.h5, layout: ./lab.yaml{media}}}}}
feeds: {{one: {{dataset: lab, global_batch: 1, anchor: {{clock: robot}}, outputs: {{state: {{at: 0..0}}}}}}}}
"""


def check(tmp_path, media=""):
    (tmp_path / "trajd.yaml").write_text(CONFIG.format(folder=tmp_path, media=media))
    done = subprocess.run([PROGRAM, "--check", "--config", tmp_path / "trajd.yaml"], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def age(*paths):
    """The cache keeps no record of files that were written to a moment ago."""
    for path in paths:
        os.utime(path, (1_600_000_000, 1_600_000_000))


def test_the_key_media(tmp_path, layout):
    videos = [Video(), Video(seed=1)]
    for n, video in enumerate(videos):
        video.write_media(tmp_path / "elsewhere", f"{n}.mp4")
    write(tmp_path / "a.h5", *videos)
    assert f"media file 0.mp4 below {tmp_path}: No such file or directory" in check(tmp_path)
    assert "2 episodes kept of 2" in check(tmp_path, ", media: elsewhere")
    printed = subprocess.run([PROGRAM, "--print-config", "--config", tmp_path / "trajd.yaml"], capture_output=True, text=True, timeout=60).stdout
    assert f'media: "{tmp_path}/elsewhere"' in printed
    (tmp_path / "trajd.yaml").write_text(printed)
    assert f"{tmp_path}/elsewhere" in printed
    assert "datasets.lab.media: a text is expected" in check(tmp_path, ", media: [a]")


def test_the_cache_sees_media_files(tmp_path, layout):
    path, _, media = by_reference(tmp_path)
    (tmp_path / "cache").mkdir()
    age(path, media, media.with_name("good.mp4"))
    wait_for(lambda: "1 file (1 from the cache), 2 episodes kept of 2" in check(tmp_path), 10)
    content = media.read_bytes()
    media.unlink()
    assert "1 file (0 from the cache), 1 episode kept of 2" in check(tmp_path)  # gone
    wait_for(lambda: "1 file (1 from the cache), 1 episode kept of 2" in check(tmp_path), 10)
    media.write_bytes(content)  # back again
    assert "1 file (0 from the cache), 2 episodes kept of 2" in check(tmp_path)
    assert "1 file (0 from the cache), 2 episodes kept of 2" in check(tmp_path)  # too young to be kept
    media.write_bytes(content[:-1] + b"!")  # where no sample is: only stat tells
    age(media)
    found = check(tmp_path)
    assert "1 file (0 from the cache)" in found
