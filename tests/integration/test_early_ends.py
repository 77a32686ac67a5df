"""Streams that lack rows: rows that disagree on one regular clock, recorders that stop early, and gaps."""
import json
import re
import subprocess

import h5py
import numpy as np
import pytest

from daemons import Daemon
from paths import TRAJCTL

MS = 10**6
LAYOUT = """\
layout: lab
episodes: {{files: "*.hdf5", groups: /data/demo_*}}
clocks: {{arm: {{path: t/arm, unit: ns}}, cam: {{path: t/cam, unit: ns}}}}
streams:
  arm: {{path: arm, clock: arm, kind: linear}}
  feature: {{path: feature, clock: cam, kind: linear{more}}}
  image: {{path: image, clock: cam, kind: previous, optional: true}}
"""
OUTPUTS = """{arm: {at: 0..9, role: action}, feature: {at: 0}, future: {from: feature, at: 0..9, role: action},
      held: {from: feature, at: 0, max_age: 10s}}"""
CONFIG = """\
datasets: {{lab: {{path: {folder}/in.hdf5, layout: {folder}/lab.yaml}}}}
feeds:
  train: {{dataset: lab, global_batch: 200, order: sequential, anchor: {{clock: arm}}, outputs: {outputs}}}
"""
ARM = np.arange(200) * 20 * MS  # 50 Hz for 4 s
CAM = np.arange(49) * 33 * MS  # 30 Hz until 1.6 s
TOO_OLD = CAM[-1] + 99 * MS  # three median intervals after the last frame


def write(folder, more="", images=False):
    (folder / "lab.yaml").write_text(LAYOUT.format(more=more))
    with h5py.File(folder / "in.hdf5", "w") as file:
        group = file.create_group("data/demo_0")
        group["t/arm"], group["t/cam"] = ARM, CAM
        group["arm"] = np.arange(200.0)[:, None] * np.ones(2)
        group["feature"] = np.arange(len(CAM), dtype=np.float32)[:, None]
        if images:
            group["image"] = np.zeros((len(CAM), 4, 4, 3), np.uint8)
    return folder


def trajctl(*arguments):
    return subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=120)


@pytest.fixture
def open_feed(tmp_path, started):
    """open_feed(folder, version) returns all windows of the feed, by a daemon with that version of the configuration."""
    def run(folder, version=2, outputs=OUTPUTS):
        one = Daemon(tmp_path / f"daemon{version}", CONFIG.format(folder=folder, outputs=outputs))
        one.config.write_text(re.sub("^version: .", f"version: {version}", one.config.read_text()))
        client = started(one).client()
        client.open("train")
        batch = client.next()
        arrays = batch.copy()
        batch.release()
        client.close()
        return arrays, trajctl("check", one.config), one
    return run


def expected(steps, ends):
    """Returns the masks of the feature at the steps after each row of the arm."""
    at = ARM[:, None] + np.arange(steps) * 20 * MS
    masks = np.where(at > CAM[-1], 0 if steps == 1 else 2, 0)
    masks[(at > TOO_OLD) & (at <= ARM[-1])] = 7 if ends else masks[-1, -1]
    return masks


def test_steps_after_a_stream_that_stops(tmp_path, open_feed):
    """Inside the episode they are TOO_OLD; after the episode they are AFTER_END, as padding is. An age that the feed states counts."""
    arrays, check, one = open_feed(write(tmp_path))
    assert (expected(1, True) == 7).sum() == 115  # of 200 windows
    np.testing.assert_array_equal(arrays["feature.mask"], expected(1, True))
    np.testing.assert_array_equal(arrays["future.mask"], expected(10, True))
    np.testing.assert_array_equal(arrays["arm.mask"], np.where(ARM[:, None] + np.arange(10) * 20 * MS > ARM[-1], 2, 0))
    assert not arrays["held.mask"].any() and (arrays["feature"][100:] == len(CAM) - 1).all()  # values do not change
    assert "clock cam stops before its episode in 1 of 1 episode" in check.stdout and "TOO_OLD" in check.stdout, check.stdout
    client = one.client()
    client.open("train")
    step = client.ask("explain", window=150)["outputs"][1]["items"][0]
    client.close()
    assert step["mask"] == 7 and "more than 3 median intervals" in step["sources"][0]["reason"]


def test_version_1_holds_the_last_row(tmp_path, open_feed):
    arrays, check, _ = open_feed(write(tmp_path), version=1)
    np.testing.assert_array_equal(arrays["feature.mask"], expected(1, False))
    np.testing.assert_array_equal(arrays["future.mask"], expected(10, False))
    assert "`version: 2` would" in check.stdout and "mask steps after a stream" in check.stdout, check.stdout


