"""A laboratory with three clocks: an arm and a gripper with stamps, and a force sensor with a rate that starts later."""
import h5py
import numpy as np

LAYOUT = """
layout: lab
episodes: {files: "*.hdf5", groups: /ep_*}
clocks:
  arm:  {path: arm_t, unit: ns, latency: 1ms}
  grip: {path: grip_t, unit: ns, repeated: drop, lost_rows: 40%, latency: 3ms, offset: 1us}
  ft:   {rate: 333, rows: wrench, start: {path: ft_t0, unit: ns}}
streams:
  q:      {clock: arm, kind: linear}
  turn:   {clock: arm, kind: angle}
  rot:    {clock: arm, kind: slerp, order: xyzw}
  pose:   {clock: arm, kind: linear}
  grip:   {clock: grip, kind: previous}
  near:   {path: grip, clock: grip, kind: nearest}
  count:  {clock: grip, kind: previous}
  moved:  {clock: ft, kind: previous, semantics: delta}
  wrench: {clock: ft, kind: mean}
  extra:  {clock: arm, kind: linear, optional: true}
"""


def make_episode(random, number):
    """Returns {array: values} of an episode: clocks of different rates with jitter, gaps, repeated stamps, NaN."""
    t0 = 1_700_000_000_000_000_000 + number * 10**10
    steps = random.integers(8_000_000, 12_000_000, 60)
    steps[random.integers(5, 55, 3)] = 40_000_000
    arm = t0 + np.cumsum(steps)
    grip = np.repeat(t0 + 30_000_000 * number + 33_333_333 * np.arange(14), 1 + (np.arange(14) % 5 == 4))
    q = random.normal(size=(60, 2))
    q[random.integers(0, 60, 2), random.integers(0, 2)] = np.nan
    rot = random.normal(size=(60, 4))
    episode = {"arm_t": arm, "grip_t": grip, "ft_t0": np.int64(t0 + 17_000_003), "q": q,
               "turn": random.uniform(-np.pi, np.pi, (60, 1)).astype(np.float32),
               "rot": rot / np.linalg.norm(rot, axis=1, keepdims=True),
               "pose": np.concatenate([random.normal(size=(60, 3)), random.normal(scale=0.5, size=(60, 3))], 1),
               "grip": random.normal(size=(len(grip), 1)), "count": random.integers(0, 99, (len(grip), 2), dtype=np.int16),
               "wrench": random.normal(size=(170 + 5 * number, 3)).astype(np.float32),
               "moved": random.normal(size=(170 + 5 * number, 2))}
    if number % 2:
        episode["extra"] = random.normal(size=(60, 2))
    return episode


def write_lab(folder, episodes):
    """Writes lab.yaml and lab.hdf5 into a folder."""
    with h5py.File(folder / "lab.hdf5", "w") as file:
        for number, episode in enumerate(episodes):
            for name, values in episode.items():
                file[f"ep_{number}/{name}"] = values
    (folder / "lab.yaml").write_text(LAYOUT)
