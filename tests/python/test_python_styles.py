"""Key styles and topology: tables against the names that the libraries use."""
import sys
import types

import numpy as np
import pytest

import trajd
from trajd import arrays
from trajd.styles import STYLES, Field, Tensor, make_plan
from trajd.topology import Topology, detect, parse_tasks_per_node

B, T, D = 4, 2, 3


def outputs(*entries):
    """Returns a schema with the masks that a daemon adds to it."""
    schema = []
    for name, role, dtype, shape in entries:
        schema.append(Tensor(name, role, None, dtype, shape))
        schema.append(Tensor(name + ".mask", "mask", name, "u8", shape[:1]))
    return schema + [Tensor(name, "ids", None, "i64", []) for name in ("window_id", "dataset_index", "episode_index", "anchor_ns")]


POLICY = outputs(("obs/state", "obs", "f32", [T, D]), ("obs/front", "obs", "u8", [T, 8, 6, 3]), ("obs/wrist", "obs", "u8", [T, 8, 6, 3]),
                 ("actions", "action", "f32", [16, 7]))


def flat(plan, path=""):
    for key, entry in plan.items():
        if isinstance(entry, Field):
            yield path + key, entry
        else:
            yield from flat(entry, f"{path}{key}/")


def make(schema, field):
    """Makes a batch's field from made-up rows: uint8 values count up, masks are [1, 0, ..., 2]."""
    parts = []
    for source in field.sources:
        tensor = schema[source]
        shape = (B, *tensor.shape)
        data = np.arange(np.prod(shape), dtype=np.int64).reshape(shape).astype({"f32": np.float32, "u8": np.uint8}.get(tensor.dtype, np.int64))
        if tensor.role == "mask":
            data = np.zeros(shape, np.uint8)
            data[:, 0], data[:, -1] = 1, 2
        parts.append(data)
    for step in field.steps:
        if step == "stack":
            return arrays.stack(parts)
        parts = [arrays.STEPS[step](part) for part in parts]
    return parts[0]


EXPECTED = {
    "raw": {"obs/state": (B, T, D), "obs/front": (B, T, 8, 6, 3), "obs/wrist": (B, T, 8, 6, 3), "actions": (B, 16, 7),
            "obs_is_pad/state": (B, T), "obs_is_pad/front": (B, T), "obs_is_pad/wrist": (B, T), "actions_is_pad": (B, 16),
            "window_id": (B,), "dataset_index": (B,), "episode_index": (B,), "anchor_ns": (B,)},
    "robomimic": {"obs/state": (B, T, D), "obs/front": (B, T, 8, 6, 3), "obs/wrist": (B, T, 8, 6, 3), "actions": (B, 16, 7),
                  "actions_is_pad": (B, 16), "pad_mask": (B, 16, 1), "index": (B,)},
    "lerobot": {"observation.state": (B, T, D), "observation.images.front": (B, T, 3, 8, 6), "observation.images.wrist": (B, T, 3, 8, 6),
                "action": (B, 16, 7), "observation.state_is_pad": (B, T), "observation.images.front_is_pad": (B, T),
                "observation.images.wrist_is_pad": (B, T), "action_is_pad": (B, 16), "index": (B,), "episode_index": (B,),
                "dataset_index": (B,), "task": None},
    "act": {"image": (B, 2, 3, 8, 6), "qpos": (B, D), "action": (B, 16, 7), "is_pad": (B, 16), "action_is_pad": (B, 16)},
    "diffusion_policy": {"obs/state": (B, T, D), "obs/front": (B, T, 3, 8, 6), "obs/wrist": (B, T, 3, 8, 6), "action": (B, 16, 7),
                         "action_is_pad": (B, 16)},
    "openpi": {"image/front": (B, 8, 6, 3), "image/wrist": (B, 8, 6, 3), "state": (B, D), "actions": (B, 16, 7), "actions_is_pad": (B, 16),
               "image_mask/front": (B,), "image_mask/wrist": (B,), "prompt": None},
}


