"""python -m trajd.export lerobot CONFIG|FILE OUT --fps N: writes a LeRobot data set, v3.0, by LeRobot's own API.

Numbers are those of `trajctl resample --dtype float32`, which writes them to a temporary file. A step gets the last
frame of each camera that is not after it, decoded by the daemon. LeRobot encodes it. The guide's page on converting has an example."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from fractions import Fraction
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from . import launch
from .errors import ArgumentError, run_command
from .recordings import Recording, Stream

FOLDERS = ("observations/", "observation/", "obs/")  # of streams that are observations
NAMES = {"actions": "action", "state": "observation.state"}  # as LeRobot's policies look for them
OWN = ("timestamp", "frame_index", "episode_index", "index", "task_index", "task")  # of every LeRobot data set
DIMENSIONS_MAX = 5  # of an array that LeRobot can store


class LeftOut(Exception):
    """Why an episode is not exported."""


class Feature:
    def __init__(self, stream: Stream, listed: Mapping[str, Any]) -> None:
        self.stream, self.shape, self.dataset = stream, tuple(listed["row_shape"]) or (1,), listed["dataset"]
        folder = next((folder for folder in FOLDERS if stream.name.startswith(folder)), "")
        name = ("observation/" if folder else "") + stream.name[len(folder):]
        self.key = NAMES.get(name, name.replace("/", "."))
        if stream.is_image:
            self.key = f"observation.images.{name.rpartition('/')[2]}"

    def why_not(self) -> Optional[str]:
        if self.key in OWN:
            return f"each LeRobot data set has its own {self.key}"
        if self.stream.is_image and (self.stream.dtype != "u8" or self.shape[2:] != (3,)):
            return f"LeRobot encodes frames of three bytes a pixel, not {self.stream.dtype} {list(self.shape)}"
        if len(self.shape) > DIMENSIONS_MAX:
            return f"LeRobot has arrays of up to {DIMENSIONS_MAX} dimensions, and this one has {len(self.shape)}"
        return None

    def rows(self, group: Any) -> np.ndarray:
        """Returns the rows of a group of a resampled file: none where it lacks them."""
        rows = np.asarray(group[self.dataset]) if self.dataset in group else np.zeros((0, *self.shape), np.float32)
        if rows[:1].size not in (0, np.prod(self.shape)):
            raise ArgumentError(f"{self.stream.name} has only some columns of {self.dataset}: make one stream of all")
        return rows.reshape(len(rows), *self.shape)

    def description(self, dtype: str) -> Dict[str, Any]:
        columns = self.stream.columns
        names = list(columns) if self.shape == (len(columns),) and columns[0] != "0" else None
        return {"dtype": dtype, "shape": self.shape,
                "names": ["height", "width", "channels"] if self.stream.is_image else names}


def choose(recording: Recording, names: List[str]) -> List[Feature]:
    listed = {one["name"]: one for one in recording.index["streams"]}
    features: Dict[str, Feature] = {}
    for stream in recording.choose(names) if names else recording.streams.values():
        feature = Feature(stream, listed[stream.name])
        why = feature.why_not()
        if feature.key in features:
            why = f"{features[feature.key].stream.name} is the feature {feature.key}, too"
        if why:
            raise ArgumentError(f"{stream.name}: {why}. Choose other streams with --streams")
        features[feature.key] = feature
    if all(one.stream.is_image for one in features.values()):
        raise ArgumentError("the steps are made from streams of numbers, and none is chosen")
    return list(features.values())


def resampled(recording: Recording, numbers: List[Feature], options: List[str],
              scratch: str) -> Iterator[Tuple[Any, Any]]:
    """Resamples one file after another. Yields of each episode its entry in the index, and its group in the output."""
    import h5py
    base = pathlib.Path(recording.place["path"])
    kept = [one for one in recording.index["episodes"] if not one["quarantine"]]
    streams = ",".join(one.stream.name for one in numbers)
    for name in dict.fromkeys(one["file"] for one in kept):
        entries, found = [one for one in kept if one["file"] == name], []
        with tempfile.TemporaryDirectory(dir=scratch) as folder, contextlib.ExitStack() as files:
            path = base / name if base.is_dir() else base
            done = subprocess.run([launch.program("trajctl"), "resample", path, "-o", f"{folder}/rows.hdf5", *options,
                                   "--streams", streams], capture_output=True, text=True)
            if done.returncode:
                raise ArgumentError(done.stderr.strip().replace("trajctl: ", ""))
            sys.stderr.write(done.stderr)
            for path in pathlib.Path(folder).iterdir():
                groups: List[Any] = [files.enter_context(h5py.File(path, "r"))]
                groups[0].visititems(lambda _, one: groups.append(one) if isinstance(one, h5py.Group) else None)
                for group in (one for one in groups if "trajd_source" in one.attrs):
                    source, part = group.attrs["trajd_source"], json.loads(group.attrs.get("trajd_part", "{}"))
                    entry = next((one for one in entries if source.endswith(f":{one['id']}")), entries[0])
                    found.append((entry["number"], part.get("part", 0), entry, group))
            yield from (one[2:] for one in sorted(found, key=lambda one: one[:2]))


def frames(recording: Recording, stream: Stream, times: np.ndarray) -> Iterator[Optional[np.ndarray]]:
    """Yields for each time the last frame not after it: None if it is bad, before the first one and after the last."""
    rows = ((time, None if mask else np.array(frame[0]))
            for batch, stamps in recording.batches(*recording.row_spec(stream.clock, [stream]))
            for time, frame, mask in zip(stamps, batch.raw(stream.name), batch.mask(stream.name)[:, 0]))
    last, following = (-np.inf, None), next(rows, None)
    for time in times:
        while following and following[0] <= time:
            last, following = following, next(rows, None)
        yield last[1] if following or last[0] == time else None


def begin_of(recording: Recording, numbers: List[Feature], group: Any) -> int:
    """Returns when the steps begin, in ns from the episode's origin: when all clocks of numbers have had a row."""
    begins = []
    for clock, one in {one.stream.clock: one.stream for one in numbers}.items():
        batch, times = next(recording.batches(*recording.row_spec(clock, [one])))
        begins.append(round(times[0] * 1e9))
    if "trajd_part" in group.attrs:
        return json.loads(group.attrs["trajd_part"])["ns"][0] - int(batch.anchor_ns[0]) + begins[-1]
    return max(begins)


