"""LeRobot data sets, v3.0, v2.1 and v2.0: Parquet files of numbers and images, MP4 files of video.

Steps have no times of their own: step i is at i / fps. An MP4 of v3.0 has the episodes of one camera one after another.
Where an episode begins in it is counted in frames, because `from_timestamp` is a sum of rounded times that drifts away
from the frames; it only gives the order of the episodes."""
from __future__ import annotations

import errno
import json
import math
import os
import pathlib
import re
import stat
import string
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import ArgumentError, names_there_are
from .objects import DTYPES, Images, Numbers, Object, is_name, is_taken, text_of
from .output import Episode, Episodes, LeftOut, Source, first_line
from .rate import attribute_of, exact_rate
from .video import Clip, Video, describe

VERSIONS = ("v3.0", "v2.1", "v2.0")
STEP_COLUMNS = ("timestamp", "frame_index", "episode_index", "index", "task_index")  # of every set, and no features
NEEDED_COLUMNS = ("timestamp", "frame_index", "episode_index")
NUMBER_MAX = (1 << 31) - 1  # of episodes, files and rows


class Options(NamedTuple):
    reference: Optional[pathlib.Path] = None  # the folder beneath which MP4 files are referred to; None: copied
    episodes: Optional[Sequence[range]] = None
    cameras: Optional[Sequence[str]] = None


class Feature(NamedTuple):
    key: str
    place: str  # in the episode's group
    kind: str   # "numbers", "images" or "video"
    shape: Tuple[int, ...]
    dtype: str
    names: Any


class Part(NamedTuple):
    """Where an episode's frames are in an MP4."""

    path: str
    first: int    # number of its first shown frame: the sum of the lengths of the episodes before it
    total: int    # the sum of the lengths of all episodes in the file
    begin: float  # in seconds, as from_timestamp says it


class Entry(NamedTuple):
    """An episode as the set's metadata has it."""

    number: int
    length: int
    tasks: Any                          # texts, where the rows do not say which
    data: str                           # path of its Parquet file
    parts: Dict[str, Union[Part, str]]  # by the camera's key; a text says why there is none


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def place_of(key: str, is_image: bool) -> str:
    """Returns where a feature is in an episode's group."""
    for prefix, folder in (("observation.images.", "observation/images/"),
                           ("", "observation/images/") if is_image else ("observation.", "observation/")):
        if key.startswith(prefix):
            return folder + key[len(prefix):]
    return key


class _Files:
    """Paths of a set's files by a template of info.json, such as `data/chunk-{chunk_index:03d}/...`."""

    def __init__(self, name: str, template: Any, fields: Sequence[str]):
        if not isinstance(template, str) or not template.isprintable():
            raise ArgumentError(f"meta/info.json: {name} is {json.dumps(template)}, and no path")
        try:
            parsed = list(string.Formatter().parse(template))
        except ValueError:
            parsed = [("", "", "", None)]  # a field that there is not
        for _, field, form, conversion in parsed:
            if field is not None and (field not in fields or conversion or not re.fullmatch(r"(0\d{1,2})?d?", form or "") or (
                    form and field == "video_key")):
                raise ArgumentError(f"meta/info.json: {name} is {template}: it may have the fields {', '.join(fields)}")
        self._name, self._template = name, template

    def path(self, **fields: Any) -> str:
        path = self._template.format(**fields)
        if path.startswith("/") or ".." in path.split("/"):
            raise ArgumentError(f"meta/info.json: {self._name} leads out of the set: {path}")
        return path


