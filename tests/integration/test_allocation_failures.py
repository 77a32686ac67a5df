"""Allocations of trajd's own code fail, one at a time: the run goes on with right data, or is refused with a message.

The library of tests/fake/faults.c counts and fails them. Those of libzmq and libhdf5 never fail: libzmq aborts by design where
it gets no memory, and the service manager restarts the daemon (test_failures.py kills daemons, and workers resume).

Each run has a fault: the first allocation of a sequence of callers fails, or with TRAJD_TEST_EVERY_ALLOCATION=1 the one of a
number, of which the daemon has 2,900. Threads take turns differently in each run, so callers are surer than numbers. A test
fails where nothing has failed."""
import contextlib
import io
import os
import re
import signal
import subprocess

import h5py
import numpy as np
import pytest
from PIL import Image

import libtrajd as trajd
from datasets import make_demo_file
from daemons import LIBRARY
from faults import Faults, FaultyDaemon
from paths import BUILD, TRAJCTL, clean_environment
from image_files import png, random_frames, write_encoded
from waiting import wait_for

pytestmark = pytest.mark.slow

CONFIG = """
listen: {{tcp: "127.0.0.1:0", keys: "{keys}"}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
limits: {{credit: 2}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    slots: 3
    seed: 3
    anchor: {{clock: actions}}
    outputs: {{obs/robot0_eef_pos: {{at: -1..0}}, actions: {{at: 0..3, norm: mean_std}}}}
"""
ADDED = """\
  added:
    {mix: {demo: 1}, global_batch: 2, epoch: 100, anchor: {clock: actions}, outputs: {actions: {at: 0}}}
"""
SPEC = ("{dataset: demo, global_batch: 4, seed: 5, anchor: {clock: actions}, "
        "outputs: {actions: {at: 0..1, norm: min_max}, obs/robot0_gripper_qpos: {at: 0}}}")
IMAGES = """
threads: {{decoders: 1}}
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: 3
    anchor: {{clock: steps}}
    outputs:
      whole: {{from: observations/images/top, at: 0}}
      small: {{from: observations/images/top, at: 0, image: {{resize: [20, 30]}}, layout: chw}}
"""
PHASES = ("connect", "open", "batches", "status", "queries", "spec", "checkpoint", "remote", "reload", "close")  # methods of Run
# what a message about a lack of memory contains
MEMORY = re.compile("memory|Resource temporarily unavailable")


def chosen(runs, step):
    """Returns arguments of fail_memory, from two runs in which nothing failed: for each `step` sequences of callers in both of
    them. `runs` have what Faults.stacks returned."""
    if "TRAJD_TEST_EVERY_ALLOCATION" in os.environ:
        return [{"at": number} for number in range(1, min(map(len, runs)) + 1)]
    return [{"stack": stack} for stack in list(dict.fromkeys(stack for stack in runs[0] if stack in runs[1]))[::step]]


class Run:
    """One daemon and its workers. `data` has all batches so far; `ends` has how many allocations there were after each phase."""

    def __init__(self, daemon, key):
        self.daemon, self.key, self.data, self.ends, self.client = daemon, key, [], {}, None

    def take(self, count):
        for _ in range(count):
            batch = self.client.next(timeout_ms=20000)
            self.data.append((batch.epoch, batch.position, batch.copy()))
            batch.release()

    def connect(self):
        self.client = self.daemon.client()

    def open(self):
        self.client.open("train", job="run")

    def batches(self):
        self.take(6)

    def status(self):
        assert self.client.status()["feeds"]

    def queries(self):
        self.client.ask("explain", window=3)
        assert len(self.client.ask("episodes", first=0, count=2)["items"]) == 2

    def spec(self):
        self.client.open(spec=SPEC)
        self.take(3)

    def checkpoint(self):
        token = self.client.checkpoint()
        self.client.open(spec=SPEC, resume=token)
        self.take(3)

    def remote(self):
        self.client.close()
        endpoint = re.findall(r"remote workers at (tcp://\S+)", self.daemon.text())[-1]
        self.client = trajd.Client(LIBRARY, endpoint, key_file=self.key)
        self.client.open("train", job="remote")
        self.take(4)

    def reload(self):
        self.daemon.config.write_text(self.daemon.config.read_text() + ADDED)
        self.daemon.process.send_signal(signal.SIGHUP)
        done = wait_for(lambda: re.search(r"(reloaded|reload refused).*", self.daemon.text()), what="the reload")
        if done[1] != "reloaded":
            raise RuntimeError(done[0])
        self.client.open("added")
        self.take(2)

    def close(self):
        self.client.close()

    def go(self):
        """Returns the phase that failed and its message, or (None, "")."""
        page = self.daemon.faults.page
        with contextlib.suppress(AssertionError):
            self.daemon.start()
        if self.daemon.process.poll() is not None:
            return "start", self.daemon.text()
        self.ends["start"] = page.allocations
        for name in PHASES:
            try:
                getattr(self, name)()
            except (trajd.TrajdError, RuntimeError) as error:
                return name, str(error)
            self.ends[name] = page.allocations
        return None, ""

    def check_afterwards(self):
        """With all memory there, the daemon serves and ends cleanly."""
        self.daemon.faults.page.fail_count = 0
        if self.client:
            self.client.close()
        self.client = self.daemon.client()
        self.client.open("train", job="after")
        begin = len(self.data)
        self.take(2)
        after, self.data[begin:] = self.data[begin:], []
        self.client.close()
        self.daemon.stop()
        return after


