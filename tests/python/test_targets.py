"""Relative actions and rotations of a real daemon: against scipy on the recorded rows, their statistics against numpy,
and what a bad configuration gets."""
import json
import runpy
import subprocess
import warnings

import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

import trajd
from daemons import Daemon  # noqa: F401 (the fixture's type)
from datasets import write_robomimic
from paths import ROOT, TRAJCTL, clean_environment

LENGTHS = (40, 23, 31)
FEED = """
datasets: {{d: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: d
    global_batch: 16
    tail: short
    anchor: {{clock: actions}}
    {keys}
    outputs:
      obs/state: {{from: [obs/robot0_eef_pos, obs/robot0_eef_quat], at: 0}}
      actions: {{at: 0..7, dtype: float64{actions}}}
"""
STATE = "[obs/robot0_eef_pos, obs/robot0_eef_quat]"
POSE = "rotation: {from: axis_angle, to: rot6d, columns: \"3:6\"%s}"
PLACE = ', position: "0:3"'
MASK = "mask: [true, true, true, true, true, true, false]"


def rot6d(rotation):
    return rotation.as_matrix()[..., :2, :].reshape(*rotation.as_matrix().shape[:-2], 6)


def make_episodes(type_=np.float64):
    random = np.random.default_rng(5)
    episodes = []
    for length in LENGTHS:
        position = np.cumsum(random.normal(scale=0.02, size=(length, 3)), axis=0)
        turn = Rotation.from_rotvec(np.cumsum(random.normal(scale=0.05, size=(length, 3)), axis=0))
        aim = position + random.normal(scale=0.01, size=(length, 3))
        goal = turn * Rotation.from_rotvec(random.normal(scale=0.03, size=(length, 3)))
        grip = random.choice([-1.0, 1.0], size=(length, 1))
        episodes.append({"actions": np.concatenate([aim, goal.as_rotvec(), grip], axis=1).astype(type_),
                         "obs/robot0_eef_pos": position.astype(type_), "obs/robot0_eef_quat": turn.as_quat().astype(type_)})
    return episodes


@pytest.fixture(scope="module")
def episodes():
    return make_episodes()


@pytest.fixture(scope="module")
def path(tmp_path_factory, episodes):
    file = tmp_path_factory.mktemp("targets") / "d.hdf5"
    write_robomimic(file, {f"demo_{i}": streams for i, streams in enumerate(episodes)})
    return file


def config(path, actions="", keys="", layout="robomimic"):
    return FEED.format(path=path, actions=f", {actions}" if actions else "", keys=keys, layout=layout)


def windows(feed):
    """Returns (episode, first row, actions, mask) of each window."""
    found = []
    for batch in feed.epoch(0):
        for row in range(batch.rows):
            first = round(int(batch.anchor_ns[row]) * 20 / 1e9)
            found.append((int(batch.episode_index[row]), first, batch["actions"][row].copy(), batch.mask("actions")[row].copy()))
    assert len(found) == sum(LENGTHS)
    return found


def relative(streams, first, steps, frame="anchor", before=False):
    """Returns what the chunk of an anchor becomes, steps beyond the end with the last row."""
    rows = np.minimum(np.arange(first, first + steps), len(streams["actions"]) - 1)
    actions = streams["actions"][rows]
    position, turn = actions[:, :3], Rotation.from_rotvec(actions[:, 3:6])
    origin, zero = streams["obs/robot0_eef_pos"][first], Rotation.from_quat(streams["obs/robot0_eef_quat"][first])
    if before:
        origin = np.concatenate([origin[None], position[:-1]])
        zero = Rotation.concatenate([zero, turn[:-1]])
    if frame == "anchor":
        return np.concatenate([zero.inv().apply(position - origin), rot6d(zero.inv() * turn), actions[:, 6:]], axis=1)
    return np.concatenate([position - origin, rot6d(turn * zero.inv()), actions[:, 6:]], axis=1)


