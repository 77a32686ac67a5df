"""Parts `handover`, `remote`, `read`, `index`, `cpu`: runs the programs of this folder and reads the figures that
they print."""
import re
import statistics
import subprocess

import part_start
from bench_daemon import figure

NUMBER = r"([\d.]+)"


def output_of(options, program, *arguments):
    return subprocess.run([options.build / "tests/bench" / program, *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout


def with_budget(one, value, limit, unit, at_least=False):
    one["budget"] = f"{'>=' if at_least else '<='} {limit}{unit}"
    one["met"] = value >= limit if at_least else value <= limit
    return one


def handover(options):
    text, figures = output_of(options, "bench_handover"), []
    for size, settings, us in re.findall(rf"descriptor, slot +(\d+) KiB, (default|credit +\d+) +{NUMBER}", text):
        one = figure(f"slot {size} KiB, {' '.join(settings.split())}, back to back", float(us), "us/batch")
        figures.append(with_budget(one, float(us), 20, " us"))
    us, ratio = re.search(rf"inline by ZeroMQ, 4096 KiB +{NUMBER} +\d+ +{NUMBER}x", text).groups()
    figures.append(with_budget(figure("4 MiB inline by ZeroMQ, back to back", float(us), "us/batch", ratio=float(ratio),
                                      ratio_to="descriptor"), float(ratio), 50, "x", at_least=True))
    for name, p50, p99 in re.findall(rf"  (bare message[^\d]*(?:200 bytes)?|descriptor, 4096 KiB, READY to next\(\)|inline by ZeroMQ, 4096 KiB)"
                                     rf" +{NUMBER} +{NUMBER}(?: |\n)", text.split("one way")[1]):
        figures.append(figure(f"one way: {name.strip()}", float(p50), "us p50", p99=float(p99)))
    own = next(one for one in figures if "READY to next" in one["name"])
    bare = [one["value"] for one in figures if "bare message" in one["name"]]  # one before ours, one after
    ratio = round(own["value"] / statistics.mean(bare), 2)
    own.update(ratio=ratio, ratio_to="bare message")
    with_budget(own, ratio, 1.2, "x")
    return {"figures": figures}


def remote(options):
    text, figures = output_of(options, "bench_remote"), []
    for size, table in re.findall(r"batches of (\d MiB|\d KiB).*?\n((?:  \S.*\n?)+)", text):
        for way, us, rate, cpu_us, ratio in re.findall(rf"^  (\S.*?) {{2,}}{NUMBER} +\d+ +(\d+) +{NUMBER} +{NUMBER}x", table, re.M):
            figures.append(figure(f"{size}, {way}", float(us), "us/batch", ratio=float(ratio), ratio_to="ipc, shared memory",
                                  mb_per_s=int(rate), cpu_us=float(cpu_us)))
    return {"figures": figures}


def read(options):
    text, figures = output_of(options, "bench_read", options.work), []
    line = rf"^(\w+) +{NUMBER} MB +ours +{NUMBER} MB/s +(\w+) +{NUMBER} MB/s +ratio {NUMBER} \(CPU time {NUMBER}\) +h5py +{NUMBER} MB/s +ratio {NUMBER}"
    for name, _, ours, peer, _, ratio, cpu_ratio, _, h5py_ratio in re.findall(line, text, re.M):
        one = figure(name, float(ours), "MB/s", ratio=float(ratio), ratio_to=peer, cpu_ratio=float(cpu_ratio),
                     ratio_to_h5py=float(h5py_ratio))
        figures.append(with_budget(one, float(ratio), 0.8, "x", at_least=True))
    return {"figures": figures}


def index(options):
    if not options.small_files:
        return {"figures": [], "note": "only with --small-files (1 GB, which takes half a minute to write)"}
    text, figures = output_of(options, "bench_index", part_start.small_files(options)), []
    for name, ms, cpu_ms, rss in re.findall(rf"^(\S.*?) +{NUMBER} ms \({NUMBER} ms of CPU\).*peak RSS (\d+)", text, re.M):
        figures.append(figure(name, float(ms), "ms", cpu_ms=float(cpu_ms), peak_rss_mib=int(rss)))
    return {"figures": figures}


def cpu(options):
    text, figures = output_of(options, "bench_cpu", 1), []
    for name, _, us, rate, _, ratio in re.findall(rf"^(\S.*?)  +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER}x", text, re.M):
        figures.append(figure(name, float(us), "us/batch", gb_per_s=float(rate), ratio=float(ratio), ratio_to="time of memcpy"))
    return {"figures": figures}
