"""Workers over tcp, with keys that trajctl makes: the same bytes, ranks on both sides, and killed processes and cut
connections on both sides."""
import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import libtrajd as trajd
from daemons import Daemon, LIBRARY
from feeds import SMALL_BATCHES
from paths import BUILD, SUPPORT, clean_environment
from waiting import wait_for
from workers import Worker, finish

TIMEOUT = 3.0  # long enough for a busy machine, too


def trajctl(*arguments):
    environment = clean_environment()
    environment["TSAN_OPTIONS"] = "report_bugs=0"
    return subprocess.run([BUILD / "clients/cli/trajctl", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env=environment)


@pytest.fixture
def keys(tmp_path):
    """A directory of keys with one worker. Returns the worker's file."""
    assert trajctl("keygen", tmp_path / "keys").returncode == 0
    assert trajctl("keygen", tmp_path / "keys", "--client", "alice").returncode == 0
    return tmp_path / "keys/alice.key_secret"


def config(path, more="", port=0):
    return (f"listen: {{tcp: \"127.0.0.1:{port}\", keys: keys, worker_timeout: {TIMEOUT}s}}\n"
            + SMALL_BATCHES.format(path=path).replace("slots: 6", f"slots: 6{more}"))


def remote_of(one):
    """Returns the address on which the daemon listens since its last start."""
    return re.findall(r"remote workers at (tcp://\S+)", one.text())[-1]


class Elsewhere:
    """Takes the place of a daemon where a Worker is started: it has an endpoint of its own."""

    def __init__(self, endpoint):
        self.endpoint = endpoint


def client_of(endpoint, key, **options):
    return trajd.Client(LIBRARY, endpoint, key_file=key, **options)


def status(one):
    client = one.client()
    document = client.status()
    client.close()
    return document


@contextlib.contextmanager
def proxy_to(endpoint, port=0):
    """Starts a proxy. Returns the process and its endpoint."""
    process = subprocess.Popen([sys.executable, SUPPORT / "tcp_proxy.py", endpoint.rsplit(":", 1)[1], str(port)],
                               stdout=subprocess.PIPE, text=True,
                               env=clean_environment())
    try:
        yield process, f"tcp://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def test_a_remote_worker_gets_the_same_bytes(daemon, demo_file, keys):
    one = daemon(config(demo_file))
    here, there = one.client(), client_of(remote_of(one), keys)
    for epoch in (0, 1):
        local, remote = (client.open("train", job=name, epoch=epoch) and dict(client.epoch())
                         for client, name in ((here, "local"), (there, "remote")))
        assert local.keys() == remote.keys() and len(local) > 10
        for position, arrays in local.items():
            assert arrays.keys() == remote[position].keys()
            for name, array in arrays.items():
                assert array.dtype == remote[position][name].dtype and array.shape == remote[position][name].shape
                assert array.tobytes() == remote[position][name].tobytes(), (position, name)
    sessions = there.status()["sessions"]
    assert [s.get("remote", "") for s in sessions if "remote" in s] == ["alice@127.0.0.1"]
    here.close()
    there.close()


def test_a_local_and_a_remote_rank(daemon, demo_file, keys):
    one = daemon(config(demo_file))
    ranks = [one.client(), client_of(remote_of(one), keys)]
    whole = one.client()
    whole.open("train", job="whole")
    expected = dict(whole.epoch())
    for r, client in enumerate(ranks):
        client.open("train", job="ranks", mode=trajd.SHARD, rank=r, world=2)
    for position in sorted(expected):
        parts = []
        for client in ranks:
            batch = client.next()
            assert batch.position == position
            parts.append(batch.copy())
            batch.release()
        for name, array in expected[position].items():
            assert np.concatenate([part[name] for part in parts]).tobytes() == array.tobytes()
    assert all(client.next() is None for client in ranks)
    for client in [*ranks, whole]:
        client.close()


def test_jobs_that_read_the_same_slots(daemon, demo_file, keys):
    one = daemon(config(demo_file, more="\n    fan_out: {jobs: 2}"))
    here, there = one.client(), client_of(remote_of(one), keys)
    here.open("train", job="here")
    there.open("train", job="there")
    local, remote = {}, {}
    while len(local) + len(remote) == 0 or local.keys() != remote.keys():  # at the same position: the slots are the same
        for client, batches in ((here, local), (there, remote)):
            if (batch := client.next()) is not None:
                batches[batch.position] = batch.copy()
                batch.release()
    for position, arrays in local.items():
        for name, array in arrays.items():
            assert array.tobytes() == remote[position][name].tobytes()
    batch = there.next()
    batch.arrays()["actions"][:] = 0  # its own memory, although the ring is read-only
    batch.release()
    assert len(one.client().status()["feeds"]) == 1
    here.close()
    there.close()


@pytest.mark.slow
def test_a_killed_remote_workers_leases_go_to_another(daemon, demo_file, keys):
    one = daemon(config(demo_file))
    victim = Worker(Elsewhere(remote_of(one)), "--hold", 3, "--credit", 4, "--key", keys)
    victim.read("holding")
    wait_for(lambda: status(one)["batches_done"] >= 2, what="two batches DONE")
    heir = Worker(one)
    heir.read("batch")
    victim.kill()
    finish(heir)
    held = victim.batches()
    done = [i for batch in held[:2] for i in batch["ids"]]
    assert sorted(heir.ids() + done) == list(range(heir.said[0]["windows"]))
    assert set(held[2]["ids"]) <= set(heir.ids())
    assert status(one)["silent_sessions"] == 1


@pytest.mark.slow
def test_a_remote_worker_dies_while_slots_are_sent_to_it(daemon, demo_file, keys):
    """A worker is stopped and killed while frames of its slots are in queues. The local job that reads the same
    slots goes on. Both receive correct batches only."""
    wide = lambda text: text.replace("global_batch: 16", "global_batch: 128").replace("0..7", "0..255")  # noqa: E731  about 1 MiB a batch
    one = daemon(wide(config(demo_file, more="\n    fan_out: {jobs: 2}")))
    with contextlib.closing(one.client()) as client:
        client.open("train")
        expected = dict(client.epoch())
    assert len(expected) > 2 * 6  # slots are filled again and again
    for signals in ((signal.SIGKILL,), (signal.SIGSTOP, signal.SIGKILL)):
        victim = Worker(Elsewhere(remote_of(one)), "--job", "there", "--key", keys, "--pace")
        victim.read("open")
        here, heir = one.client(), client_of(remote_of(one), keys)
        here.open("train", job="here")
        victim.go()
        victim.read("batch")
        for number in signals:
            victim.signal(number)
        victim.process.wait()
        heir.open("train", job="there")
        seen = {}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            local = pool.submit(lambda: dict(here.epoch()))
            seen.update(heir.epoch())
        for batches in (local.result(), seen):
            for position, arrays in batches.items():
                assert all(array.tobytes() == expected[position][name].tobytes() for name, array in arrays.items()), position
        assert local.result().keys() == expected.keys() == seen.keys() | {b["position"] for b in victim.batches()}
        here.close()
        heir.close()


@pytest.mark.slow
def test_a_stopped_remote_worker_loses_its_leases_and_goes_on(daemon, demo_file, keys):
    one = daemon(config(demo_file))
    sleeper = Worker(Elsewhere(remote_of(one)), "--pace", "--credit", 2, "--key", keys)
    other = Worker(one, "--pace")
    for worker in (sleeper, other):  # a job without members would begin again, and forget what is DONE
        worker.read("open")
    sleeper.go()
    sleeper.read("batch")
    sleeper.signal(signal.SIGSTOP)
    wait_for(lambda: status(one)["silent_sessions"] == 1, what="the sleeper given up")
    other.go()
    other.read("batch")
    sleeper.signal(signal.SIGCONT)
    for worker in (sleeper, other):
        worker.process.stdin.close()
    finish(sleeper)
    finish(other)
    windows = other.said[0]["windows"]
    assert set(sleeper.ids() + other.ids()) == set(range(windows))
    assert len(sleeper.ids() + other.ids()) <= windows + 2 * 16  # only the batches that it held came again


def test_the_daemon_dies_and_returns(daemon, demo_file, keys, tmp_path):
    one = daemon(config(demo_file))
    port = int(remote_of(one).rsplit(":", 1)[1])
    worker = Worker(Elsewhere(remote_of(one)), "--pace", "--key", keys)
    worker.read("open")
    for _ in range(5):
        worker.go()
        worker.read("batch")
    wait_for(lambda: status(one)["batches_done"] >= 4, what="four batches DONE")
    one.kill()
    one.config.write_text(one.config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    one.start()
    worker.process.stdin.close()
    finish(worker)
    assert sorted(worker.ids()) == list(range(worker.said[0]["windows"]))  # those that it had received came once, too


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, True])
def test_a_network_that_stands_still(daemon, demo_file, keys, long):
    one = daemon(config(demo_file))
    with proxy_to(remote_of(one)) as (proxy, endpoint):
        worker = Worker(Elsewhere(endpoint), "--pace", "--credit", 2, "--key", keys)
        worker.read("open")
        worker.go()
        worker.read("batch")
        proxy.send_signal(signal.SIGSTOP)
        if long:
            wait_for(lambda: status(one)["silent_sessions"] == 1, what="the worker given up")
        worker.go()
        proxy.send_signal(signal.SIGCONT)
        worker.process.stdin.close()
        finish(worker)
    windows = worker.said[0]["windows"]
    if long:
        assert set(worker.ids()) == set(range(windows))
        assert len(worker.ids()) <= windows + 2 * 16
    else:
        assert sorted(worker.ids()) == list(range(windows))


