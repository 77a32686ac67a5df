"""trajctl resample --backend: the same file from every backend, daemons that end during a run, and clients and
daemons that break the protocol. The GPUs are those of tests/fake."""
import array
import concurrent.futures
import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

import h5py
import msgpack
import numpy as np
import pytest

from daemons import FAKE_PROGRAM, GpuDaemon, smallest
from paths import BUILD, PROGRAM, SUPPORT, TRAJCTL
from resample_client import Client, ERROR, RESAMPLE, RESAMPLED, SEALS, block, memory
from resample_runs import has_rows, resample
from waiting import wait_for

FAKE_TRAJCTL = BUILD / "clients" / "cli" / "trajctl_fake_gpu"
GPU = "a GPU that is not there"
CONFIG = """
    {gpu}
    threads: {{resample: 3}}
    datasets: {{demo: {{path: {data}, layout: demo}}}}
    feeds: {{all: {feed}}}
"""


@pytest.fixture
def make(tmp_path, demo_file, started):
    numbers = itertools.count()

    def start(gpu=False, fake="", fall_back=False):
        settings = f"gpu: {{devices: all, rows: 16MiB, rings: 16MiB, fall_back: {str(fall_back).lower()}}}" if gpu else ""
        daemon = GpuDaemon(tmp_path / f"daemon{next(numbers)}", CONFIG.format(gpu=settings, data=demo_file, feed=smallest()),
                           program=FAKE_PROGRAM if gpu else PROGRAM)
        daemon.fake = fake
        return started(daemon)

    return start


def last(done):
    return json.loads(done.stdout.splitlines()[-1])


def planned(done):
    return next(event for event in map(json.loads, done.stdout.splitlines()) if event["event"] == "plan")


def by_fake(*arguments, fake="", check=True):
    done = subprocess.run([FAKE_TRAJCTL, "resample", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "FAKE_GPU": fake})
    assert not check or done.returncode == 0, done.stderr
    return done


def same_values(a, b, arithmetic=None):
    """Compares all datasets byte for byte, and the attribute about the arithmetic of the second file."""
    with h5py.File(a) as whole, h5py.File(b) as made:
        names = []
        whole.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert names and all(np.array_equal(whole[name], made[name]) for name in names)
        assert json.loads(made.attrs["trajd_resample"]).get("arithmetic") == arithmetic


# ---- the same values ----

@pytest.mark.parametrize("compress", ["none", "gzip:1"])
def test_the_same_bytes(tmp_path, make, demo_file, compress):
    """The fake GPU computes as the CPU does, so that every difference is a mistake in how data are passed on."""
    common = [demo_file, "--rate", 70, "--layout", "demo", "--window", "40ms", "--kind", "joint_pos=mean", "--compress", compress, "--json"]
    whole = tmp_path / "cpu.hdf5"
    done = resample(*common, "-o", whole, "--backend", "cpu")
    assert (planned(done)["backend"], planned(done)["by"], last(done)["backend"]) == ("cpu", "the CPU", "cpu")
    for gpu in (False, True):
        daemon, out = make(gpu=gpu), tmp_path / f"daemon{gpu}.hdf5"
        done = resample(*common, "-o", out, "--backend", "daemon", "--endpoint", daemon.endpoint)
        assert planned(done)["by"] == f"the daemon at {daemon.endpoint}, on its {GPU if gpu else 'CPU'}"
        assert last(done)["backend"] == "daemon" and last(done)["pieces"] > 20 and last(done)["pieces_here"] == 0 and not last(done)["fell_back"]
        same_values(whole, out, "gpu" if gpu else None)
        assert gpu or compress != "none" or out.read_bytes() == whole.read_bytes()  # chunks are in the order of their making
        status = subprocess.run([TRAJCTL, "status", "--endpoint", daemon.endpoint, "--json"], capture_output=True, text=True, check=True)
        assert json.loads(status.stdout)["resampling"]["pieces"] == last(done)["pieces"]
    done = by_fake(*common, "-o", tmp_path / "cuda.hdf5", "--backend", "cuda")
    assert (planned(done)["backend"], planned(done)["by"]) == ("cuda", GPU)
    same_values(whole, tmp_path / "cuda.hdf5", "gpu")


