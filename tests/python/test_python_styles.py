"""Key styles and topology: tables against the names that the libraries use."""
import sys
import types

import h5py
import numpy as np
import pytest

import trajd
from image_files import png
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


def make(schema, field, codes=None):
    """Makes a batch's field from made-up rows: uint8 values count up, masks are [1, 0, ..., 2] or as codes(shape) gives them."""
    parts = []
    for source in field.sources:
        tensor = schema[source]
        shape = (B, *tensor.shape)
        data = np.arange(np.prod(shape), dtype=np.int64).reshape(shape).astype({"f32": np.float32, "u8": np.uint8}.get(tensor.dtype, np.int64))
        if tensor.role == "mask":
            data = np.zeros(shape, np.uint8)
            data[:, 0], data[:, -1] = 1, 2
            data = codes(shape) if codes else data
        parts.append(data)
    return arrays.convert(parts, field.steps)


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
            assert value.dtype == bool and not value[:, 0].any() and value[:, 1:-1].all() and not value[:, -1].any()


@pytest.mark.parametrize("code", range(9))
@pytest.mark.parametrize("style", sorted(STYLES))
def test_what_is_called_valid_has_no_reason_against_it(style, code):
    """`image_mask` and `pad_mask` were True for whatever is not padding: missing cameras, old frames, gaps, bad frames."""
    def codes(shape):
        return np.where(np.arange(np.prod(shape)).reshape(shape) % shape[-1] == shape[-1] - 1, code, 0).astype(np.uint8)

    last = {"image_mask/front": (B,), "image_mask/wrist": (B,), "pad_mask": (B, 16, 1)}
    for key, field in flat(make_plan(style, POLICY)):
        made = make(POLICY, field, codes) if field.meta is None else None
        if key in last:
            step = made if made.ndim == 1 else made[:, -1]
            assert made.shape == last[key] and made.dtype == bool and (step == (code == 0)).all(), key
        elif "is_pad" in key:
            assert (made[:, -1] == (code in (1, 2))).all() and not made[:, :-1].any(), key


def test_what_is_done_to_images():
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


RAY = {"RAY_JOB_ID": "ffffffff", "RAY_RAYLET_PID": "1"}


