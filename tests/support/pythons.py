"""The Pythons of this machine, for programs that need a module."""
import functools
import os
import subprocess
import sys

from paths import ROOT


@functools.cache
def find_python(module):
    """Returns a Python of this machine that has the module and numpy. The Python that runs this test comes first."""
    for python in dict.fromkeys((sys.executable, *(str(ROOT / f"build/venv-{name}/bin/python") for name in ("torch", "ray")), "/usr/bin/python3")):
        if os.path.exists(python) and subprocess.run([python, "-c", f"import {module}, numpy"], capture_output=True,
                                                     timeout=120).returncode == 0:
            return python
    return None
