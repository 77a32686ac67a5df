"""T4 order, T5 exactly once: which windows of an epoch arrive, in which order, and what a kill changes."""
import os
import pathlib
import random
import shutil
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from . import formulas
from .processes import Failed, Job, kill, own_shared_memory, parent

EPISODES, SECONDS, BATCH, STREAMS = 8, 2.0, 24, ("arm",)


def prepare(run):
    """Returns a folder with the data set of these tests, and the windows of its epoch."""
    recording = formulas.make("clean", EPISODES, SECONDS, run.seed, STREAMS)
    driver = run.make()
    driver.write(recording)
    driver.close()
    return driver.folder, driver.windows(recording)


def share_of(run, **more):
    return {"world": 1, "workers": 0, "batch": BATCH, "seed": run.seed, "epoch": 0, "shuffle": True, **more}


def ledger(windows, delivered):
    """Returns which windows of the epoch are missing, and how many came more than once."""
    counts = Counter(delivered)
    return {"missing": len(set(windows) - set(counts)), "doubled": sum(count - 1 for count in counts.values())}


def read_epoch(run, folder, share, state=None, limit=None, patience=120):
    """Returns the global batches of an epoch, each a set of windows, the flat list, and the states after each batch.
    Fails if no rank writes anything for `patience` seconds."""
    job = Job(run, folder, **({"limit": limit} if limit else {})).start(share, state)
    try:
        if not job.wait(patience):
            raise Failed(f"nothing was written for {patience} seconds")
        job.check()
        ranks = [job.batches(rank) for rank in range(share["world"])]
    finally:
        job.end()
    flat = [number for rank in ranks for batch in rank for number in batch["ids"]]
    batches = [frozenset(number for rank in ranks if step < len(rank) for number in rank[step]["ids"])
               for step in range(max((len(rank) for rank in ranks), default=0))]
    return batches, flat, [batch["state"] for batch in ranks[0]] if ranks else []


def order(run):
    """Yields (case, score) of T4."""
    folder, windows = prepare(run)
    base, flat, _ = read_epoch(run, folder, share_of(run))
    again, _, _ = read_epoch(run, folder, share_of(run))
    later, _, _ = read_epoch(run, folder, share_of(run, epoch=1))
    yield "one process", {**ledger(windows, flat), "repeatable": again == base, "epochs differ": later != base}
    cases = {f"{world} ranks": {"world": world} for world in run.driver.worlds[1:]}
    cases.update({f"{workers} loader processes": {"workers": workers} for workers in run.driver.workers[1:]})
    for case, more in cases.items():
        yield case, tried(compared, run, folder, windows, base, more)
    for before, after in ((1, 1), (2, 3), (4, 1)):
        if before in run.driver.worlds and after in run.driver.worlds:
            yield f"resumed, {before} to {after} ranks", tried(resumed, run, folder, windows, base, before, after)


def tried(what, *arguments):
    """Returns the score that a function returns. If a training process fails, that is the score."""
    try:
        return what(*arguments)
    except Failed as error:
        return {"failed": str(error)}


def compared(run, folder, windows, base, more):
    batches, flat, _ = read_epoch(run, folder, share_of(run, **more))
    return {**ledger(windows, flat), "same order": batches == base}


def resumed(run, folder, windows, base, before, after, limit=7):
    """Reads some batches, saves the state, and reads the rest of the epoch with another world size."""
    first, flat, states = read_epoch(run, folder, share_of(run, world=before), limit=limit)
    if not states or states[-1] is None:
        return {"state": False}
    rest, more, _ = read_epoch(run, folder, share_of(run, world=after), states[-1])
    return {"state": True, **ledger(windows, flat + more), "same order": first + rest == base}


# T5.


def exactly_once(run):
    """Yields (case, score) of T5: kills each kind of process at some moments of an epoch."""
    folder, windows = prepare(run)
    kinds = {"the trainer": (1, 0)}
    if 2 in run.driver.worlds:
        kinds["a rank of two"] = (2, 0)
    if max(run.driver.workers) > 0 and run.driver.name != "perfect":
        kinds["a loader process"] = (1, max(run.driver.workers))
    if run.driver.server_names:
        kinds["the server"] = (1, 0)
    for kind, (world, workers) in kinds.items():
        yield f"kill -9 {kind}", tried(killed_at_moments, run, folder, windows, kind, world, workers)


def killed_at_moments(run, folder, windows, kind, world, workers):
    def one(number):
        own = pathlib.Path(tempfile.mkdtemp(dir=run.folder)) / "d"
        shutil.copytree(folder, own)
        return trial(run, own, windows, kind, world, workers, random.Random(f"{run.seed} {kind} {number}"))

    with ThreadPoolExecutor(run.jobs, initializer=own_shared_memory if run.jobs > 1 else None) as pool:
        trials = list(pool.map(one, range(run.moments)))
    return {"moments": run.moments, "clean": sum(not one["missing"] and not one["doubled"] for one in trials),
            **{key: sum(one[key] for one in trials) for key in ("missing", "doubled", "restarts", "hung")}}


def trial(run, folder, windows, kind, world, workers, chance):
    """Kills once in an epoch. The job is started again from its last state, as long as a rank fails.

    A batch counts if every rank has written its line. A restart goes on from the state of that line. Without a state,
    the epoch begins again."""
    share, state, kept, restarts, hung = share_of(run, world=world, workers=workers), None, [], 0, 0
    at, delay = chance.randrange(1, 15), chance.uniform(0, 0.02)  # of 20 batches
    killed = False
    while True:
        job = Job(run, folder, pace_ms=4).start(share, state)
        try:
            if not killed:
                job.wait(60, until=lambda: min(len(job.batches(rank)) for rank in range(world)) >= at)
                job.check()
                time.sleep(delay)
                killed = kill_one(run, job, kind, chance)
            fine = job.wait(60, until=lambda: any(rank.poll() not in (None, 0) for rank in job.ranks))
            failed = any(rank.poll() not in (None, 0) for rank in job.ranks)
            hung += not fine and not failed and not all(map(job.ended, range(world)))
            job.kill_ranks()
            done = min(len(job.batches(rank)) for rank in range(world))
            complete = all(map(job.ended, range(world)))
            kept += [number for rank in range(world) for batch in job.batches(rank)[: None if complete else done]
                     for number in batch["ids"]]
            state = job.batches(0)[done - 1]["state"] if done else state
        finally:
            job.end()
        if complete or restarts == 5:
            return {**ledger(windows, kept), "restarts": restarts, "hung": hung}
        restarts += 1


def kill_one(run, job, kind, chance):
    """Kills a process of that kind. Returns whether there was one."""
    if kind == "the trainer":
        return kill(job.ranks[0].pid)
    if kind == "a rank of two":
        return kill(job.ranks[chance.randrange(2)].pid)
    others = job.others()
    if kind == "the server":
        found = [pid for pid, name in others.items() if name in run.driver.server_names]
    else:
        found = [pid for pid in others if parent(pid) == job.ranks[0].pid and "python" in exe(pid) and not is_tracker(pid)]
    return any([kill(pid) for pid in found[:1]])


def exe(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def is_tracker(pid):
    """Returns whether a process only watches over shared memory (multiprocessing's resource tracker)."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"resource_tracker" in file.read()
    except OSError:
        return True
