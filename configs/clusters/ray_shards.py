#!/usr/bin/env python3
"""Runs a command of trajctl as tasks of Ray, one shard a task:

    ray_shards.py 16 resample /data/in -o /data/out --rate 20
    trajctl merge /data/out

All nodes share the folders and have trajctl. Ray starts a task that died again, and the shard goes on where it was."""
import subprocess
import sys

import ray


@ray.remote(num_cpus=1, max_retries=5, retry_exceptions=[subprocess.CalledProcessError])
def make_shard(command, shard, count):
    subprocess.run(["trajctl", *command, "--shard", f"{shard}/{count}"], check=True)


if __name__ == "__main__":
    if len(sys.argv) < 4 or not sys.argv[1].isdigit():
        sys.exit(f"usage: {sys.argv[0]} SHARDS preprocess|resample|pack WORD...")
    ray.init()
    count = int(sys.argv[1])
    ray.get([make_shard.remote(sys.argv[2:], shard, count) for shard in range(count)])
