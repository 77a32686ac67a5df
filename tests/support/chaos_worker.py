"""A worker process of a chaos run. Reads one epoch, or goes on with it.

Compares each batch with the file, and prints one JSON line when it has begun to work on the batch: position, window ids, the place
of each window in the dataset, and what differs from the file. Then it works for `--work-ms`, and the release makes the batch DONE. So a batch whose line is printed by a process that lives on was worked on exactly once."""
import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import libtrajd as trajd  # noqa: E402
from chaos_images import Checker  # noqa: E402


def say(**fields):
    print(json.dumps(fields), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("endpoint")
    parser.add_argument("path", help="the dataset")
    parser.add_argument("--job", default="")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=0, help="0: mode queue")
    parser.add_argument("--position", type=int, default=0)
    parser.add_argument("--work-ms", type=float, default=5)
    options = parser.parse_args()
    checker = Checker(options.path)

    try:
        client = trajd.connect_in_time(trajd.load(options.build), options.endpoint)
        info = client.open("train", job=options.job, mode=trajd.SHARD if options.world else trajd.QUEUE, rank=options.rank,
                           world=options.world, position=options.position)
        say(event="open", windows=info.window_count, next=info.next)
        while (batch := client.next(timeout_ms=60000)) is not None:
            arrays = batch.arrays()
            places, faults = checker.check(arrays)
            say(event="batch", position=batch.position, ids=arrays["window_id"].tolist(), places=places, faults=faults)
            time.sleep(options.work_ms / 1000)
            batch.release()
        say(event="end")
        client.close()
    except trajd.TrajdError as error:
        say(event="error", message=str(error), status=error.status)
        sys.exit(1)


main()
