"""Rates of clocks: measured, declared or assumed. Every command that shows a rate says which; assumed rates are refused or
warned about where they decide values. Files that `trajctl resample` made state their rate."""
import json
import re
import subprocess

import h5py
import numpy as np
import pytest

from daemons import Daemon
from paths import TRAJCTL
from preprocess_station import Station, counts
from resample_runs import resample

CONFIG = """\
version: 2
runtime: run
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{data: {{path: {path}, layout: {layout}{dataset}}}}}
feeds:
  train:
    dataset: data
    global_batch: 8
    anchor: {{clock: {clock}}}{feed}
    outputs:
      {output}: {{at: {at}}}
"""


def write(path, rate=None, rows=120, episodes=2):
    """Writes a robomimic file. The column 0 of actions and obs/pos is the number of the row. Without `rate` nothing states it."""
    with h5py.File(path, "w") as file:
        for i in range(episodes):
            for name in ("actions", "obs/pos"):
                file[f"data/demo_{i}/{name}"] = np.stack([np.arange(rows), np.sin(np.arange(rows) / 9 + i)], 1)
        file["data"].attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": rate} if rate else {}})
    return path


def write_aloha(path, rows=100):
    """Writes an episode of ALOHA: only the layout says 50 Hz."""
    with h5py.File(path, "w") as file:
        for name in ("action", "observations/qpos"):
            file[name] = np.cumsum(np.ones((rows, 14)), axis=0)
    return path


def trajctl(*arguments, code=0):
    done = subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def clocks(path, *arguments):
    """Returns the first line about a clock that inspect prints, and what its JSON says about it."""
    lines = trajctl("inspect", *arguments, path).stdout.splitlines()
    return lines[lines.index(" clocks") + 1], json.loads(trajctl("inspect", "--json", *arguments, path).stdout)[0]["clocks"][0]


def check(folder, path, at="-1..0", layout="robomimic", clock="actions", output="obs/pos", dataset="", feed=""):
    """Returns what `trajctl check` prints for a feed of one output."""
    config = folder / "trajd.yaml"
    config.write_text(CONFIG.format(path=path, layout=layout, clock=clock, output=output, at=at, dataset=dataset, feed=feed))
    return trajctl("check", config).stdout


def warnings(text):
    return [line.strip() for line in text.splitlines() if "warning:" in line]


def fingerprint(text):
    return text.split("fingerprint ")[1].split()[0]


# ---- where a rate comes from ----

def test_inspect_says_where_a_rate_comes_from(tmp_path):
    line, clock = clocks(write(tmp_path / "a.hdf5"))
    assert "regular, 20 Hz (assumed)" in line and clock["rate_source"] == "assumed" and clock["assumed_episodes"] == 2
    line, clock = clocks(write(tmp_path / "b.hdf5", rate=50))
    assert "regular, 50 Hz, " in line and clock["rate_source"] == "declared" and clock["assumed_episodes"] == 0
    line, clock = clocks(write_aloha(tmp_path / "c.hdf5"))
    assert "regular, 50 Hz (assumed), " in line and clock["rate_source"] == "assumed" and clock["assumed_episodes"] == 1
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        file["data/demo_0/states"] = np.stack([np.arange(9) / 20, np.ones(9)], 1)
    line, clock = clocks(tmp_path / "d.hdf5")
    assert "stamped, mean 20 Hz" in line and clock["rate_source"] == "measured"


def test_files_of_which_some_state_the_rate(tmp_path):
    write(tmp_path / "a.hdf5")
    write(tmp_path / "b.hdf5", rate=50, episodes=3)
    line, clock = clocks(tmp_path, "--layout", "robomimic")
    assert "20 to 50 Hz (assumed in 2 of 5 episodes)" in line and (clock["rate_source"], clock["assumed_episodes"]) == ("assumed", 2)
    assert "actions 20 to 50 Hz (assumed in 2 of 5 episodes)" in check(tmp_path, tmp_path)


