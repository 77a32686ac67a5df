"""The query `explain` for windows, compared with the batches that a worker received and with the file."""
import collections
import json
import os
import re
import subprocess

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

import libtrajd as trajd
from lab_clocks import make_episode, write_lab
from paths import BUILD

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
      ahead:   {{from: q, at: -4..3, role: action, max_gap: 25ms}}
      seen:    {{from: q, at: -4..0, max_age: 12ms}}
      turned:  {{from: turn, at: -2..2, role: action}}
      rotated: {{from: rot, at: -2..2, role: action}}
      held:    {{from: grip, at: -4..0, max_age: 20ms}}
      picked:  {{from: near, at: -4..3, role: action, max_gap: 80ms}}
      force:   {{from: wrench, at: -3..3, role: action, kind: mean, width: 22ms}}
      both:    {{from: [q, extra], at: 0..2, role: action, missing: zero}}
      extra:   {{at: 0..2, role: action, missing: zero}}
  rows:
    dataset: lab
    global_batch: 16
    tail: short
    anchor: {{clock: arm}}
    pad: {{with: {pad}}}
    outputs:
      ahead:   {{from: q, at: -4..3, role: action}}
      seen:    {{from: q, at: -4..0}}
      rotated: {{from: rot, at: -1..1, role: action}}
      picked:  {{from: near, at: -4..3, role: action}}
      force:   {{from: wrench, at: -2..2, role: action, width: 12ms}}
"""
WORDS = {1: r"before start", 2: r"after end", 3: r"^gap of [\d.]+ ms \(rows \d+, \d+\) > max_gap (25|80) ms$",
         5: r"^feature [01] is NaN, infinite or too large in row \d+( or \d+)?$|^quaternion 0 is NaN", 6: r"^the episode has no extra$",
         7: r"^held row \d+ is [\d.]+ (ms|s) old, max_age is (12|20) ms$|^the last row of \w+ \(row \d+\) is [\d.]+ m?s old, more than 3 median "
            r"intervals of [\d.]+ ms: it stops before its episode$"}


def start(daemon, folder, pad):
    """Writes six episodes and starts a daemon that has them."""
    random = np.random.default_rng(3)
    write_lab(folder, [make_episode(random, number) for number in range(6)])
    return daemon(CONFIG.format(path=folder / "lab.hdf5", layout=folder / "lab.yaml", pad=pad))


def explain(client, window, **question):
    """Joins all pages of the document. Returns {output: [step...]}, {output: head} and the last page."""
    steps, heads, first = collections.defaultdict(list), {}, 0
    while first is not None:
        page = client.ask("explain", window=window, first=first, **question)
        for output in page["outputs"]:
            steps[output["name"]] += output["items"]
            heads[output["name"]] = output
        first = page["next"]
    return steps, heads, page


def value(data, source, told, edge):
    """Computes a source's value from the rows and weights in the document."""
    rows = [row for row, _, _ in told["rows"]]
    weights = [weight for _, _, weight in told["rows"]]
    columns = slice(source["first_column"], source["first_column"] + source["columns"])
    if not rows:
        return np.full(source["columns"], np.nan if edge == "nan" else 0.0)
    values = data[source["path"]][rows].astype(float)[:, columns]
    if "averaged" in told:
        assert told["averaged"] == rows[1] - rows[0] + 1 and weights == [1 / told["averaged"]] * 2
        return data[source["path"]][rows[0]:rows[1] + 1].astype(float)[:, columns].mean(axis=0)
    assert sum(weights) == pytest.approx(1, abs=1e-15)
    if len(rows) == 1:
        return values[0]
    past, width = told["fraction"]
    assert weights[1] == past / width and width == told["rows"][1][1] - told["rows"][0][1] and rows[1] > rows[0]
    if source["kind"] == "angle":
        difference = (values[1] - values[0] + np.pi) % (2 * np.pi) - np.pi
        return values[0] + weights[1] * difference
    if source["kind"].startswith("slerp"):
        return Slerp([0, 1], Rotation.from_quat(values))([weights[1]]).as_quat()[0]
    return values[0] + weights[1] * (values[1] - values[0])


def check_step(got, mask, step, head, data, edge):
    assert step["mask"] == mask
    told = step["sources"]
    codes = [source["mask"] for source in told]  # a missing stream does not mask what the others have
    assert max([code for code in codes if code != 6] or codes) == mask
    want = np.concatenate([value(data, source, one, edge) for source, one in zip(head["sources"], told)])
    if head["sources"][0]["kind"].startswith("slerp") and not np.isnan(want).any():
        assert abs((got * want).sum()) == pytest.approx(1 if want.any() else 0, abs=1e-6)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    for source in told:
        assert ("reason" in source) == (source["mask"] != 0)
        if source["mask"]:
            assert re.search(WORDS[source["mask"]], source["reason"]), source
        for _, ns, _ in source["rows"]:
            assert source["mask"] == 1 or ns <= step["ns"] or len(source["rows"]) == 2 or head["sources"][0]["kind"] == "nearest"


