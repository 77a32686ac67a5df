"""A training process: reads batches, and writes a line per batch to its log: the windows, and the state after them.

    python -m loaderproof.worker SPEC

SPEC is JSON: driver, folder, share, state, log, mutation, limit (batches), pace_ms (of a training step), windows (if
false, only the number of windows is written). The line is written at once, as a checkpoint that is renamed into place
is: a line that is there counts."""
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
    begin = time.monotonic()
    count = 0
    for batch in driver.read(Share(**spec["share"]), spec.get("state")):
        time.sleep(spec.get("pace_ms", 0) / 1000)
        count += 1
        if not spec.get("windows", True):
            write_line(log, count=len(batch.tick), at=time.monotonic() - begin)
        else:
            write_line(log, ids=batch.ids(), state=driver.state())
        if count == spec.get("limit"):
            break
    write_line(log, end=True)
    driver.close()


if __name__ == "__main__":
    main()
