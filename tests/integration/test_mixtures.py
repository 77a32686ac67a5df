"""Feeds of several datasets: three real files, against feeds of each file alone."""
import json
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


# ---- datasets that differ in steps, rates and anchors ----

SIM_EPISODES, REAL_EPISODES = {0: 30, 1: 1, 2: 120}, {0: 40, 3: 17, 10: 101}
ALOHA = """
datasets:
  sim:  {{path: {folder}/sim, layout: aloha}}
  real: {{path: {folder}/real, layout: aloha}}
feeds:
  sim_alone:
    dataset: sim
    global_batch: 16
    tail: short
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: zero}}
    outputs:
      qpos:   {{from: observations/qpos, at: 0, norm: mean_std}}
      image:  {{from: observations/images/top, at: 0}}
      action: {{at: 0..99, norm: {{by: mean_std, over: {over}}}}}
  real_alone: {{like: sim_alone, dataset: real, outputs: {real}}}
  valid: {{like: real_alone, statistics_from: mixed}}
  mixed: {{like: sim_alone, dataset: null, mix: {{sim: 2, real: {{weight: 1, outputs: {real}}}}}, epoch: 600}}
"""
REAL = "{image: {from: observations/images/cam_high}, action: {at: -1..98}}"


def write_aloha(folder, camera, episodes, seed):
    random = np.random.default_rng(seed)
    folder.mkdir()
    for number, rows in episodes.items():
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file["action"] = random.normal(size=(rows, 14)).astype(np.float32)
            file["observations/qpos"] = random.normal(size=(rows, 14)).astype(np.float32)
            file[f"observations/images/{camera}"] = random.integers(0, 256, (rows, 6, 8, 3), dtype=np.uint8)


def check_against_singles(client, names, tensors):
    """Every value of the mixture is that of the feed of its own dataset, bit for bit. Returns the rows of the mixture, and
    the numbers of the first windows."""
    singles = [{int(row["window_id"]): row for row in read(client, f"{name}_alone")[1]} for name in names]
    first = np.cumsum([0] + [len(rows) for rows in singles])
    info, rows = read(client, "mixed")
    assert len(rows) == info.window_count
    seen = set()
    for row in rows:
        d = int(row["dataset_index"])
        want = singles[d][int(row["window_id"]) - first[d]]
        assert row.keys() == want.keys() >= {name + end for name in tensors for end in ("", ".mask")}
        for name in row.keys() - {"window_id", "dataset_index"}:
            assert row[name].dtype == want[name].dtype and row[name].tobytes() == want[name].tobytes(), f"{names[d]}: {name}"
        seen.add(int(row["window_id"]))
    assert seen == set(range(first[-1]))  # every window of each dataset came
    return rows, first


@pytest.mark.parametrize("over", ["rows", "windows"])
def test_simulated_and_real_chunks_of_act(daemon, tmp_path, over):
    """act-plus-plus takes action[ts:] of simulated and action[max(0, ts - 1):] of real episodes, whose cameras have
    other names. Statistics are those of each dataset's own steps."""
    write_aloha(tmp_path / "sim", "top", SIM_EPISODES, 1)
    write_aloha(tmp_path / "real", "cam_high", REAL_EPISODES, 2)
    one = daemon(ALOHA.format(folder=tmp_path, real=REAL, over=over))
    client = one.client()
    rows, first = check_against_singles(client, ["sim", "real"], ["qpos", "image", "action"])
    if over == "rows":  # the same in numpy
        episodes = [sorted((tmp_path / name).glob("*"), key=lambda path: int(path.stem.split("_")[1])) for name in ("sim", "real")]
        actions = [[h5py.File(path)["action"][:] for path in paths] for paths in episodes]
        for row in rows:
            d, begin = int(row["dataset_index"]), round(int(row["anchor_ns"]) / 2e7) - int(row["dataset_index"])
            all_rows, own = np.concatenate(actions[d]).astype(float), actions[d][int(row["episode_index"])]
            want = ((own - all_rows.mean(0)) / all_rows.std(0))[max(begin, 0):begin + 100]
            got = row["action"][row["action.mask"] == 0]
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            assert (row["action.mask"][0] != 0) == (begin < 0)
    for row, want in zip(read(client, "valid")[1], read(client, "real_alone")[1]):  # statistics_from takes those of its dataset
        assert row["action"].tobytes() == want["action"].tobytes() and row["qpos"].tobytes() == want["qpos"].tobytes()
    client.close()


