"""Batches that are copied to a device one ahead: when they are released, and when they count as DONE. HostDevice
takes the place of the GPU: the test decides when its copies end. tests/gpu/test_python_cuda.py uses a real GPU."""
import gc
import types

import numpy as np
import pytest

import trajd
from trajd import cuda
from waiting import wait_for


def connect(one, **options):
    return trajd.connect(str(one.endpoint), spec={"any": 1}, timeout=60, device="cuda:0", **options)


def always_ahead(feed):
    """Makes the feed wait for the batch ahead, so that a slow machine has one, too."""
    take = feed._next_core
    feed._next_core = lambda timeout: take(0.9 if timeout == 0.0 else timeout)


def done_of(feed):
    return feed.status()["batches_done"]


def check(batch):
    expected = batch.window_id[:, None] + batch.epoch * 100000 + 0.25 * np.arange(3)
    np.testing.assert_array_equal(batch["actions"], expected.astype(np.float32))


def test_all_batches_and_their_values(producer, device):
    feed = connect(producer(length=4001, payload=40))
    kept, count = [], 0
    for batch in feed.epoch(0):
        check(batch)
        count += batch.rows
        kept.append(batch["actions"])  # it belongs to the device: all may be kept
    assert count == 4001 and len(kept) == 501 == device[0].handed
    assert len(device[0].rings) == 1
    np.testing.assert_array_equal(kept[3][:, 0], np.arange(24, 32))
    assert feed.state_dict()["epoch"] == 1
    feed.close()
    assert device[0].rings == []


@pytest.mark.parametrize("device, current, local, count, index", [
    ("cuda", 0, "3", 8, 3), ("cuda", 2, "3", 8, 2), ("cuda:1", 0, "3", 8, 1), ("cuda", 0, "0", 8, 0), ("cuda", 0, "3", 1, 0),
    ("cuda", 0, "8", 8, 0), ("cuda", 0, "x", 8, 0), ("cuda", 0, None, 8, 0)])
def test_a_rank_whose_torch_stands_on_gpu_0(monkeypatch, caplog, device, current, local, count, index):
    """It uses the GPU of LOCAL_RANK, unless the program has chosen another one or this rank sees one GPU alone."""
    gpus = types.SimpleNamespace(is_available=lambda: True, current_device=lambda: current, device_count=lambda: count)
    fake = types.SimpleNamespace(
        cuda=gpus, device=lambda name: types.SimpleNamespace(index=int(name[5:]) if ":" in name else None))
    monkeypatch.setattr(cuda.arrays, "import_torch", lambda: fake)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local is not None:
        monkeypatch.setenv("LOCAL_RANK", local)
    cuda._tell_of_local_rank.cache_clear()
    assert [cuda.torch_index(device) for _ in range(2)] == [index, index]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (index == 3) and all("LOCAL_RANK 3" in text and "set_device(3)" in text for text in said)


def test_ranks_copy_their_rows_alone(producer, device):
    one = producer(batch=64, payload=4000)
    feed = connect(one, rank=0, world_size=1, mode="shard")
    batch = next(feed.epoch(0))
    assert batch.rows == 64
    feed.close()
    assert cuda.plan_copy(1000, 1000, [(1000, 400), (1400, 200)]).in_one_copy
    packed = cuda.plan_copy(64, 10000, [(64, 100), (4096, 8), (9000, 0)])
    assert packed == cuda.CopyPlan((0, 128, 192), 192, False)


def test_what_is_ahead_is_not_done(producer, device):
    one = producer()
    feed = connect(one)
    other = trajd.connect(str(one.endpoint), spec={"any": 1}, timeout=60)  # queries only
    epoch = feed.epoch(0)
    always_ahead(feed)
    next(epoch), next(epoch)
    assert feed._stage._ahead.core.position == 16
    taken = feed.batch_count
    wait_for(lambda: done_of(other) == taken - 1, what="DONE of those before")
    state = feed.state_dict()
    assert state["position"] == 8 * taken, "the batch in use counts, the one ahead does not"
    feed.close()
    with trajd.connect(str(one.endpoint), spec={"any": 1}, timeout=60) as again:
        again.load_state_dict(state)
        assert next(again.epoch(0)).position == 8 * taken
    other.close()


def test_a_feed_that_is_forgotten(producer, device):
    """A feed is dropped without close(). The ring is unregistered from the device, and the batch that was copied
    ahead is not DONE."""
    one = producer()
    other = trajd.connect(str(one.endpoint), spec={"any": 1}, timeout=60)  # queries only
    feed = connect(one)
    epoch = feed.epoch(0)
    always_ahead(feed)
    next(epoch), next(epoch)
    assert device[0].rings and feed._stage._ahead is not None
    del feed, epoch
    gc.collect()
    assert device[0].rings == [] and done_of(other) == 2
    other.close()


@pytest.mark.slow
def test_memory_is_given_back_when_the_copy_is_over(producer, device):
    feed = connect(producer(slots=8), credit=4)
    epoch = feed.epoch(0)
    device[0].prompt = False
    always_ahead(feed)
    for _ in range(3):
        check(next(epoch))
    stage = feed._stage
    assert len(stage._finishing) >= 1 and all(not copied.core.released for copied in stage._finishing)
    first = stage._finishing[0]
    first.event.over = True
    check(next(epoch))
    assert first.core.released
    for _ in range(20):  # no copy ends by itself: it waits for copies, and never for credit
        check(next(epoch))
    assert device[0].waits > 0
    feed.close()


def test_another_epoch_leaves_what_is_ahead(producer, device):
    feed = connect(producer(length=80))
    epoch = feed.epoch(0)
    next(epoch), next(epoch)
    assert [batch.position for batch in feed.epoch(1)] == list(range(0, 80, 8))
    assert [batch.position for batch in feed.epoch(0)] == list(range(0, 80, 8))
    feed.close()


def test_a_batch_ahead_that_cannot_be_made(producer, device):
    feed = connect(producer(fail=24))
    epoch, positions = feed.epoch(0), []
    with pytest.raises(trajd.DataError, match="row 24"):
        for batch in epoch:
            positions.append(batch.position)
    assert positions == [0, 8, 16] and next(epoch).position == 32
    feed.close()


def test_streams_that_read(producer, device):
    """Torch gets each stream that reads a block, so that it does not reuse the block while a stream is late."""
    feed = connect(producer())
    batch = next(feed.epoch(0))
    batch["actions"], batch["actions"]
    device[0].stream = 6
    batch["actions"], batch.window_id
    side = object()
    batch.record_stream(side)
    block = batch["actions"].base
    while block.base is not None:
        block = block.base
    assert [stream for one, _, stream in device[0].readers if one == id(block)] == [0, 6, side]
    feed.close()


def test_another_daemons_ring(producer, device):
    one = producer()
    feed = connect(one, mode="shard", rank=0, world_size=1)
    epoch = feed.epoch(0)
    seen = [next(epoch).position for _ in range(3)]
    one.kill()
    one.start()
    seen += [batch.position for batch in epoch]
    assert seen == list(range(0, 1000, 8)) and len(device[0].rings) == 1
    feed.close()


def test_without_a_gpu():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(trajd.DeviceError, match="sees no CUDA device"):
        cuda.CudaDevice("cuda:0")
