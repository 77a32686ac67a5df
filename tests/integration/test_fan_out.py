"""Several jobs read the same slots: one production, exact accounting per job, real processes that are stopped and
killed."""
import mmap
import signal

import pytest

import libtrajd as trajd
from epochs import jobs_of, rest, sequence, take
from feeds import fan_out
from waiting import wait_for
from workers import Worker, finish


def worker(one, job, *arguments):
    return Worker(one, "--job", job, *arguments)


def test_two_jobs_read_one_production(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    order = sequence(one)
    made = lambda: one.client().status()["producers"][0]["batches"]  # noqa: E731
    before = made()
    workers = [worker(one, job, "--pace", "--epoch", 4) for job in ("a", "b", "b")]
    for each in workers:
        each.read("open")
    assert set(jobs_of(one)) == {"train"}  # no second instance of the feed
    client = one.client()
    assert {(job["job"], job["members"]) for job in client.status()["feeds"][0]["jobs"]} == {("a", 1), ("b", 2)}
    for each in workers:
        each.process.stdin.close()
    for each in workers:
        finish(each)
    assert sorted(workers[0].ids()) == sorted(workers[1].ids() + workers[2].ids()) == sorted(order)
    assert made() - before <= 2 * (len(order) // 64 + 1) + 18  # those of both jobs and of sequence(), and those made ahead
    client.close()


def test_the_ring_of_a_fan_out_cannot_be_written(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    client = one.client()
    before = set(open("/proc/self/maps"))
    client.open("train")
    batch = client.next()
    maps = [line for line in open("/proc/self/maps") if "trajd-ring" in line and line not in before]
    assert maps and all(line.split()[1] == "r--s" for line in maps)
    rings = [link for link, path in one.open_files().items() if "trajd-ring" in path]
    assert rings
    for ring in rings:  # reopened, which only the same user or root can do
        with open(ring, "r+b") as file, pytest.raises(PermissionError):
            mmap.mmap(file.fileno(), 4096)
    batch.release()
    client.close()


@pytest.mark.parametrize("policy", ["block", "leave"])
def test_a_stopped_job(daemon, demo_file, policy):
    one = daemon(fan_out(demo_file, policy=", slow: leave, after: 500ms" if policy == "leave" else ""))
    sleeper = worker(one, "sleeper", "--pace")
    sleeper.read("open")
    client = one.client()
    client.open("train", job="other")
    sleeper.go()
    sleeper.read("batch")
    sleeper.signal(signal.SIGSTOP)
    ids = take(client, 6)
    if policy == "block":
        with pytest.raises(trajd.TrajdError, match="no batch in time"):
            while batch := client.next(timeout_ms=1500):  # one more where the stopped worker's DONE came before the signal
                ids += batch.arrays()["window_id"].tolist()
                batch.release()
        assert len(ids) in (6 * 64, 7 * 64)
        jobs = {job["job"]: job for job in client.status()["feeds"][0]["jobs"]}
        assert jobs["sleeper"]["stalled_by_seconds"] > max(1, jobs["other"]["stalled_by_seconds"])
        sleeper.signal(signal.SIGCONT)
        sleeper.process.stdin.close()
        ids += rest(client)
        finish(sleeper)
        assert sleeper.ids() == ids
    else:
        ids += rest(client)  # goes on without the stopped job
        assert client.status()["slow_jobs"] == 1
        sleeper.signal(signal.SIGCONT)
        sleeper.process.stdin.close()
        sleeper.read()
        assert sleeper.process.wait(60) != 0  # has received the error
    assert sorted(ids) == list(range(len(ids)))
    client.close()


def test_a_killed_worker_and_a_killed_daemon(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    order = sequence(one)
    victim, other = worker(one, "a", "--pace"), worker(one, "b", "--pace")
    for each in (victim, other):
        each.read("open")
        for _ in range(3):
            each.go()
            each.read("batch")
    victim.kill()
    heir = worker(one, "a")
    heir.read("open")
    wait_for(lambda: len(one.client().status()["sessions"]) >= 2, what="the heir")
    one.kill()
    one.start()
    other.process.stdin.close()
    finish(other)
    finish(heir)
    for ids in (victim.ids() + heir.ids(), other.ids()):
        assert set(ids) == set(order) and len(ids) - len(set(ids)) <= 8 * 64  # leased batches come again


def test_a_job_elsewhere_has_a_ring_of_its_own(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    first, second, third = (one.client() for _ in range(3))
    first.open("train", job="a")
    second.open("train", job="b", epoch=9)
    third.open("train", job="c")  # together with a, which has only begun
    assert jobs_of(one) == {"train": "a", "train#2": "b"}
    assert rest(second) == sequence(one, epoch=9)
    for client in (first, second, third):
        client.close()


def test_shard_and_share_side_by_side(daemon, demo_file):
    one = daemon(fan_out(demo_file))
    ranks = [worker(one, "ranks", "--rank", rank, "--world", 2, "--pace") for rank in range(2)]
    for rank in ranks:
        rank.read("open")
    shared = worker(one, "shared", "--pace")
    shared.read("open")
    assert set(jobs_of(one)) == {"train"}
    for each in (*ranks, shared):
        each.process.stdin.close()
    for each in (*ranks, shared):
        finish(each)
    assert sorted(ranks[0].ids() + ranks[1].ids()) == sorted(shared.ids())
    for batch, left, right in zip(shared.batches(), ranks[0].batches(), ranks[1].batches()):
        assert batch["ids"] == left["ids"] + right["ids"]
