#!/usr/bin/env python3
"""Makes the table of numbers in tests/bench/README.md from the JSON of a run of run.py.

    readme_table.py results/NAME.json             # prints the table
    readme_table.py results/NAME.json --front     # prints the rows of the README of the tree (parts defaults, handover)
    readme_table.py results/NAME.json --write     # replaces the text between the markers in README.md

A row is left out, and named on standard error, if the run lacks its part or comparison.
"""
import argparse
import json
import pathlib
import sys
import textwrap

README = pathlib.Path(__file__).resolve().with_name("README.md")
HEAD = "| measurement | figure | compared with | budget |\n| --- | --- | --- | --- |\n"
BEGIN, END = "<!-- readme_table.py: begin -->\n", "<!-- readme_table.py: end -->\n"
COLUMNS = 100


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


def ratio(one, peer, of="ratio"):
    value = one[of]
    if isinstance(value, dict) and value["count"] > 1:
        return f"{plain(value, 3)}x {peer} ({plain(value['min'])} to {plain(value['max'])})"
    return f"{plain(value, 3)}x {peer}"


def verdict(one):
    """Of the budget: its words, or that they are missed."""
    words = one.get("budget", "").removeprefix("<= ").removeprefix(">= ")
    return words if one.get("met", True) else f"**misses** {words}"


def windows(run):
    for feed in ("policy", "same_tensors"):
        one = run("feed", f"{feed}, 1 Python worker")
        yield f"`{feed}`, one Python worker", f"{millions(one['value'])} M windows/s", ratio(one, "robomimic"), verdict(one)
        c = [run("feed", f"{feed}, {workers}") for workers in ("1 C worker", "4 C workers, share")]
        yield (f"`{feed}`, one C worker; four", "; ".join(f"{millions(one['value'])} M" for one in c) + " windows/s",
               "; ".join(f"{plain(one['ratio'])}x" for one in c) + " robomimic", "")
    one = run("feed", "policy, 1 Python worker")
    cpu = one["cpu_us_per_batch"]
    yield ("`policy`, CPU time, daemon + worker", f"{plain(cpu['daemon'])} + {plain(cpu['worker'])} us a batch",
           ratio(one, "less than robomimic", "cpu_ratio"), "")


def torch_loader(run):
    one, peer = run("feed", "policy, 1 Python worker, the same turns"), run("feed", "torch DataLoader over arrays")
    yield ("`policy` beside torch's DataLoader", f"{millions(one['value'])} M windows/s",
           ratio(one, f"{peer['name'].split('memory, ')[1]}"), "")


def hand_over_python(run):
    for what in ("arrays", "torch tensors"):
        p50, p99 = (run("feed", f"policy, 1 Python worker: READY to {what}, {part}") for part in ("p50", "p99"))
        yield f"READY to {what} in Python, p50; p99", f"{plain(p50['value'])} us; {plain(p99['value'])} us", "", ""


def resume(run):
    zero, far = (run("mixture", f"resume at position {position}: load_state_dict to the first batch") for position in (0, 10**9))
    yield "resume at window 10^9, until the first batch", f"{plain(far['value'])} ms", f"{plain(zero['value'])} ms at window 0", "flat"
    small, large = (run("mixture", f"{size} windows, 10,000 episodes: memory of the sampler") for size in ("1e07", "1e10"))
    yield "memory of the sampler, 10^10 windows", f"{plain(large['value'])} KiB", f"{plain(small['value'])} KiB for 10^7 windows", "flat"


def mixtures(run):
    one = run("mixture", "a mixture of two")
    yield "two datasets, 7 : 3, one C worker", f"{millions(one['value'])} M windows/s", f"{plain(one['ratio'])}x one dataset", ""


def statistics(run):
    threads = run("statistics", "10^7 x 40, rows,")["name"].split(", ")[-1]
    for name, what in (("rows", "rows"), ("windows of 16 rows", "windows of 16"), ("windows of 1, resampled", "resampled windows")):
        one = run("statistics", f"10^7 x 40, {name}, {threads}")
        yield (f"statistics of 10^7 x 40, {what}", f"{plain(one['value'] / 1e3)} s, {threads}",
               ratio(one, f"numpy, {plain(one['cpu_ratio'])}x of CPU time"), "")


def defaults(run):
    one = run("defaults", "init, every tensor read")
    yield "`init`, every tensor read, one Python worker", f"{millions(one['value'])} M windows/s", "", ""
    for name, figure_of in run.figures["defaults"].items():
        if "ratio" in figure_of:
            yield name, f"{plain(figure_of['value'])} {figure_of['unit']}", ratio(figure_of, figure_of["ratio_to"]), ""


def front(run):
    """The rows of the front page that need no GPU. A setting that is not that of `trajctl init` stands in the row."""
    yield from defaults(run)
    one, inline = run("handover", "slot 4096 KiB, default"), run("handover", "4 MiB inline by ZeroMQ")
    yield "hand-over of a 4 MiB batch, 16 slots (the default)", f"{plain(one['value'])} us", f"its bytes by ZeroMQ: {plain(inline['value'] / one['value'])}x", ""


