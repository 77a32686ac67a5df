#!/usr/bin/env python3
"""Writes tests/golden/resample/*.txt: resampling computed with numpy and scipy, to hold trajd's reference against.

Usage: resample_vectors.py DIRECTORY. Needs numpy and scipy. Deterministic: running it again changes nothing.

A file is a series of cases of whitespace-separated words:
  case NAME kind K rate NUM DEN rows S features D steps T period P low L width W slopes N
  stamps S (NUM = 0)  rows S*D  targets T  values T*D  mask T  derivative T*N
Targets are ns from the clock's zero. Masks are those of edge: hold, max_age: none, max_gap: any.
"""
import bisect
import pathlib
import sys
from fractions import Fraction

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

KINDS = dict(linear=0, previous=1, nearest=2, slerp_xyzw=3, slerp_wxyz=4, angle=5, mean=6)
VALID, BEFORE, AFTER, NAN = 0, 1, 2, 5


def mask_of(stamps, targets):
    return [BEFORE if x < stamps[0] else AFTER if x > stamps[-1] else VALID for x in targets]


def linear(stamps, rows, targets, **_):
    values = np.stack([np.interp(targets, stamps, column) for column in rows.T], axis=1)
    return values, slopes(stamps, targets, np.diff(rows, axis=0))


def slopes(stamps, targets, differences):
    """Returns the difference of the two rows around each target, divided by their distance. It is 0 outside the
    rows."""
    result = np.zeros((len(targets), differences.shape[1]))
    for t, x in enumerate(targets):
        if stamps[0] <= x <= stamps[-1]:
            i = min(bisect.bisect_right(stamps, x) - 1, len(stamps) - 2)
            result[t] = differences[i] / ((stamps[i + 1] - stamps[i]) / 1e9)
    return result


def last_at(stamps, x):
    return max(bisect.bisect_right(stamps, x) - 1, 0)


def previous(stamps, rows, targets, **_):
    return np.stack([rows[last_at(stamps, x)] for x in targets]), None


def nearest(stamps, rows, targets, **_):
    # the later one of two equally near rows
    return np.stack([rows[min(range(len(stamps)), key=lambda i: (abs(x - stamps[i]), -i))] for x in targets]), None


def slerp_xyzw(stamps, rows, targets, **_):
    rotations = Rotation.from_quat(rows)
    inside = np.clip(targets, stamps[0], stamps[-1])
    turns = (rotations[1:] * rotations[:-1].inv()).as_rotvec()
    return Slerp(stamps, rotations)(inside).as_quat(), slopes(stamps, targets, turns)


def slerp_wxyz(stamps, rows, targets, **_):
    values, derivative = slerp_xyzw(stamps, np.roll(rows, -1, axis=1), targets)
    return np.roll(values, 1, axis=1), derivative


def angle(stamps, rows, targets, period, low, **_):
    values = np.empty((len(targets), rows.shape[1]))
    for t, x in enumerate(targets):
        i = last_at(stamps, x)
        pair = np.unwrap(rows[i : i + 2], period=period, axis=0)
        a = 0 if x <= stamps[0] or x >= stamps[-1] else (x - stamps[i]) / (stamps[i + 1] - stamps[i])
        values[t] = pair[0] + a * (pair[1] - pair[0]) if a else pair[0]
    if not np.isnan(low):
        values = np.mod(values - low, period) + low
    differences = np.stack([np.diff(np.unwrap(rows[i : i + 2], period=period, axis=0), axis=0)[0]
                            for i in range(len(stamps) - 1)])
    return values, slopes(stamps, targets, differences)


def mean(stamps, rows, targets, width, **_):
    values = np.empty((len(targets), rows.shape[1]))
    for t, x in enumerate(targets):
        for d in range(rows.shape[1]):
            seen = [i for i, s in enumerate(stamps) if x - width < s <= x]
            used = [rows[i, d] for i in seen or [last_at(stamps, x)] if not np.isnan(rows[i, d])]
            values[t, d] = sum(used) / len(used) if used else np.nan
    return values, None


def words(values):
    return " ".join(repr(float(v)) for v in np.asarray(values, dtype=float).ravel())


def write_case(out, name, kind, stamps, rows, targets, rate=None, period=0.0, low=float("nan"), width=0):
    stamps = [int(s) for s in stamps]
    targets = [int(x) for x in targets]
    values, derivative = globals()[kind](stamps, rows, targets, period=period, low=low, width=width)
    mask = mask_of(stamps, targets)
    mask = [max(m, NAN) if np.isnan(v).any() else m for m, v in zip(mask, values)]
    num, den = rate or (0, 0)
    count = 0 if derivative is None else derivative.shape[1]
    print(f"case {name} kind {KINDS[kind]} rate {num} {den} rows {len(stamps)} features {rows.shape[1]} "
          f"steps {len(targets)} period {period!r} low {low!r} width {width} slopes {count}", file=out)
    if not rate:
        print("stamps", *stamps, file=out)
    print("rows", words(rows), file=out)
    print("targets", *targets, file=out)
    print("values", words(values), file=out)
    print("mask", *mask, file=out)
    if count:
        print("derivative", words(derivative), file=out)


