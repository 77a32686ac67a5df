#!/usr/bin/env python3
"""Trains with accelerate: accelerate launch with_accelerate.py square.yaml [EPOCHS]

Only the network and the optimizer are prepared. The loader is not: trajd gives each rank its rows already, and
accelerate would divide them once more."""
import sys

import torch
import trajd.torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from policy import Policy
from torch.utils.data import DataLoader


def main(config, epochs=2):
    torch.manual_seed(0)
    accelerator = Accelerator()
    data = trajd.torch.FeedDataset(config, feed="train")  # after Accelerator(), which starts torch.distributed
    policy = optimizer = None
    for epoch in range(epochs):
        data.set_epoch(epoch)
        for batch in DataLoader(data, batch_size=None):
            batch = send_to_device(batch, accelerator.device)
            if policy is None:
                policy = Policy(batch)
                policy, optimizer = accelerator.prepare(policy, torch.optim.Adam(policy.parameters(), 1e-3))
            loss = policy(batch)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch} loss {loss.item():.6f}", flush=True)
    data.close()
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
