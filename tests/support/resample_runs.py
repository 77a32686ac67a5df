"""Runs `trajctl resample`."""
import pathlib
import subprocess

from paths import TRAJCTL
from waiting import wait_for

def resample(*arguments, check=True):
    """Runs `trajctl resample`. With `check`, fails where its exit status is not 0."""
    done = subprocess.run([TRAJCTL, "resample", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, done.stderr
    return done


def has_rows(out, size=1 << 20):
    """Returns whether a run has written more than `size` bytes of its output."""
    partial = pathlib.Path(f"{out}.partial")
    return partial.exists() and partial.stat().st_size > size


def cut(out, number, *arguments):
    """Sends signal `number` to a run over make_long_file() after it has written some rows.

    Returns its exit status, standard output and standard error."""
    for _ in range(10):
        process = subprocess.Popen([TRAJCTL, "resample", *map(str, arguments), "-o", out, "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        wait_for(lambda: process.poll() is not None or has_rows(out), 60, "rows")
        process.send_signal(number)
        text, errors = process.communicate(timeout=60)
        if process.returncode:
            return process.returncode, text, errors
        pathlib.Path(out).unlink()  # the signal came after the end
    raise AssertionError("ten runs ended before the signal")
