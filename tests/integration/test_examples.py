"""The examples run: the trainers of clients/python/examples/trainers."""
import os
import pathlib
import re
import socket
import subprocess
import tempfile

import h5py
import numpy as np
import pytest

from paths import PACKAGE, PROGRAM, ROOT
from pythons import find_python
from waiting import wait_for

TRAINERS = ROOT / "clients/python/examples/trainers"
CONFIG = """
version: 2
exit_idle: 1s
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 16
    anchor: {{clock: actions}}
    {pad}
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      obs/object:         {{at: -1..0}}
      actions:            {{at: -1..14}}
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def rank_variables(ranks):
    """Returns the variables of each rank, as torchrun sets them. One rank gets none."""
    shared = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [{name: str(value) for name, value in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()} if ranks > 1 else {}
            for rank in range(ranks)]


def train(demo_file, name, module, ranks=1, pad="pad: {before: 1, after: any, with: edge}"):
    """Runs an example for three epochs. Returns the losses that it prints."""
    python = find_python(module)
    if not python:
        pytest.skip(f"no Python of this machine has {module}")
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        config = pathlib.Path(folder) / "demo.yaml"
        config.write_text(CONFIG.format(path=demo_file, pad=pad))
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TRAJD_", "SLURM_", "MASTER_"))}
        env.update(TRAJD_RUNTIME_DIR=folder, XDG_CACHE_HOME=folder, TRAJD_PROGRAM=str(PROGRAM), PYTHONPATH=str(PACKAGE), CUDA_VISIBLE_DEVICES="")
        started = [subprocess.Popen([python, TRAINERS / f"{name}.py", config, "3"], env=env | own, cwd=folder, text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for own in rank_variables(ranks)]
        said = [one.communicate(timeout=300) for one in started]
        assert not any(one.returncode for one in started), said
        wait_for(lambda: not list(pathlib.Path(folder).glob("trajd-*/*/run/feed.sock")), 60, "the end of the daemon")
    losses = [float(loss) for out, _ in said for loss in re.findall(r"^epoch \d+ loss (\S+)$", out, re.M)]
    assert len(losses) == 3, said
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("name, module", [("plain_torch", "torch"), ("with_accelerate", "accelerate"), ("with_lightning", "lightning")])
def test_a_trainer_learns(demo_file, name, module):
    losses = train(demo_file, name, module)
    assert losses[2] < losses[0], losses


@pytest.mark.slow
def test_two_ranks_learn_as_one(demo_file):
    """Their batches are the halves of the batches of one rank, so the mean gradient is the same. Without padding the
    mean of the losses is the same, too."""
    pad = "pad: {before: 0, after: 0}"
    two = train(demo_file, "plain_torch", "torch", ranks=2, pad=pad)
    assert two == pytest.approx(train(demo_file, "plain_torch", "torch", pad=pad), rel=1e-3)


def test_the_mean_of_a_force(tmp_path):
    python = find_python("h5py")
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    times = np.arange(3000) / 1000 + 1.7e9
    with h5py.File(tmp_path / "force.hdf5", "w") as file:
        file["t"], file["f"] = times, np.where(np.arange(3000) % 2 == 0, 1.0, -1.0) + 9 * (np.arange(3000) > 2000)
    for arguments in (), (tmp_path / "force.hdf5", "t", "f"):
        done = subprocess.run([python, ROOT / "clients/python/examples/mean_force.py", *arguments], cwd=tmp_path, text=True,
                              capture_output=True, timeout=120, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        assert done.returncode == 0, done.stderr
        table = {line[0]: [float(word) for word in line[-4:-1]] for line in map(str.split, done.stdout.splitlines()[2:5])}
        assert table["mean"][0] < table["previous"][0] and table["mean"][1] < .5 * table["previous"][1], done.stdout
        assert table["mean"][2] >= table["linear"][2]
    assert "3000 rows at 1000 Hz, 60 steps at 20 Hz" in done.stdout
