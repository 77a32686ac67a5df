"""Feeds of several datasets: three real files, against feeds of each file alone."""
import re
import subprocess

import h5py
import numpy as np
import pytest

from datasets import make_demo_file
from paths import BUILD

LAB_LAYOUT = """
layout: lab
version: 1
episodes: {files: "*.h5", groups: /ep_*}
clocks: {arm: {rate: 20, rows: cmd}}
streams:
  q: {path: q, clock: arm, kind: linear, unit: m}
  cmd: {path: cmd, clock: arm, kind: previous}
  wide: {path: wide, clock: arm, kind: previous}
"""

CONFIG = """
datasets:
  droid: {{path: {folder}/droid.hdf5, layout: demo}}
  other: {{path: {folder}/other.hdf5, layout: demo}}
  lab: {{path: {folder}/lab, layout: {folder}/lab.yaml}}
feeds:
"""

DEMO_OUTPUTS = """
    outputs:
      pos: {from: obs/robot0_eef_pos, at: -1..0}
      quat: {from: obs/robot0_eef_quat, at: -1..0, missing: zero}
      actions: {at: -1..6}
"""

LAB_OUTPUTS = """
    outputs:
      pos: {from: q, at: -1..0}
      actions: {from: cmd, at: -1..6}
"""

MIX = "{droid: 5, other: {weight: 2, filter: train}, lab: {weight: 3, anchor: {clock: arm}, streams: {pos: q, actions: cmd}}}"
MIXED = "  mixed: {mix: " + MIX + ", epoch: 1000, global_batch: 32, seed: 3, tail: TAIL, anchor: {clock: actions}" + (
    ", outputs: {pos: {from: obs/robot0_eef_pos, at: -1..0}, quat: {from: obs/robot0_eef_quat, at: -1..0, missing: zero}, "
    "actions: {at: -1..6}}}\n")
NAMES, WEIGHTS = ["droid", "other", "lab"], [5, 2, 3]


def alone(name, clock, outputs, extra=""):
    return f"  {name}_alone:\n    dataset: {name}\n    global_batch: 32\n    tail: short\n    anchor: {{clock: {clock}}}\n{extra}{outputs}"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    for name, episodes, seed in (("droid", 12, 1), ("other", 6, 2)):
        make_demo_file(folder / f"{name}.hdf5", "--seed", str(seed), episodes=episodes)
    (folder / "lab.yaml").write_text(LAB_LAYOUT)
    (folder / "lab").mkdir()
    rng = np.random.default_rng(5)
    with h5py.File(folder / "lab" / "rows.h5", "w") as file:
        for e in range(4):
            for name, width in (("q", 3), ("cmd", 7), ("wide", 4)):
                file[f"ep_{e}/{name}"] = rng.normal(size=(30 + 10 * e, width))
    return folder


def config(folder, tail="drop", more=""):
    return (CONFIG.format(folder=folder) + MIXED.replace("TAIL", tail) + more + alone("droid", "actions", DEMO_OUTPUTS) +
            alone("other", "actions", DEMO_OUTPUTS, "    filter: train\n") + alone("lab", "arm", LAB_OUTPUTS))


def read(client, feed, **options):
    """Returns the feed's info, and its rows in the order of positions."""
    info = client.open(feed, **options)
    rows = []
    for _, arrays in client.epoch():
        count = len(arrays["window_id"])
        rows += [{name: array[row] for name, array in arrays.items()} for row in range(count)]
    return info, rows


def ids(rows):
    return [int(row["window_id"]) for row in rows]


def check_row(row, singles, first):
    d = int(row["dataset_index"])
    want = singles[d][int(row["window_id"]) - first[d]]
    for name in ("episode_index", "anchor_ns", "pos", "pos.mask", "actions", "actions.mask"):
        np.testing.assert_array_equal(row[name], want[name], err_msg=f"{NAMES[d]}: {name}")
    if NAMES[d] == "lab":
        assert not row["quat"].any() and (row["quat.mask"] == 6).all()
    else:
        np.testing.assert_array_equal(row["quat"], want["quat"])
        np.testing.assert_array_equal(row["quat.mask"], want["quat.mask"])


@pytest.mark.parametrize("store", ["64MiB", "256KiB"])
def test_windows_of_three_files_by_weight(daemon, folder, store):
    """The quotas are exact, and each window is the same as in the feed of its own dataset. With the second store
    size rows are evicted and read again."""
    one = daemon(config(folder), store=store)
    client = one.client()
    singles = [{int(row["window_id"]): row for row in read(client, f"{name}_alone")[1]} for name in NAMES]
    first = np.cumsum([0] + [len(rows) for rows in singles])
    info, rows = read(client, "mixed")
    assert (info.window_count, info.epoch_length, info.dropped_count) == (1000, 992, 8)
    assert len(rows) == 992
    for begin in range(0, 990, 10):
        counts = np.bincount([row["dataset_index"] for row in rows[begin:begin + 10]], minlength=3)
        assert counts.tolist() == WEIGHTS
    for row in rows:
        check_row(row, singles, first)
    status = client.status()
    producer = next(p for p in status["producers"] if p["name"] == "mixed")
    assert [(d["name"], d["weight"], d["of"], d["windows"]) for d in producer["datasets"]] == [
        (name, weight, 10, len(rows)) for name, weight, rows in zip(NAMES, WEIGHTS, singles)]
    assert producer["datasets"][0]["resident"] == (store == "64MiB")
    assert sum(d["made"] for d in producer["datasets"]) >= 992
    told = subprocess.run([BUILD / "clients/cli/trajctl", "status", "--endpoint", one.endpoint], capture_output=True, text=True,
                          env=one.environment(), check=True).stdout
    assert re.search(r"^mixed +other +2 +\d+ +\d+ +20.00 % +(19|20|21)\.\d\d %$", told, re.M), told
    client.close()