RECORDER = """
layout: recorder
version: 1
episodes: {files: "*.h5", groups: /ep_*}
clocks:
  arm: {path: arm_t, unit: ns}
  hand: {path: hand_t, unit: ns}
streams:
  q:    {path: q, clock: arm, kind: linear}
  cmd:  {path: cmd, clock: arm, kind: linear}
  grip: {path: grip, clock: hand, kind: previous}
"""
ROWS_AND_RATE = """
datasets:
  droid: {{path: {folder}/droid, layout: droid_raw}}
  lab:   {{path: {folder}/lab, layout: {folder}/recorder.yaml}}
feeds:
  mixed:
    like: droid_alone
    dataset: null
    mix:
      droid: 3
      lab:
        weight: 1
        anchor: {{rate: 15}}
        streams: {{pos: q}}
        outputs:
          actions: {{from: [cmd, grip], max_gap: 150ms}}
          past: {{from: grip, at: -3..0 @ 30, kind: previous, max_age: 50ms}}
    epoch: 1200
  droid_alone:
    dataset: droid
    global_batch: 16
    tail: short
    anchor: {{clock: control}}
    outputs:
      pos: {{from: observation/robot_state/joint_positions, at: -1..0}}
      past: {{from: observation/robot_state/gripper_position, at: -3..0, kind: linear}}
      actions: {{from: [action/joint_velocity, action/gripper_position], at: 0..15, norm: q01_q99}}
  lab_alone:
    dataset: lab
    global_batch: 16
    tail: short
    anchor: {{rate: 15}}
    outputs:
      pos: {{from: q, at: -1..0}}
      past: {{from: grip, at: -3..0 @ 30, kind: previous, max_age: 50ms}}
      actions: {{from: [cmd, grip], at: 0..15, max_gap: 150ms, norm: q01_q99}}
"""


@pytest.fixture(scope="module")
def droid_and_lab(tmp_path_factory):
    """DROID's rows, every 66 ms or so, and a recorder with an arm at 100 Hz that has gaps and a hand at about 40 Hz."""
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(7)
    for episode in range(3):
        rows, at = 60 + 25 * episode, folder / "droid" / f"episode_{episode}"
        at.mkdir(parents=True)
        with h5py.File(at / "trajectory.h5", "w") as file:
            stamps = 1_700_000_000_000 + np.cumsum(random.integers(60, 72, rows))
            file["observation/timestamp/robot_state/read_end"] = stamps
            file["observation/timestamp/control/control_start"] = stamps + 5
            for name, width in (("joint_positions", 7), ("cartesian_position", 6)):
                file[f"observation/robot_state/{name}"] = random.normal(size=(rows, width))
            file["observation/robot_state/gripper_position"] = random.uniform(size=rows)
            file["action/joint_velocity"] = random.normal(size=(rows, 7))
            file["action/gripper_position"] = random.uniform(size=rows)
    (folder / "recorder.yaml").write_text(RECORDER)
    (folder / "lab").mkdir()
    with h5py.File(folder / "lab" / "rows.h5", "w") as file:
        for e in range(3):
            arm = np.cumsum(random.integers(9_000_000, 11_000_000, 500)) + (np.arange(500) > 300) * 400_000_000
            hand = np.cumsum(random.integers(20_000_000, 60_000_000, 140))
            file[f"ep_{e}/arm_t"], file[f"ep_{e}/hand_t"] = arm, hand
            file[f"ep_{e}/q"], file[f"ep_{e}/cmd"] = random.normal(size=(500, 7)), random.normal(size=(500, 7))
            file[f"ep_{e}/grip"] = random.uniform(size=140)
    return folder


