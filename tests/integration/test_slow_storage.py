"""Storage with a latency and a rate, that stalls and fails: a FUSE filesystem that passes a folder through (slow_filesystem.py)."""
import contextlib
import os
import re
import subprocess
import threading
import time
import zlib

import h5py
import numpy as np
import pytest
from daemons import Daemon
from libtrajd import TrajdError
from paths import TRAJCTL, clean_environment
from slow_filesystem import SlowFilesystem
from waiting import wait_for

BATCH, ROWS, STREAMS = 256, 400, 6
WINDOW_BYTES = 4 * (STREAMS * 14 + 7)
LATENCY_S, RATE, DEMAND = 0.03, 50e6, 25e6
OUTPUTS = ", ".join(f"obs/s{s}: {{at: 0}}" for s in range(STREAMS))


def write_rows(path, episodes):
    """Writes episodes of small arrays, 150 KB each."""
    random = np.random.default_rng(episodes)
    with h5py.File(path, "w") as file:
        for i in range(episodes):
            for s in range(STREAMS):
                file[f"data/demo_{i}/obs/s{s}"] = random.normal(size=(ROWS, 14)).astype(np.float32)
            file[f"data/demo_{i}/actions"] = random.normal(size=(ROWS, 7)).astype(np.float32)
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'


def write_images(path):
    with h5py.File(path, "w") as file:
        for i in range(8):
            file[f"data/demo_{i}/obs/agentview_image"] = np.random.default_rng(i).integers(0, 255, (64, 24, 24, 3), np.uint8)
            file[f"data/demo_{i}/actions"] = np.zeros((64, 7), np.float32)
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'


def write_small_images(path):
    """Writes 51 MB of frames of 84x84, as robomimic's data sets have them."""
    random = np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        for i in range(6):
            file[f"data/demo_{i}/obs/agentview_image"] = random.integers(0, 255, (400, 84, 84, 3), np.uint8)
            file[f"data/demo_{i}/actions"] = np.zeros((400, 7), np.float32)
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two files with rows, of 54 MB and 6 MB, and two with images."""
    folder = tmp_path_factory.mktemp("source")
    write_images(folder / "images.hdf5")
    write_small_images(folder / "small_images.hdf5")
    write_rows(folder / "rows.hdf5", 360)
    write_rows(folder / "few.hdf5", 40)
    return folder


@pytest.fixture
def slow(tmp_path, source):
    """slow(**settings) mounts `source` and returns the filesystem."""
    with contextlib.ExitStack() as mounted:
        def mount(**settings):
            folder = tmp_path / "mount"
            folder.mkdir()
            filesystem = mounted.enter_context(SlowFilesystem(source, folder, **settings))
            if not filesystem.is_mounted:
                pytest.skip("no FUSE filesystem can be mounted here: /dev/fuse is missing, or this is not root")
            return filesystem
        yield mount


def feed(dataset="slow", more=""):
    return (f"{{dataset: {dataset}, global_batch: {BATCH}, order: blocked, {more} anchor: {{clock: actions}}, "
            f"outputs: {{{OUTPUTS}, actions: {{at: 0}}}}}}")


def config(*datasets, feeds):
    """`datasets`: (name, path); `feeds`: {name: feed}."""
    return ("datasets:\n" + "".join(f"  {name}: {{path: {path}, layout: robomimic}}\n" for name, path in datasets) +
            "feeds:\n" + "".join(f"  {name}: {text}\n" for name, text in feeds.items()))


def digest(batch):
    arrays = batch.arrays()
    return zlib.crc32(b"".join(arrays[name].tobytes() for name in sorted(arrays)))


def read(client, count=None):
    """Reads `count` batches, or all that are left. Returns {position: digest}."""
    digests = {}
    while len(digests) != count and (batch := client.next(20000)) is not None:
        digests[batch.position] = digest(batch)
        batch.release()
    return digests


@pytest.fixture(scope="module")
def expected(source, tmp_path_factory):
    """The digests of the batches of rows.hdf5, read from the folder itself."""
    one = Daemon(tmp_path_factory.mktemp("local"), config(("slow", source / "rows.hdf5"), feeds={"train": feed()})).start()
    client = one.client()
    client.open("train")
    digests = read(client)
    client.close()
    one.stop()
    return digests


def forget_pages(path):
    """Has the kernel drop what the page cache holds of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def lengths(reads):
    """Joins reads that go on where another one ended. Returns the bytes of each extent."""
    ends = {}  # of the extents so far
    for name, offset, size in reads:
        ends[(name, offset + size)] = ends.pop((name, offset), 0) + size
    return list(ends.values())


