"""Torch: tensors, DataLoader, distributed jobs."""
import collections
import copy
import dataclasses
import gc
import json
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import tempfile
import textwrap

import pytest

torch = pytest.importorskip("torch")

import trajd  # noqa: E402
import trajd.torch  # noqa: E402
from paths import PACKAGE, PROGRAM  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from waiting import wait_for  # noqa: E402


WorkerInfo = collections.namedtuple("WorkerInfo", "num_workers")


def dataset(one, **options):
    return trajd.torch.FeedDataset(endpoint=str(one.endpoint), **{"spec": {"any": 1}, "timeout": 20, **options})


def test_tensors_are_views_that_keep_the_memory(producer):
    feed = trajd.connect(str(producer(length=4000).endpoint), spec={"any": 1}, timeout=60, device="cpu")
    epoch = feed.epoch(0)
    batch = next(epoch)
    actions, core = batch["actions"], batch._core
    assert isinstance(actions, torch.Tensor) and actions.dtype == torch.float32 and batch["actions_is_pad"].dtype == torch.bool
    assert actions.data_ptr() == core.tensor(1).address
    assert core.live == 2, "actions and their mask"
    row = actions[3]
    expected = row.clone()
    with pytest.raises(BufferError):
        batch.release()
    del batch, actions
    assert core.live == 1
    for other in (next(epoch) for _ in range(20)):
        torch.testing.assert_close(other["actions"][:, 0].double(), other.window_id.double())
    torch.testing.assert_close(row, expected, rtol=0, atol=0)
    del row
    gc.collect()
    core.release()
    feed.close()


def test_every_dtype(daemon, demo_file):
    outputs = ", ".join(f"x_{name}: {{from: obs/robot0_eef_pos, at: 0, dtype: {name}}}" for name in ("float16", "bfloat16", "float32", "float64"))
    one = daemon(f"datasets: {{demo: {{path: {demo_file}, layout: demo}}}}\nfeeds: {{train: {{dataset: demo, global_batch: 8, "
                 f"anchor: {{clock: actions}}, outputs: {{{outputs}, flags: {{from: dones, at: 0}}}}}}}}")
    with trajd.connect(one.endpoint, feed="train", device="cpu", timeout=60) as feed:
        batch = next(feed.epoch(0))
        for name in ("float16", "bfloat16", "float32", "float64"):
            assert batch["x_" + name].dtype == getattr(torch, name)
            torch.testing.assert_close(batch["x_" + name].double(), batch["x_float64"], rtol=1e-2, atol=1e-3)
        assert batch["flags"].shape == (8, 1) or batch["flags"].shape[0] == 8
        del batch
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        with pytest.raises(trajd.ArgumentError, match="bf16.*ml_dtypes"):
            next(feed.epoch(0))["x_bfloat16"]


def test_a_dataset_in_this_process(producer):
    one = producer()
    data = dataset(one)
    with pytest.raises(TypeError, match="once it is connected"):
        len(data)
    loader = DataLoader(data, batch_size=None)
    first = [batch["window_id"].tolist() for batch in loader]
    assert sorted(sum(first, [])) == list(range(1000)) and len(data) == 125
    second = [batch["window_id"].tolist() for batch in loader]
    assert second != first, "the next epoch"
    data.set_epoch(0)
    state = None
    for count, batch in enumerate(loader):
        assert type(batch) is dict and batch["actions"].shape == (8, 3)
        if count == 4:
            state = json.loads(json.dumps(data.state_dict()))
            break
    data.load_state_dict(state)
    assert [batch["window_id"].tolist() for batch in loader] == first[5:]
    assert state["position"] == 40
    data.close()


