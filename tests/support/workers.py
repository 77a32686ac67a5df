"""Starts worker processes and reads what they report."""
import json
import subprocess
import sys

from paths import BUILD, SUPPORT
from waiting import wait_for


class Worker:
    """worker_process.py as a process. `said` holds its lines as dictionaries."""

    def __init__(self, daemon, *arguments, feed="train"):
        command = [sys.executable, SUPPORT / "worker_process.py", BUILD, daemon.endpoint, feed, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.said = []

    def read(self, event=None):
        """Reads lines up to the first one with this event and returns it. Without an event, reads to the end."""
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if event and self.said[-1]["event"] == event:
                return self.said[-1]
        assert event is None, f"the worker ended before the event {event}: {self.said[-3:]}"
        return None

    def go(self):
        """Writes the line that the worker waits for."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Kills the worker and reads the lines that it had written."""
        self.process.kill()
        self.process.wait()
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.said.append(json.loads(line))

    def batches(self):
        return [line for line in self.said if line["event"] == "batch"]

    def ids(self):
        return [i for batch in self.batches() for i in batch["ids"]]


def finish(worker):
    """Lets the worker read to the end of its epoch and checks that it ended well."""
    worker.read()
    assert worker.process.wait(60) == 0
    assert worker.said[-1]["event"] == "end"


def step(workers, count=1):
    """Each worker with `--pace` takes `count` further batches. All except the last are DONE then."""
    for _ in range(count):
        for worker in workers:
            worker.go()
        for worker in workers:
            worker.read("batch")


def run_out(workers):
    """Lets workers with `--pace` read to the end of their epoch without a pause."""
    for worker in workers:
        worker.process.stdin.close()
    for worker in workers:
        finish(worker)


def wait_for_done(daemon, count):
    """Waits until the daemon has counted `count` batches as DONE. Clients send DONE in bursts, after some milliseconds at the latest."""
    client = daemon.client()
    wait_for(lambda: client.status()["batches_done"] >= count, what=f"{count} batches DONE")
    client.close()
