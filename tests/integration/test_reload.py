"""Reload: a running daemon reads its configuration again and applies all changes or none, while workers go on."""
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from daemons import Daemon, Preloaded, Short
from paths import TRAJCTL, clean_environment
from waiting import wait_for

DATASETS = "datasets:\n  demo: {{path: {path}, layout: demo}}\n"
TRAIN = """\
  train:
    dataset: demo
    global_batch: 8
    slots: 32
    anchor: {clock: actions}
    outputs: {actions: {at: 0..3}}
"""
PROBE = """\
  probe:
    dataset: demo
    global_batch: 4
    anchor: {clock: actions}
    outputs: {obs/robot0_eef_pos: {at: -1..0}}
"""
SPEC = "dataset: demo\nglobal_batch: 2\nanchor: {clock: actions}\noutputs: {actions: {at: 0}}\n"


def reload(daemon):
    """Returns the exit status and the output of trajctl."""
    environment = clean_environment()
    done = subprocess.run([TRAJCTL, "reload", "--wait", "--endpoint", daemon.endpoint], capture_output=True, text=True, timeout=60,
                          env=environment)
    return done.returncode, (done.stdout + done.stderr).strip()


def rewrite(daemon, *pairs, more=""):
    text = daemon.config.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    daemon.config.write_text(text + more)


def refused(daemon, *words):
    status, said = reload(daemon)
    assert status == 1 and "the reload was refused, the configuration is unchanged" in said, said
    for word in words:
        assert word in said, said
    return said


def applied(daemon):
    """Reloads and checks the list of changes. A worker that has just closed may still be counted for a moment."""
    done = wait_for(lambda: (done := reload(daemon))[0] == 0 and done or "workers read it" not in done[1] and done)
    assert done[0] == 0, done
    return done[1]


def read(client, feed=None, **options):
    """Releases the batch and returns its arrays."""
    if feed or options:
        client.open(feed, **options)
    batch = client.next()
    arrays = batch.copy()
    batch.release()
    return arrays


@pytest.fixture
def one(daemon, demo_file):
    """A daemon whose workers are closed before it is stopped."""
    started, clients = daemon(DATASETS.format(path=demo_file) + "feeds:\n" + TRAIN), []
    connect = started.client
    started.client = lambda: clients.append(connect()) or clients[-1]
    yield started
    for client in clients:
        client.close()


def test_a_new_feed_while_another_is_read(one):
    worker = one.client()
    fingerprint = worker.open("train", credit=2).fingerprint
    first = worker.next()
    rewrite(one, more=PROBE)
    assert reload(one) == (0, "new feeds: probe")
    late = one.client()
    assert read(late, "probe")["obs/robot0_eef_pos"].shape == (4, 2, 3)
    second = worker.next()
    assert second.position == first.position + 8  # the same run: batches that were made ahead come in their order
    first.release()
    second.release()
    assert worker.open("train").fingerprint == fingerprint
    rewrite(one, (PROBE, ""))
    refused(one, "feeds.probe: was removed, but workers read it")
    read(late)
    late.close()
    assert applied(one) == "feeds gone: probe"
    with pytest.raises(Exception, match="there is no feed probe .feeds: train"):
        one.client().open("probe")
    assert [feed["name"] for feed in worker.status()["feeds"]] == ["train"]
    shown = subprocess.run([TRAJCTL, "status", "--endpoint", one.endpoint], capture_output=True, text=True,
                           env=clean_environment())
    assert re.search(r"last of \d+ reloads: applied: feeds gone: probe", shown.stdout), shown
    assert one.text().count("reloaded: ") == 2 and one.text().count("reload refused") >= 1


def test_all_or_nothing(one):
    worker = one.client()
    read(worker, "train")
    before = worker.status()
    rewrite(one, ("at: 0..3", "at: 0..7"), more=PROBE + "exit_idle: 5s\n")
    refused(one, "feeds.train: was changed, and workers read it")
    after = worker.status()
    assert [f["feed_id"] for f in after["feeds"]] == [f["feed_id"] for f in before["feeds"]]
    read(worker)
    worker.close()
    assert applied(one) == "new feeds: probe; changed feeds: train; keys: exit_idle"
    assert read(one.client(), "train")["actions"].shape[1] == 8
    assert reload(one) == (0, "nothing has changed")


