"""trajctl init and check: the daemon accepts the configuration that `init` guesses from a file."""
import re
import shutil
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


@pytest.mark.parametrize("layout", ["mine.yaml", "./mine.yaml"])
def test_a_layout_beside_the_file_is_found_from_everywhere(layout, tmp_path, demo_file):
    """The configuration may be in another folder than the layout, and the daemon is started in another one."""
    shutil.copy(ROOT / "configs/layouts/demo.yaml", tmp_path / "mine.yaml")
    (tmp_path / "configs").mkdir()
    subprocess.run([TRAJCTL, "init", "--layout", layout, demo_file, "-o", "configs/made.yaml"], check=True, cwd=tmp_path, capture_output=True,
                   timeout=60)
    for folder in (tmp_path, "/"):
        checked = subprocess.run([TRAJCTL, "check", tmp_path / "configs/made.yaml"], capture_output=True, text=True, cwd=folder, timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_layout_beside_its_configuration(tmp_path, demo_file):
    """A name that ends in .yaml is a file beside the configuration."""
    shutil.copy(ROOT / "configs/layouts/demo.yaml", tmp_path / "mine.yaml")
    made = trajctl("init", "--layout", tmp_path / "mine.yaml", demo_file).stdout
    (tmp_path / "made.yaml").write_text(re.sub(r"layout: [^},]*", "layout: mine.yaml", made, count=1))
    assert trajctl("check", tmp_path / "made.yaml").returncode == 0


def steps_of(text):
    """Returns the steps of `obs/robot0_eef_pos` and of `actions` in a configuration."""
    document = yaml.safe_load(text)
    outputs = next(iter(document["feeds"].values()))["outputs"]
    return [str(outputs[name]["at"]) for name in ("obs/robot0_eef_pos", "actions")]


def test_the_windows_of_init_the_readme_and_the_example_are_alike(tmp_path, demo_file):
    made, checked = check(tmp_path, demo_file)
    readme = (ROOT / "README.md").read_text()
    wanted = ["-1..0", "-1..14"]
    assert steps_of(made) == wanted
    assert steps_of((ROOT / "clients/python/examples/square.yaml").read_text()) == wanted
    diffusion_policy = trajctl("init", "--preset", "diffusion_policy", demo_file).stdout
    assert steps_of(diffusion_policy) == wanted and "actions: {preset: diffusion_policy, at: -1..14}" in diffusion_policy
    assert "rows -1..14  action  f32 [256,16,7]" in readme and "rows -1..0   obs     f32 [256,2,4]" in readme
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
    assert made.returncode == 0 and "action" not in made.stderr and "No stream" not in made.stdout


def test_mistakes(tmp_path):
    assert trajctl("init").returncode == 2
    missing = trajctl("init", tmp_path / "nothing.hdf5")
    assert missing.returncode == 1 and "nothing.hdf5" in missing.stderr
    (tmp_path / "trajd.yaml").write_text("version: 2\ndatasets: {}\nfeds: {}\n")
    wrong = trajctl("check", tmp_path / "trajd.yaml")
    assert wrong.returncode == 78 and "trajd.yaml:3" in wrong.stderr and "feeds" in wrong.stderr


def test_arrays_that_the_layout_does_not_read_are_named(tmp_path):
    with h5py.File(tmp_path / "lab.hdf5", "w") as file:
        for episode in range(2):
            for name in ("actions", "obs/eef", "joint_pos", "arm/torque"):
                file[f"data/demo_{episode}/{name}"] = np.zeros((20, 3), "f4")
            file[f"data/demo_{episode}/camera_matrix"] = np.eye(3)
    made = trajctl("init", tmp_path / "lab.hdf5")
    assert made.returncode == 0 and "layout: robomimic" in made.stdout
    assert re.search(r"lab.hdf5: layout robomimic does not read arm/torque, joint_pos\. To use them, add them to a copy of the layout", made.stderr), made.stderr
    with h5py.File(tmp_path / "lab.hdf5", "a") as file:
        for episode in range(2):
            for name in ("joint_pos", "arm"):
                del file[f"data/demo_{episode}/{name}"]
    assert trajctl("init", tmp_path / "lab.hdf5").stderr == ""


NAMES = {  # paths in an episode, and the names that the feed's outputs have, in the order of the file
    "alike after they were joined": (["actions", "a/b/x", "a_b/x"], ["obs/a_b_x", "obs/a_b_x_2", "actions"]),
    "of a stream below obs": (["actions", "obs/x", "obs/sensors_x", "sensors/x"], ["actions", "obs/sensors_x", "obs/x", "obs/sensors_x_2"]),
    "of a group below obs": (["a", "actions", "obs/a/b"], ["obs/a_2", "actions", "obs/a/b"]),
    "reserved": (["actions", "x.mask", "y.augment"], ["actions", "obs/x.mask_2", "obs/y.augment_2"]),
    "too long": (["actions", "n" * 95], ["actions", "obs/" + "n" * 90 + "_2"]),
    "too long in characters of two bytes": (["actions", "\u00fc" * 60], ["actions", "obs/" + "\u00fc" * 45 + "_2"]),
    "words of YAML": (["1e3", "actions", "no", "null", "on", "~"], ["obs/1e3", "actions", "obs/no", "obs/null", "obs/on", "obs/~"]),
    "no observation": (["dones", "rewards"], ["obs/dones", "obs/rewards"]),
}


def write_run(path, names):
    with h5py.File(path, "w") as file:
        for episode in range(2):
            for name in names:
                file[f"run_{episode}/{name}"] = np.random.default_rng(episode).normal(size=(20, 3)).astype("f4")


def checked_outputs(tmp_path, names, *options):
    """Returns the text of a draft that `check` accepts, and its outputs."""
    write_run(tmp_path / "lab.hdf5", names)
    made = trajctl("init", *options, tmp_path / "lab.hdf5", "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0, made.stderr
    checked = trajctl("check", tmp_path / "lab.yaml")
    assert checked.returncode == 0, checked.stderr
    text = (tmp_path / "lab.yaml").read_text()
    return text, yaml.safe_load(text)["feeds"]["train"]["outputs"]


@pytest.mark.parametrize("names", NAMES)
def test_names_of_outputs_that_are(tmp_path, names):
    streams, wanted = NAMES[names]
    _, outputs = checked_outputs(tmp_path, streams)
    assert list(outputs) == wanted and sorted(str(keys.get("from", name)) for name, keys in outputs.items()) == sorted(streams)


@pytest.mark.parametrize("preset", [None, "act", "diffusion_policy"])
def test_more_streams_than_a_feed_has_outputs(tmp_path, preset):
    text, outputs = checked_outputs(tmp_path, ["actions", *(f"s{i}" for i in range(100))], *(["--preset", preset] if preset else []))
    assert len(outputs) == (2 if preset == "act" else 64) and "actions" in outputs
    assert all(f"s{i}" in text for i in range(100)), "none is left out without a word"
    assert preset == "act" or text.count("left out: a feed has at most 64 outputs") == 37


def test_a_group_that_another_camera_is(tmp_path):
    """The state of the style is `state`, and a camera is in a group of this name."""
    with h5py.File(tmp_path / "lab.hdf5", "w") as file:
        for name in ("state/state/top", "top"):
            file[f"run_0/{name}"] = np.zeros((20, 20, 24, 3), np.uint8)
        file["run_0/joints"] = np.random.default_rng(1).normal(size=(20, 3)).astype("f4")
    made = trajctl("init", "--preset", "lerobot", tmp_path / "lab.hdf5", "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0 and "state_state_top_2: {from: state/state/top" in (tmp_path / "lab.yaml").read_text(), made.stderr


def test_files_without_a_draft_say_why(tmp_path):
    write_run(tmp_path / "many.hdf5", [f"s{i}" for i in range(300)])
    many = trajctl("init", tmp_path / "many.hdf5", "-o", tmp_path / "many.yaml")
    assert many.returncode == 1 and "the file has 300 arrays of numbers with rows, and a draft has at most 256" in many.stderr
    with h5py.File(tmp_path / "lab.hdf5", "w") as file:
        file["times"], file["pose"] = np.arange(13) * 0.02, np.random.default_rng(1).normal(size=(20, 3))
    lone = trajctl("init", tmp_path / "lab.hdf5", "-o", tmp_path / "lab.yaml")
    assert lone.returncode == 1 and "all arrays are left out: `trajctl inspect` shows why" in lone.stderr
    assert "left out: pose: no stamps have its number of rows" in trajctl("inspect", tmp_path / "lab.hdf5").stdout


def test_paths_that_a_layout_cannot_have(tmp_path):
    write_run(tmp_path / "lab.hdf5", ["actions", "x/" + "n" * 250])
    made = trajctl("init", tmp_path / "lab.hdf5", "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0, made.stderr
    assert "its path has more than 240 bytes" in (tmp_path / "lab.layout.yaml").read_text()
    assert trajctl("check", tmp_path / "lab.yaml").returncode == 0


def test_streams_that_some_episodes_lack(tmp_path):
    write_run(tmp_path / "lab.hdf5", ["actions", "force", "joints"])
    with h5py.File(tmp_path / "lab.hdf5", "a") as file:
        del file["run_1/force"]
    for options in ((), ("--preset", "robomimic")):
        made = trajctl("init", *options, tmp_path / "lab.hdf5", "-o", tmp_path / "lab.yaml")
        checked = trajctl("check", tmp_path / "lab.yaml")
        assert made.returncode == checked.returncode == 0, made.stderr + checked.stderr
        text = (tmp_path / "lab.yaml").read_text()
        assert re.search(r"obs/force: \{from: force, at: .*, missing: zero\} +# f32 3, GUESS: some episodes lack it", text), text
        for path in ("lab.yaml", "lab.layout.yaml"):
            (tmp_path / path).unlink()


def test_quarantined_episodes_are_counted(tmp_path, demo_file):
    (tmp_path / "demo.hdf5").write_bytes(demo_file.read_bytes())
    with h5py.File(tmp_path / "demo.hdf5", "a") as file:
        episode = next(iter(file["data"].values()))
        rows = episode["actions"][:, 1:]
        del episode["actions"]
        episode["actions"] = rows
        found = len(file["data"])
    made = trajctl("init", "--layout", "robomimic", tmp_path / "demo.hdf5")
    assert made.returncode == 0
    assert (f"trajctl: data: 1 of {found} episodes are quarantined. `trajctl inspect {tmp_path / 'demo.hdf5'} --layout "
            "robomimic` has the reasons") in made.stderr
