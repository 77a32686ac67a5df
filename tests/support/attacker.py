"""Starts flood.py, and measures what it costs the daemon."""
import re
import subprocess
import sys

from paths import SUPPORT, clean_environment

MIB = 1 << 20


def begin_attack(*arguments):
    """Starts flood.py and waits until the attack has begun. The caller kills the process."""
    process = subprocess.Popen([sys.executable, SUPPORT / "flood.py", *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                               env=clean_environment())
    if process.stdout.readline() != "begun\n":
        process.kill()
        process.wait()
        raise AssertionError(f"the attack {arguments} did not begin")
    return process


def remote_endpoint(daemon):
    """Returns the endpoint for remote workers that the daemon has logged last."""
    return re.findall(r"remote workers at (tcp://[0-9.:]+)", daemon.text())[-1]


def anonymous_bytes(daemon):
    """Returns the daemon's anonymous memory."""
    with open(f"/proc/{daemon.process.pid}/status") as file:
        return int(re.search(r"RssAnon:\s*(\d+) kB", file.read())[1]) * 1024
