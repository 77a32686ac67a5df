"""trajctl init and check: the daemon accepts the configuration that `init` guesses from a file."""
import re
import subprocess

import h5py
import numpy as np
import pytest
import yaml

from paths import RECORDINGS, ROOT, TRAJCTL


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


def steps_of(text):
    """Returns the steps of `obs/robot0_eef_pos` and of `actions` in a configuration."""
    document = yaml.safe_load(text)
    outputs = next(iter(document["feeds"].values()))["outputs"]
    return [str(outputs[name]["at"]) for name in ("obs/robot0_eef_pos", "actions")]


def test_the_windows_of_init_the_readme_and_the_example_are_alike(tmp_path, demo_file):
    made, checked = check(tmp_path, demo_file)
    readme = (ROOT / "README.md").read_text()
    lines = [line[4:] for line in readme.splitlines() if line.startswith("    ")]
    first = lines.index("version: 1                         # of this format")
    last = next(i for i in range(first, len(lines)) if "norm: min_max" in lines[i])
    wanted = ["-1..0", "-1..14"]
    assert steps_of(made) == steps_of("\n".join(lines[first:last + 1])) == wanted
    assert steps_of((ROOT / "clients/python/examples/square.yaml").read_text()) == wanted
    assert steps_of(trajctl("init", "--preset", "diffusion_policy", demo_file).stdout) == wanted
    assert "| obs `at: -1..0`, actions `at: -1..14` |" in readme and "rows -1..14  action  f32 [256,16,7]" in readme
    assert "rows -1..14" in checked


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("name, stream", [("robosuite_lift_panda_demo", "actions"), ("robosuite_SawyerLift_demo", "right_dquat")])
def test_recordings(tmp_path, name, stream):
    made, checked = check(tmp_path, RECORDINGS / f"{name}.hdf5")
    assert "split" not in made and stream in checked  # a dataset of one or two episodes has none for validation


@pytest.mark.parametrize("preset, steps", [(None, "-1..14"), ("act", "0..99")])
def test_a_file_without_actions(tmp_path, preset, steps):
    """The draft and stderr say so, with the line that is missing; with that line, the configuration has actions."""
    with h5py.File(tmp_path / "lab.hdf5", "w") as file:
        for e in range(2):
            states = np.random.default_rng(e).normal(size=(40, 9))
            states[:, 0] = np.arange(40) * 0.05
            file[f"data/demo_{e}/states"] = states
            file[f"data/demo_{e}/joint_velocities"] = states[:, 1:8]
    made = trajctl("init", *(["--preset", preset] if preset else []), tmp_path / "lab.hdf5")
    line = f"actions: {{from: STREAM, at: {steps}}}"
    assert made.returncode == 0 and made.stderr.startswith(f"trajctl: {tmp_path}/lab.hdf5: no stream's name begins with action. Add "), made.stderr
    assert line in made.stderr and f"      # No stream's name begins with action. Name the one that the policy predicts:\n      # {line}\n" in made.stdout
    (tmp_path / "trajd.yaml").write_text(made.stdout.replace(f"# {line}", line.replace("STREAM", "joint_velocities")))
    checked = trajctl("check", tmp_path / "trajd.yaml")
    assert checked.returncode == 0 and re.search("^  actions .* joint_velocities$", checked.stdout, re.M), checked


def test_a_file_with_actions_says_nothing_of_them(demo_file):
    made = trajctl("init", demo_file)
    assert made.returncode == 0 and not made.stderr and "No stream" not in made.stdout


def test_mistakes(tmp_path):
    assert trajctl("init").returncode == 2
    missing = trajctl("init", tmp_path / "nothing.hdf5")
    assert missing.returncode == 1 and "nothing.hdf5" in missing.stderr
    (tmp_path / "trajd.yaml").write_text("version: 1\ndatasets: {}\nfeds: {}\n")
    wrong = trajctl("check", tmp_path / "trajd.yaml")
    assert wrong.returncode == 78 and "trajd.yaml:3" in wrong.stderr and "feeds" in wrong.stderr
