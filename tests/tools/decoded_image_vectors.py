#!/usr/bin/env python3
"""Records encoded images and what the trainers' decoders make of them: tests/golden/decoded/NAME.{jpg,png} and NAME.pixels.

    tests/tools/decoded_image_vectors.py        # in a Python that has Pillow, OpenCV and numpy

Pixels are those of Pillow's convert("RGB"). Of PNG, cv2.imdecode must give the same.
"""
import io
import pathlib

import cv2
import numpy as np
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "decoded"
HEIGHT, WIDTH = 29, 42


def make_image():
    """An image with edges, slopes and noise, so that each step of a decoder matters."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(7).integers(0, 40, (HEIGHT, WIDTH, 3))
    colours = np.stack([5 * x, 8 * y, 200 - 3 * x], 2) + noise
    colours[8:16, 10:25] = (250, 20, 10)
    return Image.fromarray(np.clip(colours, 0, 255).astype(np.uint8))


def encode(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def encode_transparent(image, kind):
    """With all degrees of transparency, over colours that stay where nothing is seen."""
    seen = Image.fromarray((np.arange(HEIGHT * WIDTH) % 256).astype(np.uint8).reshape(HEIGHT, WIDTH))
    image = image.convert(kind[:-1])
    image.putalpha(seen)
    return encode(image, "PNG")


def decode(name, data):
    """Returns the pixels that a trainer gets."""
    image = Image.open(io.BytesIO(data))
    is_gray, is_depth = name.startswith("gray"), name.startswith("depth")
    pixels = np.asarray(image if is_depth else image.convert("L" if is_gray else "RGB"))
    if name.endswith(".png"):
        kind = cv2.IMREAD_ANYDEPTH if is_depth else cv2.IMREAD_GRAYSCALE if is_gray else cv2.IMREAD_COLOR
        found = cv2.imdecode(np.frombuffer(data, np.uint8), kind)
        np.testing.assert_array_equal(found[..., ::-1] if found.ndim == 3 else found, pixels)
    return pixels


def main():
    image = make_image()
    few = image.quantize(11)
    gray = image.convert("L")
    depth = Image.fromarray((np.arange(HEIGHT * WIDTH, dtype=np.uint16) * 53).reshape(HEIGHT, WIDTH))
    FOLDER.mkdir(exist_ok=True)
    files = {
        "420.jpg": encode(image, "JPEG", quality=80, subsampling="4:2:0"),
        "422.jpg": encode(image, "JPEG", quality=95, subsampling="4:2:2"),
        "444.jpg": encode(image, "JPEG", quality=50, subsampling="4:4:4"),
        "progressive.jpg": encode(image, "JPEG", quality=75, progressive=True),
        "restart.jpg": encode(image, "JPEG", quality=85, restart_marker_blocks=2),
        "gray.jpg": encode(gray, "JPEG", quality=75),
        "rgb.png": encode(image, "PNG"),
        "gray.png": encode(gray, "PNG"),
        "depth.png": encode(depth, "PNG"),
        "palette.png": encode(image.convert("P"), "PNG"),
        "palette_of_11.png": encode(few, "PNG", bits=4),
        "palette_transparent.png": encode(few, "PNG", transparency=bytes(range(0, 220, 20))),
        "alpha.png": encode(image.convert("RGBA"), "PNG"),
        "transparent.png": encode_transparent(image, "RGBA"),
        "gray_transparent.png": encode_transparent(image, "LA"),
    }
    for name, data in files.items():
        (FOLDER / name).write_bytes(data)
        (FOLDER / (name + ".pixels")).write_bytes(decode(name, data).tobytes())
    exif = Image.Exif()
    exif[0x0112] = 6
    (FOLDER / "turned.jpg").write_bytes(encode(image, "JPEG", exif=exif))
    (FOLDER / "cmyk.jpg").write_bytes(encode(image.convert("CMYK"), "JPEG"))


if __name__ == "__main__":
    main()