def is_same(left, right):
    return left[:2] == right[:2] and left[2].keys() == right[2].keys() and all(np.array_equal(left[2][k], right[2][k]) for k in left[2])


class Numbered:
    """Makes runs, and compares them with one in which nothing fails."""

    def __init__(self, folder, path, counted, step):
        self.folder, self.path, self.counted, self.keys = folder, path, counted, folder / "keys"
        for arguments in ([], ["--client", "alice"]):
            subprocess.run([TRAJCTL, "keygen", self.keys, *arguments], check=True, env=clean_environment(), stdout=subprocess.DEVNULL)
        stacks = []
        for name in ("before", "reference"):
            self.reference = self.make(name)
            assert self.reference.go() == (None, "")
            stacks.append(self.reference.daemon.faults.stacks())
            self.after = self.reference.check_afterwards()
        self.faults, self.runs, self.injected = chosen(stacks, step), 0, 0

    def make(self, name, fault=None):
        daemon = FaultyDaemon(self.folder / name, CONFIG.format(path=self.path, keys=self.keys), self.counted)
        if fault:
            daemon.faults.fail_memory(**fault)
        return Run(daemon, self.keys / "alice.key_secret")

    def check(self, fault):
        """Returns the message of the run's end, "" if it succeeded."""
        self.runs += 1
        run = self.make(str(self.runs), fault)  # a short name: it is part of the path of a socket
        phase, message = run.go()
        log = run.daemon.text()

        def place():
            return f"allocation {fault} at {run.daemon.faults.place()}, {phase}: {message}\n{log}"

        self.injected += run.daemon.faults.page.failed > 0

        if phase == "start":
            assert run.daemon.process.returncode == 1 and MEMORY.search(message.splitlines()[-1]), place()
            return message
        assert run.daemon.process.poll() is None, place()
        assert not phase or MEMORY.search(message) or "ended a session: no memory" in log, place()
        assert all(map(is_same, run.data, self.reference.data)), place()
        assert phase or len(run.data) == len(self.reference.data), place()
        assert all(map(is_same, run.check_afterwards(), self.after)), place()
        return message


@pytest.fixture
def make(tmp_path):
    return lambda counted, step: Numbered(tmp_path, make_demo_file(tmp_path / "demo.hdf5", episodes=4), counted, step)


def test_one_allocation_of_the_daemon_fails(make):
    numbered = make("trajd", 12)
    messages = [numbered.check(fault) for fault in numbered.faults]
    assert "" in messages and any(messages)
    # which thread meets a lock or a full outbox, and has to allocate then, is not the same in each run
    assert numbered.injected >= 0.8 * len(messages)


def test_one_allocation_of_the_helper_fails(make):
    """The daemon has the file read again: no episode is missing."""
    numbered = make("trajd-indexer", 2)
    assert {numbered.check(fault) for fault in numbered.faults} == {""} and numbered.injected == len(numbered.faults)


def test_the_helper_gets_no_memory_at_all(make):
    numbered = make("trajd-indexer", 1)
    assert "is memory full?" in numbered.check({**numbered.faults[-1], "count": 1 << 32}) and numbered.injected


