#!/usr/bin/env python3
"""Trains on a Ray cluster with Ray Train:  ray_train.py square.yaml --workers 8 --storage /shared/runs [--gpu]

Each worker opens the feed; rank and world size are Ray's, and each node has one private daemon. The positions of feed
and model are in Ray's checkpoint, so a group of workers that dies goes on with the same losses."""
import argparse
import os
import tempfile

import torch
import trajd
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, get_checkpoint, get_context, report
from ray.train.torch import TorchTrainer, get_device, prepare_model


def loss_of(model, batch):
    predicted = model(torch.cat([value.flatten(1) for value in batch["obs"].values()], 1)).view_as(batch["actions"])
    return ((predicted - batch["actions"]) ** 2)[~batch["actions_is_pad"]].mean()


def train_loop_per_worker(job):
    torch.manual_seed(0)
    feed, model, saved = trajd.open(job["config"], feed="train", device=str(get_device())), None, {}
    if get_checkpoint():
        with get_checkpoint().as_directory() as folder:
            saved = torch.load(os.path.join(folder, "state.pt"))
        feed.load_state_dict(saved["feed"])  # on every rank
    for epoch in range(feed.state_dict()["epoch"], job["epochs"]):
        for step, batch in enumerate(feed.epoch(epoch)):
            if model is None:
                sizes = sum(value[0].numel() for value in batch["obs"].values()), batch["actions"][0].numel()
                model = prepare_model(torch.nn.Linear(*sizes))
                optimizer = torch.optim.Adam(model.parameters(), 1e-3)
                if saved:
                    model.load_state_dict(saved["model"]), optimizer.load_state_dict(saved["optimizer"])
            loss = loss_of(model, batch)
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            if (step + 1) % job["every"]:
                continue
            state = {"feed": feed.state_dict(), "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            with tempfile.TemporaryDirectory() as folder:
                torch.save(state, os.path.join(folder, "state.pt"))
                report({"epoch": epoch, "loss": loss.item()}, checkpoint=Checkpoint(folder) if get_context().get_world_rank() == 0 else None)
    feed.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=os.path.abspath)
    parser.add_argument("--storage", required=True, type=os.path.abspath, help="a folder that all nodes share, for checkpoints")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--gpu", action="store_true")
    given = parser.parse_args()
    TorchTrainer(train_loop_per_worker, train_loop_config=vars(given), scaling_config=ScalingConfig(num_workers=given.workers, use_gpu=given.gpu),
                 run_config=RunConfig(storage_path=given.storage, failure_config=FailureConfig(max_failures=3))).fit()
