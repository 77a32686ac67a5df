"""Starts, kills and stops real daemons."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import textwrap

import libtrajd as trajd
from paths import BUILD, PROGRAM, ROOT, clean_environment
from waiting import wait_for

LIBRARY = trajd.load(BUILD)
FAKE_PROGRAM = PROGRAM.with_name("trajd_fake_gpu")  # the daemon with the fake GPU of tests/fake


def smallest(dataset="demo", batch=8):
    """Returns the smallest configuration of a feed: one row of actions per window."""
    return f"{{dataset: {dataset}, global_batch: {batch}, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0}}}}}}"


def smallest_config(path, batch=8):
    """Returns a configuration with that feed, `train`, of a file of the demonstration dataset."""
    return f"datasets: {{demo: {{path: {path}, layout: demo}}}}\nfeeds: {{train: {smallest(batch=batch)}}}\n"


def private_daemons(folder):
    """Returns the process numbers of the private daemons whose folders are in `folder`, without those that have ended."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            is_daemons = f"runtime={folder}/".encode() in (process / "cmdline").read_bytes()
            if is_daemons and (process / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(process.name))
    return found


def decoders_of(pid):
    """Returns the helper programs of a daemon that decode images."""
    lists = [task.read_text() for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for children in lists for child in children.split()]


def kill_decoders(pid):
    """Kills the helper programs. Returns how many."""
    killed = 0
    for child in decoders_of(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            killed += 1
    return killed


class Daemon:
    """A trajd process with its folder. `config` is YAML without version, runtime, state and cache, which are added."""

    def __init__(self, folder, config, program=PROGRAM, store="64MiB", rings="64MiB", prefix=()):
        self.folder, self.program, self.prefix = pathlib.Path(folder), program, prefix
        self.folder.mkdir(exist_ok=True)
        self.endpoint = self.folder / "run"
        self.config = self.folder / "trajd.yaml"
        self.log = self.folder / "log"
        (self.folder / "state").mkdir(exist_ok=True)
        (self.folder / "cache").mkdir(exist_ok=True)
        self.config.write_text("version: 2\nruntime: run\nstate: state\ncache: cache\n"
                               f"memory: {{store: {store}, rings: {rings}, reserve: 0}}\n" + textwrap.dedent(config))
        self.process = None

    def environment(self):
        """Returns the daemon's environment: without LD_PRELOAD, with the sanitizers' options."""
        return clean_environment(ASAN_OPTIONS="detect_leaks=1:abort_on_error=0",
                                 TSAN_OPTIONS=f"suppressions={ROOT}/tests/tsan.supp")  # libzmq is not instrumented

    def run(self, *arguments):
        """Runs the program to its end with further arguments."""
        return subprocess.run([self.program, "--config", self.config, *arguments], capture_output=True, text=True,
                              env=self.environment(), timeout=60)

    def start(self):
        """Starts the daemon and waits until it is ready."""
        before = self.text().count("ready after")
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([*self.prefix, self.program, "--config", self.config], env=self.environment(),
                                            stderr=log, stdout=subprocess.DEVNULL)
        wait_for(lambda: self.text().count("ready after") > before or self.process.poll() is not None, 60, "READY")
        assert self.process.poll() is None, self.text()
        return self

    def text(self):
        """Returns the log so far, over all starts."""
        return self.log.read_text() if self.log.exists() else ""

    def client(self, **options):
        """Connects a worker of this process."""
        return trajd.Client(LIBRARY, self.endpoint, **options)

    def open_files(self):
        """Returns what each open descriptor of the daemon leads to, as {path in /proc: path}. One that closes meanwhile
        is left out."""
        found = {}
        for link in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[link] = str(link.readlink())
        return found

    def signals_of_threads(self):
        """Returns the mask of blocked signals of each thread except the main thread."""
        masks = []
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                if int(task.name) != self.process.pid:
                    masks.append(int(re.search(r"SigBlk:\s*(\w+)", (task / "status").read_text())[1], 16))
        return masks

    def kill(self):
        """Kills the daemon with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Stops the daemon with SIGTERM, as a service manager does. Fails where its exit status is not 0: a sanitizer found something."""
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(60)
        assert status == 0, f"trajd ended with {status}:\n{self.text()}"


class Preloaded(Daemon):
    """A daemon with a library of tests/fake loaded before its own."""
    library = ""

    def environment(self):
        own = super().environment()
        own["ASAN_OPTIONS"] += ":verify_asan_link_order=0"
        return {**own, "LD_PRELOAD": str(BUILD / f"tests/fake/lib{self.library}.so")}


class Short(Preloaded):
    """A daemon on a machine whose free memory the test decides."""
    library = "little_memory"

    def environment(self):
        return {**super().environment(), "TRAJD_TEST_MEMINFO": str(self.folder / "meminfo")}

    def leave(self, mib):
        new = self.folder / "meminfo.new"
        new.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {mib << 10} kB\n")
        new.replace(self.folder / "meminfo")


class GpuDaemon(Daemon):
    """A daemon with a fake GPU. Set `fake` before start() to choose how the GPU behaves (tests/fake/device_host.c)."""

    fake = ""

    def environment(self):
        return {**super().environment(), "FAKE_GPU": self.fake}
