"""Outputs of role goal: the drawn moments against a computation in Python, for any number of workers, after a resume, over
passes and in mixtures; their values against observations of the windows that stand at those moments."""
import json
import pathlib
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from datasets import write_robomimic
from epochs import arrays_of
from paths import BUILD

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from sampler_reference import mix  # noqa: E402

EPISODES, SEED, BATCH = 7, 3, 8
RULES = {"last": "from: last", "uniform": "from: future", "near": "from: future, p: geometric, gamma: 0.8",
         "far": "from: future, p: geometric, gamma: 0.99"}
GAMMA = {"uniform": None, "near": 0.8, "far": 0.99}
FEED = """
datasets: {{demo: {{path: {path}, layout: robomimic}}}}
limits: {{credit: 8}}
feeds:
  train:
    dataset: demo
    global_batch: {batch}
    tail: short
    seed: 3
    anchor: {{clock: actions}}
    {keys}
    outputs:
      obs/pos: {{at: 0}}
      actions: {{at: 0..1}}
"""


def rows_in(episode):
    return 1 + 6 * episode


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Seven episodes of 1 to 37 rows. The observation of a row is (episode, row)."""
    path = tmp_path_factory.mktemp("goals") / "demos.hdf5"
    write_robomimic(path, {f"demo_{e}": {"actions": np.zeros((rows_in(e), 2), "f4"),
                                         "obs/pos": np.stack([np.full(rows_in(e), e), np.arange(rows_in(e))], 1).astype("f8"),
                                         "obs/other": np.arange(rows_in(e), dtype="f4")[:, None]} for e in range(EPISODES)})
    return path


def config(path, keys="", batch=BATCH, outputs=None):
    outputs = outputs or {name: f"{{goal: {{{rule}, of: obs/pos}}}}" for name, rule in RULES.items()}
    lines = "".join(f"      goal/{name}: {text}\n" for name, text in outputs.items())
    return FEED.format(path=path, batch=batch, keys=keys) + lines


def drawn(rule, fingerprint, seed, number, episode, anchor, last):
    """Returns the anchor of a goal by the rule that daemon/window/order/README.md states."""
    if rule == "last" or anchor >= last:
        return last
    gamma = GAMMA[rule]
    bits = struct.unpack("<Q", struct.pack("<d", gamma or 0.0))[0]
    word = mix([1, fingerprint, seed, number, 7, episode, anchor, int(gamma is not None), bits])
    most = last - anchor
    if gamma is None:
        return anchor + 1 + (word * most >> 64)
    u, distance, power = ((word >> 11) + 1) * 2.0 ** -53, 1, gamma
    while distance < most and u <= power:
        distance, power = distance + 1, power * gamma
    return anchor + distance


def read(one, **opened):
    """Returns the feed's facts and all its rows in the order of positions."""
    client = one.client()
    info = client.open("train", **opened)
    parts = [arrays for _, arrays in client.epoch()]
    client.close()
    return info, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.parametrize("keys", ["", "windows: one_per_episode", "order: blocked", "epoch: 50"])
def test_goals_are_drawn_as_documented(daemon, path, keys):
    one = daemon(config(path, keys))
    per_pass = EPISODES if "one_per" in keys else sum(rows_in(e) for e in range(EPISODES))
    seen = {rule: set() for rule in RULES}
    for epoch in (0, 1, 5):
        info, rows = read(one, epoch=epoch)
        for place, (episode, anchor) in enumerate(rows["obs/pos"][:, 0].astype(int).tolist()):
            number = (epoch * 50 + place) // per_pass if "epoch" in keys else epoch
            for rule in RULES:
                goal = drawn(rule, info.fingerprint, SEED, number, episode, anchor, rows_in(episode) - 1)
                np.testing.assert_array_equal(rows[f"goal/{rule}"][place], [[episode, goal]], str((rule, episode, anchor)))
                seen[rule].add((episode, anchor, goal))
        for rule in RULES:
            assert not rows[f"goal/{rule}.mask"].any()
    if not keys:  # drawn again in every epoch, but for the last rows
        assert len(seen["uniform"]) > 2 * len(seen["last"]) and len(seen["last"]) == per_pass


