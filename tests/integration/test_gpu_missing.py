"""GPUs that are not there, cannot be used or are lost, with the fake GPU of tests/fake: batches come in host memory, or
the daemon ends with a status of its own."""
import threading

import pytest

import libtrajd as trajd
from daemons import FAKE_PROGRAM, GpuDaemon
from fake_gpu import CONFIG, SECOND, UUID, collect
from fake_gpu import data, make  # noqa: F401  (fixtures)


def test_a_gpu_that_this_process_does_not_see(make, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA", "other")  # as CUDA_VISIBLE_DEVICES=1 does
    daemon = make(fake="gpus=2")
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu is None and b"not one of the 1 that this process sees" in info.gpu_refusal
    info = client.open("train", gpu=SECOND, epoch=1)
    assert (info.gpu, info.gpu_ordinal) == (SECOND.encode(), 0)
    client.next().release()
    client.close()


def test_one_of_two_gpus_does_not_open(make, tmp_path, data):
    daemon = make(fake="gpus=2,bad=1", gpu=", fall_back: true")
    client = daemon.client()
    assert "busy or unavailable: batches for this GPU and those after it are in host memory (gpu.fall_back)" in daemon.text()
    assert client.open("train", gpu=UUID).gpu is not None
    info = client.open("train", gpu=SECOND, epoch=1)
    assert info.gpu is None and b"the daemon uses other GPUs" in info.gpu_refusal
    client.close()
    other = GpuDaemon(tmp_path / "bad", CONFIG.format(data=data, gpu="", slots=4), program=FAKE_PROGRAM)
    other.fake = "gpus=2,bad=1"
    found = other.run()
    assert found.returncode == 69 and "busy or unavailable" in found.stderr


def test_where_the_daemon_has_no_such_gpu(make):
    daemon = make()
    client = daemon.client()
    info = client.open("train", gpu="GPU-ffffffff-0000-0000-0000-000000000000")
    assert info.gpu is None and b"the daemon uses other GPUs" in info.gpu_refusal
    assert len(collect(client)) > 4
    client.close()


@pytest.mark.parametrize("gpu, fake, why", [(", fall_back: true", "none", b"the daemon uses no GPU"), ("", "oom", b"out of memory")])
def test_where_the_gpu_is_not_there_or_full(make, gpu, fake, why):
    daemon = make(fake=fake, gpu=gpu)
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu is None and why in info.gpu_refusal
    assert len(collect(client)) > 4
    client.close()


def test_no_gpu_and_no_leave_to_go_without(tmp_path, data):
    daemon = GpuDaemon(tmp_path / "none", CONFIG.format(data=data, gpu="", slots=4), program=FAKE_PROGRAM)
    daemon.fake = "none"
    found = daemon.run()
    assert found.returncode == 69 and "gpu.devices: all: this process finds no GPU that it can use: GPU 0: there are 0" in found.stderr


@pytest.mark.parametrize("devices", ["all", '"0"'])
def test_a_driver_that_is_too_old(make, tmp_path, data, devices):
    """The daemon names the driver that it needs. It goes on with the CPU where it may."""
    wanted = "it supports CUDA up to 12.2, and the kernels of CUDA 13.0 need driver 580 or later"
    text = CONFIG.replace("devices: all", f"devices: {devices}")
    alone = GpuDaemon(tmp_path / "old", text.format(data=data, gpu="", slots=4), program=FAKE_PROGRAM)
    alone.fake = "driver=12020"
    found = alone.run()
    assert found.returncode == 69 and wanted in found.stderr
    daemon = make(fake="driver=12020", gpu=", fall_back: true")
    assert wanted + ": batches are in host memory (gpu.fall_back)" in daemon.text()
    client = daemon.client()
    assert client.open("train", gpu=UUID).gpu is None and len(collect(client)) > 4
    client.close()


@pytest.mark.parametrize("devices, status, why", [('"0,x"', 78, "`all`, or numbers"), ('"3"', 69, "can use only 1 GPU"), ('"0,"', 78, "`all`, or numbers")])
def test_devices_that_are_none(tmp_path, data, devices, status, why):
    text = CONFIG.format(data=data, gpu="", slots=4).replace("devices: all", f"devices: {devices}")
    found = GpuDaemon(tmp_path / "bad", text, program=FAKE_PROGRAM).run()
    assert found.returncode == status and why in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fake", ["lost=6", "lost=6,deaf"])  # a driver whose calls do not return any more
def test_a_lost_gpu_ends_the_daemon_with_its_own_status(make, fake):
    daemon = make(fake=fake)
    client = daemon.client(reconnect=True)
    client.open("train", gpu=UUID, mode=trajd.SHARD)
    seen = []
    while daemon.process.poll() is None:
        try:
            batch = client.next(timeout_ms=50)
            seen.append(batch.position)
            batch.release()
        except trajd.TrajdError as error:
            assert error.status == trajd.TIMEOUT, error  # a batch in flight is not reported as one that failed
    assert daemon.process.returncode == 69
    assert ("a GPU that does not respond: ended without it" in daemon.text()) == ("deaf" in fake)
    assert "unspecified launch failure" in daemon.text() and "feed train" in daemon.text() and "cuda" in daemon.text()
    daemon.fake = ""
    daemon.start()
    batch = client.next()
    assert batch.position == 16 * len(seen)
    batch.release()
    client.close()


def test_a_gpu_that_is_lost_while_nothing_is_asked_of_it(make):
    """A GPU is lost while the whole ring is leased. The next client would open memory that is gone."""
    daemon = make(fake="event=5")
    client = daemon.client()
    client.open("train", gpu=UUID, credit=4)
    held = [client.next() for _ in range(4)]
    assert daemon.process.wait(30) == 69
    assert "unspecified launch failure" in daemon.text()
    for batch in held:
        batch.release()
    client.close()


@pytest.mark.parametrize("when", ["gone=1", "gone=3", "copy=3"])  # the first use is the ring; rows are copied by the third copy
def test_a_gpu_that_is_lost_while_a_feed_is_made(make, when):
    daemon = make(fake=when, name="ends")
    client = daemon.client(reconnect=True)
    daemon.fake = ""
    opened = threading.Thread(target=client.open, args=("train",), kwargs={"gpu": UUID, "mode": trajd.SHARD})
    opened.start()
    assert daemon.process.wait(60) == 69
    assert "unspecified launch failure" in daemon.text()
    daemon.start()
    opened.join()
    client.next().release()
    client.close()
    daemon.stop()
    stays = make(fake=when, gpu=", fall_back: true", name="stays")
    for why in (b"launch failure", b"has failed"):
        client = stays.client()
        info = client.open("train", gpu=UUID)
        assert info.gpu is None and why in info.gpu_refusal
        assert len(collect(client)) > 4
        client.close()


def test_a_gpu_whose_memory_is_not_to_be_shared(make):
    """The memory of this GPU cannot be shared. It has not failed, so that the next feed tries again."""
    daemon = make(fake="unshared")
    client = daemon.client()
    for epoch in (0, 1):
        info = client.open("train", gpu=UUID, epoch=epoch)
        assert info.gpu is None and b"not supported" in info.gpu_refusal
        assert len(collect(client)) > 4
    client.close()


def test_a_lost_gpu_and_leave_to_go_without(make):
    daemon = make(fake="lost=6", gpu=", fall_back: true")
    client = daemon.client()
    client.open("train", gpu=UUID, mode=trajd.SHARD)
    positions = []
    while (batch := client.next()) is not None:
        positions.append(batch.position)
        batch.release()
    assert daemon.process.poll() is None
    assert client.library.trajd_client_feed_info(client.handle).contents.gpu is None
    assert b"GPU" in client.library.trajd_client_feed_info(client.handle).contents.gpu_refusal
    assert positions == list(range(0, positions[-1] + 16, 16))
    client.close()
