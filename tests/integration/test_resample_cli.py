"""trajctl resample: the output's values against numpy and scipy, its structure against the input's, and what bad input gets."""
import json
import subprocess

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

from conftest import BUILD, RECORDINGS

TRAJCTL = BUILD / "clients" / "cli" / "trajctl"


def resample(*arguments, check=True):
    done = subprocess.run([TRAJCTL, "resample", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def refused(*arguments):
    """The message of a run that must fail without leaving anything behind."""
    done = resample(*arguments, check=False)
    assert done.returncode in (1, 2), (done.stdout, done.stderr)
    return done.stderr


def regular_ns(count, num, den=1):
    return np.array([i * 10**9 * den // num for i in range(count)], np.int64)


# ---- the same in numpy and scipy ----

def rows_before(stamps, at):
    return np.searchsorted(stamps, at, side="right") - 1


def linear(stamps, values, at):
    return np.stack([np.interp(at - stamps[0], stamps - stamps[0], column) for column in values.reshape(len(values), -1).T], axis=-1)


def previous(stamps, values, at):
    return values[rows_before(stamps, at)]


def slerp(stamps, values, at):
    if len(stamps) == 1:
        return np.repeat(values, len(at), axis=0)
    return Slerp(stamps - stamps[0], Rotation.from_quat(values))(at - stamps[0]).as_quat()


def angle(stamps, values, at):
    low = rows_before(stamps, at)
    high = np.minimum(low + 1, len(stamps) - 1)
    width = np.maximum(stamps[high] - stamps[low], 1)
    turn = (values[high].astype(float) - values[low] + np.pi) % (2 * np.pi) - np.pi
    return values[low] + ((at - stamps[low]) / width)[:, None] * turn


def same_rotation(a, b, tolerance):
    assert np.allclose(np.linalg.norm(a, axis=1), 1, atol=1e-6)
    assert np.max(1 - np.abs(np.sum(a * b, axis=1))) < tolerance


DEMO_STREAMS = {"actions": ("actions", previous), "obs/robot0_eef_pos": ("actions", linear), "rewards": ("actions", previous),
                "dones": ("actions", previous), "joint_pos": ("joint_t", angle), "pose_pos": ("pose_t", linear),
                "gripper_cmd": ("gripper_t", previous), "obs/robot0_eef_quat": ("actions", slerp), "pose_quat": ("pose_t", slerp)}


def demo_stamps(group, clock):
    return group["step_t0"][0] + regular_ns(len(group["actions"]), 20) if clock == "actions" else group[clock][...]


def demo_grid(group, rate):
    """The span that all streams cover, from its first moment on."""
    clocks = [demo_stamps(group, clock) for clock in ("actions", "joint_t", "pose_t", "gripper_t")]
    begin, end = max(c[0] for c in clocks), min(c[-1] for c in clocks)
    if begin > end:
        return None
    at = begin + regular_ns(int((end - begin) * rate // 10**9) + 2, rate)
    return at[at <= end]


@pytest.mark.parametrize("rate", [10, 20, 30, 100])
def test_values(tmp_path, demo_file, rate):
    out = tmp_path / "out.hdf5"
    resample(demo_file, "-o", out, "--rate", rate, "--layout", "demo")
    with h5py.File(demo_file) as source, h5py.File(out) as made:
        grids = {name: demo_grid(group, rate) for name, group in source["data"].items()}
        assert sorted(made["data"]) == sorted(name for name, at in grids.items() if at is not None)
        for name, group in made["data"].items():
            was, at = source["data"][name], grids[name]
            for stream, (clock, kind) in DEMO_STREAMS.items():
                got, expected = group[stream][...], kind(demo_stamps(was, clock), was[stream][...], at)
                assert got.dtype == was[stream].dtype and got.shape == (len(at), *was[stream].shape[1:])
                if kind is slerp:
                    same_rotation(got, expected, 1e-9)
                elif kind is angle:
                    assert np.max(np.abs(got - expected)) < 1e-5
                else:
                    assert np.allclose(got, expected.reshape(got.shape), rtol=0, atol=1e-9 if kind is linear else 0)
            # columns of one dataset, each by its stream
            low = linear(demo_stamps(was, "actions"), was["obs/object"][...], at)
            assert np.allclose(group["obs/object"][:, :3], low[:, :3], atol=1e-9)
            same_rotation(group["obs/object"][:, 3:7], slerp(demo_stamps(was, "actions"), was["obs/object"][:, 3:7], at), 1e-9)
            assert np.array_equal(group["obs/object"][:, 7:], previous(demo_stamps(was, "actions"), was["obs/object"][...], at)[:, 7:])
            # the times of all clocks are the grid's
            for clock in ("joint_t", "pose_t", "gripper_t"):
                assert np.array_equal(group[clock][...], at)
            assert group["step_t0"][0] == at[0] and group.attrs["num_samples"] == len(at)
            assert np.array_equal(group.attrs["phases"], was.attrs["phases"])
            assert group.attrs["trajd_source"] == f"{demo_file.name}:{name}"
        env = json.loads(made["data"].attrs["env_args"])
        assert env["env_kwargs"] == {"robots": ["Panda"], "control_freq": rate} and env["env_name"] == "DemoReach"
        assert made["data"].attrs["total"] == sum(len(g["actions"]) for g in made["data"].values())
        for key in source["mask"]:
            assert list(made["mask"][key]) == [n for n in source["mask"][key] if n.decode() in made["data"]]
        how = json.loads(made.attrs["trajd_resample"])
        assert how["rate"] == f"{rate}/1" and how["streams"]["pose_quat"]["kind"] == "slerp xyzw" and how["sources"] == [str(demo_file)]
