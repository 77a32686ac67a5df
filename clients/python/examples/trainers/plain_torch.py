#!/usr/bin/env python3
"""Trains with torch alone: plain_torch.py square.yaml [EPOCHS]

On several GPUs: torchrun --nproc-per-node=8 plain_torch.py square.yaml. Each rank gets its share of each batch, so the
losses are those of one rank."""
import os
import sys

import torch
import trajd.torch
from policy import Policy
from torch.utils.data import DataLoader


def mean_over_ranks(value):
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(value)
        value /= torch.distributed.get_world_size()
    return value.item()


def main(config, epochs=2):
    torch.manual_seed(0)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    data = trajd.torch.FeedDataset(config, feed="train", device=device)
    loader = DataLoader(data, batch_size=None)  # batches are complete, and the daemon is the worker pool
    policy = optimizer = None
    for epoch in range(epochs):
        data.set_epoch(epoch)
        for batch in loader:
            if policy is None:
                policy = model = Policy(batch).to(device)
                if torch.distributed.is_initialized():
                    model = torch.nn.parallel.DistributedDataParallel(policy)
                optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = mean_over_ranks(loss.detach())
        if os.environ.get("RANK", "0") == "0":
            print(f"epoch {epoch} loss {mean:.6f}", flush=True)
    data.close()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