def test_the_configuration_comes_first(tmp_path):
    """What is wrong is said when the dataset is made, not when a training has waited for it."""
    with pytest.raises(FileNotFoundError, match="square.yaml"):
        trajd.torch.FeedDataset(tmp_path / "square.yaml", feed="train")
    with pytest.raises(trajd.ArgumentError, match="give it to trajd.connect, or to FeedDataset as endpoint="):
        trajd.torch.FeedDataset(str(tmp_path), feed="train")
    (tmp_path / "square.yaml").touch()
    with pytest.raises(trajd.ArgumentError, match="this is a file"):
        trajd.torch.FeedDataset(endpoint=tmp_path / "square.yaml", feed="train")
    with pytest.raises(trajd.ArgumentError, match="either endpoint or config"):
        trajd.torch.FeedDataset(tmp_path / "square.yaml", endpoint="/nowhere", feed="train")
    with pytest.raises(trajd.ArgumentError, match="overrides"):
        trajd.torch.FeedDataset(endpoint="/nowhere", feed="train", overrides={"seed": 1})
    with pytest.raises(TypeError, match="no option batch_size: .*global_batch"):
        trajd.torch.FeedDataset(tmp_path / "square.yaml", feed="train", batch_size=4)
    assert trajd.torch.FeedDataset(tmp_path / "square.yaml", feed="train")._config == tmp_path / "square.yaml"


def test_batches_are_not_batched_again(producer):
    """DataLoader's own batch_size is 1, which would add a dimension."""
    data = dataset(producer())
    for wrong in ({}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}):
        with pytest.raises(trajd.ArgumentError, match=r"Use DataLoader\(dataset, batch_size=None\)"):
            next(iter(DataLoader(data, **wrong)))
    with pytest.raises(trajd.Busy, match="A DataLoader that collects batches needs batch_size=None"), pytest.warns(RuntimeWarning):
        next(iter(DataLoader(data, batch_size=64)))  # more than one process may hold
    collated = next(iter(DataLoader(data, batch_size=2, collate_fn=list)))  # an explicit collate function is allowed
    assert [batch["actions"].shape for batch in collated] == [(8, 3)] * 2
    for made in (copy.copy(collated[0]), type(collated[0])(collated[0]), pickle.loads(pickle.dumps(collated[0])),
                 next(iter(DataLoader(data, batch_size=None)))):
        assert type(made) is dict and made.keys() == collated[0].keys() and made["actions"].shape == (8, 3)
    data.close()


def test_a_dataset_goes_to_one_spawned_worker(producer):
    one = producer()
    data = dataset(one, job="w")
    assert pickle.loads(pickle.dumps(data))._settings == data._settings
    here = [batch["window_id"].tolist() for batch in copy.copy(data)]
    os.environ["PYTHONPATH"] = f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}"
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    there = [batch for batch in loader]
    assert [batch["window_id"].tolist() for batch in there] == here
    assert all(torch.equal(batch["actions"][:, 0], batch["window_id"].float()) for batch in there)


@pytest.mark.slow  # not under the address sanitizer: its allocator may be locked in a child for ever
def test_workers_that_cannot_be(producer, monkeypatch):
    """Runs the code of a DataLoader's workers without one: a DataLoader takes five seconds for each worker that
    raised."""
    data = dataset(producer())
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            next(iter(data))
        except BaseException as error:  # noqa: BLE001
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    said = os.read(reading, 1000).decode()
    os.close(reading)
    assert said.startswith("ForkError: ") and "num_workers=0" in said and "multiprocessing_context='spawn'" in said
    monkeypatch.setattr("trajd.torch.get_worker_info", lambda: WorkerInfo(num_workers=2))
    with pytest.raises(trajd.ArgumentError, match="with 2 workers"):
        next(iter(data))
    monkeypatch.setattr("trajd.torch.get_worker_info", lambda: WorkerInfo(num_workers=1))
    monkeypatch.setattr(data, "_settings", dataclasses.replace(data._settings, device="cuda"))
    with pytest.raises(trajd.ArgumentError, match="'cuda' in a worker process"):
        next(iter(data))


def test_a_dataset_as_a_stateful_loader_uses_it(producer):
    """Makes the calls of torchdata's StatefulDataLoader: state_dict() after each batch, load_state_dict() on a new
    object before iter()."""
    one = producer()
    data, states, ids = dataset(one), [], []
    assert data.state_dict() == {}
    for batch in data:
        states.append(data.state_dict())
        ids.append(batch["window_id"].tolist())
    data.close()
    fresh = dataset(one)
    fresh.load_state_dict({})
    fresh.load_state_dict(states[9])
    assert fresh.state_dict() == states[9]
    assert [batch["window_id"].tolist() for batch in fresh] == ids[10:]
    fresh.close()


