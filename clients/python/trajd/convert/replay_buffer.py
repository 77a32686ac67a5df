"""ReplayBuffers of diffusion_policy and UMI: Zarr stores with all episodes one after another in each array data/KEY.

meta/episode_ends has the row after each episode. There are no times: all arrays have one rate, which is not stored."""
from __future__ import annotations

import contextlib
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import List, NamedTuple, Optional, Sequence

import numpy as np

from ..errors import ArgumentError, names_there_are
from . import zarr_store
from .objects import Images, Numbers, Object, is_name, is_taken
from .output import Episode, Episodes, LeftOut, Source
from .rate import attribute_of

ENDS = "meta/episode_ends"
FRAMES_AT_ONCE = 64   # that are decoded and encoded by all processors
SAMPLED_FRAMES = 16   # of each camera, to tell the size of the output
PNG_LEVEL = 3


class Key(NamedTuple):
    name: str
    array: zarr_store.Array
    place: str  # in the episode's group
    kind: str   # "numbers", "pixels" (stored as they are) or "encoded"


class ReplayBuffer(Source):
    def __init__(self, path: pathlib.Path, episodes: Optional[Sequence[range]] = None,
                 cameras: Optional[Sequence[str]] = None, rate: Optional[Fraction] = None, jpeg: Optional[int] = None):
        self._chosen, self._jpeg = episodes, jpeg
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self.notes: List[str] = []
        self._keys: List[Key] = []
        self._store = zarr_store.Store(path, f"{ENDS}/.zarray")
        try:
            ends = zarr_store.Array(self._store, ENDS, self._pool)
            if not ends.shape[0] or len(ends.shape) > 1 or ends.dtype.kind not in "iu":
                raise ValueError(f"{ENDS} is {ends.dtype} {list(ends.shape)}, and no list of ends")
            self._ends = ends.rows(0, ends.shape[0]).astype(np.int64)
        except (ValueError, LeftOut) as error:
            raise ArgumentError(f"{path}: {error}") from None
        self._begins = np.append(0, self._ends[:-1])
        for name in self._store.names("data"):
            try:
                self._keys.append(self._open(name))
            except ValueError as error:
                self.notes.append(f"left out: {error}")
        there_are = [key.name for key in self._keys if key.kind != "numbers"]
        for name in cameras or ():
            if name not in there_are:
                raise ArgumentError(f"--cameras {name}: {names_there_are(name, there_are)}")
        self._keys = [key for key in self._keys if key.kind == "numbers" or cameras is None or key.name in cameras]
        if not self._keys:
            raise ArgumentError(f"{path}: it has no array in data that can be read; {'; '.join(self.notes)}")
        need = [key.name for key in self._keys if key.kind == "encoded" or key.array.codec in zarr_store.IMAGES]
        if zarr_store.imagecodecs is None and need:
            raise ArgumentError(f"{path}: {need[0]} is decoded and encoded by imagecodecs, which is not installed: pip "
                                "install imagecodecs; or name the other cameras with --cameras")
        self._is_shared = _find_shared(self._begins, self._ends, max(key.array.shape[0] for key in self._keys))
        self.attributes = {"source": "ReplayBuffer", **({"rate": attribute_of(rate)} if rate else {})}

    def _open(self, name: str) -> Key:
        """Returns an array of the store. Raises ValueError, with a sentence, if it cannot be converted."""
        array = zarr_store.Array(self._store, f"data/{name}", self._pool)
        kind, place = "numbers", name
        is_image = len(array.shape) == 4 and array.shape[-1] == 3
        if is_image and (array.dtype == np.uint8 or _has_pixels(array, self._begins)):
            kind, place = "pixels", f"observation/images/{name}"
            if array.codec in zarr_store.IMAGES or self._jpeg is not None:
                kind = "encoded"
        if not is_name(place) or is_taken(place, [key.place for key in self._keys]):
            raise ValueError(f"{array.name}: its name cannot be one in the HDF5 file, or is taken")
        end, rows = self._ends.max(), array.shape[0]
        self.notes += [f"left out: {array.name}: its rows {end} to {rows - 1} are of no episode"] if rows > end else []
        return Key(name, array, place, kind)

    def expect(self, episodes: Episodes) -> List[str]:
        """Returns, for each camera whose frames are encoded again, what they take and about what they will take."""
        form = "PNG" if self._jpeg is None else f"JPEG of quality {self._jpeg}"
        lines = []
        for array in (key.array for key in self._keys if key.kind == "encoded"):
            numbers = [number for number, _ in episodes]
            ends = np.minimum(self._ends[numbers], array.shape[0])
            parts = [range(begin, end) for begin, end in zip(self._begins[numbers].clip(0), ends) if begin < end]
            rows = np.concatenate([np.empty(0, int), *parts])
            sampled = []
            for row in map(int, rows[::max(len(rows) // SAMPLED_FRAMES, 1)]):
                with contextlib.suppress(LeftOut):  # the episode says it
                    sampled.append(len(self._encode(_to_pixels(array.rows(row, row + 1), array.name, row)[0])))
            size = sum(map(self._store.size, {name for part in parts for name in array.chunks(part[0], part[-1] + 1)}))
            codec = zarr_store.IMAGES.get(array.codec, ["raw pixels"])[0]
            lines.append(f"{array.name}: {len(rows)} frames, {size} bytes as {codec}; as {form} about "
                         f"{sum(sampled) * len(rows) // max(len(sampled), 1)} bytes")
        return lines

    def episodes(self) -> Episodes:
        return [(number, lambda number=number: self._read(number)) for number in range(len(self._ends))
                if self._chosen is None or any(number in numbers for numbers in self._chosen)]

    def _read(self, number: int) -> Episode:
        begin, end = int(self._begins[number]), int(self._ends[number])
        if not 0 <= begin < end:
            raise LeftOut(f"{ENDS}: its entry {number} is {end}, and the episode would begin at row {begin}")
        if self._is_shared[number]:
            raise LeftOut(f"{ENDS}: the episode is rows {begin} to {end - 1}, and another one has some of them, too")
        return Episode(end - begin, {}, {key.place: self._object(key, begin, end) for key in self._keys})

    def _object(self, key: Key, begin: int, end: int) -> Object:
        if key.kind != "encoded":
            found = key.array.rows(begin, end)
            return Numbers(found if key.kind == "numbers" else _to_pixels(found, key.array.name, begin))
        encoded: List[bytes] = []
        for first in range(begin, end, FRAMES_AT_ONCE):
            frames = key.array.rows(first, min(first + FRAMES_AT_ONCE, end))
            encoded += self._pool.map(self._encode, _to_pixels(frames, key.array.name, first))
        return Images(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)]))

    def _encode(self, frame: np.ndarray) -> bytes:
        if self._jpeg is None:
            return zarr_store.imagecodecs.png_encode(frame, level=PNG_LEVEL)
        return zarr_store.imagecodecs.jpeg_encode(frame, level=self._jpeg)


