"""Files of public families, small, with the dtypes, chunks and attributes of their own writers."""
import json
import struct

import h5py
import numpy as np

T = 12  # rows of an episode


def random(shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed + len(shape)).normal(size=shape).astype(dtype)


def pixels(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 255, shape, dtype=np.uint8)


def quaternions(rows, columns=4):
    poses = random((rows, columns))
    poses[:, -4:] /= np.linalg.norm(poses[:, -4:], axis=1, keepdims=True)
    return poses


def jpeg(height, width, size):
    """Returns a JPEG header with noise behind it, which nothing decodes."""
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"\x01\x11\x00" * 3
    noise = np.random.default_rng(size).integers(1, 255, size, dtype=np.uint8).tobytes()
    return b"\xff\xd8\xff\xc0" + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xda" + noise + b"\xff\xd9"


def png(height, width, size):
    head = struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + b"IHDR" + head + bytes(4) + bytes([7]) * size


def jpegs(rows, height=48, width=64):
    return [jpeg(height, width, 300 + 37 * i) for i in range(rows)]


def pad(rows):
    width = max(map(len, rows))
    return np.array([np.frombuffer(row.ljust(width, b"\0"), np.uint8) for row in rows])


def variable(group, name, rows):
    dataset = group.create_dataset(name, (len(rows),), dtype=h5py.vlen_dtype(np.uint8))
    for i, row in enumerate(rows):
        dataset[i] = np.frombuffer(row, np.uint8)


def aloha(path, compress=False):
    """record_sim_episodes.py of ACT, record_episodes.py of Mobile ALOHA."""
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = not compress
        images = file.create_group("observations/images")
        if compress:
            file.attrs["compress"] = True
            for camera in ("cam_high", "cam_left_wrist", "cam_right_wrist"):
                data = pad(jpegs(T))
                images.create_dataset(camera, data=data, chunks=(1, data.shape[1]))
            file.create_dataset("compress_len", data=np.full((3, T), 700, np.float32))
            file.create_dataset("base_action", data=random((T, 2), np.float32))
        else:
            for camera in ("cam_high", "top"):
                images.create_dataset(camera, data=pixels((T, 48, 64, 3)), chunks=(1, 48, 64, 3))
        for name in ("action", "observations/qpos", "observations/qvel", "observations/effort"):
            file.create_dataset(name, data=random((T, 14), np.float32))


def robotwin(path):
    """pkl2hdf5.py: JPEGs as fixed strings as long as the longest one, in contiguous storage."""
    with h5py.File(path, "w") as file:
        file["additional_info/frequency"] = np.int32(15)
        for name, columns in (("left_arm", 6), ("right_arm", 6), ("left_gripper", 0), ("right_gripper", 0), ("vector", 14)):
            file[f"joint_action/{name}"] = random((T, columns) if columns else (T,))
        for arm in ("left", "right"):
            file[f"endpose/{arm}_endpose"] = quaternions(T, 7)
        for camera in ("head_camera", "left_camera"):
            file[f"observation/{camera}/rgb"] = np.array(jpegs(T), dtype=f"S{max(map(len, jpegs(T)))}")
            file[f"observation/{camera}/intrinsic_cv"] = random((T, 3, 3), np.float32)


def robomind(path):
    with h5py.File(path, "w") as file:
        for side in ("master", "puppet"):
            file[f"{side}/joint_position"] = random((T, 8))
            file[f"{side}/end_effector"] = random((T, 6))
        for camera in ("camera_left", "camera_top"):
            rows = jpegs(T)
            rows[5] = pixels((48, 64, 3)).tobytes()  # "very few were stored uncompressed"
            variable(file.require_group("observations/rgb_images"), camera, rows)
            variable(file.require_group("observations/depth_images"), camera, [png(48, 64, 100 + i) for i in range(T)])


def demos(path, count, write, **attributes):
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        for number in range(count):
            demo = data.create_group(f"demo_{number}")
            write(demo, T + number)
            demo.attrs["num_samples"] = T + number
        data.attrs.update(attributes)


