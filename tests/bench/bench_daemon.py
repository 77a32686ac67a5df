"""Helpers of the benchmarks that run a daemon: the daemon itself, its memory and CPU time, facts about the machine."""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time

from report import figure, middle  # noqa: F401: every part wants them with the rest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


PLACES = {"package": ("clients/python", "python"), "trajd": ("daemon/trajd", "python/trajd/bin/trajd"),
          "trajctl": ("clients/cli/trajctl", "python/trajd/bin/trajctl"), "fake_producer": ("tests/support/fake_producer", "fake_producer")}


def find_built(build, what):
    """Returns the path of a program or of the package in a build tree, or in a bundle for GPU machines, which has other folders."""
    built, bundled = (pathlib.Path(build) / place for place in PLACES[what])
    return built if built.exists() else bundled


def cpu_name():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), platform.machine())


def commit():
    described = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return described.stdout.strip() or "unknown"


def process_cpu_s(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def tree_cpu_s(pid):
    """Returns the CPU seconds of a process, of its children that run, and of those that it has waited for. To the nanosecond."""
    lists = [path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")]
    running = [pid, *(int(child) for children in lists for child in children.split())]
    ended = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    clocks = [~one << 3 | 2 for one in running]  # as clock_getcpuclockid() computes it
    return sum(map(time.clock_gettime, clocks)) + sum(map(int, ended)) * TICK_S


def demo_dataset(work):
    """Writes the demonstration dataset: 200 episodes, the same bytes every time."""
    path = work / "demo.hdf5"
    if not path.exists():
        made = path.with_suffix(".part")
        subprocess.run([sys.executable, ROOT / "tests/tools/make_demo_dataset.py", made], check=True,
                       stdout=subprocess.DEVNULL)
        made.rename(path)
    return path


class Daemon:
    """A trajd process that is ready. `ready_s` is the time from exec to READY as its parent measures it,
    `said_ready_ms` the time in its log."""

    def __init__(self, build, folder, config, keep_cache=False, timeout_s=600):
        self.build, self.folder = build, pathlib.Path(folder)
        self.endpoint, self.log = self.folder / "run", self.folder / "log"
        if not keep_cache:
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        (self.folder / "cache").mkdir(parents=True, exist_ok=True)
        (self.folder / "trajd.yaml").write_text(f"version: 2\nruntime: run\ncache: cache\n{config}")
        self.start(timeout_s)

    def start(self, timeout_s):
        command = [find_built(self.build, "trajd"), "--config", self.folder / "trajd.yaml"]
        text = ""
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            text += line
            if "ready after" in line:
                self.ready_s = time.perf_counter() - begin
                break
            if time.perf_counter() - begin > timeout_s:
                self.process.kill()
        self.log.write_text(text)
        if self.process.poll() is not None or "ready after" not in text:
            raise RuntimeError(f"trajd did not get ready:\n{text}")
        self.said_ready_ms = float(re.search(r"ready after ([\d.]+) ms", text)[1])
        self.plans = re.findall(r"kernels: (.*)", text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.stderr.close()

    def cpu_s(self):
        return process_cpu_s(self.process.pid)

    def trajctl(self, *arguments):
        out = subprocess.run([self.build / "clients/cli/trajctl", *map(str, arguments), "--json", "--endpoint", self.endpoint],
                             check=True, capture_output=True, text=True)
        return json.loads(out.stdout)

    def memory(self):
        """Returns bytes: resident memory, rings, the store by its own count, and the remaining memory, for which
        there is a budget."""
        rings = total = 0
        with open(f"/proc/{self.process.pid}/smaps") as maps:
            for line in maps:
                if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                    is_ring = "/memfd:" in line
                elif line.startswith("Rss:"):
                    size = int(line.split()[1]) * 1024
                    total += size
                    rings += size if is_ring else 0
        store = sum(dataset["store"]["resident_bytes"] for dataset in find_datasets(self.trajctl("status")))
        return {"rss": total, "rings": rings, "store": store, "rest": total - rings - store}


def find_datasets(status):
    """Returns the list under "datasets" of the status document, at whatever depth."""
    if isinstance(status, dict):
        return status["datasets"] if "datasets" in status else next(filter(None, map(find_datasets, status.values())), [])
    return []
