"""Ten small HDF5 files, each as some robotics lab might record it. Each function writes one file, or one folder, and returns its path.

Run as a program, this file writes all of them into a folder: lab_files.py FOLDER
"""
import pathlib
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from make_frame_files import jpeg, pad  # noqa: E402

MONDAY_S = 1_715_000_000.25  # 6 May 2024, in seconds since 1970


def stamps(random, rows, rate_hz, start_s=0.0, jitter=0.02):
    """Ascending times in seconds. The deviation of each is about `jitter` of a period."""
    return start_s + (np.arange(rows) + np.clip(jitter * random.normal(size=rows), -0.45, 0.45)) / rate_hz


def smooth(random, rows, columns, scale=1.0):
    """A random walk: joint angles, positions, forces."""
    return scale * (random.normal(size=columns) + np.cumsum(random.normal(size=(rows, columns)), axis=0) * 0.02)


def quaternions(random, rows, scalar="last"):
    """A slow rotation about a tilted axis. The scalar part is near 1 and keeps its sign."""
    angle = 0.2 + 0.3 * np.cumsum(np.abs(random.normal(size=rows))) / rows
    axis = np.array([0.36, 0.48, 0.8])
    vector, real = axis * np.sin(angle / 2)[:, None], np.cos(angle / 2)[:, None]
    return np.hstack([vector, real] if scalar == "last" else [real, vector])


def matrices(random, rows):
    """Poses as 4x4 matrices."""
    x, y, z, w = quaternions(random, rows).T
    out = np.zeros((rows, 4, 4))
    out[:, 0, :3] = np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], 1)
    out[:, 1, :3] = np.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], 1)
    out[:, 2, :3] = np.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], 1)
    out[:, :3, 3] = smooth(random, rows, 3, 0.3)
    out[:, 3, 3] = 1
    return out


def frames(rows):
    """JPEG frames of different sizes in bytes."""
    return [jpeg(size=380 + 17 * (i % 23)) for i in range(rows)]


def variable_frames(group, name, rows):
    dataset = group.create_dataset(name, (rows,), dtype=h5py.vlen_dtype(np.uint8))
    for i, frame in enumerate(frames(rows)):
        dataset[i] = np.frombuffer(frame, np.uint8)
    return dataset


def franka_station(path):
    """A Franka arm: one file an episode, robot state at 1 kHz in the controller's milliseconds, two cameras with host times."""
    random = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        file.attrs.update(date="2024-05-06", operator="jk", robot="panda_02", success=True,
                          language_instruction="put the red block into the bowl")
        state = file.create_group("robot_state")
        rows = 4000
        state["time_ms"] = (8_412_340 + np.arange(rows)).astype(np.uint64)  # since the controller booted
        for name, columns in {"q": 7, "dq": 7, "tau_J": 7, "K_F_ext_hat_K": 6}.items():
            state.create_dataset(name, data=smooth(random, rows, columns), chunks=(1000, columns), compression="lzf")
        state["O_T_EE"] = matrices(random, rows).transpose(0, 2, 1).reshape(rows, 16)  # column-major, as libfranka has it
        state["robot_mode"] = np.full(rows, 2, np.uint8)
        gripper = file.create_group("gripper")
        gripper["timestamp"] = stamps(random, 80, 20, MONDAY_S, 0.1)
        gripper["width"] = np.linspace(0.08, 0.02, 80)
        gripper["is_grasped"] = np.arange(80) > 50
        for name, rate_hz, rows in (("wrist", 30, 120), ("front", 15, 60)):
            camera = file.create_group(f"cameras/{name}")
            camera["timestamp"] = stamps(random, rows, rate_hz, MONDAY_S, 0.05)
            variable_frames(camera, "rgb", rows)
            camera.attrs["intrinsics"] = [[381.2, 0, 16], [0, 381.4, 12], [0, 0, 1]]
    return path


