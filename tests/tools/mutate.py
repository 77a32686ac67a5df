#!/usr/bin/env python3
"""Changes the C core in one small place at a time, and shows which changes no test notices.

    tests/tools/mutate.py --area feed --seed 1 --count 30 --minutes 20

Works in a copy of the tree (build/mutate), never in the tree itself. For each change it builds what the area's C tests
need, and runs them up to the first failure. What they do not notice goes to the area's Python tests; with --sanitize, what
those do not notice goes to the C tests under AddressSanitizer. A test that hangs has noticed the change, and so has one that
fails twice. Lines are chosen by the seed, each line of an area with the same chance. mutate_changes.py says what is changed,
and what is left out. With --jobs 16, 16 copies try one change each; the changes and the table are the same.

mutate_no_effect.txt lists changes that nothing visible depends on, with the reason. They are not counted. What is printed
as "missed" needs a test, or a place in that list. With --minutes, no change is begun in the last quarter of the time. What
is not finished at the end is printed, too, and not counted: it passed the C tests, so try it again with --only. Lists name a
change by its function and text:

    daemon/cache/cache.c: allocate_tables
      - for ( uint32_t i = 0 ; i < n ; i ++ )
      + for ( uint32_t i = 0 ; i <= n ; i ++ )
      The array has one entry more, which nobody reads.

A `+` line with a single star stands for every change of the place in the `-` line.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import glob
import itertools
import math
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import mutate_changes

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("mutate_no_effect.txt")
BUILD_SECONDS, FIRST_TEST_SECONDS = 1800, 900
HANGS = "hangs"
LEFT_OUT = 10  # tests of an area that may fail without a change
LAST_PART = 0.25  # of the time, in which no further change is begun
NO_TESTS = 5  # pytest's exit status where no test is left
PROGRAMS = ["trajd", "trajctl", "trajd-indexer", "trajd_client", "trajd_python", "tests/support/all", "tests/fake/all"]


@dataclass
class Area:
    files: list
    c_tests: list  # patterns of the C tests that can notice a change, from the fastest to the slowest
    python_tests: list
    left_out: list = field(default_factory=list)  # tests that fail without a change
    c_seconds: int = FIRST_TEST_SECONDS  # a test that takes longer hangs
    python_seconds: int = FIRST_TEST_SECONDS
    # check_unchanged has run the tests of these builds
    c_checked: threading.Event = field(default_factory=threading.Event)
    all_checked: threading.Event = field(default_factory=threading.Event)


AREAS = {
    "order": Area(
        ["daemon/window/**/*.c"],
        ["^unit/window", "^(unit/(stats|producer|control)|fuzz/(window_spec|statistics))"],
        ["integration/test_feed_values.py", "integration/test_mixtures.py", "integration/test_configuration.py",
         "integration/test_statistics.py", "integration/test_explain.py", "integration/test_robomimic.py", "integration/test_selection.py",
         "integration/test_left_out.py", "integration/test_rates.py", "integration/test_quaternions.py", "integration/test_goals.py",
         "integration/test_returns.py", "integration/test_deltas.py", "integration/test_image_feeds.py", "python/test_targets.py"]),
    "bytes": Area(
        ["daemon/index/**/*.c", "daemon/cache/*.c", "daemon/hdf5/*.c"],
        ["^unit/(index|cache|hdf5)", "^(unit/(window|producer|stats)|fuzz/(array|index))"],
        ["integration/test_feed_values.py", "integration/test_recordings.py", "integration/test_images.py",
         "integration/test_linked_files.py", "integration/test_failures.py", "integration/test_init.py",
         "integration/test_damaged_groups.py", "integration/test_lost_rows.py", "integration/test_refused_forms.py",
         "integration/test_rewritten_files.py", "integration/test_strangers_file.py", "integration/test_frames.py",
         "integration/test_inspect_frame.py", "integration/test_image_feeds.py"]),
    "feed": Area(
        ["daemon/feed/*.c"],
        ["^unit/feed", "^unit/server/(server|sessions|outbox|schema)", "^model"],
        ["integration/test_jobs.py", "integration/test_fan_out.py", "integration/test_guarantees.py", "integration/test_failures.py",
         "integration/test_rejoin.py", "integration/test_journals.py"]),
    "kernels": Area(
        ["kernels/cpu/*.c", "kernels/dispatch/*.c", "kernels/resample_*.c", "kernels/transform/*.c", "kernels/image/*.c", "kernels/image/augment/*.c"],
        ["^unit/kernels", "^unit/producer"],
        ["integration/test_feed_values.py", "integration/test_resample_cli.py", "integration/test_resample_backends.py",
         "integration/test_image_feeds.py"]),
    "wire": Area(
        ["proto/*.c", "clients/c/**/[!c]*.c", "clients/c/c[!u]*.c"],  # cuda.c needs a GPU
        ["^unit/(proto|clients/c)", "^(unit/server|fuzz/(wire|key_file))"],
        ["golden/test_wire_golden.py", "integration/test_jobs.py", "integration/test_remote_workers.py", "integration/test_failures.py",
         "python/test_python_feed.py", "python/test_python_batches.py", "python/test_python_misuse.py", "python/test_python_gpu.py",
         "integration/test_rejoin.py", "integration/test_gpu_streams.py", "integration/test_gpu_missing.py"]),
    "statistics": Area(
        ["daemon/stats/*.c", "clients/cli/resample/**/*.c", "daemon/hdf5/writer/*.c"],
        ["^unit/(stats|clients/resample|hdf5/writer)", "^(unit/(producer|window/statistics)|fuzz/statistics)"],
        ["integration/test_resample_beside.py", "integration/test_resample_lengths.py", "integration/test_resample_gaps.py",
         "python/test_stats.py", "python/test_stats_differences.py", "python/test_stats_rows.py",
         "integration/test_statistics.py", "integration/test_resample_cli.py", "integration/test_resample_backends.py",
         "integration/test_resample_attributes.py", "integration/test_resample_damage.py",
         "integration/test_resample_frames.py", "integration/test_pack.py"]),
}


class TimeIsOver(Exception):
    pass


class Build:
    """A build of a copy of the tree, and the tests that run there."""
    end = math.inf  # of the run: nothing is run after it

    def __init__(self, folder, sanitize=""):
        self.tree = folder / "tree"
        self.folder = self.tree / "build" / ("sanitized" if sanitize else "plain")
        self.environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "TRAJD_BUILD": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-DTRAJD_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0", f"-DTRAJD_SANITIZE={sanitize}"]
        if shutil.which("ccache"):
            options.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
        status, output = self.run(["cmake", "-S", str(self.tree), "-B", str(self.folder), "-G", "Ninja", *options], BUILD_SECONDS)
        if status:
            sys.exit(f"mutate: cmake failed:\n{output[-2000:]}")
        self.all_targets = self.run(["ninja", "-C", str(self.folder), "-t", "targets", "all"], 60)[1]

    def run(self, command, seconds):
        """Runs a command in the copy. Returns its exit status (None: it took too long) and its output. Ends what it left."""
        left = Build.end - time.monotonic()
        if left <= 0:
            raise TimeIsOver
        process = subprocess.Popen(command, cwd=self.tree, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", start_new_session=True)
        try:
            output = process.communicate(timeout=min(seconds, left))[0]
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.end_programs()  # they may hold the pipe open
            process.communicate()
            if left <= seconds:
                raise TimeIsOver from None
            return None, ""
        finally:
            self.end_programs()

    def end_programs(self):
        """Kills programs of this build that a test left behind, such as a daemon that hangs."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "exe").startswith(f"{self.folder}/"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass

    def make(self, targets):
        return self.run(["ninja", "-C", str(self.folder), *targets], BUILD_SECONDS)

    def test_targets(self, area):
        """Returns what has to be built for the area's C tests."""
        names = re.findall(r"Test +#\d+: (\S+)",
                           self.run(["ctest", "--test-dir", str(self.folder), "-N", "-R", "|".join(area.c_tests)], 60)[1])
        programs = ["test_" + name.replace("/", "_") for name in names] + [name.replace("fuzz/", "fuzz_") for name in names]
        return [name for name in programs if f"\n{name}: phony" in self.all_targets] + ["trajd-indexer"]  # C tests start it

    def failing_c_tests(self, area):
        """Returns the names of all C tests of the area that fail."""
        output = self.run(["ctest", "--test-dir", str(self.folder), "-R", "|".join(area.c_tests), "-j2", "--timeout", str(area.c_seconds)],
                          4 * area.c_seconds)[1]
        return re.findall(r"^\s+\d+ - (\S+) \((?!Not Run|Disabled)", output.partition("tests FAILED:")[2], re.M)

    def failing_python_tests(self, area):
        python = self.tree / "build" / "venv" / "bin" / "python"
        output = self.run([str(python), "-m", "pytest", "-q", f"--timeout={area.python_seconds}",
                           *(f"tests/{name}" for name in area.python_tests)], 3 * area.python_seconds)[1]
        return sorted(set(re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", output, re.M)))

    def c_tests(self, area):
        """Returns the name of a C test that fails, or None."""
        for names in area.c_tests:
            left_out = ["-E", f"^({'|'.join(map(re.escape, area.left_out))})$"] if area.left_out else []
            status, output = self.run(["ctest", "--test-dir", str(self.folder), "-R", names, *left_out, "-j2", "--stop-on-failure",
                                       "--timeout", str(area.c_seconds)], 2 * area.c_seconds)
            if status != 0:
                failed = re.search(r"Test +#\d+: (\S+) \.*(?!.*(Passed|Skipped))", output)
                return f"{failed[1] if failed else 'a C test'}{' ' + HANGS if not failed or '***Timeout' in output else ''}"
        return None

    def python_tests(self, area, names=()):
        """Returns the name of a Python test that fails, or None."""
        python = self.tree / "build" / "venv" / "bin" / "python"
        status, output = self.run([str(python), "-m", "pytest", "-q", "-x", f"--timeout={area.python_seconds}",
                                   *(names or (f"tests/{name}" for name in area.python_tests)),
                                   *(f"--deselect={name}" for name in area.left_out)], 3 * area.python_seconds)
        if status in (0, NO_TESTS):
            return None
        failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", output, re.M)
        return f"{failed[1] if failed else 'a Python test'}{' ' + HANGS if not failed or 'from pytest-timeout' in output else ''}"

    def fails_again(self, area, name):
        """Returns whether the test fails a second time: on a busy machine a test may fail once without a reason."""
        if name.endswith(HANGS):
            return True
        if "::" in name or name.endswith(".py"):
            return self.python_tests(area, [name]) is not None
        return self.run(["ctest", "--test-dir", str(self.folder), "-R", f"^{re.escape(name)}$", "--timeout", str(area.c_seconds)],
                        2 * area.c_seconds)[0] != 0

    def noticed_by(self, area, tests):
        """Runs tests, at most twice if a failure does not repeat. Returns the name of a test that fails, or None."""
        for _ in range(2):
            failed = tests(area)
            if not failed or self.fails_again(area, failed):
                return failed
        return None


class Copy:
    """A copy of the tree with builds of its own, in which files are changed and put back."""

    def __init__(self, folder):
        self.folder, self.sanitized_build = folder, None
        copy_tree(folder)
        self.plain = Build(folder)

    @property
    def sanitized(self):
        self.sanitized_build = self.sanitized_build or Build(self.folder, "address,undefined")
        return self.sanitized_build


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
    for name in sorted({name for pattern in area.files for name in glob.glob(pattern, root_dir=tree, recursive=True)}):
        for change in mutate_changes.changes_of(name, (tree / name).read_text()):
            lines[change.file, change.line].append(change)
    if arguments.only:
        only = read_list(arguments.only)
        return [change for place in sorted(lines) for change in lines[place] if is_listed(change, only)]
    generator = random.Random(arguments.seed)
    places = generator.sample(sorted(lines), min(arguments.count, len(lines)))
    return [generator.choice(lines[place]) for place in places]


def try_change(copy, area, change, arguments):
    """Makes the change, builds, tests, and puts the file back. Returns what noticed it, and where: the column."""
    path = copy.folder / "tree" / change.file
    source = path.read_text()
    path.write_text(change.apply(source))
    try:
        plain = copy.plain
        if plain.make(plain.test_targets(area))[0]:
            return "does not compile", ""
        area.c_checked.wait()
        noticed = plain.noticed_by(area, plain.c_tests)
        if noticed:
            return "C tests", noticed
        area.all_checked.wait()
        if not arguments.quick:
            plain.make(PROGRAMS)
            noticed = plain.noticed_by(area, plain.python_tests)
            if noticed:
                return "Python tests", noticed.replace("tests/", "")
        if arguments.sanitize:
            sanitized = copy.sanitized
            noticed = None if sanitized.make(sanitized.test_targets(area))[0] else sanitized.noticed_by(area, sanitized.c_tests)
            if noticed:
                return "sanitizer", noticed
        return "missed", ""
    finally:
        path.write_text(source)


def seconds_of(area, name, tests):
    """Runs tests without a change, and leaves out those that fail. Returns how long they took."""
    started = time.monotonic()
    failing = tests(area)
    area.left_out += failing
    for test in failing:
        print(f"{name}: {test} fails without any change, and is left out", flush=True)
    if len(area.left_out) > LEFT_OUT:
        sys.exit("mutate: too many tests fail without any change")
    return round(time.monotonic() - started)


def check_unchanged(copy, name, arguments):
    """Checks that the area's tests pass without a change, and measures their time: a test that takes longer than all of them
    hangs."""
    area = AREAS[name]
    for build in [copy.plain] + ([copy.sanitized] if arguments.sanitize else []):
        status, output = build.make(build.test_targets(area) + ([] if arguments.quick or build is not copy.plain else PROGRAMS))
        if status:
            sys.exit(f"mutate: the tree does not build:\n{output[-2000:]}")
        area.c_seconds = 30 + 3 * seconds_of(area, name, build.failing_c_tests)
        area.c_checked.set()
    if not arguments.quick:
        area.python_seconds = 30 + seconds_of(area, name, copy.plain.failing_python_tests)


class Run:
    """Copies that try changes, one thread each. Each thread takes the next change."""

    def __init__(self, arguments):
        self.arguments = arguments
        Build.end = time.monotonic() + 60 * arguments.minutes
        self.last_begin = Build.end - 60 * arguments.minutes * LAST_PART if arguments.minutes < math.inf else math.inf
        self.names = arguments.area or list(AREAS)
        self.counts = {name: collections.Counter() for name in self.names}
        self.missed, self.unfinished, self.ignored = [], [], read_list(LIST)
        self.copies = queue.Queue()

    def in_a_copy(self, function, *rest):
        copy = self.copies.get()
        try:
            return function(copy, *rest)
        finally:
            self.copies.put(copy)

    def add_copy(self, index):
        """Makes a copy and builds in it what all areas need."""
        copy = Copy(self.arguments.folder / str(index) if self.arguments.jobs > 1 else self.arguments.folder)
        targets = {target for name in self.names for target in copy.plain.test_targets(AREAS[name])}
        copy.plain.make(sorted(targets) + ([] if self.arguments.quick else PROGRAMS))
        self.copies.put(copy)
        return copy

    def check_one(self, copy, name):
        try:
            check_unchanged(copy, name, self.arguments)
        finally:
            AREAS[name].c_checked.set()
            AREAS[name].all_checked.set()

    def try_one(self, copy, name, change):
        started = time.monotonic()
        if started > self.last_begin:
            return
        listed = is_listed(change, self.ignored)
        try:
            column, by = ("no effect", "") if listed else try_change(copy, AREAS[name], change, self.arguments)
        except TimeIsOver:
            self.unfinished.append(change)
            return
        self.counts[name][column] += 1
        print(f"{column:17}{time.monotonic() - started:4.0f} s  {change.kind:9}{change.file}:{change.line} {by}", flush=True)
        if column == "missed":
            self.missed.append(change)
            print(text_of(change), flush=True)

    def run(self):
        """Makes the copies, checks each area without a change, and tries the changes: one of each area in turn."""
        tree = self.add_copy(0).folder / "tree"  # first alone: the compiler's cache then helps the others
        chosen = [[(name, change) for change in choose(tree, AREAS[name], self.arguments)] for name in self.names]
        tasks = [task for turn in itertools.zip_longest(*chosen) for task in turn if task]
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            started = [pool.submit(self.add_copy, index) for index in range(1, self.arguments.jobs)]
            started += [pool.submit(self.in_a_copy, self.check_one, name) for name in self.names]
            started += [pool.submit(self.in_a_copy, self.try_one, *task) for task in tasks]
            try:
                for future in concurrent.futures.as_completed(started):
                    with contextlib.suppress(TimeIsOver):
                        future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if sum(counts.total() for counts in self.counts.values()) < len(tasks):
            print("the time is over")


def text_of(change):
    """Returns the change as the list of changes without effect names it."""
    return f"{change.file}: {change.function}\n  - {change.before}\n  + {change.after}"


def print_table(run):
    columns = ("made", "does not compile", "no effect", "C tests", "Python tests", "sanitizer", "missed")
    rows = []
    for name, counts in run.counts.items():
        matter = sum(counts[column] for column in columns[3:])
        share = f"{100 * (matter - counts['missed']) / matter:.0f} %" if matter else "-"
        rows.append([name, sum(counts.values()), *(counts[column] for column in columns[1:]), share])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    print(f"\nseed {run.arguments.seed}, commit {commit}")
    for row in [["area", *columns, "noticed"], *rows]:
        print("  ".join(f"{str(cell):>{max(len(column), 5)}}" for cell, column in zip(row, ["statistics", *columns, "noticed"])))
    for what, changes in (("missed", run.missed), ("not finished", run.unfinished)):
        for change in changes:
            print(f"\n# {what}, line {change.line}\n{text_of(change)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--area", action="append", choices=AREAS, help="an area; may be given several times (all areas)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30, help="changes for each area (30)")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="how many changes are tried at once, each in a copy of its own (1)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after this time, and list what is not finished")
    parser.add_argument("--sanitize", action="store_true", help="run the C tests under AddressSanitizer on what is left")
    parser.add_argument("--quick", action="store_true", help="leave out the Python tests")
    parser.add_argument("--only", type=pathlib.Path, metavar="FILE", help="make the changes that this file lists, to try a new test")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "mutate", help="where the copies are (build/mutate)")
    run = Run(parser.parse_args())
    run.run()
    print_table(run)


if __name__ == "__main__":
    main()
