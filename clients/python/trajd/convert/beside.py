"""Recordings with the numbers in an HDF5 file per episode and the video in MP4 files beside it: DROID raw, AgiBot World.

The frame of step i is shown frame i of the MP4. Its time is a recorded stamp, and never that of the MP4, whose rate is
not the one of the steps. A recorder that is stopped between a step and its frame leaves one frame fewer than steps."""
from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import h5py
import numpy as np

from ..errors import ArgumentError, names_there_are
from .objects import Numbers, Object, text_of
from .output import Episode, Episodes, LeftOut, Source
from .video import Clip, describe

NUMBERS_BYTES_MAX = 256 << 20  # of one episode: more is not a recording of steps


class _Beside(Source):
    """`media` is the folder beneath which MP4 files are referred to."""

    files = ""  # pattern of the HDF5 files
    title = ""

    def __init__(self, folder: pathlib.Path, media: pathlib.Path, episodes: Optional[Sequence[range]] = None,
                 cameras: Optional[Sequence[str]] = None):
        self._folder, self._media, self._chosen, self._cameras = folder, media, episodes, cameras
        self._paths = sorted(folder.glob(self.files))
        if not self._paths:
            raise ArgumentError(f"{folder}: it has no file {self.files}")
        self.notes: List[str] = []
        self.attributes = {"source": self.title}

    def episodes(self) -> Episodes:
        return [(number, lambda path=path: self._read(path)) for number, path in enumerate(self._paths)
                if self._chosen is None or any(number in numbers for numbers in self._chosen)]

    def _read(self, path: pathlib.Path) -> Episode:
        name = self._name(path)
        if not path.is_file():
            raise LeftOut(f"{name}: it is not a regular file")
        try:
            with h5py.File(path, "r") as file:
                arrays = _read_arrays(file, name)
                attributes = dict(file.attrs)
        except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
            raise LeftOut(f"{name}: {error}") from None
        return self._episode(path, arrays, attributes)

    def _episode(self, path: pathlib.Path, arrays: Dict[str, np.ndarray], attributes: Dict[str, Any]) -> Episode:
        raise NotImplementedError

    def _name(self, path: pathlib.Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _choose(self, path: pathlib.Path, cameras: Iterable[str]) -> List[str]:
        """Returns those of an episode's cameras that are asked for."""
        for camera in self._cameras or ():
            if camera not in cameras:
                raise LeftOut(f"{self._name(path)}: it has no camera {camera}: {names_there_are(camera, cameras)}")
        return [camera for camera in cameras if self._cameras is None or camera in self._cameras]

    def _rows(self, path: pathlib.Path, arrays: Dict[str, np.ndarray], clock: str) -> int:
        """Returns the number of steps, which the stamps of a clock have. Leaves other arrays out."""
        if not len(arrays.get(clock, ())):
            raise LeftOut(f"{self._name(path)}: it lacks {clock}")
        rows = len(arrays[clock])
        for name in [name for name, array in arrays.items() if len(array) != rows]:
            self.notes.append(f"left out: {self._name(path)}: {name}: it has {len(arrays.pop(name))} rows, and there are "
                              f"{rows} steps")
        return rows

    def _clip(self, path: pathlib.Path, rows: int) -> Clip:
        """Returns the frames of a camera for all steps of an episode. The last one may not have been recorded."""
        video = describe(path, self._name(path))
        lacking = rows - len(video.rows)
        if lacking not in (0, 1) or rows == lacking:
            raise LeftOut(f"{video.name}: it has {len(video.rows)} shown frames for {rows} steps: as many, or one fewer, "
                          "are expected")
        return Clip(video, 0, len(video.rows), self._media, lacking)


def _read_arrays(file: h5py.File, name: str) -> Dict[str, np.ndarray]:
    """Returns all arrays of numbers by their paths. Links to other places are not followed."""
    found: List[Tuple[str, h5py.Dataset]] = []
    file.visititems(lambda path, one: found.append((path, one)) if isinstance(one, h5py.Dataset) else None)
    arrays, size = {}, 0
    for path, dataset in found:
        if dataset.external or dataset.is_virtual:
            raise LeftOut(f"{name}: {path}: its values are in another file")
        if dataset.ndim and dataset.dtype.kind in "biuf":
            size += dataset.size * dataset.dtype.itemsize
            if size > NUMBERS_BYTES_MAX:
                raise LeftOut(f"{name}: {path}: up to it, there are {size} bytes of numbers, more than an episode has")
            arrays[path] = dataset[()]
    return arrays


def _read_json(path: Optional[pathlib.Path]) -> Any:
    """Returns what a JSON file says, or None where it is missing or is none."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path is not None and path.is_file():
            return json.loads(path.read_text())
    return None


class Droid(_Beside):
    """DROID raw. Cameras get names by what they see, instead of their serial numbers."""

    files = "**/trajectory.h5"
    title = "DROID raw"

    def _episode(self, path: pathlib.Path, arrays: Dict[str, np.ndarray], attributes: Dict[str, Any]) -> Episode:
        rows = self._rows(path, arrays, "observation/timestamp/control/control_start")
        metadata = _read_json(next(iter(sorted(path.parent.glob("metadata_*.json"))), None))
        metadata = metadata if isinstance(metadata, dict) else {}
        serials = self._roles(path, arrays, metadata)
        objects: Dict[str, Object] = {}
        for name, array in arrays.items():
            if not name.startswith("observation/camera_type/"):
                folder, _, last = name.rpartition("/")
                serial, _, rest = last.partition("_")
                objects[f"{folder}/{serials[serial]}_{rest}" if serial in serials else name] = Numbers(array)
        cameras = {role: serial for serial, role in serials.items()}
        for role in self._choose(path, cameras):
            if f"observation/timestamp/cameras/{role}_estimated_capture" not in objects:
                raise LeftOut(f"{self._name(path)}: it lacks the capture times of the camera {cameras[role]}")
            objects[f"observation/images/{role}"] = self._clip(path.parent / f"recordings/MP4/{cameras[role]}.mp4", rows)
        success = metadata.get("success", attributes.get("success"))
        texts = {"folder": text_of(self._name(path.parent)), "task": text_of(metadata.get("current_task")),
                 "success": success if isinstance(success, (bool, np.bool_)) else None}
        return Episode(rows, {name: text for name, text in texts.items() if text is not None}, objects)

    def _roles(self, path: pathlib.Path, arrays: Dict[str, np.ndarray], metadata: Dict[str, Any]) -> Dict[str, str]:
        """Returns the role of each camera by its serial number. Type 0 is the wrist's. The others are numbered as in the
        metadata or, without it, in the order of their serial numbers."""
        types = {name.rpartition("/")[2]: array.ravel()[:1].tolist() for name, array in arrays.items()
                 if name.startswith("observation/camera_type/")}
        wrists = [serial for serial, kind in types.items() if kind == [0]]
        if len(wrists) != 1:
            raise LeftOut(f"{self._name(path)}: {len(wrists)} of its {len(types)} cameras have the camera_type 0, the wrist's")
        known = [str(metadata.get(f"ext{number}_cam_serial")) for number in (1, 2)]
        others = sorted(set(types) - set(wrists),
                        key=lambda serial: (known.index(serial) if serial in known else len(known), serial))
        return {wrists[0]: "wrist", **{serial: f"exterior_{number}" for number, serial in enumerate(others, 1)}}


class AgiBot(_Beside):
    """AgiBot World. Some actions were recorded only for some steps, which `index` lists: the others hold the state."""

    files = "proprio_stats/*/*/proprio_stats.h5"
    title = "AgiBot World"

    def _episode(self, path: pathlib.Path, arrays: Dict[str, np.ndarray], attributes: Dict[str, Any]) -> Episode:
        if not len(arrays.get("timestamp", ())):
            raise LeftOut(f"{self._name(path)}: it lacks timestamp")
        self._complete(path, arrays)
        rows = self._rows(path, arrays, "timestamp")
        objects: Dict[str, Object] = {name: Numbers(array) for name, array in arrays.items()}
        task, episode = path.parts[-3:-1]
        videos = self._folder / "observations" / task / episode / "videos"
        for camera in self._choose(path, [video.stem for video in sorted(videos.glob("*.mp4"))]):
            objects[f"observation/images/{camera}"] = self._clip(videos / f"{camera}.mp4", rows)
        entries = _read_json(self._folder / f"task_info/task_{task}.json")
        texts = [text_of(entry.get("task_name")) for entry in (entries if isinstance(entries, list) else [])
                 if isinstance(entry, dict) and str(entry.get("episode_id")) == episode]
        return Episode(rows, {"folder": f"{task}/{episode}", **({"task": texts[0]} if texts and texts[0] else {})}, objects)

    def _complete(self, path: pathlib.Path, arrays: Dict[str, np.ndarray]) -> None:
        """Puts actions that were recorded for some steps into a copy of the state. Drops the indexes and empty arrays."""
        rows = len(arrays["timestamp"])
        for name in [name for name in arrays if name.startswith("action/") and not name.endswith("/index")]:
            array, state = arrays[name], arrays.get("state" + name[6:])
            index = arrays.get(name.rpartition("/")[0] + "/index")
            if index is None or not len(index):  # that of the hands may be empty
                index = arrays.get("action/joint/index")
            if len(array) > rows:
                raise LeftOut(f"{self._name(path)}: {name} has {len(array)} rows, and there are {rows} steps")
            if len(array) in (0, rows) or index is None or state is None or state.shape != (rows, *array.shape[1:]):
                continue
            if index.shape != (len(array),) or index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= rows:
                raise LeftOut(f"{self._name(path)}: {name} has {len(array)} rows, and its index does not fit")
            arrays[name] = state.astype(array.dtype)
            arrays[name][index] = array
        for name in [name for name, array in arrays.items() if name.endswith("/index") or not array.size]:
            del arrays[name]


SOURCES = {"droid": Droid, "agibot": AgiBot}
