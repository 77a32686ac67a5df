"""A stand-in for Slurm's srun on one node: runs COMMAND once a task with the step's environment, passes SIGTERM on, ends all when one fails."""
import argparse
import os
import signal
import subprocess
import sys

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


def end(*_):
    global is_over
    is_over = True
    for task in tasks:
        if task.poll() is None:
            task.terminate()


signal.signal(signal.SIGTERM, end)
for rank in range(step.ntasks):
    environment = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0", "SLURM_STEP_ID": "0",
                   "SLURM_NTASKS": str(step.ntasks), "SLURM_TASKS_PER_NODE": str(step.ntasks)}
    tasks.append(subprocess.Popen(step.command, start_new_session=True, env={**os.environ, **environment}))
if is_over:
    end()
worst = 0
for _ in tasks:
    pid, status = os.wait()
    task = next(task for task in tasks if task.pid == pid)
    task.returncode = os.waitstatus_to_exitcode(status)
    if task.returncode:
        worst = max(worst, task.returncode if task.returncode > 0 else 128 - task.returncode)
        if step.kill_on_bad_exit == "1":
            end()
sys.exit(worst)
