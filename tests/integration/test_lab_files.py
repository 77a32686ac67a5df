"""Ten files that labs might record (tests/support/lab_files.py): inspect, the draft of a layout and check.

What the drafts find is compared with what the generators wrote. BY_HAND states what remains for the user.
"""
import json
import re
import subprocess

import h5py
import pytest
import yaml

import lab_files
from paths import TRAJCTL

# Of each file: the episodes; the clocks as (unit, Hz); kinds of streams, with a note where the line must be marked as a guess.
EXPECTED = {
    "franka_station": (1, {"robot_state_time_ms": ("ms", 1000), "gripper_timestamp": ("s", 20), "cameras_wrist_timestamp": ("s", 30),
                           "cameras_front_timestamp": ("s", 15)},
                       {"robot_state/q": "linear", "robot_state/O_T_EE": "previous matrices", "robot_state/robot_mode": "previous",
                        "gripper/is_grasped": "previous", "cameras/wrist/rgb": "previous images"}),
    "rosbag_mobile": (1, {"topics_odom_header_stamp": ("ns", 50), "topics_imu_data_header_stamp": ("ns", 200),
                          "topics_scan_header_stamp": ("ns", 10), "topics_cmd_vel_header_stamp": ("ns", 12),
                          "topics_camera_color_image_compressed_header_stamp": ("ns", 15)},
                      {"topics/odom/pose_position": "linear", "topics/odom/pose_orientation": "slerp xyzw", "topics/scan/ranges": "linear",
                       "topics/cmd_vel/linear_x": "previous", "topics/camera_color_image_compressed/data": "previous images"}),
    "bimanual_station": (4, {"steps": (None, 25)},
                         {"action": "previous", "left/tcp_pose": "linear", "left/gripper": "previous", "images/top": "previous images"}),
    "tactile_hand": (5, {"hand_t_us": ("us", 100), "tactile_t_us": ("us", 60), "mocap_t_us": ("us", 120)},
                     {"hand/joint_pos": "linear", "hand/joint_target": "previous", "tactile/taxels": "previous",
                      "mocap/object_pose_0_3": "linear", "mocap/object_pose_3_7": "slerp xyzw"}),
    "flat_simulation": (5, {"steps": (None, 20)}, {"observations": "linear", "actions": "previous", "rewards": "previous"}),
    "vr_teleoperation": (6, {"quest_time": ("ms", 72), "robot_time": ("ms", 125), "zed_time": ("ms", 30)},
                         {"quest/head": "previous matrices", "quest/buttons": "previous", "robot/actual_q": "linear",
                          "robot/target_q": "previous", "zed/left": "previous images"}),
    "peg_insertion": (4, {"ft_time": ("s", 1000), "robot_time": ("s", 500)},
                      {"ft": "linear", "tcp_0_3": "linear", "tcp_3_7": "slerp xyzw", "tcp_target": "previous", "in_contact": "previous"}),
    "drone_flight": (1, {"vehicle_attitude_0_timestamp": ("us", 100), "sensor_combined_0_timestamp": ("us", 250),
                         "vehicle_local_position_0_timestamp": ("us", 50), "actuator_outputs_0_timestamp": ("us", 20),
                         "battery_status_0_timestamp": ("us", 1)},
                     {"sensor_combined_0/gyro_rad[0]": "linear", "vehicle_local_position_0/xy_valid": "previous"}),
    "quadruped_rollouts": (8, {"steps": (None, 50)},
                           {"actions": "previous", "obs/base_quat": "slerp xyzw", "obs/joint_pos": "linear", "obs/height_scan": "linear",
                            "obs/foot_contacts": "previous", "dones": "previous"}),
    "xarm_folder": (3, {"timestamps": ("s", 15), "high_rate_t": ("s", 100)},
                    {"observations/joint_angles": "linear", "observations/ee_quat_wxyz": "slerp wxyz", "actions/delta_ee": "previous",
                     "observations/depth": "previous depth", "observations/color_jpg": "previous images"}),
}

# What the values do not show, and what the draft or check says about it. The other five files need no change.
BY_HAND = {
    "franka_station": "no time in common with",  # two machines: an offset between their clocks
    "tactile_hand": "a quaternion; nothing shows its order",  # it is wxyz
    "flat_simulation": "nothing states a rate",
    "drone_flight": "vehicle_attitude_0/q[0]",  # a dataset each: the four parts of a quaternion cannot be blended together
    "quadruped_rollouts": "left out: language: it has texts",  # a text for each step; the draft takes the attribute `task`
}


