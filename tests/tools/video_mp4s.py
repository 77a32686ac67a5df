#!/usr/bin/env python3
"""Writes the MP4 files that the tests of video read: tests/golden/video/mp4/*.mp4. tests/golden/video/README.md lists them.

    python3 -m venv /tmp/video && /tmp/video/bin/pip install av==18.1.0 numpy
    /tmp/video/bin/python tests/tools/video_mp4s.py

Most are written by FFmpeg 8.1.2's muxer (in PyAV 18.1.0's wheel: libx264, libx265, libsvtav1). What FFmpeg does not write is
made by editing the boxes of such a file. Odd sizes and libaom's hidden frames need the `ffmpeg` program (Debian 12, 5.1.9).
The encoders run in one thread, so that the same versions write the same bytes.
"""
import os
import pathlib
import struct
import subprocess
from fractions import Fraction

import av
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "video" / "mp4"
HEIGHT, WIDTH, FRAMES = 48, 64, 24
BITS = 8
BITEXACT = {"fflags": "+bitexact"}

# What is shown.


def draw(number, height=HEIGHT, width=WIDTH, camera=0, noise=24):
    """A slope and a box that move with `number`, over noise that stays, and `number` as a bar code along the top."""
    y, x = np.mgrid[:height, :width]
    grain = np.random.default_rng(7 + camera).integers(0, max(noise, 1), (height, width, 1))
    slope = np.stack([3 * x + 5 * number, 4 * y + 40 * camera, 200 - 2 * x + 3 * number], 2) % 256
    image = np.clip(slope * 0.8 + grain, 0, 255)
    left = number * 3 % (width - 12)
    image[height // 2:height // 2 + 10, left:left + 12] = (240, 40 + 60 * camera, 10)
    bar = width // BITS
    for bit in range(BITS):
        image[:8, bit * bar:(bit + 1) * bar] = 235 if number >> (BITS - 1 - bit) & 1 else 20
    return image.astype(np.uint8)


def read_bar_code(luma):
    """Returns the number that draw() wrote, from the luma plane (or any plane where bright is great) of a frame."""
    luma = np.asarray(luma, float)
    bar = luma.shape[1] // BITS
    blocks = [luma[2:6, bit * bar + 2:(bit + 1) * bar - 2].mean() for bit in range(BITS)]
    middle = (luma.max() + luma.min()) / 2
    return sum(int(block > middle) << (BITS - 1 - bit) for bit, block in enumerate(blocks))


# Written by PyAV.


def encode(name, codec, options, *, gop=6, frames=FRAMES, first=0, rate=Fraction(30), pixels="yuv420p", mux=None, tag=None,
           colour=None, audio_first=False, step=1):
    """Writes `frames` images, of which the first one shows the number `first`. `colour` is (matrix, range) in AVColorSpace's
    and AVColorRange's numbers."""
    path = FOLDER / name
    with av.open(str(path), "w", options={**BITEXACT, **(mux or {})}) as container:
        sound = container.add_stream("aac", rate=16000) if audio_first else None
        stream = container.add_stream(codec, rate=rate, options=options)
        context = stream.codec_context
        stream.width, stream.height, stream.pix_fmt, context.gop_size = WIDTH, HEIGHT, pixels, gop
        context.thread_count = 1
        context.time_base = 1 / Fraction(rate)
        if tag:
            context.codec_tag = tag
        if colour:
            context.colorspace = context.color_primaries = context.color_trc = colour[0]
            context.color_range = colour[1]
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(draw(first + number), format="rgb24")
            frame = frame.reformat(format=pixels, dst_colorspace=colour[0] if colour else None,
                                   dst_color_range=colour[1] if colour else None)
            frame.pts, frame.time_base = number * step, context.time_base
            container.mux(stream.encode(frame))
            if sound:
                container.mux(encode_sound(sound, number))
        container.mux(stream.encode(None))
        if sound:
            container.mux(sound.encode(None))
    return path


def encode_sound(sound, number):
    tone = (np.sin(np.arange(512) * 0.1) * 0.1).astype(np.float32)[None]
    frame = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = 16000, number * 512, Fraction(1, 16000)
    return sound.encode(frame)


def x264(text="", **options):
    return {"preset": "medium", "crf": "24", "x264-params": "threads=1:" + text, **options}


def x265(text):
    return {"preset": "fast", "crf": "27", "x265-params": "log-level=none:pools=none:frame-threads=1:info=0:" + text}


def svt(text="", preset="10"):
    return {"preset": preset, "crf": "34", "svtav1-params": "lp=1" + (":" + text if text else "")}


def write_h264():
    encode("h264.mp4", "libx264", x264("bframes=0"))
    encode("h264_bframes.mp4", "libx264", x264("bframes=3:b-adapt=0:b-pyramid=1:scenecut=0:open-gop=0"), gop=12)
    encode("h264_bframes_negative.mp4", "libx264", x264("bframes=3:b-adapt=0:scenecut=0:open-gop=0"), gop=12,
           mux={"movflags": "negative_cts_offsets"})
    encode("h264_bframes_no_edit.mp4", "libx264", x264("bframes=3:b-adapt=0:scenecut=0:open-gop=0"), gop=12,
           mux={"use_editlist": "0"})
    encode("h264_open_gop.mp4", "libx264", x264("bframes=3:b-adapt=0:scenecut=0:open-gop=1"), gop=8)
    encode("h264_intra_refresh.mp4", "libx264", x264("bframes=0:intra-refresh=1:scenecut=0"), gop=8, frames=16)
    encode("h264_front.mp4", "libx264", x264("bframes=0"), mux={"movflags": "faststart"})
    encode("h264_2997.mp4", "libx264", x264("bframes=2:b-adapt=0"), rate=Fraction(30000, 1001))
    encode("h264_stepped.mp4", "libx264", x264("bframes=0"), rate=Fraction(60), step=4)
    encode("h264_yuv444p.mp4", "libx264", x264("bframes=0"), gop=2, pixels="yuv444p", frames=8)
    encode("h264_yuv422p.mp4", "libx264", x264("bframes=0"), gop=2, pixels="yuv422p", frames=8)
    encode("h264_gray.mp4", "libx264", x264("bframes=0"), gop=2, pixels="gray", frames=8)
    encode("h264_yuv420p10le.mp4", "libx264", x264("bframes=0"), gop=2, pixels="yuv420p10le", frames=8)
    encode("h264_yuvj420p.mp4", "libx264", x264("bframes=0"), gop=2, pixels="yuvj420p", frames=8, colour=(5, 2))
    encode("h264_full.mp4", "libx264", x264("bframes=0"), gop=2, frames=8, colour=(2, 2))
    encode("h264_bt709.mp4", "libx264", x264("bframes=0"), gop=2, frames=8, colour=(1, 1))
    encode("h264_bt601.mp4", "libx264", x264("bframes=0"), gop=2, frames=8, colour=(6, 1))
    encode("h264_interlaced.mp4", "libx264", x264("bframes=0:tff=1"), frames=8)
    encode("h264_audio_first.mp4", "libx264", x264("bframes=0"), frames=12, audio_first=True)
    encode("h264_fragmented.mp4", "libx264", x264("bframes=0"), frames=12, mux={"movflags": "frag_keyframe+empty_moov"})


def write_others():
    encode("hevc.mp4", "libx265", x265("open-gop=0:bframes=0:keyint=6:min-keyint=6:scenecut=0"), tag="hvc1")
    encode("hevc_bframes.mp4", "libx265", x265("open-gop=0:bframes=3:b-adapt=0:keyint=8:min-keyint=8:scenecut=0"), tag="hvc1")
    encode("hevc_cra.mp4", "libx265", x265("open-gop=1:bframes=3:b-adapt=0:keyint=8:min-keyint=8:scenecut=0"), tag="hvc1")
    encode("hevc_hev1.mp4", "libx265", x265("open-gop=0:bframes=0:keyint=6:min-keyint=6:scenecut=0:repeat-headers=1"), tag="hev1",
           frames=12)
    encode("hevc_yuv420p10le.mp4", "libx265", x265("open-gop=0:bframes=0:keyint=6:scenecut=0"), tag="hvc1",
           pixels="yuv420p10le", frames=8)
    encode("av1.mp4", "libsvtav1", svt("pred-struct=1"), gop=2)
    encode("av1_g10.mp4", "libsvtav1", svt("scm=0", preset="6"), gop=10, frames=30)
    encode("av1_bt709.mp4", "libsvtav1", svt(), gop=2, frames=8, colour=(1, 1))
    encode("av1_full.mp4", "libsvtav1", svt(), gop=2, frames=8, colour=(6, 2))
    encode("av1_yuv420p10le.mp4", "libsvtav1", svt(), gop=2, frames=8, pixels="yuv420p10le")
    encode("av1_forward_key.mp4", "libsvtav1", svt("irefresh-type=1:hierarchical-levels=3", preset="6"), gop=16, frames=34)
    encode("mpeg4.mp4", "mpeg4", {}, frames=4)
    with av.open(str(FOLDER / "no_video.mp4"), "w", options=BITEXACT) as container:
        sound = container.add_stream("aac", rate=16000)
        for number in range(4):
            container.mux(encode_sound(sound, number))
        container.mux(sound.encode(None))


def run_ffmpeg(name, height, width, frames, options):
    """Encodes with Debian's program, from rgb24 over a pipe."""
    data = b"".join(draw(number, height, width).tobytes() for number in range(frames))
    command = ["ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", "30",
               "-i", "-", "-fflags", "+bitexact", "-flags", "+bitexact", *options, str(FOLDER / name)]
    subprocess.run(command, input=data, check=True)


def write_by_program():
    aom = ["-c:v", "libaom-av1", "-crf", "38", "-b:v", "0", "-threads", "1", "-pix_fmt", "yuv420p"]
    run_ffmpeg("av1_hidden.mp4", HEIGHT, WIDTH, 34, [*aom, "-g", "16", "-cpu-used", "4", "-lag-in-frames", "19", "-auto-alt-ref", "1"])
    run_ffmpeg("av1_odd.mp4", 37, 51, 8, [*aom, "-g", "4", "-cpu-used", "8", "-lag-in-frames", "0"])
    run_ffmpeg("h264_cropped.mp4", 38, 50, 8, ["-c:v", "libx264", "-crf", "30", "-threads", "1", "-g", "4", "-bf", "0",
                                               "-pix_fmt", "yuv420p"])
    run_ffmpeg("hevc_cropped.mp4", 38, 50, 8, ["-c:v", "libx265", "-crf", "32", "-g", "4", "-bf", "0", "-tag:v", "hvc1", "-x265-params",
                                               "log-level=none:pools=none:frame-threads=1:info=0", "-pix_fmt", "yuv420p"])
    run_ffmpeg("h264_odd444.mp4", 37, 51, 8, ["-c:v", "libx264", "-crf", "30", "-threads", "1", "-g", "4", "-bf", "0",
                                              "-pix_fmt", "yuv444p"])


# Boxes.

CONTAINERS = (b"moov", b"trak", b"edts", b"mdia", b"minf", b"stbl")


def parse(data):
    """Returns [[name, bytes or boxes], ...]."""
    boxes, at = [], 0
    while at < len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        boxes.append([name, parse(data[at + 8:at + size]) if name in CONTAINERS else data[at + 8:at + size]])
        at += size
    return boxes


def build(boxes):
    parts = [(name, build(body) if isinstance(body, list) else body) for name, body in boxes]
    return b"".join(struct.pack(">I4s", 8 + len(body), name) + body for name, body in parts)


def find(boxes, *names):
    """Returns the box that is reached by `names`."""
    box = next(box for box in boxes if box[0] == names[0])
    return box if len(names) == 1 else find(box[1], *names[1:])


STBL = (b"moov", b"trak", b"mdia", b"minf", b"stbl")


def edit(source, target, change):
    """Writes a copy of a file whose moov stands behind its mdat, after `change(boxes)`: places of packets stay the same."""
    boxes = parse((FOLDER / source).read_bytes())
    assert boxes[-1][0] == b"moov"
    change(boxes)
    (FOLDER / target).write_bytes(build(boxes))


def table(*rows, head=b""):
    """A full box of version 0 that has `head`, a count and rows of 32 bits."""
    return b"\0\0\0\0" + head + struct.pack(">I", len(rows)) + b"".join(struct.pack(f">{len(row)}I", *row) for row in rows)


def read_table(body, columns):
    count = struct.unpack_from(">I", body, 4)[0]
    return [struct.unpack_from(f">{columns}I", body, 8 + 4 * columns * i) for i in range(count)]


def set_edits(boxes, *edits):
    """Each edit: (duration in the movie's units, start in the track's, rate)."""
    body = b"\0\0\0\0" + struct.pack(">I", len(edits)) + b"".join(struct.pack(">IiI", *edit) for edit in edits)
    trak = find(boxes, b"moov", b"trak")[1]
    trak[:] = [box for box in trak if box[0] != b"edts"]
    trak.insert(1, [b"edts", [[b"elst", body]]])


def write_edits():
    """The movie has 1000 units a second, the track 15360, which is 512 a frame. The delay of the B frames is 1024."""
    one = 0x10000
    for name, edits in (
        ("edit_middle.mp4", [(600, 1024 + 6 * 512, one)]),
        ("edit_empty.mp4", [(500, -1, one), (800, 1024, one)]),
        ("edit_parts.mp4", [(200, 1024, one), (200, 1024 + 12 * 512, one)]),
        ("edit_three.mp4", [(500, -1, one), (200, 1024, one), (200, 7168, one)]),
        ("edit_short.mp4", [(400, 1024, one)]),
        ("edit_rate.mp4", [(800, 1024, 2 * one)]),
        ("edit_zero.mp4", [(0, 1024, one)]),
    ):
        edit("h264_bframes.mp4", name, lambda boxes: set_edits(boxes, *edits))


def set_stss(boxes, numbers):
    stbl = find(boxes, *STBL)[1]
    stbl[:] = [box for box in stbl if box[0] != b"stss"]
    if numbers is not None:
        stbl.append([b"stss", table(*[(number,) for number in numbers])])


def write_hints():
    """stss is a hint: here it is absent though few frames are key frames, or names too many, or none of them rightly."""
    edit("h264_bframes.mp4", "stss_absent.mp4", lambda boxes: set_stss(boxes, None))
    edit("h264.mp4", "stss_extra.mp4", lambda boxes: set_stss(boxes, range(1, 25, 3)))
    edit("h264.mp4", "stss_wrong.mp4", lambda boxes: set_stss(boxes, (2, 5, 99)))
    edit("av1_g10.mp4", "stss_absent_av1.mp4", lambda boxes: set_stss(boxes, None))


def to_co64(boxes):
    box = find(boxes, *STBL, b"stco")
    rows = read_table(box[1], 1)
    box[0], box[1] = b"co64", table(*[(0, place) for place, in rows])


def to_stz2(boxes):
    """Sizes in 16 bits each."""
    box = find(boxes, *STBL, b"stsz")
    count = struct.unpack_from(">I", box[1], 8)[0]
    sizes = struct.unpack_from(f">{count}I", box[1], 12)
    box[0], box[1] = b"stz2", b"\0\0\0\0" + struct.pack(">II", 16, count) + struct.pack(f">{count}H", *sizes)


def write_joined():
    """Two streams with different parameter sets in one track: with two stsd entries, and with the second one's in its packets."""
    other = encode("other.mp4", "libx264", x264("bframes=0:ref=1:cabac=0"), frames=12, first=12)
    encode("first.mp4", "libx264", x264("bframes=0"), frames=12)
    parts = [parse((FOLDER / name).read_bytes()) for name in ("first.mp4", "other.mp4")]
    join("h264_two_stsd.mp4", parts, two_entries=True)
    join("h264_inband.mp4", parts, two_entries=False)
    for part in ("first.mp4", "other.mp4"):
        (FOLDER / part).unlink()


def packets_of(boxes):
    """Of a file with one chunk."""
    (place,), = read_table(find(boxes, *STBL, b"stco")[1], 1)
    body = find(boxes, *STBL, b"stsz")[1]
    count = struct.unpack_from(">I", body, 8)[0]
    data, packets = build(boxes), []
    for size in struct.unpack_from(f">{count}I", body, 12):
        packets.append(data[place:place + size])
        place += size
    return packets


def parameter_sets(boxes):
    """Returns the SPS and PPS of a file's avcC, each with its length before it, as packets have them."""
    entry = find(boxes, *STBL, b"stsd")[1]
    payload = entry[entry.index(b"avcC") + 4:]
    sps = struct.unpack_from(">H", payload, 6)[0]
    pps = struct.unpack_from(">H", payload, 9 + sps)[0]
    return b"".join(struct.pack(">I", len(unit)) + unit for unit in (payload[8:8 + sps], payload[11 + sps:11 + sps + pps]))


def join(name, parts, two_entries):
    """Writes the packets of both parts one after another. Each part is one chunk, and has its own stsd entry if `two_entries`."""
    packets = [packets_of(part) for part in parts]
    if not two_entries:
        sets = parameter_sets(parts[1])
        packets[1] = [sets + packet if is_idr(packet) else packet for packet in packets[1]]
    boxes = parts[0]
    media = b"".join(packets[0] + packets[1])
    before = build([box for box in boxes if box[0] not in (b"mdat", b"moov")])
    places = [len(before) + 8, len(before) + 8 + sum(map(len, packets[0]))]
    entries = [find(part, *STBL, b"stsd")[1][8:] for part in parts][:2 if two_entries else 1]
    counts = [len(part) for part in packets]
    sizes = [(len(packet),) for part in packets for packet in part]
    keys = [(i + 1,) for i, packet in enumerate(packets[0] + packets[1]) if is_idr(packet)]
    stbl = [[b"stsd", struct.pack(">II", 0, len(entries)) + b"".join(entries)],
            [b"stts", table((sum(counts), 512))], [b"stss", table(*keys)],
            [b"stsc", table((1, counts[0], 1), (2, counts[1], len(entries)))],
            [b"stsz", table(*sizes, head=struct.pack(">I", 0))],
            [b"stco", table(*[(place,) for place in places])]]
    moov = parse(build([find(boxes, b"moov")]))
    find(moov, *STBL)[1][:] = stbl
    set_edits(moov, (sum(counts) * 1000 // 30, 0, 0x10000))
    set_duration(moov, sum(counts))
    (FOLDER / name).write_bytes(before + build([[b"mdat", media]]) + build(moov))


def set_duration(moov, frames):
    for names, place, units in (((b"moov", b"mvhd"), 16, 1000), ((b"moov", b"trak", b"tkhd"), 20, 1000),
                                ((b"moov", b"trak", b"mdia", b"mdhd"), 16, 15360)):
        box = find(moov, *names)
        box[1] = box[1][:place] + struct.pack(">I", frames * units // 30) + box[1][place + 4:]


def nal_units(packet):
    at = 0
    while at + 4 <= len(packet):
        size = struct.unpack_from(">I", packet, at)[0]
        yield at + 4, packet[at + 4:at + 4 + size]
        at += 4 + size


def is_idr(packet):
    return any(unit[0] & 31 == 5 for _, unit in nal_units(packet))


def write_bla():
    """Each CRA picture but the first becomes a BLA picture: its leading pictures that refer back can no longer be decoded."""
    data = bytearray((FOLDER / "hevc_cra.mp4").read_bytes())
    boxes = parse(bytes(data))
    (place,), = read_table(find(boxes, *STBL, b"stco")[1], 1)
    for number, packet in enumerate(packets_of(boxes)):
        for at, unit in nal_units(packet):
            if number and unit[0] >> 1 & 63 == 21:
                data[place + at] = unit[0] & 0x81 | 16 << 1
        place += len(packet)
    (FOLDER / "hevc_bla.mp4").write_bytes(data)


def write_broken():
    """Each is refused, or read in part, with its own sentence."""
    data = (FOLDER / "h264_front.mp4").read_bytes()
    (FOLDER / "truncated.mp4").write_bytes(data[:len(data) - 1000])
    data = (FOLDER / "h264.mp4").read_bytes()
    (FOLDER / "truncated_no_moov.mp4").write_bytes(data[:-1000])


def write_edited():
    write_edits()
    write_hints()
    edit("h264.mp4", "h264_co64.mp4", to_co64)
    edit("h264.mp4", "h264_stz2.mp4", to_stz2)
    write_joined()
    write_bla()
    write_broken()


def main():
    os.environ["SVT_LOG"] = "1"
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_h264()
    write_others()
    write_by_program()
    write_edited()


if __name__ == "__main__":
    main()