class LeRobot(Source):
    def __init__(self, folder: pathlib.Path, options: Options = Options()):
        self._folder, self._options = folder, options
        self.notes: List[str] = []
        info = self._read_json("meta/info.json")
        version = info.get("codebase_version")
        if version not in VERSIONS:
            raise ArgumentError(f"{folder}/meta/info.json: its codebase_version is {json.dumps(version)}: "
                                f"{', '.join(VERSIONS)} are read")
        if info.get("storage_format", "parquet") != "parquet":
            raise ArgumentError(f"{folder}/meta/info.json: its storage_format is {json.dumps(info['storage_format'])}: only "
                                "Parquet and MP4 files are read")
        try:
            self._fps = exact_rate(info.get("fps"))
        except ValueError:
            raise ArgumentError(f"{folder}/meta/info.json: it has no fps" if "fps" not in info else
                                f"{folder}/meta/info.json: its fps is {json.dumps(info['fps'])}, and no rate") from None
        self.attributes = {"fps": attribute_of(self._fps), "source": f"LeRobot {version}"}
        self._features = list(self._read_features(info))
        self._cameras = [feature for feature in self._features if feature.kind == "video"]
        self._tasks = self._read_tasks(version)
        self._entries = (self._read_entries_v3 if version == "v3.0" else self._read_entries_v2)(info)
        numbers = sorted(entry.number for entry in self._entries)
        for number in (number for number, next_one in zip(numbers, numbers[1:]) if number == next_one):
            raise ArgumentError(f"{folder}/meta: episode {number} is there twice")
        self._tables: Dict[str, Union[pa.Table, LeftOut]] = {}              # the last file that was read
        self._videos: Dict[str, Tuple[str, Future[Video]]] = {}             # the last one of each camera
        self._next: Dict[str, str] = {}                                     # the camera's MP4 after this one
        self._ahead: Dict[str, Future[Video]] = {}                          # the next ones, which are described
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def episodes(self) -> Episodes:
        chosen = self._options.episodes
        return [(entry.number, lambda entry=entry: self._read(entry)) for entry in self._entries
                if chosen is None or any(entry.number in numbers for numbers in chosen)]

    def expect(self, episodes: Episodes) -> List[str]:
        numbers = {number for number, _ in episodes}
        for camera in self._cameras:
            parts = (entry.parts[camera.key] for entry in self._entries if entry.number in numbers)
            paths = list(dict.fromkeys(part.path for part in parts if isinstance(part, Part)))
            self._next.update(zip(paths, paths[1:]))
        return []

    # ---- metadata ----

    def _read_json(self, name: str) -> Dict[str, Any]:
        try:
            found = json.loads(self._regular(name).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(f"{self._folder}/{name}: {first_line(error)}: a LeRobot data set has this file") from None
        if not isinstance(found, dict):
            raise ArgumentError(f"{self._folder}/{name}: it is not a mapping")
        return found

    def _regular(self, name: str) -> pathlib.Path:
        """Returns the path of a file of the set. Raises OSError where it is none: of a FIFO, opening may not end."""
        path = self._folder / name
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return path

    def _read_lines(self, name: str, *counts: str) -> List[Dict[str, Any]]:
        try:
            lines = [json.loads(line) for line in self._regular(name).read_text().splitlines() if line.strip()]
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(f"{self._folder}/{name}: {first_line(error)}") from None
        for number, line in enumerate(lines, 1):
            if not isinstance(line, dict) or not all(is_count(line.get(key)) for key in counts):
                raise ArgumentError(f"{self._folder}/{name}: line {number} lacks {' or '.join(counts)}")
        return lines

    def _read_features(self, info: Dict[str, Any]) -> Iterator[Feature]:
        """Yields the features that can be converted. The others are left out by name."""
        features = info.get("features")
        if not isinstance(features, dict):
            raise ArgumentError(f"{self._folder}/meta/info.json: it has no features")
        places: List[str] = []
        cameras = []
        for key, feature in features.items():
            if key in STEP_COLUMNS:
                continue
            if not isinstance(feature, dict) or not isinstance(feature.get("dtype"), str) or not isinstance(feature.get("shape"), list):
                raise ArgumentError(f"{self._folder}/meta/info.json: feature {key} has no dtype or shape")
            dtype, shape = feature["dtype"], tuple(feature["shape"])
            cameras += [key] if dtype in ("image", "video") else []
            place = place_of(key, dtype in ("image", "video"))
            why = _why_not(key, feature, dtype, shape)
            if not why and is_taken(place, places):
                why = "another feature has its place in the output"
            if why:
                self.notes.append(f"left out: feature {key}: {why}")
                continue
            kind = {"image": "images", "video": "video"}.get(dtype, "numbers")
            if kind == "numbers" or self._is_chosen(key):
                places.append(place)
                yield Feature(key, place, kind, shape, dtype, feature.get("names"))
        for name in self._options.cameras or ():
            if name not in cameras and not any(place_of(key, True).endswith(f"/{name}") for key in cameras):
                raise ArgumentError(f"--cameras {name}: {names_there_are(name, cameras)}")

    def _is_chosen(self, key: str) -> bool:
        chosen = self._options.cameras
        return chosen is None or key in chosen or place_of(key, True).rpartition("/")[2] in chosen

    def _read_tasks(self, version: str) -> Dict[int, str]:
        if version != "v3.0":
            return {line["task_index"]: str(line.get("task")) for line in self._read_lines("meta/tasks.jsonl", "task_index")}
        try:
            table = pq.read_table(self._regular("meta/tasks.parquet"))
            text = next(name for name in table.column_names if name != "task_index")
            return dict(zip(map(int, table["task_index"].to_pylist()), map(str, table[text].to_pylist())))
        except (OSError, KeyError, StopIteration, TypeError, ValueError, pa.ArrowException) as error:
            raise ArgumentError(f"{self._folder}/meta/tasks.parquet: {first_line(error)}") from None

    def _read_entries_v2(self, info: Dict[str, Any]) -> List[Entry]:
        fields = ("episode_chunk", "episode_index")
        data = _Files("data_path", info.get("data_path"), fields)
        videos = _Files("video_path", info.get("video_path"), (*fields, "video_key")) if self._cameras else None
        size = info.get("chunks_size", 1000)
        if not is_count(size) or not size:
            raise ArgumentError(f"{self._folder}/meta/info.json: its chunks_size is {json.dumps(size)}")
        entries = []
        for line in self._read_lines("meta/episodes.jsonl", "episode_index", "length"):
            number, length = line["episode_index"], line["length"]
            place = {"episode_index": number, "episode_chunk": number // size}
            parts = {camera.key: Part(videos.path(video_key=camera.key, **place), 0, length, 0.0) for camera in self._cameras}
            entries.append(Entry(number, length, line.get("tasks"), data.path(**place), parts))
        return entries

    def _read_entries_v3(self, info: Dict[str, Any]) -> List[Entry]:
        fields = ("chunk_index", "file_index")
        data = _Files("data_path", info.get("data_path"), fields)
        rows = self._read_episode_rows()
        parts = {camera.key: self._find_parts(info, camera.key, rows) for camera in self._cameras}
        return [Entry(row["episode_index"], row["length"], row.get("tasks"),
                      data.path(chunk_index=row["data/chunk_index"], file_index=row["data/file_index"]),
                      {key: by_number[row["episode_index"]] for key, by_number in parts.items()})
                for row in rows]

    def _read_episode_rows(self) -> List[Dict[str, Any]]:
        """Returns the rows of meta/episodes, without the statistics, by their numbers."""
        rows: List[Dict[str, Any]] = []
        needed = {"episode_index", "length", "data/chunk_index", "data/file_index"}
        for path in sorted(self._folder.glob("meta/episodes/*/*.parquet")):
            name = path.relative_to(self._folder).as_posix()
            try:
                file = pq.ParquetFile(self._regular(name))
                columns = [column for column in file.schema_arrow.names if not column.startswith("stats/")]
                if needed - set(columns):
                    raise ArgumentError(f"{self._folder}/{name}: it lacks the column {min(needed - set(columns))}")
                rows += file.read(columns=columns).to_pylist()
            except (OSError, pa.ArrowException) as error:
                raise ArgumentError(f"{self._folder}/{name}: {first_line(error)}") from None
        for row in rows:
            if not all(is_count(row[column]) for column in needed):
                raise ArgumentError(f"{self._folder}/meta/episodes: the row of episode {row['episode_index']} lacks a number")
        return sorted(rows, key=lambda row: row["episode_index"])

    def _find_parts(self, info: Dict[str, Any], key: str, rows: List[Dict[str, Any]]) -> Dict[int, Union[Part, str]]:
        """Returns where the episodes' frames of a camera are. In each file they are in the order of from_timestamp."""
        videos = _Files("video_path", info.get("video_path"), ("chunk_index", "file_index", "video_key"))
        found: Dict[int, Union[Part, str]] = {}
        files: Dict[str, List[Tuple[float, int, int]]] = {}
        for row in rows:
            chunk, file, begin = (row.get(f"videos/{key}/{column}") for column in ("chunk_index", "file_index", "from_timestamp"))
            if not is_count(chunk) or not is_count(file) or not isinstance(begin, float) or not math.isfinite(begin):
                found[row["episode_index"]] = f"meta/episodes does not say where its video of {key} is"
                continue
            path = videos.path(chunk_index=chunk, file_index=file, video_key=key)
            files.setdefault(path, []).append((begin, row["episode_index"], row["length"]))
        for path, entries in files.items():
            first, total = 0, sum(length for _, _, length in entries)
            for begin, number, length in sorted(entries):
                found[number] = Part(path, first, total, begin)
                first += length
        return found

    # ---- one episode ----

    def _read(self, entry: Entry) -> Episode:
        table = self._rows_of(entry)
        objects: Dict[str, Object] = {}
        for feature in self._features:
            where = f"{entry.data}, feature {feature.key}"
            try:
                if feature.kind == "numbers":
                    objects[feature.place] = Numbers(_numbers(table[feature.key], feature, where), feature.names)
                elif feature.kind == "images":
                    objects[feature.place] = _images(table[feature.key], where)
                else:
                    objects[feature.place] = self._clip(entry, feature.key)
            except pa.ArrowException as error:
                raise LeftOut(f"{where}: {first_line(error)}") from None
        task, notes = self._task(entry, table)
        return Episode(entry.length, {"episode_index": entry.number, **task}, objects, notes)

    def _rows_of(self, entry: Entry) -> pa.Table:
        """Returns the rows of an episode, whose steps are counted and whose times are checked."""
        if entry.data not in self._tables:
            self._tables = {entry.data: self._read_table(entry.data)}
        table = self._tables[entry.data]
        if isinstance(table, LeftOut):
            raise table
        found = np.flatnonzero(table["episode_index"].to_numpy() == entry.number)
        if len(found) != entry.length or not len(found):
            raise LeftOut(f"{entry.data}: it has {len(found)} rows of it, and meta/episodes says {entry.length}")
        if found[-1] - found[0] + 1 != len(found):
            raise LeftOut(f"{entry.data}: rows of other episodes are between its rows {found[0]} and {found[-1]}")
        table = table.slice(found[0], len(found))
        frames, steps = table["frame_index"].to_numpy(), np.arange(len(found))
        for row in np.flatnonzero(frames != steps)[:1]:
            raise LeftOut(f"{entry.data}: its row {row} has the frame_index {frames[row]}")
        stamps, times = table["timestamp"].to_numpy().astype(float), steps / float(self._fps)
        for row in np.flatnonzero(~(np.abs(stamps - times) <= 0.5 / float(self._fps)))[:1]:
            raise LeftOut(f"{entry.data}: its row {row} has the timestamp {stamps[row]:.6f} s, more than half a frame from "
                          f"{times[row]:.6f} s, which is {row} / {self._fps} fps")
        return table

    def _read_table(self, name: str) -> Union[pa.Table, LeftOut]:
        columns = [*NEEDED_COLUMNS, *(feature.key for feature in self._features if feature.kind != "video")]
        try:
            with pq.ParquetFile(self._regular(name)) as file:
                present = file.schema_arrow.names
                for column in columns:
                    if column not in present:
                        return LeftOut(f"{name}: it lacks the column {column}")
                table = file.read(columns=columns + (["task_index"] if "task_index" in present else []))
        except (OSError, pa.ArrowException) as error:
            return LeftOut(f"{name}: {first_line(error)}")
        for column in (column for column in table.column_names if column in STEP_COLUMNS):
            if not (pa.types.is_integer(table[column].type) or (column == "timestamp" and pa.types.is_floating(table[column].type))):
                return LeftOut(f"{name}: its column {column} is of {table[column].type}")
            if table[column].null_count:
                return LeftOut(f"{name}: rows of the column {column} are empty")
        return table

    def _clip(self, entry: Entry, key: str) -> Clip:
        part = entry.parts[key]
        if isinstance(part, str):
            raise LeftOut(part)
        video = self._video(key, part.path)
        self._check_frames(video, part, entry.length)
        return Clip(video, part.first, entry.length, self._options.reference)

    def _video(self, key: str, path: str) -> Video:
        """Returns what is in an MP4. The camera's next one is described meanwhile."""
        if self._videos.get(key, ("",))[0] != path:
            self._videos[key] = path, self._ahead.pop(path, None) or self._describe(path)
            following = self._next.get(path)
            if following and following not in self._ahead:
                self._ahead[following] = self._describe(following)
        return self._videos[key][1].result()

    def _describe(self, path: str) -> Future[Video]:
        return self._pool.submit(describe, self._folder / path, path)

    def _check_frames(self, video: Video, part: Part, length: int) -> None:
        """Checks that the episode's frames are where they are counted to be.

        Where the file has as many frames as its episodes, they are. Where it has not, some frames lack or belong to no
        episode, and the time of the first frame has to agree, too."""
        end, shown = part.first + length, len(video.rows)
        if shown < end:
            raise LeftOut(f"{part.path}: it has {shown} shown frames, and the episode would be frames {part.first} to {end - 1}")
        if shown != part.total:
            for seconds, whose in ((part.begin, "from_timestamp is"), (video.seconds(part.first), f"its frame {part.first} is at")):
                if not abs(seconds * float(self._fps) - part.first) < 0.5:
                    raise LeftOut(f"{part.path}: it has {shown} shown frames, its episodes have {part.total} rows, and {whose} "
                                  f"{seconds:.6f} s, more than half a frame from {float(part.first / self._fps):.6f} s, where the "
                                  "episode begins")
        times = (video.pts[part.first:end] - video.pts[part.first]) / video.header["timescale"]
        expected = np.arange(length) / float(self._fps)
        for row in np.flatnonzero(~(np.abs(times - expected) <= 0.5 / float(self._fps)))[:1]:
            raise LeftOut(f"{part.path}: its frame {part.first + row}, row {row}, is {times[row]:.6f} s after the episode's first, "
                          f"more than half a frame from {expected[row]:.6f} s")

    def _task(self, entry: Entry, table: pa.Table) -> Tuple[Dict[str, str], List[str]]:
        """Returns the attribute `task` and what to say of it. Where it changes within the episode, the attribute `tasks` has
        each with its first row."""
        if "task_index" in table.column_names:
            indexes = table["task_index"].to_numpy()
            begins = [0, *(np.flatnonzero(np.diff(indexes)) + 1)]
            texts = [self._tasks.get(int(indexes[begin])) for begin in begins]
            if None in texts:
                raise LeftOut(f"{entry.data}: its task_index {indexes[begins[texts.index(None)]]} is not in meta/tasks")
        else:
            texts, begins = entry.tasks if isinstance(entry.tasks, list) and len(entry.tasks) == 1 else [], [0]
        if len(texts) > 1:
            tasks = text_of(json.dumps([{"task": text, "row": int(row)} for text, row in zip(texts, begins)]))
            return {"tasks": tasks} if tasks else {}, ["several tasks, so no text `task`: " + (
                "the attribute `tasks` has each with its first row" if tasks else "there are too many for an attribute")]
        task = text_of(texts[0]) if texts else None
        return ({"task": task}, []) if task is not None else ({}, ["no text `task`: there is none, or it is too long"])


def _why_not(key: str, feature: Dict[str, Any], dtype: str, shape: Tuple[Any, ...]) -> Optional[str]:
    """Returns why a feature cannot be converted, or None."""
    if "/" in key or not is_name(place_of(key, True)):
        return "its name cannot be one in an HDF5 file"
    if not all(is_count(size) and size for size in shape):
        return f"its shape is {list(shape)}"
    if dtype == "video":
        details = feature.get("info") or feature.get("video_info")
        is_depth = isinstance(details, dict) and (details.get("is_depth_map") or details.get("video.is_depth_map"))
        return "video of depth is not read" if is_depth else None
    if dtype == "image":
        return None if len(shape) == 3 and 3 in (shape[0], shape[2]) else f"images of the shape {list(shape)} are not read"
    return None if re.fullmatch(DTYPES, dtype) else f"its dtype is {dtype}"


def _numbers(column: pa.ChunkedArray, feature: Feature, where: str) -> np.ndarray:
    """Returns the values of a column as an array [rows, *shape]."""
    array, rows, depth = column.combine_chunks(), len(column), 0
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if array.null_count:
            raise LeftOut(f"{where}: {array.null_count} of its {len(array)} values are empty")
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)):
            break
        lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
        expected = feature.shape[depth] if depth < len(feature.shape) else 0
        for at in np.flatnonzero(lengths != expected)[:1]:
            raise LeftOut(f"{where}: row {at * rows // len(array)} has {lengths[at]} values, and its shape is "
                          f"{list(feature.shape)}")
        array, depth = array.flatten(), depth + 1
    if len(array) != rows * math.prod(feature.shape):
        raise LeftOut(f"{where}: a row has {len(array) // rows} values, and its shape is {list(feature.shape)}")
    values = array.to_numpy(zero_copy_only=False)
    if not np.can_cast(values.dtype, feature.dtype, "same_kind"):
        raise LeftOut(f"{where}: its values are {values.dtype}, and its dtype is {feature.dtype}")
    return values.astype(feature.dtype, copy=False).reshape(rows, *feature.shape)


def _images(column: pa.ChunkedArray, where: str) -> Images:
    """Returns the encoded images of a column {bytes, path}, without a copy."""
    array = column.combine_chunks()
    if not pa.types.is_struct(array.type) or array.type.get_field_index("bytes") < 0:
        raise LeftOut(f"{where}: it is {array.type}, and not images with their bytes")
    array = pc.cast(pc.struct_field(array, "bytes"), pa.large_binary())
    if array.null_count:
        raise LeftOut(f"{where}: {array.null_count} of its {len(array)} images have no bytes")
    _, offsets, data = array.buffers()
    offsets = np.frombuffer(offsets, np.int64)[array.offset:array.offset + len(array) + 1]
    images = Images(np.frombuffer(data or b"", np.uint8)[offsets[0]:offsets[-1]], offsets - offsets[0])
    if images.encoding() is None:
        raise LeftOut(f"{where}: an image is neither PNG nor JPEG")
    return images
