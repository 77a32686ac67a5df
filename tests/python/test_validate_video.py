"""trajctl validate --decode: packed video that stands still or lags, planted beside video that does not."""
import json
import subprocess

import h5py
import numpy as np
import pytest
from moving_frames import FPS, SECONDS, joints_at
from paths import ROOT, TRAJCTL

from trajd.convert.video import Clip, describe

LAYOUT = """\
layout: lab
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks: {arm: {path: arm/t, unit: ns}, camera: {path: camera/t, unit: ns}}
streams:
  joints: {path: arm/joints, clock: arm, kind: linear, unit: rad}
  camera: {path: camera/frames, clock: camera, kind: previous, image: {color: rgb}}
"""
VIDEO = ROOT / "tests/golden/video/motion.mp4"  # AV1, a decode unit each second


@pytest.fixture
def found(tmp_path):
    """found(lag, still) writes an episode and returns the findings. From row `still` on, all rows of its unit show one packet."""
    def validate(lag=0.0, still=None):
        arm, frames = np.arange(SECONDS * 100) / 100, np.arange(SECONDS * FPS) / FPS
        with h5py.File(tmp_path / "one.hdf5", "w") as file:
            group = file.create_group("data/demo_0")
            group["arm/t"], group["arm/joints"] = (arm * 1e9).astype(np.int64), joints_at(arm + lag)
            group["camera/t"] = (frames * 1e9).astype(np.int64)
            Clip(describe(VIDEO, VIDEO.name), 0, len(frames), None).write(group, "camera/frames")
            if still is not None:
                group["camera/frames/rows"][still:still - still % FPS + FPS] = group["camera/frames/rows"][still]
        (tmp_path / "lab.yaml").write_text(LAYOUT)
        done = subprocess.run([TRAJCTL, "validate", "--decode", "--json", "--layout", tmp_path / "lab.yaml", tmp_path / "one.hdf5"],
                              capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)

    return validate


def test_video_that_keeps_step_is_no_finding(found):
    assert found() == []


@pytest.mark.parametrize("lag", [0.08, -0.06])
def test_video_that_lags(found, lag):
    finding, = found(lag=lag)
    words = finding["message"].split()
    assert finding["rule"] == "lag" and words[words.index("too") + 1] == ("late," if lag > 0 else "early,")
    assert abs(float(words[words.index("ms") - 1]) - 1000 * abs(lag)) < 10, finding


def test_video_that_stands_still(found):
    """29 intervals of frames are 967 ms. 15 are no longer than half a second."""
    assert found(still=15) == []
    finding, = found(still=300)
    assert [finding[key] for key in ("rule", "episode", "stream", "row", "count")] == ["stuck", "demo_0", "camera", 300, 30]
    assert finding["message"].startswith("30 frames from row 300 on are equal, for 0.967 s, while joints moves at ")
