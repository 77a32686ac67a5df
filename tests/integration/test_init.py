"""trajctl init and check: the daemon accepts the configuration that `init` guesses from a file."""
import subprocess

import pytest

from paths import RECORDINGS, TRAJCTL


def trajctl(*arguments):
    return subprocess.run([TRAJCTL, *arguments], capture_output=True, text=True, timeout=60)


def check(tmp_path, *arguments):
    """Runs init, then check on its output. Returns both texts."""
    made = trajctl("init", *arguments)
    assert made.returncode == 0, made.stderr
    (tmp_path / "trajd.yaml").write_text(made.stdout)
    checked = trajctl("check", tmp_path / "trajd.yaml")
    assert checked.returncode == 0, checked.stderr
    return made.stdout, checked.stdout


def test_many_clocks(tmp_path, demo_file):
    made, checked = check(tmp_path, "--layout", "demo", demo_file)
    assert "rate: 20 " in made and "clock joint: 500 Hz" in made and "filter: train" in made
    assert "joint_pos" in checked and "-1..0 of actions" in checked and "[" in checked
    assert "rewards" not in checked  # commented out


def test_a_guessed_layout(tmp_path, demo_file):
    made, checked = check(tmp_path, demo_file)
    assert "layout: robomimic" in made and "obs/robot0_eef_quat" in checked


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("name, stream", [("robosuite_lift_panda_demo", "actions"), ("robosuite_SawyerLift_demo", "right_dquat")])
def test_recordings(tmp_path, name, stream):
    made, checked = check(tmp_path, RECORDINGS / f"{name}.hdf5")
    assert "split" not in made and stream in checked  # a dataset of one or two episodes has none for validation


def test_mistakes(tmp_path):
    assert trajctl("init").returncode == 2
    missing = trajctl("init", tmp_path / "nothing.hdf5")
    assert missing.returncode == 1 and "nothing.hdf5" in missing.stderr
    (tmp_path / "trajd.yaml").write_text("version: 1\ndatasets: {}\nfeds: {}\n")
    wrong = trajctl("check", tmp_path / "trajd.yaml")
    assert wrong.returncode == 78 and "trajd.yaml:3" in wrong.stderr and "feeds" in wrong.stderr