def trajctl(*arguments):
    done = subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def drafts(tmp_path_factory):
    """Makes a draft of each file: {name: (the file, the text of the draft, what check prints, inspect of the draft)}."""
    folder = tmp_path_factory.mktemp("labs")
    made = {}
    for lab in lab_files.LABS:
        path = lab(folder / (lab.__name__ if lab is lab_files.xarm_folder else f"{lab.__name__}.h5"))
        layout = folder / f"{lab.__name__}.layout.yaml"
        trajctl("init", path, "-o", folder / f"{lab.__name__}.yaml")
        made[lab.__name__] = (path, layout.read_text(), trajctl("check", folder / f"{lab.__name__}.yaml"),
                              json.loads(trajctl("inspect", "--json", "--layout", layout, path))[0])
    return made


@pytest.mark.parametrize("lab", EXPECTED)
def test_draft(drafts, lab):
    _, text, checked, shown = drafts[lab]
    layout = yaml.safe_load(text)
    episodes, clocks, kinds = EXPECTED[lab]
    assert shown["kept_count"] == shown["found_count"] == episodes and f"({episodes} of {episodes} kept)" in checked
    assert {clock["name"] for clock in shown["clocks"]} == set(layout["clocks"]) == set(clocks)
    for clock in shown["clocks"]:
        unit, rate_hz = clocks[clock["name"]]
        assert layout["clocks"][clock["name"]].get("unit") == unit or unit is None
        assert clock.get("mean_rate_hz", clock.get("lowest_rate_hz")) == pytest.approx(rate_hz, rel=0.02), clock
    for name, kind in kinds.items():
        entry, words = layout["streams"][name], kind.split()
        line = next(line for line in text.splitlines() if re.match(rf'  "?{re.escape(name)}"?:', line))
        assert entry["kind"] == words[0] and ("GUESS" in line) == (len(words) > 1), line
        assert words[0] != "slerp" or entry["order"] == words[1], line


@pytest.mark.parametrize("lab", EXPECTED)
def test_nothing_is_left_out_silently(drafts, lab):
    """Each dataset of the file is in the draft, or the draft says why it is left out."""
    path, text, _, _ = drafts[lab]
    names = []
    with h5py.File(path if path.is_file() else path / "episode_000.h5") as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    pattern = yaml.safe_load(text)["episodes"]["groups"]
    assert len(names) > 10
    for name in names:
        match = re.match(pattern[1:].replace("*", "[^/]+") + "/(.+)", name) if pattern != "/" else None
        inside = match[1] if match else name if pattern == "/" else f"/{name}"
        assert re.search(rf'path: "?{re.escape(inside)}"?[,}}]', text) or f"left out: {inside}: " in text, name


@pytest.mark.parametrize("lab", BY_HAND)
def test_what_remains_by_hand_is_said(drafts, lab):
    _, text, checked, _ = drafts[lab]
    assert BY_HAND[lab] in text, text
    assert lab != "franka_station" or "clock robot_state_time_ms has no time in common" in checked


def test_guessed_actions(drafts):
    """Where no stream is named as an action, what is named as a command is one."""
    actions = {lab: re.findall(r"^  (\S+) .* action +[fiu]\d+ \[[\d,]+\](?: +(\S+))?$", checked, re.M) for lab, (_, _, checked, _) in drafts.items()}
    assert all(outputs[0][0] == "actions" for outputs in actions.values() if outputs), actions
    streams = {lab: [stream or name for name, stream in outputs] for lab, outputs in actions.items()}
    assert {lab: names for lab, names in streams.items() if not any(name.startswith("action") for name in names)} == {
        "franka_station": [], "drone_flight": [], "rosbag_mobile": ["topics/cmd_vel/angular_z", "topics/cmd_vel/linear_x"],
        "tactile_hand": ["hand/joint_target"], "vr_teleoperation": ["robot/target_q"], "peg_insertion": ["tcp_target"]}


def test_aborted_episodes_can_be_left_out(drafts):
    """A flag of the episodes, which h5py writes as an enum, is a text that a feed can select by."""
    path, _, _, shown = drafts["bimanual_station"]
    assert [episode["meta"]["aborted"] for episode in shown["episodes"]] == ["false", "false", "true", "false"]
    config = path.parent / "bimanual_station.yaml"
    config.write_text(config.read_text().replace("    dataset: data\n", "    dataset: data\n    where: {aborted: ['false']}\n"))
    assert "3 episodes" in trajctl("check", config)
