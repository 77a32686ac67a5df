"""trajctl resample: an attribute that cannot be read is a note. The run goes on, and the object is copied."""
import json

import h5py
import numpy as np
import pytest

from preprocess_station import counts
from resample_runs import resample

ROWS = 20
PLACES = ["/", "data", "data/demo_0", "data/demo_0/obs", "data/demo_0/actions", "data/demo_0/table", "data/demo_0/notes", "tables/gains"]


def write(path, place):
    with h5py.File(path, "w") as file:
        file["data/demo_0/actions"] = np.linspace(0, 1, ROWS)[:, None]
        file["data/demo_0/obs/pos"] = np.linspace(0, 1, ROWS)[:, None]
        file["data/demo_0/table"] = np.arange(3)
        file["data/demo_0/notes"] = np.array([f"row {i}".encode() for i in range(ROWS)])
        file["tables/gains"] = np.arange(4)
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for name in ("before", "damaged", "later"):
            file[place].attrs[name] = f"{name} text"


def damage(path, part):
    """Changes one byte: of the text's place, or of the attribute's type, which then is of no known class."""
    raw = bytearray(path.read_bytes())
    if part == "value":
        at = raw.index(b"damaged text")
        raw[raw.rindex(b"GCOL", 0, at)] ^= 1
    else:
        raw[raw.index(b"damaged\0") + 8] |= 0xf
    path.write_bytes(raw)


def check(path, out, place, part, notes):
    found = [note for note in notes if (place.split("/")[-1] or "/") in note and "attribute" in note]
    assert found and ("damaged" in found[0] if part == "value" else "2 attributes" in found[0] or "3 attributes" in found[0]), notes
    with h5py.File(out) as made, h5py.File(path) as source:
        assert np.array_equal(made["data/demo_0/table"], np.arange(3)) and np.array_equal(made["tables/gains"], np.arange(4))
        assert np.array_equal(made["data/demo_0/notes"], source["data/demo_0/notes"][::2]) and len(made["data/demo_0/obs/pos"]) == ROWS // 2
        assert "damaged" not in made[place].attrs


@pytest.mark.parametrize("place", PLACES)
def test_a_value(tmp_path, place):
    """All texts of the file are in one heap, so none of them can be read."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write(path, place)
    with h5py.File(path, "r+") as file:
        file["data"].attrs["env_args"] = np.bytes_('{"env_kwargs": {"control_freq": 20}}')
        file[place].attrs["number"] = 7
    damage(path, "value")
    done = resample(path, "-o", out, "--rate", 10)
    check(path, out, place, "value", [line for line in done.stderr.splitlines() if "damaged" in line])
    with h5py.File(out) as made:
        assert made[place].attrs["number"] == 7


@pytest.mark.parametrize("place", [place for place in PLACES if place != "data"])
def test_a_type(tmp_path, place):
    """libhdf5 then cannot list the object's attributes."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write(path, place)
    damage(path, "type")
    done = resample(path, "-o", out, "--rate", 10, "--json")
    check(path, out, place, "type", [json.loads(line).get("text", "") for line in done.stdout.splitlines()])


def test_of_a_second_input(tmp_path):
    paths, out = [tmp_path / "a.hdf5", tmp_path / "b.hdf5"], tmp_path / "out.hdf5"
    for path in paths:
        write(path, "/")
    damage(paths[1], "type")
    done = resample(*paths, "-o", out, "--rate", 10)
    assert "b.hdf5: 3 attributes of / cannot be read" in done.stderr
    with h5py.File(out) as made:
        assert made.attrs["damaged"] == "damaged text" and len(made["data"]) == 2


def test_in_a_manifest(station):
    path = station.inbox / "in.hdf5"
    write(path, "data/demo_0")
    damage(path, "type")
    station.write(layout="robomimic")
    assert counts(station.run())[:3] == (1, 0, 0)
    assert any("demo_0" in note and "attributes" in note for note in station.manifest("in.hdf5")["notes"])


def test_references_to_objects_are_not_copied(tmp_path):
    """A reference is an address in its file. In another file it would lead to something else."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write(path, "data/demo_0")
    with h5py.File(path, "r+") as file:
        file["data/demo_0/one"] = np.zeros(1)
        file["data/demo_0/one"].make_scale("one")
        file["data/demo_0/actions"].dims[1].attach_scale(file["data/demo_0/one"])
    done = resample(path, "-o", out, "--rate", 10)
    assert "attribute DIMENSION_LIST of actions cannot be carried over" in done.stderr
    with h5py.File(out) as made:
        assert "DIMENSION_LIST" not in made["data/demo_0/actions"].attrs and "REFERENCE_LIST" not in made["data/demo_0/one"].attrs
