#!/usr/bin/env python3
"""Measures what others need for the rows of bench_image_gpu: torch, torch.compile, torchvision. Median of 9, in us.

Frames are u8 HWC in GPU memory, several times the L2. Torch and torchvision see them as CHW views.
"""
import statistics
import sys

import torch
import torch.nn.functional as F
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DEVICE = "cuda"


def measure(work):
    times = []
    for _ in range(3):
        work()
    for _ in range(9):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def frames(count, height, width):
    return torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8, device=DEVICE)


def normalised(images, dtype):
    mean = torch.tensor(MEAN, device=DEVICE, dtype=dtype).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=DEVICE, dtype=dtype).view(1, 3, 1, 1)
    return (images / 255 - mean) / std


def resize_rows(height, width, side):
    source = frames(512, height, width)

    def interpolate(dtype=torch.bfloat16):
        images = source.permute(0, 3, 1, 2).to(dtype)
        return normalised(F.interpolate(images, (side, side), mode="bilinear", antialias=True), dtype).contiguous()

    resize = v2.Compose([v2.Resize((side, side), antialias=True), v2.ToDtype(torch.bfloat16, scale=True), v2.Normalize(MEAN, STD)])
    compiled = torch.compile(interpolate)
    yield "F.interpolate bf16", interpolate
    yield "torch.compile of it", compiled
    yield "torchvision v2", lambda: resize(source.permute(0, 3, 1, 2)).contiguous()


def crop_rows():
    source = frames(1024, 84, 84)
    tops, lefts = (torch.randint(0, 9, (1024,), device=DEVICE) for _ in range(2))

    def gather():
        y = tops[:, None] + torch.arange(76, device=DEVICE)
        x = lefts[:, None] + torch.arange(76, device=DEVICE)
        picked = source[torch.arange(1024, device=DEVICE)[:, None, None], y[:, :, None], x[:, None, :]]
        return (picked.permute(0, 3, 1, 2).float() / 255).contiguous()

    starts = list(zip(tops.tolist(), lefts.tolist()))

    def loop():
        return torch.stack([source[i, y : y + 76, x : x + 76].permute(2, 0, 1).float() / 255 for i, (y, x) in enumerate(starts)])

    yield "gather", gather
    yield "torch.compile of it", torch.compile(gather)
    yield "a loop of slices", loop


def jitter_rows():
    source = frames(1024, 240, 240)
    jitter = v2.ColorJitter(0.3, 0.4, 0.5, 0.08)
    crop = v2.Compose([v2.RandomCrop(224), v2.ToDtype(torch.bfloat16, scale=True), v2.Normalize(MEAN, STD)])
    cropped = source[:, 8:232, 8:232].permute(0, 3, 1, 2).contiguous()

    yield "torchvision v2 jitter alone, one draw a batch", lambda: jitter(cropped)
    yield "torchvision v2 crop and normalise, one draw", lambda: crop(source.permute(0, 3, 1, 2)).contiguous()


def main():
    rows = {
        "640x480 to 224": lambda: resize_rows(480, 640, 224),
        "640x480 to 96": lambda: resize_rows(480, 640, 96),
        "256 to 224": lambda: resize_rows(256, 256, 224),
        "84 crop 76": crop_rows,
        "240 crop 224, jitter": jitter_rows,
    }
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name, make in rows.items():
        for what, work in make():
            try:
                print(f"{name:24s} {what:46s} {measure(work):10.1f} us", flush=True)
            except Exception as error:  # a peer that fails is a row, too
                print(f"{name:24s} {what:46s} failed: {str(error).splitlines()[0]}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
