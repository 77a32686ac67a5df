#!/usr/bin/env python3
"""Simulates the nodes of a cluster that open one folder of small files at once: a daemon for each node, and one
folder of caches that all share. Prints the time to READY, the CPU seconds and the bytes read of each node, and how many
of them built the index.

    tests/bench/many_nodes.py --build build/release --work /tmp/nodes [--nodes 200] [--files 10000]
    tests/bench/many_nodes.py ... --torch-python /usr/bin/python3     # also the comparison over torch's TCPStore

The nodes are processes of one machine, and its page cache holds the files. So wall times depend on its cores, and bytes
read are those that the daemons ask the file system for (rchar), which a network's file system would have to bring."""
import argparse
import json
import os
import pathlib
import re
import selectors
import shutil
import subprocess
import sys
import time

from bench_daemon import MIB, TICK_S, commit, cpu_name, find_built

COMPARE = pathlib.Path(__file__).with_name("many_nodes_compare.py")
CONFIG = """version: 2
memory: {{store: 16MiB, rings: 16MiB, reserve: 0}}
threads: {{resample: 1, readers: 2, decoders: 1}}
datasets:
  small: {{path: {path}, layout: robomimic}}
feeds:
  train:
    dataset: small
    global_batch: {batch}
    anchor: {{clock: actions}}
    outputs:
      obs/x_0: {{at: -1..0}}
      actions: {{at: -1..14}}
"""


def make_files(folder, count):
    """Writes `count` files of one episode with 40 rows of five arrays."""
    import h5py
    import numpy as np
    folder.mkdir(parents=True, exist_ok=True)
    if len(os.listdir(folder)) == count:
        return
    rng = np.random.default_rng(7)
    first = folder / "0.hdf5"
    with h5py.File(first, "w") as file:
        group = file.create_group("data/demo_0")
        group["actions"] = rng.uniform(-1, 1, (40, 7)).astype(np.float32)
        for number in range(4):
            group[f"obs/x_{number}"] = rng.normal(size=(40, 3)).astype(np.float32)
    data = first.read_bytes()
    for number in range(1, count):
        (folder / f"{number}.hdf5").write_bytes(data)
    time.sleep(3)  # an index does not keep records of files that were written to a moment ago


class Node:
    """A daemon that is being started, and what it took until READY."""

    def __init__(self, options, number, config):
        self.folder = options.work / "nodes" / str(number)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.endpoint = self.folder / "run"
        self.ready, child = os.pipe()
        self.begin = time.perf_counter()
        self.process = subprocess.Popen(
            [find_built(options.build, "trajd"), "--config", config, "--set", f"runtime={self.endpoint}", "--set",
             f"cache={options.work / 'cache'}", "--log-file", self.folder / "log", "--ready-fd", str(child)], pass_fds=[child])
        os.close(child)

    def note(self):
        """Called at READY: reads what the process and its children that have ended took."""
        self.wall_s = time.perf_counter() - self.begin
        os.close(self.ready)
        place = pathlib.Path(f"/proc/{self.process.pid}")
        self.cpu_s = sum(map(int, (place / "stat").read_text().rsplit(")", 1)[1].split()[11:15])) * TICK_S
        self.read_mib = int(re.search(r"rchar: (\d+)", (place / "io").read_text())[1]) / MIB
        self.rss_mib = int(re.search(r"VmRSS:\s+(\d+)", (place / "status").read_text())[1]) / 1024
        found = re.search(r"(\d+) files? \((\d+) from the cache\)", (self.folder / "log").read_text())
        self.built = int(found[1]) != int(found[2])

    def end(self):
        self.process.terminate()
        self.process.wait()


def start(options, count, config):
    """Starts nodes at once and returns them when all are ready."""
    shutil.rmtree(options.work / "nodes", ignore_errors=True)
    nodes, waiting = [Node(options, number, config) for number in range(count)], selectors.DefaultSelector()
    for node in nodes:
        waiting.register(node.ready, selectors.EVENT_READ, node)
    while waiting.get_map():
        for key, _ in waiting.select():
            waiting.unregister(key.fd)
            key.data.note()
    return nodes


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(what, nodes):
    walls, cpus, reads = ([getattr(node, name) for node in nodes] for name in ("wall_s", "cpu_s", "read_mib"))
    return {"what": what, "nodes": len(nodes), "ready_p50_s": round(quantile(walls, 0.5), 3), "ready_p99_s": round(quantile(walls, 0.99), 3),
            "cpu_mean_s": round(sum(cpus) / len(nodes), 3), "cpu_max_s": round(max(cpus), 3),
            "read_mean_mib": round(sum(reads) / len(nodes), 2), "read_max_mib": round(max(reads), 2),
            "rss_mib": round(max(node.rss_mib for node in nodes), 1), "indexes_built": sum(node.built for node in nodes)}


def compare(options, nodes):
    """Has a rank on each node open the feed and compare with the others. Returns what the script prints."""
    done = subprocess.run([options.torch_python, COMPARE, find_built(options.build, "package"), *(node.endpoint for node in nodes)],
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--torch-python", help="a Python with torch, for the comparison of all ranks")
    options = parser.parse_args()
    options.build, options.work = options.build.resolve(), options.work.resolve()
    make_files(options.work / "data", options.files)
    config = options.work / "nodes.yaml"
    config.write_text(CONFIG.format(path=options.work / "data", batch=options.nodes))
    figures = []

    def measure(what, count, keeps_cache, then=None):
        if not keeps_cache:
            shutil.rmtree(options.work / "cache", ignore_errors=True)
        (options.work / "cache").mkdir(exist_ok=True)
        nodes = start(options, count, config)
        try:
            figures.append(summary(what, nodes))
            if then is not None:
                figures[-1].update(then(options, nodes))
        finally:
            for node in nodes:
                node.end()
        print(json.dumps(figures[-1]), file=sys.stderr, flush=True)

    measure("one node, no cache", 1, False)
    measure("one node, warm cache", 1, True)
    measure("all nodes, no cache", options.nodes, False)
    measure("all nodes, warm cache", options.nodes, True, compare if options.torch_python else None)
    one = figures[1]
    ratios = {f"{what} of {row['what']}, each node against one node with a warm cache": round(row[f"{what}_mean_{unit}"] / one[f"{what}_mean_{unit}"], 2)
              for row in figures[2:] for what, unit in (("cpu", "s"), ("read", "mib"))}
    print(json.dumps({"commit": commit(), "cpu": cpu_name(), "cores": os.cpu_count(), "files": options.files, "figures": figures,
                      "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
