"""The generators write what their descriptions say, and robomimic's recorded windows are as their README says."""
import json
import pathlib

import h5py
import numpy as np
import pytest

import make_demo_dataset as demo
import make_parity_dataset as parity

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "robomimic" / "windows.npz"


@pytest.fixture(scope="module")
def demo_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.hdf5"
    demo.write_dataset(path, episodes=24, images=True)
    with h5py.File(path) as file:
        yield file


def test_same_arguments_same_bytes(tmp_path):
    paths = [tmp_path / name for name in ("a", "b", "other_seed")]
    for path, seed in zip(paths, (3, 3, 4)):
        demo.write_dataset(path, episodes=9, seed=seed)
    a, b, other = (path.read_bytes() for path in paths)
    assert a == b
    assert a != other


def test_layout_is_robomimics(demo_file):
    data = demo_file["data"]
    assert json.loads(data.attrs["env_args"])["env_kwargs"]["control_freq"] == 20
    assert data.attrs["total"] == sum(d.attrs["num_samples"] for d in data.values())
    listed = [name.decode() for key in ("train", "valid") for name in demo_file[f"mask/{key}"]]
    assert sorted(listed) == sorted(data)
    for episode in data.values():
        rows = episode.attrs["num_samples"]
        assert episode["obs/agentview_image"].shape == (rows, 84, 84, 3)
        for name in ("actions", "rewards", "dones", "obs/object", "obs/robot0_eef_quat"):
            assert episode[name].shape[0] == rows
    lengths = {d.attrs["num_samples"] for d in data.values()}
    assert {1, 2, 5} <= lengths and max(lengths) > 60
    numbers = sorted(int(name[5:]) for name in data)
    assert numbers[-1] > len(numbers) - 1


def test_streams_are_the_stated_functions(demo_file):
    flips = 0
    for episode in demo_file["data"].values():
        p, t0 = episode.attrs["phases"], episode["step_t0"][0]
        for clock in ("joint_t", "pose_t", "gripper_t"):
            assert episode[clock].dtype == np.int64
            assert (np.diff(episode[clock][:]) > 0).all()
        seconds = {clock: (episode[clock][:] - t0) / 1e9 for clock in ("joint_t", "pose_t", "gripper_t")}
        assert np.allclose(episode["joint_pos"], demo.joint_pos(seconds["joint_t"], p), atol=1e-6)
        assert (np.abs(episode["joint_pos"][:, 6]) <= np.float32(np.pi)).all()
        assert np.allclose(episode["pose_pos"], demo.pos(seconds["pose_t"], p), atol=1e-12)
        assert np.array_equal(episode["gripper_cmd"][:, 0], demo.gripper_cmd(seconds["gripper_t"], p))
        q = episode["pose_quat"][:]
        assert np.allclose(np.linalg.norm(q, axis=1), 1, atol=1e-12) and (q[:, 3] >= 0).all()
        flips += (np.sum(q[1:] * q[:-1], axis=1) < 0).sum()
    assert flips > 0


def test_gzip_changes_nothing_but_storage(demo_file, tmp_path):
    demo.write_dataset(tmp_path / "gz.hdf5", episodes=24, gzip=True)
    with h5py.File(tmp_path / "gz.hdf5") as packed:
        assert packed["data/demo_0/actions"].compression == "gzip"
        for name, episode in packed["data"].items():
            for key in ("actions", "joint_t", "obs/object"):
                assert np.array_equal(episode[key], demo_file["data"][name][key])


@pytest.mark.parametrize("filter_key", ["all", "train"])
def test_recorded_windows_are_edge_padded_rows(filter_key, tmp_path):
    parity.write_dataset(tmp_path / "parity.hdf5")
    golden = np.load(GOLDEN)
    names = parity.MASKS.get(filter_key, list(parity.EPISODES))
    ordered = sorted(names, key=lambda name: int(name[5:]))
    places = [(name.encode(), i) for name in ordered for i in range(parity.EPISODES[name])]
    assert places == list(zip(golden[f"{filter_key}/demo"], golden[f"{filter_key}/index_in_demo"]))
    with h5py.File(tmp_path / "parity.hdf5") as file:
        for n, (name, anchor) in enumerate(places):
            episode = file["data"][name.decode()]
            rows = np.arange(anchor - 1, anchor + 16)
            inside = np.clip(rows, 0, len(episode["actions"]) - 1)
            assert np.array_equal(golden[f"{filter_key}/pad_mask"][n, :, 0], rows == inside)
            for key in [*parity.WIDTHS, "obs/robot0_eef_quat", "rewards", "dones"]:
                assert np.array_equal(golden[f"{filter_key}/{key}"][n], episode[key][:][inside]), (n, key)
