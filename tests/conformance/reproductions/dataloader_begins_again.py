"""torch: a DataLoader has no state. A training that is killed begins its epoch again, and has the first batches twice."""
import os
import subprocess
import sys

import torch
from torch.utils.data import DataLoader

if sys.argv[1:] == ["train"]:
    torch.manual_seed(0)
    for step, batch in enumerate(DataLoader(torch.arange(20), 2, shuffle=True)):
        print(*batch.tolist(), flush=True)
        if step == 4 and "FIRST" in os.environ:
            os.kill(os.getpid(), 9)  # a checkpoint of the model and the optimizer is there at each step
else:
    seen = [number for first in (True, False) for number in subprocess.run(
        [sys.executable, __file__, "train"], env={**os.environ, **({"FIRST": "1"} if first else {})}, stdout=subprocess.PIPE,
        text=True, check=False).stdout.split()]
    print(f"of 20 samples, {len(seen) - len(set(seen))} came twice after one kill at half of the epoch")
