"""trajctl resample: the output's values against numpy and scipy, its structure against the input's, and bad input."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import h5py
import numpy as np
import pytest

from datasets import make_demo_file
from numpy_resample import angle, linear, previous, rows_before, slerp
from paths import RECORDINGS, TRAJCTL
from resample_runs import cut, has_rows, resample
from waiting import wait_for


def refused(*arguments):
    """Runs a command that must fail without leaving any file. Returns its message."""
    done = resample(*arguments, check=False)
    assert done.returncode in (1, 2), (done.stdout, done.stderr)
    return done.stderr


def regular_ns(count, num, den=1):
    return np.array([i * 10**9 * den // num for i in range(count)], np.int64)


# ---- the same in numpy and scipy ----

def same_rotation(a, b, tolerance):
    assert np.allclose(np.linalg.norm(a, axis=1), 1, atol=1e-6)
    assert np.max(1 - np.abs(np.sum(a * b, axis=1))) < tolerance


DEMO_STREAMS = {"actions": ("actions", previous), "obs/robot0_eef_pos": ("actions", linear), "rewards": ("actions", previous),
                "dones": ("actions", previous), "joint_pos": ("joint_t", angle), "pose_pos": ("pose_t", linear),
                "gripper_cmd": ("gripper_t", previous), "obs/robot0_eef_quat": ("actions", slerp), "pose_quat": ("pose_t", slerp)}


def demo_stamps(group, clock):
    return group["step_t0"][0] + regular_ns(len(group["actions"]), 20) if clock == "actions" else group[clock][...]


def demo_grid(group, rate):
    """Returns the times of the grid: the span that all streams cover, from its first moment on. A single row is held."""
    clocks = [demo_stamps(group, clock) for clock in ("actions", "joint_t", "pose_t", "gripper_t")]
    begin, end = max(c[0] for c in clocks), min(c[-1] for c in clocks if len(c) > 1)
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
            # columns of one dataset, each resampled by its stream's rule
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


# ---- structure ----

def same_content(a, b):
    """Compares every dataset and attribute of two files, byte for byte."""
    def names(file):
        found = []
        file.visititems(lambda name, item: found.append(name))
        return found

    with h5py.File(a) as left, h5py.File(b) as right:
        assert names(left) == names(right)
        for name in ["/"] + names(left):
            assert {k: repr(v) for k, v in left[name].attrs.items()} == {k: repr(v) for k, v in right[name].attrs.items()}, name
            if isinstance(left[name], h5py.Dataset):
                assert left[name].dtype == right[name].dtype and left[name][...].tobytes() == right[name][...].tobytes(), name


@pytest.fixture(scope="module")
def packed_file(tmp_path_factory):
    """A file with images, compressed as robomimic does."""
    path = tmp_path_factory.mktemp("packed") / "packed.hdf5"
    make_demo_file(path, "--gzip", "--images", episodes=6)
    return path


def test_images_and_compression(tmp_path, packed_file):
    packed, plain, small = tmp_path / "packed.hdf5", tmp_path / "plain.hdf5", tmp_path / "small.hdf5"
    resample(packed_file, "-o", packed, "--rate", 12, "--layout", "demo")
    resample(packed_file, "-o", plain, "--rate", 12, "--layout", "demo", "--compress", "none")
    with h5py.File(packed_file) as source, h5py.File(packed) as a, h5py.File(plain) as b:
        for name in a["data"]:
            was, image = source["data"][name], a["data"][name]["obs/agentview_image"]
            at = demo_grid(was, 12)
            assert np.array_equal(image[...], previous(demo_stamps(was, "actions"), was["obs/agentview_image"][...], at))
            assert image.compression == "gzip"
            assert image.chunks[1:] == source["data/demo_0/obs/agentview_image"].chunks[1:]  # that of the first episode
            assert b["data"][name]["obs/agentview_image"].compression is None
            for stream in ("actions", "joint_pos", "pose_quat", "obs/agentview_image"):
                assert np.array_equal(a["data"][name][stream][...], b["data"][name][stream][...])
    resample(plain, "-o", small, "--rate", 12, "--layout", "demo", "--compress", "gzip:9")
    with h5py.File(small) as a, h5py.File(plain) as b:
        for name in a["data"]:
            assert a["data"][name]["actions"].compression_opts == 9
            assert np.array_equal(a["data"][name]["obs/agentview_image"][...], b["data"][name]["obs/agentview_image"][...])
            assert np.array_equal(a["data"][name]["pose_t"][...], b["data"][name]["pose_t"][...])


def test_rate_of_the_source_is_the_identity(tmp_path, demo_file):
    """On the source's own grid nothing changes. A second run changes nothing."""
    once, twice = tmp_path / "once.hdf5", tmp_path / "twice.hdf5"
    streams = "actions,obs/*,rewards,dones"
    done = resample(demo_file, "-o", once, "--rate", 20, "--layout", "demo", "--streams", streams)
    assert "layout demo requires joint_pos" in done.stderr
    with h5py.File(demo_file) as source, h5py.File(once) as made:
        assert sorted(made["data"]) == sorted(source["data"])
        for name, group in made["data"].items():
            assert "joint_pos" not in group and "joint_t" not in group
            for stream in ("actions", "obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/object", "dones"):
                assert np.array_equal(group[stream][...], source["data"][name][stream][...])
    resample(once, "-o", twice, "--rate", 20, "--streams", streams)
    with h5py.File(once) as a, h5py.File(twice) as b:
        for name in a["data"]:
            assert a["data"][name]["obs/robot0_eef_quat"][...].tobytes() == b["data"][name]["obs/robot0_eef_quat"][...].tobytes()


