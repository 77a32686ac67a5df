"""trajd.convert droid and agibot: numbers in HDF5 files, and video by reference in the MP4 files beside them."""
import json
import shutil
import subprocess

import h5py
import numpy as np
import pytest
from paths import TRAJCTL, clean_environment
from video_groups import VECTORS, VIDEO, packets_of

from trajd.convert.__main__ import main

ROLES = {"wrist": 0, "exterior_1": 1, "exterior_2": 2}  # their frames' numbers begin at 64 * this
AGIBOT_CAMERAS = ("hand_left_color", "hand_right_color", "head_color")


def convert(source, folder, capsys, *options):
    """Converts the recordings in `folder` into a file beside it. Returns the lines of the summary."""
    status = main([source, str(folder), "-o", str(folder.parent / "out.hdf5"), "--force", *options])
    said = capsys.readouterr()
    assert (status, said.err) == (0, "")
    return said.out.splitlines()


@pytest.fixture(params=["droid", "agibot"])
def recordings(request, tmp_path):
    return shutil.copytree(VIDEO / request.param, tmp_path / request.param)


@pytest.fixture
def droid(tmp_path):
    return shutil.copytree(VIDEO / "droid", tmp_path / "droid")


def numbers_of(video, root):
    """Returns the number that each row's frame shows, -1 where its packet is empty."""
    path = root / video.attrs["media"]
    vector = VECTORS[video.attrs["media"]]
    data = path.read_bytes()
    shown = {data[slice(vector["packets"][packet][0], sum(vector["packets"][packet]))]: number
             for packet, number in zip(vector["rows"], vector["numbers"])}
    return [shown[packet] if packet else -1 for packet in packets_of(video, path)]


def test_droid_frames_have_roles_and_capture_times(droid, tmp_path, capsys):
    lines = convert("droid", droid, capsys)
    assert lines[0].startswith(f"{tmp_path}/out.hdf5: 2 of 2 episodes, 33 rows, ") and len(lines) == 1
    with h5py.File(tmp_path / "out.hdf5") as file:
        for robot, path in enumerate(sorted(droid.glob("**/trajectory.h5"))):
            group, source = file[f"data/episode_{robot:06d}"], h5py.File(path)
            metadata = json.loads(next(path.parent.glob("metadata*")).read_text())
            rows = len(source["action/joint_position"])
            assert group.attrs["task"] == metadata["current_task"] and group.attrs["success"]
            assert group.attrs["folder"] == path.parent.relative_to(droid).as_posix()
            for name in ("observation/robot_state/cartesian_position", "action/joint_velocity", "observation/timestamp/skip_action"):
                assert np.array_equal(group[name], source[name]) and group[name].chunks is None
            for role, key in zip(ROLES, ("wrist_cam_serial", "ext1_cam_serial", "ext2_cam_serial")):
                stamps = f"observation/timestamp/cameras/{metadata[key]}_estimated_capture"
                assert np.array_equal(group[stamps.replace(metadata[key], role)], source[stamps])
                first = 64 * ROLES[role] + 32 * robot
                assert numbers_of(group[f"observation/images/{role}"], tmp_path) == [*range(first, first + rows - 1), -1]
            assert not [name for name in group["observation/timestamp/cameras"] if name[0].isdigit()]


def test_a_layout_of_each_fits(recordings, tmp_path, capsys):
    convert(recordings.name, recordings, capsys)
    told = subprocess.run([TRAJCTL, "inspect", tmp_path / "out.hdf5"], capture_output=True, text=True, env=clean_environment())
    assert told.returncode == 0 and f"layout {recordings.name}, 1 file, " in told.stdout, told.stdout + told.stderr
    for camera in ROLES if recordings.name == "droid" else AGIBOT_CAMERAS:
        assert f"observation/images/{camera} " in told.stdout


def test_agibot_actions_are_put_into_the_state(tmp_path, capsys):
    folder = shutil.copytree(VIDEO / "agibot", tmp_path / "agibot")
    lines = convert("agibot", folder, capsys)
    assert lines[1:] == ["left out: episode 1: proprio_stats/327/648649/proprio_stats.h5: action/effector/position has 9 rows, and there "
                         "are 8 steps"]
    with h5py.File(tmp_path / "out.hdf5") as file, h5py.File(folder / "proprio_stats/327/648642/proprio_stats.h5") as source:
        group = file["data/episode_000000"]
        index, state = source["action/joint/index"][()], source["state/joint/position"][()]
        expected = state.copy()
        expected[index] = source["action/joint/position"]
        assert len(index) < len(state) and np.array_equal(group["action/joint/position"], expected)
        assert sorted(group["action"]) == ["effector", "head", "joint"] and "index" not in group["action/joint"]
        assert group.attrs["task"] == json.loads((folder / "task_info/task_327.json").read_text())[0]["task_name"]
        for camera in AGIBOT_CAMERAS:
            numbers = numbers_of(group[f"observation/images/{camera}"], tmp_path)
            assert numbers == list(range(numbers[0], numbers[0] + len(state)))


