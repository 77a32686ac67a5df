"""Writes HDF5 files with chunked datasets, and beside each the places of the chunks as h5py lists them.

usage: make_chunk_files.py FOLDER [CORPUS]

FOLDER/chunks.txt has for each dataset a line with the file, the address of the object header, rank and number of chunks, and a line
for each chunk: offset, stored bytes, filter mask, first element. CORPUS gets seeds for tests/fuzz/fuzz_chunk_tree.c."""
import pathlib
import sys

import h5py
import numpy as np

RNG = np.random.default_rng(8)


def write(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("few", data=RNG.normal(size=(7, 2)), chunks=(3, 2))
        file.create_dataset("many", data=RNG.normal(size=(5000, 2)), chunks=(1, 2))
        file.create_dataset("frames", data=RNG.integers(0, 9, (40, 6, 8, 3), dtype=np.uint8), chunks=(3, 4, 4, 2), compression="gzip", shuffle=True)
        made = file.create_dataset("holes", (900, 3), "f4", chunks=(2, 3))
        made[700] = made[5] = made[899] = 1
        # attributes move the messages of the header into further blocks
        made = file.create_dataset("described", data=np.zeros((90, 5), "i2"), chunks=(7, 5))
        for i in range(6):
            made.attrs[f"note_{i}"] = "x" * 90
        file.create_dataset("newer", data=np.zeros((90, 5), "i2"), chunks=(7, 5), track_order=True)
        file["contiguous"] = np.zeros((3, 3))


def seeds(folder):
    path = folder / "seed.h5"
    for name, rank in (("a", 1), ("b", 2)):
        with h5py.File(path, "w") as file:
            made = file.create_dataset(name, (6,) * rank, "u1", chunks=(2,) * rank, fillvalue=7)
            made[...] = 1
            place = h5py.h5o.get_info(made.id).addr
        (folder / f"{name}.bin").write_bytes(bytes([rank, 9, place // 8]) + path.read_bytes())
    path.unlink()


def main(folder):
    write(folder / "chunks.h5")
    with h5py.File(folder / "chunks.h5") as file, open(folder / "chunks.txt", "w", encoding="ascii") as out:
        for name, dataset in file.items():
            count = dataset.id.get_num_chunks() if dataset.chunks else 0
            print(name, h5py.h5o.get_info(dataset.id).addr, dataset.ndim, count, file=out)
            for i in range(count):
                one = dataset.id.get_chunk_info(i)
                print(one.byte_offset, one.size, one.filter_mask, *one.chunk_offset, file=out)


if len(sys.argv) > 2:
    pathlib.Path(sys.argv[2]).mkdir(exist_ok=True)
    seeds(pathlib.Path(sys.argv[2]))
else:
    main(pathlib.Path(sys.argv[1]))
