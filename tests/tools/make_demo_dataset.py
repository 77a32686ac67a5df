#!/usr/bin/env python3
"""Writes a robot-learning dataset whose signals are known functions of time, so that resampling can be checked.

    make_demo_dataset.py OUT.hdf5 [--episodes N] [--seed S] [--gzip] [--images]

The layout is robomimic's (/data/demo_N, /mask/KEY; rows at 20 Hz, the rate in /data@env_args), and beside it, in each
episode, three recordings on clocks of their own. Stamps are int64 ns since 1970; `step_t0` is the time of robomimic's row 0.

    clock    rows                      stamps
    actions  actions, obs/*, ...       step_t0 + floor(i * 1e9 / 20), in no dataset
    joint_t  joint_pos (S,7) f32       500 Hz, each stamp moved by up to 0.4 ms
    pose_t   pose_pos (P,3) f64,       20 Hz, beginning up to 25 ms after step_t0, each stamp moved by up to 1 ms
             pose_quat (P,4) f64
    gripper_t gripper_cmd (C,1) f32    30 Hz, beginning up to 33 ms before step_t0

With u = (stamp - step_t0) in seconds, w(f, k) = 2 pi f u + p_k, and p = the twelve phases in the episode's attribute `phases`:

    joint_pos[k]  = 0.8 sin(w(0.10 + 0.07 k, k))                       k = 0..5
    joint_pos[6]  = p_6 + 1.5 u, wrapped into (-pi, pi]                an angle that turns all the way round
    pos           = (0.15 sin w(0.23, 7), 0.20 sin w(0.17, 8), 1.0 + 0.08 sin w(0.31, 9))
    quat          = rotation by yaw about z, then by pitch about the new y; xyzw, w >= 0: the sign flips where w passes 0,
                    yaw = 2.6 + 0.9 sin w(0.13, 10), pitch = 0.5 sin w(0.19, 11)
    finger        = 0.02 (1 + tanh(6 sin w(0.25, 6)))
    gripper_cmd   = +1 (close) where sin w(0.25, 6) < 0.3, else -1; held in between

    obs/robot0_eef_pos = pose_pos = pos          obs/robot0_eef_quat = pose_quat = quat
    obs/robot0_gripper_qpos = (finger, -finger)
    obs/object = (pos + (0.05, 0, -0.1), quat, (0.05, 0, -0.1) + 0.01 sin w(0.4, 0))
    actions = (velocity of pos, 0.3 sin w(0.2, 1..3), gripper_cmd)
    rewards, dones = 0, the last row 1
    obs/agentview_image = two ramps that move with u

Episodes are of unequal length (one in eight has at most 16 rows), every tenth number is missing. The same arguments give the same bytes.
"""
import argparse
import json
import math

import h5py
import numpy as np

CONTROL_HZ = 20
START_NS = 1_700_000_000_000_000_000
IMAGE = 84


def wave(u, frequency, phase):
    return np.sin(2 * np.pi * frequency * np.asarray(u) + phase)


def joint_pos(u, p):
    turning = p[6] + 1.5 * np.asarray(u)
    wrapped = math.pi - np.mod(math.pi - turning, 2 * math.pi)
    return np.stack([0.8 * wave(u, 0.10 + 0.07 * k, p[k]) for k in range(6)] + [wrapped], axis=-1)


def pos(u, p):
    return np.stack([0.15 * wave(u, 0.23, p[7]), 0.20 * wave(u, 0.17, p[8]), 1.0 + 0.08 * wave(u, 0.31, p[9])], axis=-1)


def velocity(u, p):
    rows = ((0.15, 0.23, p[7]), (0.20, 0.17, p[8]), (0.08, 0.31, p[9]))
    return np.stack([a * 2 * np.pi * f * wave(u, f, phase + np.pi / 2) for a, f, phase in rows], axis=-1)


def quat(u, p):
    """Returns unit quaternions xyzw with w >= 0."""
    yaw, pitch = 2.6 + 0.9 * wave(u, 0.13, p[10]), 0.5 * wave(u, 0.19, p[11])
    cy, sy, cp, sp = np.cos(yaw / 2), np.sin(yaw / 2), np.cos(pitch / 2), np.sin(pitch / 2)
    q = np.stack([-sy * sp, cy * sp, sy * cp, cy * cp], axis=-1)
    return np.where(q[..., 3:] < 0, -q, q)


def finger(u, p):
    return 0.02 * (1 + np.tanh(6 * wave(u, 0.25, p[6])))


def gripper_cmd(u, p):
    return np.where(wave(u, 0.25, p[6]) < 0.3, 1.0, -1.0)


def actions(u, p):
    turn = np.stack([0.3 * wave(u, 0.2, p[k]) for k in (1, 2, 3)], axis=-1)
    return np.concatenate([velocity(u, p), turn, gripper_cmd(u, p)[..., None]], axis=-1)


def object_state(u, p):
    shift = np.array([0.05, 0.0, -0.1])
    return np.concatenate([pos(u, p) + shift, quat(u, p), shift + 0.01 * wave(u, 0.4, p[0])[..., None]], axis=-1)