def rosbag_mobile(path):
    """A mobile robot: a ROS bag that a script turned into one group a topic, header stamps and receive times in nanoseconds."""
    random = np.random.default_rng(2)
    start_ns = int(MONDAY_S * 1e9)

    def topic(name, rate_hz, rows, jitter=0.05):
        group = topics.create_group(name)
        stamp_ns = start_ns + (stamps(random, rows, rate_hz, jitter=jitter) * 1e9).astype(np.int64)
        group["header_stamp"] = stamp_ns
        group["receive_time"] = stamp_ns + random.integers(200_000, 3_000_000, rows)
        group["frame_id"] = np.array([name.encode()] * rows, "S24")
        return group

    with h5py.File(path, "w") as file:
        file.attrs["bag"] = "corridor_2024-05-06-14-13-20.bag"
        topics = file.create_group("topics")
        odom = topic("odom", 50, 500)
        odom["pose_position"] = smooth(random, 500, 3)
        odom["pose_orientation"] = quaternions(random, 500)
        odom["twist_linear"] = smooth(random, 500, 3)
        imu = topic("imu_data", 200, 2000)
        imu["orientation"] = quaternions(random, 2000).astype(np.float32)
        imu["angular_velocity"] = smooth(random, 2000, 3).astype(np.float32)
        imu["linear_acceleration"] = smooth(random, 2000, 3).astype(np.float32)
        imu["orientation_covariance"] = np.tile(np.eye(3).ravel() * 1e-3, (2000, 1))
        scan = topic("scan", 10, 100)
        scan.create_dataset("ranges", data=np.abs(smooth(random, 100, 360)).astype(np.float32), compression="gzip")
        scan.attrs.update(angle_min=-3.14159, angle_max=3.14159, range_max=30.0)
        command = topic("cmd_vel", 12, 90, jitter=0.2)
        command["linear_x"] = smooth(random, 90, 1)[:, 0]
        command["angular_z"] = smooth(random, 90, 1)[:, 0]
        camera = topic("camera_color_image_compressed", 15, 150)
        variable_frames(camera, "data", 150)
        file["tf_static/base_to_laser"] = [0.2, 0.0, 0.31, 0.0, 0.0, 0.0, 1.0]
    return path


def bimanual_station(path):
    """Two UR arms: all episodes in one file, no times but a rate at the root, a gap in the numbers and an aborted episode."""
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        file.attrs.update(control_hz=25.0, schema="v3", robots=np.array([b"ur5e_left", b"ur5e_right"]))
        for number, rows in {0: 120, 1: 95, 2: 3, 5: 140}.items():
            episode = file.create_group(f"episodes/ep_{number:04d}")
            episode.attrs.update(success=rows > 3, aborted=rows == 3, operator="mh", seconds=rows / 25)
            for side in ("left", "right"):
                arm = episode.create_group(side)
                arm["joint_positions"] = smooth(random, rows, 6)
                arm["tcp_pose"] = smooth(random, rows, 6)  # position and rotation vector
                arm["gripper"] = random.integers(0, 256, rows).astype(np.uint8)
            episode["action"] = smooth(random, rows, 14).astype(np.float32)
            episode.create_dataset("images/top", data=random.integers(0, 255, (rows, 24, 32, 3)).astype(np.uint8),
                                   chunks=(1, 24, 32, 3), compression="gzip", compression_opts=4)
            episode["instruction"] = "fold the towel"
    return path


def tactile_hand(path):
    """A dexterous hand: trials with joints at 100 Hz, tactile arrays at 60 Hz, motion capture at 120 Hz that loses the object."""
    random = np.random.default_rng(4)
    with h5py.File(path, "w") as file:
        file.attrs["hand"] = "allegro_v4"
        file["taxel_layout"] = np.argwhere(np.ones((16, 16))).astype(np.int16)
        for trial in range(1, 6):
            group = file.create_group(f"trial_{trial}")
            group.attrs["object"] = ["mug", "drill", "cube"][trial % 3]
            rows = 300 + 20 * trial
            hand, tactile, mocap = (group.create_group(name) for name in ("hand", "tactile", "mocap"))
            hand["t_us"] = (stamps(random, rows, 100) * 1e6 + 900).astype(np.int64)
            hand["joint_pos"] = smooth(random, rows, 16).astype(np.float32)
            hand["joint_target"] = smooth(random, rows, 16).astype(np.float32)
            hand["motor_current_mA"] = random.integers(-400, 400, (rows, 16)).astype(np.int16)
            count = rows * 60 // 100
            tactile["t_us"] = (stamps(random, count, 60, jitter=0.1) * 1e6 + 9000).astype(np.int64)
            tactile.create_dataset("taxels", data=random.integers(0, 4096, (count, 5, 16, 16)).astype(np.uint16), compression="gzip")
            count = rows * 120 // 100
            mocap["t_us"] = (stamps(random, count, 120) * 1e6 + 4000).astype(np.int64)
            pose = np.hstack([smooth(random, count, 3), quaternions(random, count, "first")])
            pose[40:55] = np.nan  # occluded
            mocap["object_pose"] = pose
    return path


def flat_simulation(path):
    """A simulator: all steps of all episodes in one array a key, with terminals and timeouts as flags, as D4RL writes them."""
    random = np.random.default_rng(5)
    lengths = [200, 57, 200, 131, 200]
    rows = sum(lengths)
    ends = np.cumsum(lengths) - 1
    with h5py.File(path, "w") as file:
        file["observations"] = smooth(random, rows, 17).astype(np.float32)
        file["actions"] = np.tanh(smooth(random, rows, 6)).astype(np.float32)
        file["rewards"] = random.normal(size=rows).astype(np.float32)
        file["terminals"] = np.isin(np.arange(rows), [ends[1], ends[3]])
        file["timeouts"] = np.isin(np.arange(rows), [ends[0], ends[2], ends[4]])
        file["infos/qpos"] = smooth(random, rows, 9)
        file["infos/qvel"] = smooth(random, rows, 9)
        file["infos/action_log_probs"] = random.normal(size=rows)
        file["metadata/algorithm"] = "SAC"
        file["metadata/policy/fc0/weight"] = random.normal(size=(64, 17)).astype(np.float32)
        file["metadata/policy/fc0/bias"] = random.normal(size=64).astype(np.float32)
    return path


