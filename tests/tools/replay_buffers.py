#!/usr/bin/env python3
"""Writes the stores in tests/golden/zarr and what their own reader returns of them, with the projects' own code.

    python3 -m venv /tmp/dp && /tmp/dp/bin/pip install zarr==2.16.1 'numcodecs<0.13' imagecodecs 'numpy<2'
    /tmp/dp/bin/python tests/tools/replay_buffers.py DIFFUSION_POLICY UMI

DIFFUSION_POLICY and UMI are clones of real-stanford/diffusion_policy and
real-stanford/universal_manipulation_interface. Their ReplayBuffer and codecs are those of the newest commits.
tests/golden/zarr/README.md describes the stores."""
import importlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import imagecodecs
import numcodecs
import numpy as np
import zarr

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "zarr"
MODULES = ("diffusion_policy/common/replay_buffer.py", "diffusion_policy/codecs/imagecodecs_numcodecs.py")


def load(clone):
    """Returns a project's modules, and its commit."""
    def git(*command):
        return subprocess.run(["git", "-C", clone, *command], check=True, capture_output=True).stdout

    with tempfile.TemporaryDirectory() as folder:
        for name in MODULES:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(git("show", f"HEAD:{name}"))
        sys.path.insert(0, folder)
        for name in [name for name in sys.modules if name.startswith("diffusion_policy")]:
            del sys.modules[name]
        modules = [importlib.import_module(name[:-3].replace("/", ".")) for name in MODULES]
        sys.path.remove(folder)
    return *modules, git("rev-parse", "HEAD").decode().strip()


def image(number, height, width):
    """An image with soft colours, edges and some noise."""
    y, x = np.mgrid[:height, :width]
    soft = np.stack([x * 4 + number * 5, y * 5 + number * 3, (x + y) * 2 + 40 * np.sin(number)], -1)
    soft[(x - 8 - number) ** 2 + (y - 12) ** 2 < 40] = (250, 40, 20)
    return np.clip(soft + np.random.default_rng(number).normal(0, 2, soft.shape), 0, 255).astype(np.uint8)


def images(first, count, height=32, width=40):
    return np.stack([image(first + row, height, width) for row in range(count)])


def steps(rows, columns, seed):
    return np.random.default_rng(seed).normal(0, 1, (rows, columns)).cumsum(axis=0)


def write_pusht(ReplayBuffer, _codecs):
    """The steps of demo_pusht.py. Chunks are those of five rows, so that they have rows of two episodes."""
    buffer = ReplayBuffer.create_from_path(FOLDER / "pusht.zarr", mode="a")
    for episode, rows in enumerate((7, 9, 4)):
        data = {"img": images(20 * episode, rows, 16, 20).astype(np.float32),
                "state": np.float32(steps(rows, 5, episode)),
                "keypoint": np.float32(steps(rows, 18, episode)).reshape(rows, 9, 2),
                "action": np.float32(steps(rows, 2, episode + 9)),
                "n_contacts": np.float32(np.arange(rows)[:, None] % 3)}
        buffer.add_episode(data, compressors="disk" if episode % 2 == 0 else "default",
                           chunks={key: (5, *value.shape[1:]) for key, value in data.items()})
    return ReplayBuffer.copy_from_path(FOLDER / "pusht.zarr")


def write_real(ReplayBuffer, codecs):
    """A real robot: numbers as real_env.py records them, and frames as real_data_to_replay_buffer packs them."""
    recorded = ReplayBuffer.create_empty_zarr(storage=zarr.MemoryStore())
    for episode, rows in enumerate((8, 6)):
        data = {"timestamp": 1.7e9 + 100 * episode + np.arange(rows) * 0.1, "action": steps(rows, 6, episode),
                "stage": np.zeros(rows, np.int64), "robot_eef_pose": steps(rows, 6, episode + 5)}
        recorded.add_episode(data, compressors="disk")
    shapes = {key: value.shape for key, value in recorded.data.items()}
    buffer = ReplayBuffer.copy_from_store(src_store=recorded.root.store, store=zarr.MemoryStore(), chunks=shapes,
                                          compressors=dict.fromkeys(shapes))
    for camera in range(2):
        frames = images(100 * camera, buffer.n_steps)
        array = buffer.data.require_dataset(f"camera_{camera}", shape=frames.shape, chunks=(1, *frames.shape[1:]),
                                            dtype=np.uint8, compressor=codecs.Jpeg2k(level=50))
        for row, frame in enumerate(frames):
            array[row] = frame
    return save_zip(ReplayBuffer, buffer, "real.zarr.zip")


def write_umi(ReplayBuffer, codecs):
    """As 07_generate_replay_buffer.py writes it."""
    buffer = ReplayBuffer.create_empty_zarr(storage=zarr.MemoryStore())
    for episode, rows in enumerate((6, 9, 5)):
        pose = steps(rows, 6, episode)
        buffer.add_episode({"robot0_eef_pos": pose[:, :3].astype(np.float32),
                            "robot0_eef_rot_axis_angle": pose[:, 3:].astype(np.float32),
                            "robot0_gripper_width": np.abs(pose[:, :1]).astype(np.float32),
                            "robot0_demo_start_pose": np.tile(pose[0], (rows, 1)),
                            "robot0_demo_end_pose": np.tile(pose[-1], (rows, 1))}, compressors=None)
    frames = images(200, buffer["robot0_eef_pos"].shape[0], 48, 48)
    array = buffer.data.require_dataset(name="camera0_rgb", shape=frames.shape, chunks=(1, 48, 48, 3),
                                        compressor=codecs.JpegXl(level=99, numthreads=1), dtype=np.uint8)
    for row, frame in enumerate(frames):
        array[row] = frame
    return save_zip(ReplayBuffer, buffer, "umi.zarr.zip")


def save_zip(ReplayBuffer, buffer, name):
    with zarr.ZipStore(str(FOLDER / name), mode="w") as store:
        buffer.save_to_store(store=store)
    with zarr.ZipStore(str(FOLDER / name), mode="r") as store:
        return ReplayBuffer.copy_from_store(src_store=store)


def main():
    for path in FOLDER.glob("*.zarr*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    FOLDER.mkdir(exist_ok=True)
    arrays = {}
    about = {"made_by": {module.__name__: module.__version__ for module in (zarr, numcodecs, imagecodecs)}}
    for clone, sets in ((sys.argv[1], {"pusht": write_pusht, "real": write_real}), (sys.argv[2], {"umi": write_umi})):
        replay_buffer, codecs, commit = load(clone)
        codecs.register_codecs()
        for name, write in sets.items():
            read = write(replay_buffer.ReplayBuffer, codecs)  # in memory
            about[name] = {"commit": commit, "episode_ends": read.episode_ends[:].tolist(), "keys": sorted(read.keys())}
            for key, values in read.items():
                arrays[f"{name}/{key}"] = values
    np.savez_compressed(FOLDER / "vectors.npz", **arrays)
    (FOLDER / "vectors.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
