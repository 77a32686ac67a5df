#!/usr/bin/env python3
"""Changes the C core in one small place at a time, and shows which changes no test notices.

    tests/tools/mutate.py --area feed --seed 1 --count 30 --minutes 20

Works in a copy of the tree (build/mutate), never in the tree itself. For each change it builds what the area's C tests
need, and runs them up to the first failure. What they do not notice goes to the area's Python tests; with --sanitize, what
those do not notice goes to the C tests under AddressSanitizer. A test that hangs has noticed the change. Lines are chosen by
the seed, each line of an area with the same chance. mutate_changes.py says what is changed, and what is left out.

mutate_no_effect.txt lists changes that nothing visible depends on, with the reason. They are not counted. What is printed
as "missed" needs a test, or a place in that list. The list names a change by its function and text:

    daemon/cache/cache.c: allocate_tables
      - for ( uint32_t i = 0 ; i < n ; i ++ )
      + for ( uint32_t i = 0 ; i <= n ; i ++ )
      The array has one entry more, which nobody reads.

A `+` line with a single star stands for every change of the place in the `-` line.
"""
import argparse
import collections
import glob
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import mutate_changes

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("mutate_no_effect.txt")
BUILD_SECONDS, FIRST_TEST_SECONDS = 1800, 900
PROGRAMS = ["trajd", "trajctl", "trajd-indexer", "trajd_client", "trajd_python", "tests/support/all", "tests/fake/all"]

# For each area: its files, the C tests that can notice a change, from the fastest to the slowest, and then the Python tests.
AREAS = {
    "order": (["daemon/window/**/*.c"], ["^unit/window", "^(unit/(stats|producer|control)|fuzz/(window_spec|statistics))"],
              ["integration/test_feed_values.py", "integration/test_mixtures.py", "integration/test_configuration.py",
               "integration/test_statistics.py", "integration/test_explain.py", "integration/test_robomimic.py"]),
    "bytes": (["daemon/index/*.c", "daemon/cache/*.c", "daemon/hdf5/*.c"],
              ["^unit/(index|cache|hdf5)", "^(unit/(window|producer|stats)|fuzz/(array|index))"],
              ["integration/test_feed_values.py", "integration/test_recordings.py", "integration/test_images.py",
               "integration/test_linked_files.py", "integration/test_failures.py", "integration/test_init.py"]),
    "feed": (["daemon/feed/*.c"], ["^unit/feed", "^unit/server/(server|sessions|outbox|schema)", "^model"],
             ["integration/test_jobs.py", "integration/test_fan_out.py", "integration/test_guarantees.py",
              "integration/test_failures.py"]),
    "kernels": (["kernels/cpu/*.c", "kernels/dispatch/*.c", "kernels/resample_*.c"], ["^unit/kernels", "^unit/producer"],
                ["integration/test_feed_values.py", "integration/test_resample_cli.py"]),
    "wire": (["proto/*.c", "clients/c/**/[!c]*.c", "clients/c/c[!u]*.c"],  # cuda.c needs a GPU
             ["^unit/(proto|clients/c)", "^(unit/server|fuzz/(wire|key_file))"],
             ["golden/test_wire_golden.py", "integration/test_jobs.py", "integration/test_remote_workers.py", "integration/test_failures.py",
              "python/test_python_feed.py", "python/test_python_batches.py", "python/test_python_misuse.py"]),
    "statistics": (["daemon/stats/*.c", "clients/cli/resample/**/*.c", "daemon/hdf5/writer/*.c"],
                   ["^unit/(stats|clients/resample)", "^(unit/(producer|window/statistics)|fuzz/(statistics|convert_journal))"],
                   ["integration/test_resample_beside.py", "integration/test_resample_lengths.py", "integration/test_resample_gaps.py",
                    "python/test_stats.py", "integration/test_statistics.py", "integration/test_resample_cli.py",
                    "integration/test_resample_backends.py"]),
}


