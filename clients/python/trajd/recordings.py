"""One episode as numbers, for plots and for the viewer: its rows as they were recorded, the steps that a feed makes of
them, and the steps of one window.

`trajctl inspect --json` lists streams and episodes. All values come from a private daemon by feeds that are sent to it:
rows by a feed with one window per row of a clock, and steps by the feed of the configuration. So a drawing has the
numbers that a training gets. The norm is taken off, so that steps have the unit of their stream."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import uuid
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from . import launch
from .arrays import NUMPY
from .connect import connect
from .connection import Explanation
from .errors import ArgumentError, MissingFile, NotFound, names_there_are, run_command
from .feed import Feed
from .state import VERSION

REASONS = ("valid", "before the start", "after the end", "gap", "bad stamp", "not finite", "missing", "too old", "bad frame")
GAP_FACTOR = 1.75  # an interval above so many median intervals is a gap, as in trajctl validate
CHANGED = ("relative_to", "rotation", "return", "goal", "preset")  # keys by which steps are other numbers than rows
NOT_SENT = ("epoch", "windows", "order", "block", "tail", "fan_out", "slots")  # how a feed divides and orders its windows
BATCH_BYTES, BATCH_ROWS = 8 << 20, 4096  # four such batches are in memory.rings
COLUMNS_MAX = 16


Sources = Tuple[Tuple[str, int, int], ...]  # stream, first column in the output, columns; none: the numbers are others


class Stream(NamedTuple):
    name: str
    clock: str
    kind: str
    unit: str
    is_image: bool
    dtype: str
    columns: Tuple[str, ...]  # "0", "1", ... where the file names none


class Series(NamedTuple):
    """Values over time: times in s from the begin of the episode [N], values [N, D], mask codes [N]. A masked value is NaN."""

    times_s: np.ndarray
    values: np.ndarray
    masks: np.ndarray

    def bands(self) -> List[Tuple[float, float, str]]:
        """Returns (begin, end, reason) of the runs of masked steps. A band ends half a step beside its steps."""
        half = np.median(np.diff(self.times_s)) / 2 if len(self.times_s) > 1 else 0.0
        edges = np.flatnonzero(np.diff(self.masks)) + 1
        runs = zip(np.concatenate([[0], edges]).astype(int), np.concatenate([edges, [len(self.masks)]]).astype(int))
        return [(self.times_s[first] - half, self.times_s[end - 1] + half, REASONS[self.masks[first]])
                for first, end in runs if end > first and self.masks[first]]

    def gaps(self) -> List[Tuple[float, float, str]]:
        """Returns (begin, end, text) of the gaps between rows."""
        intervals = np.diff(self.times_s)
        long = np.flatnonzero(intervals > GAP_FACTOR * np.median(intervals)) if len(intervals) else []
        return [(self.times_s[i], self.times_s[i + 1], f"no rows for {intervals[i] * 1e3:.4g} ms") for i in long]


class Output(NamedTuple):
    """The steps of an output: for each window of an episode the step that is nearest to its anchor, or those of one window."""

    name: str
    series: Series  # of images without values
    sources: Sources


class Recording:
    """An episode of a file, or of the dataset of a configuration's feed.

    path     a configuration (.yaml), or a file or folder of recordings
    episode  its name, FILE:NAME, or a file with one episode. Default: the first one
    window   of a feed: the episode is that of the window"""

    def __init__(self, path: str, *, layout: Optional[str] = None, feed: Optional[str] = None,
                 episode: Optional[str] = None, window: Optional[int] = None, rate: str = "20") -> None:
        if not os.path.exists(path):
            raise MissingFile(2, "No such file", path)
        self.is_config = pathlib.Path(path).suffix in (".yaml", ".yml")
        self._number, self._rate = window, rate
        self.spec: Dict[str, Any] = {}
        if self.is_config:
            self._read_config(path, feed)
        elif window is not None or feed is not None:
            raise ArgumentError(f"{path}: a file of recordings has no feeds and windows. Name a configuration")
        else:
            layout = os.path.abspath(layout) if layout and os.path.exists(layout) else layout
            self._dataset, self.place = "file", {"path": os.path.abspath(path), "layout": layout}
        self._inspect()
        if not self.is_config:
            self._endpoint = launch.ensure_daemon({"version": 2, "datasets": {"file": self.place}, "feeds": {}})
        if window is not None:
            with self.open(self._window_spec()) as source:
                if not 0 <= window < source.info.window_count:
                    raise NotFound(f"--window {window}: the feed has windows 0 to {source.info.window_count - 1}")
                explained = source.explain(window)
                episode = f"{explained['file']}:{explained['episode']}"
        self.file, self.episode = self._find_episode(episode)
        self._rows = next(one["rows"] for one in self.index["episodes"] if (one["file"], one["id"]) == (self.file, self.episode))
        self.streams = {one["name"]: self._stream(one) for one in self.index["streams"] if self._rows.get(one["clock"])}

    def _read_config(self, path: str, feed: Optional[str]) -> None:
        document = launch.read_config(path)
        feeds = document["feeds"]
        name = feed or next(iter(feeds), "")
        if name not in feeds:
            raise NotFound(f"{path}: no feed {name} ({names_there_are(name, feeds)})")
        self.spec = feeds[name]
        if "dataset" not in self.spec:
            raise ArgumentError(f"{path}: feed {name} mixes datasets, which are not drawn together. Name a feed of one dataset, "
                                f"such as `NAME: {{like: {name}, mix: null, dataset: DATASET}}`")
        self._dataset = self.spec["dataset"]
        self.place = document["datasets"][self._dataset]
        self._endpoint = launch.ensure_daemon(path)

    def _inspect(self) -> None:
        layout = ["--layout", self.place["layout"]] if self.place.get("layout") else []
        done = subprocess.run([launch.program("trajctl"), "inspect", "--json", *layout, self.place["path"]],
                              capture_output=True, text=True)
        if done.returncode:
            raise ArgumentError(done.stderr.strip().removeprefix("trajctl: "))
        self.index = json.loads(done.stdout)[0]
        if "streams" not in self.index:
            raise ArgumentError(f"{self.place['path']}: {self.index.get('error', 'no layout fits')}. Name one with --layout")
        self.place["layout"] = self.place["layout"] or self.index["layout"]
        self._undecided = [one["name"] for one in self.index["streams"] if one.get("color") == "undecided"]

    def _find_episode(self, wanted: Optional[str]) -> Tuple[str, str]:
        kept = [(one["file"], one["id"]) for one in self.index["episodes"] if not one["quarantine"]]
        for file, name in kept:
            if wanted in (None, name, file, f"{file}:{name}"):
                return file, name
        raise NotFound(f"no episode {wanted} ({names_there_are(wanted or '', [name for _, name in kept])})")

    def _stream(self, one: Mapping[str, Any]) -> Stream:
        count = int(np.prod(one["row_shape"], initial=1))
        names = [] if one["image"] else _column_names(pathlib.Path(self.place["path"]), self.file, self.episode, one["dataset"])
        columns = names if len(names) == count else [str(i) for i in range(0 if one["image"] else count)]
        return Stream(one["name"], one["clock"], one["kind"], one["unit"] or "", one["image"], one["dtype"], tuple(columns))

    def choose(self, names: Iterable[str]) -> List[Stream]:
        """Returns the named streams; without names all but images."""
        for name in names:
            if name not in self.streams:
                raise NotFound(f"no stream {name} ({names_there_are(name, self.streams)})")
        return [self.streams[name] for name in names] or [one for one in self.streams.values() if not one.is_image]

    # ---- feeds ----

    def open(self, spec: Mapping[str, Any]) -> "contextlib.closing[Feed]":
        """Opens a feed in which no other process takes part, and of which the daemon keeps no journal."""
        return contextlib.closing(connect(self._endpoint, spec=json.dumps({**spec, "bad_rows": "keep"}), mode="shard", rank=0,
                                          world_size=1, job=f"view {uuid.uuid4().hex}"))

    def only(self) -> Dict[str, Any]:
        """Returns the keys of a feed that has the windows of the episode in their order."""
        return {"dataset": self._dataset, "episodes": [f"{self.file}:{self.episode}"], "order": "sequential", "tail": "short"}

    def batches(self, spec: Mapping[str, Any], row_bytes: int) -> Iterator[Tuple[Any, Any]]:
        """Yields (batch, its times in s from the episode's begin) of the windows of the episode in their order."""
        batch = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, row_bytes)))
        with self.open({**spec, **self.only(), "global_batch": batch}) as feed:
            origin = feed.explain(0)["origin_ns"]
            for batch in feed.epoch(0):
                yield batch, (batch.anchor_ns - origin) * 1e-9

    def rows(self, streams: Iterable[Stream]) -> Dict[str, Series]:
        """Returns the rows of streams as they were recorded. Of images without values."""
        made: Dict[str, List[Series]] = {one.name: [] for one in streams}
        for clock in {self.streams[name].clock for name in made}:
            names = [name for name in made if self.streams[name].clock == clock]
            for batch, times in self.batches(*self.row_spec(clock, [self.streams[name] for name in names])):
                for name in names:
                    made[name].append(_series(batch, name, times, not self.streams[name].is_image))
        return {name: _join(parts) for name, parts in made.items() if parts}

    def row_spec(self, clock: str, streams: Iterable[Stream]) -> Tuple[Dict[str, Any], int]:
        outputs: Dict[str, Dict[str, Any]] = {one.name: {"at": 0, "missing": "zero"} for one in streams}
        for one in streams:
            if one.is_image:  # where nothing says whether red or blue comes first, as OpenCV reads it
                is_open = one.name in self._undecided and "color" not in self.place
                outputs[one.name].update(image={"channels": "cv2"} if is_open else {}, layout="hwc")
            elif one.dtype == "f64":
                outputs[one.name]["dtype"] = "float64"
        return {"anchor": {"clock": clock}, "outputs": outputs}, sum(self._bytes(one) for one in streams)

    def _bytes(self, stream: Stream) -> int:
        shape = next(one["row_shape"] for one in self.index["streams"] if one["name"] == stream.name)
        return max(1 if stream.is_image else 4, np.dtype(NUMPY[stream.dtype]).itemsize) * int(np.prod(shape, initial=1))

    def frames(self, stream: Stream) -> Iterator[Tuple[float, np.ndarray]]:
        """Yields (time, frame) of a camera, decoded and upright, without any other preparation. Bad frames are left out."""
        for batch, times in self.batches(*self.row_spec(stream.clock, [stream])):
            good = batch.mask(stream.name)[:, 0] == 0
            yield from ((time, np.array(frame[0])) for time, frame, ok in zip(times, batch.raw(stream.name), good) if ok)

    # ---- steps ----

    def _policy_spec(self) -> Dict[str, Any]:
        """Returns the feed of the configuration without norm, or one that resamples all streams of a file."""
        if not self.is_config:
            outputs = {one.name: {"at": 0, "role": "action", "missing": "zero"} for one in self.streams.values() if not one.is_image}
            return {"anchor": {"rate": self._rate}, "outputs": outputs}
        plain = {name: {**keys, "norm": "none", **self._image_keys(name, keys)} for name, keys in self.spec["outputs"].items()}
        return {**{key: value for key, value in self.spec.items() if key not in NOT_SENT}, "outputs": plain}

    def _image_keys(self, name: str, keys: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns what to add to an output of frames: pixels with their colours last. Frames need no key `image`."""
        is_image = any(one["image"] and one["name"] == _source(name, keys) for one in self.index["streams"])
        return {"image": keys.get("image", {}), "layout": "hwc"} if is_image else {}

    def _window_spec(self) -> Dict[str, Any]:
        return {**self._policy_spec(), "order": "sequential", "tail": "short", "global_batch": 1}

    def _is_image(self, name: str) -> bool:
        return "image" in self._policy_spec()["outputs"][name]

    def steps(self, show: Optional[Callable[[str, float, np.ndarray], None]] = None) -> List[Output]:
        """Returns the outputs over the whole episode. Frames go to show(output, time, frame); without it images are left out."""
        chosen = ("filter", "where", "split", "ranges", "statistics_from")  # any episode may be looked at
        spec = {key: value for key, value in self._policy_spec().items() if key not in chosen}
        spec["outputs"] = {name: keys for name, keys in spec["outputs"].items() if show or "image" not in keys}
        return [output for part in self._parts(spec) for output in self._steps_of(part, show)]

    def _parts(self, spec: Mapping[str, Any]) -> List[Mapping[str, Any]]:
        """Returns the feeds to read: of a file one for each clock, because a grid covers the time that all clocks have in common."""
        if self.is_config:
            return [spec] if spec["outputs"] else []
        of = {name: self.streams[name].clock for name in spec["outputs"]}
        return [{**spec, "outputs": {name: keys for name, keys in spec["outputs"].items() if of[name] == clock}}
                for clock in dict.fromkeys(of.values()) if self._rows[clock] > 1]

    def _steps_of(self, spec: Mapping[str, Any], show: Optional[Callable[[str, float, np.ndarray], None]]) -> List[Output]:
        parts: Dict[str, List[Series]] = {name: [] for name in spec["outputs"]}
        images = [name for name in parts if self._is_image(name)]
        described = self._describe(spec)
        for batch, times in self.batches(spec, 4 << 20 if images else 64 << 10):
            for name, (step, offset, _) in described.items():
                parts[name].append(_series(batch, name, times + offset, name not in images, step))
                if name in images and show:
                    for time, frames in zip(times + offset, batch.raw(name)):
                        show(name, time, np.array(frames[step]))
        return [Output(name, _join(series), described[name][2]) for name, series in parts.items() if series]

    def _describe(self, spec: Mapping[str, Any]) -> Dict[str, Tuple[int, float, Sources]]:
        """Returns of each output the step nearest to the anchor, its distance in s, and the sources."""
        made = {}
        with self.open({**spec, **self.only(), "global_batch": 1}) as feed:
            explained = feed.explain(0)
        for output in (one for one in explained["outputs"] if one["name"] in spec["outputs"]):
            offsets = [(item["ns"] - output.get("goal_ns", explained["anchor_ns"])) * 1e-9 for item in output["items"]]
            step = int(np.argmin(np.abs(offsets)))
            made[output["name"]] = step, offsets[step], self._sources(output)
        return made

    def source_of(self, output: str) -> str:
        """Returns the first stream of an output of the feed."""
        return _source(output, self._policy_spec()["outputs"][output])

    def _sources(self, output: Mapping[str, Any]) -> Sources:
        keys = self._policy_spec()["outputs"][output["name"]]
        if any(key in keys for key in CHANGED):
            return ()
        ends = np.cumsum([source["columns"] for source in output["sources"]])
        return tuple((source["stream"], int(end) - source["columns"], source["columns"]) for source, end in zip(output["sources"], ends))

    def window(self) -> Tuple[List[Output], Dict[str, np.ndarray], Explanation]:
        """Returns the outputs of the window that was named, the frames of images [T, ...], and the origin of each step."""
        with self.open(self._window_spec()) as feed:
            info = feed.info
            feed.load_state_dict({"version": VERSION, "seed": info.seed, "epoch": 0, "position": self._number,
                                  "fingerprint": f"{info.fingerprint:016x}"}, strict=False)
            batch, explained = next(feed.epoch(0)), feed.explain(self._number)
            if int(batch.window_id[0]) != self._number:
                raise NotFound(f"--window {self._number}: the feed does not deliver its windows in their order")
            outputs, frames = [], {}
            for output in (one for one in explained["outputs"] if one["name"] in self.spec["outputs"]):
                name, times = output["name"], np.array([item["ns"] * 1e-9 for item in output["items"]])
                values = np.array(batch.raw(name)[0])
                if self._is_image(name):
                    frames[name], values = values, np.zeros((len(times), 0))
                masks = np.array(batch.mask(name)[0])
                outputs.append(Output(name, Series(times, _blank(values, masks), masks), self._sources(output)))
            return outputs, frames, explained

    def statistics(self, names: List[str]) -> Mapping[str, Mapping[str, np.ndarray]]:
        """Returns statistics of streams over the rows of the feed's episodes; of a file, over all of its episodes."""
        found: Dict[str, Mapping[str, np.ndarray]] = {}
        keys = {key: self.spec[key] for key in ("filter", "where", "split", "ranges", "episodes") if key in self.spec}
        for clock in {self.streams[name].clock for name in names}:
            spec, _ = self.row_spec(clock, [self.streams[name] for name in names if self.streams[name].clock == clock])
            with self.open({**keys, **spec, "dataset": self._dataset, "global_batch": 1}) as feed:
                stats = feed.stats()
                found.update({name: stats[name] for name in spec["outputs"]})
        return found


def _source(output: str, keys: Mapping[str, Any]) -> str:
    source = keys.get("from", output)
    return source if isinstance(source, str) else source[0]


def run(program: str, options: argparse.Namespace, show: Callable[[Recording], None]) -> int:
    """Shows the recording that a command line names."""
    return run_command(program, "view", lambda: show(Recording(
        options.path, layout=options.layout, feed=options.feed, episode=options.episode, rate=options.rate,
        window=getattr(options, "window", None))))


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """Returns the options that the plots and the viewer share."""
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    made.add_argument("path", metavar="CONFIG|FILE", help="a configuration (.yaml), or a file or folder of recordings")
    made.add_argument("--layout", metavar="NAME", help="the layout of FILE, by name or path (default: the one that fits)")
    made.add_argument("--feed", metavar="NAME", help="the feed of CONFIG (default: the first)")
    made.add_argument("--episode", metavar="ID", help="the episode: its name, or FILE:NAME (default: the first)")
    made.add_argument("--rate", metavar="HZ", default="20", help="the rate to which a FILE is resampled (default: 20)")
    return made


def _blank(values: np.ndarray, masks: np.ndarray) -> np.ndarray:
    values = np.array(values.reshape(len(masks), -1), float)
    values[masks != 0] = np.nan
    return values


def _series(batch: Any, name: str, times: np.ndarray, has_values: bool, step: int = 0) -> Series:
    masks = np.array(batch.mask(name)[:, step])
    values = np.array(batch.raw(name)[:, step]) if has_values else np.zeros((len(masks), 0))
    return Series(times, _blank(values, masks), masks)


def _join(parts: List[Series]) -> Series:
    return Series(*(np.concatenate(arrays) for arrays in zip(*parts)))


def _column_names(path: pathlib.Path, file: str, episode: str, dataset: str) -> List[str]:
    """Returns the attribute `names` of a dataset, which LeRobot's sets and trajd.convert have: a list of texts, or JSON."""
    import h5py
    with h5py.File(path / file if path.is_dir() else path, "r") as source:
        for place in (dataset, f"{episode}/{dataset}", f"data/{episode}/{dataset}"):
            names = source[place].attrs.get("names") if place in source else None
            with contextlib.suppress(ValueError):
                names = json.loads(names) if isinstance(names, str) else names
            while isinstance(names, dict) and names:  # {"motors": [...]} of LeRobot
                names = next(iter(names.values()))
            if isinstance(names, (list, np.ndarray)):
                return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    return []