def test_the_distances(daemon, path):
    """Uniform over what follows; geometric with the chance gamma^d of more than d steps, cut off at the last row."""
    one = daemon(config(path))
    uniform, far = [], []
    for epoch in range(40):
        _, rows = read(one, epoch=epoch)
        at = rows["obs/pos"][:, 0]
        start = (at[:, 0] == EPISODES - 1) & (at[:, 1] < 6)
        uniform.extend((rows["goal/uniform"][start, 0, 1] - at[start, 1] - 1) / (rows_in(EPISODES - 1) - 2 - at[start, 1]))
        far.extend(rows["goal/near"][start, 0, 1] - at[start, 1])
    assert abs(np.mean(uniform) - 0.5) < 0.06 and min(uniform) == 0 and max(uniform) == 1
    for steps in (1, 3, 6):
        assert abs(np.mean(np.array(far) > steps) - 0.8 ** steps) < 0.09


def test_any_number_of_workers_and_a_resume(daemon, path):
    shard = {"mode": trajd.SHARD, "rank": 0, "world": 1, "epoch": 2}
    one = daemon(config(path))
    straight = read(one, **shard)[1]
    clients = [one.client() for _ in range(2)]
    for rank, client in enumerate(clients):
        client.open("train", mode=trajd.SHARD, rank=rank, world=2, epoch=2, local=range(2))
    parts = arrays_of(clients)
    for name, whole in straight.items():
        np.testing.assert_array_equal(np.concatenate([parts[place][name] for place in sorted(parts)]), whole)
    for client in clients:
        client.close()
    one.kill()
    one.start()
    for name, array in read(one, position=40, **shard)[1].items():
        np.testing.assert_array_equal(array, straight[name][40:])
    for name, array in read(daemon(config(path, batch=5), folder="other"), position=13, **shard)[1].items():
        np.testing.assert_array_equal(array, straight[name][13:])


def test_outputs_with_one_rule_show_one_moment(daemon, path):
    rule = "{{at: {at}, goal: {{from: future, p: {p}, of: {of}}}}}"
    one = daemon(config(path, "pad: {before: 0, after: any}", outputs={
        "a": rule.format(at="-2..0", p="uniform", of="obs/pos"), "b": rule.format(at="0", p="uniform", of="[obs/other, obs/pos]"),
        "c": rule.format(at="0", p="geometric, gamma: 0.9", of="obs/pos")}))
    _, rows = read(one)
    assert len(rows["window_id"]) == sum(rows_in(e) for e in range(EPISODES))  # goals need no padding of their own
    last, joined = rows["goal/a"][:, -1], rows["goal/b"][:, 0]
    np.testing.assert_array_equal(last[:, 1], joined[:, 0])
    np.testing.assert_array_equal(last, joined[:, 1:])
    assert (rows["goal/c"][:, 0] != last).any()
    steps = last[:, None, 1] - [2, 1, 0]
    np.testing.assert_array_equal(rows["goal/a.mask"], np.where(steps < 0, 1, 0))  # before the start
    np.testing.assert_array_equal(rows["goal/a"][..., 1], np.maximum(steps, 0))
    assert (steps < 0).any()


def test_ranges_limit_anchors_alone(daemon, path):
    """A goal may lie behind the range of its window, as every row may that a window reads."""
    one = daemon(config(path, 'ranges: {demo_6: [[2, 9]], demo_3: [[0, 4]]}'))
    info, rows = read(one)
    assert len(rows["window_id"]) == 11
    for place, (episode, anchor) in enumerate(rows["obs/pos"][:, 0].astype(int).tolist()):
        for rule in RULES:
            goal = drawn(rule, info.fingerprint, SEED, 0, episode, anchor, rows_in(episode) - 1)
            np.testing.assert_array_equal(rows[f"goal/{rule}"][place], [[episode, goal]])


def test_a_mixture_draws_in_every_pass(daemon, path):
    text = config(path).replace("dataset: demo\n", "mix: {demo: 3, twin: 1}\n    epoch: 400\n").replace(
        "}}\nlimits", f"}}, twin: {{path: {path}, layout: robomimic}}}}\nlimits")
    one, other = daemon(text), daemon(text, folder="other")
    rows = read(one, epoch=1)[1]
    for name, array in read(other, epoch=1)[1].items():
        np.testing.assert_array_equal(array, rows[name])
    goals = {}
    for place, (episode, anchor) in enumerate(rows["obs/pos"][:, 0].astype(int).tolist()):
        for rule in RULES:
            found, goal = rows[f"goal/{rule}"][place, 0].astype(int).tolist()
            assert found == episode and min(anchor + 1, rows_in(episode) - 1) <= goal < rows_in(episode)
        uniform = int(rows["goal/uniform"][place, 0, 1])
        goals.setdefault((rows["dataset_index"][place], episode, anchor), set()).add(uniform)
    repeated = [key for key in goals if key[0] == 0 and key[2] < rows_in(key[1]) - 6]
    assert sum(len(goals[key]) > 1 for key in repeated) > len(repeated) / 2  # more than two passes of the first dataset


