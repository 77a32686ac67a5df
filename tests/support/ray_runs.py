"""Runs in a Python that has Ray, on a cluster of this machine: ray_runs.py NODES JOBS.json

Each job is {"kind": "train", ...} or {"kind": "shards", ...}. A job of training writes a line for each step of each rank
into its folder. A job or shard with "kill" kills its processes once by SIGKILL, and Ray starts them again."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import ray
from ray.cluster_utils import Cluster

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "configs/clusters"))
START_TRIES = 3  # on a busy machine Ray's own processes may start too slowly for each other


def begin(nodes):
    for left in reversed(range(START_TRIES)):
        try:
            cluster = Cluster()
            for _ in range(nodes):
                cluster.add_node(num_cpus=4 // nodes, object_store_memory=200 << 20, include_dashboard=False)
            ray.init(address=cluster.address, logging_level="ERROR")
            return cluster
        except Exception:
            if not left:
                raise
            ray.shutdown()
            cluster.shutdown()


def watched_loop(job):
    """The training loop of ray_train.py, with a line for each step."""
    import ray.train
    import ray_train
    rank, folder, loss_of, count = ray.train.get_context().get_world_rank(), pathlib.Path(job["folder"]), ray_train.loss_of, 0

    def watched(model, batch):
        nonlocal count
        loss = loss_of(model, batch)
        with open(folder / f"rank-{rank}", "a") as out:
            print(batch["window_id"].tolist(), loss.item().hex(), file=out)
        count += 1
        if count == job["kill"] and rank == 1 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss

    ray_train.loss_of = watched
    ray_train.train_loop_per_worker(job)
    (folder / f"node-{ray.get_runtime_context().get_node_id()}").touch()


def train(job):
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    TorchTrainer(watched_loop, train_loop_config=job, scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
                 run_config=RunConfig(storage_path=job["folder"], failure_config=FailureConfig(max_failures=2))).fit()


@ray.remote(num_cpus=1, max_retries=20, retry_exceptions=True)
def make_shard(command, shard, count, folder):
    """Runs a shard, and dies with it at a random time in most of its tries."""
    tries = len(list(folder.glob(f"try-{shard}-*")))
    (folder / f"try-{shard}-{tries}").touch()
    process = subprocess.Popen([*command, "--shard", f"{shard}/{count}"])
    if tries < 3:
        time.sleep(random.Random(100 * shard + tries).uniform(0, 0.1))
        if process.poll() is None:
            process.kill()
            os.kill(os.getpid(), signal.SIGKILL)
    if process.wait():
        raise RuntimeError(f"shard {shard}/{count} failed")


def shards(job):
    ray.get([make_shard.remote(job["command"], shard, job["count"], pathlib.Path(job["folder"])) for shard in range(job["count"])])


if __name__ == "__main__":
    cluster = begin(int(sys.argv[1]))
    for one in json.loads(pathlib.Path(sys.argv[2]).read_text()):
        {"train": train, "shards": shards}[one["kind"]](one)
    ray.shutdown()
    cluster.shutdown()
