"""Misuse raises an exception that says what to do."""
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import trajd
from daemons import smallest_config
from paths import PACKAGE
from waiting import wait_for


def connect(one, **options):
    return trajd.connect(str(one.endpoint), **{"spec": {"any": 1}, "timeout": 20, **options})


def test_a_feed_that_does_not_exist(daemon, demo_file):
    one = daemon(smallest_config(demo_file))
    with pytest.raises(trajd.NotFound, match="train"):
        trajd.connect(one.endpoint, feed="trian", timeout=60).info
    with pytest.raises(trajd.ArgumentError, match="outputs.*no such key|anchro"):
        trajd.connect(one.endpoint, spec={"dataset": "demo", "anchro": {"clock": "actions"}, "outputs": {"actions": {"at": "0"}}},
                      timeout=60).info


def test_arguments():
    for options, text in [(dict(feed="a", spec={}), "exactly one"), (dict(), "exactly one"), (dict(feed="a", mode="both"), "queue or shard"),
                          (dict(feed="a", style="lerobt"), "lerobot"), (dict(feed="a", credit=1), "at least 2"),
                          (dict(feed="a", timeout=0), "seconds"), (dict(feed="a", timeout=float("nan")), "seconds"), (dict(feed="a", epoch=-1), "from 0"),
                          (dict(feed="a", device="gpu"), "cuda"),
                          (dict(feed="a", device="cuda", framework="numpy"), "torch"), (dict(feed="a", framework="jax"), "numpy"),
                          (dict(feed="a", device="cuda", credit=2), "at least 3"),
                          (dict(feed="a", rank=2, world_size=2), "rank 2 of 2"), (dict(feed="a", rank=1), "give both"),
                          (dict(feed="a", rank=0, world_size=4, local_ranks=[1, 2]), "own rank 0")]:
        with pytest.raises(trajd.ArgumentError, match=text):
            trajd.connect("/nowhere", **options)
    for options, text in (({"spede": 1}, "no option spede: did you mean spec"), ({"batch_size": 4}, "global_batch"), ({"shuffle": True}, "seed"),
                          ({"num_workers": 4}, "the daemon is the worker pool"), ({"zzzz": 4}, "there are: credit, device")):
        with pytest.raises(TypeError, match=text):
            trajd.connect("/nowhere", feed="a", **options)
        with pytest.raises(TypeError, match=text):
            trajd.open("/nowhere", feed="a", **options)


def test_things_in_the_wrong_place(tmp_path, monkeypatch):
    """No endpoint, no configuration: each is refused at once, where it would wait for ever or say something else."""
    config = tmp_path / "square.yaml"
    config.write_text("version: 2")
    for place in (config, tmp_path / "missing.yaml"):
        with pytest.raises(trajd.ArgumentError, match=r"yaml: this is a file. An endpoint is .* first argument of trajd.open"):
            trajd.connect(str(place), feed="train")
    monkeypatch.setenv("TRAJD_ENDPOINT", str(config))
    with pytest.raises(trajd.ArgumentError, match="this is a file"):
        trajd.connect(feed="train")
    monkeypatch.delenv("TRAJD_ENDPOINT")
    for place in (tmp_path, "tcp://robot:5555"):
        with pytest.raises(trajd.ArgumentError, match=r"this is not a configuration .* endpoint="):
            trajd.open(place, feed="train")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"No such configuration in {tmp_path}: 'missing.yaml'") as caught:
        trajd.open("missing.yaml", feed="train")
    assert caught.value.filename == "missing.yaml" and isinstance(caught.value, trajd.Error)


def test_odd_values(producer):
    feed = connect(producer(), timeout=float("inf"))
    with pytest.raises(trajd.ArgumentError, match="from 0"):
        feed.epoch(-1)
    with pytest.raises(trajd.ArgumentError, match="from 0"):
        feed.set_epoch(-1)
    for odd in ("1", 1.5, None):
        with pytest.raises(TypeError):
            feed.epoch(odd)
        with pytest.raises(TypeError):
            feed.set_epoch(odd)
    assert next(feed.epoch(np.int64(2))).epoch == 2
    epoch = feed.epoch(0)
    batch = next(epoch)
    for key in (0, None, ("obs", "x"), "", "actions/x", "obs/none"):
        with pytest.raises(KeyError, match="there are: "):
            batch[key]
        assert key not in batch
    next(epoch)
    assert len(epoch) == len(feed) == 125, "of the whole epoch, however much of it is over"
    feed.close()
    for options, text in (({"job": "x" * 129}, 'job: "xxx.*longer than 128'), ({"spec": {"x": "y" * 50000}}, "spec: .*longer than 49152"),
                          ({"epoch": (1 << 64) - 2}, None), ({"epoch": (1 << 64) - 1}, "from 0")):
        feed = trajd.connect(str(feed._settings.endpoint), **{"spec": {"any": 1}, "timeout": 20, **options})
        if text is None:
            assert next(iter(feed)).epoch == (1 << 64) - 2
        else:
            with pytest.raises(trajd.ArgumentError, match=text):
                iter(feed)
        feed.close()