def test_statistics_are_those_of_the_stream(daemon, path):
    norm = "norm: min_max, "
    one = daemon(config(path, outputs={"x": f"{{{norm}goal: {{from: future, of: obs/pos}}}}"}).replace(
        "obs/pos: {at: 0}", "obs/pos: {at: 0, norm: min_max}"))
    _, rows = read(one)
    low, high = np.zeros(2), np.array([EPISODES - 1, rows_in(EPISODES - 1) - 1])
    ends = {(e, a): tuple((2 * (np.array([e, a]) - low) / (high - low) - 1).astype("f4")) for e in range(EPISODES)
            for a in range(rows_in(e))}
    goals = {tuple(value) for value in rows["goal/x"][:, 0]}
    assert len(goals) > 50 and all(min(np.abs(np.subtract(value, end)).max() for end in ends.values()) < 1e-6 for value in goals)
    client = one.client()
    client.open("train")
    figures = []
    for name in ("obs/pos", "goal/x"):
        while (answer := client.ask("statistics", name))["state"] == "computing":
            pass
        figures.append({key: value for key, value in answer.items() if key not in ("name", "output")})
    assert json.dumps(figures[0]).replace("obs/pos", "goal/x") == json.dumps(figures[1])
    client.close()


LAYOUT = """
layout: lab
episodes: {files: "*.hdf5", groups: /ep_*}
clocks:
  arm:  {path: arm_t, unit: ns}
  cam:  {path: cam_t, unit: ns}
  ft:   {rate: 200, rows: wrench, start: {path: ft_t0, unit: ns}}
streams:
  q:      {clock: arm, kind: linear}
  image:  {clock: cam, kind: previous}
  wrench: {clock: ft, kind: mean}
"""
CLOCKS = """
datasets: {{lab: {{path: {path}, layout: {layout}}}}}
feeds:
  {order}:
    dataset: lab
    global_batch: 16
    tail: short
    order: sequential
    anchor: {anchor}
    {rate}
    outputs:
      q:      {{at: -2..0}}
      image:  {{at: -1..0, max_age: 45ms}}
      wrench: {{at: -3..0, kind: mean, width: 40ms}}
      slow:   {{from: q, at: -200ms..0ms @ 30}}
      next:   {{from: q, at: 1, role: next}}
"""
OBSERVED = {"q": ("q", "-2..0", ""), "image": ("image", "-1..0", "max_age: 45ms, "),
            "wrench": ("wrench", "-3..0", "kind: mean, width: 40ms, "), "slow": ("q", "-200ms..0ms @ 30", "")}


@pytest.mark.parametrize("anchor, rate", [("{clock: arm}", ""), ("{clock: arm}", "rate: 20"), ("{rate: 15}", "")])
def test_a_goal_is_the_observation_of_a_later_window(daemon, tmp_path, anchor, rate):
    """On other clocks, at other rates and with other kinds: bit for bit what the window of that anchor observes."""
    random = np.random.default_rng(11)
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "a.hdf5", "w") as file:
        for e in range(3):
            episode = file.create_group(f"ep_{e}")
            for name, period in (("arm_t", 50e6), ("cam_t", 33e6)):
                episode[name] = (np.cumsum(random.uniform(0.7, 1.3, 40 + 10 * e)) * period).astype("i8")
            episode["ft_t0"] = np.int64(20_000_000)
            episode["q"] = random.normal(size=(40 + 10 * e, 3))
            episode["image"] = np.arange(40 + 10 * e, dtype="u1")[:, None] + 50 * e
            episode["wrench"] = random.normal(size=(300 + 100 * e, 6)).astype("f4")
    layout = tmp_path / "lab.yaml"
    layout.write_text(LAYOUT)
    text = CLOCKS.format(path=tmp_path / "data", layout=layout, anchor=anchor, rate=rate, order="train")
    for name, (stream, at, more) in OBSERVED.items():
        text += f"      goal/{name}: {{at: {at}, {more}goal: {{from: future, of: {stream}}}}}\n"
    _, rows = read(daemon(text))
    # which window the goal is: the first feature of the last row of `q` is different in each
    at = {(e, q.tobytes()): place for place, (e, q) in enumerate(zip(rows["episode_index"], rows["q"]))}
    ahead = 0
    for place, (e, q) in enumerate(zip(rows["episode_index"], rows["goal/q"])):
        there = at[e, q.tobytes()]
        assert rows["anchor_ns"][there] >= rows["anchor_ns"][place]
        ahead += rows["anchor_ns"][there] > rows["anchor_ns"][place]
        for name in OBSERVED:
            assert rows[f"goal/{name}"][place].tobytes() == rows[name][there].tobytes(), (name, place)
            np.testing.assert_array_equal(rows[f"goal/{name}.mask"][place], rows[f"{name}.mask"][there])
    assert ahead > len(at) * 0.9
    # `next` is the observation of the next window; after the last row it is masked
    followed = rows["next.mask"][:-1, 0] == 0
    if anchor == "{clock: arm}" and not rate:
        first = (rows["episode_index"][1:] == rows["episode_index"][:-1])
        np.testing.assert_array_equal(followed, first)
        np.testing.assert_array_equal(rows["next"][:-1, 0][first], rows["q"][1:, -1][first])
        assert set(rows["next.mask"][:-1, 0][~first]) == {2}


