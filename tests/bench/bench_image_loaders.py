#!/usr/bin/env python3
"""How fast the loaders of others deliver windows with images to one process that reads every byte. JSON on stdout.

    bench_image_loaders.py make_act FOLDER [--episodes 4] [--rows 64]    compressed ALOHA episodes, three cameras of 480x640
    bench_image_loaders.py act FOLDER [--seconds 3] [--workers 0 1 2]
    bench_image_loaders.py robomimic FILE.hdf5 ...                       needs robomimic
    bench_image_loaders.py diffusion_policy FILE.hdf5 ...

Needs torch, h5py and OpenCV. `act` and `diffusion_policy` are written here: the steps that the loaders of act-plus-plus
(EpisodicDataset) and of diffusion_policy (RobomimicReplayImageDataset) take for a sample, and nothing else. Each comes with
images as float32, as their trainers get them, and with `u8`, which leaves the last steps out. In their favour: frames of
diffusion_policy and robomimic are in memory, uncompressed, and not cropped; workers persist; the start is not timed."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import sys
import time

import cv2
import h5py
import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from bench_torch_loader import cpu_seconds, endless  # noqa: E402
from image_bytes import kinds_of, read_all  # noqa: E402

CAMERAS = ("cam_high", "cam_left_wrist", "cam_right_wrist")
HEIGHT, WIDTH, JOINTS, CHUNK, QUALITY = 480, 640, 14, 100, 50
IMAGES, LOW = ("agentview_image", "robot0_eye_in_hand_image"), ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
HISTORY, HORIZON = 2, 16


def image(random, e, row, camera):
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    values = 127 + 50 * np.sin(x / (17 + camera) + row / 5) + 40 * np.cos(y / (11 + e))
    values = values[..., None] + [0, 20, -30] + random.normal(0, 4, (HEIGHT, WIDTH, 3))
    return np.clip(values, 0, 255).astype(np.uint8)


def make_act(options):
    """Writes the form of Mobile ALOHA: JPEG of quality 50, padded to the longest of the episode."""
    random, folder = np.random.default_rng(8), pathlib.Path(options.path)
    folder.mkdir(parents=True, exist_ok=True)
    for e in range(options.episodes):
        frames = {camera: [cv2.imencode(".jpg", image(random, e, row, c), [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].ravel()
                           for row in range(options.rows)] for c, camera in enumerate(CAMERAS)}
        longest = max(len(frame) for rows in frames.values() for frame in rows)
        with h5py.File(folder / f"episode_{e}.hdf5", "w", rdcc_nbytes=1024**2 * 2) as file:
            file.attrs["sim"], file.attrs["compress"] = False, True
            for name in ("action", "observations/qpos", "observations/qvel"):
                file[name] = random.standard_normal((options.rows, JOINTS), np.float32)
            for camera, rows in frames.items():
                padded = np.zeros((options.rows, longest), np.uint8)
                for row, frame in zip(padded, rows):
                    row[:len(frame)] = frame
                file.create_dataset(f"observations/images/{camera}", data=padded, chunks=(1, longest))


class Act(torch.utils.data.Dataset):
    """A sample: one step's images and joints, and the actions from one row before it, padded and cut to a chunk."""

    def __init__(self, folder, is_u8):
        self.paths, self.is_u8 = sorted(map(str, pathlib.Path(folder).glob("episode_*.hdf5"))), is_u8
        self.lengths, actions, qpos = [], [], []
        for path in self.paths:
            with h5py.File(path) as file:
                actions.append(file["action"][()])
                qpos.append(file["observations/qpos"][()])
                self.lengths.append(len(actions[-1]))
        self.longest, self.starts = max(CHUNK, *self.lengths), np.cumsum([0, *self.lengths])
        actions, qpos = (torch.from_numpy(np.concatenate(rows)) for rows in (actions, qpos))
        self.scales = [(rows.mean(0), rows.std(0).clamp(min=1e-2)) for rows in (actions, qpos)]

    def __len__(self):
        return int(self.starts[-1])

    def __getitem__(self, index):
        episode = int(np.searchsorted(self.starts, index, "right")) - 1
        row = index - int(self.starts[episode])
        with h5py.File(self.paths[episode]) as file:
            actions = file["action"][()]
            qpos, _ = file["observations/qpos"][row], file["observations/qvel"][row]
            frames = [file[f"observations/images/{camera}"][row] for camera in CAMERAS]
        frames = np.stack([cv2.imdecode(frame, 1) for frame in frames])
        actions = actions[max(0, row - 1):]
        padded, is_pad = np.zeros((self.longest, JOINTS), np.float32), np.zeros(self.longest)
        padded[:len(actions)], is_pad[len(actions):] = actions, 1
        images = torch.einsum("k h w c -> k c h w", torch.from_numpy(frames))
        if not self.is_u8:
            images = images / 255.0
        (action_mean, action_std), (qpos_mean, qpos_std) = self.scales
        return (images, (torch.from_numpy(qpos).float() - qpos_mean) / qpos_std,
                (torch.from_numpy(padded[:CHUNK]).float() - action_mean) / action_std, torch.from_numpy(is_pad[:CHUNK]).bool())