def test_events_do_not_grow_old(tmp_path, open_feed):
    write(tmp_path, ", events: true")
    arrays, check, _ = open_feed(tmp_path)
    assert not arrays["feature.mask"].any() and "stops before" not in check.stdout
    done = trajctl("validate", "--layout", tmp_path / "lab.yaml", tmp_path / "in.hdf5")
    assert "ends-early" not in done.stdout


@pytest.mark.parametrize("limits, masks, is_told", [(("", ""), [0], True), ((", max_age: 100ms", ", max_gap: 100ms"), [0, 3, 7], False)])
def test_gaps_are_told(tmp_path, open_feed, limits, masks, is_told):
    """One lost frame is no gap; 15 are. Steps inside count as valid, and the warning ends where the feed masks them."""
    write(tmp_path)
    stamps = np.delete(np.arange(140) * 33 * MS, [20, *range(70, 85)])
    with h5py.File(tmp_path / "in.hdf5", "r+") as file:
        group = file["data/demo_0"]
        for name, rows in (("t/cam", stamps), ("feature", np.arange(len(stamps), dtype=np.float32)[:, None])):
            del group[name]
            group[name] = rows
    outputs = "{feature: {at: 0%s}, future: {from: feature, at: 0..3%s, role: action}}" % limits
    arrays, check, _ = open_feed(tmp_path, outputs=outputs)
    assert sorted({*np.unique(arrays["feature.mask"]), *np.unique(arrays["future.mask"])}) == masks
    told = re.search(r"feature: clock cam has gaps in 1 of 1 episode \(the longest, 0\.528 s, in in\.hdf5: demo_0\): observations inside "
                     r"repeat the row before, other steps", check.stdout)
    assert bool(told) == is_told and "clock arm has gaps" not in check.stdout, check.stdout


def test_files_show_it(tmp_path):
    write(tmp_path)
    inspect = trajctl("inspect", "--json", "--layout", tmp_path / "lab.yaml", tmp_path / "in.hdf5")
    document = json.loads(inspect.stdout)
    document = document[0] if isinstance(document, list) else document
    assert document["episodes"][0]["ends_early"]["cam"].startswith("stops 2.396 s before its episode ends: its last row is 48, at 1.584 s")
    validate = trajctl("validate", "--layout", tmp_path / "lab.yaml", tmp_path / "in.hdf5")
    assert validate.returncode == 1 and re.search(r"^ends-early +in.hdf5: demo_0/cam: stops 2.396 s", validate.stdout, re.M)


def test_a_conversion_is_as_long_as_the_episode(tmp_path):
    """Steps without a value are NaN. Where the rows cannot hold NaN, the run ends with the name of the dataset."""
    write(tmp_path, images=True)
    common = ["resample", tmp_path / "in.hdf5", "-o", tmp_path / "out.hdf5", "--rate", 10, "--layout", tmp_path / "lab.yaml"]
    done = trajctl(*common)
    assert done.returncode == 1 and "demo_0: image stops 2.396 s before" in done.stderr and "events: true" in done.stderr
    assert not (tmp_path / "out.hdf5").exists()
    done = trajctl(*common, "--streams", "arm,feature")
    assert done.returncode == 0 and "its steps after that are NaN" in done.stderr, done.stderr
    with h5py.File(tmp_path / "out.hdf5") as made:
        group = made["data/demo_0"]
        assert len(group["arm"]) == len(group["feature"]) == 40 and np.isfinite(group["arm"][...]).all()
        at = np.arange(40) * 100 * MS
        np.testing.assert_array_equal(np.isnan(group["feature"][:, 0]), at > CAM[-1])


# ---- rows on one regular clock ----

def write_rows(folder, layout, rows):
    """Writes two episodes, or a file for each. `rows`: {dataset: rows} of the second one."""
    folder.mkdir(exist_ok=True)
    for number, count in enumerate(({name: 240 for name in rows}, rows)):
        with h5py.File(folder / ("episode_0.hdf5" if layout == "robomimic" else f"episode_{number}.hdf5"), "a") as file:
            group = file.require_group(f"data/demo_{number}") if layout == "robomimic" else file
            for name, many in count.items():
                group[name] = np.zeros((many, 4, 4, 3) if "image" in name else (many, 7), np.uint8 if "image" in name else np.float32)
    return folder


@pytest.mark.parametrize("layout, rows", [
    ("robomimic", {"actions": 240, "obs/front_image": 60}), ("robomimic", {"actions": 60, "obs/front_image": 240}),
    ("aloha", {"action": 12, "observations/qpos": 12, "observations/images/top": 9})])
