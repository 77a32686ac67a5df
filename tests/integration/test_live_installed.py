"""libtrajd_live as a stranger uses it: from an installed prefix, through pkg-config alone."""
import re
import shutil
import subprocess

import pytest

from installing import install
from paths import BUILD, ROOT, clean_environment


def run(*command, **variables):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=clean_environment(**variables), timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    if not all(map(shutil.which, ("pkg-config", "gcc", "cmake"))):
        pytest.skip("pkg-config, gcc or cmake is missing")
    if re.search(r"TRAJD_SANITIZE:\w+=.", (BUILD / "CMakeCache.txt").read_text()):
        pytest.skip("an instrumented library needs an instrumented program")
    folder = tmp_path_factory.mktemp("prefix")
    install(folder)
    return folder


def build(prefix, source, *options, compiler="gcc"):
    folder = next(prefix.glob("lib*/**/pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "trajd_live", PKG_CONFIG_PATH=str(folder)).split()
    run(compiler, "-Wall", "-Wextra", "-Werror", *options, source, "-o", source.with_suffix(""), *flags, f"-Wl,-rpath,{folder.parent}")
    return source.with_suffix("")


def test_the_example_of_the_manual(prefix):
    page = (prefix / "share/man/man3/trajd_live.3").read_text()
    source = prefix / "live_example.c"
    source.write_text(re.search(r"\.Bd -literal.*?\n(.*?)\.Ed", page, re.S)[1].replace("\\e", "\\"))
    assert run(build(prefix, source, "-std=c11")) == "1 3, 2 5\n"


def test_the_header_is_also_cpp(prefix):
    if not shutil.which("g++"):
        pytest.skip("g++ is missing")
    source = prefix / "live_header.cpp"
    source.write_text("#include <trajd_live.h>\nint main() { trajd_live *none = nullptr; trajd_live_close(&none); }\n")
    run(build(prefix, source, "-std=c++17", compiler="g++"))


def test_it_needs_no_daemon_and_exports_its_header(prefix):
    library = next(prefix.glob("lib*/**/libtrajd_live.so.1"))
    needed = set(re.findall(r"NEEDED.*\[(\w+)", run("readelf", "-d", library)))
    assert needed <= {"libyaml", "libm", "libc", "ld"}
    symbols = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    declared = set(re.findall(r"^[a-z][\w *]*?\b(trajd_live_\w+)\(", (ROOT / "clients/live/trajd_live.h").read_text(), re.M))
    declared |= {"trajd_status_name", "trajd_dtype_size", "trajd_dtype_name", "trajd_dtype_parse"}
    assert declared == symbols - {"TRAJD_LIVE_1"} and len(declared) > 15
