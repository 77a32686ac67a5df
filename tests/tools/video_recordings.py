#!/usr/bin/env python3
"""Writes recordings that keep MP4 files beside HDF5, as DROID and AgiBot World do: tests/golden/video/droid and agibot.

    /tmp/video/bin/pip install h5py==3.16.0 && /tmp/video/bin/python tests/tools/video_recordings.py

with the Python of video_mp4s.py. tests/golden/video/README.md says what is in them.
"""
import json
import os
import pathlib
import shutil
from fractions import Fraction

import h5py
import numpy as np
from video_mp4s import encode, svt, x264

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "video"
MS = 1_688_748_143_000  # July 2023, in milliseconds since 1970

# DROID.

ROBOTS = (  # laboratory, date, stamp, serials of the wrist's camera and of the two others, steps
    ("AUTOLab", "2023-07-07", "Fri_Jul__7_09:42:23_2023", ("18026681", "22008760", "24400334"), 18),
    ("ILIAD", "2023-05-01", "Mon_May__1_14:10:05_2023", ("14436910", "20103212", "21582473"), 15),
)


def append(group, values):
    """Adds a step as DROID's writer does: each dataset begins with one row and grows by one, so each step is a chunk."""
    for key, value in values.items():
        if isinstance(value, dict):
            append(group.require_group(key), value)
            continue
        value = np.asarray(value)
        if key not in group:
            group.create_dataset(key, (1, *value.shape), maxshape=(None, *value.shape), dtype=value.dtype)
        else:
            group[key].resize(group[key].shape[0] + 1, axis=0)
        group[key][-1] = value


def make_step(step, serials):
    """15 steps a second. A camera's image is 20 to 40 ms older than its step, in another way for each camera."""
    now = MS + step * 1000 // 15
    stamps = {}
    for number, serial in enumerate(serials):
        capture = now - 20 - 10 * number - step % 3
        stamps |= {f"{serial}_read_start": now - 8, f"{serial}_frame_received": capture + 12,
                   f"{serial}_read_end": now - 2, f"{serial}_estimated_capture": capture}
    joints = np.sin(np.arange(7) + step / 5)
    return {
        "observation": {
            "robot_state": {"cartesian_position": np.cos(np.arange(6) + step / 5), "gripper_position": step / 20, "joint_positions": joints,
                            "prev_command_successful": True, "prev_controller_latency_ms": 1.5},
            "camera_type": {serial: int(number > 0) for number, serial in enumerate(serials)},
            "camera_extrinsics": {f"{serials[1]}_left": np.arange(6) / 10},
            "timestamp": {"skip_action": step == 0, "robot_state": {"robot_timestamp_seconds": now // 1000,
                                                                    "robot_timestamp_nanos": now % 1000 * 1_000_000,
                                                                    "read_start": now - 1, "read_end": now},
                          "cameras": stamps, "control": {"step_start": now, "policy_start": now + 3, "sleep_start": now + 5,
                                                               "control_start": now + 40, "step_end": now + 60}},
        },
        "action": {"cartesian_velocity": joints[:6] / 2, "joint_position": joints + 0.01, "joint_velocity": joints / 10,
                   "gripper_position": (step + 1) / 20},
    }


def write_droid():
    shutil.rmtree(FOLDER / "droid", ignore_errors=True)
    for robot, (laboratory, date, stamp, serials, steps) in enumerate(ROBOTS):
        root = FOLDER / "droid" / laboratory / "success" / date / stamp
        movies = root / "recordings" / "MP4"
        movies.mkdir(parents=True)
        with h5py.File(root / "trajectory.h5", "w") as file:
            file.attrs.update(success=True, failure=False, movement_enabled=True, controller_on=True)
            for step in range(steps):
                append(file, make_step(step, serials))
        for camera, serial in enumerate(serials):
            encode(str(movies / f"{serial}.mp4"), "libx264", x264("bframes=0"), gop=12, frames=steps - 1, rate=Fraction(60),
                   first=64 * camera + 32 * robot)
        if robot == 0:
            encode(str(movies / f"{serials[0]}-stereo.mp4"), "libx264", x264("bframes=0"), frames=steps - 1, rate=Fraction(60))
        metadata = {"uuid": f"{laboratory}+00000000+{date}", "lab": laboratory, "date": date, "success": True,
                    "current_task": ("Put the marker into the cup", "Close the drawer")[robot], "trajectory_length": steps,
                    "wrist_cam_serial": serials[0], "ext1_cam_serial": serials[1], "ext2_cam_serial": serials[2],
                    "wrist_mp4_path": f"success/{date}/{stamp}/recordings/MP4/{serials[0]}.mp4"}
        (root / f"metadata_{metadata['uuid']}.json").write_text(json.dumps(metadata))


