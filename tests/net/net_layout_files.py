"""Writes small files of each shipped layout. The functions have the layouts' names; each writes
below its own folder."""

import json

import h5py
import numpy as np
from net_draw import jpeg, png
from net_special_files import EPOCH_NS, pad_rows, write_vlen

LENGTHS = (37, 21, 48)


def write_layout_files(folder, draw):
    """Calls one function per layout."""
    for name, write in WRITERS.items():
        (folder / name).mkdir(parents=True)
        write(folder / name, draw)


def demos(path, draw, write, lengths=LENGTHS, group="data/demo_{}", **attributes):
    with h5py.File(path, "w") as file:
        for number, rows in enumerate(lengths):
            write(file.create_group(group.format(number)), draw, rows)
        for name, value in attributes.items():
            (file["data"] if "data" in file else file).attrs[name] = value


def episode_files(folder, draw, write, name="episode_{}.hdf5", lengths=LENGTHS):
    for number, rows in enumerate(lengths):
        path = folder / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            write(file, draw, rows)


def env_args(rate=20):
    return json.dumps({"env_name": "Net", "env_kwargs": {"control_freq": rate}})


def robomimic(folder, draw):
    def write(demo, draw, rows):
        for place in ("obs", "next_obs"):
            demo[f"{place}/robot0_eef_pos"] = draw.walk(rows, 3)
            demo[f"{place}/robot0_eef_quat"] = draw.quaternions(rows)
            demo[f"{place}/robot0_eef_quat_site"] = draw.quaternions(rows).astype("f4")
            demo[f"{place}/object"] = draw.uniform(rows, 10)
            demo[f"{place}/agentview_depth"] = draw.uniform(rows, 16, 16, 1).astype("f4")
            demo.create_dataset(
                f"{place}/agentview_image",
                data=draw.images(rows, 84, 84),
                chunks=(1, 84, 84, 3),
                compression="gzip",
            )
        demo["actions"], demo["actions_abs"] = draw.uniform(rows, 7), draw.walk(rows, 7)
        demo["rewards"], demo["dones"], demo["states"] = (
            draw.uniform(rows),
            np.zeros(rows, "i8"),
            draw.walk(rows, 5),
        )
        demo["action_dict/rel_pos"] = draw.uniform(rows, 3)
        demo["obs/cube_orientations"] = draw.quaternions(rows)

    demos(folder / "image.hdf5", draw, write, (30, 14), env_args=env_args())
    with h5py.File(folder / "image.hdf5", "a") as file:
        file["mask/train"] = np.array(["demo_0"], dtype="S")


def libero(folder, draw):
    def write(demo, draw, rows):
        demo["actions"], demo["robot_states"] = draw.uniform(rows, 7), draw.uniform(rows, 9)
        demo["states"], demo["rewards"], demo["dones"] = (
            draw.walk(rows, 6),
            np.zeros(rows, "u1"),
            np.zeros(rows, "u1"),
        )
        for name, columns in {
            "ee_ori": 3,
            "ee_states": 6,
            "ee_pos": 3,
            "gripper_states": 2,
            "joint_states": 7,
        }.items():
            demo[f"obs/{name}"] = draw.walk(rows, columns)
        demo["obs/agentview_rgb"], demo["obs/eye_in_hand_rgb"] = draw.images(
            rows, 32, 32
        ), draw.images(rows, 32, 32)

    for number in range(2):
        demos(
            folder / f"task_{number}_demo.hdf5",
            draw,
            write,
            (20 + number, 16),
            env_args=env_args(),
            problem_info=json.dumps({"language_instruction": f"put bowl {number} down"}),
        )