def test_no_daemon(tmp_path, caplog):
    with pytest.raises(trajd.Timeout, match="no daemon answers at .*feed.sock"):
        trajd.connect(str(tmp_path), feed="train", timeout=0.2)
    assert issubclass(trajd.Timeout, TimeoutError)


def test_a_daemon_that_comes_late(producer, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("trajd.connection._CONNECT_WARNING_AFTER_S", 0.1)
    begun = []
    thread = threading.Thread(target=lambda: (wait_for(lambda: caplog.records), begun.append(producer())))
    thread.start()
    feed = trajd.connect(str(tmp_path), spec={"any": 1})
    thread.join()
    assert "waiting 600 s for its start (timeout=SECONDS changes that)" in caplog.text and len(feed) == 125
    feed.close()


@pytest.mark.parametrize("options, limit", [({}, "0.3"), ({"reconnect": 0.2}, "0.2"), ({"reconnect": False}, "0.3")])
def test_a_daemon_that_never_comes(tmp_path, caplog, monkeypatch, options, limit):
    """A first connection waits as long as one to a daemon that died."""
    monkeypatch.setattr("trajd.connection._CONNECT_WARNING_AFTER_S", 0.1)
    monkeypatch.setattr("trajd.connection.CONNECT_LIMIT_S", 0.3)
    with pytest.raises(trajd.Timeout, match="no daemon answers at .*feed.sock"):
        trajd.connect(str(tmp_path), feed="train", **options)
    assert f"waiting {limit} s for its start" in caplog.text


def test_two_workers_with_one_rank(daemon, demo_file):
    one = daemon(smallest_config(demo_file))
    first = trajd.connect(one.endpoint, feed="train", rank=0, world_size=2, timeout=60)
    first.epoch(0)
    second = trajd.connect(one.endpoint, feed="train", rank=0, world_size=2, timeout=2)
    with pytest.raises(trajd.Error, match="rank"):
        second.epoch(0)
    first.close(), second.close()


def test_no_batch_in_time(daemon, demo_file):
    one = daemon(smallest_config(demo_file))
    with trajd.connect(one.endpoint, feed="train", rank=0, world_size=2, timeout=1) as feed:
        epoch = feed.epoch(0)
        with pytest.raises(trajd.Timeout, match="no batch in 1 s"):
            next(epoch)


@pytest.mark.slow  # not under the address sanitizer: its allocator may be locked in a child for ever
def test_after_fork(producer):
    feed = connect(producer())
    epoch = feed.epoch(0)
    batch = next(epoch)
    array = batch["actions"]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for call in (lambda: next(epoch), lambda: feed.epoch(1), feed.status):
            try:
                call()
                told.append("nothing")
            except trajd.ForkError as error:
                told.append("ForkError" if "connect again here" in str(error) else str(error))
        told.append(str(float(array.sum())))
        feed.close()
        del batch, array
        os.write(writing, " ".join(told).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert said.split() == ["ForkError"] * 3 + [str(float(array.sum()))]
    assert next(epoch).position == 8
    feed.close()


def test_a_left_epoch(producer):
    feed = connect(producer())
    left = feed.epoch(0)
    next(left)
    feed.epoch(1)
    with pytest.raises(trajd.ArgumentError, match="epoch 0 ended when another epoch"):
        next(left)
    feed.close()
    for call in (lambda: feed.epoch(0), lambda: feed.epoch(1), feed.status):
        with pytest.raises(trajd.Closed, match="closed"):
            call()


def test_two_threads_in_one_feed(producer):
    feed = connect(producer(length=16, delay_us=300000))
    epoch = feed.epoch(0)
    problems = []

    def ask():
        try:
            for _ in range(100):
                feed.status()
        except RuntimeError as error:
            problems.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        list(epoch)
    except RuntimeError as error:
        problems.append(str(error))
    thread.join()
    assert problems and "only one thread at a time" in problems[0]
    feed.close()


def test_feeds_are_not_pickled(producer):
    feed = connect(producer())
    with pytest.raises(TypeError, match="FeedDataset"):
        pickle.dumps(feed)
    feed.close()


@pytest.mark.parametrize("where", ["connect", "next"])
def test_interrupt(producer, tmp_path, where):
    """Ctrl-C ends a wait at once with KeyboardInterrupt. Python's own signal handlers stay as they are."""
    if where == "next":
        producer(delay_us=1000000)
    program = f"""
import signal, sys, trajd
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
if {where!r} == "connect":
    print("waiting", flush=True)
    trajd.connect({str(tmp_path / "none")!r}, feed="x")
feed = trajd.connect({str(tmp_path)!r}, spec={{"a": 1}})
print("waiting", flush=True)
try:
    for batch in feed.epoch(0): pass
except KeyboardInterrupt:
    feed.close()
    raise
"""
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(PACKAGE)}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)  # during the wait itself: before it, the test would see Python's own handler
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - begin < 20  # at once, on a busy machine
    assert "KeyboardInterrupt" in said and process.returncode in (1, -signal.SIGINT), said


