"""Conversions by `python -m trajd.convert`: run in this process, or killed in another one."""
import contextlib
import io
import os
import subprocess
import sys

import h5py
import numpy as np
from paths import package_environment

from trajd.convert.__main__ import main

# What a process does at a moment of its conversion: before it writes an episode, when it has written the second one,
# and when the file is complete and still has its other name.
MOMENTS = {
    "first": "output._write = lambda group, episode: kill()",
    "second": "own = output._write\n"
              "output._write = lambda group, episode: (own(group, episode), kill() if group.name[-1] == '1' else None)",
    "end": "output.os.replace = lambda source, target: kill()",
}


def run(source, folder, output, *options):
    """Converts a folder or a list of files. Returns the exit status, the lines of stdout and what stderr got."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([source, *map(str, folder if isinstance(folder, list) else [folder]), "-o", str(output), *map(str, options)])
    return status, out.getvalue().splitlines(), err.getvalue().strip()


def converted(source, folder, output, *options):
    """Converts, and returns the lines of stdout."""
    status, lines, err = run(source, folder, output, *options)
    assert (status, err) == (0, ""), err
    return lines


def left_out(source, folder, output, *options):
    """Returns the sentences on what is left out or missing."""
    return [
        line for line in converted(source, folder, output, "--force", *options) if line.startswith(("left out", "kept"))
    ]


def kill_at(moment, source, folder, output, *options, partial=None):
    """Converts in a process that is killed. It leaves the file `partial`, by default that of `output`."""
    script = (
        "import os, signal, trajd.convert.output as output\nkill = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{MOMENTS[moment]}\n"
        f"from trajd.convert.__main__ import main\nmain({[source, str(folder), '-o', str(output), *options]})\n")
    killed = subprocess.run([sys.executable, "-c", script],
                            env={**os.environ, **package_environment()},
                            capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert [path.name for path in output.parent.glob(f"{output.stem}*.partial")] == [
        f"{(partial or output).name}.partial"
    ]


def contents(path):
    """Returns all datasets and attributes of a file."""
    found = {}
    with h5py.File(path) as file:
        def visit(name, one):
            found[name] = (one[()].tobytes(), one.dtype, one.shape) if isinstance(one, h5py.Dataset) else None
            found.update({(name, key): np.array(value).tolist() for key, value in one.attrs.items()})
        file.visititems(visit)
    return found


def kill_and_repeat(moment, source, folder, output):
    """Converts in a process that is killed, and again: the file is that of a run that nothing disturbed."""
    whole = output.with_name("whole.hdf5")
    converted(source, folder, whole)
    kill_at(moment, source, folder, output)
    converted(source, folder, output)
    assert contents(output) == contents(whole)
    assert not output.with_name(f"{output.name}.partial").exists()
