"""Kills workers, daemons, both and decoders at random moments, attacks and reloads the daemon, fills its disk, cuts off its
journals, and keeps a ledger of the windows that were worked on.

One trial is one epoch of two jobs. The ledger of a job says for each window how often it was worked on. No window may be lost. A
window may be worked on again only if the process that worked on it before was killed between its work and its DONE, or if the
daemon was killed while the job had no journal: then all comes again that workers had finished or held. Workers compare each
window, images included, with the file; the memory for frames is small, so that decoders work all the time. Afterwards the daemon's
memory, descriptors, children and files have to be as before.

Floods end when the daemon dies: a worker that a flood keeps from returning within rejoin_wait counts as dead, so its windows would
come again."""
import collections
import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import chaos_events
import chaos_images
from daemons import Daemon
from feeds import feed
from paths import BUILD, SUPPORT
from waiting import wait_for

WORKERS = 3       # of each job
WORK_MS = 12      # the time that a worker works on a batch
JOBS = ("a", "b")
CREDIT = 4        # the most batches that a worker holds, or that are on their way to it
LAST_FAULT = 0.6  # no fault after this share of the epoch, so that no worker returns after its end
KILLS = ("worker", "daemon", "both", "stop", "decoder")
EVENTS = (*KILLS, "flood", "full_disk", "journal", "reload")
SETTLE_S = 30     # the daemon has this time to return what it took


