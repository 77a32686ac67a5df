"""Builds the wheels to publish, for x86-64 and 64-bit ARM: build/wheels/trajd-VERSION-cp39-abi3-manylinux_2_28_ARCH.whl.

    make wheels                                        # both
    make_wheels.py --arch aarch64                      # one, with the Python of build/venv-wheels

Runs on x86-64. All libraries are compiled here from pinned sources and linked statically, so a wheel needs nothing but
the C library, 2.28 or later. The daemon in these wheels makes batches on the CPU.
"""
import argparse
import os
import pathlib
import re
import shutil
import sys
import sysconfig
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import trajd_wheel  # noqa: E402 (beside this folder)
import wheel_libraries  # noqa: E402
import wheel_sources  # noqa: E402

ARCHES = ("x86_64", "aarch64")
LATEST_GLIBC = wheel_libraries.GLIBC.replace(".", "_")
PROGRAMS = {"nasm": "nasm", "autoreconf": "autoconf automake libtool", "dpkg-source": "dpkg-dev", "ninja": "ninja-build",
            "cmake": "cmake", "pkg-config": "pkg-config", "make": "make"}


def check_programs():
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if missing:
        sys.exit(f"make wheels needs more packages: apt-get install {' '.join(missing)}")


def copy_headers(work):
    """Copies Python's headers, because they lie beside those of this machine's C library, which must not be used. The
    limited API has the same pyconfig.h on both processors."""
    target = work / "python" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.rmtree(target, ignore_errors=True)
    source = pathlib.Path(sysconfig.get_path("include"))
    if not (source / "Python.h").exists():
        sys.exit(f"{source}/Python.h is missing: apt-get install python3-dev")
    shutil.copytree(source, target)
    shutil.copyfile(sysconfig.get_config_h_filename(), target / "pyconfig.h")
    return target


def build_trajd(tools, headers):
    build, log = tools.work / "trajd", tools.work / "trajd.log"
    log.unlink(missing_ok=True)
    cpu_model = wheel_libraries.build_cpu_model(tools)
    print(f"{tools.arch}: trajd", flush=True)
    tools.cmake(trajd_wheel.ROOT, build, [
        "-DCMAKE_BUILD_TYPE=Release", "-DTRAJD_CUDA=OFF", "-DTRAJD_TESTS=OFF", "-DPKG_CONFIG_ARGN=--static",
        f"-DPython3_EXECUTABLE={sys.executable}", f"-DPython3_INCLUDE_DIR={headers}",
        f"-DHDF5_ROOT={tools.prefix}", "-DHDF5_NO_FIND_PACKAGE_CONFIG_FILE=ON", f"-DCMAKE_C_STANDARD_LIBRARIES=-lc++{cpu_model}",
        *(["-DCMAKE_C_FLAGS=-DTRAJD_CLANG_CLONES"] if cpu_model else [])], log)
    return build


def add_licences(info, sources, pins):
    for name in pins:
        shutil.copyfile(sources / name / "debian" / "copyright", info / "licenses" / f"{name}.txt")
    import ziglang
    lib = pathlib.Path(ziglang.__file__).parent / "lib"
    for name in ("libcxx", "libcxxabi", "libunwind"):
        found = next(iter(sorted((lib / name).glob("LICENSE*"))), None)
        shutil.copyfile(found or sys.exit(f"{lib / name}: no licence"), info / "licenses" / f"{name}.txt")


def check_tag(wheel, arch):
    """Ends the program unless auditwheel finds that the wheel runs with the C library that its tag promises."""
    text = trajd_wheel.run(sys.executable, "-m", "auditwheel", "show", wheel)
    found = re.search(r'tag:\s+"manylinux_2_(\d+)_(\w+)"', text)
    if not found or found[2] != arch or int(found[1]) > int(LATEST_GLIBC.split("_")[1]):
        sys.exit(f"{wheel.name}: auditwheel disagrees with its tag\n{text}")


def pack(tools, build, sources, pins, out):
    project = trajd_wheel.read_project()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        trajd_wheel.stage(build, folder, is_stripped=True)
        tag = f"{trajd_wheel.PYTHON_TAG}-manylinux_{LATEST_GLIBC}_{tools.arch}"
        info = trajd_wheel.write_metadata(folder, project, tag)
        add_licences(info, sources, pins)
        for old in out.glob(f"trajd-*_{tools.arch}.whl"):
            old.unlink()
        wheel = trajd_wheel.write_wheel(folder, info, out / f"trajd-{project['version']}-{tag}.whl")
    check_tag(wheel, tools.arch)
    return wheel


def main():
    parser = argparse.ArgumentParser(description="Builds the wheels to publish.")
    parser.add_argument("--arch", choices=ARCHES, action="append", help="one processor (both)")
    parser.add_argument("--out", default=trajd_wheel.ROOT / "build" / "wheels", type=pathlib.Path)
    parser.add_argument("--jobs", default=os.cpu_count())
    options = parser.parse_args()
    check_programs()
    out = options.out.resolve()
    pins = wheel_sources.fetch(out / "sources")
    wheel_sources.unpack(out / "sources", pins, out / "src")
    headers = copy_headers(out)
    for arch in options.arch or ARCHES:
        tools = wheel_libraries.Toolchain(arch, out / arch, options.jobs)
        wheel_libraries.build_libraries(tools, out / "src")
        wheel = pack(tools, build_trajd(tools, headers), out / "src", pins, out)
        print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