def test_what_is_wrong_is_said_and_nothing_changes(one, demo_file):
    good = one.config.read_text()
    one.config.write_text(good.replace("global_batch", "global_bach"))
    refused(one, "trajd.yaml:11: feeds.train", "did you mean global_batch")
    one.config.write_text(good + PROBE.replace("clock: actions", "clock: action"))
    refused(one, "no clock action", "did you mean actions")
    one.config.write_text(good.replace("store: 64MiB", "store: 65MiB").replace("feeds:", "  more: {path: nowhere.hdf5, layout: demo}\nfeeds:"))
    refused(one, "nowhere.hdf5")
    one.config.write_text(good + "threads: {resample: 7}\nlimits: {sessions: 7, feeds: 3}\nruntime: else\n".replace("runtime: else\n", ""))
    refused(one, "threads.resample, limits.sessions: cannot change while the daemon runs")
    one.config.write_text(good.replace("rings: 64MiB", "rings: 64KiB"))
    refused(one, "memory.rings: 65536 bytes, but the feeds that stay need")
    one.config.unlink()
    refused(one, "trajd.yaml")
    one.config.write_text(good)
    assert reload(one) == (0, "nothing has changed")
    read(one.client(), "train")


@pytest.mark.parametrize("limit", ["feeds", "rings"])
def test_a_new_feed_where_idle_feeds_of_jobs_fill_the_limit(daemon, demo_file, limit):
    """A reload closes a feed that a job sent and no worker reads, as an OPEN does."""
    limits = "limits: {feeds: 3}\n" if limit == "feeds" else ""
    one = daemon(DATASETS.format(path=demo_file) + limits + "feeds:\n" + TRAIN, rings="1MiB")
    jobs = [one.client(), one.client()]
    for index, client in enumerate(jobs):
        slots = 3 if limit == "feeds" else 80
        client.open(spec=f"{SPEC}slots: {slots}\nseed: {index}\n", job=f"job {index}")
    rewrite(one, more=PROBE if limit == "feeds" else PROBE.replace("global_batch: 4", "global_batch: 4\n    slots: 100"))
    refused(one, "limits.feeds: 3, but there would be 4 feeds" if limit == "feeds" else "memory.rings")
    jobs[0].close()
    applied(one)
    assert "closed, because no worker reads it and another feed needs room" in one.text()
    jobs[1].next().release()  # the feed of the other job goes on
    jobs[1].close()
    client = one.client()
    client.open("probe")
    client.close()


def test_datasets_come_and_go(one, demo_file, tmp_path):
    other = tmp_path / "other.hdf5"
    other.write_bytes(demo_file.read_bytes())
    worker = one.client()
    worker.open("train")
    more = f"  more: {{path: {other}, layout: demo}}\n"
    rewrite(one, ("feeds:\n", more + "feeds:\n"), more=PROBE.replace("dataset: demo", "dataset: more"))
    refused(one, "memory.store: the datasets that stay have all of its 64 MiB: raise it to make room for datasets.more")
    rewrite(one, ("store: 64MiB", "store: 96MiB"))
    assert reload(one) == (0, "new feeds: probe; new or changed datasets: more; keys: memory.store")
    read(worker)
    stores = {d["name"]: d["store"]["budget_bytes"] >> 20 for d in worker.status()["datasets"]}
    assert stores == {"demo": 64, "more": 32}
    sent = one.client()
    read(sent, spec=SPEC.replace("demo", "more"))
    rewrite(one, (str(other), str(demo_file)))
    refused(one, "datasets.more: was changed or removed, feed spec:")
    sent.close()
    said = applied(one)
    assert "changed feeds: probe" in said and "feeds gone: spec:" in said and "changed datasets: more" in said, said
    rewrite(one, (f"  more: {{path: {demo_file}, layout: demo}}\n", ""), (PROBE.replace("dataset: demo", "dataset: more"), ""),
            ("store: 96MiB", "store: 48MiB"))
    refused(one, "memory.store: 48 MiB, but the datasets that stay have 64 MiB: it cannot shrink")
    rewrite(one, ("store: 48MiB", "store: 80MiB"))
    assert reload(one) == (0, "feeds gone: probe; datasets gone: more; keys: memory.store")
    assert worker.status()["datasets"][0]["store"]["budget_bytes"] == 80 << 20
    read(worker)


