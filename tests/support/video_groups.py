"""Packed video in HDF5 files (daemon/index/rows/README.md): groups written by hand, and what FFmpeg found in the MP4 files of
tests/golden/video."""
import io
import json
import zlib

import numpy as np

from paths import ROOT

VIDEO = ROOT / "tests" / "golden" / "video"
VECTORS = json.loads((VIDEO / "vectors.json").read_text())["files"]


def packets_of(group, media=None):
    """Returns the packets of the frames of all rows, as bytes."""
    with open(media, "rb") if media else io.BytesIO(group["bytes"][()].tobytes()) as file:
        data = file.read()
    packets = [data[position:position + size] for position, size, _ in group["packets"][()]]
    assert [zlib.crc32(packet) for packet in packets] == list(group["packets"][:, 2])
    return [packets[packet] for packet in group["rows"]]



class Video:
    """Tables and packets that a test may change before `write`. Every unit has `gop` packets, and row t shows packet t."""

    def __init__(self, rows=12, gop=2, seed=0, size=(24, 32), largest=6000):
        random = np.random.default_rng(seed)
        self.packets = [random.bytes(int(n)) for n in random.integers(1, largest, rows)]
        self.rows = np.arange(rows)
        firsts = np.arange(0, rows, gop)
        self.units = np.stack([firsts, firsts, np.zeros_like(firsts)], 1)  # first packet, first row, extradata
        self.extradata = [b"extradata of all units"]
        sizes = np.array([len(packet) for packet in self.packets])
        self.table = np.stack([np.cumsum(sizes) - sizes, sizes, [zlib.crc32(packet) for packet in self.packets]], 1)
        largest = max(int(sizes[first:first + gop].sum()) for first in firsts)
        self.attributes = {"version": 1, "codec": "av1", "size": np.array(size, np.int64), "pixel_format": "yuv420p", "matrix": "bt709",
                           "range": "limited", "encoding": "video", "color": "rgb", "largest_unit": np.array([min(gop, rows), largest], np.int64)}

    def write_media(self, folder, path):
        """Writes the packets into a media file, with a gap behind some, and refers to it."""
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        content = bytearray(b"ftyp and moov")
        for n, packet in enumerate(self.packets):
            self.table[n, 0] = len(content)
            content += packet + b"gap"[:n % 3]
        target.write_bytes(content)
        self.attributes |= {"media": path, "media_size": len(content)}
        return target

    def write(self, group):
        """Fills an empty HDF5 group."""
        group["rows"], group["packets"], group["units"] = self.rows, self.table, self.units
        group["extradata"] = np.frombuffer(b"".join(self.extradata), np.uint8)
        group["extradata_ends"] = np.cumsum([len(data) for data in self.extradata]).astype(np.int64)
        if "media" not in self.attributes:
            group["bytes"] = np.frombuffer(b"".join(self.packets), np.uint8)
        group.attrs.update(self.attributes)


def boxes(data, names):
    """Returns the content of the box at the end of the path of names, from a file whose first track is the video."""
    at = 0
    while data[at + 4:at + 8] != names[0]:
        at += int.from_bytes(data[at:at + 4], "big")
    content = data[at + 8:at + int.from_bytes(data[at:at + 4], "big")]
    return boxes(content, names[1:]) if len(names) > 1 else content


def of_mp4(path, gop, codec="h264", config=b"avcC"):
    """Returns the video of an MP4 of one chunk, with closed units of `gop` packets that are shown in their order."""
    data = path.read_bytes()
    stbl = boxes(data, [b"moov", b"trak", b"mdia", b"minf", b"stbl"])
    sizes = np.frombuffer(boxes(stbl, [b"stsz"]), ">u4")[3:].astype(np.int64)
    (first,) = np.frombuffer(boxes(stbl, [b"stco"]), ">u4")[2:]
    starts = int(first) + np.cumsum(sizes) - sizes
    entry = boxes(stbl, [b"stsd"])
    video = Video(rows=len(sizes), gop=gop, size=[int.from_bytes(entry[at:at + 2], "big") for at in (42, 40)])
    video.packets = [data[start:start + size] for start, size in zip(starts, sizes)]
    video.table = np.stack([np.cumsum(sizes) - sizes, sizes, [zlib.crc32(packet) for packet in video.packets]], 1)
    at = entry.index(config)
    video.extradata = [entry[at + 4:at - 4 + int.from_bytes(entry[at - 4:at], "big")]]
    largest = max(int(sizes[first:first + gop].sum()) for first in range(0, len(sizes), gop))
    video.attributes |= {"codec": codec, "largest_unit": np.array([gop, largest], np.int64), "matrix": "unspecified", "range": "unspecified"}
    return video
