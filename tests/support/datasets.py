"""Datasets for tests."""
import json
import re
import subprocess
import sys

import h5py
import numpy as np
from paths import ROOT, clean_environment


def make_demo_file(path, *arguments, episodes=24):
    """Writes the demonstration dataset with `episodes` episodes and returns its path. `arguments`: see make_demo_dataset.py."""
    subprocess.run([sys.executable, ROOT / "tests/tools/make_demo_dataset.py", path, "--episodes", str(episodes), *arguments],
                   check=True, env=clean_environment(), stdout=subprocess.DEVNULL)
    return path


def make_long_file(path):
    """Writes 24 wide episodes, 58 MB. A run that resamples them lasts long enough to be interrupted."""
    random = np.random.default_rng(3)
    with h5py.File(path, "w") as file:
        rows = random.normal(size=(12000, 50)).astype(np.float32)
        for i in range(24):
            file[f"data/demo_{i}/obs/wide"] = rows + i
            file[f"data/demo_{i}/actions"] = rows[:, :7].astype(float)
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
    return path


def write_robomimic(path, episodes):
    """Writes a minimal robomimic file: {name: actions [rows, features]} or {name: {stream: array}}."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_kwargs": {"control_freq": 20}})
        for name, streams in episodes.items():
            demo = data.create_group(name)
            streams = streams if isinstance(streams, dict) else {"actions": streams}
            demo.attrs["num_samples"] = len(streams["actions"])
            for key, array in streams.items():
                demo[key] = array


def natural(text):
    """Returns a sort key in which runs of digits count as numbers: demo_2 comes before demo_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]
