#!/usr/bin/env python3
"""Records what LeRobotDataset returns of the sets in tests/golden/video/lerobot: lerobot_vVERSION.json and .npz beside them.

    /tmp/lerobot/bin/python tests/tools/video_lerobot_vectors.py       # each of the two environments of video_sets.py
    /tmp/lerobot21/bin/python tests/tools/video_lerobot_vectors.py

tests/golden/video/README.md says what is recorded.
"""
import hashlib
import json
import os
import pathlib

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_CACHE="/tmp/trajd_video_sets")

import av  # noqa: E402 (the line above is read when datasets are imported)
import lerobot  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torchcodec  # noqa: E402
from lerobot.datasets.lerobot_dataset import CODEBASE_VERSION, LeRobotDataset  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "video" / "lerobot"
VERSION = CODEBASE_VERSION.replace(".", "")
BACKENDS = ("torchcodec", "pyav")
WIDE = 0.05  # seconds: a tolerance with which LeRobot reads what it otherwise refuses
STATE_DELTAS, ACTION_DELTAS, IMAGE_DELTAS = (-2, 0), range(5), (-3, 0, 1)


def open_set(name, backend, **options):
    return LeRobotDataset(f"trajd/{name}", root=FOLDER / name, video_backend=backend, **options)


def digests(images):
    """The first 64 bits of the SHA-256 of each image as u8 (H, W, 3). `images` is f32 (..., 3, H, W) between 0 and 1."""
    pixels = (images.reshape(-1, *images.shape[-3:]) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    assert torch.equal(torch.from_numpy(pixels).permute(0, 3, 1, 2) / torch.tensor(255.0), images.reshape(-1, *images.shape[-3:]))
    return [hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in pixels]


def read(dataset, index):
    try:
        return dataset[index], None
    except Exception as error:  # each kind is recorded by its name
        return None, type(error).__name__


def record_rows(name, arrays):
    """Returns texts and digests of all rows. Numbers go to `arrays`."""
    done = {"images": {}, "errors": {}}
    for backend in BACKENDS:
        dataset = open_set(name, backend)
        items = [read(dataset, index) for index in range(len(dataset))]
        errors = [error for _, error in items]
        cameras = dataset.meta.camera_keys
        done["images"][backend] = {key: [item and digests(item[key])[0] for item, _ in items] for key in cameras}
        if any(errors):
            done["errors"][backend] = errors
            wide = open_set(name, backend, tolerance_s=WIDE)
            items = [read(wide, index) for index in range(len(wide))]
            done["images"][backend + "_wide"] = {key: [item and digests(item[key])[0] for item, _ in items] for key in cameras}
            done["errors"][backend + "_wide"] = [error for _, error in items]
        if not any(errors) and "task" not in done:
            done["task"] = [item["task"] for item, _ in items]
            for key, value in items[0][0].items():
                if isinstance(value, torch.Tensor) and key not in cameras:
                    arrays[f"{name}/{key}"] = np.stack([item[key].numpy() for item, _ in items])
                elif key not in (*cameras, "task"):
                    done[key] = [item[key] for item, _ in items]
    for kind in ("torchcodec", "torchcodec_wide"):
        other = kind.replace("torchcodec", "pyav")
        if kind in done["images"] and done["images"][kind] == done["images"][other]:
            done["images"][other] = "same"
    done["features"] = {key: feature["dtype"] for key, feature in dataset.meta.features.items()}
    done["fps"] = dataset.meta.fps
    return done


def record_windows(name, arrays):
    """Windows at the begin and the end of episodes, and inside one. One window's pads differ from another's."""
    plain = open_set(name, "torchcodec")
    fps = plain.meta.fps
    state = "observation.state" if "observation.state" in plain.meta.features else "state"
    action = "action" if "action" in plain.meta.features else "actions"
    cameras = plain.meta.camera_keys
    deltas = {state: [d / fps for d in STATE_DELTAS], action: [d / fps for d in ACTION_DELTAS],
              **{key: [d / fps for d in IMAGE_DELTAS] for key in cameras}}
    dataset = open_set(name, "torchcodec", delta_timestamps=deltas)
    ends = np.flatnonzero(np.diff([int(row) for row in plain.hf_dataset["episode_index"]]))
    last = len(dataset) - 1
    indices = sorted({0, 1, 3, int(ends[0]) - 1, int(ends[0]), int(ends[0]) + 1, int(ends[0]) + 4, last - 3, last})
    windows = [dataset[index] for index in indices]
    for key in (state, action, *(f"{key}_is_pad" for key in (state, action, *cameras))):
        arrays[f"{name}/windows/{key}"] = np.stack([window[key].numpy() for window in windows])
    return {"indices": indices, "deltas": {key: [round(d * fps) for d in values] for key, values in deltas.items()},
            "images": {key: [digests(window[key]) for window in windows] for key in cameras},
            "task": [window["task"] for window in windows]}


def main():
    arrays, sets = {}, {}
    for root in sorted(FOLDER.iterdir()):
        info = root / "meta" / "info.json"
        if not info.exists() or json.loads(info.read_text())["codebase_version"] != CODEBASE_VERSION:
            continue
        done = record_rows(root.name, arrays)
        if not done["errors"]:
            done["windows"] = record_windows(root.name, arrays)
        sets[root.name] = done
        print(root.name, {kind: len([e for e in errors if e]) for kind, errors in done["errors"].items()})
    versions = {"lerobot": lerobot.__version__, "torch": torch.__version__, "torchcodec": torchcodec.__version__, "av": av.__version__,
                "ffmpeg of torchcodec": "5.1.9", "tolerance of _wide": WIDE}
    lines = [f" {json.dumps(name)}: {json.dumps(done, separators=(',', ':'))}" for name, done in sets.items()]
    text = '{"versions": ' + json.dumps(versions) + ',\n"sets": {\n' + ",\n".join(lines) + "\n}}\n"
    json.loads(text)
    (FOLDER.parent / f"lerobot_{VERSION}.json").write_text(text)
    np.savez_compressed(FOLDER.parent / f"lerobot_{VERSION}.npz", **arrays)


if __name__ == "__main__":
    main()