@pytest.mark.parametrize("mode, jobs", [(trajd.QUEUE, 1), (trajd.SHARD, 1), (trajd.QUEUE, 2)])
def test_connections_that_are_cut(daemon, demo_file, keys, mode, jobs):
    one = daemon(config(demo_file, more="\n    fan_out: {jobs: 2}" if jobs == 2 else ""))
    ids, port, info = [], 0, None
    with contextlib.ExitStack() as stack:
        if jobs == 2:  # another worker reads the same slots and notices nothing
            beside = Worker(one, "--job", "beside", "--pace")  # not further than the position at which the other worker joins
            beside.read("open")
        for turn in range(4):
            with proxy_to(remote_of(one), port) as (_, endpoint):  # the previous one was killed, with its connections
                if turn == 0:
                    client, port = client_of(endpoint, keys), int(endpoint.rsplit(":", 1)[1])
                    stack.callback(client.close)
                    info, batches = client.open("train", mode=mode), client.epoch()
                    if jobs == 2:
                        beside.process.stdin.close()
                for _ in range(3):
                    ids += next(batches)[1]["window_id"].tolist()
        with proxy_to(remote_of(one), port):
            for _, arrays in batches:
                ids += arrays["window_id"].tolist()
            stack.close()
    assert sorted(ids) == list(range(info.window_count))
    assert status(one)["resumed_sessions"] >= 1
    if jobs == 2:
        finish(beside)
        assert sorted(beside.ids()) == sorted(ids) and len(status(one)["feeds"]) == 1