def test_rows_that_disagree(tmp_path, daemon, layout, rows):
    folder = write_rows(tmp_path / "data", layout, rows)
    found = trajctl("inspect", "--layout", layout, folder)
    assert found.returncode == 0 and "1 of 2 episodes kept" in found.stdout and "on the same clock" in found.stdout, found.stdout
    found = trajctl("validate", "--layout", layout, folder)
    assert found.returncode == 1 and re.search(r"^quarantined .*rows: every N", found.stdout, re.M)
    done = trajctl("resample", folder / f"episode_{int(layout == 'aloha')}.hdf5", "-o", tmp_path / "out.hdf5", "--rate", 10, "--assume-rate",
                   "--layout", layout)
    assert done.returncode == 1 and "on the same clock" in done.stderr and not (tmp_path / "out.hdf5").exists()
    action = next(iter(rows))
    clock = "actions" if layout == "robomimic" else "steps"
    config = (f"datasets: {{d: {{path: {folder}, layout: {layout}}}}}\n"
              f"feeds: {{train: {{dataset: d, global_batch: 8, anchor: {{clock: {clock}}}, outputs: {{a: {{from: {action}, at: 0}}}}}}}}")
    one = daemon(config)
    client = one.client()
    assert client.open("train").window_count == 240
    client.close()
    assert "on the same clock" in one.text()


def test_one_row_is_a_value_of_the_episode(tmp_path):
    folder = write_rows(tmp_path / "data", "robomimic", {"actions": 240, "obs/goal": 1})
    assert "2 of 2 episodes kept" in trajctl("inspect", "--layout", "robomimic", folder).stdout


# ---- several rows for each row ----

def write_mind(path, frames, states):
    with h5py.File(path, "w") as file:
        file["franka/joint_position"] = np.arange(float(states))[:, None] * np.ones(8)
        file["observations/rgb_images/camera_top"] = np.zeros((frames, 24, 32, 3), np.uint8)


@pytest.mark.parametrize("states, kept", [(64, False), (65, True), (68, True), (69, False)])
def test_rows_every_4(tmp_path, states, kept):
    write_mind(tmp_path / "trajectory.hdf5", 17, states)
    done = trajctl("inspect", "--layout", "robomind", tmp_path)
    assert (done.returncode == 0) == kept and ("`rows: every 4` in the layout needs 65 to 68" in done.stderr) != kept, done
    assert not kept or re.search(r"^  steps\*4 +regular, 120 Hz", done.stdout, re.M)


def test_the_simulations_joints_of_robomind(tmp_path, daemon):
    """At the time of frame k they are row 4k, and at their own rate they are the rows."""
    write_mind(tmp_path / "trajectory.hdf5", 17, 66)
    one = daemon(f"datasets: {{d: {{path: {tmp_path}, layout: robomind, rate: 30}}}}\n"
                 "feeds: {train: {dataset: d, global_batch: 17, order: sequential, anchor: {clock: steps}, outputs: {"
                 "q: {from: franka/joint_position, at: 0}, all: {from: franka/joint_position, at: 0..3 @ 120, role: action}}}}")
    client = one.client()
    client.open("train")
    arrays = next(client.epoch())[1]
    client.close()
    np.testing.assert_allclose(arrays["q"][:, 0, 0], 4 * np.arange(17), atol=1e-4)
    np.testing.assert_allclose(arrays["all"][:16, :, 0], 4 * np.arange(16)[:, None] + np.arange(4), atol=1e-4)


@pytest.mark.parametrize("keys, wrong", [
    ("rows: every 1", "every N"), ("rows: every", "every N"), ("rows: every 4 ", None), ("rows: some", "first or every N"),
    ("events: true", "events have stamps")])
def test_mistakes(tmp_path, keys, wrong):
    (tmp_path / "lab.yaml").write_text("layout: lab\nepisodes: {files: '*.hdf5', groups: /}\nclocks: {c: {rate: 10}}\nstreams:\n"
                                       f"  a: {{clock: c, kind: linear}}\n  b: {{clock: c, kind: linear, {keys}}}\n")
    with h5py.File(tmp_path / "in.hdf5", "w") as file:
        file["a"], file["b"] = np.zeros((10, 2)), np.zeros((40, 2))
    done = trajctl("inspect", "--layout", tmp_path / "lab.yaml", tmp_path / "in.hdf5")
    assert done.returncode == 0 if wrong is None else "lab.yaml:6" in done.stderr and wrong in done.stderr, done.stderr
