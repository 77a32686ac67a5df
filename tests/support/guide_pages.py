"""Runs the blocks of a page of the guide as they are printed, in their order and in one folder.

    ``` console             each `$ command` runs in bash, and prints what stands below it
    ``` yaml title="a.yaml" the block is written into that file; so are other blocks with a title
    ``` python              without a title: runs, after the earlier ones of the page
    ``` pycon               runs as a doctest, after the earlier ones of the page
    ``` text, ``` diff      are not run

`...` in an output stands for anything, as in doctest. Fingerprints, times and numbers of processes differ between runs
and are not compared. A command without an output below it may print what it likes."""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

from daemons import private_daemons
from page_blocks import blocks, commands, is_as_shown
from paths import PACKAGE, PROGRAM, ROOT, SUPPORT, TRAJCTL
from pythons import find_python
from waiting import wait_for

SESSION = """
import doctest, sys
test = doctest.DocTestParser().get_doctest(sys.argv[1], {}, "the page", None, 0)
sys.exit(doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test).failed > 0)
"""


class Shell:
    """A folder with the programs under test on its PATH, and private daemons of its own. `python` has torch, and the
    readers of `trajd.convert`, which another Python of this machine may have."""

    def __init__(self, folder):
        self.folder, self.place, self.source, self.session = folder, folder, "", ""
        self.torch = find_python("torch")
        bin_folder = folder / ".bin"
        bin_folder.mkdir()
        # `make TARGET` tells whether there is that target
        programs = {"make": f'exec {shutil.which("make")} -n -C {ROOT} "$@" >/dev/null', "pip": "exit 0", "trajctl": f'exec {TRAJCTL} "$@"',
                    "torchrun": f'exec {self.torch} {SUPPORT}/torchrun.py "$@"',
                    "python": f'case "$*" in *trajd.convert*|*example_data.py*|*make_demo_dataset.py*) exec {sys.executable} "$@";; esac; exec {self.torch} "$@"'}
        for name, line in programs.items():
            (bin_folder / name).write_text(f"#!/bin/sh\n{line}\n")
            (bin_folder / name).chmod(0o755)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("TRAJD_", "SLURM_", "MASTER_", "PYTEST_"))}
        self.environment.update(
            PATH=f"{bin_folder}:{os.environ['PATH']}", PYTHONPATH=str(PACKAGE), TRAJD_PROGRAM=str(PROGRAM), TRAJD=str(ROOT),
            TRAJD_RUNTIME_DIR=str(folder), TRAJD_JOB="guide", XDG_CACHE_HOME=str(folder / ".cache"), CUDA_VISIBLE_DEVICES="",
            PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")

    def run(self, command):
        """Returns the exit status and stdout. stderr goes to that of the test. `cd` holds for the next commands."""
        if command.startswith("cd "):
            self.place = self.place / command[3:].strip()
            return 0, ""
        done = subprocess.run(["bash", "-c", command], cwd=self.place, env=self.environment, stdout=subprocess.PIPE, text=True, timeout=300)
        return done.returncode, done.stdout

    def end(self):
        """Ends the private daemons, which would wait a minute for further processes."""
        for process in private_daemons(self.folder):
            os.kill(process, signal.SIGTERM)
        wait_for(lambda: not private_daemons(self.folder), 60, "the end of the daemons")

    def run_block(self, kind, title, text):
        """Runs one block. Yields (command, shown, status, printed) for each command."""
        if title:
            (self.place / title).write_text(text)
        elif kind == "console":
            for command, shown in commands(text):
                yield (command, shown, *self.run(command))
        elif kind == "python":
            self.source += text
            yield (text, "", *self.run(f"python -c {shlex.quote(self.source)}"))
        elif kind == "pycon":
            self.session += text
            yield (text, "", *self.run(f"{sys.executable} -c {shlex.quote(SESSION)} {shlex.quote(self.session)}"))


def print_page(path, folder):
    """Prints what each command of a page prints now: for those who write a page."""
    shell = Shell(folder)
    for block in blocks(pathlib.Path(path).read_text()):
        for command, shown, status, printed in shell.run_block(*block):
            print(f"{'' if is_as_shown(shown, printed) or not shown else 'DIFFERS '}[{status}] $ {command}\n{printed}", end="", flush=True)
