"""Part `targets`: what relative actions cost. The policy's batches (as part `feed`) with relative_to, rot6d and norm against the
same without, and statistics of relative chunks (50 steps x 14) against numpy doing the same, each in one run."""
import os
import shutil
import sys
import time

import h5py
import numpy as np

from bench_daemon import figure

EPISODES, ROWS, STEPS, COLUMNS = 100, 1000, 50, 14
ROUNDS, SECONDS = 3, 2.0
CONFIG = """
version: 1
datasets: {{d: {{path: {path}, layout: robomimic}}}}
feeds:
"""
FEED = """  {name}:
    dataset: d
    global_batch: 256
    anchor: {{clock: actions}}
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      obs/robot0_eef_quat: {{at: -1..0}}
      obs/robot0_gripper_qpos: {{at: -1..0}}
      obs/object: {{at: -1..0}}
      actions: {{at: -1..14{keys}}}
"""
POSE = """, relative_to: {from: [obs/robot0_eef_pos, obs/robot0_eef_quat], mask: [true, true, true, true, true, true, false]},
                rotation: {from: axis_angle, to: rot6d, columns: "3:6", position: "0:3"}, norm: min_max"""
CHUNK = f"""  chunk:
    dataset: d
    global_batch: 256
    anchor: {{clock: actions}}
    outputs:
      joints: {{from: obs/joint_command, at: 0..{STEPS - 1}, role: action, relative_to: obs/joints}}
"""


def write_dataset(path):
    random = np.random.default_rng(1)
    made = path.with_suffix(".part")
    with h5py.File(made, "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for episode in range(EPISODES):
            demo = file.create_group(f"data/demo_{episode}")
            demo["actions"] = random.standard_normal((ROWS, 7), np.float32)
            demo["obs/joint_command"] = random.standard_normal((ROWS, COLUMNS), np.float32)
            demo["obs/joints"] = random.standard_normal((ROWS, COLUMNS), np.float32)
            demo["obs/robot0_eef_pos"] = random.standard_normal((ROWS, 3), np.float32)
            quaternions = random.standard_normal((ROWS, 4))
            demo["obs/robot0_eef_quat"] = (quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)).astype(np.float32)
            demo["obs/object"] = random.standard_normal((ROWS, 10), np.float32)
            demo["obs/robot0_gripper_qpos"] = random.standard_normal((ROWS, 2), np.float32)
    made.rename(path)


def by_numpy(path):
    """Returns seconds, and the figures of the first column: each chunk minus its state, padding left out."""
    with h5py.File(path) as file:
        episodes = [(file[f"data/demo_{i}/obs/joint_command"][:], file[f"data/demo_{i}/obs/joints"][:]) for i in range(EPISODES)]
    begin = time.perf_counter()
    chunks = []
    for joints, states in episodes:
        steps = np.arange(ROWS)[:, None] + np.arange(STEPS)
        chunks.append((joints[np.minimum(steps, ROWS - 1)] - states[:, None])[steps < ROWS])
    values = np.concatenate(chunks)
    mean, std = values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64)
    values.min(0), values.max(0)
    quantiles = np.quantile(values, (0.01, 0.1, 0.5, 0.9, 0.99), axis=0)
    return time.perf_counter() - begin, (mean[0], std[0], quantiles[0, 0], quantiles[4, 0])


def read(feed, seconds):
    """Returns batches per second that one worker takes."""
    count, epoch, begin = 0, 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for batch in feed.epoch(epoch):
            batch.release()
            count += 1
            if time.perf_counter() - begin > seconds:
                break
        epoch += 1
    return count / (time.perf_counter() - begin)


def measure(options, path):
    sys.path.insert(0, str(options.build / "clients/python"))
    import trajd
    config = options.work / "targets.yaml"
    shutil.rmtree(options.work / "targets_cache", ignore_errors=True)  # statistics are computed anew
    config.write_text(f"cache: {options.work}/targets_cache\n" + CONFIG.format(path=path) + FEED.format(name="plain", keys="") + FEED.format(name="relative", keys=POSE) + CHUNK)
    rates = {"plain": [], "relative": []}
    for _ in range(ROUNDS):
        for name in rates:
            with trajd.open(str(config), feed=name) as feed:
                read(feed, 0.5)
                rates[name].append(read(feed, SECONDS))
    with trajd.open(str(config), feed="chunk") as feed:
        begin = time.perf_counter()
        found = feed.stats()["joints"]
        seconds = time.perf_counter() - begin
    return rates, seconds, tuple(float(found[name][0]) for name in ("mean", "std", "q01", "q99"))


def run(options):
    path = options.work / "targets_2.hdf5"
    if not path.exists():
        write_dataset(path)
    os.environ["TRAJD_BUILD"] = str(options.build)
    rates, seconds, figures = measure(options, path)
    numpy_seconds, wanted = by_numpy(path)
    assert np.allclose(figures, wanted, rtol=1e-6, atol=1e-6), (figures, wanted)
    plain, relative = (float(np.median(rates[name])) for name in ("plain", "relative"))
    return {"figures": [
        figure("policy batches, actions as recorded", round(plain), "batches/s"),
        figure("policy batches, relative_to, rot6d and norm", round(relative), "batches/s", ratio=round(plain / relative, 2),
               ratio_to="actions as recorded"),
        figure(f"statistics of {EPISODES * ROWS} relative chunks of {STEPS} x {COLUMNS}", round(1e3 * seconds), "ms",
               ratio=round(numpy_seconds / seconds, 1), ratio_to=f"numpy, {numpy_seconds:.1f} s")]}

