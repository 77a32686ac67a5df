"""How rows are chosen and blended: the usual rules of converters, and the best that can be done (the perfect loader)."""
from dataclasses import dataclass

import numpy as np

from . import formulas
from .driver import Batch
from .formulas import ACTION_STEPS, MS, OBS_STEPS, ticks, tick_times

OLDEST, LARGEST_GAP = 60 * MS, 100 * MS  # a value that is farther from a row, or within such a gap, was not recorded


def steps_of(name):
    return ACTION_STEPS if name == "action" else OBS_STEPS


def converted(stream, rule, times):
    """Returns the rows that a converter takes for `times`. It goes by the stamps, and knows no latency.

    newest   the last row that has come until then, as a recorder does that reads all sensors at each tick
    nearest  the row with the nearest stamp, as most scripts do that make one rate of several"""
    stamps = stream.stamps
    after = np.clip(np.searchsorted(stamps, times, side="right"), 1, len(stamps))
    before = after - 1
    if rule == "newest":
        return before
    after = np.minimum(after, len(stamps) - 1)
    return np.where(np.abs(stamps[after] - times) < np.abs(times - stamps[before]), after, before)


def one_rate(recording, rule):
    """Returns for each episode {stream: rows at the ticks of its control loop}."""
    made = []
    for episode in recording.episodes:
        times = tick_times(np.arange(ticks(episode)))
        made.append({name: stream.values[converted(stream, rule, times)] for name, stream in episode.streams.items()})
    return made


def row_steps(name):
    """Returns the steps of a window as rows of the control loop: what a loader without a notion of time is asked for."""
    return np.array([round(step * formulas.CONTROL_HZ / formulas.SECOND) for step in steps_of(name)])


def window(rows, name, tick, count):
    """Returns the rows of a window's steps, and which of them are inside the episode. Others repeat its edge."""
    wanted = tick + row_steps(name)
    return rows[np.clip(wanted, 0, count - 1)], (wanted >= 0) & (wanted < count)


# The perfect loader.


@dataclass
class Usable:
    """The rows of a stream that a perfect loader uses: with times of sensing, in order, without repeated stamps and NaN."""

    times: np.ndarray
    values: np.ndarray


def usable(stream):
    times = stream.stamps - stream.latency
    keep = np.concatenate([[True], np.diff(times) > 0])
    if stream.sensor.kind != "image":
        keep &= np.isfinite(stream.values).all(1)
    return Usable(times[keep], stream.values[keep])


def perfect(stream, anchors, steps, waits=False):
    """Returns the values [N, T, ...] of a perfect loader at anchors + steps, and which were recorded: bool [N, T].

    It reads no observation after the anchor, unless it `waits`: then a step is blended with a row that came later. That
    is the limit of the data."""
    rows = usable(stream)
    times = np.asarray(anchors)[:, None] + np.asarray(steps)
    until = np.full(times.shape, np.iinfo(np.int64).max) if waits or stream.sensor.kind == "hold" else np.broadcast_to(
        np.asarray(anchors)[:, None], times.shape)
    before = np.searchsorted(rows.times, times, side="right") - 1
    after = before + 1
    first, last = before < 0, after >= len(rows.times)
    before, after = np.maximum(before, 0), np.minimum(after, len(rows.times) - 1)
    blends = ~first & ~last & (rows.times[after] <= until)
    age, ahead = np.abs(times - rows.times[before]), np.abs(rows.times[after] - times)
    span = np.where(blends, rows.times[after] - rows.times[before], 0)
    share = np.where(blends, age / np.maximum(span, 1), 0)
    if stream.sensor.kind in ("image", "hold"):
        nearer = blends & (ahead < age) if stream.sensor.kind == "image" else np.zeros_like(blends)
        values = rows.values[np.where(nearer, after, before)]
        age = np.where(nearer, ahead, age)
    else:
        values = blend(stream.sensor.kind, rows.values[before], rows.values[after], share[..., None])
        age = np.where(blends, np.minimum(age, ahead), age)
    return values, (age <= OLDEST) & (span <= LARGEST_GAP) & ~(first & (ahead > OLDEST)) & recorded_yet(rows, until)


def recorded_yet(rows, until):
    """Returns whether a row was there at all at the anchor."""
    return rows.times[0] <= until


def blend(kind, a, b, share):
    if kind == "linear":
        return a + (b - a) * share
    a, b = a.astype(np.float64), b.astype(np.float64)
    dot = (a * b).sum(-1, keepdims=True)
    b, dot = np.where(dot < 0, -b, b), np.clip(np.abs(dot), 0, 1)
    angle = np.arccos(dot)
    size = np.where(angle > 1e-6, np.sin(angle), 1)
    near = angle <= 1e-6
    return (np.where(near, 1 - share, np.sin((1 - share) * angle) / size) * a
            + np.where(near, share, np.sin(share * angle) / size) * b)


def was_recorded(stream, times):
    """Returns two bool arrays: where no finite row is near `times` (a value there is invented), and where rows are at
    both sides, no farther apart than 1.6 periods (a mark there is wrong)."""
    rows = stream.sensed
    if stream.sensor.kind != "image":
        rows = rows[np.isfinite(stream.values).all(1)]
    before = np.searchsorted(rows, times, side="right") - 1
    age = np.where(before >= 0, times - rows[np.maximum(before, 0)], np.iinfo(np.int64).max)
    after = before + 1
    ahead = np.where(after < len(rows), rows[np.minimum(after, len(rows) - 1)] - times, np.iinfo(np.int64).max)
    period = formulas.SECOND / stream.sensor.rate
    return (age > OLDEST) & (ahead > OLDEST), (age < 1.6 * period) & (ahead < 1.6 * period)


# For drivers of loaders without a notion of time.


def windows(recording, rule):
    """Yields each window as a dict: `id` (episode, tick), the rows of each stream, and NAME_is_pad."""
    for number, rows in enumerate(one_rate(recording, rule)):
        for tick in range(len(rows["action"])):
            item = {"id": np.array([number, tick], dtype=np.int64)}
            for name in rows:
                item[name], inside = window(rows[name], name, tick, len(rows["action"]))
                item[f"{name}_is_pad"] = ~inside
            yield item


def as_batch(item):
    """Returns a Batch of a collated dict of windows. Without NAME_is_pad a loader has no marks."""
    held = {name: np.asarray(value) for name, value in item.items() if name != "id"}
    ids = np.asarray(item["id"]).reshape(-1, 2)
    return Batch(ids[:, 0], ids[:, 1], {name: value for name, value in held.items() if not name.endswith("_is_pad")},
                 {name[:-7]: ~value.astype(bool) for name, value in held.items() if name.endswith("_is_pad")})
