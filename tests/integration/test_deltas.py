"""Streams of differences (`semantics: delta`): sums over steps at other rates and on other clocks, against numpy over the
rows of the file."""
import subprocess

import h5py
import numpy as np
import pytest

from daemons import Daemon
from paths import BUILD

LAYOUT = """
layout: lab
episodes: {files: "*.hdf5", groups: /ep_*}
clocks:
  arm:  {path: arm_t, unit: ns}
  base: {rate: 60, rows: twist, start: {path: base_t0, unit: ns}}
streams:
  q:     {clock: arm, kind: linear}
  move:  {clock: arm, kind: previous, semantics: delta, max_gap: 90ms}
  turn:  {path: move, clock: arm, kind: previous, semantics: delta}
  twist: {clock: base, kind: previous, semantics: delta}
"""
FEED = """
datasets: {{lab: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: lab
    global_batch: 16
    tail: short
    order: sequential
    anchor: {anchor}
    pad: {{before: any, after: any, with: {pad}}}
    outputs:
      q:     {{at: 0}}
"""
OUTPUTS = {  # name: stream, first step, last step, Hz, role
    "ten": ("move", 0, 5, 10, "action"), "thirty": ("turn", -2, 7, 30, "action"), "slow": ("twist", 0, 3, 7, "next"),
    "fast": ("twist", 0, 20, 120, "action"), "even": ("twist", 0, 4, 20, "action"), "before": ("turn", -3, -1, 10, "obs"),
    "base_before": ("twist", -4, -1, 20, "obs"),
}


