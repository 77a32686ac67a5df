"""`trajd-decoder describe`: every MP4 file in tests/golden/video against what FFmpeg's demuxer found in it (vectors.json), and files that are
broken or hostile: each gives a sentence, in bounded time and memory."""
import json
import os
import resource
import struct
import subprocess
import zlib

import pytest

from paths import PROGRAM, ROOT, clean_environment

GOLDEN = ROOT / "tests/golden/video"
VECTORS = json.loads((GOLDEN / "vectors.json").read_text())["files"]
DECODER = PROGRAM.parent / "decode/trajd-decoder"
EDIT_REFUSED = "only a delay, or the start behind the delay of B frames, is read"
REFUSED = {  # of the files in mp4/
    "edit_middle": "hides frames: " + EDIT_REFUSED, "edit_parts": "of 2 entries, cuts it or changes its speed: " + EDIT_REFUSED,
    "edit_three": "of 3 entries, cuts it or changes its speed: " + EDIT_REFUSED, "edit_short": "hides frames: " + EDIT_REFUSED,
    "edit_rate": "of 1 entries, cuts it or changes its speed: " + EDIT_REFUSED, "edit_zero": "hides frames: " + EDIT_REFUSED,
    "h264_fragmented": "it is fragmented (it has a box moof)", "h264_interlaced": "its video is interlaced",
    "mpeg4": "its video is stored as 'mp4v', which is not supported", "no_video": "it has 0 video tracks",
    "truncated": "it was cut or is damaged: its box at byte 902", "truncated_no_moov": "it was cut or is damaged: its box at byte 40"}