def test_init(tmp_path):
    made = trajctl("init", write(tmp_path / "a.hdf5")).stdout
    assert "one window per row, 20 Hz (assumed)" in made and "measured" not in made and "rate: 20" in made
    (tmp_path / "trajd.yaml").write_text(made)
    assert "20 Hz (assumed)" in trajctl("check", tmp_path / "trajd.yaml").stdout
    made = trajctl("init", write(tmp_path / "b.hdf5", rate=50)).stdout
    assert "one window per row, 50 Hz\n" in made and "assumed" not in made and "measured" not in made


def test_validate(tmp_path):
    done = trajctl("validate", write(tmp_path / "a.hdf5"), code=1)
    assert "assumed-rate" in done.stdout and "20 Hz (assumed)" in done.stdout and "control_freq" in done.stdout
    found = json.loads(trajctl("validate", "--json", tmp_path / "a.hdf5", code=1).stdout)
    assert [(f["rule"], f["stream"], f["count"]) for f in found] == [("assumed-rate", "actions", 2)]
    assert trajctl("validate", "--ignore", "assumed-rate", tmp_path / "a.hdf5").stdout.endswith("no findings\n")
    trajctl("validate", write(tmp_path / "b.hdf5", rate=50))
    done = trajctl("validate", "--layout", "aloha", write_aloha(tmp_path / "c.hdf5"), code=1)
    assert "50 Hz (assumed): no file states the rate: it is only the layout's `rate:`" in done.stdout


# ---- feeds ----

@pytest.mark.parametrize("at, feed", [("-200ms..0ms @ 10", ""), ("-100ms..0ms", ""), ("-1..0 @ 10", ""), ("-1..0", "\n    rate: 10")])
def test_a_feed_on_steps_of_time_warns(tmp_path, at, feed):
    text = check(tmp_path, write(tmp_path / "a.hdf5"), at, feed=feed)
    [line] = warnings(text)
    assert "actions 20 Hz (assumed)" in text
    assert "obs/pos" in line and "20 Hz" in line and "assum" in line and "datasets.data.rate" in line
    assert warnings(check(tmp_path, write(tmp_path / "b.hdf5", rate=20), at, feed=feed)) == []
    assert warnings(check(tmp_path, tmp_path / "a.hdf5", at, feed=feed, dataset=", rate: 20")) == []


def test_a_feed_on_rows_does_not_warn(tmp_path):
    text = check(tmp_path, write(tmp_path / "a.hdf5"))
    assert "actions 20 Hz (assumed)" in text and warnings(text) == []


TWO = """\
layout: two
episodes: {files: '*.hdf5', groups: /data/demo_*}
clocks: {fast: {rate: 100}, slow: {rate: 10}}
streams: {actions: {clock: fast, kind: previous}, obs/pos: {clock: slow, kind: linear}}
"""


@pytest.mark.parametrize("layout", ["aloha", "mine"])
def test_a_rate_that_only_the_layout_claims_is_assumed(tmp_path, layout):
    """Recorders of ALOHA's format run at 15, 25, 30 and 50 Hz. So the rate of any layout is assumed."""
    path = write_aloha(tmp_path / "episode_0.hdf5")
    (tmp_path / "mine.yaml").write_text("layout: mine\nepisodes: {files: '*.hdf5', groups: /}\nclocks: {steps: {rate: 50}}\n"
                                        "streams: {action: {kind: previous}, observations/qpos: {kind: linear}}\n")
    layout = "./mine.yaml" if layout == "mine" else layout

    def checked(dataset="", version=2):
        text = check(tmp_path, path, "-200ms..0ms", layout, "steps", "observations/qpos", dataset=dataset)
        config = tmp_path / "trajd.yaml"
        config.write_text(config.read_text().replace("version: 2", f"version: {version}"))
        return text if version == 2 else trajctl("check", config).stdout
    [line] = warnings(checked())
    assert "50 Hz (assumed)" in line and "datasets.data.rate" in line
    assert warnings(checked(", rate: 30")) == [] and warnings(checked(", rate: {steps: 30}")) == []
    [line] = warnings(checked(version=1))
    assert "`version: 2` would" in line and "warn that no file states the rate of clock steps, 50 Hz (assumed)" in line
    assert warnings(checked(", rate: 50", version=1)) == [] or layout == "aloha"  # the newest layout is a change, too


