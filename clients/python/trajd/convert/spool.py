"""The rows of a stream between a recording and the HDF5 file: in nameless files beside the output, so that memory is
bounded and a run that is killed leaves nothing."""
from __future__ import annotations

import json
import os
import pathlib
import struct
import tempfile
from typing import List, Set, Tuple

import h5py
import numpy as np

from .messages import Odd
from .objects import text_of
from .output import LeftOut
from .topics import NO_STAMP, Row
from .video import Clip, copy_pieces, describe_regular

ROWS_MAX = 1 << 22        # of a stream in a recording: their times are in memory while it is written
BLOCK_BYTES = 4 << 20     # of rows that are read at once
TIMES = struct.Struct("<qqqq")  # log time, publish time, stamp, bytes of the row
LOG, PUBLISH, STAMP, SIZE = range(4)
DAY_S, SECOND = 86400, 10**9


class Stream:
    """A stream of all recordings of a conversion. What its layout has to say is found while it is written."""

    def __init__(self, name: str, topic: str, row: Row, is_event: bool):
        self.name, self.topic, self.parts, self.image, self.is_event = name, topic, row.parts, row.image, is_event
        self.kind = np.dtype([(part.name, value.dtype, value.shape) for part, value in zip(row.parts, row.values)])
        self.episodes = 0                   # that have it
        self.has_equal_times = False
        self.zero_rotations: Set[str] = set()  # parts with quaternions of zeros, which are none


class Spool:
    """The rows of a stream in one recording."""

    def __init__(self, stream: Stream, folder: pathlib.Path):
        self.stream, self.rows = stream, 0
        self._times = tempfile.TemporaryFile(dir=folder, buffering=1 << 16)
        self.data = tempfile.TemporaryFile(dir=folder, buffering=1 << 16)

    def add(self, log: int, publish: int, stamp: int, row: bytes) -> None:
        if self.rows == ROWS_MAX:
            raise Odd(f"there are {ROWS_MAX} before it, and no stream of a recording may have more")
        try:
            times = TIMES.pack(log, publish, stamp, len(row))
        except struct.error:
            raise Odd("its time is not one of 64 bits") from None
        self._times.write(times)
        self.data.write(row)
        self.rows += 1

    def column(self, number: int) -> np.ndarray:
        """Returns one of the times of all rows."""
        self._times.flush()
        found, block = np.empty(self.rows, np.int64), BLOCK_BYTES // TIMES.size
        for begin in range(0, self.rows, block):
            part = os.pread(self._times.fileno(), block * TIMES.size, begin * TIMES.size)
            found[begin:begin + block] = np.frombuffer(part, np.int64).reshape(-1, 4)[:, number]
        return found

    def finish(self) -> None:
        self.data.flush()

    def close(self) -> None:
        self._times.close()
        self.data.close()

    def write(self, group: h5py.Group, rows: np.ndarray) -> None:
        """Writes some rows, by their numbers, as datasets of a stream's group."""
        kind, datasets = self.stream.kind, {}
        for part in self.stream.parts:
            own = kind[part.name]
            dataset = datasets[part] = group.create_dataset(part.name, (len(rows), *own.shape), own.base)
            if part.columns is not None:
                names = text_of(json.dumps(part.columns or [str(column) for column in range(own.shape[0])]))
                dataset.attrs.update({"names": names} if names else {})
            dataset.attrs.update({"unit": part.unit} if part.unit else {})
        self.data.flush()
        block = max(1, BLOCK_BYTES // kind.itemsize)
        for begin in range(0, len(rows), block):
            values = np.memmap(self.data, kind, "r")[rows[begin:begin + block]]  # mapped again: memory is given back
            for part, dataset in datasets.items():
                dataset[begin:begin + len(values)] = values[part.name]
                if part.kind == "slerp" and not values[part.name].any(axis=1).all():
                    self.stream.zero_rotations.add(part.name)


class Images(Spool):
    """Encoded images, or raw pixels: packed images in an episode."""

    def write(self, group: h5py.Group, rows: np.ndarray) -> None:
        image, sizes = self.stream.image, self.column(SIZE)
        assert image
        begins, sizes = (np.cumsum(sizes) - sizes)[rows], sizes[rows]
        images = group.create_group("image")
        copy_pieces(self.data.fileno(), begins, sizes, images.id, "the rows of images")
        images["offsets"] = np.concatenate([[0], np.cumsum(sizes)])
        images.attrs["encoding"] = "raw" if image.kind == "raw" else "auto"
        images.attrs["unit" if image.color in ("mm", "m") else "color"] = image.color
        if image.kind == "raw":
            images.attrs["size"] = np.array(image.size, "<i8")


START_CODE = b"\0\0\1"  # zeros before it belong to no unit
IDR, SPS = 5, 7


class Video(Spool):
    """H.264 in Annex B, one frame a message. It becomes an MP4, in which `trajd-decoder describe` finds decode units:
    start codes are replaced by lengths, and nothing else changes."""

    def __init__(self, stream: Stream, folder: pathlib.Path):
        super().__init__(stream, folder)
        self._sps = b""
        self.data.write(_box(b"ftyp", b"isom\0\0\0\0isom") + struct.pack(">I4sQ", 1, b"mdat", 0))
        self._begin = self.data.tell()

    def add(self, log: int, publish: int, stamp: int, row: bytes) -> None:
        head, *units = (unit.rstrip(b"\0") for unit in row.split(START_CODE))
        if head or not units:
            raise Odd("it does not begin with a start code, so it is not H.264 in Annex B")
        kinds = {unit[0] & 31: unit for unit in units if len(unit) > 3}
        self._sps = self._sps or kinds.get(SPS, b"")
        if not self.rows and not (self._sps and IDR in kinds):
            raise Odd("it is before the first key frame with its parameter sets")
        super().add(log, publish, stamp, b"".join(struct.pack(">I", len(unit)) + unit for unit in units if unit))

    def finish(self) -> None:
        """Writes the boxes behind the frames."""
        sizes = self.column(SIZE)
        self.data.write(_movie(self._sps, sizes, self._begin))
        self.data.seek(self._begin - 8)
        self.data.write(struct.pack(">Q", int(sizes.sum()) + 16))
        self.data.flush()
        topic = f"topic {self.stream.topic}"
        self._video = describe_regular(pathlib.Path(f"/proc/self/fd/{self.data.fileno()}"), topic)
        if not np.array_equal(self._video.rows, np.arange(self.rows)):
            raise LeftOut(f"{topic}: its {self.rows} frames are not in the order in which they are shown")

    def write(self, group: h5py.Group, rows: np.ndarray) -> None:
        Clip(self._video, int(rows[0]), len(rows), None).write(group, "image")


def _box(name: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), name) + body


