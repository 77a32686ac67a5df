"""Statistics over rows, against the formulas of ACT, robomimic and LeRobot, written here in numpy, and the batches
that are normalised with them."""
import h5py
import numpy as np
import pytest

import trajd
from daemons import Daemon
from datasets import natural, write_robomimic
from paths import RECORDINGS

LENGTHS = (60, 2, 25, 41)  # with `pad: {after: 0}` the second episode is too short for a window
FEED = """
datasets: {{d: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: d
    global_batch: 16
    tail: short
    anchor: {{clock: {clock}}}
    {keys}
    outputs:
      state:   {{from: {state}, at: -1..0{norm}}}
      actions: {{from: {action}, at: 0..15, role: action{norm}}}
"""


def robomimics(episodes):
    """Mean and std as SequenceDataset.normalize_obs: float32 rows, squared distances merged episode by episode."""
    n, mean, squares = 0, 0.0, 0.0
    for rows in episodes:
        rows = rows.astype(np.float32).astype(np.float64)
        own = rows.mean(0)
        delta, total = own - mean, n + len(rows)
        squares = squares + ((rows - own) ** 2).sum(0) + delta ** 2 * n * len(rows) / total
        mean, n = (n * mean + len(rows) * own) / total, total
    return mean, np.sqrt(squares / n) + 1e-3


def acts(episodes):
    """Mean and std as get_norm_stats: all rows of all episodes, torch's std (n - 1), clipped from below."""
    rows = np.concatenate(episodes)
    return rows.mean(0), np.clip(rows.std(0, ddof=1), 1e-2, None)


def lerobots(episodes):
    """Mean and std as aggregate_feature_stats: the episodes' own, weighted by their rows."""
    counts = np.array([len(rows) for rows in episodes])[:, None]
    means, variances = (np.stack([f(rows, axis=0) for rows in episodes]) for f in (np.mean, np.var))
    mean = (means * counts).sum(0) / counts.sum()
    return mean, np.sqrt(((variances + (means - mean) ** 2) * counts).sum(0) / counts.sum())


def assert_rows(found, episodes):
    rows = np.concatenate(episodes)
    n = len(rows)
    spread = np.abs(rows).max(0)
    assert list(found["count"]) == [n] * rows.shape[1]
    np.testing.assert_allclose(found["mean"], rows.mean(0), rtol=1e-12, atol=1e-14 * spread.max())
    np.testing.assert_allclose(found["std"], rows.std(0), rtol=1e-12, atol=1e-14 * spread.max())
    for name, q in (("min", 0), ("q01", 0.01), ("q50", 0.5), ("q99", 0.99), ("max", 1)):
        np.testing.assert_array_equal(found[name], np.quantile(rows, q, axis=0), err_msg=name)
    mean, std = robomimics(episodes)
    np.testing.assert_allclose((found["mean"], found["std"] + 1e-3), (mean, std), rtol=1e-6, atol=1e-7 * spread.max())
    mean, std = lerobots(episodes)
    np.testing.assert_allclose((found["mean"], found["std"]), (mean, std), rtol=1e-9, atol=1e-12 * spread.max())
    mean, std = acts(episodes)
    np.testing.assert_allclose((found["mean"], np.maximum(found["std"] * np.sqrt(n / (n - 1)), 1e-2)), (mean, std),
                               rtol=1e-9, atol=1e-12 * spread.max())


def normalised_actions(feed):
    """Returns the valid steps of all windows: (index of the episode, index of the first row, actions [steps, features])."""
    windows = []
    for batch in feed.epoch(0):
        for row in range(batch.rows):
            first = round(int(batch.anchor_ns[row]) * 20 / 1e9)
            windows.append((int(batch.episode_index[row]), first, batch["actions"][row][~batch["actions_is_pad"][row]].copy()))
    return windows


