"""Compiles the libraries of sources.txt for one processor, as static archives, with Zig's compiler.

The compiler brings headers and symbols of each release of the GNU C library, so that the programs need no later one
than GLIBC. Features that trajd does not use are left out: Kerberos, PGM, NORM and libbsd of ZeroMQ; tools, tests and
language bindings of all.
"""
import os
import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
GLIBC = "2.28"
FLAGS = "-O2 -g0 -fPIC -fno-sanitize=undefined -fstack-protector-strong"
CMAKE, CONFIGURE, MAKE, MESON = "cmake", "configure", "make", "meson"
COMMON = ("-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DCMAKE_POSITION_INDEPENDENT_CODE=ON")
# Each package with its build system and options. A package stands after those that it uses.
LIBRARIES = {
    "zlib": (CONFIGURE, ["--static"]),
    "libsodium": (CONFIGURE, ["--host={arch}-linux-gnu", "--disable-shared", "--enable-static", "--with-pic"]),
    "libyaml": (CONFIGURE, ["--host={arch}-linux-gnu", "--disable-shared", "--enable-static", "--with-pic"]),
    "libdeflate": (MAKE, ["DISABLE_SHARED=1"]),
    "msgpack-c": (CMAKE, ["-DMSGPACK_ENABLE_SHARED=OFF", "-DMSGPACK_BUILD_TESTS=OFF", "-DMSGPACK_BUILD_EXAMPLES=OFF"]),
    "libjpeg-turbo": (CMAKE, ["-DENABLE_SHARED=OFF", "-DWITH_TURBOJPEG=OFF", "-DREQUIRE_SIMD=ON", "-DWITH_JAVA=OFF"]),
    "libpng1.6": (CMAKE, ["-DPNG_SHARED=OFF", "-DPNG_TESTS=OFF", "-DPNG_EXECUTABLES=OFF", "-DPNG_TOOLS=OFF"]),
    "zeromq3": (CMAKE, ["-DBUILD_SHARED=OFF", "-DBUILD_STATIC=ON", "-DBUILD_TESTS=OFF", "-DWITH_PERF_TOOL=OFF",
                        "-DWITH_LIBSODIUM=ON", "-DENABLE_CURVE=ON", "-DWITH_LIBBSD=OFF", "-DWITH_TLS=OFF",
                        "-DENABLE_WS=OFF", "-DWITH_OPENPGM=OFF", "-DWITH_NORM=OFF", "-DWITH_DOCS=OFF",
                        "-DZMQ_BUILD_TESTS=OFF", "-DENABLE_CPACK=OFF"]),
    "hdf5": (CMAKE, ["-DHDF5_BUILD_TOOLS=OFF", "-DHDF5_BUILD_HL_LIB=OFF", "-DHDF5_BUILD_EXAMPLES=OFF",
                     "-DBUILD_TESTING=OFF", "-DHDF5_BUILD_CPP_LIB=OFF", "-DHDF5_BUILD_FORTRAN=OFF",
                     "-DHDF5_ENABLE_Z_LIB_SUPPORT=ON", "-DHDF5_ENABLE_SZIP_SUPPORT=OFF",
                     "-DHDF5_ENABLE_NONSTANDARD_FEATURE_FLOAT16=OFF"]),
    "dav1d": (MESON, ["-Denable_tools=false", "-Denable_tests=false"]),
    # LGPL parts only: the decoders of H.264 and HEVC. Its configure is its own, not that of autoconf
    "ffmpeg": (CONFIGURE, ["--enable-cross-compile", "--target-os=linux", "--arch={arch}", "--cc={bin}/cc", "--ar={bin}/ar",
                           "--ranlib={bin}/ranlib", "--extra-cflags=-I{bin}/include", "--disable-all", "--disable-doc",
                           "--disable-autodetect", "--disable-debug", "--disable-pthreads", "--enable-pic",
                           "--enable-avcodec", "--enable-decoder=h264,hevc"]),
}


def run(command, log, **variables):
    with open(log, "a") as out:
        out.write(f"$ {' '.join(map(str, command))}\n")
        out.flush()
        done = subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
                              env={**os.environ, **variables})
    if done.returncode != 0:
        tail = "\n".join(pathlib.Path(log).read_text(errors="replace").splitlines()[-40:])
        sys.exit(f"{tail}\n{' '.join(map(str, command[:3]))} failed; all of it is in {log}")


