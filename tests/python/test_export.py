"""trajd.export: a LeRobot data set has the numbers of `trajctl resample` and the tasks, and comes back with equal numbers."""
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import pytest
from paths import ROOT, TRAJCTL, package_environment

from trajd import export
from trajd.convert.__main__ import main as convert

PYTHON = ROOT / "build/venv-lerobot/bin/python"
SET = ROOT / "tests/golden/video/lerobot/v30_h264_g10"  # 30 Hz; episode 3 has two tasks, so none as a text
NUMBERS = ("action", "observation/state", "next.reward", "next.done")


@pytest.fixture
def source(tmp_path):
    assert convert(["lerobot", str(SET), "-o", str(tmp_path / "source.hdf5")]) == 0
    return tmp_path / "source.hdf5"


def run(*arguments):
    """Runs the program in the Python that has lerobot, with private daemons of its own. Returns status and messages."""
    with tempfile.TemporaryDirectory(prefix="trajd-export-") as runtime:  # the path of a socket must be short
        environment = {**os.environ, **package_environment(), "TRAJD_RUNTIME_DIR": runtime, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([PYTHON, "-m", "trajd.export", "lerobot", *map(str, arguments)], env=environment, text=True,
                              capture_output=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="lerobot is missing: tests/bench/make_peers.sh makes build/venv-lerobot")
def test_a_set_has_the_resampled_numbers_and_comes_back(source, tmp_path):
    status, said, errors = run(source, tmp_path / "out", "--fps", "10", "--task", "Do both.")
    assert status == 0, errors
    subprocess.run([TRAJCTL, "resample", source, "-o", tmp_path / "expected.hdf5", "--rate=10", "--dtype=float32",
                    f"--streams={','.join(NUMBERS)}"], check=True, stdout=subprocess.DEVNULL)
    assert convert(["lerobot", str(tmp_path / "out"), "-o", str(tmp_path / "back.hdf5")]) == 0
    with h5py.File(source) as first, h5py.File(tmp_path / "expected.hdf5") as expected, h5py.File(tmp_path / "back.hdf5") as back:
        episodes = sorted(expected["data"])
        assert sorted(back["data"]) == episodes and len(episodes) == 5 and back["data"].attrs["fps"] == 10
        for episode in episodes:
            for name in NUMBERS:
                made, wanted = back["data"][episode][name], expected["data"][episode][name]
                assert made.dtype == wanted.dtype and np.array_equal(made, wanted), (episode, name)
            assert back["data"][episode].attrs["task"] == first["data"][episode].attrs.get("task", "Do both.")
            assert sorted(back["data"][episode]["observation/images"]) == ["top", "wrist"]
        steps = sum(len(expected["data"][episode]["action"]) for episode in episodes)
    assert said.splitlines()[-1] == f"{tmp_path / 'out'}: 5 episodes, {steps} steps at 10 Hz"
    assert not list(tmp_path.glob("out.*"))


@pytest.mark.parametrize("arguments, message", [
    ([], "--fps is missing: give steps per second, a whole number, such as 30"),
    (["--fps", "29.97"], "--fps 29.97: give steps per second"),
    (["--fps", "30"], "exists: name a new folder")])
def test_bad_arguments_are_sentences(arguments, message, tmp_path, capsys):
    assert export.main(["lerobot", "a.hdf5", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_lerobot_the_extra_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "lerobot", None)
    assert export.main(["lerobot", "a.hdf5", str(tmp_path / "out"), "--fps", "30"]) == 2
    assert capsys.readouterr().err == "trajd.export: lerobot is not installed: pip install 'trajd[export]'\n"
