#!/usr/bin/env python3
"""Writes small recordings for the tutorials of the guide (clients/docs/tutorials), in the forms that the projects record.

    tests/tools/example_data.py aloha aloha              # a folder of episodes, as ACT's record_sim_episodes.py
    tests/tools/example_data.py robomimic lift.hdf5      # a robomimic file with images
    tests/tools/example_data.py lerobot my_set           # a LeRobot data set, v3.0, with images
    tests/tools/example_data.py ros2 run1.mcap           # a ROS 2 recording: joints, commands, a camera
    tests/tools/example_data.py lab strange.h5           # a file that no layout reads: stamps, and a force of another rate

A planar arm swings. The cameras see it, the joints say where it is, and the actions where it shall be."""
import argparse
import io
import json
import pathlib
import sys

import h5py
import numpy as np
from PIL import Image, ImageDraw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

RATE, ROWS, START = 50, 120, 1_700_000_000_000_000_000
LENGTHS = (0.38, 0.30, 0.20)  # of the arm's parts, as shares of the image's height


def joints(time, episode=0):
    return np.array([0.6 + 0.5 * np.sin(1.7 * time + episode), 0.8 * np.sin(2.3 * time + 1), 0.9 * np.cos(1.1 * time + episode)])


def image(time, episode=0, height=120, width=160, scale=1.0, background=(225, 230, 235)):
    picture = Image.new("RGB", (width, height), background)
    draw, at, angle = ImageDraw.Draw(picture), np.array([width * 0.3, height * 0.9]), -np.pi / 2
    for length, turn in zip(LENGTHS, joints(time, episode)):
        angle += turn
        end = at + scale * length * height * np.array([np.cos(angle), np.sin(angle)])
        draw.line([*at, *end], fill=(235, 120, 40), width=max(2, int(height * 0.06 * scale)))
        draw.ellipse([*(at - height / 24), *(at + height / 24)], fill=(60, 60, 70))
        at = end
    return picture


def jpeg(picture):
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


def both_arms(time, episode):
    return np.resize(joints(time, episode), 14).astype(np.float32)


def write_aloha(folder, episodes=20):
    folder.mkdir(parents=True)
    for episode in range(episodes):
        times = np.arange(ROWS - 10 * (episode % 3)) / RATE
        with h5py.File(folder / f"episode_{episode}.hdf5", "w") as file:
            file.attrs["sim"] = True
            for name, ahead in ("observations/qpos", 0), ("action", 0.04):
                file[name] = np.array([both_arms(time + ahead, episode) for time in times])
            file["observations/qvel"] = np.gradient(file["observations/qpos"][:], 1 / RATE, axis=0).astype(np.float32)
            for camera, scale in ("top", 1.0), ("left_wrist", 1.5):
                file[f"observations/images/{camera}"] = np.array([np.asarray(image(time, episode, 60, 80, scale)) for time in times])


def write_robomimic(path, episodes=10):
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20}})
        for episode in range(episodes):
            demo, times = data.create_group(f"demo_{episode}"), np.arange(60) / 20
            demo.attrs["num_samples"] = len(times)
            swing = np.array([joints(time, episode) for time in times])
            half, grip = swing[:, :1] / 2, np.sign(np.sin(3 * times + episode))[:, None]
            demo["obs/robot0_eef_pos"] = 0.1 * swing
            demo["obs/robot0_eef_quat"] = np.hstack([np.sin(half) / 3**0.5] * 3 + [np.cos(half)])
            demo["obs/robot0_gripper_qpos"] = 0.02 * grip * [1, -1]
            demo["actions"] = np.hstack([swing, 0.1 * swing, grip])
            demo["obs/agentview_image"] = np.array([np.asarray(image(time, episode, 84, 84)) for time in times])
            demo["obs/robot0_eye_in_hand_image"] = np.array([np.asarray(image(time, episode, 84, 84, 1.5)) for time in times])
        names = np.array([f"demo_{episode}".encode() for episode in range(episodes)])
        file["mask/train"], file["mask/valid"] = names[:-2], names[-2:]


def write_lerobot(folder):
    from lerobot_sets import make_v3
    make_v3(folder, (40, 50, 30, 45), fps=10)


def write_ros2(path, seconds=8):
    """Joints at 100 Hz, commands at 20 Hz, and a camera at 30 Hz that is silent from 3 s to 3.4 s."""
    from mcap.writer import Writer
    from rosbags.typesys import Stores, get_typestore
    store = get_typestore(Stores.ROS2_HUMBLE)

    def make(kind, **fields):
        return store.types[kind](**fields)

    def header(stamp):
        return make("std_msgs/msg/Header", frame_id="robot", stamp=make(
            "builtin_interfaces/msg/Time", sec=stamp // 10**9, nanosec=stamp % 10**9))

    topics = {
        "/joint_states": (100, "sensor_msgs/msg/JointState", lambda stamp, time: {
            "header": header(stamp), "name": ["shoulder", "elbow", "wrist"], "position": joints(time),
            "velocity": np.array([]), "effort": np.array([])}),
        "/command": (20, "std_msgs/msg/Float64MultiArray", lambda stamp, time: {
            "layout": make("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0), "data": joints(time + 0.05)}),
        "/camera": (30, "sensor_msgs/msg/CompressedImage", lambda stamp, time: {
            "header": header(stamp), "format": "jpeg", "data": np.frombuffer(jpeg(image(time)), np.uint8)}),
    }
    with open(path, "wb") as file:
        writer, messages = Writer(file), []
        writer.start("ros2", "example")
        for topic, (rate, kind, fields) in topics.items():
            schema = writer.register_schema(kind, "ros2msg", store.generate_msgdef(kind)[0].encode())
            channel = writer.register_channel(topic, "cdr", schema)
            for number in range(seconds * rate):
                if not (topic == "/camera" and 3 < number / rate < 3.4):
                    stamp = START + number * 10**9 // rate
                    content = make(kind, **fields(stamp, number / rate))
                    messages.append((stamp, channel, bytes(store.serialize_cdr(content, kind))))
        for number, (stamp, channel, data) in enumerate(sorted(messages)):
            writer.add_message(channel, stamp, data, stamp, number)
        writer.finish()


def write_lab(path, episodes=3):
    with h5py.File(path, "w") as file:
        for episode in range(episodes):
            run, times = file.create_group(f"run_{episode}"), np.arange(200) / 100
            swing = np.array([joints(time, episode) for time in times])
            half = swing[:, :1] / 2
            run["stamps"] = times + 1.7e9
            run["q"], run["cmd"] = np.resize(swing.T, (7, 200)).T, np.resize(swing.T, (7, 200)).T + 0.01
            run["tcp_quat"] = np.hstack([np.sin(half) / 3**0.5] * 3 + [np.cos(half)])
            run["force_t0"] = 1.7e9
            run["force"] = np.random.default_rng(episode).normal(size=(2000, 3))


def main():
    makers = {"aloha": write_aloha, "robomimic": write_robomimic, "lerobot": write_lerobot, "ros2": write_ros2, "lab": write_lab}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=makers)
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    makers[options.form](options.output)


if __name__ == "__main__":
    main()
