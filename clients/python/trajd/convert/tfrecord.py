"""TFRecord files and tf.train.Example, read by their published formats: without TensorFlow.

A record is: u64 length, u32 masked CRC-32C of the length, the data, u32 masked CRC-32C of the data; all little endian.
The data is a tf.train.Example, a Protobuf message: a map from names to lists of bytes, of float32 or of int64."""
from __future__ import annotations

import pathlib
import struct
from typing import Dict, Iterator, List, Tuple, Union

import google_crc32c
import numpy as np

HEADER, FOOTER = struct.Struct("<QI"), struct.Struct("<I")
BYTES, FLOATS, INTEGERS = 1, 2, 3  # the fields of a Feature
VARINT_BYTES_MAX = 10

Values = Union[List[memoryview], np.ndarray]  # bytes, float32 or int64


def masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def find_records(path: pathlib.Path, count: int = 1 << 20) -> Tuple[List[Tuple[int, int]], str]:
    """Returns position and size of the records of a file by their lengths, and why there are no more, or "". Stops
    behind one more than `count`."""
    places: List[Tuple[int, int]] = []
    at, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while at < size and len(places) <= count:
            file.seek(at)
            header = file.read(HEADER.size)
            where = f"its record {len(places)}, at byte {at},"
            if len(header) < HEADER.size:
                return places, f"{where} is cut short: the file has {size} bytes"
            length, crc = HEADER.unpack(header)
            if masked_crc(header[:8]) != crc:
                return places, f"{where} has a length with a wrong CRC, so no record after it can be found"
            end = at + HEADER.size + length + FOOTER.size
            if end > size:
                return places, f"{where} is cut short: it would end at byte {end}, and the file has {size} bytes"
            places.append((at + HEADER.size, length))
            at = end
    return places, ""


def read_record(path: pathlib.Path, position: int, length: int) -> bytes:
    """Returns a record. Raises ValueError if its CRC is wrong."""
    with path.open("rb") as file:
        file.seek(position)
        data, footer = file.read(length), file.read(FOOTER.size)
    if len(footer) < FOOTER.size or masked_crc(data) != FOOTER.unpack(footer)[0]:
        raise ValueError(f"its {length} bytes have a wrong CRC")
    return data


def parse_example(data: bytes) -> Dict[str, Values]:
    """Returns the features of a tf.train.Example. Raises ValueError if it is none."""
    found: Dict[str, Values] = {}
    try:
        for features in _messages(memoryview(data), 1):
            for entry in _messages(features, 1):
                parts = dict(_fields(entry))
                found[bytes(parts.get(1, b"")).decode()] = _parse_feature(parts.get(2, memoryview(b"")))
    except ValueError as error:
        raise ValueError(f"it is not a tf.train.Example: {error}") from None
    return found


def _parse_feature(feature: memoryview) -> Values:
    """Returns the one list of a feature. Numbers are packed, as the format has them."""
    for kind, values in _fields(feature):
        items = list(_messages(values, 1))
        if kind not in (BYTES, FLOATS, INTEGERS):
            raise ValueError(f"a feature has the field {kind}")
        if kind == BYTES:
            return items
        data = b"".join(items)
        return np.frombuffer(data, "<f4") if kind == FLOATS else _parse_varints(data)
    return []


def _messages(data: memoryview, number: int) -> Iterator[memoryview]:
    return (value for field, value in _fields(data) if field == number)


def _fields(data: memoryview) -> Iterator[Tuple[int, memoryview]]:
    """Yields the number and the value of each field, which is a text, a list or a message in itself."""
    at = 0
    while at < len(data):
        tag, at = _parse_varint(data, at)
        size, begin = _parse_varint(data, at)
        at = begin + size
        if tag & 7 != 2 or at > len(data):
            raise ValueError(f"a field has the wire type {tag & 7}" if tag & 7 != 2 else "a field is cut short")
        yield tag >> 3, data[begin:at]


def _parse_varint(data: memoryview, at: int) -> Tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at:at + VARINT_BYTES_MAX]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, at + index + 1
    raise ValueError("a number is cut short")


def _parse_varints(data: bytes) -> np.ndarray:
    """Returns the int64 numbers of a packed list."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    begins = np.append(0, ends + 1)
    if begins[-1] != len(raw) or (len(ends) and np.diff(begins).max() > VARINT_BYTES_MAX):
        raise ValueError("a list of numbers is cut short")
    lengths, values = np.diff(begins), np.zeros(len(ends), np.uint64)
    for index in range(lengths.max(initial=0)):
        has = lengths > index
        values[has] |= (raw[begins[:-1][has] + index] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * index)
    return values.view(np.int64)
