"""Windows bit for bit as robomimic's SequenceDataset makes them, against recorded vectors (tests/golden/robomimic)."""
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from paths import clean_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = {"obs/robot0_eef_pos": "obs/robot0_eef_pos", "obs/robot0_eef_quat": "obs/robot0_eef_quat",
        "obs/robot0_gripper_qpos": "obs/robot0_gripper_qpos", "obs/object": "obs/object", "actions": "actions",
        "rewards": "rewards", "dones": "dones"}
FEED = """
datasets: {{parity: {{path: {path}, layout: robomimic}}}}
feeds:
  windows:
    dataset: parity
    {filter}
    global_batch: 7
    tail: short
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/robot0_eef_pos:      {{at: -1..15, role: action, dtype: {dtype}}}
      obs/robot0_eef_quat:     {{at: -1..15, role: action, dtype: {dtype}}}
      obs/robot0_gripper_qpos: {{at: -1..15, role: action, dtype: {dtype}}}
      obs/object:              {{at: -1..15, role: action, dtype: {dtype}}}
      actions:                 {{at: -1..15, dtype: {dtype}}}
      rewards:                 {{at: -1..15, role: action, dtype: {dtype}}}
      dones:                   {{at: -1..15, role: action}}
"""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("group", ["all", "train"])
def test_windows_are_robomimics(daemon, tmp_path, group, dtype):
    path = tmp_path / "parity.hdf5"
    subprocess.run([sys.executable, ROOT / "tests/tools/make_parity_dataset.py", path], check=True, stdout=subprocess.DEVNULL,
                   env=clean_environment())
    recorded = np.load(ROOT / "tests/golden/robomimic/windows.npz")
    client = daemon(FEED.format(path=path, dtype=dtype, filter="filter: train" if group == "train" else "")).client()
    info = client.open("windows")
    assert info.window_count == len(recorded[f"{group}/demo"])
    seen = 0
    for _, arrays in client.epoch():
        for row, window in enumerate(arrays["window_id"]):  # numbered in robomimic's order: episodes by number, row by row
            for name, key in KEYS.items():
                want = recorded[f"{group}/{key}"][window]
                if want.dtype == np.float64:
                    want = want.astype(dtype)
                got = arrays[name][row]
                assert got.dtype == want.dtype and got.tobytes() == want.tobytes(), (name, window)
            valid = recorded[f"{group}/pad_mask"][window][:, 0]
            for name in KEYS:
                np.testing.assert_array_equal(arrays[f"{name}.mask"][row] == 0, valid)
            seen += 1
    client.close()
    assert seen == info.window_count


NEXT_KEYS = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object")
NEXT_FEED = """
datasets: {{parity: {{path: {path}, layout: robomimic}}}}
feeds:
  windows:
    dataset: parity
    global_batch: 7
    tail: short
    anchor: {{clock: actions}}
    outputs:
"""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_next_observations_and_goals_are_robomimics(daemon, tmp_path, dtype):
    path = tmp_path / "parity.hdf5"
    subprocess.run([sys.executable, ROOT / "tests/tools/make_parity_dataset.py", path, "--next"], check=True,
                   stdout=subprocess.DEVNULL, env=clean_environment())
    recorded = np.load(ROOT / "tests/golden/robomimic/next.npz")
    valid_steps = np.load(ROOT / "tests/golden/robomimic/windows.npz")["all/pad_mask"][..., 0]
    outputs = "".join(f"      next_obs/{key}: {{at: -1..15, role: next, dtype: {dtype}}}\n"
                      f"      goal_obs/{key}: {{dtype: {dtype}, goal: {{from: last, of: next_obs/{key}}}}}\n"
                      f"      made/{key}: {{from: obs/{key}, at: 0..16, role: next, dtype: {dtype}}}\n" for key in NEXT_KEYS)
    client = daemon(NEXT_FEED.format(path=path) + outputs).client()
    info = client.open("windows")
    seen, made = 0, 0
    for _, arrays in client.epoch():
        for row, window in enumerate(arrays["window_id"]):
            for key in NEXT_KEYS:
                want = recorded[f"next_obs/{key}"][window].astype(dtype)
                assert arrays[f"next_obs/{key}"][row].tobytes() == want.tobytes(), (key, window)
                np.testing.assert_array_equal(arrays[f"next_obs/{key}.mask"][row] == 0, valid_steps[window])
                goal = recorded[f"goal_obs/{key}"][window].astype(dtype)
                assert arrays[f"goal_obs/{key}"][row, 0].tobytes() == goal.tobytes(), (key, window)
                assert not arrays[f"goal_obs/{key}.mask"][row].any()
                # made of obs: the same, but for padding and for the last row, which obs lacks
                valid = (arrays[f"made/{key}.mask"][row] == 0) & valid_steps[window]
                assert valid_steps[window].sum() - valid.sum() <= 1
                np.testing.assert_array_equal(arrays[f"made/{key}"][row][valid], want[valid])
                made += valid.sum()
            seen += 1
    client.close()
    assert seen == info.window_count == len(valid_steps) and made > 2000