def hand_over(run):
    small, plain_one, large = (run("handover", f"slot {kib} KiB, default, back to back") for kib in (4, 4096, 65536))
    inline = run("handover", "4 MiB inline by ZeroMQ")
    yield ("hand-over of 4 MiB, defaults", f"{plain(plain_one['value'])} us", ratio(inline, "cheaper than ZeroMQ inline"),
           f"{verdict(plain_one)}, {verdict(inline)}")
    yield "the same, 4 KiB; 64 MiB (4 slots)", f"{plain(small['value'])} us; {plain(large['value'])} us", "", verdict(large)
    others = [run("handover", f"slot 4096 KiB, credit {credit}, back to back")["value"] for credit in (4, 8, 16)]
    yield "4 MiB, credit= 4; 8; 16", "; ".join(f"{plain(us)} us" for us in others), "", ""
    one = run("handover", "one way: descriptor, 4096 KiB, READY to next()")
    yield "latency, READY to `next()`, p50", f"{plain(one['value'])} us", ratio(one, "a message of 200 bytes"), verdict(one)


def starts(run):
    first, cached = (run("start", f"200 episodes, {which}: exec to READY") for which in ("first start", "cached index"))
    yield "exec to READY, 200 episodes: first; cached", f"{plain(first['value'])} ms; {plain(cached['value'])} ms", "", f"{verdict(cached)} cached"
    one = run("start", "200 episodes, cached index: RSS beyond store and rings")
    yield "memory beyond row cache and rings", f"{plain(one['value'])} MiB", "", verdict(one)


def service(run):
    ready, stop = run("service", "unit start to READY"), run("service", "stop with")
    yield f"service: start to READY; {stop['name'].replace(' attached', '')}", f"{plain(ready['value'])} ms; {plain(stop['value'])} ms", "", ""
    first, all_of_them = run("service", "restart: SIGTERM until the first"), run("service", "restart: SIGTERM until all")
    yield "restart until the first; all workers have a batch", f"{plain(first['value'])} ms; {plain(all_of_them['value'])} ms", "", ""


def small_files(run):
    index = [median(run("index", f"small, {which}")["value"]) / 1e3 for which in ("first", "second (cached)")]
    ready = run("start", "10,000 files of 50 datasets, cached index: exec to READY")
    rest = run("start", "10,000 files of 50 datasets, cached index: RSS beyond store and rings")
    yield "10,000 files of 50 datasets: index; cached", f"{plain(index[0])} s; {plain(index[1])} s", "", ""
    yield "10,000 files: exec to READY, cached; memory", f"{plain(median(ready['value']) / 1e3)} s; {plain(rest['value'])} MiB", "", ""


def reading(run):
    gzip, whole = run("read", "image_gzip"), run("read", "image_contiguous")
    yield "gzip images, two threads", f"{plain(gzip['value'])} MB/s", f"{gzip['ratio']:.2f}x libdeflate, {gzip['cpu_ratio']:.2f} of CPU time", verdict(gzip)
    yield "contiguous rows", f"{whole['value'] / 1e3:.1f} GB/s", f"{whole['ratio']:.2f}x a plain read", verdict(whole)


ROWS = (defaults, windows, torch_loader, hand_over_python, resume, mixtures, statistics, hand_over, starts, service, small_files, reading)


def table(run, parts=ROWS):
    lines = []
    for rows in parts:
        try:
            lines += ["|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|" for cells in rows(run)]
        except (KeyError, StopIteration, RuntimeError) as error:
            print(f"left out: {rows.__name__} ({error!r})", file=sys.stderr)
    return HEAD + "\n".join(lines) + "\n"


def origin(report, path):
    """Names the device, the commit, the record and the command of the table."""
    name = path.resolve().relative_to(README.parent) if path.resolve().is_relative_to(README.parent) else path
    text = (f"{report['device']}, {report['cores']} cores, no GPU, commit {report['commit']}, {report['date']}. The record is "
            f"[{name}]({name}). The command was:")
    command = textwrap.wrap(report["command"], COLUMNS - 8, break_long_words=False, break_on_hyphens=False)
    return "\n".join(textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False)) + "\n\n    " + " \\\n        ".join(command) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--front", action="store_true", help="the rows of the front page")
    parser.add_argument("--write", action="store_true", help="into tests/bench/README.md")
    options = parser.parse_args()
    report = json.loads(options.results.read_text())
    if options.front:
        return print(table(Run(report), (front,)), end="")
    text = origin(report, options.results) + "\n" + table(Run(report))
    if not options.write:
        return print(text, end="")
    before = README.read_text()
    if before.count(BEGIN) != 1 or before.count(END) != 1:
        sys.exit(f"{README}: expected one line {BEGIN.strip()} and one line {END.strip()}")
    head, rest = before.split(BEGIN)
    README.write_text(head + BEGIN + text + END + rest.split(END)[1])
    return print(f"{README}: {text.count(chr(10) + '|') - 2} rows")


if __name__ == "__main__":
    main()