def mimicgen(folder, draw):
    def write(demo, draw, rows):
        demo["actions"], demo["rewards"], demo["dones"] = (
            draw.uniform(rows, 7),
            np.zeros(rows),
            np.zeros(rows, "i8"),
        )
        demo["states/articulation"] = draw.walk(rows, 6)
        for name in ("eef_pose", "target_pose", "object_poses/cube"):
            demo[f"datagen_info/{name}"] = draw.uniform(rows, 4, 4)
        demo["datagen_info/gripper_action"] = draw.uniform(rows, 1)
        demo["datagen_info/subtask_term_signals/grasp"] = draw.integers(0, 2, rows)
        demo["obs/robot0_eef_pos"], demo["obs/robot0_eef_quat"] = draw.walk(
            rows, 3
        ), draw.quaternions(rows)
        demo["obs/agentview_image"] = draw.images(rows, 24, 24)
        demo["next_obs/robot0_eef_pos"] = draw.walk(rows, 3)

    demos(folder / "demo.hdf5", draw, write, env_args=env_args())


def isaaclab(folder, draw):
    def write(demo, draw, rows):
        demo["actions"], demo["processed_actions"] = draw.uniform(rows, 7).astype(
            "f4"
        ), draw.uniform(rows, 7).astype("f4")
        demo["obs/eef_quat"], demo["obs/eef_pos"] = draw.quaternions(rows).astype("f4"), draw.walk(
            rows, 3
        ).astype("f4")
        demo["obs/cube_orientations"] = np.hstack(
            [draw.quaternions(rows) for _ in range(3)]
        ).astype("f4")
        demo["obs/table_cam"] = draw.images(rows, 24, 24)
        demo["obs/datagen_info/eef_pose/arm"] = draw.uniform(rows, 4, 4)
        for name in ("articulation/robot", "rigid_object/cube_1"):
            demo[f"states/{name}/root_pose"] = np.hstack(
                [draw.walk(rows, 3), draw.quaternions(rows)]
            ).astype("f4")
            demo[f"states/{name}/root_velocity"] = draw.walk(rows, 6).astype("f4")
        demo["states/articulation/robot/joint_position"] = draw.walk(rows, 9).astype("f4")
        demo["states/articulation/robot/joint_velocity"] = draw.walk(rows, 9).astype("f4")
        demo["initial_state/articulation/robot/root_pose"] = draw.uniform(1, 7)

    demos(
        folder / "dataset.hdf5",
        draw,
        write,
        env_args=json.dumps({"env_name": "Isaac-Net", "type": 2}),
        total=3,
    )


def maniskill(folder, draw):
    def write(demo, draw, rows):
        demo["actions"] = draw.uniform(rows, 7).astype("f4")
        for name in ("rewards", "terminated", "truncated", "success", "fail"):
            demo[name] = (
                draw.uniform(rows).astype("f4")
                if name == "rewards"
                else draw.integers(0, 2, rows).astype(bool)
            )
        demo["obs/agent/qpos"], demo["obs/extra/tcp_pose"] = draw.walk(rows + 1, 9), draw.uniform(
            rows + 1, 7
        )
        demo["obs/sensor_data/base_camera/rgb"] = draw.images(rows + 1, 24, 24)
        demo["obs/sensor_data/base_camera/depth"] = (
            draw.integers(0, 3000, rows + 1, 24, 24, 1).astype("i2").astype("u2")
        )
        demo["obs/sensor_param/base_camera/intrinsic_cv"] = draw.uniform(rows + 1, 3, 3)
        demo["env_states/actors/cube"] = draw.uniform(rows + 1, 13)

    demos(folder / "trajectory.h5", draw, write, group="traj_{}")
    entries = [
        {"episode_id": n, "success": bool(n % 2), "control_mode": "pd_ee"}
        for n in range(len(LENGTHS))
    ]
    (folder / "trajectory.json").write_text(json.dumps({"episodes": entries}))


def minari(folder, draw):
    def write(demo, draw, rows):
        demo["actions"], demo["rewards"] = draw.uniform(rows, 4).astype("f4"), draw.uniform(rows)
        demo["terminations"], demo["truncations"] = (
            np.zeros(rows, bool),
            np.arange(rows) == rows - 1,
        )
        demo["observations/achieved_goal"], demo["observations/observation"] = draw.walk(
            rows + 1, 3
        ), draw.walk(rows + 1, 8)
        demo["infos/success"] = np.zeros(rows + 1, bool)  # gymnasium's reset has one, too
        demo.attrs["id"], demo.attrs["total_steps"] = 1, rows

    demos(folder / "main_data.hdf5", draw, write, group="episode_{}")


