"""The watchdog of real daemons. A stuck thread is named and the watchdog is no longer fed. A thread that waits for
storage is not stuck. Neither storage nor a helper program keeps a daemon from ending. Threads are stopped as a
debugger does."""
import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import libtrajd as trajd
from daemons import Daemon, GpuDaemon
from paths import BUILD, PROGRAM, ROOT
from silent_filesystem import silent_filesystem
from users import ROOT_ALONE
from waiting import wait_for

pytestmark = pytest.mark.slow
LIMIT_S = 5  # a thread is stuck after half of the watchdog's time
CONFIG = """\
datasets:
  demo: {{path: {path}, layout: demo}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0..3}}}}
"""
SPEC = "dataset: demo\nglobal_batch: 2\nanchor: {clock: actions}\noutputs: {obs/robot0_eef_pos: {at: 0}}\n"
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes, LIBC.ptrace.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long


def threads(daemon, name):
    """Returns the threads of that name. A number may follow the name."""
    found = []
    for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().strip().rstrip("0123456789") == name:
                found.append(int(task.name))
    return found


@contextlib.contextmanager
def stopped(tasks):
    """Stops these threads for the duration of the block."""
    seized = []
    try:
        for task in tasks:
            if LIBC.ptrace(SEIZE, task, None, None):
                pytest.skip(f"no thread may be stopped here: {os.strerror(ctypes.get_errno())}")
            seized.append(task)
            assert LIBC.ptrace(INTERRUPT, task, None, None) == 0
            os.waitpid(task, WALL)
        yield
    finally:
        for task in seized:
            if LIBC.ptrace(DETACH, task, None, None):
                os.waitpid(task, WALL)  # the thread has ended: the process is gone


class Manager:
    """The service manager's end of a daemon's notifications."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)

    def feeds(self, timeout):
        """Returns True if the watchdog is fed within that time. Earlier notifications do not count."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.recv(4096)
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                if self.socket.recv(4096) == b"WATCHDOG=1":
                    return True
        return False


