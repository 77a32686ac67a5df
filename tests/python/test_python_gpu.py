"""Batches that are read in GPU memory, with the fake GPU of tests/fake: ownership and streams in Python. numpy
takes the place of torch: it can read what the fake driver maps. tests/gpu/test_device_feed.py uses a real GPU."""
import ctypes
import gc
import threading

import numpy as np
import pytest

import trajd
from daemons import FAKE_PROGRAM, GpuDaemon
from datasets import make_demo_file
from fake_gpu import CONFIG, CUDA, UUID
from host_device import HostDevice
from trajd import _core, gpu
from waiting import wait_for

TYPES = {"f32": np.float32, "i64": np.int64, "u8": np.uint8}
MAIN, SIDE, HELD = 1, 6, 5


class Memory:
    """Gives numpy the memory of a capsule. A view of it keeps the capsule alive."""

    def __init__(self, capsule, address, size):
        self.capsule = capsule
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}


class HostTorch:
    index, stream = 0, MAIN

    def __init__(self, name):
        self.name = name

    def current_stream(self):
        return self.stream

    def adopt(self, core, index, is_bool):
        tensor = core.tensor(index)
        assert tensor.__dlpack_device__() == (2, 0) and is_bool == (tensor.dtype == "bool")
        kind = np.dtype(TYPES[tensor.dtype])
        size = int(np.prod(tensor.shape)) * kind.itemsize
        return np.asarray(Memory(core.capsule(index), tensor.address, size)).view(kind).reshape(tensor.shape)

    def type_of(self, dtype):
        return TYPES[dtype]


@pytest.fixture
def torch(monkeypatch):
    played = []
    monkeypatch.setattr(gpu, "open_torch", lambda name: played.append(HostTorch(name)) or played[-1])
    monkeypatch.setattr(gpu.arrays, "import_torch", lambda: None)
    yield played
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_demo_file(tmp_path_factory.mktemp("gpu") / "demo.hdf5", episodes=6)


@pytest.fixture
def daemon(tmp_path, data):
    one = GpuDaemon(tmp_path / "gpu", CONFIG.format(data=data, gpu="", slots=3), program=FAKE_PROGRAM).start()
    yield one
    if one.process.poll() is None:
        one.stop()


def connect(daemon, **options):
    return trajd.connect(str(daemon.endpoint), feed="train", device="cuda", timeout=60, **{"zero_copy": True, "mode": "queue", **options})


def test_values_and_their_place(daemon, torch):
    host = trajd.connect(str(daemon.endpoint), feed="train", timeout=60, job="host", mode="queue")
    wanted = {batch.position: {key: np.array(batch[key]) for key in batch} for batch in host.epoch(0)}
    host.close()
    feed = connect(daemon, job="gpu")
    seen = 0
    for batch in feed.epoch(0):
        for key, value in wanted[batch.position].items():
            np.testing.assert_array_equal(batch[key], value)
        seen += 1
    del batch
    assert seen == len(wanted) > 4 and feed._stage.uuid == UUID
    feed.close()
    gc.collect()
    wait_for(lambda: CUDA.fake_cuda_mappings() == 0 and CUDA.fake_cuda_events() == 0, what="all to be given back")


def test_a_dropped_tensor_whose_kernels_are_queued(daemon, torch):
    feed = connect(daemon, credit=8)
    stream = torch[0]
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    addresses, was = [], []
    stream.stream = HELD
    epoch = feed.epoch(0)
    for _ in range(3):
        batch = next(epoch)
        joints = batch["joints"]
        addresses.append((joints.ctypes.data, joints.size))
        was.append(joints.copy())
        dropper = threading.Thread(target=lambda kept: kept.clear(), args=([joints],))  # as autograd drops tensors
        del joints
        batch = None
        dropper.start()
        dropper.join()
    gc.collect()
    with pytest.raises(trajd.Timeout):
        feed._stage.take(feed._next_core, 0.3, feed._lay_out)
    for (address, size), values in zip(addresses, was):  # the memory that the kernels would read
        np.testing.assert_array_equal(np.ctypeslib.as_array((ctypes.c_float * size).from_address(address)).reshape(values.shape), values)
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    stream.stream = MAIN
    assert next(epoch).position == 3 * 16
    feed.close()


