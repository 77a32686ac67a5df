#!/usr/bin/env python3
"""Pages run on a GPU as they are printed: README's training, and the ACT tutorial with torchrun, a rank that is killed, and
the run that goes on.

    BUNDLE/gpu_run.sh test_pages.py       # on the GPU machine; tests/tools/gpu_bundle.sh has made the bundle

Needs a Python from 3.9 whose torch has CUDA and torchrun. Without h5py the tutorial's robot is left out. Where fewer than four
GPUs are there, ranks share them: they choose GPU LOCAL_RANK modulo their number, and gloo stands in for NCCL, which refuses two
ranks on one GPU. The script itself is that of the page. Three minutes."""
import importlib.util
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

BUNDLE = pathlib.Path(__file__).resolve().parent
PAGES, PACKAGE = BUNDLE / "pages", BUNDLE / "python"
LIMIT_S = 280  # of a check
sys.path.insert(0, str(PACKAGE))

import gpu_checks  # noqa: E402
import torch  # noqa: E402
from page_blocks import blocks, commands, is_as_shown  # noqa: E402

RANKS = 4
FEW_GPUS = """
import runpy, sys, torch
count, set_device, init = torch.cuda.device_count(), torch.cuda.set_device, torch.distributed.init_process_group
torch.cuda.set_device = lambda index: set_device(index % count)
torch.distributed.init_process_group = lambda backend: init("gloo")
sys.argv.pop(0)
sys.path.insert(0, "")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Folder:
    """A folder with the data of the pages, and their programs on the PATH."""

    def __init__(self, name):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=f"trajd-{name}-"))
        programs = self.path / ".bin"
        programs.mkdir()
        few = torch.cuda.device_count() < RANKS
        (self.path / "few_gpus.py").write_text(FEW_GPUS)
        start = f'option=$1; shift; exec "{sys.executable}" -m torch.distributed.run "$option" {"few_gpus.py " if few else ""}"$@"'
        for program, line in {"python": f'exec "{sys.executable}" "$@"', "torchrun": start,
                              "trajctl": f'exec "{PACKAGE}/trajd/bin/trajctl" "$@"'}.items():
            (programs / program).write_text(f"#!/bin/sh\n{line}\n")
            (programs / program).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": f"{PACKAGE}", "TRAJD_JOB": "pages",
                            "TRAJD_RUNTIME_DIR": str(self.path), "XDG_CACHE_HOME": str(self.path / ".cache"), "OMP_NUM_THREADS": "1"}

    def start(self, command, **options):
        return subprocess.Popen(["bash", "-c", command], cwd=self.path, env=self.environment, text=True, **options)

    def run(self, command):
        """Returns the exit status and stdout."""
        done = self.start(command, stdout=subprocess.PIPE)
        printed = done.communicate()[0]
        return done.returncode, printed

    def run_shown(self, command, shown):
        """Runs a command of a page, which prints what the page shows."""
        begin = time.perf_counter()
        status, printed = self.run(command)
        print(f"$ {command}\n{printed}# {time.perf_counter() - begin:.1f} s", flush=True)
        assert status == (-9 if "--kill-after" in command else 0), f"{command}: exit status {status}"
        assert not shown or is_as_shown(shown, printed), f"the page shows:\n{shown}"
        return printed

    def run_page(self, page, *left_out):
        """Runs the console blocks of a page, and writes its files. Yields (command, what it printed)."""
        for kind, title, text in blocks((PAGES / page).read_text()):
            if title:
                (self.path / title).write_text(text)
            for command, shown in commands(text) if kind == "console" else []:
                if not any(word in command for word in left_out):
                    yield command, self.run_shown(command, shown)


def test_readme_trains():
    folder = Folder("readme")
    shutil.copy(PAGES / "demo.hdf5", folder.path)
    for command, _ in folder.run_page("README.md", "make", "venv", "pip", "cd ", "trajd.convert"):
        assert command.startswith("trajctl")
    training = next(text for kind, title, text in blocks((PAGES / "README.md").read_text()) if kind == "python" and "optimizer.step" in text)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lines = training + "print(len(feed), loss.device.type, loss.isfinite().item())\n"
    folder.run_shown(f"python -c {shlex.quote(lines)}", f"67 {device} True\n")


def test_act_on_four_ranks():
    folder = Folder("act")
    with tarfile.open(PAGES / "aloha.tar.gz") as tar:
        tar.extractall(folder.path)
    no_robot = () if importlib.util.find_spec("h5py") else ("deploy.py",)
    ran = dict(folder.run_page("act.md", "example_data.py", *no_robot))
    assert any(command.startswith("torchrun --nproc_per_node=4") for command in ran)

    # one rank is killed, as no page can print it
    (folder.path / "act.pt").unlink()
    command = "torchrun --nproc_per_node=4 train.py --epochs 300"
    with open(folder.path / "killed.txt", "w") as output:
        launcher = folder.start(f"exec {command}", stdout=output)
    while (folder.path / "killed.txt").read_text().count("\n") < 7:
        assert launcher.poll() is None, "torchrun ended before a rank was killed"
        time.sleep(0.01)
    ranks = [int(word) for word in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]
    victim = next(rank for rank in ranks if b"\0RANK=2\0" in pathlib.Path(f"/proc/{rank}/environ").read_bytes())
    os.kill(victim, signal.SIGKILL)
    begin = time.perf_counter()
    assert launcher.wait() == 1
    assert not any(pathlib.Path(f"/proc/{rank}").exists() for rank in ranks)
    killed = (folder.path / "killed.txt").read_text().splitlines()
    print(f"rank 2 killed after {len(killed)} steps: torchrun ended the others and itself within {time.perf_counter() - begin:.1f} s", flush=True)
    step = lambda line: [int(word.rstrip(",")) for word in line.split()[1:4:2]]  # noqa: E731  [epoch, first window]
    status, printed = folder.run(command.replace("300", str(step(killed[-1])[0] + 3)))
    resumed = printed.splitlines()
    epoch, window = step(killed[-1])
    following = [[epoch, 8] if window == 0 else [epoch + 1, 0], [epoch, window]]  # the last step may not have been saved
    assert status == 0 and step(resumed[0]) in following, (killed[-1], resumed[0])
    steps = [step(line) for line in resumed]
    assert steps == [[e, w] for e in range(epoch, epoch + 3) for w in (0, 8) if [e, w] >= steps[0]]
    print(f"it went on with \"{resumed[0]}\", after \"{killed[-1]}\"", flush=True)


if __name__ == "__main__":
    sys.exit(gpu_checks.main(globals(), LIMIT_S))
