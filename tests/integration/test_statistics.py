"""Statistics and normalisation by a real daemon, against numpy on the values of the same feed without
normalisation, and on the file."""
import json
import re
import subprocess
import time

import h5py
import numpy as np
import pytest

from daemons import Daemon
from datasets import write_robomimic
from families import T, pixels, png, random, variable
from feeds import SMALL_BATCHES
from paths import TRAJCTL

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}

ROWS_FEED = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    filter: train
    global_batch: 32
    anchor: {{clock: actions}}
    tail: short
    outputs:
      obs/robot0_eef_pos:  {{at: -1..0{norm}}}
      obs/robot0_eef_quat: {{at: -1..0}}
      actions:             {{at: -1..14{norm}}}
      rewards:             {{at: 0, dtype: float64}}
      late:                {{from: actions, at: 0..2, role: obs, lookahead: 1s}}
      flags:               {{from: dones, at: 0}}
"""

CLOCKS_FEED = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  mixed:
    dataset: demo
    global_batch: 16
    rate: 10
    anchor: {{clock: pose}}
    tail: short
    outputs:
      joints:   {{from: joint_pos, at: -3..0{norm}}}
      gripper:  {{from: gripper_cmd, at: -3..0, max_age: 60ms}}
      rotation: {{from: pose_quat, at: -3..0}}
      force:    {{from: joint_pos, at: -100ms..0ms @ 50, kind: previous, dtype: float16}}
      actions:  {{from: [pose_pos, gripper_cmd], at: 0..5, role: action{norm}}}
"""


def ask(client, name, first=0, count=0, timeout=60):
    """Returns the answer when it is ready."""
    end = time.monotonic() + timeout
    while (answer := client.ask("statistics", name, first=first, count=count))["state"] == "computing":
        assert 0 <= answer["done"] <= 1 and time.monotonic() < end
        time.sleep(0.005)
    return answer


def over_windows(config):
    """Returns the configuration with statistics over windows for all outputs. {norm} must be empty."""
    return re.sub(r"(:\s+\{(?:at|from): [^{}]*)\}", r"\1, norm: {over: windows}}", config)


def collect(client, feed):
    """Returns all steps of an epoch by output: [steps, ...] values and masks."""
    client.open(feed)
    rows = {}
    for _, arrays in client.epoch():
        for name, array in arrays.items():
            rows.setdefault(name, []).append(array)
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def valid_values(arrays, name):
    values, mask = arrays[name], arrays[name + ".mask"]
    values = values.reshape(*mask.shape, -1)
    return values[mask == 0].astype(np.float64), mask.size


def assert_figures(answer, values):
    """Compares values [rows, features], float64 without NaN, with the document."""
    assert answer["count"] == [len(values)] * values.shape[1]
    spread = np.abs(values).max(0)
    np.testing.assert_allclose(answer["mean"], values.mean(0), rtol=1e-12, atol=0 if not len(values) else 1e-13 * spread.max())
    np.testing.assert_allclose(answer["std"], values.std(0), rtol=1e-12, atol=1e-14 * spread.max())
    np.testing.assert_array_equal(answer["min"], values.min(0))
    np.testing.assert_array_equal(answer["max"], values.max(0))
    for name, q in QUANTILES.items():
        np.testing.assert_array_equal(answer[name], np.quantile(values, q, axis=0), err_msg=name)


@pytest.mark.parametrize("config, feed", [(ROWS_FEED, "train"), (CLOCKS_FEED, "mixed")])
def test_windows_are_what_the_feed_delivers(daemon, demo_file, config, feed):
    client = daemon(over_windows(config.format(path=demo_file, norm=""))).client()
    arrays = collect(client, feed)
    for name in [name[:-5] for name in arrays if name.endswith(".mask")]:
        answer = ask(client, name)
        values, steps = valid_values(arrays, name)
        if arrays[name].dtype == np.float16:  # counted before they are rounded to the range
            np.testing.assert_allclose(answer["mean"], values.mean(0), atol=1e-3)
            continue
        assert (answer["source"], answer["steps"], answer["valid_steps"]) == ("windows", steps, len(values)), name
        assert answer["windows"] == len(arrays["window_id"])
        assert_figures(answer, values)
    client.close()