def test_rows_beside_a_recorder_at_15_hz(daemon, droid_and_lab):
    one = daemon(ROWS_AND_RATE.format(folder=droid_and_lab))
    client = one.client()
    rows, first = check_against_singles(client, ["droid", "lab"], ["pos", "past", "actions"])
    masks = np.concatenate([row["actions.mask"] for row in rows if row["dataset_index"] == 1])
    assert {0, 3} <= set(masks)  # max_gap of that dataset
    feed_id = next(f["feed_id"] for f in client.status()["feeds"] if f["name"] == "mixed")
    for window, name in ((30, "droid"), (int(first[1]) + 30, "lab")):  # anchor 30, or near it, of the first episode
        told = client.ask("explain", feed_id=feed_id, window=window)
        assert told["dataset"] == name
        steps = {output["name"]: output["items"] for output in told["outputs"]}
        if name == "droid":  # rows, whatever their times
            assert [step["sources"][0]["rows"][0][0] for step in steps["actions"]] == list(range(told["anchor"], told["anchor"] + 16))
        else:
            for output, steps_of in (("actions", np.arange(16) / 15), ("past", np.arange(-3, 1) / 30)):
                times = [step["ns"] - told["anchor_ns"] for step in steps[output]]
                np.testing.assert_allclose(times, steps_of * 1e9, atol=1)

    def plan_of(feed, dataset=0):
        command = [BUILD / "clients/cli/trajctl", "explain", feed, "--plan", "--window", str(dataset), "--endpoint", one.endpoint]
        return json.loads(subprocess.run(command, capture_output=True, text=True, env=one.environment(), check=True).stdout)

    plans = [plan_of("mixed", dataset) for dataset in range(2)]
    assert [plan["dataset"] for plan in plans] == ["droid", "lab"]
    assert (plans[0]["anchor_clock"], plans[1]["anchor_rate"]) == (1, "15/1") and "anchor_rate" not in plans[0]
    rules = [[(output["name"], output["from"], output.get("rate"), [source["rule"] for source in output["sources"]],
               output["sources"][0]["kind"]) for output in plan["outputs"]] for plan in plans]
    assert rules == [[("pos", -1, None, ["anchors"], "linear"), ("past", -3, None, ["anchors"], "linear"),
                      ("actions", 0, None, ["rows", "rows"], "previous")],
                     [("pos", -1, "15/1", ["anchors"], "linear"), ("past", -3, "30/1", ["times"], "previous"),
                      ("actions", 0, "15/1", ["anchors", "anchors"], "linear")]]
    assert [plan["outputs"][2]["sources"][0]["max_gap_ns"] for plan in plans] == [-1, 150_000_000]
    for plan, name in zip(plans, ("droid", "lab")):  # a dataset's plan is that of its feed alone, statistics included
        single = plan_of(f"{name}_alone")
        assert all(plan[key] == single[key] for key in ("fingerprint", "norm_digest", "outputs", "clocks", "streams"))
    client.close()


@pytest.mark.parametrize("version", [1, 2])
def test_what_differs_is_shown(daemon, droid_and_lab, version):
    one = daemon(ROWS_AND_RATE.format(folder=droid_and_lab))
    text = one.config.read_text().replace("version: 2", f"version: {version}", 1)
    one.config.write_text(text)
    done = one.run("--check")
    assert done.returncode == 0, done.stderr
    droid, lab = re.search(r" 0 droid: 3 of 4 (.*) 1 lab: 1 of 4 (.*?)feed droid_alone", done.stdout, re.S).groups()
    assert re.search(r"actions +control stamped +previous +rows 0\.\.15 .* action/joint_velocity", droid)
    assert re.search(r"past +robot stamped +linear +-3\.\.0 of control ", droid)
    assert re.search(r"actions +arm stamped +linear +0\.\.15 of the anchors, 15 Hz .* cmd\n +actions +hand ", lab)
    assert re.search(r"past +hand stamped +previous +-3\.\.0 @ 30 Hz .* grip\n", lab)
    assert "statistics over rows of this feed, for each dataset its own" in lab
    printed = one.run("--print-config").stdout
    assert re.search(r'"past": *\n +"from": grip\n +"at": "-3\.\.0 @ 30"\n +"kind": previous\n +"max_age": 50ms\n', printed), printed
    line = text[:text.index("actions: {from: [cmd")].count("\n") + 1
    for change, words in (
            (("actions: {from: [cmd, grip]", "actions: {from: [cmd, grip], at: 0..14"),
             f"line {line}: outputs.actions: a window is f32 [16,8] in dataset droid and f32 [15,8] in dataset lab"),
            (("actions: {from: [cmd, grip]", "actions: {from: cmd"), "f32 [16,8] in dataset droid and f32 [16,7] in dataset lab"),
            (("past: {from: grip", "past: {from: grup"),
             f"line {line + 1}: outputs.past: no stream grup in layout recorder (did you mean grip?"),
            (("streams: {pos: q}", "streams: {pos: q, past: grip}"),
             f"trajd.yaml:{line + 1}: feeds.mixed.mix.lab.outputs.past.from: `streams:` names the streams of this output, too"),
            (("max_gap: 150ms}", "max_gop: 150ms}"),
             f"trajd.yaml:{line}: feeds.mixed.mix.lab.outputs.actions.max_gop: no such key (did you mean max_gap?)")):
        assert change[0] in text
        one.config.write_text(text.replace(*change, 1))
        done = one.run("--check")
        assert done.returncode != 0 and words in done.stderr, done.stderr
