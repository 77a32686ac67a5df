"""Frames that come as JPEG or PNG: examined as the daemon does, decoded by Pillow or OpenCV, and turned upright."""
from __future__ import annotations

import functools
import io
import re
import struct
import zlib
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import numpy as np

from ..errors import DataError

# A marker: of a segment; or the first one behind a scan's data, in which 0xFF 0x00 is a value and D0 to D7 are restarts
_MARKER = re.compile(rb"\xff+([^\x00\xff])", re.DOTALL)
_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
_RESTART = re.compile(rb"\xff([\xd0-\xd7])")
_SOI, _EOI, _SOS, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
_FRAME_HEADERS = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SCANS_MAX = 100
_PNG = b"\x89PNG\r\n\x1a\n"


class Rules(NamedTuple):
    """What the layout says about the encoded frames of a stream."""

    encoding: str  # "auto", "jpeg", "png": others are refused
    color: str     # "bgr": a standard decoder gives red and blue exchanged
    flip: str      # "none", "v", "h", "180"


class Header(NamedTuple):
    """What the header of a frame states."""

    encoding: str
    shape: Tuple[int, int, int]
    bits: int


def _need(is_right: bool, reason: str) -> None:
    if not is_right:
        raise ValueError(reason)


# ---- JPEG (ITU T.81, B.1 and B.2) ----

def _read_frame_header(marker: int, segment: bytes) -> Header:
    _need(marker <= 0xC2, "a JPEG that is neither baseline nor progressive is not supported")
    _need(len(segment) >= 6 and len(segment) >= 6 + 3 * segment[5], "its frame header is too short")
    bits, height, width, channels = struct.unpack_from(">BHHB", segment)
    _need(bits == 8, "a JPEG with other than 8 bits a value is not supported")
    _need(channels != 4, "a CMYK JPEG is not supported: write it as RGB")
    return Header("jpeg", (height, width, channels), bits)


def _orientation(segment: bytes) -> int:
    """Returns the orientation that an EXIF segment states; 1 where it states none."""
    tiff = segment[6:]
    if not segment.startswith(b"Exif\0") or len(tiff) < 8:
        return 1
    order = "<" if tiff[:1] == b"I" else ">"
    (first,) = struct.unpack_from(order + "I", tiff, 4)
    if first + 2 > len(tiff):
        return 1
    (count,) = struct.unpack_from(order + "H", tiff, first)
    for at in range(first + 2, min(first + 2 + 12 * count, len(tiff) - 11), 12):
        if struct.unpack_from(order + "H", tiff, at) == (0x0112,):
            return int(struct.unpack_from(order + "H", tiff, at + 8)[0])
    return 1


def _skip_scan(data: bytes, at: int) -> int:
    """Returns where the data of a scan end. Its restarts count from 0 to 7, again and again."""
    end = _END_OF_SCAN.search(data, at)
    _need(end is not None, "it ends before its end marker")
    assert end is not None
    for i, restart in enumerate(_RESTART.finditer(data, at, end.start())):
        _need(restart[1][0] % 8 == i % 8, "a part of its data is missing: its restart markers do not count on")
    return end.start()


def _examine_jpeg(data: bytes) -> Header:
    """Walks over all segments, up to the end marker."""
    header: Optional[Header] = None
    lacks: Dict[int, Dict[int, int]] = {}  # bits that each coefficient of a component lacks
    at, scans = 2, 0
    while True:
        found = _MARKER.match(data, at)
        _need(found is not None, "it ends too early" if at >= len(data) - 1 else "a marker is missing")
        assert found is not None
        marker, at = found[1][0], found.end()
        if marker == _EOI:
            break
        _need(at + 2 <= len(data), "it ends too early")
        (length,) = struct.unpack_from(">H", data, at)
        _need(2 <= length <= len(data) - at, "a segment goes beyond its end")
        segment, at = data[at + 2:at + length], at + length
        if marker in _FRAME_HEADERS:
            _need(header is None, "it has two frame headers")
            header = _read_frame_header(marker, segment)
            lacks = {segment[6 + 3 * c]: dict.fromkeys(range(64), 1) for c in range(header.shape[2])}
        elif marker == _APP1:
            _need(_orientation(segment) == 1, "its EXIF data say that it must be turned, which recorders do not do")
        elif marker == _SOS:
            scans += 1
            _need(header is not None, "it has no frame header before its data")
            _need(scans <= _SCANS_MAX, f"it has more than {_SCANS_MAX} scans")
            _need(len(segment) > 3 and len(segment) == 4 + 2 * segment[0], "the header of a scan is damaged")
            first, last, bits = segment[-3:]
            for component in segment[1:-3:2]:  # in a sequential JPEG 0, 63 and 0
                lacks.setdefault(component, {}).update(dict.fromkeys(range(first, last + 1), bits % 16))
            at = _skip_scan(data, at)
    _need(header is not None and scans > 0, "it has no data")
    _need(not any(any(bits.values()) for bits in lacks.values()), "it was cut: some of its scans are missing")
    assert header is not None
    return header


