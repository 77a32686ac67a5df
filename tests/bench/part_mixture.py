"""Part `mixture`: a feed of two datasets against a feed of one of them, in turns; the cost of the order of windows;
and how long a Python worker waits for its first batch at different positions of a long epoch."""
import json
import re
import subprocess
import sys

from bench_daemon import Daemon, ROOT, demo_dataset, figure, middle
from part_programs import NUMBER, output_of

OUTPUTS = """
    global_batch: 256
    slots: 16
    anchor: {clock: actions}
    pad: {before: 1, after: any, with: edge}
    outputs:
      obs/robot0_eef_pos: {at: -1..0}
      obs/robot0_eef_quat: {at: -1..0}
      obs/robot0_gripper_qpos: {at: -1..0}
      obs/object: {at: -1..0}
      actions: {at: -1..14}
"""
LONG = 2 * 10**9  # windows of an epoch
POSITIONS = (0, 10**6, 10**9)
RESUME = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import trajd
positions, times = json.loads(sys.argv[3]), {}
for turn in range(int(sys.argv[4])):
    for position in positions:
        with trajd.connect(sys.argv[2], feed="long", job=f"resume {turn} {position}", mode="shard", rank=0, world_size=1, timeout=60) as feed:
            state = {"version": 1, "seed": feed.info.seed, "fingerprint": f"{feed.info.fingerprint:016x}", "epoch": 0, "position": position}
            begin = time.perf_counter()
            feed.load_state_dict(state)
            batch = next(feed.epoch(0))
            times.setdefault(position, []).append(1e3 * (time.perf_counter() - begin))
            assert batch.position == position
print(json.dumps(times))
"""
LAYOUT = ROOT / "configs/layouts/demo.yaml"


def resume(daemon, turns):
    """Returns {position: [ms]}. The positions take turns, and each measurement is a job of its own."""
    out = subprocess.run([sys.executable, "-c", RESUME, daemon.build / "clients/python", daemon.endpoint, json.dumps(POSITIONS), str(turns)],
                         check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def feeds(options):
    first = demo_dataset(options.work)
    second = options.work / "demo_2.hdf5"
    if not second.exists():
        subprocess.run([sys.executable, ROOT / "tests/tools/make_demo_dataset.py", second, "--seed", "2"], check=True,
                       stdout=subprocess.DEVNULL)
    config = (f"memory: {{store: 512MiB, rings: 256MiB, reserve: 0}}\n"
              f"datasets:\n  one: {{path: {first}, layout: {LAYOUT}}}\n  two: {{path: {second}, layout: {LAYOUT}}}\nfeeds:\n"
              f"  alone:\n    dataset: one{OUTPUTS}  mixed:\n    mix: {{one: 7, two: 3}}\n    epoch: 100000{OUTPUTS}"
              f"  long:\n    mix: {{one: 7, two: 3}}\n    epoch: {LONG}{OUTPUTS}")
    rates = {"alone": [], "mixed": []}
    with Daemon(options.build, options.work / "mixture", config) as daemon:
        for _ in range(options.rounds):
            for feed, seen in rates.items():
                seen.append(daemon.trajctl("bench", feed, "--seconds", max(1, round(options.seconds)), "--credit", 16)["windows_per_second"])
        resumed = [figure(f"resume at position {position}: load_state_dict to the first batch", middle(times, 2), "ms")
                   for position, times in resume(daemon, max(20, 4 * options.rounds)).items()]
    ratios = [mixed / alone for mixed, alone in zip(rates["mixed"], rates["alone"])]
    return [figure("one dataset, a worker in C", middle(rates["alone"]), "windows/s"),
            figure("a mixture of two, 7 : 3", middle(rates["mixed"]), "windows/s", ratio=middle(ratios, 3), ratio_to="one dataset"), *resumed]


def order(options):
    figures, size = [], ""
    for line in output_of(options, "bench_sampler").splitlines():
        if memory := re.match(r"(\d+) windows in \d+ episodes: (\d+) KiB; a mixture of three of them: (\d+) KiB", line):
            size = f"{float(memory[1]):.0e}".replace("+", "")
            figures.append(figure(f"{size} windows, 10,000 episodes: memory of the sampler", int(memory[2]), "KiB"))
            figures.append(figure(f"{size} windows x 3 datasets: memory of the mixture", int(memory[3]), "KiB"))
        elif look_up := re.match(rf"(.+), position (\d+) +{NUMBER} ns one window +{NUMBER} us", line):
            what = f"{size} windows, {look_up[1]}, position {float(look_up[2]):.0e}".replace("+", "")
            figures.append(figure(f"{what}: to the first window", float(look_up[3]), "ns"))
            figures.append(figure(f"{what}: a batch of 256", float(look_up[4]), "us"))
    return figures


def run(options):
    return {"figures": feeds(options) + order(options)}