def test_a_daemon_that_is_not_there(keys):
    with pytest.raises(trajd.TrajdError, match="no daemon answers at tcp://127.0.0.1:9") as found:
        client_of("tcp://127.0.0.1:9", keys, timeout_ms=300)
    assert found.value.status == trajd.TIMEOUT


@pytest.mark.slow
def test_who_is_not_known_is_named_once(daemon, demo_file, keys, tmp_path):
    one = daemon(config(demo_file))
    public = tmp_path / "keys/clients/alice.key"
    unknown = re.search('public-key = "(.*)"', public.read_text())[1]
    public.unlink()
    for _ in range(2):
        with pytest.raises(trajd.TrajdError, match="does not know the key"):
            client_of(remote_of(one), keys, timeout_ms=500)
    assert one.text().count(unknown) == 1
    assert status(one)["refused_keys"] >= 2
    result = trajctl("status", "--endpoint", remote_of(one), "--key", keys)
    assert result.returncode == 1 and "does not know the key" in result.stderr


def test_many_unknown_keys_are_one_line_of_the_log(daemon, demo_file, keys, tmp_path):
    """One line a minute, whatever keys they have: a public port gets many."""
    one = daemon(config(demo_file))
    for name in ("alice", "bob", "carol"):
        if name != "alice":
            assert trajctl("keygen", tmp_path / "keys", "--client", name).returncode == 0
        (tmp_path / f"keys/clients/{name}.key").unlink()
        with pytest.raises(trajd.TrajdError, match="does not know the key"):
            client_of(remote_of(one), tmp_path / f"keys/{name}.key_secret", timeout_ms=500)
    assert status(one)["refused_keys"] >= 3 and one.text().count("refused a worker from") == 1


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_key_that_is_removed_ends_its_sessions(daemon, demo_file, keys, tmp_path, change):
    """The lease of its worker goes to another one at once. The connection that still exists gets no session again."""
    assert trajctl("keygen", tmp_path / "keys", "--client", "bob").returncode == 0
    one = daemon(config(demo_file))
    public = tmp_path / "keys/clients/alice.key"
    alice, bob = client_of(remote_of(one), keys), client_of(remote_of(one), tmp_path / "keys/bob.key_secret")
    alice.open("train", credit=2)
    held = alice.next()
    position = held.position
    if change == "removed":
        public.unlink()
    else:
        text = public.read_text()
        new = re.search('public-key = "(.*)"', (tmp_path / "keys/clients/bob.key").read_text())[1]
        public.write_text(re.sub('public-key = ".*"', f'public-key = "{new}"', text))
    begin = time.monotonic()
    wait_for(lambda: len(status(one)["sessions"]) == 2, what="the end of alice's session")  # bob's, and that of status()
    assert time.monotonic() - begin < 10  # half a second, and the time of a busy machine
    assert "ended the session of alice@127.0.0.1: its key was removed or replaced" in one.text()
    bob.open("train")
    assert position in {batch for batch, _ in bob.epoch()}
    with pytest.raises(trajd.TrajdError, match="no longer admits the key"):
        while True:
            alice.next().release()
    alice.close()
    bob.close()