RULES = {"mean_std": lambda a: (a["mean"], a["std"]),
         "min_max": lambda a: ((a["min"] + a["max"]) / 2, (a["max"] - a["min"]) / 2),
         "q01_q99": lambda a: ((a["q01"] + a["q99"]) / 2, (a["q99"] - a["q01"]) / 2)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("config, feed, name", [(ROWS_FEED, "train", "actions"), (CLOCKS_FEED, "mixed", "actions")])
def test_normalised_as_the_statistics_say(daemon, demo_file, tmp_path, config, feed, name, rule):
    one = daemon(config.format(path=demo_file, norm=""))
    client = one.client()
    plain = collect(client, feed)
    fingerprint = client.open(feed).fingerprint
    answer = ask(client, name)
    assert "norm" not in answer and answer["norm_digest"] == "0" * 16
    client.close()
    one.stop()

    one = daemon(config.format(path=demo_file, norm=f", norm: {rule}"))
    client = one.client()
    scaled = collect(client, feed)
    info = client.open(feed)
    answer = ask(client, name)
    client.close()
    assert info.fingerprint == fingerprint and np.array_equal(scaled["window_id"], plain["window_id"])
    assert answer["norm_digest"] != "0" * 16 and answer["norm"]["by"] == rule and answer["norm"]["from"] == feed
    centre, width = RULES[rule]({key: np.array(value) for key, value in answer.items() if key in (*QUANTILES, "mean", "std", "min", "max")})
    flat = width <= 1e-6 * np.maximum(np.abs(answer["min"]), np.abs(answer["max"]))
    width = np.where(flat, 1, width)
    want = (plain[name].astype(np.float64) - centre) / width
    valid = plain[name + ".mask"] == 0
    np.testing.assert_allclose(scaled[name][valid], want[valid], atol=3e-6 * max(1, np.abs(want).max()))
    if rule == "min_max":
        assert scaled[name][valid].min() == pytest.approx(-1, abs=1e-5) and scaled[name][valid].max() == pytest.approx(1, abs=1e-5)
    scale, offset = np.float64(answer["norm"]["scale"]), np.float64(answer["norm"]["offset"])
    back = (scaled[name].astype(np.float64) - offset) / scale
    np.testing.assert_allclose(back[valid], plain[name][valid], atol=1e-6)


ONE_EPISODE = """
datasets: {{odd: {{path: {path}, layout: robomimic}}}}
feeds:
  odd:
    dataset: odd
    global_batch: 4
    anchor: {{clock: actions}}
    tail: short
    outputs:
      actions: {{at: 0..2{norm}}}
"""


@pytest.fixture
def odd_values():
    """Returns columns that are constant, nearly constant, NaN, infinite, huge, denormal and -0."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(60, 8)).astype(np.float32)
    values[:, 1] = 0.1
    values[:, 2] = np.float32(1e-42) * np.arange(60)
    values[:, 3] = np.where(np.arange(60) % 2, 3e38, -3e38)
    values[:, 4] = np.float32(100) + np.float32(7.6e-6) * (np.arange(60) % 2)
    values[:, 5] = np.where(np.arange(60) % 3, 0.0, -0.0)
    values[:, 6] = np.arange(60) == 0
    values[7, 0] = np.nan
    values[20, 7] = np.inf
    values[21, 7] = -np.inf
    return values


def test_odd_values(daemon, tmp_path, odd_values):
    path = tmp_path / "odd.hdf5"
    write_robomimic(path, {"demo_0": odd_values, "demo_1": odd_values[:1]})
    client = daemon(over_windows(ONE_EPISODE.format(path=path, norm=""))).client()
    plain = collect(client, "odd")
    answer, rows = ask(client, "actions"), ask(client, "stream:actions")
    client.close()
    values, steps = valid_values(plain, "actions")
    assert not np.isnan(values).any() and answer["valid_steps"] == len(values) < steps
    assert answer["infinite"] == [0] * 7 + [np.isinf(values[:, 7]).sum()] and answer["nan"] == [0] * 8
    everything = np.concatenate([odd_values, odd_values[:1]]).astype(np.float64)
    assert rows["source"] == "rows" and rows["rows"] == 61
    assert rows["nan"] == [1] + [0] * 7 and rows["infinite"] == [0] * 7 + [2]
    for found, table in ((answer, values), (rows, everything)):
        for d in range(8):
            column = table[np.isfinite(table[:, d]), d]
            assert found["count"][d] == len(column)
            one = {key: [value[d]] for key, value in found.items() if isinstance(value, list)}
            assert_figures(one, column[:, None])
    assert answer["std"][1] == 0 and answer["mean"][1] == np.float32(0.1)


@pytest.mark.parametrize("rule", RULES)
def test_what_does_not_move_becomes_zero(daemon, tmp_path, odd_values, rule):
    path = tmp_path / "odd.hdf5"
    write_robomimic(path, {"demo_0": odd_values})
    client = daemon(ONE_EPISODE.format(path=path, norm=f", norm: {{by: {rule}, mask: [true, true, true, true, true, true, false, true]}}")).client()
    scaled = collect(client, "odd")
    answer = ask(client, "actions")
    client.close()
    valid = scaled["actions.mask"] == 0
    assert not scaled["actions"][valid][:, 1].any() and not scaled["actions"][valid][:, 5].any()
    assert np.abs(scaled["actions"][valid][:, 4]).max() < 1e-5  # its range is the last bit of float32
    assert np.isfinite(scaled["actions"][valid][:, :7]).all()
    assert (answer["norm"]["scale"][1], answer["norm"]["scale"][4]) == (1, 1)
    assert (answer["norm"]["scale"][6], answer["norm"]["offset"][6]) == (1, 0)
    assert set(np.unique(scaled["actions"][valid][:, 6])) == {0, 1}


def test_images_are_counted_by_channel(daemon, tmp_path):
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)
    images[..., 2] = 9
    write_robomimic(tmp_path / "p.hdf5", {"demo_0": {"actions": np.zeros((30, 2)), "obs/agentview_image": images}})
    config = ONE_EPISODE.format(path=tmp_path / "p.hdf5", norm="").replace(
        "actions: {at: 0..2}", "{actions: {at: 0}, obs/agentview_image: {at: -1..0NORM}}")
    one = daemon(over_windows(config.replace("NORM", "")))
    client = one.client()
    plain = collect(client, "odd")
    for name, values in (("obs/agentview_image", valid_values(plain, "obs/agentview_image")[0]), ("stream:obs/agentview_image", images)):
        assert_figures(ask(client, name), values.reshape(-1, 3).astype(np.float64))
    client.close()
    one.stop()
    client = daemon(config.replace("NORM", ", norm: {by: mean_std, over: windows}, dtype: float32")).client()
    arrays = collect(client, "odd")
    scaled, valid = arrays["obs/agentview_image"], arrays["obs/agentview_image.mask"] == 0
    client.close()
    assert scaled.dtype == np.float32 and scaled.shape == plain["obs/agentview_image"].shape and not scaled[valid][..., 2].any()
    assert scaled[valid][..., 0].mean() == pytest.approx(0, abs=1e-5) and scaled[valid][..., 0].std() == pytest.approx(1, abs=1e-5)


def test_a_dataset_larger_than_the_store(daemon, tmp_path):
    rng = np.random.default_rng(1)
    episodes = {f"demo_{i}": rng.normal(size=(400, 30)) for i in range(12)}
    write_robomimic(tmp_path / "big.hdf5", episodes)
    one = daemon(ONE_EPISODE.format(path=tmp_path / "big.hdf5", norm=", norm: {by: q01_q99, over: windows}"), store="256KiB")
    client = one.client()
    client.open("odd")
    assert_figures(ask(client, "stream:actions"), np.concatenate(list(episodes.values())))
    answer = ask(client, "actions")
    assert answer["valid_steps"] == 12 * (400 * 3 - 3)
    assert one.text().count("statistics of 1 output over 4800 windows") == 1
    assert client.status()["datasets"][0]["store"]["pieces_evicted"] > 12
    client.close()
    one.stop()
    one.start()  # now read from the cache directory
    assert one.text().count("statistics of 1 output ") == 1
    for path in (one.folder / "cache").glob("*.statistics"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")  # and computed again where that file is damaged
    one.stop()
    one.start()
    assert one.text().count("statistics of 1 output ") == 2
    client = one.client()
    client.open("odd")
    assert ask(client, "actions") == answer
    client.close()


TWO_FEEDS = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train: &train_is_no_anchor
    dataset: demo
    filter: train
    global_batch: 8
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0..3, norm: mean_std}}}}
  valid:
    dataset: demo
    filter: valid
    global_batch: 8{other}
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0..7, norm: mean_std}}}}
""".replace(" &train_is_no_anchor", "")


def test_validation_goes_by_what_training_does(daemon, demo_file):
    one = daemon(TWO_FEEDS.format(path=demo_file, other="\n    statistics_from: train"))
    client = one.client()
    client.open("train")
    train = ask(client, "actions")
    client.open("valid")
    valid = ask(client, "actions")
    client.close()
    assert train["norm"]["scale"] == valid["norm"]["scale"] and valid["norm"]["from"] == "train" and train["mean"] != valid["mean"]
    checked = one.run("--check")
    assert "norm actions: mean_std, statistics over rows of feed train" in checked.stdout and "warning" not in checked.stdout
    one.stop()

    one = daemon(TWO_FEEDS.format(path=demo_file, other=""))
    assert "feeds train and valid normalise output actions by different statistics" in one.text()
    assert "`statistics_from: train` in feed valid" in one.run("--check").stdout
    client = one.client()
    spec = "{dataset: demo, filter: valid, global_batch: 4, anchor: {clock: actions}, statistics_from: %s, outputs: {%s: {from: actions, at: 0, norm: mean_std}}}"
    client.open(spec=spec % ("train", "actions"))
    assert ask(client, "actions")["norm"]["scale"] == train["norm"]["scale"]
    with pytest.raises(Exception, match="no feed nobody in this daemon's configuration"):
        client.open(spec=spec % ("nobody", "actions"))
    with pytest.raises(Exception, match="no output of that name .nearest: actions"):
        client.open(spec=spec % ("train", "action"))
    with pytest.raises(Exception, match="a feed that a job sends can only name a file that a feed of the daemon.s configuration names"):
        client.open(spec="{dataset: demo, global_batch: 4, anchor: {clock: actions}, "
                         "outputs: {actions: {at: 0, norm: {by: mean_std, stats: /etc/passwd}}}}")
    client.close()


OPENPI = {"norm_stats": {"actions": {"mean": [0.5] * 7, "std": [2.0] * 7, "q01": [-1.0] * 7, "q99": [3.0] * 7}}}
LEROBOT = {"action": {"mean": [[0.5]] * 7, "std": [[2.0]] * 7, "min": [-1.0] * 7, "max": [3.0] * 7, "count": [10]}}


@pytest.mark.parametrize("document, norm, scale, offset", [
    (OPENPI, "by: mean_std, stats: given/s.json", 0.5, -0.25), (OPENPI, "by: q01_q99, stats: given/s.json", 0.5, -0.5),
    (LEROBOT, "by: min_max, stats: given/s.json, key: action", 0.5, -0.5)])
def test_statistics_from_files(daemon, demo_file, tmp_path, document, norm, scale, offset):
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "s.json").write_text(json.dumps(document, indent=1))
    config = TWO_FEEDS.format(path=demo_file, other="\n    statistics_from: train").replace("norm: mean_std", "norm: {%s}" % norm)
    client = daemon(config).client()
    client.open("train")
    answer = ask(client, "actions")
    client.close()
    assert answer["norm"]["scale"] == [scale] * 7 and answer["norm"]["offset"] == [offset] * 7
    assert answer["norm"]["from"] == "given/s.json" and answer["source"] == "rows"


