"""Starts real daemons on real files. TRAJD_BUILD names the build to test (default build/release), TRAJD_DAEMON_BUILD another
one for the daemons alone. For an instrumented libtrajd in an
ordinary Python set LD_PRELOAD to the sanitizer's runtime, as .ci/test does; the daemons are run without it."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("TRAJD_BUILD", "build/release")).resolve()
PROGRAM = (ROOT / os.environ.get("TRAJD_DAEMON_BUILD", BUILD)).resolve() / "daemon" / "trajd"
RECORDINGS = ROOT.parent / "shared" / "data"
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import libtrajd as trajd  # noqa: E402


def wait_for(condition, timeout=60.0, what="condition"):
    """Waits until condition() is true and returns its value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.005)
    return value


def natural(text):
    """A key to sort names by, runs of digits as numbers."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def smallest(dataset="demo", batch=8):
    """The least that is a feed: a row of actions a window."""
    return f"{{dataset: {dataset}, global_batch: {batch}, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0}}}}}}"


class Daemon:
    """A trajd process with its folder. `config` is YAML without version, runtime and state, which are added."""

    def __init__(self, folder, config, program=PROGRAM, store="64MiB", rings="64MiB", prefix=()):
        self.folder, self.program, self.prefix = pathlib.Path(folder), program, prefix
        self.folder.mkdir(exist_ok=True)
        self.endpoint = self.folder / "run"
        self.config = self.folder / "trajd.yaml"
        self.log = self.folder / "log"
        (self.folder / "state").mkdir(exist_ok=True)
        (self.folder / "cache").mkdir(exist_ok=True)
        self.config.write_text("version: 1\nruntime: run\nstate: state\ncache: cache\n"
                               f"memory: {{store: {store}, rings: {rings}, reserve: 0}}\n" + textwrap.dedent(config))
        self.process = None

    def environment(self):
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        environment["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=0"
        environment["TSAN_OPTIONS"] = f"suppressions={ROOT}/tests/tsan.supp"  # libzmq is not instrumented
        return environment

    def run(self, *arguments):
        return subprocess.run([self.program, "--config", self.config, *arguments], capture_output=True, text=True,
                              env=self.environment(), timeout=60)

    def start(self):
        before = self.text().count("ready after")
        self.process = subprocess.Popen([*self.prefix, self.program, "--config", self.config], env=self.environment(),
                                        stderr=open(self.log, "a"), stdout=subprocess.DEVNULL)
        wait_for(lambda: self.text().count("ready after") > before or self.process.poll() is not None, 60, "READY")
        assert self.process.poll() is None, self.text()
        return self

    def text(self):
        return self.log.read_text() if self.log.exists() else ""

    def client(self, **options):
        return trajd.Client(LIBRARY, self.endpoint, **options)

    def signals_of_threads(self):
        """The masks of what each thread but the main one blocks."""
        masks = []
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                if int(task.name) != self.process.pid:
                    masks.append(int(re.search(r"SigBlk:\s*(\w+)", (task / "status").read_text())[1], 16))
        return masks

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Ends it as a service manager does; a sanitizer's finding makes the status differ from 0."""
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(60)
        assert status == 0, f"trajd ended with {status}:\n{self.text()}"


class GpuDaemon(Daemon):
    """One of trajd_fake_gpu; `fake` is how its GPU behaves (tests/fake/device_host.c)."""

    fake = ""

    def environment(self):
        return {**super().environment(), "FAKE_GPU": self.fake}


LIBRARY = trajd.load(BUILD)


@pytest.fixture
def started():
    """started(daemon) starts it; all are stopped, and must have ended well, after the test."""
    daemons = []

    def start(daemon):
        daemons.append(daemon)
        return daemon.start()

    yield start
    for one in daemons:
        if one.process and one.process.returncode is None:
            one.stop()


@pytest.fixture
def daemon(tmp_path, started):
    return lambda config, folder=".", **options: started(Daemon(tmp_path / folder, config, **options))


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory):
    """The demonstration dataset, small: 24 episodes."""
    path = tmp_path_factory.mktemp("demo") / "demo.hdf5"
    subprocess.run([sys.executable, ROOT / "tests/tools/make_demo_dataset.py", path, "--episodes", "24"], check=True,
                   env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}, stdout=subprocess.DEVNULL)
    return path
