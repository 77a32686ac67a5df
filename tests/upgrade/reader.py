"""A worker for the package of any version: prints a JSON line for each batch, and one for the state at the end.

reader.py ENDPOINT FEED [EPOCH]     PYTHONPATH names the package. An empty line on standard input asks for the next batch;
the end of the input ends the worker. --resume HEX continues from a checkpoint, --state FILE from a saved state."""
import argparse
import hashlib
import json
import sys

import trajd

DESCRIBING = ("window_id", "dataset_index", "episode_index", "anchor_ns")


def describe(batch):
    digests = {name: hashlib.blake2b(batch[name].tobytes(), digest_size=8).hexdigest() for name in sorted(batch)
               if name not in DESCRIBING}
    return {"epoch": batch.epoch, "position": batch.position, "windows": batch["window_id"].tolist(), "values": digests}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("feed")
    parser.add_argument("epoch", type=int, nargs="?", default=0)
    parser.add_argument("--state", type=argparse.FileType())
    parser.add_argument("--resume", type=bytes.fromhex)
    parser.add_argument("--credit", type=int)
    arguments = parser.parse_args()
    feed = trajd.connect(arguments.endpoint, feed=arguments.feed, timeout=30, epoch=arguments.epoch, resume=arguments.resume,
                         credit=arguments.credit)
    if arguments.state:
        feed.load_state_dict(json.load(arguments.state))
    batches = feed.epoch(arguments.epoch)
    for _ in sys.stdin:
        batch = next(batches, None)
        if batch is None:
            break
        print(json.dumps(describe(batch)), flush=True)
        batch.release()
    state = feed.state_dict()
    print(json.dumps({"state": state, "checkpoint": feed.checkpoint().hex()}), flush=True)
    feed.close()


main()
