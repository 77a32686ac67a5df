"""Columns that hardly vary: `trajctl check` warns of them, and the daemon of those that it normalises."""
import subprocess

import h5py
import numpy as np
import pytest

from daemons import Daemon
from paths import TRAJCTL

FEED = """
datasets: {{lab: {{path: {path}, layout: robomimic}}}}
feeds:
  train:
    dataset: lab
    global_batch: 64
    anchor: {{clock: actions}}
    outputs:
      actions: {{at: 0{norm}}}
      obs/force: {{at: 0}}
"""
ONE_VALUE = "actions: one value (0.5) in all rows, as of a dead sensor or a gripper that never moves: column 1"
NOISE = "actions: hardly varies, as a dead sensor: column 2. norm makes this noise as large as other values: leave it out with norm.mask"
LARGE = "actions: hardly varies but for some rows, which norm makes as large as 100: column 3. Use norm: min_max, or norm.mask, or norm.min_std"
DEAD = "obs/force: one value (0) in all rows, as of a dead sensor or a gripper that never moves: column 0 and 2 more"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """20 episodes of 500 rows: a column that varies, a constant, noise, and a gripper that moves in one row."""
    path = tmp_path_factory.mktemp("columns") / "lab.hdf5"
    values = np.random.default_rng(1).random((20, 500, 4))
    values[..., 1] = 0.5
    values[..., 2] = 0.5 + 1e-5 * values[..., 2]
    values[..., 3] = 0
    values[3, 7, 3] = 1
    with h5py.File(path, "w") as out:
        for number, rows in enumerate(values):
            out[f"data/demo_{number}/actions"] = rows
            out[f"data/demo_{number}/obs/force"] = np.zeros((500, 3))
    return path


def warnings_of_check(folder, file, norm):
    daemon = Daemon(folder, FEED.format(path=file, norm=norm))
    done = subprocess.run([TRAJCTL, "check", daemon.config], env=daemon.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.partition("warning: ")[2] for line in done.stdout.splitlines() if "warning: " in line]


@pytest.mark.parametrize("norm, warnings", [
    ("", [ONE_VALUE, DEAD]), (", norm: mean_std", [ONE_VALUE, NOISE, LARGE, DEAD]), (", norm: min_max", [ONE_VALUE, NOISE, DEAD]),
    (", norm: {by: mean_std, mask: [true, false, false, false]}", [ONE_VALUE, DEAD])])
def test_check_warns(file, tmp_path, norm, warnings):
    assert warnings_of_check(tmp_path, file, norm) == warnings
    assert warnings_of_check(tmp_path, file, norm) == warnings, "with statistics from the cache"


def test_workers_learn_what_norm_does(file, daemon):
    one = daemon(FEED.format(path=file, norm=", norm: mean_std"))
    client = one.client()
    info = client.open("train")
    assert [NOISE in one.text(), LARGE in one.text(), DEAD in one.text()] == [True, True, False]
    client.close()
    assert info
