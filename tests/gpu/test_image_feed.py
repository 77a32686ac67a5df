#!/usr/bin/env python3
"""Images on a GPU: device="cuda" with and without zero_copy, against the same feed in host memory.

    BUNDLE/gpu_run.sh test_image_feed.py         # on the GPU machine; tests/tools/gpu_bundle.sh has made the bundle

The files are in the bundle. A line a check, then times as JSON."""
import itertools
import json
import sys
import time

import gpu_checks
from gpu_feed import BUNDLE, daemon, is_direct

import torch  # noqa: E402  (gpu_feed adds the package to the path)

CONFIG = """
version: 2
runtime: run
state: state
memory: {{store: 1GiB, rings: 2GiB, reserve: 0}}
gpu: {{devices: all, rows: {rows}, rings: 2GiB}}
limits: {{credit: 64}}
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: {batch}
    seed: 3
    slots: 6
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: {pad}}}
    outputs:
      qpos:   {{from: observations/qpos, at: 0}}
      top:    {{from: observations/images/top, at: -1..0, image: {{resize: [224, 224]}}, layout: chw, norm: imagenet, dtype: {dtype}}}
      wrist:
        from: observations/images/wrist
        at: -1..0
        image: {{resize: [96, 96], augment: [{{crop: [84, 88]}}, {{brightness: [0.8, 1.2]}}, {{contrast: [0.8, 1.2]}}]}}
        layout: chw
      small:  {{from: observations/images/wrist, at: 0, image: {{resize: [84, 84], augment: [{{crop: [76, 76]}}]}}, norm: unit}}
      action: {{at: 0..7}}
"""
IMAGES = {"top": 1 / 255 / 0.224, "wrist": 1, "small": 1 / 255}  # how much a level of u8 is at most


def start(batch=16, rows="1GiB", pad="edge", dtype="float32"):
    return daemon(text=CONFIG.format(path=BUNDLE / "images", batch=batch, rows=rows, pad=pad, dtype=dtype))


def names_of(batch):
    return [tensor.name for tensor in batch._arrays.layout.schema]


def read(one, epoch=0, **options):
    """Returns the tensors of an epoch on the CPU, by position."""
    with one.connect(job=str(options), **options) as feed:
        found = {batch.position: {name: batch.raw(name).cpu().clone() for name in names_of(batch)} for batch in feed.epoch(epoch)}
        return found, is_direct(feed), feed.status()


def compare(found, expected, is_exact):
    assert found.keys() == expected.keys() and len(found) > 3
    worst = dict.fromkeys(IMAGES, 0.0)
    for position, tensors in expected.items():
        for name, value in tensors.items():
            other = found[position][name]
            assert value.dtype == other.dtype and value.shape == other.shape, (name, position)
            if name not in IMAGES or is_exact:
                assert torch.equal(value, other), (name, position)
            else:
                worst[name] = max(worst[name], (value.double() - other.double()).abs().max().item())
    for name, levels in IMAGES.items():  # half a level more, for bfloat16 and the sum of floats
        assert worst[name] <= levels * 1.02 + (0.03 if value_is_half(expected, name) else 1e-5), (name, worst)
    return worst


def value_is_half(expected, name):
    return next(iter(expected.values()))[name].dtype in (torch.float16, torch.bfloat16)


def test_frames_that_stay_on_the_gpu():
    for dtype in ("float32", "bfloat16"):
        with start(dtype=dtype) as one:
            for epoch in (0, 1):
                expected, _, _ = read(one, epoch, device="cpu", zero_copy=False)
                found, direct, status = read(one, epoch)
                assert direct, one.text()
                print(dtype, epoch, "largest difference", compare(found, expected, False))
            frames = {item["path"].split("/")[-1]: item for item in status["gpus"][0]["resident"] if "frames" in item}
            assert frames["top"]["resident_frames"] == frames["top"]["frames"] > 0, frames


def test_frames_that_travel_with_the_batch():
    with start(rows="2MiB") as one:
        expected, _, _ = read(one, device="cpu", zero_copy=False)
        found, direct, _ = read(one)
        assert direct, one.text()
        compare(found, expected, False)


def test_steps_without_a_frame():
    with start(pad="zero") as one:
        expected, _, _ = read(one, device="cpu", zero_copy=False)
        found, direct, _ = read(one)
        assert direct and any(tensors["top.mask"].any() for tensors in expected.values())
        compare(found, expected, False)


def test_copied_frames_are_finished_by_torch():
    """device="cuda" without zero_copy: the bytes of the daemon's own finish."""
    for dtype in ("float32", "float16", "bfloat16"):
        with start(dtype=dtype) as one:
            expected, _, _ = read(one, device="cpu", zero_copy=False)
            found, direct, status = read(one, zero_copy=False)
            assert not direct and "train@u8" in [feed["name"] for feed in status["feeds"]]
            compare(found, expected, True)


def test_the_memory_of_finished_frames_is_kept():
    with start() as one, one.connect(zero_copy=False) as feed:
        counts = []
        for batch in itertools.islice(feed.forever(), 60):
            assert batch.raw("top").is_contiguous() and batch.raw("top").is_cuda
            batch.raw("top").sum().item()
            counts.append(torch.cuda.memory_stats()["segment.all.allocated"])
        assert counts[-1] == counts[20], "no allocation of the driver after the first batches"


def measure(name, options, dtype="bfloat16"):
    """Batches of 64 with all frames resident; one kernel reads each image."""
    with start(batch=64, dtype=dtype) as one, one.connect(**options) as feed:
        batches, count, begin = feed.forever(), 0, None
        bytes_ = 0
        for batch in batches:
            total = sum(batch.raw(image).float().sum() for image in IMAGES)
            if begin is None and count == 60:
                torch.cuda.synchronize()
                begin, bytes_, count = time.perf_counter(), sum(batch.raw(p).nbytes for p in IMAGES), 0
            count += 1
            if begin is not None and time.perf_counter() - begin > 2:
                break
        total.item()
        return {"feed": name, "dtype": dtype, "batches_per_s": round(count / (time.perf_counter() - begin), 1), "picture_bytes": bytes_}


def main():
    status = gpu_checks.main(globals(), 90)
    if torch.cuda.device_count() and len(sys.argv) == 1:
        for name, options in (("GPU memory", {}), ("u8, finished by torch", {"zero_copy": False})):
            print(json.dumps(measure(name, options)), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
