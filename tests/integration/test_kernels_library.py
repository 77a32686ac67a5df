"""libtrajd_kernels as a foreign program uses it: from an installed prefix, through pkg-config alone."""
import os
import re
import shutil
import struct

import pytest

from installing import build, run
from paths import BUILD, SUPPORT

pytestmark = pytest.mark.release
MAP = BUILD / "kernels/library/libtrajd_kernels.map"
INLINE = {"trajd_window_row", "trajd_row_begin", "trajd_row_count", "trajd_anchor"}  # functions of resample.h


def test_a_program_runs_requests_without_allocating(prefix):
    lines = run(build(prefix, "trajd_kernels", SUPPORT / "kernels_user.c", "-std=c11")).splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    assert found["allocations"] == "0"
    assert found["equal"] == "1" and found["valid"] == "1"
    assert found["plan"].startswith("cpu_rows: 600 windows x 3 streams") and "2 threads" in found["plan"]
    assert found["reserved"] == "streams[1]: reserved is not zero (set the struct to zero first)"
    assert found["stream"] == "run: stream is not NULL, but the plan is for the CPU"
    assert found["gpu"] in ("unsupported", "not_found")


def test_the_example_of_the_manual(prefix):
    page = (prefix / "share/man/man3/trajd_kernels.3").read_text()
    source = prefix / "example.c"
    source.write_text(re.search(r"\.Bd -literal.*?\n(.*?)\.Ed", page, re.S)[1].replace("\\en", "\\n"))
    assert run(build(prefix, "trajd_kernels", source, "-std=c11")) == "1 2 4, mask 0\n"


def test_the_header_is_also_cpp(prefix):
    if not shutil.which("g++"):
        pytest.skip("g++ is missing")
    source = prefix / "header.cpp"
    source.write_text("#include <trajd_kernels.h>\nint main() { trajd_kernels *none = nullptr; trajd_kernels_close(&none); }\n")
    run(build(prefix, "trajd_kernels", source, "-std=c++17", compiler="g++"))


def exported(library, kind):
    """Returns the names in the dynamic table of an ELF file: {name: version}. kind: the option of nm."""
    found = {}
    for line in run("nm", "-D", kind, "--with-symbol-versions", library).splitlines():
        name, _, version = line.split()[-1].replace("@@", "@").partition("@")
        found[name] = version
    return found


def gpu_codes(library):
    """Returns the kinds of GPU that an ELF file has code for: {"90-real", "90-virtual"}."""
    data, codes = library.read_bytes(), set()
    for match in re.finditer(struct.pack("<IHH", 0xBA55ED50, 1, 16), data):  # the header of nvcc's container
        at = match.end() + 8
        end = at + struct.unpack_from("<Q", data, match.end())[0]
        while at < end:
            kind, header, size, number = struct.unpack_from("<H2xIQ12xI", data, at)
            codes.add(f"{number}-{'virtual' if kind == 1 else 'real'}")
            at += header + size
    return codes


def test_it_has_code_for_the_gpus_that_the_build_names(prefix):
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M))
    if cache.get("CMAKE_CUDA_COMPILER", "NOTFOUND").endswith("NOTFOUND"):
        pytest.skip("nvcc is missing")
    names = os.environ.get("CUDAARCHS", cache["TRAJD_CUDA_ARCHITECTURES"]).split(";")
    wanted = {code for name in names for code in ([name] if "-" in name else [f"{name}-real", f"{name}-virtual"])}
    assert gpu_codes(next(prefix.glob("lib*/**/libtrajd_kernels.so.1")).resolve()) == wanted


def names_of(node):
    """Returns the names that a node of the version map lists."""
    body = re.search(rf"^{node} {{\nglobal:\n(.*?)^(?:local:|}})", MAP.read_text(), re.M | re.S)[1]
    return set(re.findall(r"(\w+);", body))


def test_it_exports_the_functions_of_its_headers_and_nothing_else(prefix):
    library = next(prefix.glob("lib*/**/libtrajd_kernels.so.1"))
    symbols = {name: version for name, version in exported(library, "--defined-only").items() if not name.startswith("TRAJD_")}
    public = {name for name, version in symbols.items() if version == "TRAJD_KERNELS_1"}
    headers = "".join((prefix / "include/trajd" / name).read_text() for name in (
        "trajd_kernels.h", "kernels/resample.h", "proto/dtype.h", "proto/error.h"))
    declared = set(re.findall(r"^[a-z][\w *]*?\b(trajd_\w+)\(", headers, re.M)) - INLINE
    assert public == names_of("TRAJD_KERNELS_1") == declared - {"trajd_error_set", "trajd_error_prefix"}
    private = "TRAJD_KERNELS_[\\d.]+_PRIVATE"
    assert {name for name in symbols if name not in public} == names_of(private)
    assert all(re.fullmatch(private, version) for name, version in symbols.items() if name not in public)


def test_private_symbols_are_those_that_the_programs_load(prefix):
    extensions = [*(BUILD / "clients/python/trajd").glob("_core*.so")]
    if not extensions:
        pytest.skip("built without Python's headers")
    used = set().union(*(exported(path, "--undefined-only") for path in (*extensions, *prefix.glob("lib*/**/libtrajd_live.so.1"))))
    for name in ("bin/trajd", "bin/trajctl", "libexec/trajd/trajd-decoder"):
        program = prefix / name
        used |= set(exported(program, "--undefined-only"))
        assert "libtrajd_kernels.so.1" in run("readelf", "-d", program)
        assert "trajd_resample_cpu" not in run("nm", BUILD / {"trajd": "daemon/trajd", "trajctl": "clients/cli/trajctl"}.get(
            program.name, "daemon/decode/trajd-decoder"))  # no second copy of the kernels
    for extension in extensions:
        assert "trajd_resample_cpu" not in exported(extension, "--defined-only")
    assert names_of("TRAJD_KERNELS_[\\d.]+_PRIVATE") <= used


def test_installed_programs_find_the_library(prefix):
    assert "trajd" in run(prefix / "bin/trajd", "--version") and "trajctl" in run(prefix / "bin/trajctl", "--help")
