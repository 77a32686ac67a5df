#!/usr/bin/env python3
"""Pillow, pillow-simd and OpenCV for the part `images` of run.py.

    image_peers.py make FOLDER            writes images of 640x480: FOLDER/q75_0.jpg, q95_0.jpg, ...
    image_peers.py measure FILE.jpg       JSON: us of processor time an image, for what this Python has: the best of many turns

Nothing but the decoder and the resize runs between two looks at the clock. malloc keeps freed buffers, so that no program
pays for new pages, and OpenCV resizes into one buffer."""
import io
import json
import os
import pathlib
import sys
import time

import numpy as np
import PIL
from PIL import Image

try:
    import cv2
except ImportError:
    cv2 = None  # beside pillow-simd

HEIGHT, WIDTH, COUNT, TURNS, SIZE = 480, 640, 6, 25, (224, 224)


def make_images(count=COUNT):
    """Images with slopes, edges and sensor noise."""
    random, (y, x) = np.random.default_rng(3), np.mgrid[:HEIGHT, :WIDTH]
    for i in range(count):
        values = 127 + 50 * np.sin(x / (17 + i)) + 40 * np.cos(y / (11 + i))
        values = values[..., None] + [0, 20, -30] + random.normal(0, 2, (HEIGHT, WIDTH, 3))
        values[100 + 20 * i:300, 200:420] = (200, 40 + 10 * i, 30)
        yield Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def best(function):
    """Returns the least processor time of a call, in us."""
    times = []
    for _ in range(TURNS):
        begin = time.thread_time()
        function()
        times.append(time.thread_time() - begin)
    return round(1e6 * min(times), 1)


def measure_pillow(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")

    def decode():
        return Image.open(io.BytesIO(data)).convert("RGB")
    return {"decode": best(lambda: np.asarray(decode())), "decode 224": best(lambda: np.asarray(decode().resize(SIZE, Image.BILINEAR))),
            "bilinear 224": best(lambda: image.resize(SIZE, Image.BILINEAR)), "bicubic 224": best(lambda: image.resize(SIZE, Image.BICUBIC))}


def measure_opencv(data):
    cv2.setNumThreads(1)
    encoded, small = np.frombuffer(data, np.uint8), np.empty((*SIZE, 3), np.uint8)
    image = cv2.imdecode(encoded, cv2.IMREAD_COLOR)

    def area(pixels):
        return cv2.resize(pixels, SIZE, dst=small, interpolation=cv2.INTER_AREA)
    return {"decode": best(lambda: cv2.imdecode(encoded, cv2.IMREAD_COLOR)), "decode 224": best(lambda: area(cv2.imdecode(encoded, cv2.IMREAD_COLOR))),
            "area 224": best(lambda: area(image))}


def main():
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.environ.update(MALLOC_MMAP_THRESHOLD_="1000000000", MALLOC_TRIM_THRESHOLD_="4000000000")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    what, path = sys.argv[1], pathlib.Path(sys.argv[2])
    if what == "make":
        for i, image in enumerate(make_images()):
            for quality in (75, 95):
                image.save(path / f"q{quality}_{i}.jpg", "JPEG", quality=quality)
        return
    data = path.read_bytes()
    result = {f"Pillow {PIL.__version__}": measure_pillow(data)}
    if cv2:
        result[f"OpenCV {cv2.__version__}"] = measure_opencv(data)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
