"""Grain: after kill -9 of the trainer, its loader processes go on waiting."""
import os
import pathlib
import subprocess
import sys
import time

import grain


def living(pids):
    return [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists() and ") Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text()]


if __name__ == "__main__" and sys.argv[1:] == ["train"]:
    data = grain.MapDataset.range(100_000).batch(8).to_iter_dataset()
    for _ in data.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)):
        print("batch", flush=True)
        time.sleep(0.1)
elif __name__ == "__main__":
    trainer = subprocess.Popen([sys.executable, __file__, "train"], stdout=subprocess.PIPE)
    trainer.stdout.readline()
    children = pathlib.Path(f"/proc/{trainer.pid}/task/{trainer.pid}/children").read_text().split()
    os.kill(trainer.pid, 9)
    trainer.wait()
    for seconds in (1, 10, 30):
        time.sleep(seconds - {1: 0, 10: 1, 30: 10}[seconds])
        print(f"{seconds} s after kill -9: {len(living(children))} of {len(children)} processes are there")
