"""Live: takes rows as they come, and builds observations of them."""
from __future__ import annotations

import operator
import os
import re
import reprlib
import warnings
from typing import Any, Dict, Mapping, Optional, Set, Tuple, Union

import numpy as np

from .. import _core, arrays
from ..connect import open as open_feed
from ..errors import ArgumentError, DataWarning, Error, MissingFile, NotFound, level_of_caller, nearest
from ..feed import Feed
from ..stats import write_file
from ..styles import STYLES
from . import description, encoded_frames
from .observation import Frame, Observation, Stream

_COUNTS = ("taken", "late", "repeated", "busy", "off_rate", "newest_ns", "off_rate_ns")
_LOOK_NS = 10**9  # between two looks at the streams, of the observations' times
_STOPPED_NS = 10**9  # a stream without a row for so long, and for ten of its intervals, is said to have stopped
_NO_STAMP = -2**63
_LOOK_BACK = ("previous", "mean")  # kinds that read nothing after a step
# How OpenCV, which gives blue first, decodes a frame of so many channels
_DECODE = {(3,): "cv2.imdecode(numpy.frombuffer(row, numpy.uint8), cv2.IMREAD_COLOR)[..., ::-1]",
           (1,): "cv2.imdecode(numpy.frombuffer(row, numpy.uint8), cv2.IMREAD_UNCHANGED)[..., None]"}


def _nanoseconds(seconds: float, name: str) -> int:
    if not isinstance(seconds, (int, float, np.number)) or not 0 < seconds < 1e9:
        raise ArgumentError(f"{name}: seconds above 0 are expected, not {seconds!r}")
    return max(1, round(seconds * 1e9))


def _stamp(t_ns: Any) -> int:
    try:
        return operator.index(t_ns)
    except TypeError:
        raise TypeError(f"t_ns: an integer in ns is expected, not {t_ns!r}: time.time_ns() gives one, and int(t * 1e9) "
                        "converts seconds") from None


def _latency_ns(clock: Mapping[str, Any]) -> int:
    """Returns how old the rows of a clock are when they come."""
    return max(0, int(clock.get("latency_ns", -clock["shift_ns"])))


def _numbers(name: str, row: Any) -> "np.ndarray[Any, Any]":
    """Returns a row as an array. Raises ValueError for lists of different lengths and for masked numbers, and TypeError
    for what has no numbers."""
    if np.ma.is_masked(row):
        raise ValueError(f"{name}: the row has masked numbers, and Live takes all numbers of a row: fill them first")
    try:
        array = np.asarray(row)
    except ValueError as error:
        raise ValueError(f"{name}: the row is not an array: {error}") from None
    if array.dtype.kind not in "biufcV":  # V: ml_dtypes
        raise TypeError(f"{name}: a row is an array of numbers, not {reprlib.repr(row)}")
    return array