@pytest.mark.parametrize("frame, before", [("anchor", False), ("base", False), ("anchor", True), ("base", True)])
def test_poses_relative_to_a_state(daemon, path, episodes, frame, before):
    place = PLACE if frame == "anchor" else ""
    one = daemon(config(path, f"{POSE % place}, relative_to: {{from: {STATE}, frame: {frame}, step: {'before' if before else 'anchor'}, {MASK}}}"))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        for episode, first, actions, mask in windows(feed):
            assert actions.shape == (8, 10)
            end = len(episodes[episode]["actions"]) - first
            want = relative(episodes[episode], first, 8, frame, before)
            np.testing.assert_allclose(actions[:end], want[:end], rtol=0, atol=1e-12)
            np.testing.assert_array_equal(mask, np.where(np.arange(8) < end, 0, 2))
        batch = next(iter(feed.epoch(1)))
        assert sorted(batch.keys()) == sorted(["actions", "obs", "actions_is_pad", "obs_is_pad"]) or "actions" in batch.keys()
        assert not any("relative_to" in key for key in map(str, batch.keys()))
    text = one.run("--check").stdout
    assert "columns of actions: 0:3 minus" in text and "not delivered" in text and "axis_angle to rot6d" in text


def test_plain_columns_as_openpi(daemon, path, episodes):
    one = daemon(config(path, "relative_to: {from: [obs/robot0_eef_pos], mask: [true, true, true, false, false, false, false]}"))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        for episode, first, actions, mask in windows(feed):
            rows = episodes[episode]["actions"][first:first + 8].copy()
            rows[:, :3] -= episodes[episode]["obs/robot0_eef_pos"][first]
            np.testing.assert_array_equal(actions[mask == 0], rows)


@pytest.mark.parametrize("per", ["output", "step"])
@pytest.mark.parametrize("by", ["mean_std", "q01_q99"])
def test_statistics_behind_the_transform(daemon, path, episodes, per, by):
    one = daemon(config(path, f"{POSE % PLACE}, relative_to: {{from: {STATE}, {MASK}}}, norm: {{by: {by}, per: {per}}}"))
    chunks = [(relative(streams, t, 8), len(streams["actions"]) - t) for streams in episodes for t in range(len(streams["actions"]))]
    chunks = np.stack([np.where(np.arange(8)[:, None] < end, chunk, np.nan) for chunk, end in chunks])
    axes = 0 if per == "step" else (0, 1)
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        found = stats["actions"]
        assert found["mean"].shape == ((8, 10) if per == "step" else (10,))
        np.testing.assert_allclose(found["mean"], np.nanmean(chunks, axis=axes), atol=1e-12)
        np.testing.assert_allclose(found["std"], np.nanstd(chunks, axis=axes), atol=1e-12)
        np.testing.assert_allclose(found["q99"], np.nanquantile(chunks, 0.99, axis=axes), atol=1e-12)
        np.testing.assert_array_equal(found["count"], np.isfinite(chunks).sum(axis=axes))
        scale, offset = stats.scale_and_offset("actions")
        for episode, first, actions, mask in windows(feed)[:20]:
            want = relative(episodes[episode], first, 8) * scale.astype(float) + offset
            np.testing.assert_allclose(actions[mask == 0], want[mask == 0], atol=1e-9)
    assert "statistics over windows" in one.run("--check").stdout


def test_rotations_between_rows_take_the_short_arc(daemon, path, episodes):
    """At 30 Hz on rows of 20 Hz, each form of the file is blended by slerp."""
    one = daemon(config(path, f"{POSE % ''}, kind: linear", keys="rate: 30"))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        for episode, first, actions, mask in windows(feed):
            rows = episodes[episode]["actions"]
            times = first / 20 + np.arange(8) / 30
            good = (mask == 0) & (times <= (len(rows) - 1) / 20)
            arc = Slerp(np.arange(len(rows)) / 20, Rotation.from_rotvec(rows[:, 3:6])) if len(rows) > 1 else None
            want = rot6d(arc(np.minimum(times[good], (len(rows) - 1) / 20)))
            np.testing.assert_allclose(actions[good, 3:9], want, atol=1e-6)  # floor() of ns
            np.testing.assert_allclose(np.sum(actions[good, 3:6] ** 2, axis=1), 1, atol=1e-12)