def test_what_is_not_at_hand(tmp_path, demo_file):
    common = [demo_file, "-o", tmp_path / "out.hdf5", "--rate", 20, "--layout", "demo"]
    for arguments, words in [(["--backend", "daemon", "--endpoint", tmp_path], ["no daemon resamples", "resample.sock"]),
                             (["--backend", "daemon", "--endpoint", "tcp://host:7878"], ["only a daemon on this machine", "--backend cpu"]),
                             (["--backend", "daemon", "--endpoint", "x" * 250], ["at most"]),
                             (["--backend", "gpu"], ["cpu, auto, cuda or daemon"])]:
        done = resample(*common, *arguments, check=False)
        assert done.returncode and all(word in done.stderr for word in words), done.stderr
    done = by_fake(*common, "--backend", "cuda", fake="none", check=False)
    assert done.returncode == 1 and "no GPU that this process can use" in done.stderr and "--backend daemon" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["--backend", "auto"]])
def test_only_a_backend_that_is_named_is_used(make, demo_file, words):
    common = ["--dry-run", demo_file, "--rate", 20, "--layout", "demo", "--json", *words]
    assert planned(resample(*common, "--endpoint", make(gpu=True).endpoint))["backend"] == "cpu"
    assert planned(by_fake(*common))["backend"] == "cpu"


# ---- backends that end during a run ----

SLOW = {"gpu": True, "fake": "slow=300000"}  # the duration of a launch: so that a run can be interrupted

def caught(process, out, out_bytes=1):
    """Waits until some rows are written: then the backend is at work."""
    wait_for(lambda: process.poll() is not None or has_rows(out, out_bytes), 60, "rows")


