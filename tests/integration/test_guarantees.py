"""The events of clients/docs/concepts/failures.md that no other file tests; daemon/feed/README.md names the test of each."""
import os
import pathlib
import re

import pytest

import libtrajd as trajd
from epochs import arrays_of, global_batches, jobs_of, open_local, rest, sequence, take
from feeds import fan_out, feed
from workers import Worker, finish, run_out, step, wait_for_done

SHARED = pytest.mark.parametrize("config", [feed, fan_out], ids=["alone", "fan_out"])

def ranks_of(one, world, *arguments, feed="train"):
    ranks = [Worker(one, "--pace", "--rank", rank, "--world", world, *arguments, feed=feed) for rank in range(world)]
    for rank in ranks:
        rank.read("open")
    return ranks

def global_ids(ranks, begin=0):
    """Joins the window ids that the ranks received for every batch from a position on."""
    parts = {}
    for rank in ranks:
        for batch in rank.batches():
            parts.setdefault(batch["position"], []).extend(batch["ids"])
    assert all(len({tuple(b["ids"]) for b in rank.batches()}) == len(rank.batches()) for rank in ranks)
    return [i for position in sorted(parts) if position >= begin for i in parts[position]]

def journal_of(one, job):
    return next(pathlib.Path(one.folder / "state").rglob(f"{job}@*.journal"))

# ---- stop and resume: the global sequence ----

@pytest.mark.parametrize("victim", ["job", "daemon", "both"])
def test_one_sequence_whoever_dies_and_whoever_goes_on(daemon, demo_file, victim):
    """A state (epoch, next window) is saved, then the victim is killed. A job with another world and another batch
    size resumes from the state."""
    config = feed(demo_file)
    one = daemon(config + config.split("feeds:\n")[1].replace("train:", "narrow:").replace("global_batch: 64", "global_batch: 24"))
    order = sequence(one, epoch=2)
    ranks = ranks_of(one, 3, "--epoch", 2)
    step(ranks, 4)
    state = ranks[0].batches()[-1]["position"]  # as a training loop saves it: this batch is not trained on yet
    step(ranks, 2)  # read on; these batches are lost
    if victim != "job":
        one.kill()
    if victim == "daemon":
        one.start()
        step(ranks, 2)  # no window repeats and none is lost
        assert global_ids(ranks) == order[:64 * 8]
    for rank in ranks:
        rank.kill()
    before = global_ids(ranks)[:state]
    if victim == "both":
        one.start()
    again = ranks_of(one, 2, "--epoch", 2, "--position", state, feed="narrow")
    assert {rank.said[0]["fingerprint"] for rank in again} == {ranks[0].said[0]["fingerprint"]}
    run_out(again)
    assert before + global_ids(again) == order

def test_jobs_at_different_speeds(daemon, demo_file):
    """One job takes two epochs while the other one takes three batches. Neither affects the other."""
    one = daemon(feed(demo_file))
    order = [sequence(one, epoch) for epoch in range(2)]
    slow = Worker(one, "--job", "slow", "--pace")
    slow.read("open")
    step([slow])
    fast = one.client()
    for epoch in range(2):
        fast.open("train", job="fast", epoch=epoch)
        assert rest(fast) == order[epoch]
        step([slow])
    assert set(jobs_of(one).values()) == {"slow", "fast"}
    fast.close()
    run_out([slow])
    assert slow.ids() == order[0]

# ---- workers that die ----

@SHARED
@pytest.mark.parametrize("mode", ["queue", "shard"])
def test_a_death_after_done_changes_nothing(daemon, demo_file, config, mode):
    one = daemon(config(demo_file))
    order = sequence(one)
    before = one.client().status()["batches_done"]
    if mode == "queue":
        first, other = Worker(one, "--pace"), Worker(one, "--pace")
        other.read("open")
    else:
        first, other = ranks_of(one, 2)
    step([first], 3)
    wait_for_done(one, before + 3)  # the last one, too: it has been released
    first.kill()
    again = Worker(one) if mode == "queue" else Worker(one, "--rank", 0, "--world", 2, "--position", 3 * 64)
    again.read("open")
    run_out([other])
    finish(again)
    assert sorted(first.ids() + again.ids() + other.ids()) == sorted(order)
    if mode == "shard":
        assert [batch["position"] for batch in again.batches()][0] == 3 * 64

