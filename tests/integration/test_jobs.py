"""Jobs that stop and resume: checkpoints, other worlds and batch sizes, several nodes, ranks that are missing. With
real daemons and kills."""
import signal
import subprocess
import threading

import pytest

import libtrajd as trajd
from epochs import arrays_of, global_batches, jobs_of, open_local, rest, sequence, take
from feeds import feed
from paths import TRAJCTL
from waiting import wait_for
from workers import Worker, finish, wait_for_done

# ---- checkpoints of queue jobs ----

@pytest.mark.parametrize("batch", [64, 40])
def test_a_checkpoint_goes_on_in_another_daemon_and_with_another_batch(daemon, demo_file, batch):
    one = daemon(feed(demo_file), folder="one")
    order = sequence(one)
    first, second = one.client(), one.client()
    info = first.open("train", job="run", epoch=1)
    second.open("train", job="run", epoch=1)
    before = first.status()["batches_done"]
    done = take(first, 3) + take(second, 2)
    held = first.next()
    wait_for(lambda: second.status()["batches_done"] == before + 5, what="what first has said")
    token = second.checkpoint()
    take(second, 3)  # DONE after the checkpoint: the checkpoint does not contain them
    held.release()
    one.kill()
    other = daemon(feed(demo_file, batch=batch), folder="other")
    client = other.client()
    assert client.open("train", job="run", epoch=1, resume=token).fingerprint == info.fingerprint
    again = rest(client)
    everything = set(range(len(order)))
    if batch == 64:
        assert sorted(again + done) == sorted(everything)  # exactly the windows that were not DONE
    else:
        assert set(again) | set(done) == everything and len(set(again)) == len(again)
    client.close()


def test_a_checkpoint_is_stronger_than_what_came_after(daemon, demo_file):
    one = daemon(feed(demo_file))
    client = one.client()
    client.open("train", job="run")
    done = take(client, 4)
    token = client.checkpoint()
    assert len(rest(client)) + len(done) == client.open("train", job="run", epoch=1).epoch_length
    again = []
    client.open("train", job="run", resume=token)
    again += take(client, 2)
    one.kill()  # from there on it is a job like any other
    one.start()
    client = one.client()
    client.open("train", job="run", resume=token)
    assert take(client, 2) == again
    client.close()


def test_the_last_of_several_checkpoints_lacks_nothing(daemon, demo_file):
    """Each worker asks for a checkpoint: its DONEs go before its question."""
    one = daemon(feed(demo_file))
    workers = [one.client() for _ in range(3)]
    for worker in workers:
        worker.open("train", job="run")
    done = [i for worker in workers for i in take(worker, 2)]
    token = [worker.checkpoint() for worker in workers][-1]
    for worker in workers:
        worker.close()
    client = one.client()
    client.open("train", job="run", resume=token)
    assert not set(rest(client)) & set(done)
    client.close()


def test_checkpoints_of_other_things_are_refused(daemon, demo_file):
    one = daemon(feed(demo_file), folder="one")
    client = one.client()
    with pytest.raises(trajd.TrajdError, match="open a feed first"):
        client.checkpoint()
    client.open("train")
    token = client.checkpoint()
    with pytest.raises(trajd.TrajdError, match="epoch: the checkpoint is of epoch 0, but epoch 5 was requested"):
        client.open("train", epoch=5, resume=token)
    with pytest.raises(trajd.TrajdError, match="not a checkpoint"):
        client.open("train", resume=b"something else")
    with pytest.raises(trajd.TrajdError, match="checksum"):
        client.open("train", resume=token[:20] + b"\1" + token[21:])
    client.open("train", mode=trajd.SHARD)
    with pytest.raises(trajd.TrajdError, match="queue job"):
        client.checkpoint()
    client.close()
    client = daemon(feed(demo_file, seed=4), folder="seed").client()
    with pytest.raises(trajd.TrajdError, match="seed: the checkpoint has 3, but feed train has 4"):
        client.open("train", resume=token)
    client.close()
    client = daemon(feed(demo_file).replace("0..7", "0..3"), folder="windows").client()
    with pytest.raises(trajd.TrajdError, match="fingerprint: the checkpoint has .*another dataset, layout or windows"):
        client.open("train", resume=token)
    client.close()


# ---- shard: the global sequence ----