class DiffusionPolicy(torch.utils.data.Dataset):
    """A sample: two steps of each observation and 16 actions, cut out of arrays in memory and padded by the edge rows."""

    def __init__(self, path, is_u8):
        with h5py.File(path) as file:
            demos = [file["data"][f"demo_{i}"] for i in range(len(file["data"]))]
            self.rows = {key: np.concatenate([demo["obs"][key][()] for demo in demos]) for key in IMAGES + LOW}
            self.rows["action"] = np.concatenate([demo["actions"][()] for demo in demos]).astype(np.float32)
            lengths = [len(demo["actions"]) for demo in demos]
        ends, self.is_u8 = np.cumsum(lengths), is_u8
        self.bounds = [(max(start, row - 1), min(end, row - 1 + HORIZON), row - 1)
                       for start, end in zip(ends - lengths, ends) for row in range(start, end)]

    def __len__(self):
        return len(self.bounds)

    def cut(self, key, first, end, wanted, steps):
        rows = self.rows[key]
        sample = rows[first:min(end, wanted + steps)]
        if len(sample) == steps:
            return sample
        before, after = first - wanted, wanted + steps - max(end, first + 1)
        data = np.empty((steps, *rows.shape[1:]), rows.dtype)
        data[before:before + len(sample)] = sample
        data[:before] = sample[0]
        if after > 0:
            data[before + len(sample):] = sample[-1]
        return data

    def __getitem__(self, index):
        first, end, wanted = self.bounds[index]
        obs = {}
        for key in IMAGES:
            frames = np.moveaxis(self.cut(key, first, end, wanted, HISTORY), -1, 1)
            obs[key] = torch.from_numpy(np.ascontiguousarray(frames) if self.is_u8 else frames.astype(np.float32) / 255.0)
        for key in LOW:
            obs[key] = torch.from_numpy(self.cut(key, first, end, wanted, HISTORY).astype(np.float32))
        return {"obs": obs, "action": torch.from_numpy(self.cut("action", first, end, wanted, HORIZON))}


def open_robomimic(path, _):
    """frame_stack 2 and seq_length 1: two rows of every key, also of the actions."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import robomimic.utils.obs_utils as obs_utils
        from robomimic.utils.dataset import SequenceDataset
        obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": list(LOW), "rgb": list(IMAGES)}})
        return SequenceDataset(path, IMAGES + LOW, ("actions",), frame_stack=HISTORY, seq_length=1, pad_frame_stack=True,
                               pad_seq_length=True, load_next_obs=False, hdf5_cache_mode="all")


def robomimic_floats(batch):
    """What robomimic does to a batch before a policy sees it, on the CPU."""
    import robomimic.utils.obs_utils as obs_utils
    batch["obs"] = obs_utils.process_obs_dict(batch["obs"])
    return batch


LOADERS = {"act": Act, "diffusion_policy": DiffusionPolicy, "robomimic": open_robomimic}


def arrays_of(batch):
    values = batch.values() if isinstance(batch, dict) else batch
    return [array for value in values for array in (arrays_of(value) if isinstance(value, (dict, list, tuple)) else [value.numpy()])]


def measure(options, dataset, workers, is_u8):
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(dataset, batch_size=options.batch, shuffle=True, num_workers=workers, drop_last=True,
                                         persistent_workers=workers > 0)
    finish = robomimic_floats if options.what == "robomimic" and not is_u8 else lambda batch: batch
    stream = endless(loader)
    for _ in range(4):
        arrays = arrays_of(finish(next(stream)))
        size = read_all(arrays)
    batches, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < options.seconds:
        read_all(arrays_of(finish(next(stream))))
        batches += 1
    windows = batches * options.batch
    return {"workers": workers, "u8": is_u8, "windows_per_s": round(windows / elapsed, 1),
            "cpu_us_per_window": round(1e6 * (cpu_seconds() - cpu) / windows, 2), "batch_bytes": size, "kinds": kinds_of(arrays)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make_act", *LOADERS))
    parser.add_argument("path")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--forms", nargs="+", choices=("u8", "float32"), default=("u8", "float32"))
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--rows", type=int, default=64)
    options = parser.parse_args()
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:  # malloc keeps the buffers of batches, which costs less than new pages
        os.environ.update(MALLOC_MMAP_THRESHOLD_="1000000000", MALLOC_TRIM_THRESHOLD_="4000000000")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if options.what == "make_act":
        return make_act(options)
    datasets = {form: LOADERS[options.what](options.path, form == "u8") for form in options.forms}
    return print(json.dumps([measure(options, datasets[form], workers, form == "u8")
                             for form in options.forms for workers in options.workers]))


if __name__ == "__main__":
    main()