def killed_in_the_middle(make, out, *arguments, **daemon):
    """Starts a run, kills its daemon while it works, and returns how the run ended."""
    for _ in range(10):
        one = make(**daemon)
        process = subprocess.Popen([TRAJCTL, "resample", *map(str, arguments), "-o", out, "--endpoint", one.endpoint, "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        caught(process, out)
        one.kill()
        text, errors = process.communicate(timeout=60)
        if "has ended" in errors + text:
            return process.returncode, text, errors
        out.unlink(missing_ok=True)  # the kill came after the end
    raise AssertionError("no daemon was ever caught in the middle")


def test_a_daemon_that_was_asked_for_is_killed(fast_path, make, long_file):
    out = fast_path / "out.hdf5"
    status = killed_in_the_middle(make, out, long_file, "--rate", 25, "--backend", "daemon", **SLOW)[0]
    assert status == 1 and list(fast_path.glob("out*")) == []


@pytest.mark.slow
def test_a_gpu_that_fails(tmp_path, make, demo_file):
    """Where the GPU of the process itself fails, the run ends with an error and leaves nothing.
    Where a daemon's GPU fails, the daemon's CPU goes on, and the file is the same."""
    out, whole = tmp_path / "out.hdf5", tmp_path / "whole.hdf5"
    common = [demo_file, "--rate", 50, "--layout", "demo"]
    resample(*common, "-o", whole)
    done = by_fake(*common, "-o", out, "--backend", "cuda", fake="lost=5", check=False)
    assert done.returncode == 1 and "unspecified launch failure" in done.stderr and not out.exists()
    done = by_fake(*common, "-o", out, "--backend", "cuda", fake="oom", check=False)
    assert done.returncode == 1 and "out of memory" in done.stderr
    assert list(tmp_path.glob("out*")) == []
    for fake in ("lost=5", "oom"):
        daemon, began = make(gpu=True, fake=fake, fall_back=True), time.monotonic()
        done = resample(*common, "-o", out, "--force", "--backend", "daemon", "--endpoint", daemon.endpoint, "--json")
        same_values(whole, out, "gpu")
        assert last(done)["pieces_here"] == 0
        assert last(done)["pieces"] > 20 and daemon.process.poll() is None
        times = daemon.text().count("RESAMPLE uses the CPU")  # a GPU without room is not asked for every piece
        assert 1 <= times <= 1 + (time.monotonic() - began) / 10


def test_interrupted(fast_path, make, long_file):
    """Ctrl-C while the run waits for an answer of a stopped daemon."""
    daemon, out = make(**SLOW), fast_path / "out.hdf5"
    process = subprocess.Popen([TRAJCTL, "resample", long_file, "-o", out, "--rate", "25", "--backend", "daemon", "--endpoint", daemon.endpoint],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    caught(process, out)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert process.returncode == 0 or "interrupted" in errors  # 0: it already had all its answers


# ---- the socket ----

def open_files(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def test_clients_that_lie(make, tmp_path):
    daemon = make()
    mode = stat.S_IMODE(os.stat(daemon.endpoint / "resample.sock").st_mode)
    assert mode == 0o700
    client = Client(daemon)
    client.works()
    before = open_files(daemon)
    good, size = block(), len(block())
    for seals in (0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW):
        client.refused(memory(good, seals), size, "sealed")
    client.refused(memory(good, SEALS | fcntl.F_SEAL_WRITE), size, "cannot be written to")
    client.refused(memory(good, allocate=False), size, "holes")
    client.refused(memory(bytes(1 << 20)), 1 << 20, "bad magic number")
    client.refused(memory(good), size + 4096, "in a file of")
    for lie in (1, size - 64, size - 1):
        client.refused(memory(good), lie, "block")
    for lie in (1 << 40, 1 << 63, (1 << 64) - 1):
        client.refused(memory(good), lie, "at most")
    plain = tmp_path / "plain"
    plain.write_bytes(good)
    client.refused(os.open(plain, os.O_RDWR), size, "sealed")
    client.refused(os.open("/dev/zero", os.O_RDWR), size, "sealed")
    client.refused(os.pipe()[0], size, "sealed")
    readonly = memory(good)
    client.refused(os.open(f"/proc/self/fd/{readonly}", os.O_RDONLY), size, "cannot be written to")
    for at in range(0, 256, 8):  # every word of the head and of the stream
        for word in (0, 1 << 31, 1 << 62, (1 << 64) - 1):
            fd = memory(good[:at] + struct.pack("<Q", word) + good[at + 8:])
            client.ask(fd, size)
            os.close(fd)
    # the file may change while it is read: the daemon checks a copy
    fd = memory(good)
    os.pwrite(fd, bytes(64), 0)
    client.refused(fd, size, "bad magic number")
    client.say({"request": 5, "size": size})
    assert client.hear()[1]["message"].startswith("RESAMPLE: the message must carry exactly one descriptor")
    two = [memory(good), memory(good)]
    client.say({"request": 6, "size": size}, two)
    assert "exactly one descriptor" in client.hear()[1]["message"]
    client.say({"request": 7, "size": size}, two * 20)
    assert client.hear()[0] == ERROR
    client.say({"request": 8}, op=6)
    assert "accepts only RESAMPLE" in client.hear()[1]["message"]
    client.say({"request": "eight"})
    assert client.hear()[1]["status"] == "protocol"
    client.say({"request": 9})  # asks only which device would do the work
    assert client.hear() == (RESAMPLED, {"request": 9})
    client.works()
    client.socket.send(b"GET / HTTP/1.1\r\n\r\n")
    assert client.hear() is None  # the bytes are not a message
    other = Client(daemon)
    other.socket.send(bytes(5000))
    assert other.hear() is None
    for _ in range(3):  # a message without bytes, with descriptors
        empty = Client(daemon)
        empty.socket.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", two))])
        assert empty.hear() is None
    Client(daemon).works()
    wait_for(lambda: open_files(daemon) <= before, what="all descriptors closed again")


def test_pages_that_are_not_there(make):
    """Pages beyond the end of the file make its number of blocks look right. The daemon must not allocate the
    missing pages."""
    client, content = Client(make()), block(steps=5000, answer=bytes(20032 + 5056))
    whole = memory(content)
    assert client.ask(whole, len(content))[0] == RESAMPLED
    os.close(whole)
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, len(content))
    os.pwrite(fd, content[:-25088], 0)
    keep_size = 1
    assert ctypes.CDLL(None).fallocate(fd, keep_size, ctypes.c_long(1 << 17), ctypes.c_long(1 << 17)) == 0
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    before = os.fstat(fd)
    assert before.st_blocks * 512 > before.st_size
    client.refused(os.dup(fd), len(content), "holes")
    assert os.fstat(fd).st_blocks <= before.st_blocks
    os.close(fd)
    client.works()


def nicenesses(daemon):
    """Returns the niceness of the threads that resample for programs."""
    found = []
    for task in os.listdir(f"/proc/{daemon.process.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{daemon.process.pid}/task/{task}/stat") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
            if name == "trajd-for-cli":
                found.append(int(rest.split()[16]))
    return found


def test_threads_are_there_while_there_are_clients(make):
    """There are as many threads as for feeds, with a higher niceness. A block of many steps gives the same values
    as with one thread."""
    daemon = make()
    client, steps = Client(daemon), 20000
    content = block(rows=30000, steps=steps, answer=bytes(80000 + 20032))
    fd = memory(content)
    assert client.ask(fd, len(content))[0] == RESAMPLED
    made = np.frombuffer(os.pread(fd, 4 * steps, len(content) - 100032), np.float32)
    assert np.allclose(made, np.arange(steps) * 0.7, rtol=1e-6)
    os.close(fd)
    wait_for(lambda: len(nicenesses(daemon)) == 3, what="threads with their name")
    assert min(nicenesses(daemon)) >= 10
    client.socket.close()
    wait_for(lambda: len(nicenesses(daemon)) == 1, what="the last client's threads to end")


def test_a_descriptor_that_lingers(make):
    """Closing the last descriptor of this socket would block until its peer has read everything. The daemon must
    not block."""
    daemon = make()
    client = Client(daemon)
    client.works()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        sender.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                sender.send(bytes(1 << 16))
        daemon.process.send_signal(signal.SIGSTOP)  # so that the daemon closes it last
        try:
            client.say({"request": 1, "size": 64}, [sender.fileno()])
            sender.close()
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert client.hear()[0] == ERROR
        Client(daemon).works()
        peer.close()


def test_a_client_that_is_killed_and_many_that_are_not(make, demo_file, tmp_path):
    """Other clients get their pieces and a feed its batches. A client that sends without reading harms only itself."""
    daemon = make()
    reader = daemon.client()
    reader.open("all")
    silent = [Client(daemon) for _ in range(3)]
    fd = memory(block())
    for client in silent:
        client.socket.setblocking(False)
        try:
            for request in range(1, 2000):
                client.say({"request": request, "size": len(block())}, [fd])
        except OSError:
            pass  # its queue is full, or the daemon has closed the connection
    killed = subprocess.Popen([sys.executable, SUPPORT / "resample_client.py", daemon.endpoint], stdout=subprocess.PIPE)
    assert killed.stdout.readline() == b"ready\n"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        work = [pool.submit(lambda: [Client(daemon).works() for _ in range(20)]) for _ in range(8)]
        for _ in range(5):
            reader.next().release()
        killed.kill()
        killed.wait()
        for one in work:
            one.result(60)
    reader.close()
    for client in silent:
        client.socket.close()
    resample(demo_file, "-o", tmp_path / "out.hdf5", "--rate", 20, "--layout", "demo", "--backend", "daemon", "--endpoint", daemon.endpoint)


def test_connections_are_counted(make):
    daemon = make()
    clients = [Client(daemon) for _ in range(64)]
    clients[-1].works()
    for client in clients:
        client.say({"request": 1})
        assert client.hear()[0] == RESAMPLED
    one_more = Client(daemon)
    assert one_more.hear()[1]["status"] == "busy" and one_more.hear() is None
    clients[0].socket.close()
    end = time.monotonic() + 60
    while True:  # until the place is free again
        again = Client(daemon)
        try:
            again.works()
            break
        except (OSError, TypeError, KeyError):
            assert time.monotonic() < end


def frame_of(op, body):
    return b"TRJD" + bytes([1, op, 0, 0]) + msgpack.packb(body)


@pytest.mark.parametrize("answer, word", [
    (b"", "has ended"), (b"HTTP/1.1 200 OK", "not a message"), (frame_of(RESAMPLED, {"request": 77}), "an unexpected reply"),
    (frame_of(71, {"request": 2, "status": "{}"}), "an unexpected reply"), (frame_of(RESAMPLED, {}), "request"),
    (frame_of(ERROR, {"status": "argument", "message": "no such thing"}), "no such thing"),
    (frame_of(ERROR, {"status": "ok", "message": "all is well"}), "all is well"), (bytes([0xff]) * 2048, "not a message")])
def test_a_daemon_that_lies(tmp_path, demo_file, answer, word):
    """The fake daemon answers the first request, gets rows and then sends `answer`: trajctl reports an error and
    writes no file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "resample.sock"))
        listener.listen(8)
        listener.settimeout(30)
        process = subprocess.Popen([TRAJCTL, "resample", demo_file, "-o", tmp_path / "out.hdf5", "--rate", "20", "--layout", "demo", "--threads", "1",
                                    "--backend", "daemon", "--endpoint", tmp_path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for is_last in (False, True):  # the first connection asks for the device, the second one sends rows
            connection, _ = listener.accept()
            connection.settimeout(30)
            assert connection.recv(4096)[5] == RESAMPLE
            connection.send(frame_of(RESAMPLED, {"request": 1}))
            if is_last:
                assert connection.recv(4096)[5] == RESAMPLE
                if answer:
                    connection.send(answer)
                connection.close()
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and word in errors and not (tmp_path / "out.hdf5").exists(), errors
