"""What a chaos trial does to a daemon beside kills: floods, a full disk and reloads. And what has to be as before afterwards."""
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess

from attacker import MIB, anonymous_bytes, begin_attack, remote_endpoint
from daemons import LIBRARY
from libtrajd import connect_in_time
from paths import TRAJCTL, clean_environment
from waiting import wait_for

JOURNAL_BYTES, JOURNAL_MAGIC = 12288, b"TRJJRNL1"
STATE_BYTES = 256 << 10  # of the disk with the daemon's state
MEMORY_BACK = 5 * MIB    # a daemon may keep so much more than before the trial
LIMIT_DESCRIPTORS = ("sh", "-c", 'ulimit -n 1500; exec "$@"', "sh")  # prefix of a daemon whose descriptors can run out

FLOODS = {
    "endless": ("frames", "--count", 8, "--size", 32768),
    "empty": ("frames", "--count", 8, "--size", 0),
    "hello": ("hello", "--count", 200),
    "status": ("status", "--count", 100),
    "descriptors": ("descriptors", "--count", 3000),
    "remote endless": ("frames", "--count", 8, "--size", 32768),
    "remote hello": ("hello", "--count", 100),
}


def connect(daemon):
    return connect_in_time(LIBRARY, daemon.endpoint)


class Flood:
    """An attack that goes on until end()."""

    def __init__(self, daemon, kind):
        attack, *options = FLOODS[kind]
        endpoint = remote_endpoint(daemon) if kind.startswith("remote") else daemon.endpoint
        self.process = begin_attack(attack, endpoint, *options)

    def end(self):
        self.process.kill()
        self.process.wait()


class SmallDisk:
    """A small disk for the daemon's state. Make it before the daemon, which is to be in the same folder."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "state"
        self.path.mkdir(parents=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES}", "tmpfs", self.path], capture_output=True,
                                 text=True)
        self.refusal = mounted.stderr.partition("\n")[0] if mounted.returncode else None
        self.is_full = False

    def fill(self):
        """Writes a file until there is no room left, also for one page."""
        with open(self.path / "filler", "ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        self.is_full = True

    def empty(self):
        (self.path / "filler").unlink(missing_ok=True)
        self.is_full = False

    def journals(self, job="*"):
        return list(self.path.glob(f"{job}@train-*.journal"))

    def has_journal(self, job):
        """Returns true if the daemon has written the job's journal. Its first page is written last."""
        return any(path.stat().st_size == JOURNAL_BYTES and path.read_bytes()[:8] == JOURNAL_MAGIC for path in self.journals(job))

    def cut_journal(self, daemon, random):
        """Cuts off a journal that the daemon has open, which writes it again. Returns False if there is none."""
        opened = set()
        for path in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                opened.add(os.readlink(path))
        journals = [path for path in sorted(self.journals()) if os.path.realpath(path) in opened]
        if journals:
            os.truncate(random.choice(journals), 0)
        return bool(journals)

    def close(self):
        if self.refusal is None:
            subprocess.run(["umount", "-l", self.path], check=True)


class Reloader:
    """Changes the configuration of a daemon and makes it read it again."""

    EXTRA = """
  extra:
    dataset: {dataset}
    global_batch: 4
    anchor: {{clock: actions}}
    outputs: {{obs/robot0_eef_pos: {{at: -1..0}}}}
"""

    def __init__(self, daemon, path):
        self.daemon, self.base = daemon, daemon.config.read_text()
        assert "datasets: {demo: {" in self.base and "store: 8MiB" in self.base
        dataset = self.base.replace("datasets: {demo: {", f"datasets: {{more: {{path: {path}, layout: demo}}, demo: {{")
        self.variants = {
            "base": self.base,
            "feed": self.base + self.EXTRA.format(dataset="demo"),
            "dataset": dataset.replace("store: 8MiB", "store: 12MiB") + self.EXTRA.format(dataset="more"),
            "keys": self.base.replace("version: 2\n", "version: 2\njournal_idle: 30d\nindex: {file_timeout: 50s}\n"),
        }

    def reload(self, variant, by_signal=False):
        """Reloads a variant, and reads a batch of the feed that it adds."""
        self.daemon.config.write_text(self.variants[variant])
        if by_signal:
            before = self.daemon.text().count("reloaded: ")
            self.daemon.process.send_signal(signal.SIGHUP)
            wait_for(lambda: self.daemon.text().count("reloaded: ") > before, 30, "the reload")
        else:
            wait_for(self.run_trajctl, 60, "the reload")
        if variant in ("feed", "dataset"):
            with contextlib.closing(connect(self.daemon)) as client:
                client.open("extra")
                client.next(60000).release()
            wait_for(lambda: not self.readers("extra"), 30, "the end of a session")

    def run_trajctl(self):
        """Returns False while a flood has all sessions or connections."""
        done = subprocess.run([TRAJCTL, "reload", "--wait", "--endpoint", self.daemon.endpoint], capture_output=True, text=True,
                              timeout=60, env=clean_environment())
        assert done.returncode == 0 or "sessions are in use" in done.stderr or "no daemon answers" in done.stderr, done
        return done.returncode == 0

    def readers(self, name):
        with contextlib.closing(connect(self.daemon)) as client:
            return sum(feed["sessions"] for feed in client.status()["feeds"] if feed["name"] == name)


@dataclasses.dataclass
class Holdings:
    """What a daemon without workers has."""

    memory: int
    descriptors: int
    zombies: int
    files: set

    def __str__(self):
        return f"{self.memory / MIB:.1f} MiB, {self.descriptors} descriptors"

    def excess(self, before):
        """Returns what is more than before, or an empty list."""
        found = []
        if self.memory > before.memory + MEMORY_BACK:
            found.append(f"memory: {self.memory / MIB:.1f} MiB, {before.memory / MIB:.1f} MiB before")
        if self.descriptors > before.descriptors:
            found.append(f"descriptors: {self.descriptors}, {before.descriptors} before")
        if self.zombies:
            found.append(f"{self.zombies} children that have ended and were not waited for")
        if self.files != before.files:
            found.append(f"files in the run folder: {self.files ^ before.files}")
        return found


def decoders_of(daemon):
    """Returns the helper programs of the daemon that decode frames."""
    found = []
    for path in pathlib.Path(f"/proc/{daemon.process.pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread or the child has ended
            found += [int(pid) for pid in path.read_text().split()
                      if pathlib.Path(f"/proc/{pid}/comm").read_text() == "trajd-decoder\n"]
    return found


def count_zombies(parent):
    zombies = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        zombies += state == "Z" and int(ppid) == parent
    return zombies


def holdings(daemon):
    pid = daemon.process.pid
    return Holdings(anonymous_bytes(daemon), len(os.listdir(f"/proc/{pid}/fd")), count_zombies(pid), set(os.listdir(daemon.endpoint)))