def test_any_position_is_where_the_straight_run_was(daemon, folder):
    """Resuming in the middle, with another batch size and after the daemon died, gives the same windows."""
    narrow = MIXED.replace("mixed:", "narrow:").replace("TAIL", "short").replace("global_batch: 32", "global_batch: 20")
    one = daemon(config(folder, "short", narrow))
    client = one.client()
    straight = {epoch: ids(read(client, "mixed", epoch=epoch)[1]) for epoch in (0, 1)}
    assert len(straight[0]) == 1000 and straight[0] != straight[1]
    for epoch, position in ((0, 32), (0, 96), (1, 512)):
        assert ids(read(client, "mixed", mode=1, rank=0, world=1, epoch=epoch, position=position)[1]) == straight[epoch][position:]
    assert ids(read(client, "narrow", mode=1, rank=0, world=1, epoch=1, position=96)[1]) == straight[1][96:]
    client.close()
    one.kill()
    one.start()
    client = one.client()
    assert ids(read(client, "mixed", mode=1, rank=0, world=1, epoch=1, position=704)[1]) == straight[1][704:]
    client.close()


def test_by_size_is_every_window_once(daemon, folder):
    feed = MIXED.replace(MIX, "{by: size, datasets: [droid, other]}").replace("epoch: 1000, ", "").replace("TAIL", "wrap")
    one = daemon(CONFIG.format(folder=folder) + feed)
    client = one.client()
    info, rows = read(client, "mixed")
    assert sorted(ids(row for row in rows if not row["wrapped"])) == list(range(info.window_count))
    assert len(rows) == info.epoch_length == -(-info.window_count // 32) * 32
    client.close()


def test_questions_reach_the_datasets(daemon, folder):
    one = daemon(config(folder))
    client = one.client()
    client.open("mixed")
    feed_id = next(f["feed_id"] for f in client.status()["feeds"] if f["name"] == "mixed")
    asked = client.ask("episodes", feed_id=feed_id)
    assert [d["name"] for d in asked["datasets"]] == NAMES
    assert [item["dataset"] for item in asked["items"]] == ["droid"] * 12 + ["other"] * 6 + ["lab"] * 4
    items = client.ask("position", feed_id=feed_id, count=50)["items"]
    window = next(item for item in items if item["dataset"] == "lab")
    told = client.ask("explain", feed_id=feed_id, window=window["window_id"])
    assert told["dataset"] == "lab" and told["dataset_index"] == 2 and told["episode"] == window["episode"]
    masks = {output["name"]: [step["mask"] for step in output["items"]] for output in told["outputs"]}
    assert masks["quat"] == [6, 6] and 6 not in masks["pos"]
    client.close()


def test_each_dataset_is_normalised_by_its_own(daemon, folder):
    one = daemon(CONFIG.format(folder=folder) + MIXED.replace("TAIL", "drop").replace("actions: {at: -1..6}",
                                                                                  "actions: {at: 0, norm: min_max}"))
    client = one.client()
    rows = read(client, "mixed")[1]
    for d in range(3):
        actions = np.concatenate([row["actions"] for row in rows if row["dataset_index"] == d])
        assert actions.min() >= -1.00001 and actions.max() <= 1.00001
        assert actions.min() < -0.8 and actions.max() > 0.8
    client.close()


def test_what_cannot_be_mixed_is_told(daemon, folder):
    one = daemon(config(folder))
    for change, words in (
            (("streams: {pos: q, actions: cmd}", "streams: {pos: wide, actions: cmd}"),
             "outputs.pos: a window is f32 [2,3] in dataset droid and f32 [2,4] in dataset lab"),
            (("streams: {pos: q, actions: cmd}", "streams: {actions: cmd}"), "no stream obs/robot0_eef_pos in dataset lab"),
            (("quat: {from: obs/robot0_eef_quat, at: -1..0, missing: zero}, ", "quat: {from: obs/robot0_eef_quat, at: -1..0}, "),
             "no stream obs/robot0_eef_quat in dataset lab, but another dataset of the mixture has it"),
            (("quat: {from: obs/robot0_eef_quat", "quat: {from: obs/robot0_eef_quad"), "no stream obs/robot0_eef_quad in layout demo"),
            (("{droid: 5", "{droit: 5"), "no dataset droit (did you mean droid?)"),
            (("epoch: 1000", "epoch: 10"), "an epoch of 10 windows is shorter than a global batch of 32")):
        assert change[0] in config(folder)
        one.config.write_text(one.config.read_text().split("datasets:")[0] + config(folder).replace(*change).lstrip())
        done = one.run("--check")
        assert done.returncode != 0 and words in done.stderr, done.stderr
    one.config.write_text(one.config.read_text().split("datasets:")[0] + config(folder).lstrip())
    done = one.run("--check")
    assert done.returncode == 0, done.stderr
    assert "feed mixed: 3 datasets, epochs of 1000 windows" in done.stdout
    assert "2 lab: 3 of 10 windows (30%)" in done.stdout and "(none: filled)" in done.stdout