def test_the_warning_about_the_version_is_whole(tmp_path, started):
    """Where `check` prints it, in the log and in a worker."""
    names = [f"sensor_{i}" for i in range(12)]
    with h5py.File(tmp_path / "episode_0.hdf5", "w") as file:
        for name in names:
            file[name] = np.cumsum(np.ones((100, 2)), axis=0)
    (tmp_path / "mine.yaml").write_text(f"""\
layout: mine
episodes: {{files: '*.hdf5', groups: /}}
clocks: {{{', '.join(f'clock_of_{name}: {{rate: 50}}' for name in names)}}}
streams: {{{', '.join(f'{name}: {{kind: linear, clock: clock_of_{name}}}' for name in names)}}}
""")
    one = Daemon(tmp_path / "daemon", f"""\
datasets: {{data: {{path: {tmp_path}/episode_0.hdf5, layout: {tmp_path}/mine.yaml}}}}
feeds:
  train:
    dataset: data
    global_batch: 8
    anchor: {{clock: clock_of_sensor_0}}
    outputs: {{{', '.join(f'{name}: {{at: -100ms..0ms}}' for name in names)}}}
""")
    one.config.write_text(one.config.read_text().replace("version: 2", "version: 1"))
    client = started(one).client()
    info = client.open("train")
    told = "\n".join(info.warnings[i].decode() for i in range(info.warning_count))
    client.close()
    for text in (trajctl("check", one.config).stdout, one.text(), told):
        lines = [line for line in text.splitlines() if "`version: 2` would" in line]
        assert lines and all(re.findall(r"clock_of_(\w+), 50 Hz \(assumed\), until datasets.data.rate does", line) == names for line in lines)
        assert min(map(len, lines)) > 1024


def test_resample_and_preprocess_refuse_a_rate_that_only_the_layout_claims(tmp_path):
    path, out = write_aloha(tmp_path / "episode_0.hdf5"), tmp_path / "out.hdf5"
    done = resample(path, "-o", out, "--rate", 10, check=False)
    assert done.returncode == 1 and not out.exists()
    assert "clock steps: 50 Hz (assumed): the file does not state the rate. It is only the `rate:` of layout aloha" in done.stderr
    resample(path, "-o", out, "--rate", 10, "--assume-rate=25")
    with h5py.File(out) as file:
        assert len(file["action"]) == 40 and json.loads(file.attrs["trajd_resample"])["assumed_rate"] == "25/1"
    station = Station(tmp_path, path, layout="aloha")
    station.drop("episode_0.hdf5")
    assert counts(station.run())[:2] == (0, 1)
    reason = json.loads((station.quarantine / "episode_0.hdf5.report.json").read_text())["reason"]
    assert "50 Hz (assumed)" in reason and "assume_rate:" in reason
    station.write(assume_rate=25)
    station.drop("episode_0.hdf5")
    assert counts(station.run())[:2] == (1, 0)


