"""A killed training run resumes from its checkpoint with the same losses as a run that was not killed:
clients/python/examples/behaviour_cloning.py in numpy, and in torch where a Python of this machine has it."""
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest

from daemons import private_daemons
from paths import BUILD, PROGRAM, RECORDINGS, ROOT
from pythons import find_python
from waiting import wait_for

SCRIPT = ROOT / "clients" / "python" / "examples" / "behaviour_cloning.py"
PACKAGE = BUILD / "clients" / "python"
EPOCHS, EVERY = 4, 7
PIPE_BYTES = 4096
DEMO = """
version: 2
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 16
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/robot0_eef_pos:      {{at: -1..0}}
      obs/robot0_eef_quat:     {{at: -1..0}}
      obs/robot0_gripper_qpos: {{at: -1..0}}
      obs/object:              {{at: -1..0}}
      actions:                 {{at: -1..14}}
"""
RECORDED = """
version: 2
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{raw: {{path: {path}, layout: robosuite_raw}}}}
feeds:
  train:
    dataset: raw
    global_batch: 4
    anchor: {{clock: sim}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/states: {{from: states, at: -1..0}}
      actions:    {{at: 0..7}}
"""


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="trajd") as name:  # the path of a socket must be short
        yield pathlib.Path(name)
        for pid in private_daemons(name):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not private_daemons(name), 60, "the end of private daemons")


class Training:
    def __init__(self, folder, config, python, framework):
        self.folder, self.python, self.framework = folder, python, framework
        self.config = folder / "train.yaml"
        self.config.write_text(config)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TRAJD_", "SLURM_", "MASTER_"))}
        self.env.update(PYTHONPATH=str(PACKAGE), TRAJD_PROGRAM=str(PROGRAM), TRAJD_RUNTIME_DIR=str(folder / "r"),
                        XDG_CACHE_HOME=str(folder / "cache"), TRAJD_JOB="training", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

    def begin(self, name, **options):
        command = [self.python, SCRIPT, self.config, "--checkpoint", self.folder / f"{name}.pt", "--epochs", str(EPOCHS), "--every",
                   str(EVERY), "--framework", self.framework]
        return subprocess.Popen(command, env=self.env, text=True, cwd=self.folder, **options)

    def run(self, name):
        with open(self.folder / f"{name}.log", "w") as log:
            process = self.begin(name, stdout=subprocess.PIPE, stderr=log)
            lines = process.communicate(timeout=300)[0].splitlines()
        assert process.returncode == 0, (self.folder / f"{name}.log").read_text()
        return lines

    def run_until_killed(self, name, count, with_daemon):
        """Runs the script up to the kill and returns its first lines. The pipe is small and is not read further, so
        that the run cannot end before the kill."""
        process = self.begin(name, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        lines = [process.stdout.readline().strip() for _ in range(count)]
        if with_daemon:
            for pid in private_daemons(self.folder):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.stdout.close()
        return lines


def check(training, with_daemon):
    whole = training.run("whole")
    epochs = [line.split()[0] for line in whole]
    count = epochs.index("1") + epochs.count("1") // 3  # in the middle of the second epoch
    assert count % EVERY and sum(len(line) + 1 for line in whole[count:]) > PIPE_BYTES, "too short a run to be killed in the middle"
    losses = [float.fromhex(line.split()[2]) for line in whole]
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])  # the loss falls
    assert training.run_until_killed("killed", count, with_daemon) == whole[:count]
    after = training.run("killed")
    assert 0 < len(whole) - len(after) and (len(whole) - len(after)) % EVERY == 0  # from its last checkpoint
    assert after == whole[-len(after):]  # epoch, position and every bit of the loss


pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(not list((PACKAGE / "trajd").glob("_core*")), reason="built without Python's headers"),
]


@pytest.mark.slow
@pytest.mark.parametrize("with_daemon", [False, True], ids=["job", "job and daemon"])
def test_a_killed_run_has_the_losses_of_one_that_was_not(folder, demo_file, with_daemon):
    check(Training(folder, DEMO.format(path=demo_file), sys.executable, "numpy"), with_daemon)


@pytest.mark.skipif(not (RECORDINGS / "robosuite_lift_panda_demo.hdf5").exists(), reason="the recordings are not here (../shared/data)")
def test_the_same_on_a_recording(folder):
    check(Training(folder, RECORDED.format(path=RECORDINGS / "robosuite_lift_panda_demo.hdf5"), sys.executable, "numpy"), True)


@pytest.mark.slow
def test_the_same_in_torch(folder, demo_file):
    python = find_python("torch")
    if python is None:
        pytest.skip("no Python here has torch")
    check(Training(folder, DEMO.format(path=demo_file), python, "torch"), True)
