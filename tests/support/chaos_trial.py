"""Kills workers, daemons and both at random moments, and keeps a ledger of the windows that were worked on.

One trial is one epoch of two jobs. The ledger of a job says for each window how often it was worked on. No window may be lost. A
window may be worked on again only if the process that worked on it before was killed between its work and its DONE."""
import collections
import dataclasses
import json
import random
import signal
import subprocess
import sys
import threading
import time

from feeds import feed
from paths import BUILD, SUPPORT
from waiting import wait_for

WORKERS = 3       # of each job
WORK_MS = 12      # the time that a worker works on a batch
CREDIT = 4        # the most batches that a worker holds, or that are on their way to it
LAST_FAULT = 0.6  # no fault after this share of the epoch, so that no worker returns after its end
EVENTS = ("worker", "daemon", "both", "stop")


class Process:
    """A worker process. `lines` holds what it reported so far; a thread of this process reads it."""

    def __init__(self, endpoint, job, *arguments):
        command = [sys.executable, SUPPORT / "chaos_worker.py", BUILD, endpoint, "--job", job, "--work-ms", WORK_MS, *arguments]
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
        self.lines, self.killed = [], False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.lines.append(json.loads(line))

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()
        self.reader.join()

    def events(self, name):
        return [line for line in list(self.lines) if line["event"] == name]

    def finish(self, seconds):
        """Waits for the end of the process. Returns its last line."""
        self.process.wait(seconds)
        self.reader.join()
        return self.lines[-1] if self.lines else {"event": "nothing"}


@dataclasses.dataclass
class Ledger:
    """What became of the windows of one job in one epoch."""

    windows: int = 0
    delivered: int = 0  # windows worked on, repeated ones included
    lost: int = 0
    repeated: int = 0  # windows that a killed worker had not DONE, worked on again
    wrong: int = 0     # windows worked on again although their worker lived on, or had DONE them
    errors: list = dataclasses.field(default_factory=list)

    def add(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def is_good(self):
        return self.windows > 0 and not self.lost and not self.wrong and not self.errors


def ledger_of(processes):
    """Returns the ledger of the processes of a job, dead ones included."""
    opened = [line for process in processes for line in process.events("open")]
    book = Ledger(windows=opened[0]["windows"] if opened else 0)
    counts, excused = collections.Counter(), collections.Counter()
    for process in processes:
        batches = process.events("batch")
        for number, batch in enumerate(batches):
            counts.update(batch["ids"])
            # The process was killed between the work and DONE, or the DONE did not reach the daemon, which was killed too. That
            # can be true for as many batches as the worker may hold.
            if process.killed and number >= len(batches) - CREDIT:
                excused.update(batch["ids"])
        book.errors += [line["message"] for line in process.events("error")]
    book.delivered = counts.total()
    book.lost = sum(window not in counts for window in range(book.windows))
    for window, count in counts.items():
        book.repeated += min(count - 1, excused[window])
        book.wrong += max(count - 1 - excused[window], 0)
    return book


class Trial:
    """One epoch of two jobs with faults. Call run() once."""

    def __init__(self, daemon, seed, events=EVENTS):
        self.daemon, self.random, self.events = daemon, random.Random(seed), events
        self.counts = collections.Counter()
        self.jobs = {job: [self.start(job) for _ in range(WORKERS)] for job in ("a", "b")}

    def start(self, job):
        return Process(self.daemon.endpoint, job)

    def living(self, job):
        return [process for process in self.jobs[job] if not process.killed]

    def progress(self, job):
        """Returns the share of the epoch that the workers of a job have worked on."""
        opened = [line for process in self.jobs[job] for line in process.events("open")]
        worked = {i for process in self.jobs[job] for batch in process.events("batch") for i in batch["ids"]}
        return len(worked) / opened[0]["windows"] if opened else 0

    def kill_worker(self):
        """Kills a worker, but never the last one of its job that has been in the epoch. Returns its job."""
        job = self.random.choice(list(self.jobs))
        victims = [process for process in self.living(job) if process.events("batch")]
        if len(victims) < 2:
            return None
        self.random.choice(victims).kill()
        return job

    def fault(self, event):
        """Makes one fault and repairs it. Workers that die start again as new processes, without a checkpoint."""
        if event == "stop":
            process = self.random.choice([p for job in self.jobs for p in self.living(job)])
            process.process.send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0, 0.2))
            process.process.send_signal(signal.SIGCONT)
            return True
        # "both": the order of the two deaths, and of the two returns, is random.
        daemon_first = self.random.random() < 0.5
        if event == "daemon" or (event == "both" and daemon_first):
            self.daemon.kill()
        job = self.kill_worker() if event != "daemon" else None
        if event == "both" and not daemon_first:
            self.daemon.kill()
        worker_first = self.random.random() < 0.5
        if job and worker_first:
            self.jobs[job].append(self.start(job))
            time.sleep(self.random.uniform(0, 0.3))
        if event != "worker":
            self.daemon.start()
        if job and not worker_first:
            self.jobs[job].append(self.start(job))
        return job is not None or event == "daemon"

    def run(self, pause=0.15):
        wait_for(lambda: all(p.events("batch") for job in self.jobs for p in self.living(job)), 60, "the first batches")
        while all(self.progress(job) < LAST_FAULT for job in self.jobs):
            event = self.random.choice(self.events)
            self.counts[event] += self.fault(event)
            time.sleep(self.random.expovariate(1 / pause))
        book = Ledger()
        for job, processes in self.jobs.items():
            for process in self.living(job):
                if process.finish(90)["event"] != "end":
                    book.errors.append(f"job {job}: a worker ended with {process.lines[-1:]}")
            book.add(ledger_of(processes))
        return book


def configuration(path):
    """Workers that died with the daemon never return, so each such trial waits for rejoin_wait."""
    return feed(path, batch=4).replace("credit: 8", f"credit: {CREDIT}").replace("slots: 6", "slots: 12\n    rejoin_wait: 5s")


def report(title, counts, book):
    faults = ", ".join(f"{count} {event}" for event, count in sorted(counts.items()))
    return (f"{title}: {book.windows} windows, {book.delivered} deliveries; lost {book.lost}, repeated between work and DONE "
            f"{book.repeated}, repeated otherwise {book.wrong}, errors {len(book.errors)} ({faults})")
