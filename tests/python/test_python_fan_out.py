"""A ring that several jobs read: arrays are copies, or read-only views with zero_copy."""
import gc

import numpy as np
import pytest

import trajd
from feeds import policy_feed

OUTPUTS = ("obs/robot0_eef_pos", "obs/robot0_gripper_qpos", "actions")


def start(daemon, demo_file):
    return daemon(policy_feed(demo_file).replace("    tail: short", "    tail: short\n    slots: 6\n    fan_out: {jobs: 2}"))


def is_in_ring(batch, address):
    ring = batch._core.ring()
    return ring.base <= address < ring.base + ring.size_bytes


def test_two_jobs_copies_and_views(daemon, demo_file):
    one = start(daemon, demo_file)
    with trajd.connect(one.endpoint, feed="train", job="copies", timeout=60) as copies, \
            trajd.connect(one.endpoint, feed="train", job="views", timeout=60, zero_copy=True) as views:
        count = 0
        for copied, seen in zip(copies.epoch(0), views.epoch(0)):
            assert copied.window_id.tolist() == seen.window_id.tolist()
            for name in OUTPUTS:
                np.testing.assert_array_equal(copied[name], seen[name])
                assert copied[name].flags.writeable and not is_in_ring(copied, copied[name].ctypes.data)
                assert not seen[name].flags.writeable and is_in_ring(seen, seen[name].ctypes.data)
            with pytest.raises(ValueError, match="read-only"):
                seen["actions"][0] = 0
            copied["actions"][:] = np.nan  # its own memory: the other job's array does not change
            assert np.isfinite(seen["actions"]).all()
            count += 1
        assert count == len(copies) == len(views)
        assert len(copies.status()["feeds"]) == 1


def test_copies_do_not_hold_the_memory(daemon, demo_file):
    one = start(daemon, demo_file)
    with trajd.connect(one.endpoint, feed="train", timeout=60, credit=2) as feed:
        kept = [batch["actions"] for batch in feed.epoch(0)]  # more than there are slots
        assert len(kept) == len(feed) > 6
        batch = next(feed.epoch(1))
        array = batch["actions"]
        batch.release()
        assert array.shape == (32, 16, 7)


def test_capsules_of_a_shared_ring(daemon, demo_file):
    one = start(daemon, demo_file)
    with trajd.connect(one.endpoint, feed="train", timeout=60, zero_copy=True) as feed:
        core = next(feed.epoch(0))._core
        tensor = core.tensor(0)
        assert tensor.read_only
        with pytest.raises(BufferError, match="read-only"):
            tensor.__dlpack__()  # the old kind of capsule cannot mark memory as read-only
        with pytest.raises(BufferError, match="read-only"):
            tensor.__dlpack__(max_version=(0, 8))
        for capsule in (tensor.__dlpack__(max_version=(1, 0)), tensor.__dlpack__(copy=True), core.capsule(0)):
            assert "dltensor" in repr(capsule)
        assert "dltensor_versioned" in repr(core.capsule(0))
        if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):  # from which on it asks for capsules of version 1
            assert not np.from_dlpack(tensor).flags.writeable
            assert np.from_dlpack(tensor, copy=True).flags.writeable
        del capsule
        gc.collect()
        assert core.live == 1


def test_torch(daemon, demo_file):
    torch = pytest.importorskip("torch")
    one = start(daemon, demo_file)
    with trajd.connect(one.endpoint, feed="train", job="copies", device="cpu", timeout=60) as copies, \
            trajd.connect(one.endpoint, feed="train", job="views", device="cpu", timeout=60, zero_copy=True) as views:
        for copied, seen in zip(copies.epoch(0), views.epoch(0)):
            for name in OUTPUTS:
                assert torch.equal(copied[name], seen[name])
                assert not is_in_ring(copied, copied[name].data_ptr()) and is_in_ring(seen, seen[name].data_ptr())
            assert torch.equal(copied["actions_is_pad"], seen["actions_is_pad"])
            copied["actions"].fill_(float("nan"))
            assert torch.isfinite(seen["actions"]).all()


def test_a_device_reads_a_shared_ring(daemon, demo_file, device):
    one = start(daemon, demo_file)
    with trajd.connect(one.endpoint, feed="train", job="host", timeout=60) as host, \
            trajd.connect(one.endpoint, feed="train", job="device", timeout=60, device="cuda:0") as feed:
        for here, there in zip(host.epoch(0), feed.epoch(0)):
            for name in OUTPUTS:
                np.testing.assert_array_equal(here[name], there[name])