def chain_text(chain):
    """Returns the keys of an output; `chain` is one of those that a policy may have."""
    return {"umi": f"{POSE % PLACE}, relative_to: {{from: {STATE}, {MASK}}}, norm: q01_q99",
            "base": f"{POSE % ''}, relative_to: {{from: {STATE}, {MASK}, frame: base}}",
            "steps": f"{POSE % PLACE}, relative_to: {{from: {STATE}, {MASK}, step: before}}, norm: {{by: mean_std, per: step}}",
            "forms": "rotation: {from: axis_angle, to: euler_xyz, columns: \"3:6\"}, norm: min_max",
            "openpi": "relative_to: {from: obs/robot0_eef_pos, mask: [true, true, true, false, false, false, false]}, norm: q01_q99",
            "none": "norm: mean_std"}[chain]


def same_actions(a, b, most):
    """Asserts that actions are the same up to the way in which the rotation is written."""
    np.testing.assert_allclose(a[..., [0, 1, 2, 6]], b[..., [0, 1, 2, 6]], rtol=0, atol=most)
    turn = Rotation.from_rotvec(a[..., 3:6].reshape(-1, 3)).inv() * Rotation.from_rotvec(b[..., 3:6].reshape(-1, 3))
    assert turn.magnitude().max() <= 2 * most


@pytest.mark.parametrize("chain", ["umi", "base", "steps", "forms", "openpi", "none"])
def test_to_policy_and_to_robot(daemon, path, episodes, tmp_path, chain):
    one = daemon(config(path, chain_text(chain)))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        found = [window for window in windows(feed) if not window[3].any()]
    stats.save(tmp_path / "python.json")
    subprocess.run([TRAJCTL, "stats", "train", "-o", tmp_path / "cli.json", "--endpoint", one.endpoint],
                   check=True, timeout=60)
    for stats in (stats, trajd.Stats.load(tmp_path / "python.json"), trajd.Stats.load(tmp_path / "cli.json")):
        for episode, first, actions, _ in found[::7]:
            rows = episodes[episode]["actions"][first:first + 8]
            state = np.concatenate([episodes[episode]["obs/robot0_eef_pos"][first], episodes[episode]["obs/robot0_eef_quat"][first]])
            state = {"openpi": state[:3], "forms": None, "none": None}.get(chain, state)
            made = stats.to_policy("actions", rows, state)
            np.testing.assert_allclose(made, actions, rtol=0, atol=1e-12 * max(1, np.abs(actions).max()))
            same_actions(stats.to_robot("actions", made, state), rows, 1e-12)
            small = stats.to_policy("actions", rows.astype(np.float32), None if state is None else state.astype(np.float32))
            back = stats.to_robot("actions", small, None if state is None else state.astype(np.float32))
            assert small.dtype == back.dtype == np.float32
            same_actions(back, rows, 3e-6 if chain == "steps" else 1e-6)
        batch = np.stack([episodes[0]["actions"][t:t + 8] for t in range(3)])
        if chain == "none":
            assert stats.to_robot("actions", stats.to_policy("actions", batch)).shape == batch.shape
    if chain in ("umi", "steps"):
        with pytest.raises(ValueError, match="pass its 7 columns"):
            stats.to_robot("actions", made)
        for format in ("openpi", "lerobot"):
            with pytest.raises(ValueError, match="cannot say how|one figure for all steps"):
                stats.save(tmp_path / "other.json", format=format)
            done = subprocess.run([TRAJCTL, "stats", "train", "--format", format, "--endpoint", one.endpoint], capture_output=True, text=True)
            assert done.returncode and "cannot say how actions is made" in done.stderr
    if chain == "openpi":
        for format, key in (("openpi", "norm_stats"), ("lerobot", None)):
            subprocess.run([TRAJCTL, "stats", "train", "--format", format, "-o", tmp_path / format, "--endpoint", one.endpoint], check=True, timeout=60)
            stats.save(tmp_path / f"{format}.py", format=format)
            for name in (format, f"{format}.py"):
                document = json.loads((tmp_path / name).read_text())
                entries = document[key] if key else document
                assert set(entries) == ({"state", "actions"} if key else {"observation.state", "action"})
                entry = entries["actions" if key else "action"]
                for figure in ("mean", "std", "q01", "q99"):
                    np.testing.assert_array_equal(entry[figure], stats["actions"][figure])


