"""Quaternions that a layout does not know: validate, check and resample name their columns and what to write in the layout. Shipped
layouts know the usual names. What is not a quaternion gives no message."""
import json
import os
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from paths import PACKAGE, RECORDINGS, ROOT, TRAJCTL, clean_environment
from resample_runs import resample
from waiting import wait_for

ROWS = 60


def turning(random, rows=ROWS, axis=None):
    """Quaternions (w, x, y, z) of a body that turns about `axis` by 0.1 to 0.3 rad a row, with signs as a recorder may flip them."""
    axis = random.normal(size=3) if axis is None else np.array(axis, float)
    axis /= np.linalg.norm(axis)
    half = np.cumsum(random.uniform(0.05, 0.15, size=rows)) + 0.3
    tilt = random.normal(scale=1e-3, size=(rows, 4))  # no body is exactly upright
    q = np.column_stack([np.cos(half), np.sin(half)[:, None] * axis]) + tilt
    return q / np.linalg.norm(q, axis=1, keepdims=True) * random.choice([-1, 1], size=(rows, 1))


def write(path, rate=20, **streams):
    """Writes two robomimic episodes. `streams` are functions of a random generator; "__" in a name stands for "/"."""
    random = np.random.default_rng(14)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": rate}})
        for name in ("demo_0", "demo_1"):
            group = data.create_group(name)
            group["actions"] = random.normal(size=(ROWS, 7))
            group["obs/robot0_eef_pos"] = random.normal(size=(ROWS, 3))
            for stream, make in streams.items():
                group[stream.replace("__", "/")] = make(random)
    return path