def test_rates_of_single_clocks(tmp_path, daemon):
    """A layout of several rates has them stated by the names of its clocks. The ones that are left out stay assumed."""
    (tmp_path / "two.yaml").write_text(TWO)
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        file["data/demo_0/actions"] = np.arange(100.)[:, None]
        file["data/demo_0/obs/pos"] = np.arange(10.)[:, None]

    def unstated(rates):
        shown = check(tmp_path, path, "0ms", "./two.yaml", "fast", "obs/pos", dataset=rates)
        return re.findall(r"the rate of clock (\w+) is not stated", shown)
    assert unstated("") == ["fast", "slow"]
    assert unstated(", rate: {slow: 5}") == ["fast"] and unstated(", rate: {fast: 50, slow: 5}") == []
    for rates, said in (("{}", "the rates of 1 to 16 clocks"), ("{fast: quick}", "rate.fast"), ("{joint: 5}", "layout two has no clock joint")):
        config = tmp_path / "wrong.yaml"
        config.write_text(f"version: 2\ndatasets: {{data: {{path: a.hdf5, layout: ./two.yaml, rate: {rates}}}}}\n")
        done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and said in done.stderr, done.stderr
    d = daemon(f"datasets: {{data: {{path: {path}, layout: {tmp_path}/two.yaml, rate: {{fast: 50, slow: 2}}}}}}\n"
               "feeds: {train: {dataset: data, global_batch: 4, anchor: {clock: fast}, outputs: {actions: {at: 0}, obs/pos: {at: 0}}}}\n")
    assert 'rate: {"fast": 50/1, "slow": 2/1}' in d.run("--print-config").stdout
    assert json.loads(d.run("--print-config", "--json").stdout)["datasets"]["data"]["rate"] == {"fast": "50/1", "slow": "2/1"}
    client = d.client()
    client.open("train", epoch=0)
    batch = client.next()
    rows = batch.copy()
    batch.release()
    client.close()
    assert np.array_equal(rows["obs/pos"], np.floor(rows["actions"] / 25))


def test_the_daemon_logs_the_warning(tmp_path, daemon):
    d = daemon(f"datasets: {{data: {{path: {write(tmp_path / 'a.hdf5')}, layout: robomimic}}}}\n"
               "feeds: {train: {dataset: data, global_batch: 8, anchor: {clock: actions}, outputs: {actions: {at: 0ms..200ms @ 10}}}}\n")
    assert "datasets.data.rate" in d.text() and "assum" in d.text()


@pytest.mark.parametrize("rate, every", [("", 2), (", rate: 20", 2), (", rate: 50", 5), (", rate: 30000/1001", None)])
def test_the_rate_of_a_dataset_decides_the_values(tmp_path, daemon, rate, every):
    """In steps of 100 ms, data of 20 Hz gives every second row, and of 50 Hz every fifth one."""
    d = daemon(f"datasets: {{data: {{path: {write(tmp_path / 'a.hdf5')}, layout: robomimic{rate}}}}}\n"
               "feeds: {train: {dataset: data, global_batch: 4, anchor: {clock: actions}, pad: {before: 0, after: 0}, "
               "outputs: {actions: {at: -200ms..0ms @ 10, role: obs}, obs/pos: {at: -2..0 @ 10}}}}\n")
    client = d.client()
    client.open("train", epoch=0)
    batch = client.next()
    rows = batch.copy()["obs/pos"][:, :, 0]
    batch.release()
    client.close()
    assert np.allclose(np.diff(rows, axis=1), every if every else 30000 / 1001 / 10, atol=1e-3)


def test_the_fingerprint_follows_the_rate(tmp_path):
    path = write(tmp_path / "a.hdf5")
    assumed = fingerprint(check(tmp_path, path))
    assert fingerprint(check(tmp_path, path, dataset=", rate: 20")) == assumed
    assert fingerprint(check(tmp_path, path, dataset=", rate: 50")) != assumed


def test_where_the_rate_of_a_dataset_does_not_fit(tmp_path):
    (tmp_path / "two.yaml").write_text("layout: two\nepisodes: {files: '*.hdf5', groups: /data/demo_*}\n"
                                       "clocks: {fast: {rate: 100}, slow: {rate: 10}}\n"
                                       "streams: {actions: {clock: fast, kind: previous}, obs/pos: {clock: slow, kind: linear}}\n")
    (tmp_path / "stamped.yaml").write_text("layout: stamped\nepisodes: {files: '*.hdf5', groups: /data/demo_*}\n"
                                           "clocks: {stamps: {path: actions, unit: s}}\nstreams: {obs/pos: {kind: linear}}\n")
    write(tmp_path / "a.hdf5")
    for layout, word in (("two", "fast"), ("stamped", "stamps")):
        config = tmp_path / f"{layout}-config.yaml"
        config.write_text(f"version: 2\ndatasets: {{data: {{path: a.hdf5, layout: ./{layout}.yaml, rate: 50}}}}\n")
        done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and "data" in done.stderr and "rate" in done.stderr and word in done.stderr, done.stderr
    config.write_text("version: 2\ndatasets: {data: {path: a.hdf5, layout: robomimic, rate: fast}}\n")
    done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "rate" in done.stderr and "fast" in done.stderr


