#!/usr/bin/env python3
"""compare.py OLD.json NEW.json [--threshold 0.03]: two results of bench_resample, shape by shape.

For each shape: the ratio of medians with a bootstrap interval, the Mann-Whitney U test's p and Cliff's delta. A shape is a
regression where the whole interval lies above 1 + threshold and p < 0.01. Exits 1 if there is one. --regret RESULT.json
says instead how far the chosen launch shapes are from the best of the same file; intervals that overlap tie. With
--made-by OTHER.json the launch shapes are those that a table made from another run has for the same shapes."""
import argparse
import json
import math
import random
import sys


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def bootstrap_ratio(old, new, rounds=2000):
    draw = random.Random(1)
    ratios = sorted(median(draw.choices(new, k=len(new))) / median(draw.choices(old, k=len(old))) for _ in range(rounds))
    return ratios[int(0.025 * rounds)], ratios[int(0.975 * rounds) - 1]


def mann_whitney(old, new):
    """Returns the p of the two-sided test by the normal approximation with ties, and Cliff's delta (1: every new
    time is longer)."""
    n, m = len(old), len(new)
    above = sum(x > y for x in new for y in old)
    equal = sum(x == y for x in new for y in old)
    u = above + equal / 2
    merged = sorted(old + new)
    ties = sum(c**3 - c for c in (merged.count(v) for v in set(merged)))
    variance = n * m / 12 * ((n + m + 1) - ties / ((n + m) * (n + m - 1)))
    z = 0 if variance == 0 else (abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(max(z, 0) / math.sqrt(2)), (2 * u - n * m) / (n * m)


def key(row):
    return tuple(row[k] for k in ("B", "S", "T", "D", "source", "output", "kind")) + (row.get("layout", "dense"),)


def compare(old_path, new_path, threshold):
    old = {key(r): r for r in json.load(open(old_path))["rows"]}
    new = {key(r): r for r in json.load(open(new_path))["rows"]}
    regressions = 0
    for shape in sorted(old.keys() & new.keys(), key=str):
        a, b = old[shape]["cold_us"], new[shape]["cold_us"]
        ratio, (low, high), (p, delta) = median(b) / median(a), bootstrap_ratio(a, b), mann_whitney(a, b)
        worse = low > 1 + threshold and p < 0.01
        better = high < 1 - threshold and p < 0.01
        regressions += worse
        if worse or better:
            print(f"{'SLOWER' if worse else 'faster'} {shape}: {median(a):.2f} -> {median(b):.2f} us, x{ratio:.3f} "
                  f"[{low:.3f}, {high:.3f}], p {p:.1e}, delta {delta:+.2f}")
    print(f"{len(old.keys() & new.keys())} shapes in both, {len(old.keys() ^ new.keys())} in one, {regressions} slower")
    return 1 if regressions else 0


def overlap(a, b):
    return max(min(a), min(b)) <= min(max(a), max(b))


def fastest(candidates):
    return min(candidates, key=lambda c: median(c["cold_us"]))


def launch(candidate):
    return {k: v for k, v in candidate.items() if k != "cold_us"}


def picks_of(path):
    """Returns by shape the launch shape that a table made from this run has."""
    return {key(row): launch(fastest(row["candidates"])) for row in json.load(open(path))["rows"] if row["candidates"]}


def times_of_pick(row, picks):
    """Returns the times of the launch shape, or None where the run did not measure it."""
    if picks is None:
        return row["cold_us"]
    tried = [c for c in row["candidates"] if launch(c) == picks.get(key(row))]
    return fastest(tried)["cold_us"] if tried else None


def regret(path, made_by=None):
    losses, unknown = [], 0
    picks = picks_of(made_by) if made_by else None
    for row in json.load(open(path))["rows"]:
        times = times_of_pick(row, picks)
        if times is None:
            unknown += 1
            continue
        best = min((c["cold_us"] for c in row["candidates"]), key=median, default=times)
        loss = median(times) / median(best) - 1
        losses.append((0 if loss < 0 or overlap(times, best) else loss, key(row)))
    losses.sort()
    if not losses:
        sys.exit(f"{path}: no shapes")
    for loss, shape in losses[-5:]:
        print(f"{100 * loss:5.1f}% {shape}")
    p99 = losses[min(len(losses) - 1, math.ceil(0.99 * len(losses)) - 1)][0]
    print(f"{len(losses)} shapes: regret median {100 * losses[len(losses) // 2][0]:.1f}%, p99 {100 * p99:.1f}%, "
          f"worst {100 * losses[-1][0]:.1f}%" + (f"; {unknown} shapes not compared" if unknown else ""))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--threshold", type=float, default=0.03)
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--made-by", metavar="OTHER.json")
    options = parser.parse_args()
    if options.regret:
        return max(regret(path, options.made_by) for path in options.files)
    if len(options.files) != 2:
        parser.error("two files to compare")
    return compare(*options.files, options.threshold)


if __name__ == "__main__":
    sys.exit(main())
