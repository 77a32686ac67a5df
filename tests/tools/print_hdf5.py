"""Prints all objects of HDF5 files: types, shapes, storage, attributes and values. Numbers have six digits.

usage: print_hdf5.py FILE..."""

import sys

import h5py
import numpy as np

VALUES_MAX = 64  # arrays with more elements are printed as one sum, weighted by the place of each element
STORAGE = {h5py.h5d.COMPACT: "compact", h5py.h5d.CONTIGUOUS: "contiguous", h5py.h5d.CHUNKED: "chunked", h5py.h5d.VIRTUAL: "virtual"}


def text_of(value):
    if isinstance(value, h5py.Empty):
        return "none"
    array = np.asarray(value)
    if array.dtype.kind in "fiub" and array.size > VALUES_MAX:
        numbers = array.astype("f8").ravel()
        return f"sum {np.nansum(numbers * (np.arange(numbers.size) % 97 + 1)):.6g} nan {np.isnan(numbers).sum()}"
    if array.dtype.kind == "f":
        return "[" + " ".join(f"{number + 0.0:.6g}" for number in array.ravel()) + "]"
    return repr(array.tolist())


def filters_of(dataset):
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(i)[0::2][0] for i in range(properties.get_nfilters())]


def print_attributes(thing):
    for name in sorted(thing.attrs):
        attribute = thing.attrs.get_id(name)
        space = attribute.get_space().get_simple_extent_type()
        print(f"    @{name} {attribute.dtype} {attribute.shape} {space} {attribute.get_type().get_class()} {text_of(thing.attrs[name])}")


def print_dataset(dataset):
    properties = dataset.id.get_create_plist()
    chunks = ""
    if dataset.chunks:
        masks = {dataset.id.get_chunk_info(i).filter_mask for i in range(dataset.id.get_num_chunks())}
        chunks = f" {dataset.chunks} x {dataset.id.get_num_chunks()} filters {filters_of(dataset)} skipped {sorted(masks)}"
    times = " with a time" if h5py.h5o.get_info(dataset.id).mtime else ""
    print(f"{dataset.name} {dataset.dtype} {dataset.shape} max {dataset.maxshape} {STORAGE[properties.get_layout()]}{chunks}{times} "
          f"{text_of(dataset[()])}")


def print_group(group):
    for name in sorted(group):
        path, link = f"{group.name.rstrip('/')}/{name}", group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            print(f"{path} -> {link.path}")
            continue
        thing = group[name]
        if isinstance(thing, h5py.Dataset):
            print_dataset(thing)
        else:
            print(f"{path} {type(thing).__name__}")
        print_attributes(thing)
        if isinstance(thing, h5py.Group):
            print_group(thing)


for path in sys.argv[1:]:
    print(f"== {path.rpartition('/')[2]}")
    with h5py.File(path, "r") as file:
        print_attributes(file)
        print_group(file)