def _convert(name: str, array: "np.ndarray[Any, Any]", stream: Stream, dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
    """Returns a row in the type of the stream. Raises ValueError for numbers that it does not hold, and TypeError for
    a kind of numbers that it does not take."""
    if not array.size:
        return np.zeros(array.shape, dtype)
    if stream.dtype == "bf16":
        if array.dtype.name == "bfloat16":
            return array.view(dtype)
        raise TypeError(f"{name}: a row of bf16 is an array of ml_dtypes.bfloat16, or of uint16 with the bits, not {array.dtype}")
    if array.dtype.kind in "biu" and dtype.kind in "biu":
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if int(array.min()) < low or int(array.max()) > high:
            raise ValueError(f"{name}: a row of {dtype} has numbers from {low} to {high}, not {array.min()} to {array.max()}")
        return array.astype(dtype)
    try:
        with np.errstate(over="ignore"):
            made = array.astype(dtype, casting="same_kind")
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    if (np.isinf(made) & np.isfinite(array)).any():
        raise ValueError(f"{name}: {dtype} does not hold a number of the row: it would become infinite")
    return made


def _warn(source: str, document: Mapping[str, Any]) -> None:
    """Warns of observations that differ from those of training: what is left out, and what reads rows after the anchor."""
    said = [f"observations have no output {one['name']}: {one['reason']}" for one in document["left_out"] if one["role"] == "obs"]
    if "digest" not in document:
        said.append("this file has no digest, which tells whether it is as the daemon wrote it: save it again with Live.save")
    for output in document["outputs"]:
        ahead_ns = max([one["lookahead_ns"] for one in output["sources"] if one["rule"] != "rows" and one["kind"] not in _LOOK_BACK],
                       default=0)
        if ahead_ns > 0:
            said.append(f"output {output['name']} reads rows up to {ahead_ns / 1e6:.6g} ms after the anchor (lookahead): it is as in "
                        f"training where t_ns is so long ago that these rows have come; until then it repeats the last row")
    for text in said:
        warnings.warn(f"{source}: {text}", DataWarning, stacklevel=level_of_caller())


def _open(text: str, source: str, history_ns: int, max_anchor_age_ns: int) -> "_core.Live":
    """Opens a description. Its errors name the source."""
    try:
        return _core.Live(text.encode(), history_ns=history_ns, max_anchor_age_ns=max_anchor_age_ns)
    except Error as error:
        raise type(error)(f"{source}: {re.sub('^live description: ', '', re.sub('^live description:(?=[0-9])', 'line ', str(error)))}") from None


def _fetch(config: Union[Feed, str, "os.PathLike[str]", Mapping[str, Any]], feed: Optional[str],
           dataset: Optional[str], options: Mapping[str, Any]) -> str:
    if isinstance(config, Feed):
        return description.fetch(config._opened(), dataset)
    with open_feed(config, feed=feed, **options) as opened:
        return description.fetch(opened._opened(), dataset)


class Live:
    """The rules of a feed, and the last rows of its streams.

    config    the file that save() wrote; or the configuration of the feed, with the options of trajd.open: then the
              daemon is asked once; or an open feed
    feed      the name of the feed in the configuration
    dataset   of a feed that mixes several: the one that the robot is like. Its statistics normalise
    style     the keys of an observation, as for trajd.open
    history   how many seconds before the newest row an observation may lie
    max_anchor_age
              how many seconds before t_ns the newest row of the anchor's clock may lie. Default: three rows, the
              latency of the clock and 20 ms. Where the anchor is t_ns itself, the newest row of all streams. Default:
              three rows and the latency of the fastest stream that has rows, and 200 ms. Where no episode of the
              recordings has two rows of the anchor's clock, a row counts as a second

    `left_out` has the outputs of the feed that no observation has, with the reason of each: actions, and what needs
    rows after the anchor. A DataWarning names those of role obs, and outputs with steps up to the anchor whose
    `lookahead` reads rows after it.

    All stamps are integers in ns of one clock, as the recorder would write them: the latencies and offsets of the
    layout are applied here. Memory is allocated once and does not grow.

    Threads: each stream may be pushed by a thread of its own, while another one observes. Frames are prepared while
    other threads run. A row that a second thread pushes to the same stream meanwhile is refused and counted as busy;
    a second thread that observes gets Busy."""

    def __init__(self, config: Union[Feed, str, "os.PathLike[str]", Mapping[str, Any]], feed: Optional[str] = None, *,
                 dataset: Optional[str] = None, style: str = "raw", history: float = 1.0,
                 max_anchor_age: Optional[float] = None, **options: Any) -> None:
        if style not in STYLES:
            raise ArgumentError(f"there is no style {style!r} (there are: {', '.join(STYLES)})")
        text = description.read(config) if isinstance(config, (str, os.PathLike)) else None
        if text is not None and (feed is not None or dataset is not None or options):
            raise ArgumentError(f"{os.fspath(config)} is a live description, which has one feed and takes no options")  # type: ignore[arg-type]
        if text is None and isinstance(config, (str, os.PathLike)) and not os.path.exists(config):
            raise MissingFile(2, "neither a live description nor a configuration", os.fspath(config))
        self._text = _fetch(config, feed, dataset, options) if text is None else text
        self._history_ns = _nanoseconds(history, "history")
        source = "the live description" if text is None else os.fspath(config)  # type: ignore[arg-type]
        self._core = _open(self._text, source, self._history_ns,
                           0 if max_anchor_age is None else _nanoseconds(max_anchor_age, "max_anchor_age"))
        document = description.parse(self._text, source)
        self.feed: str = document["feed"]
        self.fingerprint: str = document["fingerprint"]  # of the feed, or of its dataset in a mixture
        self.norm_digest: str = document["norm_digest"]
        self.left_out: Dict[str, str] = {one["name"]: one["reason"] for one in document["left_out"]}
        self.streams: Dict[str, Stream] = {row[0]: Stream(*row) for row in self._core.streams()}
        self._places = {name: (place, np.dtype(arrays.NUMPY[stream.dtype]), stream.shape)
                        for place, (name, stream) in enumerate(self.streams.items())}
        self._encoded = {stream["name"]: encoded_frames.Rules(**stream["encoded"])
                         for stream in document["streams"] if "encoded" in stream}
        roles = {output["name"]: output["role"] for output in document["outputs"]}
        self._frame = Frame(self._core.outputs(), roles, document["left_out"], style)
        _warn(source, document)
        self._latency_ns = {one["name"]: _latency_ns(document["clocks"][one["clock"]]) for one in document["streams"]}
        self._told: Set[Tuple[str, str]] = set()
        self._looked_ns: Optional[int] = None

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the description: all that the robot needs. Raises OSError."""
        write_file(path, self._text)

    def _place(self, name: str) -> Tuple[int, "np.dtype[Any]", Tuple[int, ...]]:
        try:
            return self._places[name]
        except KeyError:
            near = nearest(name, self._places)
            raise NotFound(f"no stream {name}{f' (did you mean {near}?)' if near else ''}: an observation needs "
                           f"{', '.join(self._places)}") from None

    def _decode(self, name: str, data: bytes) -> "np.ndarray[Any, Any]":
        _, dtype, shape = self._places[name]
        if name in self._encoded:
            return encoded_frames.decode(name, data, self._encoded[name], shape, dtype)
        if len(shape) != 3:
            raise TypeError(f"{name}: a row is an array of {dtype} {list(shape)}, not bytes")
        decode = f", for example {_DECODE[shape[2:]]}" if shape[2:] in _DECODE else ""
        raise TypeError(f"{name}: the recordings hold pixels, so frames come as arrays of {dtype} {list(shape)}, "
                        f"upright and with red first{decode}")

    def push(self, name: str, t_ns: int, row: Any = ()) -> bool:
        """Takes a row of a stream, recorded at t_ns. Returns False if it is not used, because its stamp is not after
        that of the row before, or because two threads pushed at once; state() counts such rows.

        Whole numbers may come in any integer type, also for bool (0 and 1); floating-point numbers and whole numbers
        are rounded to the float type of the stream. bf16 takes ml_dtypes.bfloat16, or uint16 with the bits.

        A frame of a camera is an array of pixels, upright and with red first. Where the recordings hold JPEG or PNG
        files, it may come as the bytes that the recorder would write, or as a uint8 array [N] of them: this thread
        decodes them with Pillow or OpenCV, while others run, and turns the pixels as the layout says. A JPEG whose compressed data are damaged, with headers
        and end marker intact, is not noticed by these libraries.

        Raises NotFound for a name that is not in `streams`, ValueError or TypeError for a row of another shape or of
        numbers that the stream's type does not hold, DataError for damaged bytes of a frame, and ImportError where
        neither Pillow nor OpenCV is installed. Nothing is changed then."""
        place, dtype, shape = self._place(name)
        if isinstance(row, (bytes, bytearray, memoryview)) and shape != (0,):
            row = self._decode(name, bytes(row))
        array = _numbers(name, row)
        if array.dtype == np.uint8 and array.ndim == 1 and len(shape) == 3:  # np.frombuffer of a file, or cv2.imencode
            array = self._decode(name, array.tobytes())
        if array.dtype != dtype:
            array = _convert(name, array, self.streams[name], dtype)
        if array.shape != shape:
            is_alike = [n for n in shape if n != 1] == [n for n in array.shape if n != 1]
            hint = (f": pass numpy.reshape(row, {list(shape)})" if is_alike else
                    "; encoded frames come as bytes: bytes(row)" if array.ndim == 1 and name in self._encoded else "")
            raise ValueError(f"{name}: a row has the shape {list(shape)}, not {list(array.shape)}{hint}")
        t_ns = _stamp(t_ns)
        taken: bool = self._core.push(place, t_ns, array.tobytes())
        if not taken:
            self._tell_refused(name, self._core.counts(place)[_COUNTS.index("newest_ns")] + self.streams[name].latency_ns - t_ns)
        return taken

    def observation(self, t_ns: int, *, partial: bool = False) -> Observation:
        """Returns the observation at t_ns. Its anchor is the last row of the anchor's clock at or before t_ns, as in
        training; if anchors have a rate of their own, it is t_ns.

        partial   also returns one before each stream has a row; steps without a row are masked 1 (before the start).
                  Streams on the anchor's clock need a row: they determine the anchor

        Raises Timeout while a stream has no row yet, DataError if a stream on the anchor's clock, or all streams have
        stopped (`max_anchor_age`), and NotFound if t_ns lies so far in the past that rows are gone. Another stream that
        stops holds its last row, because the next one may still come: a DataWarning says so once per episode. Give `max_age` in the feed, and
        look at the mask. A DataWarning also names a stream whose newest row is stamped ahead of t_ns by more than `history`."""
        t_ns = _stamp(t_ns)
        anchor_ns, content = self._core.observe(t_ns, partial)
        if self._looked_ns is None or abs(t_ns - self._looked_ns) >= _LOOK_NS:
            self._looked_ns = t_ns
            self._look(t_ns)
        return Observation._of(self._frame, anchor_ns, content)

    def state(self) -> Dict[str, Dict[str, Optional[int]]]:
        """Returns what came of each stream: rows taken, refused because they were late, repeated, or pushed by two
        threads at once (busy); rows at another distance than the recordings' rate (off_rate); and newest_ns, None
        before the first row of an episode."""
        found: Dict[str, Dict[str, Optional[int]]] = {}
        for name, (place, _, _) in self._places.items():
            found[name] = dict(zip(_COUNTS[:-1], self._core.counts(place)))
            if found[name]["newest_ns"] == _NO_STAMP:
                found[name]["newest_ns"] = None
        return found

    def reset(self) -> None:
        """Begins a new episode: forgets all rows, and stamps may go back. Call it while no thread pushes: a row that is
        pushed meanwhile may belong to either episode."""
        self._core.reset()
        self._told = {one for one in self._told if one[1] == "rate"}  # state() counts such rows of all episodes
        self._looked_ns = None

    def _look(self, t_ns: int) -> None:
        """Warns of streams that come at another rate, are stamped ahead of the observation, or have stopped."""
        state = self.state()
        newest = [counts["newest_ns"] for counts in state.values() if counts["newest_ns"] is not None]
        is_past = all(one - t_ns > self._history_ns for one in newest)  # the rows are right, and t_ns is earlier
        for name, counts in state.items():
            interval_ns, newest_ns = self.streams[name].interval_ns, counts["newest_ns"]
            if counts["off_rate"]:
                distance_ns = self._core.counts(self._places[name][0])[_COUNTS.index("off_rate_ns")]
                ask = "" if interval_ns / 500 < distance_ns < interval_ns * 500 else ": stamps are in ns, are these in another unit?"
                self._tell(name, "rate", f"{counts['off_rate']} of {counts['taken']} rows came at another distance than "
                                         f"{interval_ns / 1e6:.6g} ms, the rate of the recordings; the last of them came after "
                                         f"{distance_ns / 1e6:.6g} ms{ask or '.'} Steps that are rows then lie at other times than "
                                         "in training")
            if newest_ns is None:
                continue
            if newest_ns - t_ns > self._history_ns and not is_past:
                self._tell(name, "ahead", f"its newest row is stamped {(newest_ns - t_ns) / 1e9:.6g} s ahead of the observation. "
                                          "Rows with earlier stamps are refused: correct the clock, then call Live.reset()")
            elif interval_ns and t_ns - newest_ns - self._latency_ns[name] > max(_STOPPED_NS, 10 * interval_ns):
                self._tell(name, "stopped", f"its newest row is {(t_ns - newest_ns) / 1e9:.6g} s old, and recordings have one every "
                                            f"{interval_ns / 1e6:.6g} ms. It is held up to the max_age of the feed: look at the mask")

    def _tell_refused(self, name: str, behind_ns: int) -> None:
        if behind_ns > 0:
            self._tell(name, "late", f"a row was not used: its stamp is {behind_ns / 1e9:.9g} s before that of the newest row, and "
                                     "stamps ascend. If the newest row's stamp is wrong, correct the clock, then call Live.reset()")
        elif behind_ns == 0:
            self._tell(name, "repeated", "a row was not used: it has the stamp of the row before")
        else:
            self._tell(name, "busy", "a row was not used: another thread was pushing to this stream")

    def _tell(self, name: str, kind: str, text: str) -> None:
        if (name, kind) not in self._told:
            self._told.add((name, kind))
            warnings.warn(f"live stream {name}: {text} (this is said once per episode; Live.state() counts)", DataWarning, stacklevel=4)

    def __repr__(self) -> str:
        return f"Live({self.feed}: {', '.join(self.streams)})"