def test_statistics_of_another_feed_go_with_it(daemon, demo_file):
    normed = TRAIN.replace("at: 0..3", "at: 0..3, norm: mean_std")
    one = daemon(DATASETS.format(path=demo_file) + "feeds:\n" + normed + normed.replace("train", "test") + "    statistics_from: train\n")
    worker = one.client()
    worker.open("test")
    rewrite(one, ("global_batch: 8", "global_batch: 8\n    split: 0..0.5"))
    refused(one, "feeds.train: was changed, feed test takes its statistics from it")
    worker.close()
    assert applied(one) == "changed feeds: train, test"


def test_statistics_that_a_job_asked_for_go_too(daemon, demo_file):
    one = daemon(DATASETS.format(path=demo_file) + "feeds:\n" + TRAIN.replace("at: 0..3", "at: 0..3, norm: mean_std") + PROBE)
    worker = one.client()
    read(worker, spec=SPEC.replace("at: 0", "at: 0, norm: mean_std") + "statistics_from: train\n")
    rewrite(one, ("global_batch: 4", "global_batch: 6"))
    assert applied(one) == "changed feeds: probe"
    rewrite(one, ("global_batch: 8", "global_batch: 8\n    split: 0..0.5"))
    refused(one, "feeds.train: was changed, feed spec:", "takes its statistics from it")
    worker.close()
    assert applied(one).startswith("changed feeds: train; feeds gone: spec:")


def test_the_service_manager_is_told(one, tmp_path, demo_file):
    one.stop()
    path = tmp_path / "notify"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))
    listener.settimeout(20)
    os.environ["NOTIFY_SOCKET"] = str(path)
    try:
        one.start()
    finally:
        del os.environ["NOTIFY_SOCKET"]

    assert listener.recv(4096) == b"STATUS=opening datasets and feeds"

    def told():
        while (text := listener.recv(4096).decode()).startswith(("STATUS", "WATCHDOG")):
            pass
        return text

    assert told() == "READY=1"
    for batch in ("16", "nonsense"):
        rewrite(one, ("global_batch: ", f"global_batch: {batch} #"))
        one.process.send_signal(signal.SIGHUP)
        first, usec = told().split("\n")
        assert first == "RELOADING=1" and int(usec.removeprefix("MONOTONIC_USEC=")) > 0
        assert told() == "READY=1"


def test_where_there_are_more_feeds_than_a_status_has_room_for(daemon, demo_file):
    count = 48
    one = daemon(DATASETS.format(path=demo_file) + "limits: {feeds: 64}\nfeeds:\n" +
                 "".join(PROBE.replace("probe", f"one_of_many_that_are_alike_{n:02}") + "    slots: 3\n" for n in range(count)))
    assert reload(one) == (0, "nothing has changed")
    client = one.client()
    status = client.status()
    assert status["datasets"][0]["name"] == "demo" and status["reload"]["count"] == 1
    assert 0 < status["producers_not_shown"] == count - len(status["producers"]) < count
    client.close()