@pytest.mark.parametrize("style", sorted(STYLES))
def test_keys_and_shapes(style):
    made = {key: None if field.meta else make(POLICY, field) for key, field in flat(make_plan(style, POLICY))}
    assert {key: None if value is None else value.shape for key, value in made.items()} == EXPECTED[style]
    for key, value in made.items():
        if key.endswith("is_pad") or "is_pad/" in key:
            assert value.dtype == bool and value[:, 0].all() and value[:, -1].all() and not value[:, 1:-1].any(), key
        if key == "pad_mask":
            assert value.dtype == bool and not value[:, 0].any() and value[:, 1:-1].all()


def test_what_is_done_to_pictures():
    plan = dict(flat(make_plan("diffusion_policy", POLICY)))
    stored = np.arange(B * T * 8 * 6 * 3, dtype=np.int64).reshape(B, T, 8, 6, 3).astype(np.uint8)
    got = make(POLICY, plan["obs/front"])
    assert got.dtype == np.float32 and got.max() == 1.0
    np.testing.assert_array_equal(got, np.moveaxis(stored, -1, -3).astype(np.float32) / np.float32(255))
    act = make_plan("act", POLICY)
    assert list(act)[:4] == ["image", "qpos", "action", "is_pad"]
    np.testing.assert_array_equal(make(POLICY, act["qpos"]), make(POLICY, dict(flat(make_plan("raw", POLICY)))["obs/state"])[:, -1])
    np.testing.assert_array_equal(make(POLICY, act["image"])[:, 0], np.moveaxis(stored, -1, -3)[:, -1].astype(np.float32) / np.float32(255))


def test_styles_that_do_not_fit():
    low = outputs(("obs/eef", "obs", "f32", [T, D]), ("actions", "action", "f32", [16, 7]))
    with pytest.raises(trajd.ArgumentError, match="act needs qpos.*obs/eef, actions"):
        make_plan("act", low)
    assert "image" not in make_plan("act", outputs(("obs/qpos", "obs", "f32", [T, D]), ("actions", "action", "f32", [16, 7])))
    with pytest.raises(trajd.ArgumentError, match="robomimic needs actions"):
        make_plan("robomimic", outputs(("obs/eef", "obs", "f32", [T, D])))
    with pytest.raises(trajd.ArgumentError, match="obs is an output and also a group"):
        make_plan("raw", outputs(("obs", "obs", "f32", [T, D]), ("obs/x", "obs", "f32", [T, D])))
    with pytest.raises(trajd.ArgumentError, match="two outputs would both be called observation.x"):
        make_plan("lerobot", outputs(("x", "obs", "f32", [T, D]), ("obs/x", "obs", "f32", [T, D]), ("actions", "action", "f32", [16, 7])))
    assert make_plan("diffusion_policy", outputs(("obs", "obs", "f32", [T, D]), ("actions", "action", "f32", [16, 7])))["obs"].sources == (0,)


TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SLURM = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_NTASKS": "7", "SLURM_NODEID": "1", "SLURM_TASKS_PER_NODE": "3(x2),1"}


@pytest.mark.parametrize("environment, expected", [
    ({}, Topology()),
    (TORCHRUN, Topology(5, 8, (4, 5, 6, 7))),
    ({**TORCHRUN, "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "5"}, Topology(5, 8)),
    ({"RANK": "1", "WORLD_SIZE": "2"}, Topology(1, 2)),
    (SLURM, Topology(5, 7, (3, 4, 5))),
    ({**SLURM, "SLURM_TASKS_PER_NODE": "7", "SLURM_NODEID": "0"}, Topology(5, 7)),
    ({key: value for key, value in SLURM.items() if key != "SLURM_STEP_ID"}, Topology()),
    ({**SLURM, **TORCHRUN}, Topology(5, 8, (4, 5, 6, 7))),
    ({**SLURM, "RANK": "5", "WORLD_SIZE": "7"}, Topology(5, 7, (3, 4, 5))),
    ({**SLURM, "RANK": "2", "WORLD_SIZE": "7"}, Topology(2, 7)),
])
def test_topology(environment, expected):
    assert detect(environment) == expected


@pytest.mark.parametrize("environment, expected", [({}, Topology(5, 7)), (SLURM, Topology(5, 7, (3, 4, 5))),
                                                   ({**SLURM, "SLURM_NTASKS": "8"}, Topology(5, 7))])
def test_topology_of_torch_distributed(monkeypatch, environment, expected):
    told = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 5, get_world_size=lambda: 7)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(distributed=told))
    assert detect(environment) == expected


