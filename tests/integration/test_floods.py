"""Attacks on the daemon's sockets. A worker's rate is measured before, during and after each attack, and the daemon's
anonymous memory."""
import contextlib
import threading
import time

import pytest

from attacker import MIB, anonymous_bytes, begin_attack, remote_endpoint
from feeds import SMALL_BATCHES
from waiting import wait_for

SECONDS = 2.0  # of each measurement


class Honest:
    """A worker that reads batches in a thread."""

    def __init__(self, one):
        self.client = one.client(reconnect=True)
        self.count, self.epochs, self.end, self.error = 0, 0, False, None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.end:
                self.client.open("train", epoch=self.epochs)
                while not self.end and (batch := self.client.next(60000)) is not None:
                    batch.release()
                    self.count += 1
                self.epochs += 1
        except Exception as error:  # noqa: BLE001  (the main thread reports it)
            self.error = error

    def rate(self):
        begin, count = time.monotonic(), self.count
        time.sleep(SECONDS)
        assert self.error is None, self.error
        return (self.count - count) / (time.monotonic() - begin)

    def close(self):
        self.end = True
        self.thread.join()
        self.client.close()


@contextlib.contextmanager
def attack(*arguments):
    process = begin_attack(*arguments)
    try:
        yield process
        assert process.poll() is None, "the attacker has ended"
    finally:
        process.kill()
        process.wait()


def cpu_seconds(one):
    with open(f"/proc/{one.process.pid}/stat") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / 100


def status_of(one):
    with contextlib.closing(one.client()) as client:
        return client.status()


def withstand(one, *arguments, growth, back=5 * MIB):
    """Runs an attack. The worker keeps a good part of its rate, memory stays within `growth` of that before, and returns to within `back`."""
    honest = Honest(one)
    try:
        wait_for(lambda: honest.count > 0 or honest.error, what="the first batch")
        honest.rate()  # caches are filled
        before, memory = honest.rate(), anonymous_bytes(one)
        with attack(*arguments):
            used = cpu_seconds(one)
            during, most = [], 0
            for _ in range(2):
                during.append(honest.rate())
                most = max(most, anonymous_bytes(one))
            used = (cpu_seconds(one) - used) / (2 * SECONDS)
        ended = time.monotonic()
        with contextlib.suppress(AssertionError):
            wait_for(lambda: anonymous_bytes(one) <= memory + back, 15)
        seconds = time.monotonic() - ended
        after = honest.rate()
        print(f"\n{' '.join(map(str, arguments[:1] + arguments[2:]))}: batches/s {before:.0f} before, "
              f"{' '.join(f'{rate:.0f}' for rate in during)} during, {after:.0f} after; MiB {memory / MIB:.1f} before, "
              f"{most / MIB:.1f} at most, {anonymous_bytes(one) / MIB:.1f} {seconds:.1f} s after; {used:.2f} cores")
        assert sum(during) / 2 >= min(before, after) / 8  # the attackers and what else runs here take their share
        assert most <= memory + growth
        assert anonymous_bytes(one) <= memory + back
    finally:
        honest.close()


@pytest.mark.slow
@pytest.mark.parametrize("size, more", [(0, []), (32768, []), (40, ["--trickle"])])
def test_a_message_that_never_ends(daemon, demo_file, size, more):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    withstand(one, "endless", one.endpoint, "--count", 8, "--size", size, *more, growth=64 * MIB)
    assert status_of(one)["cut_connections"] > 0
    assert one.text().count("cut off") == 1


@pytest.mark.slow
def test_a_message_that_never_ends_over_tcp(daemon, demo_file):
    one = daemon("listen: {tcp: '127.0.0.1:0', insecure_loopback: true}\n" + SMALL_BATCHES.format(path=demo_file))
    withstand(one, "endless", remote_endpoint(one), "--count", 8, growth=64 * MIB)
    assert status_of(one)["cut_connections"] > 0


@pytest.mark.slow
def test_sessions_that_never_read_their_status(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    withstand(one, "status", one.endpoint, "--count", 250, growth=64 * MIB)


@pytest.mark.slow
def test_remote_sessions_that_never_read_their_status(daemon, demo_file):
    one = daemon("listen: {tcp: '127.0.0.1:0', insecure_loopback: true}\n" + SMALL_BATCHES.format(path=demo_file))
    withstand(one, "status", remote_endpoint(one), "--count", 150, growth=128 * MIB)


@pytest.mark.slow
def test_connections_that_greet_and_never_read(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    withstand(one, "hello", one.endpoint, "--count", 400, growth=64 * MIB)


@pytest.mark.slow
def test_connections_that_take_all_descriptors(daemon, demo_file):
    limited = ["sh", "-c", 'ulimit -n 1500; exec "$@"', "sh"]
    one = daemon(SMALL_BATCHES.format(path=demo_file), prefix=limited)
    withstand(one, "descriptors", one.endpoint, "--count", 3000, growth=64 * MIB)
    assert status_of(one)["floods"] > 0