RANK = """
import json, sys, torch.distributed as dist, trajd
rank, port, endpoint, feed = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
feed = trajd.connect(endpoint, feed=feed, device="cpu", timeout=30)
try:
    ids = [batch.window_id.tolist() for batch in feed.epoch(0)]
    print(json.dumps(ids))
except trajd.StateError as error:
    print(json.dumps(str(error)))
feed.close()
"""


def run_ranks(endpoints, feed):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(r), str(port), str(endpoints[r]), feed], stdout=subprocess.PIPE, text=True,
                              env=environment) for r in range(2)]
    said = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    return said


def feed_of(path):
    return textwrap.dedent(f"""
        datasets: {{demo: {{path: {path}, layout: demo}}}}
        feeds: {{train: {{dataset: demo, global_batch: 16, tail: short, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0..3}}}}}}}}""")


def test_ranks_of_torch_distributed(daemon, demo_file):
    one = daemon(feed_of(demo_file))
    zero, first = run_ranks([one.endpoint, one.endpoint], "train")
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        whole = [batch.window_id.tolist() for batch in feed.epoch(0)]
    assert [a + b for a, b in zip(zero, first)] == whole


def test_ranks_that_see_different_data(daemon, demo_file, tmp_path):
    import h5py
    other_file = tmp_path / "demo.hdf5"
    other_file.write_bytes(demo_file.read_bytes())
    with h5py.File(other_file, "r+") as file:
        actions = file["data/demo_7/actions"]
        actions[...] = actions[...] + 1
    one = daemon(feed_of(demo_file))
    (tmp_path / "other").mkdir()
    other = type(one)(tmp_path / "other", feed_of(other_file)).start()
    try:
        said = run_ranks([one.endpoint, other.endpoint], "train")
    finally:
        other.stop()
    for text in said:
        assert "ranks 0 and 1 see different data" in text and "demo_7" in text and "another content" in text, text


def test_ranks_that_normalise_differently(daemon, demo_file):
    rules = ("mean_std", "{by: mean_std, over: windows}")
    endpoints = [daemon(feed_of(demo_file).replace("at: 0..3", f"at: 0..3, norm: {rule}"), folder=f"rank{r}").endpoint for r, rule in enumerate(rules)]
    for text in run_ranks(endpoints, "train"):
        assert "ranks 0 and 1 get differently normalised values" in text, text


def test_a_dataset_of_a_configuration(demo_file, tmp_path, monkeypatch):
    """trajd.open: a private daemon, and each dataset is a job of its own, whatever others of the session have taken."""
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        for name in [name for name in os.environ if name.startswith(("TRAJD_", "SLURM_", "MASTER_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("TRAJD_RUNTIME_DIR", folder)
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        monkeypatch.setenv("TRAJD_PROGRAM", str(PROGRAM))
        (tmp_path / "demo.yaml").write_text("version: 2\nexit_idle: 1s\nmemory: {store: 64MiB, rings: 64MiB, reserve: 0}\n" + feed_of(demo_file))
        whole = trajd.torch.FeedDataset(tmp_path / "demo.yaml", timeout=30)
        ids = [batch["window_id"].tolist() for batch in DataLoader(whole, batch_size=None)]
        part = trajd.torch.FeedDataset(config=tmp_path / "demo.yaml", feed="train", overrides={"global_batch": 32}, timeout=30)
        taken = next(iter(part))["window_id"].tolist()
        assert taken == ids[0] + ids[1] and len(part) == len(ids) // 2 + len(ids) % 2
        again = trajd.torch.FeedDataset(tmp_path / "demo.yaml", timeout=30)
        assert [batch["window_id"].tolist() for batch in again] == ids
        pids = {session["pid"] for session in again.connect().status()["sessions"]}
        assert pids == {os.getpid()}
        for data in (whole, part, again):
            data.close()
        wait_for(lambda: not list(pathlib.Path(folder).glob("trajd-*/*/run/feed.sock")), 60, "the end of the daemon")