def open_ranks(clients, **options):
    """Opens all ranks at the same time, as separate processes do: OPEN waits for all ranks of a job."""
    threads = [threading.Thread(target=client.open, args=("train",), kwargs=dict(options, mode=trajd.SHARD, rank=rank, world=len(clients)))
               for rank, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_another_world_and_another_batch_go_on_with_the_same_sequence(daemon, demo_file):
    one = daemon(feed(demo_file), folder="one")
    order = sequence(one, epoch=2)
    seen = []
    for world, count in ((2, 3), (5, 4), (1, 2), (3, 1)):  # one job after another, each from where the previous one stopped
        clients = [one.client() for _ in range(world)]
        open_ranks(clients, epoch=2, position=len(seen))
        for position, ids in global_batches(clients, count):
            assert position == len(seen)
            seen += ids
        for client in clients:
            client.close()
    one.kill()
    other = daemon(feed(demo_file, batch=24), folder="other")
    clients = [other.client() for _ in range(4)]
    open_ranks(clients, epoch=2, position=len(seen))
    for position, ids in global_batches(clients):
        assert position == len(seen)
        seen += ids
    assert seen == order
    for client in clients:
        client.close()


@pytest.mark.parametrize("apart", ["folders", "namespaces"])
def test_two_nodes_give_what_one_gives(daemon, demo_file, apart):
    prefix = ("unshare", "--net") if apart == "namespaces" else ()
    if prefix and subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("unshare --net is not permitted here: needs root, or a user namespace")
    config = feed(demo_file, batch=104)
    single = open_local(daemon(config, folder="single", prefix=prefix), range(16), 16)
    expected = arrays_of(single)
    nodes = [daemon(config, folder=name, prefix=prefix) for name in ("left", "right")]
    left, right = open_local(nodes[0], range(8), 16), open_local(nodes[1], range(8, 16), 16)
    got = arrays_of(left)
    got.update({(position, rank + 8): arrays for (position, rank), arrays in arrays_of(right).items()})
    assert got.keys() == expected.keys()
    for key, arrays in expected.items():
        assert arrays.keys() == got[key].keys()
        for name, array in arrays.items():
            assert array.tobytes() == got[key][name].tobytes(), (key, name)
    windows = [node.client().status()["producers"][0]["windows"] for node in nodes]
    total = sum(len(arrays["window_id"]) for arrays in expected.values())
    assert all(count <= total * 0.75 for count in windows), "a node made rows that none of its workers reads"
    for client in single + left + right:
        client.close()


def test_ranks_that_do_not_agree(daemon, demo_file):
    one = daemon(feed(demo_file))
    first, second = one.client(), one.client()
    first.open("train", mode=trajd.SHARD, rank=0, world=4, local=[0, 1])
    with pytest.raises(trajd.TrajdError, match="local: 2 ranks .1 first., but the other ranks of job .* list 2 .0 first."):
        second.open("train", mode=trajd.SHARD, rank=1, world=4, local=[1, 2])
    with pytest.raises(trajd.TrajdError, match="world: shard with world 3, but job .* runs as shard with world 4"):
        second.open("train", mode=trajd.SHARD, rank=1, world=3)
    with pytest.raises(trajd.TrajdError, match="rank: rank 0 of job .* is in use by session"):
        second.open("train", mode=trajd.SHARD, rank=0, world=4, local=[0, 1], timeout_ms=200)
    with pytest.raises(trajd.TrajdError, match="rank 4 of 4"):
        second.open("train", mode=trajd.SHARD, rank=4, world=4)
    with pytest.raises(trajd.TrajdError, match="local_ranks must be .* include rank 1"):
        second.open("train", mode=trajd.SHARD, rank=1, world=4, local=[2, 3])
    with pytest.raises(trajd.TrajdError, match="next: rank 1 asks for window 64 of epoch 0, .* Stop all ranks .*: rank 0 is at window 0 of epoch 0"):
        second.open("train", mode=trajd.SHARD, rank=1, world=4, local=[0, 1], position=64)
    first.close()
    second.close()


# ---- ranks that are missing or stopped ----

@pytest.mark.slow
def test_a_rank_that_is_killed_and_does_not_return(daemon, demo_file):
    one = daemon(feed(demo_file, rank_timeout="2s"))
    other = Worker(one, "--rank", 1, "--world", 2, "--hold", 1)  # so that its batch is not DONE, whenever it is killed
    client = one.client()
    other.read("open")
    client.open("train", mode=trajd.SHARD, rank=0, world=2)
    other.read("holding")
    other.kill()
    seen = 0
    with pytest.raises(trajd.TrajdError, match="rank 1 of 2 of job \"\" was away for .* s .rank_timeout is 2 s.") as raised:
        while (batch := client.next()) is not None:
            seen += 1
            batch.release()
    assert raised.value.status == trajd.CLOSED and seen == 6  # all slots, and no more
    (text, wait_ms), = client.notices  # at once, and before the error
    assert f"process {other.process.pid}) died: the other ranks wait for another 2 s (rank_timeout is 2 s)" in text and wait_ms == 2000
    assert text in one.text() and str(raised.value).partition(": ")[2] in one.text()
    # the feed works as before: another world reads on
    client.open("train", mode=trajd.SHARD, rank=0, world=1, position=64 * seen)
    assert client.next().position == 64 * seen
    client.close()


def test_a_rank_that_is_killed_and_returns(daemon, demo_file):
    one = daemon(feed(demo_file))
    other = Worker(one, "--rank", 1, "--world", 2, "--hold", 1)
    client = one.client()
    other.read("open")
    client.open("train", mode=trajd.SHARD, rank=0, world=2)
    other.read("holding")
    other.kill()
    waiting = threading.Thread(target=rest, args=(client,))
    waiting.start()  # it does not see the end before rank 1 is back
    wait_for(lambda: client.notices, what="the notice")
    finish(Worker(one, "--rank", 1, "--world", 2))
    waiting.join()
    assert "rank 1 of 2" in client.notices[0][0] and client.notices[1:] == [("rank 1 of 2 of job \"\" is back", 0)]
    client.close()


def test_a_rank_that_dies_with_the_daemon(daemon, demo_file):
    one = daemon(feed(demo_file, rank_timeout="1s"))
    other = Worker(one, "--rank", 1, "--world", 2, "--hold", 1)
    client = one.client(reconnect=True)
    other.read("open")
    client.open("train", mode=trajd.SHARD, rank=0, world=2)
    other.read("holding")
    one.kill()
    other.kill()
    one.start()
    with pytest.raises(trajd.TrajdError, match="rank 1 of 2 of job \"\" did not open the epoch for .* s .rank_timeout is 1 s."):
        while True:
            client.next().release()
    client.close()


def test_a_daemon_that_does_not_return(daemon, demo_file):
    """A worker that reconnects waits for it no longer than away_ms, whatever its own timeout, in each mode."""
    one = daemon(feed(demo_file))
    for options in ({"mode": trajd.QUEUE}, {"mode": trajd.SHARD, "rank": 0, "world": 1}):
        client = one.client(reconnect=True, away_ms=300)
        client.open("train", **options)
        client.next().release()
        one.kill()
        with pytest.raises(trajd.TrajdError, match="did not return for 0.3 s after its death: connect again when it runs") as raised:
            while True:
                client.next(timeout_ms=-1).release()
        assert raised.value.status == trajd.CLOSED
        with pytest.raises(trajd.TrajdError, match="did not return"):
            client.status()
        client.close()
        one.start()


def test_a_rank_that_never_comes(daemon, demo_file):
    one = daemon(feed(demo_file, rank_timeout="1s"))
    client = one.client()
    client.open("train", mode=trajd.SHARD, rank=1, world=3)
    with pytest.raises(trajd.TrajdError, match="rank 0 of 3 .* and 1 other did not open the epoch for"):
        client.next()
    client.close()


def test_a_stopped_rank_is_named_and_goes_on(daemon, demo_file):
    one = daemon(feed(demo_file, rank_timeout="1s"))  # a stopped rank is not missing: its connection is open
    sleeper = Worker(one, "--rank", 1, "--world", 2, "--pace")
    client = one.client()
    sleeper.read("open")
    client.open("train", mode=trajd.SHARD, rank=0, world=2)
    sleeper.go()
    sleeper.read("batch")
    sleeper.signal(signal.SIGSTOP)
    with pytest.raises(trajd.TrajdError, match="no batch in time"):  # all slots, and one more where DONE came before the signal
        while client.next(timeout_ms=2500).release() is None:
            pass
    status = client.status()
    stalled = {session["pid"]: session["stalled_by_seconds"] for session in status["sessions"]}
    assert stalled[sleeper.process.pid] > 1 and status["rank_timeouts"] == 0
    sleeper.signal(signal.SIGCONT)
    sleeper.process.stdin.close()
    rows = len(rest(client))
    finish(sleeper)
    assert rows > 0
    client.close()


@pytest.mark.parametrize("mode", [trajd.QUEUE, trajd.SHARD])
def test_a_clean_end_within_an_epoch_is_no_problem(daemon, demo_file, mode):
    """Workers stop with batches that they have received and not read. `trajctl status` shows no problems."""
    one = daemon(feed(demo_file))
    workers = [one.client() for _ in range(2)]
    for rank, worker in enumerate(workers):
        worker.open("train", mode=mode, **({"rank": rank, "world": 2} if mode == trajd.SHARD else {}))
    for worker in workers:
        take(worker, 2)
    wait_for(lambda: sum(session["held"] for session in workers[0].status()["sessions"]) > 2, what="batches on their way")
    for worker in workers:
        worker.close()
    shown = subprocess.run([TRAJCTL, "status", "--endpoint", one.endpoint], capture_output=True, text=True, check=True).stdout
    assert "batches DONE: 4" in shown and "problems" not in shown


# ---- several jobs on a feed ----

def test_jobs_at_different_positions_have_productions_of_their_own(daemon, demo_file):
    one = daemon("feed_idle: 1s\n" + feed(demo_file))
    order = {epoch: sequence(one, epoch) for epoch in (0, 3)}
    first = one.client()
    first.open("train", job="first")
    ids = take(first, 2)
    others = [one.client() for _ in range(2)]
    open_ranks(others, job="second", epoch=3, position=64 * 4)  # at the same position: one production for both
    assert jobs_of(one) == {"train": "first", "train#2": "second"}
    third = one.client()
    third.open("train", job="first")  # joins the first job
    seen = [i for _, batch in global_batches(others) for i in batch]
    assert seen == order[3][64 * 4:]
    ids += take(third, 2)
    for client in (*others, third):
        client.close()
    assert sorted(ids + rest(first)) == sorted(order[0])
    wait_for(lambda: "train#2: closed" in one.text(), what="the instance without readers")
    # and again, with a specification from the job
    spec = feed(demo_file).split("train:")[1]
    texts = [one.client() for _ in range(2)]
    for client, job in zip(texts, ("a", "b")):
        client.open(spec=spec.replace("\n    ", "\n"), job=job, epoch=3)
    assert [rest(client) for client in texts] == [order[3], order[3]]
    assert len([name for name in jobs_of(one) if name.startswith("spec:")]) == 2
    for client in (first, *texts):
        client.close()


def test_a_job_that_returns_finds_its_journal_in_any_production(daemon, demo_file):
    one = daemon(feed(demo_file))
    first = one.client()
    first.open("train", job="first")
    second = Worker(one, "--job", "second", "--epoch", 1, "--pace")
    for _ in range(3):
        second.go()
        second.read("batch")
    assert set(jobs_of(one)) == {"train", "train#2"}
    wait_for_done(one, 3)
    one.kill()
    one.start()
    second.process.stdin.close()
    finish(second)  # it opens again by itself, and the first job to open gets the feed
    ids = second.ids()
    assert sorted(set(ids)) == sorted(sequence(one))
    assert not set(ids[:192]) & set(ids[192:])  # DONE stays DONE; leased batches come again


@pytest.mark.slow
@pytest.mark.parametrize("limit, raises", [("rings", "raise memory.rings"), ("feeds", "raise limits.feeds")])
def test_a_job_without_room_of_its_own_waits(daemon, demo_file, limit, raises):
    if limit == "feeds":
        one = daemon(feed(demo_file).replace("credit: 8", "credit: 8, feeds: 1"))
    else:
        one = daemon(feed(demo_file, batch=2000).replace("slots: 6", "slots: 80"))  # over half of the 64 MiB
    first, second = one.client(), one.client()
    first.open("train", job="first")
    with pytest.raises(trajd.TrajdError, match=f"other jobs read it at another position.*{raises}") as raised:
        second.open("train", job="second", timeout_ms=300)
    assert raised.value.status == trajd.BUSY
    first.close()
    second.open("train", job="second", epoch=5)
    assert second.next().epoch == 5
    second.close()


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["rings", "feeds"])
def test_feeds_that_nobody_reads_give_way(daemon, demo_file, limit):
    """A sweep opens one specification after the other, faster than feed_idle closes unused feeds."""
    batch = 2000 if limit == "rings" else 64  # three rings in 64 MiB
    config = feed(demo_file).replace("credit: 8", f"credit: 8, feeds: {3 if limit == 'feeds' else 16}")
    one = daemon("feed_idle: 600s\n" + config)
    client = one.client()
    client.open("train", job="kept")
    for horizon in range(5):
        spec = (f"{{dataset: demo, global_batch: {batch}, tail: short, slots: {40 if limit == 'rings' else 6}, anchor: {{clock: actions}}, "
                f"outputs: {{actions: {{at: 0..{horizon}}}, obs/robot0_eef_pos: {{at: -{15 + horizon}..0}}}}}}")
        sweep = one.client()
        sweep.open(spec=spec, job="sweep")
        sweep.next().release()
        sweep.close()
        wait_for(lambda: len(client.status()["sessions"]) == 1, what="its session to be over")
    assert "closed, because no worker reads it and another feed needs room" in one.text()
    assert client.next().epoch == 0  # whose feed stays, as the configuration's do
    client.close()