def minari_jpeg(folder, draw):
    def write(demo, draw, rows):
        demo["actions"], demo["rewards"] = draw.uniform(rows, 2).astype("f4"), draw.uniform(rows)
        write_vlen(demo, "observations", [jpeg(draw, 24, 32) for _ in range(rows + 1)])

    demos(folder / "main_data.hdf5", draw, write, (14, 9), group="episode_{}")


def droid_im(folder, draw):
    def write(file, draw, rows):
        for camera in ("hand_camera_left_image", "varied_camera_1_left_image"):
            frames = draw.images(rows, 128, 128)
            frames[3] = 0
            file.create_dataset(
                f"observation/camera/image/{camera}",
                data=frames,
                chunks=(1, 128, 128, 3),
                compression="gzip",
            )
        file["observation/robot_state/cartesian_position"] = draw.walk(rows, 6).astype("f4")
        file["observation/robot_state/joint_positions"] = draw.walk(rows, 7).astype("f4")
        file["action/joint_velocity"] = draw.uniform(rows, 7)

    episode_files(folder, draw, write, "ep{}/trajectory_im128.h5", (14, 9))


def droid_raw(folder, draw):
    def write(file, draw, rows):
        start = EPOCH_NS // 10**6
        for name, later in {"robot_state/read_end": 0, "control/control_start": 5}.items():
            file[f"observation/timestamp/{name}"] = (
                draw.stamps(rows, 15, 0.2) // 10**6 + start + later
            )
        file["observation/timestamp/skip_action"] = draw.integers(0, 4, rows) == 0
        for name, columns in {
            "joint_positions": 7,
            "cartesian_position": 6,
            "joint_velocities": 7,
            "motor_torques_measured": 7,
            "prev_command_successful": 1,
        }.items():
            file[f"observation/robot_state/{name}"] = draw.walk(rows, columns)
        file["observation/robot_state/gripper_position"] = draw.uniform(rows)
        file["observation/controller_info/latency"] = draw.uniform(rows)
        file["action/joint_velocity"] = draw.uniform(rows, 7)

    episode_files(folder, draw, write, "ep{}/trajectory.h5")


def aloha(folder, draw):
    def write(file, draw, rows):
        file.attrs["sim"], file.attrs["compress"] = False, True
        file["action"], file["base_action"] = draw.uniform(rows, 14).astype("f4"), draw.uniform(
            rows, 2
        ).astype("f4")
        for name in ("qpos", "qvel", "effort"):
            file[f"observations/{name}"] = draw.walk(rows, 14).astype("f4")
        file["observations/images/top"] = draw.images(rows, 48, 64)
        file["observations/images/wrist"] = pad_rows([jpeg(draw, 48, 64) for _ in range(rows)])

    episode_files(folder, draw, write, lengths=(33, 18, 25))


def robomind(folder, draw):
    def write(file, draw, rows):
        file["puppet/joint_position"], file["puppet/end_effector"] = draw.walk(
            rows, 8
        ), draw.uniform(rows, 6)
        file["master/joint_position"] = draw.walk(rows, 8)
        write_vlen(
            file, "observations/rgb_images/camera_top", [jpeg(draw, 24, 32) for _ in range(rows)]
        )
        write_vlen(
            file,
            "observations/depth_images/camera_top",
            [png(draw.integers(0, 3000, 24, 32).astype("u2")) for _ in range(rows)],
        )

    episode_files(folder, draw, write, "ep{}/trajectory.hdf5", (17, 11))


