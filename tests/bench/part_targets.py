"""Part `targets`: what relative actions cost. The policy's batches (as part `feed`) with relative_to, rot6d and norm against the
same without, and statistics of relative chunks (50 steps x 14) against numpy doing the same, each in one run."""
import os
import sys
import time

import h5py
import numpy as np

from bench_daemon import Daemon, figure

EPISODES, ROWS, STEPS, COLUMNS = 100, 1000, 50, 14
CONFIG = """
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


def write_dataset(path, episodes=EPISODES):
    random = np.random.default_rng(1)
    made = path.with_suffix(".part")
    with h5py.File(made, "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for episode in range(episodes):
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
    """Returns how many batches one worker takes in that time, and the seconds."""
    count, epoch, begin = 0, 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for batch in feed.epoch(epoch):
            batch.release()
            count += 1
            if time.perf_counter() - begin > seconds:
                break
        epoch += 1
    return count, time.perf_counter() - begin


def one_turn(trajd, daemon, name, seconds):
    """Returns batches/s, and microseconds of CPU of daemon and worker per batch."""
    with trajd.connect(str(daemon.endpoint), feed=name) as feed:
        read(feed, 0.3)
        before = daemon.cpu_s() + time.process_time()
        count, took = read(feed, seconds)
        return count / took, 1e6 * (daemon.cpu_s() + time.process_time() - before) / count


def peak_memory(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def measure(options, path):
    sys.path.insert(0, str(options.build / "clients/python"))
    os.environ["TRAJD_BUILD"] = str(options.build)
    import trajd
    config = CONFIG.format(path=path) + FEED.format(name="plain", keys="") + FEED.format(name="relative", keys=POSE) + CHUNK
    turns = {"plain": [], "relative": []}
    with Daemon(options.build, options.work / "targets", config) as daemon:  # statistics are computed again
        with trajd.connect(str(daemon.endpoint), feed="chunk") as feed:
            before, begin = peak_memory(daemon), time.perf_counter()
            found = feed.stats()["joints"]
            seconds, memory = time.perf_counter() - begin, peak_memory(daemon) - before
        for _ in range(options.rounds):
            for name, list_of in turns.items():
                list_of.append(one_turn(trajd, daemon, name, options.seconds))
    return turns, seconds, memory, tuple(float(found[name][0]) for name in ("mean", "std", "q01", "q99"))


def ratio(turns, which, inverse):
    pairs = [(one[which], other[which]) for one, other in zip(turns["plain"], turns["relative"])]
    return round(float(np.median([a / b if inverse else b / a for a, b in pairs])), 2)


def run(options):
    path = options.work / "targets_2.hdf5"
    if not path.exists():
        write_dataset(path)
    turns, seconds, memory, figures = measure(options, path)
    numpy_seconds, wanted = by_numpy(path)
    assert np.allclose(figures, wanted, rtol=1e-6, atol=1e-6), (figures, wanted)
    rates, cpu = ({name: float(np.median([one[i] for one in list_of])) for name, list_of in turns.items()} for i in (0, 1))
    batch, statistics = ratio(turns, 0, True), round(numpy_seconds / seconds, 1)
    return {"figures": [
        figure("policy batches, actions as recorded", round(rates["plain"]), "batches/s"),
        figure("policy batches, relative_to, rot6d and norm", round(rates["relative"]), "batches/s", ratio=batch,
               ratio_to="the time of actions as recorded", budget="<= 1.3x", met=batch <= 1.3),
        figure("the same, CPU time of daemon and worker", round(cpu["relative"]), "us", ratio=ratio(turns, 1, False),
               ratio_to=f"actions as recorded, {cpu['plain']:.0f} us"),
        figure(f"statistics of {EPISODES * ROWS} relative chunks of {STEPS} x {COLUMNS}", round(1e3 * seconds), "ms",
               ratio=statistics, ratio_to=f"numpy, {numpy_seconds:.1f} s", budget=">= 10x", met=statistics >= 10),
        figure("the same, memory", round(memory), "MiB")]}
