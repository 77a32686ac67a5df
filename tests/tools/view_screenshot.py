#!/usr/bin/env python3
"""Makes the image of clients/docs/how-to/view.md: a recording of a robot with two cameras in the Rerun viewer.

    tests/tools/view_screenshot.py clients/docs/how-to/view.png

Needs trajd[convert,view] with rerun-sdk 0.41, Pillow, mcap, and Debian's xvfb and mesa-vulkan-drivers: no GPU and no screen."""
import base64
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from mcap.writer import Writer
from PIL import Image, ImageDraw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from paths import TRAJCTL, package_environment  # noqa: E402

START, SECONDS = 1_700_000_000_000_000_000, 4
LENGTHS, SIZE = (44, 36, 24), (160, 120)  # of the arm's parts in pixels, and of a frame
WINDOW, COLORS = 70, 64
VULKAN = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"  # which draws by the processor


def joints(time):
    return [0.6 + 0.5 * np.sin(1.7 * time), 0.8 * np.sin(2.3 * time + 1), 0.9 * np.cos(1.1 * time)]


def force(time):
    return dict(zip("xyz", (4 * np.exp(-20 * (time - 1.5)**2), 0.4 * np.sin(9 * time), -9.8)))


def frame(time, scale, background):
    image = Image.new("RGB", SIZE, background)
    draw, at, angle = ImageDraw.Draw(image), np.array([SIZE[0] * 0.3, SIZE[1] * 0.9]), -np.pi / 2
    for length, turn in zip(LENGTHS, joints(time)):
        angle += turn
        end = at + scale * length * np.array([np.cos(angle), np.sin(angle)])
        draw.line([*at, *end], fill=(235, 120, 40), width=int(7 * scale))
        draw.ellipse([*(at - 5), *(at + 5)], fill=(60, 60, 70))
        at = end
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return base64.b64encode(file.getvalue()).decode()


TOPICS = {  # Hz, type, and the fields at a time; the sensor of forces stops for 0.3 s
    "/joint_states": (500, "sensor_msgs/msg/JointState", lambda time: {
        "name": ["shoulder", "elbow", "wrist"], "position": joints(time), "velocity": [], "effort": []}),
    "/wrench": (100, "geometry_msgs/msg/WrenchStamped", lambda time: None if 2.2 < time < 2.5 else {
        "wrench": {"force": force(time), "torque": {"x": 0.0, "y": 0.0, "z": 0.1 * np.sin(time)}}}),
    "/top": (30, "sensor_msgs/msg/CompressedImage", lambda time: {"format": "jpeg", "data": frame(time, 1, (225, 230, 235))}),
    "/wrist": (30, "sensor_msgs/msg/CompressedImage", lambda time: {"format": "jpeg", "data": frame(time, 1.5, (200, 215, 200))}),
}


def write_recording(path):
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start()
        for topic, (rate, kind, fields_at) in TOPICS.items():
            channel = writer.register_channel(topic, "json", writer.register_schema(kind, "jsonschema", b"{}"))
            for row in range(SECONDS * rate):
                ns, fields = row * 10**9 // rate, fields_at(row / rate)
                if fields:
                    stamp = {"sec": START // 10**9 + ns // 10**9, "nanosec": ns % 10**9}
                    writer.add_message(channel, START + ns, json.dumps({"header": {"stamp": stamp}, **fields}).encode(), START + ns)
        writer.finish()


def main(image):
    with tempfile.TemporaryDirectory(prefix="trajd-view-") as folder:
        environment = {**os.environ, **package_environment(), "TRAJD_RUNTIME_DIR": folder, "XDG_RUNTIME_DIR": folder,
                       "VK_ICD_FILENAMES": VULKAN}

        def run(*command):
            subprocess.run(command, check=True, cwd=folder, env=environment)

        write_recording(f"{folder}/lab.mcap")
        run(sys.executable, "-m", "trajd.convert", "mcap", "lab.mcap", "-o", "lab.hdf5")
        run(TRAJCTL, "init", "lab.hdf5", "--layout", "lab.layout.yaml", "-o", "lab.yaml")
        config = pathlib.Path(folder, "lab.yaml")
        text = re.sub(r"(/image, at: 0)", r"\1, image: {resize: [96, 96], augment: [{crop: [84, 84]}]}", config.read_text())
        config.write_text(re.sub(r"at: -1\.\.0(?=\}.*clock joint)", "at: -1..8, role: action", text))
        run(sys.executable, "-m", "trajd.view", "lab.yaml", "--window", str(WINDOW), "--save", "lab.rrd")
        run("xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", f"{os.path.dirname(sys.executable)}/rerun", "lab.rrd", "--renderer", "vulkan",
            "--window-size", "1300x800", "--hide-welcome-screen", "--screenshot-to", "shot.png")
        shot = Image.open(f"{folder}/shot.png").convert("RGB")
        shot = shot.resize((1300, 1300 * shot.height // shot.width), Image.Resampling.LANCZOS)
        shot.quantize(COLORS, dither=Image.Dither.NONE).save(image, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
