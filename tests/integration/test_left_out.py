"""What a feed leaves out of its data reaches the one who trains: FeedInfo, a line, a warning, `trajctl check`, the status."""
import json
import os
import re
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from daemons import Daemon
from paths import ALOHA_BYTES, BUILD
from image_files import random_frames, write_encoded

import libtrajd

PACKAGE = BUILD / "clients" / "python"
TRAJCTL = BUILD / "clients" / "cli" / "trajctl"
has_package = pytest.mark.skipif(not list((PACKAGE / "trajd").glob("_core*")), reason="built without Python's headers")
FEEDS = """
datasets: {{lab: {{path: {path}, layout: BYTES{more}}}}}
feeds:
  images:
    dataset: lab
    global_batch: 8
    anchor: {{clock: steps}}
    outputs: {{cam: {{from: observations/images/cam_high, at: 0}}, action: {{at: 0..3}}}}
  joints:
    dataset: lab
    global_batch: 8
    anchor: {{clock: steps}}
    outputs: {{qpos: {{from: observations/qpos, at: 0}}, action: {{at: 0..3}}}}
""".replace("BYTES", str(ALOHA_BYTES))


def write_padded(folder, widths):
    """Writes ALOHA episodes whose images are padded to the longest JPEG of each episode."""
    folder.mkdir()
    for i, width in enumerate(widths):
        with h5py.File(folder / f"episode_{i}.hdf5", "w") as file:
            file["action"] = file["observations/qpos"] = np.full((20, 14), i, "f4")
            file["observations/images/cam_high"] = np.zeros((20, width), "u1")
    return folder


def start(folder, more="", widths=(7, 9, 9, 8, 9)):
    data = folder / "lab"
    return Daemon(folder / "daemon", FEEDS.format(path=data if data.exists() else write_padded(data, widths), more=more))


def run_python(daemon, code, *options):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "TRAJD_ENDPOINT": str(daemon.endpoint)}
    prelude = f"import trajd, warnings\nconfig = {str(daemon.config)!r}\n"
    return subprocess.run([sys.executable, *options, "-c", prelude + textwrap.dedent(code)], env=environment, text=True,
                          capture_output=True, timeout=60)


@has_package
def test_the_trainer_is_told_once(tmp_path):
    daemon = start(tmp_path).start()
    code = """
    feed = trajd.open(config, feed="images")
    info = feed.info
    assert (info.episodes_found, info.episodes_kept, info.episodes_quarantined, info.episodes_used) == (5, 3, 2, 3), info
    assert [reason.split(":")[0] for reason in info.quarantine_reasons] == ["episode_0.hdf5", "episode_3.hdf5"], info
    assert "its rows are u8 [7]; u8 [9]" in info.quarantine_reasons[0]
    assert info.warnings == ()
    for e in range(2):
        assert sum(1 for _ in feed.epoch(e)) == 7
    feed.close()
    trajd.open(config, feed="images").info
    joints = trajd.open(config, feed="joints")
    assert joints.info.episodes_quarantined == 0 and joints.info.episodes_used == 5
    """
    done = run_python(daemon, code)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("trajd: feed")]
    assert len(lines) == 1 and lines[0].startswith(
        "trajd: feed images: 3 of 5 episodes, 2 quarantined: episode_0.hdf5: observations/images/cam_high: "), done.stderr
    assert done.stderr.count("DataWarning: feed images: 3 of 5 episodes") == 1 and "feed joints" not in done.stderr
    assert "<string>:" in done.stderr  # the warning names the user's line
    done = run_python(daemon, 'trajd.open(config, feed="images").info', "-W", "error::UserWarning")
    assert done.returncode == 1 and "DataWarning: feed images: 3 of 5" in done.stderr
    assert "feed images: dataset lab: 3 of 5 episodes, 2 quarantined, the first: episode_0.hdf5" in daemon.text()
    client = daemon.client()
    info = client.open("images")
    assert info.window_count == 60 and info.episodes_found == 5 and info.episodes_quarantined == 2
    client.close()
    daemon.stop()


