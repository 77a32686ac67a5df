"""Writes the corpus of fuzz/index: encoded records of files of make_index_files.py, as the cache holds them. To be run after a change
of the record's format: build/venv/bin/python tests/tools/make_record_corpus.py"""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import h5py
import msgpack
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from paths import BUILD, ROOT
from video_groups import Video

FILES = [("heap", "frames", 1), ("padded", "frames", 1), ("prepared", "frames", 1), ("video", "frames", 1), ("good", "robomimic", 1), ("family_vlen", "robomimic", 1), ("external_link", "robomimic", 1), ("storage", "robomimic", 1),
         ("raw_even", "robosuite_raw", 1), ("raw_repeats", "robosuite_raw", 1)]
CONFIG = """\
version: 2
cache: {folder}/cache
datasets: {{one: {{path: {folder}/{name}, layout: {layout}}}}}
feeds:
  one: {{dataset: one, global_batch: 1, anchor: {{clock: {clock}}}, outputs: {{{stream}: {{at: 0..0}}}}}}
"""
CLOCKS = {"robosuite_raw": ("sim", "states"), "frames": ("robot", "state")}
PAST = 1_600_000_000  # the cache keeps no record of a file that is younger than two seconds


def record_of(cache):
    """Returns the only record in a cache of index_cache.c."""
    _, _, [[*_, record]] = msgpack.unpackb(cache.read_bytes()[24:])  # after magic, length and digest
    return record


def write_video(folder):
    """Writes a file with one camera by copy and one by reference."""
    with h5py.File(folder / "video.h5", "w") as file:
        file["state"] = np.arange(12.0)[:, None]
        Video().write(file.create_group("cams/copied"))
        video = Video(seed=1)
        video.write_media(folder, "video.mp4")
        video.write(file.create_group("cams/referred"))


def main():
    corpus = ROOT / "tests/golden/fuzz/index"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for tool in "make_index_files.py", "make_frame_files.py":
            subprocess.run([sys.executable, ROOT / "tests/tools" / tool, folder], check=True)
        write_video(folder)
        for file in [*folder.glob("*.h*5"), *folder.glob("*.mp4")]:
            os.utime(file, (PAST, PAST))
        time.sleep(0.2)  # nor of one whose ctime is younger than 100 ms
        for name, layout, clocks in FILES:
            file = folder / (f"{name}.h5" if layout == "frames" else f"{name}.hdf5")
            (folder / "cache").mkdir()
            clock, stream = CLOCKS.get(layout, ("actions", "actions"))
            (folder / "one.yaml").write_text(CONFIG.format(folder=folder, name=file.name, clock=clock, stream=stream,
                                                           layout=folder / "frames.yaml" if layout == "frames" else layout))
            subprocess.run([BUILD / "daemon/trajd", "--check", "--config", folder / "one.yaml"], check=False, stdout=subprocess.DEVNULL)
            [cache] = (folder / "cache").glob("*.index")
            blocks = file.stat().st_size // 256 + 1
            (corpus / name).write_bytes(struct.pack(">BH", clocks, blocks) + record_of(cache))
            shutil.rmtree(folder / "cache")


if __name__ == "__main__":
    main()