def write_robomimic(path, lengths, seed=0, change=lambda file: None):
    """Writes a file as robomimic does."""
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(lengths)
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20, "controller": {"kp": 150}}})
        for i, rows in enumerate(lengths):
            group = data.create_group(f"demo_{i}")
            group.attrs["num_samples"] = rows
            group.attrs["model_file"] = "<mujoco>" + "x" * 70000 + "</mujoco>"
            group["actions"] = random.normal(size=(rows, 7))
            group["rewards"] = random.normal(size=rows)
            group["dones"] = (np.arange(rows) == rows - 1).astype(np.int64)
            group["states"] = random.normal(size=(rows, 20))
            for folder in ("obs", "next_obs"):
                quaternions = np.cumsum(random.normal(scale=0.05, size=(rows, 4)), axis=0) + [0, 0, 0, 1]
                group[f"{folder}/robot0_eef_quat"] = quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)
                group[f"{folder}/robot0_eef_pos"] = random.normal(size=(rows, 3))
                group[f"{folder}/agentview_image"] = random.integers(0, 255, size=(rows, 16, 16, 3), dtype=np.uint8)
            group["datagen_info/eef_pose"] = random.normal(size=(rows, 4, 4))
            group["task_description"] = "lift the cube"
            group["calibration"] = np.eye(3)
        file["meta/table"] = np.arange(5)
        change(file)


def sequence(file, demo, index, keys, frames, length):
    """Returns a window as robomimic's SequenceDataset makes it: rows [index - frames + 1, index + length), padded
    at both ends with the first and the last row."""
    rows = int(file["data"][demo].attrs["num_samples"])
    at = np.clip(np.arange(index - frames + 1, index + length), 0, rows - 1)
    return {key: file["data"][demo][key][...][at] for key in keys}


def test_robomimic(tmp_path):
    """The output is read in the steps of robomimic's reader: the mask, num_samples, env_args, windows of every key."""
    path, out = tmp_path / "lift.hdf5", tmp_path / "out.hdf5"

    def masks(file):
        file["mask/train"] = np.array(["demo_0", "demo_2"], dtype="S")
        file["mask/valid"] = np.array(["demo_1"], dtype="S")

    write_robomimic(path, [50, 31, 8], change=masks)
    done = resample(path, "-o", out, "--rate", 10, "--layout", "robomimic")
    assert "datagen_info/eef_pose" in done.stderr and "calibration" not in done.stderr
    with h5py.File(path) as source, h5py.File(out, swmr=True, libver="latest") as made:
        demos = [name.decode() for name in made["mask/train"][...]]
        assert demos == ["demo_0", "demo_2"] and [n.decode() for n in made["mask/valid"][...]] == ["demo_1"]
        assert [made["data"][d].attrs["num_samples"] for d in demos] == [25, 4] and made["data"].attrs["total"] == 25 + 16 + 4
        env = json.loads(made["data"].attrs["env_args"])
        assert env == {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 10, "controller": {"kp": 150}}}
        assert made["data/demo_0"].attrs["model_file"] == source["data/demo_0"].attrs["model_file"]
        assert made["data/demo_0/task_description"][()] == b"lift the cube" and np.array_equal(made["data/demo_0/calibration"], np.eye(3))
        assert np.array_equal(made["meta/table"], np.arange(5))
        assert np.array_equal(made["data/demo_0/datagen_info/eef_pose"], source["data/demo_0/datagen_info/eef_pose"][::2])
        keys = ["actions", "obs/robot0_eef_pos", "obs/robot0_eef_quat", "next_obs/agentview_image", "dones"]
        for index in (0, 7, 24):
            window = sequence(made, "demo_0", index, keys, 2, 4)
            for key in keys:  # half the rate: every other row, for every kind
                rows = 2 * np.clip(np.arange(index - 1, index + 4), 0, 24)
                assert np.array_equal(window[key], source["data/demo_0"][key][...][rows]), key


