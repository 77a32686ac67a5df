"""The daemon's sockets: modes of their files, how sessions end, and users who take places or send descriptors that block."""
import array
import contextlib
import os
import pathlib
import re
import resource
import signal
import socket
import stat
import struct
import subprocess
import time
import types

import pytest

from daemons import Daemon
from feeds import SMALL_BATCHES
from paths import PROGRAM
from resample_client import Client, ERROR, memory
from silent_filesystem import silent_filesystem
from users import ROOT_ALONE, serve_group, user
from waiting import wait_for
from workers import Worker


@pytest.mark.parametrize("group_access, mode", [(False, 0o700), (True, 0o770)])
def test_the_files_of_sockets_have_the_modes_of_the_configuration(tmp_path, demo_file, group_access, mode):
    """The umask of the service does not matter."""
    config = SMALL_BATCHES.format(path=demo_file) + f"group_access: {str(group_access).lower()}\n"
    one = Daemon(tmp_path / "one", config, prefix=["sh", "-c", 'umask 0; exec "$@"', "sh"]).start()
    sockets = [path for path in one.endpoint.iterdir() if stat.S_ISSOCK(path.stat().st_mode)]
    assert {path.name for path in sockets} >= {"fd.sock", "resample.sock"} and len(sockets) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == mode for path in sockets), [oct(path.stat().st_mode) for path in sockets]
    one.stop()
    assert not [path for path in sockets if path.exists()]


