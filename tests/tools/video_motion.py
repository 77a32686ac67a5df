#!/usr/bin/env python3
"""Writes tests/golden/video/motion.mp4: what a camera sees while joints move (tests/support/moving_frames.py), in AV1 with a key
frame each second. Needs PyAV 18.

    python tests/tools/video_motion.py"""
import pathlib
import sys

import av
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
from moving_frames import FPS, SECONDS, frames_at  # noqa: E402


def main():
    with av.open(str(TESTS / "golden/video/motion.mp4"), "w") as file:
        stream = file.add_stream("libsvtav1", rate=FPS)
        stream.width = stream.height = 48
        stream.pix_fmt, stream.options = "yuv420p", {"g": str(FPS), "crf": "40", "preset": "8", "svtav1-params": "pred-struct=1"}
        for frame in frames_at(np.arange(SECONDS * FPS) / FPS)[:, ::2, ::2]:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), "rgb24")))
        file.mux(stream.encode())


if __name__ == "__main__":
    main()
