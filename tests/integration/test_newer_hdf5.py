"""Files that only a newer HDF5 can read: the message says so, and which command helps."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL

pytestmark = pytest.mark.skipif(h5py.version.hdf5_version_tuple[0] < 2, reason="this h5py writes no file that HDF5 1.10 cannot read")


def inspect(path):
    return subprocess.run([TRAJCTL, "inspect", "--json", "--layout", "robomimic", path], capture_output=True, text=True, timeout=60)


def write(path, **options):
    with h5py.File(path, "w", **options) as file:
        file["data/demo_0/actions"] = np.zeros((20, 7))
        file.create_dataset("data/demo_0/obs/image", data=np.ones((20, 8, 8, 3), np.uint8), chunks=(5, 8, 8, 3), compression="gzip")
    return path


def test_the_message(tmp_path):
    """The image alone cannot be read, and it is optional: without it the episode would not be the recorded one."""
    done = inspect(write(tmp_path / "new.hdf5", libver="latest"))
    said = json.dumps(json.loads(done.stdout)) if done.stdout else done.stderr
    assert done.returncode == 1 and "demo_0: obs/image" in said and "a newer HDF5" in said and "libver" in said, said
    assert "h5repack --low=0 --high=2 -f GZIP=4 OLD NEW" in said, said


@pytest.mark.parametrize("libver", [("earliest", "v110"), ("v110", "v110"), ("v114", "v114")])
def test_what_can_be_read(tmp_path, libver):
    assert inspect(write(tmp_path / "new.hdf5", libver=libver)).returncode == 0


def test_what_the_command_does(tmp_path):
    """h5repack with these options copies each dataset like this: bounds 0 to 2 are "earliest" to "v110", and a filter sets the chunks again."""
    write(tmp_path / "new.hdf5", libver="latest")
    with h5py.File(tmp_path / "new.hdf5") as old, h5py.File(tmp_path / "old.hdf5", "w", libver=("earliest", "v110")) as new:
        for name in ("data/demo_0/actions", "data/demo_0/obs/image"):
            new.require_group(name.rpartition("/")[0])
            source = old[name].id
            properties = source.get_create_plist()
            if properties.get_nfilters():
                properties.remove_filter(h5py.h5z.FILTER_DEFLATE)
            properties.set_chunk(old[name].chunks or old[name].shape)
            properties.set_deflate(4)
            h5py.h5d.create(new.id, name.encode(), source.get_type(), source.get_space(), dcpl=properties)
            new[name][...] = old[name][...]
    done = inspect(tmp_path / "old.hdf5")
    assert done.returncode == 0 and "obs/image" in done.stdout, done.stderr