def test_a_scale_of_the_configuration_comes_from_nowhere(daemon, demo_file):
    """`trajctl stats --json` writes the absent source as null, not as a text."""
    config = SMALL_BATCHES.format(path=demo_file).replace("at: 0..7", "at: 0..7, norm: {scale: [2, 2, 2, 2, 2, 2, 2]}")
    one = daemon(config)
    done = subprocess.run([TRAJCTL, "stats", "train", "--json", "--endpoint", one.endpoint], capture_output=True, text=True, timeout=60, check=True)
    norm = json.loads(done.stdout)["outputs"]["actions"]["norm"]
    assert norm["from"] is None and norm["scale"] == [2] * 7 and list(norm)[:2] == ["by", "from"]


@pytest.mark.parametrize("document, norm, message", [
    (OPENPI, "by: min_max, stats: s.json", "the file lacks figures that min_max needs"),
    (LEROBOT, "by: min_max, stats: s.json", "no statistics with the name actions .did you mean action"),
    (LEROBOT, "by: min_max, stats: t.json", "t.json: No such file"),
    ({"norm_stats": {"actions": {"mean": [1, 2], "std": [1, 2]}}}, "by: mean_std, stats: s.json", "the statistics have 2 features, the output has 7"),
    ([1], "by: mean_std, stats: s.json", "the file has no statistics"),
    (OPENPI, "by: mean_sdt", "mean_sdt"),
    (OPENPI, "by: mean_std, mask: [true]", "norm.mask has 1 entries, but the output has 7 features"),
    (OPENPI, "by: mean_std, scale: [1]", "scale and offset cannot be combined"),
    (OPENPI, "mask: [true]", "expected `by:`"),
    (OPENPI, "by: mean_std, key: actions", "it names statistics in that file"),
])
def test_what_cannot_be_normalised(daemon, demo_file, tmp_path, document, norm, message):
    (tmp_path / "s.json").write_text(json.dumps(document))
    config = TWO_FEEDS.format(path=demo_file, other="\n    statistics_from: train").replace("norm: mean_std", "norm: {%s}" % norm)
    checked = Daemon(tmp_path, config).run("--check")
    assert checked.returncode != 0 and re.search(message, checked.stderr), checked.stderr


