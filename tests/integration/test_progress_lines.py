"""How far long work is: what trajctl prints, what trajd.open passes on of its private daemon, and feed.stats."""
import os
import pty
import re
import shutil
import subprocess
import sys
import types

import h5py
import numpy as np
import pytest

from feeds import policy_feed
from paths import PACKAGE, TRAJCTL
from waiting import wait_for

sys.path.insert(0, str(PACKAGE))
LINE = r"{}: [0-9.]+ of {} {}, [0-9.]+ {}/s, [0-9.]+ (s|min|h) left"


def on_a_terminal(*command):
    """Runs a program whose standard error is a terminal. Returns its exit status and what it printed there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:  # the end of a terminal
            break
    os.close(ours)
    return process.wait(timeout=60), said.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of 4000 files, whose index takes a second or so."""
    made = tmp_path_factory.mktemp("many")
    with h5py.File(made / "0.hdf5", "w") as file:
        for demo in range(10):
            group = file.create_group(f"data/demo_{demo}")
            group["actions"] = np.arange(40.0).reshape(20, 2)
            group["obs/x"] = np.arange(60.0).reshape(20, 3)
    for number in range(1, 4000):
        shutil.copyfile(made / "0.hdf5", made / f"{number}.hdf5")
    return made


def test_an_index_on_a_terminal(folder):
    status, said = on_a_terminal(TRAJCTL, "inspect", "--layout", "robomimic", folder)
    assert status == 0
    lines = [part.partition("\x1b[K")[0] for part in said.split("\r")]
    assert any(re.fullmatch(LINE.format(f"index of {folder}", 4000, "files", "files"), line) for line in lines), said
    assert said.endswith("\r\x1b[K"), "the last line is erased"


def test_nothing_is_printed_where_nothing_takes_long(tmp_path, demo_file):
    # a line comes after 0.2 s, which a busy machine may take for this file
    wait_for(lambda: on_a_terminal(TRAJCTL, "inspect", demo_file) == (0, ""), 60, "a run without a line")
    done = subprocess.run([TRAJCTL, "resample", demo_file, "-o", tmp_path / "out.hdf5", "--rate", "10", "--json"], capture_output=True, text=True)
    assert done.returncode == 0 and '"event":"progress"' in done.stdout and "left" not in done.stderr


class Log:
    """A log of a daemon that is starting."""

    def __init__(self, folder):
        self.path = folder / "log"

    def write(self, text):
        with open(self.path, "a") as file:
            file.write(f"2026-11-22T20:00:00.000Z info: {text}\n")


@pytest.fixture
def progress(monkeypatch):
    pytest.importorskip("trajd", reason="built without Python's headers")
    from trajd import progress
    monkeypatch.setattr(progress, "TERMINAL_INTERVAL_S", 0)
    monkeypatch.setattr(progress, "MESSAGE_INTERVAL_S", 0)
    return progress


FIRST, SECOND = "index of /data: 1200 of 10000 files, 812 files/s, 11 s left", "index of /data: 1300 of 10000 files, 812 files/s, 10 s left"


def test_open_shows_the_daemons_line(tmp_path, progress, monkeypatch, capsys):
    log = Log(tmp_path)
    waiting = progress.Waiting(log.path)
    waiting.show()
    log.write(FIRST)
    waiting.show()
    waiting.close()
    assert capsys.readouterr().err.splitlines() == [
        "trajd: waiting for the private daemon: (its log is empty)", f"trajd: waiting for the private daemon: 2026-11-22T20:00:00.000Z info: {FIRST}"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    waiting = progress.Waiting(log.path)
    waiting.show()
    log.write("something else")
    waiting.show()
    waiting.close()
    waiting.close()
    assert capsys.readouterr().err == f"\rtrajd: {FIRST}\x1b[K\r\x1b[K"


@pytest.fixture
def bars(monkeypatch):
    """The bars that are made of tqdm."""
    made = []

    class Bar:
        def __init__(self, total, unit, desc):
            self.n, self.total, self.unit, self.desc, self.is_closed = 0, total, unit, desc, False
            made.append(self)

        def update(self, count):
            self.n += count

        def close(self):
            self.is_closed = True

    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    return made


def test_open_with_tqdm(tmp_path, progress, monkeypatch, bars):
    log = Log(tmp_path)
    waiting = progress.Waiting(log.path, "tqdm")
    for line in ("serving at /run", FIRST, SECOND, "statistics: 5 of 20 episodes, 1.0 episodes/s, 15 s left"):
        log.write(line)
        waiting.show()
    assert [(bar.desc, bar.n, bar.total, bar.unit, bar.is_closed) for bar in bars] == [
        ("index of /data", 1300, 10000, " files", True), ("statistics", 5, 20, " episodes", False)]
    waiting.close()
    assert bars[1].is_closed
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    import trajd
    with pytest.raises(trajd.ArgumentError, match="needs tqdm, which is not installed"):
        trajd.open("square.yaml", progress="tqdm")
    with pytest.raises(trajd.ArgumentError, match="must be None or"):
        trajd.open("square.yaml", progress="bar")


def test_shares_of_statistics(progress, monkeypatch, capsys, bars):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def show(how=None):
        share = progress.Share("statistics of actions", how)
        for at, done in ((5, 0), (10, 0.25), (20, 0.5), (700, 0.51)):
            now[0] = at
            share.show(done)
        share.close()
        now[0] = 0.0

    show()
    assert capsys.readouterr().err.splitlines() == [f"trajd: statistics of actions: {rest}" for rest in (
        "0 %", "25 %", "50 %, 20 s left", "51 %, 22 min left")]
    show("tqdm")
    assert [(bar.desc, bar.n, bar.total, bar.unit, bar.is_closed) for bar in bars] == [("statistics of actions", 51, 100, " %", True)]


def test_statistics_of_a_feed_show_how_far_they_are(daemon, demo_file, progress, capsys, bars):
    import trajd
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        first = feed.stats(["actions"])
        assert re.match(r"trajd: statistics of actions: \d+ %", capsys.readouterr().err)
        np.testing.assert_array_equal(feed.stats(["actions"])["actions"]["mean"], first["actions"]["mean"])
        assert not capsys.readouterr().err, "what is known takes no time"
        with pytest.raises(trajd.ArgumentError, match="must be None or"):
            feed.stats(progress="bar")
