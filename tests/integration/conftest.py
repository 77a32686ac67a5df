"""Fixtures for tests of installed programs, and of trajctl's subcommands that write files."""
import os
import pathlib
import shutil
import tempfile

import pytest
from datasets import make_demo_file, make_long_file
from guide_pages import Shell
from installing import install
from paths import PACKAGE
from preprocess_station import Station


@pytest.fixture
def fast_path():
    """A folder in /dev/shm where that is writable: tests that sync hundreds of MB are slow on a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield pathlib.Path(folder)


@pytest.fixture(scope="session")
def long_file(tmp_path_factory):
    """A file that takes long enough to resample that a run can be interrupted."""
    return make_long_file(tmp_path_factory.mktemp("long") / "long.hdf5")


@pytest.fixture(scope="session")
def small_file(tmp_path_factory):
    """Eight episodes, one of which has a gap."""
    return make_demo_file(tmp_path_factory.mktemp("small") / "small.hdf5", episodes=8)


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """A folder in which the build under test is installed."""
    if not all(map(shutil.which, ("pkg-config", "gcc", "cmake"))):
        pytest.skip("pkg-config, gcc or cmake is missing")
    folder = tmp_path_factory.mktemp("prefix")
    install(folder)
    return folder


@pytest.fixture
def station(tmp_path, small_file):
    """An inbox for `trajctl preprocess` into which small_file can be dropped."""
    return Station(tmp_path, small_file)


@pytest.fixture
def shell():
    """A folder in which the blocks of a page run."""
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:  # a socket's path is short
        one = Shell(pathlib.Path(folder))
        if not one.torch:
            pytest.skip("no Python of this machine has torch")
        yield one
        one.end()