def test_others_subtract_the_same_column(daemon, path, tmp_path):
    """openpi and LeRobot subtract column i of the state from column i of the actions, and have no other columns."""
    one = daemon(config(path, "relative_to: {from: obs/robot0_eef_pos, mask: [false, true, true, true, false, false, false]}, norm: q01_q99"))
    with trajd.connect(one.endpoint, feed="train", timeout=20) as feed:
        stats = feed.stats()
    for format in ("openpi", "lerobot"):
        with pytest.raises(ValueError, match="cannot say how actions"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stats.save(tmp_path / "other.json", format=format)
        done = subprocess.run([TRAJCTL, "stats", "train", "--format", format, "--endpoint", one.endpoint], capture_output=True, text=True)
        assert done.returncode and "cannot say how actions is made" in done.stderr


def test_a_file_of_another_chain_is_refused(daemon, path, tmp_path):
    one = daemon(config(path, chain_text("umi")))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        feed.stats().save(tmp_path / "umi.json")
        want = next(iter(feed.epoch(0)))["actions"].copy()
    good = f"{POSE % PLACE}, relative_to: {{from: {STATE}, {MASK}}}, norm: {{by: q01_q99, stats: {tmp_path}/umi.json}}"
    file = tmp_path / "good.yaml"
    for text, other in ((good, None), (good.replace("rot6d", "matrix").replace("PLACE", ""), "features"), (good.replace(PLACE, ""), "another chain")):
        file.write_text("version: 2" + config(path, text))
        done = subprocess.run([TRAJCTL, "check", file], capture_output=True, text=True, timeout=60, env=clean_environment())
        assert (done.returncode == 0) == (other is None), done.stderr
        assert other is None or other in done.stderr
    two = daemon(config(path, good), folder="two")
    with trajd.connect(two.endpoint, feed="train", timeout=60) as feed:
        np.testing.assert_array_equal(next(iter(feed.epoch(0)))["actions"], want)


PRESETS = [  # keys of the output, the same in full
    (f"preset: openpi, relative_to: {{from: {STATE}, {MASK}}}, {POSE % PLACE}", f"at: 0..49, norm: q01_q99, relative_to: {{from: {STATE}, {MASK}}}, {POSE % PLACE}"),
    (f"preset: umi, at: 0..7, relative_to: {{from: {STATE}, {MASK}}}, rotation: {{from: axis_angle, columns: \"3:6\", position: \"0:3\"}}",
     f"at: 0..7, norm: {{by: min_max, mask: all_but_rotations}}, relative_to: {{from: {STATE}, {MASK}}}, {POSE % PLACE}"),
    (f"preset: gr00t, relative_to: {{from: {STATE}, {MASK}}}, {POSE % PLACE}",
     f"at: 0..15, norm: {{by: min_max, per: step}}, relative_to: {{from: {STATE}, {MASK}}}, {POSE % PLACE}"),
    ("preset: act", "at: 0..99, norm: {by: mean_std, min_std: 0.01}"),
    ("preset: act_real, norm: min_max", "at: -1..98, norm: min_max"),
    ("preset: diffusion_policy", "at: -1..14"),
    ("preset: diffusion_policy, rotation: {from: axis_angle, columns: \"3:6\"}", f"at: -1..14, norm: {{by: min_max, mask: positions}}, {POSE % ''}"),
    ("preset: diffusion_policy_real", "at: -1..14, norm: min_max"),
    ("preset: act, norm: none", "at: 0..99"),
    ("preset: octo, dtype: float32", "at: 0..3, norm: mean_std, dtype: float32"),
]


@pytest.mark.parametrize("short, full", PRESETS)
def test_a_preset_is_its_keys(tmp_path, path, short, full):
    """Check prints the same feed for a preset as for its keys, and what the preset is."""
    reports = []
    for text in (short, full):
        file = tmp_path / "preset.yaml"
        file.write_text("version: 2" + config(path).replace("actions: {at: 0..7, dtype: float64}", f"actions: {{{text}}}"))
        done = subprocess.run([TRAJCTL, "check", file], capture_output=True, text=True, timeout=60, env=clean_environment())
        assert done.returncode == 0, done.stderr
        reports.append([line for line in done.stdout.splitlines() if "ready" not in line and "info:" not in line])
    named = [line for line in reports[0] if "preset of actions" in line]
    notes = [line for line in reports[0] if line.startswith("    difference: ")]
    assert len(named) == 1 and "at: " in named[0] and [line for line in reports[0] if line not in named + notes] == reports[1]
    assert ("rotation: {to: rot6d}" in named[0]) == ("rotation:" in short and "openpi" not in short)
    assert len(notes) == ("diffusion_policy" in short and "real" not in short)


@pytest.mark.parametrize("short, full", [
    ("preset: diffusion_policy", "at: -1..14, norm: min_max"),
    (f"preset: umi, at: 0..7, relative_to: {{from: {STATE}, {MASK}}}, {POSE % PLACE}", f"at: 0..7, relative_to: {{from: {STATE}, {MASK}}}, {POSE % PLACE}")])
def test_presets_of_version_1(tmp_path, path, short, full):
    """They are those of trajd 0.1.0, with a warning of what version 2 would do."""
    reports = []
    for text in (short, full):
        (tmp_path / "preset.yaml").write_text("version: 1" + config(path).replace("actions: {at: 0..7, dtype: float64}", f"actions: {{{text}}}"))
        done = subprocess.run([TRAJCTL, "check", tmp_path / "preset.yaml"], capture_output=True, text=True, timeout=60, env=clean_environment())
        assert done.returncode == 0, done.stderr
        reports.append([line for line in done.stdout.splitlines() if "preset" not in line and "`version: 1`" not in line])
        assert ("would" in done.stdout and "give actions the norm of preset" in done.stdout) == (text == short)
    assert reports[0] == reports[1]


def range_normalised(values):
    """get_range_normalizer_from_stat of diffusion_policy's and UMI's normalize_util.py."""
    low, high = values.min(axis=0), values.max(axis=0)
    still = high - low < 1e-7
    scale = 2 / np.where(still, 2, high - low)
    return values * scale + np.where(still, -low, -1 - scale * low)


@pytest.mark.parametrize("arms", [1, 2])
@pytest.mark.parametrize("poses", [False, True])
def test_diffusion_policys_actions_of_robomimic(daemon, tmp_path, arms, poses):
    """RobomimicReplayLowdimDataset and -ImageDataset: identity; with abs_action a rotation in 6 numbers, and only positions in [-1, 1]."""
    actions = [np.tile(streams["actions"], arms) * np.linspace(1, 2, 7 * arms) for streams in make_episodes()]
    write_robomimic(tmp_path / "d.hdf5", {f"demo_{i}": {"actions": each} for i, each in enumerate(actions)})
    rows = np.concatenate(actions)
    wanted = rows
    if poses:
        parts = []
        for arm in np.split(rows, arms, axis=1):
            parts += [range_normalised(arm[:, :3]), rot6d(Rotation.from_rotvec(arm[:, 3:6])), arm[:, 6:]]
        wanted = np.concatenate(parts, axis=1)
    names = ", ".join(f'{{from: axis_angle, columns: "{first}:{first + 3}"}}' for first in (3, 10)[:arms])
    keys = f"preset: diffusion_policy, at: 0, dtype: float64{f', rotation: [{names}]' if poses else ''}"
    one = daemon(config(tmp_path / "d.hdf5").replace("actions: {at: 0..7, dtype: float64}", f"actions: {{{keys}}}").replace(
        "      obs/state: {from: [obs/robot0_eef_pos, obs/robot0_eef_quat], at: 0}\n", ""))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        made = {int(window): action.copy() for batch in feed.epoch(0) for window, action in zip(batch["window_id"], batch["actions"][:, 0])}
    np.testing.assert_allclose([made[window] for window in range(len(rows))], wanted, atol=1e-6)


def test_umis_actions(daemon, path, episodes):
    """UmiDataset.get_normalizer: positions and gripper in [-1, 1], rotations as they are."""
    keys = f'relative_to: {{from: {STATE}, {MASK}}}, rotation: {{from: axis_angle, to: rot6d, columns: "3:6", position: "0:3"}}'

    def actions(text):
        one = daemon(config(path).replace("actions: {at: 0..7, dtype: float64}", f"actions: {{{text}, {keys}, at: 0..7, dtype: float64}}"), folder=text[:3])
        with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
            return np.concatenate([batch["actions"][~batch["actions_is_pad"]] for batch in feed.epoch(0)])

    plain, made = actions("norm: none"), actions("preset: umi")
    others = [0, 1, 2, 9]
    np.testing.assert_array_equal(made[:, 3:9], plain[:, 3:9])
    np.testing.assert_allclose(made[:, others], range_normalised(plain[:, others]), atol=1e-6)


def test_files_that_are_not_robomimics_name_the_other_preset(tmp_path, path):
    """The actions of robomimic are within [-1, 1]; those of other files stay as recorded only with a warning."""
    layout = (ROOT / "configs/layouts/robomimic.yaml").read_text().replace("/data/demo_*", "/data/*")
    (tmp_path / "mine.yaml").write_text(layout)
    for name, preset, expected in (("robomimic", "diffusion_policy", 0), (tmp_path / "mine.yaml", "diffusion_policy", 1),
                                   (tmp_path / "mine.yaml", "diffusion_policy, norm: none", 0), (tmp_path / "mine.yaml", "diffusion_policy_real", 0)):
        (tmp_path / "trajd.yaml").write_text("version: 2" + config(path, layout=name).replace("actions: {at: 0..7, dtype: float64}", f"actions: {{preset: {preset}}}"))
        done = subprocess.run([TRAJCTL, "check", tmp_path / "trajd.yaml"], capture_output=True, text=True, timeout=60, env=clean_environment())
        assert done.returncode == 0 and done.stdout.count("warning: actions: preset: diffusion_policy leaves actions as recorded") == expected, done


BAD = [
    ("preset: nope", "preset"),
    ("preset: openpi", "name its streams with `relative_to:`"),
    (f"preset: umi, relative_to: {STATE}", "say which columns are the rotation"),
    ("norm: {by: min_max, mask: positions}", "norm.mask: positions: the output has no rotation"),
    ("norm: {by: min_max, mask: place}", "expected positions, all_but_rotations, or a list with true or false"),
    ("preset: act, role: obs", "a preset is for an output of role action"),
    ("relative_to: nope", "no stream nope"),
    ("relative_to: obs/robot0_eef_pos", "the state has 3 columns, but the output needs 7"),
    ("relative_to: {from: obs/robot0_eef_pos, mask: [true]}", "the mask has 1 entries, but the output has 7 columns"),
    ("relative_to: {mask: [true]}", "needs `from:`"),
    ("relative_to: {from: obs/robot0_eef_pos, frame: world}", "frame"),
    (f"relative_to: {{from: {STATE}}}", "part of the quaternion obs/robot0_eef_quat"),
    ("rotation: {from: euler, to: rot6d}", "Euler angles need three different axes"),
    ("rotation: {from: euler_xyx, to: rot6d}", "Euler angles need three different axes"),
    ("rotation: {from: quat, to: rot6d}", "needs the order of its numbers"),
    ("rotation: {from: axis_angle, to: rot6d}", "no streams of the output have the 3 columns"),
    ("rotation: {from: axis_angle, columns: \"3:7\"}", "4 columns, but axis_angle has 3 numbers"),
    ("rotation: {from: axis_angle, columns: \"6:9\"}", "the columns end at 9, but the output has 7 columns"),
    ("rotation: {from: axis_angle, columns: \"3\"}", "expected \"FROM:TO\""),
    ("rotation: [{from: axis_angle, columns: \"3:6\"}, {from: axis_angle, columns: \"4:7\"}]", "named twice"),
    ("rotation: {from: axis_angle, columns: \"3:6\", position: \"0:3\"}", "without relative_to"),
    (f"{POSE % ''}, kind: mean", "mean does not average rotations"),
    (f"{POSE % ''}, norm: {{by: mean_std, mask: [true]}}", "1 entries, but the output has 10 features"),
    (f"{POSE % ''}, relative_to: {{from: {STATE}, {MASK}}}, norm: {{by: mean_std, over: rows}}", "no statistics over rows"),
    ("rotation: {from: axis_angle, to: quat_xyzw, columns: \"3:6\"}, norm: mean_std", "are a quaternion"),
    (f"relative_to: {{from: {STATE}, mask: [true, true, true, true, false, true, false]}}, {POSE % ''}", "the mask must be the same for all of them"),
    ("from: obs/robot0_eef_quat, relative_to: obs/robot0_eef_quat", "cannot be subtracted"),
    ("from: obs/robot0_eef_quat, rotation: {from: quat_wxyz, to: rot6d}", "the layout says that obs/robot0_eef_quat is quat_xyzw"),
]


@pytest.mark.parametrize("actions, message", BAD)
def test_a_bad_chain_is_an_error_at_check(tmp_path, path, actions, message):
    file = tmp_path / "bad.yaml"
    file.write_text("version: 2" + config(path, actions))
    done = subprocess.run([TRAJCTL, "check", file], capture_output=True, text=True, timeout=60, env=clean_environment())
    assert done.returncode != 0
    assert message in done.stderr + done.stdout and "actions" in done.stderr + done.stdout
    assert "bad.yaml:12" in done.stderr or "line 12" in done.stderr


# ---- vectors of trainers' own code ----


def read_arrays(name):
    words = (ROOT / "tests/golden/targets" / name).read_text().split("array ")[1:]
    arrays = {}
    for text in words:
        title, rows, columns, *numbers = text.split()
        arrays[title] = np.array(numbers, dtype=float).reshape(int(rows), int(columns))
    return arrays


def plain_part(first, count, relative):
    return {"kind": "plain", "relative": relative, "first": first, "count": count, "output_first": first, "output_count": count,
            "reference_first": first}


def test_openpi_with_its_normalisation():
    """AbsoluteActions(Unnormalize(...)) and Normalize(DeltaActions(...)), with the epsilon of openpi's division."""
    found = read_arrays("openpi.txt")
    chain = {"id": "1", "frame": "anchor", "step": "anchor", "columns": 14, "output_columns": 14, "reference_columns": 14,
             "parts": [plain_part(0, 6, True), plain_part(6, 1, False), plain_part(7, 6, True), plain_part(13, 1, False)]}
    figures = {name: found[name][0] for name in ("mean", "std", "q01", "q99")}
    state = found["state"][0]
    for rule, low, width, target in (("q01_q99", figures["q01"], figures["q99"] - figures["q01"] + 1e-6, "quantiles"),
                                     ("mean_std", figures["mean"], figures["std"] + 1e-6, "normalized")):
        scale, offset = (2 / width, -2 * low / width - 1) if rule == "q01_q99" else (1 / width, -low / width)
        stats = trajd.Stats({"actions": figures}, {"actions": {"by": rule, "scale": scale, "offset": offset}}, {"actions": chain})
        made = stats.to_policy("actions", found["actions"], state)
        np.testing.assert_allclose(made, found[target], rtol=3e-6, atol=1e-5)
        np.testing.assert_allclose(stats.to_robot("actions", made, state), found["actions"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["absolute"], found["actions"], atol=1e-5)


@pytest.mark.parametrize("name, frame, step", [("relative", "anchor", "anchor"), ("rel", "base", "anchor"), ("delta", "base", "before")])
def test_umi_poses(name, frame, step):
    found = read_arrays("umi.txt")
    position = {**plain_part(0, 3, True), **({"turned_by": 1} if frame == "anchor" else {})}
    turn = {"kind": "rotation", "relative": True, "first": 3, "count": 3, "output_first": 3, "output_count": 6, "reference_first": 3,
            "from": "axis_angle", "to": "rot6d", "reference_form": "axis_angle"}
    chain = {"id": "1", "frame": frame, "step": step, "columns": 6, "output_columns": 9, "reference_columns": 6, "parts": [position, turn]}
    stats = trajd.Stats({"actions": {"mean": np.zeros(9)}}, {}, {"actions": chain}, {"actions": "1"})
    made = stats.to_policy("actions", found["poses"], found["base"][0])
    np.testing.assert_allclose(made, found[name], rtol=0, atol=1e-13)
    back = stats.to_robot("actions", found[name], found["base"][0])
    np.testing.assert_allclose(back[:, :3], found["poses"][:, :3], rtol=0, atol=1e-12)
    turns = Rotation.from_rotvec(back[:, 3:]).inv() * Rotation.from_rotvec(found["poses"][:, 3:])
    assert turns.magnitude().max() < 1e-12


@pytest.mark.parametrize("by, mode", [("min_max", "min_max"), ("mean_std", "mean_std"), ("q01_q99", "q99")])
def test_gr00t_normaliser(daemon, tmp_path, by, mode):
    """A feed of the recorded rows. GR00T clips q99; a column that does not move becomes 0 in trajd, in GR00T only with min_max."""
    found = read_arrays("gr00t_normaliser.txt")
    rows = found["rows"].astype(np.float32)
    write_robomimic(tmp_path / "rows.hdf5", {"demo_0": {"actions": rows, "obs/state": rows}})
    one = daemon(FEED.format(path=tmp_path / "rows.hdf5", layout="robomimic", keys="", actions="").split("      obs/state")[0] +
                 f"      actions: {{at: 0, norm: {{by: {by}, over: rows}}}}\n")
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        batches = [(np.round(batch.anchor_ns * 20 / 1e9).astype(int), batch["actions"][:, 0].copy()) for batch in feed.epoch(0)]
    order, made = (np.concatenate(parts) for parts in zip(*batches))
    made = made[np.argsort(order)]
    assert sorted(order) == list(range(40))
    for name in {"min_max": ("min", "max"), "mean_std": ("mean", "std"), "q01_q99": ("q01", "q99")}[by]:
        np.testing.assert_allclose(stats["actions"][name], found[name][0], rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(np.clip(made, -1, 1)[:, :3] if mode == "q99" else made[:, :3], found[mode + "_made"][:, :3], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(made[:, 3], np.zeros(40, np.float32))
    np.testing.assert_array_equal(found[mode + "_made"][:, 3], np.full(40, 0 if mode == "min_max" else 0.25))
    np.testing.assert_allclose(stats.unnormalize("actions", made), rows, rtol=0, atol=1e-5)
    if mode != "q99":
        np.testing.assert_allclose(found[mode + "_back"][:, :3], rows[:, :3], rtol=0, atol=1e-5)


# ---- a policy ----

EXAMPLE = """
datasets: {{d: {{path: {path}, layout: robomimic}}}}
feeds:
  train:
    dataset: d
    global_batch: 16
    tail: short
    anchor: {{clock: actions}}
    outputs:
{outputs}
"""


def test_a_policy_on_relative_rotations(daemon, tmp_path):
    """The example, with the outputs that it describes, learns how arms move that turn and drive steadily, each from its own place. On
    arms that it has not seen its actions are ten times nearer to the recorded ones than their mean."""
    random = np.random.default_rng(11)
    streams = {}
    for episode in range(30):
        drive, turn = random.normal(scale=0.01, size=3), Rotation.from_rotvec(random.normal(scale=0.02, size=3))
        turns, positions = [Rotation.random(random_state=episode)], [random.normal(scale=0.5, size=3)]
        for _ in range(24):
            positions.append(positions[-1] + turns[-1].apply(drive))
            turns.append(turns[-1] * turn)
        turns, positions = Rotation.concatenate(turns), np.array(positions)
        grip = np.full((24, 1), np.sign(drive[0]))
        streams[f"demo_{episode}"] = {"actions": np.concatenate([positions[1:], turns[1:].as_rotvec(), grip], axis=1),
                                      "obs/robot0_eef_pos": positions[:-1], "obs/robot0_eef_quat": turns[:-1].as_quat()}
    write_robomimic(tmp_path / "d.hdf5", streams)
    example = runpy.run_path(str(ROOT / "clients/python/examples/relative_actions.py"))
    outputs = example["__doc__"].split("    outputs:\n")[1].replace("obs/pos,", "obs/robot0_eef_pos,").replace("obs/quat]", "obs/robot0_eef_quat]")
    one = daemon(EXAMPLE.format(path=tmp_path / "d.hdf5", outputs=outputs))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        past, poses, chunks = example["collect"](feed)
        np.testing.assert_allclose(np.linalg.norm(past[..., 3:6], axis=-1), 1, atol=1e-6)  # rotations, relative to the anchor's
        known = poses[:, 0] < np.quantile(poses[:, 0], 0.8)
        actions = stats.to_robot("actions", example["fit"](past[known], chunks[known])(past[~known]), poses[~known])
        recorded = stats.to_robot("actions", chunks[~known], poses[~known])
    error, spread = np.sqrt(np.mean((actions - recorded)[..., :3] ** 2)), recorded[..., :3].std(axis=(0, 1)).mean()
    assert error * 10 < spread, (error, spread)
    flat = recorded[..., 3:6].reshape(-1, 3)
    turned = (Rotation.from_rotvec(actions[..., 3:6].reshape(-1, 3)).inv() * Rotation.from_rotvec(flat)).magnitude()
    mean = Rotation.from_rotvec(flat).mean()
    assert np.sqrt(np.mean(turned ** 2)) * 10 < np.sqrt(np.mean((mean.inv() * Rotation.from_rotvec(flat)).magnitude() ** 2))
