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
