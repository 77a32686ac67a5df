"""T7 tidy, T8 cost: what a job leaves behind when it is killed, and what its windows cost."""
import os
import pathlib
import time

from . import formulas
from .order import BATCH, share_of
from .processes import Job, kill, marked

TICKS = os.sysconf("SC_CLK_TCK")


def shared_files(pids):
    """Returns the files in /dev/shm that processes have mapped or opened."""
    found = set()
    for pid in pids:
        try:
            maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
            found |= {line.split(None, 5)[5] for line in maps.splitlines() if " /dev/shm/" in line}
            for name in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                found |= {target} if target.startswith("/dev/shm/") else set()
        except OSError:  # it has ended
            continue
    return {path for path in found if not path.endswith("(deleted)")}


def size(paths):
    total = 0
    for path in paths:
        try:
            total += os.stat(path).st_blocks * 512
        except OSError:
            continue
    return total


def memory(pids):
    """Returns the proportional memory of processes, shared memory included, in bytes."""
    total = 0
    for pid in pids:
        try:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total


def temporary(folder):
    return [path for path in (folder / "tmp").rglob("*") if path.is_file()]


def tidy(run):
    """Yields (case, score) of T7: kill -9 of the trainer, with as many loader processes as the loader has, then a look at what is left."""
    workers = max(run.driver.workers)
    recording = formulas.make("clean", 8, 2.0, run.seed, ("arm", "wrist"))
    driver = run.make()
    driver.write(recording)
    driver.close()
    limit = 10 if run.quick else 100
    job = Job(run, driver.folder, pace_ms=20).start(share_of(run, workers=workers))
    try:
        job.wait(60, until=lambda: len(job.batches(0)) >= 5)
        shared = shared_files(marked(job.mark))
        kill(job.ranks[0].pid)
        job.ranks[0].wait()
        begin = time.monotonic()
        time.sleep(0.5)
        at_once = {"processes": len(job.others()), "shared memory": size(shared), "temporary files": size(temporary(driver.folder)),
                   "their memory": memory(job.others())}
        gone = None
        while gone is None and time.monotonic() - begin < limit:
            if not job.others():
                gone = time.monotonic() - begin
            else:
                time.sleep(0.5)
        yield "kill -9 the trainer", {**at_once, "gone after s": round(gone, 1) if gone else f"more than {limit}",
                                      "shared memory at the end": size(shared),
                                      "temporary files at the end": size(temporary(driver.folder))}
    finally:
        job.end()


# T8.


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(map(int, fields[11:15])) / TICKS
        except OSError:
            continue
    return total


LONGEST = 20  # seconds of a measurement. A slow loader reads a part of its epoch


def cost(run):
    """Yields (case, score) of T8: windows per second, and per second of processor time of all processes."""
    for case, names, episodes in (("numbers", ("arm", "tool", "tracker"), 100), ("two cameras", formulas.OBSERVED, 25)):
        recording = formulas.make("clean", episodes // 10 if run.quick else episodes, 4.0, run.seed, names)
        driver = run.make()
        driver.write(recording)
        driver.close()
        for workers in sorted({0, max(run.driver.workers)}):
            yield f"{case}, {workers} loader processes", measure(run, driver.folder, share_of(run, workers=workers, batch=BATCH))


def measure(run, folder, share):
    job = Job(run, folder, cost=True).start(share)
    try:
        job.wait(120, until=lambda: job.batches(0))
        begin, cpu = time.monotonic(), cpu_seconds(marked(job.mark))
        job.logs[0].with_suffix(".log.go").touch()
        job.wait(120, until=lambda: job.ended(0) or time.monotonic() - begin > LONGEST)
        seconds, cpu = time.monotonic() - begin, cpu_seconds(marked(job.mark)) - cpu
        count = sum(line["count"] for line in job.batches(0)[1:])
        if not count:
            return {"failed": "no batch came after the first one"}
        return {"windows/s": round(count / seconds), "windows/s of a core": round(count / max(cpu, 1e-3)),
                "memory MB": round(memory(marked(job.mark)) / 1e6)}
    finally:
        job.end()
