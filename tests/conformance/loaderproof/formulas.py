"""Recordings by closed formulas, in a neutral form: numpy arrays per stream, with the times of sensing beside the stamps.

A recording is what a laboratory has on disk before any converter has seen it. Its world is known at each moment
(`truth`), so a delivered value can be compared with what it claims to show. Times are int64 nanoseconds since the
begin of the episode."""
from dataclasses import dataclass, field, replace

import numpy as np

MS = 1_000_000
SECOND = 1000 * MS
CONTROL_HZ = 30  # the rate of the control loop, whose ticks are the anchors
BITS, BITS_PER_ROW = 24, 12
STAMP_UNIT = 100_000  # an image shows its time of sensing in units of 0.1 ms
OBS_STEPS = (-100 * MS, 0)  # the steps of a window, as times from its anchor
ACTION_STEPS = (0, 100 * MS, 200 * MS, 300 * MS)


@dataclass(frozen=True)
class Sensor:
    """What a stream is: its rate, its kind, and the unit of its errors."""

    name: str
    rate: float
    kind: str  # linear, rotation (quaternions xyzw), image, or hold (commands)
    unit: str  # mm, deg or ms


SENSORS = (Sensor("action", CONTROL_HZ, "hold", "mm"), Sensor("arm", 500, "linear", "mm"), Sensor("tool", 100, "rotation", "deg"),
           Sensor("tracker", 60, "linear", "mm"), Sensor("wrist", 30, "image", "ms"), Sensor("scene", 30000 / 1001, "image", "ms"))
OBSERVED = tuple(sensor.name for sensor in SENSORS if sensor.name != "action")
BY_NAME = {sensor.name: sensor for sensor in SENSORS}


@dataclass
class Stream:
    sensor: Sensor
    sensed: np.ndarray  # int64 [N]: when each row was true
    stamps: np.ndarray  # int64 [N]: what was recorded
    values: np.ndarray  # [N, D], images [N, H, W, 3] u8
    latency: int = 0  # stamps are so much later than the sensing. The laboratory has measured and written this down

    def changed_after(self, cut):
        """Returns a copy whose rows that were sensed after `cut` are others."""
        late = self.sensed > cut
        values = self.values.copy()
        if self.sensor.kind == "image":
            values[late] = 255 - values[late]
        elif self.sensor.kind == "rotation":
            values[late] = values[late][:, [3, 2, 1, 0]] * [1, -1, 1, -1]  # turned by 180 degrees
        else:
            values[late] += 1000
        return replace(self, values=values)


@dataclass
class Episode:
    streams: dict
    duration: int
    seed: int


@dataclass
class Recording:
    """Some episodes, and the name of what is wrong with them."""

    case: str
    episodes: list
    seed: int
    names: tuple = field(default=OBSERVED)  # the observed streams

    def sensors(self):
        return [BY_NAME[name] for name in ("action", *self.names)]

    def truth(self, episode, name, times):
        return truth(BY_NAME[name], self.episodes[episode].seed, times)


# The world.


def truth(sensor, seed, times):
    """Returns what a sensor would show at `times`: [N, D], and for images the time itself in ms [N, 1]."""
    seconds = np.asarray(times, dtype=np.float64) / SECOND
    if sensor.kind == "image":
        return seconds[:, None] * 1000
    random = np.random.default_rng([seed, sum(sensor.name.encode())])
    if sensor.kind == "rotation":  # it tumbles: turns about z, then x, then z, each at its own rate
        rates, phases = random.uniform(1, 4, 3), random.uniform(0, 2 * np.pi, 3)
        turn = about(2, rates[0] * seconds + phases[0])
        turn = multiply(turn, about(0, rates[1] * seconds + phases[1]))
        return multiply(turn, about(2, rates[2] * seconds + phases[2]))
    value = np.zeros((len(seconds), 3))
    for _ in range(3):
        size, rate, phase = random.uniform(20, 80, 3), random.uniform(0.2, 1.5, 3), random.uniform(0, 2 * np.pi, 3)
        value += size * np.sin(2 * np.pi * rate * seconds[:, None] + phase)
    return value


def about(axis, angle):
    turn = np.zeros((len(angle), 4))
    turn[:, axis], turn[:, 3] = np.sin(angle / 2), np.cos(angle / 2)
    return turn


def multiply(a, b):
    """Returns the product of quaternions xyzw."""
    vector = a[:, 3:] * b[:, :3] + b[:, 3:] * a[:, :3] + np.cross(a[:, :3], b[:, :3])
    return np.concatenate([vector, a[:, 3:] * b[:, 3:] - (a[:, :3] * b[:, :3]).sum(1, keepdims=True)], 1)


def error(sensor, value, true):
    """Returns how far values [N, D] are from the true ones, in the unit of the sensor: [N]."""
    if sensor.kind == "rotation":
        size = np.linalg.norm(value, axis=1)
        dot = np.abs((value * true).sum(1)) / np.where(size > 0, size, 1)
        return np.degrees(2 * np.arccos(np.clip(dot, 0, 1)))
    return np.linalg.norm(value - true, axis=1)


