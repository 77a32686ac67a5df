"""Feeds of converted sets: windows, padding and tasks as LeRobotDataset returns them; presets of `trajctl init` that open."""
import hashlib
import json
import shutil

import h5py
import numpy as np
import pytest
from bar_codes import read_bar_code
from drafted import init
from lerobot_sets import make_v3
from paths import ROOT

import trajd
from trajd.convert.__main__ import main

VIDEO = ROOT / "tests" / "golden" / "video"
RECORDED = {name: (version, held) for version in ("v30", "v21")
            for name, held in json.loads((VIDEO / f"lerobot_{version}.json").read_text())["sets"].items() if "windows" in held}


@pytest.fixture
def opened(daemon, tmp_path):
    """opened(file, outputs, **options) opens a feed with a window for each row, in order, that is padded as LeRobot does."""
    made = []

    def open_feed(path, outputs, **options):
        config = {"datasets": {"data": {"path": str(path), **options.pop("dataset", {})}}, "feeds": {"train": {
            "dataset": "data", "global_batch": 4, "tail": "short", "order": "sequential", "pad": {"before": "any", "after": "any", "with": "edge"},
            "outputs": outputs, **options}}}
        one = daemon("\n".join(f"{key}: {json.dumps(value)}" for key, value in config.items()), folder="daemon", rings="256MiB")
        made.append(trajd.connect(one.endpoint, feed="train", timeout=60, style="lerobot"))
        return made[-1]

    yield open_feed
    for feed in made:
        feed.close()


def collect(feed, keys):
    """Returns the values of all windows of an epoch, stacked in the order of the rows, and their tasks."""
    found, tasks = {key: [] for key in keys}, []
    for batch in feed.epoch(0):
        for key in keys:
            found[key] += list(np.array(batch[key]))
        tasks += list(batch["task"])
    return {key: np.stack(values) for key, values in found.items()}, tasks


def digests(images):
    return [hashlib.sha256(np.ascontiguousarray(image.transpose(1, 2, 0)).tobytes()).hexdigest()[:16] for image in images]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_windows_are_those_of_lerobot_dataset(opened, name, tmp_path):
    version, held = RECORDED[name]
    arrays = np.load(VIDEO / f"lerobot_{version}.npz")
    assert main(["lerobot", str(VIDEO / "lerobot" / name), "-o", str(tmp_path / "set.hdf5")]) == 0
    state, action = ("state", "actions") if "state" in held["features"] else ("observation.state", "action")
    images = [key for key, dtype in held["features"].items() if dtype in ("image", "video")]
    outputs = {"state": {"from": state.replace("observation.", "observation/"), "at": "-2..0"}, "action": {"from": action, "at": "0..4"}}
    for key in images:
        last = key.rpartition(".")[2]
        outputs[last] = {"from": f"observation/images/{last}", "at": "-3..1", "lookahead": "1s", "layout": "chw"}
    feed = opened(tmp_path / "set.hdf5", outputs, dataset={"layout": "lerobot"}, anchor={"clock": "steps"})
    keys = ["observation.state", "action", *(f"observation.images.{key.rpartition('.')[2]}" for key in images)]
    values, tasks = collect(feed, [*keys, *(f"{key}_is_pad" for key in keys)])
    chosen = held["windows"]["indices"]
    for ours, theirs, steps in (("observation.state", state, [0, 2]), ("action", action, range(5))):
        assert np.array_equal(values[ours][chosen][:, steps], arrays[f"{name}/windows/{theirs}"])
        assert np.array_equal(values[f"{ours}_is_pad"][chosen][:, steps], arrays[f"{name}/windows/{theirs}_is_pad"])
    for ours, theirs in zip(keys[2:], images):
        # after the episode, an observation with lookahead holds the last row as valid; LeRobot calls that padding
        assert np.array_equal(values[f"{ours}_is_pad"][chosen][:, [0, 3]], arrays[f"{name}/windows/{theirs}_is_pad"][:, :2])
        assert [digests(window[[0, 3, 4]]) for window in values[ours][chosen]] == held["windows"]["images"][theirs]
    several = {3} if name in ("v30_h264_g10", "v30_order") else set()  # the episode with two tasks has none as a text
    episodes = arrays[f"{name}/episode_index"]
    assert tasks == [None if episode in several else task for episode, task in zip(episodes, held["task"])]


