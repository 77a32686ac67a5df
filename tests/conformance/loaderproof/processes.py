"""Training processes of a test: starts them, reads their logs, kills them, and finds all that they have started."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

MARK = "LOADERPROOF_RUN"


class Failed(Exception):
    """A training process ended with an error that no kill explains. The text is the last line that it has printed."""


class Job:
    """The ranks of one job. Every process that they start inherits a mark in its environment."""

    def __init__(self, run, folder, mark=None, **spec):
        self.run, self.folder, self.spec = run, folder, spec
        self.mark = mark or uuid.uuid4().hex
        self.logs, self.ranks = [], []

    def start(self, share, state=None):
        world = share["world"]
        (pathlib.Path(self.folder) / "tmp").mkdir(exist_ok=True)
        port = 20000 + os.getpid() % 10000 + (uuid.uuid4().int % 9000)
        self.errors = pathlib.Path(tempfile.mkstemp(suffix=".err", dir=self.run.folder)[1])
        for rank in range(world):
            file, log = tempfile.mkstemp(suffix=".log", dir=self.run.folder)
            os.close(file)
            spec = {"driver": self.run.name, "folder": str(self.folder), "share": {**share, "rank": rank}, "state": state,
                    "log": log, "mutation": self.run.mutation, **self.spec}
            env = {**os.environ, MARK: self.mark, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                   "TMPDIR": str(self.folder / "tmp"), "LOADERPROOF_PORT": str(port), "OMP_NUM_THREADS": "1"}
            self.logs.append(pathlib.Path(log))
            with open(self.errors, "ab") as errors:
                self.ranks.append(subprocess.Popen([sys.executable, "-m", "loaderproof.worker", json.dumps(spec)], env=env,
                                                   stdin=subprocess.DEVNULL, stdout=errors, stderr=errors))
        return self

    def lines(self, rank):
        """Returns what a rank has written: whole lines."""
        text = self.logs[rank].read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def batches(self, rank):
        return [line for line in self.lines(rank) if "end" not in line]

    def ended(self, rank):
        return bool(self.lines(rank)) and "end" in self.lines(rank)[-1]

    def check(self):
        """Raises Failed if a rank has ended with an error."""
        if any(rank.poll() not in (None, 0) for rank in self.ranks):
            text = self.errors.read_text(errors="replace").strip().splitlines()
            raise Failed(text[-1][:200] if text else f"exit status {[rank.poll() for rank in self.ranks]}")

    def wait(self, timeout=120, until=None):
        """Waits for the end of all ranks, or until `until()` holds. Returns False if neither comes, or nothing more is
        written for `timeout` seconds."""
        seen, moved = None, time.monotonic()
        while True:
            if until and until():
                return True
            if all(rank.poll() is not None for rank in self.ranks):
                return not until
            size = sum(log.stat().st_size for log in self.logs)
            if size != seen:
                seen, moved = size, time.monotonic()
            if time.monotonic() - moved > timeout:
                return False
            time.sleep(0.01 if until else 0.05)

    def kill_ranks(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
        for rank in self.ranks:
            rank.wait()

    def others(self):
        """Returns {pid: name} of the living processes with the mark that are not ranks."""
        ranks = {rank.pid for rank in self.ranks}
        return {pid: name for pid, name in marked(self.mark).items() if pid not in ranks}

    def end(self):
        """Kills all that is left of the job."""
        self.kill_ranks()
        for pid in self.others():
            kill(pid)


def own_shared_memory():
    """Gives what this thread starts a /dev/shm of its own. Needs root, and Python 3.12 or later.

    Some loaders give their shared memory a fixed name, so jobs that run at once would find that of each other."""
    os.unshare(os.CLONE_NEWNS)
    for command in ("mount --make-rprivate /", "mount -t tmpfs tmpfs /dev/shm"):
        subprocess.run(command.split(), check=True)


def marked(mark):
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if f"{MARK}={mark}".encode() not in file.read():
                        continue
                with open(f"/proc/{entry}/stat") as file:
                    name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
                if rest.split()[0] != "Z":
                    found[int(entry)] = name
            except OSError:  # it has ended
                continue
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0