@pytest.mark.slow  # not under the address sanitizer: its allocator may be locked in a child for ever
def test_a_feed_made_in_a_forked_process_is_its_own(producer):
    """A feed that a forked process opens is closed when that process ends. The parent's feed, which the child
    inherited, is not."""
    one = producer(length=4000)
    program = f"""
import os, sys, trajd
first = trajd.connect({str(one.endpoint)!r}, spec={{"any": 1}}, timeout=60)
epoch = first.epoch(0)
positions = [next(epoch).position]
child = os.fork()
if child == 0:
    own = trajd.connect({str(one.endpoint)!r}, spec={{"any": 1}}, timeout=60)
    print(next(own.epoch(0)).position, flush=True)
    sys.exit(0)  # with all that ends a Python
assert os.waitpid(child, 0)[1] == 0
positions += [batch.position for batch in epoch]
print(*positions)
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(PACKAGE)}, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    childs, *others = map(int, done.stdout.split())
    assert sorted([childs, *others]) == list(range(0, 4000, 8)), "the child's batch is DONE, what else it was sent went to the other"
    with connect(one) as feed:
        wait_for(lambda: len(feed.status()["sessions"]) == 1, what="the others to be gone")


def test_a_feed_that_nobody_has_any_more_is_gone(producer):
    """A notebook's cell runs again: neither the abandoned loop nor its last batch keeps the old feed and its credit."""
    one = producer(slots=4, length=4000)
    kept = None
    for _ in range(5):
        feed = connect(one, timeout=60)
        for batch in feed:
            break
        assert batch.rows == 8
        if kept is not None:
            assert kept["actions"].shape[0] == 8
            with pytest.raises(trajd.Closed, match="keep a reference to the feed"):
                kept.explain(0)
        kept = batch
    wait_for(lambda: len(feed.status()["sessions"]) == 1, what="the sessions before to be gone")
    feed.close()


@pytest.mark.parametrize("keeps", [lambda batch: batch, lambda batch: batch["actions"], lambda batch: batch["actions"][:2, :1]])
def test_what_is_kept_of_a_closed_feed_takes_no_batches(producer, keeps):
    """A kept array keeps the session alive, but takes no batches: all batches of its feed go to others, even where
    the Batch object is gone."""
    one = producer(slots=4, length=80)
    first = connect(one, timeout=60)
    kept = keeps(next(first.epoch(0)))
    first.close()
    second = connect(one, timeout=60)
    positions = [batch.position for batch in second.epoch(0)]
    assert positions[-1] == 72 and len(positions) >= 9
    assert kept is not None
    second.close()


def test_two_feeds_of_one_job_in_one_process(producer):
    one = producer(slots=4, length=4000)
    first, second = connect(one, timeout=60), connect(one, timeout=60)
    kept = first.epoch(0)
    assert next(kept).position == 0
    wait_for(lambda: sum(session["batches_sent"] for session in first.status()["sessions"]) == 5, what="all slots to be with it again")
    epoch = second.epoch(0)
    second._settings = dataclasses.replace(second._settings, timeout=0.2)  # of batches only: the machine may be busy
    with pytest.raises(trajd.Timeout, match="another feed of this process is of the same job.*close"):
        next(epoch)
    first.close()
    second._settings = dataclasses.replace(second._settings, timeout=60)
    assert next(epoch).rows == 8
    second.close()
