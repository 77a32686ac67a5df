"""The wall clock jumps by 90 days, in the daemon and in its workers. Nothing expires: only dates come from that clock."""
import re
import signal
import subprocess
from datetime import datetime, timezone

import pytest

from epochs import sequence
from faults import FaultyDaemon
from feeds import feed
from paths import TRAJCTL, clean_environment
from waiting import wait_for
from workers import Worker, finish, run_out, step

pytestmark = pytest.mark.slow

DAY_S = 86400


class Remote:
    """Takes the place of the daemon for a worker over tcp."""

    def __init__(self, one):
        self.endpoint = re.findall(r"remote workers at (tcp://\S+)", one.text())[-1]


def journals(one):
    return {path.name.split("@")[0] for path in (one.folder / "state").glob("*.journal")}


def days_ahead(line):
    """Returns by how many days the date of a line of the log is ahead of this test's clock."""
    return (datetime.fromisoformat(line[:19]).replace(tzinfo=timezone.utc) - datetime.now(timezone.utc)).total_seconds() / DAY_S


@pytest.fixture
def one(tmp_path, started, demo_file):
    """A daemon whose time limits are far longer than the test, or shorter than the jump, and that has the journal of a job
    that is gone."""
    for arguments in ([], ["--client", "alice"]):
        subprocess.run([TRAJCTL, "keygen", tmp_path / "keys", *arguments], check=True, stdout=subprocess.DEVNULL,
                       env=clean_environment())
    more = "listen: {tcp: '127.0.0.1:0', keys: keys, worker_timeout: 20s}\nfeed_idle: 60s\nexit_idle: 60s\njournal_idle: 30d\n"
    daemon = started(FaultyDaemon(tmp_path, more + feed(demo_file, batch=16)))
    client = daemon.client()
    client.open("train", job="gone")
    for _ in range(3):
        client.next().release()
    wait_for(lambda: journals(daemon) == {"gone"})
    client.close()
    return daemon


@pytest.mark.parametrize("days", [90, -90])
def test_a_jump_of_the_wall_clock(one, monkeypatch, tmp_path, days):
    order = sequence(one)
    for name, value in one.faults.environment({}).items():
        monkeypatch.setenv(name, value)  # for the workers
    local = [Worker(one, "--job", "run", "--pace", "--credit", 2) for _ in range(2)]
    remote = Worker(Remote(one), "--job", "far", "--pace", "--key", tmp_path / "keys/alice.key_secret")
    ranks = [Worker(one, "--job", "ranks", "--rank", 0, "--world", 2, "--pace")]
    workers = [*local, remote]
    for worker in workers:
        worker.read("open")
    step(workers, 3)
    client = one.client()
    before = client.status()

    one.faults.page.wall_shift_s = days * DAY_S
    for _ in range(8):  # 100 ms each at least, in which timers run
        client.status()
    one.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reloaded" in one.text())
    assert abs(days_ahead(one.text().splitlines()[-1]) - days) < 1  # the clock has jumped
    step(workers, 3)
    ranks.append(Worker(one, "--job", "ranks", "--rank", 1, "--world", 2, "--pace"))  # rank 0 has waited for this one
    for worker in ranks:
        worker.read("open")
    step(ranks, 3)
    after = client.status()
    for counter in ("dead_sessions", "silent_sessions", "rank_timeouts", "slow_jobs", "late_acks", "handed_again"):
        assert after[counter] == before[counter], (counter, after)
    assert all(session["silent_seconds"] < 60 and session["stalled_by_seconds"] < 60 for session in after["sessions"])
    assert {worker.process.poll() for worker in [*workers, *ranks]} == {None}

    client.close()
    remote.kill()
    one.kill()
    one.start()  # the workers report their last two batches; the journal has those before
    assert abs(days_ahead(one.text().splitlines()[-1]) - days) < 1
    run_out([*local, *ranks])
    assert sorted(i for worker in local for i in worker.ids()) == sorted(order)
    assert [worker.said[-1]["event"] for worker in ranks] == ["end", "end"]
    assert journals(one) >= {"gone", "run"}

    one.faults.page.wall_shift_s = 0
    again = Worker(one, "--job", "run", "--epoch", 1)
    finish(again)
    assert sorted(again.ids()) == sorted(order) and journals(one) >= {"gone", "run"}
