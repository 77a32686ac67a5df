"""Daemons and workers of a build of any version, over the dataset of tests/golden/upgrade."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from paths import ROOT, clean_environment, package_environment
from waiting import wait_for

READER = pathlib.Path(__file__).with_name("reader.py")
RECORDED = ROOT / "tests/golden/upgrade"


class Place:
    """A folder with the dataset, its configuration, and the state and caches of the daemons that run in it."""

    def __init__(self, folder, state=None):
        self.folder, self.endpoint, self.log = folder, folder / "run", folder / "log"
        for name in ("run", "cache"):
            (folder / name).mkdir(parents=True)
        for name in ("arm.hdf5", "arm.yaml", "trajd.yaml"):
            shutil.copy(RECORDED / name, folder)
        os.utime(folder / "arm.hdf5", (1e9, 1e9))  # the index of a file that may still grow is not kept
        if state:
            shutil.copytree(state, folder / "state")
        else:
            (folder / "state").mkdir()

    def text(self):
        return self.log.read_text() if self.log.exists() else ""

    def start(self, build):
        """Starts the daemon of `build` and waits until it is ready."""
        before = self.text().count("ready after")
        with open(self.log, "a") as log:
            process = subprocess.Popen([build / "daemon/trajd", "--config", "trajd.yaml"], stderr=log, cwd=self.folder,
                                       env=clean_environment(ASAN_OPTIONS="detect_leaks=1:abort_on_error=0"))
        wait_for(lambda: self.text().count("ready after") > before or process.poll() is not None, 60, "READY")
        assert process.poll() is None, self.text()
        return process

    def last_start(self):
        """Returns what the last daemon has logged."""
        return self.text()[self.text().rindex("info: serving at"):]


def stop(daemon):
    daemon.terminate()
    assert daemon.wait(60) == 0


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
