"""Packed video in HDF5 files, and what FFmpeg found in the MP4 files of tests/golden/video."""
import io
import json
import zlib

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
