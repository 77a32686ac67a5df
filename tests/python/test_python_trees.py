"""A batch as a dict: what libraries that map over dicts make of it, and what it costs."""
import collections
import copy
import gc
import importlib
import json
import pickle
import sys
import time
from collections.abc import Mapping, MutableMapping

import numpy as np
import pytest
import trajd

OUTPUTS = "{obs/robot0_eef_pos: {at: -1..0}, obs/robot0_gripper_qpos: {at: -1..0}, actions: {at: -1..14}}"


@pytest.fixture
def batches(daemon, demo_file):
    """batches(**options) yields the batches of a feed with the groups `obs` and `obs_is_pad`."""
    one = daemon(f"datasets: {{demo: {{path: {demo_file}, layout: demo}}}}\nfeeds: {{train: {{dataset: demo, global_batch: 8, "
                 f"anchor: {{clock: actions}}, outputs: {OUTPUTS}}}}}")
    feeds = []

    def start(**options):
        feeds.append(trajd.connect(one.endpoint, feed="train", timeout=60, job=f"job {len(feeds)}", **options))
        return feeds[-1].epoch(0)

    yield start
    for feed in feeds:
        feed.close()


def flat(tree, prefix=""):
    """Returns path -> array of nested dicts."""
    found = {}
    for key, value in tree.items():
        found.update(flat(value, f"{prefix}{key}/") if isinstance(value, dict) else {prefix + key: value})
    return found


def assert_doubled(made, batch):
    assert type(made) is dict and type(made["obs"]) is dict, "plain dicts: the result is not a batch"
    assert flat(made).keys() == flat(batch).keys() and "obs_is_pad/robot0_eef_pos" in flat(made)
    for path, array in flat(made).items():
        np.testing.assert_array_equal(np.asarray(array), np.asarray(batch[path]) * 2, err_msg=path)


def test_dict_apply_of_diffusion_policy(batches):
    pytorch_util = pytest.importorskip("diffusion_policy.common.pytorch_util")
    batch = next(batches(device="cpu"))
    assert_doubled(pytorch_util.dict_apply(batch, lambda x: x * 2), batch)


def test_send_to_device_of_accelerate(batches):
    operations = pytest.importorskip("accelerate.utils.operations")
    batch = next(batches(device="cpu"))
    sent = operations.send_to_device(batch, "cpu")
    assert_doubled(operations.recursively_apply(lambda x: x * 2, sent), batch)


def test_apply_to_collection_of_lightning(batches):
    apply_func = pytest.importorskip("lightning_utilities.core.apply_func")
    batch = next(batches())
    assert_doubled(apply_func.apply_to_collection(batch, np.ndarray, lambda x: x * 2), batch)


def test_torchs_pytree(batches):
    torch = pytest.importorskip("torch")
    pytree = importlib.import_module("torch.utils._pytree")
    batch = next(batches(device="cpu"))
    leaves, structure = pytree.tree_flatten(batch)
    assert len(leaves) == len(flat(batch)) == 10 and all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    assert_doubled(pytree.tree_map(lambda x: x * 2, batch), batch)
    assert pytree.tree_flatten(next(batches(device="cpu")))[1] == structure
    if hasattr(pytree, "tree_map_with_path"):
        named = pytree.tree_map_with_path(lambda path, x: pytree.keystr(path), batch)
        assert named["obs"]["robot0_eef_pos"] == "['obs']['robot0_eef_pos']"
    if hasattr(torch, "vmap"):
        summed = torch.vmap(lambda one: one["obs"]["robot0_eef_pos"].sum())(batch)
        torch.testing.assert_close(summed, batch["obs/robot0_eef_pos"].sum((1, 2)))


def test_numpy_batches_in_torchs_pytree(batches):
    """torch may be imported by the program, and the feed give numpy arrays."""
    pytest.importorskip("torch")
    pytree = importlib.import_module("torch.utils._pytree")
    batch = next(batches())
    assert_doubled(pytree.tree_map(lambda x: x * 2, batch), batch)


def test_jax(batches):
    jax = pytest.importorskip("jax")
    batch = next(batches())
    assert_doubled(jax.tree_util.tree_map(lambda x: x * 2, batch), batch)


def test_a_library_that_is_imported_later_is_registered(batches, monkeypatch):
    entered = {}
    fake = type(sys)("jax.tree_util")
    fake.register_pytree_node = lambda kind, flatten, unflatten: entered.setdefault(kind, (flatten, unflatten))
    batch = next(batches())
    monkeypatch.setitem(sys.modules, "jax.tree_util", fake)
    monkeypatch.setattr("trajd.group._registered", set(sys.modules.keys() & {"torch.utils._pytree"}))
    next(batches())
    assert set(entered) == {trajd.Batch, type(batch["obs"])}
    flatten, unflatten = entered[trajd.Batch]
    values, keys = flatten(batch)
    assert hash(keys) is not None and unflatten(keys, values) == dict(batch)


def read_all(batch):
    for path in flat(batch):
        batch[path]