def test_several_inputs(tmp_path):
    first, second, other, out = (tmp_path / name for name in ("a.hdf5", "b.hdf5", "other.hdf5", "out.hdf5"))
    mask = lambda file: file.create_dataset("mask/train", data=np.array(["demo_1"], dtype="S"))
    write_robomimic(first, [10, 12], change=mask)
    write_robomimic(second, [14, 16, 18], seed=1, change=mask)

    def add(file):
        for group in file["data"].values():
            group["obs/wrist_pos"] = np.zeros((len(group["actions"]), 3))

    write_robomimic(other, [10], change=add)
    done = resample(first, second, "-o", out, "--rate", 40)
    assert "get new numbers" in done.stderr
    with h5py.File(first) as a, h5py.File(second) as b, h5py.File(out) as made:
        sources = [a["data/demo_0"], a["data/demo_1"], b["data/demo_0"], b["data/demo_1"], b["data/demo_2"]]
        assert sorted(made["data"]) == [f"demo_{i}" for i in range(5)]
        for i, was in enumerate(sources):
            group = made[f"data/demo_{i}"]
            assert np.array_equal(group["actions"][::2], was["actions"][...]) and len(group["actions"]) == 2 * len(was["actions"]) - 1
            assert group.attrs["trajd_source"] == f"{'a' if i < 2 else 'b'}.hdf5:demo_{i if i < 2 else i - 2}"
        assert [n.decode() for n in made["mask/train"][...]] == ["demo_1", "demo_3"]
    message = refused(first, other, "-o", tmp_path / "no.hdf5", "--rate", 40)
    assert "obs/wrist_pos" in message and "other.hdf5" in message and "--streams" in message
    resample(first, other, "-o", tmp_path / "chosen.hdf5", "--rate", 40, "--streams", "actions,obs/robot0_*")
    with h5py.File(tmp_path / "chosen.hdf5") as made:
        assert len(made["data"]) == 3 and set(made["data/demo_2/obs"]) == {"robot0_eef_pos", "robot0_eef_quat"}


def test_many_episodes_and_notes(tmp_path):
    """More answers than a socket's buffer holds, and a note for every attribute that cannot be copied."""
    path, out = tmp_path / "many.hdf5", tmp_path / "out.hdf5"
    with h5py.File(path, "w") as file:
        for i in range(800):
            group = file.create_group(f"data/demo_{i}")
            group["actions"] = np.full((3, 7), i, float)
            group.attrs["link"] = file["data"].ref
            group[f"odd_{i}"] = np.zeros(3)
    done = resample(path, "-o", out, "--rate", 40, "--assume-rate")
    assert "attribute link" in done.stderr and "more objects are left out than are listed here" in done.stderr
    with h5py.File(out) as made:
        assert len(made["data"]) == 800 and all(np.array_equal(made[f"data/demo_{i}/actions"], np.full((5, 7), i, float)) for i in range(800))