class Toolchain:
    """Compilers and settings for one processor, in the folder work/bin, and the folder work/prefix for libraries."""

    def __init__(self, arch, work, jobs):
        import ziglang
        self.arch, self.work, self.jobs = arch, work, jobs
        self.prefix, self.bin = work / "prefix", work / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        zig = pathlib.Path(ziglang.__file__).parent / "zig"
        target = f"-target {arch}-linux-gnu.{GLIBC} {FLAGS}"
        for name, words in (("cc", f"cc {target}"), ("c++", f"c++ {target}"), ("ar", "ar"), ("ranlib", "ranlib")):
            script = self.bin / name
            script.write_text(f'#!/bin/sh\nexec "{zig}" {words} "$@"\n')
            script.chmod(0o755)
        # ffmpeg finds the function sysctl of older C libraries, and asks for the header that Zig does not bring
        (self.bin / "include/sys").mkdir(parents=True, exist_ok=True)
        (self.bin / "include/sys/sysctl.h").touch()
        self.file = work / "toolchain.cmake"
        self.file.write_text(self.cmake_text())

    def cmake_text(self):
        return "\n".join([
            "set(CMAKE_SYSTEM_NAME Linux)", f"set(CMAKE_SYSTEM_PROCESSOR {self.arch})",
            f"set(CMAKE_C_COMPILER {self.bin}/cc)", f"set(CMAKE_CXX_COMPILER {self.bin}/c++)",
            f"set(CMAKE_AR {self.bin}/ar)", f"set(CMAKE_RANLIB {self.bin}/ranlib)",
            f"set(CMAKE_FIND_ROOT_PATH {self.prefix})", f"set(CMAKE_PREFIX_PATH {self.prefix})",
            *(f"set(CMAKE_FIND_ROOT_PATH_MODE_{kind} {mode})"
              for kind, mode in (("LIBRARY", "ONLY"), ("INCLUDE", "ONLY"), ("PACKAGE", "ONLY"), ("PROGRAM", "NEVER"))),
            f'set(CMAKE_EXE_LINKER_FLAGS_INIT "-s -L{self.prefix}/lib")',
            f'set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s -L{self.prefix}/lib")',
            f'set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s -L{self.prefix}/lib")', ""])

    def variables(self):
        return {"PKG_CONFIG_LIBDIR": f"{self.prefix}/lib/pkgconfig:{self.prefix}/share/pkgconfig", "PKG_CONFIG_PATH": "",
                "CC": f"{self.bin}/cc", "CXX": f"{self.bin}/c++", "AR": f"{self.bin}/ar", "RANLIB": f"{self.bin}/ranlib"}

    def cmake(self, source, build, options, log, targets=()):
        run(["cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_TOOLCHAIN_FILE={self.file}",
             "-DCMAKE_POLICY_VERSION_MINIMUM=3.5", *options], log, **self.variables())
        run(["cmake", "--build", build, "-j", self.jobs, *targets], log, **self.variables())


def build_cpu_model(tools):
    """Builds the library of cpu_model.c. Returns the option that links it: none for another processor than x86-64."""
    if tools.arch != "x86_64":
        return ""
    log, target = tools.work / "cpu_model.log", tools.prefix / "lib"
    target.mkdir(parents=True, exist_ok=True)
    run([tools.bin / "cc", "-fvisibility=hidden", "-c", FOLDER / "cpu_model.c", "-o", tools.work / "cpu_model.o"], log)
    run([tools.bin / "ar", "rcs", target / "libcpu_model.a", tools.work / "cpu_model.o"], log)
    return " -lcpu_model"


def build_by_cmake(tools, source, build, options, log):
    tools.cmake(source, build, [*COMMON, f"-DCMAKE_INSTALL_PREFIX={tools.prefix}", f"-DCMAKE_INSTALL_LIBDIR={tools.prefix}/lib", *options], log)
    run(["cmake", "--install", build], log)


def build_by_configure(tools, source, build, options, log):
    build.mkdir(parents=True)
    if not (source / "configure").exists():
        run(["autoreconf", "--install", "--force", source], log)
    run(["env", "-C", build, source / "configure", f"--prefix={tools.prefix}",
         *(option.format(arch=tools.arch, bin=tools.bin) for option in options)], log, **tools.variables())
    run(["make", "-C", build, "-j", tools.jobs], log)
    run(["make", "-C", build, "install"], log)


def build_by_make(tools, source, build, options, log):
    shutil.copytree(source, build)
    words = [f"{name}={value}" for name, value in tools.variables().items() if name in ("CC", "AR")]
    run(["make", "-C", build, "-j", tools.jobs, *words, f"PREFIX={tools.prefix}", *options, "install"], log)


def build_by_meson(tools, source, build, options, log):
    cross = tools.work / "cross.ini"
    cross.write_text(f"[binaries]\nc = '{tools.bin}/cc'\nar = '{tools.bin}/ar'\n[host_machine]\nsystem = 'linux'\n"
                     f"cpu_family = '{tools.arch}'\ncpu = '{tools.arch}'\nendian = 'little'\n")
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    run([*meson, "setup", build, source, f"--cross-file={cross}", f"--prefix={tools.prefix}", "--libdir=lib",
         "--buildtype=release", "--default-library=static", *options], log)
    run([*meson, "install", "-C", build], log)


BUILDERS = {CMAKE: build_by_cmake, CONFIGURE: build_by_configure, MAKE: build_by_make, MESON: build_by_meson}


def build_libraries(tools, sources):
    """Builds and installs each library that is not yet in the prefix."""
    for name, (system, options) in LIBRARIES.items():
        done, build = tools.work / f"{name}.done", tools.work / "libraries" / name
        if done.exists():
            continue
        print(f"{tools.arch}: {name}", flush=True)
        shutil.rmtree(build, ignore_errors=True)
        build.parent.mkdir(exist_ok=True)
        BUILDERS[system](tools, sources / name, build, options, tools.work / f"{name}.log")
        done.touch()
