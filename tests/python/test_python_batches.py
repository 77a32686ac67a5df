"""Memory of batches: which objects hold it, and when it is released."""
import gc
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import trajd
from paths import PACKAGE
from waiting import wait_for


def connect(one, **options):
    return trajd.connect(str(one.endpoint), spec={"any": 1}, timeout=60, **options)


def value(window, column, epoch=0):
    return epoch * 100000 + window + 0.25 * column


def check(batch):
    expected = batch.window_id[:, None] + batch.epoch * 100000 + 0.25 * np.arange(3)
    np.testing.assert_array_equal(batch["actions"], expected.astype(np.float32))


def test_arrays_keep_the_memory_whatever_dies_first(producer):
    one = producer(slots=6, length=4000)
    feed = connect(one, credit=4)
    epoch = feed.epoch(0)
    first = next(epoch)
    array = first["actions"]
    expected = array.copy()
    part = array[2:4, 1]
    del first, array
    for _ in range(20):  # the ring is filled again and again, past the slot that is held
        batch = next(epoch)
        check(batch)
    np.testing.assert_array_equal(part, expected[2:4, 1])
    feed.close()
    np.testing.assert_array_equal(part, expected[2:4, 1])
    one.stop()
    np.testing.assert_array_equal(part, expected[2:4, 1])
    part += 1  # a ring of one job is its own memory


def test_every_batch_comes_back_from_any_thread(producer):
    one = producer(slots=6, length=8000)
    feed = connect(one, credit=4)
    handed, failures = [], []
    free = threading.Condition()

    def use():
        while True:
            with free:
                free.wait_for(lambda: handed)
                batch = handed.pop(0)
            if batch is None:
                return
            try:
                arrays = [batch["actions"], batch.window_id, batch["actions_is_pad"]]
                check(batch)
                del batch
                arrays.reverse()
            except Exception as error:  # noqa: BLE001
                failures.append(error)

    users = [threading.Thread(target=use) for _ in range(3)]
    for user in users:
        user.start()
    count = 0
    for batch in feed.epoch(0):
        count += batch.rows
        with free:
            handed.append(batch)
            free.notify()
        del batch
    with free:
        handed += [None] * len(users)
        free.notify_all()
    for user in users:
        user.join()
    assert count == 8000 and not failures
    feed.close()


def test_release_while_arrays_live(producer):
    feed = connect(producer())
    batch = next(feed.epoch(0))
    array, view = batch["actions"], batch.window_id[:2]
    with pytest.raises(BufferError, match="2 tensors of this batch are in use"):
        batch.release()
    assert array.sum() > 0 and not batch.released
    del array
    with pytest.raises(BufferError, match="1 tensors of"):
        batch.release()
    del view
    batch.release()
    batch.release()
    assert batch.released
    with pytest.raises(ValueError, match="released"):
        batch["actions"]
    assert batch.position == 0 and "released" in repr(batch)
    feed.close()


def test_both_capsules_and_numpys_own(producer):
    feed = connect(producer())
    core = next(feed.epoch(0))._core
    names = [name for name, *_ in core.schema()]
    tensor = core.tensor(names.index("actions"))
    assert tensor.__dlpack_device__() == (1, 0) and tensor.shape == (8, 3) and tensor.dtype == "f32" and not tensor.read_only
    for array in (np.from_dlpack(tensor), np.asarray(tensor)):
        assert array.ctypes.data == tensor.address and array.strides == (12, 4)
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(tensor.__dlpack__()) and '"dltensor"' in repr(tensor.__dlpack__(max_version=(0, 8)))
    copy = np.array(tensor, copy=True)
    capsules = [tensor.__dlpack__(max_version=version, copy=kind) for version in (None, (1, 0), (1, 9)) for kind in (None, False, True)]
    assert core.live == 1 + 6  # the tensor, and what was not copied
    del capsules, array
    assert core.live == 1
    for bad in (dict(stream=2), dict(dl_device=(2, 0)), dict(max_version=1), dict(dl_device="cpu"), dict(wrong=1)):
        with pytest.raises((ValueError, BufferError, TypeError)):
            tensor.__dlpack__(**bad)
    np.testing.assert_array_equal(np.asarray(tensor), copy)
    with pytest.raises(IndexError):
        core.tensor(4000)
    with pytest.raises(OverflowError):
        core.tensor(-1)
    feed.close()


