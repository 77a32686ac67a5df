"""Writes groups of packed video (daemon/index/rows/README.md) by hand: packets of noise, in the file or in a media file."""
import zlib

import numpy as np


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
