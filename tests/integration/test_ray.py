"""Ray in real processes of this machine: configs/clusters/ray_train.py, whose workers are killed, and shards as tasks."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import pytest

from daemons import private_daemons
from datasets import make_demo_file
from paths import PACKAGE, PROGRAM, ROOT, SUPPORT, TRAJCTL
from pythons import find_python
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.release]
CLUSTERS = ROOT / "configs/clusters"
CONFIG = """
version: 2
exit_idle: 300s
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 64
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      obs/object:         {{at: -1..0}}
      actions:            {{at: -1..14}}
"""
EVERY, KILLED_AT = 4, 10


class Runs:
    """Jobs of ray_runs.py in folders below `folder`."""

    def __init__(self, python, folder, path):
        self.python, self.folder = python, pathlib.Path(folder)
        (self.folder / "demo.yaml").write_text(CONFIG.format(path=path))
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TRAJD_", "SLURM_", "MASTER_", "RAY_"))}
        self.env.update(TRAJD_RUNTIME_DIR=str(self.folder), XDG_CACHE_HOME=str(self.folder), TRAJD_PROGRAM=str(PROGRAM), CUDA_VISIBLE_DEVICES="",
                        PYTHONPATH=f"{PACKAGE}:{SUPPORT}:{CLUSTERS}", OMP_NUM_THREADS="1", RAY_TRAIN_V2_ENABLED="1",
                        RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0", SLURM_PROCID="3", SLURM_NTASKS="9", SLURM_STEP_ID="0")  # as if Slurm had started Ray

    def training(self, name, kill=0):
        (self.folder / name).mkdir()
        return {"folder": str(self.folder / name), "config": str(self.folder / "demo.yaml"), "epochs": 1, "every": EVERY, "kill": kill}

    def run(self, nodes, *jobs):
        """Runs the jobs one after another. Returns what the processes said."""
        (self.folder / "jobs.json").write_text(json.dumps(jobs))
        done = subprocess.run([self.python, SUPPORT / "ray_runs.py", str(nodes), self.folder / "jobs.json"], env=self.env, cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=550)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def steps(self, name):
        """Returns the lines of each rank."""
        return [(self.folder / name / f"rank-{rank}").read_text().splitlines() for rank in (0, 1)]

    def daemons(self):
        """Returns the folders of the private daemons that were started."""
        return {path.parent.name for path in self.folder.glob("trajd-*/*/launch.lock")}


@pytest.fixture
def runs(demo_file):
    python = find_python("ray.train, torch, pyarrow")
    if python is None:
        pytest.skip("no Python here has ray[train] and torch")
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:  # the path of a socket must be short
        yield Runs(python, folder, demo_file)
        for pid in private_daemons(folder):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not private_daemons(folder), 60, "the end of the daemons")


def check_resumed(whole, killed):
    """The run that was killed has the losses of the whole one, and goes on from a checkpoint: one rank may be a step ahead
    of the other when it ends, and a checkpoint of the last steps may not be stored yet."""
    for rank, (expected, found) in enumerate(zip(whole, killed)):
        parts = [(done, begun) for done in (KILLED_AT - 1, KILLED_AT, KILLED_AT + 1) for begun in range(EVERY, KILLED_AT, EVERY)
                 if found == expected[:done] + expected[begun:]]
        assert parts, (rank, found)


@pytest.mark.parametrize("nodes", [1, 2])
def test_workers_that_are_killed_have_the_losses_of_those_that_were_not(runs, nodes):
    said = runs.run(nodes, runs.training("whole"), runs.training("killed", kill=KILLED_AT))
    whole, killed = runs.steps("whole"), runs.steps("killed")
    assert len(whole[0]) == len(whole[1]) > 2 * KILLED_AT and whole[0] != whole[1]
    assert (runs.folder / "killed/killed").exists()
    check_resumed(whole, killed)
    assert len(list((runs.folder / "killed").glob("node-*"))) == nodes
    # One daemon for each run, because both nodes of Ray have the address of this machine. It outlives the workers that are killed.
    assert len(runs.daemons()) == 2 and len(set(re.findall(r"trajd: private daemon (\d+)", said))) == 2, said
    assert "trajd: rank 0 of 2, from Ray Train" in said and "rank 1 of 2, from" not in said


# stands for trajctl: in the first tries of a shard it dies at a random time, together with the task of Ray that started it
MORTAL = """#!/usr/bin/env python3
import os, random, signal, subprocess, sys, time
shard = sys.argv[-1].replace("/", "-of-")
tries = sum(name.startswith(shard + ".") for name in os.listdir({folder!r}))
open(f"{folder}/{{shard}}.{{tries}}", "w").close()
process = subprocess.Popen([{trajctl!r}, *sys.argv[1:]])
if tries < 2:
    time.sleep(random.Random(f"{{shard}} {{tries}}").uniform(0, 0.1))
    if process.poll() is None:
        process.kill()
        os.kill(os.getppid(), signal.SIGKILL)
sys.exit(process.wait())
"""


def test_shards_as_tasks_that_die(runs, tmp_path):
    recordings, bin_, tries = tmp_path / "in", tmp_path / "bin", tmp_path / "tries"
    for folder in (recordings, bin_, tries):
        folder.mkdir()
    (bin_ / "trajctl").write_text(MORTAL.format(folder=str(tries), trajctl=str(TRAJCTL)))
    (bin_ / "trajctl").chmod(0o755)
    for number in range(11):
        make_demo_file(recordings / f"{number}.hdf5", "--seed", str(number), episodes=2)

    def command(out):
        return ["resample", recordings, "-o", tmp_path / out, "--rate", "10", "--layout", "demo"]

    subprocess.run([TRAJCTL, *command("whole"), "--shard", "0/1"], check=True, capture_output=True)
    for count in (1, 3, 7):
        done = subprocess.run([runs.python, CLUSTERS / "ray_shards.py", str(count), *command(f"of_{count}")], capture_output=True, text=True,
                              env={**runs.env, "RAY_ADDRESS": "local", "PATH": f"{bin_}:{os.environ['PATH']}"}, timeout=180)
        assert done.returncode == 0, done.stderr
    found = [subprocess.run([TRAJCTL, "merge", tmp_path / name], check=True, capture_output=True, text=True).stdout
             for name in ("whole", "of_1", "of_3", "of_7")]
    assert len({text.split("fingerprint ")[1] for text in found}) == 1, found
    assert len(list(tries.iterdir())) >= 11 + 5  # each of the 11 shards once, and again after it was killed


def test_windows_by_ray_data(runs):
    done = subprocess.run([runs.python, SUPPORT / "ray_read.py", runs.folder / "demo.yaml"], capture_output=True, text=True, env=runs.env,
                          cwd=runs.folder, timeout=550)
    assert done.returncode == 0 and "windows are the same" in done.stdout, done.stderr + done.stdout