@has_package
def test_the_trainer_is_told_of_bad_frames_once(tmp_path):
    write_encoded(tmp_path / "episode_0.hdf5", {"cam_high": random_frames(16, 32, 32, 1)}, bad=[("cam_high", 5), ("cam_high", 6)])
    feeds = FEEDS.format(path=tmp_path, more="").replace(str(ALOHA_BYTES), "aloha, color: rgb").replace("global_batch: 8", "global_batch: 4\n    bad_rows: keep")
    daemon = Daemon(tmp_path / "daemon", feeds).start()
    code = """
    feed = trajd.open(config, feed="images")
    bad = sum((batch.mask("cam") == 8).sum() for batch in feed.epoch(0)) + sum((batch.mask("cam") == 8).sum() for batch in feed.epoch(1))
    assert bad == 4, bad
    assert feed.metrics()["trajd/bad_frames"] >= 2, feed.metrics()
    """
    done = run_python(daemon, code, "-W", "always")
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "DataWarning" in line]
    assert len(warned) == 1 and "feed images, the batch at position " in warned[0] and "bad frames" in warned[0], done.stderr
    assert "output cam: 1 of 4 steps" in warned[0] or "output cam: 2 of 4 steps" in warned[0], done.stderr
    shown = subprocess.run([TRAJCTL, "recv", "images", "--count", "4", "--json", "--endpoint", daemon.endpoint], text=True,
                           capture_output=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    counts = [tensor["mask_counts"] for batch in map(json.loads, shown.stdout.splitlines()) for tensor in batch["tensors"]
              if tensor["name"] == "cam.mask"]
    assert sum(of_batch[8] for of_batch in counts) == 2 and not any(of_batch[7] for of_batch in counts)
    read = subprocess.run([TRAJCTL, "recv", "images", "--count", "4", "--epoch", "1", "--endpoint", daemon.endpoint], text=True,
                          capture_output=True, timeout=60)
    assert sum(map(int, re.findall(r"cam\.mask .* (\d+) bad frame", read.stdout))) == 2 and "too old" not in read.stdout, read.stdout
    daemon.stop()


@has_package
def test_warnings_of_the_plan_reach_the_trainer(tmp_path):
    folder = write_padded(tmp_path / "lab", (9, 9))
    with h5py.File(folder / "episode_1.hdf5", "r+") as file:
        for name in ("action", "observations/qpos", "observations/images/cam_high"):
            rows = file[name][:3]
            del file[name]
            file[name] = rows
    daemon = Daemon(tmp_path / "daemon", FEEDS.format(path=folder, more="") + "    pad: {before: 0, after: 0}\n").start()
    done = run_python(daemon, """
    info = trajd.open(config, feed="joints").info
    assert info.episodes_quarantined == 0 and info.episodes_used == 1 and info.episodes_kept == 2
    print(info.warnings)
    """)
    assert done.returncode == 0, done.stderr
    assert "1 of the 2 selected episodes are too short for any window" in done.stdout
    assert "trajd: feed joints: 1 warning: 1 of the 2 selected episodes" in done.stderr
    assert "DataWarning: feed joints: 1 warning" in done.stderr
    daemon.stop()


def check(folder, more, feeds=FEEDS, data=None):
    """Runs `trajctl check` and returns its exit status and what it printed on both streams."""
    config = folder / "check.yaml"
    config.write_text("version: 2\nmemory: {store: 64MiB, rings: 64MiB, reserve: 0}\n" + feeds.format(path=data or folder / "lab", more=more))
    done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_check_fails_if_episodes_are_left_out(tmp_path):
    data = write_padded(tmp_path / "lab", (7, 9, 9, 8, 9))
    status, out, err = check(tmp_path, "")
    assert status == 1 and "accept them by `quarantine: {at_most: 2}` of datasets.lab" in err, err
    assert "60 windows of 3 episodes (3 of 5 kept, 2 quarantined)" in out
    assert "  quarantined: episode_3.hdf5: observations/images/cam_high: its rows are u8 [8]" in out
    status, _, err = check(tmp_path, ", quarantine: {at_most: 2}")
    assert status == 0, err
    status, _, err = check(tmp_path, ", quarantine: {at_most: 1}")
    assert status == 1 and "2 of 5 episodes of dataset lab are quarantined, and datasets.lab.quarantine.at_most is 1" in err
    joints = "datasets" + FEEDS.split("datasets")[1].split("  images:")[0] + "  joints:" + FEEDS.split("  joints:")[1]
    assert check(tmp_path, "", joints)[0] == 0  # no feed names the images
    with open(data / "episode_2.hdf5", "wb"):
        pass  # empties it: a file that gives no episode counts as one
    status, out, err = check(tmp_path, "", joints)
    assert status == 1 and "1 of 5 episodes are quarantined: repair" in err and "(4 of 5 kept, 1 quarantined)" in out, out + err
    inspected = json.loads(subprocess.run([TRAJCTL, "inspect", "--json", "--layout", ALOHA_BYTES, data], capture_output=True, text=True,
                                          timeout=60).stdout)[0]
    assert [inspected[key] for key in ("found_count", "kept_count", "quarantined_count", "refused_file_count")] == [5, 4, 1, 1]
    for wrong in ("{at_most: -1}", "{at_most: 5 %}", "{}", "{most: 1}", "3"):
        assert check(tmp_path, f", quarantine: {wrong}")[0] == 78, wrong


def test_a_feed_above_the_limit_is_refused_alone(tmp_path):
    daemon = start(tmp_path, ", quarantine: {at_most: 1}").start()
    assert "feed images: 2 of 5 episodes of dataset lab are quarantined" in daemon.text() and "the feed is not served" in daemon.text()
    client = daemon.client()
    for spec in ({"feed": "images"}, {"spec": "{dataset: lab, global_batch: 4, anchor: {clock: steps}, outputs: "
                                                "{cam: {from: observations/images/cam_high, at: 0}}}"}):
        with pytest.raises(libtrajd.TrajdError, match="at_most is 1; the first: episode_0.hdf5: observations/images/cam_high"):
            client.open(**spec)
    assert client.open("joints").episodes_kept == 5
    status = client.status()
    dataset, = status["datasets"]
    assert [dataset[key] for key in ("found", "kept", "quarantined", "refused_files")] == [5, 5, 0, 0]
    producer, = status["producers"]
    assert [producer["episodes_" + key] for key in ("found", "kept", "quarantined", "used")] == [5, 5, 0, 5]
    daemon.config.write_text(daemon.config.read_text().replace("at_most: 1", "at_most: 2"))
    assert subprocess.run([TRAJCTL, "reload", "--wait", "--endpoint", daemon.endpoint], timeout=60).returncode == 0
    client.close()
    client = daemon.client()
    assert client.open("images").episodes_quarantined == 2
    client.close()
    daemon.stop()


def test_files_that_are_not_read_are_named(tmp_path):
    data = write_padded(tmp_path / "lab", (9, 9))
    elsewhere = write_padded(tmp_path / "elsewhere", (9,))
    (data / "more").symlink_to(elsewhere)
    (data / "below").mkdir()
    for path in ("demo_7.hdf5", "run_8.h5", "below/x.h5", "notes.txt", ".hidden.hdf5"):
        (data / path).write_bytes(b"")
    daemon = start(tmp_path).start()
    for path in ("demo_7.hdf5", "run_8.h5", "below/x.h5"):
        assert f"warning: dataset lab: {path}: left out: `files:` of the layout does not match its name" in daemon.text()
    assert "dataset lab: more: left out: a linked folder is not searched" in daemon.text()
    assert "notes.txt" not in daemon.text() and "hidden" not in daemon.text()
    daemon.stop()
    status, out, _ = check(tmp_path, "")
    assert status == 0 and "(2 of 2 kept)" in out
    inspected = subprocess.run([TRAJCTL, "inspect", "--layout", ALOHA_BYTES, data], capture_output=True, text=True, timeout=60).stdout
    assert "  more: left out: a linked folder is not searched" in inspected
    assert "left out" not in subprocess.run([TRAJCTL, "inspect", "--layout", ALOHA_BYTES, data / "episode_*.hdf5"], capture_output=True,
                                            text=True, timeout=60).stdout  # the user's own choice


def test_masks_and_texts_that_are_missing_are_warnings(tmp_path):
    data = tmp_path / "lab"
    data.mkdir()
    for number in range(3):
        with h5py.File(data / f"{number}.hdf5", "w") as file:
            for demo in range(2):
                file[f"data/demo_{demo}/actions"] = np.zeros((9, 2))
            if number == 2:
                file["data"].attrs["problem_info"] = json.dumps({"language_instruction": "lift"})
            if number != 1:
                file["mask/train"] = np.array(["demo_0"], dtype="S")
    status, out, err = check(tmp_path, "", """
datasets: {{lab: {{path: {path}, layout: robomimic{more}}}}}
feeds:
  masked: {{dataset: lab, filter: train, global_batch: 4, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0}}}}}}
  named: {{dataset: lab, where: {{language: lift}}, global_batch: 4, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0}}}}}}
""")
    assert status == 0 and "of 2 episodes (6 of 6 kept)" in out, out + err
    assert ("  warning: where: language: 4 of 6 episodes have no such text and are not used (the first: 0.hdf5: demo_0)\n") in out
    assert "  warning: filter: train: 1 of 3 files have no mask, and none of their episodes is used (the first: 1.hdf5)" in out
