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


LAYOUT = """layout: arm
version: 1
episodes: {files: "*.hdf5", groups: /data/*}
clocks: {arm: {path: arm_t, unit: ns}, camera: {path: camera_t, unit: ns}}
streams:
  arm/q: {path: q, clock: arm, kind: linear}
  top: {path: top, clock: camera, kind: previous, image: {color: rgb}}
"""
CONFIG = """version: 2
datasets: {slow: {path: source.hdf5, layout: lerobot, rate: 20}}
feeds: {train: {dataset: slow, global_batch: 1, anchor: {clock: steps}, outputs: {action: {at: 0}}}}
"""
READER = """import sys
from lerobot.datasets.lerobot_dataset import LeRobotDataset
for step in LeRobotDataset("out", root=sys.argv[1], video_backend="pyav"):
    print(int(step["frame_index"]), float(step["arm.q"]), float(step["observation.images.top"].mean() * 255), step["task"])
"""
BEGIN, MS = 1_700_000_000_000_000_000, 1_000_000
needs_lerobot = pytest.mark.skipif(not PYTHON.exists(), reason="lerobot is missing: tests/bench/make_peers.sh makes build/venv-lerobot")


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
@needs_lerobot
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


@pytest.mark.release
@pytest.mark.slow
@needs_lerobot
def test_a_step_has_the_last_frame_of_a_camera_with_other_stamps(tmp_path):
    with h5py.File(tmp_path / "arm.hdf5", "w") as file:
        group = file.create_group("data/demo_0")
        group["arm_t"], group["q"] = BEGIN + 37 * MS + np.arange(200) * 10 * MS, np.arange(200.0)[:, None]
        group["camera_t"] = BEGIN + np.arange(20) * 100 * MS
        group["top"] = np.broadcast_to((20 + 10 * np.arange(20)).astype(np.uint8)[:, None, None, None], (20, 64, 64, 3))
    (tmp_path / "arm.yaml").write_text(LAYOUT)
    status, _, errors = run(tmp_path / "arm.hdf5", tmp_path / "out", "--layout", tmp_path / "arm.yaml", "--fps", "20", "--task", "move")
    assert status == 0, errors
    read = subprocess.run([PYTHON, "-c", READER, tmp_path / "out"], check=True, capture_output=True, text=True).stdout
    steps = [line.split() for line in read.splitlines()]
    assert len(steps) == 38  # from 37 ms to the last frame at 1900 ms
    for step, q, grey, task in steps:
        milliseconds = 37 + 50 * int(step)
        assert float(q) == 5 * int(step) and abs(float(grey) - (20 + milliseconds // 100 * 10)) < 4 and task == "move"


@pytest.mark.release
@pytest.mark.slow
@needs_lerobot
def test_a_configuration_with_a_rate_of_its_own(source, tmp_path):
    """`rate:` of the dataset counts where the file states none. Where it states another one, frames and numbers would differ."""
    (tmp_path / "slow.yaml").write_text(CONFIG)
    options = "--fps", "10", "--task", "x", "--streams", "action,observation/state"
    status, _, errors = run(tmp_path / "slow.yaml", tmp_path / "out", *options)
    assert status == 2 and "the files state 30 Hz for the clock steps, and `rate:` says 20: remove `rate:`" in errors
    assert convert(["rlds", str(ROOT / "tests/golden/rlds/droid_small/1.0.1"), "-o", str(tmp_path / "droid.hdf5")]) == 0
    (tmp_path / "droid.yaml").write_text(CONFIG.replace("source.hdf5, layout: lerobot", "droid.hdf5, layout: rlds").replace("action:", "reward:"))
    status, _, errors = run(tmp_path / "droid.yaml", tmp_path / "out", "--fps", "5", "--task", "x", "--streams", "action_dict/joint_velocity")
    assert status == 0, errors
    assert convert(["lerobot", str(tmp_path / "out"), "-o", str(tmp_path / "back.hdf5")]) == 0
    with h5py.File(tmp_path / "droid.hdf5") as first, h5py.File(tmp_path / "back.hdf5") as back:
        for episode, group in first["data"].items():  # 20 Hz by the configuration: each fourth row is a step
            assert np.array_equal(back["data"][episode]["action_dict.joint_velocity"],
                                  group["action_dict/joint_velocity"][::4].astype(np.float32)), episode


@pytest.mark.release
@pytest.mark.slow
@needs_lerobot
def test_an_episode_with_several_tasks_takes_the_one_that_is_given(source, tmp_path):
    """Episode 3 has two tasks, which LeRobot would have by row. Nothing is guessed: --task names one, for this episode alone."""
    with h5py.File(source) as file:
        tasks = {name: group.attrs.get("task") for name, group in file["data"].items()}
        assert [name for name, task in tasks.items() if task is None] == ["episode_000003"] and "tasks" in file["data/episode_000003"].attrs
    status, _, errors = run(source, tmp_path / "none", "--fps", "10", "--streams", "action")
    assert status == 2 and "episode_000003" in errors and "has no task in words: give one with --task" in errors
    assert not (tmp_path / "none").exists()
    status, _, errors = run(source, tmp_path / "out", "--fps", "10", "--streams", "action", "--task", "Do both.")
    assert status == 0, errors
    assert convert(["lerobot", str(tmp_path / "out"), "-o", str(tmp_path / "back.hdf5")]) == 0
    with h5py.File(tmp_path / "back.hdf5") as back:
        assert {name: group.attrs["task"] for name, group in back["data"].items()} == {**tasks, "episode_000003": "Do both."}


@pytest.mark.release
@pytest.mark.slow
@needs_lerobot
def test_a_gap_that_the_layout_names_splits_an_episode(tmp_path):
    """`max_gap` of a stream: steps in the gap have no value, so they are in no episode, and none is made up."""
    times = np.delete(np.arange(200), np.s_[100:150]) * 10 * MS
    with h5py.File(tmp_path / "arm.hdf5", "w") as file:
        group = file.create_group("data/demo_0")
        group["arm_t"], group["q"] = BEGIN + times, (times / MS)[:, None].astype(float)
    (tmp_path / "arm.yaml").write_text("\n".join(line for line in LAYOUT.splitlines() if "top" not in line).replace(
        ", camera: {path: camera_t, unit: ns}", "").replace("kind: linear", "kind: linear, max_gap: 100ms"))
    status, said, errors = run(tmp_path / "arm.hdf5", tmp_path / "out", "--layout", tmp_path / "arm.yaml", "--fps", "20", "--task", "move")
    assert status == 0 and "note: arm.hdf5: demo_0: split at gaps into 2 parts" in errors, errors
    assert said.splitlines()[-1] == f"{tmp_path / 'out'}: 2 episodes, 30 steps at 20 Hz"
    assert convert(["lerobot", str(tmp_path / "out"), "-o", str(tmp_path / "back.hdf5")]) == 0
    with h5py.File(tmp_path / "back.hdf5") as back:
        found = [one["arm.q"][:].ravel().tolist() for one in back["data"].values()]
    assert found == [[50 * step for step in range(20)], [1500 + 50 * step for step in range(10)]]


@pytest.mark.parametrize("arguments, message", [
    ([], "--fps is missing: give whole steps per second, such as 30"),
    (["--fps", "29.97"], "--fps 29.97: give whole steps per second"),
    (["--fps", "30"], "exists: name a new folder")])
def test_bad_arguments_are_sentences(arguments, message, tmp_path, capsys):
    assert export.main(["lerobot", "a.hdf5", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_lerobot_the_extra_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "lerobot", None)
    assert export.main(["lerobot", "a.hdf5", str(tmp_path / "out"), "--fps", "30"]) == 2
    assert capsys.readouterr().err == "trajd.export: lerobot is not installed: pip install 'trajd[export]'\n"
