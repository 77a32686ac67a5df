"""The layout that trajctl chooses without --layout: a file whose structure fits a layout but whose content is bad is refused, and not
read by another layout."""
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL
from preprocess_station import Station


def trajctl(*arguments):
    return subprocess.run([TRAJCTL, *arguments], capture_output=True, text=True, timeout=60)


def write(path, states, **more):
    """Writes two demonstrations like robosuite's, in which column 0 of `states` is the time."""
    random = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for i in range(2):
            group = file.create_group(f"data/demo_{i + 1}")
            group["states"] = states
            group["actions"] = random.normal(size=(len(states), 7))
            for name, data in more.items():
                group[name.replace("__", "/")] = data
    return path


def states_with(times):
    states = np.random.default_rng(2).normal(size=(len(times), 9))
    states[:, 0] = times
    return states


def stored_twice():
    return states_with(np.tile(np.arange(40) * 0.05, 2))


def test_bad_content_ends_the_guess(tmp_path):
    write(tmp_path / "one.hdf5", stored_twice())
    for command in (["inspect"], ["init"], ["validate"], ["resample", "--rate", "10", "-o", tmp_path / "out.hdf5"]):
        done = trajctl(*command, tmp_path / "one.hdf5")
        text = done.stdout + done.stderr
        assert done.returncode != 0, command
        assert "layout robosuite_raw fits" in text and "states: row 40: the stamp goes back" in text and "choose another" in text, text
    assert not (tmp_path / "out.hdf5").exists()
    assert trajctl("inspect", "--layout", "robomimic", tmp_path / "one.hdf5").returncode == 0  # the user's own choice


def test_preprocess_publishes_nothing(tmp_path):
    source = write(tmp_path / "source.hdf5", stored_twice())
    station = Station(tmp_path, source)
    del station.keys["layout"]
    station.write(rate=10)
    station.drop()
    station.run("--once")
    assert not (station.outbox / "a.hdf5").exists()
    assert "goes back" in next(station.quarantine.glob("*.json")).read_text()


def test_bad_content_with_observations(tmp_path):
    """robomimic's structure fits, and its actions cannot be read: robosuite_raw would drop the actions and the observations."""
    write(tmp_path / "one.hdf5", states_with(np.arange(40) * 0.05), obs__x=np.zeros((40, 3)))
    with h5py.File(tmp_path / "one.hdf5", "r+") as file:
        for group in file["data"].values():
            del group["actions"]
            group["actions"] = np.zeros((40, 7), dtype=">f8")
    done = trajctl("inspect", tmp_path / "one.hdf5")
    assert done.returncode == 1 and "layout robomimic fits" in done.stderr and "actions: " in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("name, layout", [("good", "robosuite_raw"), ("obs", "robomimic"), ("groups", "robomimic")])
def test_another_structure_does_not_end_it(tmp_path, name, layout):
    path = tmp_path / "one.hdf5"
    times = states_with(np.arange(40) * 0.05)
    if name == "good":
        write(path, times)
    elif name == "obs":
        write(path, times, obs__x=np.zeros((40, 3)))
    else:  # "states" is a group, as in MimicGen: robosuite_raw does not fit
        with h5py.File(path, "w") as file:
            file["data/demo_0/actions"] = np.zeros((40, 7))
            file["data/demo_0/states/robot"] = np.zeros((40, 7))
    done = trajctl("inspect", path)
    assert done.returncode == 0 and f"layout {layout}," in done.stdout, done.stdout + done.stderr
