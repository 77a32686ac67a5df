#!/usr/bin/env python3
"""Records every window that robomimic's own SequenceDataset makes of a file: record_robomimic.py FILE OUT.npz [--next]

With --next it records the observations after the action and the goals instead, of a file that has next_obs.

Needs robomimic (and so torch), which the tests do not: they read what this wrote. tests/golden/robomimic/README.md says what the
arrays are and which window of ours each is to equal.
"""
import argparse
import contextlib
import io
import json

import h5py
import numpy as np
import robomimic
import robomimic.utils.obs_utils as obs_utils
import torch
from robomimic.utils.dataset import SequenceDataset

OBS_KEYS = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object")
DATASET_KEYS = ("actions", "rewards", "dones")
FILTERS = (None, "train")
FRAME_STACK, SEQ_LENGTH = 2, 16


def open_dataset(path, filter_key, cache_mode, with_next=False):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return SequenceDataset(path, OBS_KEYS, DATASET_KEYS, frame_stack=FRAME_STACK, seq_length=SEQ_LENGTH,
                               pad_frame_stack=True, pad_seq_length=True, get_pad_mask=True,
                               hdf5_cache_mode=cache_mode, filter_by_attribute=filter_key, load_next_obs=with_next,
                               goal_mode="last" if with_next else None)


def flatten(window):
    """Returns {"obs/KEY": (T, D), KEY: (T, ...), "pad_mask": (T, 1)}. Both of robomimic's masks are the same."""
    assert np.array_equal(window["pad_mask"], window["obs"]["pad_mask"])
    flat = {f"obs/{key}": window["obs"][key] for key in OBS_KEYS}
    flat.update({key: window[key] for key in DATASET_KEYS + ("pad_mask",)})
    return flat


def record_next(path):
    """Returns {"next_obs/KEY": (N, T, D), "goal_obs/KEY": (N, D)}."""
    dataset = open_dataset(path, None, None, with_next=True)
    windows = [dataset[i] for i in range(len(dataset))]
    return {f"{group}/{key}": np.stack([window[group][key] for window in windows])
            for group in ("next_obs", "goal_obs") for key in OBS_KEYS}


def place(dataset, index):
    demo = dataset._index_to_demo_id[index]
    return demo.encode(), index - dataset._demo_id_to_start_indices[demo]


def record(dataset):
    windows = [flatten(dataset[i]) for i in range(len(dataset))]
    arrays = {key: np.stack([w[key] for w in windows]) for key in windows[0]}
    places = [place(dataset, i) for i in range(len(dataset))]
    arrays["demo"] = np.array([demo for demo, _ in places], dtype="S")
    arrays["index_in_demo"] = np.array([i for _, i in places], dtype=np.int32)
    return arrays


def compare_caches(path, arrays):
    """Checks that the cache modes differ in element types only. Returns the types by mode and key."""
    types = {"None": {key: str(a.dtype) for key, a in arrays.items()}}
    for mode in ("low_dim", "all"):
        cached = record(open_dataset(path, None, mode))
        for key, array in arrays.items():
            assert np.array_equal(array.astype(cached[key].dtype), cached[key]), (mode, key)
        types[mode] = {key: str(a.dtype) for key, a in cached.items()}
    return types


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("--next", action="store_true")
    options = parser.parse_args()
    with contextlib.redirect_stdout(io.StringIO()):
        obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": list(OBS_KEYS), "rgb": []}})
    versions = {"robomimic": robomimic.__version__, "torch": torch.__version__, "h5py": h5py.__version__,
                "numpy": np.__version__}
    if options.next:
        np.savez_compressed(options.out, meta=np.array(json.dumps({"versions": versions})), **record_next(options.file))
        return
    recorded = {}
    for filter_key in FILTERS:
        arrays = record(open_dataset(options.file, filter_key, None))
        recorded.update({f"{filter_key or 'all'}/{key}": array for key, array in arrays.items()})
        if filter_key is None:
            types = compare_caches(options.file, arrays)
    meta = {"versions": versions, "frame_stack": FRAME_STACK, "seq_length": SEQ_LENGTH, "types_by_cache_mode": types}
    np.savez_compressed(options.out, meta=np.array(json.dumps(meta)), **recorded)
    print(json.dumps(meta, indent=1))


if __name__ == "__main__":
    main()