@pytest.fixture
def file(tmp_path):
    """Episodes of four lengths that move by different amounts: windows weigh their first rows less. The last feature
    moves less than ACT's floor, and the one before not at all."""
    rng = np.random.default_rng(7)
    episodes = [np.cumsum(rng.normal(size=(length, 5)), axis=0) * [1, 0.1, 10, 0, 1e-4] + [0, 3, 100, 0.5, 1] for length in LENGTHS]
    write_robomimic(tmp_path / "d.hdf5", {f"demo_{i}": {"actions": rows, "obs/robot0_eef_pos": rows[:, :3]} for i, rows in enumerate(episodes)})
    return tmp_path / "d.hdf5", [rows.astype(np.float32).astype(np.float64) for rows in episodes]


def feed_of(path, norm="", keys="", layout="robomimic", clock="actions", state="obs/robot0_eef_pos", action="actions"):
    return FEED.format(path=path, norm=norm, keys=keys, layout=layout, clock=clock, state=state, action=action)


@pytest.mark.parametrize("keys", ["", "pad: {after: 0}", "pad: {before: 0, after: 0}"])
def test_each_row_counts_once(daemon, file, keys):
    path, episodes = file
    one = daemon(feed_of(path, norm=", norm: mean_std", keys=keys))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        assert_rows(stats["actions"], episodes)
        assert_rows(stats["state"], [rows[:, :3] for rows in episodes])
    assert "statistics over rows of this feed" in one.run("--check").stdout


def test_windows_on_request(daemon, file):
    path, episodes = file
    one = daemon(feed_of(path, norm=", norm: {by: mean_std, over: windows}"))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        found = feed.stats()["actions"]
    steps = np.concatenate([rows[max(0, t):t + 16] for rows in episodes for t in range(len(rows))])
    np.testing.assert_allclose((found["mean"], found["std"]), (steps.mean(0), steps.std(0)), rtol=1e-12, atol=1e-12)
    assert np.abs(found["std"][:3] / np.concatenate(episodes).std(0)[:3] - 1).max() > 0.01  # rows give other numbers
    assert "statistics over windows of this feed" in one.run("--check").stdout


@pytest.mark.parametrize("norm, width", [
    ("mean_std", lambda std: np.where(std > 1e-6, std, 1)), ("{by: mean_std, min_std: 0.01}", lambda std: np.maximum(std, 1e-2)),
    ("{by: mean_std, min_std: 1}", lambda std: np.maximum(std, 1))])
def test_a_floor_for_the_std(daemon, file, norm, width):
    path, episodes = file
    rows = np.concatenate(episodes)
    want = width(rows.std(0))
    one = daemon(feed_of(path, norm=f", norm: {norm}"))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        windows = normalised_actions(feed)
        scale, offset = stats.scale_and_offset("actions")
    np.testing.assert_allclose(scale, 1 / want, rtol=1e-7)
    np.testing.assert_allclose(offset, -rows.mean(0) / want, rtol=1e-6)
    assert len(windows) == len(rows)
    for episode, first, actions in windows:  # ACT's (action - mean) / std, value for value
        np.testing.assert_allclose(actions, (episodes[episode][first:first + 16] - rows.mean(0)) / want, rtol=1e-5, atol=2e-7 / want.min())
    assert stats["actions"]["std"][4] == pytest.approx(rows.std(0)[4])  # the figures are those of the data
    if "min_std" in norm:
        assert "std at least" in one.run("--check").stdout
        again = stats.scale_and_offset("actions", by="mean_std", min_std=float(norm.split("min_std: ")[1][:-1]))
        np.testing.assert_array_equal(again, (scale, offset))


RECORDED = sorted(path.name for path in RECORDINGS.glob("*.hdf5"))


