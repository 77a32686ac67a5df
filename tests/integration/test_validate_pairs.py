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
    command = [TRAJCTL, "validate", "--layout", tmp_path / "lab.yaml", "--json", *arguments, tmp_path / "one.hdf5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
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
    assert finding["message"] == "the masks half_train and half_valid share 1 episode; this is the first"
    assert finding["episode"] == "demo_2"


def test_masks_that_share_nothing(tmp_path):
    write_masks(tmp_path / "one.hdf5", train=[0, 1], valid=[2, 3], half=[0, 2])
    assert validate(tmp_path) == []


@pytest.mark.parametrize("value", ["train", "train,", ",valid", "a,b,c"])
def test_wrong_words_of_masks(value):
    done = subprocess.run([TRAJCTL, "validate", "--masks", value, "x"], capture_output=True, text=True)
    assert done.returncode == 2 and f"--masks {value}: expected two words, like train,valid" in done.stderr


CLOCKS = LAYOUT.replace("streams:", """\
  arm_log: {path: arm/log, unit: ns}
  force: {path: force/t, unit: ns}
  camera: {path: camera/t, unit: ns}
streams:
  arm_log: {path: arm/log, clock: arm_log, kind: previous}
  force: {path: force/value, clock: force, kind: linear}
  camera: {path: camera/value, clock: camera, kind: linear}""")

ENDS = ("--ignore", "gaps", "--ignore", "ends-early")  # what else a fast clock with lost rows shows


def write_clocks(path, ppm, drifting, seconds=61, lose=()):
    """Writes an arm at 100 Hz, whose rows have a log time, too, forces at 500 Hz and a camera at 30 Hz, all with
    jitter. The time of `drifting` runs faster by `ppm`; the camera loses rows."""
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        group = file.create_group("data/demo_0")
        for name, rate, jitter in (("arm", 100, 1e-3), ("force", 500, 0.1e-3), ("camera", 30, 3e-3)):
            times = np.arange(seconds * rate) / rate
            times = times + random.uniform(0, jitter, len(times))
            if name == "arm":
                log = times + 0.002 + random.exponential(0.001, len(times)).clip(0, 0.004)
                group["arm/log"] = (log * (1 + 1e-6 * ppm * (drifting == "arm_log")) * 1e9).astype(np.int64)
            if name == "camera":
                times = np.delete(times, list(lose))
            group[f"{name}/t"] = (times * (1 + 1e-6 * ppm * (drifting == name)) * 1e9).astype(np.int64)
            group[f"{name}/{'joints' if name == 'arm' else 'value'}"] = walk(len(times), 0)
    return path


@pytest.mark.parametrize("ppm", [-40, 30, 300])
@pytest.mark.parametrize("drifting, partners", [
    ("arm_log", {"arm": "row by row", "force": "5 to 1", "camera": "3 to 10"}),
    ("camera", {"arm": "3 to 10", "arm_log": "3 to 10", "force": "3 to 50"})])
def test_drift(tmp_path, drifting, partners, ppm):
    """Each clock tells of the clocks before it; the camera is the last."""
    write_clocks(tmp_path / "one.hdf5", ppm, drifting, lose=[500, 501, 1200])
    found = validate(tmp_path, *ENDS, layout=CLOCKS)
    told = set()
    for finding in found:
        clock, = {finding["stream"], finding["message"].split("clock ")[1].split(",")[0]} - {drifting}
        measured = float(finding["message"].split("runs ")[1].split()[0])
        faster = (ppm > 0) == (finding["stream"] == drifting)
        assert abs(measured - abs(ppm)) < 5, finding
        assert f" ppm {'faster' if faster else 'slower'} than" in finding["message"], finding
        assert (finding["rule"], finding["episode"]) == ("drift", "demo_0")
        assert partners[clock] in finding["message"]
        told.add(clock)
    assert len(found) == 3 and told == partners.keys()
    assert validate(tmp_path, *ENDS, "--drift-ppm", "400", layout=CLOCKS) == []


@pytest.mark.parametrize("ppm, drifting, seconds", [
    (0, "arm_log", 61), (10, "arm_log", 61), (10, "camera", 61), (300, "camera", 59), (1000, "camera", 61)])
def test_no_drift(tmp_path, ppm, drifting, seconds):
    """Too little, for too short, or so much that it is another rate (29.97 Hz)."""
    write_clocks(tmp_path / "one.hdf5", ppm, drifting, seconds)
    assert validate(tmp_path, *ENDS, layout=CLOCKS) == []
    if seconds < 60:
        assert [f["rule"] for f in validate(tmp_path, *ENDS, "--drift-time", "30s", layout=CLOCKS)] == ["drift"] * 3


def copy_rows(path, spoil):
    """Makes demo_2 a copy of demo_0 that `spoil` changes."""
    with h5py.File(path, "r+") as file:
        joints = spoil(file["data/demo_0/arm/joints"][...])
        del file["data/demo_2"]
        file["data/demo_2/arm/joints"] = joints
        file["data/demo_2/arm/t"] = np.arange(len(joints), dtype=np.int64) * 10_000_000
    return path


def shake(rows, scale, part=1.0):
    """Returns rows of which the last ones are moved by `scale` median changes."""
    change = np.median(np.linalg.norm(np.diff(rows, axis=0), axis=1))
    moved = rows.copy()
    moved[max(1, round(len(rows) * (1 - part))):, 0] += scale * change
    return moved


@pytest.mark.parametrize("spoil, percent", [
    (lambda rows: rows, "100.0"), (lambda rows: shake(rows, 2.9), "100.0"),
    (lambda rows: shake(rows, 50, 0.04), "96.0"), (lambda rows: rows[:194], "97.0"),
    (lambda rows: np.vstack([rows, rows[:4]]), "98.0")])
def test_duplicates(tmp_path, spoil, percent):
    copy_rows(write(tmp_path / "one.hdf5"), spoil)
    finding, = validate(tmp_path, "--ignore", "ends-early")
    assert (finding["rule"], finding["episode"], finding["stream"]) == ("duplicates", "demo_2", None)
    assert finding["message"] == (
        "nearly repeats one.hdf5: demo_0: the first rows are equal, and of joints, which differs most, "
        f"{percent}% of the rows are within 3 median changes from row to row (95% or more is a finding)")
    assert validate(tmp_path, "--ignore", "duplicates") == []


@pytest.mark.parametrize("spoil", [
    lambda rows: shake(rows, 3.1), lambda rows: shake(rows, 50, 0.06), lambda rows: rows[:180],
    lambda rows: np.vstack([rows[:1] + 1e-9, rows[1:]]), lambda rows: np.vstack([rows[:1], rows[:1] + walk(199, 9)])])
def test_episodes_that_begin_alike_or_differ_in_the_first_row(tmp_path, spoil):
    copy_rows(write(tmp_path / "one.hdf5"), spoil)
    assert validate(tmp_path) == []


def test_limits_of_duplicates(tmp_path):
    copy_rows(write(tmp_path / "one.hdf5"), lambda rows: shake(rows, 5, 0.5))
    assert validate(tmp_path) == []
    assert "within 6 median changes" in validate(tmp_path, "--duplicate-changes", "6")[0]["message"]
    assert "50.0% of the rows" in validate(tmp_path, "--duplicate-rows=40")[0]["message"]


def test_three_of_one_kind_are_two_duplicates(tmp_path):
    with h5py.File(copy_rows(write(tmp_path / "one.hdf5"), lambda rows: rows), "r+") as file:
        file.copy("data/demo_2", "data/demo_4")
    found = validate(tmp_path)
    assert [f["episode"] for f in found] == ["demo_2", "demo_4"]
    assert all(f["message"].startswith("nearly repeats one.hdf5: demo_0: ") for f in found)


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not beside this checkout")
def test_recordings_have_none(tmp_path):
    for path in sorted(RECORDINGS.glob("*.hdf5")):
        done = subprocess.run([TRAJCTL, "validate", "--json", path], capture_output=True, text=True)
        assert {f["rule"] for f in json.loads(done.stdout)} <= {"gaps", "idle", "quaternions", "constant"}, path