def _find_shared(begins: np.ndarray, ends: np.ndarray, rows: int) -> np.ndarray:
    """Returns for each episode whether another one, which fits into the arrays, has some of its rows."""
    shared = np.zeros(len(ends), bool)
    order = np.flatnonzero((begins >= 0) & (begins < ends) & (ends <= rows))
    order = order[np.argsort(begins[order], kind="stable")]
    last = np.maximum.accumulate(ends[order])
    shared[order[1:]] = begins[order[1:]] < last[:-1]
    shared[order[:-1]] |= begins[order[1:]] < ends[order[:-1]]
    return shared


def _has_pixels(array: zarr_store.Array, begins: np.ndarray) -> bool:
    """Tells whether floats are whole numbers from 0 to 255, as in Push-T, by the first frame that is not black."""
    for begin in begins if array.dtype.kind == "f" else ():
        with contextlib.suppress(LeftOut):
            first = array.rows(int(begin), int(begin) + 1)
            if first.max() > 1:
                return np.array_equal(np.clip(first, 0, 255).astype(np.uint8), first)
    return False


def _to_pixels(frames: np.ndarray, name: str, first: int) -> np.ndarray:
    """Returns floats as bytes, where they are bytes."""
    with np.errstate(invalid="ignore"):
        pixels = frames.astype(np.uint8)
    for row in np.flatnonzero((pixels != frames).reshape(len(frames), -1).any(axis=1))[:1]:
        raise LeftOut(f"{name}: row {first + row} has pixels that are not whole numbers from 0 to 255, unlike row 0")
    return pixels
