"""Part `start`: the time from exec to READY, and the memory beyond store and rings."""
import subprocess
import sys

import part_feed
from bench_daemon import Daemon, MIB, ROOT, demo_dataset, figure, middle

READY_MS, REST_MIB = 100, 32
SMALL = """memory: {{store: 256MiB, rings: 64MiB, reserve: 0}}
datasets:
  small: {{path: {path}, layout: robomimic}}
feeds:
  train:
    dataset: small
    global_batch: 256
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/x_0: {{at: -1..0}}
      actions: {{at: -1..14}}
"""


def rest_mib(daemon):
    return daemon.memory()["rest"] / MIB


def starts(options, folder, config, feed, keep_cache, count):
    """Returns the times to READY in ms as the parent measures them and as the daemon logs them, and the memory in
    MiB at READY and after a worker has read for a second."""
    seen, said, at_ready, serving = [], [], [], []
    for _ in range(count):
        with Daemon(options.build, options.work / folder, config, keep_cache) as daemon:
            seen.append(1e3 * daemon.ready_s)
            said.append(daemon.said_ready_ms)
            at_ready.append(rest_mib(daemon))
            daemon.trajctl("bench", feed, "--seconds", 1)
            serving.append(rest_mib(daemon))
            whole = {key: round(value / MIB, 1) for key, value in daemon.memory().items()}
    return seen, said, at_ready, serving, whole


def figures_of(what, measured, ready_budget=None, rest_budget=None):
    seen, said, at_ready, serving, whole = measured
    ready = figure(f"{what}: exec to READY", middle(seen), "ms", said_ready_ms=middle(said))
    rest = figure(f"{what}: RSS beyond store and rings, serving", middle(serving), "MiB", at_ready_mib=middle(at_ready),
                  resident_mib=whole)
    for one, budget in ((ready, ready_budget), (rest, rest_budget)):
        if budget:
            one["budget"], one["met"] = f"<= {budget} {one['unit']}", one["value"]["median"] <= budget
    return [ready, rest]


def small_files(options):
    folder = options.work / "index"
    if not (folder / "done").exists():
        folder.mkdir(exist_ok=True)
        subprocess.run([sys.executable, ROOT / "tests/tools/make_index_files.py", folder, "bench"], check=True)
        (folder / "done").touch()
    return folder


def run(options):
    config = part_feed.config(demo_dataset(options.work))
    count = max(3, options.rounds)
    figures = figures_of("200 episodes, first start", starts(options, "start", config, "policy", False, count),
                         rest_budget=REST_MIB)
    figures += figures_of("200 episodes, cached index", starts(options, "start", config, "policy", True, count),
                          ready_budget=READY_MS, rest_budget=REST_MIB)
    if not options.small_files:
        return {"figures": figures, "note": "10,000 small files: only with --small-files (1 GB, which takes half a minute to write)"}
    config = SMALL.format(path=small_files(options) / "small")
    figures += figures_of("10,000 files of 50 datasets, first start", starts(options, "many", config, "train", False, 1))
    figures += figures_of("10,000 files of 50 datasets, cached index", starts(options, "many", config, "train", True, 2))
    return {"figures": figures, "note": ""}
