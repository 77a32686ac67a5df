"""The build under test, installed."""
import fcntl
import subprocess

from paths import BUILD, clean_environment


def install(prefix, **variables):
    """Installs the build under test. One process at a time: cmake writes install_manifest.txt into the build's folder."""
    with open(BUILD / "install.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], capture_output=True, text=True,
                              env=clean_environment(**variables), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def run(*command, **variables):
    """Returns what a command prints. `variables` come to the environment."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=clean_environment(**variables), timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(prefix, package, source, *options, compiler="gcc"):
    """Returns a program of the source, built with the flags of pkg-config, and without any path of this tree."""
    folder = next(prefix.glob("lib*/**/pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", package, PKG_CONFIG_PATH=str(folder)).split()
    program = prefix / source.stem
    run(compiler, "-Wall", "-Wextra", "-Werror", *options, source, "-o", program, *flags, f"-Wl,-rpath,{folder.parent}")
    return program
