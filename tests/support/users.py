"""Other users of the daemon's group: connections and processes of theirs."""
import contextlib
import ctypes as c
import multiprocessing
import os
import signal
import textwrap

import libtrajd as trajd
import pytest
from daemons import LIBRARY, Daemon

ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can connect as another user")


def serve_group(folder, config, started, monkeypatch, kind=Daemon, **options):
    """Starts a daemon that serves the group of its folder. The test then runs in that folder, since other users may not pass the folders above."""
    one = started(kind(folder, textwrap.dedent(config) + "\ngroup_access: true\n", **options))
    os.chown(one.endpoint, 0, 0)
    one.endpoint.chmod(0o770)
    for path in one.endpoint.iterdir():
        os.chown(path, 0, 0)
    monkeypatch.chdir(one.endpoint)
    return one


@contextlib.contextmanager
def user(uid):
    """Connections in this block are those of that user, in the group of root."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def client_of(uid):
    """Connects a worker of that user to the daemon of serve_group."""
    with user(uid):
        return trajd.Client(LIBRARY, ".")


class RingInfo(c.Structure):
    _fields_ = [("base", c.c_void_p), ("size_bytes", c.c_uint64), ("writable", c.c_bool)]


def _stay(uid, garbage, pipe):
    os.setgroups([])
    os.setresuid(uid, uid, uid)
    trajd.LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the test
    client, info = trajd.Client(LIBRARY, "."), RingInfo()
    client.open("train", job="former")
    batch = client.next()
    LIBRARY.trajd_batch_hold_ring.restype = c.c_void_p
    assert LIBRARY.trajd_batch_hold_ring(batch.handle, c.byref(info)) and info.writable
    batch.release()
    client.close()
    pipe.send("left")
    while garbage and not pipe.poll():
        c.memset(info.base, 0xa5, info.size_bytes)
    pipe.recv()
    pipe.send(bytes((c.c_uint8 * info.size_bytes).from_address(info.base)).count(0) == info.size_bytes)


class FormerWorker:
    """A process of that user that reads one batch, says BYE and keeps its mapping of the ring. With `garbage` it writes to all of it, for ever."""

    def __init__(self, uid, garbage=False):
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=_stay, args=(uid, garbage, theirs), daemon=True)
        self.process.start()
        assert self.pipe.poll(60) and self.pipe.recv() == "left"

    def is_ring_empty(self):
        """Ends the process. Returns True if its mapping holds zeros alone: its memory was freed."""
        self.pipe.send("end")
        empty = self.pipe.poll(60) and self.pipe.recv()
        self.process.join()
        return empty

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.join()
