"""Daemons and workers of a build of any version, over the dataset of tests/golden/upgrade."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from daemons import Daemon
from paths import BUILD, ROOT, package_environment

READER = pathlib.Path(__file__).with_name("reader.py")
RECORDED = ROOT / "tests/golden/upgrade"


class Place(Daemon):
    """A daemon of any build, in a folder with the dataset, its configuration, and the state and caches of all that run there."""

    def __init__(self, folder, state=None):
        super().__init__(folder, "", prefix=("env", "--chdir", folder))  # which the path of the layout is relative to
        for name in ("arm.hdf5", "arm.yaml", "trajd.yaml"):
            shutil.copy(RECORDED / name, folder)
        os.utime(folder / "arm.hdf5", (1e9, 1e9))  # the index of a file that may still grow is not kept
        if state:
            shutil.copytree(state, folder / "state", dirs_exist_ok=True)

    def start(self, build=BUILD):
        self.program = build / "daemon/trajd"
        return super().start()

    def last_start(self):
        """Returns what the last daemon has logged."""
        return self.text()[self.text().rindex("info: serving at"):]


class Worker:
    """A worker process with the package of `build`."""

    def __init__(self, build, place, *arguments, **options):
        environment = {**os.environ, **package_environment(), "PYTHONPATH": str(build / "clients/python")}
        self.process = subprocess.Popen([sys.executable, READER, place.endpoint, *map(str, arguments)], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)

    def next(self):
        """Returns the next batch, or at the end of the epoch the state."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def rest(self):
        """Returns all batches that are left of the epoch."""
        batches = []
        while "state" not in (batch := self.next()):
            batches.append(batch)
        assert self.process.wait(30) == 0
        return batches

    def end(self):
        """Ends the worker in order. Returns its state."""
        told = json.loads(self.process.communicate(timeout=30)[0])
        assert self.process.returncode == 0
        return told

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
