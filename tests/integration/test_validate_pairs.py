"""trajctl validate: faults that two things show together, each planted beside a case that is correct."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import RECORDINGS, TRAJCTL

LAYOUT = """\
layout: lab
episodes: {files: "*.hdf5", groups: /data/demo_*}
filter: /mask/{key}
clocks:
  arm: {path: arm/t, unit: ns}
streams:
  joints: {path: arm/joints, clock: arm, kind: linear, unit: rad}
"""


def walk(rows, seed, columns=3):
    return np.cumsum(np.random.default_rng(seed).normal(scale=0.01, size=(rows, columns)), axis=0)


def write(path, episodes=4, rows=200):
    with h5py.File(path, "w") as file:
        for e in range(episodes):
            arm = file.create_group(f"data/demo_{e}/arm")
            arm["t"] = np.arange(rows, dtype=np.int64) * 10_000_000
            arm["joints"] = walk(rows, e)
    return path


def validate(tmp_path, *arguments, layout=LAYOUT):
    (tmp_path / "lab.yaml").write_text(layout)
    done = subprocess.run([TRAJCTL, "validate", "--layout", tmp_path / "lab.yaml", "--json", *arguments, tmp_path / "one.hdf5"],
                          capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout)
    assert done.returncode == bool(found), done.stderr
    return found


def write_masks(path, **masks):
    with h5py.File(write(path), "r+") as file:
        for name, episodes in masks.items():
            file[f"mask/{name}"] = np.array([f"demo_{e}" for e in episodes], "S")


def test_masks_that_share_an_episode(tmp_path):
    write_masks(tmp_path / "one.hdf5", train=[0, 1, 2], valid=[2, 1], half_train=[0], half_valid=[3], test=[0, 1])
    finding, = validate(tmp_path)
    assert (finding["rule"], finding["episode"], finding["count"]) == ("masks", "demo_1", 2)
    assert finding["message"] == "the masks train and valid share 2 episodes; this is the first"
    finding, = validate(tmp_path, "--masks", "train,test")
    assert finding["episode"] == "demo_0" and "the masks train and test share 2 episodes" in finding["message"]
    assert validate(tmp_path, "--ignore", "masks") == []


def test_masks_of_a_part_are_compared_with_each_other(tmp_path):
    write_masks(tmp_path / "one.hdf5", train=[0, 1], valid=[2, 3], half_train=[2], half_valid=[2])
    finding, = validate(tmp_path)
    assert finding["message"].startswith("the masks half_train and half_valid share 1 episode;") and finding["episode"] == "demo_2"


def test_masks_that_share_nothing(tmp_path):
    write_masks(tmp_path / "one.hdf5", train=[0, 1], valid=[2, 3], half=[0, 2])
    assert validate(tmp_path) == []


@pytest.mark.parametrize("value", ["train", "train,", ",valid", "a,b,c"])
def test_wrong_words_of_masks(value):
    done = subprocess.run([TRAJCTL, "validate", "--masks", value, "x"], capture_output=True, text=True)
    assert done.returncode == 2 and f"--masks {value}: expected two words, like train,valid" in done.stderr