def robotwin(folder, draw):
    def write(file, draw, rows):
        file["additional_info/frequency"] = np.int32(15)
        for name in ("left_arm", "right_arm"):
            file[f"joint_action/{name}"] = draw.walk(rows, 6)
        file["joint_action/left_gripper"] = draw.uniform(rows)
        file["endpose/left_endpose"] = draw.uniform(rows, 7)
        for camera in ("head_camera", "left_camera"):
            frames = [jpeg(draw, 24, 32) for _ in range(rows)]
            file[f"observation/{camera}/rgb"] = np.array(frames, dtype=f"S{max(map(len, frames))}")
            file[f"observation/{camera}/intrinsic_cv"] = draw.uniform(rows, 3, 3)

    episode_files(folder, draw, write, "data/episode{}.hdf5", (17, 11))
    (folder / "instructions").mkdir()
    for number in range(2):
        (folder / f"instructions/episode{number}.json").write_text(
            json.dumps({"seen": [f"lift {number}", "raise it"]})
        )


def robosuite_raw(folder, draw):
    def write(demo, draw, rows):
        states = draw.walk(rows, 12)
        states[:, 0] = draw.stamps(rows, 50, 0.4, 10**8) / 1e9
        states[9, 0] = states[8, 0]
        demo["states"], demo["actions"] = states, draw.uniform(rows, 7)
        demo["joint_torques"], demo["gripper_actuations"] = draw.walk(rows, 7), draw.uniform(
            rows, 1
        )
        demo["right_dpos"], demo["right_dquat"] = draw.uniform(rows, 3), draw.quaternions(rows)
        demo.attrs["model_file"] = "net.xml"

    demos(folder / "demo.hdf5", draw, write, env="SawyerNet", date="8-30-2018")


def demo(folder, draw):
    def write(group, draw, rows):
        start = int(draw.integers(0, 10**9))
        group["step_t0"] = np.int64(start)
        for name, rate in {"joint": 250, "pose": 100, "gripper": 30}.items():
            group[f"{name}_t"] = draw.stamps(int(rows / 20 * rate), rate, 0.5, start + 2_000_000)
        group["joint_pos"] = draw.walk(len(group["joint_t"]), 7, 0.2)
        group["pose_pos"] = draw.walk(len(group["pose_t"]), 3).astype("f4")
        group["pose_quat"] = draw.quaternions(len(group["pose_t"]))
        group["gripper_cmd"] = draw.uniform(len(group["gripper_t"]), 1).astype("f4")
        group["actions"], group["rewards"], group["dones"] = (
            draw.uniform(rows, 7),
            np.zeros(rows),
            np.zeros(rows, "i8"),
        )
        group["obs/robot0_eef_pos"], group["obs/robot0_eef_quat"] = draw.walk(
            rows, 3
        ), draw.quaternions(rows)
        group["obs/robot0_gripper_qpos"] = draw.walk(rows, 2)
        group["obs/object"] = np.hstack(
            [draw.walk(rows, 3), draw.quaternions(rows), draw.uniform(rows, 3)]
        )
        group["obs/agentview_image"] = draw.images(rows, 24, 24)

    demos(folder / "demo.hdf5", draw, write, (60, 33, 81), env_args=env_args())
    with h5py.File(folder / "demo.hdf5", "a") as file:
        file["mask/train"] = np.array(["demo_0", "demo_2"], dtype="S")


WRITERS = {
    write.__name__: write
    for write in (
        robomimic,
        libero,
        mimicgen,
        isaaclab,
        maniskill,
        minari,
        minari_jpeg,
        droid_im,
        droid_raw,
        aloha,
        robomind,
        robotwin,
        robosuite_raw,
        demo,
    )
}
# each layout with a file, or with a folder of files, that it reads
LAYOUTS = {
    **{name: name for name in WRITERS},
    "robomimic@1": "robomimic",
    **dict.fromkeys(("aloha", "aloha@1"), "aloha/episode_0.hdf5"),
    "robomind": "robomind/ep0/trajectory.hdf5",
    **dict.fromkeys(("robotwin", "robotwin_bgr"), "robotwin/data/episode0.hdf5"),
    "droid_im": "droid_im/ep0/trajectory_im128.h5",
    "droid_raw": "droid_raw/ep0/trajectory.h5",
}
