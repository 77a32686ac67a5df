"""Attacks on the daemon's sockets. A worker's rate is measured with each attack and without, and the daemon's anonymous
memory."""
import contextlib
import os
import re
import resource
import signal
import statistics
import threading
import time

import pytest

from attacker import MIB, anonymous_bytes, begin_attack, remote_endpoint
from feeds import SMALL_BATCHES
from waiting import wait_for

# A measurement alternates slices without the attack and with it, so that both have the same machine. Beside both of them
# processes that attack nobody keep every processor busy. For figures: 60 pairs.
PAIRS, SECONDS = int(os.environ.get("TRAJD_FLOOD_PAIRS", 16)), 0.25
LEAST = 0.9        # of the undisturbed rate. A test fails where the ratio is surely below
GROWTH = 32 * MIB  # of memory


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
        """Measures batches a second."""
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


@contextlib.contextmanager
def busy_processors(one):
    """Keeps each processor busy with a process that attacks nobody. Without them, an attack wakes processors that sleep in the
    slices without it, which makes a worker faster, and takes idle time, which makes it slower. Neither is the daemon's."""
    with contextlib.ExitStack() as others:
        for _ in os.sched_getaffinity(0):
            others.enter_context(attack("elsewhere", one.endpoint))
        yield


def status_of(one):
    with contextlib.closing(one.client()) as client:
        return client.status()


def limit_memory(one, growth):
    """Lets the daemon's allocations fail, so that it ends, where it takes `growth` bytes more than now."""
    with open(f"/proc/{one.process.pid}/status") as file:
        now = int(re.search(r"VmData:\s*(\d+) kB", file.read())[1]) * 1024
    resource.prlimit(one.process.pid, resource.RLIMIT_DATA, (now + growth, now + growth))


def ratio_of(during, calm):
    """Returns the ratio of the sums of pairs of rates, and how far off it may be (95 %)."""
    ratio, mean = sum(during) / sum(calm), statistics.mean(calm)
    rest = [a - ratio * b for a, b in zip(during, calm)]
    return ratio, 2 * statistics.stdev(rest) / mean / len(calm) ** 0.5


def withstand(one, *arguments, growth=GROWTH, cuts=False, back=5 * MIB):
    """Runs an attack and stops it now and then. The worker keeps its rate, memory stays within `growth` of that before, and
    returns to within `back`. With `cuts` connections are cut."""
    honest = Honest(one)
    calm, during, memories, calm_seconds, seconds = [], [], [], 0, 0
    try:
        wait_for(lambda: honest.count > 0 or honest.error, what="the first batch")
        honest.rate()  # caches are filled
        memory = anonymous_bytes(one)
        with busy_processors(one), attack(*arguments) as attacker:
            honest.rate()
            for _ in range(PAIRS):
                attacker.send_signal(signal.SIGSTOP)
                before = cpu_seconds(one)
                calm.append(honest.rate())
                calm_seconds += cpu_seconds(one) - before
                attacker.send_signal(signal.SIGCONT)
                before = cpu_seconds(one)
                during.append(honest.rate())
                seconds += cpu_seconds(one) - before
                memories.append(anonymous_bytes(one))
            if cuts:
                wait_for(lambda: "cut off connections" in one.text(), 120, "the line of the log about a cut")
        ended = time.monotonic()
        with contextlib.suppress(AssertionError):
            wait_for(lambda: anonymous_bytes(one) <= memory + back, 15)
        ratio, error = ratio_of(during, calm)
        print(f"\n{' '.join(str(a)[:12] for a in arguments[:1] + arguments[2:])}: {ratio:.2f} +- {error:.2f} of {statistics.mean(calm):.0f} "
              f"batches/s; MiB {memory / MIB:.1f} before, {max(memories) / MIB:.1f} at most, {anonymous_bytes(one) / MIB:.1f} "
              f"{time.monotonic() - ended:.1f} s after; cores {calm_seconds / PAIRS / SECONDS:.2f} before, {seconds / PAIRS / SECONDS:.2f} during")
        assert ratio + error >= LEAST
        assert not cuts or status_of(one)["cut_connections"] > 0
        assert max(memories) <= memory + growth
        assert anonymous_bytes(one) <= memory + back
    finally:
        honest.close()


FLOODS = {
    "tiny messages": ["--flags", "0"],
    "a message of empty frames": [],
    "messages of two frames": ["--size", 8, "--flags", "10"],
    "messages of many frames": ["--flags", "1" * 1000 + "0"],
    "bytes": ["--piece", 1],
    "packets of 36 bytes": ["--size", 34, "--piece", 36],
    "packets of 102 bytes": ["--size", 100, "--piece", 102],
    "large frames": ["--size", 65536],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_floods_of_frames(daemon, demo_file, name):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    limit_memory(one, GROWTH)
    withstand(one, "frames", one.endpoint, "--count", 8, "--session", *FLOODS[name], cuts=True)


@pytest.mark.slow
def test_floods_before_a_session(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    limit_memory(one, GROWTH)
    withstand(one, "frames", one.endpoint, "--count", 8, cuts=True)


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["0", "1"])
def test_floods_of_as_many_sessions_as_there_may_be(daemon, demo_file, flags):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    withstand(one, "frames", one.endpoint, "--count", 250, "--session", "--size", 40, "--flags", flags)


@pytest.mark.slow
def test_floods_of_frames_over_tcp(daemon, demo_file):
    one = daemon("listen: {tcp: '127.0.0.1:0', insecure_loopback: true}\n" + SMALL_BATCHES.format(path=demo_file))
    withstand(one, "frames", remote_endpoint(one), "--count", 8, cuts=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["leave", "identity"])
def test_connections_that_end_and_leave_messages(daemon, demo_file, name):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    withstand(one, name, one.endpoint)


@pytest.mark.slow
def test_sessions_that_never_read_their_status(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    withstand(one, "status", one.endpoint, "--count", 250)


@pytest.mark.slow
def test_remote_sessions_that_never_read_their_status(daemon, demo_file):
    one = daemon("listen: {tcp: '127.0.0.1:0', insecure_loopback: true}\n" + SMALL_BATCHES.format(path=demo_file))
    withstand(one, "status", remote_endpoint(one), "--count", 150)


@pytest.mark.slow
def test_connections_that_greet_and_never_read(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    withstand(one, "hello", one.endpoint, "--count", 400)


@pytest.mark.slow
def test_connections_that_take_all_descriptors(daemon, demo_file):
    limited = ["sh", "-c", 'ulimit -n 1500; exec "$@"', "sh"]
    one = daemon(SMALL_BATCHES.format(path=demo_file), prefix=limited)
    withstand(one, "descriptors", one.endpoint, "--count", 3000)
    assert status_of(one)["floods"] > 0
