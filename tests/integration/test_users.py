"""Workers of several users of the daemon's group: who has mapped a ring that its workers may write to shares it with no other user."""
import numpy as np
import pytest

import libtrajd as trajd
from daemons import FAKE_PROGRAM, GpuDaemon
from fake_gpu import CONFIG, UUID
from feeds import SMALL_BATCHES
from users import ROOT_ALONE, FormerWorker, client_of, serve_group
from waiting import wait_for

pytestmark = ROOT_ALONE
LARGE = SMALL_BATCHES.replace("global_batch: 16", "global_batch: 512").replace("slots: 6", "slots: 40")


@pytest.fixture
def shared(tmp_path, demo_file, started, monkeypatch):
    """shared(config, rings) starts a daemon that serves the group."""
    return lambda config=SMALL_BATCHES, **options: serve_group(tmp_path / "shared", config.format(path=demo_file), started, monkeypatch, **options)


def feeds_of(one):
    """Returns {name: feed} of the status document, in which all sessions are over that have said BYE."""
    client = one.client()
    status = client.status()
    client.close()
    return {feed["name"]: feed for feed in status["feeds"]}


def epoch_of(uid):
    """Reads an epoch as that user. Returns {position: arrays}."""
    client = client_of(uid)
    client.open("train", job="whole")
    batches = dict(client.epoch())
    client.close()
    return batches


def assert_same(one, other):
    assert one.keys() == other.keys()
    for position, arrays in one.items():
        for name, array in arrays.items():
            assert np.array_equal(array, other[position][name]), f"{name} at position {position}"


def test_a_worker_that_has_left_spoils_no_batch_of_another_user(shared):
    """It keeps its mapping of the ring after BYE, and fills it with garbage for ever."""
    one = shared()
    expected = epoch_of(0)
    with FormerWorker(1001, garbage=True):
        assert_same(epoch_of(1002), expected)
        assert len(feeds_of(one)) == 1


def test_users_in_turn_need_the_memory_of_one_ring(shared):
    """The ring of the user before is made again, and its memory is freed, also where a worker keeps it mapped. The same user gets the same ring."""
    one = shared(LARGE, rings="6MiB")
    rings = []
    holders = [FormerWorker(uid) for uid in (1001, 1001, 1002)]
    for uid in (1003, 1003, 1001):
        epoch_of(uid)
        (feed,) = feeds_of(one).values()
        assert feed["user"] == uid and 3 << 20 < feed["ring_bytes"] < 6 << 20
        rings.append(feed["feed_id"])
    assert rings[0] == rings[1] < rings[2]
    assert all(holder.is_ring_empty() for holder in holders)
    assert one.text().count("train: made again, with another ring for another user") == 3


def test_users_at_the_same_time_have_rings_of_their_own(shared):
    one = shared()
    first, second, third = client_of(1001), client_of(1002), client_of(1002)
    first.open("train", job="a")
    second.open("train", job="b")
    third.open("train", job="b")
    feeds = feeds_of(one)
    assert {name: (feed["user"], feed["members"]) for name, feed in feeds.items()} == {"train": (1001, 1), "train#2": (1002, 2)}
    # a user who takes the name of another's job is not let into its ring, and does not split the job
    with pytest.raises(trajd.TrajdError, match='workers of user 1001 read job "a" of feed train, and could write') as refused:
        third.open("train", job="a", timeout_ms=100)
    assert refused.value.status == trajd.BUSY
    for client in (first, second, third):
        client.close()


def test_another_user_without_room_waits(shared):
    shared(LARGE, rings="6MiB")
    first, second = client_of(1001), client_of(1002)
    first.open("train", job="a")
    with pytest.raises(trajd.TrajdError, match="for another user; another ring for this job needs.*raise memory.rings") as refused:
        second.open("train", job="b", timeout_ms=100)
    assert refused.value.status == trajd.BUSY
    first.close()
    second.open("train", job="b")
    second.close()


def test_a_batch_that_is_held_keeps_its_ring(shared):
    """Its worker has left the feed. Another user gets a further ring. The first one goes when the batch is released."""
    one = shared("feed_idle: 100ms\n" + SMALL_BATCHES)
    first, second = client_of(1001), client_of(1002)
    first.open("train", job="a")
    batch = first.next()
    before = batch.copy()
    with pytest.raises(trajd.TrajdError):
        first.open("(closing)")
    second.open("train", job="b")
    assert set(feeds_of(one)) == {"train", "train#2"}
    for _, _ in second.epoch():
        pass
    second.close()
    assert all(np.array_equal(array, before[name]) for name, array in batch.arrays().items())
    wait_for(lambda: set(feeds_of(one)) == {"train"}, what="the end of the further ring")
    batch.release()
    first.close()
    client = client_of(1002)
    client.open("train", job="c")
    assert [feed["user"] for feed in feeds_of(one).values()] == [1002]
    client.close()


def test_a_feed_stays_while_a_batch_of_it_is_held(shared):
    """Its ring counts in memory.rings, though its worker reads another feed. Feeds that nobody reads or holds are closed after feed_idle."""
    one = shared("feed_idle: 100ms\n" + SMALL_BATCHES)
    client = client_of(1001)
    spec = "{{dataset: demo, global_batch: 16, anchor: {{clock: actions}}, outputs: {{actions: {{at: {}}}}}}}"
    held = client.open(spec=spec.format(0)) and client.next()
    before = held.copy()
    client.open(spec=spec.format(1))
    client.next().release()
    client.open("train")
    wait_for(lambda: len(feeds_of(one)) == 2, what="the end of the feed that nobody holds")
    assert all(np.array_equal(array, before[name]) for name, array in held.arrays().items())
    held.release()
    wait_for(lambda: set(feeds_of(one)) == {"train"}, what="the end of the other feed")
    client.close()


def test_users_in_turn_on_a_gpu(tmp_path, demo_file, started, monkeypatch):
    """Whoever has opened the memory can write to it, also with fan_out."""
    config = CONFIG.format(data=demo_file, gpu="", slots="4\n        fan_out: {jobs: 2}")
    one = serve_group(tmp_path / "shared", config, started, monkeypatch, GpuDaemon, program=FAKE_PROGRAM)
    first, second = client_of(1001), client_of(1002)
    assert first.open("train", job="a", gpu=UUID).gpu is not None
    name = f"train@{UUID}"
    ring = feeds_of(one)[name]["feed_id"]
    first.close()
    assert second.open("train", job="b", gpu=UUID).gpu is not None
    assert feeds_of(one)[name]["feed_id"] > ring and feeds_of(one)[name]["user"] == 1002
    second.close()


def test_users_share_a_ring_that_is_read_only(shared):
    one = shared(SMALL_BATCHES.replace("slots: 6", "slots: 6\n    fan_out: {{jobs: 2}}"))
    clients = [client_of(uid) for uid in (1001, 1002, 1002)]
    for client, job in zip(clients, ("a", "b", "a")):
        client.open("train", job=job)
    (feed,) = feeds_of(one).values()
    assert len(feed["jobs"]) == 2 and feed["sessions"] == 3 and "user" not in feed
    for client in clients:
        client.close()
