"""trajd.Stats against the values of a real daemon, and files of trajctl, openpi and LeRobot. The module is loaded
alone: it needs no compiled part."""
import contextlib
import importlib.util
import json
import os
import re
import subprocess

import h5py
import numpy as np
import pytest

import trajd
from datasets import write_robomimic
from paths import BUILD, ROOT

_spec = importlib.util.spec_from_file_location("trajd_stats_alone", ROOT / "clients/python/trajd/stats.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
Stats = _module.Stats

FEED = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 32
    anchor: {{clock: actions}}
    tail: short
    outputs:
      obs/robot0_eef_pos: {{at: -1..0{norm}}}
      actions:            {{at: 0..7{norm}}}
      plain:              {{from: actions, at: 0}}
"""
RULES = ("mean_std", "min_max", "q01_q99")


def trajctl(one, *arguments, status=0):
    done = subprocess.run([BUILD / "clients/cli/trajctl", "stats", *arguments, "--endpoint", one.endpoint], capture_output=True, text=True,
                          env=one.environment(), timeout=60)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def batches(one):
    client = one.client()
    client.open("train")
    arrays = [batch for _, batch in client.epoch()]
    client.close()
    return {name: np.concatenate([batch[name] for batch in arrays]) for name in arrays[0]}


@pytest.mark.parametrize("rule", RULES)
def test_the_same_as_the_daemon(daemon, demo_file, tmp_path, rule):
    one = daemon(FEED.format(path=demo_file, norm=""))
    plain = batches(one)
    trajctl(one, "train", "-o", tmp_path / "plain.json")
    one.stop()
    mask = [True] * 6 + [False]
    norm = ", norm: {by: %s, mask: %s}" % (rule, json.dumps(mask))
    one = daemon(FEED.format(path=demo_file, norm=norm).replace(norm, f", norm: {rule}", 1))
    scaled = batches(one)
    trajctl(one, "train", "-o", tmp_path / "stats.json")
    stats, unscaled = Stats.load(tmp_path / "stats.json"), Stats.load(tmp_path / "plain.json")
    assert sorted(stats) == ["actions", "obs/robot0_eef_pos", "plain"]
    for name, given in (("actions", mask), ("obs/robot0_eef_pos", None)):
        np.testing.assert_allclose(stats.unnormalize(name, scaled[name]), plain[name], rtol=2e-6, atol=2e-7)
        np.testing.assert_allclose(stats.normalize(name, plain[name]), scaled[name], rtol=2e-6, atol=2e-6)
        np.testing.assert_array_equal(stats.scale_and_offset(name), unscaled.scale_and_offset(name, by=rule, mask=given))
        for figure in ("mean", "std", "min", "max", "q01", "q50", "q99", "count"):
            np.testing.assert_array_equal(stats[name][figure], unscaled[name][figure])
    assert np.array_equal(stats.normalize("plain", plain["plain"]), plain["plain"])


def test_files_of_others(daemon, demo_file, tmp_path):
    one = daemon(FEED.format(path=demo_file, norm=""))
    for form in ("trajd", "openpi", "lerobot"):
        trajctl(one, "train", "--format", form, "--out", tmp_path / form)
    whole = Stats.load(tmp_path / "trajd")
    document = json.loads((tmp_path / "openpi").read_text())
    assert sorted(document["norm_stats"]["actions"]) == ["mean", "q01", "q99", "std"]
    document = json.loads((tmp_path / "lerobot").read_text())
    assert document["action"]["count"] == [int(whole["actions"]["count"][0])] and document["action"]["min"] == list(whole["actions"]["min"])
    with h5py.File(demo_file) as file:
        rows = np.concatenate([demo["actions"][:] for demo in file["data"].values()]).astype(np.float64)
    np.testing.assert_allclose(whole["plain"]["mean"], rows.mean(0), rtol=1e-6, atol=1e-8)
    for form in ("trajd", "openpi", "lerobot"):
        loaded = Stats.load(tmp_path / form)
        name = "action" if form == "lerobot" else "actions"
        for again in ("trajd", "openpi", "lerobot"):
            with pytest.warns(UserWarning, match="called .*state") if again != "trajd" else contextlib.nullcontext():
                loaded.save(tmp_path / "again", format=again)
            copy = Stats.load(tmp_path / "again")
            np.testing.assert_array_equal(copy[{"openpi": "actions", "lerobot": "action"}.get(again, name)]["std"], whole["actions"]["std"])
        np.testing.assert_array_equal(loaded.normalize(name, rows, by="q01_q99"), whole.normalize("actions", rows, by="q01_q99"))
    # A device or pipe takes the bytes and stays. Of a link, the target is replaced.
    assert json.loads(trajctl(one, "train", "-o", "/dev/stdout"))["trajd_statistics"] == 1
    (tmp_path / "link").symlink_to(tmp_path / "trajd")
    trajctl(one, "train", "-o", tmp_path / "link")
    whole.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and Stats.load(tmp_path / "trajd")["actions"]["mean"].shape == (7,)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.warns(UserWarning, match="LeRobot will not normalise it"):
        whole.save(tmp_path / "pipe", format="lerobot")
    assert "action" in json.loads(os.read(reader, 1 << 16)) and (tmp_path / "pipe").is_fifo()
    trajctl(one, "train", "-o", tmp_path / "pipe")
    assert json.loads(os.read(reader, 1 << 16))["trajd_statistics"] == 1
    os.close(reader)
    assert "pipe: a pipe that no process reads: start its reader first" in trajctl(one, "train", "-o", tmp_path / "pipe", status=1)
    with pytest.raises(OSError, match="a pipe that no process reads: start its reader first.*pipe"):
        whole.save(tmp_path / "pipe")
    said = trajctl(one, "train", "--output", "stream:actions")
    assert f"stream:actions: {len(rows)} of {len(rows)} rows" in said and len(said.splitlines()) == 9
    assert "no output actins (did you mean actions" in trajctl(one, "train", "--output", "actins", status=1)
    assert "choose trajd, openpi or lerobot" in trajctl(one, "train", "--format", "csv", status=2)
    assert "No such file" in trajctl(one, "train", "-o", tmp_path / "nowhere" / "x", status=1)
    assert json.loads(trajctl(one, "train", "--json"))["outputs"]["actions"]["source"] == "rows"


OPENPI_FEED = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 32
    anchor: {{clock: actions}}
    outputs:
      {state}: {{from: [obs/robot0_eef_pos, obs/robot0_gripper_qpos], at: -1..0}}
      {actions}: {{from: actions, at: 0..49, role: action}}
      other: {{from: actions, at: 0}}
"""


@pytest.mark.parametrize("state, actions", [("state", "actions"), ("obs/qpos", "action"), ("obs/robot_state", "actions")])
def test_openpi_reads_its_own_names(daemon, demo_file, tmp_path, state, actions):
    """openpi's Unnormalize raises for a name that its data lack, and its Normalize passes over data without a name."""
    one = daemon(OPENPI_FEED.format(path=demo_file, state=state, actions=actions))
    trajctl(one, "train", "--out", tmp_path / "own")
    assert trajctl(one, "train", "--format", "openpi", "--out", tmp_path / "norm_stats.json") == ""
    document = json.loads((tmp_path / "norm_stats.json").read_text())
    assert list(document) == ["norm_stats"] and set(document["norm_stats"]) == {"state", "actions"}
    own = Stats.load(tmp_path / "own")
    for name, output in (("state", state), ("actions", actions)):
        assert set(document["norm_stats"][name]) == {"mean", "std", "q01", "q99"}
        for figure, values in document["norm_stats"][name].items():
            np.testing.assert_array_equal(values, own[output][figure])
    own.save(tmp_path / "again", format="openpi")
    assert json.loads((tmp_path / "again").read_text()) == document
    one.stop()
    norm = f", norm: {{by: q01_q99, stats: {tmp_path / 'norm_stats.json'}, key: state}}"
    one = daemon(OPENPI_FEED.format(path=demo_file, state=state, actions=actions).replace("at: -1..0", "at: -1..0" + norm))
    assert "norm_stats.json" in one.text()


def test_openpi_without_its_names(daemon, demo_file, tmp_path):
    config = OPENPI_FEED.format(path=demo_file, state="pose", actions="actions")
    one = daemon(config)
    said = trajctl(one, "train", "--format", "openpi", "--out", tmp_path / "s.json")
    assert "feed train has no output called state: openpi will not normalise it" in said
    assert list(json.loads((tmp_path / "s.json").read_text())["norm_stats"]) == ["actions"]
    trajctl(one, "train", "--out", tmp_path / "own")
    with pytest.warns(UserWarning, match="no output is called state"):
        Stats.load(tmp_path / "own").save(tmp_path / "again", format="openpi")
    one.stop()
    one = daemon(config.replace("actions: {from", "moves: {from"), folder="none")
    assert "openpi's file has the names state and actions" in trajctl(one, "train", "--format", "openpi", status=1)
    trajctl(one, "train", "--out", tmp_path / "own")
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="no output has one of them .there are: pose, moves, other"):
        Stats.load(tmp_path / "own").save(tmp_path / "again", format="openpi")
    one.stop()
    one = daemon(config.replace("pose: {", "obs/state: {").replace("other: {from: actions", "qpos: {from: obs/robot0_eef_pos"), folder="two")
    assert "2 outputs would be called state in openpi's file: choose one with --output" in trajctl(one, "train", "--format", "openpi", status=1)
    assert "no output called actions" in trajctl(one, "train", "--format", "openpi", "--output", "qpos")