def test_more_steps_than_rows_warn(tmp_path):
    path = write(tmp_path / "a.hdf5", rate=20)
    [line] = warnings(check(tmp_path, path, "-9..0", feed="\n    rate: 200"))
    assert "obs/pos" in line and "from 20 Hz to 200 Hz" in line and "10" in line
    [line] = warnings(check(tmp_path, path, "0..9", output="actions", feed="\n    rate: 200"))
    assert "actions" in line and "previous" in line
    assert warnings(check(tmp_path, path, "-3..0", feed="\n    rate: 30")) == []
    assert warnings(check(tmp_path, path, "0", feed="\n    rate: 200")) == []  # one step between two rows repeats nothing


# ---- resample ----

def test_resample_refuses_an_assumed_rate(tmp_path):
    path, out = write(tmp_path / "a.hdf5"), tmp_path / "out.hdf5"
    done = resample(path, "-o", out, "--rate", 10, check=False)
    assert done.returncode == 1 and not out.exists() and not (tmp_path / "out.hdf5.partial").exists()
    assert "actions" in done.stderr and "20 Hz" in done.stderr and "--assume-rate" in done.stderr
    done = resample(path, "-o", out, "--rate", 10, "--assume-rate")
    assert "20 Hz (assumed)" in done.stdout
    with h5py.File(out) as file:
        assert np.array_equal(file["data/demo_0/obs/pos"][:, 0], np.arange(0, 120, 2))
        assert json.loads(file.attrs["trajd_resample"])["assumed_rate"] == "20/1"
    plan = json.loads(resample(path, "--rate", 10, "--assume-rate=50", "--dry-run", "--json").stdout.splitlines()[0])
    assert {(s["clock"], s["clock_hz"], s["rate_source"]) for s in plan["streams"]} == {("actions", 50, "assumed")}
    resample(path, "-o", out, "--rate", 10, "--assume-rate=50", "--force")
    with h5py.File(out) as file:
        assert np.array_equal(file["data/demo_0/obs/pos"][:, 0], np.arange(0, 120, 5))
    assert resample(path, "-o", out, "--rate", 10, "--assume-rate=fast", check=False).returncode == 2


def test_a_declared_rate_needs_no_option(tmp_path):
    path, out = write(tmp_path / "a.hdf5", rate=20), tmp_path / "out.hdf5"
    assert "assumed" not in resample(path, "-o", out, "--rate", 10).stdout
    plan = json.loads(resample(path, "--rate", 10, "--dry-run", "--json").stdout.splitlines()[0])
    assert {(s["clock_hz"], s["rate_source"]) for s in plan["streams"]} == {(20, "declared")}
    done = resample(path, "-o", out, "--rate", 10, "--assume-rate=50", "--force")
    assert "--assume-rate=50" in done.stderr and "20 Hz" in done.stderr  # a note: nothing is assumed
    with h5py.File(out) as file:
        assert len(file["data/demo_0/actions"]) == 60 and "assumed_rate" not in json.loads(file.attrs["trajd_resample"])


def test_preprocess_refuses_an_assumed_rate(tmp_path):
    station = Station(tmp_path, write(tmp_path / "source.hdf5"), layout="robomimic")
    station.drop()
    said = station.run()
    assert counts(said)[:2] == (0, 1)
    report = json.loads((station.quarantine / "a.hdf5.report.json").read_text())
    assert "20 Hz (assumed)" in report["reason"] and "assume_rate" in report["reason"] and report["rate_source"] == "assumed"
    for value, rows in (("true", range(0, 120, 2)), ("50", range(0, 120, 5))):
        station.write(assume_rate=value)
        station.drop()
        said = station.run()
        assert counts(said)[:2] == (1, 0) and "(assumed)" in said
        assert (station.manifest()["rate_source"], station.manifest()["source_rate_hz"]) == ("assumed", 20 if value == "true" else 50)
        with h5py.File(station.outbox / "a.hdf5") as file:
            assert np.array_equal(file["data/demo_0/obs/pos"][:, 0], rows)
    station.write(assume_rate="false")
    station.drop()
    assert counts(station.run())[:2] == (0, 1)
    station.drop("b.hdf5", write(tmp_path / "b.hdf5", rate=40).read_bytes())
    assert counts(station.run())[0] == 1 and station.manifest("b.hdf5")["rate_source"] == "declared"
    station.write(assume_rate="maybe")
    assert "assume_rate" in station.run(code=1)