@pytest.mark.parametrize("named", ["by record_stream", "by being current"])
def test_a_side_stream(daemon, torch, named):
    feed = connect(daemon, credit=3)
    epoch = feed.epoch(0)
    batch = next(epoch)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    if named == "by record_stream":
        batch.record_stream(type("Stream", (), {"cuda_stream": HELD}))
    else:
        torch[0].stream = HELD
        batch["joints"]
        torch[0].stream = MAIN
    batch.release()
    assert batch.released
    held = [next(epoch), next(epoch)]
    with pytest.raises(trajd.Timeout):  # the program could not release what a stream still reads
        feed._next_core(1.5)
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    held.append(next(epoch))
    assert [one.position for one in held] == [16, 32, 48]
    feed.close()


def test_release_while_tensors_live(daemon, torch):
    feed = connect(daemon)
    batch = next(feed.epoch(0))
    kept = batch["joints"]
    with pytest.raises(BufferError):
        batch.release()
    np.testing.assert_array_equal(batch["joints"], kept)
    del kept
    batch.release()
    with pytest.raises(ValueError, match="released"):
        batch["joints"]
    feed.close()


def test_state_goes_on(daemon, torch):
    feed = connect(daemon)
    epoch = feed.epoch(0)
    seen = [next(epoch).position for _ in range(4)]
    state = feed.state_dict()
    feed.close()
    again = connect(daemon, job="again")
    again.load_state_dict(state)
    seen += [batch.position for batch in again.epoch(0)]
    assert seen == list(range(0, len(seen) * 16, 16))
    again.close()


def test_what_consumers_may_ask(daemon, torch):
    feed = connect(daemon)
    core = next(feed.epoch(0))._core
    slab = core.slab()
    assert slab.__dlpack_device__() == (2, 0) and core.gpu == 0
    for keywords in ({"dl_device": (1, 0)}, {"dl_device": (2, 1)}, {"copy": True}):
        with pytest.raises(BufferError):
            slab.__dlpack__(**keywords)
    with pytest.raises(ValueError, match="a stream's handle"):
        slab.__dlpack__(stream=-2)
    assert "dltensor_versioned" in repr(slab.__dlpack__(stream=SIDE, max_version=(1, 0), dl_device=(2, 0)))
    with pytest.raises(AttributeError):
        slab.__array_struct__
    for stream in range(7, 13):
        core.use_stream(stream)
    with pytest.raises(trajd.Error, match="used on 8 streams"):
        core.use_stream(13)
    feed.close()


class Distributed:
    """torch.distributed of one rank, where the other ranks have already reported their GPUs."""

    def __init__(self, rank, gpus):
        self.rank, self.gpus = rank, gpus

    def get_rank(self):
        return self.rank

    def get_world_size(self):
        return len(self.gpus)

    def all_gather_object(self, into, mine):
        into[:] = self.gpus
        assert into[self.rank] == mine


def test_which_ranks_are_on_one_gpu(monkeypatch):
    gpus = ["GPU-a", "GPU-b", "GPU-a", None]
    for rank, wanted in enumerate([(0, 2), (1,), (0, 2), (3,)]):
        monkeypatch.setattr(trajd.topology, "_distributed", lambda rank=rank: Distributed(rank, gpus))
        assert trajd.topology.ranks_beside(gpus[rank], trajd.topology.Topology(rank, 4)) == wanted
    assert trajd.topology.ranks_beside("GPU-a", trajd.topology.Topology(1, 2)) == (1,)  # of another world than torch's
    monkeypatch.setattr(trajd.topology, "_distributed", lambda: None)
    assert trajd.topology.ranks_beside("GPU-a", trajd.topology.Topology(1, 2)) == (1,)
    with pytest.raises(trajd.ArgumentError, match="own rank 1"):
        trajd.connect("nowhere", feed="train", rank=1, world_size=2, gpu_ranks=[0])


