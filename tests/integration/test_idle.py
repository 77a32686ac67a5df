"""trajctl validate --idle: rows in which nothing moves, against numpy, and the file in a feed."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL

LAYOUT = """\
layout: arm
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks:
  arm: {rate: 15, rows: pos}
streams:
  pos: {path: pos, clock: arm, kind: linear}
  vel: {path: vel, clock: arm, kind: previous}
  image: {path: image, clock: arm, kind: previous, optional: true}
"""
STAMPED = """\
layout: arm
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks: {late: {path: t, unit: ns, repeated: drop}}
streams: {odd: {path: odd, clock: late, kind: linear}}
"""
ROWS = 200


def still(values, tolerance):
    """openpi's rule for a row, of compute_droid_nonidle_ranges.py."""
    return np.hstack([[False], np.all(np.abs(values[1:] - values[:-1]) <= tolerance, axis=1)])


def ranges(idle, least):
    """The rows outside runs of at least `least` idle rows."""
    keep = np.ones(len(idle), bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], idle, [False]]).astype(int)))
    for begin, end in zip(edges[::2], edges[1::2]):
        keep[begin:end] = end - begin < least
    edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]).astype(int)))
    return [[int(b), int(e)] for b, e in zip(edges[::2], edges[1::2])]


@pytest.fixture
def arms(tmp_path):
    """Two files. The arms move, and stand still for runs of 1 to 40 rows, with some noise of 4e-4 in demo_1."""
    random = np.random.default_rng(4)
    (tmp_path / "arm.yaml").write_text(LAYOUT)
    (tmp_path / "arms").mkdir()
    arms = {}
    for name, demos in (("a.hdf5", 2), ("b.hdf5", 1)):
        with h5py.File(tmp_path / "arms" / name, "w") as file:
            for e in range(demos):
                moves = np.zeros(ROWS, bool)
                for begin in range(0, ROWS, 40):
                    moves[begin:begin + int(random.integers(1, 39))] = True
                steps = random.normal(size=(ROWS, 3)) * moves[:, None]
                pos = np.cumsum(steps, axis=0) + (random.uniform(0, 4e-4, (ROWS, 3)) if e else 0)
                group = file.create_group(f"data/demo_{e}")
                group["pos"], group["vel"] = pos, np.round(steps, 1)
                group["image"] = np.zeros((ROWS, 64, 64, 3), "u1")
                arms[f"{name}:demo_{e}"] = pos, np.round(steps, 1)
    return arms


def run(tmp_path, *options, output="keep.json"):
    done = subprocess.run([TRAJCTL, "validate", "--layout", tmp_path / "arm.yaml", "--idle", tmp_path / output, *options,
                           tmp_path / "arms"], capture_output=True, text=True, timeout=60)
    return done, json.loads((tmp_path / output).read_text()) if (tmp_path / output).exists() else None


@pytest.mark.parametrize("stream, tolerance, length, least", [
    ("pos", 0, "1s", 15), ("pos", 1e-3, "1s", 15), ("pos", 1e-3, "466ms", 7), ("vel", 1e-3, "466ms", 7), ("pos", 1e9, "100s", 9999)])
def test_idle_rows_are_those_of_numpy(tmp_path, arms, stream, tolerance, length, least):
    options = ["--idle-tolerance", str(tolerance), "--idle-length", length]
    done, found = run(tmp_path, *options, *(["--idle-streams", "vel"] if stream == "vel" else []))
    want = {key: ranges(still(values[stream == "vel"], tolerance), least) for key, values in arms.items()}
    assert found == want, done.stdout
    idle = sum(ROWS - sum(e - b for b, e in runs) for runs in want.values())
    episodes = sum(ROWS > sum(e - b for b, e in runs) for runs in want.values())
    assert f"idle: {idle} of {3 * ROWS} rows, in {episodes} of 3 episodes; {tmp_path}/keep.json has the others" in done.stdout
    assert least == 9999 or idle > 0


def test_a_feed_takes_the_file(daemon, tmp_path, arms):
    _, found = run(tmp_path, "--idle-tolerance", "1e-3")
    one = daemon(f"""
datasets: {{arms: {{path: {tmp_path}/arms, layout: {tmp_path}/arm.yaml}}}}
feeds:
  train: {{dataset: arms, ranges: {tmp_path}/keep.json, global_batch: 8, tail: short, anchor: {{clock: arm}}, outputs: {{pos: {{at: 0}}}}}}
""")
    client = one.client()
    info = client.open("train")
    assert info.window_count == sum(e - b for runs in found.values() for b, e in runs) and info.warning_count == 0
    client.close()


def test_rows_that_the_clock_drops_are_not_counted(tmp_path):
    """The file counts the rows of the clock, not those of the array."""
    (tmp_path / "arm.yaml").write_text(STAMPED)
    (tmp_path / "arms").mkdir()
    with h5py.File(tmp_path / "arms" / "b.hdf5", "w") as file:
        stamps = np.arange(100, dtype=np.int64) * 100_000_000
        stamps[10] = stamps[9]  # the layout drops row 10
        odd = np.arange(100, dtype="f8")
        odd[50:80] = odd[50]
        file["data/demo_0/t"], file["data/demo_0/odd"] = stamps, odd
    done, found = run(tmp_path)
    assert found == {"b.hdf5:demo_0": [[0, 50], [79, 99]]}, done


@pytest.mark.parametrize("options, status, message", [
    (["--idle-streams", "poss"], 1, "no stream poss (did you mean pos?)"),
    (["--idle-streams", "pos,image"], 1, "stream image has encoded or wide rows"),
    (["--idle-length", "0"], 2, "is not a time above 0 (such as"),
    (["--idle-tolerance", "-1"], 2, "expected a number of at least 0"),
    (["another.hdf5"], 2, "--idle describes one dataset")])
def test_mistakes(tmp_path, arms, options, status, message):
    done, found = run(tmp_path, *options)
    assert done.returncode == status and message in done.stderr and found is None, done


def test_an_existing_file_stays(tmp_path, arms):
    (tmp_path / "keep.json").write_text('"mine"')
    done, found = run(tmp_path)
    assert done.returncode == 1 and "keep.json: File exists" in done.stderr and found == "mine", done
    done = subprocess.run([TRAJCTL, "validate", "--idle-length", "1s", tmp_path / "arms"], capture_output=True, text=True)
    assert done.returncode == 2 and "need --idle FILE" in done.stderr
