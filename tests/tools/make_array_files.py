"""Writes HDF5 files in many storage forms, and beside them what an index would record and the rows as h5py reads them.

usage: make_array_files.py FOLDER [bench]

FOLDER/arrays.txt has one line per array, then one per chunk in row-major order of the chunk grid:
  array LABEL FILE DTYPE STORAGE RANK SHAPE.. OFFSET SIZE_BYTES NFILTERS FILTERS.. CHUNK_SHAPE.. NCHUNKS FILL_HEX TRUTH_OFFSET
  chunk OFFSET STORED_SIZE FILTER_MASK            (a missing chunk has offset 'missing')
FOLDER/truth.bin has the rows, little endian, at TRUTH_OFFSET.
"""

import os
import sys

import h5py
import numpy as np

DTYPES = {"f2": "f16", "f4": "f32", "f8": "f64", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64",
          "u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64"}


def filters_of(dataset):
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


def chunk_lines(dataset):
    grid = [-(-s // c) for s, c in zip(dataset.shape, dataset.chunks)]
    lines = ["chunk missing 0 0"] * int(np.prod(grid))
    for i in range(dataset.id.get_num_chunks()):
        info = dataset.id.get_chunk_info(i)
        at = [o // c for o, c in zip(info.chunk_offset, dataset.chunks)]
        lines[int(np.ravel_multi_index(at, grid))] = f"chunk {info.byte_offset} {info.size} {info.filter_mask}"
    return lines


def describe(label, path, dataset, truth):
    dtype = DTYPES[dataset.dtype.str[1:]]
    shape = list(dataset.shape)
    chunked = dataset.chunks is not None
    filters = filters_of(dataset) if chunked else []
    chunks = chunk_lines(dataset) if chunked else []
    offset = dataset.id.get_offset() if not chunked else 0
    storage = "chunked" if chunked else "contiguous" if offset is not None else "empty"
    fill = np.array([dataset.fillvalue], dataset.dtype).tobytes().hex()
    words = ["array", label, os.path.basename(path), dtype, storage, len(shape), *shape, offset or 0,
             dataset.size * dataset.dtype.itemsize, len(filters), *filters, *(dataset.chunks or []), len(chunks), fill,
             truth.tell()]
    truth.write(np.ascontiguousarray(dataset[()]).tobytes())
    return [" ".join(str(word) for word in words), *chunks]


def smooth(rng, shape, dtype):
    """Returns data that compress somewhat, as recordings do."""
    noise = rng.integers(0, 7, size=shape)
    values = np.cumsum(noise - 3, axis=0) + 100
    return values.astype(dtype) if np.dtype(dtype).kind != "f" else (values / 8).astype(dtype)


def test_arrays(file, rng):
    shapes = {1: (1000,), 2: (301, 7), 3: (50, 9, 11), 4: (23, 20, 18, 3)}
    filters = {"gzip": {"compression": "gzip"}, "gzip_shuffle": {"compression": "gzip", "shuffle": True},
               "lzf": {"compression": "lzf"}, "lzf_shuffle": {"compression": "lzf", "shuffle": True},
               "fletcher": {"fletcher32": True}, "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
               "lzf_all": {"compression": "lzf", "shuffle": True, "fletcher32": True}, "plain": {}}
    for rank, shape in shapes.items():
        for dtype in ("<f8", "<f4", "<f2", "|u1", "<i8", "<u2"):
            data = smooth(rng, shape, dtype)
            name = f"r{rank}_{dtype[1:]}"
            yield file.create_dataset(f"{name}_contiguous", data=data)
            for label, options in filters.items():
                chunks = tuple(max(1, (s * 2) // 5) for s in shape)  # does not divide the shape: edge chunks in every dimension
                yield file.create_dataset(f"{name}_{label}", data=data, chunks=chunks, **options)
                yield file.create_dataset(f"{name}_{label}_auto", data=data, chunks=True, **options)
    steps = file.create_dataset("step_by_step", (1, 7), "<f8", maxshape=(None, 7))  # as DROID's writer grows its arrays
    for i in range(120):
        steps.resize(i + 1, axis=0)
        steps[i] = np.arange(7) + i
    yield steps
    holes = file.create_dataset("holes", (100, 6, 5), "<f4", chunks=(9, 4, 3), fillvalue=2.5, compression="gzip")
    holes[20:31, 2:5] = rng.random((11, 3, 5))
    yield holes
    yield file.create_dataset("never_written_chunked", (40, 3), "<i4", chunks=(7, 2), fillvalue=-7)
    yield file.create_dataset("never_written", (40, 3), "<f8", fillvalue=1.25)
    yield file.create_dataset("zero_width", (12, 0), "<f8")
    yield file.create_dataset("zero_rows", (0, 4), "<f4", chunks=(8, 4), maxshape=(None, 4))
    random = rng.integers(0, 256, (64, 1000), dtype=np.uint8)  # lzf cannot shrink these: they are stored raw, and the filter mask is set
    random[::16] = 5
    yield file.create_dataset("lzf_masked", data=random, chunks=(1, 1000), compression="lzf")
    yield file.create_dataset("frames", data=rng.integers(0, 256, (9, 160, 160, 3), dtype=np.uint8),
                              chunks=(1, 160, 160, 3))  # large whole-row chunks without a filter
    yield file.create_dataset("frame_pairs", data=rng.integers(0, 256, (9, 160, 160, 3), dtype=np.uint8),
                              chunks=(2, 160, 160, 3))
    yield file.create_dataset("rank6", data=smooth(rng, (5, 3, 4, 3, 2, 5), "<i4"), chunks=(2, 2, 3, 2, 1, 3),
                              compression="gzip")


def bench_arrays(file, rng):
    base = rng.integers(0, 256, (12, 12, 3)).repeat(7, 0).repeat(7, 1)
    for i in range(6):
        noise = rng.integers(0, 6, (150, 84, 84, 3))  # camera noise on a still scene: gzip makes a third of it
        frames = (np.roll(base, i, 0)[None] * 0.95 + noise).astype(np.uint8)
        yield file.create_dataset(f"demo_{i}/image_gzip", data=frames, chunks=True, compression="gzip")
        yield file.create_dataset(f"demo_{i}/image_gzip_shuffle", data=frames, chunks=True, compression="gzip",
                                  shuffle=True)
        yield file.create_dataset(f"demo_{i}/depth_gzip_shuffle", data=frames[..., 0].astype("<f4") / 64, chunks=True,
                                  compression="gzip", shuffle=True)
        yield file.create_dataset(f"demo_{i}/image_contiguous", data=frames)


def main():
    folder = sys.argv[1]
    make = bench_arrays if sys.argv[2:] == ["bench"] else test_arrays
    path = os.path.join(folder, "arrays.h5")
    with h5py.File(path, "w") as file:
        names = [dataset.name for dataset in make(file, np.random.default_rng(7))]
    lines = []
    with h5py.File(path, "r") as file, open(os.path.join(folder, "truth.bin"), "wb") as truth:
        for name in names:
            lines += describe(name.strip("/"), path, file[name], truth)
    with open(os.path.join(folder, "arrays.txt"), "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
