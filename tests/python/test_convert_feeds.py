"""Feeds of converted sets: windows, padding and tasks as LeRobotDataset returns them; presets of `trajctl init` that open."""
import hashlib
import json

import numpy as np
import pytest
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
    pictures = [key for key, dtype in held["features"].items() if dtype in ("image", "video")]
    outputs = {"state": {"from": state.replace("observation.", "observation/"), "at": "-2..0"}, "action": {"from": action, "at": "0..4"}}
    for key in pictures:
        last = key.rpartition(".")[2]
        outputs[last] = {"from": f"observation/images/{last}", "at": "-3..1", "lookahead": "1s", "layout": "chw"}
    feed = opened(tmp_path / "set.hdf5", outputs, dataset={"layout": "lerobot"}, anchor={"clock": "steps"})
    keys = ["observation.state", "action", *(f"observation.images.{key.rpartition('.')[2]}" for key in pictures)]
    values, tasks = collect(feed, [*keys, *(f"{key}_is_pad" for key in keys)])
    chosen = held["windows"]["indices"]
    for ours, theirs, steps in (("observation.state", state, [0, 2]), ("action", action, range(5))):
        assert np.array_equal(values[ours][chosen][:, steps], arrays[f"{name}/windows/{theirs}"])
        assert np.array_equal(values[f"{ours}_is_pad"][chosen][:, steps], arrays[f"{name}/windows/{theirs}_is_pad"])
    for ours, theirs in zip(keys[2:], pictures):
        # after the episode, an observation with lookahead holds the last row as valid; LeRobot calls that padding
        assert np.array_equal(values[f"{ours}_is_pad"][chosen][:, [0, 3]], arrays[f"{name}/windows/{theirs}_is_pad"][:, :2])
        assert [digests(window[[0, 3, 4]]) for window in values[ours][chosen]] == held["windows"]["images"][theirs]
    several = {3} if name in ("v30_h264_g10", "v30_order") else set()  # the episode with two tasks has none as a text
    episodes = arrays[f"{name}/episode_index"]
    assert tasks == [None if episode in several else task for episode, task in zip(episodes, held["task"])]


@pytest.mark.parametrize("style, keys", [("lerobot", ("observation.state", "observation.images.top", "action", "task")),
                                         ("openpi", ("state", "image/top", "actions", "prompt")), ("act", ("qpos", "image", "action"))])
def test_presets_give_feeds_that_open(daemon, style, keys, tmp_path):
    assert main(["lerobot", str(make_v3(tmp_path / "set")), "-o", str(tmp_path / "set.hdf5")]) == 0
    text = init(style, tmp_path / "set.hdf5", tmp_path / "made.yaml")
    assert "layout: lerobot" in text and "GUESS" not in text and "# next.done:" in text
    one = daemon(text.replace("version: 2\n", ""), folder="daemon", rings="512MiB")
    with trajd.connect(one.endpoint, feed="train", timeout=60, style=style) as feed:
        batch = next(iter(feed.epoch(0)))
        assert all(batch[key] is not None for key in keys)
