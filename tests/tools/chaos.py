#!/usr/bin/env python3
"""Kills workers, daemons and decoders, attacks and reloads the daemon, fills its disk and cuts off its journals for some minutes.
Workers compare each window, with frames of two cameras, with the file. Prints a ledger of all windows.

Each trial is one epoch of two jobs with three workers each. Its seed is printed, so that a trial can be repeated; the moments of
the kills differ between two runs of one seed. Exit status 1: a window was lost or wrong, or worked on again without need, or a
daemon had more memory, descriptors, children or files than before the trial. A full disk needs root, which mounts it."""
import argparse
import collections
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import chaos_trial as chaos  # noqa: E402
from datasets import make_demo_file  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None, help="the first trial's seed (default: random); then one more each")
    parser.add_argument("--events", default=",".join(chaos.EVENTS), help="faults to choose from (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=72, help="of the dataset; 86 windows each, on the average (default: 72)")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    end = time.monotonic() + options.minutes * 60
    total, counts, skipped = chaos.Ledger(), collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = make_demo_file(pathlib.Path(folder) / "demo.hdf5", episodes=options.episodes)
        while time.monotonic() < end:
            trial = chaos.Trial(pathlib.Path(folder) / f"daemon_{seed}", path, seed, options.events.split(","))
            try:
                book = trial.run()
            except Exception:
                print(f"seed {seed}, the end of the daemon's log:\n{trial.daemon.text()[-4000:]}", flush=True)
                raise
            finally:
                trial.close()
            print(chaos.report(f"seed {seed}", trial.counts, book), flush=True)
            print(f"  before: {trial.before}; after: {trial.after}", flush=True)
            for error in book.errors:
                print(f"  {error}", flush=True)
            for line in trial.story if book.errors else ():
                print(f"  {line}", flush=True)
            total.add(book)
            counts += trial.counts
            skipped.update(f"{event}: {why}" for event, why in trial.skipped.items())
            seed += 1
    print(chaos.report("in all", counts, total))
    for why, count in skipped.items():
        print(f"skipped in {count} trials: {why}")
    return 0 if total.is_good() else 1


if __name__ == "__main__":
    sys.exit(main())