def _movie(sps: bytes, sizes: np.ndarray, begin: int) -> bytes:
    """Returns the box moov of a track with one chunk of samples. The parameter sets are in them (avc3)."""
    matrix = struct.pack(">9I", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    count = len(sizes)
    entry = _box(b"avc3", bytes(6), struct.pack(">H", 1), bytes(20), struct.pack(">II", 72 << 16, 72 << 16), bytes(4),
                 struct.pack(">H", 1), bytes(32), struct.pack(">Hh", 24, -1),
                 _box(b"avcC", b"\1", sps[1:4], b"\xff\xe0\0"))
    table = _box(b"stbl", _box(b"stsd", bytes(4), struct.pack(">I", 1), entry),
                 _box(b"stts", struct.pack(">4I", 0, 1, count, 1)),
                 _box(b"stsc", struct.pack(">5I", 0, 1, 1, count, 1)),
                 _box(b"stsz", struct.pack(">3I", 0, 0, count), sizes.astype(">u4").tobytes()),
                 _box(b"co64", struct.pack(">2IQ", 0, 1, begin)))
    place = _box(b"dinf", _box(b"dref", struct.pack(">2I", 0, 1), _box(b"url ", struct.pack(">I", 1))))
    head = struct.pack(">5I", 0, 0, 0, 30, count)
    track = _box(b"trak", _box(b"tkhd", struct.pack(">6I", 7, 0, 0, 1, 0, count), bytes(16), matrix, bytes(8)),
                 _box(b"mdia", _box(b"mdhd", head, bytes(4)), _box(b"hdlr", bytes(8), b"vide", bytes(13)),
                      _box(b"minf", place, table)))
    return _box(b"moov", _box(b"mvhd", head, bytes(80)), track)


SPOOLS = {None: Spool, "encoded": Images, "raw": Images, "video": Video}  # by the kind of image


def choose_clock(spool: Spool) -> Tuple[int, List[str]]:
    """Returns which column is the clock of a stream's rows: the sensor's stamps if they can be one, and otherwise the
    log time. The notes say what is odd about the stamps."""
    log, stamp, topic = spool.column(LOG), spool.column(STAMP), f"topic {spool.stream.topic}"
    if (stamp == NO_STAMP).all():
        return LOG, []
    count, zeros = len(stamp), int((stamp == 0).sum())
    others = int(((np.abs(stamp / 1e9 - log / 1e9) > DAY_S) & (stamp != 0)).sum())
    if zeros or others:
        return LOG, [f"{topic}: of {count} header stamps, {zeros} are 0 and {others} others are more than a day from "
                     "the log time: the log time was taken for all"]
    notes, apart = [], float(np.median(stamp - log)) / 1e9
    if abs(apart) > 1 and not spool.stream.is_event:
        side = "after" if apart > 0 else "before"
        notes.append(f"{topic}: header stamps are {abs(apart):.3f} s {side} the log time: they were taken")
    if not (np.diff(log) >= 0).all():
        stamp = stamp[np.argsort(log, kind="stable")]
    steps = np.diff(stamp)
    backward, furthest, equal = int((steps < 0).sum()), -int(steps.min(initial=0)), int((steps == 0).sum())
    if furthest > SECOND or 2 * equal > count:
        return LOG, [f"{topic}: of {count} header stamps, {backward} go back, by up to {furthest / 1e9:.3f} s, and "
                     f"{equal} equal the one before: the log time was taken for all"]
    if backward:
        notes.append(f"{topic}: of {count} header stamps, {backward} go back, by up to {furthest / 1e6:.3f} ms: the "
                     "rows were put in the order of the stamps")
    return STAMP, notes


class Rows:
    """The rows of a stream in an episode, an object of output.Episode: those of a piece of the recording, in log times.
    What is wrong with them is added to `notes`."""

    def __init__(self, spool: Spool, clock: int, begin: int, end: int, notes: List[str]):
        self._spool, self._clock, self._notes = spool, clock, notes
        log = spool.column(LOG)
        chosen = np.flatnonzero((log >= begin) & (log < end))
        if spool.stream.is_event and len(before := np.flatnonzero(log < begin)):  # it counts until the next one comes
            chosen = np.concatenate([before[-1:], chosen])
        self.count = len(chosen)
        self._chosen = None if len(chosen) == spool.rows else chosen

    def write(self, group: h5py.Group, path: str) -> None:
        spool, stream = self._spool, self._spool.stream
        rows = np.arange(spool.rows) if self._chosen is None else self._chosen
        time = spool.column(self._clock)[rows]
        is_sorted = bool((np.diff(time) >= 0).all())
        if isinstance(spool, Video) and not (is_sorted and rows[-1] - rows[0] < len(rows)):
            self._notes.append(f"left out: topic {stream.topic}: its frames are not in the order of their times")
            return
        if not is_sorted:
            order = np.argsort(time, kind="stable")
            rows, time = rows[order], time[order]
        equal = int((np.diff(time) == 0).sum())
        if equal:
            stream.has_equal_times = True
            self._notes.append(f"topic {stream.topic}: {equal} of {len(time)} rows have the time of the one before: of "
                               "those, the layout keeps the last")
        stream.episodes += 1
        target = group.create_group(path)
        target["time"] = time
        target["log_time"], publish, stamp = (spool.column(column)[rows] for column in (LOG, PUBLISH, STAMP))
        if publish.any():
            target["publish_time"] = publish
        if self._clock == LOG and (stamp != NO_STAMP).any():
            target["header_stamp"] = stamp
        spool.write(target, rows)
