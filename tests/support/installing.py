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
