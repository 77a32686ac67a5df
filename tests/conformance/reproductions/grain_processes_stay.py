"""Grain: after kill -9 of the trainer, its loader processes stay."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import grain

if __name__ == "__main__" and sys.argv[1:] == ["train"]:
    data = grain.MapDataset.range(100_000).batch(8).to_iter_dataset()
    for _ in data.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)):
        print("batch", flush=True)
        time.sleep(0.1)
elif __name__ == "__main__":
    trainer = subprocess.Popen([sys.executable, __file__, "train"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    trainer.stdout.readline()
    threads = pathlib.Path(f"/proc/{trainer.pid}/task").glob("*/children")
    children = [pid for path in threads for pid in path.read_text().split()]
    trainer.kill()
    trainer.wait()
    time.sleep(30)
    left = [pid for pid in children if pathlib.Path(f"/proc/{pid}").exists()]
    print(f"30 s after kill -9, {len(left)} of {len(children)} processes are there", flush=True)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