@pytest.mark.parametrize("policy", ["block", "leave"])
def test_a_killed_job_beside_another(daemon, demo_file, policy):
    """All workers of one job are killed. The other job reads to the end of the ring. Then it waits for the return
    of the first job, or as long as the policy says."""
    one = daemon(fan_out(demo_file, policy=", slow: leave, after: 500ms" if policy == "leave" else ""))
    order = sequence(one)
    client = one.client()
    before = client.status()["batches_done"]
    victim = Worker(one, "--job", "victim", "--pace")
    victim.read("open")
    step([victim])
    wait_for_done(one, before + 1)
    client.open("train", job="other")
    ids = take(client, 4)
    victim.kill()
    if policy == "block":
        ids += take(client, 2)
        with pytest.raises(trajd.TrajdError, match="no batch in time"):
            while batch := client.next(timeout_ms=1500):
                ids += batch.arrays()["window_id"].tolist()
                batch.release()
        assert len(ids) in (6 * 64, 7 * 64)  # the batches in the slots, and the first one, made again while there was room
        heir = Worker(one, "--job", "victim")
        ids += rest(client)
        finish(heir)
        assert set(victim.ids() + heir.ids()) == set(order) and set(jobs_of(one)) <= {"train"}
    else:
        ids += rest(client)
        assert client.status()["slow_jobs"] == 1
    assert sorted(ids) == sorted(order)
    client.close()

@pytest.mark.slow
def test_a_rank_that_stays_away_beside_another_job(daemon, demo_file):
    one = daemon(fan_out(demo_file, rank_timeout="3s"))
    order = sequence(one)
    ranks = ranks_of(one, 2, "--job", "ranks")
    client = one.client()
    client.open("train", job="other")
    step(ranks)
    ranks[1].kill()
    ranks[0].process.stdin.close()
    assert rest(client) == order
    ranks[0].read()
    assert ranks[0].process.wait(60) != 0  # has received the error about the missing rank, and did not open again
    client.close()

