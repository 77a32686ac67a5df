"""Tells where the daemons of a test stand that waited in vain."""
import pathlib
import shutil
import subprocess


def children():
    """Returns the numbers of the processes that this one has started and that still run."""
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def describe(pid):
    """Returns the command of a process and the stack of each of its threads. Without gdb, where the kernel has them wait."""
    process = pathlib.Path(f"/proc/{pid}")
    command = process.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    if shutil.which("gdb"):
        command_line = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 12"]
        found = subprocess.run(command_line, capture_output=True, text=True, errors="replace", timeout=60).stdout
        lines = [line for line in found.splitlines() if line.startswith(("#", "Thread"))]
    else:
        tasks = sorted(process.joinpath("task").iterdir())
        lines = [f"{task.name} {(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}" for task in tasks]
    return "\n".join([f"{pid} {command}", *lines])


def stacks_of_children():
    """Returns the stacks of all children as text."""
    texts = []
    for pid in children():
        try:
            texts.append(describe(pid))
        except (OSError, subprocess.TimeoutExpired) as error:  # the process has ended meanwhile
            texts.append(f"{pid}: {error}")
    return "\n\n".join(texts)
