"""MCAP files and rosbag2's SQLite files as sequences of raw messages.

The records of MCAP are walked here. The readers of mcap and rosbags stop at the first damaged chunk, and they refuse a
file for one definition that they cannot parse. Here a damaged chunk costs its messages, and is named."""
from __future__ import annotations

import io
import pathlib
import re
import struct
import sys
import zlib
from typing import BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Tuple

import apsw
import lz4.frame
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from rosbags.interfaces import MessageDefinitionFormat
from rosbags.rosbag2 import Reader, ReaderError

from .output import LeftOut

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89MCAP0\r\n"
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, DATA_END = 2, 3, 4, 5, 6, 15
HEAD = struct.Struct("<BQ")            # of a record: opcode, bytes
MESSAGE_HEAD = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time
CHUNK_BYTES_MAX = 64 << 20             # of a chunk, packed or not, and of a message
SEARCH_BYTES = 1 << 20                 # read at once where the next chunk is searched
NO_SCHEMA = records.Schema(id=0, data=b"", encoding="", name="")
FAULTS = (struct.error, McapError, OverflowError, UnicodeDecodeError)  # of records that are cut


class Channel(NamedTuple):
    topic: str
    type: str      # such as sensor_msgs/msg/Imu
    encoding: str  # of its messages: cdr, protobuf or json
    schema: str    # encoding of its definition, such as ros2msg; "" where there is none
    definition: bytes


Message = Tuple[Channel, int, int, bytes]  # log time, publish time (0: none), the message
Say = Callable[[str], None]                # tells what is lost


class _Damaged(Exception):
    pass


def files_of(path: pathlib.Path) -> List[pathlib.Path]:
    """Returns the files of a recording: those of a rosbag2 folder by their numbers, or the file itself."""
    if not path.is_dir():
        return [path]
    found = [file for pattern in ("*.mcap", "*.db3") for file in path.glob(pattern)]
    if not found:
        raise LeftOut(f"{path}: it has no *.mcap and no *.db3 (unpack files such as *.zstd before)")
    return sorted(found, key=lambda file: natural(file.name))


