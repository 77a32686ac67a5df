"""Datasets for tests."""
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
    return path


def natural(text):
    """Returns a sort key in which runs of digits count as numbers: demo_2 comes before demo_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]