def test_the_command_line_takes_the_endpoint(daemon, demo_file, keys):
    one = daemon(config(demo_file))
    where = ["--endpoint", remote_of(one), "--key", keys]
    result = trajctl("recv", "train", "--count", 2, *where)
    assert result.returncode == 0 and result.stdout.count("epoch 0 position") == 2, result.stderr
    result = trajctl("status", "--json", *where)
    assert result.returncode == 0 and "alice@127.0.0.1" in result.stdout, result.stderr
    result = trajctl("bench", "train", "--seconds", 1, *where)
    assert result.returncode == 0 and "batches/s" in result.stdout, result.stderr


@pytest.mark.parametrize("listen, message", [
    ("{tcp: '127.0.0.1:0'}", "keygen"),
    ("{tcp: '127.0.0.1:0', keys: nowhere}", "nowhere/server.key_secret"),
    ("{tcp: '0.0.0.0:0', insecure_loopback: true}", "must be 127.0.0.1 or ::1"),
    ("{tcp: localhost, keys: keys}", "ADDRESS:PORT"),
    ("{tpc: '127.0.0.1:0'}", "did you mean tcp?"),
])
def test_what_is_refused_at_the_start(demo_file, keys, tmp_path, listen, message):
    one = Daemon(tmp_path, f"listen: {listen}\n" + SMALL_BATCHES.format(path=demo_file))
    result = one.run()
    assert result.returncode == 78 and message in result.stderr, result.stderr
    os.chmod(tmp_path / "keys/server.key_secret", 0o644)
    one = Daemon(tmp_path, config(demo_file))
    result = one.run()
    assert result.returncode == 78 and "chmod 600" in result.stderr
