"""RLDS data sets of TFDS, such as DROID and Open X-Embodiment: an episode is a record of a TFRecord file.

features.json says what a record has: `steps/observation/state` is one list with the values of all steps.
dataset_info.json says how many records each file has. Steps have no times, and no data set states its rate."""
from __future__ import annotations

import json
import math
import pathlib
import re
from fractions import Fraction
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..errors import ArgumentError, names_there_are
from . import tfrecord
from .objects import DTYPES, Images, Numbers, Object, is_name, is_taken, text_of
from .output import Episode, Episodes, LeftOut, Source, first_line
from .rate import attribute_of

STEPS = "steps/"
TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


class Feature(NamedTuple):
    key: str    # in a record
    place: str  # in the episode's group; the name of an attribute, if it is of the whole episode
    kind: str   # "numbers", "images" or "text"
    shape: Tuple[int, ...]
    dtype: str


class Shard(NamedTuple):
    path: pathlib.Path
    split: str
    first: int              # the number of its first episode
    total: int              # of records, as dataset_info.json has it
    places: List[Tuple[int, int]]
    fault: str              # why there are no more places


class Rlds(Source):
    def __init__(self, folder: pathlib.Path, episodes: Optional[Sequence[range]] = None,
                 cameras: Optional[Sequence[str]] = None, rate: Optional[Fraction] = None):
        self._folder, self._chosen, self._cameras = folder, episodes, cameras
        self.notes: List[str] = []
        self.attributes = {"source": "RLDS", **({"rate": attribute_of(rate)} if rate else {})}
        info = self._read_json("dataset_info.json")
        if info.get("fileFormat", "tfrecord") != "tfrecord":
            raise ArgumentError(f"{folder}: its fileFormat is {info['fileFormat']}, and only tfrecord is read")
        features = self._read_json("features.json")
        try:
            self._features, self._shards = list(self._find_features(features)), list(self._find_shards(info))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ArgumentError(f"{folder}: its features.json or dataset_info.json is not as TFDS writes it "
                                f"({type(error).__name__}: {first_line(error)})") from None
        images = [feature.place.rpartition("/")[2] for feature in self._features if feature.kind == "images"]
        for name in cameras or ():
            if name not in images:
                raise ArgumentError(f"--cameras {name}: {names_there_are(name, images)}")

    def _read_json(self, name: str) -> Dict[str, Any]:
        path = self._folder / name
        try:
            if path.exists() and not path.is_file():  # of a FIFO, opening may not end
                raise ValueError("it is not a regular file")
            found = json.loads(path.read_text())
            if not isinstance(found, dict):
                raise ValueError("it is not a mapping")
            return found
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(f"{path}: {first_line(error)}: a data set of TFDS has this file; name the folder of "
                                "its version, such as droid_100/1.0.0") from None

    def _find_features(self, root: Dict[str, Any]) -> Iterator[Feature]:
        """Yields the features that can be converted. The others are left out by name."""
        places: List[str] = []
        for key, leaf in _find_leaves(root, ""):
            feature, why = _describe(key, leaf)
            if not why and is_taken(feature.place, places):
                why = "another feature has its place in the output"
            if why:
                self.notes.append(f"left out: feature {key}: {why}")
                continue
            places.append(feature.place)
            yield feature

    def _find_shards(self, info: Dict[str, Any]) -> Iterator[Shard]:
        """Yields the files that are there. The numbers of their episodes count those of missing files, too."""
        first, missing = 0, []
        for split in info["splits"]:
            for number, count in enumerate(map(int, split["shardLengths"])):
                words = {"DATASET": info["name"], "SPLIT": split["name"], "FILEFORMAT": "tfrecord",
                         "SHARD_X_OF_Y": f"{number:05d}-of-{len(split['shardLengths']):05d}"}
                name = re.sub(r"\{(\w+)\}", lambda found: words[found[1]], split.get("filepathTemplate") or TEMPLATE)
                path = self._folder / name
                if "/" in name or not 0 <= count < 1 << 20:
                    raise ValueError(f"{name} with {count} records")
                if path.is_file():
                    places, fault = tfrecord.find_records(path, count)
                    if len(places) != count and not fault:
                        fault = f"it has {len(places)} records, and dataset_info.json says {count}"
                        self.notes += [f"left out: {name}: {fault}"] if len(places) > count else []
                    yield Shard(path, split["name"], first, count, places, fault)
                else:
                    missing.append(name)
                first += count
        if missing:
            self.notes.append(f"left out: {len(missing)} files of dataset_info.json are not there: {missing[0]} ...")

    def episodes(self) -> Episodes:
        return [(shard.first + index, lambda shard=shard, index=index: self._read(shard, index))
                for shard in self._shards for index in range(shard.total)
                if self._chosen is None or any(shard.first + index in numbers for numbers in self._chosen)]

    def _read(self, shard: Shard, index: int) -> Episode:
        if index >= len(shard.places):
            raise LeftOut(f"{shard.path.name}: {shard.fault}")
        where = f"{shard.path.name}: record {index}"
        try:
            found = tfrecord.parse_example(tfrecord.read_record(shard.path, *shard.places[index]))
        except (ValueError, OSError) as error:
            raise LeftOut(f"{where}: {first_line(error)}") from None
        objects: Dict[str, Object] = {}
        attributes: Dict[str, Any] = {"split": shard.split}
        notes: List[str] = []
        first, rows = "", 0  # a feature of the steps, and how many it has
        for feature in self._features:
            if feature.key not in found:
                raise LeftOut(f"{where}: it has no {feature.key}")
            values = _values(found[feature.key], feature, where)
            if not feature.key.startswith(STEPS):
                if len(values) != 1:
                    raise LeftOut(f"{where}: {feature.key} has {len(values)} values, and not one")
                value = text_of(values[0]) if feature.kind == "text" else values[0]
                attributes.update({} if value is None else {feature.place: value})
                continue
            first, rows = (first, rows) if first else (feature.key, len(values))
            if len(values) != rows:
                raise LeftOut(f"{where}: {first} has {rows} steps, and {feature.key} has {len(values)}")
            if feature.kind == "text":
                notes += _add_text(attributes, feature, values)
            elif feature.kind == "numbers":
                objects[feature.place] = Numbers(values)
            elif self._cameras is None or feature.place.rpartition("/")[2] in self._cameras:
                images = Images(np.frombuffer(b"".join(values), np.uint8), np.cumsum([0, *map(len, values)]))
                if images.encoding() is None:
                    raise LeftOut(f"{where}: {feature.key}: an image is neither PNG nor JPEG")
                objects[feature.place] = images
        if not rows:
            raise LeftOut(f"{where}: it has no steps")
        texts = [attributes.get(feature.place) for feature in self._features
                 if feature.kind == "text" and "language_instruction" in feature.place]
        attributes.update({"task": text for text in list(filter(None, texts))[:1]})
        return Episode(rows, attributes, objects, notes)


