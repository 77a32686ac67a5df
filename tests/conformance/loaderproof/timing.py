"""T1 alignment, T2 leakage, T3 masks: what a loader delivers, compared with the world that was recorded."""
import copy

import numpy as np

from . import formulas
from .driver import Share
from .formulas import BY_NAME, MS, OBSERVED, tick_times, ticks
from .rules import steps_of, was_recorded

T1_CASES = ("clean", "jitter 2 ms", "jitter 5 ms", "latency 30 ms", "latency 80 ms", "drift 50 ppm", "drop-outs 200 ms",
            "repeated stamps", "camera stops")
T2_CASES = ("clean", "jitter 5 ms", "latency 80 ms")
T3_CASES = ("clean", "drop-outs 200 ms", "camera stops", "nan 150 ms")


class Delivered:
    """All windows of an epoch: episode [N], tick [N], values {stream: [N, T, D]} with images read as ms, valid."""

    def __init__(self, batches):
        batches = list(batches)
        self.episode = np.concatenate([batch.episode for batch in batches])
        self.tick = np.concatenate([batch.tick for batch in batches])
        self.values = {name: np.concatenate([flat(name, batch.values[name]) for batch in batches]) for name in batches[0].values}
        self.valid = {name: np.concatenate([batch.valid[name] for batch in batches]) for name in batches[0].valid}
        self.has_marks = bool(batches[0].valid)

    def valid_steps(self, name):
        return self.valid[name] if name in self.valid else np.ones(self.values[name].shape[:2], bool)

    def times(self, name):
        """Returns the times that the steps claim: [N, T]."""
        return tick_times(self.tick)[:, None] + np.asarray(steps_of(name))


def flat(name, values):
    if BY_NAME[name].kind == "image":
        return formulas.read_stamp(values.reshape(-1, *values.shape[2:])).reshape(*values.shape[:2], 1)
    return np.asarray(values, dtype=np.float64)


def deliver(make_driver, recording, share=None):
    driver = make_driver()
    try:
        driver.write(recording)
        return Delivered(driver.read(share or Share(shuffle=False)))
    finally:
        driver.close()


# T1.


def alignment(recording, delivered):
    """Returns {unit: {mean, p95, max, kept}} over the steps inside the episodes that are not marked, and the mean of each
    stream. `kept` is the share of these steps."""
    found, streams = {}, {}
    for sensor in recording.sensors():
        name = sensor.name
        times, valid, value = delivered.times(name), delivered.valid_steps(name), delivered.values[name]
        inside = (times >= 0) & (times <= np.array([tick_times(ticks(episode) - 1) for episode in recording.episodes])[
            delivered.episode][:, None])
        for number in range(len(recording.episodes)):
            here = inside & (delivered.episode == number)[:, None]
            use = here & valid & np.isfinite(value).all(2)
            true = recording.truth(number, name, times[use])
            errors = formulas.error(sensor, value[use], true)
            unit = "action mm" if name == "action" else sensor.unit
            kept = found.setdefault(unit, ([], []))
            kept[0].append(errors)
            kept[1].append([use.sum(), here.sum()])
            streams.setdefault(name, []).append(errors)
    score = {unit: describe(np.concatenate(errors), np.sum(counts, 0)) for unit, (errors, counts) in found.items()}
    return {**score, "streams": {name: describe(np.concatenate(errors), (1, 1))["mean"] for name, errors in streams.items()}}


def describe(errors, counts):
    if not len(errors):
        return {"mean": None, "p95": None, "max": None, "kept": 0.0}
    return {"mean": number(errors.mean()), "p95": number(np.percentile(errors, 95)), "max": number(errors.max()),
            "kept": number(counts[0] / max(counts[1], 1))}


def number(value):
    """Returns a number with four digits, for tables."""
    return float(f"{float(value):.4g}")


# T2.

VARIANTS = 24


def leaking_recording(case, seed):
    """Returns a recording whose first episode is the base. Each other one differs from it in all rows after a cut: the
    time of one of its anchors. Returns the ticks of the cuts, too."""
    recording = formulas.make(case, 1, 3.0, seed)
    base = recording.episodes[0]
    cuts = np.linspace(6, ticks(base) - 4, VARIANTS).astype(int)
    for cut in cuts:
        other = copy.copy(base)
        other.streams = {name: stream.changed_after(tick_times(cut)) for name, stream in base.streams.items()}
        recording.episodes.append(other)
    return recording, cuts


def leakage(recording, cuts, delivered):
    """Returns {unit: {share, ahead_ms, ahead_of_arrival_ms}} of the observations.

    share     of the anchors whose observation changes with rows that were sensed after the anchor
    ahead_ms  how far after an anchor a row was sensed that changed its observation; of arrival: when it arrived"""
    found = {}
    base = recording.episodes[0]
    for name in recording.names:
        value = raw_bits(delivered.values[name])
        at = {(int(e), int(t)): row for row, (e, t) in enumerate(zip(delivered.episode, delivered.tick))}
        stream, shares, ahead, arrived = base.streams[name], [], [0], [0]
        for variant, cut in enumerate(cuts, 1):
            first = np.searchsorted(stream.sensed, tick_times(cut), side="right")
            for tick in range(max(cut - 20, 0), cut + 1):
                if (0, tick) not in at or (variant, tick) not in at or first == len(stream.sensed):
                    continue
                changed = (value[at[variant, tick]] != value[at[0, tick]]).any()
                if tick == cut:
                    shares.append(changed)
                if changed:
                    ahead.append((stream.sensed[first] - tick_times(tick)) / MS)
                    arrived.append((stream.stamps[first] - tick_times(tick)) / MS)
        unit = found.setdefault(stream.sensor.unit, [[], [], []])
        unit[0] += shares
        unit[1] += ahead
        unit[2] += arrived
    return {unit: {"share": number(np.mean(shares)) if shares else None, "ahead_ms": number(max(ahead)),
                   "ahead_of_arrival_ms": number(max(arrived))} for unit, (shares, ahead, arrived) in found.items()}


def raw_bits(values):
    return np.nan_to_num(np.asarray(values, dtype=np.float64), nan=-1e9)


# T3.


def masks(recording, delivered):
    """Returns how steps are handled where nothing was recorded.

    unmarked   the share of these steps that come as a value without a mark
    nan        the share of these steps that come as NaN without a mark
    overmarked the share of the steps with rows at both sides that are marked all the same"""
    invented, unmarked, nan, whole, wrong = 0, 0, 0, 0, 0
    for sensor in recording.sensors():
        name = sensor.name
        for number_, episode in enumerate(recording.episodes):
            here = delivered.episode == number_
            times, valid = delivered.times(name)[here], delivered.valid_steps(name)[here]
            finite = np.isfinite(delivered.values[name][here]).all(2)
            none, both = was_recorded(episode.streams[name], times)
            invented += none.sum()
            unmarked += (none & valid & finite).sum()
            nan += (none & valid & ~finite).sum()
            whole += both.sum()
            wrong += (both & ~valid).sum()
    return {"unmarked": number(unmarked / max(invented, 1)), "nan": number(nan / max(invented, 1)),
            "overmarked": number(wrong / max(whole, 1)), "steps": int(invented)}


def run(test, case, seed, make_driver):
    """Returns the score of one case of T1, T2 or T3."""
    if test == "T2":
        recording, cuts = leaking_recording(case, seed)
        return leakage(recording, cuts, deliver(make_driver, recording))
    recording = formulas.make(case, 3, 6.0, seed, OBSERVED)
    delivered = deliver(make_driver, recording)
    return alignment(recording, delivered) if test == "T1" else masks(recording, delivered)
