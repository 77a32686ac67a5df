"""Runs in a Python that has Ray, on a cluster of this machine: ray_runs.py NODES JOBS.json

Each job trains by ray_train.py and writes a line for each step of each rank into its folder. With "kill", rank 1 kills
itself once at that step, and Ray starts the workers again."""
import json
import os
import pathlib
import signal
import sys

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


if __name__ == "__main__":
    cluster = begin(int(sys.argv[1]))
    for one in json.loads(pathlib.Path(sys.argv[2]).read_text()):
        train(one)
    ray.shutdown()
    cluster.shutdown()