ENVIRONMENT = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": 20}})


def libero(path):
    """create_dataset.py: images upside down, as macros_image_convention says."""
    def write(demo, rows):
        for name, shape in (("actions", 7), ("states", 47), ("robot_states", 9)):
            demo[name] = random((rows, shape))
        demo["rewards"] = demo["dones"] = (np.arange(rows) == rows - 1).astype(np.uint8)
        for name, columns in (("gripper_states", 2), ("joint_states", 7), ("ee_states", 6), ("ee_pos", 3), ("ee_ori", 3)):
            demo[f"obs/{name}"] = random((rows, columns))
        for camera in ("agentview_rgb", "eye_in_hand_rgb"):
            demo[f"obs/{camera}"] = pixels((rows, 16, 16, 3))
        demo.attrs["init_state"] = random((47,))
    demos(path, 2, write, env_args=ENVIRONMENT, macros_image_convention="opengl",
          problem_info=json.dumps({"language_instruction": "pick up the can"}))


def robomimic(path):
    def write(demo, rows):
        demo["actions"] = random((rows, 7))
        for name, columns in (("robot0_eef_pos", 3), ("object", 10)):
            demo[f"obs/{name}"] = random((rows, columns))
        demo["obs/robot0_eef_quat"] = quaternions(rows)
        demo.create_dataset("obs/agentview_image", data=pixels((rows, 84, 84, 3)), compression="gzip")
    demos(path, 2, write, env_args=ENVIRONMENT)


def mimicgen(path):
    """file_utils.py: observations are compressed, the rest is not; `states` may be a group."""
    def write(demo, rows):
        demo["actions"] = random((rows, 7))
        demo["states/robot"] = random((rows, 7))
        demo.create_dataset("obs/robot0_eef_quat", data=quaternions(rows), compression="gzip")
        demo.create_dataset("obs/agentview_image", data=pixels((rows, 16, 16, 3)), compression="gzip")
        for name in ("eef_pose", "target_pose", "object_poses/cube"):
            demo[f"datagen_info/{name}"] = random((rows, 4, 4))
        demo["datagen_info/gripper_action"] = random((rows, 1))
        demo["datagen_info/subtask_term_signals/grasp"] = np.zeros(rows, np.int64)
        demo.attrs["src_demo_inds"] = np.arange(3)
    demos(path, 2, write, env_args=ENVIRONMENT, timestamp=1.7e9)


def isaaclab(path):
    """hdf5_dataset_file_handler.py: nested states, float32, bool as enum, gzip on everything; demo_1 was deleted."""
    def write(demo, rows):
        def put(name, data):
            demo.create_dataset(name, data=data, compression="gzip")
        put("actions", random((rows, 7), np.float32))
        put("obs/eef_pos", random((rows, 3), np.float32))
        put("obs/eef_quat", quaternions(rows).astype(np.float32))
        put("obs/table_cam", pixels((rows, 8, 8, 3)))
        put("obs/datagen_info/eef_pose/robot", random((rows, 4, 4), np.float32))
        put("obs/datagen_info/subtask_term_signals/grasp", np.zeros(rows, bool))
        for group, first in (("initial_state", 1), ("states", rows)):
            put(f"{group}/articulation/robot/joint_position", random((first, 9), np.float32))
            put(f"{group}/articulation/robot/root_pose", quaternions(first, 7).astype(np.float32))
            put(f"{group}/rigid_object/cube_1/root_pose", quaternions(first, 7).astype(np.float32))
        demo.attrs["success"] = True
    demos(path, 3, write, env_args=json.dumps({"env_name": "Isaac-Stack-Cube", "type": 2}), total=3901)
    with h5py.File(path, "r+") as file:
        del file["data/demo_1"]