# ---- PNG ----

def _examine_png(data: bytes) -> Header:
    """Checks each chunk, up to the last one."""
    kind, at = b"", len(_PNG)
    while kind != b"IEND":
        _need(at + 12 <= len(data), "it ends before its last chunk")
        length, kind = struct.unpack_from(">I4s", data, at)
        _need(length <= len(data) - at - 12, "a chunk goes beyond its end")
        checksum = zlib.crc32(memoryview(data)[at + 4:at + 8 + length])
        _need(struct.unpack_from(">I", data, at + 8 + length) == (checksum,), f"the checksum of its chunk {kind!r} is wrong")
        at += 12 + length
    length, kind, width, height, bits, colour = struct.unpack_from(">I4sIIBB", data.ljust(64, b"\0"), len(_PNG))
    _need(kind == b"IHDR" and length == 13, "the PNG header is damaged")
    return Header("png", (height, width, 3 if colour & 2 else 1), 8 if colour & 1 else bits)  # 1: a palette


# ---- all ----

def _find_decoder() -> Optional[Callable[[bytes, Header], Any]]:
    """Returns what decodes a frame to pixels with red first and without transparency. None: there is neither library."""
    try:
        from PIL import Image, features
        if features.check("libjpeg_turbo"):
            def open_image(data: bytes, header: Header) -> Any:
                image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG"))
                image.info.pop("transparency", None)  # Pillow warns of it
                return np.asarray(image if header.bits > 8 else image.convert("RGB" if header.shape[2] == 3 else "L"))

            return open_image
    except ImportError:
        pass
    try:
        import cv2
    except ImportError:
        return None

    def decode(data: bytes, header: Header) -> Any:
        kind = (cv2.IMREAD_UNCHANGED if header.bits > 8 else cv2.IMREAD_COLOR if header.shape[2] == 3 else cv2.IMREAD_GRAYSCALE)
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), kind)
        _need(pixels is not None, "OpenCV cannot decode it")
        return pixels[..., ::-1] if pixels.ndim == 3 else pixels

    return decode


_decoder = functools.lru_cache(maxsize=None)(_find_decoder)


def _examine(data: bytes) -> Optional[Header]:
    if data.startswith(bytes([0xFF, _SOI, 0xFF])):
        return _examine_jpeg(data)
    return _examine_png(data) if data.startswith(_PNG) else None


_TURNS: Dict[str, Callable[[Any], Any]] = {"none": lambda pixels: pixels, "v": lambda pixels: pixels[::-1],
                                           "h": lambda pixels: pixels[:, ::-1], "180": lambda pixels: pixels[::-1, ::-1]}


def decode(name: str, data: bytes, rules: Rules, shape: Tuple[int, ...], dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
    """Returns the pixels that the daemon makes of the same bytes. Raises ValueError for a frame of another size or
    type, DataError for damaged bytes, TypeError for bytes of another kind, and ImportError without a library."""
    try:
        header = _examine(data)
    except ValueError as error:
        raise DataError(f"{name}: the frame cannot be decoded: {error}") from None
    if header is None:
        raise TypeError(f"{name}: the frame begins neither like a JPEG nor like a PNG: push pixels as an array of {dtype} {list(shape)}")
    if rules.encoding not in ("auto", header.encoding):
        raise ValueError(f"{name}: the frame is {header.encoding}, the layout says encoding: {rules.encoding}")
    if header.shape != shape or header.bits != 8 * dtype.itemsize:
        raise ValueError(f"{name}: a frame has the shape {list(shape)} and {8 * dtype.itemsize} bits a value, not {list(header.shape)} "
                         f"and {header.bits}")
    library = _decoder()
    if library is None:
        raise ImportError(f"{name}: a frame in {header.encoding.upper()} needs Pillow with libjpeg-turbo (pip install pillow) or OpenCV "
                          f"(pip install opencv-python-headless); without them push pixels, as an array of {dtype} {list(shape)}")
    try:
        pixels = np.asarray(library(data, header)).astype(dtype, copy=False).reshape(shape)
    except Exception as error:  # each library has exceptions of its own
        raise DataError(f"{name}: the frame cannot be decoded: {error}") from None
    return _TURNS[rules.flip](pixels[..., ::-1] if rules.color == "bgr" else pixels)
