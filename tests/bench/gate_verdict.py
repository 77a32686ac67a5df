"""The verdicts of `make bench-gate`: is the new build slower?

Slices of the old and the new build take turns in pairs. A round has new processes for both builds, and some pairs of each
row. The pairs of a round are not independent: they share the placement of memory and threads, and the load of neighbours. So
a round is the unit of all statistics: whole rounds are drawn for the interval, and the test sees one value per round."""
import math
import random
from statistics import NormalDist

from compare import mann_whitney, median

ROUNDS_MIN = 16        # below this number, no test is significant beside so many others
WIDTH_MAX = 0.03       # of an interval, as a ratio: a wider one is not judged
SLOWER_MAX = 0.05      # what the gate lets through, as a ratio
LEVEL = 0.01           # of the test, after the correction for all rows
# the 97.5 % quantiles of Student's distribution by degrees of freedom, for few rounds
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 9: 2.26, 11: 2.20, 15: 2.13, 19: 2.09, 29: 2.05, 59: 2.00}


def interval(rounds, draws=1000, seed=1):
    """Returns the bootstrap interval of the median log ratio. Whole rounds are drawn.

    The bootstrap of few rounds gives too narrow an interval. So its ends are percentiles further out, as Student's
    distribution has it."""
    count, draw = len(rounds), random.Random(seed)
    student = STUDENT[max(k for k in STUDENT if k <= max(1, count - 1))] * math.sqrt(count / max(1, count - 1))
    outside = int(math.erfc(student / math.sqrt(2)) / 2 * draws)
    medians = sorted(median([one for drawn in draw.choices(rounds, k=count) for one in drawn]) for _ in range(draws))
    return medians[outside], medians[-1 - outside]


def test(rounds):
    """Returns the p of equal builds, and Cliff's delta (1: the new build is slower in every round).

    The log ratios of equal builds are distributed as their mirror image, so the rounds are compared with it. The mirror image is
    not an independent sample, which doubles the variance: this is Wilcoxon's test of signed ranks."""
    values = [median(one) for one in rounds]
    p, delta = mann_whitney([-one for one in values], values)
    return math.erfc(-NormalDist().inv_cdf(p / 2) / 2), delta


def holm(ps, count):
    """Returns the values of p corrected for `count` tests, of which these are the smallest."""
    order, corrected, least = sorted(range(len(ps)), key=ps.__getitem__), [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        least = corrected[i] = max(least, min(1.0, ps[i] * (count - rank)))
    return corrected


def figures(rounds):
    """Returns the times in us, the ratio (above 1: the new build is slower), its interval, p and delta, of rounds of pairs."""
    logs = [[math.log(new / old) for old, new in pairs] for pairs in rounds]
    low, high = map(math.exp, interval(logs))
    p, delta = test(logs)
    return {"old_us": 1e6 * median([old for pairs in rounds for old, _ in pairs]),
            "new_us": 1e6 * median([new for pairs in rounds for _, new in pairs]),
            "ratio": math.exp(median([one for logs_of in logs for one in logs_of])), "low": low, "high": high, "p": p, "delta": delta,
            "rounds": len(rounds), "pairs": sum(map(len, rounds))}


def width(rounds):
    low, high = interval([[math.log(new / old) for old, new in pairs] for pairs in rounds], 200)
    return math.exp(high) - math.exp(low)


def verdict(row):
    """Returns the verdict on a row's figures.

    A clear change is reported from a wide interval too, if all of the interval is beyond what the gate lets through."""
    margin = 0 if row["high"] - row["low"] <= WIDTH_MAX else SLOWER_MAX
    if row["rounds"] < ROUNDS_MIN:
        return "not judged"
    if row["holm"] < LEVEL and row["low"] > 1 + margin:
        return "slower"
    if row["holm"] < LEVEL and row["high"] < 1 - margin:
        return "faster"
    return "not judged" if margin or row["high"] > 1 + SLOWER_MAX else "equal"


def judge(measured, count):
    """Returns {row: figures and verdict} of {row: rounds of pairs}. The correction is for `count` rows."""
    rows = {name: figures(rounds) for name, rounds in measured.items()}
    for row, p in zip(rows.values(), holm([row["p"] for row in rows.values()], count)):
        row["holm"] = p
        row["verdict"] = verdict(row)
    return rows


def status(rows):
    """Returns the exit status: 1 if a row is slower by more than the gate lets through, 3 if one is not judged, else 0."""
    if any(row["verdict"] == "slower" and row["ratio"] > 1 + SLOWER_MAX for row in rows.values()):
        return 1
    return 3 if any(row["verdict"] == "not judged" for row in rows.values()) else 0


def describe(row):
    """Returns the verdict in words."""
    if row["verdict"] == "equal":
        return f"equal within {100 * max(row['high'] - 1, 1 - row['low']):.1f} %"
    if row["verdict"] != "not judged":
        return f"{row['verdict']} by {100 * abs(row['ratio'] - 1):.1f} %"
    if row["rounds"] < ROUNDS_MIN:
        return f"not judged: {row['rounds']} rounds, {ROUNDS_MIN} are needed"
    wide = 100 * (row["high"] - row["low"])
    return "not judged: the interval " + (f"is {wide:.1f} % wide" if wide > 100 * WIDTH_MAX else f"reaches {row['high']:.3f}")
