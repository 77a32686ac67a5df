#!/usr/bin/env python3
"""Records what FFmpeg makes of the MP4 files of tests/golden/video: tests/golden/video/vectors.json and pixels.npz.

    python3 -m venv /tmp/video && /tmp/video/bin/pip install av==18.1.0 numpy torch torchcodec==0.17.0
    /tmp/video/bin/python tests/tools/video_vectors.py

PyAV 18.1.0 brings FFmpeg 8.1.2: its H.264 and HEVC decoders, and dav1d for AV1. torchcodec uses Debian 12's FFmpeg 5.1.9, as does
the program `ffmpeg`, which must find the same planes. tests/golden/video/README.md says what is recorded.
"""
import hashlib
import json
import pathlib
import subprocess

import av
import numpy as np
import torchcodec
from torchcodec.decoders import VideoDecoder
from video_mp4s import STBL, find, is_idr, nal_units, parse, read_bar_code, read_table

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "video"
MATRICES = {1: "bt709", 5: "bt601", 6: "bt601", 9: "bt2020"}
RANGES = {1: "limited", 2: "full"}
COPIES = {"v30_drift_small", "v30_drift_large", "v30_order", "v20_av1"}  # sets with the MP4 files of another one
CODECS = {"h264": "h264", "hevc": "hevc", "libdav1d": "av1", "av1": "av1"}


def digest(data):
    """The first 64 bits of the SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


# Packets and decode units.


def read_packets(container, stream):
    """Returns all packets in decode order, as libavformat finds them: it names those again that an edit shows twice."""
    packets, seen = [], set()
    for packet in container.demux(stream):
        if packet.size and packet.pos not in seen:
            seen.add(packet.pos)
            packets.append(packet)
    return packets


def begins_closed(codec, packet):
    """Whether decoding can begin at a packet, and all packets from it on can be decoded or are never shown."""
    if codec == "h264":
        return is_idr(packet)
    if codec == "hevc":
        return any(16 <= unit[0] >> 1 & 63 <= 20 for _, unit in nal_units(packet))
    has_header = False
    for kind, body in open_bitstream_units(packet):
        has_header |= kind == 1
        if kind in (3, 6):
            return has_header and body[0] >> 7 == 0 and body[0] >> 5 & 3 == 0 and body[0] >> 4 & 1 == 1
    return False


def open_bitstream_units(packet):
    at = 0
    while at < len(packet):
        header, at = packet[at], at + (2 if packet[at] & 4 else 1)
        size = shift = 0
        while header & 2:
            byte, at = packet[at], at + 1
            size |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                break
        yield header >> 3 & 15, packet[at:at + size if header & 2 else len(packet)]
        at = at + size if header & 2 else len(packet)


def descriptions_of(path, track):
    """Returns the number of each packet's stsd entry, from 0 on, by stsc and stsz."""
    traks = [box[1] for box in find(parse(path.read_bytes()), b"moov")[1] if box[0] == b"trak"]
    stbl = find(traks[track], *STBL[2:])[1]
    names = {name: body for name, body in stbl}
    chunks = read_table(names.get(b"stco") or names[b"co64"], 1 if b"stco" in names else 2)
    runs = read_table(names[b"stsc"], 3)
    found = []
    for number in range(1, len(chunks) + 1):
        run = [run for run in runs if run[0] <= number][-1]
        found += [run[2] - 1] * run[1]
    return found


def units_of(path, codec, packets, track):
    descriptions = descriptions_of(path, track)
    starts = [begins_closed(codec, bytes(packet)) for packet in packets]
    return [[number, int(closed), descriptions[number]] for number, closed in enumerate(starts) if closed or not number]


# Frames.


def planes(frame):
    """Returns the planes without what FFmpeg keeps beside them, 16-bit little-endian where a sample has more than 8 bits."""
    size = 2 if frame.format.components[0].bits > 8 else 1
    return [np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, :plane.width * size] for plane in frame.planes]


