#!/usr/bin/env python3
"""LeRobot's part of the part `video` of run.py: its writer makes the data sets, and its loader delivers their windows.

    bench_video_loaders.py make FOLDER     writes the sets FOLDER/av1 and FOLDER/h264, and their frames as NAME_jpeg.hdf5
    bench_video_loaders.py read FOLDER --backend pyav|torchcodec [--seconds 5] [--workers 0 1 2] [--forms u8 float]

Needs lerobot 0.4 and h5py. Frames have 640x480 pixels: a patch moves over an image, both with the spectrum of photographs,
under a sensor's noise. `read` prints JSON. A LeRobotDataset in a DataLoader gives frames of 224x224 as u8, resized in one of
two ways: `float` resizes what LeRobot decoded, which is float32, and makes u8 of it; `u8` makes u8 first. In its favour:
workers persist, the start is not timed, malloc keeps the buffers, and torch has one thread per process."""
import argparse
import io
import json
import os
import pathlib
import shutil
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", SVT_LOG="1")

import h5py  # noqa: E402 (the line above is read when lerobot is imported)
import lerobot.datasets.lerobot_dataset as writer  # noqa: E402
import numpy as np  # noqa: E402
import PIL.Image  # noqa: E402
import torch  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_torch_loader import cpu_seconds, endless  # noqa: E402
from image_bytes import read_all  # noqa: E402

HEIGHT, WIDTH, FPS, SIDE, PATCH = 480, 640, 30, 224, 120
LENGTHS = (48,) * 25
SETS = {"av1": ({"vcodec": "libsvtav1"}, 2, ("top", "wrist")), "h264": ({"vcodec": "h264"}, 30, ("top",))}  # key frames
JOINTS, JPEG_QUALITY = 14, 95


def photograph(random, height, width):
    """Noise whose amplitude falls with its frequency, in colours that are mostly grey."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    waves = np.fft.rfft2(random.standard_normal((4, height, width))) / np.maximum(frequency, 1 / width) ** 1.54
    planes = np.fft.irfft2(waves, (height, width))
    planes /= planes.std(axis=(1, 2), keepdims=True)
    return np.stack([128 + 45 * planes[0] + 15 * planes[channel] for channel in (1, 2, 3)], 2)


class Scene:
    """What a camera sees. The noise is a part of a larger field, another one in each frame."""

    def __init__(self, camera):
        self.random = np.random.default_rng(camera)
        self.background, self.patch = photograph(self.random, HEIGHT, WIDTH), photograph(self.random, PATCH, PATCH) + 25
        self.grain = self.random.standard_normal((HEIGHT + 64, WIDTH + 64, 3))

    def draw(self, number):
        frame = self.background.copy()
        top, left = (int((0.5 + 0.5 * np.sin(number * speed)) * room) for speed, room in ((0.03, HEIGHT - PATCH), (0.041, WIDTH - PATCH)))
        frame[top:top + PATCH, left:left + PATCH] = self.patch
        down, right = self.random.integers(0, 64, 2)
        return np.clip(frame + self.grain[down:down + HEIGHT, right:right + WIDTH], 0, 255).astype(np.uint8)


def to_jpeg(frame):
    file = io.BytesIO()
    PIL.Image.fromarray(frame).save(file, "JPEG", quality=JPEG_QUALITY)
    return np.frombuffer(file.getvalue(), np.uint8)


def write_jpeg(path, images):
    """Writes the frames of each camera as packed images, one episode after another."""
    with h5py.File(path, "w") as file:
        for camera, rows in images.items():
            ends = np.cumsum(LENGTHS)
            for episode, (begin, end) in enumerate(zip(ends - LENGTHS, ends)):
                group = file.create_group(f"data/episode_{episode:06d}/observation/images/{camera}")
                group["bytes"] = np.concatenate(rows[begin:end])
                group["offsets"] = np.cumsum([0, *map(len, rows[begin:end])])
                group.attrs.update(encoding="jpeg", color="rgb")


def write_set(folder, name):
    """Writes a set by LeRobot's own encoder, with its own settings but for codec and distance of key frames."""
    options, key_frames, cameras = SETS[name]
    own = writer.encode_video_frames
    writer.encode_video_frames = lambda images, path, fps, **kept: own(images, path, fps, **{**kept, "g": key_frames})
    rows = {"dtype": "float32", "shape": (JOINTS,), "names": None}
    image = {"dtype": "video", "shape": (HEIGHT, WIDTH, 3), "names": ["height", "width", "channels"]}
    shutil.rmtree(folder / name, ignore_errors=True)
    made = writer.LeRobotDataset.create(f"trajd/{name}", FPS, {
        "observation.state": rows, "action": rows, **{f"observation.images.{camera}": image for camera in cameras}},
        root=folder / name, use_videos=True, image_writer_threads=2, **options)
    scenes = {camera: Scene(number) for number, camera in enumerate(cameras)}
    jpeg = {camera: [] for camera in cameras}
    for episode, length in enumerate(LENGTHS):
        for row in range(length):
            state = np.sin(np.arange(JOINTS, dtype=np.float32) + row / 10)
            frames = {camera: scene.draw(episode * length + row) for camera, scene in scenes.items()}
            images = {f"observation.images.{camera}": frame for camera, frame in frames.items()}
            made.add_frame({"observation.state": state, "action": state + 1, **images, "task": "move the patch"})
            for camera, frame in frames.items():
                jpeg[camera].append(to_jpeg(frame))
        made.save_episode()
    made.finalize()
    write_jpeg(folder / f"{name}_jpeg.hdf5", jpeg)
    writer.encode_video_frames = own
    shutil.rmtree(folder / name / "images", ignore_errors=True)