def stamps(group, source, origin):
    """Returns the stamps of all rows in ns, with the origin that the layout gives."""
    if source["clock"] == "ft":
        return int(group["ft_t0"][()]) - origin + np.arange(len(group["wrench"])) * 10**9 // 333
    return group[source["clock"] + "_t"][:] - {"arm": 1_000_000, "grip": 2_999_000}[source["clock"]] - origin


@pytest.mark.slow
@pytest.mark.parametrize("pad", ["edge", "zero", "nan"])
def test_every_step_is_told_as_it_was_made(daemon, tmp_path, pad):
    one = start(daemon, tmp_path, pad)
    rng, seen = np.random.default_rng(5), collections.Counter()
    with h5py.File(tmp_path / "lab.hdf5") as file:
        for feed in ("grid", "rows"):
            client = one.client()
            client.open(feed)
            for position, arrays in client.epoch():
                for row in rng.choice(len(arrays["window_id"]), 3, replace=False):
                    window = int(arrays["window_id"][row])
                    steps, heads, page = explain(client, window)
                    group = file[page["episode"]]
                    data = {name: group[name][:] for name in group if group[name].shape}
                    assert page["window_id"] == window and page["episode_index"] == arrays["episode_index"][row]
                    assert page["origin_ns"] + page["anchor_ns"] == arrays["anchor_ns"][row]
                    assert group["arm_t"][page["anchor"]] - 1_000_000 == arrays["anchor_ns"][row]
                    there, = client.ask("position", first=position + int(row), count=1)["items"]
                    assert {key: there[key] for key in ("window_id", "episode", "anchor")} == {
                        key: page[key] for key in ("window_id", "episode", "anchor")}
                    for name, list_of_steps in steps.items():
                        assert [step["step"] for step in list_of_steps] == list(range(arrays[name].shape[1]))
                        for step, got, mask in zip(list_of_steps, arrays[name][row], arrays[f"{name}.mask"][row]):
                            check_step(got, mask, step, heads[name], data, pad)
                            seen[int(mask)] += 1
                            for source, told in zip(heads[name]["sources"], step["sources"]):
                                every = stamps(group, source, page["origin_ns"])
                                assert all(every[number] == ns for number, ns, _ in told["rows"])
            client.close()
    assert set(seen) == {0, 1, 2, 3, 5, 6, 7}, seen


def test_long_windows_come_in_pages(daemon, demo_file):
    config = f"""
    datasets: {{demo: {{path: {demo_file}, layout: demo}}}}
    feeds:
      long:
        dataset: demo
        global_batch: 4
        anchor: {{clock: pose}}
        outputs:
          few:  {{from: pose_pos, at: -1..0}}
          many: {{from: [pose_pos, gripper_cmd], at: 0..999 @ 1000, role: action}}
          last: {{from: pose_pos, at: 0}}
    """
    client = daemon(config).client()
    client.open("long")
    first = client.ask("explain", window=0)
    assert first["steps"] == 1003 and [output["name"] for output in first["outputs"]] == ["few", "many"]
    assert 100 < first["next"] < 1003
    steps, _, _ = explain(client, 0)
    assert {name: [step["step"] for step in one] for name, one in steps.items()} == {
        "few": [0, 1], "many": list(range(1000)), "last": [0]}
    assert explain(client, 0, count=97)[0] == steps
    alone = client.ask("explain", window=0, name="many", first=998)
    assert alone["steps"] == 1000 and alone["outputs"][0]["items"] == steps["many"][998:] and alone["next"] is None
    client.close()