def test_what_the_command_line_says_stays(tmp_path, demo_file):
    one = Daemon(tmp_path, DATASETS.format(path=demo_file) + "feeds:\n" + TRAIN)
    with open(one.log, "a") as log:
        one.process = subprocess.Popen([one.program, "--config", one.config, "--set", "memory.store=5%", "--set", "feed_idle=3s"],
                                       env=one.environment(), stderr=log)
    wait_for(lambda: "ready after" in one.text() or one.process.poll() is not None, 60, "READY")
    rewrite(one, ("store: 64MiB", "store: 1GiB"), more=PROBE)
    assert reload(one) == (0, "new feeds: probe")  # 5% of the memory that is free now would be another number
    one.stop()


def test_nobody_is_there(tmp_path):
    for arguments, code, message in ((["--endpoint", tmp_path], 1, "no daemon is running there"), (["--endpoint", "tcp://a:1"], 2, "on this machine"),
                                     (["--now"], 2, "usage: trajctl reload")):
        done = subprocess.run([TRAJCTL, "reload", *arguments], capture_output=True, text=True)
        assert done.returncode == code and message in done.stderr, done.stderr


def test_workers_open_and_read_while_feeds_come_and_go(one, demo_file):
    """Reloads in a row, with workers that open and close a feed that stays. They do not notice, and no resource
    leaks."""
    failures, stop = [], threading.Event()

    def work(number):
        try:
            while not stop.is_set():
                client = one.client()
                client.open("train", job=str(number % 2))
                for _ in range(3):
                    client.next().release()
                client.close()
        except Exception as error:
            failures.append(error)

    def descriptors():
        return sum(not path.endswith(".journal") for path in one.open_files().values())

    assert reload(one)[0] == 0
    before = descriptors()
    workers = [threading.Thread(target=work, args=[n]) for n in range(3)]
    for worker in workers:
        worker.start()
    good = one.config.read_text()
    for turn in range(12):
        one.config.write_text(good + (PROBE.replace("global_batch: 4", f"global_batch: {4 + turn}") if turn % 3 else ""))
        code, said = reload(one)
        assert code == 0, said
    one.config.write_text(good)
    assert reload(one)[0] == 0
    stop.set()
    for worker in workers:
        worker.join()
    assert not failures, failures
    wait_for(lambda: descriptors() <= before + 1, 60, "descriptors to be given back")  # the second job has a ring of its own


@pytest.mark.slow
def test_an_open_while_the_daemon_ends_waits_for_its_return(daemon, demo_file):
    """A daemon restarts while a worker begins its next epoch. The worker waits and goes on."""
    one = daemon(DATASETS.format(path=demo_file) + "feeds:\n" + TRAIN)
    holder, late = one.client(), one.client(reconnect=True, timeout_ms=60000)
    holder.open("train")
    held = holder.next()  # the drain lasts until then
    opened = []
    one.process.terminate()
    wait_for(lambda: "stopping" in one.text(), what="the end to begin")
    opener = threading.Thread(target=lambda: opened.append(late.open("train", job="late")))
    opener.start()
    wait_for(lambda: one.process.poll() is not None, what="the end")
    assert opener.is_alive() and not opened
    one.start()
    opener.join(60)
    assert opened and opened[0].window_count
    read(late)
    late.close()
    held.release()
    holder.close()
    hasty = one.client()  # a client without reconnecting gets the error
    one.process.terminate()
    wait_for(lambda: one.process.poll() is not None, what="the end")
    with pytest.raises(Exception):
        hasty.open("train", timeout_ms=3000)


class Busy(Preloaded):
    library = "late_threads"


