"""`repeated: drop` and its relatives: an episode that loses more rows than `lost_rows` allows is quarantined; fewer are counted and shown."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import PROGRAM, TRAJCTL

LAYOUT = """\
layout: lab
episodes: {{files: "*.hdf5", groups: /data/demo_*}}
clocks:
  arm: {{path: t, unit: ns, {policy}}}
streams:
  pos: {{path: pos, clock: arm, kind: linear}}
"""
CONFIG = """\
version: 2
datasets: {one: {path: one.hdf5, layout: ./lab.yaml}}
feeds: {one: {dataset: one, global_batch: 4, anchor: {clock: arm}, outputs: {pos: {at: 0..0}}}}
"""


def write(folder, lost, policy="repeated: drop", rows=158):
    """Writes two episodes. In the second one `lost` rows have the stamp of the row before."""
    (folder / "lab.yaml").write_text(LAYOUT.format(policy=policy))
    with h5py.File(folder / "one.hdf5", "w") as file:
        for name, repeats in (("demo_0", 0), ("demo_1", lost)):
            stamps = np.arange(rows, dtype=np.int64) * 10_000_000
            stamps[rows - repeats:] = stamps[rows - repeats - 1]
            file[f"data/{name}/t"] = stamps
            file[f"data/{name}/pos"] = np.zeros((rows, 3))


def inspect(folder):
    done = subprocess.run([TRAJCTL, "inspect", "--json", "--layout", folder / "lab.yaml", folder / "one.hdf5"], capture_output=True, text=True,
                          timeout=60)
    index = json.loads(done.stdout)
    return done.returncode, index[0] if isinstance(index, list) else index


@pytest.mark.parametrize("lost, policy, kept", [
    (157, "repeated: drop", False), (16, "repeated: drop", False), (15, "repeated: drop", True), (157, "repeated: keep_last", False),
    (16, "repeated: drop, lost_rows: 20%", True), (15, "repeated: drop, lost_rows: 0%", False), (157, "repeated: drop, lost_rows: 100%", True)])
def test_lost_rows(tmp_path, lost, policy, kept):
    write(tmp_path, lost, policy)
    status, index = inspect(tmp_path)
    reason = index["episodes"][1]["quarantine"]
    assert index["kept_count"] == 1 + kept
    if kept:
        assert reason is None and index["clocks"][0]["dropped_rows"] == lost
    else:
        assert f"demo_1: t: {lost} of 158 rows" in reason and "lost_rows" in reason and index["clocks"][0]["dropped_rows"] == 0
        done = subprocess.run([TRAJCTL, "validate", "--layout", tmp_path / "lab.yaml", tmp_path / "one.hdf5"], capture_output=True, text=True)
        assert done.returncode == 1 and "quarantined" in done.stdout and f"{lost} of 158 rows" in done.stdout


def test_going_back(tmp_path):
    write(tmp_path, 0, "backward: drop")
    with h5py.File(tmp_path / "one.hdf5", "r+") as file:
        file["data/demo_1/t"][100:] -= 1_000_000_000
    assert "58 of 158 rows" in inspect(tmp_path)[1]["episodes"][1]["quarantine"]


def test_check_shows_the_rows(tmp_path):
    write(tmp_path, 15)
    (tmp_path / "trajd.yaml").write_text(CONFIG)
    for command in ([TRAJCTL, "check", tmp_path / "trajd.yaml"], [PROGRAM, "--check", "--config", tmp_path / "trajd.yaml"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "15 of 316 rows are left out: their stamps repeat or go back" in done.stdout + done.stderr, done


@pytest.mark.parametrize("text", ["0.1", "ten", "-1%", "101%", "nan%", "10 percent"])
def test_mistakes(tmp_path, text):
    write(tmp_path, 0, f"repeated: drop, lost_rows: {text}")
    done = subprocess.run([TRAJCTL, "inspect", "--layout", tmp_path / "lab.yaml", tmp_path / "one.hdf5"], capture_output=True, text=True)
    assert done.returncode == 1 and "lab.yaml:4" in done.stderr and "10%" in done.stderr, done.stderr
