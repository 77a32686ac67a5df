#!/usr/bin/env python3
"""Records how other programs augment images with given parameters: tests/golden/augment/PROGRAM.bin.

    tests/tools/augment_vectors.py torchvision tensorflow       # in a Python that has these packages

A file has records. A record begins with little-endian u32: height and width of the source, of the output, the rounding
(kernels/image/augment/augment.h), the number of steps, the largest difference in levels that is allowed, and how many values may
differ more. (A nearest pixel lies between two where floats round.) Then, for each step, three u32: kind, filter, box; and four
float32: the parameters. Then the output. The source is that of image_vectors.py, with three channels.
"""
import pathlib
import struct
import sys

import numpy as np

from image_vectors import LINEAR, BILINEAR, make_source

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "augment"
CROP, FLIP, AFFINE, RESIZE, RESIZED_CROP, BRIGHTNESS, CONTRAST, SATURATION, HUE, SHIFT, CHANNEL_CONTRAST, HSV_SATURATION = range(12)
NEAREST = 7
ONCE, EACH = range(2)
SIZES = [(16, 20), (17, 13)]
COLORS = [[(BRIGHTNESS, 0.6)], [(BRIGHTNESS, 1.3)], [(CONTRAST, 0.6)], [(CONTRAST, 1.4)], [(SATURATION, 0.5)], [(SATURATION, 1.5)],
          [(HUE, 0.08)], [(HUE, -0.3)], [(BRIGHTNESS, 1.2), (CONTRAST, 0.7), (SATURATION, 1.3), (HUE, 0.05)],
          [(HUE, -0.06), (SATURATION, 0.6), (CONTRAST, 1.3), (BRIGHTNESS, 0.8)]]
TF_COLORS = [[(SHIFT, 0.1)], [(SHIFT, -0.2)], [(CHANNEL_CONTRAST, 0.7)], [(CHANNEL_CONTRAST, 1.4)], [(HSV_SATURATION, 0.6)],
             [(HSV_SATURATION, 1.6)], [(HUE, 0.05)], [(SHIFT, 0.08), (CHANNEL_CONTRAST, 1.1), (HSV_SATURATION, 0.9), (HUE, -0.04)]]
WARPS = [(4.3, 0, 0, 1), (-5, 2, -3, 1), (29.3, 0, 0, 1), (3, 1, 2, 0.93), (-170, 0, 0, 1.07)]


def write(file, size, steps, output, rounding=ONCE, bound=0, exceptions=0):
    """Steps are (kind, filter, box, parameters)."""
    file.write(struct.pack("<8I", *size, *output.shape[:2], rounding, len(steps), bound, exceptions))
    for kind, which, box, values in steps:
        file.write(struct.pack("<3I4f", kind, which, box, *values, *[0] * (4 - len(values))))
    file.write(np.ascontiguousarray(output, np.uint8).tobytes())


def torchvision(file):
    import torch
    from torchvision.transforms.v2 import InterpolationMode, functional as F
    adjust = {BRIGHTNESS: F.adjust_brightness, CONTRAST: F.adjust_contrast, SATURATION: F.adjust_saturation, HUE: F.adjust_hue}
    modes = {NEAREST: InterpolationMode.NEAREST, LINEAR: InterpolationMode.BILINEAR}

    def pixels(tensor):
        return tensor.numpy().transpose(1, 2, 0)

    for size in SIZES:
        image = torch.from_numpy(make_source(*size, 3).transpose(2, 0, 1).copy())
        write(file, size, [(CROP, 0, 0, (3, 5))], pixels(F.crop(image, 3, 5, 10, 8)))
        write(file, size, [(FLIP, 0, 0, (1,))], pixels(F.hflip(image)))
        for colors in COLORS:
            steps = [(kind, 0, 0, (value,)) for kind, value in colors]
            each, once = image, image.float() / 255
            for kind, value in colors:
                each, once = adjust[kind](each, value), adjust[kind](once, value)
            write(file, size, steps, pixels(each), EACH, 1 if len(steps) == 1 else 2)
            write(file, size, steps, pixels((once * 255).round().to(torch.uint8)), ONCE, 1)
        for degrees, down, right, scale in WARPS:
            for which, mode in modes.items():
                output = F.affine(image, degrees, [right, down], scale, [0, 0], interpolation=mode)
                write(file, size, [(AFFINE, which, 0, (degrees, down, right, scale))], pixels(output), ONCE, which == LINEAR, 6 * (which == NEAREST))
        output = F.resized_crop(image, 2, 4, 13, 9, [12, 11], antialias=True)
        write(file, size, [(RESIZED_CROP, BILINEAR, 0, (2, 4, 13, 9))], pixels(output), ONCE, 1)
        output = F.resize(F.crop(image, 1, 2, 14, 11), [16, 16], antialias=True)
        write(file, size, [(CROP, 0, 0, (1, 2, 14, 11)), (RESIZE, BILINEAR, 0, ())], pixels(output), ONCE, 1)


def tensorflow(file):
    import tensorflow as tf
    adjust = {SHIFT: tf.image.adjust_brightness, CHANNEL_CONTRAST: tf.image.adjust_contrast, HSV_SATURATION: tf.image.adjust_saturation,
              HUE: tf.image.adjust_hue}
    for size in SIZES:
        for box in [(0.1, 0.05, 0.8, 0.9), (0.01, 0.02, 0.98, 0.97), (0.31, 0.2, 0.4, 0.55)]:
            corners = [[box[0], box[1], box[0] + box[2], box[1] + box[3]]]
            source = make_source(*size, 3)[None].astype(np.float32)
            output = tf.image.crop_and_resize(source, corners, [0], (14, 15)).numpy()[0]
            write(file, size, [(RESIZED_CROP, LINEAR, 1, box)], np.clip(np.round(output), 0, 255), ONCE, 1)
        for colors in TF_COLORS:
            image = make_source(*size, 3).astype(np.float32) / 255
            for kind, value in colors:
                image = tf.clip_by_value(adjust[kind](image, value), 0, 1)
            write(file, size, [(kind, 0, 0, (value,)) for kind, value in colors], np.round(image.numpy() * 255), ONCE, 1)


def main():
    FOLDER.mkdir(exist_ok=True)
    for program in sys.argv[1:]:
        with open(FOLDER / f"{program}.bin", "wb") as file:
            globals()[program](file)


if __name__ == "__main__":
    main()
