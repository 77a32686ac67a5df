"""Part `feed`: windows per second to workers, compared with robomimic's loader and torch's DataLoader in turns."""
import json
import resource
import shutil
import statistics
import subprocess
import sys

from bench_daemon import Daemon, ROOT, demo_dataset, figure, middle

BATCH, CREDIT = 256, 16
OBS = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
HEAD = f"""    dataset: demo
    filter: train
    global_batch: {BATCH}
    slots: {CREDIT}
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
"""
FEEDS = {  # the policy's window, and the same tensors as SequenceDataset (frame_stack 2, seq_length 16): 17 rows of every key
    "policy": "".join(f"      {name}: {{at: -1..0}}\n" for name in OBS) + "      actions: {at: -1..14}\n",
    "same_tensors": "".join(f"      {name}: {{at: -1..15, role: action}}\n" for name in OBS + ("rewards", "dones")) +
                    "      actions: {at: -1..15}\n",
}
BUDGETS = {"policy": 50, "same_tensors": 25}
WORKERS = {"python": "1 Python worker", "python_copies": "1 Python worker that copies",
           "python_tensors": "1 Python worker, torch tensors", "c1": "1 C worker", "c4": "4 C workers, share"}


def config(path):
    return (f"memory: {{store: 256MiB, rings: 64MiB, reserve: 0}}\ndatasets:\n  demo: {{path: {path}, layout: robomimic}}\nfeeds:\n" +
            "".join(f"  {feed}:\n{HEAD}{outputs}" for feed, outputs in FEEDS.items()))


def python_worker(python, daemon, feed, seconds, what):
    out = subprocess.run([python, ROOT / "tests/bench/feed_worker.py", daemon.build, daemon.endpoint, feed,
                          str(seconds), str(CREDIT), what], check=True, capture_output=True, text=True)
    result = json.loads(out.stdout)
    return result["windows_per_s"], result["batches"], result["cpu_s"], result["ready_to_arrays_us"]


