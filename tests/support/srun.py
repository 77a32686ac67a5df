"""Replaces Slurm's srun on one node. Runs COMMAND once per task with the step's environment. Kills all tasks on
SIGTERM, or when one fails.

`srun.py --scancel --signal=TERM JOB.STEP` replaces scancel: the tasks of that step get the signal."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys

FOLDER = pathlib.Path(os.environ["TMPDIR"])
if sys.argv[1] == "--scancel":
    assert sys.argv[2] == "--signal=TERM"
    os.kill(int((FOLDER / ("step." + sys.argv[3])).read_text()), signal.SIGUSR1)
    sys.exit()
parser = argparse.ArgumentParser()
parser.add_argument("--overlap", action="store_true", required=True)  # without it the second step of a job would wait for the first
parser.add_argument("--nodes", type=int, default=int(os.environ["SLURM_NNODES"]))
parser.add_argument("--ntasks", type=int, default=int(os.environ["SLURM_NTASKS"]))
parser.add_argument("--ntasks-per-node", type=int)
parser.add_argument("--mem")
parser.add_argument("--kill-on-bad-exit", default="0")
parser.add_argument("command", nargs=argparse.REMAINDER)
step = parser.parse_args()
assert step.nodes == 1 and step.ntasks_per_node in (None, step.ntasks)
tasks, is_over = [], False


def end(number, *_):
    global is_over
    is_over = True
    for task in tasks:
        if task.returncode is None:
            task.send_signal(signal.SIGTERM if number == signal.SIGUSR1 else signal.SIGKILL)


signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, end)
number = next(n for n in range(9) if not (FOLDER / f"step.{os.environ['SLURM_JOB_ID']}.{n}").exists())
(FOLDER / f"step.{os.environ['SLURM_JOB_ID']}.{number}").write_text(str(os.getpid()))
for rank in range(step.ntasks):
    environment = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0", "SLURM_STEP_ID": str(number),
                   "SLURM_NTASKS": str(step.ntasks), "SLURM_TASKS_PER_NODE": str(step.ntasks)}
    tasks.append(subprocess.Popen(step.command, start_new_session=True, env={**os.environ, **environment}))
if is_over:
    end(signal.SIGTERM)
worst = 0
for _ in tasks:
    pid, status = os.wait()
    task = next(task for task in tasks if task.pid == pid)
    task.returncode = os.waitstatus_to_exitcode(status)
    if task.returncode:
        worst = max(worst, task.returncode if task.returncode > 0 else 128 - task.returncode)
        if step.kill_on_bad_exit == "1":
            end(signal.SIGTERM)
sys.exit(worst)
