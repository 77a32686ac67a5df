#!/usr/bin/env python3
"""Records how other programs resize images: tests/golden/image/PROGRAM.bin.

    tests/tools/image_vectors.py pillow opencv        # in a Python that has these packages

A file has records of seven little-endian u32: the filter's number (kernels/image/image.h), source height and width, channels,
output height and width, and the largest difference in levels that is allowed; then the output. The source is not stored: it is
made from its size by the function below, and by the same function in tests/unit/kernels/image/test_image_golden.c.
"""
import pathlib
import struct
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "image"
SIZES = [(48, 64, 24, 32), (48, 64, 21, 31), (65, 47, 30, 29), (65, 47, 13, 11), (33, 40, 50, 60), (30, 30, 30, 17), (96, 80, 10, 9)]
BILINEAR, BOX, BICUBIC, LANCZOS, TF_LANCZOS, AREA, LINEAR = range(7)


def make_source(height, width, channels):
    """Noise with hard edges: a linear congruential generator, seeded by the size."""
    state, values = height * 1000 + width, np.empty(height * width * channels, np.uint8)
    for i in range(values.size):
        state = (state * 1664525 + 1013904223) % 2**32
        values[i] = state >> 24 if state >> 20 & 3 else 255 * (state >> 19 & 1)
    return values.reshape(height, width, channels)


def pillow():
    from PIL import Image
    filters = {BILINEAR: (Image.BILINEAR, 1), BOX: (Image.BOX, 1), BICUBIC: (Image.BICUBIC, 0), LANCZOS: (Image.LANCZOS, 0)}
    for number, (which, bound) in filters.items():
        yield number, bound, lambda source, height, width: np.asarray(Image.fromarray(source).resize((width, height), which))


def opencv():
    import cv2
    yield LINEAR, 1, lambda source, height, width: cv2.resize(source, (width, height), interpolation=cv2.INTER_LINEAR)

    def area(source, height, width):
        smaller = height <= source.shape[0] and width <= source.shape[1]
        return cv2.resize(source, (width, height), interpolation=cv2.INTER_AREA) if smaller else None
    yield AREA, 1, area


def torchvision():
    import torch
    from torchvision.transforms.v2 import functional

    def resize(source, height, width, dtype):
        image = torch.from_numpy(source.transpose(2, 0, 1).copy()).to(dtype)
        return functional.resize(image, [height, width], antialias=True).round().clamp(0, 255).numpy().astype(np.uint8).transpose(1, 2, 0)
    yield BILINEAR, 1, lambda *request: resize(*request, torch.uint8)
    yield BILINEAR, 1, lambda *request: resize(*request, torch.float32)


def jax():
    import jax.image

    def resize(method, source, height, width):
        values = jax.image.resize(source.astype(np.float32), (height, width, source.shape[2]), method)
        return np.clip(np.round(np.asarray(values)), 0, 255).astype(np.uint8)
    yield BILINEAR, 1, lambda *request: resize("linear", *request)
    yield TF_LANCZOS, 1, lambda *request: resize("lanczos3", *request)


def tensorflow():
    import tensorflow as tf

    def resize(source, height, width):
        values = tf.image.resize(source, (height, width), method="lanczos3", antialias=True)
        return np.clip(np.round(values.numpy()), 0, 255).astype(np.uint8)
    yield TF_LANCZOS, 1, resize


def main():
    FOLDER.mkdir(exist_ok=True)
    for program in sys.argv[1:]:
        with open(FOLDER / f"{program}.bin", "wb") as file:
            for number, bound, resize in globals()[program]():
                for height, width, to_height, to_width in SIZES:
                    source = make_source(height, width, 3)
                    output = resize(source, to_height, to_width)
                    if output is not None:
                        file.write(struct.pack("<7I", number, height, width, 3, to_height, to_width, bound))
                        file.write(np.ascontiguousarray(output, np.uint8).tobytes())


if __name__ == "__main__":
    main()