def test_rotations_have_no_statistics_to_go_by(daemon, demo_file, tmp_path):
    config = TWO_FEEDS.format(path=demo_file, other="\n    statistics_from: train").replace("actions: {at", "actions: {from: [pose_pos, pose_quat], at")
    checked = Daemon(tmp_path, config).run("--check")
    assert checked.returncode != 0 and "pose_quat is a rotation" in checked.stderr
    masked = config.replace("norm: mean_std", "norm: {by: mean_std, mask: [true, true, true, false, false, false, false]}")
    assert Daemon(tmp_path, masked).run("--check").returncode == 0
    nothing = masked.replace("statistics_from: train", "statistics_from: nobody")
    assert "no feed nobody" in Daemon(tmp_path, nothing).run("--check").stderr


def test_questions_about_statistics(daemon, demo_file):
    client = daemon(ROWS_FEED.format(path=demo_file, norm="")).client()
    client.open("train")
    with pytest.raises(Exception, match="no output actons .did you mean actions"):
        client.ask("statistics", "actons")
    with pytest.raises(Exception, match="no stream actons .did you mean actions"):
        client.ask("statistics", "stream:actons")
    whole = ask(client, "actions")
    assert whole["features"] == 7 and whole["first"] == 0 and whole["next"] is None
    part = ask(client, "actions", first=2, count=3)
    assert part["mean"] == whole["mean"][2:5] and part["next"] == 5
    with pytest.raises(Exception, match="feature 7 does not exist"):
        client.ask("statistics", "actions", first=7)
    client.close()


