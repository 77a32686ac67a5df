"""Zarr stores of version 2: arrays cut into chunks, each of which is a file in a folder or in a .zip file.

Compressors and filters are those of numcodecs. Chunks that are JPEG XL or JPEG 2000 are decoded by imagecodecs."""
from __future__ import annotations

import itertools
import json
import math
import pathlib
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Tuple, Union

import numcodecs
import numpy as np

from ..errors import ArgumentError
from .objects import DTYPES
from .output import LeftOut, first_line

try:
    import imagecodecs
except ImportError:  # few stores need it
    imagecodecs = None  # type: ignore[assignment]

CHUNK_BYTES_MAX = 1 << 30
ROWS_BYTES_MAX = 8 << 30  # of one episode
CHUNKS_MAX = 1 << 20      # that have the rows of one episode
# others of numcodecs may run what a chunk says, as pickle does
CODECS = {"blosc", "zlib", "gzip", "bz2", "lzma", "zstd", "lz4", "shuffle", "delta", "fixedscaleoffset", "quantize",
          "packbits", "astype", "bitround", "crc32", "adler32", "fletcher32"}
IMAGES = {"imagecodecs_jpegxl": ("JPEG XL", "jpegxl_decode"), "imagecodecs_jpeg2k": ("JPEG 2000", "jpeg2k_decode")}


class Store:
    """A folder, or a .zip file in which the store may be below a folder. `name` is a file that it must have."""

    def __init__(self, path: pathlib.Path, name: str):
        self._root: Union[pathlib.Path, zipfile.Path] = path
        if not path.is_dir():
            try:
                if not path.is_file():  # of a FIFO, opening may not end
                    raise ValueError("it is neither a folder nor a file")
                file = zipfile.ZipFile(path.open("rb"))  # of a name, Python 3.9 closes it
            except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
                raise ArgumentError(f"{path}: {first_line(error)}") from None
            found = next((one for one in file.namelist() if f"/{one}".endswith(f"/{name}")), name)
            self._root = zipfile.Path(file, found[:-len(name)])
        if not (self._root / name).is_file():
            raise ArgumentError(f"{path}: it has no {name}, as a ReplayBuffer in Zarr, version 2, has")

    def read(self, name: str) -> Optional[bytes]:
        """Returns a file of the store, None where there is none."""
        path = self._root / name
        if path.exists() and not path.is_file():
            raise ValueError("it is not a regular file")
        return path.read_bytes() if path.exists() else None

    def size(self, name: str) -> int:
        path = self._root / name
        if not path.is_file():
            return 0
        return path.root.getinfo(path.at).file_size if isinstance(path, zipfile.Path) else path.stat().st_size

    def names(self, folder: str) -> List[str]:
        path = self._root / folder
        return sorted(one.name for one in path.iterdir() if one.is_dir()) if path.is_dir() else []


