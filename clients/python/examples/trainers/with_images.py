#!/usr/bin/env python3
"""Trains a small network on the images of HDF5 files as they are, prepared as a well-known trainer does it:

    with_images.py DATA LAYOUT PRESET ACTIONS CAMERA...
    with_images.py runs/ aloha act action observations/images/cam_high observations/images/cam_left_wrist --color bgr

The arguments are a file or folder, its layout (`trajctl inspect` finds both), `image.preset`, and names of streams. `--clock` names the
clock of the actions, `--epochs` and `--batch` their numbers. `--color rgb` or `--color bgr` is needed where no file says it, as of JPEGs of
ALOHA and RoboMIND (`trajctl init` shows both). What a preset does to images is shown by `trajctl check`.
"""
import argparse

import torch

import trajd


def configuration(options):
    """Returns the daemon's configuration: one feed, with an output for each camera."""
    outputs = {f"obs/{number}": {"from": camera, "at": 0, "image": {"preset": options.preset}}
               for number, camera in enumerate(options.cameras)}
    outputs["actions"] = {"from": options.actions, "at": "0..7", "dtype": "float32"}
    data = {"path": options.data, "layout": options.layout, **({"color": options.color} if options.color else {})}
    feed = {"dataset": "data", "global_batch": options.batch, "tail": "short", "anchor": {"clock": options.clock},
            "pad": {"before": "any", "after": "any", "with": "edge"}, "outputs": outputs}
    return {"version": 2, "exit_idle": "1s", "datasets": {"data": data}, "feeds": {"train": feed}}


class Camera(torch.nn.Sequential):
    """From images (B, T, ...) of any size and layout to 16 numbers per window."""
    def __init__(self):
        super().__init__(torch.nn.Conv2d(3, 8, 8, 8), torch.nn.Tanh(), torch.nn.Conv2d(8, 16, 2), torch.nn.AdaptiveAvgPool2d(1),
                         torch.nn.Flatten())

    def forward(self, images):
        images = images[:, -1]
        if images.shape[-1] == 3:  # layout: hwc
            images = images.permute(0, 3, 1, 2)
        if images.dtype == torch.uint8:  # as gr00t's and octo's networks begin
            images = images.float() / 127.5 - 1
        return super().forward(images)


class Policy(torch.nn.Module):
    def __init__(self, batch, count):
        super().__init__()
        self.shape = batch["actions"].shape[1:]
        self.cameras = torch.nn.ModuleDict({name: Camera() for name in map(str, range(count))})
        self.head = torch.nn.Linear(16 * len(self.cameras), self.shape.numel())

    def forward(self, batch):
        """Returns the mean squared error of the steps that are recorded."""
        seen = torch.cat([camera(batch["obs"][name]) for name, camera in self.cameras.items()], 1)
        error = (self.head(seen).unflatten(1, self.shape) - batch["actions"]) ** 2
        return error[~batch["actions_is_pad"]].mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "layout", "preset", "actions"):
        parser.add_argument(name)
    parser.add_argument("cameras", nargs="+")
    parser.add_argument("--clock", default="steps")
    parser.add_argument("--color", choices=("rgb", "bgr"))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = optimizer = None
    with trajd.open(configuration(options), feed="train", device=device) as feed:
        for epoch in range(options.epochs):
            losses = []
            for batch in feed.epoch(epoch):
                if policy is None:
                    policy = Policy(batch, len(options.cameras)).to(device)
                    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
                loss = policy(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: {len(losses)} batches, loss {sum(losses) / len(losses):.6f}", flush=True)


if __name__ == "__main__":
    main()
