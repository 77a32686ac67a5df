"""Groups of an episode in which a byte has changed: the episode or the file is refused with a reason. No stream is lost silently."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL

ROWS = 12
STREAMS = ["actions", "dones", "obs/eef", "obs/gripper", "obs/joints", "rewards", "states"]


def write(path, **options):
    random = np.random.default_rng(0)
    with h5py.File(path, "w", **options) as file:
        group = file.create_group("data/demo_0")
        for name in STREAMS:
            group[name] = random.normal(size=(ROWS, 2))
        file["mask/train"] = file["mask/valid"] = np.array([b"demo_0"])
    return path


def inspect(path):
    """Returns the exit status, the names of the streams, the reasons, and the keys of the kept episodes."""
    done = subprocess.run([TRAJCTL, "inspect", "--json", "--layout", "robomimic", path], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done
    index = json.loads(done.stdout)
    index = index[0] if isinstance(index, list) else index
    if "streams" not in index:
        return done.returncode, [], json.dumps(index), []
    return (done.returncode, sorted(s["name"] for s in index["streams"]), " ".join(filter(None, (e["quarantine"] for e in index["episodes"]))),
            [key for e in index["episodes"] if not e["quarantine"] for key in e["filter_keys"]])


def change(path, at, value):
    raw = bytearray(path.read_bytes())
    raw[at] = value
    path.write_bytes(raw)


def heap_of(path, name):
    """Returns where the local heap that holds a link's name is, and where its names are."""
    raw = path.read_bytes()
    heap = raw.rindex(b"HEAP", 0, raw.index(name.encode() + b"\0"))
    return heap, int.from_bytes(raw[heap + 24:heap + 32], "little")


# heap header; the empty name at the heap's begin; letters of the first and the second name
BYTES = {"the heap": (0, 0, 0x49), "the first key": (1, 0, 0x7f), "order": (1, 8, ord("z")), "an ended name": (1, 16, 0)}


@pytest.mark.parametrize("name, group", [("eef", "obs"), ("dones", "demo_0"), ("demo_0", "data"), ("train", "mask")])
@pytest.mark.parametrize("what", BYTES)
def test_a_changed_byte(tmp_path, name, group, what):
    path = write(tmp_path / "one.hdf5")
    assert inspect(path) == (0, STREAMS, "", ["train", "valid"])
    part, offset, value = BYTES[what]
    change(path, heap_of(path, name)[part] + offset, value)
    status, streams, reason, keys = inspect(path)
    assert status == 1 and not streams, (streams, reason)
    assert "one.hdf5" in reason and ("damaged" in reason or "no group matches" in reason), reason


def test_an_object_that_cannot_be_opened(tmp_path):
    """The links are right, and the header of the group or dataset behind one is not."""
    for name in ("obs", "states", "obs/joints"):
        path = write(tmp_path / "one.hdf5")
        with h5py.File(path) as file:
            at = h5py.h5o.get_info(file[f"data/demo_0/{name}"].id).addr
        change(path, at, 0x77)
        status, streams, reason, keys = inspect(path)
        assert status == 1 and not streams and f"{name}: cannot be opened" in reason, (name, streams, reason)


@pytest.mark.parametrize("name", ["mask", "mask/valid"])
def test_a_filter_that_cannot_be_opened(tmp_path, name):
    path = write(tmp_path / "one.hdf5")
    with h5py.File(path) as file:
        at = h5py.h5o.get_info(file[name].id).addr
    change(path, at, 0x77)
    status, streams, reason, keys = inspect(path)
    assert status == 1 and not streams and "/mask/{key}" in reason and "cannot be opened" in reason, (streams, reason)


def test_a_rate_that_cannot_be_read(tmp_path):
    """The attribute is there: the layout's default does not apply."""
    path = write(tmp_path / "one.hdf5")
    with h5py.File(path, "r+") as file:
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 50}}'
    assert inspect(path)[:2] == (0, STREAMS)
    raw = path.read_bytes()
    change(path, raw.index(b"GCOL"), 0)  # the heap of texts of variable length
    status, streams, reason, keys = inspect(path)
    assert status == 1 and not streams and "/data@env_args" in reason and "(unreadable)" in reason, (streams, reason)


def test_a_folder_behind_an_external_link(tmp_path):
    path = write(tmp_path / "one.hdf5")
    with h5py.File(path, "r+") as file:
        file.move("data/demo_0/obs", "elsewhere")
        file["data/demo_0/obs"] = h5py.ExternalLink("other.hdf5", "/obs")
    done = subprocess.run([TRAJCTL, "inspect", "--layout", "robomimic", path], capture_output=True, text=True, timeout=60)
    assert "demo_0/obs: left out: an external link" in done.stdout, done.stdout
