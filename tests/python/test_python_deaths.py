"""A daemon that dies at random moments while the program saves the state at each batch, as the loop of README.md does."""
import itertools
import os
import pathlib
import random
import re
import signal
import tempfile
import threading

import pytest
import trajd
from daemons import private_daemons
from feeds import policy_feed
from paths import PROGRAM
from waiting import wait_for
from workers import Worker, finish

KILLS = 50  # of each of the four ways to read


class Operator:
    """Kills the daemon of an endpoint and starts it again."""

    def __init__(self, one):
        self.one, self.endpoint = one, one.endpoint

    def restart(self, number):
        self.one.process.send_signal(number)
        self.one.process.wait()
        self.one.start()


class Owner:
    """Kills a private daemon, which the package starts again."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def endpoint(self):
        return next(pathlib.Path(self.folder).glob("trajd-*/*/run"))

    def restart(self, number):
        before = wait_for(lambda: private_daemons(self.folder), what="a private daemon")
        os.kill(before[0], number)
        wait_for(lambda: [pid for pid in private_daemons(self.folder) if pid not in before], what="its return")


class Killer(threading.Thread):
    """Kills the daemon `count` times, at moments that `seed` draws. Some of them find the feed before its return."""

    def __init__(self, owner, seed, count, number=signal.SIGKILL):
        super().__init__(daemon=True)
        self.owner, self.random, self.count, self.number = owner, random.Random(seed), count, number
        self.is_over = threading.Event()
        self.error = None

    def run(self):
        try:
            for _ in range(self.count):
                self.is_over.wait(self.random.uniform(0, 0.15))
                self.owner.restart(self.number)
        except BaseException as error:
            self.error = error
        self.is_over.set()


def train(feed, killer):
    """Reads epochs until the killer is over. Returns a list of (epoch, window ids, state), one of each batch."""
    steps = []
    killer.start()
    for epoch in itertools.count():
        feed.set_epoch(epoch)
        for batch in feed:
            steps.append((epoch, [int(i) for i in batch["window_id"]], feed.state_dict()))
        if killer.is_over.is_set():
            break
    killer.join()
    assert killer.error is None, killer.error
    return steps


def check(steps, endpoint, seed):
    """Checks the order of all windows, each state, and that a fresh run continues at some of the states."""
    def run(epoch, state=None):
        with trajd.connect(endpoint, feed="train", job=f"fresh {seed}", mode="queue") as feed:
            if state is not None:
                feed.load_state_dict(state)
            return [(epoch, batch.window_id.tolist()) for batch in feed.epoch(epoch)]

    whole = [batch for epoch in range(steps[-1][0] + 1) for batch in run(epoch)]
    assert [(epoch, ids) for epoch, ids, _ in steps] == whole, "a window was lost or came again"
    with trajd.connect(endpoint, feed="train", mode="shard") as feed:
        info = feed.info
    position = {}
    for epoch, ids, state in steps:
        position[epoch] = min(position.get(epoch, 0) + info.global_batch, info.epoch_length)
        assert (state["epoch"], state["position"], state.get("token")) == (epoch, position[epoch], None)
    for at in random.Random(seed).sample(range(len(steps)), 5):
        epoch, _, state = steps[at]
        assert run(epoch, state) == [batch for batch in whole[at + 1:] if batch[0] == epoch]


def read(mode, endpoint):
    if mode == "dataset":
        pytest.importorskip("torch")
        from trajd.torch import FeedDataset
        return FeedDataset(endpoint=str(endpoint), feed="train", mode="queue")
    return trajd.connect(endpoint, feed="train", mode=mode)


def run_with_deaths(one, mode, seed, *arguments):
    feed = read(mode, one.endpoint)
    steps = train(feed, Killer(Operator(one), seed, *arguments))
    feed.close()
    check(steps, one.endpoint, seed)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shard", "queue", "dataset"])
def test_a_daemon_that_is_killed_at_random_moments(daemon, demo_file, mode):
    run_with_deaths(daemon(policy_feed(demo_file)), mode, 7, KILLS)


def test_a_daemon_that_is_killed_a_few_times(daemon, demo_file):
    run_with_deaths(daemon(policy_feed(demo_file)), "queue", 8, 4)


@pytest.mark.slow
def test_a_daemon_that_a_service_manager_restarts(daemon, demo_file):
    run_with_deaths(daemon(policy_feed(demo_file)), "queue", 8, 2, signal.SIGTERM)


@pytest.fixture
def private(demo_file, monkeypatch):
    """A configuration, and the folder of its private daemons."""
    for name in [name for name in os.environ if name.startswith(("TRAJD_", "SLURM_", "MASTER_"))]:
        monkeypatch.delenv(name)
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:  # the path of a socket must be short
        for name, value in {"TRAJD_RUNTIME_DIR": folder, "XDG_CACHE_HOME": folder, "TRAJD_PROGRAM": str(PROGRAM)}.items():
            monkeypatch.setenv(name, value)
        config = pathlib.Path(folder) / "square.yaml"
        config.write_text("version: 2\nmemory: {store: 64MiB, rings: 64MiB, reserve: 0}\n" + policy_feed(demo_file))
        yield config, folder
        for pid in private_daemons(folder):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not private_daemons(folder), what="the end of private daemons")


@pytest.mark.slow
def test_a_private_daemon_that_is_killed_at_random_moments(private, monkeypatch):
    """The package looks for its daemon once a second, and waits longer where it dies often. Here it does neither."""
    config, folder = private
    monkeypatch.setattr("trajd.launch.CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr("trajd.launch.STABLE_AFTER_S", 0.0)
    with trajd.open(config, feed="train") as feed:
        owner = Owner(folder)
        check(train(feed, Killer(owner, 9, KILLS)), owner.endpoint, 9)


# ---- one request at a time ----

REQUESTS = {
    "state": lambda feed: feed.state_dict(),
    "checkpoint": lambda feed: feed.checkpoint(),
    "status": lambda feed: feed.status()["version"],
    "metrics": lambda feed: feed.metrics(),
    "episodes": lambda feed: feed.episodes(),
    "explain": lambda feed: feed.explain(3),
    "statistics": lambda feed: feed.stats(["actions"]),
    "open": lambda feed: next(feed.epoch(1)).window_id.tolist(),
    "load": lambda feed: feed.load_state_dict(feed.state_dict()) or next(iter(feed)).window_id.tolist(),
}


@pytest.fixture
def reading(daemon, demo_file):
    """reading(**options) returns a daemon, and a feed in an epoch."""
    feeds = []

    def begin(**options):
        one = daemon(policy_feed(demo_file))
        feeds.append(trajd.connect(one.endpoint, feed="train", **options))
        next(feeds[-1].epoch(0))
        return one, feeds[-1]

    yield begin
    for feed in feeds:
        feed.close()


def is_in_a_call(feed):
    try:
        feed._client.connected()
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_dies_with_its_daemon_is_sent_again(reading, name):
    """The daemon is stopped, so that the request is on its way, and then killed."""
    one, feed = reading(timeout=60)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(REQUESTS[name](feed)), daemon=True)
    one.process.send_signal(signal.SIGSTOP)
    thread.start()
    wait_for(lambda: is_in_a_call(feed), what="the request")
    one.kill()
    one.start()
    thread.join()
    assert len(answers) == 1 and answers[0]


@pytest.mark.parametrize("name", REQUESTS)
def test_what_a_timeout_has_waited_for(reading, name):
    one, feed = reading(timeout=60)
    feed._connection._timeout = 0.2
    one.kill()
    with pytest.raises(trajd.Timeout, match=rf"the daemon at {one.endpoint} is gone and did not return within 200 ms"):
        REQUESTS[name](feed)


@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_is_waited_for_without_reconnect(reading, name):
    one, feed = reading(timeout=3600, reconnect=False)
    one.kill()
    with pytest.raises(trajd.Closed, match="ended"):
        REQUESTS[name](feed)


@pytest.mark.parametrize("name", REQUESTS)
def test_without_a_timeout_a_request_waits_as_a_batch_does(reading, name, monkeypatch, caplog):
    one, feed = reading()
    monkeypatch.setattr(trajd.connection, "ANSWER_MS", (20, trajd.connection._FOR_EVER_MS))
    monkeypatch.setattr(trajd.feed, "OPEN_MS", (20, 20))
    one.kill()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(REQUESTS[name](feed)), daemon=True)
    thread.start()
    wait_for(lambda: caplog.records, what="the warning")
    assert "is gone and did not return within 20 ms: waiting until it does" in caplog.text
    one.start()
    thread.join()
    assert len(answers) == 1 and answers[0]
    assert caplog.text.count("is gone") == 1


@pytest.mark.parametrize("name", ["state", "checkpoint", "explain", "open"])
def test_a_daemon_that_returns_with_another_feed(reading, name):
    """A question about the feed is not answered about another feed, and is not waited for."""
    one, feed = reading(timeout=3600)
    one.kill()
    one.config.write_text(one.config.read_text().replace("train:", "other:"))
    one.start()
    with pytest.raises(trajd.NotFound, match="train"):
        REQUESTS[name](feed)


# ---- what is not waited for ----

def test_a_daemon_that_does_not_return(reading):
    one, feed = reading(reconnect=0.3)
    one.kill()
    with pytest.raises(trajd.Closed, match="did not return for 0.3 s after its death"):
        feed.state_dict()
    with pytest.raises(trajd.Closed, match="did not return for 0.3 s after its death"):
        list(feed)


@pytest.mark.parametrize("name", ["next", "state"])
def test_a_private_daemon_that_refuses_to_start_again(private, monkeypatch, name):
    """Its configuration was damaged before it died. The feed gets its errors."""
    config, folder = private
    monkeypatch.setattr("trajd.launch.CHECK_INTERVAL_S", 0.02)
    with trajd.open(config, feed="train") as feed:
        epoch = feed.epoch(0)
        next(epoch)
        config.write_text(config.read_text().replace("train:", "train: ["))
        for pid in private_daemons(folder):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(trajd.LaunchError, match="the private daemon died and does not start again: .*square.yaml"):
            while name == "next":
                next(epoch)
            feed.state_dict()


def test_a_rank_that_dies_is_named_in_the_log_of_the_others(daemon, demo_file, caplog):
    one = daemon(policy_feed(demo_file))
    other = Worker(one, "--rank", 1, "--world", 2, "--hold", 1)
    feed = trajd.connect(one.endpoint, feed="train", rank=0, world_size=2, timeout=60)
    other.read("open")
    epoch = feed.epoch(0)
    other.read("holding")
    other.kill()
    waiting = threading.Thread(target=lambda: sum(1 for _ in epoch), daemon=True)
    waiting.start()
    wait_for(lambda: caplog.records, what="the message")
    assert re.search(r'feed train: rank 1 of 2 of job "" .* died: the other ranks wait for another 600 s '
                     r"\(rank_timeout is 600 s\), until \d\d:\d\d:\d\d$", caplog.messages[0])
    finish(Worker(one, "--rank", 1, "--world", 2))
    waiting.join()
    assert caplog.messages[1] == 'feed train: rank 1 of 2 of job "" is back'
    feed.close()