def validate(*arguments):
    done = subprocess.run([TRAJCTL, "validate", "--json", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return [f for f in json.loads(done.stdout) if f["rule"] in ("quaternions", "angles")]


def check(tmp_path, file, outputs, layout="robomimic"):
    """Returns the warnings of trajctl check."""
    config = tmp_path / "trajd.yaml"
    config.write_text(f"version: 2\ndatasets: {{d: {{path: {file}, layout: {layout}}}}}\n"
                      f"feeds: {{train: {{dataset: d, global_batch: 4, anchor: {{clock: actions}}, outputs: {{{outputs}}}}}}}\n")
    done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60, env=clean_environment())
    assert done.returncode == 0, done.stderr
    return [line for line in (done.stdout + done.stderr).splitlines() if "quaternion" in line]


def lengths(path, stream, columns=slice(None)):
    with h5py.File(path) as file:
        return np.concatenate([np.linalg.norm(g[stream][:, columns].reshape(-1, 4), axis=1) for g in file["data"].values()])


def layout(tmp_path, entries):
    """Writes the layout robomimic with entries in front of the others. Returns its path."""
    text = (ROOT / "configs/layouts/robomimic.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("layout: robomimic", "layout: mine").replace("\nstreams:", f"\nstreams:\n  {entries}\n  #", 1))
    return path


# ---- shipped layouts ----

@pytest.mark.parametrize("name, make", [
    ("robot0_eef_quat_site", turning),
    ("cube_orientations", lambda random: np.hstack([turning(random) for _ in range(3)])),
])
def test_known_names(tmp_path, name, make):
    file = write(tmp_path / "one.hdf5", **{f"obs__{name}": make, f"next_obs__{name}": make})
    assert validate(file) == []
    assert check(tmp_path, file, f"obs/{name}: {{at: -500ms..0ms @ 30}}") == []
    resample(file, "-o", tmp_path / "out.hdf5", "--rate", 30)
    for group in ("obs", "next_obs"):
        assert np.max(np.abs(lengths(tmp_path / "out.hdf5", f"{group}/{name}") - 1)) < 1e-6


# ---- unknown names ----

def test_a_stream_of_quaternions(tmp_path):
    file = write(tmp_path / "one.hdf5", obs__tool_rotation=lambda random: turning(random, axis=(0, 0, 1)))
    advice = "obs/tool_rotation: {path: obs/tool_rotation, kind: slerp, order: wxyz}"
    found, = validate(file)
    assert (found["rule"], found["stream"], found["count"]) == ("quaternions", "obs/tool_rotation", 1)
    assert "columns 0..3 are quaternions" in found["message"] and advice in found["message"]
    done = resample(file, "-o", tmp_path / "out.hdf5", "--rate", 30)
    assert advice in done.stdout + done.stderr
    assert np.min(lengths(tmp_path / "out.hdf5", "obs/tool_rotation")) < 0.5  # what the message is about
    warning, = check(tmp_path, file, "obs/tool_rotation: {at: -500ms..0ms @ 30}")
    assert warning.startswith("  warning: obs/tool_rotation: ") and advice in warning
    mine = layout(tmp_path, advice)
    assert validate("--layout", mine, file) == []
    resample(file, "-o", tmp_path / "good.hdf5", "--rate", 30, "--layout", mine)
    assert np.max(np.abs(lengths(tmp_path / "good.hdf5", "obs/tool_rotation") - 1)) < 1e-6


def test_steps_on_rows_blend_nothing(tmp_path):
    file = write(tmp_path / "one.hdf5", obs__tool_rotation=turning)
    assert check(tmp_path, file, "obs/tool_rotation: {at: -1..0}") == []
    assert check(tmp_path, file, "obs/tool_rotation: {at: -500ms..0ms @ 10}") == []  # every second row of 20 Hz
    assert len(check(tmp_path, file, "obs/tool_rotation: {at: -500ms..0ms @ 15}")) == 1
    assert check(tmp_path, file, "obs/tool_rotation: {at: -500ms..0ms @ 15, kind: nearest}") == []
    assert "quaternions" not in resample(file, "-o", tmp_path / "half.hdf5", "--rate", 10).stderr
    assert "quaternions" in resample(file, "-o", tmp_path / "mean.hdf5", "--rate", 10, "--kind", "obs/tool_rotation=mean").stderr


def test_free_joints_in_states(tmp_path):
    file = write(tmp_path / "one.hdf5", states=lambda random: np.hstack([
        random.normal(size=(ROWS, 10)), turning(random, axis=(0, 0, 1)), random.normal(size=(ROWS, 3)), turning(random),
        random.normal(size=(ROWS, 9))]))
    entries = ['states_10: {path: states, columns: "10:14", kind: slerp, order: wxyz}',
               'states_17: {path: states, columns: "17:21", kind: slerp, order: wxyz}']
    found, = validate(file)
    assert (found["stream"], found["count"]) == ("states", 2) and "columns 10..13, 17..20" in found["message"]
    assert all(entry in found["message"] for entry in entries)
    warning, = check(tmp_path, file, "states: {at: -500ms..0ms @ 30}")
    assert "columns 10..13, 17..20" in warning
    mine = layout(tmp_path, "\n  ".join(entries))
    assert validate("--layout", mine, file) == []
    assert "quaternions" not in resample(file, "-o", tmp_path / "out.hdf5", "--rate", 30, "--layout", mine).stderr
    for columns in (slice(10, 14), slice(17, 21)):
        assert np.max(np.abs(lengths(tmp_path / "out.hdf5", "states", columns) - 1)) < 1e-6
    assert check(tmp_path, file, "states_10: {at: -500ms..0ms @ 30}", mine) == []
    assert len(check(tmp_path, file, "states: {at: -500ms..0ms @ 30}", mine)) == 1  # the output takes all columns as numbers


def test_what_is_no_quaternion(tmp_path):
    def switching(random):
        return np.eye(4)[np.arange(ROWS) // 7 % 4]

    def constant(random):
        return np.tile([0.5, 0.5, -0.5, 0.5], (ROWS, 1))

    def direction(random):
        v = random.normal(size=(ROWS, 3))
        return np.hstack([v / np.linalg.norm(v, axis=1, keepdims=True), np.zeros((ROWS, 1))])

    def once(random):
        q = turning(random)
        q[40] *= 1.01
        return q

    def plane(random):
        a = np.cumsum(random.uniform(0, 0.2, size=ROWS))
        return np.column_stack([np.zeros(ROWS), a, np.zeros(ROWS), np.cos(a), np.sin(a), np.zeros(ROWS), a ** 2, a + 1])

    file = write(tmp_path / "one.hdf5", obs__stage=switching, obs__weights=constant, obs__normal=direction, obs__once=once, obs__plane=plane,
                 obs__zero=lambda random: np.zeros((ROWS, 8)), obs__noise=lambda random: random.normal(size=(ROWS, 300)))
    assert validate(file) == []


def test_wrapped_angles(tmp_path):
    file = write(tmp_path / "one.hdf5",
                 obs__rpy=lambda random: (np.cumsum(random.normal(scale=0.3, size=(ROWS, 3)), axis=0) + [np.pi, 0, 0] + np.pi) % (2 * np.pi) - np.pi,
                 obs__heading=lambda random: np.cumsum(random.uniform(0, 20, size=ROWS)) % 360,
                 obs__torque=lambda random: random.choice([-3.5, 3.0], size=(ROWS, 2)))
    found = {f["stream"]: f["message"] for f in validate(file)}
    assert sorted(found) == ["obs/heading", "obs/rpy"]
    assert "kind: angle" in found["obs/rpy"] and "kind: angle, unit: deg" in found["obs/heading"]


# ---- workers ----

@pytest.mark.skipif(not list((PACKAGE / "trajd").glob("_core*")), reason="built without Python's headers")
def test_the_trainer_is_told(tmp_path, daemon):
    file = write(tmp_path / "one.hdf5", obs__tool_rotation=lambda random: turning(random, axis=(0, 0, 1)))
    one = daemon(f"datasets: {{d: {{path: {file}, layout: robomimic}}}}\nfeeds: {{train: {{dataset: d, global_batch: 4, "
                 "anchor: {clock: actions}, outputs: {obs/tool_rotation: {at: -500ms..0ms @ 30}}}}\n")
    code = f"import trajd\nwith trajd.open({str(one.config)!r}, feed='train') as feed: print(feed.info.warnings[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE), "TRAJD_ENDPOINT": str(one.endpoint)})
    assert done.returncode == 0, done.stderr
    assert "obs/tool_rotation: {path: obs/tool_rotation, kind: slerp, order: wxyz}" in done.stdout
    assert "DataWarning" in done.stderr and "columns 0..3 are quaternions" in done.stderr


# ---- the index's cache ----

def test_the_cache_keeps_what_was_found(tmp_path):
    """A second start reads no rows, and warns as the first."""
    file = write(tmp_path / "one.hdf5", obs__tool_rotation=turning)
    subprocess.run(["touch", "-d", "1 hour ago", file], check=True)
    wait_for(lambda: time.time_ns() > file.stat().st_ctime_ns + 300_000_000)  # later than the last step of its ctime
    config = tmp_path / "trajd.yaml"
    first = check(tmp_path, file, "obs/tool_rotation: {at: -500ms..0ms @ 15}")
    config.write_text(f"cache: {tmp_path}/cache\n" + config.read_text())
    (tmp_path / "cache").mkdir()
    for _ in range(2):
        done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60, env=clean_environment())
        assert done.returncode == 0 and [line for line in done.stdout.splitlines() if "quaternion" in line] == first, done.stdout
    assert "1 from the cache" in done.stderr + done.stdout


# ---- whole files ----

def test_demo_dataset(tmp_path, demo_file):
    """The layout demo names every quaternion. Without its entries all of them are found, and nothing else."""
    assert validate("--layout", "demo", demo_file) == []
    text = (ROOT / "configs/layouts/demo.yaml").read_text().replace("kind: slerp, order: xyzw", "kind: linear")
    (tmp_path / "plain.yaml").write_text(text.replace("obs/object, clock: actions, kind: previous", "obs/object, clock: actions, kind: linear"))
    found = {f["stream"]: f["message"].split(" are ")[0] for f in validate("--layout", tmp_path / "plain.yaml", demo_file)}
    assert found == {"obs/robot0_eef_quat": "columns 0..3", "obs/object": "columns 3..6", "object_quat": "columns 3..6",
                     "pose_quat": "columns 0..3"}


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("name, columns", [
    ("SawyerLift", "14..17"), ("SawyerStack", "14..17"), ("door_panda", None), ("lift_panda", "13..16"),
    ("nut-assembly_panda", "13..16, 20..23"), ("pick-place_panda", "13..16, 20..23, 27..30, 34..37"), ("stack_panda", "13..16, 20..23"),
    ("wipe_panda", None)])
def test_recordings(name, columns):
    """`states` is time, qpos, qvel. A free joint of qpos is a position and a quaternion (w, x, y, z)."""
    found = validate(RECORDINGS / f"robosuite_{name}_demo.hdf5")
    assert [f["stream"] for f in found] == (["states"] if columns else [])
    if columns:
        assert f"columns {columns} are quaternions" in found[0]["message"] and "order: wxyz" in found[0]["message"]
