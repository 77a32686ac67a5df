"""Part `service`: the times for which a service manager waits: start to READY, stop with workers attached, restart
until workers have a batch again.

The daemon is started as systemd does it, with a notification socket. Workers are Python processes that take a batch
every few milliseconds, as training does, and stay through stop and restart."""
import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import part_feed
from bench_daemon import demo_dataset, figure, middle

WORKERS, PAUSE_S, PATIENCE_S = 8, 0.005, 60


class Service:
    """trajd as a unit of Type=notify."""

    def __init__(self, options, config):
        self.build, self.folder = options.build, options.work / "service"
        (self.folder / "cache").mkdir(parents=True, exist_ok=True)
        (self.folder / "state").mkdir(exist_ok=True)
        (self.folder / "trajd.yaml").write_text(f"version: 1\nruntime: run\ncache: cache\nstate: state\n{config}")
        path = self.folder / "notify"
        path.unlink(missing_ok=True)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(path))
        self.ready = queue.SimpleQueue()
        threading.Thread(target=self.listen, daemon=True).start()
        self.env = {**os.environ, "NOTIFY_SOCKET": str(path)}

    def listen(self):
        """Reads all notifications, as a service manager does."""
        while True:
            if self.manager.recv(4096) == b"READY=1":
                self.ready.put(time.perf_counter())

    def start(self):
        """Returns the seconds from exec to READY=1."""
        begin = time.perf_counter()
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen([self.build / "daemon/trajd", "--config", self.folder / "trajd.yaml"], stderr=log, env=self.env)
        return self.ready.get(timeout=PATIENCE_S) - begin

    def stop(self):
        """Returns the seconds from SIGTERM to the end of the process."""
        begin = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_S)
        if status:
            raise RuntimeError(f"trajd ended with {status}: {(self.folder / 'log').read_text()[-500:]}")
        return time.perf_counter() - begin


class Worker:
    """Reads until it is killed. `times` gets the moment of every batch, on this process's clock."""

    def __init__(self, build, endpoint):
        self.times = queue.SimpleQueue()
        self.process = subprocess.Popen([sys.executable, __file__, str(build), str(endpoint)], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.times.put(int(line))

    def first_after(self, moment_ns):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if (at := self.times.get(timeout=PATIENCE_S)) > moment_ns:
                return at
        raise RuntimeError("a worker heard nothing any more")


def restart(service, workers):
    """Returns the seconds of the stop, from exec to READY, and from SIGTERM until the first and until every worker
    had a batch of the new daemon."""
    begin_ns = time.monotonic_ns()
    stopped_s = service.stop()
    ready_s = service.start()
    ready_ns = time.monotonic_ns()
    firsts = sorted(worker.first_after(ready_ns) for worker in workers)
    return stopped_s, ready_s, (firsts[0] - begin_ns) * 1e-9, (firsts[-1] - begin_ns) * 1e-9


def milliseconds(values):
    return middle([1e3 * value for value in values])


def run(options):
    service = Service(options, part_feed.config(demo_dataset(options.work)))
    count = max(3, options.rounds)
    starts, stops, restarts = [], [], []
    service.start()
    service.stop()  # the index is cached from here on
    for _ in range(count):
        starts.append(service.start())
        stops.append(service.stop())
    starts.append(service.start())
    workers = [Worker(options.build, service.folder / "run") for _ in range(WORKERS)]
    try:
        for worker in workers:
            worker.first_after(0)
        restarts = [restart(service, workers) for _ in range(count)]
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
        service.stop()
    stopped, ready, first, last = zip(*restarts)
    return {"figures": [figure("unit start to READY, cached index", milliseconds(starts), "ms"),
                        figure("stop, nobody attached", milliseconds(stops), "ms"),
                        figure(f"stop with {WORKERS} workers attached", milliseconds(stopped), "ms"),
                        figure(f"start to READY with {WORKERS} workers waiting", milliseconds(ready), "ms"),
                        figure("restart: SIGTERM until the first worker has a batch again", milliseconds(first), "ms"),
                        figure(f"restart: SIGTERM until all {WORKERS} workers have one", milliseconds(last), "ms")],
            "note": f"workers take a batch every {1e3 * PAUSE_S:g} ms"}


def work(build, endpoint):
    sys.path.insert(0, str(pathlib.Path(build) / "clients/python"))
    import trajd

    for batch in trajd.connect(endpoint, feed="policy", job="service", mode="queue", credit=4).forever():
        print(time.monotonic_ns(), flush=True)
        del batch
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    work(*sys.argv[1:])