def test_datasets_that_lack_an_output(daemon, tmp_path):
    """A mixture in which dataset b lacks a stream, and dataset c lacks it in one episode: `missing: zero`."""
    rng = np.random.default_rng(2)
    rows = {name: {"actions": rng.normal(size=(30, 3)), "obs/robot0_eef_pos": rng.normal(size=(30, 3))} for name in ("demo_0", "demo_1")}
    write_robomimic(tmp_path / "b.hdf5", {"demo_0": {"actions": rows["demo_0"]["actions"]}})
    write_robomimic(tmp_path / "c.hdf5", {"demo_0": rows["demo_0"], "demo_1": {"actions": rows["demo_1"]["actions"]}})
    one = daemon(f"""
datasets: {{b: {{path: {tmp_path}/b.hdf5, layout: robomimic}}, c: {{path: {tmp_path}/c.hdf5, layout: robomimic}}}}
feeds:
  both:
    mix: {{b: 1, c: 1}}
    epoch: 40
    global_batch: 4
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0..3}}, obs/robot0_eef_pos: {{at: -1..0, missing: zero, norm: mean_std}}}}
  alone:
    dataset: c
    global_batch: 4
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0..3}}, obs/robot0_eef_pos: {{at: -1..0, missing: zero}}}}
""")
    want = rows["demo_0"]["obs/robot0_eef_pos"].astype(np.float32).astype(np.float64)
    with trajd.connect(one.endpoint, feed="both", timeout=60) as feed:
        stats = feed.stats()
        assert set(stats) == {"b:actions", "c:actions", "c:obs/robot0_eef_pos"}
        assert list(stats["b:actions"]["count"]) == [30] * 3 and list(stats["c:actions"]["count"]) == [60] * 3
        np.testing.assert_allclose(stats["c:obs/robot0_eef_pos"]["mean"], want.mean(0), rtol=1e-12)
        assert set(feed.stats(["obs/robot0_eef_pos"])) == {"c:obs/robot0_eef_pos"}
        for batch in feed.epoch(0):
            lacking = batch.dataset_index == 0
            assert (batch.mask("obs/robot0_eef_pos")[lacking] == 6).all() and not batch["obs"]["robot0_eef_pos"][lacking].any()
    with trajd.connect(one.endpoint, feed="alone", timeout=60) as feed:
        stats = feed.stats()
        assert list(stats["obs/robot0_eef_pos"]["count"]) == [30] * 3  # the other episode's rows are left out
        np.testing.assert_allclose(stats["obs/robot0_eef_pos"]["std"], want.std(0), rtol=1e-12)
    document = json.loads(trajctl(one, "both", "--json"))
    assert set(document["outputs"]) == {"b:actions", "c:actions", "c:obs/robot0_eef_pos"}
    assert "c:obs/robot0_eef_pos" in trajctl(one, "both", "--output", "obs/robot0_eef_pos")
    assert "openpi's file has the names state and actions: give the feed one dataset" in trajctl(one, "both", "--format", "openpi", status=1)