def test_rules(tmp_path, demo_file):
    out = tmp_path / "out.hdf5"
    resample(demo_file, "-o", out, "--rate", 10, "--layout", "demo", "--kind", "pose_pos=previous", "--kind", "joint_pos=mean", "--window",
             "joint_pos=40ms", "--kind", "pose_quat=nearest", "--dtype", "float32", "--dtype", "pose_pos=float64", "--episodes", "0..4",
             "--filter", "train")
    with h5py.File(demo_file) as source, h5py.File(out) as made:
        train = [n.decode() for n in source["mask/train"][...]]
        wanted = [n for n in source["data"] if int(n[5:]) <= 4 and n in train and demo_grid(source["data"][n], 10) is not None]
        assert sorted(made["data"]) == sorted(wanted)
        for name, group in made["data"].items():
            was, at = source["data"][name], demo_grid(source["data"][name], 10)
            stamps = was["pose_t"][...]
            assert group["pose_pos"].dtype == np.float64 and np.array_equal(group["pose_pos"], previous(stamps, was["pose_pos"][...], at))
            low = rows_before(stamps, at)
            high = np.minimum(low + 1, len(stamps) - 1)
            near = np.where(2 * (at - stamps[low]) < stamps[high] - stamps[low], low, high)
            assert np.array_equal(group["pose_quat"], was["pose_quat"][...][near].astype(np.float32))
            assert group["actions"].dtype == np.float32 and group["dones"].dtype == np.int64
            stamps, joints = was["joint_t"][...], was["joint_pos"][...].astype(float)
            for t, x in enumerate(at):
                inside = (stamps > x - 40_000_000) & (stamps <= x)
                assert np.allclose(group["joint_pos"][t], joints[inside].mean(axis=0), atol=1e-6)


# ---- a run that is interrupted ----

