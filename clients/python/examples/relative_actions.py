"""Trains a small policy on poses relative to the arm, and turns what it predicts into actions of the robot.

    python relative_actions.py trajd.yaml FEED

The feed has the outputs of diffusion policies on poses (UMI): what the policy sees and what it predicts are both relative to the
pose at the anchor, with rotations in six numbers. The policy is a quadratic one, fitted by least squares; numpy is all it needs.
It needs a recording whose actions are poses: position, axis-angle and gripper. The gripper is not relative (mask). obs/pos and
obs/quat (xyzw) are the recorded pose. In the demonstration dataset (make demo), actions are velocities.

    outputs:
      obs/past: {from: [obs/pos, obs/quat], at: -2..-1, relative_to: [obs/pos, obs/quat],
                 rotation: {from: quat_xyzw, to: rot6d, columns: "3:7", position: "0:3"}}
      obs/pose: {from: [obs/pos, obs/quat], at: 0, dtype: float64}
      actions:  {preset: umi, at: 0..7, norm: min_max, rotation: {from: axis_angle, columns: "3:6", position: "0:3"},
                 relative_to: {from: [obs/pos, obs/quat], mask: [true, true, true, true, true, true, false]}}
"""
import sys

import numpy as np

import trajd


def features(past):
    """Returns 1, the numbers, and their products."""
    flat = past.reshape(len(past), -1)
    products = flat[:, :, None] * flat[:, None, :]
    return np.concatenate([np.ones((len(flat), 1)), flat, products[(slice(None), *np.triu_indices(flat.shape[1]))]], axis=1)


def collect(feed):
    """Returns what the policy sees, the pose at the anchor, and the chunk, of all complete windows."""
    parts = []
    for batch in feed.epoch(0):
        good = (batch.mask("obs/past") == 0).all(axis=1) & (batch.mask("actions") == 0).all(axis=1)
        parts.append([batch["obs"]["past"][good].copy(), batch["obs"]["pose"][good, 0].copy(), batch["actions"][good].copy()])
    return [np.concatenate(arrays) for arrays in zip(*parts)]


def fit(past, chunks):
    """Returns a policy: a function from what it sees to normalised chunks."""
    weights, *_ = np.linalg.lstsq(features(past), chunks.reshape(len(chunks), -1), rcond=1e-10)
    return lambda seen: (features(seen) @ weights).reshape(-1, *chunks.shape[1:])


def main():
    with trajd.open(sys.argv[1], feed=sys.argv[2]) as feed:
        stats = feed.stats()
        past, poses, chunks = collect(feed)
    policy = fit(past, chunks)
    actions = stats.to_robot("actions", policy(past), poses)  # as the robot takes them
    recorded = stats.to_robot("actions", chunks, poses)
    print(f"error of positions: {np.sqrt(np.mean((actions - recorded)[..., :3] ** 2)):.2g}, "
          f"of their mean: {np.sqrt(np.mean((recorded - recorded.mean(axis=(0, 1)))[..., :3] ** 2)):.2g}")


if __name__ == "__main__":
    main()
