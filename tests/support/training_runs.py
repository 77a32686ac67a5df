"""Runs of clients/python/examples/behaviour_cloning.py, and of tests/support/act_training.py, that are killed."""
import fcntl
import os
import pathlib
import signal
import subprocess
import tempfile

import pytest

from daemons import private_daemons
from paths import BUILD, PROGRAM, ROOT
from waiting import wait_for

SCRIPT = ROOT / "clients" / "python" / "examples" / "behaviour_cloning.py"
PACKAGE = BUILD / "clients" / "python"
EVERY = 7
PIPE_BYTES = 4096


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="trajd") as name:  # the path of a socket must be short
        yield pathlib.Path(name)
        for pid in private_daemons(name):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not private_daemons(name), 60, "the end of private daemons")


class Training:
    def __init__(self, folder, config, python, framework, script=SCRIPT, epochs=4):
        self.folder, self.python, self.framework, self.script, self.epochs = folder, python, framework, script, epochs
        self.config = folder / "train.yaml"
        self.config.write_text(config)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TRAJD_", "SLURM_", "MASTER_"))}
        self.env.update(PYTHONPATH=str(PACKAGE), TRAJD_PROGRAM=str(PROGRAM), TRAJD_RUNTIME_DIR=str(folder / "r"),
                        XDG_CACHE_HOME=str(folder / "cache"), TRAJD_JOB="training", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

    def begin(self, name, **options):
        command = [self.python, self.script, self.config, "--checkpoint", self.folder / f"{name}.pt", "--epochs", str(self.epochs),
                   "--every", str(EVERY), "--framework", self.framework]
        return subprocess.Popen(command, env=self.env, text=True, cwd=self.folder, **options)

    def run(self, name, during=lambda count: None):
        """Runs the script to its end and returns its lines. `during` gets the number of each line when it comes."""
        with open(self.folder / f"{name}.log", "w") as log:
            process = self.begin(name, stdout=subprocess.PIPE, stderr=log)
            lines = []
            for line in process.stdout:
                lines.append(line.strip())
                during(len(lines))
        assert process.wait(60) == 0, (self.folder / f"{name}.log").read_text()
        return lines

    def run_until_killed(self, name, count, with_daemon):
        """Runs the script up to the kill and returns its first lines. The pipe is small and is not read further, so
        that the run cannot end before the kill."""
        process = self.begin(name, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        lines = [process.stdout.readline().strip() for _ in range(count)]
        if with_daemon:
            self.kill_daemon()
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.stdout.close()
        return lines

    def kill_daemon(self):
        pids = private_daemons(self.folder)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)


def check_resumed(training, whole, name, count, with_daemon):
    """Kills a run after `count` lines and runs it to its end: its lines are those of the whole run."""
    assert count % EVERY and sum(len(line) + 1 for line in whole[count:]) > PIPE_BYTES, "too short a run to be killed in the middle"
    assert training.run_until_killed(name, count, with_daemon) == whole[:count]
    after = training.run(name)
    assert 0 < len(whole) - len(after) and (len(whole) - len(after)) % EVERY == 0  # from its last checkpoint
    assert after == whole[-len(after):]  # epoch, position and every bit of the loss
