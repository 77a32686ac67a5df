"""What an episode consists of, as it lies in the HDF5 file: arrays of numbers and packed images."""
from __future__ import annotations

import json
from typing import Any, Collection, Optional, Protocol

import h5py
import numpy as np


class Object(Protocol):
    def write(self, group: h5py.Group, path: str) -> None:
        """Writes it below an episode's group."""


class Numbers:
    """An array with one row for each step. `names` are those of its columns, as the source has them."""

    def __init__(self, array: np.ndarray, names: Any = None):
        self.array, self.names = array, names

    def write(self, group: h5py.Group, path: str) -> None:
        dataset = group.create_dataset(path, data=self.array)
        names = text_of(json.dumps(self.names))
        if self.names is not None and names is not None:
            dataset.attrs["names"] = names


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
        images = group.create_group(path)
        images.create_dataset("bytes", data=self.data)
        images.create_dataset("offsets", data=self.offsets)
        images.attrs["encoding"] = self.encoding()
        images.attrs["color"] = "rgb"