def test_ranks_die_and_return_beside_another_job(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    order = sequence(one)
    ranks = ranks_of(one, 2, "--job", "ranks")
    other = Worker(one, "--job", "other", "--pace")
    other.read("open")
    step([*ranks, other], 3)
    state = ranks[0].batches()[-1]["position"]
    for rank in ranks:
        rank.kill()
    again = ranks_of(one, 3, "--job", "ranks", "--position", state)
    run_out([*again, other])
    assert global_ids(ranks)[:state] + global_ids(again) == order
    assert other.ids() == order

# ---- daemons that die ----

def test_ranks_and_a_daemon_that_dies_beside_another_job(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    order = sequence(one)
    ranks = ranks_of(one, 2, "--job", "ranks")
    other = Worker(one, "--job", "other", "--pace", "--credit", 2)
    other.read("open")
    before = one.client().status()["batches_done"]
    step([*ranks, other], 3)
    wait_for_done(one, before + 9)
    one.kill()
    one.start()
    run_out([*ranks, other])
    assert global_ids(ranks) == order  # no window repeats and none is lost
    assert sorted(other.ids()) == sorted(order)

def test_a_damaged_journal_is_one_jobs(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    order = sequence(one)
    jobs = {name: Worker(one, "--job", name, "--pace", "--credit", 2) for name in ("hurt", "whole")}
    for worker in jobs.values():
        worker.read("open")
    before = one.client().status()["batches_done"]
    step(jobs.values(), 3)
    wait_for_done(one, before + 6)
    one.kill()
    with open(journal_of(one, "hurt"), "r+b") as journal:
        for page in (1, 2):  # both records
            journal.seek(page * 4096 + 8)
            journal.write(b"\xff" * 64)
    one.start()
    run_out(jobs.values())
    assert one.client().status()["damaged_journals"] == 1
    hurt, whole = (jobs[name].ids() for name in ("hurt", "whole"))
    assert sorted(hurt) == sorted(order)  # from the beginning, but for what the worker reports
    assert sorted(whole) == sorted(order)

def test_a_journal_of_a_second_ago(daemon, demo_file):
    """The death of a host leaves a journal that lacks the latest records. A worker on another host lives and reports
    what it has finished."""
    one = daemon(feed(demo_file))
    order = sequence(one)
    worker = Worker(one, "--job", "run", "--pace", "--credit", 2)
    worker.read("open")
    before = one.client().status()["batches_done"]
    step([worker], 2)
    wait_for_done(one, before + 2)
    kept = journal_of(one, "run").read_bytes()
    step([worker], 3)
    wait_for_done(one, before + 5)
    one.kill()
    journal_of(one, "run").write_bytes(kept)
    one.start()
    run_out([worker])
    assert sorted(worker.ids()) == sorted(order)

# ---- several jobs on the same slots ----

def test_a_checkpoint_beside_another_job(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    order = sequence(one)
    other, client = Worker(one, "--job", "other", "--pace"), one.client()
    other.read("open")
    client.open("train", job="returns")
    step([other], 2)
    done = take(client, 2)
    token = client.checkpoint()
    step([other], 2)
    take(client, 2)
    client.close()
    again = one.client()
    again.open("train", job="returns", resume=token)
    other.process.stdin.close()
    assert sorted(done + rest(again)) == sorted(order)
    finish(other)
    assert other.ids() == order
    again.close()

def test_a_node_of_several_has_a_ring_of_its_own(daemon, demo_file):
    one = daemon(fan_out(demo_file, batch=104))
    order = sequence(one)
    other = one.client()
    other.open("train", job="other")
    ids = take(other, 1)
    ranks = open_local(one, [1], 2)  # the other rank is on another node
    assert set(jobs_of(one)) == {"train", "train#2"}
    rows = arrays_of(ranks)
    assert [i for arrays in rows.values() for i in arrays["window_id"].tolist()] == [
        i for begin in range(0, len(order), 104) for i in order[begin:begin + 104][len(order[begin:begin + 104]) // 2:]]
    assert ids + rest(other) == order
    for client in (other, *ranks):
        client.close()

def test_a_file_that_goes_bad_is_told_to_each_job(daemon, demo_file, tmp_path):
    path = tmp_path / "demo.hdf5"
    path.write_bytes(demo_file.read_bytes())
    one = daemon(fan_out(path), store="64KiB")  # rows are read batch by batch
    clients = [one.client() for _ in range(2)]
    for client, mode, job in zip(clients, (trajd.QUEUE, trajd.SHARD), "ab"):
        client.open("train", mode=mode, job=job)
    for client in clients:
        take(client, 1)
    os.truncate(path, 100000)
    seen = [None, None]
    while None in seen:  # at the same position: they share the slots
        for i, client in enumerate(clients):
            try:
                if seen[i] is None:
                    client.next().release()
            except trajd.TrajdError as error:
                assert error.status == trajd.DATA and "demo.hdf5" in str(error)
                seen[i] = str(error)
    assert seen[0] == seen[1]
    for client in clients:
        client.close()

@SHARED
@pytest.mark.parametrize("mode", [trajd.QUEUE, trajd.SHARD], ids=["queue", "shard"])
def test_all_leave_an_epoch_early(daemon, demo_file, config, mode):
    one = daemon(config(demo_file))
    orders = [sequence(one, epoch) for epoch in range(2)]
    pair = [one.client() for _ in range(2)]
    other = one.client() if config is fan_out else None
    if other:
        other.open("train", job="other")
    options = [dict(job="pair", mode=mode, rank=rank * mode, world=2 * mode) for rank in range(2)]
    for client, option in zip(pair, options):
        client.open("train", **option)
    for client in pair:
        take(client, 1)
    with pytest.raises(trajd.TrajdError, match="not all of its sessions have seen the end"):
        pair[0].open("train", epoch=1, timeout_ms=200, **options[0])
    pair[1].open("train", epoch=1, **options[1])  # now all ranks have left it
    pair[0].open("train", epoch=1, **options[0])
    if other:
        assert rest(other) == orders[0]
        other.close()
    if mode == trajd.SHARD:
        assert [i for _, ids in global_batches(pair) for i in ids] == orders[1]
    else:
        ids = take(pair[0], 1)
        pair[0].close()
        assert sorted(ids + rest(pair[1])) == sorted(orders[1])
    for client in pair:
        client.close()

def test_the_tables_tests_are_there():
    root = pathlib.Path(__file__).resolve().parents[1]
    named = re.findall(r"`(\w+)(\.c)?::(test_\w+)`", (root.parent / "daemon/feed/README.md").read_text())
    assert len(named) > 30
    for name, is_unit, test in named:
        pattern = f"unit/*/test_{name}.c" if is_unit else f"[ip]*/test_{name}.py"  # integration or python
        path = next(root.glob(pattern))
        assert re.search(rf"(void|def) {test}\(", path.read_text()), f"{path.name} has no {test}"