def read_on_demand(client, count, batch_bytes):
    """Reads batches 1 to `count` - 1 as a worker that takes DEMAND bytes per second. Returns their digests, and the seconds that it took."""
    digests, begin = {}, time.monotonic()
    for i in range(1, count):
        time.sleep(max(0, begin + i * batch_bytes / DEMAND - time.monotonic()))  # the work of the worker
        digests |= read(client, 1)
    return digests, time.monotonic() - begin


@pytest.mark.release
@pytest.mark.parametrize("direct", [True, False], ids=["without the page cache", "with the page cache"])
def test_a_demand_of_half_the_rate_does_not_wait(daemon, slow, source, expected, direct):
    """30 ms and 50 MB/s, and a worker that takes 25 MB/s of data that do not fit into memory.store. The reads are extents."""
    mounted = slow(direct=direct)
    one = daemon(config(("slow", mounted.folder / "rows.hdf5"), feeds={"train": feed()}), store="32MiB")
    forget_pages(mounted.folder / "rows.hdf5")
    mounted.set(latency=LATENCY_S, rate=RATE)
    client = one.client()
    client.open("train")
    digests = read(client, 1)
    first = client.status()["feeds"][0]["waited_seconds"]
    further, took = read_on_demand(client, len(expected), BATCH * WINDOW_BYTES)
    digests |= further
    waited = client.status()["feeds"][0]["waited_seconds"]
    client.close()
    assert digests == expected
    wanted = len(expected) * BATCH * WINDOW_BYTES / DEMAND
    # one read after the other would take five times as long; an idle machine has 1.0 and no wait
    assert took < 3 * wanted and waited["rows"] - first["rows"] < wanted, (took, wanted, first, waited)
    if direct:
        extents = lengths(mounted.set()[0])
        assert sum(size for size in extents if size >= 1 << 20) > 0.8 * sum(extents), extents


@pytest.mark.release
@pytest.mark.parametrize("direct", [True, False], ids=["without the page cache", "with the page cache"])
def test_small_images_are_read_together(daemon, slow, direct):
    """A worker that takes 25 MB/s of frames of 21 KB. Where one after the other is read, 32 calls that wait 30 ms give half of it."""
    mounted = slow(direct=direct)
    path = mounted.folder / "small_images.hdf5"
    one = daemon(config(("slow", path), feeds={"train": "{dataset: slow, global_batch: 16, order: blocked, block: {windows: 200}, "
                                               "anchor: {clock: actions}, outputs: {obs/agentview_image: {at: 0}}}"}), store="64MiB")
    forget_pages(path)
    mounted.set(latency=LATENCY_S, rate=RATE)
    client = one.client()
    client.open("train")
    digests = read(client, 1)
    count, batch_bytes = 6 * 400 // 16, 16 * 84 * 84 * 3
    further, took = read_on_demand(client, count, batch_bytes)
    digests |= further
    wanted = count * batch_bytes / DEMAND
    waited = client.status()["feeds"][0]["waited_seconds"]
    client.close()
    assert len(digests) == count
    extents = lengths(mounted.set()[0])
    assert took < 2 * wanted and len(extents) < count, (took, wanted, waited, len(extents))  # an idle machine has 1.0 and no wait


def rate_of(client, seconds):
    begin, count = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        if (batch := client.next()) is None:
            client.open("other")
            continue
        batch.release()
        count += 1
    return count / seconds


def is_told(client):
    """Waits for a batch for a moment, in which libtrajd passes on what the daemon tells. Returns whether it has told anything."""
    with pytest.raises(TrajdError, match="no batch in time"):
        client.next(100)
    return client.notices