@pytest.mark.parametrize("read", [lambda batch: None, read_all])
def test_a_batch_is_a_dict(batches, read):
    """Every way out of a dict gives arrays, whether they were read before or not."""
    epoch = batches()
    batch = next(epoch)
    wanted = flat({**batch})
    batch = next(batches())
    read(batch)
    assert isinstance(batch, dict) and isinstance(batch, Mapping) and isinstance(batch, MutableMapping)
    keys = ["obs", "actions", "obs_is_pad", "actions_is_pad", "window_id", "dataset_index", "episode_index", "anchor_ns"]
    assert list(batch) == list(batch.keys()) == keys and len(batch) == 8 and list(reversed(batch)) == keys[::-1]

    def fresh():
        one = trajd.Batch._of(batch._arrays)
        read(one)
        return one

    ways = {
        "dict": dict, "merge": lambda one: {**one}, "items": lambda one: dict(list(one.items())), "or": lambda one: one | {},
        "values": lambda one: dict(zip(one, one.values())), "get": lambda one: {key: one.get(key) for key in one},
        "copy": copy.copy, "method": lambda one: one.copy(), "deepcopy": copy.deepcopy, "pickle": lambda one: pickle.loads(pickle.dumps(one)),
        "type": lambda one: type(one)(collections.OrderedDict(one.items())), "arguments": lambda one: (lambda **named: named)(**one),
        "pop": lambda one: {key: one.pop(key) for key in keys}, "popitem": lambda one: dict(one.popitem() for _ in keys),
        "setdefault": lambda one: {key: one.setdefault(key, 1) for key in keys}, "ror": lambda one: {} | one,
        "update": lambda one: (made := {}).update(one) or made,
    }
    for name, way in ways.items():
        made = way(fresh())
        assert type(made) is dict and isinstance(made["obs"], dict), name
        for path, array in flat(made).items():
            assert type(array) is np.ndarray, f"{name}: {path} is {array!r}"
            np.testing.assert_array_equal(array, wanted[path], err_msg=f"{name}: {path}")
        assert flat(made).keys() == wanted.keys(), name
    for name in ("copy", "method", "deepcopy", "pickle"):
        assert type(ways[name](fresh())["obs"]) is dict, "all of it is plain"


def test_paths_and_values_of_the_program(batches):
    batch = next(batches())
    assert "obs/robot0_eef_pos" in batch and "obs" in batch and "obs/x" not in batch and "x" not in batch and 3 not in batch
    assert batch.get("obs/robot0_eef_pos") is batch["obs"]["robot0_eef_pos"] is batch["obs/robot0_eef_pos"]
    assert batch.get("x", 5) == 5 and batch.get("obs/x") is None
    for slip in ("obs/robot0_eef_poss", "robot0_eef_pos", "obs/robot_eef_pos"):
        with pytest.raises(KeyError, match=rf"{slip} \(did you mean obs/robot0_eef_pos\? there are: .*obs/robot0_eef_pos, .*actions"):
            batch[slip]
    with pytest.raises(KeyError, match=r"robot0_eef_poss \(did you mean robot0_eef_pos\? there are: robot0_eef_pos, "):
        batch["obs"]["robot0_eef_poss"]
    with pytest.raises(KeyError, match=r"xx \(there are: obs/"):
        batch["xx"]
    with pytest.raises(trajd.NotFound, match=r"no tensor action in this feed \(did you mean actions\? there are: "):
        batch.raw("action")
    with pytest.raises(trajd.NotFound, match=r"no output action in this feed \(did you mean actions\? there are: "):
        batch.mask("action")
    with pytest.raises(KeyError):
        batch.pop("x")
    batch["actions"] = batch["actions"] * 0 + 7
    batch["extra"] = 3
    assert (batch["actions"] == 7).all() and batch["extra"] == 3 and dict(batch)["extra"] == 3
    del batch["extra"]
    assert "extra" not in batch and batch == batch and not batch != batch and batch != {}
    assert json.loads(json.dumps(batch, default=lambda array: array.tolist()))["window_id"] == batch.window_id.tolist()
    assert repr(batch["obs"]) == "Group(robot0_eef_pos, robot0_gripper_qpos)"


def test_a_group_keeps_the_memory_and_a_release_ends_it(batches):
    epoch = batches()
    batch = next(epoch)
    core, group = batch._core, batch["obs"]
    array = group["robot0_eef_pos"]
    with pytest.raises(BufferError):
        batch.release()
    assert (group["robot0_eef_pos"] == array).all(), "made again"
    del array
    batch.release()
    for read in (lambda: group["robot0_eef_pos"], lambda: batch["actions"], lambda: dict(batch), lambda: pickle.dumps(batch)):
        with pytest.raises(ValueError, match="this batch is released"):
            read()
    batch = next(epoch)
    core, group = batch._core, batch["obs"]
    wanted = batch["obs/robot0_eef_pos"].copy()
    del batch
    for _ in range(20):
        next(epoch)
    gc.disable()
    try:
        assert not core.released and (group["robot0_eef_pos"] == wanted).all(), "a group keeps the batch's memory"
        del group
        assert core.live == 0, "without a garbage collection"
    finally:
        gc.enable()


def test_what_a_batch_costs(batches):
    """A batch that is not read costs at most 10 us beside the daemon's work: the best of 300, on any machine 100 us."""
    epoch = batches()
    batch = next(epoch)
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        trajd.Batch._of(batch._arrays)
        times.append(time.perf_counter() - begin)
    print(f"a dict for each batch: {min(times) * 1e6:.1f} us")
    assert min(times) < 100e-6
