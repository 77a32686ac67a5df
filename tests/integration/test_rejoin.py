"""A job whose daemon dies, alone or together with workers: who returns first, what comes again, what does not."""
import signal
import time

import pytest

import libtrajd as trajd
from feeds import fan_out, feed
from waiting import wait_for
from workers import Worker, finish, run_out, step, wait_for_done


def config(path, rejoin_wait=None, batch=16):
    text = feed(path, batch=batch)
    return text.replace("rank_timeout:", f"rejoin_wait: {rejoin_wait}\n    rank_timeout:") if rejoin_wait else text


def start_workers(one, count, *arguments):
    workers = [Worker(one, "--pace", *arguments) for _ in range(count)]
    for worker in workers:
        worker.read("open")
    return workers


def assert_once(workers, lost=()):
    """Checks that the workers got every window once. Those in `lost` may have come twice."""
    ids = [i for worker in workers for i in worker.ids()]
    again = {i for i in ids if ids.count(i) > 1}
    assert set(ids) == set(range(workers[0].said[0]["windows"])), "a window was lost"
    assert again <= set(lost), f"{len(again - set(lost))} windows were delivered again"


# ---- only the daemon dies ----

@pytest.mark.parametrize("count", [1, 3])
def test_batches_that_workers_hold_do_not_come_again(daemon, demo_file, count):
    """Each worker has a batch that it works on and further ones that it has received. Only the daemon dies."""
    one = daemon(config(demo_file))
    workers = start_workers(one, count, "--credit", 6 // count if count > 1 else 4)
    step(workers, 3)
    for _ in range(2):
        one.kill()
        one.start()
        step(workers, 2)
    run_out(workers)
    assert_once(workers)


def test_a_program_that_holds_several_batches(daemon, demo_file):
    one = daemon(config(demo_file))
    holder, other = Worker(one, "--hold", 3, "--credit", 4), Worker(one, "--pace", "--credit", 2)
    holder.read("holding")
    other.read("open")
    step([other], 2)
    one.kill()
    one.start()
    run_out([other, holder])
    assert_once([holder, other])


def test_done_that_dies_on_its_way(daemon, demo_file):
    """The daemon is stopped, so that it does not receive what the worker sends, and then killed."""
    one = daemon(config(demo_file))
    workers = start_workers(one, 2, "--credit", 3)
    step(workers)
    wait_for(lambda: one.client().status()["feeds"][0]["slots"]["ready"] == 6, what="batches with both workers")
    one.process.send_signal(signal.SIGSTOP)
    step(workers, 2)
    time.sleep(0.1)  # the messages leave; nothing can show that they have
    one.kill()
    one.start()
    run_out(workers)
    assert_once(workers)


def test_a_worker_dies_after_its_return(daemon, demo_file):
    """What a worker held since before the daemon's death goes to another one when the worker dies."""
    one = daemon(config(demo_file))
    workers = start_workers(one, 2, "--credit", 3)
    step(workers, 2)
    one.kill()
    one.start()
    client = one.client()
    wait_for(lambda: client.status()["feeds"][0]["members"] == 2, what="the workers' return")
    workers[0].kill()
    run_out(workers[1:])
    assert_once(workers, lost=workers[0].batches()[-1]["ids"])
    client.close()


def test_jobs_on_one_ring_and_a_daemon_that_dies(daemon, demo_file):
    one = daemon(fan_out(demo_file, batch=16))
    jobs = {name: start_workers(one, 2, "--job", name, "--credit", 2) for name in "ab"}
    step(jobs["a"] + jobs["b"], 2)
    for _ in range(2):
        one.kill()
        one.start()
        step(jobs["a"] + jobs["b"])
    run_out(jobs["a"] + jobs["b"])
    for workers in jobs.values():
        assert_once(workers)


# ---- the daemon and a worker die together ----

@pytest.mark.slow
def test_a_new_worker_that_comes_first_waits_for_the_survivor(daemon, demo_file):
    one = daemon(config(demo_file))
    survivor, victim = start_workers(one, 2, "--credit", 3)
    step([survivor, victim], 5)
    wait_for_done(one, 8)
    survivor.signal(signal.SIGSTOP)
    one.kill()
    victim.kill()
    one.start()
    heir = Worker(one)
    client = one.client()
    wait_for(lambda: any(session.get("rejoin_wait_seconds") for session in client.status()["sessions"]), what="the heir's wait")
    survivor.signal(signal.SIGCONT)
    run_out([survivor])
    finish(heir)
    assert_once([survivor, heir, victim], lost=victim.batches()[-1]["ids"])
    client.close()


@pytest.mark.slow
def test_a_new_run_inherits_nothing(daemon, demo_file):
    """No worker of the old run returns. The new one begins the epoch again, and the log says why."""
    one = daemon(config(demo_file, rejoin_wait="2s"))
    workers = start_workers(one, 2)
    step(workers, 5)
    wait_for_done(one, 8)
    one.kill()
    for worker in workers:
        worker.kill()
    one.start()
    before = time.monotonic()
    heir = Worker(one)
    heir.read("open")
    assert time.monotonic() - before >= 2
    finish(heir)
    assert_once([heir])
    assert "job \"\" of feed train begins epoch 0 again: " in one.text()


def test_a_daemon_that_dies_within_each_wait(daemon, demo_file):
    """A worker dies with the daemon, whose next ones die before rejoin_wait is over. The waits count together, so the epoch ends."""
    one = daemon(config(demo_file, rejoin_wait="2s"))
    survivor, victim = start_workers(one, 2, "--credit", 3)
    step([survivor, victim], 5)
    wait_for_done(one, 8)
    one.kill()
    victim.kill()
    survivor.process.stdin.close()
    for _ in range(12):
        one.start()
        time.sleep(1.2)
        if survivor.process.poll() is not None:
            break
        one.kill()
    finish(survivor)
    assert_once([survivor, victim], lost=victim.batches()[-1]["ids"])


def test_a_stopped_job_is_not_waited_for(daemon, demo_file):
    """The workers ended before the daemon: nobody can return."""
    one = daemon(config(demo_file, rejoin_wait="600s"))
    workers = start_workers(one, 2)
    step(workers, 2)
    client = one.client()
    for worker in workers:
        worker.kill()
    wait_for(lambda: len(client.status()["sessions"]) == 1, what="the sessions' end")
    one.kill()
    one.start()
    heir = Worker(one)
    finish(heir)
    assert_once([heir])


# ---- ranks ----

def test_ranks_at_different_positions_are_named(daemon, demo_file):
    one = daemon(config(demo_file))
    second = one.client()
    waiting = Worker(one, "--rank", 0, "--world", 2, "--epoch", 3, "--position", 1024)
    waiting.read("open")
    with pytest.raises(trajd.TrajdError) as caught:
        second.open("train", mode=trajd.SHARD, rank=1, world=2, epoch=3, position=960)
    text = str(caught.value)
    assert "rank 1 asks for window 960 of epoch 3" in text and "rank 0 is at window 1024 of epoch 3" in text and "checkpoint" in text
    with pytest.raises(trajd.TrajdError) as caught:
        second.open("train", mode=trajd.SHARD, rank=1, world=2, epoch=2, position=960, timeout_ms=300)
    text = str(caught.value)
    assert "rank 1 asks for window 960 of epoch 2" in text and "rank 0 is at window 1024 of epoch 3" in text and "checkpoint" in text
    waiting.kill()
    second.close()
