"""Digests of an HDF5 file: every array and attribute, and how arrays are stored."""

import h5py
import numpy as np


def describe_storage(dataset):
    return {
        "chunks": dataset.chunks and list(dataset.chunks),
        "compression": dataset.compression,
        "level": dataset.compression_opts if dataset.compression == "gzip" else None,
        "shuffle": dataset.shuffle,
        "fletcher32": dataset.fletcher32,
        "most": [str(n) for n in dataset.maxshape or ()],
    }


def add_attributes(part, name, thing):
    for key in sorted(thing.attrs):
        value = thing.attrs[key]
        if isinstance(value, (str, bytes)):
            part.text(f"{name}@{key}", value if isinstance(value, str) else value.decode("latin-1"))
        else:
            part.array(f"{name}@{key}", np.asarray(value))


def add_object(part, name, thing):
    add_attributes(part, name, thing)
    if not isinstance(thing, h5py.Dataset):
        return part.put(name, {"members": sorted(thing)})
    value = thing[()]
    if isinstance(value, h5py.Empty):
        return part.put(name, {"dtype": str(value.dtype)})
    part.array(
        name,
        value,
        dtype=thing.dtype.str if not thing.dtype.hasobject else "object",
        storage=describe_storage(thing),
    )


def add_file(part, name, path):
    """Adds an item per object of a file. Links to an object met before are members of their group
    alone."""
    with h5py.File(path) as file:
        add_object(part, f"{name}:/", file)
        found = []
        file.visititems(lambda place, thing: found.append((place, thing)))
        for place, thing in sorted(found, key=lambda one: one[0]):
            add_object(part, f"{name}:/{place}", thing)


def add_folder(part, name, folder):
    """Adds all files of a folder: HDF5 files by their content, others by their names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    part.put(f"{name}/files", {"names": [str(path.relative_to(folder)) for path in paths]})
    for path in paths:
        if path.suffix in (".hdf5", ".h5"):
            add_file(part, f"{name}/{path.relative_to(folder)}", path)
