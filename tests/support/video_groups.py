"""Writes groups of packed video (daemon/index/rows/README.md) by hand: packets of noise, in the file or in a media file."""
import zlib

import numpy as np

SAMPLES, SAMPLE_BYTES = 64, 4096


class Video:
    """Tables and packets that a test may change before `write`. Every unit has `gop` packets, and row t shows packet t."""

    def __init__(self, rows=12, gop=2, seed=0, size=(24, 32), largest=6000):
        random = np.random.default_rng(seed)
        self.packets = [random.bytes(int(n)) for n in random.integers(1, largest, rows)]
        self.rows = np.stack([np.arange(rows), np.arange(rows) // gop], 1).astype(np.int64)
        firsts = np.arange(0, rows, gop)
        self.units = np.stack([firsts, np.ones_like(firsts), np.zeros_like(firsts)], 1).astype(np.int64)
        self.extradata = [b"extradata of all units"]
        self.attributes = {"codec": "av1", "size": np.array(size, np.int64), "pixel_format": "yuv420p", "matrix": "bt709", "range": "limited",
                           "encoding": "video", "color": "rgb"}
        ends = np.cumsum([len(packet) for packet in self.packets])
        self.table = np.stack([ends - [len(packet) for packet in self.packets], [len(packet) for packet in self.packets]], 1).astype(np.int64)

    def write_media(self, folder, path, moov=b"moov box of the file", before=b"ftyp"):
        """Writes the packets into a media file, with a gap behind each, and refers to it."""
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        content = bytearray(before + moov)
        for n, packet in enumerate(self.packets):
            self.table[n] = len(content), len(packet)
            content += packet + b"gap"[:n % 3]
        target.write_bytes(content)
        crc = zlib.crc32(moov)
        count = len(self.packets)
        for i in range(min(SAMPLES, count)):
            packet = self.packets[round(i * (count - 1) / (SAMPLES - 1)) if count >= SAMPLES else i]
            crc = zlib.crc32(packet[:SAMPLE_BYTES], crc)
        self.attributes |= {"media": path, "media_size": len(content), "media_moov": np.array([len(before), len(moov)], np.int64),
                            "media_crc32": crc}
        return target

    def write(self, group):
        """Fills an empty HDF5 group."""
        group["rows"], group["packets"], group["units"] = self.rows, self.table, self.units
        group["extradata"] = np.frombuffer(b"".join(self.extradata), np.uint8)
        group["extradata_ends"] = np.cumsum([len(data) for data in self.extradata]).astype(np.int64)
        if "media" not in self.attributes:
            group["bytes"] = np.frombuffer(b"".join(self.packets), np.uint8)
        group.attrs.update(self.attributes)
