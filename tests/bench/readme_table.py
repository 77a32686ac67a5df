#!/usr/bin/env python3
"""The table of README's "Numbers", and the sentence above it, from the JSON of a run of run.py.

    readme_table.py results/NAME.json             # prints them
    readme_table.py results/NAME.json --write     # puts them into README.md in place of those that are there

A row whose part or comparison is not in the run is left out, and named on standard error.
"""
import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = "| what | figure | against | budget |\n| --- | --- | --- | --- |\n"


class Run:
    """Figures of a run by part and name; KeyError: the run has not got it."""

    def __init__(self, report):
        self.report = report
        self.figures = {part: {one["name"]: one for one in result["figures"]} for part, result in report["parts"].items()}

    def __call__(self, part, name):
        if name in self.figures[part]:
            return self.figures[part][name]
        return next(one for known, one in self.figures[part].items() if known.startswith(name))  # "robomimic, cache all, ..."


def median(value):
    return value["median"] if isinstance(value, dict) else value


def plain(value, digits=2):
    """As people write them."""
    value = median(value)
    return f"{value:,.0f}" if value >= 10 else f"{value:.{digits}g}"


def millions(value):
    return f"{median(value) / 1e6:.2f}"


def ratio(one, of="ratio"):
    value = one[of]
    if isinstance(value, dict) and value["count"] > 1:
        return f"{plain(value, 3)}x ({plain(value['min'])} to {plain(value['max'])})"
    return f"{plain(value, 3)}x"


def verdict(one):
    """Of the budget: its words, or that they are missed."""
    words = one.get("budget", "").removeprefix("<= ").removeprefix(">= ")
    return words if one.get("met", True) else f"**misses** {words}"


def windows(run):
    for feed, what in (("policy", "the policy's window (history 2, chunk 16)"), ("same_tensors", "the same tensors as robomimic (17 rows of every stream)")):
        one = run("feed", f"{feed}, 1 Python worker")
        yield f"{what}, batches of 256, one Python worker", f"{millions(one['value'])} M windows/s", f"{ratio(one)} robomimic at its best", verdict(one)
    c1, c4 = ([run("feed", f"{feed}, {who}") for feed in ("policy", "same_tensors")] for who in ("1 C worker", "4 C workers, share"))
    figures = "; ".join(" and ".join(millions(one["value"]) for one in pair) + " M" for pair in (c1, c4))
    yield ("the same two, one C worker; four C workers that share", f"{figures} windows/s",
           "; ".join(", ".join(f"{plain(one['ratio'])}x" for one in pair) for pair in (c1, c4)), "")
    one = run("feed", "policy, 1 Python worker")
    cpu = one["cpu_us_per_batch"]
    yield "CPU time a batch, daemon and Python worker", f"{plain(cpu['daemon'])} + {plain(cpu['worker'])} us", f"{ratio(one, 'cpu_ratio')} less than robomimic", ""


def torch_loader(run):
    one, peer = run("feed", "policy, 1 Python worker, the same turns"), run("feed", "torch DataLoader over arrays")
    yield ("the policy's window, one Python worker, the same turns", f"{millions(one['value'])} M windows/s",
           f"{ratio(one)} torch's DataLoader over arrays in memory at its best ({peer['name'].split('memory, ')[1]})", "")


def hand_over_python(run):
    for what in ("arrays", "torch tensors"):
        p50, p99 = (run("feed", f"policy, 1 Python worker: READY to {what}, {part}") for part in ("p50", "p99"))
        yield f"READY in the daemon to {what} in Python, p50; p99", f"{plain(p50['value'])} us; {plain(p99['value'])} us", "", ""


def resume(run):
    zero, far = (run("mixture", f"resume at position {position}: load_state_dict to the first batch") for position in (0, 10**9))
    yield ("`load_state_dict` at window 10^9 of an epoch to the first batch", f"{plain(far['value'])} ms",
           f"{plain(zero['value'])} ms at window 0", "flat")
    small, large = (run("mixture", f"{size} windows, 10,000 episodes: memory of the sampler") for size in ("1e07", "1e10"))
    yield "the sampler's memory, 10^10 windows of 10,000 episodes", f"{plain(large['value'])} KiB", f"{plain(small['value'])} KiB for 10^7", "flat"


def mixtures(run):
    one = run("mixture", "a mixture of two")
    yield "a feed of two datasets, 7 : 3, one C worker", f"{millions(one['value'])} M windows/s", f"{plain(one['ratio'])}x a feed of one of them", ""


def statistics(run):
    threads = run("statistics", "10^7 x 40, rows,")["name"].split(", ")[-1]
    for name, what in (("rows", "of rows"), ("windows of 16 rows", "of windows of 16"), ("windows of 1, resampled", "of resampled windows")):
        one = run("statistics", f"10^7 x 40, {name}, {threads}")
        yield (f"statistics of 10^7 x 40 values, quantiles without error, {what}, {threads}", f"{plain(one['value'] / 1e3)} s",
               f"{ratio(one)} numpy ({plain(one['cpu_ratio'])}x of CPU time)", "")


