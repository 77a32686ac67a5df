"""trajctl validate: each rule on a file that breaks it, with the row that is wrong. Correct files give no message."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import RECORDINGS, TRAJCTL
from image_files import random_frames, write_encoded

LAYOUT = """\
layout: bad
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks:
  arm: {path: t, unit: ns, repeated: drop}
  strict: {path: t2, unit: ns}
streams:
  pos: {path: pos, clock: arm, kind: linear}
  quat: {path: quat, clock: strict, kind: slerp, order: xyzw}
  image: {path: image, clock: strict, kind: previous, optional: true}
  odd: {path: odd, clock: arm, kind: previous, optional: true}
"""


def unit_quaternions(random, rows):
    steps = np.cumsum(random.normal(scale=0.01, size=(rows, 4)), axis=0) + [0, 0, 0, 1]
    return steps / np.linalg.norm(steps, axis=1, keepdims=True)


def write(path, change=lambda group: None):
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name in ("demo_0", "demo_1"):
            group = file.create_group(f"data/{name}")
            group["t"] = group["t2"] = np.arange(100, dtype=np.int64) * 10_000_000
            group["pos"] = random.normal(size=(100, 3))
            group["quat"] = unit_quaternions(random, 100)
            group["image"] = random.integers(0, 255, size=(100, 64, 64, 3), dtype=np.uint8)
        change(file["data/demo_1"])


def validate(tmp_path, *arguments):
    (tmp_path / "bad.yaml").write_text(LAYOUT)
    done = subprocess.run([TRAJCTL, "validate", "--layout", tmp_path / "bad.yaml", "--json", *arguments, tmp_path / "one.hdf5"],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def replace(group, name, change):
    data = group[name][...]
    change(data)
    del group[name]
    group[name] = data


def shift(data):
    data[40:] += 30_000_000


def repeat(data):
    data[17] = data[16]


def nan(data):
    data[[33, 60], 1] = np.nan


def shrink(data):
    data[5] *= 0.9


def negate(data):
    data[71:] *= -1


def negate_some(data):
    data[20:50] *= -1


def freeze(data):
    data[10:90] = data[10]


SPOILT = [  # rule, dataset, change, stream or clock, row, count
    ("gaps", "t", shift, "arm", 39, 1),
    ("not-finite", "pos", nan, "pos", 33, 2),
    ("not-unit", "quat", shrink, "quat", 5, 1),
    ("sign-flips", "quat", negate, "quat", 71, 1),
]


def test_nothing_found(tmp_path):
    write(tmp_path / "one.hdf5")
    assert validate(tmp_path) == (0, [])


@pytest.mark.parametrize("rule, name, change, stream, row, count", SPOILT, ids=[s[0] for s in SPOILT])
def test_rules_of_an_episode(tmp_path, rule, name, change, stream, row, count):
    write(tmp_path / "one.hdf5", lambda group: replace(group, name, change))
    status, found = validate(tmp_path)
    assert status == 1 and [f["rule"] for f in found] == [rule], found
    assert (found[0]["episode"], found[0]["stream"], found[0]["row"], found[0]["count"]) == ("demo_1", stream, row, count)
    assert validate(tmp_path, "--ignore", rule) == (0, [])


def test_sign_flips_of_all_episodes_are_one_line(tmp_path):
    """JSON has one finding an episode."""
    write(tmp_path / "one.hdf5", lambda group: replace(group, "quat", negate))
    with h5py.File(tmp_path / "one.hdf5", "r+") as file:
        replace(file["data/demo_0"], "quat", negate_some)
        replace(file["data/demo_0"], "pos", nan)
    status, found = validate(tmp_path)
    flips = [(f["episode"], f["row"], f["count"]) for f in found if f["rule"] == "sign-flips"]
    assert status == 1 and flips == [("demo_0", 20, 2), ("demo_1", 71, 1)], found
    done = subprocess.run([TRAJCTL, "validate", "--layout", tmp_path / "bad.yaml", tmp_path / "one.hdf5"], capture_output=True, text=True,
                          timeout=60)
    lines = [line for line in done.stdout.splitlines() if line.startswith("sign-flips")]
    assert len(lines) == 1 and done.stdout.endswith("2 findings\n") and done.returncode == 1, done.stdout
    assert lines[0].endswith("quat: in " + str(tmp_path / "one.hdf5") + ": 3 times a quaternion changes its sign, in 2 episodes, first in "
                             "one.hdf5: demo_0 at row 20 (slerp takes the shorter arc)")


def test_dropped_rows_leave_a_gap(tmp_path):
    write(tmp_path / "one.hdf5", lambda group: replace(group, "t", repeat))
    status, found = validate(tmp_path)
    assert status == 1 and [(f["rule"], f["stream"], f["row"], f["count"]) for f in found] == [("stamps", "arm", 17, 1), ("gaps", "arm", 16, 1)]
    assert found[1]["message"].startswith("1 gap, the first after row 16"), found


def test_quarantined_and_left_out(tmp_path):
    def change(group):
        replace(group, "t2", repeat)
        group["odd"] = np.zeros((3, 2), dtype=np.complex64)

    write(tmp_path / "one.hdf5", change)
    status, found = validate(tmp_path)
    assert status == 1 and sorted(f["rule"] for f in found) == ["left-out", "quarantined"], found
    assert "demo_1" in found[0]["message"] and "row 17" in next(f for f in found if f["rule"] == "quarantined")["message"]


def test_constant_columns_and_frozen_images(tmp_path):
    write(tmp_path / "one.hdf5")
    with h5py.File(tmp_path / "one.hdf5", "r+") as file:
        for group in file["data"].values():
            replace(group, "pos", lambda data: data[:, 2].fill(0.25))
            replace(group, "image", freeze)
    status, found = validate(tmp_path)
    assert status == 1 and [f["rule"] for f in found] == ["constant", "idle"], found
    assert "column 2 (0.25)" in found[0]["message"] and "80%" in found[1]["message"]


def test_what_is_no_file_of_episodes(tmp_path):
    (tmp_path / "one.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    status, found = validate(tmp_path)
    assert status == 1 and [f["rule"] for f in found] == ["refused"], found
    done = subprocess.run([TRAJCTL, "validate", tmp_path], capture_output=True, text=True)
    assert done.stdout.endswith("\n1 finding\n"), done.stdout


def test_a_chunk_that_does_not_inflate(tmp_path):
    write(tmp_path / "one.hdf5")
    with h5py.File(tmp_path / "one.hdf5", "r+") as file:
        data = file["data/demo_1/pos"][...]
        del file["data/demo_1/pos"]
        stored = file.create_dataset("data/demo_1/pos", data=data, chunks=(10, 3), compression="gzip")
        chunk = stored.id.get_chunk_info(4)
    with open(tmp_path / "one.hdf5", "r+b") as file:
        file.seek(chunk.byte_offset + 10)
        file.write(b"\xff" * 40)
    status, found = validate(tmp_path)
    assert status == 1 and found and {f["rule"] for f in found} <= {"unreadable", "quarantined"}, found


def test_an_unknown_rule():
    done = subprocess.run([TRAJCTL, "validate", "--ignore", "gap", "x"], capture_output=True, text=True)
    assert done.returncode == 2 and "gaps" in done.stderr


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not beside this checkout")
def test_recordings():
    """Known facts of published files: the roboturk pilots of 2018 dropped frames, the panda demonstrations are
    clean."""
    done = subprocess.run([TRAJCTL, "validate", RECORDINGS / "robosuite_SawyerLift_demo.hdf5"], capture_output=True, text=True)
    assert done.returncode == 1 and "demo_1/sim: 10 gaps, the first after row 98" in done.stdout
    lift = RECORDINGS / "robosuite_lift_panda_demo.hdf5"
    done = subprocess.run([TRAJCTL, "validate", "--ignore", "quaternions", lift], capture_output=True, text=True)
    assert done.returncode == 0 and "no findings" in done.stdout


def test_decode_finds_frames_that_are_cut_off(tmp_path):
    """A good header and half of the pixels: only decoding shows it."""
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(40, 32, 32, 1)}, bad=[("top", 5), ("top", 37)])

    def run(*options):
        return subprocess.run([TRAJCTL, "validate", *options, "--ignore", "constant", "--ignore", "assumed-rate", tmp_path],
                              capture_output=True, text=True, timeout=60)

    done = run()
    assert "40 frames not decoded" in done.stdout and "cannot be decoded" not in done.stdout, done.stdout
    done = run("--decode")
    assert done.returncode == 1 and "not decoded" not in done.stdout, done.stderr
    assert "episode_0.hdf5" in done.stdout and "/observations/images/top: 2 frames cannot be decoded, the first is row 5: " in done.stdout
    found = [finding for finding in json.loads(run("--decode", "--json").stdout) if finding["rule"] == "frames"]
    assert [(finding["row"], finding["count"]) for finding in found] == [(5, 2)]
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(40, 32, 32, 1)})
    assert "cannot be decoded" not in run("--decode").stdout
    assert "not decoded" not in run("--ignore", "frames").stdout
