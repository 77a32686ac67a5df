"""Nodes of a cluster: a daemon each, one folder of caches, and ranks that compare what they see."""
import concurrent.futures
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time

import h5py
import pytest

import libtrajd as trajd
from daemons import Daemon, smallest_config
from paths import BUILD
from pythons import find_python
from waiting import wait_for

PACKAGE = BUILD / "clients" / "python"
FILES = 24


@pytest.fixture
def nodes(tmp_path, small_file):
    """nodes(count) makes daemons that share a folder of caches and a data set whose records may be cached."""
    made, data, cache = [], tmp_path / "data", tmp_path / "shared"
    data.mkdir()
    cache.mkdir()
    for number in range(FILES):
        os.utime(shutil.copy(small_file, data / f"{number}.hdf5"), (1e9, 1e9))
    wait_for(lambda: time.time() - max(path.stat().st_ctime for path in data.iterdir()) > 0.2, what="times that are old")

    def make(count, **options):
        for number in range(count):
            folder = tmp_path / f"node{len(made)}"
            folder.mkdir()
            (folder / "cache").symlink_to(cache)
            made.append(Daemon(folder, smallest_config(data), **options))
        return made[-count:]

    yield make
    for one in made:
        if one.process is not None and one.process.poll() is None:
            one.kill()


def start(nodes):
    with concurrent.futures.ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(Daemon.start, nodes))


def built(nodes):
    return [f"{FILES} files (0 from the cache)" in one.text() for one in nodes]


def index_files(nodes, ending):
    return list((nodes[0].folder / "cache").resolve().glob("*" + ending))


def test_one_index_is_built(nodes):
    several = nodes(6)
    start(several)
    assert sum(built(several)) == 1 and len(index_files(several, ".index")) == 1
    for one in several:
        assert "the cache)" in one.text() and "cannot be locked" not in one.text()