def test_trajctl(daemon, tmp_path):
    one = start(daemon, tmp_path, "edge")
    client = one.client()

    def trajctl(*arguments):
        result = subprocess.run([BUILD / "clients/cli/trajctl", "explain", *arguments, "--endpoint", one.endpoint], text=True,
                                capture_output=True, timeout=30, env=one.environment())
        return result.returncode, result.stdout + result.stderr

    feed_id = next(feed["feed_id"] for feed in client.status()["feeds"] if feed["name"] == "grid")
    document = client.ask("explain", window=40, feed_id=feed_id)
    status, text = trajctl("grid", "--window", "40", "--json")
    assert status == 0 and [json.loads(line) for line in text.splitlines()] == [document]
    status, text = trajctl("grid", "--window", "40")
    assert status == 0 and re.search("window 40 of feed grid: dataset lab, lab.hdf5, ep_0; anchor 40 at", text)
    assert "from wrench: dataset wrench, columns 0 to 2, clock ft, mean" in text and "(mean of " in text
    assert "the episode has no extra" in text and text.count("\n") > document["steps"]
    there, = client.ask("position", window=3, first=5, count=1, feed_id=feed_id)["items"]
    status, text = trajctl("grid", "--position", "5", "--epoch", "3", "--output", "seen", "--first", "1", "--count", "2", "--json")
    page = json.loads(text)
    assert status == 0 and page["window_id"] == there["window_id"]
    assert [step["step"] for step in page["outputs"][0]["items"]] == [1, 2]
    status, text = trajctl("grid", "--plan")
    plan, pages = json.loads(text), [client.ask("plan", window=0, feed_id=feed_id)]
    while pages[-1]["next"] is not None:
        pages.append(client.ask("plan", window=0, first=pages[-1]["next"], feed_id=feed_id))
    assert status == 0 and plan["outputs"] == [output for page in pages for output in page["outputs"]]
    assert plan["feed"] == "grid" and plan["digest"] == pages[0]["digest"] and plan["left_out"] == []
    assert {output["role"] for output in plan["outputs"]} >= {"obs", "action"}
    for arguments, code, message in ((("grid",), 2, "name a window"), (("grid", "--window", "1", "--position", "1"), 2, "name a window"),
                                     (("other", "--window", "1"), 1, "no open feed other .*grid"), (("--window", "1"), 2, "name a feed"),
                                     (("grid", "--window", "99999"), 1, "does not exist"), (("grid", "--window", "x"), 2, "whole number"),
                                     (("grid", "--window", "1", "--output", "see"), 1, "did you mean seen")):
        status, text = trajctl(*arguments)
        assert status == code and re.search(message, text), text
    client.close()


def test_bad_questions(daemon, demo_file):
    config = f"""
    datasets: {{demo: {{path: {demo_file}, layout: demo}}}}
    feeds: {{policy: {{dataset: demo, global_batch: 4, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0..1}}}}}}}}
    """
    client = daemon(config).client()
    info = client.open("policy")
    for question, message in (({"window": info.window_count}, f"window {info.window_count} does not exist"),
                              ({"window": 2**64 - 1}, "does not exist"), ({"first": 2}, "step 2 does not exist: there are 2 steps"),
                              ({"name": "action"}, r"no output action \(did you mean actions\?\)")):
        with pytest.raises(trajd.TrajdError, match=message) as caught:
            client.ask("explain", **question)
        assert caught.value.status == trajd.NOT_FOUND
    with pytest.raises(trajd.TrajdError, match="does not exist: an epoch has"):
        client.ask("position", first=info.epoch_length)
    items = client.ask("position", window=7, first=info.epoch_length - 2)["items"]
    assert [item["position"] for item in items] == [info.epoch_length - 2, info.epoch_length - 1]
    client.close()


@pytest.mark.parametrize("bad_rows", ["error", "keep"])
def test_rows_that_cannot_be_read(daemon, demo_file, tmp_path, bad_rows):
    """A file that fails after it was indexed: `explain` and production report the same about its windows."""
    path = tmp_path / "fails.hdf5"
    path.write_bytes(demo_file.read_bytes())
    one = daemon(f"""
    datasets: {{d: {{path: {path}, layout: demo}}}}
    feeds: {{f: {{dataset: d, global_batch: 4, bad_rows: {bad_rows}, anchor: {{clock: actions}},
                 outputs: {{actions: {{at: 0..1}}, obs/object: {{at: 0}}}}}}}}
    """, store="64KiB")
    client = one.client()
    info = client.open("f")
    assert "unreadable" not in client.ask("explain", window=0)
    os.truncate(path, 100000)
    pages = [client.ask("explain", window=window) for window in range(0, info.window_count, 50)]
    page = next(page for page in pages if "unreadable" in page)
    assert re.search("fails.hdf5", page["unreadable"])
    told = page["outputs"][0]["items"][0]
    if bad_rows == "keep":
        assert told["mask"] == 6 and "cannot be read" in told["sources"][0]["reason"] and told["sources"][0]["rows"] == []
    else:
        assert told["mask"] == 0 and told["sources"][0]["rows"][0][0] == page["anchor"]
    client.close()


def test_a_quarantined_episode_harms_nobody(daemon, tmp_path):
    path = tmp_path / "short.hdf5"
    with h5py.File(path, "w") as file:
        file["data/demo_0/obs/x"] = np.zeros((5, 2))  # no actions
        file["data/demo_1/actions"] = np.zeros((5, 2))
    client = daemon(f"""
    datasets: {{d: {{path: {path}, layout: robomimic}}}}
    feeds: {{f: {{dataset: d, global_batch: 4, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0..1}}}}}}}}
    """).client()
    info = client.open("f")
    assert info.window_count == 5 and client.ask("explain", window=4)["episode"] == "demo_1"
    first, second = client.ask("episodes")["items"]
    assert re.search("demo_0: actions: missing", first["quarantine"]) and first["rows"] == 0
    assert "quarantine" not in second and second["rows"] == 5
    client.close()