def outputs(names=OUTPUTS, more=""):
    return "".join(f"      {name}: {{from: {stream}, at: {first}..{last} @ {rate}, role: {role}{more}}}\n"
                   for name, (stream, first, last, rate, role) in OUTPUTS.items() if name in names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three episodes: an arm at about 20 Hz with jitter and a gap of 0.4 s, and a base at 60 Hz that starts later."""
    folder = tmp_path_factory.mktemp("deltas")
    random = np.random.default_rng(2)
    (folder / "data").mkdir()
    (folder / "lab.yaml").write_text(LAYOUT)
    with h5py.File(folder / "data" / "a.hdf5", "w") as file:
        for e in range(3):
            rows, episode = 40 + 15 * e, file.create_group(f"ep_{e}")
            stamps = np.arange(rows) * 50_000_000 + random.integers(0, 20_000_000, rows)
            stamps[20:] += 400_000_000
            stamps[0] = 0
            episode["arm_t"], episode["base_t0"] = stamps, np.int64(30_000_000)
            episode["q"], episode["move"] = random.normal(size=(rows, 2)), random.normal(size=(rows, 3))
            episode["twist"] = random.normal(size=(rows * 3 + 20, 1)).astype("f4")
    return folder


def feed(folder, anchor="{clock: arm}", pad="edge", more=""):
    return FEED.format(path=folder / "data", layout=folder / "lab.yaml", anchor=anchor, pad=pad) + outputs(more=more)


def expected(stamps, rows, targets, end, max_gap, visible):
    """Returns sums and masks of the steps that begin at `targets`; the last one ends at `end`."""
    stamps, rows = stamps[:visible], rows[:visible]
    values, masks = [], []
    for x, until in zip(targets, [*targets[1:], end]):
        inside = (stamps >= x) & (stamps < until)
        values.append(rows[inside].sum(0))
        mask = 0
        if not len(stamps) or x < stamps[0]:
            mask = 1
        elif x > stamps[-1] or (stamps[-1] < until and len(stamps) > 1 and
                                2 * (until - stamps[-1]) >= 3 * (stamps[-1] - stamps[-2])):
            mask = 2
        if mask != 1 and x <= stamps[-1] and max_gap is not None:
            holes = (np.diff(stamps) > max_gap) & (stamps[:-1] < until) & (stamps[1:] > x)
            mask = 3 if holes.any() else mask
        if mask == 1 or x > stamps[-1]:
            values[-1] = np.zeros_like(rows[0] if len(rows) else values[-1])
        masks.append(mask)
    return np.array(values), masks


@pytest.mark.parametrize("anchor", ["{clock: arm}", "{rate: 9}"])
def test_sums_of_steps(daemon, folder, anchor):
    client = daemon(feed(folder, anchor)).client()
    client.open("train")
    seen = {name: set() for name in OUTPUTS}
    with h5py.File(folder / "data" / "a.hdf5") as file:
        for _, arrays in client.epoch():
            for place, e in enumerate(arrays["episode_index"]):
                group = file[f"ep_{e}"]
                at = int(arrays["anchor_ns"][place])  # the episode begins at 0
                clocks = {"move": group["arm_t"][:], "turn": group["arm_t"][:],
                          "twist": 30_000_000 + np.arange(len(group["twist"])) * 1_000_000_000 // 60}
                for name, (stream, first, last, rate, role) in OUTPUTS.items():
                    if "rate" in anchor:  # anchor and step are rounded down together
                        number = round(at * 9 / 1e9)
                        targets = [(number * rate + k * 9) * 10 ** 9 // (9 * rate) for k in range(first, last + 1)]
                    else:
                        targets = [at + k * 10 ** 9 // rate for k in range(first, last + 1)]
                    stamps, rows = clocks[stream], group["move" if stream == "turn" else stream][:].astype("f8")
                    visible = (stamps <= at).sum() if role == "obs" else len(stamps)
                    values, masks = expected(stamps, rows, targets, targets[-1] + 10 ** 9 // rate,
                                             90_000_000 if stream == "move" else None, visible)
                    np.testing.assert_array_equal(arrays[f"{name}.mask"][place], masks, f"{name} {e} {at}")
                    np.testing.assert_allclose(arrays[name][place], values, rtol=1e-6, atol=1e-6, err_msg=f"{name} {e} {at}")
                    seen[name] |= set(masks)
    client.close()
    assert seen["ten"] == {0, 2, 3} and seen["slow"] >= {0, 2} and ("rate" in anchor or 1 in seen["fast"])
    assert 0 in seen["before"] and 0 in seen["base_before"]


def test_no_difference_is_lost(daemon, folder):
    """The steps of windows side by side add up to all rows; in between the rows as they are recorded."""
    text = FEED.format(path=folder / "data", layout=folder / "lab.yaml", anchor="{rate: 10}", pad="zero")
    text += "      sum: {from: twist, at: 0, role: action}\n      rows: {from: twist, at: 0..4 @ 60, role: action, kind: previous}\n"
    client = daemon(text).client()
    client.open("train")
    parts = [arrays for _, arrays in client.epoch()]
    client.close()
    got = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    with h5py.File(folder / "data" / "a.hdf5") as file:
        for e in range(3):
            here = (got["episode_index"] == e) & (got["sum.mask"][:, 0] == 0)
            rows = file[f"ep_{e}/twist"][:, 0].astype("f8")
            stamps = 30_000_000 + np.arange(len(rows)) * 1_000_000_000 // 60
            first, last = got["anchor_ns"][here].min(), got["anchor_ns"][here].max()
            want = rows[(stamps >= first) & (stamps < last + 100_000_000)].sum()
            assert got["sum"][here].sum(dtype="f8") == pytest.approx(want, abs=1e-4) and here.sum() > 15
            assert np.isin(got["rows"][here], file[f"ep_{e}/twist"][:, 0]).all()


def test_statistics_explain_and_rows(daemon, folder):
    text = feed(folder, more=", norm: {by: mean_std, over: rows}") + "      same: {from: move, at: 0..3, role: action}\n"
    one, plain = daemon(text), daemon(feed(folder), folder="plain")
    client, other = one.client(), plain.client()
    client.open("train")
    other.open("train")
    scaled, rows = next(client.epoch())[1], next(other.epoch())[1]
    while (answer := client.ask("statistics", "ten"))["state"] == "computing":
        pass
    valid = rows["ten.mask"] == 0
    want = (rows["ten"][valid] - np.array(answer["mean"])) / np.array(answer["std"])
    np.testing.assert_allclose(scaled["ten"][valid], want, rtol=1e-4, atol=1e-5)
    with h5py.File(folder / "data" / "a.hdf5") as file:  # on its own rows a difference stays as it is recorded
        np.testing.assert_allclose(scaled["same"][0], file["ep_0/move"][:4].astype("f4"))
    found = {output["name"]: output for output in other.ask("explain", window=3)["outputs"]}
    assert found["ten"]["sources"][0]["kind"] == "sum"
    source = found["even"]["items"][0]["sources"][0]
    assert source["added"] == 3 and [row[2] for row in source["rows"]] == [1, 1]
    empty = [item["sources"][0] for item in found["fast"]["items"] if item["sources"][0].get("added") == 0]
    assert empty and all(part["rows"] == [] for part in empty)
    gap = next(item["sources"][0] for w in range(10, 20) for output in other.ask("explain", window=w, name="ten")["outputs"]
               for item in output["items"] if item["mask"] == 3)
    assert "a gap > max_gap 90 ms within the step" in gap["reason"]
    check = plain.run("--check").stdout
    assert "sum" in check and "twist" in check
    faster = {line.split(":")[1].strip() for line in check.splitlines() if "a difference is not divided among steps" in line}
    assert faster == {"thirty", "fast"}, check  # the arm has less than 20 Hz, the base 60 Hz
    assert "60 Hz to 120 Hz by sum leaves 50 % of the steps at 0" in check
    client.close()
    other.close()


@pytest.mark.parametrize("what, why", [
    ("{from: move, at: -1..0 @ 10}", "step 0 adds those after the anchor"),
    ("{from: twist, at: 0..3, role: action}", "give the steps a rate"),
    ("{from: move, at: 0..3 @ 10, role: action, relative_to: q}", "which take no rotation: and no relative_to:"),
    ("{from: move, at: 0..3 @ 10, role: action, max_age: 50ms}", "has no age"),
    ("{from: move, at: 0..3 @ 10, role: action, return: {gamma: 1}}", "the steps have another rate"),
])
def test_what_is_refused(folder, tmp_path, what, why):
    text = FEED.format(path=folder / "data", layout=folder / "lab.yaml", anchor="{clock: arm}", pad="edge")
    result = Daemon(tmp_path, f"{text}      x: {what}\n").run("--check")
    assert result.returncode and why in result.stderr, result.stderr


def test_a_blended_stream_is_refused(folder, tmp_path):
    """A blended stream has no differences."""
    (tmp_path / "bad.yaml").write_text(LAYOUT.replace("kind: linear", "kind: linear, semantics: delta"))
    text = feed(folder).replace(str(folder / "lab.yaml"), str(tmp_path / "bad.yaml"))
    result = Daemon(tmp_path, text).run("--check")
    assert result.returncode and "differences are added and never blended" in result.stderr


RESAMPLE = [BUILD / "clients/cli/trajctl", "resample"]


@pytest.mark.parametrize("rate", [7, 10, 30, 120])
def test_resampled_files_hold_sums(folder, tmp_path, rate):
    out = tmp_path / "out.hdf5"
    command = [*RESAMPLE, folder / "data" / "a.hdf5", "-o", out, "--rate", str(rate), "--layout", folder / "lab.yaml", "--streams", "move,q"]
    result = subprocess.run([*command, "--max-gap", "10s"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "move holds differences (semantics: delta): a step is the sum" in result.stderr + result.stdout
    added = 0
    with h5py.File(folder / "data" / "a.hdf5") as source, h5py.File(out) as made:
        for name in source:
            stamps, rows = source[name]["arm_t"][:], source[name]["move"][:]
            times = made[name]["arm_t"][:]
            ends = np.append(times[1:], times[0] + len(times) * 10**9 // rate)
            want = np.stack([rows[(stamps >= a) & (stamps < b)].sum(0) for a, b in zip(times, ends)])
            np.testing.assert_allclose(made[name]["move"][:], want, rtol=0, atol=1e-12)
            inside = (stamps >= times[0]) & (stamps < ends[-1])
            np.testing.assert_allclose(made[name]["move"][:].sum(0), rows[inside].sum(0), atol=1e-11)
            added += inside.sum()
    assert added > 100
    result = subprocess.run([*command, "--force", "--backend", "daemon", "--endpoint", tmp_path], capture_output=True, text=True)
    assert result.returncode and "added on the CPU alone" in result.stderr, result.stderr


def test_a_kind_that_is_named_samples(folder, tmp_path):
    out = tmp_path / "out.hdf5"
    result = subprocess.run([*RESAMPLE, folder / "data" / "a.hdf5", "-o", out, "--rate", "10", "--layout", folder / "lab.yaml",
                             "--streams", "move,q", "--kind", "move=previous", "--kind", "turn=previous", "--max-gap", "10s"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    with h5py.File(folder / "data" / "a.hdf5") as source, h5py.File(out) as made:
        rows = np.searchsorted(source["ep_0/arm_t"][:], made["ep_0/arm_t"][:], side="right") - 1
        np.testing.assert_array_equal(made["ep_0/move"][:], source["ep_0/move"][:][rows])
