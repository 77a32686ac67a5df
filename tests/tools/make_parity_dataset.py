#!/usr/bin/env python3
"""Writes the small file on which robomimic's windows were recorded (tests/golden/robomimic): make_parity_dataset.py OUT.hdf5
[--next]. With --next each episode has next_obs as well, whose last row is a row that obs lacks.

Six episodes of 1, 2, 5, 16, 17 and 40 rows, float64 as robomimic writes them, numbers with gaps and filter keys out of order.
Every value is a sum of powers of two, so that the file is the same under any numpy, and tells its episode, row and column,
so that a wrong one cannot look right. Quaternions are the 24 Hurwitz units in turn: exactly of length one.
"""
import argparse
import itertools
import json

import h5py
import numpy as np

EPISODES = {"demo_0": 5, "demo_2": 1, "demo_3": 40, "demo_9": 16, "demo_10": 2, "demo_12": 17}
MASKS = {"train": ["demo_12", "demo_3", "demo_0", "demo_10"], "valid": ["demo_9", "demo_2"]}
WIDTHS = {"actions": 7, "obs/robot0_eef_pos": 3, "obs/robot0_gripper_qpos": 2, "obs/object": 10}

UNITS = np.array([sign * np.eye(4)[i] for i in range(4) for sign in (1, -1)] +
                 [np.array(signs) / 2 for signs in itertools.product((1, -1), repeat=4)])


def values(episode, rows, columns):
    """Returns (rows, columns): episode and row in the integer part, the column in sixteenths, and bits that float32
    cannot hold."""
    row = np.arange(rows, dtype=np.float64)[:, None]
    column = np.arange(columns, dtype=np.float64)[None, :]
    return 64.0 * episode + row + column / 16 + (row + 1) * 2.0 ** -40


def write_next(group, episode, rows):
    for name, columns in WIDTHS.items():
        if name.startswith("obs/"):
            group.create_dataset(f"next_{name}", data=values(episode, rows + 1, columns)[1:])
    group.create_dataset("next_obs/robot0_eef_quat", data=UNITS[(5 * episode + 1 + np.arange(rows)) % len(UNITS)])


def write_episode(group, episode, rows):
    for name, columns in WIDTHS.items():
        group.create_dataset(name, data=values(episode, rows, columns))
    group.create_dataset("obs/robot0_eef_quat", data=UNITS[(5 * episode + np.arange(rows)) % len(UNITS)])
    group.create_dataset("rewards", data=values(episode, rows, 1)[:, 0])
    group.create_dataset("dones", data=(np.arange(rows) == rows - 1).astype(np.int64))
    group.attrs["num_samples"] = rows


def write_dataset(path, with_next=False):
    env_args = {"env_name": "Parity", "type": 1, "env_kwargs": {"control_freq": 20}}
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(EPISODES.values())
        data.attrs["env_args"] = json.dumps(env_args, indent=4)
        for episode, (name, rows) in enumerate(EPISODES.items()):
            write_episode(data.create_group(name), episode, rows)
            if with_next:
                write_next(data[name], episode, rows)
        for key, names in MASKS.items():
            file.create_dataset(f"mask/{key}", data=np.array(names, dtype="S"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--next", action="store_true")
    options = parser.parse_args()
    write_dataset(options.out, options.next)


if __name__ == "__main__":
    main()
