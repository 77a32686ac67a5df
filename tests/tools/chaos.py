#!/usr/bin/env python3
"""Runs random kills of workers and daemons for some minutes and prints a ledger of all windows.

Each trial is one epoch of two jobs with three workers each. Its seed is printed, so that a trial can be repeated; the moments of
the kills differ between two runs of one seed. Exit status 1: a window was lost, or worked on again without need."""
import argparse
import collections
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import chaos_trial as chaos  # noqa: E402
from daemons import Daemon  # noqa: E402
from datasets import make_demo_file  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None, help="the first trial's seed (default: random); then one more each")
    parser.add_argument("--events", default=",".join(chaos.EVENTS), help="faults to choose from (default: %(default)s)")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    end = time.monotonic() + options.minutes * 60
    total, counts = chaos.Ledger(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = make_demo_file(pathlib.Path(folder) / "demo.hdf5")
        while time.monotonic() < end:
            daemon = Daemon(pathlib.Path(folder) / f"daemon_{seed}", chaos.configuration(path)).start()
            trial = chaos.Trial(daemon, seed, options.events.split(","))
            book = trial.run()
            daemon.stop()
            print(chaos.report(f"seed {seed}", trial.counts, book), flush=True)
            for error in book.errors:
                print(f"  {error}", flush=True)
            total.add(book)
            counts += trial.counts
            seed += 1
    print(chaos.report("in all", counts, total))
    return 0 if total.is_good() else 1


if __name__ == "__main__":
    sys.exit(main())
