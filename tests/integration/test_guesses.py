"""Drafts of layouts that guess: they list their guesses, and nothing delivers or writes values before the list is empty."""
import json
import re
import subprocess

import h5py
import numpy as np
import pytest
import yaml

from paths import TRAJCTL
from preprocess_station import Station

RANDOM = np.random.default_rng(8)


def trajctl(*arguments, code=0):
    done = subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def draft(path):
    """Writes a configuration and a draft beside the file. Returns the draft's place and its guesses by key."""
    layout = path.with_suffix(".layout.yaml")
    trajctl("init", path, "-o", path.with_suffix(".yaml"))
    entries = yaml.safe_load(layout.read_text()).get("guessed") or []
    return layout, dict(entry.split(": ", 1) for entry in entries)


def confirm(layout):
    """Deletes all entries of `guessed:`, as a user does who has looked at their lines. The empty key stays."""
    layout.write_text(re.sub(r"(?m)^  - .*\n", "", layout.read_text()))


def write_daq(path):
    """40 s of rows at 62.5 Hz. The attribute has the rate of something else."""
    with h5py.File(path, "w") as file:
        file.attrs["daq_rate"] = 1000
        file["action"] = RANDOM.normal(size=(2500, 6))
        file["joints"] = RANDOM.normal(size=(56, 10))
        file.create_dataset("top", data=RANDOM.integers(0, 255, (2500, 4, 4, 3), dtype=np.uint8), chunks=(50, 4, 4, 3), compression="gzip")
    return path


def test_a_draft_lists_what_it_guesses(tmp_path):
    layout, guesses = draft(write_daq(tmp_path / "daq.h5"))
    assert set(guesses) == {"clocks.steps", "clocks.steps2", "streams.top"}
    assert "2.5 s" in guesses["clocks.steps"] and "56 where action has 2500" in guesses["clocks.steps2"]
    assert "red and blue" in guesses["streams.top"]
    lines = layout.read_text().splitlines()
    assert sorted(re.findall(r"GUESS: (.*)", layout.read_text())) == sorted(guesses.values())
    assert all(any(line.endswith(f"GUESS: {why}") and line.strip().startswith(key.split(".")[1]) for line in lines)
               for key, why in guesses.items())


def test_nothing_is_written_before_the_guesses_are_gone(tmp_path):
    """resample, pack and preprocess name the line to look at. inspect, validate, plot and check work."""
    path = write_daq(tmp_path / "daq.h5")
    layout, guesses = draft(path)
    number = next(i for i, line in enumerate(layout.read_text().splitlines(), 1) if line.startswith("  steps: "))
    place = f"{layout}:{number}: clocks.steps: "
    out = tmp_path / "out.h5"
    (tmp_path / "station").mkdir()
    station = Station(tmp_path / "station", path, layout=layout)
    station.drop()
    for _ in range(len(guesses)):
        for command in (("resample", path, "-o", out, "--rate", 10, "--layout", layout), ("pack", path, "-o", out, "--layout", layout)):
            refused = trajctl(*command, code=1).stderr
            assert place in refused and "guessed:" in refused and not out.exists(), refused
        assert place in station.run(code=1) and list(station.inbox.iterdir()) and not station.quarantine.exists()
        trajctl("inspect", "--layout", layout, path)
        trajctl("plot", "--layout", layout, path, "joints")
        warned = trajctl("check", path.with_suffix(".yaml")).stdout
        assert "warning: no feed opens" in warned and ":".join(place.split(":")[1:]) in warned
        first = next(line for line in layout.read_text().splitlines() if line.startswith("  - "))
        layout.write_text(layout.read_text().replace(first + "\n", ""))
        left = yaml.safe_load(layout.read_text())["guessed"]
        if left:
            key = left[0].split(": ")[0]
            number = next(i for i, line in enumerate(layout.read_text().splitlines(), 1) if line.startswith(f"  {key.split('.')[1]}: "))
            place = f"{layout}:{number}: {key}: "
    assert "no feed opens" not in trajctl("check", path.with_suffix(".yaml")).stdout
    trajctl("pack", path, "-o", out, "--layout", layout)
    trajctl("resample", path, "-o", out, "--rate", 10, "--layout", layout, "--streams", "action", "--force")


def test_no_feed_opens_before_the_guesses_are_gone(tmp_path, daemon):
    """The daemon ends at its start with the line to look at. The fingerprint is the same without the guesses."""
    path = tmp_path / "one.h5"
    with h5py.File(path, "w") as file:
        file.attrs["fps"] = 30
        file["action"] = RANDOM.normal(size=(50, 6))
        file["q"] = RANDOM.normal(size=(50, 6))
    layout, guesses = draft(path)
    assert set(guesses) == {"clocks.steps"}
    fingerprint = json.loads(trajctl("inspect", "--json", "--layout", layout, path).stdout)[0]["fingerprint"]
    feed = "{dataset: data, global_batch: 4, anchor: {clock: steps}, outputs: {q: {at: 0}}}"
    config = f"datasets: {{data: {{path: {path}, layout: {layout}}}}}\n"
    with pytest.raises(BaseException, match=r"one\.layout\.yaml:\d+: clocks\.steps: this line is a guess"):
        daemon(config + f"feeds: {{train: {feed}}}\n")
    confirm(layout)
    assert json.loads(trajctl("inspect", "--json", "--layout", layout, path).stdout)[0]["fingerprint"] == fingerprint
    client = daemon(config + f"feeds: {{train: {feed}}}\n").client()
    client.open("train", epoch=0)
    client.next().release()
    client.close()