@pytest.mark.parametrize("compress", ["none", "gzip:1"])
def test_a_killed_run_is_done_again(fast_path, long_file, compress):
    """The partial file of a killed run belongs to the next one. It is never taken for a finished file."""
    whole, out, partial = fast_path / "whole.hdf5", fast_path / "cut.hdf5", fast_path / "cut.hdf5.partial"
    options = ["--rate", 25, "--compress", compress]
    resample(long_file, "-o", whole, *options)
    assert cut(out, signal.SIGKILL, long_file, *options)[0] == -signal.SIGKILL and partial.exists() and not out.exists()
    with open(partial, "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another run" in refused(long_file, "-o", out, *options) and partial.exists()
    assert "cut.hdf5.partial of an earlier run is replaced" in resample(long_file, "-o", out, *options).stderr
    same_content(whole, out)
    assert sorted(path.name for path in fast_path.iterdir()) == ["cut.hdf5", "whole.hdf5"]


def test_interrupted(fast_path, long_file):
    """Ctrl-C: nothing is left."""
    status, _, errors = cut(fast_path / "out.hdf5", signal.SIGINT, long_file, "--rate", 25)
    assert status == 1 and "interrupted" in errors and list(fast_path.iterdir()) == []


def test_resume_is_no_longer_there(tmp_path, demo_file):
    message = refused(demo_file, "-o", tmp_path / "out.hdf5", "--rate", 10, "--resume")
    assert "a killed conversion starts again" in message and "preprocess" in message


def test_an_input_that_changes_meanwhile(fast_path, long_file):
    source, out = fast_path / "source.hdf5", fast_path / "out.hdf5"
    shutil.copy(long_file, source)
    for _ in range(10):
        process = subprocess.Popen([TRAJCTL, "resample", source, "-o", out, "--rate", "25"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        wait_for(lambda: process.poll() is not None or has_rows(out), 60, "rows")
        os.utime(source)
        errors = process.communicate(timeout=60)[1]
        if process.returncode:
            break
        out.unlink()  # too late: it was finished
    assert process.returncode == 1 and "source.hdf5: changed since it was indexed" in errors
    assert [path.name for path in fast_path.iterdir()] == ["source.hdf5"]


def test_a_partial_file_that_is_replaced_is_not_published(fast_path, long_file):
    out, partial = fast_path / "out.hdf5", fast_path / "out.hdf5.partial"
    for _ in range(10):
        process = subprocess.Popen([TRAJCTL, "resample", long_file, "-o", out, "--rate", "25"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        wait_for(lambda: process.poll() is not None or has_rows(out), 60, "rows")
        partial.unlink(missing_ok=True)
        partial.write_bytes(b"another's")
        errors = process.communicate(timeout=60)[1]
        if process.returncode:
            break
        out.unlink()  # the signal came after the end
        partial.unlink()
    assert process.returncode == 1 and "removed or replaced" in errors
    assert partial.read_bytes() == b"another's" and not out.exists()


def stop_writer(process):
    """Stops the helper program that makes the structure. Returns None where it has ended already."""
    def find():
        for task in pathlib.Path(f"/proc/{process.pid}/task").glob("*/children"):
            for child in task.read_text().split():
                if b"write" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)

    while process.poll() is None:
        try:
            child = find()
            if child:
                os.kill(child, signal.SIGSTOP)
                wait_for(lambda: state_of(child) in "TZ", 60, "it to stop")
                return child if state_of(child) == "T" else None
        except (OSError, TypeError):
            continue
    return None


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("whom, number, status, word", [("parent", signal.SIGKILL, -signal.SIGKILL, ""), ("parent", signal.SIGINT, 1, "interrupted"),
                                                        ("child", signal.SIGKILL, 1, "was killed by signal 9")])
def test_cut_while_the_structure_is_made(tmp_path, whom, number, status, word):
    """The helper program ends with its parent and never writes into the next run's file. The parent does not wait
    for it."""
    path, out = tmp_path / "many.hdf5", tmp_path / "out.hdf5"
    with h5py.File(path, "w") as file:
        for i in range(1000):
            file[f"data/demo_{i}/actions"] = np.full((3, 7), i, float)
    child = None
    for _ in range(10):
        process = subprocess.Popen([TRAJCTL, "resample", path, "-o", out, "--rate", "40", "--assume-rate"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        child = stop_writer(process)
        if child:
            break
        process.communicate(timeout=60)
        out.unlink()  # the signal came after the end
    os.kill(child if whom == "child" else process.pid, number)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == status and word in errors
    wait_for(lambda: state_of(child) == "Z", 60, "the child's end")
    assert not out.exists() and (number == signal.SIGKILL and whom == "parent" or list(tmp_path.glob("*partial*")) == [])
    resample(path, "-o", out, "--rate", "40", "--assume-rate")
    with h5py.File(out) as made:
        assert all(np.array_equal(made[f"data/demo_{i}/actions"], np.full((5, 7), i, float)) for i in range(1000))


@pytest.mark.release
def test_memory_does_not_grow_with_an_episode(fast_path):
    """An episode of 90 MB read and 180 MB written, and then one with images of 32 and 64 MB."""
    path = fast_path / "one.hdf5"
    with h5py.File(path, "w") as file:
        wide = file.create_dataset("data/demo_0/obs/wide", (400_000, 50), np.float32)
        file["data/demo_0/actions"] = np.zeros((400_000, 7), np.float32)
        file["data/demo_1/actions"] = np.zeros((1500, 7), np.float32)
        image = file.create_dataset("data/demo_1/obs/a_image", (1500, 84, 84, 3), np.uint8)
        for begin in range(0, 400_000, 100_000):
            wide[begin:begin + 100_000] = np.full((100_000, 50), begin, np.float32)
        image[...] = np.full(image.shape, 7, np.uint8)
    peaks = []
    for streams, compress in (("actions,obs/wide", "none"), ("obs/a_image", "gzip:1")):
        process = subprocess.Popen([TRAJCTL, "resample", path, "-o", fast_path / "out.hdf5", "--rate", "40", "--streams", streams, "--force",
                                    "--assume-rate", "--compress", compress], stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:  # its own maximum: getrusage includes that of the process that forked it
            found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text())
            peak = int(found[1]) / 1024 if found else peak
        assert process.returncode == 0 and peak
        peaks.append(peak)
    assert max(peaks) < 90, peaks


def test_a_rate_beside_a_stream_that_is_not_taken(tmp_path):
    """The layout takes the rate from a dataset of each episode. Where that dataset is not selected, a message says
    so. A type that only one episode has is copied."""
    path, out, layout = tmp_path / "in.hdf5", tmp_path / "out.hdf5", tmp_path / "rates.yaml"
    layout.write_text("layout: rates\nepisodes: {files: '*.hdf5', groups: /data/demo_*}\n"
                      "clocks: {steps: {rate: {attribute: 'b@hz', default: 10}, rows: a}}\n"
                      "streams: {a: {path: a, clock: steps, kind: linear}, b: {path: b, clock: steps, kind: linear}}\n")
    with h5py.File(path, "w") as file:
        for i in range(3):
            group = file.create_group(f"data/demo_{i}")
            group["a"] = group["b"] = np.arange(30.0).reshape(10, 3)
            group["b"].attrs["hz"] = 10.0
            group["kind"] = np.dtype("<i2")
    common = [path, "-o", out, "--rate", 20, "--layout", layout, "--force"]
    assert "not taken" not in resample(*common).stderr
    with h5py.File(out) as made:
        assert [made[f"data/demo_{i}/b"].attrs["hz"] for i in range(3)] == [20] * 3
        assert all(made[f"data/demo_{i}/kind"].dtype == np.dtype("<i2") for i in range(3))
    done = resample(*common, "--streams", "a")
    assert "rate at /data/demo_0/b, which is not taken (3 such places)" in done.stderr
    with h5py.File(out) as made:
        assert np.array_equal(made["data/demo_2/a"][:, 0], np.arange(0, 27.1, 1.5)) and "b" not in made["data/demo_2"]


# ---- bad input ----

def test_places(tmp_path, demo_file):
    source, out = tmp_path / "source.hdf5", tmp_path / "out.hdf5"
    shutil.copy(demo_file, source)
    before = source.read_bytes()
    (tmp_path / "soft.hdf5").symlink_to(source)
    os.link(source, tmp_path / "hard.hdf5")
    for name in ("source.hdf5", "soft.hdf5", "hard.hdf5"):
        for force in ([], ["--force"]):
            assert "is also an input" in refused(source, "-o", tmp_path / name, "--rate", 10, *force)
    assert source.read_bytes() == before
    out.write_text("precious")
    assert "--force" in refused(source, "-o", out, "--rate", 10) and out.read_text() == "precious"
    (tmp_path / "dangling.hdf5").symlink_to(tmp_path / "nowhere.hdf5")
    assert "--force" in refused(source, "-o", tmp_path / "dangling.hdf5", "--rate", 10)  # at the start, not after all the work
    (tmp_path / "dangling.hdf5").unlink()
    assert "is a folder" in refused(source, "-o", tmp_path, "--rate", 10)
    assert "No such file" in refused(source, "-o", tmp_path / "nowhere" / "out.hdf5", "--rate", 10)
    assert "Not a directory" in refused(source, "-o", source / "out.hdf5", "--rate", 10)
    assert "/proc/out.hdf5" in refused(source, "-o", "/proc/out.hdf5", "--rate", 10)  # not even root may write there
    resample(source, "-o", out, "--rate", 10, "--force")
    assert h5py.is_hdf5(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hard.hdf5", "out.hdf5", "soft.hdf5", "source.hdf5"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted by root alone")
@pytest.mark.parametrize("compress", ["none", "gzip:1"])
def test_disk_full(tmp_path, long_file, compress):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", disk]).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        message = refused(long_file, "-o", disk / "out.hdf5", "--rate", 25, "--compress", compress)
        assert "No space left" in message and "out.hdf5" in message
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("arguments, word", [
    (["--rate", "0"], "not a rate"), (["--rate", "-5"], "not a rate"), (["--rate", "fast"], "not a rate"), (["--rate", "1e9"], "not a rate"),
    (["--rate", "2000000"], "1000000 Hz"), ([], "--rate is missing"), (["--rate", "10", "--streams", "obs/robot0_eef_poss"], "did you mean obs/robot0_eef_pos?"),
    (["--rate", "10", "--kind", "obs/robot0_eef_pos=liner"], "did you mean linear?"), (["--rate", "10", "--kind", "linear"], "STREAM=VALUE"),
    (["--rate", "10", "--kind", "actionz=linear"], "did you mean actions?"), (["--rate", "10", "--kind", "actions=slerp"], "multiple of 4 features, it has 7"),
    (["--rate", "10", "--dtype", "bfloat16"], "no bfloat16"), (["--rate", "10", "--dtype", "float63"], "is not one of float16"),
    (["--rate", "10", "--dtype", "joint_pos=float64"], "cannot be widened"), (["--rate", "10", "--window", "0"], "not a time above 0"),
    (["--rate", "10", "--episodes", "demo_999"], "there is no episode demo_999"), (["--rate", "10", "--filter", "trian"], "did you mean train?"),
    (["--rate", "10", "--compress", "lzma"], "keep, none, gzip"), (["--rate", "10", "--threads", "0"], "1 to 64"), (["--rates", "10"], "unknown option: --rates"),
    (["--rate"], "needs a value"), (["--rate", "10", "--max-gap", "1ms"], "were left out"), (["--rate", "10", "--layout", "demmo"], "demo"),
])
def test_options(tmp_path, demo_file, arguments, word):
    layout = [] if "--layout" in arguments else ["--layout", "demo"]
    assert word in refused(demo_file, "-o", tmp_path / "out.hdf5", *layout, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_none(tmp_path, demo_file):
    out, bad = tmp_path / "out.hdf5", tmp_path / "bad.hdf5"
    bad.write_bytes(demo_file.read_bytes()[:3000])
    assert "bad.hdf5" in refused(bad, "-o", out, "--rate", 10)
    assert "nothing.hdf5" in refused(tmp_path / "nothing.hdf5", "-o", out, "--rate", 10)
    assert "name one or more files" in refused("-o", out, "--rate", 10)
    assert "-o is missing" in refused(demo_file, "--rate", 10)
    with h5py.File(bad, "w") as file:  # every episode is quarantined: an image stream with the kind `linear`
        file["data/demo_0/actions"] = np.zeros((0, 7))
    assert "actions" in refused(bad, "-o", out, "--rate", 10)
    write_robomimic(bad, [20, 20])
    assert "uint8 image" in refused(bad, "-o", out, "--rate", 10, "--kind", "obs/agentview_image=linear")
    assert not out.exists()


@pytest.mark.slow
def test_damaged_inputs_never_end_it(tmp_path):
    """Random changes of structure bytes: the run succeeds or fails with an error. It never crashes and never leaves
    half a file."""
    path, out = tmp_path / "lift.hdf5", tmp_path / "out.hdf5"
    write_robomimic(path, [12, 9])
    good, random = path.read_bytes(), np.random.default_rng(5)
    endings = set()
    for _ in range(24):
        bytes_ = bytearray(good)
        for at in random.integers(0, 40000, size=6):
            bytes_[at] = random.integers(0, 256)
        path.write_bytes(bytes_)
        done = resample(path, "-o", out, "--rate", 10, "--force", check=False)
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        endings.add(done.returncode)
        assert (done.returncode == 0) == out.exists()
        out.unlink(missing_ok=True)
        for left in tmp_path.glob("out.hdf5.partial*"):
            left.unlink()
    assert endings == {0, 1}


def test_links_that_lead_back_up(tmp_path):
    path, out = tmp_path / "round.hdf5", tmp_path / "out.hdf5"
    with h5py.File(path, "w") as file:
        demo = file.create_group("data/demo_0")
        demo["actions"] = np.ones((5, 7))
        demo["again"] = demo["too"] = demo
    done = resample(path, "-o", out, "--rate", 10, "--assume-rate")
    assert "links that lead back up" in done.stderr
    with h5py.File(out) as made:
        assert np.array_equal(made["data/demo_0/actions"], np.ones((3, 7)))


def test_a_name_with_the_sign_of_attributes(tmp_path):
    path, out, layout = tmp_path / "at.hdf5", tmp_path / "out.hdf5", tmp_path / "at.yaml"
    layout.write_text("layout: at\nepisodes: {files: '*.hdf5', groups: /data/*}\nclocks: {step: {rate: {attribute: '@fps', default: 5}}}\n"
                      "streams: {actions: {path: actions, clock: step, kind: previous}}\n")
    with h5py.File(path, "w") as file:
        for name in ("run@home", "run@lab"):
            file[f"data/{name}/actions"] = np.ones((9, 7))
            file[f"data/{name}"].attrs["fps"] = 20.0
    resample(path, "-o", out, "--rate", 10, "--layout", layout)
    with h5py.File(out) as made:
        assert [group.attrs["fps"] for group in made["data"].values()] == [10, 10]


def test_dry_run_writes_nothing(tmp_path, demo_file):
    done = resample(demo_file, "--rate", 10, "--dry-run", "--layout", "demo")
    assert "joint_pos" in done.stdout and "angle" in done.stdout
    out = tmp_path / "out.hdf5"
    events = [json.loads(line) for line in resample(demo_file, "-o", out, "--rate", 10, "--dry-run", "--json", "--layout", "demo").stdout.splitlines()]
    plan = next(event for event in events if event["event"] == "plan")
    assert plan["episodes"] > 0 and {s["name"]: s["kind"] for s in plan["streams"]}["joint_pos"] == "angle" and not out.exists()


# ---- read back by the daemon ----

def test_the_daemon_reads_it(tmp_path, daemon, demo_file):
    out = tmp_path / "out.hdf5"
    resample(demo_file, "-o", out, "--rate", 15, "--layout", "demo")
    client = daemon(f"""
        datasets: {{demo: {{path: {out}, layout: demo}}}}
        feeds:
          all:
            dataset: demo
            global_batch: 8
            anchor: {{clock: actions}}
            order: sequential
            tail: short
            outputs:
              joints: {{from: joint_pos, at: 0}}
              quat: {{from: pose_quat, at: 0, dtype: float64}}
              actions: {{at: 0, dtype: float64}}
        """).client()
    info = client.open("all")
    rows = {}
    for _, arrays in client.epoch():
        for row in range(len(arrays["window_id"])):
            rows[int(arrays["window_id"][row])] = {name: array[row] for name, array in arrays.items()}
    client.close()
    with h5py.File(out) as made:
        names = sorted(made["data"], key=lambda name: int(name[5:]))
        expected = [(made["data"][n], t) for n in names for t in range(len(made["data"][n]["actions"]))]
        assert len(expected) == len(rows) == info.window_count
        for window, (group, t) in enumerate(expected):
            got = rows[window]
            assert got["anchor_ns"] == group["pose_t"][t] and not got["joints.mask"].any() and not got["quat.mask"].any()
            assert np.array_equal(got["actions"][0], group["actions"][t])
            assert np.allclose(got["joints"][0], group["joint_pos"][t], atol=1e-6)
            same_rotation(got["quat"], group["pose_quat"][t][None], 1e-9)


# ---- published recordings ----

@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("name", ["robosuite_SawyerLift_demo", "robosuite_lift_panda_demo", "robosuite_wipe_panda_demo"])
def test_recordings(tmp_path, name):
    path, out = RECORDINGS / f"{name}.hdf5", tmp_path / "out.hdf5"
    resample(path, "-o", out, "--rate", 25)
    with h5py.File(path) as source, h5py.File(out) as made:
        for demo, group in made["data"].items():
            was = source["data"][demo]
            stamps = np.rint(was["states"][:, 0] * 1e9).astype(np.int64)
            kept = np.concatenate([[True], np.diff(stamps) != 0])
            stamps, at = stamps[kept], np.rint(group["states"][:, 0] * 1e9).astype(np.int64)
            assert np.array_equal(at, stamps[0] + regular_ns(len(at), 25)) and 0 <= stamps[-1] - at[-1] < 40_000_000
            got, expected = group["states"][...], linear(stamps, was["states"][...][kept], at)
            assert np.allclose(got[:, 1:], expected[:, 1:], atol=1e-6)
            for stream in set(was) & {"actions", "gripper_actuations"}:
                assert np.array_equal(group[stream][...], previous(stamps, was[stream][...][kept], at))
            if "right_dquat" in group:
                same_rotation(group["right_dquat"][...], slerp(stamps, was["right_dquat"][...][kept], at), 1e-7)
    with h5py.File(path) as source, h5py.File(out) as made:
        assert made["data"].attrs.keys() == source["data"].attrs.keys()


# ---- plots of a stream ----

def plot(*arguments):
    return subprocess.run([TRAJCTL, "plot", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_plot(demo_file):
    """The terminal shows braille. Without a stream, the streams are listed."""
    shown = plot(demo_file, "joint_pos", "--layout", "demo", "--from", "1s", "--to", "2s")
    assert shown.returncode == 0 and "joint_pos by angle at 20 Hz" in shown.stdout and re.search("[\u2801-\u28ff]", shown.stdout)
    listed = plot(demo_file, "--layout", "demo").stdout.splitlines()
    assert len(listed) == 13 and ["joint_pos", "angle", "joint", "rad"] in [line.split() for line in listed]
    assert [line for line in listed if line != line.rstrip()] == []


@pytest.mark.parametrize("arguments, word", [
    (["joint_poss"], "did you mean joint_pos?"), (["obs/robot0_eef_*"], "not a pattern"), (["joint_pos", "--episode", "demo_99999"], "no episode"), 
    (["joint_pos", "--from", "900s"], "no rows in that span"), (["joint_pos", "--from", "2s", "--to", "1s"], "after --from"),
    (["joint_pos", "--kind", "cubic"], "not a kind"), (["joint_pos", "--rate", "0"], "not a rate"), (["joint_pos", "--kind", "slerp"], "multiple of 4"),
    (["joint_pos", "-o", "x.svg"], "python -m trajd.plot"), (["joint_pos", "pose_pos"], "unexpected argument: pose_pos"),
])
def test_plot_mistakes(demo_file, arguments, word):
    done = plot(demo_file, "--layout", "demo", *arguments)
    assert done.returncode in (1, 2) and word in done.stderr