def agentview_image(u):
    """Returns (T,84,84,3) uint8, one row per step."""
    t = np.floor(np.asarray(u) * 40).astype(np.int64)[:, None, None]
    y, x = np.arange(IMAGE)[None, :, None], np.arange(IMAGE)[None, None, :]
    planes = np.broadcast_arrays((3 * x + t) % 256, (3 * y - t) % 256, (x + y + 2 * t) % 256)
    return np.stack(planes, axis=-1).astype(np.uint8)


def regular_ns(count, num, den=1):
    """Returns row i at floor(i * 1e9 * den / num), in integers."""
    return np.array([i * 1_000_000_000 * den // num for i in range(count)], np.int64)


def stamps(rng, span_ns, rate, first_ns, jitter_ns):
    """Returns ascending stamps relative to step_t0 that cover [0, span_ns) at `rate`, at least one."""
    count = max(1, -(-(span_ns - first_ns) * rate // 1_000_000_000))
    moved = regular_ns(count, rate) + first_ns
    if jitter_ns:
        moved += rng.integers(-jitter_ns, jitter_ns + 1, count)
    return moved


def episode_lengths(rng, count):
    lengths = np.clip(rng.normal(105, 40, count), 30, 260).astype(int)
    short = np.arange(count) % 8 == 3
    lengths[short] = np.array([1, 2, 5, 11, 16])[np.arange(short.sum()) % 5]
    return lengths


def write_episode(group, rng, t0, rows, options, images):
    p = rng.uniform(-math.pi, math.pi, 12)
    u = regular_ns(rows, CONTROL_HZ) / 1e9
    span_ns = rows * 1_000_000_000 // CONTROL_HZ
    joint_ns = stamps(rng, span_ns, 500, int(rng.integers(0, 1_500_000)) + 400_000, 400_000)
    pose_ns = stamps(rng, span_ns, 20, int(rng.integers(1_000_000, 25_000_000)), 1_000_000)
    gripper_ns = stamps(rng, span_ns, 30, -int(rng.integers(0, 33_000_000)), 0)
    last = (np.arange(rows) == rows - 1)
    opening = finger(u, p)
    datasets = {
        "actions": actions(u, p),
        "rewards": last.astype(np.float64),
        "dones": last.astype(np.int64),
        "obs/robot0_eef_pos": pos(u, p),
        "obs/robot0_eef_quat": quat(u, p),
        "obs/robot0_gripper_qpos": np.stack([opening, -opening], axis=-1),
        "obs/object": object_state(u, p),
        "joint_t": t0 + joint_ns,
        "joint_pos": joint_pos(joint_ns / 1e9, p).astype(np.float32),
        "pose_t": t0 + pose_ns,
        "pose_pos": pos(pose_ns / 1e9, p),
        "pose_quat": quat(pose_ns / 1e9, p),
        "gripper_t": t0 + gripper_ns,
        "gripper_cmd": gripper_cmd(gripper_ns / 1e9, p)[:, None].astype(np.float32),
    }
    if images:
        datasets["obs/agentview_image"] = agentview_image(u)
    for name, data in datasets.items():
        group.create_dataset(name, data=data, **options)
    group.create_dataset("step_t0", data=np.array([t0], np.int64))
    group.attrs["num_samples"] = rows
    group.attrs["phases"] = p


def write_dataset(path, episodes=200, seed=0, gzip=False, images=False):
    rng = np.random.default_rng(seed)
    lengths = episode_lengths(rng, episodes)
    names = [f"demo_{i + i // 9}" for i in range(episodes)]
    # robomimic's own compression step uses the same
    options = {"compression": "gzip", "compression_opts": 4} if gzip else {}
    env_args = {"env_name": "DemoReach", "type": 1, "env_version": "1.4.1",
                "env_kwargs": {"robots": ["Panda"], "control_freq": CONTROL_HZ}}
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = int(lengths.sum())
        data.attrs["env_args"] = json.dumps(env_args, indent=4)
        for i, (name, rows) in enumerate(zip(names, lengths)):
            episode_rng = np.random.default_rng([seed, i])
            write_episode(data.create_group(name), episode_rng, START_NS + i * 60_000_000_000, int(rows), options, images)
        valid = rng.permutation(episodes)[:max(1, episodes // 10)]
        chosen = np.isin(np.arange(episodes), valid)
        for key, picked in (("train", ~chosen), ("valid", chosen)):
            listed = np.array([n for n, take in zip(names, picked) if take], dtype="S")
            if len(listed):
                file.create_dataset(f"mask/{key}", data=listed)
    return int(lengths.sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gzip", action="store_true", help="compressed as robomimic compresses: gzip 4, h5py's chunks")
    parser.add_argument("--images", action="store_true", help="with obs/agentview_image")
    options = parser.parse_args()
    if options.episodes < 1:
        parser.error("--episodes must be at least 1")
    rows = write_dataset(options.out, options.episodes, options.seed, options.gzip, options.images)
    print(f"{options.out}: {options.episodes} episodes, {rows} rows at {CONTROL_HZ} Hz")


if __name__ == "__main__":
    main()