def ray_worker(monkeypatch, rank, world, local_rank, local_world):
    """Puts modules of Ray there as they are in a worker of Ray Train."""
    context = types.SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: world, get_local_rank=lambda: local_rank,
                                    get_local_world_size=lambda: local_world, get_experiment_name=lambda: "run")
    runtime = types.SimpleNamespace(get_job_id=lambda: "01", gcs_address="10.0.0.1:6379")
    monkeypatch.setitem(sys.modules, "ray.train", types.SimpleNamespace(get_context=lambda: context))
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(
        is_initialized=lambda: True, get_runtime_context=lambda: runtime, util=types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.2")))


@pytest.mark.parametrize("environment, expected", [
    (RAY, Topology(5, 8, (4, 5, 6, 7))),
    ({**RAY, **SLURM}, Topology(5, 8, (4, 5, 6, 7))),  # Slurm has started Ray
    (SLURM, Topology(5, 7, (3, 4, 5))),                # a driver
])
def test_topology_of_ray_train(monkeypatch, environment, expected):
    ray_worker(monkeypatch, 5, 8, 1, 4)
    assert detect(environment) == expected
    assert detect(environment).source == ("Slurm" if environment is SLURM else "Ray Train")


def test_a_task_of_ray_is_no_step_of_slurm(monkeypatch):
    """The variables that it inherits are those of the step in which Slurm runs Ray itself."""
    assert detect({**RAY, **SLURM}) == Topology()

    def outside():
        raise RuntimeError("`get_context` cannot be used outside of a Ray Train training function")
    monkeypatch.setitem(sys.modules, "ray.train", types.SimpleNamespace(get_context=outside))
    assert detect({**RAY, **SLURM}) == Topology()
    assert detect({**RAY, **TORCHRUN}) == Topology(5, 8, (4, 5, 6, 7))


def test_the_job_of_ray(monkeypatch):
    """It stays when Ray starts the workers again, with another rendezvous."""
    ray_worker(monkeypatch, 0, 2, 0, 2)
    for name, value in {**RAY, **SLURM, "MASTER_ADDR": "a", "MASTER_PORT": "1", "SLURM_JOB_ID": "7"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRAJD_JOB", raising=False)
    assert trajd.launch.job_id() == "ray 10.0.0.1:6379 01 10.0.0.2 run"
    monkeypatch.delitem(sys.modules, "ray.train")
    assert trajd.launch.job_id() == "ray 10.0.0.1:6379 01 10.0.0.2 "


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


CAMERAS_LAYOUT = """
layout: cameras
episodes: {files: "*.hdf5", groups: /}
clocks: {arm: {path: arm_t, unit: ns}, cam: {path: cam_t, unit: ns}}
streams:
  action:     {clock: arm, kind: linear}
  state:      {path: action, clock: arm, kind: linear}
  top:        {clock: arm, kind: previous}
  sometimes:  {clock: arm, kind: previous, optional: true}
  slow:       {path: frames, clock: cam, kind: previous}
  floats:     {clock: arm, kind: linear}
"""
CAMERAS = """
datasets: {{lab: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: lab
    global_batch: 16
    tail: short
    anchor: {{clock: arm}}
    pad: {{before: any, after: any}}
    bad_rows: keep
    outputs:
      obs/state:   {{from: state, at: 0}}
      actions:     {{from: slow_action, at: "0ms..300ms @ 10", role: action, max_gap: 250ms}}
      obs/top:     {{from: top, at: -1..0}}
      obs/missing: {{from: sometimes, at: 0, missing: zero}}
      obs/old:     {{from: slow, at: -1..0, max_age: 150ms}}
      obs/gap:     {{from: slow, at: "-300ms..-200ms @ 10", max_gap: 250ms}}
      obs/bad:     {{from: encoded, at: 0}}
      obs/before:  {{from: top, at: "-300ms..-200ms @ 10"}}
      obs/floats:  {{from: floats, at: 0}}
"""
REASONS = {"obs/top": set(), "obs/missing": {6}, "obs/old": {7}, "obs/gap": {1, 3}, "obs/bad": {8}, "obs/before": {1}, "obs/floats": {5}}


@pytest.fixture(scope="module")
def cameras(tmp_path_factory):
    """Two episodes: a camera that one of them lacks, one that stops for half a second, one with a bad frame, one with NaN."""
    folder = tmp_path_factory.mktemp("cameras")
    for e in range(2):
        with h5py.File(folder / f"{e}.hdf5", "w") as file:
            file["action"] = np.arange(40, dtype="f4").reshape(20, 2)
            file["arm_t"] = np.arange(20) * 100_000_000
            file["top"] = np.full((20, 8, 6, 3), 9, "u1")
            if e:
                file["sometimes"] = file["top"][:]
            file["cam_t"] = (np.delete(np.arange(20), slice(6, 11)) * 100_000_000).astype("i8")
            file["frames"] = file["top"][:15]
            file["slow_action"] = np.arange(15, dtype="f4")[:, None]
            file["floats"] = np.where(np.arange(20) == 7, np.nan, 1).astype("f4")[:, None, None, None] * np.ones((8, 6, 3), "f4")
            encoded = [np.frombuffer(png(frame), "u1") for frame in file["top"][:]]
            file["encoded"] = np.stack([np.where(np.arange(len(data)) < len(data) // 2, data, 0) if i == 5 else data for i, data in enumerate(encoded)])
    layout = folder / "cameras.yaml"
    layout.write_text(CAMERAS_LAYOUT + "  slow_action: {clock: cam, kind: linear}\n  encoded: {clock: arm, kind: previous, image: {encoding: png, color: rgb}}\n")
    return CAMERAS.format(path=folder, layout=layout)


@pytest.mark.parametrize("name", REASONS)
def test_openpis_image_mask_is_the_mask_of_the_image(daemon, cameras, name):
    one = daemon(cameras)
    seen = set()
    with trajd.connect(one.endpoint, feed="train", style="openpi", timeout=60) as feed:
        for batch in feed.epoch(0):
            mask = batch.mask(name)[:, -1]
            np.testing.assert_array_equal(batch["image_mask"][name[4:]], mask == 0)
            seen |= set(mask.tolist())
    assert seen == {0} | REASONS[name]


def test_robomimics_pad_mask_is_the_mask_of_the_actions(daemon, cameras):
    one = daemon(cameras)
    seen = set()
    with trajd.connect(one.endpoint, feed="train", style="robomimic", timeout=60) as feed:
        for batch in feed.epoch(0):
            mask = batch.mask("actions")
            np.testing.assert_array_equal(batch["pad_mask"][..., 0], mask == 0)
            np.testing.assert_array_equal(batch["actions_is_pad"], (mask == 1) | (mask == 2))
            seen |= set(mask.ravel().tolist())
    assert seen == {0, 2, 3}


@pytest.mark.parametrize("dtype, shape", [("f32", [T, 3, 8, 6]), ("u8", [T, 3, 8, 6]), ("f32", [T, 8, 6, 3])], ids=["floats", "planes", "float pixels"])
@pytest.mark.parametrize("style, key", [("act", "image"), ("lerobot", "observation.images.front"), ("diffusion_policy", "obs/front")])
def test_images_that_the_feed_has_finished_are_only_renamed(style, key, dtype, shape):
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


ARM_LAYOUT = """
layout: arm
episodes: {files: "*.hdf5", groups: /}
clocks: {arm: {rate: 10}}
streams:
  action: {kind: linear}
  "cams/*": {kind: previous, image: {encoding: png, color: rgb}}
"""
ARM = """
datasets: {{lab: {{path: {path}, layout: {path}/arm.yaml}}}}
feeds:
  train:
    dataset: lab
    global_batch: 4
    anchor: {{clock: arm}}
    pad: {{before: any, after: any}}
    outputs:
      obs/qpos:  {{from: action, at: 0}}
      obs/top:   {{from: cams/top, at: -1..0, image: {{}}, layout: chw, norm: unit{more}}}
      action:    {{at: 0..1, role: action}}
      obs/left:  {{from: cams/left, at: -1..0, image: {{}}, layout: chw, norm: unit{more}}}
      obs/right: {{from: cams/right, at: -1..0, image: {{}}, layout: chw, norm: unit{more}}}
"""


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arm")
    random = np.random.default_rng(3)
    with h5py.File(folder / "0.hdf5", "w") as file:
        file["action"] = np.arange(40, dtype="f4").reshape(20, 2)
        for camera in ("top", "left", "right"):
            encoded = [png(random.integers(0, 256, (8, 6, 3), np.uint8)) for _ in range(20)]
            rows = np.zeros((20, max(map(len, encoded))), np.uint8)
            for row, frame in zip(rows, encoded):
                row[:len(frame)] = np.frombuffer(frame, "u1")
            file[f"cams/{camera}"] = rows
    (folder / "arm.yaml").write_text(ARM_LAYOUT)
    return folder


def cameras_of(batch):
    return np.stack([np.asarray(batch.raw(f"obs/{name}"))[:, -1] for name in ("top", "left", "right")], 1)


def test_acts_image_is_a_view_of_the_ring(daemon, arm):
    """Stacking copied the cameras of each batch in the training process: 88 MB of three 480x640 in a batch of 8."""
    with trajd.connect(daemon(ARM.format(path=arm, more="")).endpoint, feed="train", style="act", timeout=60) as feed:
        for batch in feed.epoch(0):
            image = batch["image"]
            assert image.shape == (4, 3, 3, 8, 6) and image.dtype == np.float32 and image.flags.writeable
            assert all(np.shares_memory(image[:, k], batch.raw(f"obs/{name}")) for k, name in enumerate(("top", "left", "right")))
            np.testing.assert_array_equal(image, cameras_of(batch))
            with pytest.raises(BufferError):
                batch.release()
            del image
            batch.release()


def test_acts_image_of_a_part_of_the_batch(daemon, arm):
    """Rank 1 of 2 has rows 2 and 3 of each camera."""
    one = daemon(ARM.format(path=arm, more=""))
    with trajd.connect(one.endpoint, feed="train", style="act", timeout=60, mode="shard", rank=1, world_size=2, local_ranks=[1]) as feed:
        batch = next(feed.epoch(0))
        assert batch["image"].shape == (2, 3, 3, 8, 6)
        np.testing.assert_array_equal(batch["image"], cameras_of(batch))


def test_acts_image_in_a_ring_of_several_jobs_is_a_copy(daemon, arm):
    one = daemon(ARM.format(path=arm, more="").replace("    anchor:", "    fan_out: {jobs: 2, slow: block}\n    anchor:"))
    with trajd.connect(one.endpoint, feed="train", style="act", job="a", timeout=60) as feed, \
            trajd.connect(one.endpoint, feed="train", style="act", job="b", timeout=60, zero_copy=True) as other:
        copied, shared = next(feed.epoch(0)), next(other.epoch(0))
        assert copied["image"].flags.owndata and copied["image"].flags.writeable and not shared["image"].flags.writeable
        np.testing.assert_array_equal(copied["image"], shared["image"])


@pytest.mark.parametrize("dtype", ["", "f16", "bf16"])
def test_acts_image_as_a_torch_tensor(daemon, arm, dtype):
    torch = pytest.importorskip("torch")
    one = daemon(ARM.format(path=arm, more=f", dtype: {dtype}" if dtype else ""))
    with trajd.connect(one.endpoint, feed="train", style="act", device="cpu", timeout=60) as feed:
        batch = next(feed.epoch(0))
        parts = [batch.raw(f"obs/{name}") for name in ("top", "left", "right")]
        assert batch["image"].dtype == parts[0].dtype and torch.equal(batch["image"], torch.stack([part[:, -1] for part in parts], 1))
        assert batch["image"].data_ptr() == parts[0][:, -1].data_ptr()
