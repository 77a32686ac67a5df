#!/usr/bin/env python3
"""`make demo`: makes a dataset, starts the daemon, reads with a worker, prints one window raw and resampled, and
stops. --data FILE takes a robomimic-style file of yours in place of the generated one."""
import argparse
import fractions
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import libtrajd as trajd  # noqa: E402

PLAIN = not sys.stdout.isatty() or "NO_COLOR" in os.environ


def title(text):
    print(f"\n{text}" if PLAIN else f"\n\033[1m{text}\033[0m", flush=True)


def run(*command):
    print(f"$ {' '.join(str(part) for part in command)}".replace(f"{ROOT}/", ""), flush=True)
    subprocess.run(command, check=True)


def natural(text):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def config_for(path, folder):
    """Writes a configuration with all low-dimensional streams of the file's first episode: one feed at its own
    rows, and one at 30 Hz."""
    with h5py.File(path) as file:
        demo = file["data"][sorted((n for n in file["data"] if n.startswith("demo_")), key=natural)[0]]
        streams = [f"obs/{key}" for key, value in demo.get("obs", {}).items() if value.ndim <= 2]
    if "actions" not in demo_keys(path):
        sys.exit(f"{path}: no dataset `actions` in its episodes: this demonstration takes robomimic-style files")
    outputs = "\n".join(f"      {name}: {{at: -1..0}}" for name in streams)
    between = "\n".join(f"      {name}: {{at: -3..0}}" for name in streams)
    config = folder / "demo.yaml"
    config.write_text(f"""version: 2
runtime: run
memory: {{store: 1GiB, rings: 64MiB}}
datasets:
  demo: {{path: {pathlib.Path(path).resolve()}, layout: robomimic}}
feeds:
  policy:
    dataset: demo
    global_batch: 32
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
{outputs}
      actions: {{at: -1..14}}
  many_clocks:
    dataset: demo
    global_batch: 32
    rate: 30
    anchor: {{clock: actions}}
    outputs:
{between}
      actions: {{at: 0..7}}
""")
    return config, next((name for name in streams if name.endswith("_pos")), "actions")


def demo_keys(path):
    with h5py.File(path) as file:
        names = [n for n in file.get("data", {}) if n.startswith("demo_")]
        return set(file["data"][names[0]]) if names else set()


def rate_of(file):
    """Returns the rate of a robomimic-style file, as layout robomimic reads it: 20 Hz where nothing states it."""
    arguments = json.loads(file["data"].attrs.get("env_args", "{}"))
    return fractions.Fraction(str(arguments.get("env_kwargs", {}).get("control_freq", 20)))


def raw_rows(path, episode, output, own_data):
    """Returns stamps (ns) and rows of the stream behind an output of the feed many_clocks."""
    with h5py.File(path) as file:
        demo = file["data"][sorted((n for n in file["data"] if n.startswith("demo_")), key=natural)[episode]]
        if own_data:
            rows = demo[output][:]
            rate = rate_of(file)
            return np.arange(len(rows)) * 10**9 * rate.denominator // rate.numerator, rows.reshape(len(rows), -1)
        return demo["pose_t"][:], demo["pose_pos"][:]


def show_window(client, path, output, rate_hz, steps, own_data):
    """Prints one window: the recorded rows, and the steps that the worker received."""
    batch = client.next()
    arrays = batch.copy()
    batch.release()
    masked = [f"{output}.mask"]
    row = next((r for r in range(batch.rows) if all(not arrays[m][r].any() for m in masked)), 0)
    anchor = int(arrays["anchor_ns"][row])
    stamps, rows = raw_rows(path, int(arrays["episode_index"][row]), output, own_data)
    targets = [anchor + (k * 10**9) // rate_hz for k in steps]
    lines = [((t - anchor) / 1e6, "recorded", values) for t, values in zip(stamps, rows)
             if targets[0] - 60e6 <= t <= anchor + 60e6]
    lines += [((t - anchor) / 1e6, "resampled", values) for t, values in zip(targets, arrays[output][row])]
    print(f"window {arrays['window_id'][row]}: episode {arrays['episode_index'][row]}, {output}, steps of 1/{rate_hz} s")
    print(f"  {'from anchor':>12s}  {'recorded':42s}resampled")
    for at, what, values in sorted(lines, key=lambda line: (line[0], line[1])):
        numbers = " ".join(f"{v:9.5f}" for v in np.atleast_1d(values)[:4])
        column = numbers if what == "recorded" else " " * 42 + numbers
        print(f"  {at:9.3f} ms  {column}".rstrip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--data", help="a robomimic-style HDF5 file")
    options = parser.parse_args()
    build = (ROOT / options.build).resolve()
    folder = ROOT / "build" / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    trajctl = build / "clients/cli/trajctl"

    title("1. The dataset")
    if options.data:
        path = pathlib.Path(options.data).resolve()
        config, output = config_for(path, folder)
        rate_hz, steps = 30, range(-3, 1)
        run(trajctl, "inspect", "--layout", "robomimic", path)
    else:
        path, config, output, rate_hz, steps = folder / "demo.hdf5", ROOT / "configs/demo.yaml", "pose", 10, range(-4, 1)
        if not path.exists():
            run(sys.executable, ROOT / "tests/tools/make_demo_dataset.py", path)
        run(trajctl, "inspect", "--layout", "demo", path)

    title("2. The daemon, which trajd.open would start by itself: what it makes of the configuration")
    command = [build / "daemon/trajd", "--config", config]
    print(f"$ {' '.join(map(str, command))} &".replace(f"{ROOT}/", ""), flush=True)
    daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    endpoint = folder / "run"
    try:
        for line in daemon.stderr:
            print(line, end="", flush=True)
            if "ready after" in line:
                break
        threading.Thread(target=lambda: [print(line, end="") for line in daemon.stderr], daemon=True).start()
        title("3. A process reads each feed for two seconds")
        for feed in ("policy", "many_clocks"):
            run(trajctl, "bench", feed, "--seconds", "2", "--endpoint", endpoint)
        client = trajd.Client(trajd.load(build), endpoint, name="demo")
        title("4. One window: recorded rows, and the steps that a process gets")
        client.open("many_clocks", epoch=1000)
        show_window(client, path, output, rate_hz, steps, bool(options.data))
        title("5. The daemon seen from outside")
        run(trajctl, "status", "--endpoint", endpoint)
        client.close()
        title("6. The end")
        begin = time.monotonic()
        daemon.send_signal(signal.SIGTERM)
        status = daemon.wait(20)
        print(f"trajd ended with status {status} after {1e3 * (time.monotonic() - begin):.0f} ms")
    finally:
        if daemon.poll() is None:
            daemon.kill()
    sys.exit(status)


main()
