"""A training process: reads batches, and writes a line per batch to its log: the windows, and the state after them.

    python -m loaderproof.worker SPEC

SPEC is JSON: driver, folder, share, state, log, mutation, limit (batches) and pace_ms (of a training step). With `cost`,
only the numbers of windows are written; the process waits after its first batch until LOG.go exists, and does not end,
so that its cost can be read.

A line is written at once, as a checkpoint is that is renamed into its place: a line that is there counts."""
import json
import os
import pathlib
import sys
import time
import warnings

from .driver import Share, load
from .mutations import mutated


def write_line(file, **line):
    os.write(file, (json.dumps(line) + "\n").encode())


def main():
    spec = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    driver = mutated(load(spec["driver"]), spec.get("mutation"))(pathlib.Path(spec["folder"]))
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count = 0
    for batch in driver.read(Share(**spec["share"]), spec.get("state")):
        time.sleep(spec.get("pace_ms", 0) / 1000)
        count += 1
        if spec.get("cost"):
            write_line(log, count=len(batch.tick))
            while count == 1 and not os.path.exists(spec["log"] + ".go"):
                time.sleep(0.01)
        else:
            write_line(log, ids=batch.ids(), state=driver.state())
        if count == spec.get("limit"):
            break
    write_line(log, end=True)
    while spec.get("cost"):
        time.sleep(1)
    driver.close()


if __name__ == "__main__":
    main()