def test_flat_features_and_unknown_ones():
    figures = {"x": {"mean": np.array([0.1, 5, 0, 2e30, np.nan]), "std": np.array([0, 1e-6, 1e-30, 1e30, np.nan]), "min": np.array([0.1, 5, -1, 0, np.nan]),
                     "max": np.array([0.1, 5.000001, 1, 4e30, np.nan])}}
    scale, offset = Stats(figures).scale_and_offset("x", by="mean_std")
    assert list(scale[:3]) == [1, 1, 1] and list(offset[:3]) == [np.float32(-0.1), -5, 0]
    assert scale[3] == np.float32(1e-30) and offset[3] == -2 and (scale[4], offset[4]) == (1, 0)
    x = np.array([[0.1, 5, 0, 0, 7]])
    np.testing.assert_allclose(Stats(figures).normalize("x", x, by="mean_std"), [[0, 0, 0, -2, 7]], atol=1e-8)
    assert Stats(figures).normalize("x", x.astype(np.float32), by="min_max").dtype == np.float32
    np.testing.assert_allclose(Stats(figures).unnormalize("x", Stats(figures).normalize("x", x, by="min_max"), by="min_max"), x, atol=1e-6)


def test_what_cannot_be(tmp_path):
    stats = Stats({"x": {"mean": np.zeros(2), "std": np.ones(2)}})
    for call, message in ((lambda: stats.normalize("y", [1, 2], by="mean_std"), "no statistics of y .there are: x"),
                          (lambda: stats.normalize("x", [1, 2]), "does not say how x is normalised: give by='mean_std'"),
                          (lambda: stats.to_robot("x", [1, 2]), "does not say how x is normalised .one of `trajctl stats FEED -o` does.: use .* unnormalize, which"),
                          (lambda: stats.to_policy("x", [1, 2]), "use normalize or unnormalize, which take by='mean_std'"),
                          (lambda: stats.normalize("x", [1, 2], by="min_max"), "no min and no max, which min_max needs"),
                          (lambda: stats.normalize("x", [1, 2], by="minmax"), "no rule 'minmax'"),
                          (lambda: stats.normalize("x", [1, 2, 3], by="mean_std"), "2 features, and the last axis of x is 3"),
                          (lambda: stats.normalize("x", [1, 2], by="mean_std", mask=[True]), "mask: one bool for each feature of x is expected .2., not 1"),
                          (lambda: stats.normalize("x", [1, 2], mask=[True, True]), "mask needs by="),
                          (lambda: stats.save(tmp_path / "s", format="yaml"), "no format 'yaml'")):
        with pytest.raises((KeyError, ValueError), match=message):
            call()
    for text, message in (("[1]", "not a file of statistics"), ('{"trajd_statistics": 2, "outputs": {}}', "statistics of version 2"),
                          ('{"x": {"mean": [1], "std": [1, 2]}}', "statistics of x: figures of"), ('{"x": {"mean": ["a"]}}', "statistics of x: could not"),
                          ('{"x": 1}', "statistics of x: not a mapping"), ('{"x": {}}', "statistics of x: no figures"),
                          ("", "not a file of statistics: it is not valid JSON .Expecting value"), ("\udcff", "not a file of statistics: it is not valid JSON .*can't decode"),
                          ('{"trajd_statistics": 1}', "outputs: a mapping of names"), ('{"norm_stats": []}', "norm_stats: a mapping of names"),
                          ('{"trajd_statistics": 1, "outputs": {"x": {"mean": [1], "norm": 5}}}', "the norm or the chain of an output cannot be read")):
        (tmp_path / "bad.json").write_text(text, errors="surrogateescape")
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/bad.json: ") + message):
            Stats.load(tmp_path / "bad.json")


