"""trajctl inspect --frame: a frame as an image, left as stored, right as a policy gets it."""
import subprocess

import h5py
import numpy as np
import pytest

from paths import ROOT, TRAJCTL
from image_files import random_frames, read_png, write_encoded

IMAGES = ROOT / "tests" / "golden" / "decoded"
HEIGHT, WIDTH, GAP = 29, 42, 8
LAYOUT = """layout: cams
version: 1
episodes: {{files: "**/*.h5", groups: /demo_*}}
clocks: {{steps: {{rate: 30, rows: q}}}}
streams:
  q: {{path: q, kind: linear}}
  cam: {{path: cam, kind: previous, image: {image}}}
"""


def write_file(tmp_path, image, frames, dtype=None):
    """Two episodes; the second one has the frames."""
    with h5py.File(tmp_path / "cams.h5", "w") as file:
        for name, content in (("demo_0", frames[:1] * 2), ("demo_1", frames)):
            group = file.create_group(name)
            group["q"] = np.zeros((len(content), 6))
            cam = group.create_dataset("cam", (len(content),), dtype=h5py.vlen_dtype(np.uint8)) if dtype is None else None
            for row, frame in enumerate(content):
                if cam is not None:
                    cam[row] = np.frombuffer(frame, np.uint8)
            if cam is None:
                group["cam"] = np.stack(content).astype(dtype)
    (tmp_path / "cams.yaml").write_text(LAYOUT.format(image=image))


def show(tmp_path, *arguments):
    (tmp_path / "frame.png").unlink(missing_ok=True)
    return subprocess.run([TRAJCTL, "inspect", "--layout", tmp_path / "cams.yaml", *map(str, arguments), "-o", tmp_path / "frame.png",
                           tmp_path / "cams.h5"], capture_output=True, text=True, timeout=60)


def load(name):
    pixels = (IMAGES / (name + ".pixels")).read_bytes()
    return (IMAGES / name).read_bytes(), np.frombuffer(pixels, np.uint8 if name != "depth.png" else np.uint16).reshape(HEIGHT, WIDTH, -1)


@pytest.mark.parametrize("name, reason", [("cmyk.jpg", "a CMYK JPEG is not supported: write it as RGB"),
                                          ("gray_transparent.png", "a png in grey, the layout says rgb"),
                                          ("depth.png", "a png in grey, the layout says rgb")])
def test_frames_of_another_kind_are_named(tmp_path, name, reason):
    data = (IMAGES / name).read_bytes()
    write_file(tmp_path, "{color: rgb}", [data, data])
    shown = show(tmp_path, "--frame", "cam:1")
    assert shown.returncode != 0 and f"cam: row 0: {reason}" in shown.stderr


@pytest.mark.parametrize("name", ["420.jpg", "progressive.jpg", "rgb.png", "palette_of_11.png", "palette_transparent.png", "transparent.png"])
def test_colours_and_flips(tmp_path, name):
    other, _ = load("444.jpg" if name.endswith("jpg") else "palette.png")
    data, pixels = load(name)
    write_file(tmp_path, "{color: bgr, flip: v}", [other, data, other])
    shown = show(tmp_path, "--frame", "cam:1", "--episode", "demo_1")
    assert shown.returncode == 0, shown.stderr
    assert "demo_1, row 1: 29x42 bgr" in shown.stdout and str(len(data)) in shown.stdout
    image = read_png(tmp_path / "frame.png")
    assert (image[:, :WIDTH] == pixels).all() and (image[:, WIDTH:WIDTH + GAP] == 255).all()
    assert (image[:, WIDTH + GAP:] == pixels[::-1, :, ::-1]).all()


def test_resized(tmp_path):
    data, pixels = load("444.jpg")
    write_file(tmp_path, "{color: rgb}", [data])
    shown = show(tmp_path, "--frame", "cam:0", "--resize", "20x20", "--fit", "pad", "--filter", "nearest")
    assert shown.returncode == 0, shown.stderr
    right = read_png(tmp_path / "frame.png")[:20, WIDTH + GAP:]
    inner = int(HEIGHT / (WIDTH / 20))
    top = (20 - inner) // 2
    rows = [(2 * y + 1) * HEIGHT // (2 * inner) for y in range(inner)]
    columns = [(2 * x + 1) * WIDTH // 40 for x in range(20)]
    assert (right[top:top + inner] == pixels[rows][:, columns]).all()
    assert not right[:top].any() and not right[top + inner:].any()


def test_raw_and_depth(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 255, (8, 9, 3), dtype=np.uint8)
    write_file(tmp_path, "{color: rgb, flip: h}", [pixels, pixels], np.uint8)
    assert show(tmp_path, "--frame", "cam:1").returncode == 0
    assert (read_png(tmp_path / "frame.png")[:, 9 + GAP:] == pixels[:, ::-1]).all()
    data, depth = load("depth.png")
    write_file(tmp_path, "{unit: mm}", [data])
    assert show(tmp_path, "--frame", "cam:0").returncode == 0
    left = read_png(tmp_path / "frame.png")[:, :WIDTH]
    assert (left == (depth.astype(float) / depth.max() * 255).astype(np.uint8)).all()


def test_mistakes(tmp_path):
    data, _ = load("420.jpg")
    write_file(tmp_path, "{color: rgb}", [data, data[:600], data])
    for arguments, words in ((["--frame", "cam"], "expected STREAM:ROW"), (["--frame", "top:0"], "there is no stream top"),
                             (["--frame", "cam:9"], "has 2 rows in demo_0"), (["--frame", "q:0"], "key image"),
                             (["--frame", "cam:0", "--episode", "demo_7"], "no kept episode demo_7"),
                             (["--frame", "cam:0", "--resize", "20"], "HEIGHTxWIDTH"), (["--frame", "cam:0", "--resize", "20x9000"], "8192"),
                             (["--frame", "cam:0", "--resize", "9x9", "--filter", "bilinear"], "pillow-bilinear"),
                             (["--frame", "cam:0", "--resize", "9x9", "--fit", "crop"], "choose stretch"),
                             (["--frame", "cam:1", "--episode", "demo_1"], "row 1: ")):
        shown = show(tmp_path, *arguments)
        assert shown.returncode == 1 and words in shown.stderr, shown.stderr
        assert not (tmp_path / "frame.png").exists()
    assert show(tmp_path, "--frame", "cam:0").returncode == 0
    again = subprocess.run([TRAJCTL, "inspect", "--layout", tmp_path / "cams.yaml", "--frame", "cam:0", "-o", tmp_path / "frame.png",
                            tmp_path / "cams.h5"], capture_output=True, text=True, timeout=60)
    assert again.returncode == 1 and "frame.png" in again.stderr  # nothing is written over


def test_the_last_part_of_a_name_is_recognised(tmp_path):
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(3, 32, 32, 1)})
    shown = subprocess.run([TRAJCTL, "inspect", "--frame", "top:0", "-o", tmp_path / "frame.png", tmp_path], capture_output=True, text=True,
                           timeout=60)
    assert shown.returncode == 1 and "there is no stream top (did you mean observations/images/top?)" in shown.stderr
