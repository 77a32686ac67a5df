"""TFRecord files and tf.train.Example, read by their published formats: without TensorFlow.

A record is: u64 length, u32 masked CRC-32C of the length, the data, u32 masked CRC-32C of the data; all little endian. The data of
these files is a tf.train.Example, a Protobuf message: a map from names to lists of bytes, of float32 or of int64."""
from __future__ import annotations

import struct
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import google_crc32c
import numpy as np

HEADER, FOOTER = struct.Struct("<QI"), struct.Struct("<I")
RECORD_BYTES_MAX = 8 << 30
BYTES, FLOATS, INTEGERS = 1, 2, 3  # the fields of a Feature
VARINT_BYTES_MAX = 10

Values = Union[List[memoryview], np.ndarray]  # bytes, float32 or int64


class Records(NamedTuple):
    """Where the records of a file are, as far as they can be found."""

    places: List[Tuple[int, int]]  # position and size of the data
    fault: Optional[str]           # why no record after them can be found


def masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def find_records(file: BinaryIO, size: int) -> Records:
    """Finds the records of a file of `size` bytes. Only their lengths are read and checked."""
    places: List[Tuple[int, int]] = []
    at = 0
    while at < size:
        file.seek(at)
        header = file.read(HEADER.size)
        where = f"its record {len(places)}, at byte {at},"
        if len(header) < HEADER.size:
            return Records(places, f"{where} is cut short: the file has {size} bytes")
        length, crc = HEADER.unpack(header)
        if masked_crc(header[:8]) != crc:
            return Records(places, f"{where} has a length with a wrong CRC, so no record after it can be found")
        end = at + HEADER.size + length + FOOTER.size
        if end > size:
            return Records(places, f"{where} is cut short: it would end at byte {end}, and the file has {size} bytes")
        places.append((at + HEADER.size, length))
        at = end
    return Records(places, None)


def read_record(file: BinaryIO, position: int, length: int) -> bytes:
    """Returns a record. Raises ValueError with a sentence."""
    if length > RECORD_BYTES_MAX:
        raise ValueError(f"it has {length} bytes, and at most {RECORD_BYTES_MAX} are read")
    file.seek(position)
    data, footer = file.read(length), file.read(FOOTER.size)
    if len(footer) < FOOTER.size or masked_crc(data) != FOOTER.unpack(footer)[0]:
        raise ValueError(f"its {length} bytes have a wrong CRC")
    return data


def parse_example(data: bytes) -> Dict[str, Values]:
    """Returns the features of a tf.train.Example. Raises ValueError if it is none."""
    found: Dict[str, Values] = {}
    for features in _messages(memoryview(data), 1):
        for entry in _messages(features, 1):
            parts = dict(_fields(entry))
            key, feature = parts.get(1, b""), parts.get(2, b"")
            if isinstance(key, int) or isinstance(feature, int):
                raise ValueError("a feature is a number")
            found[bytes(key).decode()] = _parse_feature(memoryview(feature))
    return found


def _parse_feature(feature: memoryview) -> Values:
    """Returns the one list of a feature. Numbers are packed, or not."""
    for kind, values in _fields(feature):
        if isinstance(values, int) or kind not in (BYTES, FLOATS, INTEGERS):
            raise ValueError("a feature has no list")
        items = list(_messages(values, 1, numbers=kind != BYTES))
        if kind == BYTES:
            return items
        data = b"".join(items)
        return np.frombuffer(data, "<f4") if kind == FLOATS else _parse_varints(data)
    return []


def _messages(data: memoryview, field: int, numbers: bool = False) -> Iterator[memoryview]:
    """Yields each value of a field; numbers as the bytes that they would be in a packed list."""
    for number, value in _fields(data, numbers):
        if number == field:
            if isinstance(value, int):
                raise ValueError(f"field {number} is a number")
            yield value


def _fields(data: memoryview, raw: bool = False) -> Iterator[Tuple[int, Union[int, memoryview]]]:
    """Yields the number and the value of each field. raw: numbers are bytes."""
    at = 0
    while at < len(data):
        tag, at = _parse_varint(data, at)
        form, begin = tag & 7, at
        if form == 0:
            value, at = _parse_varint(data, at)
            yield tag >> 3, data[begin:at] if raw else value
            continue
        size = {1: 8, 5: 4}.get(form, 0)
        if form == 2:
            size, begin = _parse_varint(data, at)
        elif not size:
            raise ValueError(f"a field has the wire type {form}")
        at = begin + size
        if at > len(data):
            raise ValueError("a field is cut short")
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
