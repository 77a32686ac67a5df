"""Private daemons: which process starts them, where they are, the errors of a start, and when they end."""
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from paths import BUILD, PROGRAM, TRAJCTL
from image_files import random_frames, write_encoded
from waiting import wait_for

PACKAGE = BUILD / "clients" / "python"
PRELUDE = """
import json, os, signal, sys, time
from trajd import launch
"""
pytestmark = pytest.mark.skipif(not list((PACKAGE / "trajd").glob("_core*")), reason="built without Python's headers")
CONFIG = """\
version: 2
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
exit_idle: {exit_idle}
datasets:
  demo: {{path: {path}, layout: demo}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    anchor: {{clock: actions}}
    outputs:
      actions: {{at: 0..3}}
      obs/robot0_eef_pos: {{at: -1..0}}
"""


class Node:
    """A folder that stands for a node and a user, with their private daemons."""

    def __init__(self, folder, demo_file):
        self.folder, self.demo_file = folder, demo_file
        self.runtime = folder / "runtime"
        self.config = folder / "square.yaml"
        self.write()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TRAJD_", "SLURM_", "XDG_", "MASTER_"))}
        self.env.update(TRAJD_RUNTIME_DIR=str(self.runtime), TRAJD_PROGRAM=str(PROGRAM), XDG_CACHE_HOME=str(folder / "cache"),
                        TRAJD_JOB="a", PYTHONPATH=str(PACKAGE))

    def write(self, exit_idle="60s"):
        self.config.write_text(CONFIG.format(path=self.demo_file, exit_idle=exit_idle))

    def begin(self, code, **env):
        return subprocess.Popen([sys.executable, "-c", PRELUDE + textwrap.dedent(code)], env={**self.env, **env}, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder)

    def run(self, code, kill_at=(), **env):
        """Runs a script. At each awaited line of its output kills all daemons and then lets the script go on."""
        process = self.begin(code, **env)
        for line in kill_at:
            assert process.stdout.readline() == line + "\n", process.communicate()
            for pid in self.daemons():
                os.kill(pid, signal.SIGKILL)
            process.stdin.write("on\n")
            process.stdin.flush()
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def ensure(self, **env):
        status, out, err = self.run(f"print(launch.ensure_daemon({str(self.config)!r}))", **env)
        assert status == 0, err
        return out.strip(), err

    def daemons(self):
        """Returns the pids of the daemons of this folder."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if state != "Z" and f"runtime={self.runtime}".encode() in b" ".join(words):
                found.append(int(process.name))
        return found


@pytest.fixture
def node(demo_file):
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:  # the path of a socket has at most 107 bytes, and pytest's folders are long
        one = Node(pathlib.Path(folder), demo_file)
        yield one
        for pid in one.daemons():
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not one.daemons(), 60, "the end of private daemons")


@pytest.mark.slow
def test_eight_ranks_start_one_daemon_that_outlives_its_starter(node):
    ranks = [node.begin(f"print(launch.ensure_daemon({str(node.config)!r}))") for _ in range(8)]
    results = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 8, results
    endpoints = {out.strip() for out, _ in results}
    assert len(endpoints) == 1 and len(node.daemons()) == 1
    assert "".join(err for _, err in results).count("private daemon") == 1  # reported once, with the log
    endpoint = pathlib.Path(endpoints.pop())
    log = endpoint.parent / "log"
    assert str(log) in "".join(err for _, err in results) and "ready after" in log.read_text()
    for folder in (node.runtime / f"trajd-{os.geteuid()}", endpoint.parent, endpoint):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_it_ends_after_its_last_worker(node):
    node.write(exit_idle="1s")
    endpoint, _ = node.ensure()
    wait_for(lambda: not node.daemons(), 60, "its end")
    assert "no worker for 1 s (exit_idle)" in (pathlib.Path(endpoint).parent / "log").read_text()
    node.config.write_text(node.config.read_text().replace("exit_idle: 1s\n", ""))
    node.ensure()
    assert b"exit_idle=60s" in pathlib.Path(f"/proc/{node.daemons()[0]}/cmdline").read_bytes()  # a default that the file leaves open


@pytest.mark.slow
def test_jobs_configurations_and_changes_have_daemons_of_their_own(node):
    first, said = node.ensure()
    assert "private daemon" in said
    assert node.ensure() == (first, "")  # the same start again, without a message
    assert node.ensure(TRAJD_JOB="b")[0] != first
    assert node.ensure(TRAJD_JOB="", SLURM_JOB_ID="17", SLURM_STEP_ID="0")[0] != node.ensure(
        TRAJD_JOB="", SLURM_JOB_ID="17", SLURM_STEP_ID="1")[0]
    node.write(exit_idle="61s")
    assert node.ensure()[0] != first  # never the old configuration
    assert len(node.daemons()) == 5


def test_after_kill_9_of_the_daemon_its_leavings_are_no_obstacle(node):
    endpoint, _ = node.ensure()
    log = pathlib.Path(endpoint).parent / "log"
    before = log.read_text()
    os.kill(node.daemons()[0], signal.SIGKILL)
    wait_for(lambda: not node.daemons(), 60, "its death")
    assert (pathlib.Path(endpoint) / "feed.sock").exists()
    again, said = node.ensure()
    assert again == endpoint and "private daemon" in said and len(node.daemons()) == 1
    assert log.with_name("log.1").read_text().startswith(before) and "ready after" in before


def test_kill_9_of_the_starter_in_the_middle_leaves_the_start_to_the_daemon(node):
    """The starter is killed as soon as it has started the daemon. The daemon goes on, and another rank waits for
    READY."""
    status, _, _ = node.run(f"""
        start = launch._start
        def die(*arguments):
            start(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        launch._start = die
        launch.ensure_daemon({str(node.config)!r})""")
    assert status == -signal.SIGKILL
    endpoint, said = node.ensure()
    assert said == "" and len(node.daemons()) == 1
    assert "ready after" in (pathlib.Path(endpoint).parent / "log").read_text()


def test_a_process_that_is_forked_meanwhile_keeps_no_lock(node):
    """A process that another thread forks, such as a DataLoader, inherits the starter's open files. It must not
    keep the lock."""
    config = str(node.config)
    holder = node.begin(f"""
        start, gone = launch._start, launch._is_alive
        def forked(call, *arguments):
            child = os.fork()
            if child == 0:
                os.close(1)
                time.sleep(3600)
            print(child, flush=True)
            return call(*arguments)
        launch._start = lambda *arguments: forked(start, *arguments)
        launch._is_alive = lambda place: forked(gone, place)
        print(launch.ensure_daemon({config!r}), flush=True)
        print(launch.Private(launch._Source({config!r})).is_gone(), flush=True)""")
    lines = []
    try:
        while not lines or lines[-1] != "False":
            lines.append(holder.stdout.readline().strip())
            assert lines[-1], f"it ended after {lines}"
        endpoint, _ = node.ensure()
        assert endpoint in lines
        for pid in node.daemons():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not node.daemons(), 60, "its death")
        assert node.ensure()[0] == endpoint and len(node.daemons()) == 1
    finally:
        for line in lines:
            if line.isdigit():
                os.kill(int(line), signal.SIGKILL)
        holder.communicate(timeout=60)


@pytest.mark.slow
def test_mistakes_come_with_file_line_and_key_and_all_waiting_ranks_hear_them(node):
    node.config.write_text(node.config.read_text().replace("global_batch", "global_bach"))
    status, _, err = node.run(f"launch.ensure_daemon({str(node.config)!r})")
    assert status == 1 and "square.yaml:9: feeds.train" in err and "did you mean global_batch" in err, err
    node.write()
    node.config.write_text(node.config.read_text().replace("robot0_eef_pos", "robot0_eef_poss"))  # found while the feed is planned
    ranks = [node.begin(f"launch.ensure_daemon({str(node.config)!r})") for _ in range(4)]
    for rank in ranks:
        _, err = rank.communicate(timeout=60)
        assert rank.returncode == 1 and "did you mean obs/robot0_eef_pos" in err and "Its log: " in err, err
    assert not node.daemons()
    node.write()
    node.config.write_text(node.config.read_text().replace("store: 64MiB", "store: 100000GiB"))
    status, _, err = node.run(f"launch.ensure_daemon({str(node.config)!r})")
    assert status == 1 and "memory.store and memory.rings need" in err and "(status " in err, err


def test_a_program_that_is_not_there(node):
    status, _, err = node.run(f"launch.__file__ = '/nowhere/launch.py'; launch.ensure_daemon({str(node.config)!r})", TRAJD_PROGRAM="",
                              PATH="/nowhere")
    assert status == 1 and "neither in this package" in err, err
    status, _, err = node.run("launch.ensure_daemon('nowhere.yaml')")
    assert status == 1 and "nowhere.yaml" in err, err


def test_files_that_are_missing_or_no_configuration(node):
    code = f"""
        import trajd
        for path in ({str(node.demo_file)!r}, {str(node.config)!r}):
            try: trajd.open(path, feed="train")
            except trajd.Error as error: print(type(error).__name__, isinstance(error, FileNotFoundError), error)"""
    node.config.write_text(node.config.read_text().replace(str(node.demo_file), "nowhere.hdf5"))
    status, out, err = node.run(code)
    assert status == 0, err
    hdf5, missing = out.splitlines()
    assert hdf5.startswith("LaunchError False") and "an HDF5 file, and no configuration" in hdf5 and f"trajctl init {node.demo_file} -o" in hdf5
    assert missing == (f"MissingFile True [Errno 2] square.yaml: no such file or folder: datasets.demo.path: '{node.folder}/nowhere.hdf5'")
    assert not node.daemons(), "no daemon was started for it"


def test_a_dict_is_a_configuration_relative_to_the_current_directory(node):
    (node.folder / "demo.hdf5").symlink_to(node.demo_file)
    code = """
        feed = {"dataset": "demo", "global_batch": 8, "anchor": {"clock": "actions"}, "outputs": {"actions": {"at": "0..3"}}}
        config = {"memory": {"store": "64MiB", "rings": "64MiB", "reserve": 0}, 
                  "datasets": {"demo": {"path": "demo.hdf5", "layout": "demo"}}, "feeds": {"train": feed}}
        target = launch.resolve(config, overrides={"seed": 3, "anchor": {"clock": None, "rate": 5},
                                                   "outputs": {"obs/robot0_eef_pos": {"at": "-1..0"}}})
        print(json.dumps(target[:3]))
        print(json.dumps(launch.resolve(config, "train")[:3]))
        try: launch.resolve(config, "tran")
        except launch.LaunchError as error: print(error)"""
    status, out, err = node.run(code)
    assert status == 0, err
    changed, plain, mistake = out.splitlines()
    endpoint, feed, spec = json.loads(changed)
    assert feed is None and json.loads(spec) == {
        "dataset": "demo", "global_batch": 8, "seed": 3, "anchor": {"rate": 5},
        "outputs": {"actions": {"at": "0..3"}, "obs/robot0_eef_pos": {"at": "-1..0"}}}
    assert json.loads(plain) == [endpoint, "train", None] and "did you mean train?" in mistake
    status, out, err = node.run(code, TRAJD_ENDPOINT="/run/trajd/else")
    assert status == 0 and json.loads(out.splitlines()[0])[0] == "/run/trajd/else", err


def test_files_of_a_feed_are_relative_to_the_current_directory(node):
    """Also in overrides. A changed file is another configuration, with a daemon of its own."""
    (node.folder / "demo.hdf5").symlink_to(node.demo_file)
    (node.folder / "rows.json").write_text('{"demo_0": [[2, 7]]}')
    code = """
        import trajd
        feed = {"dataset": "demo", "global_batch": 1, "anchor": {"clock": "actions"}, "ranges": "rows.json",
                "outputs": {"actions": {"at": "0..3"}}}
        config = {"memory": {"store": "64MiB", "rings": "64MiB", "reserve": 0},
                  "datasets": {"demo": {"path": "demo.hdf5", "layout": "demo"}}, "feeds": {"train": feed}}
        for overrides in (None, {"seed": 3}, {"ranges": {"demo_0": [[0, 2]]}}, {"ranges": "/etc/passwd"}):
            try:
                with trajd.open(config, overrides=overrides) as feed: print(feed.info.window_count)
            except trajd.ArgumentError as error: print(error)"""
    status, out, err = node.run(code)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[:3] == ["5", "5", "2"] and "a feed that a job sends can only name a file that" in lines[3], lines
    (node.folder / "rows.json").write_text('{"demo_0": [[2, 8]]}')
    status, out, err = node.run(code)
    assert status == 0 and out.splitlines()[0] == "6", (out, err)


def test_frames_whose_colours_nothing_says_are_refused_with_both_readings(node):
    write_encoded(node.folder / "episode_0.hdf5", {"top": random_frames(4, 24, 32, 1)})
    status, out, err = node.run("""
        import trajd
        feed = {"dataset": "arm", "global_batch": 1, "anchor": {"clock": "steps"}, "outputs": {"obs/top": {"from": "observations/images/top", "at": 0}}}
        arm = {"path": "episode_0.hdf5", "layout": "aloha"}
        for data in (arm, {**arm, "color": "bgr"}):
            config = {"memory": {"store": "64MiB", "rings": "64MiB", "reserve": 0}, "datasets": {"arm": data}, "feeds": {"train": feed}}
            try:
                with trajd.open(config) as opened: print(opened.info.window_count)
            except trajd.Error as error: print(error)""")
    assert status == 0, err
    *refusal, last = out.splitlines()
    assert last == "4" and "outputs.obs/top: datasets.arm.color is missing" in " ".join(refusal), out
    assert "rgb: a standard decoder gives RGB. bgr: it gives red and blue exchanged" in " ".join(refusal), out


def test_folders_that_are_not_ours_alone_are_refused(node):
    shared = node.folder / "shared"
    private = shared / f"trajd-{os.geteuid()}"
    private.mkdir(parents=True, mode=0o755)
    code = f"launch.ensure_daemon({str(node.config)!r})"
    status, _, err = node.run(code, TRAJD_RUNTIME_DIR=str(shared))
    assert status == 1 and "it must be yours alone" in err and "TRAJD_RUNTIME_DIR" in err, err
    private.rmdir()
    (node.folder / "elsewhere").mkdir(mode=0o700)
    private.symlink_to(node.folder / "elsewhere")
    for env in ({"TRAJD_RUNTIME_DIR": str(shared)}, {"TRAJD_RUNTIME_DIR": "", "TMPDIR": str(shared)}):
        status, _, err = node.run(code, **env)
        assert status == 1 and "a symbolic link" in err, err
    assert not node.daemons() and not list((node.folder / "elsewhere").iterdir())


def test_without_permission_to_write_the_cache_index_caches_are_private(node):
    (node.folder / "cache").write_text("in the way")
    wait_for(lambda: node.demo_file.stat().st_mtime < time.time() - 3, 60, "the age from which a file's index is kept")
    endpoint, _ = node.ensure()
    assert any((pathlib.Path(endpoint).parent / "cache").iterdir())


def test_a_daemon_that_dies_under_a_feed_is_started_again_and_nothing_repeats_or_is_lost(node):
    status, out, err = node.run(f"""
        import trajd
        feed = trajd.open({str(node.config)!r}, mode="shard")
        positions = []
        for batch in feed.epoch(0):
            positions.append(batch.position)
            if len(positions) in (10, 40):
                print("half", flush=True)
                sys.stdin.readline()
        assert positions == list(range(0, len(feed) * 8, 8)) and len(positions) > 50, positions
        print(len(positions))""", kill_at=("half", "half"))
    assert status == 0 and int(out.split()[-1]) > 50, err
    assert err.count("private daemon") == 3


def test_a_daemon_that_is_killed_while_it_starts_is_started_again(node):
    status, out, err = node.run(f"""
        import trajd
        from trajd import launch
        launch.CHECK_INTERVAL_S = 0.05
        feed = trajd.open({str(node.config)!r}, feed="train", timeout=60)
        epoch = feed.epoch(0)
        next(epoch)
        start = launch._start
        def start_and_kill(*arguments):
            launch._start = start
            process = start(*arguments)
            process.kill()
            return process
        launch._start = start_and_kill
        launch._started[-1].kill()
        print(1 + sum(1 for _ in epoch) == len(feed))""")
    assert status == 0 and out == "True\n", err
    assert "did not start" in err and err.count("trajd: private daemon ") >= 3, err


def test_a_daemon_that_has_read_an_edited_file_does_not_serve_the_original_one(node):
    original = node.config.read_text()
    job = node.begin(f"""
        import trajd
        feed = trajd.open({str(node.config)!r})
        next(iter(feed))
        print(feed._settings.endpoint, flush=True)
        sys.stdin.readline()""")
    place = pathlib.Path(job.stdout.readline().strip()).parent
    pid = node.daemons()[0]
    node.config.write_text(original.replace("at:", "at:  ", 1))
    os.kill(pid, signal.SIGKILL)
    read_until(job, "trajd: square.yaml or its data have changed since this job opened it")
    wait_for(lambda: node.daemons() not in ([], [pid]), 60, "another daemon")
    wait_for(lambda: (place / "launch.lock").read_text().split()[1:] == ["ready"], 60, "the daemon that has read the edited file")
    node.config.write_text(original)
    status, _, err = node.run(f"launch.ensure_daemon({str(node.config)!r})")
    assert status != 0 and "square.yaml was edited and put back" in err
    job.communicate("\n", timeout=60)


def test_two_runs_of_one_terminal_are_two_jobs_of_one_daemon(node):
    """Each of them gets every window of the epoch, whatever the other does."""
    code = f"""
        import trajd
        feed = trajd.open({str(node.config)!r})
        ids = [int(one) for batch in feed.epoch(0) for one in batch.window_id]
        print(len(ids), len(set(ids)), feed.info.epoch_length)"""
    runs = [node.begin(code, TRAJD_JOB="") for _ in range(2)]
    results = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], results
    assert len({number for out, _ in results for number in out.split()}) == 1, results
    assert len(node.daemons()) == 1


def test_a_watcher_does_not_outlive_its_feed(node):
    status, out, err = node.run(f"""
        import threading, trajd
        feed = trajd.open({str(node.config)!r})
        assert "trajd-watcher" in [thread.name for thread in threading.enumerate()]
        feed.close()
        end = time.monotonic() + 60
        while "trajd-watcher" in [thread.name for thread in threading.enumerate()]:
            assert time.monotonic() < end
            time.sleep(0.05)
        try: trajd.open({str(node.config)!r}, mode="neither")
        except trajd.ArgumentError: print("refused")""")
    assert status == 0 and out == "refused\n", err


def test_the_log_ends_without_a_refused_open(node):
    node.write(exit_idle="1s")
    status, out, err = node.run(f"""
        import trajd
        feed = trajd.open({str(node.config)!r})
        next(iter(feed))
        feed.close()
        print(feed._settings.endpoint)""")
    assert status == 0, err
    wait_for(lambda: not node.daemons(), 60, "its end")
    log = (pathlib.Path(out.strip()).parent / "log").read_text()
    assert "closing" not in log and "warning" not in log, log


def test_a_low_hard_limit_of_descriptors_means_fewer_workers(node):
    code = f"""
        import resource, trajd
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        feed = trajd.open({str(node.config)!r})
        print(sum(1 for _ in feed))"""
    status, out, err = node.run(code)
    assert status == 0 and int(out) > 0, err
    assert b"limits.sessions=172" in pathlib.Path(f"/proc/{node.daemons()[0]}/cmdline").read_bytes()
    assert "the hard limit of open files is 1024 (ulimit -Hn), so the private daemon serves at most 172 workers instead of 256" in err
    node.config.write_text(node.config.read_text() + "limits: {sessions: 200}\n")  # the user's own number stays
    status, out, err = node.run(code)
    assert status == 1 and "raise it, or lower limits.sessions" in err, err


def age(folder, seconds):
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - seconds,) * 2, follow_symlinks=False)


def test_old_folders_of_private_daemons_are_removed(node):
    """At the start of another daemon: those of daemons that ended minutes ago, and those of killed ones a day later. A
    configuration of a running daemon stays."""
    node.write(exit_idle="1s")
    ended, recent = (pathlib.Path(node.ensure(TRAJD_JOB=job)[0]).parent for job in ("ended", "recent"))
    wait_for(lambda: not node.daemons(), 60, "their end")
    node.write()
    killed, forgotten = (pathlib.Path(node.ensure(TRAJD_JOB=job)[0]).parent for job in ("killed", "forgotten"))
    for pid in node.daemons():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not node.daemons(), 60, "their end")
    running = pathlib.Path(node.ensure(TRAJD_JOB="running")[0]).parent
    for folder, seconds in ((ended, 301), (recent, 200), (killed, 86000), (forgotten, 86401), (running, 86401)):
        age(folder, seconds)
    configs = ended.parent / "configs"
    configs.mkdir(mode=0o700)
    for name in ("unused", running.name.rpartition("-")[0]):
        (configs / f"{name}.json").write_text("{}")
    age(configs, 86401)
    here = pathlib.Path(node.ensure(TRAJD_JOB="here")[0]).parent
    assert not ended.exists() and not forgotten.exists()
    assert recent.exists() and killed.exists() and running.exists() and here.exists()
    assert [path.stem for path in configs.iterdir()] == [running.name.rpartition("-")[0]]


def test_a_start_in_a_folder_that_is_removed_meanwhile(node):
    """The process that waits for the lock of a removed folder makes the folder again."""
    endpoint = pathlib.Path(node.ensure()[0])
    for pid in node.daemons():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not node.daemons(), 60, "its end")
    place = endpoint.parent
    code = f"""
        import contextlib, fcntl, shutil, threading
        def count_open(name):
            count = 0
            for fd in os.listdir("/proc/self/fd"):
                with contextlib.suppress(FileNotFoundError):  # the other thread has closed it
                    count += os.readlink("/proc/self/fd/" + fd).endswith(name)
            return count
        place = launch.pathlib.Path({str(place)!r})
        with launch.opened(place / "launch.lock") as lock:
            fcntl.flock(lock.fd, fcntl.LOCK_EX)
            found = []
            thread = threading.Thread(target=lambda: found.append(launch.ensure_daemon({str(node.config)!r})))
            thread.start()
            while count_open("launch.lock") < 2:
                time.sleep(0.01)
            shutil.rmtree(place)
        thread.join()
        print(found[0])"""
    status, out, err = node.run(code)
    assert status == 0 and out.strip() == str(endpoint) and len(node.daemons()) == 1, err


COPIES = """
    import trajd
    from trajd import launch
    launch.CHECK_INTERVAL_S = launch.COPIES_INTERVAL_S = 0.05
    feed = trajd.open({!r})
    print("open", flush=True)
    sys.stdin.readline()"""


def read_until(process, line):
    said = ""
    while line not in said:
        read = process.stderr.readline()
        assert read, said
        said += read


def test_one_dataset_in_two_configurations_is_told_to_both(node):
    other = node.folder / "other.yaml"
    other.write_text(node.config.read_text())
    first = node.begin(COPIES.format(str(node.config)))
    assert first.stdout.readline() == "open\n"
    second = node.begin(COPIES.format(str(other)))
    line = f"trajd: {node.demo_file} is in memory twice, for other.yaml and for square.yaml."
    for process in (first, second):
        read_until(process, line)
    for process in (first, second):
        _, rest = process.communicate("\n", timeout=60)
        assert process.returncode == 0 and line not in rest, "once each"


def test_why_one_dataset_is_in_memory_twice(node):
    """A second job with the same configuration, and the same job after the configuration has changed."""
    processes = [node.begin(COPIES.format(str(node.config)))]
    assert processes[0].stdout.readline() == "open\n"
    processes.append(node.begin(COPIES.format(str(node.config)), TRAJD_JOB="b"))
    assert processes[1].stdout.readline() == "open\n"
    node.config.write_text(node.config.read_text().replace("global_batch: 8", "global_batch: 16"))
    processes.append(node.begin(COPIES.format(str(node.config)), TRAJD_JOB="b"))
    read_until(processes[0], "is in memory twice, for two jobs with square.yaml. If both have the same $TRAJD_JOB")
    read_until(processes[2], "is in memory twice: square.yaml, its data or trajd has changed")
    for process in processes:
        process.communicate("\n", timeout=60)
        assert process.returncode == 0


def test_copies_are_told_once_for_all_feeds_and_datasets(node):
    text = node.config.read_text()
    more = text[text.index("  demo:"):].split("\n", 1)[0].replace("  demo:", "  more:").replace(str(node.demo_file), str(node.folder / "more.hdf5"))
    (node.folder / "more.hdf5").write_bytes(node.demo_file.read_bytes())
    feed = text[text.index("  train:"):]
    node.config.write_text(text.replace("datasets:\n", f"datasets:\n{more}\n") + feed.replace("train:", "valid:").replace("dataset: demo", "dataset: more"))
    node.ensure()
    node.config.write_text(node.config.read_text().replace("global_batch: 8", "global_batch: 16"))
    code = f"""
        import trajd
        from trajd import launch
        launch.CHECK_INTERVAL_S = launch.COPIES_INTERVAL_S = 0.05
        looked, report = set(), launch.Private.report_copies
        def count(private):
            report(private)
            looked.add(id(private))
        launch.Private.report_copies = count
        feeds = [trajd.open({str(node.config)!r}, feed=name) for name in ("train", "valid")]
        while len(looked) < 2:
            time.sleep(0.01)"""
    status, _, err = node.run(code)
    assert status == 0 and err.count("in memory twice") == 1, err
    assert f" and 1 more are in memory twice: {node.config.name}, its data or trajd has changed" in err


def test_status_and_stats_find_private_daemons(node):
    def status(*options, **changes):
        env = {**node.env, **changes}
        return subprocess.run([TRAJCTL, "status", *options], env=env, capture_output=True, text=True, timeout=60)

    service = pathlib.Path("/run/trajd/main/feed.sock").exists()
    if service:
        pytest.skip("a daemon runs at /run/trajd/main")
    none = status()
    assert none.returncode == 1 and f"nor a private one of yours in {node.runtime}/trajd-{os.geteuid()}" in none.stderr
    for command in (("explain", "train", "--window", "0"), ("stats", "train"), ("metrics",), ("bench", "train"), ("recv", "train")):
        done = subprocess.run([TRAJCTL, *command], env=node.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and done.stderr == none.stderr and "run `trajd --config CONFIG`" in done.stderr, done.stderr
    first = node.ensure()[0]
    one = status()
    about = rf"for {re.escape(str(node.config))}, job a, since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
    assert one.returncode == 0 and re.match(rf"{re.escape(first)}\n  {about}\ntrajd ", one.stdout) and "feed " in one.stdout, one.stderr
    assert json.loads(status("--json").stdout)["feeds"]
    for command in (("stats", "train", "--json"), ("explain", "train", "--window", "0", "--json"), ("metrics",)):  # the only one is meant
        done = subprocess.run([TRAJCTL, *command], env=node.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout and re.fullmatch(rf"trajctl: private daemon {re.escape(first)} {about}\n", done.stderr), done.stderr
    private = node.runtime / f"trajd-{os.geteuid()}"
    done = subprocess.run([TRAJCTL, "doctor", "--seconds", "0", "--json"], env=node.env, capture_output=True, text=True, timeout=60)
    (text,) = [one["text"] for one in json.loads(done.stdout)["findings"] if one["topic"] == "daemon"]
    assert f"1 private daemon of yours runs in {private}" in text
    private.chmod(0o770)
    assert "no daemon runs" in status().stderr, "others may have made what is there"
    private.chmod(0o700)
    (node.folder / "link").mkdir()
    (node.folder / "link" / private.name).symlink_to(private)
    assert "no daemon runs" in status(TRAJD_RUNTIME_DIR=str(node.folder / "link")).stderr
    second = node.ensure(TRAJD_JOB="b")[0]
    several = status()
    lines = several.stdout.splitlines()[1:]
    assert several.returncode == 0 and [line.split()[0] for line in lines[::2]] == [second, first], "the newest first"
    assert re.fullmatch(" +" + about.replace("job a", "job b"), lines[1]) and re.fullmatch(" +" + about, lines[3]), lines
    assert [one["endpoint"] for one in json.loads(status("--json").stdout)] == [second, first]
    unclear = subprocess.run([TRAJCTL, "stats", "train"], env=node.env, capture_output=True, text=True, timeout=60)
    listed = [line.split("--endpoint ")[1] for line in unclear.stderr.splitlines() if "--endpoint " in line]
    assert unclear.returncode == 1 and "private daemons that run:\n" in unclear.stderr and listed == [second, first], unclear.stderr
    assert len(re.findall(about.replace("job a", "job [ab]"), unclear.stderr)) == 2, unclear.stderr
    assert status(TRAJD_ENDPOINT=second).stdout.startswith("trajd "), "an endpoint that is given is the one"
    for pid in node.daemons():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not node.daemons(), 60, "their end")
    assert "no daemon runs" in status().stderr


def test_the_newest_private_daemon_of_an_edited_configuration_is_meant(node):
    endpoints = [node.ensure()[0]]
    node.config.write_text(node.config.read_text().replace("global_batch: 8", "global_batch: 16"))
    endpoints.append(node.ensure()[0])
    assert len(node.daemons()) == 2
    explain = [TRAJCTL, "explain", "train", "--window", "0", "--json"]
    done = subprocess.run(explain, env=node.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr.startswith(f"trajctl: private daemon {endpoints[1]} for {node.config}, job a, since "), done.stderr
    assert done.stderr.endswith(", the newest of several\n")
    (pathlib.Path(endpoints[0]).parent / "datasets").write_text("")  # what that daemon serves is unknown
    unclear = subprocess.run(explain, env=node.env, capture_output=True, text=True, timeout=60)
    assert unclear.returncode == 1 and "for an unknown configuration" in unclear.stderr and f"for {node.config}, job a" in unclear.stderr, unclear.stderr


def test_status_is_watched_until_the_daemon_ends(node):
    node.ensure()
    watching = subprocess.Popen([TRAJCTL, "status", "--watch"], env=node.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = 0
    while seen < 2:
        line = watching.stdout.readline()
        assert line, watching.communicate()
        seen += line.startswith("trajd ")
    for pid in node.daemons():
        os.kill(pid, signal.SIGTERM)
    out, err = watching.communicate(timeout=60)
    assert watching.returncode == 1 and "\033" not in out and "daemon" in err, err
