#!/usr/bin/env python3
"""image_regret.py RUN OTHER_RUN [WAY...]: how much time the choice of image kernels loses.

Both runs are outputs of `bench_image_gpu grid`. The best way of each shape is taken from RUN. The regret is the time
of the chosen way over that of the best one, both in OTHER_RUN, less 1. A WAY is a part of a way's name ("matrix",
"1:5, copies"): then also the regret of taking the first way with this part of a name, where a shape has one.
"""
import sys


def read(path):
    """Returns {shape: {way: us}}."""
    shapes = {}
    for line in open(path):
        fields = line.strip().split("; ")
        if len(fields) == 5 and fields[0] == "grid":
            shapes.setdefault(fields[1], {})[fields[2]] = float(fields[3])
    return shapes


def best_of(ways):
    return min((us, way) for way, us in ways.items() if not way.startswith("chosen:"))[1]


def report(name, regrets):
    """Prints the regrets of a choice, [(regret, shape, way, best way)]."""
    regrets.sort(reverse=True)
    if not regrets:
        sys.exit(f"{name}: no shape has such a way")
    p99 = regrets[len(regrets) // 100][0]
    mean = sum(r[0] for r in regrets) / len(regrets)
    print(f"{name}: {len(regrets)} shapes, mean {mean:.1%}, p99 {p99:.1%}, worst {regrets[0][0]:.1%}")
    for regret, shape, way, best in regrets[:5]:
        print(f"    {regret:6.1%}  {shape}: {way} instead of {best}")


def regrets_of(run, other, part):
    found = []
    for shape, ways in run.items():
        way = next((w for w in ways if part in w), None)
        if way and shape in other and way in other[shape]:
            best = best_of(ways)
            found.append((max(other[shape][way] / other[shape][best] - 1, 0), shape, way, best))
    return found


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    run, other = read(sys.argv[1]), read(sys.argv[2])
    for part in ["chosen:", *sys.argv[3:]]:
        report(part, regrets_of(run, other, part))
    print("\nbest way of each shape")
    for shape, ways in run.items():
        print(f"    {shape}: {best_of(ways)}")


if __name__ == "__main__":
    main()