# AgiBot World.


def write_agibot():
    """Two episodes of one task. The second one has more rows of actions than of states, as faulty episodes have."""
    root = FOLDER / "agibot"
    shutil.rmtree(root, ignore_errors=True)
    (root / "task_info").mkdir(parents=True)
    episodes = []
    for episode, rows, more in ((648642, 14, 0), (648649, 8, 1)):
        stats = root / "proprio_stats" / "327" / str(episode)
        stats.mkdir(parents=True)
        with h5py.File(stats / "proprio_stats.h5", "w") as file:
            fill_agibot(file, rows, more)
        movies = root / "observations" / "327" / str(episode) / "videos"
        movies.mkdir(parents=True)
        for camera, name in enumerate(("head_color", "hand_left_color", "hand_right_color")):
            encode(str(movies / f"{name}.mp4"), "libsvtav1", svt(), gop=2, frames=rows, first=64 * camera + episode % 4 * 16)
        episodes.append({"episode_id": episode, "task_id": 327, "task_name": "Picking items in Supermarket",
                         "init_scene_text": "The robot is in front of the fruit stand.",
                         "lable_info": {"action_config": [{"start_frame": 0, "end_frame": rows, "action_text": "Retrieve a cucumber.",
                                                           "skill": "Pick"}]}})
    (root / "task_info" / "task_327.json").write_text(json.dumps(episodes, indent=1))


def fill_agibot(file, rows, more):
    """States at 30 Hz in nanoseconds. The arms were commanded from row 2 on; the end effectors' and the waist's actions are empty."""
    stamps = MS * 1_000_000 + np.arange(rows) * 1_000_000_000 // 30
    joints = np.sin(np.arange(14) + np.arange(rows)[:, None] / 5)
    file["timestamp"] = stamps
    state = {"joint/position": joints, "joint/current_value": joints / 3, "effector/position": 35 + np.abs(joints[:, :2]) * 80,
             "end/position": joints[:, :6].reshape(rows, 2, 3), "end/orientation": np.tile([0.0, 0, 0, 1], (rows, 2, 1)),
             "head/position": joints[:, :2], "waist/position": joints[:, 2:4], "robot/position": np.zeros((rows, 3)),
             "robot/orientation": np.tile([0.0, 0, 0, 1], (rows, 1))}
    for key, value in state.items():
        file[f"state/{key}"] = value
    index = np.arange(2, rows + more)
    action = {"joint/position": np.resize(joints + 0.01, (rows + more, 14))[index], "joint/index": index,
              "effector/position": np.linspace(0, 1, 2 * (rows + more)).reshape(-1, 2), "effector/index": np.arange(rows + more),
              "end/position": np.zeros((0,)), "end/orientation": np.zeros((0,)), "end/index": np.zeros((0,), np.int64),
              "head/position": joints[:, :2], "head/index": np.arange(rows), "waist/position": np.zeros((0,)), "waist/index": np.zeros((0,), np.int64),
              "robot/velocity": np.zeros((0,)), "robot/index": np.zeros((0,), np.int64)}
    for key, value in action.items():
        file[f"action/{key}"] = value


def main():
    os.environ["SVT_LOG"] = "1"
    write_droid()
    write_agibot()


if __name__ == "__main__":
    main()