def c_workers(daemon, feed, seconds, count):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = daemon.trajctl("bench", feed, "--seconds", max(1, round(seconds)), "--workers", count, "--credit", CREDIT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (result["windows_per_second"], result["batches"],
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, None)


def one_turn(daemon, feed, workers, seconds, torch_python):
    """Returns windows/s, and microseconds of CPU per batch of the daemon and of the worker."""
    what = {"python": "views", "python_copies": "copies", "python_tensors": "tensors"}.get(workers)
    before = daemon.cpu_s()
    if what:
        python = torch_python if what == "tensors" else sys.executable
        rate, batches, cpu_s, waits = python_worker(python, daemon, feed, seconds, what)
    else:
        rate, batches, cpu_s, waits = c_workers(daemon, feed, seconds, int(workers[1:]))
    return {"windows_per_s": rate, "daemon_us": 1e6 * (daemon.cpu_s() - before) / batches, "worker_us": 1e6 * cpu_s / batches,
            "waits": waits}


def robomimic(options, path, seconds, modes=("None", "low_dim", "all"), workers=("0", "1", "2"), more=()):
    out = subprocess.run([options.robomimic_python, ROOT / "tests/bench/bench_robomimic.py", path, "--filter", "train",
                          "--batch", str(BATCH), "--seconds", str(seconds), "--cpus", "1024", "--modes", *modes,
                          "--workers", *workers, *more], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def find_torch(options):
    """Returns a Python with torch and h5py, or None."""
    for python in (options.torch_python, options.robomimic_python, ROOT / "build/venv-torch/bin/python"):
        if python and shutil.which(python) and subprocess.run([python, "-c", "import torch, h5py"], capture_output=True).returncode == 0:
            return python
    return None


def torch_loader(python, path, seconds, modes=("gathered", "single"), workers=("0", "1", "2")):
    out = subprocess.run([python, ROOT / "tests/bench/bench_torch_loader.py", path, "--filter", "train", "--batch", str(BATCH),
                          "--seconds", str(seconds), "--modes", *modes, "--workers", *workers], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)["results"]


def waits_of(turns, what):
    """Yields the time from READY in the daemon to arrays in Python, of batches for which the worker waited."""
    return [figure(f"policy, 1 Python worker: READY to {what}, {part}", middle([turn["waits"][part] for turn in turns]), "us")
            for part in ("p50", "p99") if turns and all(turn["waits"] for turn in turns)]


def beside_torch(turns, theirs, best):
    """Measures the policy's window only: the loader makes no other."""
    windows = [turn["windows_per_s"] for turn in turns]
    result = figure("policy, 1 Python worker, the same turns", middle(windows, 0), "windows/s", ratio_to="torch DataLoader",
                    ratio=middle([ours / peer["windows_per_s"] for ours, peer in zip(windows, theirs)]),
                    cpu_ratio=middle([peer["cpu_us_per_batch"] / (turn["daemon_us"] + turn["worker_us"])
                                      for turn, peer in zip(turns, theirs)]))
    return [result, figure(f"torch DataLoader over arrays in memory, {best['mode']}, {best['workers']} workers",
                           middle([peer["windows_per_s"] for peer in theirs], 0), "windows/s",
                           cpu_us_per_batch={"worker": middle([peer["cpu_us_per_batch"] for peer in theirs])})]


def figures_of(feed, workers, turns, theirs):
    name = f"{feed}, {WORKERS[workers]}"
    windows = [turn["windows_per_s"] for turn in turns]
    result = figure(name, middle(windows, 0), "windows/s", batches_per_s=round(statistics.median(windows) / BATCH, 1))
    result["cpu_us_per_batch"] = {side: middle([turn[f"{side}_us"] for turn in turns]) for side in ("daemon", "worker")}
    if theirs:
        result["ratio"] = middle([ours / peer["windows_per_s"] for ours, peer in zip(windows, theirs)])
        result["ratio_to"] = "robomimic"
        result["cpu_ratio"] = middle([peer["cpu_us_per_batch"] / (turn["daemon_us"] + turn["worker_us"])
                                      for turn, peer in zip(turns, theirs)])
        if workers == "python":
            result["budget"] = f">= {BUDGETS[feed]}x"
            result["met"] = result["ratio"]["median"] >= BUDGETS[feed]
    return result


def run(options):
    """In each round every worker reads both feeds, and then robomimic runs in its fastest mode, so that a
    disturbance affects all of them."""
    path, theirs, figures = demo_dataset(options.work), [], []
    best, python = None, find_torch(options)
    loader_tried = torch_loader(python, path, options.seconds) if python else []
    loader_best = max(loader_tried, key=lambda result: result["windows_per_s"], default=None)
    loaders = []
    if options.robomimic_python:
        tried = robomimic(options, path, options.seconds)["results"]
        best = max(tried, key=lambda result: result["windows_per_s"])
    with Daemon(options.build, options.work / "feed", config(path)) as daemon:
        turns = {(feed, workers): [] for feed in FEEDS for workers in WORKERS
                 if workers != "python_tensors" or (python and feed == "policy")}
        for _ in range(options.rounds):
            for (feed, workers), list_of in turns.items():
                list_of.append(one_turn(daemon, feed, workers, options.seconds, python))
            if best:
                theirs += robomimic(options, path, options.seconds, (best["cache_mode"],), (str(best["workers"]),))["results"]
            if loader_best:
                loaders += torch_loader(python, path, options.seconds, (loader_best["mode"],), (str(loader_best["workers"]),))
        plans = daemon.plans
    for (feed, workers), list_of in turns.items():
        figures.append(figures_of(feed, workers, list_of, theirs))
    if best:
        peer = figure(f"robomimic, cache {best['cache_mode']}, {best['workers']} workers",
                      middle([result["windows_per_s"] for result in theirs], 0), "windows/s",
                      cpu_us_per_batch={"worker": middle([result["cpu_us_per_batch"] for result in theirs])},
                      tried={f"{r['cache_mode']}, {r['workers']} workers": r["windows_per_s"] for r in tried})
        figures.append(peer)
    figures += waits_of(turns["policy", "python"], "arrays") + waits_of(turns.get(("policy", "python_tensors")), "torch tensors")
    if loader_best:
        figures += beside_torch(turns["policy", "python"], loaders, loader_best)
        figures[-1]["tried"] = {f"{r['mode']}, {r['workers']} workers": r["windows_per_s"] for r in loader_tried}
    note = "" if best else "not beside robomimic: no --robomimic-python (a Python with robomimic and torch)"
    return {"figures": figures, "note": note, "plans": plans, "batch": BATCH, "credit": CREDIT, "seconds_a_turn": options.seconds}