@pytest.mark.parametrize("names, beside, doubt", [
    (("cold", "hot"), {"K": (3, 3)}, "recordings of their own"),  # runs beside something else: one episode
    (("env_0", "env_1"), {"t_step": (50, 1)}, "recordings of their own"),  # numbered, with rows beside them that fit
    (("cold", "hot"), {}, "parts of one recording"),  # nothing else: each is an episode
    (("arm_0", "arm_1"), {}, "parts of one recording"),
    (("demo_0", "demo_1"), {}, None),
])
def test_runs_and_parts(tmp_path, names, beside, doubt):
    with h5py.File(tmp_path / "runs.h5", "w") as file:
        for name in names:
            file[f"{name}/q"] = RANDOM.normal(size=(50, 6))
            file[f"{name}/cmd"] = RANDOM.normal(size=(50, 6))
        for name, shape in beside.items():
            file[name] = np.ones(shape)
    _, guesses = draft(tmp_path / "runs.h5")
    assert doubt in guesses["episodes"] if doubt else "episodes" not in guesses, guesses


@pytest.mark.parametrize("text, said", [("[7]", None), ("{a: b}", "must be a list of texts"), ("yes", "must be a list of texts"),
                                        ("['']", "1 to 1024 characters"), ("[['a']]", "guessed[0]")])
def test_what_a_list_of_guesses_may_be(tmp_path, text, said):
    """An entry that names no key of the layout is a guess like the others; its own line is shown."""
    (tmp_path / "a.yaml").write_text("layout: a\nepisodes: {files: '*.h5', groups: /}\nclocks: {steps: {rate: 30}}\n"
                                     f"streams: {{q: {{kind: linear}}}}\nguessed: {text}\n")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["q"] = np.ones((9, 2))
    shown = trajctl("inspect", "--layout", tmp_path / "a.yaml", tmp_path / "a.h5", code=1 if said else 0)
    assert not said or said in shown.stderr, shown.stderr
    refused = trajctl("resample", "--layout", tmp_path / "a.yaml", "--rate", 10, tmp_path / "a.h5", "-o", tmp_path / "b.h5", code=1)
    assert (said or "a.yaml:5: guessed[0]: this line is a guess (7)") in refused.stderr


# ---- episodes without a flag at their end ----

def write_d4rl(path, lengths, flags=(), next_rows=True, flagged_last=True):
    """Arrays of several episodes. `flags` are the episodes whose last row has a flag."""
    rows = [RANDOM.normal(size=(length + 1, 3)) for length in lengths]
    ends = np.cumsum(lengths) - 1
    with h5py.File(path, "w") as file:
        file["observations"] = np.concatenate([one[:-1] for one in rows])
        if next_rows:
            file["next_observations"] = np.concatenate([one[1:] for one in rows])
        file["actions"] = RANDOM.normal(size=(sum(lengths), 2))
        file["timeouts"] = np.zeros(sum(lengths), bool)
        file["terminals"] = np.isin(np.arange(sum(lengths)), ends[list(flags) + [-1] * flagged_last])
        file["observations"][5, 1] = np.nan
        if next_rows:
            file["next_observations"][4, 1] = np.nan
    return path


def kept(path, layout):
    """Returns of each episode whether it is kept."""
    found = json.loads(trajctl("inspect", "--json", "--layout", layout, path).stdout)[0]["episodes"]
    return [episode["quarantine"] is None for episode in found]


@pytest.mark.parametrize("flags", [(), (1,), (0, 1, 2, 3)])
def test_a_jump_ends_an_episode(tmp_path, flags):
    lengths = (40, 25, 30, 22)
    path = write_d4rl(tmp_path / "d4rl.h5", lengths, flags)
    layout, guesses = draft(path)
    assert yaml.safe_load(layout.read_text())["episodes"]["split"]["next"] == ["observations", "next_observations"]
    assert "next row" in guesses["episodes"]
    assert kept(path, layout) == [True] * 4
    without = tmp_path / "without.yaml"
    without.write_text(layout.read_text().replace(", next: [observations, next_observations]", ""))
    assert len(kept(path, without)) == (4 if len(flags) == 4 else len(flags) + 1)


def test_jumps_without_any_flag(tmp_path):
    """The end of the last episode is missing, as it is where flags are set."""
    path = write_d4rl(tmp_path / "d4rl.h5", (40, 25, 30), flagged_last=False)
    layout, _ = draft(path)
    assert kept(path, layout) == [True, True, False]


def test_one_episode_has_no_jump(tmp_path):
    path = write_d4rl(tmp_path / "d4rl.h5", (40,), flagged_last=False)
    layout, guesses = draft(path)
    assert "episodes" not in guesses and kept(path, layout) == [True]


def test_rows_that_are_no_next_rows(tmp_path):
    path = write_d4rl(tmp_path / "d4rl.h5", (40, 25), (0,))
    layout, _ = draft(path)
    with h5py.File(path, "r+") as file:
        file["next_observations"][...] = RANDOM.normal(size=(65, 3))
    refused = trajctl("inspect", "--layout", layout, path, code=1).stderr
    assert "next_observations: 64 of 65 rows are not the following row of observations" in refused
    text = layout.read_text()
    for wrong, said in (("[observations]", "must be two datasets"), ("[actions, next_observations]", "as many as terminals has, each as long")):
        layout.write_text(text.replace("[observations, next_observations]", wrong))
        assert said in trajctl("inspect", "--layout", layout, path, code=1).stderr
    layout.write_text(re.sub(r"split: \{.*?\}", "split: {lengths: actions, next: [observations, next_observations]}", text))
    assert "only goes with flags" in trajctl("inspect", "--layout", layout, path, code=1).stderr
