"""Builds the wheel: the package and its extension, trajd, trajctl, trajd-indexer, libtrajd, libtrajd_kernels, the
layouts, and the libraries that they link.

    trajd_wheel.py --build build/release --out build/wheel     # as `make wheel` does
    pip install .                                              # a PEP 517 backend: configures and compiles first

In the wheel all files are in `trajd/` as in the prefix of an installation (bin, libexec, lib, share), so the programs
find each other in the same way (daemon/base/paths.c). auditwheel bundles the shared libraries, rewrites run paths, and
sets the manylinux tag of the C library. The extension uses the limited API, so one wheel serves every Python from 3.9.
The licence texts of the bundled libraries, shared and static, come from the distribution's packages that own them.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PYTHON_TAG = "cp39-abi3"
PROGRAMS = ("bin/trajd", "bin/trajctl", "libexec/trajd/trajd-indexer", "libexec/trajd/trajd-decoder")
# H.264 and HEVC. The wheels to publish have libavcodec in it; that of `make wheel` loads the distribution's
VIDEO_MODULE = "libexec/trajd/trajd-decoder-avcodec.so"
LIBRARIES = ("libtrajd", "libtrajd_kernels")  # libtrajd_live is for C; the extension has its code
SCRIPT = """#!python
import importlib.util, os, sys
folder = os.path.dirname(importlib.util.find_spec("trajd").origin)
os.execv(os.path.join(folder, "bin", "{name}"), sys.argv)
"""


def run(*command, **variables):
    """Runs a command and returns its output. Ends the program if it fails. Also finds programs installed by pip."""
    env = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '')}", **variables}
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"$ {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def read_project():
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    project["version"] = re.search(r"set\(TRAJD_VERSION ([^)]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]
    return project


# ---- content ----


def stage(build, folder, is_stripped=False):
    """Installs the package into folder/trajd, and returns that folder. A build for another processor is stripped already."""
    package = folder / "trajd"
    built = build / "clients" / "python" / "trajd"
    if not list(built.glob("_core*.so")):
        sys.exit(f"{built}: no extension; configure with Python's headers (python3-dev) and -DTRAJD_PYTHON=ON")
    with tempfile.TemporaryDirectory() as temporary:
        run("cmake", "--install", build, "--prefix", "/p", *([] if is_stripped else ["--strip"]), DESTDIR=temporary)
        prefix = pathlib.Path(temporary) / "p"
        for name in (*PROGRAMS, "share/trajd/layouts"):
            target = package / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (prefix / name).is_dir() else shutil.copy2)(prefix / name, target)
        if (prefix / VIDEO_MODULE).exists():
            shutil.copy2(prefix / VIDEO_MODULE, package / VIDEO_MODULE)
        (package / "lib").mkdir()
        for library in sorted(path for name in LIBRARIES for path in prefix.glob(f"lib*/**/{name}.so.?")):
            shutil.copy2(library, package / "lib" / library.name)  # under its soname, because a wheel has no symbolic links
    for path in sorted(built.iterdir()):
        if path.suffix in (".py", ".pyi", ".so", ".typed"):
            shutil.copy2(path.resolve(), package / path.name)
        elif (path / "__init__.py").exists():
            shutil.copytree(path.resolve(), package / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, run_path in ((next(package.glob("_core*.so")), "$ORIGIN/lib"),
                           (package / "bin/trajd", "$ORIGIN/../lib"), (package / "bin/trajctl", "$ORIGIN/../lib"),
                           (package / "libexec/trajd/trajd-decoder", "$ORIGIN:$ORIGIN/../../lib")):
        if not is_stripped:
            run("strip", "--strip-unneeded", path)
        run("patchelf", "--set-rpath", run_path, path)
    return package


def write_metadata(folder, project, tag):
    info = folder / f"trajd-{project['version']}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", "Name: trajd", f"Version: {project['version']}",
             f"Summary: {project['description']}", f"Keywords: {','.join(project['keywords'])}",
             f"License-Expression: {project['license']}", "License-File: LICENSE",
             f"Requires-Python: {project['requires-python']}", "Description-Content-Type: text/markdown"]
    lines += [f"Classifier: {name}" for name in project["classifiers"]]
    lines += [f"Requires-Dist: {name}" for name in project["dependencies"]]
    for extra, names in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f"Requires-Dist: {name}{' and' if ';' in name else ';'} extra == '{extra}'" for name in names]
    (info / "METADATA").write_text("\n".join(lines) + "\n\n" + (ROOT / project["readme"]).read_text())
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: trajd_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n")
    entries = "".join(f"{name} = {function}\n" for name, function in project["scripts"].items())
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{entries}")
    (info / "licenses").mkdir()
    shutil.copy2(ROOT / "LICENSE", info / "licenses" / "LICENSE")
    scripts = folder / f"trajd-{project['version']}.data" / "scripts"
    scripts.mkdir(parents=True)
    for name in ("trajd", "trajctl"):
        (scripts / name).write_text(SCRIPT.format(name=name))
        (scripts / name).chmod(0o755)
    return info


# ---- licences of bundled libraries ----


def package_of(path):
    """Returns the distribution's package that owns a file. Its list may have the path from before the merge of /usr."""
    real = os.path.realpath(path)
    for name in (real, real.removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    sys.exit(f"{path}: belongs to no package of the distribution, so its licence is unknown")


def needed_files(package):
    """Returns the path of each shared library that the staged programs load, by file name."""
    found = {}
    programs = [*(package / name for name in PROGRAMS), *package.glob("_core*.so")]
    for program in programs:
        for line in run("ldd", program).splitlines():
            match = re.match(r"\s*(\S+) => (/\S+)", line)
            if match:
                found[match[1]] = match[2]
                found[os.path.basename(os.path.realpath(match[2]))] = match[2]
    return found


def static_archives(build):
    cache = (build / "CMakeCache.txt").read_text()
    if "TRAJD_HDF5_STATIC:INTERNAL=1" not in cache:
        return []
    return re.findall(r"^TRAJD_(?:HDF5|SZ|AEC)_ARCHIVE:FILEPATH=(.*)$", cache, re.M)


def add_licences(folder, info, known, archives):
    """Adds one licence file for each package that owns a library in trajd.libs or a linked archive."""
    sources = list(archives)
    for path in sorted((folder / "trajd.libs").glob("*")):
        name = re.sub(r"-[0-9a-f]{8}(?=\.)", "", path.name)
        sources.append(known.get(name) or sys.exit(f"{path.name} is bundled, but its origin is unknown"))
    packages = sorted({package_of(path) for path in sources})
    for name in packages:
        shutil.copyfile(f"/usr/share/doc/{name}/copyright", info / "licenses" / f"{name}.txt")
    return packages


# ---- the file ----


def write_wheel(folder, info, path):
    """Writes RECORD and the zip file. Its bytes depend only on its content."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        files = sorted(p for p in folder.rglob("*") if p.is_file() and p != info / "RECORD")
        for file in files:
            data = file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{file.relative_to(folder)},sha256={digest},{len(data)}")
            put(archive, file.relative_to(folder), data, file.stat().st_mode & stat.S_IXUSR)
        record.append(f"{(info / 'RECORD').relative_to(folder)},,")
        put(archive, (info / "RECORD").relative_to(folder), ("\n".join(record) + "\n").encode(), False)
    return path


def put(archive, name, data, is_program):
    entry = zipfile.ZipInfo(str(name), (2020, 1, 1, 0, 0, 0))
    entry.external_attr = (stat.S_IFREG | (0o755 if is_program else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def unpack(path, folder):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        for entry in archive.infolist():
            (folder / entry.filename).chmod(entry.external_attr >> 16 & 0o777 or 0o644)


def make(build, out):
    """Builds the wheel. Returns its path and the packages whose licences it contains."""
    project = read_project()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        plain, repaired, final = (pathlib.Path(temporary) / name for name in ("plain", "repaired", "final"))
        plain.mkdir(), repaired.mkdir(), final.mkdir()
        package = stage(build, plain)
        known = needed_files(package)
        tag = f"{PYTHON_TAG}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        info = write_metadata(plain, project, tag)
        wheel = write_wheel(plain, info, pathlib.Path(temporary) / f"trajd-{project['version']}-{tag}.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "--exclude", "libavcodec.so.*", "--exclude", "libavutil.so.*",
            "--wheel-dir", repaired, wheel)
        wheel = next(repaired.glob("*.whl"))
        unpack(wheel, final)
        info = final / info.name
        (info / "RECORD").unlink()
        packages = add_licences(final, info, known, static_archives(build))
        for old in out.glob("trajd-*.whl"):
            old.unlink()
        return write_wheel(final, info, out / wheel.name), packages


# ---- PEP 517 ----


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build = ROOT / "build" / "package"
    run("cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DTRAJD_CUDA=OFF", "-DTRAJD_TESTS=OFF",
        f"-DPython3_EXECUTABLE={sys.executable}")
    run("cmake", "--build", build, "--parallel")
    return make(build, pathlib.Path(wheel_directory))[0].name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Builds the wheel from a finished build.")
    parser.add_argument("--build", default=ROOT / "build" / "release", type=pathlib.Path)
    parser.add_argument("--out", default=ROOT / "build" / "wheel", type=pathlib.Path)
    options = parser.parse_args()
    made, bundled = make(options.build.resolve(), options.out.resolve())
    print(f"{made} ({made.stat().st_size / 1e6:.1f} MB), with the licences of {', '.join(bundled)}")
