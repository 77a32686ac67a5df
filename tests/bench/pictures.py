#!/usr/bin/env python3
"""Compares trajd's pictures with Pillow and OpenCV, on one core and in one run.

    tests/bench/pictures.py --build build/release [--rounds 3] [--out FILE.json]

Runs in a Python that has numpy, Pillow and opencv. Prints us of processor time a frame (the best of all rounds; of the helper
program that of child and parent), and the ratios: decode against bare libjpeg-turbo on the same bytes, decode
and resize against each program's own, resize alone.
"""
import argparse
import io
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import cv2
import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEIGHT, WIDTH, TURNS = 480, 640, 25


def make_pictures(count):
    """Pictures with slopes, edges and sensor noise."""
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
    return 1e6 * min(times)


def measure_peers(pictures, files):
    """Returns {name: us}. main() lets malloc keep freed buffers, so that the programs have no page faults, as trajd has none."""
    cv2.setNumThreads(1)
    array, data = np.asarray(pictures[0]), files[0]
    encoded, small = np.frombuffer(data, np.uint8), np.empty((224, 224, 3), np.uint8)

    def area():
        return cv2.resize(cv2.imdecode(encoded, cv2.IMREAD_COLOR), (224, 224), dst=small, interpolation=cv2.INTER_AREA)
    times = {
        "pillow decode": best(lambda: np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))),
        "pillow decode 224": best(lambda: np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((224, 224), Image.BILINEAR))),
        "opencv decode": best(lambda: cv2.imdecode(encoded, cv2.IMREAD_COLOR)),
        "opencv decode 224": best(area),
    }
    for side in (224, 96):
        small = np.empty((side, side, 3), np.uint8)
        times[f"opencv area {side}"] = best(lambda: cv2.resize(array, (side, side), dst=small, interpolation=cv2.INTER_AREA))
        for name, which in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC), ("lanczos", Image.LANCZOS)):
            times[f"pillow {name} {side}"] = best(lambda: pictures[0].resize((side, side), which))
    return times


def measure_trajd(build, folder, files):
    names = []
    for i, data in enumerate(files):
        (folder / f"{i}.jpg").write_bytes(data)
        names.append(str(folder / f"{i}.jpg"))
    lines = [subprocess.run([build / "tests/bench/bench_pictures", *arguments], check=True, capture_output=True, text=True).stdout
             for arguments in (["decode", *names], ["resize"])]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in "".join(lines).splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.environ.update(MALLOC_MMAP_THRESHOLD_="1000000000", MALLOC_TRIM_THRESHOLD_="4000000000")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    result = {"machine": platform.processor() or platform.machine(), "processors": os.cpu_count(),
              "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()}
    pictures = list(make_pictures(6))
    for quality in (75, 95):
        files = []
        for picture in pictures:
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=quality)
            files.append(file.getvalue())
        times = {}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(arguments.rounds):
                for name, value in {**measure_trajd(arguments.build, pathlib.Path(folder), files), **measure_peers(pictures, files)}.items():
                    times[name] = min(value, times.get(name, value))
        result[f"quality {quality}"] = {"kilobytes": round(sum(map(len, files)) / len(files) / 1000, 1), "us": times}
        print(f"quality {quality}, {result[f'quality {quality}']['kilobytes']} KB a frame")
        for name, value in times.items():
            print(f"  {name:34} {value:9.1f} us")
        ratio = {"thread of bare libjpeg-turbo": times["decode library"] / times["decode thread"],
                 "helper 224 of a thread": times["decode thread_224"] / times["decode helper_224"],
                 "helper of bare libjpeg-turbo": times["decode library"] / times["decode helper"],
                 "helper 224 of bare libjpeg-turbo": times["decode library"] / times["decode helper_224"],
                 "helper 224 over Pillow": times["pillow decode 224"] / times["decode helper_224"],
                 "helper 224 over OpenCV AREA": times["opencv decode 224"] / times["decode helper_224"],
                 "resize 224 over Pillow": times["pillow bilinear 224"] / times["resize pillow-bilinear 224"],
                 "resize 224 over OpenCV AREA": times["opencv area 224"] / times["resize area 224"]}
        result[f"quality {quality}"]["ratios"] = ratio
        for name, value in ratio.items():
            print(f"  {name:34} {value:9.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
