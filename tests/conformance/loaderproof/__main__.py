"""The command: loaderproof run, table, report and drivers."""
import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings

from . import frames, html_report, order, results, timing, traces
from .driver import DRIVERS, load
from .drivers.reference import Reference, Waiting
from .mutations import NAMES, mutated

TESTS = ("T1", "T2", "T3", "T4", "T5", "T7")


class Run:
    """What the tests of one row share: the driver, the seed, a folder."""

    def __init__(self, name, seed, folder, quick=False, mutation=None, moments=3, jobs=1):
        self.name, self.driver, self.mutation = name, mutated(load(name), mutation), mutation
        self.seed, self.folder, self.quick, self.moments, self.jobs = seed, pathlib.Path(folder), quick, moments, jobs

    def make(self, driver=None):
        """Returns a driver with a folder of its own."""
        return (driver or self.driver)(pathlib.Path(tempfile.mkdtemp(dir=self.folder)))


def run_timing(run, test):
    for case in {"T1": timing.T1_CASES, "T2": timing.T2_CASES, "T3": timing.T3_CASES}[test]:
        yield case, timing.run(test, case, run.seed, run.make), {
            "perfect": timing.run(test, case, run.seed, lambda: run.make(Reference)),
            **({} if test == "T3" else {"limit": timing.run(test, case, run.seed, lambda: run.make(Waiting))})}


class Ideal:
    """Tests whose perfect score is known: `ideal`, where a score has these keys."""

    def __init__(self, **ideal):
        self.ideal = ideal

    def __call__(self, of):
        return lambda run, test: ((case, score, {"perfect": {key: self.ideal[key] for key in score if key in self.ideal}})
                                  for case, score in of(run))


ONCE = Ideal(**{"missing": 0, "doubled": 0, "same order": True, "repeatable": True, "epochs differ": True, "state": True, "hung": 0})
TIDY = Ideal(**{"processes": 0, "shared memory": 0, "temporary files": 0, "their memory": 0})
RUNNERS = {"T1": run_timing, "T2": run_timing, "T3": run_timing, "T4": ONCE(order.order), "T5": ONCE(order.exactly_once),
           "T6": Ideal(wrong=0, refused=0, silent=0)(frames.frames), "T7": TIDY(traces.tidy), "T8": Ideal()(traces.cost)}


def regressions(made, recorded):
    """Returns what is worse than it should be: T1 than a recorded run of the driver, T2 to T5 than a perfect loader."""
    before = {(one["test"], one["case"]): one for one in recorded}
    found = []
    for one in made:
        test, case = one["test"], one["case"]
        if test in ("T1", "T2", "T3", "T4", "T5"):
            base = before[test, case]["score"] if test == "T1" else one["perfect"]
            found += [f"{test} {case}: {text}" for text in results.worse(test, one["score"], base)]
    return found


def run_tests(options):
    """Runs the tests of a driver, and returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="loaderproof-", ignore_cleanup_errors=True) as folder:
        run = Run(options.driver, options.seed, folder, options.quick, options.mutation, 3 if options.quick else options.moments,
                  options.jobs)
        made = []
        for test in options.tests.split(","):
            if test not in run.driver.tests:
                results.say(f"{test}: makes no sense for {run.driver.name}")
                continue
            begin = time.monotonic()
            for case, score, more in RUNNERS[test](run, test):
                one = results.result(test, run.make(), case, options.seed, score, **more,
                                     seconds=round(time.monotonic() - begin, 1))
                begin = time.monotonic()
                made.append(one)
                results.say(f"{test} {case}: {results.brief(test, score)}")
                if options.out:
                    with open(options.out, "a", encoding="utf-8") as file:
                        file.write(json.dumps(one) + "\n")
    print(results.table(made))
    found = regressions(made, results.read([options.compare])) if options.compare else []
    for text in found:
        results.say(f"worse: {text}")
    return 1 if found else 0


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="loaderproof", description="Measures what a data loader does to time, masks and order.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="run tests of one loader, which makes one row of the table")
    one.add_argument("driver", help=f"one of {', '.join(DRIVERS)}, or MODULE:CLASS of yours")
    one.add_argument("--tests", default=",".join(TESTS), help=f"default: {','.join(TESTS)}")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--quick", action="store_true", help="fewer moments of killing, shorter waits")
    one.add_argument("--moments", type=int, default=40, help="of killing, for each kind of process (default 40; --quick: 3)")
    one.add_argument("--jobs", type=int, default=1, help="moments of killing at once (more than 1 needs root, Python 3.12)")
    one.add_argument("--mutation", choices=NAMES, help="put a fault into the driver, which the tests should see")
    one.add_argument("--out", help="append the results to this file, one JSON line each")
    one.add_argument("--compare", help="results of before: fails if T1 is worse than there, or T2 to T5 than a perfect loader")
    shown = commands.add_parser("table", help="print the table of results")
    shown.add_argument("results", nargs="+", help="files of results, or folders of them")
    shown.add_argument("--tests")
    shown.add_argument("--summary", action="store_true", help="one line per loader, in Markdown")
    made = commands.add_parser("report", help="write the HTML report of results")
    made.add_argument("results", nargs="+", help="files of results, or folders of them")
    made.add_argument("--out", default="report.html")
    made.add_argument("--figure", help="also write the figure of error against leakage, as SVG")
    commands.add_parser("drivers", help="list the drivers, and what their settings follow")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.command == "run":
        if options.out:
            pathlib.Path(options.out).unlink(missing_ok=True)
        return run_tests(options)
    if options.command == "table":
        read = results.read(options.results)
        print(results.summary(read) if options.summary else results.table(read, options.tests and options.tests.split(",")))
    elif options.command == "report":
        pathlib.Path(options.out).write_text(html_report.page(options.results), encoding="utf-8")
        if options.figure:
            pathlib.Path(options.figure).write_text(
                html_report.as_svg(html_report.figure_of_leakage(results.by_driver(results.read(options.results)))), encoding="utf-8")
    else:
        print("\n".join(DRIVERS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