def draw_stamp(times, bar=4):
    """Returns images [N, 8 bar, 12 bar, 3] u8 that show times as 24 bars in two rows, the highest bit first."""
    units = np.asarray(times) // STAMP_UNIT
    bits = (units[:, None] >> np.arange(BITS - 1, -1, -1)) & 1
    rows = bits.reshape(-1, BITS // BITS_PER_ROW, BITS_PER_ROW)
    image = np.repeat(np.repeat(rows, 4 * bar, 1), bar, 2).astype(np.uint8)
    return np.repeat((image * 215 + 20)[..., None], 3, 3)


def read_stamp(images):
    """Returns the times in ms that images [N, H, W, 3] show. Scaled and blurred images can be read, too."""
    images = np.asarray(images, dtype=np.float32)
    count, height, width = images.shape[:3]
    limit = 0.5 if images.max(initial=0) <= 1 else 128
    bar, row = width // BITS_PER_ROW, height // 2
    cells = images.reshape(count, 2, row, BITS_PER_ROW, bar, 3)[:, :, row // 4: -(row // 4), :, bar // 4: -(bar // 4)]
    bits = (cells.mean((2, 4, 5)) > limit).reshape(count, BITS).astype(np.int64)
    return (bits << np.arange(BITS - 1, -1, -1)).sum(1)[:, None] * (STAMP_UNIT / MS)


# The faults of a recording.

CASES = ("clean", "jitter 2 ms", "jitter 5 ms", "latency 30 ms", "latency 80 ms", "drift 50 ppm", "drop-outs 200 ms",
         "repeated stamps", "camera stops", "nan 150 ms")


def sense(sensor, random, case, duration):
    """Returns the times at which a sensor sensed."""
    times = np.round(np.arange(int(duration / SECOND * sensor.rate)) * SECOND / sensor.rate).astype(np.int64)
    if sensor.kind == "hold":
        return times  # the control loop is the clock of the others
    times = times + int(random.uniform(0, SECOND / sensor.rate))  # the sensors do not start together
    if case.startswith("jitter"):
        spread = min(float(case.split()[1]) * MS, 0.3 * SECOND / sensor.rate)  # rows keep their order
        times = times + random.uniform(-spread, spread, len(times)).astype(np.int64)
    if case.startswith("drop-outs"):
        for start in random.uniform(0.2, 0.9, 2) * duration:
            times = times[(times < start) | (times > start + 200 * MS)]
    if case == "camera stops" and sensor.name == "scene":
        times = times[times < 0.6 * duration]
    return np.maximum(times, 0)


def make_stream(sensor, seed, case, duration, bar=4):
    random = np.random.default_rng([seed, sum(sensor.name.encode()), sum(case.encode())])
    sensed = sense(sensor, random, case, duration)
    stamps, latency = sensed.copy(), 0
    values = draw_stamp(sensed, bar) if sensor.kind == "image" else truth(sensor, seed, sensed).astype(np.float32)
    if sensor.kind == "hold":
        return Stream(sensor, sensed, stamps, values)
    if case.startswith("latency"):
        latency = int(case.split()[1]) * MS
        stamps = stamps + latency
    if case.startswith("drift"):
        stamps = np.round((stamps + 60 * SECOND) * (1 + 50e-6)).astype(np.int64) - 60 * SECOND  # since a minute
    if case == "repeated stamps":  # every tenth row has the stamp of the row before
        stamps[10::10] = stamps[9:-1:10]
    if case.startswith("nan") and sensor.kind != "image":
        for start in random.uniform(0.2, 0.9, 2) * duration:
            values[(sensed > start) & (sensed < start + 150 * MS)] = np.nan
    return Stream(sensor, sensed, stamps, values, latency)


def make(case="clean", episodes=3, seconds=6.0, seed=0, names=OBSERVED):
    """Returns a recording. The same arguments give the same bytes."""
    duration = int(seconds * SECOND)
    made = []
    for number in range(episodes):
        own = seed * 1000 + number
        sensors = [BY_NAME[name] for name in ("action", *names)]
        made.append(Episode({sensor.name: make_stream(sensor, own, case, duration) for sensor in sensors}, duration, own))
    return Recording(case, made, seed, tuple(names))


def ticks(episode):
    """Returns the number of anchors of an episode: the rows of its control loop."""
    return len(episode.streams["action"].sensed)


def tick_times(numbers):
    return np.round(np.asarray(numbers) * (SECOND / CONTROL_HZ)).astype(np.int64)


def window_ids(recording):
    """Returns the ids of all windows: one per row of the control loop."""
    return [number * 100_000 + tick for number, episode in enumerate(recording.episodes) for tick in range(ticks(episode))]