def steps(recording: Recording, features: List[Feature], rows: Mapping[str, np.ndarray], group: Any,
          fps: int) -> Iterator[Dict[str, np.ndarray]]:
    """Yields the features of each step. Steps before the first frames, and after the last ones, are left out."""
    count = max(map(len, rows.values()))
    for key, values in rows.items():
        if len(values) != count or not np.isfinite(values).all():
            raise LeftOut(f"{key} has no finite value at some of the {count} steps")
    cameras = [one for one in features if one.stream.is_image]
    begin = begin_of(recording, [one for one in features if not one.stream.is_image], group) if cameras else 0
    times = (begin + np.arange(count) * 1_000_000_000 // fps) * 1e-9
    shown = -1
    for step, images in enumerate(zip(times, *(frames(recording, one.stream, times) for one in cameras))):
        if not any(image is None for image in images):
            if shown not in (-1, step - 1):
                raise LeftOut(f"a camera has no valid frame at step {step - 1}")
            shown = step
            images = dict(zip((one.key for one in cameras), images[1:]))
            yield {**{key: values[step] for key, values in rows.items()}, **images}
    if shown < 0:
        raise LeftOut("at no step do all cameras have a frame")


def rate_of(recording: Recording) -> Any:
    """Returns the `rate:` of the dataset. `trajctl resample` takes it only where the files state none."""
    rate = recording.place.get("rate")
    stated = {one["name"]: one["lowest_rate_hz"] for one in recording.index["clocks"] if one["rate_source"] == "declared"}
    if isinstance(rate, dict):
        raise ArgumentError("`rate:` of single clocks cannot be exported: give one rate for all, or none")
    for clock, hz in stated.items() if rate else ():
        if abs(float(Fraction(rate)) - hz) > 1e-6:
            raise ArgumentError(f"the files state {hz:g} Hz for the clock {clock}, and `rate:` says {float(Fraction(rate)):g}: remove `rate:`, or "
                                "what the files state")
    return rate


def write(recording: Recording, features: List[Feature], options: argparse.Namespace, scratch: str) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    numbers = [one for one in features if not one.stream.is_image]
    rate, made, notes = rate_of(recording), None, []
    assume = [f"--assume-rate={rate}"] if rate else ["--assume-rate"] if options.assume_rate else []
    layout = recording.place["layout"]
    resample = [f"--rate={options.fps}", "--dtype=float32", "--backend=cpu", f"--layout={layout}", *assume]
    for entry, group in resampled(recording, numbers, resample, scratch):
        recording.file, recording.episode = entry["file"], entry["id"]
        rows = {one.key: one.rows(group) for one in numbers}
        task = entry["meta"].get("task") or entry["meta"].get("language") or options.task
        if not task:
            raise ArgumentError(f"episode {entry['id']} has no task in words: give one with --task")
        made = made or LeRobotDataset.create(options.out.name, int(options.fps), root=f"{scratch}/set", features={
            one.key: one.description(rows[one.key].dtype.name if one.key in rows else "video") for one in features})
        try:
            for step in steps(recording, features, rows, group, int(options.fps)):
                made.add_frame({**step, "task": task})
            made.save_episode(parallel_encoding=False)
        except LeftOut as why:
            notes.append(f"left out: episode {entry['id']}: {why}")
            made.clear_episode_buffer()
    if not made or not made.num_episodes:
        raise ArgumentError("\n".join(["no episode could be exported", *notes]))
    made.finalize()
    os.rename(f"{scratch}/set", options.out)
    counts = f"{made.num_episodes} episodes, {made.meta.total_frames} steps at {options.fps} Hz"
    print("\n".join([f"{options.out}: {counts}", *notes]))


def export(options: argparse.Namespace) -> None:
    if not options.fps.isdigit() or not int(options.fps):
        raise ArgumentError(f"--fps {options.fps or 'is missing'}: give whole steps per second, such as 30")
    if options.out.exists():
        raise ArgumentError(f"{options.out} exists: name a new folder")
    import lerobot  # noqa: F401 (where it is missing, say so before anything is read)
    recording = Recording(options.path, layout=options.layout, feed=options.feed)
    features = choose(recording, [one for one in options.streams.split(",") if one])
    one = next(feature.stream for feature in features if not feature.stream.is_image)
    held = {**recording.row_spec(one.clock, [one])[0], **recording.only(), "global_batch": 1}
    folder = options.out.absolute().parent
    # Without an open feed, the private daemon would end while LeRobot encodes a long episode.
    with recording.open(held), tempfile.TemporaryDirectory(prefix=f"{options.out.name}.", dir=folder) as scratch:
        write(recording, features, options, scratch)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trajd.export", description="Writes a LeRobot data set, v3.0.")
    parser.add_argument("format", choices=["lerobot"])
    parser.add_argument("path", metavar="CONFIG|FILE", help="a configuration (.yaml), or recordings")
    parser.add_argument("out", metavar="OUT", type=pathlib.Path, help="the new folder of the data set")
    parser.add_argument("--fps", metavar="N", default="", help="steps per second, a whole number")
    parser.add_argument("--task", metavar="TEXT", help="the task of episodes that have none in words")
    parser.add_argument("--streams", metavar="NAME,...", default="", help="the streams to export (default: all)")
    parser.add_argument("--assume-rate", action="store_true", help="accept the layout's rate where no file states one")
    parser.add_argument("--layout", metavar="NAME", help="the layout of FILE, by name or path (default: what fits)")
    parser.add_argument("--feed", metavar="NAME", help="export the dataset of this feed of CONFIG (default: the first)")
    options = parser.parse_args(arguments)
    os.environ.setdefault("SVT_LOG", "1")  # errors of LeRobot's encoder, without its settings
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    return run_command("trajd.export", "export", lambda: export(options))


if __name__ == "__main__":
    sys.exit(main())
