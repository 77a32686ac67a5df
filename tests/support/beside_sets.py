"""Small recordings with MP4 files beside HDF5 files, written as their recorders write them: DROID raw, AgiBot World."""
import json

import h5py
import numpy as np

SERIALS = {"wrist": "17225336", "exterior_1": "25047636", "exterior_2": "24013089"}  # the serials' order is another one
START_MS = 1_690_000_000_000


def droid_values(length):
    rows = np.arange(length)
    steps = START_MS + (rows * 1000 // 15)
    return {
        "observation/robot_state/joint_positions": rows[:, None] + np.arange(7) / 10,
        "observation/robot_state/cartesian_position": rows[:, None] + np.arange(6) / 100,
        "observation/robot_state/gripper_position": rows / 100.0,
        "observation/timestamp/robot_state/read_end": steps + 1,
        "observation/timestamp/control/control_start": steps + 40,
        "action/joint_position": rows[:, None] + np.arange(7) / 10 + 1,
        "action/gripper_position": rows / 100.0,
    }, steps


def make_droid(folder, length, videos, serials=None, metadata=True):
    """Writes an episode. `videos` has the bytes of an MP4 for each role."""
    serials = serials or SERIALS
    (folder / "recordings/MP4").mkdir(parents=True)
    values, steps = droid_values(length)
    with h5py.File(folder / "trajectory.h5", "w") as file:
        file.attrs["success"] = True
        for role, serial in serials.items():
            values[f"observation/camera_type/{serial}"] = np.full(length, 0 if role == "wrist" else 1)
            values[f"observation/camera_extrinsics/{serial}_left"] = np.full((length, 6), int(serial), float)
            for place, name in enumerate(("read_start", "read_end", "frame_received", "estimated_capture")):
                values[f"observation/timestamp/cameras/{serial}_{name}"] = steps + place + 10
        for name, array in values.items():  # a chunk for each step
            file.create_dataset(name, data=array, chunks=(1, *array.shape[1:]), maxshape=(None, *array.shape[1:]))
    if metadata:
        names = {"wrist": "wrist_cam_serial", "exterior_1": "ext1_cam_serial", "exterior_2": "ext2_cam_serial"}
        (folder / "metadata_LAB+1+2023.json").write_text(json.dumps(
            {"current_task": "put the cup on the plate", "success": True, **{names[role]: serial for role, serial in serials.items()}}))
    for role, video in videos.items():
        (folder / f"recordings/MP4/{serials[role]}.mp4").write_bytes(video)
    return values


def make_agibot(folder, length, videos, task="327", episode="648642"):
    """Writes an episode in which the action of the grippers was recorded for every second step."""
    proprio, recorded = (folder / part / task / episode for part in ("proprio_stats", "observations"))
    proprio.mkdir(parents=True), (recorded / "videos").mkdir(parents=True), (folder / "task_info").mkdir()
    rows = np.arange(length)
    values = {"timestamp": START_MS * 10**6 + rows * 33_333_333, "state/joint/position": rows[:, None] + np.arange(14) / 10,
              "state/effector/position": np.stack([rows + 35.0, rows + 36.0], 1), "action/joint/position": rows[:, None] + np.arange(14) / 10,
              "action/joint/index": rows, "action/effector/position": np.stack([rows[::2] / 100, rows[::2] / 50], 1),
              "action/effector/index": rows[::2], "action/head/position": np.zeros((0, 2))}
    with h5py.File(proprio / "proprio_stats.h5", "w") as file:
        for name, array in values.items():
            file[name] = array
    for camera, video in videos.items():
        (recorded / f"videos/{camera}.mp4").write_bytes(video)
    (folder / f"task_info/task_{task}.json").write_text(json.dumps([{"episode_id": int(episode), "task_name": "pick up items"}]))
    return values