def test_explain_names_the_goal(daemon, path):
    """`position` gives the pass of a window; with it, `explain` names the goal of a batch."""
    one = daemon(config(path, "epoch: 50"))
    _, rows = read(one, epoch=4)
    client = one.client()
    client.open("train")
    for place in (0, 17, 49):
        found = client.ask("position", window=4, first=place, count=1)["items"][0]
        assert found["pass"] == (4 * 50 + place) // sum(rows_in(e) for e in range(EPISODES))
        explained = client.ask("explain", window=found["window_id"], pass_number=found["pass"])
        outputs = {output["name"]: output for output in explained["outputs"]}
        assert explained["pass"] == found["pass"] and "goal" not in outputs["actions"]
        for rule in RULES:
            output, (_, goal) = outputs[f"goal/{rule}"], rows[f"goal/{rule}"][place, 0].astype(int).tolist()
            assert (output["role"], output["goal"], output["goal_ns"]) == ("goal", goal, goal * 50_000_000)
            assert output["items"][0]["sources"][0]["rows"] == [[goal, goal * 50_000_000, 1.0]]
    client.close()
    text = subprocess.run([BUILD / "clients/cli/trajctl", "explain", "train", "--position", "17", "--epoch", "4", "--output",
                           "goal/far", "--endpoint", one.endpoint], text=True, capture_output=True, check=True).stdout
    assert "are those of pass 1 over the dataset" in text
    goal = int(rows["goal/far"][17, 0, 1])
    assert f"steps count from the goal: anchor {goal} at {goal * 0.05:.9g} s" in text
    assert "goal future geometric 0.8, rows 0..0" in one.run("--check").stdout


def test_goals_of_images(daemon, tmp_path):
    """Prepared images, too, are those of the window at the goal."""
    random = np.random.default_rng(3)
    path = tmp_path / "images.hdf5"
    write_robomimic(path, {f"demo_{e}": {"actions": np.zeros((rows_in(e), 2), "f4"), "obs/pos": np.stack(
        [np.full(rows_in(e), e), np.arange(rows_in(e))], 1).astype("f8"),
        "obs/cam_image": random.integers(0, 255, (rows_in(e), 16, 12, 3), "u1")} for e in range(EPISODES)})
    image = "image: {resize: [8, 6]}, layout: chw"
    text = config(path, outputs={"pos": "{goal: {from: future, of: obs/pos}}",
                                 "cam": f"{{{image}, goal: {{from: future, of: obs/cam_image}}}}",
                                 "raw": "{goal: {from: future, of: obs/cam_image}}"})
    text = text.replace("obs/pos: {at: 0}", f"obs/pos: {{at: 0}}\n      obs/cam_image: {{at: 0, {image}}}")
    _, rows = read(daemon(text))
    at = {tuple(pos): place for place, pos in enumerate(rows["obs/pos"][:, 0].astype(int).tolist())}
    with h5py.File(path) as file:
        for place, goal in enumerate(rows["goal/pos"][:, 0].astype(int).tolist()):
            there = at[tuple(goal)]
            np.testing.assert_array_equal(rows["goal/cam"][place], rows["obs/cam_image"][there])
            np.testing.assert_array_equal(rows["goal/raw"][place, 0], file[f"data/demo_{goal[0]}/obs/cam_image"][goal[1]])
    assert len(at) == sum(rows_in(e) for e in range(EPISODES)) and rows["goal/cam"].shape[2:] == (3, 8, 6)