def decode(path):
    """Returns (stream's facts, packets, frames); frames that an edit cuts off are left out."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        facts = {"codec": CODECS[stream.codec_context.name], "timescale": stream.time_base.denominator, "track": stream.index}
        packets = read_packets(container, stream)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        return facts, packets, list(container.decode(stream))


def record(path, pixels):
    facts, packets, frames = decode(path)
    name = path.relative_to(FOLDER).as_posix()
    shown = {packet.pts: number for number, packet in enumerate(packets)}
    first = frames[0]
    done = {
        "codec": facts["codec"], "height": first.height, "width": first.width, "pixel_format": first.format.name,
        "matrix": MATRICES.get(int(first.colorspace), "unspecified"), "range": RANGES.get(int(first.color_range), "unspecified"),
        "timescale": facts["timescale"], "packets": [[packet.pos, packet.size] for packet in packets],
        "units": units_of(path, facts["codec"], packets, facts["track"]),
        "rows": [shown[frame.pts] for frame in frames], "pts": [frame.pts for frame in frames],
        "yuv": [digest(b"".join(plane.tobytes() for plane in planes(frame))) for frame in frames],
        "numbers": [read_bar_code(planes(frame)[0] if first.format.components[0].bits == 8 else frame.to_ndarray(format="gray"))
                    for frame in frames],
    }
    check_program(path, frames, name)
    rgb = [frame.to_ndarray(format="rgb24") for frame in frames]
    torch = read_torchcodec(path)
    done["rgb_pyav"] = [digest(image.tobytes()) for image in rgb]
    done["rgb_torchcodec"] = [digest(image.tobytes()) for image in torch] if torch is not None else None
    if done["rgb_torchcodec"] == done["rgb_pyav"]:
        done["rgb_torchcodec"] = "same"
    if name.startswith("mp4/") and not name.startswith(("mp4/edit", "mp4/stss")):
        row = len(frames) // 2
        pixels[f"{name}/{row}/pyav"] = rgb[row]
        if torch is not None and not np.array_equal(torch[row], rgb[row]):
            pixels[f"{name}/{row}/torchcodec"] = torch[row]
        for number, plane in enumerate(planes(frames[row])):
            pixels[f"{name}/{row}/plane{number}"] = np.ascontiguousarray(plane)
    return name, done


def read_torchcodec(path):
    try:
        decoder = VideoDecoder(str(path), dimension_order="NHWC", num_ffmpeg_threads=1)
        return [decoder[number].numpy() for number in range(len(decoder))]
    except (RuntimeError, IndexError) as error:
        print(path.name, "torchcodec:", str(error).splitlines()[0][:150])
        return None


def check_program(path, frames, name):
    """Debian's FFmpeg must find the same planes. Its AV1 decoder is Debian's dav1d."""
    command = ["ffmpeg", "-v", "error", "-threads", "1", "-i", str(path), "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "rawvideo", "-"]
    data = subprocess.run(command, capture_output=True).stdout
    wanted = b"".join(plane.tobytes() for frame in frames for plane in planes(frame))
    if data != wanted:
        print(name, f"ffmpeg 5.1 differs: {len(data)} against {len(wanted)} bytes")


def main():
    vectors, pixels = {}, {}
    for path in sorted(FOLDER.rglob("*.mp4")):
        if COPIES & set(path.parts):
            continue
        try:
            name, done = record(path, pixels)
            vectors[name] = done
        except (av.FFmpegError, IndexError, KeyError, StopIteration) as error:
            print(path.name, "left out:", type(error).__name__, str(error)[:120])
    versions = {"av": av.__version__, "ffmpeg": av.ffmpeg_version_info, "torchcodec": torchcodec.__version__, "ffmpeg of torchcodec": "5.1.9"}
    lines = [f" {json.dumps(name)}: {json.dumps(done, separators=(',', ':'))}" for name, done in vectors.items()]
    text = '{"versions": ' + json.dumps(versions) + ',\n"files": {\n' + ",\n".join(lines) + "\n}}\n"
    json.loads(text)
    (FOLDER / "vectors.json").write_text(text)
    np.savez_compressed(FOLDER / "pixels.npz", **pixels)


if __name__ == "__main__":
    main()
