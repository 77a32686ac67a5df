"""Fixtures for the Python package as the build has it."""
import subprocess
import sys

import pytest
from host_device import HostDevice
from paths import BUILD, PACKAGE, clean_environment

sys.path.insert(0, str(PACKAGE))
if not list((PACKAGE / "trajd").glob("_core*")):
    collect_ignore_glob = ["test_*.py"]  # built without Python's headers


def pytest_configure(config):
    """Keeps warnings of the package out of the summary. pytest-xdist's main process cannot import their class."""
    config.addinivalue_line("filterwarnings", "ignore::trajd.DataWarning")


class Producer:
    """tests/support/fake_producer as a process: a server whose batches are functions of their position.

    It serves the feed "train" for any `spec`. `options` are its arguments."""

    def __init__(self, folder, **options):
        self.endpoint = folder
        self.command = [BUILD / "tests/support/fake_producer", folder, *(f"{name}={value}" for name, value in options.items())]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment())
        assert self.process.stdout.readline() == "READY\n"
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:  # a process that the test forked holds the pipe, too
            self.process.terminate()
            self.process.wait(30)


@pytest.fixture
def producer(tmp_path):
    """producer(**options) starts a fake producer, which is stopped after the test."""
    started = []

    def start(**options):
        started.append(Producer(tmp_path, **options))
        return started[-1].start()

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop()


@pytest.fixture
def key_file(tmp_path):
    """The key file of a remote worker; the daemon's keys are in the folder keys."""
    environment = clean_environment()
    for arguments in ([], ["--client", "trainer"]):
        subprocess.run([BUILD / "clients/cli/trajctl", "keygen", tmp_path / "keys", *arguments], check=True, env=environment,
                       stdout=subprocess.DEVNULL)
    return tmp_path / "keys/trainer.key_secret"


@pytest.fixture
def device(monkeypatch):
    """The list of devices that the package opens: HostDevice takes the place of a CUDA device."""
    from trajd import cuda

    made = []
    monkeypatch.setattr(cuda, "open_device", lambda name: made.append(HostDevice(name)) or made[-1])
    monkeypatch.setattr("trajd.arrays.import_torch", lambda: None)
    return made