@pytest.mark.skipif(not RECORDED, reason="the recordings are not here (../shared/data)")
@pytest.mark.parametrize("name", RECORDED or ["none"])
def test_recordings(daemon, name):
    episodes = {"states": [], "actions": []}
    with h5py.File(RECORDINGS / name) as file:
        for demo in sorted((n for n in file["data"] if n.startswith("demo_")), key=natural):
            demo = file["data"][demo]
            keep = np.concatenate([[True], np.diff(np.rint(demo["states"][:, 0] * 1e9)) > 0])  # repeated stamps are dropped
            action = "actions" if "actions" in demo else "joint_velocities"
            for key, source in (("states", "states"), ("actions", action)):
                episodes[key].append(demo[source][:].astype(np.float32).astype(np.float64)[keep])
    one = daemon(feed_of(RECORDINGS / name, layout="robosuite_raw", clock="sim", state="states", action=action, keys="pad: {after: 0}"))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
    assert_rows(stats["state"], episodes["states"])
    assert_rows(stats["actions"], episodes["actions"])


@pytest.mark.parametrize("anchor", ["clock: pose", "rate: 13"])
def test_other_clocks_are_resampled_onto_the_rows(daemon, demo_file, anchor):
    """An output on another clock, or with a grid of its own, counts with what it delivers at step 0."""
    config = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 16
    tail: short
    anchor: {{{anchor}}}
    outputs:
      joints: {{from: joint_pos, at: {at}, role: action}}
      grid:   {{from: pose_pos, at: {grid} @ 50, kind: mean}}
"""
    one = daemon(config.format(path=demo_file, anchor=anchor, at="-3..4", grid="-100ms..0ms"))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
    one.stop()
    one = daemon(config.format(path=demo_file, anchor=anchor, at="0", grid="0ms..0ms"), folder="one_step")
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        values = {name: [] for name in stats}
        for batch in feed.epoch(0):
            for name in stats:
                values[name].append(batch[name][batch.mask(name) == 0].astype(np.float64))
    for name in stats:
        rows = np.concatenate(values[name])
        assert list(stats[name]["count"]) == [len(rows)] * rows.shape[1]
        np.testing.assert_allclose((stats[name]["mean"], stats[name]["std"]), (rows.mean(0), rows.std(0)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm, message", [
    ("{by: min_max, min_std: 0.01}", "min_std is a floor for the std, and min_max divides by no std"),
    ("{by: mean_std, min_std: 0}", "min_std"), ("{by: mean_std, over: episodes}", "over"),
    ("{by: mean_std, stats: s.json, over: rows}", "the statistics of a file are complete: remove `over:`"),
    ("{min_std: 0.01}", "expected `by:`")])
def test_what_is_refused(file, tmp_path, norm, message):
    checked = Daemon(tmp_path, feed_of(file[0], norm=f", norm: {norm}")).run("--check")
    assert checked.returncode != 0 and message in checked.stderr, checked.stderr


@pytest.mark.parametrize("train, valid, said", [
    ("over: windows", "", "mean_std, statistics over windows of feed train"),
    ("over: windows", "over: windows", "mean_std, statistics over windows of feed train"),
    ("over: windows", "over: rows", "norm.over: rows, but feed train, which statistics_from names, has windows: remove `over:` here"),
    ("", "over: windows", "norm.over: windows, but feed train, which statistics_from names, has rows"),
    ("min_std: 0.5", "", "mean_std, statistics over rows of feed train, std at least 0.5"),
    ("min_std: 0.5", "min_std: 0.1", "norm.min_std: 0.1, but feed train, which statistics_from names, has 0.5"),
    ("", "min_std: 0.1", "norm.min_std: 0.1, but feed train, which statistics_from names, has none")])
def test_a_feed_follows_the_one_that_it_names(file, tmp_path, train, valid, said):
    def feed_with(keys):
        return feed_of(file[0], norm=f", norm: {{by: mean_std{', ' if keys else ''}{keys}}}")
    config = feed_with(valid)
    follower = config[config.index("  train:"):].replace("train:", "valid:").replace("    outputs:", "    statistics_from: train\n    outputs:")
    checked = Daemon(tmp_path, feed_with(train) + follower).run("--check")
    assert said in (checked.stderr if checked.returncode else checked.stdout), checked.stdout + checked.stderr
    assert (checked.returncode != 0) == ("but feed train" in said)