def edit(path, change):
    with h5py.File(path, "a") as file:
        change(file)


def remove(*names):
    def change(file):
        for name in names:
            del file[name]
    return change


def outside(file):
    del file["action/joint_velocity"]
    file.create_dataset("action/joint_velocity", (15, 7), "f8", external=[("/etc/passwd", 0, 840)])


def test_metadata_of_any_form_is_read_over(recordings, tmp_path, capsys):
    """The numbers and frames are there without it."""
    for text in ("[" * 100000, "3", '[3, {"episode_id": 648642, "task_name": 4}]', '{"current_task": [1], "success": "yes", "ext1_cam_serial": {}}',
                 '{"current_task": "\\ud800\\u0000"}'):
        for path in (*recordings.glob("**/metadata*"), *recordings.glob("task_info/*")):
            path.write_text(text)
        convert(recordings.name, recordings, capsys)
        with h5py.File(tmp_path / "out.hdf5") as file:
            assert "task" not in file["data/episode_000000"].attrs


@pytest.mark.parametrize("change, sentence", [
    (lambda root: edit(root / "trajectory.h5", remove("observation/timestamp/control/control_start")),
     "trajectory.h5: it lacks observation/timestamp/control/control_start"),
    (lambda root: edit(root / "trajectory.h5", remove("observation/camera_type/14436910")),
     "trajectory.h5: 0 of its 2 cameras have the camera_type 0, the wrist's"),
    (lambda root: edit(root / "trajectory.h5", remove("observation/timestamp/cameras/14436910_estimated_capture")),
     "trajectory.h5: it lacks the capture times of the camera 14436910"),
    (lambda root: edit(root / "trajectory.h5", outside), "trajectory.h5: action/joint_velocity: its values are in another file"),
    (lambda root: (root / "trajectory.h5").write_bytes(b"\x89HDF"), "trajectory.h5: "),
    (lambda root: (root / "recordings/MP4/14436910.mp4").unlink(), "recordings/MP4/14436910.mp4: No such file or directory"),
    (lambda root: shutil.copy(VIDEO / "mp4/h264.mp4", root / "recordings/MP4/14436910.mp4"),
     "recordings/MP4/14436910.mp4: it has 24 shown frames for 15 steps: as many, or one fewer, are expected"),
])
def test_a_fault_costs_its_episode(droid, tmp_path, capsys, change, sentence):
    root = next(droid.glob("ILIAD/*/*/*"))
    change(root)
    lines = convert("droid", droid, capsys)
    assert ": 1 of 2 episodes, 18 rows, " in lines[0] and len(lines) == 2
    assert lines[1].startswith(f"left out: episode 1: {root.relative_to(droid)}/{sentence}")


def test_arrays_of_other_lengths_are_left_out_by_name(droid, tmp_path, capsys):
    path = next(droid.glob("ILIAD/**/trajectory.h5"))
    edit(path, lambda file: file.create_dataset("observation/once", data=np.arange(3.0)))
    lines = convert("droid", droid, capsys)
    assert lines[1:] == [f"left out: {path.relative_to(droid)}: observation/once: it has 3 rows, and there are 15 steps"]


def test_chosen_episodes_and_cameras_of_droid(droid, tmp_path, capsys):
    convert("droid", droid, capsys, "--episodes", "1", "--cameras", "wrist")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert list(file["data"]) == ["episode_000001"] and list(file["data/episode_000001/observation/images"]) == ["wrist"]
    assert main(["droid", str(droid), "-o", str(tmp_path / "other.hdf5"), "--cameras", "rist"]) == 2
    assert "trajectory.h5: it has no camera rist: did you mean wrist? there are: wrist, exterior_1, exterior_2\n" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert main(["droid", str(tmp_path / "empty"), "-o", str(tmp_path / "other.hdf5")]) == 2
    assert capsys.readouterr().err == f"trajd-convert: {tmp_path}/empty: it has no file **/trajectory.h5\n"


def test_without_metadata_cameras_are_in_the_order_of_their_serials(droid, tmp_path, capsys):
    for path in droid.glob("**/metadata*"):
        path.unlink()
    convert("droid", droid, capsys)
    with h5py.File(tmp_path / "out.hdf5") as file:
        group = file["data/episode_000000"]
        assert "task" not in group.attrs and group.attrs["success"]
        assert [group[f"observation/images/{role}"].attrs["media"][-12:-4] for role in ROLES] == ["18026681", "22008760", "24400334"]
