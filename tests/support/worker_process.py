"""A worker process for tests to kill, stop and continue.

Prints one JSON line per batch after it has read the batch, so that the lines are the batches that it worked on.
`--hold N` keeps N batches and then waits for a line on standard input."""
import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import libtrajd as trajd  # noqa: E402


def say(**fields):
    print(json.dumps(fields), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("endpoint")
    parser.add_argument("feed")
    parser.add_argument("--hold", type=int, default=0)
    parser.add_argument("--pace", action="store_true", help="wait for a line on standard input before each batch")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=0)
    parser.add_argument("--epoch", type=int, default=0)
    parser.add_argument("--position", type=int, default=0)
    parser.add_argument("--credit", type=int, default=0)
    parser.add_argument("--key", help="of a tcp:// endpoint")
    parser.add_argument("--job", default="")
    options = parser.parse_args()

    client = trajd.Client(trajd.load(options.build), options.endpoint, reconnect=True, key_file=options.key)
    info = client.open(options.feed, mode=trajd.SHARD if options.world else trajd.QUEUE, rank=options.rank,
                       world=options.world, job=options.job, epoch=options.epoch, position=options.position, credit=options.credit)
    say(event="open", length=info.epoch_length, windows=info.window_count, next=info.next, fingerprint=info.fingerprint, pid=os.getpid())
    held = []
    while True:
        if options.pace:
            sys.stdin.readline()
        batch = client.next(timeout_ms=60000)
        if batch is None:
            break
        ids = batch.arrays()["window_id"].tolist()
        say(event="batch", position=batch.position, ids=ids)
        if len(held) < options.hold:
            held.append(batch)
            if len(held) == options.hold:
                say(event="holding")
                sys.stdin.readline()
        else:
            batch.release()
    for batch in held:
        batch.release()
    say(event="end")
    client.close()


main()