def test_datasets_of_a_mixture_go_by_their_own(daemon, tmp_path, demo_file):
    rng = np.random.default_rng(2)
    for name, shift in (("a", 0), ("b", 100)):
        write_robomimic(tmp_path / f"{name}.hdf5", {f"demo_{i}": rng.normal(size=(20, 3)) + shift for i in range(4)})
    one = daemon(f"""
datasets: {{a: {{path: {tmp_path}/a.hdf5, layout: robomimic}}, b: {{path: {tmp_path}/b.hdf5, layout: robomimic}}}}
feeds:
  both:
    mix: {{a: 1, b: 3}}
    global_batch: 8
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0, norm: mean_std}}}}
""")
    client = one.client()
    client.open("both")
    assert client.ask("statistics")["datasets"] == ["a", "b"]
    for number, shift in ((0, 0), (1, 100)):
        while (answer := client.ask("statistics", "actions", window=number))["state"] == "computing":
            time.sleep(0.005)
        np.testing.assert_allclose(answer["mean"], shift, atol=1)
        np.testing.assert_allclose(answer["norm"]["offset"], [-mean / std for mean, std in zip(answer["mean"], answer["std"])], rtol=1e-6)
    with pytest.raises(Exception, match="dataset 2 does not exist"):
        client.ask("statistics", "actions", window=2)
    values = np.concatenate([arrays["actions"] for _, arrays in client.epoch()])
    assert np.abs(values).max() < 6
    client.close()


