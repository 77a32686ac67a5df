#!/usr/bin/env python3
"""crossover.py RESULT.json B S D SOURCE OUTPUT: time over T for each style of the lean kernel, as an image in text.

For every T that the file has for the shape: the best time of each style, a column of characters on a logarithmic scale."""
import json
import math
import sys

STYLES = {"steps": "s steps", "walk": "w walk", "direct": "d direct", "narrow": "n narrow", "batch": "b batch"}
# records of former releases have the numbers of styles
NUMBERS = {"0": "steps", "1": "walk", "2": "direct", "3": "narrow", "5": "batch"}
LINES = 16


def best_by_style(row):
    named = {NUMBERS.get(style, style): time for style, time in row["styles"].items()}
    return {style: time for style, time in named.items() if style in STYLES}


def main(path, *shape):
    b, s, d, source, output = int(shape[0]), int(shape[1]), int(shape[2]), shape[3], shape[4]
    rows = [r for r in json.load(open(path))["rows"]
            if (r["B"], r["D"], r["source"], r["output"]) == (b, d, source, output) and s in (0, r["S"]) and r["layout"] == "dense"]
    rows.sort(key=lambda r: r["B"] * r["T"])
    points = [(r, best_by_style(r)) for r in rows]
    if not points:
        sys.exit("crossover.py: no such shape in the file")
    times = [t for _, best in points for t in best.values()]
    low, high = math.log(min(times)), math.log(max(times) * 1.0001)
    for line in reversed(range(LINES)):
        cells = []
        for _, best in points:
            here = [STYLES[k][0] for k, t in best.items()
                    if int((math.log(t) - low) / (high - low) * LINES) == line]
            cells.append("".join(here).center(9))
        print(f"{math.exp(low + (line + 0.5) / LINES * (high - low)):9.1f} us |" + "".join(cells))
    print(" " * 13 + "+" + "-" * 9 * len(points))
    print(" " * 14 + "".join(f"{r['S']}/{r['T']}".center(9) for r, _ in points) + " S/T")
    print("   ".join(STYLES.values()))


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