def run(path):
    """Returns (exit status, output, errors), and checks what must hold for any file."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    with open(path, "rb") as file:
        result = subprocess.run([DECODER, "describe"], stdin=file, capture_output=True, timeout=120, preexec_fn=limit, env=clean_environment())
    errors = result.stderr.decode()
    assert result.returncode in (0, 1), (result.returncode, errors)
    if result.returncode:
        assert result.stdout == b"" and errors.count("\n") == 1 and errors.endswith("\n") and 10 < len(errors) < 400, errors
        assert errors.isprintable() or errors[:-1].isprintable()
    else:
        assert errors == ""
    return result.returncode, result.stdout, errors.strip()


def describe(path):
    status, output, errors = run(path)
    assert status == 0, errors
    line, _, arrays = output.partition(b"\n")
    description = json.loads(line)
    counts = {"rows": 1, "pts": 1, "packets": 3, "units": 3}
    at = 0
    for name, columns in counts.items():
        count = len(description["rows"]) if name == "pts" else description[name]
        values = struct.unpack_from(f"<{count * columns}q", arrays, at)
        at += 8 * count * columns
        description[name] = list(values) if columns == 1 else [list(values[i:i + columns]) for i in range(0, len(values), columns)]
    description["extradata"] = arrays[at:]
    assert len(description["extradata"]) == description["extradata_ends"][-1]
    return description


def refuse(path, *words):
    status, _, errors = run(path)
    assert status == 1 and all(word in errors for word in words), errors


@pytest.mark.parametrize("name", sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.mp4") if path.stem not in REFUSED))
def test_files_as_ffmpeg_reads_them(name):
    if name not in VECTORS:
        pytest.skip("a copy of another file")
    expected, data, found = VECTORS[name], (GOLDEN / name).read_bytes(), describe(GOLDEN / name)
    for key in ("codec", "height", "width", "pixel_format", "matrix", "range", "timescale", "rows"):
        assert found[key] == expected[key], key
    assert found["file_bytes"] == len(data)
    assert found["pts"] == [time - expected["pts"][0] for time in expected["pts"]]
    assert [packet[:2] for packet in found["packets"]] == expected["packets"]
    assert all(zlib.crc32(data[at:at + size]) == checksum for at, size, checksum in found["packets"])
    # the recording has CRA frames join the unit before; those that nothing refers back from begin one
    assert [unit[0] for unit in found["units"]] == ([0, 4] if name == "mp4/hevc_cropped.mp4" else [unit[0] for unit in expected["units"]])
    for (first, first_row, _), (end, end_row, _) in zip(found["units"], found["units"][1:] + [[len(found["packets"]), len(found["rows"]), 0]]):
        assert first < end and first_row < end_row and all(first <= packet < end for packet in found["rows"][first_row:end_row])


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    refuse(GOLDEN / "mp4" / f"{name}.mp4", REFUSED[name])


def test_extradata_are_those_in_force():
    """Two sample entries, and the same second parameter sets in band: the units of both need them from packet 12 on."""
    in_band, entries = describe(GOLDEN / "mp4/h264_inband.mp4"), describe(GOLDEN / "mp4/h264_two_stsd.mp4")
    for found in in_band, entries:
        assert [unit[2] for unit in found["units"]] == [0, 0, 1, 1]

    def sets(found, i):
        """The number of sequence sets, and all sets, without what only High profiles have behind them."""
        data = found["extradata"][([0] + found["extradata_ends"])[i]:found["extradata_ends"][i]]
        at, lists = 5, []
        for mask in 31, 255:
            count, at, names = data[at] & mask, at + 1, []
            for _ in range(count):
                size = int.from_bytes(data[at:at + 2], "big")
                names.append(data[at + 2:at + 2 + size])
                at += 2 + size
            lists.append(names)
        return lists
    assert sets(in_band, 0) == sets(entries, 0)
    assert sets(in_band, 1)[0][0] == sets(entries, 1)[0][0] and sets(in_band, 1)[1][0] == sets(entries, 1)[1][0]
    assert sets(in_band, 0) != sets(in_band, 1)


# ---- broken and hostile files ----

def boxes(data, names, at=0, end=None):
    """Yields (start, end of the header) of each box on the path of names."""
    end = len(data) if end is None else end
    while at + 8 <= end:
        size, name = struct.unpack_from(">I4s", data, at)
        size = size or end - at
        if name == names[0].encode():
            if len(names) == 1:
                yield at
            else:
                skip = 8 + {"stsd": 8, "avc1": 78, "dref": 8}.get(names[0], 0)
                yield from boxes(data, names[1:], at + skip, at + size)
        at += size


STBL = ["moov", "trak", "mdia", "minf", "stbl"]


def place(data, *names):
    return next(boxes(data, list(names)))


def patched(name="h264_bframes", *changes):
    """Returns the file with values set: (path of the box, place behind its header, format, value)."""
    data = bytearray((GOLDEN / "mp4" / f"{name}.mp4").read_bytes())
    for path, at, form, value in changes:
        struct.pack_into(form, data, place(data, *path) + 8 + at, value)
    return bytes(data)


def table(name):
    return STBL + [name]


HOSTILE = {
    "empty": (b"", "no box moov"),
    "no MP4": (b"RIFF" * 50, "does not begin with a box ftyp"),
    "box of 4 bytes": (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x04moov", "its box at byte 16 says that it has 4 bytes"),
    "box of 2^63 bytes": (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x01moov\x80" + bytes(7), "says that it has 9223372036854775808 bytes"),
    "no end of boxes": (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\x08free" * 100000, "no box moov"),
    "moov that holds itself": (b"\0\0\0\x10ftypisom\0\0\0\0" + b"\0\0\0\0moov" * 1000, "0 video tracks"),
    "count of sizes": (patched("h264_bframes", (table("stsz"), 8, ">I", 0xffffffff)), "stsz is cut"),
    "2^31 samples of one size": (patched("h264_bframes", (table("stsz"), 4, ">I", 1), (table("stsz"), 8, ">I", 1 << 31)), "2147483648 samples"),
    "more samples than the file has bytes": (patched("h264_bframes", (table("stsz"), 4, ">I", 1), (table("stsz"), 8, ">I", 1 << 24)), "and the file"),
    "sample of no bytes": (patched("h264_bframes", (table("stsz"), 12, ">I", 0)), "sample 0 of its video track has 0 bytes"),
    "sample of 2 GiB": (patched("h264_bframes", (table("stsz"), 16, ">I", 1 << 31)), "sample 1 of its video track has 2147483648 bytes"),
    "chunk behind the end": (patched("h264_bframes", (table("stco"), 8, ">I", 0xfffffff0)), "beyond the end of the file"),
    "count of chunks": (patched("h264_bframes", (table("stco"), 4, ">I", 0x40000000)), "stco is cut"),
    "no chunks": (patched("h264_bframes", (table("stco"), 4, ">I", 0)), "places of 0 samples"),
    "first chunk 2": (patched("h264_bframes", (table("stsc"), 8, ">I", 2)), "stsc is damaged"),
    "no samples in chunks": (patched("h264_bframes", (table("stsc"), 12, ">I", 0)), "places of 0 samples"),
    "entry 2 of 1": (patched("h264_bframes", (table("stsc"), 16, ">I", 2)), "stsc is damaged"),
    "too many times": (patched("h264_bframes", (table("stts"), 8, ">I", 0xffffffff)), "stts has times of 4294967295 samples"),
    "negative duration": (patched("h264_bframes", (table("stts"), 12, ">i", -1)), "negative duration"),
    "one time for two": (patched("h264_bframes_no_edit", (table("stts"), 12, ">I", 0)), "at the same time"),
    "count of delays": (patched("h264_bframes", (table("ctts"), 4, ">I", 0xffffffff)), "ctts is cut"),
    "a delay into the next unit": (patched("h264_bframes", (table("ctts"), 12, ">I", 100000)), "which the order of the packets excludes"),
    "timescale 0": (patched("h264_bframes", (["moov", "trak", "mdia", "mdhd"], 12, ">I", 0)), "no timescale"),
    "turned": (patched("h264_bframes", (["moov", "trak", "tkhd"], 40, ">I", 0)), "turned, mirrored or scaled"),
    "entries": (patched("h264_bframes", (table("stsd"), 4, ">I", 0xffffffff)), "stsd is missing or cut"),
    "unknown entry": (patched("h264_bframes", (table("stsd"), 12, "4s", b"\x1b[2J")), "'?[2J'"),
    "in another file": (patched("h264_bframes", (["moov", "trak", "mdia", "minf", "dinf", "dref", "url "], 0, ">I", 0)), "in another file"),
    "data reference 0": (patched("h264_bframes", (table("stsd") + ["avc1"], 6, ">H", 0)), "in another file"),
    "no avcC": (patched("h264_bframes", (table("stsd") + ["avc1", "avcC"], -4, "4s", b"free")), "its box avcC is missing"),
    "sets that are cut": (patched("h264_bframes", (table("stsd") + ["avc1", "avcC"], 6, ">H", 60000)), "are cut"),
    "sequence set of zeros": (patched("h264_bframes", (table("stsd") + ["avc1", "avcC"], 12, "12s", bytes(12))), "sequence header"),
    "no key frame first": (patched("h264_bframes", (["mdat"], 0, "882s", b"\0\0\3\x6e\x41" + b"\x80" * 877)), "decoding cannot begin at its first packet"),
    "first packet damaged": (patched("h264_bframes", (["mdat"], 0, "4s", b"\xff" * 4)), "decoding cannot begin at its first packet"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path, name):
    data, words = HOSTILE[name]
    (tmp_path / "hostile.mp4").write_bytes(data)
    refuse(tmp_path / "hostile.mp4", words)


@pytest.mark.parametrize("name", ["h264_front", "av1_g10", "hevc_cra"])
def test_truncated_anywhere(tmp_path, name):
    data = (GOLDEN / "mp4" / f"{name}.mp4").read_bytes()
    for size in range(0, len(data), 97):
        (tmp_path / "cut.mp4").write_bytes(data[:size])
        assert run(tmp_path / "cut.mp4")[0] == 1


def test_damaged_packet_costs_no_row(tmp_path):
    """The length of a NAL unit in the middle of a unit is wrong: its frame stays a row, which the decoder will refuse."""
    good = describe(GOLDEN / "mp4/h264.mp4")
    data = bytearray((GOLDEN / "mp4/h264.mp4").read_bytes())
    data[good["packets"][3][0]] ^= 0x80
    (tmp_path / "damaged.mp4").write_bytes(data)
    found = describe(tmp_path / "damaged.mp4")
    assert found["rows"] == good["rows"] and found["units"] == good["units"] and found["packets"][3] != good["packets"][3]


def test_no_regular_file():
    reading, writing = os.pipe()
    os.close(writing)
    result = subprocess.run([DECODER, "describe"], stdin=reading, capture_output=True, timeout=60)
    os.close(reading)
    assert result.returncode == 1 and result.stderr == b"it is not a regular file\n"
