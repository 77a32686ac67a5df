"""trajctl validate --decode: cameras that stand still or lag, planted beside cameras that do not."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from moving_frames import FPS, SECONDS, frames_at, joints_at, swing_at
from paths import TRAJCTL
from image_files import png

LAYOUT = """\
layout: lab
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks:
  arm: {path: arm/t, unit: ns}
  camera: {path: camera/t, unit: ns}
streams:
  joints: {path: arm/joints, clock: arm, kind: linear, unit: rad}
  torques: {path: arm/torques, clock: arm, kind: linear}
  camera: {path: camera/frames, clock: camera, kind: previous, image: {color: rgb}}
"""

def write(path, frames, times, encode=None, joints=joints_at):
    """Writes an arm at 100 Hz and a camera. Its frames are raw, or padded rows of what `encode` returns."""
    arm = np.arange(SECONDS * 100) / 100
    with h5py.File(path, "w") as file:
        group = file.create_group("data/demo_0")
        group["arm/t"] = (arm * 1e9).astype(np.int64)
        group["arm/joints"] = joints(arm)
        group["arm/torques"] = np.random.default_rng(5).normal(size=(len(arm), 3))
        group["camera/t"] = (times * 1e9).astype(np.int64)
        if encode:
            rows = [encode(frame) for frame in frames]
            frames = np.zeros((len(rows), max(map(len, rows))), np.uint8)
            for row, data in zip(frames, rows):
                row[:len(data)] = np.frombuffer(data, np.uint8)
        group["camera/frames"] = frames


def validate(tmp_path, *arguments, layout=LAYOUT):
    (tmp_path / "lab.yaml").write_text(layout)
    command = [TRAJCTL, "validate", "--layout", tmp_path / "lab.yaml", "--json", *arguments, tmp_path / "one.hdf5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


TIMES = np.arange(SECONDS * FPS) / FPS


def lag_of(finding):
    """Returns the lag of a finding in ms, and its correlation."""
    words = finding["message"].split()
    late = {"late,": 1, "early,": -1}[words[words.index("too") + 1]]
    assert [finding[key] for key in ("rule", "file", "episode", "stream")] == ["lag", "one.hdf5", "demo_0", "camera"]
    return late * float(words[words.index("ms") - 1]), float(words[words.index("correlation") + 2])


@pytest.mark.parametrize("encode", [None, png])
@pytest.mark.parametrize("lag", [0.08, 0.25, -0.06, 0.025])
def test_a_camera_that_lags(tmp_path, lag, encode):
    write(tmp_path / "one.hdf5", frames_at(TIMES - lag), TIMES, encode)
    assert validate(tmp_path) == []
    finding, = validate(tmp_path, "--decode")
    found, correlation = lag_of(finding)
    assert abs(found - 1000 * lag) < 10 and correlation >= 0.5, finding
    assert validate(tmp_path, "--decode", "--ignore", "lag") == []
    for limit in ("--lag-frames=9", "--lag-correlation=1"):
        assert validate(tmp_path, "--decode", limit) == []
    corrected = LAYOUT.replace("path: camera/t,", f"path: camera/t, latency: {1000 * lag:.0f}ms,")
    assert lag < 0 or validate(tmp_path, "--decode", "--ignore", "ends-early", layout=corrected) == []


@pytest.mark.parametrize("lag", [0, 0.012, -0.012])
def test_a_camera_that_does_not_lag(tmp_path, lag):
    """Half an interval of frames is 16.7 ms."""
    write(tmp_path / "one.hdf5", frames_at(TIMES - lag), TIMES, png)
    assert validate(tmp_path, "--decode") == []
    for finding in validate(tmp_path, "--decode", "--lag-frames", "0.01"):
        assert abs(lag_of(finding)[0] - 1000 * lag) < 10


@pytest.mark.parametrize("lag", [0, 0.08])
def test_of_lags_that_fit_alike_the_smallest_counts(tmp_path, lag):
    write(tmp_path / "one.hdf5", frames_at(TIMES - lag, swing_at), TIMES, joints=swing_at)
    found = [lag_of(finding)[0] for finding in validate(tmp_path, "--decode")]
    assert found == [] if not lag else abs(found[0] - 80) < 10


def test_a_camera_that_sees_something_else(tmp_path):
    write(tmp_path / "one.hdf5", frames_at(TIMES[::-1] + 7), TIMES)
    assert validate(tmp_path, "--decode") == []


def stand_still(frames, begin, end):
    frames[begin:end] = frames[begin]
    return frames


@pytest.mark.parametrize("encode", [None, png])
def test_a_camera_that_stands_still(tmp_path, encode):
    """16 intervals of frames are 533 ms. The first time is shorter than the second."""
    frames = stand_still(stand_still(frames_at(TIMES), 100, 117), 300, 330)
    write(tmp_path / "one.hdf5", frames, TIMES, encode)
    finding, = validate(tmp_path, "--decode", "--ignore", "lag")
    assert (finding["rule"], finding["episode"], finding["stream"], finding["row"], finding["count"]) == (
        "stuck", "demo_0", "camera", 300, 30)
    assert finding["message"].startswith("30 frames from row 300 on are equal, for 0.967 s, while joints moves at ")
    assert validate(tmp_path, "--decode", "--ignore", "lag", "--stuck-time", "1s") == []
    assert validate(tmp_path, "--decode", "--ignore", "lag", "--stuck-motion", "1000") == []


def test_a_camera_that_stands_still_from_begin_to_end(tmp_path):
    write(tmp_path / "one.hdf5", stand_still(frames_at(TIMES), 0, len(TIMES)), TIMES)
    found = validate(tmp_path, "--decode", "--ignore", "constant", "--ignore", "idle")
    assert [(f["rule"], f["row"], f["count"]) for f in found] == [("stuck", 0, len(TIMES))]


def test_frames_may_be_equal_for_a_moment_and_while_nothing_moves(tmp_path):
    frames = stand_still(frames_at(TIMES), 100, 115)
    write(tmp_path / "one.hdf5", stand_still(frames, 300, 400), TIMES)
    with h5py.File(tmp_path / "one.hdf5", "r+") as file:
        for name in ("joints", "torques"):
            file[f"data/demo_0/arm/{name}"][990:1340] = file[f"data/demo_0/arm/{name}"][990]
    assert validate(tmp_path, "--decode", "--ignore", "lag") == []


def test_a_frame_that_is_damaged_ends_a_time(tmp_path):
    """It is not known whether it was equal."""
    write(tmp_path / "one.hdf5", stand_still(frames_at(TIMES), 300, 325), TIMES, png)
    with h5py.File(tmp_path / "one.hdf5", "r+") as file:
        file["data/demo_0/camera/frames"][312, 60:] = 0
    found = validate(tmp_path, "--decode", "--ignore", "lag")
    assert [(f["rule"], f["row"]) for f in found] == [("frames", 312)]


@pytest.mark.parametrize("seed", [1, 2, 11])
def test_many_joints_that_swing_fit_at_any_lag(seed, tmp_path):
    random = np.random.default_rng(seed)
    rates, begins, weights = random.uniform(0.3, 2, 14), random.uniform(0, 6, 14), random.standard_normal((14, 192))

    def swing(times):
        return np.sin(times[:, None] * rates + begins)

    frames = (128 + 20 * swing(TIMES) @ weights / 14).clip(0, 255).astype(np.uint8).reshape(-1, 8, 8, 3)
    write(tmp_path / "one.hdf5", frames, TIMES, joints=swing)
    assert validate(tmp_path, "--decode") == []