def vr_teleoperation(path):
    """Teleoperation with a VR headset: controller poses as 4x4 matrices at 72 Hz, a robot at 125 Hz, padded JPEG of two eyes."""
    random = np.random.default_rng(6)
    with h5py.File(path, "w") as file:
        session = file.create_group("session")
        session.attrs.update(user="p07", unity_version="2022.3.4f1")
        for number in (1, 2, 3, 4, 6, 7):
            demo = session.create_group(f"demos/demo{number}")
            start_ms = 51_000.0 + 9_000 * number  # milliseconds since the application started
            rows = 144
            vr = demo.create_group("quest")
            vr["time"] = 1e3 * stamps(random, rows, 72) + start_ms
            for name in ("head", "left_controller", "right_controller"):
                vr[name] = matrices(random, rows).astype(np.float32)
            vr["buttons"] = random.integers(0, 2, (rows, 6)).astype(bool)
            vr["trigger"] = random.uniform(size=(rows, 2)).astype(np.float32)
            robot = demo.create_group("robot")
            robot["time"] = 1e3 * stamps(random, 250, 125, jitter=0.01) + start_ms + 2.5
            robot["actual_q"] = smooth(random, 250, 6)
            robot["target_q"] = smooth(random, 250, 6)
            robot["actual_TCP_force"] = smooth(random, 250, 6)
            video = demo.create_group("zed")
            video["time"] = 1e3 * stamps(random, 60, 30, jitter=0.1) + start_ms + 11
            for eye in ("left", "right"):
                encoded = frames(60)
                video.create_dataset(eye, data=pad(encoded), chunks=True, compression="gzip")
                video[f"{eye}_size"] = np.array([len(frame) for frame in encoded], np.int32)
            demo.create_dataset("task", data="open the drawer", dtype=h5py.string_dtype())
    return path


