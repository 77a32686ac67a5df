"""trajd.Live against a daemon: the rows of a recording, pushed as they would come, give the bytes of the daemon's windows."""
import json
import re
import runpy
import threading
import types
import warnings

import h5py
import numpy as np
import pytest

import trajd
from datasets import natural
from feeds import MIXED
from lab_clocks import make_episode, write_lab
from live_replay import replay, windows_of
from paths import RECORDINGS, ROOT

CONFIG = """
datasets: {{lab: {{path: {path}, layout: {layout}}}}}
feeds:
  grid:
    dataset: lab
    global_batch: 16
    tail: short
    rate: 20
    anchor: {{clock: arm}}
    pad: {{with: {pad}}}
    outputs:
      seen:    {{from: q, at: -4..0, max_age: 12ms, max_gap: 25ms}}
      wide:    {{from: q, at: -4..0, dtype: float64}}
      half:    {{from: q, at: -4..0, dtype: float16, norm: mean_std}}
      turned:  {{from: turn, at: -2..0, range_low: 0}}
      rotated: {{from: rot, at: -2..0}}
      held:    {{from: grip, at: -4..0, max_age: 20ms}}
      picked:  {{from: near, at: -4..0, max_gap: 80ms, lookahead: 30ms}}
      counted: {{from: count, at: -4..0{type}}}
      force:   {{from: wrench, at: -3..0, kind: mean, width: 22ms, norm: min_max}}
      moves:   {{from: moved, at: -4..-1}}
      both:    {{from: [q, extra], at: -2..0, missing: zero}}
      extra:   {{at: -2..0, missing: zero}}
      actions: {{from: q, at: 0..5, role: action}}
      later:   {{from: q, at: 1..2, role: next}}
  rows:
    dataset: lab
    global_batch: 16
    tail: short
    anchor: {{clock: arm}}
    pad: {{with: {pad}}}
    outputs:
      seen:    {{from: q, at: -4..0}}
      rotated: {{from: rot, at: -1..0}}
      turned:  {{from: turn, at: -1..0}}
      around:  {{from: turn, at: -1..0, range_low: 1}}
      six:     {{from: rot, at: -1..0, rotation: {{from: quat_xyzw, to: rot6d}}}}
      each:    {{from: q, at: -1..0, norm: {{by: mean_std, per: step}}}}
      rel:     {{from: [pose, q], at: -2..0, rotation: {{from: axis_angle, to: rot6d, columns: "3:6", position: "0:3"}}, relative_to: {{from: [pose, q]}}}}
      steps:   {{from: pose, at: -2..0, rotation: {{from: axis_angle, to: quat_xyzw, columns: "3:6"}}, relative_to: {{from: pose, step: before, frame: base}}}}
  anchors:
    dataset: lab
    global_batch: 16
    tail: short
    anchor: {{clock: arm}}
    pad: {{before: 0, after: any, with: {pad}}}
    outputs:
      seen:    {{from: q, at: -3..0}}
      grip:    {{from: grip, at: -3..0}}
      force:   {{from: wrench, at: -3..0, width: 12ms}}
      aged:    {{from: q, at: -2..0, max_age: 10ms}}
  rated:
    dataset: lab
    global_batch: 16
    tail: short
    anchor: {{rate: 30}}
    pad: {{with: {pad}}}
    outputs:
      seen:    {{from: q, at: "-4..0 @ 70"}}
      rotated: {{from: rot, at: "-50ms..0ms @ 60"}}
      force:   {{from: wrench, at: -3..0, kind: linear}}
      grip:    {{at: 0}}
      turned:  {{from: pose, at: "-2..0 @ 7", rotation: {{from: axis_angle, to: quat_wxyz, columns: "3:6"}}, relative_to: {{from: pose, kind: linear}}}}
  force:
    dataset: lab
    global_batch: 16
    tail: short
    anchor: {{clock: ft}}
    pad: {{with: {pad}}}
    outputs:
      wrench:  {{at: -5..0}}
      slow:    {{from: wrench, at: "-3..0 @ 70", kind: linear}}
      joints:  {{from: q, at: "-3..0 @ 70"}}
      aged:    {{from: wrench, at: -1..0, max_age: 2ms, kind: previous}}
"""
FEEDS = ("grid", "rows", "anchors", "rated", "force")