class Process:
    """A worker process. `lines` holds what it reported so far; a thread of this process reads it."""

    def __init__(self, endpoint, path, job):
        command = [sys.executable, SUPPORT / "chaos_worker.py", BUILD, endpoint, path, "--job", job, "--work-ms", WORK_MS]
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
        self.lines, self.killed = [], False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.lines.append({"time": time.monotonic(), **json.loads(line)})

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
    """How the windows ended of one job in one epoch."""

    windows: int = 0
    delivered: int = 0  # windows worked on, repeated ones included
    lost: int = 0
    repeated: int = 0  # windows that a killed worker had not DONE, worked on again
    unrecorded: int = 0  # windows finished or held when the daemon was killed without a journal, worked on again
    wrong: int = 0       # windows worked on again although their worker lived on, or had DONE them
    faults: int = 0      # outputs with other values than the file
    errors: list = dataclasses.field(default_factory=list)

    def add(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def is_good(self):
        return self.windows > 0 and not self.lost and not self.wrong and not self.faults and not self.errors


def ledger_of(processes, unrecorded):
    """Returns the ledger of the processes of a job, dead ones included. `unrecorded` has the number of batches of each process for each
    time that the daemon was killed without having a journal."""
    opened = [line for process in processes for line in process.events("open")]
    book = Ledger(windows=opened[0]["windows"] if opened else 0)
    counts, excused, forgotten = collections.Counter(), collections.Counter(), collections.Counter()
    for place, process in enumerate(processes):
        batches = process.events("batch")
        for finished in unrecorded:
            for batch in batches[:finished[place] + CREDIT] if place < len(finished) else ():
                forgotten.update(batch["ids"])
        for number, batch in enumerate(batches):
            counts.update(batch["ids"])
            book.faults += len(batch["faults"])
            book.errors += batch["faults"][:1]
            # The process was killed between the work and DONE, or the DONE did not reach the daemon, which was killed too. That
            # can be true for as many batches as the worker may hold.
            if process.killed and number >= len(batches) - CREDIT:
                excused.update(batch["ids"])
        book.errors += [line["message"] for line in process.events("error")]
    book.delivered = counts.total()
    book.lost = sum(window not in counts for window in range(book.windows))
    for window, count in sorted(counts.items()):
        excuses = {"repeated": excused[window], "unrecorded": forgotten[window], "wrong": count}
        remaining = count - 1
        for column, most in excuses.items():
            number = min(remaining, most)
            setattr(book, column, getattr(book, column) + number)
            remaining -= number
            if column == "wrong" and number:
                book.errors.append(f"window {window} was worked on again: " + history(processes, window))
    return book


def find_moved(processes):
    """Returns a line for each window that was at two places of the dataset, and for each place that two windows had."""
    places, windows, moved = {}, {}, []
    for batch in (batch for process in processes for batch in process.events("batch")):
        for window, place in zip(batch["ids"], map(tuple, batch["places"])):
            if places.setdefault(window, place) != place or windows.setdefault(place, window) != window:
                moved.append(f"window {window} was at {place}, and at {places[window]} before, where window {windows.get(place)} was")
    return moved


def history(processes, window):
    """Returns who worked on a window when."""
    return ", ".join(f"{batch['time']:.3f} process {number}{' (killed later)' * process.killed}" for number, process in enumerate(processes)
                     for batch in process.events("batch") if window in batch["ids"])


class Trial:
    """One epoch of two jobs with faults. Call run() once, and close() at the end."""

    def __init__(self, folder, path, seed, events=EVENTS):
        self.random, self.events = random.Random(seed), list(events)
        self.counts, self.skipped, self.story = collections.Counter(), {}, []
        self.disk = chaos_events.SmallDisk(folder)
        self.path, layout = chaos_images.make_image_files(path, folder)
        self.daemon = Daemon(folder, configuration(self.path, layout), store="8MiB", prefix=chaos_events.LIMIT_DESCRIPTORS)
        self.flood, self.flood_end, self.disk_end = None, 0, 0
        self.unrecorded = {job: [] for job in JOBS}
        self.jobs = {}
        if self.disk.refusal and "full_disk" in self.events:
            self.events.remove("full_disk")
            self.skipped["full_disk"] = self.disk.refusal
        self.daemon.start()
        self.reloader = chaos_events.Reloader(self.daemon, self.path)

    def close(self):
        for process in (process for processes in self.jobs.values() for process in processes):
            process.kill()
        self.end_flood()
        try:
            self.daemon.stop()
        finally:
            self.disk.close()

    def start(self, job):
        return Process(self.daemon.endpoint, self.path, job)

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
        victim = self.random.choice(victims)
        self.tell(f"process {self.jobs[job].index(victim)} of job {job} dies")
        victim.kill()
        return job

    def tell(self, text):
        self.story.append(f"{time.monotonic():.3f} {text}")

    def kill_daemon(self):
        self.daemon.kill()
        self.tell(f"the daemon dies; journals: {[job for job in JOBS if self.disk.has_journal(job)]}")
        for job, processes in self.jobs.items():
            if not self.disk.has_journal(job):
                self.unrecorded[job].append([len(process.events("batch")) for process in processes])
        self.end_flood()

    def begin_flood(self):
        """Begins a flood, unless there is one."""
        if self.flood:
            return False
        kind = self.random.choice(list(chaos_events.FLOODS))
        self.counts[f"flood {kind}"] += 1
        self.flood, self.flood_end = chaos_events.Flood(self.daemon, kind), time.monotonic() + self.random.uniform(1, 2)
        return True

    def end_flood(self):
        if self.flood:
            self.flood.end()
        self.flood = None

    def fill_disk(self):
        """Fills the disk, unless it is full."""
        if self.disk.is_full:
            return False
        self.disk.fill()
        self.tell("the disk is full")
        self.disk_end = time.monotonic() + self.random.uniform(0.5, 3)
        return True

    def end_what_is_over(self):
        if self.flood and time.monotonic() > self.flood_end:
            self.end_flood()
        if self.disk.is_full and time.monotonic() > self.disk_end:
            self.disk.empty()
            self.tell("the disk has room")

    def reload(self):
        self.reloader.reload(self.random.choice(list(self.reloader.variants)), by_signal=self.random.random() < 0.5)
        return True

    def stop_worker(self):
        process = self.random.choice([p for job in self.jobs for p in self.living(job)])
        process.process.send_signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0, 0.2))
        process.process.send_signal(signal.SIGCONT)
        return True

    def kill_decoders(self):
        """Kills one decoder of the daemon, or all. Returns how many."""
        decoders = chaos_events.decoders_of(self.daemon)
        if decoders and self.random.random() < 0.5:
            decoders = [self.random.choice(decoders)]
        for pid in decoders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(decoders)

    def fault(self, event):
        """Makes one fault and returns how many could be made. Floods and full disks go on for some time."""
        if event == "journal":
            return self.disk.cut_journal(self.daemon, self.random)
        return {"stop": self.stop_worker, "flood": self.begin_flood, "full_disk": self.fill_disk,
                "reload": self.reload, "decoder": self.kill_decoders}.get(event, lambda: self.kill_and_repair(event))()

    def kill_and_repair(self, event):
        """Workers that die start again as new processes, without a checkpoint."""
        # "both": the order of the two deaths, and of the two returns, is random.
        daemon_first = self.random.random() < 0.5
        if event == "daemon" or (event == "both" and daemon_first):
            self.kill_daemon()
        job = self.kill_worker() if event != "daemon" else None
        if event == "both" and not daemon_first:
            self.kill_daemon()
        worker_first = self.random.random() < 0.5
        if job and worker_first:
            self.jobs[job].append(self.start(job))
            time.sleep(self.random.uniform(0, 0.3))
        if event != "worker":
            self.daemon.start()
            self.tell("the daemon is back")
        if job and not worker_first:
            self.jobs[job].append(self.start(job))
        return job is not None or event == "daemon"

    def begin(self):
        """Starts the workers, on a full disk in every second trial."""
        if "full_disk" in self.events and self.random.random() < 0.5:
            self.counts["full_disk from the start"] += self.fill_disk()
        self.jobs = {job: [self.start(job) for _ in range(WORKERS)] for job in JOBS}
        wait_for(lambda: all(p.events("batch") for job in self.jobs for p in self.living(job)), 60, "the first batches")

    def end(self):
        """Ends what goes on. The last daemon that lives has borne a flood, whatever the daemons before it did."""
        if "flood" in self.events:
            self.end_flood()
            self.begin_flood()
            time.sleep(1)
        self.end_flood()
        self.disk.empty()
        if "reload" in self.events:
            self.reloader.reload("base")

    def is_alone(self):
        """Returns true if no worker has a session, and only the configured feed is open."""
        with contextlib.closing(chaos_events.connect(self.daemon)) as client:
            status = client.status()
        return len(status["feeds"]) == 1 and not status["feeds"][0]["sessions"]

    def use(self):
        """Two jobs read an epoch, so that the daemon has all that it needs for two jobs."""
        readers = [self.daemon.client() for _ in JOBS]
        for number, client in enumerate(readers):
            client.open("train", job=f"first {number}")
        for client in readers:
            while (batch := client.next()) is not None:
                batch.release()
            client.close()
        wait_for(self.is_alone, SETTLE_S, "the end of the first jobs")

    def run(self, pause=0.15):
        self.use()
        self.before = chaos_events.holdings(self.daemon)
        self.begin()
        while all(self.progress(job) < LAST_FAULT for job in self.jobs):
            event = self.random.choice(self.events)
            self.tell(event)
            self.counts[event] += self.fault(event)
            time.sleep(self.random.expovariate(1 / pause))
            self.end_what_is_over()
        self.end()
        book = Ledger()
        for job, processes in self.jobs.items():
            for process in self.living(job):
                if process.finish(90)["event"] != "end":
                    book.errors.append(f"job {job}: a worker ended with {process.lines[-1:]}")
            book.add(ledger_of(processes, self.unrecorded[job]))
        book.errors += find_moved([process for processes in self.jobs.values() for process in processes])
        if book.unrecorded and not any(text in self.daemon.text() for text in ("goes on without a journal", "no journal of that")):
            book.errors.append("windows came again without a journal, and the log does not say so")
        book.errors += self.settle()
        return book

    def settle(self):
        """Waits until the daemon has what it had before the trial. Returns what is more."""
        wait_for(self.is_alone, SETTLE_S, "the end of all sessions")
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not chaos_events.holdings(self.daemon).excess(self.before), SETTLE_S)
        self.after = chaos_events.holdings(self.daemon)
        return self.after.excess(self.before)


def configuration(path, layout):
    """Workers that died with the daemon never return, so each such trial waits for rejoin_wait."""
    text = "feed_idle: 1s\nlisten: {tcp: '127.0.0.1:0', insecure_loopback: true}\n" + feed(path, batch=4).replace("layout: demo", f"layout: {layout}")
    text += chaos_images.OUTPUTS
    return text.replace("credit: 8", f"credit: {CREDIT}").replace("slots: 6", "slots: 12\n    rejoin_wait: 5s")


def report(title, counts, book):
    faults = ", ".join(f"{count} {event}" for event, count in sorted(counts.items()) if count)
    return (f"{title}: {book.windows} windows, {book.delivered} deliveries; lost {book.lost}, repeated between work and DONE "
            f"{book.repeated}, repeated without a journal {book.unrecorded}, repeated otherwise {book.wrong}, wrong values "
            f"{book.faults}, errors {len(book.errors)} ({faults})")