def hand_over(run):
    best, four, eight = (run("handover", f"slot 4096 KiB, credit {credit}, back to back") for credit in (16, 4, 8))
    inline = run("handover", "4 MiB inline by ZeroMQ")
    yield ("4 MiB batch: descriptor and lease, credit 16, back to back", f"{plain(best['value'])} us",
           f"{ratio(inline)} cheaper than the bytes inline over ZeroMQ", f"{verdict(best)}, {verdict(inline)}")
    sizes = [run("handover", f"slot {kib} KiB, credit 4, back to back") for kib in (4, 65536)]
    yield ("the same with credit 8; with credit 4", f"{plain(eight['value'])} us; {plain(four['value'])} us",
           f"with credit 4, 4 KiB and 64 MiB: {plain(sizes[0]['value'])} and {plain(sizes[1]['value'])} us", verdict(four))
    one = run("handover", "one way: descriptor, 4096 KiB, READY to next()")
    yield "one way, READY to `next()`", f"{plain(one['value'])} us p50", f"{ratio(one)} a bare message of 200 bytes", verdict(one)


def starts(run):
    first, cached = (run("start", f"200 episodes, {which}: exec to READY") for which in ("first start", "cached index"))
    yield "exec to READY, 200 episodes: first; index cached", f"{plain(first['value'])} ms; {plain(cached['value'])} ms", "", f"{verdict(cached)} cached"
    one = run("start", "200 episodes, cached index: RSS beyond store and rings")
    yield "memory beyond store and rings", f"{plain(one['value'])} MiB", "", verdict(one)


def service(run):
    ready, stop = run("service", "unit start to READY"), run("service", "stop with")
    yield f"a unit: start to READY; {stop['name'].replace(' attached', '')}", f"{plain(ready['value'])} ms; {plain(stop['value'])} ms", "", ""
    first, all_of_them = run("service", "restart: SIGTERM until the first"), run("service", "restart: SIGTERM until all")
    yield ("restart with them, SIGTERM until the first has a batch again; until all have", f"{plain(first['value'])} ms; {plain(all_of_them['value'])} ms", "", "")


def small_files(run):
    index = [median(run("index", f"small, {which}")["value"]) / 1e3 for which in ("first", "second (cached)")]
    ready = run("start", "10,000 files of 50 datasets, cached index: exec to READY")
    rest = run("start", "10,000 files of 50 datasets, cached index: RSS beyond store and rings")
    yield ("10,000 files of 50 datasets: index first; cached; start cached",
           f"{plain(index[0])} s; {plain(index[1])} s; {plain(median(ready['value']) / 1e3)} s, {plain(rest['value'])} MiB", "", "")


def reading(run):
    gzip, whole = run("read", "image_gzip"), run("read", "image_contiguous")
    yield "gzip'd pictures, two threads", f"{plain(gzip['value'])} MB/s", f"{gzip['ratio']:.2f}x libdeflate alone ({gzip['cpu_ratio']:.2f} of its CPU time)", verdict(gzip)
    yield "contiguous rows", f"{whole['value'] / 1e3:.1f} GB/s", f"{whole['ratio']:.2f}x a plain read", verdict(whole)


ROWS = (windows, torch_loader, hand_over_python, resume, mixtures, statistics, hand_over, starts, service, small_files, reading)


def table(run):
    lines = []
    for rows in ROWS:
        try:
            lines += ["| " + " | ".join(cells) + " |" for cells in rows(run)]
        except (KeyError, StopIteration, RuntimeError) as error:
            print(f"left out: {rows.__name__} ({error!r})", file=sys.stderr)
    return HEAD + "\n".join(lines) + "\n"


def sentence(report, path):
    place = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
    command = report["command"].replace("tests/bench/run.py ", "")
    return (f"Of one run on {report['cores']} cores ({report['device']}, no GPU), commit {report['commit']}, of which\n"
            f"[{place}]({place}) is the record: `make bench` with\n`{command}`. Ratios are of things that took turns in that run; "
            "[tests/bench/README.md](tests/bench/README.md) says how to read them.\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="into README.md")
    options = parser.parse_args()
    report = json.loads(options.results.read_text())
    text = sentence(report, options.results) + "\n" + table(Run(report))
    if not options.write:
        return print(text, end="")
    readme = ROOT / "README.md"
    before = readme.read_text()
    after, count = re.subn(r"(?<=^## Numbers\n\n)Of one run (?:[^\n]+\n)+\n(?:\|[^\n]*\n)+", lambda _: text, before, flags=re.M)
    if count != 1:
        sys.exit("README.md: no `## Numbers` with a sentence that begins `Of one run` and a table")
    readme.write_text(after)
    return print(f"{readme}: {text.count(chr(10)) - 6} rows")


if __name__ == "__main__":
    main()