class Copy:
    """A copy of the tree with a build of its own, in which files are changed and put back."""

    def __init__(self, folder, area, sanitize=""):
        self.tree, self.area = folder / "tree", area
        self.build = self.tree / "build" / ("sanitized" if sanitize else "plain")
        self.c_seconds = self.python_seconds = FIRST_TEST_SECONDS  # a test that takes longer hangs
        self.environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "TRAJD_BUILD": str(self.build), "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-DTRAJD_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0", f"-DTRAJD_SANITIZE={sanitize}"]
        if shutil.which("ccache"):
            options.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
        status, output = self.run(["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja", *options], BUILD_SECONDS)
        if status:
            sys.exit(f"mutate: cmake failed:\n{output[-2000:]}")
        names = re.findall(r"Test +#\d+: (\S+)", self.run(["ctest", "--test-dir", str(self.build), "-N", "-R", "|".join(area[1])], 60)[1])
        targets = self.run(["ninja", "-C", str(self.build), "-t", "targets", "all"], 60)[1]
        programs = ["test_" + name.replace("/", "_") for name in names] + [name.replace("fuzz/", "fuzz_") for name in names]
        self.test_targets = [name for name in programs if f"\n{name}: phony" in targets] + ["trajd-indexer"]  # C tests start it

    def run(self, command, seconds):
        """Runs a command in the copy. Returns its exit status (None: it took too long) and its output. Ends what it left."""
        process = subprocess.Popen(command, cwd=self.tree, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", start_new_session=True)
        try:
            output = process.communicate(timeout=seconds)[0]
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        finally:
            self.end_programs()

    def end_programs(self):
        """Kills programs of this build that a test left behind, such as a daemon that hangs."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "exe").startswith(f"{self.build}/"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass

    def make(self, targets):
        return self.run(["ninja", "-C", str(self.build), *targets], BUILD_SECONDS)

    def c_tests(self):
        """Returns the name of a C test that fails, or None."""
        for names in self.area[1]:
            status, output = self.run(["ctest", "--test-dir", str(self.build), "-R", names, "-j2", "--stop-on-failure",
                                       "--timeout", str(self.c_seconds)], 2 * self.c_seconds)
            if status != 0:
                failed = re.search(r"Test +#\d+: (\S+) \.*(?!.*(Passed|Skipped))", output)
                return failed[1] if failed else "a C test that hangs"
        return None

    def python_tests(self):
        """Returns the name of a Python test that fails, or None."""
        python = self.tree / "build" / "venv" / "bin" / "python"
        status, output = self.run([str(python), "-m", "pytest", "-q", "-x", *(f"tests/{name}" for name in self.area[2])],
                                  self.python_seconds)
        if status == 0:
            return None
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.M)
        return failed[1].replace("tests/", "") if failed else "a Python test that hangs"


def copy_tree(folder):
    """Brings the copy up to date. Files that are as before keep their times, so that little is built again."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    wanted = {name for name in names.split("\0") if name and (ROOT / name).is_file()}
    for name in wanted:
        target, content = folder / "tree" / name, (ROOT / name).read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(ROOT / name, target)
    for path in (folder / "tree").rglob("*"):
        name = str(path.relative_to(folder / "tree"))
        if path.is_file() and name not in wanted and not name.startswith("build/"):
            path.unlink()
    for link, target in ((folder / "tree/build/venv", ROOT / "build/venv"), (folder / "shared", ROOT.parent / "shared")):
        link.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not link.is_symlink():
            link.symlink_to(target.resolve())


def read_list(path):
    """Returns (file, function, before, after) of each change in a list; after may be a star."""
    entries, place, before = set(), None, None
    for line in path.read_text().splitlines():
        if line.startswith("  - "):
            before = line[4:].strip()
        elif line.startswith("  + "):
            entries.add((*place, before, line[4:].strip()))
        elif line and not line.startswith((" ", "#")):
            place = tuple(line.split(": "))
    return entries


def is_listed(change, entries):
    place = (change.file, change.function, change.before)
    return (*place, change.after) in entries or (*place, "*") in entries


def choose(tree, area, arguments):
    """Returns the changes to make: those of --only, or those of the seed: a line, then one of the changes on it."""
    lines = collections.defaultdict(list)
    for name in sorted({name for pattern in area[0] for name in glob.glob(pattern, root_dir=tree, recursive=True)}):
        for change in mutate_changes.changes_of(name, (tree / name).read_text()):
            lines[change.file, change.line].append(change)
    if arguments.only:
        only = read_list(arguments.only)
        return [change for place in sorted(lines) for change in lines[place] if is_listed(change, only)]
    generator = random.Random(arguments.seed)
    places = generator.sample(sorted(lines), min(arguments.count, len(lines)))
    return [generator.choice(lines[place]) for place in places]


def try_change(copy, sanitized, change, with_python):
    """Makes the change, builds, tests, and puts the file back. Returns what noticed it, and where: the column."""
    path = copy.tree / change.file
    source = path.read_text()
    path.write_text(change.apply(source))
    try:
        status, _ = copy.make(copy.test_targets)
        if status:
            return "does not compile", ""
        noticed = copy.c_tests()
        if noticed:
            return "C tests", noticed
        if with_python:
            copy.make(PROGRAMS)
            noticed = copy.python_tests()
            if noticed:
                return "Python tests", noticed
        if sanitized:
            noticed = None if sanitized.make(sanitized.test_targets)[0] else sanitized.c_tests()
            if noticed:
                return "sanitizer", noticed
        return "missed", ""
    finally:
        path.write_text(source)


def check_unchanged(copy, with_python):
    """Checks that all tests pass without a change, and measures their time: several times as long is a hang."""
    status, output = copy.make(copy.test_targets + (PROGRAMS if with_python else []))
    if status:
        sys.exit(f"mutate: the tree does not build:\n{output[-2000:]}")
    started = time.monotonic()
    failed = copy.c_tests()
    copy.c_seconds = 30 + 10 * round(time.monotonic() - started)
    started = time.monotonic()
    failed = failed or (copy.python_tests() if with_python else None)
    copy.python_seconds = 60 + 5 * round(time.monotonic() - started)
    if failed:
        sys.exit(f"mutate: {failed} fails without any change")


def run_area(name, arguments, end):
    area, folder = AREAS[name], arguments.folder
    copy_tree(folder)
    copy = Copy(folder, area)
    check_unchanged(copy, not arguments.quick)
    sanitized = Copy(folder, area, "address,undefined") if arguments.sanitize else None
    if sanitized:
        check_unchanged(sanitized, False)
    ignored, counts, missed = read_list(LIST), collections.Counter(), []
    for change in choose(copy.tree, area, arguments):
        started = time.monotonic()
        if end and started > end:
            print(f"{name}: the time is over", flush=True)
            break
        if is_listed(change, ignored):
            column, by = "no effect", ""
        else:
            column, by = try_change(copy, sanitized, change, not arguments.quick)
        counts[column] += 1
        print(f"{column:17}{time.monotonic() - started:4.0f} s  {change.kind:9}{change.file}:{change.line} {by}", flush=True)
        if column == "missed":
            missed.append(change)
            print(f"{change.file}: {change.function}\n  - {change.before}\n  + {change.after}", flush=True)
    return counts, missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", action="append", choices=AREAS, help="an area; may be given several times (all areas)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30, help="changes for each area (30)")
    parser.add_argument("--minutes", type=float, help="make no further change after this time")
    parser.add_argument("--sanitize", action="store_true", help="run the C tests under AddressSanitizer on what is left")
    parser.add_argument("--quick", action="store_true", help="leave out the Python tests")
    parser.add_argument("--only", type=pathlib.Path, metavar="FILE", help="make the changes that this file lists, to try a new test")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "mutate", help="where the copies are (build/mutate)")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    columns = ("made", "does not compile", "no effect", "C tests", "Python tests", "sanitizer", "missed")
    rows, missed = [], []
    for name in arguments.area or AREAS:
        counts, area_missed = run_area(name, arguments, end)
        missed += area_missed
        matter = sum(counts[column] for column in columns[3:])
        share = f"{100 * (matter - counts['missed']) / matter:.0f} %" if matter else "-"
        rows.append([name, sum(counts.values()), *(counts[column] for column in columns[1:]), share])
    print(f"\nseed {arguments.seed}, commit {subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, capture_output=True, text=True).stdout}")
    for row in [["area", *columns, "noticed"], *rows]:
        print("  ".join(f"{str(cell):>{max(len(column), 5)}}" for cell, column in zip(row, ["statistics", *columns, "noticed"])))
    for change in missed:
        print(f"\nmissed: {change.file}:{change.line}\n{change.file}: {change.function}\n  - {change.before}\n  + {change.after}")


if __name__ == "__main__":
    main()