def test_states_of_other_shapes_are_said():
    part = {"kind": "plain", "relative": True, "first": 0, "count": 2, "output_first": 0, "output_count": 2, "reference_first": 0}
    chain = {"id": "x", "columns": 2, "output_columns": 2, "reference_columns": 2, "frame": "anchor", "step": "anchor", "parts": [part]}
    figures = {name: np.zeros(2) for name in ("mean", "std", "min", "max")}
    stats = trajd.Stats({"actions": figures}, chains={"actions": chain}, fingerprints={"actions": "0"})
    chunk, states = np.arange(48.0).reshape(3, 8, 2), np.arange(12.0).reshape(3, 2, 2)
    made = stats.to_robot("actions", chunk, states[:, -1])
    np.testing.assert_array_equal(made, chunk + states[:, -1:])
    np.testing.assert_array_equal(stats.to_robot("actions", chunk[0], states[0, -1]), made[0])
    np.testing.assert_array_equal(stats.to_robot("actions", chunk, states[0, -1]), chunk + states[0, -1])
    np.testing.assert_array_equal(stats.to_policy("actions", made, states[:, -1]), chunk)
    for steps, state in ((chunk, states), (chunk[:, 0], states[:, -1]), (chunk[0, 0], states[0, -1]), (chunk, states[:2, -1])):
        for call in (stats.to_robot, stats.to_policy):
            with pytest.raises(ValueError, match=r"their state is \[B, D\] at the anchor: take state\[:, -1\] of one \[B, T, D\], and chunk"):
                call("actions", steps, state)


