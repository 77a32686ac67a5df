"""A part of an MP4 as packed video: a group of packets with the table of rows and the table of decode units.

`trajd-decoder describe` reads the MP4's boxes and finds where decode units begin, in a sandbox. Here its arrays are cut
to an episode's rows, and the packets are copied, or referred to by their positions in the MP4."""
from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import threading
from typing import Any, BinaryIO, Dict, NamedTuple, Optional, Tuple

import h5py
import numpy as np
from h5py import h5d, h5g, h5i, h5t

from ..errors import ArgumentError
from ..launch import program
from .objects import NEW_WITH_PLACE, space_of, write_array, write_attributes, write_group
from .output import LeftOut

VERSION = 1                   # of the groups
COPY_BYTES_MAX = 16 << 20     # in one call
DESCRIBED_BYTES_MAX = 1 << 30  # 64 bytes for each of at most 2^24 packets
DESCRIBE_SECONDS = 60         # at most, and a second more for each megabyte: each packet is read
WORDS = {"codec": "av1|h264|hevc", "pixel_format": "[a-z0-9]{1,16}", "matrix": "bt601|bt709|bt2020|unspecified",
         "range": "limited|full|unspecified"}


class Video(NamedTuple):
    """The video track of an MP4. The arrays are those of `trajd-decoder describe` (its README)."""

    path: pathlib.Path  # without links
    name: str           # in messages
    header: Dict[str, Any]
    rows: np.ndarray     # (T): the packet of each shown frame
    pts: np.ndarray      # (T): its time after the first one's
    packets: np.ndarray  # (P, 3): position, size, crc32
    units: np.ndarray    # (U, 3): first packet, first row, number of the extradata
    extradata: np.ndarray

    def seconds(self, frame: int) -> float:
        return int(self.pts[frame]) / self.header["timescale"]


