"""Where the numbers and texts of a message lie: ROS messages as CDR, and messages of Protobuf and JSON.

A ROS message is walked once. Its form is kept, and a message of the same length whose texts and counts have the same
bytes has the same form: its numbers are then cut out by their places, which takes some microseconds. Messages of Protobuf
and JSON are packed to bytes first, so that what follows is the same for all."""
from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore

from .bags import Channel

LEAVES_MAX = 4096  # of a message
DTYPES = {"bool": "|b1", "byte": "|u1", "char": "|u1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2",
          "int32": "<i4", "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "float32": "<f4", "float64": "<f8"}
PROTOBUF = {getattr(FieldDescriptor, f"CPPTYPE_{name}"): dtype for name, dtype in (
    ("INT32", "<i4"), ("INT64", "<i8"), ("UINT32", "<u4"), ("UINT64", "<u8"), ("DOUBLE", "<f8"), ("FLOAT", "<f4"),
    ("BOOL", "|b1"), ("ENUM", "<i4"))}
DEPTH_MAX = 8  # of messages of Protobuf in one another
IDL_RULE = "=" * 80 + "\n"  # between the parts of a definition in IDL


class Odd(Exception):
    """A message cannot be converted. The text is why."""


class Leaf(NamedTuple):
    """A number, or an array of numbers, in the bytes of a message."""

    at: int
    dtype: str
    count: int


class Form:
    """What a message has, by the paths of its fields; that of element i of a list ends in `.i`."""

    def __init__(self) -> None:
        self.leaves: Dict[str, Leaf] = {}
        self.texts: Dict[str, str] = {}
        self.counts: Dict[str, int] = {}           # of lists of texts and of messages
        self.checks: List[Tuple[int, int, bytes]] = []  # the bytes on which the places of the leaves depend

    def add(self, path: str, leaf: Leaf) -> None:
        if len(self.leaves) + len(self.texts) >= LEAVES_MAX:
            raise Odd(f"it has more than {LEAVES_MAX} fields")
        self.leaves[path] = leaf

    def add_text(self, path: str, text: str) -> None:
        if len(self.leaves) + len(self.texts) >= LEAVES_MAX:
            raise Odd(f"it has more than {LEAVES_MAX} fields")
        self.texts[path] = text

    def key(self) -> Any:
        return tuple(self.leaves.items()), tuple(self.texts.items())


Decode = Callable[[bytes], Tuple[bytes, Form]]


def decoder(channel: Channel) -> Decode:
    """Returns a function that returns the bytes in which a message's numbers lie, and its form. Raises Odd."""
    if channel.encoding == "cdr":
        types, name = _ros_types(channel), _ros_name(channel.type)
        if name not in types:
            raise Odd(f"there is no definition of {channel.type}")
        return lambda data: (data, _Cdr(data, types).walk(name))
    if channel.encoding == "protobuf":
        return _protobuf(channel)
    if channel.encoding == "json":
        return _pack_json
    raise Odd(f"its messages are encoded as \"{channel.encoding}\", and cdr, protobuf and json are read")


def _ros_name(name: str) -> str:
    return name if name.count("/") != 1 else name.replace("/", "/msg/")  # as before ROS 2 Foxy


def _ros_types(channel: Channel) -> Dict[str, Any]:
    """Returns the types that a definition has, over those of ROS 2 itself."""
    types = dict(get_typestore(Stores.LATEST).fielddefs)
    text = channel.definition.decode(errors="replace")
    try:
        if channel.schema == "ros2msg":
            types.update(get_types_from_msg(text, _ros_name(channel.type)))
        elif channel.schema in ("ros2idl", "omgidl"):
            for part in text.split(IDL_RULE):
                types.update(get_types_from_idl(part.partition("\n")[2] if part.startswith("IDL: ") else part) if part else {})
    except (TypesysError, ValueError, KeyError, RecursionError) as error:
        raise Odd(f"its definition cannot be parsed: {str(error).splitlines()[0]}") from None
    return types


class _Cdr:
    def __init__(self, data: bytes, types: Dict[str, Any]):
        if data[:2] != b"\0\1":
            raise Odd(f"its encapsulation is 0x{data[:2].hex()}, and little-endian CDR (0x0001) is read")
        self._data, self._types, self._at, self._form = data, types, 4, Form()

    def walk(self, name: str) -> Form:
        try:
            self._walk_fields("", name)
        except (struct.error, RecursionError, KeyError) as error:
            raise Odd(f"it does not fit to its definition ({type(error).__name__}: {error})") from None
        return self._form

    def _walk_fields(self, prefix: str, name: str) -> None:
        for field, (kind, what) in self._types[name][1]:
            path = prefix + field
            if kind is Nodetype.NAME:
                self._walk_fields(f"{path}.", what)
            elif kind is Nodetype.BASE:
                self._walk_base(path, what[0], 1)
            else:
                (kind_of_element, element), count = what
                if kind is Nodetype.SEQUENCE:
                    count = self._read_count()
                if kind_of_element is Nodetype.BASE and element[0] in DTYPES:
                    self._walk_base(path, element[0], count)
                    continue
                self._form.counts[path] = count
                for i in range(min(count, LEAVES_MAX)):
                    if kind_of_element is Nodetype.NAME:
                        self._walk_fields(f"{path}.{i}.", element)
                    else:
                        self._walk_base(f"{path}.{i}", element[0], 1)

    def _walk_base(self, path: str, base: str, count: int) -> None:
        if base == "string":
            length = self._read_count()
            text = self._data[self._at:self._at + length]
            self._take(length)
            self._form.add_text(path, text.rstrip(b"\0").decode(errors="replace"))
            return
        if base not in DTYPES:
            raise Odd(f"its field {path} is of the type {base}")
        size = int(DTYPES[base][-1])
        if count:
            self._at = (self._at - 4 + size - 1) // size * size + 4
        self._form.add(path, Leaf(self._at, DTYPES[base], count))
        if self._at + size * count > len(self._data):
            raise struct.error(f"{path} reaches beyond its {len(self._data)} bytes")
        self._at += size * count

    def _read_count(self) -> int:
        self._at = (self._at - 1) // 4 * 4 + 4
        count, = struct.unpack_from("<I", self._data, self._at)
        self._take(4)
        return int(count)

    def _take(self, size: int) -> None:
        """Steps over bytes on which the places of the leaves behind them depend."""
        begin, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise struct.error(f"a text reaches beyond its {len(self._data)} bytes")
        self._form.checks.append((begin, self._at, self._data[begin:self._at]))


class _Packer:
    """Packs the fields of an object to bytes, in their order."""

    def __init__(self) -> None:
        self.form, self._parts, self._size = Form(), [], 0

    def numbers(self, path: str, dtype: str, values: Any) -> None:
        try:
            data = bytes(values) if isinstance(values, bytes) else np.array(values, dtype).tobytes()
        except (OverflowError, ValueError, TypeError) as error:
            raise Odd(f"its field {path} cannot be one of {dtype}: {error}") from None
        self.form.add(path, Leaf(self._size, dtype, len(data) // int(dtype[-1])))
        self._parts.append(data)
        self._size += len(data)

    def done(self) -> Tuple[bytes, Form]:
        return b"".join(self._parts), self.form


def _protobuf(channel: Channel) -> Decode:
    pool = DescriptorPool()
    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(channel.definition).file}
        _add_files(pool, list(files), files)
        kind = GetMessageClass(pool.FindMessageTypeByName(channel.type))
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise Odd(f"its definition cannot be parsed: {error}") from None

    def decode(data: bytes) -> Tuple[bytes, Form]:
        packer = _Packer()
        try:
            _pack_protobuf(packer, "", kind.FromString(data))
        except DecodeError as error:
            raise Odd(f"it does not fit to its definition ({error})") from None
        return packer.done()

    return decode


def _add_files(pool: DescriptorPool, names: Sequence[str], files: Dict[str, Any]) -> None:
    """Adds files to a pool, each behind those that it depends on."""
    for file in (files.pop(name) for name in names if name in files):
        _add_files(pool, file.dependency, files)
        pool.AddSerializedFile(file.SerializeToString())


def _pack_protobuf(packer: _Packer, prefix: str, message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        path, value = prefix + field.name, getattr(message, field.name)
        is_list = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
        if field.cpp_type in PROTOBUF:
            if is_list or not field.has_presence or message.HasField(field.name):
                packer.numbers(path, PROTOBUF[field.cpp_type], value)
            continue
        if is_list:
            packer.form.counts[path] = len(value)
        for one, place in zip(value, (f"{path}.{i}" for i in range(len(value)))) if is_list else [(value, path)]:
            if isinstance(one, bytes):
                packer.numbers(place, "|u1", one)
            elif isinstance(one, str):
                packer.form.add_text(place, one)
            elif path.count(".") < DEPTH_MAX:  # a message that is not set has the defaults
                _pack_protobuf(packer, f"{place}.", one)


def _pack_json(data: bytes) -> Tuple[bytes, Form]:
    packer = _Packer()
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Odd(f"it is not valid JSON: {error}") from None
    if not isinstance(message, dict):
        raise Odd("it is not a mapping")
    for name, value in message.items():
        _pack_value(packer, name, value)
    return packer.done()


def _pack_value(packer: _Packer, path: str, value: Any) -> None:
    if isinstance(value, bool):
        packer.numbers(path, "|b1", value)
    elif isinstance(value, (int, float)):
        packer.numbers(path, "<f8", value)
    elif isinstance(value, str):
        packer.form.add_text(path, value)
    elif isinstance(value, list) and all(isinstance(one, (int, float)) for one in value):
        packer.numbers(path, "<f8", value)
    elif isinstance(value, (list, dict)):
        if isinstance(value, list):
            packer.form.counts[path] = len(value)
        for name, one in enumerate(value) if isinstance(value, list) else value.items():
            _pack_value(packer, f"{path}.{name}", one)


def base64_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Odd(f"its data are not valid Base64: {error}") from None