@pytest.mark.parametrize("environment", [{**TORCHRUN, "RANK": "x"}, {**TORCHRUN, "RANK": "8"}, {**SLURM, "SLURM_NODEID": "4"},
                                         {**SLURM, "SLURM_PROCID": "1"}, {**SLURM, "SLURM_TASKS_PER_NODE": "3(x,2"}])
def test_bad_topology(environment):
    with pytest.raises(trajd.ArgumentError):
        detect(environment)


def test_tasks_per_node():
    assert parse_tasks_per_node("2(x3),1") == [2, 2, 2, 1] and parse_tasks_per_node("4") == [4]


def test_styles_of_a_real_feed(daemon, demo_file):
    one = daemon(f"datasets: {{demo: {{path: {demo_file}, layout: demo}}}}\nfeeds: {{train: {{dataset: demo, global_batch: 8, "
                 "anchor: {clock: actions}, outputs: {obs/state: {from: obs/robot0_eef_pos, at: -1..0}, actions: {at: -1..6}}}}")
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        raw = {key: feed_value.copy() for batch in [next(feed.epoch(0))] for key, feed_value in
               (("obs", batch["obs"]["state"]), ("actions", batch["actions"]), ("mask", batch.mask("actions")))}
    for style, names in {"robomimic": ("obs/state", "actions", "actions_is_pad"), "lerobot": ("observation.state", "action", "action_is_pad"),
                         "act": ("qpos", "action", "is_pad"), "diffusion_policy": ("obs/state", "action", "action_is_pad"),
                         "openpi": ("state", "actions", "actions_is_pad")}.items():
        with trajd.connect(one.endpoint, feed="train", style=style, timeout=60) as feed:
            batch = next(feed.epoch(0))
            obs, actions, pad = (batch[name] for name in names)
            np.testing.assert_array_equal(obs, raw["obs"][:, -1] if obs.ndim == 2 else raw["obs"])
            np.testing.assert_array_equal(actions, raw["actions"])
            np.testing.assert_array_equal(pad, (raw["mask"] == 1) | (raw["mask"] == 2))
            assert len(batch) == len(list(batch)) and all(batch[key] is not None for key in batch if key not in ("task", "prompt"))
            with pytest.raises(KeyError, match="there are: "):
                batch["nothing"]


@pytest.mark.parametrize("dtype, shape", [("f32", [T, 3, 8, 6]), ("u8", [T, 3, 8, 6]), ("f32", [T, 8, 6, 3])], ids=["floats", "planes", "float pixels"])
@pytest.mark.parametrize("style, key", [("act", "image"), ("lerobot", "observation.images.front"), ("diffusion_policy", "obs/front")])
def test_pictures_that_the_feed_has_finished_are_only_renamed(style, key, dtype, shape):
    schema = outputs(("obs/state", "obs", "f32", [T, D]), ("obs/front", "obs", dtype, shape),
                     ("actions", "action", "f32", [16, 7]))
    fields = dict(flat(make_plan(style, schema)))
    made = make(schema, fields[key])
    plain = dict(flat(make_plan(style, outputs(("obs/state", "obs", "f32", [T, D]), ("obs/front", "obs", "u8", [T, 8, 6, 3]),
                                               ("actions", "action", "f32", [16, 7])))))
    assert made.shape == make(outputs(("obs/state", "obs", "f32", [T, D]), ("obs/front", "obs", "u8", [T, 8, 6, 3])), plain[key]).shape
    assert ("unit_range" in fields[key].steps) == ("unit_range" in plain[key].steps and dtype == "u8")


def test_the_parameters_of_an_augmentation_are_in_raw_batches():
    schema = POLICY + [Tensor("obs/front.augment", "augment", "obs/front", "f32", [T, 2, 4])]
    plan = make_plan("raw", schema)
    assert plan["obs/front.augment"] == Field((len(schema) - 1,)) and "front.augment" not in plan["obs"]
    assert not any("augment" in key for key, _ in flat(make_plan("robomimic", schema)))