def test_a_signal_when_threads_have_hardly_begun(tmp_path, demo_file):
    """Threads that start late block the main thread's signals, too: a signal in another thread would end the daemon."""
    one = Busy(tmp_path, DATASETS.format(path=demo_file) + "feeds:\n" + TRAIN).start()
    wanted = sum(1 << number - 1 for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    blocked = one.signals_of_threads()
    one.stop()
    assert len(blocked) > 3 and all(mask & wanted == wanted for mask in blocked), blocked


def test_new_files_are_taken_where_nobody_reads(daemon, demo_file, tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    shutil.copy(demo_file, folder / "a.hdf5")
    one = daemon(f"datasets:\n  lab: {{path: '{folder}/*.hdf5', layout: demo}}\nfeeds:\n" + TRAIN.replace("demo", "lab"))
    assert reload(one) == (0, "nothing has changed")
    worker = one.client()
    before = worker.open("train")
    fingerprint = before.fingerprint
    shutil.copy(demo_file, folder / "b.hdf5")
    said = "files of lab: 1 new, not taken: workers read the dataset; reload after they have ended, or configure the path under another name, too"
    assert reload(one) == (0, said)
    read(worker)
    assert worker.open("train").fingerprint == fingerprint
    rewrite(one, ("feeds:\n", f"  lab_too: {{path: '{folder}/*.hdf5', layout: demo}}\nfeeds:\n"), ("store: 64MiB", "store: 128MiB"),
            more=PROBE.replace("dataset: demo", "dataset: lab_too"))
    assert reload(one) == (0, "new feeds: probe; new or changed datasets: lab_too; " + said + "; keys: memory.store")
    reader = one.client()
    assert reader.open("probe").window_count == 2 * before.window_count
    reader.close()
    worker.close()
    done = wait_for(lambda: (done := reload(one)) and "not taken" not in done[1] and done)
    assert done == (0, "changed feeds: train; new or changed datasets: lab; files of lab: 1 new")
    worker = one.client()
    after = worker.open("train")
    assert after.window_count == 2 * before.window_count and after.fingerprint != fingerprint
    worker.close()
    (folder / "a.hdf5").unlink()
    os.utime(folder / "b.hdf5", (1, 1))
    told = []  # until the daemon notices that the worker has gone, only the other dataset's files are opened again
    wait_for(lambda: told.append(reload(one)) or "not taken" not in told[-1][1])
    assert all(status == 0 for status, _ in told), told
    assert all(any(f"files of {name}: 1 changed, 1 gone" in said for _, said in told) for name in ("lab", "lab_too")), told
    (folder / "b.hdf5").unlink()
    assert reload(one) == (0, "nothing has changed")  # there is nothing to be opened: what was there is kept
    assert "dataset lab: cannot look for new files: " in one.text()
    last = one.client()
    assert last.open("train").window_count == before.window_count
    last.close()


def test_new_files_that_have_room_one_after_the_other(tmp_path, demo_file):
    """A dataset that is opened again takes memory beside the old one for a while. There is room for one of two, and
    later for none."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        shutil.copy(demo_file, folder / "1.hdf5")
    one = Short(tmp_path / "daemon", "datasets:\n" + "".join(f"  {f.name}: {{path: {f}, layout: demo}}\n" for f in folders) + "feeds:\n" +
                TRAIN.replace("demo", "a") + PROBE.replace("demo", "b"))
    one.leave(1000)
    one.start()

    def add(*folders, number):
        for folder in folders:
            shutil.copy(demo_file, folder / f"{number}.hdf5")

    add(*folders, number=2)
    one.leave(50)  # each has 32 MiB of the store
    assert reload(one) == (0, "changed feeds: train; new or changed datasets: a; files of a: 1 new; files of b: 1 new, not taken: there is no "
                              "memory for it beside the other new datasets; reload again")
    assert reload(one) == (0, "changed feeds: probe; new or changed datasets: b; files of b: 1 new")
    assert reload(one) == (0, "nothing has changed")
    add(*folders, number=3)
    one.leave(20)
    restart = "not taken: there is no memory for it beside the one that is open; restart the daemon"
    assert reload(one) == (0, f"files of a: 1 new, {restart}; files of b: 1 new, {restart}")
    client = one.client()
    windows = {name: client.open(name).window_count for name in ("train", "probe")}
    client.close()
    one.leave(1000)
    done = wait_for(lambda: (done := reload(one)) and "not taken" not in done[1] and "nothing" in done[1] and done)
    assert done == (0, "nothing has changed")  # after one or two reloads all of them were opened
    client = one.client()
    assert {name: client.open(name).window_count * 2 for name in windows} == {name: count * 3 for name, count in windows.items()}
    client.close()
    one.stop()