def jittered(random, count, period_ns):
    return np.arange(count) * period_ns + random.integers(0, period_ns // 2, count)


def targets_for(random, stamps, count):
    """Returns targets inside, outside and exactly on rows, not sorted."""
    span = stamps[-1] - stamps[0]
    anywhere = random.integers(stamps[0] - span // 10, stamps[-1] + span // 10, count)
    return np.concatenate([anywhere, random.choice(stamps, 4), [stamps[0], stamps[-1]]])


def unit_quaternions(random, count, reach):
    q = [random.normal(size=4)]
    for _ in range(count - 1):
        q.append(q[-1] / np.linalg.norm(q[-1]) + reach * random.normal(size=4))
    q = np.stack([v / np.linalg.norm(v) for v in q])
    q[random.random(count) < 0.3] *= -1  # the same rotations
    return q


def rate_stamps(num, den, count):
    return [int(Fraction(i * 10**9 * den, num).__floor__()) for i in range(count)]


def write_kinds(directory):
    random = np.random.default_rng(20)
    for kind in ("linear", "previous", "nearest"):
        with open(directory / f"{kind}.txt", "w") as out:
            for rows, features, steps in ((2, 1, 8), (40, 7, 60), (300, 3, 40)):
                stamps = jittered(random, rows, 10_000_000)
                write_case(out, f"jitter_{rows}", kind, stamps, random.normal(size=(rows, features)),
                           targets_for(random, stamps, steps))
            for num, den in ((15, 1), (30, 1), (30000, 1001), (60, 1), (1000, 3)):
                stamps = np.array(rate_stamps(num, den, 100))
                near = np.concatenate([stamps[::7] - 1, stamps[::7], stamps[::7] + 1])
                write_case(out, f"rate_{num}_{den}", kind, stamps, random.normal(size=(100, 2)), near, rate=(num, den))
    for kind in ("slerp_xyzw", "slerp_wxyz"):
        with open(directory / f"{kind}.txt", "w") as out:
            for name, reach in (("near", 0.02), ("nearly_parallel", 1e-7), ("far", 1.0)):
                stamps = jittered(random, 50, 33_000_000)
                write_case(out, name, kind, stamps, unit_quaternions(random, 50, reach), targets_for(random, stamps, 60))
    with open(directory / "angle.txt", "w") as out:
        for period in (2 * np.pi, 360.0):
            for low in (float("nan"), 0.0, -period / 2):
                stamps = jittered(random, 40, 5_000_000)
                rows = random.uniform(-2 * period, 2 * period, size=(40, 3))
                write_case(out, f"period_{period:.0f}_low_{low:.0f}", "angle", stamps, rows,
                           targets_for(random, stamps, 50), period=float(period), low=float(low))
    with open(directory / "mean.txt", "w") as out:
        for width in (1, 5_000_000, 50_000_000):
            stamps = jittered(random, 200, 1_000_000)
            rows = random.normal(size=(200, 2))
            rows[random.random((200, 2)) < 0.1] = np.nan
            write_case(out, f"width_{width}", "mean", stamps, rows, targets_for(random, stamps, 40), width=width)
        stamps = np.array(rate_stamps(1000, 1, 300))
        write_case(out, "rate_1000", "mean", stamps, random.normal(size=(300, 3)),
                   np.arange(-20_000_000, 310_000_000, 7_000_001), rate=(1000, 1), width=50_000_000)


def bf16_bits(value):
    """Rounds with exact fractions to the nearest of the two neighbours, and to the even one of two equally near."""
    lower = np.float32(0)
    low, high = 0, 0x7F80
    while high - low > 1:  # bits of positive bf16 are ordered as the values are
        middle = (low + high) // 2
        lower = np.array([middle << 16], dtype=np.uint32).view(np.float32)[0]
        low, high = (middle, high) if float(lower) <= abs(value) else (low, middle)
    below = Fraction(float(np.array([low << 16], dtype=np.uint32).view(np.float32)[0]))
    above = Fraction(2**128) if high == 0x7F80 else Fraction(
        float(np.array([high << 16], dtype=np.uint32).view(np.float32)[0]))
    past, rest = Fraction(abs(value)) - below, above - Fraction(abs(value))
    bits = low if past < rest or (past == rest and low % 2 == 0) else high
    return bits | (0x8000 if np.signbit(value) else 0)


def write_halves(directory):
    """Writes one line VALUE F16_BITS BF16_BITS per value."""
    random = np.random.default_rng(21)
    values = list(random.normal(size=200) * 10.0 ** random.integers(-9, 6, 200))
    values += [65504.0, 65519.999, 65520.0, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0000001, 3.3e38, 3.4e38, 1e39, 1e-40]
    for half in (1, 3, 1025, 2047, 4095):  # ties and their neighbours, where rounding through float gives wrong results
        for nudge in (0, 2.0**-40, -(2.0**-40)):
            values += [1 + half * 2.0**-11 + nudge, -(1 + half * 2.0**-8) - nudge]
    with open(directory / "halves.txt", "w") as out, np.errstate(over="ignore"):
        for value in values:
            print(repr(float(value)), int(np.float16(np.float64(value)).view(np.uint16)), bf16_bits(float(value)), file=out)


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    write_kinds(directory)
    write_halves(directory)


if __name__ == "__main__":
    main()
