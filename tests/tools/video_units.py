"""Writes decode units for tests of trajd-decoder, from MP4 files. Needs PyAV (FFmpeg with libdav1d).

    python tests/tools/video_units.py tests/golden/video/units tests/golden/video/mp4/{av1_g10,h264_bframes}.mp4

A unit has the packets from the first one to the next key frame, as they are in the file, and for each packet the crc32 of
the planes that libavcodec gives for it, without the rows' padding; 0 where it gives none. Little-endian u32: "TJVU", codec
(1 AV1, 2 H.264, 3 HEVC), height, width, number of packets, bytes of extradata; sizes; crc32s. Then extradata, then packets.
h264_slices has frames of two slices, as LeRobot's encoder writes them where it has two threads; it is encoded here.
"""
import pathlib
import struct
import sys
import tempfile
import zlib

import av
import video_mp4s

CODECS = {"libdav1d": 1, "av1": 1, "h264": 2, "hevc": 3}


def first_unit(path):
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        context = stream.codec_context
        packets = []
        for packet in file.demux(stream):
            if packet.size == 0 or packets and packet.is_keyframe:
                break
            packets.append(bytes(packet))
        return context.name, bytes(context.extradata or b""), packets


def planes_crc(frame):
    crc = 0
    for component, plane in zip(frame.format.components, frame.planes):
        row = component.width * ((component.bits + 7) // 8)
        data = bytes(plane)
        for y in range(component.height):
            crc = zlib.crc32(data[y * plane.line_size:y * plane.line_size + row], crc)
    return crc


def decode(name, extradata, packets):
    """Returns {packet: frame}."""
    context = av.CodecContext.create("libdav1d" if CODECS[name] == 1 else name, "r")
    context.extradata = extradata
    context.thread_count = 1
    frames = {}
    for number, data in enumerate(packets):
        packet = av.Packet(data)
        packet.pts = packet.dts = number
        frames.update({frame.pts: frame for frame in context.decode(packet)})
    frames.update({frame.pts: frame for frame in context.decode(None)})
    return frames


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        video_mp4s.FOLDER = pathlib.Path(folder)
        slices = video_mp4s.encode("h264_slices.mp4", "libx264", video_mp4s.x264("bframes=0:slices=2"), frames=6)
        write_units(out, [*map(pathlib.Path, sys.argv[2:]), slices])


def write_units(out, paths):
    for path in paths:
        name, extradata, packets = first_unit(path)
        frames = decode(name, extradata, packets)
        shown = next(iter(frames.values()))
        crcs = [planes_crc(frames[i]) if i in frames else 0 for i in range(len(packets))]
        head = (0x55564A54, CODECS[name], shown.height, shown.width, len(packets), len(extradata), *map(len, packets), *crcs)
        (out / f"{path.stem}.unit").write_bytes(struct.pack(f"<{len(head)}I", *head) + extradata + b"".join(packets))
        print(path.stem, name, f"{shown.width}x{shown.height}", shown.format.name, len(packets), "packets", len(frames), "frames")


if __name__ == "__main__":
    main()