def jpeg(frame):
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "JPEG")
    return data.getvalue()


@pytest.mark.parametrize("encode", [png, jpeg])
def test_one_allocation_of_a_decoder_fails(tmp_path, encode):
    """The decoder ends and its frames are decoded again by another one: no frame is taken for a bad one."""
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(6, 48, 64, 10)}, encode=encode)

    def run(name, **fault):
        daemon = FaultyDaemon(tmp_path / name, IMAGES.format(path=tmp_path / "episode_0.hdf5"), "trajd-decoder")
        daemon.faults.fail_memory(**fault)
        daemon.start()
        with contextlib.closing(daemon.client()) as client:
            client.open("train")
            batches = [arrays for _, arrays in client.epoch()]
            assert client.status()["datasets"][0]["frames"]["bad"] == 0, daemon.faults.place()
        daemon.stop()
        return daemon.faults, batches

    stacks = [run("before", count=0)[0].stacks()]
    faults, reference = run("reference", count=0)
    found = chosen([*stacks, faults.stacks()], 1)
    assert len(found) > 5 and len(reference) == 2
    for i, fault in enumerate(found):
        faults, batches = run(str(i), **fault)
        assert faults.page.failed == 1, fault
        assert all(np.array_equal(a[key], b[key]) for a, b in zip(batches, reference) for key in b), faults.place()
        assert len(batches) == len(reference)


def contents(path):
    """Returns all arrays of an HDF5 file."""
    arrays = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: arrays.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None)
    return arrays


@pytest.mark.parametrize("command", ["inspect", "validate", "resample"])
def test_one_allocation_of_trajctl_fails(tmp_path, command):
    """The command prints the same and writes the same, or it fails, tells why, and publishes nothing."""
    source, output = make_demo_file(tmp_path / "demo.hdf5", episodes=4), tmp_path / "out.hdf5"
    arguments = [command, source, "--layout", "demo", *(["-o", output, "--rate", "10"] if command == "resample" else [])]

    def run(**fault):
        faults = Faults(tmp_path / "faults", "trajctl")
        faults.fail_memory(**fault)
        for path in tmp_path.glob("out.hdf5*"):
            path.unlink()
        done = subprocess.run([TRAJCTL, *arguments], capture_output=True, text=True, timeout=60, env=faults.environment(clean_environment()))
        return faults, done, contents(output) if output.exists() else None

    stacks = [run(count=0)[0].stacks()]
    faults, reference, written = run(count=0)
    for fault in chosen([*stacks, faults.stacks()], 3):
        faults, done, got = run(**fault)
        assert faults.page.failed == 1, fault
        if (done.returncode, got) == (reference.returncode, written) and len(done.stdout) == len(reference.stdout):
            continue
        assert done.returncode == 1 and MEMORY.search(done.stdout + done.stderr), (fault, faults.place(), done)
        assert got is None or (got == written and "sync_folder" in faults.place()), done  # published, perhaps not on the disk yet


@pytest.mark.parametrize("mode", ["shard=0", "shard=1", "reconnect=1"])
def test_one_allocation_of_libtrajd_fails(tmp_path, mode):
    """A worker reads its epochs to the end, or gets an error that tells why."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    producer = subprocess.Popen([BUILD / "tests/support/fake_producer", folder, "length=160", "batch=8", "slots=3", "credit=2"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert producer.stdout.readline() == "READY\n"

    def run(**fault):
        faults = Faults(tmp_path / "faults", "fake_worker")
        faults.fail_memory(**fault)
        done = subprocess.run([BUILD / "tests/support/fake_worker", folder, "epochs=2", mode], capture_output=True, text=True, timeout=60,
                              env=faults.environment(clean_environment()))
        return faults, done, sorted(done.stdout.splitlines())

    stacks = [run(count=0)[0].stacks()]
    faults, reference, lines = run(count=0)
    found = chosen([*stacks, faults.stacks()], 1)
    assert reference.returncode == 0 and found
    for fault in found:
        for _ in range(3):  # what is allocated in a reconnection also depends on what has arrived before
            faults, done, got = run(**fault)
            if faults.page.failed:
                break
        assert faults.page.failed == 1, fault
        assert (done.returncode == 0 and got == lines) or (done.returncode == 1 and MEMORY.search(done.stdout)), (fault, done)
    producer.stdin.close()
    assert producer.wait(20) == 0
