"""`trajctl init --preset NAME` writes a configuration that trains with style=NAME: check accepts it, and a feed opens."""
import re
import runpy
import subprocess

import h5py
import numpy as np
import pytest

import trajd
from drafted import init
from paths import ROOT, TRAJCTL
from image_files import random_frames, write_encoded, write_episodes

MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
STYLES = {  # what the style's batches have of two cameras, 240x320 and 120x160: key: (shape after B, least value, most value)
    "act": {"image": ((2, 3, 240, 320), -2.2, 2.7), "qpos": ((14,), -9, 9), "action": ((100, 14), -9, 9)},
    "diffusion_policy": {"obs/top": ((2, 3, 216, 288), -6.6, 2.7), "obs/wrist": ((2, 3, 108, 145), -6.6, 2.7), "obs/qpos": ((2, 14), -1, 1),
                         "action": ((16, 14), -1, 1)},
    "lerobot": {"observation.images.top": ((1, 3, 240, 320), -2.2, 2.7), "observation.state": ((1, 14), -9, 9), "action": ((100, 14), -9, 9)},
    "openpi": {"image/top": ((224, 224, 3), -1, 1), "image/wrist": ((224, 224, 3), -1, 1), "state": ((14,), -2, 2), "actions": ((50, 14), -2, 2)},
    "robomimic": {"obs/top": ((10, 3, 217, 290), 0, 1), "obs/qpos": ((10, 14), 0, 99), "actions": ((10, 14), 0, 99)},
}


@pytest.mark.parametrize("style", STYLES)
def test_a_feed_opens_with_the_style_of_the_preset(daemon, tmp_path, style):
    write_episodes(tmp_path / "arm", episodes=2, rows=12)
    text = init(style, tmp_path / "arm", tmp_path / "made.yaml")
    assert f'style="{style}"' in text
    assert style != "diffusion_policy" or "action: {preset: diffusion_policy_real, at: -1..14}" in text
    one = daemon(text.replace("version: 2\n", ""), folder="daemon", rings="512MiB")
    with trajd.connect(one.endpoint, feed="train", timeout=60, style=style) as feed:
        batch = next(iter(feed.epoch(0)))
        for key, (shape, least, most) in STYLES[style].items():
            values = np.asarray(batch[key])
            assert values.shape[1:] == shape and values.dtype == np.float32, key
            assert least - 1e-5 <= values.min() and values.max() <= most + 1e-5 and values.std() > 0, (key, values.min(), values.max())


def write_cameras(folder, sizes, episodes=10, rows=400):
    """Writes episodes whose raw frames are in no chunk, so that they take no room on the disk."""
    folder.mkdir(parents=True)
    for e in range(episodes):
        with h5py.File(folder / f"episode_{e}.hdf5", "w") as file:
            file.attrs["sim"] = False
            file["action"] = file["observations/qpos"] = np.sin(np.arange(rows)[:, None] + np.arange(14)).astype("f4")
            for camera, size in sizes.items():
                file.create_dataset(f"observations/images/{camera}", (rows, *size, 3), "u1", chunks=(1, *size, 3))


