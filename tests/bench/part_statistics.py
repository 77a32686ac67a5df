"""Part `statistics`: 10^7 rows of 40 float32 features, by bench_statistics and by numpy on the same rows in memory,
in one run."""
import os
import re
import subprocess
import time

import h5py
import numpy as np

from bench_daemon import figure

EPISODES, ROWS, FEATURES = 1000, 10_000, 40
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
NUMBER = r"([-+.\deinf]+)"


def write_dataset(path):
    rng = np.random.default_rng(1)
    made = path.with_suffix(".part")
    with h5py.File(made, "w") as file:
        for episode in range(EPISODES):
            demo = file.create_group(f"data/demo_{episode}")
            demo.attrs["num_samples"] = ROWS
            demo["actions"] = rng.standard_normal((ROWS, FEATURES), np.float32) * np.arange(1, FEATURES + 1, dtype=np.float32)
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
    made.rename(path)


def by_numpy(path):
    """Returns seconds and CPU seconds of numpy code as people write it, and the first feature's figures in float64.
    The input is float32."""
    with h5py.File(path) as file:
        values = np.concatenate([file[f"data/demo_{episode}/actions"][:] for episode in range(EPISODES)])
    begin, cpu = time.perf_counter(), time.process_time()
    values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64), values.min(0), values.max(0)
    np.quantile(values, QUANTILES, axis=0)
    taken = time.perf_counter() - begin, time.process_time() - cpu
    first = np.sort(values[:, 0]).astype(np.float64)
    return *taken, (first.mean(), first.std(), *np.quantile(first, (0.01, 0.99)))


def run(options):
    path = options.work / "statistics.hdf5"
    if not path.exists():
        write_dataset(path)
    threads = len(os.sched_getaffinity(0))
    text = subprocess.run([options.build / "tests/bench/bench_statistics", path, str(threads)], check=True, capture_output=True,
                          text=True).stdout
    seconds, cpu, figures_there = by_numpy(path)
    figures = [figure("numpy: mean, std, min, max, 5 quantiles over axis 0", round(1e3 * seconds), "ms", cpu_ms=round(1e3 * cpu))]
    line = rf"^(\S.*?) +{NUMBER} ms \({NUMBER} ms of CPU\) .* mean {NUMBER} std {NUMBER} q01 {NUMBER} q99 {NUMBER}"
    for name, ms, cpu_ms, *found in re.findall(line, text, re.M):
        one = figure(f"10^7 x 40, {name}, {threads} threads", float(ms), "ms", cpu_ms=float(cpu_ms), ratio=round(1e3 * seconds / float(ms), 1),
                     ratio_to="numpy", cpu_ratio=round(1e3 * cpu / float(cpu_ms), 1))
        if name.startswith("rows"):  # other figures: then the times cannot be compared
            assert np.allclose([float(value) for value in found], figures_there, rtol=1e-12, atol=1e-12), (found, figures_there)
        figures.append(one)
    return {"figures": figures}
