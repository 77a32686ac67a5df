#!/usr/bin/env python3
"""Trains with Lightning: with_lightning.py square.yaml [EPOCHS]

use_distributed_sampler=False: trajd gives each rank its rows. The state of the feed is in Lightning's checkpoints, so
Trainer.fit(ckpt_path=...) continues within the epoch."""
import sys

import lightning
import torch
import trajd.torch
from policy import Policy
from torch.utils.data import DataLoader


class Windows(lightning.LightningDataModule):
    def __init__(self, config):
        super().__init__()
        self.config, self.data, self.state = config, None, None

    def train_dataloader(self):
        self.data = trajd.torch.FeedDataset(self.config, feed="train")  # here torch.distributed has been started
        if self.state is not None:
            self.data.load_state_dict(self.state)
        return DataLoader(self.data, batch_size=None)

    def state_dict(self):
        return {"feed": self.data.state_dict()}

    def load_state_dict(self, state):
        self.state = state["feed"]


class Module(lightning.LightningModule):
    def __init__(self, batch):
        super().__init__()
        self.policy = Policy(batch)

    def training_step(self, batch, _):
        loss = self.policy(batch)
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {self.trainer.callback_metrics['loss'].item():.6f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def main(config, epochs=2):
    torch.manual_seed(0)
    with trajd.open(config, feed="train", device="cpu", job="shapes", mode="queue") as feed:
        module = Module(next(feed.epoch(0)))
    trainer = lightning.Trainer(max_epochs=epochs, use_distributed_sampler=False, enable_progress_bar=False,
                                logger=False, enable_checkpointing=False)
    trainer.fit(module, datamodule=Windows(config))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
