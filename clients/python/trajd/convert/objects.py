"""What an episode consists of, as it is in the HDF5 file: arrays of numbers and packed images."""
from __future__ import annotations

import functools
import json
from typing import Any, Collection, Mapping, Optional, Protocol, Tuple

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5p, h5s, h5t

TEXT = np.dtype(h5py.string_dtype())


class Object(Protocol):
    def write(self, group: h5py.Group, path: str) -> None:
        """Writes it below an episode's group."""


# h5py's own functions make the objects that HDF5 needs (types, spaces, lists of properties) for each call, which takes three
# times as long. Here it is made once.

WITH_PARENTS = h5p.create(h5p.LINK_CREATE)
WITH_PARENTS.set_create_intermediate_group(True)
NEW = h5p.create(h5p.DATASET_CREATE)  # all bytes of a dataset will be written, and no time is kept
NEW.set_fill_time(h5d.FILL_TIME_NEVER)
NEW.set_obj_track_times(False)
NEW_WITH_PLACE = NEW.copy()
NEW_WITH_PLACE.set_alloc_time(h5d.ALLOC_TIME_EARLY)


@functools.lru_cache(maxsize=1024)
def types_of(dtype: np.dtype) -> Tuple[h5t.TypeID, h5t.TypeID]:
    """Returns the types in the file and in memory. They differ for texts."""
    return h5t.py_create(dtype, logical=True), h5t.py_create(dtype)


@functools.lru_cache(maxsize=1024)
def space_of(shape: Tuple[int, ...]) -> h5s.SpaceID:
    return h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)


def write_group(place: h5g.GroupID, path: str) -> h5g.GroupID:
    return h5g.create(place, path.encode(), WITH_PARENTS)


def write_array(place: h5g.GroupID, path: str, array: np.ndarray) -> h5d.DatasetID:
    array, (stored, own) = np.ascontiguousarray(array), types_of(array.dtype)
    dataset = h5d.create(place, path.encode(), stored, space_of(array.shape), NEW, WITH_PARENTS)
    dataset.write(h5s.ALL, h5s.ALL, array, own)
    return dataset


def write_attributes(place: h5g.GroupID, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        array = np.asarray(value, TEXT if isinstance(value, str) else None)
        stored, own = types_of(array.dtype)
        h5a.create(place, name.encode(), stored, space_of(array.shape)).write(array, own)


class Numbers:
    """An array with one row for each step. `names` are those of its columns, as the source has them."""

    def __init__(self, array: np.ndarray, names: Any = None):
        self.array, self.names = array, names

    def write(self, group: h5py.Group, path: str) -> None:
        dataset = write_array(group.id, path, self.array)
        names = text_of(json.dumps(self.names))
        if self.names is not None and names is not None:
            write_attributes(dataset, {"names": names})


TEXT_BYTES_MAX = 60000  # HDF5 keeps an attribute of at most 64 KB


def text_of(value: Any) -> Optional[str]:
    """Returns a text if an attribute can hold it, or None."""
    try:
        fits = isinstance(value, str) and "\0" not in value and len(value.encode()) <= TEXT_BYTES_MAX
    except UnicodeEncodeError:  # half of a surrogate pair
        fits = False
    return value if fits else None


DTYPES = r"bool|u?int(8|16|32|64)|float(16|32|64)"  # of numbers that trajd reads


def is_name(path: str) -> bool:
    """Tells whether a source's name can be a path in an HDF5 file."""
    return path.isprintable() and not any(part in ("", ".", "..") for part in path.split("/"))


def is_taken(place: str, places: Collection[str]) -> bool:
    """Tells whether a path in an episode's group is one of `places`, is inside one, or would hold one."""
    return any(f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/") for other in places)


SIGNATURES = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}


class Images:
    """Encoded images, one after another: image t is bytes[offsets[t]:offsets[t + 1]]."""

    def __init__(self, data: np.ndarray, offsets: np.ndarray):
        self.data, self.offsets = data, offsets

    def encoding(self) -> Optional[str]:
        """Returns the encoding of all images, "auto" where they differ, or None where one has neither."""
        found = set()
        for begin in self.offsets[:-1]:
            head = self.data[begin:begin + 8].tobytes()
            found.add(next((name for name, sign in SIGNATURES.items() if head.startswith(sign)), None))
        if None in found:
            return None
        return found.pop() if len(found) == 1 else "auto"

    def write(self, group: h5py.Group, path: str) -> None:
        images = write_group(group.id, path)
        write_array(images, "bytes", self.data)
        write_array(images, "offsets", self.offsets)
        write_attributes(images, {"encoding": self.encoding(), "color": "rgb"})
