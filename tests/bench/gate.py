#!/usr/bin/env python3
"""`make bench-gate BASE=COMMIT`: is this tree slower than that commit?

    gate.py --base COMMIT [--build build/release] [--rows NAME... --seconds N] [--gpu]
    gate.py --builds OLD NEW ...            # folders of builds, or of a bundle for GPU machines
    gate.py --prove slower|equal [--runs N] # does the gate find a planted slowdown of 3 %; does it call equal builds?

Both builds run at the same time, each in a process of its own, and take turns in slices of some milliseconds. So a
disturbance affects both. tests/bench/README.md describes the table. The exit status is 0 if all rows are judged and none is
slower by more than 5 %, 1 if one is, 3 if none is but some row is not judged, and 2 if something failed."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import gate_verdict
from bench_daemon import ROOT, commit, cpu_name
from gate_rows import CPU_ROWS, GPU_ROWS

ROUNDS = 24          # of each row, if there is time
WIDTH_WANTED = 0.02  # a row with a wider interval gets more rounds, as long as there is time
PLANTED = 0.03
PLANTED_ROW = "trajd.resample, large"


class Failed(Exception):
    """A build, or a process of gate_rows.py. The text has its messages."""


# ---- the old build ----

def build_base(name, build):
    """Builds a commit in build/gate/COMMIT as `build` is built, once, and returns the folder of the build."""
    found = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    if not found:
        raise Failed(f"bench-gate: BASE={name}: this clone has no such commit")
    cuda = re.search(r"^TRAJD_CUDA:BOOL=(.*)", (build / "CMakeCache.txt").read_text(), re.M)[1]
    tree = ROOT / "build/gate" / found
    made, mark = tree / "build/release", tree / f"built-cuda-{cuda}"
    if not mark.exists():
        print(f"bench-gate: builds {found[:8]} in {tree.relative_to(ROOT)}", flush=True)
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        commands = (f"git archive {found} | tar -x -C '{tree}' && cmake -S '{tree}' -B '{made}' -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo "
                    f"-DTRAJD_CUDA={cuda} && ninja -C '{made}' daemon/all clients/all fake_producer")  # no tests but the producer
        done = subprocess.run(["bash", "-o", "pipefail", "-c", commands], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Failed(f"bench-gate: {name} cannot be built:\n{done.stdout[-3000:]}")
        mark.touch()
    return made


def name_of(build):
    """Returns the commit of a build, where it is known."""
    if (build / "commit").exists():
        return " ".join((build / "commit").read_text().split())
    return build.parents[1].name[:8] if build.parents[2] == ROOT / "build/gate" else commit()


# ---- measuring ----

class Runner:
    """A process of gate_rows.py with one build. Its environment has a random length, which moves the stack."""

    def __init__(self, build, options, rows, slower, draw, errors):
        command = [sys.executable, pathlib.Path(__file__).with_name("gate_rows.py"), build, options.data, str(slower), *rows]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAJD_")}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
                                        env={**environment, "GATE_LENGTH": "x" * draw.randrange(4096)})
        self.errors = errors

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise Failed(f"bench-gate: {' '.join(map(str, self.process.args[1:3]))} failed:\n{self.errors.read().decode(errors='replace')[-3000:]}")
        return line

    def slice(self, row, seconds):
        """Returns the seconds of a unit."""
        print(row, seconds, file=self.process.stdin, flush=True)
        count, took = self.line().split()
        return float(took) / int(count)


@contextlib.contextmanager
def both(builds, options, rows, draw):
    """Starts a process of each build, in random order, and ends them."""
    slower = (0, PLANTED if options.prove == "slower" else 0)
    started = {}
    with tempfile.TemporaryFile() as errors:
        try:
            for side in draw.sample((0, 1), 2):
                started[side] = Runner(builds[side], options, rows, slower[side], draw, errors)
            for one in started.values():
                one.line()
            yield started
        finally:
            for one in started.values():
                one.process.stdin.close()
            for one in started.values():
                one.process.wait(60)


def take_round(builds, options, rows, draw):
    """Returns {row: pairs of seconds a unit, old and new} of new processes."""
    taken = {row: [] for row in rows}
    with both(builds, options, rows, draw) as sides:
        for row in draw.sample(rows, len(rows)):
            end = time.monotonic() + options.turn_ms / 1000
            while len(taken[row]) < 2 or time.monotonic() < end:
                pair = {side: sides[side].slice(rows.index(row), options.slice_ms / 1000) for side in draw.sample((0, 1), 2)}
                taken[row].append((pair[0], pair[1]))
    return taken


def measure(builds, options, rows, seed):
    """Returns {row: rounds of pairs}. Rows with a wide interval get more rounds than the others while there is time."""
    draw, begin, longest = random.Random(seed), time.monotonic(), 0.0
    measured, left = {row: [] for row in rows}, list(rows)
    while left and time.monotonic() - begin + longest < options.seconds:
        at = time.monotonic()
        for row, pairs in take_round(builds, options, left, draw).items():
            measured[row].append(pairs)
        longest = max(longest if len(left) == len(rows) else 0, time.monotonic() - at)
        left = [row for row in left if len(measured[row]) < ROUNDS or gate_verdict.width(measured[row]) > WIDTH_WANTED]
    return {row: rounds for row, rounds in measured.items() if rounds}


# ---- the table ----

def microseconds(value):
    return f"{value / 1000:,.1f} ms" if value >= 10_000 else f"{value:,.1f} us"


def print_table(rows):
    print(f"{'row':30s} {'old':>10s} {'new':>10s}  ratio  interval          p      delta  rounds, pairs")
    for name, row in rows.items():
        print(f"{name:30s} {microseconds(row['old_us']):>10s} {microseconds(row['new_us']):>10s}  {row['ratio']:.3f}  {row['low']:.3f} to {row['high']:.3f}  "
              f"{row['holm']:.4f} {row['delta']:+.2f}  {row['rounds']:3d} {row['pairs']:5d}  {gate_verdict.describe(row)}")
    sys.stdout.flush()


def run(builds, options):
    rows = gate_verdict.judge(measure(builds, options, options.rows, options.seed), len(options.rows))
    print_table(rows)
    status = gate_verdict.status(rows)
    for name, row in rows.items():
        if row["verdict"] == "slower":
            print(f"{name}: slower by {100 * (row['ratio'] - 1):.1f} % ({100 * (row['low'] - 1):.1f} to {100 * (row['high'] - 1):.1f} %)")
    unjudged = [name for name, row in rows.items() if row["verdict"] == "not judged"]
    if unjudged:
        print("not judged, so not passed; measure longer: --seconds 600 --rows", *(f'"{name}"' for name in unjudged))
    print({0: "bench-gate: passed", 1: "bench-gate: FAILED", 3: "bench-gate: some rows are not judged"}[status])
    if options.out:
        report = {"device": cpu_name(), "cores": len(os.sched_getaffinity(0)), "old": name_of(builds[0]), "commit": name_of(builds[1]), "date": datetime.date.today().isoformat(),
                  "load": [round(one, 2) for one in os.getloadavg()], "rows": rows}
        pathlib.Path(options.out).write_text(json.dumps(report, indent=1) + "\n")
    return status


# ---- proofs ----

def prove(build, options):
    """Compares a build with itself, many times. Returns 0 if enough runs have the right answer."""
    right = 0
    for number in range(options.runs):
        rows = gate_verdict.judge(measure((build, build), options, options.rows, options.seed + number), len(options.all_rows))
        called = [f"{name} {gate_verdict.describe(row)}" for name, row in rows.items() if row["verdict"] in ("slower", "faster")]
        wrong = bool(called) if options.prove == "equal" else any(row["verdict"] != "slower" for row in rows.values())
        right += not wrong
        judged = sum(row["verdict"] != "not judged" for row in rows.values())
        print(f"run {number + 1}: {judged} of {len(rows)} rows judged, called: {', '.join(called) or 'none'}", flush=True)
        if options.verbose:
            print_table(rows)
    wanted = -(-options.runs * (19 if options.prove == "equal" else 18) // 20)
    print(f"bench-gate: {right} of {options.runs} runs have the right answer, {wanted} are wanted")
    return 0 if right >= wanted else 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", help="the old build: a commit, built in build/gate")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path, help="the new build (build/release)")
    parser.add_argument("--builds", nargs=2, type=pathlib.Path, metavar=("OLD", "NEW"), help="both builds")
    parser.add_argument("--only-build", action="store_true", help="builds COMMIT and prints the folder")
    parser.add_argument("--cpu", dest="gpu", action="store_false", default=False, help="the rows that need no GPU (default)")
    parser.add_argument("--gpu", action="store_true", help="the rows of a GPU")
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="these rows only")
    parser.add_argument("--seconds", type=float, help="for all rows together (230; with --gpu 280; --prove slower: 60)")
    parser.add_argument("--slice-ms", type=float, default=10, help="length of a slice; a longer unit is not cut (10)")
    parser.add_argument("--turn-ms", type=float, default=300, help="length of the slices of a row in a round (300)")
    parser.add_argument("--realtime", action="store_true", help="before all other processes of the machine (SCHED_FIFO): needs root, and others wait")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=ROOT / "build/gate/data", type=pathlib.Path, help="folder for data sets (build/gate/data)")
    parser.add_argument("--out", help="a file for the table as JSON")
    parser.add_argument("--prove", choices=("slower", "equal"), help="runs the gate on one build under both names")
    parser.add_argument("--runs", type=int, help="of a proof (10; equal: 20)")
    parser.add_argument("--verbose", action="store_true", help="prints the table of each run of a proof")
    options = parser.parse_args()
    options.all_rows = list(GPU_ROWS if options.gpu else CPU_ROWS)
    for row in options.rows or ():
        if row not in options.all_rows:
            parser.error(f"no row is called {row}: {'; '.join(options.all_rows)}")
    if not (options.base or options.builds or options.prove):
        parser.error("give the old build: BASE=COMMIT for make, --base COMMIT, or --builds OLD NEW")
    if options.slice_ms > 100:
        parser.error("a slice may have 100 ms")
    options.rows = options.rows or ([PLANTED_ROW] if options.prove == "slower" else options.all_rows)
    options.runs = options.runs or (20 if options.prove == "equal" else 10)
    options.seconds = options.seconds or (60 if options.prove == "slower" else 280 if options.gpu else 230)
    return options


def main():
    options = parse_arguments()
    old, new = (build.resolve() for build in options.builds or (options.build, options.build))
    if options.base:
        old = build_base(options.base, new)
    if options.only_build:
        print(old)
        return 0
    import gate_data  # and scipy, which takes a while
    gate_data.write(options.data)
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if options.prove:
        return prove(new, options)
    print(f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}; old {name_of(old)}, new {name_of(new)}", flush=True)
    return run((old, new), options)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        print(error, file=sys.stderr)
        sys.exit(2)
