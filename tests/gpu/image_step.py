#!/usr/bin/env python3
"""A training step of an image policy on the feed's batches against the same step on one constant batch: two cameras
of 224x224, batch 64, ResNet-18 in bfloat16, forward, backward and AdamW as a CUDA graph. The feed draws crop and
colours for each frame. In time slices with the daemon, and with an MPS server.

    BUNDLE/gpu_run.sh image_step.py         # on the GPU machine; a line of JSON each"""
import json
import statistics
import subprocess
import sys
import time

from gpu_feed import BUNDLE, daemon, is_direct
from gpu_mps import mps

import torch  # noqa: E402  (gpu_feed adds the package to the path)
from torch import nn  # noqa: E402

BATCH, ROUNDS, WARM, STEPS, CREDIT = 64, 5, 20, 60, 16
CAMERAS = ("top", "wrist")
CONFIG = """
version: 2
runtime: run
state: state
memory: {{store: 2GiB, rings: 2GiB, reserve: 0}}
gpu: {{devices: all, rows: 2GiB, rings: 4GiB}}
limits: {{credit: 64}}
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: {batch}
    epoch: 64000
    slots: {credit}
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      top:    &
      wrist:  &
      action: {{at: 0..15}}
"""
IMAGE = ("{from: observations/images/CAMERA, at: 0, image: {resize: [240, 240], augment: [{crop: [224, 224]}, "
           "{brightness: [0.7, 1.3]}, {contrast: [0.7, 1.3]}, {saturation: [0.5, 1.5]}]}, layout: chw, "
           "norm: imagenet, dtype: bfloat16}")


def config():
    text = CONFIG.format(path=BUNDLE / "images", batch=BATCH, credit=CREDIT)
    for name in CAMERAS:
        text = text.replace("&", IMAGE.replace("CAMERA", name), 1)
    return text


class Block(nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(ins, outs, 3, stride, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU(),
                                  nn.Conv2d(outs, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs))
        self.past = (nn.Identity() if ins == outs else
                     nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs)))

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.past(x))


def resnet18(outs):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for ins, width, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(ins, width, stride), Block(width, width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, outs))


class Step:
    def __init__(self):
        torch.manual_seed(0)
        see = nn.ModuleList(resnet18(256) for _ in CAMERAS).cuda().to(memory_format=torch.channels_last)
        act = nn.Linear(512, 16 * 14).cuda()
        parameters = [*see.parameters(), *act.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True, capturable=True)
        self.images = {name: torch.randn(BATCH, 1, 3, 224, 224, device="cuda", dtype=torch.bfloat16) for name in CAMERAS}
        self.actions = torch.randn(BATCH, 16, 14, device="cuda")

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                seen = [net(self.images[name][:, 0].contiguous(memory_format=torch.channels_last)) for net, name in zip(see, CAMERAS)]
                loss = nn.functional.mse_loss(act(torch.cat(seen, 1)).view(BATCH, 16, 14), self.actions)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(4):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        self.replay = graph.replay

    def take(self, batch):
        for name in CAMERAS:
            self.images[name].copy_(batch[name])
        self.actions.copy_(batch["action"])

    def time(self, source):
        """Returns ms per step, after the steps that use up what was prepared beforehand."""
        for turn in range(WARM + STEPS):
            if turn == WARM:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            if source is not None:
                self.take(source())
            self.replay()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / STEPS * 1e3


def measure():
    """Runs in a process of its own with the daemon as its child: an MPS server serves both or neither. Each turn of a source
    is compared with the mean of the turns of the constant batch before and behind it, since the GPU's clock drifts."""
    step = Step()
    found = {}
    with daemon(text=config()) as one, one.connect(credit=CREDIT) as feed, one.connect(credit=4, zero_copy=False, job="copied") as copied:
        batches, others = feed.forever(), copied.forever()
        kept = {name: next(batches).raw(name).clone() for name in (*CAMERAS, "action")}
        assert is_direct(feed), one.text()
        for source in (batches, others):  # until all frames are decoded
            for _ in range(40):
                next(source)
        sources = {"the copy from a constant tensor": lambda: kept, "the feed in GPU memory": lambda: next(batches),
                   "the feed, copied as u8": lambda: next(others)}
        before = step.time(None)
        for _ in range(ROUNDS):
            for name, source in sources.items():
                took, after = step.time(source), step.time(None)
                found.setdefault(name, []).append((took, took / ((before + after) / 2)))
                found.setdefault("constant", []).append((after, 1.0))
                before = after
    return {name: {"ms": round(statistics.median(took for took, _ in values), 3),
                   "ratio": round(statistics.median(ratio for _, ratio in values), 4),
                   "range": [round(min(ratio for _, ratio in values), 4), round(max(ratio for _, ratio in values), 4)]}
            for name, values in found.items()}


def main():
    if not torch.cuda.device_count():
        print("skipped: 0 GPUs")
        return 0
    with mps() as environment:
        for name, its in (("time slices", None), ("MPS", environment)):
            if name == "MPS" and its is None:
                print("MPS: no server can be started here")
                continue
            done = subprocess.run([sys.executable, __file__, "measure"], env=its, stdout=subprocess.PIPE, text=True, timeout=200, check=True)
            for what, figures in json.loads(done.stdout.splitlines()[-1]).items():
                print(json.dumps({"GPU": name, "step on": what, **figures}), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        print(json.dumps(measure()))
    else:
        sys.exit(main())