def _find_leaves(node: Dict[str, Any], key: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Yields each feature of features.json with its key in a record."""
    if key == "steps" and "sequence" in node:
        node = node["sequence"]["feature"]
    if "featuresDict" not in node:
        yield key, node
        return
    for name, child in node["featuresDict"]["features"].items():
        yield from _find_leaves(child, f"{key}/{name}" if key else name)


def _describe(key: str, leaf: Dict[str, Any]) -> Tuple[Feature, Optional[str]]:
    """Returns a feature, and why it cannot be converted."""
    kind = next((kind for kind in ("image", "tensor", "text") if kind in leaf), "")
    about = {"dtype": "string"} if kind == "text" else leaf.get(kind, {})
    dtype, shape = str(about.get("dtype")), tuple(map(int, about.get("shape", {}).get("dimensions", ())))
    place, why = key[len(STEPS):] if key.startswith(STEPS) else key, None
    if not is_name(place):
        why = "its name cannot be one in an HDF5 file"
    elif kind == "image":
        place = "observation/images/" + re.sub("^observation/", "", place).replace("/", "_")
        if dtype != "uint8" or shape[-1:] != (3,) or not key.startswith(STEPS):
            why = f"images of {dtype} {list(shape)} are not read"
    elif not kind:
        why = f"a {str(leaf.get('pythonClassName')).rpartition('.')[2]} is not read"
    elif about.get("encoding", "none") != "none":
        why = f"its encoding is {about['encoding']}"
    elif dtype == "string" and not shape:
        kind = "text"
    elif not re.fullmatch(DTYPES, dtype) or min(shape, default=1) < 1 or math.prod(shape) >> 31 or (
            shape and not key.startswith(STEPS)):
        why = f"it is {dtype} {list(shape)}"
    return Feature(key, place, {"tensor": "numbers", "image": "images"}.get(kind, kind), shape, dtype), why


def _values(found: tfrecord.Values, feature: Feature, where: str) -> Any:
    """Returns the values of all steps."""
    if feature.kind != "numbers":
        if isinstance(found, np.ndarray):
            raise LeftOut(f"{where}: {feature.key} has numbers, and features.json says {feature.dtype}")
        return [bytes(one).decode(errors="replace") for one in found] if feature.kind == "text" else found
    count = math.prod(feature.shape)
    if not isinstance(found, np.ndarray) or found.dtype.kind != ("f" if feature.dtype.startswith("float") else "i"):
        raise LeftOut(f"{where}: {feature.key} has no {feature.dtype}, as features.json says")
    if len(found) % count:
        raise LeftOut(f"{where}: {feature.key} has {len(found)} values, and a step has {count}")
    return found.astype(feature.dtype).reshape(-1, *feature.shape)


def _add_text(attributes: Dict[str, Any], feature: Feature, values: List[str]) -> List[str]:
    """Adds a text of the steps as an attribute. Returns what to say of one that changes."""
    begins = [row for row, text in enumerate(values) if not row or text != values[row - 1]]
    if len(begins) == 1:
        text = text_of(values[0])
        attributes.update({} if text is None else {feature.place: text})
        return []
    texts = text_of(json.dumps([{"text": values[row], "row": row} for row in begins]))
    attributes.update({} if texts is None else {f"{feature.place} by row": texts})
    has = f"the attribute \"{feature.place} by row\" has each with its first row"
    return [f"{feature.key} changes, so there is no text {feature.place}: {has if texts else 'there are too many'}"]
