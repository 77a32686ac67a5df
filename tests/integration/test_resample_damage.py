"""trajctl resample of damaged files: what is beside the streams is copied in full, or nothing is published."""
import os

import h5py
import numpy as np
import pytest

from resample_runs import resample

ROWS = 20
NAMES = ["alpha", "beta", "delta", "gamma", "kappa", "omega"]


def write(path, place):
    """Writes an episode, and a group at `place` whose tables no stream names. Returns where the group's heap is."""
    with h5py.File(path, "w") as file:
        file["data/demo_0/actions"] = np.linspace(0, 1, ROWS)[:, None]
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for name in NAMES:
            file[f"{place}/{name}"] = np.arange(3)
    raw = path.read_bytes()
    heap = raw.rindex(b"HEAP", 0, raw.index(b"alpha\0"))
    return heap, int.from_bytes(raw[heap + 24:heap + 32], "little")


def change(path, at, value):
    raw = bytearray(path.read_bytes())
    raw[at] = value
    path.write_bytes(raw)


# heap header; the empty name at the heap's begin; the first letter, and a later one, of "delta", the third name
BYTES = {"the heap": (0, 0, 0x49), "the first key": (1, 0, 0x7f), "order": (1, 24, ord("z")), "an ended name": (1, 24, 0),
         "a name before": (1, 24, ord("a"))}


@pytest.mark.parametrize("place", ["data/demo_0/calibration", "data/tables", "tables"])
@pytest.mark.parametrize("what", BYTES)
def test_a_damaged_group_beside_the_streams(tmp_path, place, what):
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    part, offset, value = BYTES[what]
    change(path, write(path, place)[part] + offset, value)
    done = resample(path, "-o", out, "--rate", 10, check=False)
    assert done.returncode == 1 and not out.exists(), done
    assert place.split("/")[-1] in done.stderr and "is damaged" in done.stderr and "in.hdf5" in done.stderr


STAMPED = """
layout: stamped
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks: {arm: {path: t, unit: s}}
streams: {pose: {path: pose, kind: previous}}
"""


def test_an_output_that_cannot_be_read_is_not_published(tmp_path):
    """Stamps of type float32 near 10^5 s are 8 ms apart. They cannot hold 1000 steps a second: the layout refuses equal ones."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    (tmp_path / "stamped.yaml").write_text(STAMPED)
    with h5py.File(path, "w") as file:
        file["data/demo_0/t"], file["data/demo_0/pose"] = np.float32(10**5 + np.arange(ROWS) / 10), np.zeros((ROWS, 2))
    done = resample(path, "-o", out, "--rate", 1000, "--layout", tmp_path / "stamped.yaml", check=False)
    assert done.returncode == 1 and "cannot be read again" in done.stderr and "row 1" in done.stderr, done
    assert sorted(os.listdir(tmp_path)) == ["in.hdf5", "stamped.yaml"]
    resample(path, "-o", out, "--rate", 20, "--layout", tmp_path / "stamped.yaml")