def maniskill(path):
    """record.py: header version 2, T+1 observations, gzip 5 on images."""
    with h5py.File(path, "w", track_order=True) as file:
        for number in (0, 1, 10):
            rows = T + number
            traj = file.create_group(f"traj_{number}", track_order=True)
            traj["actions"] = random((rows, 8), np.float32)
            for name in ("terminated", "truncated", "success", "fail"):
                traj[name] = np.arange(rows) == rows - 1
            traj["obs/agent/qpos"] = random((rows + 1, 9), np.float32)
            traj["obs/extra/tcp_pose"] = random((rows + 1, 7), np.float32)
            traj["env_states/actors/cube"] = random((rows + 1, 13), np.float32)
            camera = traj.create_group("obs/sensor_data/base_camera")
            camera.create_dataset("rgb", data=pixels((rows + 1, 16, 16, 3)), compression="gzip", compression_opts=5)
            camera.create_dataset("depth", data=np.ones((rows + 1, 16, 16, 1), np.uint16), compression="gzip", compression_opts=5)


def minari(path, images=None):
    """hdf5_storage.py: chunked, without a largest shape; T+1 observations and infos. Images are padded or of variable length."""
    with h5py.File(path, "w", track_order=True) as file:
        for number in range(2):
            episode = file.create_group(f"episode_{number}", track_order=True)
            episode.attrs.update(id=number, total_steps=T, seed=42)

            def put(name, data):
                episode.create_dataset(name, data=data, chunks=True, maxshape=(None, *data.shape[1:]))
            put("actions", random((T, 2), np.float32))
            put("rewards", random((T,)))
            for name in ("terminations", "truncations"):
                put(name, np.arange(T) == T - 1)
            put("infos/success", np.zeros(T + 1, bool))
            if images == "padded":
                put("observations", pad([jpeg(48, 64, 700)] * (T + 1)))
            elif images:
                variable(episode, "observations", jpegs(T + 1))
            else:
                put("observations/observation", random((T + 1, 4)))
                put("observations/desired_goal", random((T + 1, 2)))


def grow(file, name, data):
    """trajectory_writer.py: a dataset that is one row longer with each step, so each row is a chunk."""
    dataset = file.create_dataset(name, (1, *data.shape[1:]), dtype=data.dtype, maxshape=(None, *data.shape[1:]))
    dataset.resize(len(data), axis=0)
    dataset[...] = data


def droid_raw(path):
    with h5py.File(path, "w") as file:
        file.attrs.update(success=True, failure=False)
        start = 1_690_000_000_000 + np.cumsum([0, 61, 70, 66, 80, 66, 66, 59, 70, 66, 67, 66])
        state = "observation/robot_state"
        for name, columns in (("joint_positions", 7), ("joint_velocities", 7), ("cartesian_position", 6), ("motor_torques_measured", 7)):
            grow(file, f"{state}/{name}", random((T, columns)))
        grow(file, f"{state}/gripper_position", np.linspace(0, 1, T))
        grow(file, f"{state}/prev_command_successful", np.ones(T, bool))
        grow(file, "observation/timestamp/skip_action", np.arange(T) < 3)
        grow(file, "observation/timestamp/robot_state/robot_timestamp_seconds", start // 1000)
        grow(file, "observation/timestamp/robot_state/robot_timestamp_nanos", start % 1000 * 1_000_000)
        for name, after in (("robot_state/read_start", 1), ("robot_state/read_end", 2), ("control/step_start", 0), ("control/control_start", 12),
                            ("cameras/123_left_estimated_capture", -30)):
            grow(file, f"observation/timestamp/{name}", start + after)
        for name, columns in (("joint_position", 7), ("cartesian_velocity", 6)):
            grow(file, f"action/{name}", random((T, columns)))
        grow(file, "action/gripper_position", np.linspace(0, 1, T))


def droid_im(path):
    """convert_droid.py: images of 128x128; a frame that could not be read is all zeros."""
    with h5py.File(path, "w") as file:
        for camera in ("hand_camera_left_image", "varied_camera_1_left_image"):
            data = pixels((T, 128, 128, 3))
            data[3] = 0
            file.create_dataset(f"observation/camera/image/{camera}", data=data, compression="gzip")
        grow(file, "observation/robot_state/cartesian_position", random((T, 6)))
        grow(file, "action/joint_position", random((T, 7)))