def to_u8(image):
    return (image * 255).round().to(torch.uint8)


def resize_of(form):
    resize = v2.Resize((SIDE, SIDE), antialias=True)
    return v2.Compose([resize, to_u8] if form == "float" else [to_u8, resize])


def measure(options, form, workers):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    root = pathlib.Path(options.folder) / "av1"
    dataset = writer.LeRobotDataset("trajd/av1", root=root, image_transforms=resize_of(form), video_backend=options.backend)
    loader = torch.utils.data.DataLoader(dataset, batch_size=options.batch, shuffle=True, num_workers=workers, drop_last=True,
                                         persistent_workers=workers > 0)
    wanted = ("observation.images.top", "observation.images.wrist", "observation.state", "action")
    stream, batches = endless(loader), 0

    def read_next():
        batch = next(stream)
        size = read_all([batch[key].numpy() for key in wanted])
        return batch, size
    for _ in range(2 * max(workers, 1)):  # as many as the workers make ahead
        batch, size = read_next()
    assert all(batch[key].dtype == torch.uint8 and batch[key].shape[1:] == (3, SIDE, SIDE) for key in wanted[:2])
    cpu, begin = cpu_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < options.seconds or batches < 2 * workers:
        read_next()
        batches += 1
    windows = batches * options.batch
    return {"form": form, "workers": workers, "windows_per_s": round(windows / elapsed, 2),
            "cpu_us_per_window": round(1e6 * (cpu_seconds() - cpu) / windows, 2), "batch_bytes": size}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "read"))
    parser.add_argument("folder")
    parser.add_argument("--backend", choices=("pyav", "torchcodec"), default="torchcodec")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--forms", nargs="+", choices=("u8", "float"), default=("u8", "float"))
    options = parser.parse_args()
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.environ.update(MALLOC_MMAP_THRESHOLD_="1000000000", MALLOC_TRIM_THRESHOLD_="4000000000")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if options.what == "make":
        for name in SETS:
            write_set(pathlib.Path(options.folder), name)
        return
    # the most workers first: a decoder that this process has opened shares its place in the file with workers
    print(json.dumps([measure(options, form, workers) for workers in sorted(options.workers, reverse=True) for form in options.forms]))


if __name__ == "__main__":
    main()
