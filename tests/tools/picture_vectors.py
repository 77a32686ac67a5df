#!/usr/bin/env python3
"""Records encoded pictures and what Pillow decodes from them: tests/golden/pictures/NAME.{jpg,png} and NAME.pixels.

    tests/tools/picture_vectors.py        # in a Python that has Pillow and numpy
"""
import io
import pathlib

import numpy as np
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "pictures"
HEIGHT, WIDTH = 29, 42


def make_picture():
    """A picture with edges, slopes and noise, so that each step of a decoder matters."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(7).integers(0, 40, (HEIGHT, WIDTH, 3))
    colours = np.stack([5 * x, 8 * y, 200 - 3 * x], 2) + noise
    colours[8:16, 10:25] = (250, 20, 10)
    return Image.fromarray(np.clip(colours, 0, 255).astype(np.uint8))


def encode(picture, kind, **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def main():
    picture = make_picture()
    gray = picture.convert("L")
    depth = Image.fromarray((np.arange(HEIGHT * WIDTH, dtype=np.uint16) * 53).reshape(HEIGHT, WIDTH))
    FOLDER.mkdir(exist_ok=True)
    files = {
        "420.jpg": encode(picture, "JPEG", quality=80, subsampling="4:2:0"),
        "422.jpg": encode(picture, "JPEG", quality=95, subsampling="4:2:2"),
        "444.jpg": encode(picture, "JPEG", quality=50, subsampling="4:4:4"),
        "progressive.jpg": encode(picture, "JPEG", quality=75, progressive=True),
        "restart.jpg": encode(picture, "JPEG", quality=85, restart_marker_blocks=2),
        "gray.jpg": encode(gray, "JPEG", quality=75),
        "rgb.png": encode(picture, "PNG"),
        "gray.png": encode(gray, "PNG"),
        "depth.png": encode(depth, "PNG"),
    }
    for name, data in files.items():
        (FOLDER / name).write_bytes(data)
        (FOLDER / (name + ".pixels")).write_bytes(np.asarray(Image.open(io.BytesIO(data))).tobytes())
    exif = Image.Exif()
    exif[0x0112] = 6
    (FOLDER / "turned.jpg").write_bytes(encode(picture, "JPEG", exif=exif))
    (FOLDER / "cmyk.jpg").write_bytes(encode(picture.convert("CMYK"), "JPEG"))
    (FOLDER / "palette.png").write_bytes(encode(picture.convert("P"), "PNG"))
    (FOLDER / "alpha.png").write_bytes(encode(picture.convert("RGBA"), "PNG"))


if __name__ == "__main__":
    main()