def test_masked_arrays():
    """Numbers stay masked where each makes one number. A chain needs all numbers of a row."""
    figures = {"x": {"mean": np.array([1.0, 2]), "std": np.array([2.0, 4])}}
    norms = {"x": {"scale": [0.5, 0.25], "offset": [-0.5, -0.5]}}
    stats = Stats(figures, norms)
    x = np.ma.masked_array([[3.0, 6], [1, 2]], mask=[[True, False], [False, False]])
    for made in (stats.normalize("x", x), stats.normalize("x", x, by="mean_std"), stats.to_policy("x", x)):
        assert made.mask.tolist() == x.mask.tolist() and made.compressed().tolist() == [1, 0, 0]
    for made in (stats.unnormalize("x", x), stats.to_robot("x", x)):
        assert made.mask.tolist() == x.mask.tolist() and made.compressed().tolist() == [26, 3, 10]
    assert isinstance(stats.normalize("x", x.data.tolist()), np.ndarray) and stats.normalize("x", x.astype("f4")).dtype == np.float32
    part = {"kind": "plain", "first": 0, "count": 2, "output_first": 0, "output_count": 2, "relative": True, "reference_first": 0}
    chain = {"columns": 2, "output_columns": 2, "reference_columns": 2, "frame": "base", "step": "anchor", "id": "0", "parts": [part]}
    stats = trajd.Stats(figures, norms, {"x": chain})
    assert stats.to_policy("x", x.data, x.data[0]).tolist() == [[-0.5, -0.5], [-1.5, -1.5]]
    for made in (stats.to_policy, stats.to_robot):
        with pytest.raises(ValueError, match="has masked numbers.*fill them first"):
            made("x", x, x.data[0])
        with pytest.raises(ValueError, match="the state has masked numbers"):
            made("x", x.data, x[0])