def describe(path: pathlib.Path, name: str) -> Video:
    """Returns what is in an MP4. Raises LeftOut if it is none that can be read."""
    try:
        real = path.resolve(strict=True)
        if not real.is_file():  # of a FIFO, opening may not end
            raise LeftOut(f"{name}: it is not a regular file")
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise LeftOut(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return describe_regular(real, name)


def describe_regular(real: pathlib.Path, name: str) -> Video:
    """Does the same for a regular file without links, or one that is open and has no name (/proc/self/fd)."""
    decoder = program("trajd-decoder")
    try:
        with open(real, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            status, output, why = _run_describe(decoder, file, DESCRIBE_SECONDS + size / 1e6)
    except OSError as error:
        raise LeftOut(f"{name}: {error.strerror}") from None
    if status:
        raise LeftOut(f"{name}: {why or f'trajd-decoder ended with status {status}'}")
    try:
        return _unpack(real, name, output, size)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LeftOut(f"{name}: what trajd-decoder says of it does not add up") from None


def _run_describe(decoder: str, file: BinaryIO, seconds: float) -> Tuple[int, bytes, str]:
    """Returns the exit status of `trajd-decoder describe`, its output and its message.

    The child has read an untrusted file: it may write without end, or not end at all."""
    output = bytearray()
    with subprocess.Popen([decoder, "describe"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout and child.stderr
        timer = threading.Timer(seconds, child.kill)
        timer.start()
        try:
            while len(output) <= DESCRIBED_BYTES_MAX and (part := os.read(child.stdout.fileno(), 1 << 20)):
                output += part
            if len(output) > DESCRIBED_BYTES_MAX:
                child.kill()
            lines = child.stderr.read(4096).decode(errors="replace").splitlines()
            status = child.wait()
        finally:
            child.kill()
            timer.cancel()
    if status < 0:
        return status, b"", f"trajd-decoder was killed by signal {-status}; it may run for {seconds:.0f} s"
    return status, bytes(output), lines[0] if lines else ""


def _unpack(path: pathlib.Path, name: str, output: bytes, size: int) -> Video:
    """Returns what `trajd-decoder describe` wrote of a file of `size` bytes. Raises ValueError where it does not fit."""
    line, _, data = output.partition(b"\n")
    header = json.loads(line)
    numbers = [header[key] for key in ("rows", "packets", "units", "height", "width", "timescale")]
    ends = np.array(header["extradata_ends"])
    if not all(type(number) is int and 0 < number < 1 << 32 for number in numbers) or header["file_bytes"] != size or any(
            not re.fullmatch(words, header[key]) for key, words in WORDS.items()) or ends.dtype != np.int64 or ends.ndim != 1:
        raise ValueError
    arrays, end = [], 0
    for count, columns in ((numbers[0], 1), (numbers[0], 1), (numbers[1], 3), (numbers[2], 3)):
        arrays.append(np.frombuffer(data, "<i8", count * columns, end).reshape(-1, *([columns] if columns > 1 else [])))
        end += 8 * count * columns
    rows, _, packets, units = arrays
    extradata = np.frombuffer(data, np.uint8, -1, end)
    ascends = (np.diff(units[:, :2], axis=0) > 0).all() and (np.diff(ends) >= 0).all()
    if not ascends or units[0, :2].any() or units[-1, 0] >= len(packets) or units[-1, 1] >= len(rows) or ends[0] < 0 or (
            ends[-1] != len(extradata)) or units[:, 2].min() < 0 or units[:, 2].max() >= len(ends):
        raise ValueError
    unit = np.searchsorted(units[:, 1], np.arange(len(rows)), "right") - 1  # of each row
    if (rows < units[unit, 0]).any() or (rows >= np.append(units[1:, 0], len(packets))[unit]).any():
        raise ValueError
    if packets.min() < 0 or packets[:, 1].min() < 1 or packets[:, :2].max() > size or packets[:, :2].sum(axis=1).max() > size:
        raise ValueError
    return Video(path, name, header, rows, arrays[1], packets, units, extradata)


class Clip:
    """Some shown frames of a video, one after another, and the packets that they need.

    `lacking` rows at the end were not recorded: they show a packet without bytes, which makes them bad frames.
    `media` is the folder beneath which packets are referred to; None: they are copied."""

    def __init__(self, video: Video, first: int, count: int, media: Optional[pathlib.Path], lacking: int = 0):
        begin_unit, end_unit = np.searchsorted(video.units[:, 1], (first, first + count - 1), "right") - (1, 0)
        begin = int(video.units[begin_unit, 0])
        rows = video.rows[first:first + count] - begin
        self.video = video
        self.packets = video.packets[begin:begin + int(rows.max()) + 1]
        self.rows = np.concatenate([rows, np.full(lacking, len(self.packets))])
        self.units = video.units[begin_unit:end_unit] - (begin, first, 0)
        self.units[0, 1] = 0
        if lacking:
            self.packets = np.concatenate([self.packets, [[self.packets[-1, :2].sum(), 0, 0]]])
        self.media = None if media is None else relative_media(video.path, media)

    def write(self, group: h5py.Group, path: str) -> None:
        header, packets = self.video.header, self.packets
        video = write_group(group.id, path)
        if self.media is None:
            packets = self._copy(video)
        else:
            write_attributes(video, {"media": self.media, "media_size": header["file_bytes"]})
        for name, array in (("rows", self.rows), ("packets", packets), ("units", self.units),
                            ("extradata_ends", np.array(header["extradata_ends"], "<i8")),
                            ("extradata", self.video.extradata)):
            write_array(video, name, array)
        firsts = self.units[:, 0]
        largest = [np.diff(firsts, append=len(packets)).max(), np.add.reduceat(packets[:, 1], firsts).max()]
        write_attributes(video, {name: header[name] for name in ("codec", "pixel_format", "matrix", "range")} | {
            "version": VERSION, "encoding": "video", "color": "rgb", "largest_unit": np.array(largest, "<i8"),
            "size": np.array([header["height"], header["width"]], "<i8")})

    def _copy(self, group: h5g.GroupID) -> np.ndarray:
        """Copies the packets. Returns the table of their new positions."""
        begins, sizes = self.packets[:, 0], self.packets[:, 1]
        with open(self.video.path, "rb", buffering=0) as file:
            copy_pieces(file.fileno(), begins, sizes, group, self.video.path)
        return np.concatenate([(np.cumsum(sizes) - sizes)[:, None], self.packets[:, 1:]], axis=1)


def copy_pieces(source: int, begins: np.ndarray, sizes: np.ndarray, group: h5g.GroupID, name: object) -> None:
    """Copies pieces of a file into the dataset `bytes`, one after another. `name` is the file's, for a message.

    The kernel copies from file to file, as cp does: HDF5 has given the dataset its place before."""
    place = h5d.create(group, b"bytes", h5t.STD_U8LE, space_of((int(sizes.sum()),)), NEW_WITH_PLACE).get_offset()
    target = h5i.get_file_id(group).get_vfd_handle()
    ends = begins + sizes
    cuts = np.flatnonzero(begins[1:] != ends[:-1]) + 1  # between pieces that are not one after another in the file
    for first, last in zip([0, *cuts], [*(cuts - 1), len(ends) - 1]):
        size = int(ends[last] - begins[first])
        _copy_bytes(source, int(begins[first]), target, place, size, name)
        place += size


def _copy_bytes(source: int, position: int, target: int, place: int, size: int, name: object) -> None:
    while size:
        try:
            copied = os.copy_file_range(source, target, min(size, COPY_BYTES_MAX), position, place)
        except OSError:  # such as EXDEV, between file systems of an old kernel
            copied = os.pwrite(target, os.pread(source, min(size, COPY_BYTES_MAX), position), place)
        if not copied:
            raise ArgumentError(f"{name}: it was cut short while it was converted")
        position, place, size = position + copied, place + copied, size - copied


def relative_media(path: pathlib.Path, media: pathlib.Path) -> str:
    """Returns the path of an MP4 relative to the folder `media`. Both are without links. Raises ArgumentError."""
    try:
        return path.relative_to(media).as_posix()
    except ValueError:
        above = os.path.commonpath([path, media])
        raise ArgumentError(f"{path}: it is not beneath {media}, so the output cannot refer to it (links are followed, such as "
                            f"those into the blobs of a hub's cache): give --media {above}, and `media: {above}` to the data set "
                            "in the configuration; or copy, without --reference") from None
