"""libtrajd_live as a foreign program uses it: from an installed prefix, through pkg-config alone."""
import re
import shutil

import pytest

from installing import build, run
from paths import ROOT

pytestmark = pytest.mark.release


def test_the_example_of_the_manual(prefix):
    page = (prefix / "share/man/man3/trajd_live.3").read_text()
    source = prefix / "live_example.c"
    source.write_text(re.search(r"\.Bd -literal.*?\n(.*?)\.Ed", page, re.S)[1].replace("\\e", "\\"))
    assert run(build(prefix, "trajd_live", source, "-std=c11")) == "1 3, 2 5\n"


def test_the_header_is_also_cpp(prefix):
    if not shutil.which("g++"):
        pytest.skip("g++ is missing")
    source = prefix / "live_header.cpp"
    source.write_text("#include <trajd_live.h>\nint main() { trajd_live *none = nullptr; trajd_live_close(&none); }\n")
    run(build(prefix, "trajd_live", source, "-std=c++17", compiler="g++"))


def test_it_needs_no_daemon_and_exports_its_header(prefix):
    library = next(prefix.glob("lib*/**/libtrajd_live.so.1"))
    needed = set(re.findall(r"NEEDED.*\[(\w+)", run("readelf", "-d", library)))
    assert needed <= {"libyaml", "libm", "libc", "libgcc_s", "ld"}  # libgcc_s: divisions of 128 bits
    symbols = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    declared = set(re.findall(r"^[a-z][\w *]*?\b(trajd_live_\w+)\(", (ROOT / "clients/live/trajd_live.h").read_text(), re.M))
    declared |= {"trajd_status_name", "trajd_dtype_size", "trajd_dtype_name", "trajd_dtype_parse"}
    assert declared == symbols - {"TRAJD_LIVE_1"} and len(declared) > 15