class Array:
    """An array of a store. Raises ValueError, with a sentence, if it cannot be read."""

    def __init__(self, store: Store, name: str, pool: ThreadPoolExecutor):
        self._store, self.name, self._pool = store, name, pool
        self._last: Tuple[str, Optional[np.ndarray]] = ("", None)  # a chunk that the next episode may need
        try:
            text = store.read(f"{name}/.zarray")
            if text is None:
                raise ValueError("there is none")
            meta = json.loads(text)
            if meta["zarr_format"] != 2 or not re.fullmatch(DTYPES, np.dtype(meta["dtype"]).name):
                raise ValueError(f"its dtype is {meta['dtype']}, and its zarr_format is {meta['zarr_format']}")
            self.dtype = np.dtype(meta["dtype"])
            self.shape, self._chunks = tuple(map(int, meta["shape"])), tuple(map(int, meta["chunks"]))
            self._order, self._separator = {"C": "C", "F": "F"}[meta["order"]], meta.get("dimension_separator", ".")
            compressor = meta["compressor"] or {}
            self.codec = compressor.get("id")
            for one in meta["filters"] or []:
                if one["id"] not in CODECS:
                    raise ValueError(f"its filter is {one['id']}, and {', '.join(sorted(CODECS))} are read")
            self._codecs = [numcodecs.get_codec(one) for one in (meta["filters"] or [])]
            if self.codec in IMAGES:
                if self._codecs or self._chunks[0] != 1:
                    raise ValueError("its chunks are images, and have filters or more than one row")
            elif self.codec is not None:
                if self.codec not in CODECS:
                    raise ValueError(f"its compressor is {self.codec}, and {', '.join(sorted(CODECS))} are read")
                self._codecs.append(numcodecs.get_codec(compressor))
            if self._separator not in (".", "/"):
                raise ValueError(f"its dimension_separator is {self._separator!r}")
        except Exception as error:  # of a file that says anything
            raise ValueError(f"{name}/.zarray: {first_line(error)}") from None
        self._bytes = math.prod(self._chunks) * self.dtype.itemsize
        if not self.shape or len(self.shape) != len(self._chunks) or min(self.shape[1:], default=1) < 1 or not (
                min(self._chunks) > 0 and self._bytes <= CHUNK_BYTES_MAX):
            raise ValueError(f"{name}/.zarray: its shape is {list(self.shape)}, in chunks of {list(self._chunks)}, "
                             f"{self._bytes} bytes")

    def rows(self, first: int, end: int) -> np.ndarray:
        """Returns some rows. Raises LeftOut if a chunk is damaged."""
        if end > self.shape[0]:
            raise LeftOut(f"{self.name}: it has {self.shape[0]} rows, and the episode is rows {first} to {end - 1}")
        size = (end - first) * math.prod(self.shape[1:]) * self.dtype.itemsize
        if size > ROWS_BYTES_MAX:
            raise LeftOut(f"{self.name}: its rows {first} to {end - 1} have {size} bytes, more than {ROWS_BYTES_MAX}")
        held = math.prod(-(-size // chunk) for size, chunk in zip(self.shape[1:], self._chunks[1:])) * (
            (end - 1) // self._chunks[0] - first // self._chunks[0] + 1)
        if held > CHUNKS_MAX or held * self._bytes > 2 * ROWS_BYTES_MAX:
            raise LeftOut(f"{self.name}: its rows {first} to {end - 1} are in {held} chunks of {self._bytes} bytes")
        found = np.empty((end - first, *self.shape[1:]), self.dtype.newbyteorder("="))
        names = self.chunks(first, end)
        # this thread reads, because a ZipFile is for one thread, and the others decode
        for (name, index), chunk in zip(names.items(), self._pool.map(self._decode, names, map(self._read, names))):
            row, *others = (number * size for number, size in zip(index, self._chunks))
            begin, stop = max(first, row), min(end, row + self._chunks[0])
            target = [slice(at, at + size) for at, size in zip(others, self._chunks[1:])]
            part = [slice(0, size - at) for at, size in zip(others, self.shape[1:])]
            found[(slice(begin - first, stop - first), *target)] = chunk[(slice(begin - row, stop - row), *part)]
            self._last = name, chunk
        return found

    def chunks(self, first: int, end: int) -> Dict[str, Tuple[int, ...]]:
        """Returns names and indexes of the chunks that have some rows."""
        others = (range(-(-size // chunk)) for size, chunk in zip(self.shape[1:], self._chunks[1:]))
        indexes = itertools.product(range(first // self._chunks[0], (end - 1) // self._chunks[0] + 1), *others)
        return {f"{self.name}/{self._separator.join(map(str, index))}": index for index in indexes}

    def _read(self, name: str) -> Union[bytes, np.ndarray, None]:
        """Returns a chunk: its bytes, its values if they are kept, or None if there is none."""
        if name == self._last[0]:
            return self._last[1]
        try:
            if self._store.size(name) > CHUNK_BYTES_MAX:
                raise ValueError(f"it has more than {CHUNK_BYTES_MAX} bytes")
            return self._store.read(name)
        except Exception as error:  # of any file
            raise LeftOut(f"{name}: {first_line(error)}") from None

    def _decode(self, name: str, values: Any) -> np.ndarray:
        if isinstance(values, np.ndarray):
            return values
        try:
            if values is None:  # the format has the fill value then, but these writers write each chunk
                raise ValueError("there is no such chunk")
            if self.codec in IMAGES:
                decode = getattr(imagecodecs, IMAGES[self.codec][1])
                return decode(values, out=np.empty(self._chunks[1:], self.dtype))[None]
            # Blosc reads on behind the end of a chunk that is cut short
            if self.codec == "blosc" and (len(values) < 16 or int.from_bytes(values[12:16], "little") != len(values)):
                raise ValueError(f"it has {len(values)} bytes, and its header says another size")
            for codec in reversed(self._codecs):
                values = codec.decode(values)
            values = np.frombuffer(values, np.uint8)
            if values.nbytes != self._bytes:
                raise ValueError(f"it has {values.nbytes} bytes, and a chunk has {self._bytes}")
            return values.view(self.dtype).reshape(self._chunks, order=self._order)
        except Exception as error:  # of any codec
            raise LeftOut(f"{name}: {first_line(error)}") from None