# ---- the files that resample made ----

def test_the_rate_of_a_resampled_file_counts(tmp_path):
    """Layout aloha says 50 Hz, but the file has 10 Hz now."""
    path, out, again = write_aloha(tmp_path / "episode_0.hdf5"), tmp_path / "episode_1.hdf5", tmp_path / "again.hdf5"
    resample(path, "-o", out, "--rate", 10, "--assume-rate")
    line, clock = clocks(out)
    assert "regular, 10 Hz, 20 rows" in line and clock["rate_source"] == "declared"
    assert "steps 10 Hz" in check(tmp_path, out, "0", "aloha", "steps", "observations/qpos")
    assert "steps 25 Hz" in check(tmp_path, out, "0", "aloha", "steps", "observations/qpos", dataset=", rate: 25")
    resample(out, "-o", again, "--rate", 5)
    with h5py.File(again) as file:
        assert np.array_equal(file["action"][:, 0], np.arange(1, 101, 10))


def test_a_resampled_file_without_the_layouts_attribute(tmp_path):
    resample(write(tmp_path / "a.hdf5"), "-o", tmp_path / "out.hdf5", "--rate", 10, "--assume-rate")
    line, clock = clocks(tmp_path / "out.hdf5")
    assert "regular, 10 Hz, 120 rows" in line and clock["rate_source"] == "declared"


def quarantined(path):
    """Returns the reason of each episode's quarantine, or None."""
    found = json.loads(trajctl("inspect", "--json", "--layout", "demo", path).stdout)[0]
    return {episode["id"]: episode["quarantine"] for episode in found["episodes"]}


def test_stamps_that_contradict_the_attribute(tmp_path, demo_file):
    """The episode was changed after the file was resampled."""
    out = tmp_path / "out.hdf5"
    resample(demo_file, "-o", out, "--rate", 10, "--layout", "demo")
    assert not any(quarantined(out).values())
    with h5py.File(out, "r+") as file:
        how = json.loads(file.attrs["trajd_resample"])
        file.attrs["trajd_resample"] = json.dumps({**how, "rate": "25/1"})
        long = [name for name, group in file["data"].items() if len(group["actions"]) > 1]
    refused = quarantined(out)[long[0]]
    assert "joint_t: row 1 is 0.1" in refused and "25 Hz" in refused and "/@trajd_resample" in refused
    with h5py.File(out, "r+") as file:  # the stamps of one episode were changed
        file.attrs["trajd_resample"] = json.dumps(how)
        stamps = file[f"data/{long[0]}/pose_t"]
        stamps[...] = stamps[0] + np.arange(len(stamps)) * 20_000_000
    found = quarantined(out)
    assert "pose_t: row 2 is 0.04 s" in found.pop(long[0]) and not any(found.values())


@pytest.mark.parametrize("value", ["not JSON", "{\"by\": \"trajd\"}", "{\"rate\": \"0/1\"}", 7])
def test_an_attribute_that_states_no_rate(tmp_path, value):
    path = write(tmp_path / "a.hdf5", rate=20)
    with h5py.File(path, "r+") as file:
        file.attrs["trajd_resample"] = value
    done = trajctl("inspect", "--layout", "robomimic", path, code=1)
    assert "trajd_resample" in done.stderr and "demo_0" in done.stderr
    assert "actions 50 Hz" in check(tmp_path, path, dataset=", rate: 50")
