"""Outputs with transforms and sums on the simulated GPU of tests/fake, whose resampling is the CPU's, and whose transforms are the
code of a GPU's thread: the same bits as in host memory. tests/gpu/test_target_feed.py does the same on a real GPU."""
import os

import numpy as np
import pytest

import gpu_targets
from daemons import FAKE_PROGRAM, GpuDaemon
from fake_gpu import UUID, collect


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets") / "lab"
    gpu_targets.write(folder)
    return folder


@pytest.fixture
def make(tmp_path, folder, started):
    def start(edge="edge", mixed=False, rows="64MiB", rings="64MiB", fake="", data=folder, **how):
        text = f"gpu: {{devices: all, rows: {rows}, rings: {rings}}}\n" + gpu_targets.datasets(data, mixed) + gpu_targets.feeds(edge, mixed=mixed, **how)
        daemon = GpuDaemon(tmp_path / "gpu", text, program=FAKE_PROGRAM)
        daemon.fake = fake
        return started(daemon)

    return start


def assert_the_same(daemon, name):
    """Returns the codes that the masks of the feed have, and the streams that are in host memory."""
    here, there = daemon.client(), daemon.client()
    here.open(name)
    info = there.open(name, job="gpu", gpu=UUID)
    assert info.gpu is not None and info.gpu_refusal is None, info.gpu_refusal
    host, device = collect(here), collect(there)
    assert host.keys() == device.keys() and len(host) >= 5
    codes = set()
    for position, arrays in host.items():
        for key, array in arrays.items():
            np.testing.assert_array_equal(array, device[position][key], err_msg=f"{name} {key} at {position}")
            codes |= set(array.reshape(-1).tolist()) if key.endswith(".mask") else set()
    streamed = {one["path"] for one in here.status()["gpus"][0]["resident"] if one["place"] == "host"}
    here.close()
    there.close()
    return codes, streamed


@pytest.mark.parametrize("edge", gpu_targets.EDGES)
def test_the_same_as_in_host_memory(make, edge):
    daemon = make(edge)
    codes = {name: assert_the_same(daemon, name)[0] for name in gpu_targets.FEEDS}
    assert {0, 2, 5} <= codes["umi"] and {1, 3} <= codes["sums"] and 0 in codes["rates"]


def test_rows_that_travel_with_each_batch(make, tmp_path):
    """Rows that the GPU has no room for: also those of states, and those that a step adds."""
    gpu_targets.write(tmp_path / "long", longer=24)
    daemon = make(rows="64KiB", data=tmp_path / "long", batch=128)
    streamed = {name: assert_the_same(daemon, name)[1] for name in gpu_targets.FEEDS}
    assert streamed["umi"] >= {"actions", "turn"} and streamed["sums"] >= {"move", "twist"}


def test_mixtures(make):
    daemon = make(mixed=True)
    for name in gpu_targets.FEEDS:
        assert_the_same(daemon, name)


def test_rows_that_cannot_be_read(tmp_path, started):
    """With bad_rows: keep, the windows of such episodes are NaN and masked MISSING. The windows beside them are not."""
    gpu_targets.write(tmp_path / "lab", longer=24)
    text = "gpu: {devices: all, rows: 64KiB, rings: 64MiB}\n" + gpu_targets.datasets(tmp_path / "lab") + gpu_targets.feeds("zero", names=["umi"])
    daemon = GpuDaemon(tmp_path / "gpu", text.replace("global_batch", "bad_rows: keep\n    global_batch"), program=FAKE_PROGRAM, store="192KiB")
    client = started(daemon).client()
    info = client.open("umi", gpu=UUID)
    assert info.gpu == UUID.encode(), info.gpu_refusal
    first = client.next()
    file = tmp_path / "lab" / "data" / "a.hdf5"
    os.truncate(file, file.stat().st_size // 2)
    batches = [first.copy(), *collect(client).values()]
    first.release()
    masks, actions = (np.concatenate([arrays[name] for arrays in batches]) for name in ("actions.mask", "actions"))
    assert 0 < (masks == 6).sum() < masks.size and len(actions) == info.window_count // 16 * 16
    assert np.isnan(actions[masks == 6]).all() and np.isfinite(actions[masks == 0]).all()
    client.close()


def test_what_does_not_fit_comes_in_host_memory(make):
    """The rows of transforms count against gpu.rings."""
    client = make(rings="4MiB").client()
    info = client.open("umi", gpu=UUID)
    assert info.gpu is None and b"rows of outputs with transforms: needs" in info.gpu_refusal, info.gpu_refusal
    assert np.isfinite(client.next().arrays()["actions"]).any()
    client.close()
