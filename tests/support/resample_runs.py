"""Runs `trajctl resample`."""
import pathlib
import subprocess

from paths import TRAJCTL
from waiting import wait_for

JOURNAL_HEAD_BYTES = 8 * (5 + 2 * 24 + 1)  # of a run over make_long_file(): its words, two datasets per episode, a digest


def resample(*arguments, check=True):
    """Runs `trajctl resample`. With `check`, fails where its exit status is not 0."""
    done = subprocess.run([TRAJCTL, "resample", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, done.stderr
    return done


def cut(out, number, *arguments):
    """Sends signal `number` to a run over make_long_file() after it has finished some episodes.

    Returns its exit status, standard output and standard error."""
    journal = pathlib.Path(f"{out}.partial.journal")
    for _ in range(10):
        process = subprocess.Popen([TRAJCTL, "resample", *map(str, arguments), "-o", out, "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        wait_for(lambda: process.poll() is not None or (journal.exists() and journal.stat().st_size > JOURNAL_HEAD_BYTES), 60,
                 "an episode")
        process.send_signal(number)
        text, errors = process.communicate(timeout=60)
        if process.returncode:
            return process.returncode, text, errors
        pathlib.Path(out).unlink()  # the signal came after the end
    raise AssertionError("ten runs ended before the signal")