class Capsule:
    """What numpy asks of a producer of DLPack."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


def test_a_capsule_of_a_batch_keeps_it(producer):
    feed = connect(producer(payload=100))
    core = next(feed.epoch(0))._core
    arrays = [np.from_dlpack(Capsule(core.capsule(index))) for index in range(len(core.schema()))]
    for index, array in enumerate(arrays):
        tensor = core.tensor(index)
        assert array.ctypes.data == tensor.address and array.tobytes() == np.asarray(tensor).tobytes()
        assert array.dtype == (np.uint8 if tensor.dtype == "bool" else np.asarray(tensor).dtype)
    del tensor
    assert core.live == len(arrays)
    with pytest.raises(BufferError, match=f"{len(arrays)} tensors of this batch are in use"):
        core.release()
    core.capsule(0)  # no consumer: it gives back what it held
    with pytest.raises(IndexError):
        core.capsule(4000)
    arrays.clear()
    del array
    core.release()
    with pytest.raises(ValueError, match="released"):
        core.capsule(0)
    feed.close()


def test_the_slab_is_all_of_it(producer):
    feed = connect(producer(payload=100))
    core = next(feed.epoch(0))._core
    slab = core.slab()
    memory = np.asarray(slab)
    ring = core.ring()
    assert slab.address % 64 == 0 and ring.base <= slab.address and slab.address + slab.shape[0] <= ring.base + ring.size_bytes
    for index, (name, _, _, _, shape, *_) in enumerate(core.schema()):
        tensor = core.tensor(index)
        array = np.asarray(tensor)
        begin = tensor.address - slab.address
        assert memory[begin:begin + array.nbytes].tobytes() == array.tobytes(), name
        assert tensor.shape[1:] == shape
    feed.close()


@pytest.mark.slow
@pytest.mark.parametrize("slots, credit", [(8, 3), (3, 16)])  # no more credit is granted than there are slots
def test_keeping_every_batch_is_told_and_ends(producer, slots, credit):
    feed = connect(producer(slots=slots), credit=credit)
    epoch, kept = feed.epoch(0), []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(trajd.Busy, match=r"3 batches are held, and the credit is 3.*Batch objects at positions 0, 8, 16") as error:
            for batch in epoch:
                kept.append(batch)
    assert len(kept) == 3 and "credit=" in str(error.value)
    told = [w for w in told if w.category is not ResourceWarning]  # of tests before, when Python collects their garbage
    assert [w.category for w in told] == [RuntimeWarning] and "Copy arrays that you keep" in str(told[0].message)
    arrays = [batch["actions"] for batch in kept]
    kept.clear()
    del batch
    with pytest.warns(RuntimeWarning, match="arrays of batches that are gone"), pytest.raises(trajd.Busy):
        next(epoch)
    arrays.clear()
    assert next(epoch).position == 24
    feed.close()


def test_a_batch_that_cannot_be_made(producer):
    feed = connect(producer(fail=80))
    epoch, positions = feed.epoch(0), []
    with pytest.raises(trajd.DataError, match="demo.hdf5: row 80: made to fail"):
        for batch in epoch:
            positions.append(batch.position)
    assert positions[-1] == 72
    assert next(epoch).position == 88
    feed.close()


def test_the_end_of_the_interpreter(producer):
    """Tensors are in globals, cycles and threads when Python ends. It does not crash, and the daemon gets the end
    of the session."""
    one = producer()
    program = f"""
import sys, threading, trajd
feed = trajd.connect({str(one.endpoint)!r}, spec={{"a": 1}}, timeout=60)
epoch = feed.epoch(0)
batch = next(epoch); array = batch["actions"]; capsule = batch._core.tensor(1).__dlpack__()
class Cycle: pass
cycle = Cycle(); cycle.me = cycle; cycle.batch = next(epoch); cycle.array = cycle.batch["actions"]
sys.held = next(epoch)["actions"]
thread = threading.Thread(target=lambda: threading.Event().wait(), daemon=True); thread.array = array; thread.start()
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(PACKAGE)}, capture_output=True,
                          text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    with connect(one) as feed:
        wait_for(lambda: len(feed.status()["sessions"]) == 1, what="the other session to be gone")


def test_nothing_is_kept_behind(producer):
    one = producer(length=2000)
    for _ in range(3):
        feed = connect(one)
        list(feed.epoch(0).__next__()["actions"] for _ in range(1))
        feed.close()
        assert feed.closed
    del feed
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, (trajd.Batch, trajd.Feed))]
