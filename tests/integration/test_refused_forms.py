"""Forms of files that a layout would read wrongly: each is refused with a message. Forms of real families that look similar are kept."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL

LAYOUT = """\
layout: lab
episodes: {{files: "*.hdf5", groups: {groups}}}
clocks: {{steps: {{rate: {rate}}}}}
streams:
  actions: {{path: actions, kind: previous}}
  "obs/*": {{path: obs/*, kind: linear}}
  "more/*": {{path: more/*, kind: previous}}
"""


def inspect(folder, arrays, groups="/", rate="20", attributes=None, inside=""):
    """Writes a file and inspects it. Returns the exit status and the reason of the first quarantine, or the message."""
    (folder / "lab.yaml").write_text(LAYOUT.format(groups=groups, rate=rate))
    with h5py.File(folder / "one.hdf5", "w") as file:
        for name, data in arrays.items():
            file[f"{inside}/{name}"] = data
        for name, value in (attributes or {}).items():
            file.attrs[name] = value
    done = subprocess.run([TRAJCTL, "inspect", "--json", "--layout", folder / "lab.yaml", folder / "one.hdf5"], capture_output=True,
                          text=True, timeout=60)
    if done.returncode:
        return done.returncode, done.stderr + done.stdout
    index = json.loads(done.stdout)
    index = index[0] if isinstance(index, list) else index
    return 0, [e["quarantine"] for e in index["episodes"] if e["quarantine"]]


def shaped(**shapes):
    return {name.replace("__", "/"): np.zeros(shape, np.uint8 if "image" in name else np.float32) for name, shape in shapes.items()}


STACKED = [
    shaped(actions=(50, 100, 7), obs__qpos=(50, 100, 14)),
    shaped(actions=(1, 150, 7), obs__eef=(1, 150, 3)),
    shaped(actions=(50, 100, 7), obs__eef=(50, 100, 3), obs__rewards=(50, 100), obs__lengths=(50,), more__image=(50, 100, 4, 4, 3)),
]
LAST = [
    shaped(actions=(7, 150), obs__eef=(3, 150)),
    shaped(actions=(14, 400), obs__qpos=(14, 400), obs__qvel=(14, 400)),
    shaped(actions=(7, 60), obs__rewards=(60,)),
    shaped(actions=(7, 60), more__image=(60, 8, 8, 3)),
]
KEPT = {  # forms of real families and of small tests
    "robomimic": shaped(actions=(100, 7), obs__eef=(100, 3), obs__object=(100, 10), more__image=(100, 8, 8, 3)),
    "short": shaped(actions=(5, 7), obs__eef=(5, 7)),
    "one row": shaped(actions=(1, 7), obs__eef=(1, 3)),
    "one row, wide": shaped(actions=(1, 45), obs__eef=(1, 45)),
    "one value of the episode": shaped(actions=(5, 7), obs__goal=(1, 7)),
    "wide observations": shaped(actions=(20, 7), obs__states=(20, 300)),
    "aloha": shaped(actions=(400, 14), obs__qpos=(400, 14), obs__qvel=(400, 14), more__image=(400, 48, 64, 3)),
    "poses": shaped(actions=(100, 7), obs__pose=(100, 4, 4), obs__other=(100, 4, 4)),
    "poses alone": shaped(actions=(100, 4, 4), obs__pose=(100, 4, 4)),
    "two arms": shaped(actions=(100, 2, 7), obs__eef=(100, 2, 3)),
    "hands": shaped(actions=(100, 21, 3), obs__confidence=(100, 21)),
    "points": shaped(actions=(100, 7), obs__points=(100, 1024, 3), obs__normals=(100, 1024, 3)),
    "action chunks": shaped(actions=(100, 50, 7), obs__pad=(100, 50), obs__eef=(100, 3)),
    "depth": shaped(actions=(100, 7), obs__depth=(100, 48, 64, 1), more__image=(100, 48, 64, 3)),
}


@pytest.mark.parametrize("arrays", STACKED, ids=["actions and qpos", "a leading axis of one", "with lengths and images"])
def test_episodes_stacked_on_axis_0(tmp_path, arrays):
    status, said = inspect(tmp_path, arrays)
    assert status == 1 and "stacked on axis 0" in said, said


@pytest.mark.parametrize("arrays", LAST, ids=["widths differ", "all alike", "rewards", "images"])
def test_time_on_the_last_axis(tmp_path, arrays):
    status, said = inspect(tmp_path, arrays)
    assert status == 1 and "time on the last axis" in said, said


@pytest.mark.parametrize("name", KEPT)
def test_kept(tmp_path, name):
    assert inspect(tmp_path, KEPT[name]) == (0, [])
    assert inspect(tmp_path, KEPT[name], groups="/data/demo_*", inside="data/demo_0") == (0, [])


def flags(*rows, count=90, dtype=bool):
    data = np.zeros(count, dtype)
    data[list(rows)] = 1
    return data


ROWS = shaped(actions=(90, 7), obs__eef=(90, 3))


@pytest.mark.parametrize("name, data", [
    ("dones", flags(29, 59, 89)), ("terminals", flags(29, 59, 89, dtype=np.uint8)), ("timeouts", flags(44, dtype=np.float32)),
    ("terminated", flags(29)[:, None]), ("is_last", flags(0, 89)), ("is_first", flags(0, 45, dtype=np.int64)),
    ("episode_index", np.repeat([0, 1, 2], 30)), ("episode_ends", np.array([30, 60, 90])), ("truncations", flags(88, count=90))])
def test_episodes_that_end_inside_an_array(tmp_path, name, data):
    status, said = inspect(tmp_path, ROWS | {name: data})
    assert status == 1 and f"{name}: " in said and "several episodes" in said, said


@pytest.mark.parametrize("name, data", [
    ("dones", flags(89)), ("dones", flags(87, 88, 89)), ("dones", flags()), ("terminals", flags(89)), ("is_first", flags(0)),
    ("is_last", flags(89)), ("episode_index", np.full(90, 7)), ("episode_ends", np.array([90])), ("success", flags(10, 20)),
    ("dones", flags(10, count=40)), ("dones", np.array([b"a"] * 90)), ("dones", np.zeros((90, 3))), ("episode_ends", np.array([30, 60]))])
def test_flags_of_one_episode(tmp_path, name, data):
    assert inspect(tmp_path, ROWS | {name: data}) == (0, [])


def test_flags_in_groups(tmp_path):
    """In robomimic's groups, and LIBERO's, `dones` is 1 in each state of success, and success may be lost again."""
    for name, kept in (("dones", True), ("terminated", True), ("timeouts", False), ("terminals", False)):
        status, said = inspect(tmp_path, ROWS | {name: flags(20, 21, 89)}, groups="/data/demo_*", inside="data/demo_0")
        assert (status == 0) == kept, (name, said)


def test_flags_that_cannot_be_read(tmp_path):
    with h5py.File(tmp_path / "lzf.hdf5", "w") as file:
        for name, data in ROWS.items():
            file[name] = data
        file.create_dataset("dones", data=np.arange(90) % 2, compression="lzf", chunks=(90,))
        file["dones"].id.write_direct_chunk((0,), b"\xff" * 20)  # damaged
    (tmp_path / "lab.yaml").write_text(LAYOUT.format(groups="/", rate=20))
    done = subprocess.run([TRAJCTL, "inspect", "--layout", tmp_path / "lab.yaml", tmp_path / "lzf.hdf5"], capture_output=True, text=True)
    assert done.returncode == 1 and "dones: cannot be read" in done.stdout + done.stderr, done


@pytest.mark.parametrize("value", [0.05, 0.002, "0.05"])
def test_a_period_in_the_place_of_a_rate(tmp_path, value):
    status, said = inspect(tmp_path, ROWS, rate='{attribute: "/@speed"}', attributes={"speed": value})
    assert status == 1 and "period" in said and "/@speed" in said and "Hz" in said, said


@pytest.mark.parametrize("rate", ['{attribute: "/@dt"}', '{attribute: "/@control_dt", default: 20}', '{attribute: "/@Timestep"}',
                                  '{attribute: "/@env_args", json: env_kwargs.control_timestep}', '{attribute: "/@sampling_period"}'])
def test_an_attribute_that_is_named_like_a_period(tmp_path, rate):
    status, said = inspect(tmp_path, ROWS, rate=rate, attributes={"dt": 50})
    assert status == 1 and "lab.yaml:3" in said and "period" in said, said


@pytest.mark.parametrize("rate, attributes", [("0.5", {}), ('{attribute: "/@fps"}', {"fps": 1.0}), ('{attribute: "/@hz"}', {"hz": 1000}),
                                              ('{attribute: "/@width", default: 20}', {}), ('{attribute: "/@dtype_rate", default: 20}', {})])
def test_rates(tmp_path, rate, attributes):
    assert inspect(tmp_path, ROWS, rate=rate, attributes=attributes) == (0, [])


def test_a_dataset_for_each_frame(tmp_path):
    frames = {f"more/front/{i:04}.jpg": np.full(50, i, np.uint8) for i in range(5)}
    status, said = inspect(tmp_path, ROWS | frames)
    assert status == 0 and said == []
    text = subprocess.run([TRAJCTL, "inspect", "--layout", tmp_path / "lab.yaml", tmp_path / "one.hdf5"], capture_output=True, text=True).stdout
    assert "more/front: left out: a group with a dataset for each frame is not supported" in text, text
    (tmp_path / "lab.yaml").write_text(LAYOUT.format(groups="/", rate=20) + "  front: {path: more/front, kind: previous}\n")
    done = subprocess.run([TRAJCTL, "inspect", "--layout", tmp_path / "lab.yaml", tmp_path / "one.hdf5"], capture_output=True, text=True)
    assert done.returncode == 1 and "more/front: a group with a dataset for each frame" in done.stderr, done.stderr


def test_big_endian_numbers(tmp_path):
    status, said = inspect(tmp_path, ROWS | {"actions": np.zeros((90, 7), ">f8")})
    assert status == 1 and "actions: a big-endian type is not supported" in said, said
    inspect(tmp_path, ROWS | {"obs/eef": np.zeros((90, 3), ">i4")})
    text = subprocess.run([TRAJCTL, "inspect", "--layout", tmp_path / "lab.yaml", tmp_path / "one.hdf5"], capture_output=True, text=True).stdout
    assert "obs/eef: left out: a big-endian type is not supported" in text, text


def test_links_to_links_end(tmp_path):
    """Forty groups with two links each have 2^40 paths, and any number of names may lead to one group or array."""
    with h5py.File(tmp_path / "paths.hdf5", "w") as file:
        group = file.create_group("data")
        for _ in range(40):
            below = group.create_group("left")
            group["right"] = below
            group = below
        group["x"] = np.zeros((20, 3))
    with h5py.File(tmp_path / "episodes.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros((20, 3))
        for number in range(1, 5000):
            file[f"data/demo_{number}"] = file["data/demo_0"]
    with h5py.File(tmp_path / "arrays.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros((20, 3))
        file["data/demo_0/obs/x"] = np.zeros((20, 3))
        for number in range(20000):
            file[f"data/demo_0/obs/x{number}"] = file["data/demo_0/obs/x"]
    for name, layout, words in (("paths", [], "another name of an object above; further ones are left out"),
                                ("episodes", ["--layout", "robomimic"], "more than 1000 links lead to groups that have other names"),
                                ("arrays", ["--layout", "robomimic"], "too many datasets")):
        done = subprocess.run([TRAJCTL, "inspect", *layout, tmp_path / f"{name}.hdf5"], capture_output=True, text=True, timeout=60)
        assert words in done.stdout + done.stderr, done