def test_the_daemon_never_changes_its_umask():
    """The umask is that of the process: a change would also apply to files that other threads create at that moment."""
    names = subprocess.run(["nm", "-D", "--undefined-only", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert "sendmsg" in names and "umask" not in names


def test_a_session_that_says_bye_is_not_a_dead_one(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    watcher, leaver, victim = one.client(), one.client(), Worker(one, "--hold", 1)
    leaver.open("train")
    leaver.next().release()
    leaver.close()  # further batches are on their way to it, and not DONE
    wait_for(lambda: len(watcher.status()["sessions"]) == 2, what="the end of the session")
    assert watcher.status()["dead_sessions"] == 0
    victim.read("holding")
    victim.kill()
    wait_for(lambda: watcher.status()["dead_sessions"] == 1, what="the dead session")
    watcher.close()


@pytest.mark.parametrize("name, kind", [("fd.sock", socket.SOCK_SEQPACKET), ("feed.sock", socket.SOCK_STREAM), ("resample.sock", socket.SOCK_SEQPACKET)])
def test_connections_for_which_no_descriptor_is_free(daemon, demo_file, name, kind):
    """They wait. The daemon, for whose listener they stay readable, looks for descriptors now and then only."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    pid, second = one.process.pid, os.sysconf("SC_CLK_TCK")

    def processor_time():
        return sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) / second

    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (12, before[1]))  # not fewer: poll takes no longer list
    with contextlib.ExitStack() as connected:
        for _ in range(20):
            one_more = connected.enter_context(socket.socket(socket.AF_UNIX, kind))
            one_more.settimeout(60)
            one_more.connect(str(one.endpoint / name))
        begin, used = time.monotonic(), processor_time()
        time.sleep(2)
        assert processor_time() - used < 0.1 * (time.monotonic() - begin)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert (one_more.recv(64) != b"") == (name == "feed.sock")  # accepted: it is greeted, or cut for its silence
    client = one.client()
    client.open("train")
    client.next().release()
    client.close()


# ---- users and places ----

HERE = types.SimpleNamespace(endpoint=pathlib.Path())  # the daemon whose folder is the working directory


@pytest.fixture
def shared(tmp_path, demo_file, started, monkeypatch):
    return serve_group(tmp_path / "shared", SMALL_BATCHES.replace("credit: 8", "credit: 8, sessions: 4").format(path=demo_file), started, monkeypatch)


def connect(name):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.settimeout(30)
    one.connect(name)
    return one


def is_closed(one):
    one.setblocking(False)
    try:
        return not one.recv(4096)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def takes_a_place(daemon):
    newcomer = Client(daemon)
    try:
        newcomer.works()
        return True
    except (OSError, AssertionError, KeyError, TypeError):
        return False


@pytest.mark.slow
def test_silent_connections_lock_nobody_out_of_resample_sock(daemon, demo_file):
    """64 connections that send nothing are closed. Connections that have sent a message stay."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    asked = Client(one)
    asked.works()
    silent = [connect(str(one.endpoint / "resample.sock")) for _ in range(63)]
    wait_for(lambda: all(map(is_closed, silent)), 30, "the end of silent connections")
    Client(one).works()
    asked.works()


@pytest.mark.slow
def test_a_connection_that_is_not_used_gives_its_place(daemon, demo_file):
    """All 64 places are taken by connections that have sent a message, and then nothing. The least recently used one goes first."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    idle = [Client(one) for _ in range(64)]
    for client in idle:
        client.works()
    newcomer = Client(one)
    op, body = newcomer.hear()
    assert op == ERROR and body["status"] == "busy" and "64 clients" in body["message"] and newcomer.hear() is None

    for client in idle[2:]:
        client.works()
    wait_for(lambda: takes_a_place(one), 30, "a place")
    assert is_closed(idle[0].socket) or is_closed(idle[1].socket)
    idle[-1].works()


@ROOT_ALONE
def test_each_user_has_a_share_of_resample_sock(shared):
    """One user holds all places and uses them all the time. Another user gets half of them at once, and the first one no more than half."""
    with user(1001):
        many = [Client(HERE) for _ in range(64)]
    for client in many:
        client.works()
    with user(1002):
        others = [Client(HERE) for _ in range(32)]
    for client in others:
        client.works()
    assert sum(is_closed(client.socket) for client in many) == 32
    with user(1001):
        one_more = Client(HERE)
    op, body = one_more.hear()
    assert op == ERROR and "user 1001" in body["message"]
    Client(HERE).works()  # root has a share, too


@ROOT_ALONE
def test_each_user_has_a_share_of_the_silent_connections_on_fd_sock(shared):
    """A user fills all places with connections without a token. Another user's connection takes one of them at once."""
    places = 4 + 64
    for _ in range(5):  # on a machine that stops for two seconds the daemon has closed them all
        with user(1001):
            first = [connect("fd.sock") for _ in range(places)]
        mine = connect("fd.sock")
        wait_for(lambda: any(map(is_closed, first)), what="the end of a connection")
        if not is_closed(mine):
            break
    else:
        pytest.fail("no place for the other user")
    client = shared.client()
    client.open("train")
    client.next().release()
    client.close()


# ---- descriptors whose close blocks ----

def send_descriptors(one, frame, descriptors):
    one.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


@contextlib.contextmanager
def lingering():
    """Yields a TCP socket whose last close waits up to ten minutes, since its peer does not read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(bytes(1 << 16))
        try:
            yield sender
        finally:
            peer.close()


@contextlib.contextmanager
def stopped(daemon):
    daemon.process.send_signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{daemon.process.pid}/task")
    wait_for(lambda: all((task / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks.iterdir()), what="all threads to stop")
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("name, kind", [("fd.sock", socket.SOCK_SEQPACKET), ("feed.sock", socket.SOCK_STREAM)])
def test_sockets_that_need_no_descriptors_take_none(daemon, demo_file, name, kind):
    """The daemon reads such a message without its descriptors, so the system closes them on the daemon's thread. The kernel refuses them since 6.16."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    if tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups())) < (6, 16):
        pytest.skip("this kernel has no SO_PASSRIGHTS")
    with lingering() as sender, socket.socket(socket.AF_UNIX, kind) as attacker:
        with stopped(one):
            attacker.connect(str(one.endpoint / name))
            try:
                send_descriptors(attacker, bytes(8), [sender.fileno()])
            except PermissionError:  # as it must be; closing it would block this process
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            sender.close()
        worker = Worker(one, "--hold", 1)
        worker.read("holding")
        worker.kill()


@pytest.mark.parametrize("bad_frame", [b"GET / HTTP/1.1", b""])
def test_a_descriptor_that_lingers_in_a_message_that_nobody_reads(daemon, demo_file, bad_frame):
    """The first message ends the connection. The second one waits on it, with the last descriptor of a socket that lingers."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    other, client = Client(one), Client(one)
    other.works()
    with lingering() as sender:
        with stopped(one):
            client.socket.send(bad_frame)
            client.socket.send(b"")
            send_descriptors(client.socket, b"", [sender.fileno()])
            sender.close()
        wait_for(lambda: is_closed(client.socket), what="the end of the connection")
        other.socket.settimeout(10)
        other.works()


@pytest.mark.parametrize("at", [0, 1, 252])
def test_messages_with_many_descriptors(daemon, demo_file, at):
    """They are refused. Where the close of one hangs, only its connection waits, and the daemon does not keep the others of its message."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    other, client, block = Client(one), Client(one), memory(bytes(64))
    client.say({"request": 1, "size": 64}, [block] * 253)
    assert "exactly one descriptor" in client.hear()[1]["message"]
    with contextlib.ExitStack() as stack:
        clients, senders = [Client(one) for _ in range(8)], [stack.enter_context(lingering()) for _ in range(8)]
        with stopped(one):
            for client, sender in zip(clients, senders):
                descriptors = [block] * 253
                descriptors[at] = sender.fileno()
                client.say({"request": 1, "size": 64}, descriptors)
                sender.close()
        other.socket.settimeout(10)
        other.works()
        wait_for(lambda: len(one.open_files()) < 100, 10, "descriptors that are closed")


@ROOT_ALONE
def test_a_file_whose_close_hangs(tmp_path, daemon, demo_file):
    """A real filesystem in user space does not answer the daemon's close. Only the connections that sent such files wait, and they
    keep no place."""
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    other, one_file, many_files = Client(one), Client(one), Client(one)
    other.works()
    (tmp_path / "silent").mkdir()
    with silent_filesystem(tmp_path / "silent") as path:
        if path is None:
            pytest.skip("no FUSE filesystem can be mounted here")
        fd = os.open(path, os.O_RDWR)  # closed when the filesystem has ended, since this process would hang, too
        op, body = one_file.ask(fd, 64)
        assert op == ERROR and "sealed" in body["message"]
        many_files.say({"request": 7, "size": 64}, [fd] * 100)
        assert "exactly one descriptor" in many_files.hear()[1]["message"]
        other.socket.settimeout(10)
        other.works()
        one_file.say({"request": 8})
        used = [Client(one) for _ in range(61)]
        for client in used:
            client.works()
        wait_for(lambda: takes_a_place(one), 30, "the place of a connection that waits")
    with contextlib.suppress(OSError):  # the filesystem has ended
        os.close(fd)
    wait_for(lambda: str(path) not in one.open_files().values(), what="all of them closed")
    Client(one).works()