def peg_insertion(path):
    """Insertion with a force sensor at 1 kHz and a robot at 500 Hz, seconds since the start, a table of events, calibrations."""
    random = np.random.default_rng(7)
    events = np.dtype([("time", "f8"), ("name", "S16")])
    with h5py.File(path, "w") as file:
        file["calibration/ft_matrix"] = np.eye(6) + 0.01 * random.normal(size=(6, 6))
        file["calibration/ft_bias"] = random.normal(size=6)
        file["calibration/tool_mass_kg"] = 0.412
        for number in range(4):
            group = file.create_group(f"insertion_{number:03d}")
            seconds = 1.5 + 0.25 * number
            count = int(1000 * seconds)
            group["ft_time"] = stamps(random, count, 1000, jitter=0.005)
            group.create_dataset("ft", data=smooth(random, count, 6).astype(np.float32), chunks=(256, 6), shuffle=True,
                                 compression="gzip", fletcher32=True)
            group["ft"].attrs["units"] = "N N N Nm Nm Nm"
            count //= 2
            group["robot_time"] = stamps(random, count, 500, 0.0007, 0.01)
            group["tcp"] = np.hstack([smooth(random, count, 3), quaternions(random, count)])
            group["tcp_target"] = np.hstack([smooth(random, count, 3), quaternions(random, count)])
            group["stiffness"] = np.tile([800.0, 800, 800, 40, 40, 40], (count, 1))
            group["in_contact"] = (np.arange(count) > count // 2).astype(np.int8)
            group["events"] = np.array([(0.4, b"approach"), (0.9, b"contact"), (1.3, b"inserted")], events)
            group["outcome"] = np.int32(number % 2)
    return path


def drone_flight(path):
    """A drone: a PX4 log as one file a flight, a group a topic, microseconds since boot, one column a value, wxyz quaternions."""
    random = np.random.default_rng(8)
    boot_us = 93_412_117

    def topic(name, rate_hz, seconds, jitter=0.1):
        rows = int(rate_hz * seconds)
        group = file.create_group(name)
        group["timestamp"] = (boot_us + stamps(random, rows, rate_hz, jitter=jitter) * 1e6).astype(np.uint64)
        return group, rows

    with h5py.File(path, "w") as file:
        file.attrs.update(sys_name="PX4", ver_hw="PX4_FMU_V5", time_ref_utc=np.int32(0))
        attitude, rows = topic("vehicle_attitude_0", 100, 12)
        for i, values in enumerate(quaternions(random, rows, "first").astype(np.float32).T):
            attitude[f"q[{i}]"] = values
        sensors, rows = topic("sensor_combined_0", 250, 12)
        for name in ("gyro_rad", "accelerometer_m_s2"):
            for i in range(3):
                sensors[f"{name}[{i}]"] = smooth(random, rows, 1)[:, 0].astype(np.float32)
        position, rows = topic("vehicle_local_position_0", 50, 12)
        for name in ("x", "y", "z", "vx", "vy", "vz", "heading"):
            position[name] = smooth(random, rows, 1)[:, 0].astype(np.float32)
        position["xy_valid"] = np.ones(rows, np.uint8)
        outputs, rows = topic("actuator_outputs_0", 20, 12)
        outputs["output"] = (1000 + 500 * random.uniform(size=(rows, 8))).astype(np.float32)
        battery, rows = topic("battery_status_0", 1, 12, jitter=0.01)
        battery["voltage_v"] = np.linspace(16.4, 15.9, rows).astype(np.float32)
        file["parameters/MC_ROLL_P"] = np.float32(6.5)
        file["parameters/MC_PITCH_P"] = np.float32(6.5)
    return path


def quadruped_rollouts(path):
    """A quadruped policy in simulation: T actions and T+1 states, a step length as an attribute, contacts, instructions a step."""
    random = np.random.default_rng(9)
    with h5py.File(path, "w") as file:
        file.attrs.update(dt=0.02, num_envs=8, task="Anymal-C-Rough")
        for number in range(8):
            rows = 150 + 10 * number
            group = file.create_group(f"rollouts/{number}")
            group.attrs.update(seed=number, terrain_level=np.int64(number // 2), fell=number == 5)
            obs = group.create_group("obs")
            obs["base_pos"] = smooth(random, rows + 1, 3).astype(np.float32)
            obs["base_quat"] = quaternions(random, rows + 1).astype(np.float32)
            obs["base_lin_vel"] = smooth(random, rows + 1, 3).astype(np.float32)
            obs["joint_pos"] = smooth(random, rows + 1, 12).astype(np.float32)
            obs["joint_vel"] = smooth(random, rows + 1, 12).astype(np.float32)
            obs["foot_contacts"] = random.integers(0, 2, (rows + 1, 4)).astype(bool)
            obs["height_scan"] = smooth(random, rows + 1, 187).astype(np.float16)
            obs["command"] = np.tile(np.float32([0.8, 0.0, 0.1]), (rows + 1, 1))
            group["actions"] = smooth(random, rows, 12).astype(np.float32)
            group["rewards"] = random.normal(size=rows).astype(np.float32)
            group["dones"] = np.arange(rows) == rows - 1
            group["language"] = np.array(["walk to the stairs"] * rows, dtype=object)
    return path


def xarm_folder(path):
    """An xArm with a RealSense camera: a folder with one file an episode, host times at 15 Hz, aligned depth, JPEG as strings."""
    random = np.random.default_rng(10)
    path.mkdir(exist_ok=True)
    for number, rows in enumerate((75, 60, 90)):
        start_s = MONDAY_S + 40 * number
        with h5py.File(path / f"episode_{number:03d}.h5", "w") as file:
            file["timestamps"] = stamps(random, rows, 15, start_s, 0.08)
            file["observations/color_jpg"] = np.array(frames(rows), "S800")
            file.create_dataset("observations/depth", data=random.integers(300, 2000, (rows, 24, 32)).astype(np.uint16),
                                chunks=(1, 24, 32), compression="gzip")
            file["observations/joint_angles"] = smooth(random, rows, 7)
            file["observations/ee_pos"] = smooth(random, rows, 3)
            file["observations/ee_quat_wxyz"] = quaternions(random, rows, "first")
            file["observations/gripper_open"] = np.arange(rows) < rows // 2
            file["actions/delta_ee"] = 0.01 * smooth(random, rows, 7)
            file["camera/K"] = [[612.1, 0, 16], [0, 612.0, 12], [0, 0, 1]]
            file["camera/T_base_cam"] = np.eye(4)
            file["camera/depth_scale"] = 0.001
            file["instruction"] = b"stack the cups"
            file["high_rate/t"] = stamps(random, rows * 20 // 3, 100, start_s, 0.02)
            file["high_rate/joint_torque"] = smooth(random, rows * 20 // 3, 7)
    return path


LABS = (franka_station, rosbag_mobile, bimanual_station, tactile_hand, flat_simulation, vr_teleoperation, peg_insertion, drone_flight,
        quadruped_rollouts, xarm_folder)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for lab in LABS:
        lab(folder / (lab.__name__ if lab is xarm_folder else f"{lab.__name__}.h5"))


if __name__ == "__main__":
    main()