def start(folder, path, **options):
    """Starts a daemon with its manager."""
    one = Daemon(folder, CONFIG.format(path=path), **options)
    manager = Manager(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTIFY_SOCKET", manager.path)
        patch.setenv("WATCHDOG_USEC", str(2 * LIMIT_S * 1000000))
        one.start()
    return one, manager


def open_in_background(one):
    """Opens a feed whose rows have to be read. The worker gives up when the daemon ends."""
    def work():
        with contextlib.suppress(trajd.TrajdError):
            one.client().open(spec=SPEC)

    threading.Thread(target=work, daemon=True).start()


def test_who_is_stuck_is_named_and_who_waits_for_storage_is_not(tmp_path, demo_file):
    names = {"trajd-open": "the opener", "trajd-ask": "the query service", "trajd-stats": "the statistics service", "trajd-feed": "feed train",
             "trajd-serve": "the server's thread"}
    daemons = {name: start(tmp_path / name, demo_file) for name in names}
    waiting, waiting_manager = start(tmp_path / "waiting", demo_file)
    with contextlib.ExitStack() as all_stopped:
        all_stopped.enter_context(stopped(threads(waiting, "trajd-read")))
        open_in_background(waiting)
        begin = time.monotonic()
        for name, (one, _) in daemons.items():
            all_stopped.enter_context(stopped(threads(one, name)))
        for name, (one, manager) in daemons.items():
            wait_for(lambda: f"{names[name]} has made no progress for {LIMIT_S} s: the watchdog is not notified" in one.text(), 60, name)
        assert not any(manager.feeds(0.3) for _, manager in daemons.values())
        wait_for(lambda: time.monotonic() > begin + LIMIT_S + 2)
        assert waiting_manager.feeds(60)  # its opener has waited for longer than a thread may stand still
        waiting.process.terminate()  # nor is it a reason to stay
        wait_for(lambda: "a thread waits for storage or a GPU that does not respond: ended without it" in waiting.text(), 60, "the end")
    assert waiting.process.wait(60) == 0
    for one, manager in daemons.values():
        assert manager.feeds(60)  # it goes on
        one.stop()


GPU_CONFIG = """
    gpu: {{devices: all, rows: 64MiB, rings: 16MiB}}
    datasets: {{demo: {{path: {path}, layout: demo}}}}
    feeds:
      train: {{dataset: demo, global_batch: 8, slots: 4, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0..3}}}}}}
"""


@pytest.mark.parametrize("fake, count", [("hang=3", 2), ("halt=5", 4)])
def test_a_gpu_that_hangs_is_found_while_a_worker_holds_batches(tmp_path, demo_file, fake, count):
    """The worker leaves fewer free slots than may be in flight: the thread that launches waits for a slot again and
    again. Or no batch is in flight, and the GPU does not answer."""
    ctypes.CDLL(str(BUILD / "tests" / "fake" / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)  # libtrajd finds it by its name
    one = GpuDaemon(tmp_path / "gpu", GPU_CONFIG.format(path=demo_file), program=PROGRAM.with_name("trajd_fake_gpu"))
    one.fake = fake
    manager = Manager(one.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTIFY_SOCKET", manager.path)
        patch.setenv("WATCHDOG_USEC", str(2 * LIMIT_S * 1000000))
        one.start()
    try:
        client = one.client()
        info = client.open("train", gpu="GPU-00112233-4455-6677-8899-aabbccddeeff", credit=4)
        assert info.gpu, info.gpu_refusal
        held = [client.next() for _ in range(count)]
        with pytest.raises(trajd.TrajdError):
            client.next(timeout_ms=100)
        wait_for(lambda: f"has made no progress for {LIMIT_S} s: the watchdog is not notified" in one.text(), 60, "the watchdog to bark")
    finally:
        one.process.kill()
        one.process.wait()
    for batch in held:
        batch.release()
    client.close()


@ROOT_ALONE
@pytest.mark.parametrize("name, answers", [("file", False), ("folder", False), ("folder/*.hdf5", False), ("file", True)])
@pytest.mark.parametrize("command", [[], ["--check"]])
def test_a_start_on_storage_that_does_not_answer(tmp_path, name, answers, command):
    """A filesystem in user space whose process is stopped, as a network filesystem without its server. Without an answer the start ends.
    If it answers all but reads, a helper program waits in one and cannot be killed."""
    (tmp_path / "silent").mkdir()
    with silent_filesystem(tmp_path / "silent", "reads", answers=answers) as path:
        if path is None:
            pytest.skip("no FUSE filesystem can be mounted here")
        data = path.parent / name
        one = Daemon(tmp_path / "daemon", CONFIG.format(path=data) + "index: {file_timeout: 1s}\n")
        with contextlib.closing(open(tmp_path / "said", "w")) as said:
            process = subprocess.Popen([PROGRAM, "--config", one.config, *command], env=one.environment(), stdout=said, stderr=said)
        status = process.wait(60)
    text = (tmp_path / "said").read_text()
    assert status == 1 and f"{data}: its storage has not answered for 1 s (index.file_timeout): the start is given up" in text, text


def test_a_stop_gives_up_what_is_being_indexed(tmp_path, demo_file):
    """The helper program hangs, with an hour to go. It is killed, and the daemon ends with status 0."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "share/trajd").mkdir(parents=True)
    (tmp_path / "share/trajd/layouts").symlink_to(ROOT / "configs/layouts")
    shutil.copy(PROGRAM, tools / "trajd")
    shutil.copy(PROGRAM.parent / "hdf5/trajd-indexer", tools / "trajd-indexer")
    one, _ = start(tmp_path / "daemon", demo_file, program=tools / "trajd")
    (tools / "trajd-indexer").unlink()
    (tools / "trajd-indexer").write_text(f"#!/bin/sh\necho $$ >{tmp_path}/child\nexec sleep 3600\n")
    (tools / "trajd-indexer").chmod(0o755)
    shutil.copy(demo_file, tmp_path / "other.hdf5")
    text = one.config.read_text().replace("store: 64MiB", "store: 128MiB")
    one.config.write_text(text.replace("feeds:", f"  other: {{path: {tmp_path}/other.hdf5, layout: demo}}\nfeeds:"))
    one.process.send_signal(signal.SIGHUP)
    child = wait_for(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip(), 60, "the child")
    one.stop()
    assert not pathlib.Path(f"/proc/{child}").exists()
    assert "does not answer" not in one.text()