@pytest.mark.parametrize("kind", ["images", "video"])
@pytest.mark.parametrize("style, state, image, action, is_pad", [
    ("lerobot", "observation.state", "observation.images.top", "action", "action_is_pad"),
    ("openpi", "state", "image/top", "actions", "actions_is_pad"), ("act", "qpos", "image", "action", "is_pad")])
def test_presets_give_feeds_that_train(daemon, kind, style, state, image, action, is_pad, tmp_path):
    """A linear policy is fitted by gradient descent. Its loss falls, and is the same in a second run."""
    folder = make_v3(tmp_path / "set") if kind == "images" else VIDEO / "lerobot/v30_av1"
    assert main(["lerobot", str(folder), "-o", str(tmp_path / "set.hdf5")]) == 0
    text = init(style, tmp_path / "set.hdf5", tmp_path / "made.yaml")
    assert "layout: lerobot" in text and "GUESS" not in text and "# next.done:" in text
    one = daemon(text.replace("version: 2\n", ""), folder="daemon", rings="512MiB")

    def train():
        losses, weights = [], 0.0
        with trajd.connect(one.endpoint, feed="train", timeout=60, style=style) as feed:
            for batch in (batch for epoch in range(20) for batch in feed.epoch(epoch)):
                rows = len(batch[state])
                seen = np.concatenate([np.array(batch[state]).reshape(rows, -1), np.ones((rows, 1)),
                                       np.array(batch[image], float).reshape(rows, -1).mean(1, keepdims=True)], axis=1)
                wanted, valid = np.array(batch[action])[:, 0], ~np.array(batch[is_pad])[:, :1]
                error = (seen @ weights if losses else 0 * wanted) - wanted
                weights = weights - seen.T @ (error * valid) / (seen ** 2).sum()
                losses.append((error[valid[:, 0]] ** 2).mean())
            if style != "act":
                assert all(isinstance(task, str) for task in batch["task" if style == "lerobot" else "prompt"])
        return losses

    losses = train()
    third = len(losses) // 3
    assert np.mean(losses[-third:]) < 0.8 * np.mean(losses[:third]) and train() == losses


@pytest.mark.parametrize("bad_rows", ["error", "keep"])
def test_a_step_of_droid_without_a_frame_is_masked(opened, bad_rows, tmp_path):
    """Two robots with other serials are one data set. A step has the frame that was captured last before it."""
    shutil.copytree(VIDEO / "droid", tmp_path / "droid")
    assert main(["droid", str(tmp_path / "droid"), "-o", str(tmp_path / "set.hdf5")]) == 0
    roles = ("wrist", "exterior_1", "exterior_2")
    outputs = {"action": {"from": "action/joint_position", "at": 0},
               **{role: {"from": f"observation/images/{role}", "at": 0} for role in roles}}
    feed = opened(tmp_path / "set.hdf5", outputs, dataset={"layout": "droid"}, anchor={"clock": "control"}, bad_rows=bad_rows)
    found, masks, expected = ({role: [] for role in roles} for _ in range(3))
    for batch in feed.epoch(0):
        for role in roles:
            images = np.array(batch[f"observation.images.{role}"]).reshape(-1, 3, 48, 64).transpose(0, 2, 3, 1)
            found[role] += map(read_bar_code, images)
            masks[role] += np.array(batch.mask(role)).reshape(-1).tolist()
    with h5py.File(tmp_path / "set.hdf5") as file:
        for robot, group in enumerate(file["data"].values()):
            steps = group["observation/timestamp/control/control_start"][()]
            for camera, role in enumerate(roles):
                captured = group[f"observation/timestamp/cameras/{role}_estimated_capture"][()]
                for row in np.searchsorted(captured, steps, "right") - 1:
                    expected[role].append(64 * camera + 32 * robot + int(row) if row < len(steps) - 1 else None)
    for role in roles:
        assert None in expected[role] and masks[role] == [8 if number is None else 0 for number in expected[role]]
        assert [number for number in found[role] if number] == [number for number in expected[role] if number]