def rows_of(episode):
    """Returns [(stamp_ns, stream, row)...] in the order of streams. A recorder would see the repeated rows, too."""
    start = int(episode["ft_t0"])
    rows = []
    for name in ("q", "turn", "rot", "pose", "extra"):
        rows += [(int(t), name, row) for t, row in zip(episode["arm_t"], episode.get(name, ()))]
    for name, array in (("grip", "grip"), ("near", "grip"), ("count", "count")):
        keep = np.concatenate([[True], np.diff(episode["grip_t"]) > 0])
        rows += [(int(t), name, row) for t, row in zip(episode["grip_t"][keep], episode[array][keep])]
    for name in ("wrench", "moved"):
        rows += [(start + i * 10**9 // 333, name, row) for i, row in enumerate(episode[name])]
    return rows


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with the layout and recordings, and the episodes in their order."""
    folder = tmp_path_factory.mktemp("lab")
    random = np.random.default_rng(3)
    episodes = [make_episode(random, number) for number in range(6)]
    write_lab(folder, episodes)
    return folder, episodes


DEMO = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  policy:
    dataset: demo
    global_batch: 32
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    tail: short
    outputs:
      obs/robot0_eef_pos:  {{at: -1..0, norm: min_max}}
      obs/robot0_eef_quat: {{at: -1..0}}
      obs/place:           {{from: object_pos, at: 0}}
      obs/flags:           {{from: dones, at: 0}}
      obs/joints:          {{from: joint_pos, at: "-40ms..0ms @ 100"}}
      obs/both:            {{from: [pose_pos, gripper_cmd], at: -3..0}}
      actions:             {{at: -1..14}}
""" + MIXED
RAW = """
datasets: {{raw: {{path: {path}, layout: robosuite_raw}}}}
feeds:
  rows:
    dataset: raw
    global_batch: 64
    tail: short
    anchor: {{clock: sim}}
    outputs:
      states: {{at: -2..0, norm: mean_std}}
  grid:
    dataset: raw
    global_batch: 64
    tail: short
    anchor: {{rate: 30}}
    outputs:
      states: {{at: "-5..0 @ 17"}}
"""


def lab_daemon(daemon, lab, pad="edge"):
    folder, _ = lab
    return daemon(CONFIG.format(path=folder / "lab.hdf5", layout=folder / "lab.yaml", pad=pad,
                                type=", dtype: float32" if pad == "nan" else ""), folder=pad)


def open_both(one, name):
    """Returns a feed's Live, and its windows."""
    with trajd.connect(one.endpoint, feed=name) as feed:
        return trajd.Live(feed), windows_of(feed)


# ---- the same bytes as the daemon ----


@pytest.mark.parametrize("pad", ["edge", "zero", "nan"])
def test_live_rows_give_the_bytes_of_the_daemons_windows(daemon, lab, pad):
    one = lab_daemon(daemon, lab, pad)
    for name in FEEDS:
        live, windows = open_both(one, name)
        steps = sum(replay(live, rows_of(episode), windows[number], lookahead_ns=30_000_000)
                    for number, episode in enumerate(lab[1]))
        assert steps > 1000, (name, steps)


def test_dropped_late_and_repeated_rows_change_nothing_else(daemon, tmp_path):
    """Rows that a recorder lost are missing live, too. Rows that come late or twice are refused and counted."""
    random = np.random.default_rng(8)
    episodes = [make_episode(random, number) for number in range(6)]
    for episode in episodes:
        keep = random.random(60) > 0.2
        for name in ("arm_t", "q", "turn", "rot", "pose", "extra"):
            if name in episode:
                episode[name] = episode[name][keep]
    write_lab(tmp_path, episodes)
    one = lab_daemon(daemon, (tmp_path, episodes))
    refused = []

    def disturb(live, stamp_ns, name, row):
        if name not in begun:
            begun.add(name)
        elif random.random() < 0.2:
            newest = live.state()[name]["newest_ns"] + live.streams[name].latency_ns
            refused.extend(live.push(name, newest - back, np.asarray(row) + 1) for back in (0, 1, 10**9))

    for name in ("grid", "rows"):
        live, windows = open_both(one, name)
        with pytest.warns(trajd.DataWarning, match="was not used"):
            for number, episode in enumerate(episodes):
                begun = set()
                replay(live, rows_of(episode), windows[number], lookahead_ns=30_000_000, before=disturb)
        counts = live.state().values()
        assert sum(count["late"] for count in counts) == 2 * sum(count["repeated"] for count in counts) > 50
    assert not any(refused)


def test_a_feed_of_two_datasets(daemon, lab, tmp_path):
    """Each dataset has statistics of its own, and one of them lacks a stream."""
    folder, episodes = lab
    bare = [{name: values for name, values in episode.items() if name != "extra"} for episode in episodes[:2]]
    with h5py.File(tmp_path / "bare.hdf5", "w") as file:
        for number, episode in enumerate(bare):
            for name, values in episode.items():
                file[f"ep_{number}/{name}"] = values * 2 if name == "q" else values
    one = daemon(f"""
datasets: {{lab: {{path: {folder}/lab.hdf5, layout: {folder}/lab.yaml}}, bare: {{path: {tmp_path}/bare.hdf5, layout: {folder}/lab.yaml}}}}
feeds:
  train:
    mix: {{lab: 1, bare: 1}}
    epoch: 2000
    global_batch: 16
    anchor: {{clock: arm}}
    outputs:
      seen: {{from: q, at: -1..0, norm: mean_std}}
      both: {{from: [q, extra], at: -2..0, missing: zero}}
""")
    with trajd.connect(one.endpoint, feed="train") as feed:
        with pytest.raises(trajd.ArgumentError, match=r"mixes datasets.*name the one that the robot is like.*\(lab, bare\)"):
            trajd.Live(feed)
        with pytest.raises(trajd.ArgumentError, match="no dataset bear"):
            trajd.Live(feed, dataset="bear")
        lives = [trajd.Live(feed, dataset=name) for name in ("lab", "bare")]
        windows = [windows_of(feed, dataset) for dataset in (0, 1)]
    assert set(lives[0].streams) == {"q", "extra"} and set(lives[1].streams) == {"q"}
    assert replay(lives[0], rows_of(episodes[3]), windows[0][3]) > 100
    rows = [(stamp, name, row * 2) for stamp, name, row in rows_of(bare[1]) if name == "q"]
    assert replay(lives[1], rows, windows[1][1]) > 100
    stopped = lives[1].observation(windows[1][1][-1][0])
    assert stopped.mask("both").tolist() == [[0, 0, 0]] and not stopped["both"][..., 2:].any()


@pytest.mark.parametrize("name", ["policy", "mixed"])
def test_the_demonstration_dataset(daemon, demo_file, name):
    live, windows = open_both(daemon(DEMO.format(path=demo_file)), name)
    with h5py.File(demo_file) as file:
        demos = [file["data"][key] for key in sorted(file["data"], key=natural)]
        for number in (0, 7, 23):
            demo, start = demos[number], int(demos[number]["step_t0"][0])
            control = {"obs/robot0_eef_pos": demo["obs/robot0_eef_pos"][:], "obs/robot0_eef_quat": demo["obs/robot0_eef_quat"][:],
                       "object_pos": demo["obs/object"][:, :3], "dones": demo["dones"][:]}
            rows = [(start + i * 10**9 // 20, stream, row) for stream, array in control.items() for i, row in enumerate(array)]
            for stream, clock in (("joint_pos", "joint_t"), ("pose_pos", "pose_t"), ("pose_quat", "pose_t"), ("gripper_cmd", "gripper_t")):
                rows += [(int(t), stream, row) for t, row in zip(demo[clock], demo[stream])]
            assert replay(live, rows, windows[number]) > 500
    assert live.left_out == {"actions": "an action is what the policy predicts"}


AHEAD = """
datasets: {{lab: {{path: {0}/lab.hdf5, layout: {0}/lab.yaml}}}}
feeds:
  some:
    dataset: lab
    global_batch: 16
    rate: 20
    anchor: {{clock: arm}}
    outputs:
      seen:  {{from: q, at: -1..0}}
      ahead: {{from: q, at: 0..9, lookahead: 10s}}
      timed: {{from: q, at: "0ms..100ms @ 40", lookahead: 1s}}
  none:
    dataset: lab
    global_batch: 16
    anchor: {{clock: arm}}
    outputs:
      ahead: {{from: q, at: 0..9, lookahead: 10s}}
"""


def test_observations_with_rows_after_the_anchor_are_left_out(daemon, lab):
    one = daemon(AHEAD.format(lab[0]))
    with trajd.connect(one.endpoint, feed="some") as feed:
        with pytest.warns(trajd.DataWarning, match="observations have no output ahead: at: its steps reach beyond the anchor"):
            live = trajd.Live(feed)
    assert set(live.left_out) == {"ahead", "timed"} and set(live.streams) == {"q"}
    assert live.left_out["ahead"].startswith("at: its steps reach beyond the anchor (lookahead), to rows that a robot does not have")
    live.push("q", 10**9, lab[1][0]["q"][0])
    with pytest.raises(trajd.ArgumentError, match="ahead is not part of an observation: see Live.left_out"):
        live.observation(10**9).raw("ahead")
    with trajd.connect(one.endpoint, feed="none") as feed:
        with pytest.raises(trajd.Error, match="no output of role obs that can be built .*outputs.ahead: at: its steps reach beyond the anchor"):
            trajd.Live(feed)


RECORDED = sorted(path.name for path in RECORDINGS.glob("*.hdf5"))


@pytest.mark.skipif(not RECORDED, reason="the recordings are not here (../shared/data)")
@pytest.mark.parametrize("name", RECORDED or ["none"])
def test_published_recordings(daemon, name):
    one = daemon(RAW.format(path=RECORDINGS / name))
    for feed in ("rows", "grid"):
        live, windows = open_both(one, feed)
        with h5py.File(RECORDINGS / name) as file:
            demos = sorted((key for key in file["data"] if key.startswith("demo_")), key=natural)
            for number, key in list(enumerate(demos))[::max(1, len(demos) // 4)]:
                states = file["data"][key]["states"][:]
                stamps = np.rint(states[:, 0] * 1e9).astype(np.int64)
                keep = np.concatenate([[True], np.diff(stamps) > 0])
                rows = [(int(t), "states", row) for t, row in zip(stamps[keep], states[keep])]
                assert replay(live, rows, windows[number]) > 0


# ---- on the robot ----


def test_a_saved_description_needs_no_daemon(daemon, lab, tmp_path):
    one = lab_daemon(daemon, lab)
    live, windows = open_both(one, "rows")
    live.save(tmp_path / "rows.live")
    one.stop()
    again = trajd.Live(tmp_path / "rows.live")
    stamp, name, row = next(iter(rows_of(lab[1][1])))
    with pytest.raises(ValueError, match=f"{name}: the row has masked numbers.*fill them first"):
        again.push(name, stamp, np.ma.masked_array(row, mask=True))
    assert again.streams == live.streams and again.fingerprint == live.fingerprint and again.left_out == live.left_out
    assert replay(again, rows_of(lab[1][1]), windows[1]) > 100
    with pytest.raises(trajd.ArgumentError, match="has one feed and takes no options"):
        trajd.Live(tmp_path / "rows.live", feed="rows")
    with pytest.raises(trajd.MissingFile, match="neither a live description nor a configuration"):
        trajd.Live(tmp_path / "missing.live")


def test_a_saved_scale_with_another_digit_is_refused(daemon, lab, tmp_path):
    one = lab_daemon(daemon, lab)
    open_both(one, "rows")[0].save(tmp_path / "rows.live")
    one.stop()
    text = (tmp_path / "rows.live").read_text()
    for key in "scale", "offset":
        found = re.search(rf'"{key}":\s*\[[^\]]*?([0-9])', text)
        at, digit = found.start(1), found[1]
        (tmp_path / "changed.live").write_text(text[:at] + str(9 - int(digit)) + text[at + 1:])
        with pytest.raises(trajd.ArgumentError, match="digest: the description was changed after it was written"):
            trajd.Live(tmp_path / "changed.live")


def test_a_configuration_is_enough(daemon, demo_file, monkeypatch):
    """Live takes what trajd.open takes: it finds the daemon, asks it, and leaves it."""
    one = daemon(DEMO.format(path=demo_file))
    monkeypatch.setenv("TRAJD_ENDPOINT", str(one.endpoint))
    live = trajd.Live(one.config, feed="policy", style="robomimic", overrides={"global_batch": 8})
    assert live.streams["joint_pos"] == trajd.live.Stream(
        "joint_pos", "joint", "f32", (7,), live.streams["joint_pos"].interval_ns, 0, live.streams["joint_pos"].capacity)
    assert 1.9e6 < live.streams["joint_pos"].interval_ns < 2.1e6


STREAM = {"name": "q", "clock": 0, "dtype": "f64", "shape": [2]}
SOURCE = {"stream": 0, "columns": 2, "rule": "rows", "lookahead_ns": 0, "kind": "previous", "max_gap_ns": -1,
          "max_age_ns": 2**63 - 1, "missing": "error"}
OUTPUT = {"name": "obs/q", "role": "obs", "hidden": False, "dtype": "f32", "shape": [2, 2], "from": -1, "rate": "10/1",
          "sources": [SOURCE]}
DOCUMENT = {"trajd_live": 1, "feed": "train", "dataset": "d", "fingerprint": "0" * 16, "norm_digest": "0" * 16, "pad": "edge",
            "anchor_clock": 0, "anchor_rate": "10/1",
            "clocks": [{"name": "arm", "rate": "10/1", "interval_ns": 10**8, "shift_ns": -10**6}],
            "streams": [STREAM, {**STREAM, "name": "p"}],
            "left_out": [{"name": "actions", "role": "action", "dtype": "f32", "shape": [8, 7], "reason": "predicted"}],
            "outputs": [OUTPUT, {**OUTPUT, "name": "obs/p", "sources": [{**SOURCE, "stream": 1}]}], "next": None}


def by_hand(path, **changes):
    """Opens a description of two streams at 10 Hz that are pushed with a latency of 1 ms."""
    path.write_text(json.dumps({**DOCUMENT, **changes}))
    return path


def both(live, t_ms, value):
    return [live.push(name, t_ms * 10**6, [value, -value]) for name in ("q", "p")]


def test_what_an_observation_is(tmp_path):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    for step in range(5):
        assert both(live, 100 * step, step) == [True, True]
    seen = live.observation(430_000_000)
    assert seen.anchor_ns == 399_000_000  # latency applied
    assert seen["obs"]["q"].shape == (1, 2, 2) and seen["obs/q"].tolist() == [[[3, -3], [4, -4]]]
    assert seen["obs_is_pad/q"].tolist() == [[False, False]] and not seen.mask("obs/q").any()
    assert dict(seen).keys() == {"obs", "obs_is_pad"} and type(seen.copy()) is dict
    kept = seen["obs/q"]
    both(live, 500, 5)
    assert kept.tolist() == [[[3, -3], [4, -4]]], "an observation changed"
    kept[:] = 0  # it is the program's own
    assert live.left_out == {"actions": "predicted"}
    with pytest.raises(trajd.ArgumentError, match="not part of an observation"):
        seen.raw("actions")


@pytest.mark.parametrize("style, path", [("robomimic", "obs/q"), ("lerobot", "observation.q"), ("diffusion_policy", "obs/q")])
def test_styles(tmp_path, style, path):
    live = trajd.Live(by_hand(tmp_path / "a.live"), style=style)
    both(live, 0, 1)
    both(live, 100, 2)
    seen = live.observation(100_000_000)
    assert seen[path].tolist() == [[[1, -1], [2, -2]]]
    assert not [key for key in seen if "action" in key or key == "pad_mask"]


def test_the_style_of_act(tmp_path):
    qpos = {**OUTPUT, "name": "qpos", "shape": [1, 2], "from": 0}
    left_out = [{"name": "action", "role": "action", "dtype": "f32", "shape": [8, 7], "reason": "predicted"}]
    live = trajd.Live(by_hand(tmp_path / "a.live", outputs=[qpos], left_out=left_out), style="act")
    both(live, 0, 1)
    assert live.observation(0)["qpos"].tolist() == [[1, -1]]


def test_a_row_that_is_not_complete_is_no_anchor(tmp_path):
    """Threads push the streams of a row one after another. Until all are there, the row before is the anchor."""
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    both(live, 0, 1)
    both(live, 100, 2)
    live.push("q", 200_000_000, [3, -3])
    seen = live.observation(210_000_000)
    assert seen.anchor_ns == 99_000_000 and seen["obs/q"].tolist() == [[[1, -1], [2, -2]]]
    live.push("p", 200_000_000, [3, -3])
    assert live.observation(210_000_000).anchor_ns == 199_000_000


def test_a_stream_that_lost_a_row_is_masked(tmp_path):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    both(live, 0, 1)
    live.push("q", 100_000_000, [2, -2])
    both(live, 200, 3)
    seen = live.observation(200_000_000)
    assert seen["obs/q"].tolist() == [[[2, -2], [3, -3]]] and seen["obs/p"].tolist() == [[[1, -1], [3, -3]]]
    assert seen.mask("obs/q").tolist() == [[0, 0]] and seen.mask("obs/p").tolist() == [[3, 0]]


@pytest.mark.parametrize("loser", ["q", "p"])
def test_the_stream_that_lost_a_row_is_masked_wherever_it_stands(tmp_path, loser):
    """The other streams know the anchors: theirs are valid, and steps at the stamps of anchors do not shift."""
    held = {**OUTPUT, "name": "obs/held", "shape": [4, 2], "from": -3, "rate": None,
            "sources": [{**SOURCE, "stream": 2, "rule": "anchors"}]}
    outputs = [{**OUTPUT, "shape": [4, 2], "from": -3},
               {**OUTPUT, "name": "obs/p", "shape": [4, 2], "from": -3, "sources": [{**SOURCE, "stream": 1}]}, held]
    clocks = [*DOCUMENT["clocks"], {"name": "other", "rate": None, "interval_ns": 10**7, "shift_ns": -10**6}]
    streams = [*DOCUMENT["streams"], {**STREAM, "name": "h", "clock": 1}]
    live = trajd.Live(by_hand(tmp_path / "a.live", outputs=outputs, clocks=clocks, streams=streams, anchor_rate=None))
    for step in range(20):
        for name in ("q", "p", "h"):
            if (name, step) != (loser, 18):
                live.push(name, step * 10**8, [step, -step])
    seen = live.observation(19 * 10**8)
    masks = {name: seen.mask(f"obs/{name}")[0].tolist() for name in ("q", "p", "held")}
    assert masks == {"q": [0, 0, 0, 0], "p": [0, 0, 0, 0], "held": [0, 0, 0, 0], loser: [3, 3, 3, 0]}
    assert seen["obs/held"][0, :, 0].tolist() == [16, 17, 18, 19]
    assert seen["obs/p" if loser == "q" else "obs/q"][0, :, 0].tolist() == [16, 17, 18, 19]


def test_two_streams_that_lost_different_rows_are_both_masked(tmp_path):
    """Before both rows their stamps agree again, but the rows are those of other anchors."""
    outputs = [{**OUTPUT, "name": f"obs/{name}", "shape": [4, 2], "from": -3, "sources": [{**SOURCE, "stream": place}]}
               for place, name in enumerate("qp")]
    live = trajd.Live(by_hand(tmp_path / "a.live", outputs=outputs))
    for step in range(20):
        for name, lost in (("q", 18), ("p", 17)):
            if step != lost:
                live.push(name, step * 10**8, [step, -step])
    seen = live.observation(19 * 10**8)
    assert seen.mask("obs/q").tolist() == [[3, 3, 3, 0]] and seen.mask("obs/p").tolist() == [[3, 3, 0, 0]]


@pytest.mark.parametrize("source, is_said", [({"kind": "linear"}, True), ({"kind": "nearest"}, True), ({"kind": "previous"}, False),
                                             ({"kind": "linear", "lookahead_ns": 0}, False), ({"kind": "linear", "rule": "rows"}, False)])
def test_a_lookahead_of_steps_before_the_anchor_is_said(tmp_path, source, is_said):
    """A robot that asks for now has no row after the anchor."""
    output = {**OUTPUT, "sources": [{**SOURCE, "rule": "times", "lookahead_ns": 30_000_000, **source}]}
    by_hand(tmp_path / "a.live", outputs=[output], streams=[STREAM])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trajd.Live(tmp_path / "a.live")
    texts = [str(one.message) for one in caught if one.category is trajd.DataWarning]
    assert "no digest" in texts.pop(0)  # a file of version 1, as this one, is said to have none
    assert len(texts) == is_said and all("output obs/q reads rows up to 30 ms after the anchor (lookahead)" in one for one in texts)
    assert all(one.filename == __file__ for one in caught)


def test_streams_that_do_not_come(tmp_path):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    with pytest.raises(trajd.Timeout, match="q: no row at or before"):
        live.observation(0)
    live.push("q", 0, [1, 2])
    with pytest.raises(trajd.Timeout, match="p: no row at or before"):
        live.observation(0)
    live.push("p", 0, [1, 2])
    live.reset()
    live.push("q", 0, [1, 2])
    with pytest.raises(trajd.Timeout, match="p: no row at or before"):
        live.observation(0, partial=True)  # streams on the anchor's clock determine the anchor
    live.push("p", 0, [1, 2])
    assert live.observation(0).mask("obs/q").tolist() == [[1, 0]]  # before the start, as in training
    with pytest.raises(trajd.DataError, match="q: its newest row is 401.0 ms old, and max_anchor_age is 321.0 ms: the stream"):
        live.observation(400_000_000)
    live.push("q", 300_000_000, [1, 2])
    with pytest.raises(trajd.DataError, match="p: its newest row is 401.0 ms old"):
        live.observation(400_000_000)
    patient = trajd.Live(tmp_path / "a.live", max_anchor_age=1.0)
    both(patient, 0, 1)
    assert patient.observation(400_000_000).anchor_ns == -1_000_000


def test_streams_of_one_clock_without_a_common_stamp(tmp_path):
    """Nothing has stopped: the stamps differ."""
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    both(live, 0, 1)
    for step in range(1, 9):
        live.push("q", step * 10**8, [1, 2])
        live.push("p", step * 10**8 + 5, [1, 2])
    with pytest.raises(trajd.DataError, match="on clock arm have no recent stamp in common: push all rows of one tick with one stamp"):
        live.observation(800_000_005)


@pytest.mark.parametrize("ticks", [2, 10, 47, 60, 400])
@pytest.mark.parametrize("apart_ns", [2000, 10**6, 10**7, 2 * 10**7])
def test_rows_of_one_tick_with_stamps_of_their_own(tmp_path, apart_ns, ticks):
    """Each of four streams is stamped when it is pushed. The advice does not depend on how many rows there are."""
    names = ["q", "p", "r", "s"]
    outputs = [{**OUTPUT, "name": f"obs/{name}", "sources": [{**SOURCE, "stream": place}]} for place, name in enumerate(names)]
    live = trajd.Live(by_hand(tmp_path / "a.live", streams=[{**STREAM, "name": name} for name in names], outputs=outputs))
    for tick in range(ticks):
        for place, name in enumerate(names):
            live.push(name, tick * 10**8 + place * apart_ns, [1, 2])
        with pytest.raises(trajd.DataError if tick else trajd.Timeout, match="push all rows of one tick with one stamp"):
            live.observation(tick * 10**8 + 4 * apart_ns)


def test_a_stream_that_starts_later_is_waited_for(tmp_path):
    """Its first row came before that of the other stream in the same tick: the next call finds both."""
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    for step in range(3):
        live.push("q", step * 10**8, [1, 2])
    live.push("p", 3 * 10**8, [1, 2])
    with pytest.raises(trajd.Timeout, match="p: no row at or before 199000000 ns has come yet: its first row is stamped 0.100 s after"):
        live.observation(3 * 10**8 + 10**7)
    live.push("q", 3 * 10**8, [1, 2])
    assert live.observation(3 * 10**8 + 10**7).anchor_ns == 299_000_000


HOUR_NS = 3600 * 10**9
TIMES = {**SOURCE, "rule": "times"}
OTHER = {"name": "other", "rate": None, "interval_ns": 2 * 10**8, "shift_ns": 0}


def rated(path, options, **changes):
    """Opens a description of q at 10 Hz, latency 1 ms, and p of another clock at 5 Hz. The anchors have a rate: they are t_ns."""
    outputs = [{**OUTPUT, "shape": [1, 2], "from": 0, "sources": [TIMES]},
               {**OUTPUT, "name": "obs/p", "shape": [1, 2], "from": 0, "sources": [{**TIMES, "stream": 1}]}]
    document = {"anchor_clock": None, "outputs": outputs, "clocks": [*DOCUMENT["clocks"], OTHER],
                "streams": [STREAM, {**STREAM, "name": "p", "clock": 1}], **changes}
    return trajd.Live(by_hand(path, **document), **options)


def test_all_streams_stop_where_the_anchors_have_a_rate(tmp_path):
    """The rows are as old as they may be in training, but nobody wants to act on them."""
    live = rated(tmp_path / "a.live", {})
    both(live, 0, 1)
    assert live.observation(500_000_000)["obs/q"].tolist() == [[[1, -1]]]
    with pytest.raises(trajd.DataError, match="p: its newest row is 501.0 ms old, and max_anchor_age is 501.0 ms: all streams have"):
        live.observation(501_000_001)
    live.push("p", 200_000_000, [2, -2])
    assert live.observation(701_000_000).anchor_ns == 701_000_000, "one stream goes on"
    with pytest.raises(trajd.DataError, match="p: its newest row is 501.0 ms old"):
        live.observation(701_000_001)
    patient = rated(tmp_path / "a.live", {"max_anchor_age": 2.0})
    both(patient, 0, 1)
    assert patient.observation(2 * 10**9)["obs/q"].tolist() == [[[1, -1]]]
    with pytest.raises(trajd.DataError, match="max_anchor_age is 2000.0 ms"):
        patient.observation(2 * 10**9 + 1)
    patient.push("q", HOUR_NS, [7, 7])
    with pytest.raises(trajd.DataError, match="q: its last row before the observation is 2501.0 ms old.*is stamped 3597.499 s ahead"):
        patient.observation(2_500_000_000)


def test_one_of_several_streams_stops(tmp_path):
    live = rated(tmp_path / "a.live", {})
    both(live, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(1, 21):
            live.push("q", step * 10**8, [1, 2])
            live.observation(step * 10**8)
    live.push("q", 21 * 10**8, [1, 2])
    with pytest.warns(trajd.DataWarning, match="live stream p: its newest row is 2.1 s old, and recordings have one every 200 ms"):
        live.observation(21 * 10**8)


def test_a_stream_with_one_row_in_each_episode_does_not_stop(tmp_path):
    """How often its rows come is not known. A second stream comes each two seconds, and stops."""
    clocks = [{**DOCUMENT["clocks"][0], "rate": None, "interval_ns": 2 * 10**9, "shift_ns": 0}, {**OTHER, "interval_ns": None}]
    live = rated(tmp_path / "a.live", {}, clocks=clocks)
    assert [stream.interval_ns for stream in live.streams.values()] == [2 * 10**9, 0]
    both(live, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for second in range(2, 60, 2):
            live.push("q", second * 10**9, [second, 2])
            assert live.observation(second * 10**9 + 10**9)["obs/p"].tolist() == [[[1, -1]]]
    with pytest.raises(trajd.DataError, match="q: its newest row is 6200.0 ms old, and max_anchor_age is 6200.0 ms: all streams have"):
        live.observation(58 * 10**9 + 6_200_000_001)


def test_the_interval_of_one_row_in_each_episode_is_not_known(daemon, tmp_path):
    with h5py.File(tmp_path / "lab.hdf5", "w") as file:
        for number in range(2):
            episode = make_episode(np.random.default_rng(number), number)
            episode["grip_t"], episode["grip"] = episode["grip_t"][:1], episode["grip"][:1]
            for name in ("arm_t", "grip_t", "q", "grip"):
                file[f"ep_{number}/{name}"] = episode[name]
    (tmp_path / "lab.yaml").write_text("layout: lab\nepisodes: {files: '*.hdf5', groups: /ep_*}\n"
                                       "clocks: {arm: {path: arm_t, unit: ns}, grip: {path: grip_t, unit: ns}}\n"
                                       "streams: {q: {clock: arm, kind: linear}, grip: {clock: grip, kind: previous}}\n")
    one = daemon(f"datasets: {{lab: {{path: {tmp_path}, layout: {tmp_path}/lab.yaml}}}}\nfeeds: {{f: {{dataset: lab, global_batch: 8, "
                 "tail: short, anchor: {clock: arm}, pad: {before: any, after: any}, outputs: {q: {at: 0}, grip: {at: 0}}}}\n")
    live, _ = open_both(one, "f")
    assert live.streams["grip"].interval_ns == 0 < live.streams["q"].interval_ns < 10**9


def test_a_fast_stream_without_rows_stops_nothing(tmp_path):
    """The limit is that of the fastest stream that has rows: q, at 1 kHz, does not come, and p comes each second."""
    clocks = [{**DOCUMENT["clocks"][0], "rate": None, "interval_ns": 10**6, "shift_ns": 0}, {**OTHER, "interval_ns": 10**9}]
    live = rated(tmp_path / "a.live", {}, clocks=clocks)
    live.push("p", 0, [1, 2])
    assert live.observation(900_000_000, partial=True).mask("obs/q").all()
    with pytest.raises(trajd.DataError, match="p: its newest row is 3200.0 ms old, and max_anchor_age is 3200.0 ms: all streams have"):
        live.observation(3_200_000_001, partial=True)
    live.push("q", 0, [1, 2])
    live.push("p", 10**9, [1, 2])
    with pytest.raises(trajd.DataError, match="q: its newest row is 1900.0 ms old, and max_anchor_age is 203.0 ms: the stream has stopped"):
        live.observation(1_900_000_000)


@pytest.mark.parametrize("offset_ns", [0, -17 * 10**17, 3 * 10**9])
def test_an_offset_between_clocks_is_no_latency(tmp_path, offset_ns):
    """The anchor's clock has a latency of 200 ms, and maybe another epoch: three rows of 100 ms, 200 ms and 20 ms."""
    clocks = [{**DOCUMENT["clocks"][0], "shift_ns": offset_ns - 2 * 10**8, "latency_ns": 2 * 10**8}]
    live = trajd.Live(by_hand(tmp_path / "a.live", clocks=clocks))
    assert live.streams["q"].latency_ns == 2 * 10**8 - offset_ns and live.streams["q"].capacity < 100
    for name in ("q", "p"):
        live.push(name, -offset_ns + 2 * 10**8, [1, 2])
    assert live.observation(520_000_000).anchor_ns == 0
    with pytest.raises(trajd.DataError, match="its newest row is 520.0 ms old, and max_anchor_age is 520.0 ms"):
        live.observation(520_000_001)


def test_warnings_that_an_honest_robot_does_not_get(tmp_path):
    """A stream that comes 3 s late by its declared latency has not stopped. Observations of the past are of the past."""
    clocks = [DOCUMENT["clocks"][0], {**OTHER, "shift_ns": -3 * 10**9}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*no digest")
        live = rated(tmp_path / "a.live", {}, clocks=clocks)
        for step in range(60):
            both(live, 100 * step, step)
            live.observation(step * 10**8, partial=True)
        past = rated(tmp_path / "a.live", {})
        for step in range(30):
            both(past, 100 * step, step)
        assert past.observation(10**9).anchor_ns == 10**9


def test_a_new_episode_has_its_own_warnings(tmp_path):
    live = rated(tmp_path / "a.live", {})
    for _ in range(2):
        both(live, 0, 1)
        live.push("q", 21 * 10**8, [1, 2])
        with pytest.warns(trajd.DataWarning, match="live stream p: its newest row is 2.1 s old"):
            live.observation(21 * 10**8)
        live.reset()


def test_a_row_stamped_in_the_future_is_said(tmp_path):
    """It makes a stream late until the time has come: the warnings and errors name the stream and the time."""
    late = r"live stream {}: a row was not used: its stamp is 3600 s before that of the newest row.*call Live.reset\(\)"
    live = rated(tmp_path / "a.live", {})
    both(live, 0, 1)
    with pytest.warns(trajd.DataWarning, match="it has the stamp of the row before"):
        live.push("p", 0, [1, 2])
    live.push("p", HOUR_NS + 10**8, [1, 2])
    with pytest.warns(trajd.DataWarning, match=late.format("p")):
        assert not live.push("p", 10**8, [1, 2])
    with pytest.warns(trajd.DataWarning, match="live stream p: its newest row is stamped 3600 s ahead of the observation.*Live.reset"):
        live.observation(10**8)
    live.reset()
    both(live, 200, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        live.observation(2 * 10**8)
    both(live, 3_600_200, 3)
    with pytest.raises(trajd.Timeout, match="q: no row at or before 100000000 ns has come yet: its first row is stamped 0.099 s after"):
        live.observation(10**8)

    live = trajd.Live(by_hand(tmp_path / "a.live"))
    both(live, 0, 1)
    live.push("q", HOUR_NS, [1, 2])
    live.push("p", 4 * 10**8, [1, 2])
    with pytest.raises(trajd.DataError, match="q: its last row before the observation is 401.0 ms old, and max_anchor_age is 321.0 ms. "
                                              "Its newest row is stamped 3599.599 s ahead of the observation.*correct the clock"):
        live.observation(4 * 10**8)


def test_a_stream_that_stopped_is_too_old(tmp_path):
    """A stream on another clock holds its last row, and max_age masks it."""
    held = {**OUTPUT, "name": "obs/p", "shape": [1, 2], "from": 0,
            "sources": [{**SOURCE, "stream": 1, "rule": "times", "max_age_ns": 150_000_000}]}
    clocks = [*DOCUMENT["clocks"], {"name": "other", "rate": None, "interval_ns": 10**7, "shift_ns": 0}]
    live = trajd.Live(by_hand(tmp_path / "a.live", outputs=[OUTPUT, held], clocks=clocks,
                              streams=[STREAM, {**STREAM, "name": "p", "clock": 1}]))
    live.push("p", 0, [7, 8])
    masks = []
    for step in range(4):
        live.push("q", step * 10**8, [step, step])
        seen = live.observation(step * 10**8 + 1) if step else live.observation(10**6, partial=True)
        masks.append(seen.mask("obs/p")[0, 0])
    assert masks == [1, 0, 7, 7] and seen["obs/p"].tolist() == [[[7, 8]]]


def test_the_past(tmp_path):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    assert live.streams["q"].capacity >= 2 * 10
    for step in range(500):
        both(live, 100 * step, step)
    assert live.observation(49_900_000_000 - 10**9)["obs/q"].tolist() == [[[488, -488], [489, -489]]]
    with pytest.raises(trajd.NotFound, match=r"rows that are no longer kept \(the newest 48 are\): raise the option history"):
        live.observation(10 * 10**9)
    far = trajd.Live(tmp_path / "a.live", history=30.0)
    for step in range(500):
        both(far, 100 * step, step)
    assert far.observation(20_000_000_000)["obs/q"].tolist() == [[[199, -199], [200, -200]]]


def test_refused_rows_are_said_once_and_counted(tmp_path):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    both(live, 100, 1)
    with pytest.warns(trajd.DataWarning, match="live stream q: a row was not used: it has the stamp of the row before"):
        assert not live.push("q", 100_000_000, [9, 9])
    with pytest.warns(trajd.DataWarning, match="live stream q: a row was not used: its stamp is 0.001 s before that of the newest row"):
        assert not live.push("q", 99_000_000, [9, 9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not live.push("q", 98_000_000, [9, 9])
    assert live.state()["q"] == {"taken": 1, "late": 2, "repeated": 1, "busy": 0, "off_rate": 0, "newest_ns": 99_000_000}
    assert live.state()["p"]["newest_ns"] == 99_000_000
    live.reset()
    assert live.state()["q"]["newest_ns"] is None and live.state()["q"]["taken"] == 1
    assert live.push("q", 50_000_000, [1, 1]), "a new episode may go back in time"


def test_another_rate_than_recorded_is_said(tmp_path):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    with pytest.warns(trajd.DataWarning, match=r"rows came at another distance than 100 ms, the rate of the recordings"):
        for step in range(70):
            both(live, 200 * step, step)
            live.observation(200_000_000 * step)
    assert live.state()["q"]["off_rate"] == 69


@pytest.mark.parametrize("distance_ns, text", [
    (2 * 10**8, "the last of them came after 200 ms. Steps that are rows then"),
    (10**5, "the last of them came after 0.1 ms: stamps are in ns, are these in another unit? Steps that are rows then"),
    (10**2, "the last of them came after 0.0001 ms: stamps are in ns, are these in another unit?"),
    (10**11, "the last of them came after 100000 ms: stamps are in ns, are these in another unit?"),
])
def test_the_distance_of_rows_at_another_rate_is_said(tmp_path, distance_ns, text):
    """100, 0.1 and 0.0001 ms are 10 Hz in ns, us and ms."""
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    for step in range(3):
        for name in ("q", "p"):
            live.push(name, distance_ns * step, [1, 2])
    with pytest.warns(trajd.DataWarning, match=re.escape(text)):
        live.observation(distance_ns * 2)


@pytest.mark.parametrize("row, error, text", [
    ([1, 2, 3], ValueError, r"q: a row has the shape \[2\], not \[3\]"),
    (1.0, ValueError, r"not \[\]$"),
    ([[1], [2]], ValueError, r"not \[2, 1\]: pass numpy.reshape\(row, \[2\]\)"),
    (["a", "b"], TypeError, r"^q: a row is an array of numbers, not \['a', 'b'\]$"),
    ("abc", TypeError, "^q: a row is an array of numbers, not 'abc'$"),
    (None, TypeError, "^q: a row is an array of numbers, not None$"),
    ([[1], [1, 2]], ValueError, "^q: the row is not an array: "),
    ([1j, 2], TypeError, "^q: Cannot cast"),
])
def test_rows_of_another_shape_or_type(tmp_path, row, error, text):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    with pytest.raises(error, match=text):
        live.push("q", 0, row)
    assert live.state()["q"]["taken"] == 0


def live_of_type(path, dtype):
    """Opens a description of one stream "q" of two numbers, whose last row is the observation."""
    wide = dtype if dtype in ("f16", "f64", "bool") or dtype.startswith(("i", "u")) else "f32"
    output = {**OUTPUT, "dtype": wide, "shape": [1, 2], "from": 0}
    return trajd.Live(by_hand(path, streams=[{**STREAM, "dtype": dtype}], outputs=[output]))


@pytest.mark.parametrize("dtype, row, error, text", [
    ("i16", [70000, 1], ValueError, "q: a row of int16 has numbers from -32768 to 32767, not 1 to 70000"),
    ("u8", [-1, 1], ValueError, "from 0 to 255"),
    ("u8", [0.5, 1], TypeError, "Cannot cast"),
    ("bool", [2, 1], ValueError, "from 0 to 1, not 1 to 2"),
    ("u64", [-1, 0], ValueError, "from 0 to 18446744073709551615"),
    ("f32", [1e300, 1], ValueError, "q: float32 does not hold a number of the row"),
    ("f16", [70000, 1], ValueError, "it would become infinite"),
    ("bf16", [0.5, 1], TypeError, "a row of bf16 is an array of ml_dtypes.bfloat16, or of uint16 with the bits, not float64"),
])
def test_numbers_that_the_stream_does_not_hold(tmp_path, dtype, row, error, text):
    live = live_of_type(tmp_path / "a.live", dtype)
    with pytest.raises(error, match=text):
        live.push("q", 0, row)
    assert live.state()["q"]["taken"] == 0


@pytest.mark.parametrize("dtype, row, seen", [
    ("u8", [0, 255], [0, 255]),
    ("bool", [1, 0], [True, False]),
    ("i8", np.array([-128, 127], np.int64), [-128, 127]),
    ("u64", [2**63, 2**64 - 1], [2**63, 2**64 - 1]),
    ("i32", [True, False], [1, 0]),
    ("f32", [np.inf, np.nan], [np.inf, np.nan]),
    ("f64", [1, 2], [1, 2]),
    ("bf16", np.array([0x3F80, 0xC000], np.uint16), [1, -2]),
])
def test_numbers_are_converted_to_the_streams_type(tmp_path, dtype, row, seen):
    live = live_of_type(tmp_path / "a.live", dtype)
    assert live.push("q", 10**6, row)
    np.testing.assert_array_equal(live.observation(10**6)["obs/q"], [[seen]])


def test_rows_of_ml_dtypes(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    live = live_of_type(tmp_path / "a.live", "bf16")
    assert live.push("q", 10**6, np.array([1, -2], ml_dtypes.bfloat16))
    assert live.observation(10**6)["obs/q"].tolist() == [[[1, -2]]]


def test_names_and_times_that_are_wrong(tmp_path):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    with pytest.raises(trajd.NotFound, match=r"no stream qq \(did you mean q\?\): an observation needs q, p"):
        live.push("qq", 0, [1, 2])
    for call in (lambda: live.push("q", 0.5, [1, 2]), lambda: live.observation(np.float64(0.5))):
        with pytest.raises(TypeError, match=r"t_ns: an integer in ns is expected, not .*0.5.*: time.time_ns\(\) .* int\(t \* 1e9\)"):
            call()
    with pytest.raises(trajd.ArgumentError, match="beyond 2\\^61 ns"):
        live.push("q", 2**62, [1, 2])
    with pytest.raises(trajd.ArgumentError, match="beyond 2\\^61 ns"):
        live.observation(2**62)
    with pytest.raises(trajd.ArgumentError, match="no style"):
        trajd.Live(tmp_path / "a.live", style="cubist")
    for wrong in "200ms", 0, float("nan"), None:
        with pytest.raises(trajd.ArgumentError, match="history: seconds above 0 are expected, not"):
            trajd.Live(tmp_path / "a.live", history=wrong)


@pytest.mark.parametrize("changes, text", [
    ({"trajd_live": 3}, "trajd_live: out of range"),
    ({"trajd_live": 2}, "digest: missing"),
    ({"trajd_live": 2, "digest": "0123456789abcdef"}, "digest: the description was changed after it was written"),
    ({"surprise": 1}, "surprise: no such key"),
    ({"clocks": []}, "clocks and streams: lists of 1 to 257"),
    ({"anchor_clock": 3}, "anchor_clock: it is not in the list"),
    ({"streams": [STREAM, STREAM]}, "same name"),
    ({"outputs": [{**OUTPUT, "shape": [2, 3]}]}, "shape: another number of columns"),
    ({"outputs": [{**OUTPUT, "shape": [0, 2]}]}, "1 to 65536 steps"),
    ({"outputs": [{**OUTPUT, "scale": [1.0], "offset": [0.0]}]}, "one number for each column"),
    ({"outputs": [{**OUTPUT, "sources": [{**SOURCE, "columns": 3}]}]}, "columns: the stream has another number"),
    ({"outputs": [{**OUTPUT, "sources": [{**SOURCE, "kind": "cubic"}]}]}, "outputs[0].sources[0].kind: an unknown word"),
    ({"outputs": [{**OUTPUT, "from": 0}]}, "output obs/q: its steps reach beyond the anchor, to rows that a robot does not have yet"),
    ({"outputs": [{**OUTPUT, "from": -10**9}]}, "more than 2^24 rows"),
    ({"clocks": [{**DOCUMENT["clocks"][0], "interval_ns": 2**61}], "outputs": [{**OUTPUT, "from": -200, "rate": None}]},
     "steps beyond 2^61 ns"),
    ({"outputs": [{**OUTPUT, "scale": [3.45e38, 1.0], "offset": [0.0, 0.0]}]}, "scale"),
    ({"left_out": None}, "a.live: left_out: a list is expected"),
    ({"left_out": [{"name": "actions", "role": "action", "dtype": "f32", "shape": 7, "reason": "r"}]}, "a.live: left_out[0].shape: not a list"),
    ({"left_out": [7]}, "a.live: left_out[0]: not a map"),
    ({"feed": 7}, "feed"),
    ({"outputs": [{key: value for key, value in OUTPUT.items() if key != "role"}]}, "a.live: outputs[0].role: missing"),
])
def test_a_damaged_description_is_refused(tmp_path, changes, text):
    with pytest.raises(trajd.Error) as caught:
        trajd.Live(by_hand(tmp_path / "a.live", **changes))
    assert text in str(caught.value) and str(caught.value).startswith(f"{tmp_path}/a.live: ")


@pytest.mark.parametrize("key", ["feed", "fingerprint", "norm_digest", "left_out"])
def test_a_description_without_a_member_is_refused(tmp_path, key):
    (tmp_path / "a.live").write_text(json.dumps({name: value for name, value in DOCUMENT.items() if name != key}))
    with pytest.raises(trajd.ArgumentError, match=f"a.live: {key}: a (text|list) is expected"):
        trajd.Live(tmp_path / "a.live")


def test_descriptions_that_were_edited_by_hand(tmp_path):
    path = tmp_path / "a.live"
    for options in ({"indent": 4}, {"indent": 1, "sort_keys": True}):
        path.write_text("\n" + json.dumps(DOCUMENT, **options))
        assert trajd.Live(path).feed == "train"
    path.write_text(json.dumps(DOCUMENT) + "  # tuned\n")
    with pytest.raises(trajd.ArgumentError, match="a.live: line 1: there is more text behind the document"):
        trajd.Live(path)
    path.write_bytes(json.dumps(DOCUMENT).encode() + b"\xff")
    with pytest.raises(trajd.ArgumentError, match="a.live: a live description is UTF-8 text"):
        trajd.Live(path)


@pytest.mark.parametrize("name", ["\U0001f916", "a\x7fb", "a\x85\u2028b", "ä\u4e2d", 'a"b\\'])
def test_names_of_any_characters_pass(tmp_path, name):
    """The text of a description is JSON and YAML."""
    answers = {"statistics": {"datasets": ["d"]}, "live": {**DOCUMENT, "outputs": [{**OUTPUT, "name": name}]}}
    connection = types.SimpleNamespace(ask=answers.get, pages=lambda topic, **place: [answers[topic]])
    text = trajd.live.description.fetch(connection, None)
    (tmp_path / "a.live").write_text(text, encoding="utf-8")
    live = trajd.Live(tmp_path / "a.live")
    both(live, 0, 1)
    assert live.observation(0).raw(name).shape == (1, 2, 2)


def test_a_saved_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    live = trajd.Live(by_hand(tmp_path / "a.live"))
    synced = []
    monkeypatch.setattr("os.fsync", lambda handle: synced.append((tmp_path / "b.live").exists()))
    live.save(tmp_path / "b.live")
    assert synced == [False] and (tmp_path / "b.live").read_text() == (tmp_path / "a.live").read_text()


def test_threads_push_while_another_observes(tmp_path):
    """All rows of an observation have one stamp, while two threads push at 10 Hz by their stamps."""
    live = trajd.Live(by_hand(tmp_path / "a.live"), history=100.0, max_anchor_age=1e8)
    both(live, 0, 0)
    threads = [threading.Thread(target=lambda name=name: [live.push(name, step * 10**8, [step, -step]) for step in range(1, 3000)])
               for name in ("q", "p")]
    for thread in threads:
        thread.start()
    seen_count = 0
    while any(thread.is_alive() for thread in threads) or not seen_count:
        try:
            seen = live.observation(10**12)
        except trajd.NotFound:
            continue  # one thread was so far ahead of the other that no common row was kept
        seen_count += 1
        q, p = seen["obs/q"][0].astype(int), seen["obs/p"][0].astype(int)  # float32 does not hold the stamps
        assert (q == p).all() and (q[:, 0] == -q[:, 1]).all() and q[1, 0] * 10**8 - 10**6 == seen.anchor_ns
    for thread in threads:
        thread.join()
    assert live.observation(10**12)["obs/q"][0, 1].tolist() == [2999, -2999]


LOOP = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  loop:
    dataset: demo
    global_batch: 64
    tail: short
    anchor: {{clock: actions}}
    outputs:
      obs/pos: {{from: pose_pos, at: -450ms..0ms @ 20, norm: min_max}}
      actions: {{at: 0..7, norm: min_max}}
"""


def test_a_policy_that_was_trained_on_a_feed_moves_an_arm(daemon, demo_file, monkeypatch, capsys):
    """The example closes the loop. Where the policy sees the mirror image, the arm goes astray."""
    one = daemon(LOOP.format(path=demo_file))
    monkeypatch.setenv("TRAJD_ENDPOINT", str(one.endpoint))
    monkeypatch.setattr("sys.argv", ["close_the_loop.py", str(one.config), "loop"])
    example = runpy.run_path(str(ROOT / "clients/python/examples/close_the_loop.py"))
    example["main"]()
    furthest = float(re.search(r"at most ([\d.]+) m from", capsys.readouterr().out)[1])
    assert furthest < 0.06, furthest
    with trajd.connect(one.endpoint, feed="loop") as feed:
        stats, live, policy = feed.stats(), trajd.Live(feed), example["fit"](*example["collect"](feed))
    astray = example["run"](live, stats, lambda seen: policy(-seen), 4.0, np.random.default_rng(0))
    assert astray > 0.2, "the policy does not look"