FRAMES = """
datasets: {{d: {{path: {path}, layout: robomind, color: rgb}}}}
feeds:
  frames:
    dataset: d
    global_batch: 4
    anchor: {{clock: steps}}
    outputs:
      joints:  {{from: puppet/joint_position, at: 0}}
      depth:   {{from: observations/depth_images/png, at: 0}}
      resized: {{from: observations/depth_images/raw, at: 0, image: {{resize: [12, 16]}}}}
      planes:  {{from: observations/rgb_images/raw, at: 0, layout: chw}}
"""


def test_frames_that_are_decoded_or_resized_have_no_statistics(daemon, tmp_path):
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data/trajectory.hdf5", "w") as file:
        file["puppet/joint_position"] = file["master/joint_position"] = random((T, 8))
        variable(file.require_group("observations/depth_images"), "png", [png(24, 32, 100 + i) for i in range(T)])
        file["observations/depth_images/raw"] = pixels((T, 24, 32, 1)).astype("u2")
        file["observations/rgb_images/raw"] = pixels((T, 24, 32, 3))
    one = daemon(FRAMES.format(path=tmp_path / "data"))
    assert subprocess.run([TRAJCTL, "check", one.config], capture_output=True, timeout=60).returncode == 0
    client = one.client()
    client.open("frames")
    listed = client.ask("statistics")["outputs"]
    assert [output["name"] for output in listed if not output["picture"]] == ["joints"]
    assert {output["name"]: output["features"] for output in listed} == {"joints": 8, "depth": 1, "resized": 1, "planes": 3}  # channels
    for name in ("depth", "resized", "planes"):
        with pytest.raises(Exception, match=f"outputs.{name}: no statistics of images that are decoded or resized"):
            ask(client, name)
    with pytest.raises(Exception, match="stream observations/depth_images/png: no statistics of encoded images"):
        ask(client, "stream:observations/depth_images/png")
    assert ask(client, "joints")["rows"] == T
    client.close()


def test_an_output_whose_state_a_dataset_lacks_has_none_there(daemon, tmp_path):
    for name, state in (("a", "obs/arm"), ("b", "obs/other")):
        write_robomimic(tmp_path / f"{name}.hdf5", {"demo_0": {"actions": random((20, 3)), state: random((20, 3), seed=5)}})
    one = daemon(f"""
datasets: {{a: {{path: {tmp_path}/a.hdf5, layout: robomimic}}, b: {{path: {tmp_path}/b.hdf5, layout: robomimic}}}}
feeds:
  both:
    mix: {{a: 1, b: 1}}
    global_batch: 8
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0..3, role: action, relative_to: obs/arm, missing: zero, norm: mean_std}}}}
""")
    assert subprocess.run([TRAJCTL, "check", one.config], capture_output=True, timeout=60).returncode == 0
    client = one.client()
    client.open("both")
    assert client.ask("statistics")["outputs"][0]["lacking"] == [1]
    assert ask(client, "actions")["windows"] == 20
    with pytest.raises(Exception, match="dataset b lacks a stream of output actions"):
        client.ask("statistics", "actions", window=1)
    client.close()
