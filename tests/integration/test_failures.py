"""Workers and daemons that are killed, stopped and restarted. Every window is accounted for."""
import os
import signal
import struct
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from daemons import smallest, smallest_config
from feeds import SMALL_BATCHES
from paths import BUILD, SUPPORT
from waiting import wait_for
from workers import Worker, finish, wait_for_done


def test_one_worker_gets_every_window_once(daemon, demo_file):
    worker = Worker(daemon(SMALL_BATCHES.format(path=demo_file)))
    finish(worker)
    assert sorted(worker.ids()) == list(range(worker.said[0]["windows"]))


def test_two_workers_share_an_epoch(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    workers = [Worker(one, "--pace"), Worker(one, "--pace")]
    for worker in workers:
        worker.read("open")
    for worker in workers:
        worker.process.stdin.close()
    for worker in workers:
        finish(worker)
    ids = [i for worker in workers for i in worker.ids()]
    assert sorted(ids) == list(range(workers[0].said[0]["windows"]))


def test_a_killed_workers_leases_go_to_another(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    victim = Worker(one, "--hold", 3, "--credit", 4)
    victim.read("holding")
    wait_for_done(one, 2)
    heir = Worker(one)
    heir.read("batch")
    victim.kill()
    finish(heir)
    held = victim.batches()
    assert len(held) == 3
    # The request for the second batch made the first one DONE, and so on. The last held batch was not DONE.
    done = [i for batch in held[:2] for i in batch["ids"]]
    assert sorted(heir.ids() + done) == list(range(heir.said[0]["windows"]))
    assert set(held[2]["ids"]) <= set(heir.ids())


FORKING = """
import os, sys, time
sys.path.insert(0, {folder!r})
import libtrajd as trajd
client = trajd.Client(trajd.load({build!r}), {endpoint!r})
client.open("train", credit=2)
client.next()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("forked", flush=True)
time.sleep(600)
"""


def test_a_killed_worker_whose_children_live_on(daemon, demo_file):
    """A DataLoader's children live on when their parent is killed. The session of the parent ends all the same."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    text = FORKING.format(folder=str(SUPPORT), build=str(BUILD), endpoint=str(one.endpoint))
    victim = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert victim.stdout.readline() == "forked\n"
    client = one.client()
    assert len(client.status()["sessions"]) == 2
    victim.kill()
    victim.wait()
    wait_for(lambda: len(client.status()["sessions"]) == 1, what="the session's end")
    heir = Worker(one)
    finish(heir)
    assert sorted(heir.ids()) == list(range(heir.said[0]["windows"]))
    victim.stdin.close()
    assert victim.stdout.read() == ""  # the forked child had it open until now
    client.close()


def test_a_stopped_worker_holds_up_nobody_and_goes_on(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    sleeper = Worker(one, "--pace", "--credit", 2)
    sleeper.read("open")
    sleeper.go()
    sleeper.read("batch")
    sleeper.signal(signal.SIGSTOP)
    other = Worker(one)
    other.read("open")
    length = other.said[0]["windows"]
    while sum(len(b["ids"]) for b in other.batches()) < length - 16 * 2 - 16:  # all except those that the stopped worker may hold
        other.read("batch")
    sleeper.signal(signal.SIGCONT)
    for _ in range(4):
        try:
            sleeper.go()
        except BrokenPipeError:
            break
    finish(sleeper)
    finish(other)
    assert sorted(sleeper.ids() + other.ids()) == list(range(length))


def test_the_last_batch_is_held_while_the_next_is_asked_for(daemon, demo_file):
    client = daemon(SMALL_BATCHES.format(path=demo_file)).client()
    client.open("train")
    last = None
    while (batch := client.next()) is not None:
        if last:
            last.release()
        last = batch
    last.release()
    client.close()


def test_daemon_killed_and_restarted_with_a_worker_attached(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    worker = Worker(one, "--pace", "--credit", 2)
    worker.read("open")
    for _ in range(5):
        worker.go()
        worker.read("batch")
    wait_for_done(one, 5)
    one.kill()
    one.start()
    worker.process.stdin.close()  # the remaining batches, without a pause
    finish(worker)
    assert sorted(worker.ids()) == list(range(worker.said[0]["windows"]))


@pytest.mark.parametrize("kill", ["daemon", "worker"])
def test_shard_repeats_and_loses_nothing(daemon, demo_file, kill):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    ranks = [Worker(one, "--pace", "--rank", rank, "--world", 2) for rank in range(2)]
    for worker in ranks:
        worker.read("open")
    for _ in range(4):
        for worker in ranks:
            worker.go()
        for worker in ranks:
            worker.read("batch")
    if kill == "daemon":
        one.kill()
        one.start()
    else:
        ranks[1].kill()
        position = ranks[1].batches()[-1]["position"]  # by its own state; the daemon may count more batches as DONE
        again = Worker(one, "--rank", 1, "--world", 2, "--position", position)
        opened = again.read("open")
        again.said += [b for b in ranks[1].batches() if b["position"] < opened["next"]]
        ranks[1] = again
    for worker in ranks:
        worker.process.stdin.close()
    for worker in ranks:
        finish(worker)
    length = next(line["windows"] for line in ranks[0].said if line["event"] == "open")
    assert sorted(ranks[0].ids() + ranks[1].ids()) == list(range(length))


def test_second_daemon_is_refused(daemon, demo_file, tmp_path):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    done = one.run()
    assert done.returncode == 1 and str(one.process.pid) in done.stderr, done.stderr
    worker = Worker(one)  # and the first feed is not affected
    finish(worker)


def test_unknown_feed_names_those_there_are(daemon, demo_file):
    client = daemon(SMALL_BATCHES.format(path=demo_file)).client()
    with pytest.raises(trajd.TrajdError, match="there is no feed trian .*train"):
        client.open("trian")
    client.close()


def test_no_daemon(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(trajd.TrajdError) as caught:
        trajd.Client(trajd.load(BUILD), tmp_path / "run", timeout_ms=200)
    assert caught.value.status == trajd.TIMEOUT and str(tmp_path) in str(caught.value)


@pytest.mark.slow
def test_daemon_ends_while_a_worker_waits(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    client = one.client()
    client.open("train")
    client.next().release()
    one.stop()
    with pytest.raises(trajd.TrajdError) as caught:
        while True:
            client.next().release()
    assert caught.value.status == trajd.CLOSED
    client.close()


def test_a_file_that_goes_bad_is_an_error_in_the_worker(daemon, demo_file, tmp_path):
    path = tmp_path / "demo.hdf5"
    path.write_bytes(demo_file.read_bytes())
    one = daemon(SMALL_BATCHES.format(path=path), store="64KiB")  # rows are read batch by batch
    client = one.client()
    client.open("train")
    client.next().release()
    os.truncate(path, 100000)
    with pytest.raises(trajd.TrajdError, match="demo.hdf5") as caught:
        while (batch := client.next()) is not None:
            batch.release()
    assert caught.value.status == trajd.DATA
    client.close()


def test_rows_without_room_beside_those_that_stay_are_an_error(daemon, tmp_path):
    """One feed's rows stay in memory as long as the feed exists. An episode of another feed that does not fit
    beside them is an error at once."""
    path, layout = tmp_path / "wide.hdf5", tmp_path / "wide.yaml"
    with h5py.File(path, "w") as file:
        for i in range(8):
            episode = file.create_group(f"data/demo_{i}")
            episode["small"] = np.zeros((100, 750), np.float32)
            episode["large"] = np.zeros((100, 4700), np.float32)
    layout.write_text("""
layout: wide
episodes: {files: "*.hdf5", groups: /data/*}
clocks: {steps: {rate: 20}}
streams:
  small: {path: small, clock: steps, kind: previous}
  large: {path: large, clock: steps, kind: previous}
""")
    one = daemon(f"""
datasets: {{wide: {{path: {path}, layout: {layout}}}}}
feeds:
  small: {{dataset: wide, global_batch: 4, anchor: {{clock: steps}}, outputs: {{small: {{at: 0}}}}}}
  large: {{dataset: wide, global_batch: 4, anchor: {{clock: steps}}, outputs: {{large: {{at: 0}}}}}}
""", store="4MiB")
    client = one.client()
    client.open("large")
    with pytest.raises(trajd.TrajdError, match=r"demo_\d needs 1\d+ bytes of rows; the row cache has 4194304 bytes, of which 2\d+ are in use") as caught:
        client.next()
    assert caught.value.status == trajd.DATA
    client.open("small")
    client.next().release()
    client.close()


def test_bad_rows_that_are_kept_are_nan_and_masked(daemon, demo_file, tmp_path):
    path = tmp_path / "demo.hdf5"
    path.write_bytes(demo_file.read_bytes())
    config = SMALL_BATCHES.format(path=path).replace("tail: short", "tail: short\n    bad_rows: keep\n    pad: {after: any, with: zero}")
    client = daemon(config, store="64KiB").client()
    info = client.open("train")
    os.truncate(path, path.stat().st_size // 2)
    rows = bad = 0
    for _, arrays in client.epoch():
        missing = arrays["actions.mask"][:, 0] == 6
        assert np.isnan(arrays["actions"][missing]).all() and np.isfinite(arrays["actions"][~missing]).all()
        rows += len(missing)
        bad += missing.sum()
    assert rows == info.window_count and 0 < bad
    client.close()


def test_two_feeds_share_a_store_that_is_too_small_for_both(daemon, demo_file):
    config = SMALL_BATCHES.format(path=demo_file) + SMALL_BATCHES.format(path=demo_file).split("feeds:\n")[1].replace("  train:", "  other:", 1)
    one = daemon(config, store="160KiB")
    clients = [one.client() for _ in range(2)]
    infos = [client.open(feed) for client, feed in zip(clients, ("train", "other"))]
    counts = [0, 0]
    ended = [False, False]
    while not all(ended):
        for i, client in enumerate(clients):
            if ended[i]:
                continue
            batch = client.next()
            ended[i] = batch is None
            if batch:
                counts[i] += batch.rows
                batch.release()
    assert counts == [info.window_count for info in infos]
    for client in clients:
        client.close()


def test_a_feed_sent_by_a_job_is_closed_when_idle_and_opened_again(daemon, demo_file):
    one = daemon(f"feed_idle: 200ms\ndatasets: {{demo: {{path: {demo_file}, layout: demo}}}}")
    spec = smallest()
    for _ in range(2):
        client = one.client()
        client.open(spec=spec)
        client.next().release()
        client.close()
        watcher = one.client()
        wait_for(lambda: not watcher.status()["producers"], what="the idle feed to close")
        watcher.close()


def test_an_episode_without_the_clock_of_a_stream(daemon, demo_file, tmp_path):
    """`missing: zero` for an observation whose clock an episode lacks."""
    path, layout = tmp_path / "some.hdf5", tmp_path / "some.yaml"
    with h5py.File(path, "w") as file:
        for e in range(4):
            demo = file.create_group(f"data/demo_{e}")
            demo["t"] = np.arange(20) * 50_000_000
            demo["x"] = np.arange(20.0)
            if e % 2:
                demo["force_t"] = np.arange(50) * 20_000_000
                demo["force"] = np.ones((50, 3))
    layout.write_text("layout: some\nepisodes: {files: '*.hdf5', groups: /data/demo_*}\n"
                      "clocks: {main: {path: t, unit: ns}, force: {path: force_t, unit: ns}}\n"
                      "streams: {x: {path: x, clock: main, kind: linear}, force: {path: force, clock: force, kind: linear, optional: true}}\n")
    one = daemon(f"""
datasets: {{some: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: some
    global_batch: 8
    anchor: {{clock: main}}
    outputs: {{x: {{at: 0}}, force: {{at: -1..0, missing: zero}}}}
""")
    client = one.client()
    client.open("train")
    for _, arrays in client.epoch():
        lacks = arrays["episode_index"] % 2 == 0
        assert (arrays["force.mask"][lacks] == 6).all() and (arrays["force"][lacks] == 0).all()
        assert (arrays["force"][~lacks] == 1).all()
    client.close()


def test_garbage_on_both_sockets(daemon, demo_file):
    import socket
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    raw.connect(str(one.endpoint / "feed.sock"))
    raw.sendall(os.urandom(4096))
    descriptors = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptors.connect(str(one.endpoint / "fd.sock"))
    descriptors.send(os.urandom(16))
    assert descriptors.recv(16) == b""  # closed: no client has that token
    finish(Worker(one))
    raw.close()
    wait_for(lambda: one.process.poll() is None, what="the daemon to live")


def test_journals_of_jobs_that_do_not_come_back_go(daemon, demo_file):
    one = daemon("journal_idle: 30d\n" + smallest_config(demo_file, batch=4))

    def journals():
        return sorted(path.name.split("@")[0] for path in (one.folder / "state").glob("*.journal"))

    def work(job):
        client = one.client()
        client.open("train", job=job)
        client.next().release()
        client.close()

    for job in ("new", "old"):
        work(job)
    assert journals() == ["new", "old"]
    one.stop()
    for path in (one.folder / "state").glob("old@*.journal"):
        with open(path, "r+b") as journal:  # it was found unused on 29 days, the last of them yesterday
            journal.seek(32)
            journal.write(struct.pack("<II", 29, int(time.time()) // 86400 - 1))
    one.start()
    wait_for(lambda: journals() == ["new"])
    wait_for(lambda: "removed 1 journals that were unused for 30 days (journal_idle)" in one.text())
    work("old")
    assert journals() == ["new", "old"]