def test_a_builder_is_killed(nodes):
    """The others do not wait for it: one of them builds the index."""
    first, *others = several = nodes(4)
    first.start().stop()
    lock, = index_files(several, ".index.lock")
    index_files(several, ".index")[0].unlink()
    builder = subprocess.Popen([sys.executable, "-c", f"import fcntl, sys\nfile = open({str(lock)!r})\nfcntl.flock(file, fcntl.LOCK_EX)\n"
                                "print(flush=True)\nsys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    builder.stdout.readline()
    with concurrent.futures.ThreadPoolExecutor(len(others)) as pool:
        started = [pool.submit(one.start) for one in others]
        try:
            for one in others:
                wait_for(lambda one=one: one.process is not None and str(lock) in one.open_files().values(), what="a daemon that waits")
            assert not any("ready after" in one.text() for one in others)
        finally:
            builder.kill()
            builder.communicate()
        for one in started:
            one.result()
    assert sum(built(others)) == 1


@pytest.mark.release  # a sanitizer's runtime must come before a preloaded library
def test_a_file_system_without_locks(nodes):
    """Each daemon builds the index, and says why."""
    preload = ["env", f"LD_PRELOAD={BUILD / 'tests/fake/libold_filesystem.so'}", "TRAJD_TEST_NO_LOCKS=1"]
    one, = nodes(1, prefix=preload)
    one.start()
    assert built([one]) == [True]
    assert "the directory of caches cannot be locked: Function not implemented: each daemon that shares it indexes" in one.text()
    other, = nodes(1, prefix=preload)
    other.start()
    assert built([other]) == [False] and "cannot be locked" not in other.text()


def test_the_eight_ranks_of_one_of_a_thousand_nodes(nodes):
    """A daemon makes the rows of its own ranks alone, in a batch of 8,000."""
    one, = nodes(1)
    one.config.write_text(one.config.read_text().replace("global_batch: 8,", "global_batch: 16000,"))
    one.start()
    local = list(range(4000, 4008))
    clients = [one.client() for _ in local]
    with concurrent.futures.ThreadPoolExecutor(len(local)) as pool:
        opened = pool.map(lambda client, rank: client.open("train", mode=trajd.SHARD, rank=rank, world=8000, local=local), clients, local)
    assert [(info.row_begin, info.row_count) for info in opened] == [(2 * rank, 2) for rank in local]
    for client in clients:
        batch = client.next()
        assert batch.rows == 2
        batch.release()
        client.close()


# ---- ranks ----

RANK = """
import json, os, socket, sys
rank = int(os.environ["RANK"])
socket.gethostname = lambda: f"node-{rank}"
import trajd
said = []
for _ in range(int(sys.argv[1].split(",")[rank])):
    feed = trajd.connect(sys.argv[2:][rank], feed="train", timeout=float(os.environ["LIMIT"]))
    try:
        said.append([feed.info.row_count, feed.info.global_batch])
    except (trajd.StateError, trajd.Timeout) as error:
        said.append(f"{type(error).__name__}: {error}")
    feed.close()
with open(os.path.join(os.environ["SAID"], str(rank)), "w") as file:
    json.dump(said, file)
"""


@pytest.fixture
def torchrun(tmp_path):
    """torchrun(endpoints) runs a rank for each endpoint under torchrun. Returns what each said of the open feed, each time
    that it opened it."""
    python = find_python("torch.distributed.run")
    if python is None:
        pytest.skip("no Python with torch")
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")

    def run(endpoints, times="1,1,1", limit=60):
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port = listening.getsockname()[1]
        script = tmp_path / "rank.py"
        script.write_text(textwrap.dedent(RANK))
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "SAID": str(tmp_path), "LIMIT": str(limit), "OMP_NUM_THREADS": "1"}
        # torch 1.13 does not understand its own defaults of --redirects and --tee with Python 3.11
        done = subprocess.run([python, "-m", "torch.distributed.run", f"--nproc_per_node={len(endpoints)}", f"--master_port={port}",
                               "--redirects=1", "--tee=1", f"--log_dir={tmp_path}", script, times, *endpoints],
                              env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [json.loads((tmp_path / str(rank)).read_text()) for rank in range(len(endpoints))]

    return run


@pytest.fixture
def daemons(tmp_path, small_file):
    """daemons(changes) starts a daemon for each change of the file's copy that it serves."""
    started = []

    def start_all(*changes, batch=9):
        for number, change in enumerate(changes):
            folder = tmp_path / f"node{number}"
            folder.mkdir()
            data = shutil.copy(small_file, folder / "data.hdf5")
            with h5py.File(data, "r+") as file:
                change(file)
            started.append(Daemon(folder, smallest_config(data, batch=batch)).start())
        return [str(one.endpoint) for one in started]

    yield start_all
    for one in started:
        one.kill()


def leave(file):
    pass


def test_a_node_that_sees_other_data(torchrun, daemons):
    def change(file):
        file["data/demo_3/actions"][...] = file["data/demo_3/actions"][...] + 1

    endpoints = daemons(leave, leave, change)
    said = torchrun(endpoints)
    assert said[0] == said[1] == said[2]
    text, = said[0]
    assert text.startswith("StateError: ranks 0 and 2 see different data (nodes node-0 and node-2, digests "), text
    assert ": dataset demo, data.hdf5, episode demo_3 (" in text and "has another content" in text
    assert f"`trajctl diff {endpoints[0]} {endpoints[2]} train`" in text


def test_a_node_that_does_not_answer(torchrun, daemons):
    """All see the same the first time. The second time, one of them has ended."""
    said = torchrun(daemons(leave, leave, leave), times="2,1,2", limit=5)
    assert said[1] == [[3, 9]]
    for first, text in (said[0], said[2]):
        assert first == [3, 9]
        assert text.startswith("Timeout: feed train: ") and "1 of 3 did not answer: 1 (5 s" in text, text