def natural(name: str) -> List[Tuple[str, int]]:
    """Returns a key that sorts names by the numbers in them."""
    return [(text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d{0,18})", name)]


def read_messages(path: pathlib.Path, say: Say, show: Callable[[float], None]) -> Iterator[Message]:
    """Yields the messages of a file in its order. `show` gets the share of it that is read."""
    if not path.is_file():
        raise LeftOut(f"{path}: it is not a regular file")
    with open(path, "rb") as file:
        head = file.read(16)
        if head.startswith(MAGIC):
            yield from _Mcap(file, path.stat().st_size, lambda text: say(f"{path.name}: {text}"), show).messages()
        elif head.startswith(b"SQLite format 3\0"):
            yield from _read_sqlite(path, say, show)
        else:
            raise LeftOut(f"{path}: it is neither an MCAP file nor one of rosbag2's SQLite files")


class _Mcap:
    def __init__(self, file: BinaryIO, size: int, say: Say, show: Callable[[float], None]):
        self._file, self._size, self._say, self._show = file, size, say, show
        self._schemas: Dict[int, records.Schema] = {}
        self._channels: Dict[int, Channel] = {}
        self._unknown = 0  # messages of channels that are not defined

    def messages(self) -> Iterator[Message]:
        self._read_summary()
        at, ended = len(MAGIC), False
        while not ended and at + HEAD.size <= self._size:
            opcode, end = self._head(at)
            if not self._is_record(at):
                what = "the file ends within the chunk" if opcode == CHUNK else "there is no valid record"
                next_at = self._find_chunk(at + 1)
                self._say(f"bytes {at} to {next_at - 1} are lost: at byte {at}, {what}")
                at = next_at
                continue
            if opcode in (CHUNK, SCHEMA, CHANNEL, MESSAGE):
                try:
                    yield from self._read(opcode, end - at - HEAD.size)
                except (_Damaged, *FAULTS) as error:
                    self._say(f"the {'chunk' if opcode == CHUNK else 'record'} at byte {at} is lost: {error}")
                    if end < self._size and not self._is_record(end):
                        end = self._find_chunk(at + 1)
            self._show(end / self._size)
            at, ended = end, opcode == DATA_END
        if not ended:
            self._say("it ends without a summary, so its recording was cut off")
        if self._unknown:
            self._say(f"{self._unknown} messages are lost: their channel was defined in a lost chunk")

    def _head(self, at: int) -> Tuple[int, int]:
        """Returns the opcode of the record at a position, and where it ends."""
        self._file.seek(at)
        opcode, length = HEAD.unpack(self._file.read(HEAD.size))
        return opcode, at + HEAD.size + length

    def _is_record(self, at: int) -> bool:
        if at + HEAD.size > self._size:
            return False
        opcode, end = self._head(at)
        return (0 < opcode <= DATA_END or opcode >= 0x80) and end <= self._size

    def _read_summary(self) -> None:
        """Reads the copies of definitions at the end: the chunk that has the others may be lost."""
        try:
            opcode, end = self._head(self._size - 37)
            at, = struct.unpack("<Q", self._file.read(8))
            while opcode == FOOTER and len(MAGIC) <= at < self._size - 37 and self._is_record(at):
                kind, end = self._head(at)
                if kind in (SCHEMA, CHANNEL):
                    list(self._read(kind, end - at - HEAD.size))
                at = end
        except (OSError, _Damaged, *FAULTS):
            pass  # a file that was cut off: the walk says so

    def _find_chunk(self, at: int) -> int:
        """Returns where the next compressed chunk begins, by the name of its compression, or the end of the file."""
        before = HEAD.size + 28  # from the begin of a chunk to the name
        while at < self._size:
            self._file.seek(at)
            part = self._file.read(SEARCH_BYTES + 64)
            for found in re.finditer(rb"\x04\0\0\0zstd|\x03\0\0\0lz4", part):
                begin = at + found.start() - before
                if found.start() >= before and part[found.start() - before] == CHUNK and self._is_record(begin):
                    return begin
            at += SEARCH_BYTES
        return self._size

    def _read(self, opcode: int, length: int) -> Iterator[Message]:
        """Reads the record at the position of the file, or those in a chunk."""
        if length > CHUNK_BYTES_MAX:
            raise _Damaged(f"it has {length} bytes, and {CHUNK_BYTES_MAX} are the most that are read at once")
        data = self._file.read(length)
        data = _unpack(records.Chunk.read(_stream(data))) if opcode == CHUNK else HEAD.pack(opcode, length) + data
        at, size = 0, len(data)
        while at < size:
            kind, length = HEAD.unpack_from(data, at)
            begin, at = at + HEAD.size, at + HEAD.size + length
            if at > size:
                raise _Damaged("a record in it reaches beyond its end")
            if kind == MESSAGE:
                if length < MESSAGE_HEAD.size:
                    raise _Damaged("a message in it is cut short")
                number, _, log, publish = MESSAGE_HEAD.unpack_from(data, begin)
                channel = self._channels.get(number)
                if channel:
                    yield channel, log, publish, data[begin + MESSAGE_HEAD.size:at]
                else:
                    self._unknown += 1
            elif kind == SCHEMA:
                schema = records.Schema.read(_stream(data[begin:at]))
                self._schemas[schema.id] = schema
            elif kind == CHANNEL:
                found = records.Channel.read(_stream(data[begin:at]))
                schema = self._schemas.get(found.schema_id, NO_SCHEMA)
                self._channels[found.id] = Channel(found.topic, schema.name, found.message_encoding, schema.encoding,
                                                   schema.data)


def _stream(data: bytes) -> ReadDataStream:
    return ReadDataStream(io.BytesIO(data))


def _unpack(chunk: records.Chunk) -> bytes:
    """Returns the bytes of a chunk's records."""
    size, crc, data = chunk.uncompressed_size, chunk.uncompressed_crc, chunk.data
    first, last = chunk.message_start_time / 1e9, chunk.message_end_time / 1e9
    when = f"; its messages were recorded from {first:.3f} s to {last:.3f} s"
    if size > CHUNK_BYTES_MAX:
        raise _Damaged(f"unpacked, it has {size} bytes, and {CHUNK_BYTES_MAX} are the most that are read at once{when}")
    try:
        if chunk.compression == "zstd":
            data = zstd.ZstdDecompressor().decompress(data, size + 1)
        elif chunk.compression == "lz4":
            data = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size + 1)
        elif chunk.compression:
            raise _Damaged(f"its compression is \"{chunk.compression}\", and lz4 and zstd are read{when}")
    except (zstd.ZstdError, RuntimeError, EOFError) as error:
        raise _Damaged(f"it cannot be unpacked: {error}{when}") from None
    if len(data) != size:
        raise _Damaged(f"unpacked, it has {len(data)} bytes and should have {size}{when}")
    if crc and zlib.crc32(data) != crc:
        raise _Damaged(f"its CRC is {zlib.crc32(data):#010x} and should be {crc:#010x}{when}")
    return data


def _read_sqlite(path: pathlib.Path, say: Say, show: Callable[[float], None]) -> Iterator[Message]:
    """Yields the messages of a .db3. It has no publish times, and before ROS 2 Iron it has no definitions."""
    formats, done = {MessageDefinitionFormat.MSG: "ros2msg", MessageDefinitionFormat.IDL: "ros2idl"}, 0
    try:
        with Reader(path) as database:
            channels = {one.id: Channel(one.topic, one.msgtype, one.ext.serialization_format,
                                        formats.get(one.msgdef.format, ""), one.msgdef.data.encode())
                        for one in database.connections}
            for done, (connection, log, data) in enumerate(database.messages(), 1):
                yield channels[connection.id], log, 0, data
                show(done / database.message_count)
    except (ReaderError, apsw.Error, KeyError, TypeError, ValueError) as error:
        say(f"{path.name}: the messages after the first {done} are lost: {error}")