@pytest.mark.parametrize("least_s", [0, pytest.param(20, marks=pytest.mark.slow)])
def test_a_stall(daemon, slow, source, expected, least_s):
    """The feed of the mount waits and names it, in the log, in the status and to its worker. Another feed keeps its rate. The feed
    goes on after the stall, in the same daemon, with the right batches."""
    mounted = slow(direct=True)
    one = daemon(config(("slow", mounted.folder / "rows.hdf5"), ("local", source / "few.hdf5"),
                        feeds={"train": feed(), "other": feed("local")}), store="48MiB")
    client, other = one.client(), one.client()
    client.open("train")
    other.open("other")
    digests = read(client, 2)
    before = rate_of(other, 1)
    mounted.set(stall=True)
    begin = time.monotonic()
    with pytest.raises(TrajdError, match="no batch in time"):
        while True:
            batch = client.next(1000)
            digests[batch.position] = digest(batch)
            batch.release()
    rates = []
    reader = threading.Thread(target=lambda: rates.append(rate_of(other, 1)))
    reader.start()
    wait_for(lambda: f"dataset slow: {mounted.folder} has not answered for 3 s: feeds that read from it wait" in one.text())
    reader.join()
    assert rates[0] > before / 10  # on a busy machine; a feed that waits has none
    wait_for(lambda: is_told(client))
    assert "feed train: waits for storage" in one.text()
    assert client.notices == [(f"waits for storage: {mounted.folder} has not answered for 3 s", 0)]
    hung = [dataset.get("hung_storage", {}).get("mount") for dataset in other.status()["datasets"]]
    assert hung == [str(mounted.folder), None]
    text = subprocess.run([TRAJCTL, "status", "--endpoint", one.endpoint], capture_output=True, text=True, check=True,
                          env=clean_environment()).stdout
    assert re.search(rf"waits for storage: {mounted.folder} has not answered for [0-9]+ s", text)
    assert "feed other: waits" not in one.text()
    wait_for(lambda: time.monotonic() > begin + least_s)
    mounted.set(stall=False)
    assert digests | read(client) == expected
    wait_for(lambda: f"dataset slow: {mounted.folder} answers again, after" in one.text())
    assert not any("hung_storage" in dataset for dataset in other.status()["datasets"])
    client.close()
    other.close()


def test_an_io_error_names_the_file_and_passes(daemon, slow, source, expected):
    mounted = slow(direct=True)
    one = daemon(config(("slow", mounted.folder / "rows.hdf5"), feeds={"train": feed()}), store="32MiB")
    client = one.client()
    client.open("train")
    digests = read(client, 2)
    mounted.set(error="rows.hdf5")
    with pytest.raises(TrajdError) as failed:
        while (batch := client.next(20000)) is not None:
            digests[batch.position] = digest(batch)
            batch.release()
    assert re.search(rf"{mounted.folder}/rows.hdf5: .*Input/output error", str(failed.value))
    mounted.set(error="")
    while True:
        try:
            digests |= read(client)
            break
        except TrajdError as error:  # a batch that was made before the storage recovered
            assert "rows.hdf5" in str(error)
    client.close()
    assert len(digests) > len(expected) / 2 and digests.items() <= expected.items()


def both(tmp_path, near, far):
    """Returns the folder of a dataset with two files."""
    folder = tmp_path / "both"
    folder.mkdir()
    (folder / "a.hdf5").symlink_to(near)
    (folder / "b.hdf5").symlink_to(far)
    return folder


def test_a_dead_mount_among_several_holds_half_the_readers(daemon, slow, source, tmp_path):
    """A dataset with a file on the mount and one elsewhere: a feed of the other file's episodes goes on."""
    mounted = slow(direct=True)
    folder = both(tmp_path, source / "few.hdf5", mounted.folder / "rows.hdf5")
    one = daemon(config(("both", folder), feeds={"near": feed("both", "episodes: [0..39],"), "far": feed("both", "episodes: [40..399],")}),
                 store="32MiB")
    near, far = one.client(), one.client()
    mounted.set(stall=True)
    far.open("far")
    wait_for(lambda: mounted.set()[1] == 4)
    near.open("near")
    assert len(read(near)) == 40 * ROWS // BATCH
    assert mounted.set()[1] == 4  # of 8 readers
    mounted.set(stall=False)
    assert len(read(far)) == 360 * ROWS // BATCH
    near.close()
    far.close()


def test_a_dead_mount_among_several_holds_no_decoder(daemon, slow, source, tmp_path):
    """The same with images, and one helper program: another thread has the frames of the other file decoded by it."""
    mounted = slow(direct=True)
    folder = both(tmp_path, source / "images.hdf5", mounted.folder / "images.hdf5")
    text = ("{{dataset: both, global_batch: 32, episodes: [{}], anchor: {{clock: actions}}, "
            "outputs: {{obs/agentview_image: {{at: 0, image: {{resize: [12, 12]}}}}}}}}")
    one = daemon("threads: {decoders: 1}\n" + config(("both", folder), feeds={"near": text.format("0..7"), "far": text.format("8..15")}))
    near, far = one.client(), one.client()
    mounted.set(stall=True)
    far.open("far")
    wait_for(lambda: mounted.set()[1])
    near.open("near")
    digests = read(near)
    mounted.set(stall=False)
    assert digests and len(read(far)) == len(digests) == 8 * 64 // 32
    near.close()
    far.close()
