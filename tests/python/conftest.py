"""The package as the build has it (TRAJD_BUILD, as in tests/integration, whose daemons and fixtures are used here)."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

_path = pathlib.Path(__file__).resolve().parents[1] / "integration" / "conftest.py"
if "daemons" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("daemons", _path)
    sys.modules["daemons"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["daemons"])
from daemons import *  # noqa: E402,F401,F403
from python_package import PACKAGE  # noqa: E402

sys.path.insert(0, str(PACKAGE))
if not list((PACKAGE / "trajd").glob("_core*")):
    collect_ignore_glob = ["test_*.py"]  # built without Python's headers


class Producer:
    """tests/support/fake_producer: a server whose batches are functions of their position. Feed "train" by any `spec`."""

    def __init__(self, folder, **options):
        self.endpoint = folder
        self.command = [BUILD / "tests/support/fake_producer", folder, *(f"{name}={value}" for name, value in options.items())]
        self.process = None

    def start(self):
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout.readline() == "READY\n"
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:  # a process that the test forked has the pipe, too
            self.process.terminate()
            self.process.wait(30)


@pytest.fixture
def producer(tmp_path):
    started = []

    def start(**options):
        started.append(Producer(tmp_path, **options))
        return started[-1].start()

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop()
