"""Stands in for torchrun, which Debian's torch cannot start under Python 3.11: torchrun.py --nproc_per_node=N SCRIPT ARGUMENT...

Starts N ranks with torchrun's variables. If one fails, the others are ended, as by torchrun."""
import os
import socket
import subprocess
import sys
import time


def main(option, *command):
    ranks = int(option.partition("=")[2])
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    shared = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [subprocess.Popen([sys.executable, *command], env=os.environ | {
        name: str(value) for name, value in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()}) for rank in range(ranks)]
    while any(one.poll() is None for one in processes):
        if any(one.returncode for one in processes):
            for one in processes:
                one.terminate()
        time.sleep(0.05)
    return max(abs(one.returncode) for one in processes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