def test_two_ranks_on_one_gpu(daemon, torch):
    feeds = [connect(daemon, mode="shard", rank=rank, world_size=2, gpu_ranks=(0, 1)) for rank in (0, 1)]
    found = [[], []]

    def read(rank):
        for batch in feeds[rank].epoch(0):
            found[rank].append((batch.position, batch.row_begin, len(batch["joints"])))
    threads = [threading.Thread(target=read, args=[rank]) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one[0] for one in found[0]] == [one[0] for one in found[1]] and len(found[0]) > 4
    assert {one[1:] for one in found[0]} == {(0, 8)} and {one[1:] for one in found[1]} == {(8, 8)}
    for feed in feeds:
        assert feed._stage.uuid == UUID
        feed.close()


def test_falls_back_to_copies(tmp_path, data, torch, monkeypatch, caplog):

    monkeypatch.setattr(trajd.cuda, "open_device", HostDevice)
    text = CONFIG.format(data=data, gpu="", slots=4).replace("rings: 16MiB", "rings: 64KiB")
    one = GpuDaemon(tmp_path / "small", text, program=FAKE_PROGRAM).start()
    feed = connect(one)
    positions = [batch.position for batch in feed.epoch(0)]
    assert positions == list(range(0, len(positions) * 16, 16)) and len(positions) > 4
    assert "bytes, but gpu.rings on" in caplog.text and "copied from host memory" in caplog.text
    device = feed._stage._copying._device
    device.prompt = False
    for batch in feed.epoch(5):
        batch.record_stream(SIDE)
    assert {(over, stream) for _, over, stream in device.readers} == {(True, 0), (True, SIDE)}  # any stream may read it at once
    del batch
    assert [batch.position for batch in feed.epoch(1)] == positions
    one.stop()
    one.config.write_text(one.config.read_text().replace("rows: 64KiB", "rows: 64MiB"))
    one.start()
    assert [batch.position for batch in feed.epoch(2)] == positions  # nor is the GPU requested again, which would be granted now
    feed.close()
    one.stop()


def test_a_driver_that_does_not_name_the_gpu(daemon, torch, monkeypatch, caplog):
    """A driver that does not name the GPU: batches come in host memory."""

    def refuse(ordinal):
        raise trajd.Unsupported("GPU: libcuda.so.1 is too old: it has no such entry")
    monkeypatch.setattr(trajd.cuda, "open_device", HostDevice)
    monkeypatch.setattr(_core, "gpu_uuid", refuse)
    feed = connect(daemon)
    assert next(feed.epoch(0)).position == 0 and "is too old: it has no such entry: batches are copied" in caplog.text
    feed.close()


def test_a_gpu_that_fails_on_the_way(tmp_path, data, torch, monkeypatch, caplog):

    monkeypatch.setattr(trajd.cuda, "open_device", HostDevice)
    one = GpuDaemon(tmp_path / "lost", CONFIG.format(data=data, gpu=", fall_back: true", slots=4), program=FAKE_PROGRAM)
    one.fake = "lost=6"
    one.start()
    feed = connect(one, mode="shard", rank=0, world_size=1)
    epoch, positions, failed = feed.epoch(0), [], 0
    while True:
        try:
            positions.append(next(epoch).position)
        except trajd.DataError:
            failed += 1
        except StopIteration:
            break
    assert positions == sorted(set(positions)) and len(positions) + failed == positions[-1] // 16 + 1
    assert "copied from host memory" in caplog.text
    feed.close()
    one.stop()


def test_no_such_gpu():
    with pytest.raises(trajd.Error, match="this process sees 1"):
        _core.gpu_uuid(3)
    with pytest.raises(trajd.Error, match="this process sees 1"):
        _core.gpu_uuid(-(1 << 32))
    assert _core.gpu_uuid(0) == UUID