@pytest.mark.parametrize("style", [None, *STYLES])
def test_many_rows_of_large_images_pass_the_check(tmp_path, style):
    """256 windows with images took more than memory.rings: check refused what init had written."""
    write_cameras(tmp_path / "arm", {"top": (480, 640), "left": (480, 640), "right_wrist": (480, 640)}, episodes=80 if style == "act" else 10,
                  rows=150 if style == "act" else 400)
    text = init(style, tmp_path / "arm", tmp_path / "made.yaml")
    batch = int(re.search(r"global_batch: (\d+)", text)[1])
    assert {None: 32, "act": 8, "lerobot": 8, "openpi": 64, "robomimic": 1, "diffusion_policy": 16}[style] == batch
    head, train = text.split("feeds:\n")
    (tmp_path / "both.yaml").write_text(head + "feeds:\n" + train + train.replace("  train:", "  valid:"))
    checked = subprocess.run([TRAJCTL, "check", tmp_path / "both.yaml"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    slots = [int(slots) * int(size) for slots, size in re.findall(r"(\d+) slots of (\d+) bytes", checked.stdout)]
    assert len(slots) == 2 and sum(slots) <= 1 << 30


def test_many_rows_of_numbers_keep_a_large_batch(tmp_path):
    write_cameras(tmp_path / "arm", {})
    assert "global_batch: 256\n" in init(None, tmp_path / "arm", tmp_path / "made.yaml")


def test_robomimics_observations_are_said_to_need_rows_that_a_robot_does_not_have(tmp_path):
    write_episodes(tmp_path / "arm", episodes=2, rows=12)
    for style in STYLES:
        text = init(style, tmp_path / "arm", tmp_path / f"{style}.yaml")
        has_note = re.search(r"# As robomimic trains, observations have rows after the anchor .*\n +# have them: for trajd.Live end them at 0", text)
        assert bool(has_note) == (style == "robomimic") == ("at: 0..9, lookahead: 10s" in text), text


def test_act_has_the_images_of_its_trainer(daemon, tmp_path):
    frames = [random_frames(6, 24, 32, e) for e in range(2)]
    (tmp_path / "arm").mkdir()
    for e, each in enumerate(frames):
        write_encoded(tmp_path / f"arm/episode_{e}.hdf5", {"top": each})
    one = daemon(init("act", tmp_path / "arm", tmp_path / "made.yaml").replace("version: 2\n", ""), folder="daemon")
    with trajd.connect(one.endpoint, feed="train", timeout=60, style="act") as feed:
        batch = next(iter(feed.epoch(0)))
        expected = [np.moveaxis((each / np.float32(255) - MEAN) / STD, -1, 1) for each in frames]
        found = np.asarray(batch["image"])[0, 0]
        assert min(np.abs(found - row).max() for each in expected for row in each) < 1e-5


def test_actions_and_a_state_of_other_names(tmp_path):
    with h5py.File(tmp_path / "lab.hdf5", "w") as file:
        for e in range(3):
            steps = np.arange(40, dtype=np.float32)[:, None]
            file[f"episode_{e}/cmd"] = np.sin(steps + np.arange(6))
            file[f"episode_{e}/arm/angles"] = np.cos(steps + np.arange(6))
            half = np.linspace(0.1, 1, 40)[:, None]
            file[f"episode_{e}/arm/rotation"] = np.concatenate([np.sin(half) * [[0.6, 0.64, 0.48]], np.cos(half)], 1)
    text = init("act", tmp_path / "lab.hdf5", tmp_path / "made.yaml")
    assert re.search(r"^ +qpos: \{from: \[arm/angles, arm/rotation\], at: 0, norm: \{by: mean_std, min_std: 0.01, mask: \[(true, ){6}false, false, false, false\]\}\}", text, re.M), text
    assert re.search(r"^ +actions: \{from: cmd, preset: act, at: 0\.\.99\}.*GUESS", text, re.M), text


@pytest.mark.parametrize("style, key", [("act", "qpos"), ("lerobot", "observation.state"), ("openpi", "state")])
def test_the_state_of_a_shipped_layout(daemon, tmp_path, style, key):
    """A family of streams such as obs/* may lack in an episode. What no episode lacks is part of the state."""
    with h5py.File(tmp_path / "lift.hdf5", "w") as file:
        for e in range(3):
            rows = np.sin(np.arange(120)[:, None] * 0.05 + np.arange(7, dtype=np.float32))
            file[f"data/demo_{e}/actions"], file[f"data/demo_{e}/obs/robot0_eef_pos"], file[f"data/demo_{e}/obs/gripper"] = rows, rows[:, :3], rows[:, :2]
            if e:
                file[f"data/demo_{e}/obs/touch"] = rows
            file[f"data/demo_{e}/obs/agentview_image"] = random_frames(120, 24, 32, e)
    text = init(style, tmp_path / "lift.hdf5", tmp_path / "made.yaml")
    one = daemon(text.replace("version: 2\n", ""), folder="daemon", rings="512MiB")
    with trajd.connect(one.endpoint, feed="train", timeout=60, style=style) as feed:
        assert np.asarray(next(iter(feed.epoch(0)))[key]).shape[-1] == 5


def test_no_numbers_for_the_state(tmp_path):
    with h5py.File(tmp_path / "lift.hdf5", "w") as file:
        file["data/demo_0/actions"], file["data/demo_0/obs/agentview_image"] = np.zeros((20, 7), np.float32), random_frames(20, 24, 32, 0)
    made = subprocess.run([TRAJCTL, "init", "--preset", "act", tmp_path / "lift.hdf5"], capture_output=True, text=True, timeout=60)
    assert re.search(r"# Style act needs an output qpos.*\n +# qpos: \{from: STREAM, at: 0, missing: zero, norm: \{by", made.stdout), made.stdout + made.stderr


FAMILIES = {  # paths in an episode: their numbers of columns, and the file's name for an episode
    "robosuite_raw": ({"states": 9, "actions": 7, "joint_torques": 7}, "data/demo_{}"),
    "robomimic": ({"actions": 7, "actions_abs": 7, "obs/eef_pos": 3, "obs/action": 2, "rewards": 1}, "data/demo_{}"),
    "droid_like": ({"action/arm": 7, "action/gripper": 1, "robot/arm": 7, "robot/touch": 3}, "run_{}"),
    "clashing": ({"action": 7, "actions/more": 2, "x": 3, "obs/x": 2, "arm/q": 4}, "run_{}"),
    "commands": ({"cmd": 7, "target_grip": 2, "arm/q": 7}, "run_{}"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_names_without_a_preset_are_those_of_the_readme_and_the_examples(daemon, tmp_path, family):
    """batch["obs"] has all observations, and batch["actions"] the actions, whatever the file calls them."""
    streams, episode = FAMILIES[family]
    with h5py.File(tmp_path / "lab.hdf5", "w") as file:
        for e in range(3):
            for name, columns in streams.items():
                file[f"{episode.format(e)}/{name}"] = np.sin(np.arange(40)[:, None] * 0.05 + np.arange(columns))
                if name == "states":
                    file[f"{episode.format(e)}/{name}"][:, 0] = np.arange(40) * 0.05
    text = init(None, tmp_path / "lab.hdf5", tmp_path / "made.yaml")
    for draft in tmp_path.glob("*.layout.yaml"):
        with pytest.raises(trajd.Error, match=r"made\.layout\.yaml:\d+: clocks\.steps: this line is a guess"):
            trajd.open(tmp_path / "made.yaml", feed="train", timeout=60)
        draft.write_text(re.sub(r"(?m)^  - .*\n", "", draft.read_text()))
    one = daemon(text.replace("version: 2\n", "").replace('"./', f'"{tmp_path}/'), folder="daemon")
    rows_of = runpy.run_path(str(ROOT / "clients/python/examples/behaviour_cloning.py"))["rows_of"]
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        for batch in feed.epoch(0):
            seen, actions, valid = rows_of(batch)
            assert actions.shape[1:] == (16, 7) and batch["actions_is_pad"].shape == valid.shape == actions.shape[:2]
            assert set(batch["obs"]) == {
                "robosuite_raw": {"joint_torques"}, "robomimic": {"eef_pos", "action"}, "droid_like": {"robot_arm", "touch"}, "clashing": {"x", "q"},
                "commands": {"q"}}[family]
            assert np.isfinite(seen).all() and seen.std() > 0


def test_a_rate_that_only_the_layout_claims_is_warned_of(daemon, tmp_path):
    with h5py.File(tmp_path / "episode_0.hdf5", "w") as file:
        for name in ("action", "observations/qpos"):
            file[name] = np.ones((100, 14))
    config = (f"datasets: {{data: {{path: {tmp_path / 'episode_0.hdf5'}, layout: aloha}}}}\n"
              "feeds: {train: {dataset: data, global_batch: 4, anchor: {clock: steps}, outputs: {action: {at: 0ms..200ms @ 10}}}}\n")
    with pytest.warns(trajd.DataWarning, match=r"action: its steps are times, but .* 50 Hz \(assumed\); state it with datasets\.data\.rate"):
        with trajd.connect(daemon(config, folder="daemon").endpoint, feed="train", timeout=60) as feed:
            next(iter(feed.epoch(0)))


def test_help_names_the_presets():
    shown = subprocess.run([TRAJCTL, "init", "--help"], capture_output=True, text=True, timeout=60)
    assert all(name in shown.stdout for name in STYLES), shown.stdout
