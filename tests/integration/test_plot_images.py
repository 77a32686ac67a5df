"""trajctl plot of images: a film strip of frames as a policy gets them."""
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL
from image_files import nearest, random_frames, read_png, write_encoded

GAP = 4
TOP = "observations/images/top"


@pytest.fixture
def arm(tmp_path):
    """An episode of 25 rows at 50 Hz, of which row 12 cannot be decoded. Returns the file and the frames."""
    frames = random_frames(25, 24, 32, 1)
    write_encoded(tmp_path / "episode_0.hdf5", {"top": frames}, bad=[("top", 12)])
    return tmp_path / "episode_0.hdf5", frames


def plot(path, *arguments, check=True):
    output = path.parent / "strip.png"
    output.unlink(missing_ok=True)
    done = subprocess.run([TRAJCTL, "plot", path, TOP, "-o", output, *arguments], capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, done.stderr
    return done, read_png(output) if done.returncode == 0 else None


def frame_of(strip, number, height, width):
    top, left = number // 10 * (height + GAP), number % 10 * (width + GAP)
    return strip[top:top + height, left:left + width]


def test_ten_frames_are_spread_over_the_episode(arm):
    path, frames = arm
    done, strip = plot(path)
    rows = [24 * i // 9 for i in range(10)]
    assert "rows 0 (0.000 s), 2 (0.040 s), " in done.stdout and "24 (0.480 s)" in done.stdout and done.stderr.count("\n") == 1
    assert strip.shape == (24, 10 * 32 + 9 * GAP, 3) and (strip[:, 32:32 + GAP] == 255).all()
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(frame_of(strip, i, 24, 32), frames[row])


def test_a_rate_and_a_span_choose_frames_and_a_bad_one_is_grey(arm):
    path, frames = arm
    done, strip = plot(path, "--from", "100ms", "--to", "420ms", "--rate", "40", "--resize", "12x20", "--filter", "nearest")
    rows = [5 + int(i * 50 / 40) for i in range(13)]
    assert 12 in rows and strip.shape == (2 * 12 + GAP, 10 * 20 + 9 * GAP, 3)
    for i, row in enumerate(rows):
        expected = np.full((12, 20, 3), 128) if row == 12 else nearest(frames[row], 12, 20)
        np.testing.assert_array_equal(frame_of(strip, i, 12, 20), expected)
    assert (frame_of(strip, 13, 12, 20) == 255).all()
    assert "note: 1 of them cannot be decoded and are grey: " + TOP + ": row 12: " in done.stderr


@pytest.mark.parametrize("arguments, message", [
    (["--rate", "100000"], "48001 frames are too many for one image, which has up to 100"),
    (["--from", "2s"], "has no rows in that span"),
    (["--kind", "linear"], "which are never blended"),
    (["--resize", "12"], "expected HEIGHTxWIDTH"),
    (["--episode", "episode_7.hdf5"], "there is no episode"),
    (["--resize", "8000x4000"], "are too large for one image"),
])
def test_mistakes_are_named(arm, arguments, message):
    done, _ = plot(arm[0], *arguments, check=False)
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_a_file_is_needed_and_is_not_overwritten(arm):
    path, _ = arm
    done = subprocess.run([TRAJCTL, "plot", path, TOP], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "name a file for the film strip, -o FILE.png" in done.stderr
    (path.parent / "there.png").write_text("mine")
    done = subprocess.run([TRAJCTL, "plot", path, TOP, "-o", path.parent / "there.png"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and (path.parent / "there.png").read_text() == "mine"


def test_colours_and_flips_are_those_of_a_feed(tmp_path):
    frames = random_frames(3, 8, 8, 2)
    with h5py.File(tmp_path / "cam.h5", "w") as file:
        file["demo_0/q"], file["demo_0/cam"] = np.zeros((3, 2)), frames
    (tmp_path / "cam.yaml").write_text("""layout: cam
episodes: {files: "*.h5", groups: /demo_*}
clocks: {steps: {rate: 30, rows: q}}
streams: {q: {path: q, kind: linear}, cam: {path: cam, kind: previous, image: {color: bgr, flip: 180}}}
""")
    subprocess.run([TRAJCTL, "plot", tmp_path / "cam.h5", "cam", "--layout", tmp_path / "cam.yaml", "-o", tmp_path / "strip.png"], check=True,
                   capture_output=True, timeout=60)
    strip = read_png(tmp_path / "strip.png")
    np.testing.assert_array_equal(frame_of(strip, 2, 8, 8), frames[2][::-1, ::-1, ::-1])
