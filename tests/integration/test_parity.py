"""Windows and masks against two loaders that people train with: ACT's EpisodicDataset and diffusion_policy's
SequenceSampler.

Both are written here in numpy from their published rules: act/utils.py of tonyzhaozh/act, and
diffusion_policy/common/sampler.py of real-stanford/diffusion_policy. test_robomimic.py has recorded windows of
robomimic."""
import pathlib
import subprocess
import sys

import h5py
import numpy as np
import pytest

from datasets import natural
from paths import clean_environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEFORE, AFTER = 1, 2  # of a mask


# ---- ACT ----

ACT_EPISODES = {0: 30, 1: 1, 2: 17, 10: 40}
ACT_FEED = """
datasets: {{aloha: {{path: {folder}, layout: aloha}}}}
feeds:
  windows:
    dataset: aloha
    global_batch: 7
    tail: short
    anchor: {{clock: steps}}
    pad: {{before: 0, after: any, with: zero}}
    outputs:
      qpos:   {{from: observations/qpos, at: 0}}
      image:  {{from: observations/images/top, at: 0}}
      action: {{at: {at}}}
"""


def write_aloha(folder):
    random = np.random.default_rng(5)
    for number, rows in ACT_EPISODES.items():
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = True
            file["action"] = random.normal(size=(rows, 14)).astype(np.float32)
            file["observations/qpos"] = random.normal(size=(rows, 14)).astype(np.float32)
            file["observations/qvel"] = random.normal(size=(rows, 14)).astype(np.float32)
            file["observations/images/top"] = random.integers(0, 256, (rows, 6, 8, 3), dtype=np.uint8)


def act_item(path, start_ts, is_sim, chunk):
    """Returns EpisodicDataset.__getitem__ for a given start, cut to the policy's `num_queries` steps."""
    with h5py.File(path, "r") as root:
        original_action_shape = root["/action"].shape
        episode_len = original_action_shape[0]
        qpos = root["/observations/qpos"][start_ts]
        image = root["/observations/images/top"][start_ts]
        if is_sim:
            action = root["/action"][start_ts:]
            action_len = episode_len - start_ts
        else:
            action = root["/action"][max(0, start_ts - 1):]
            action_len = episode_len - max(0, start_ts - 1)
    padded_action = np.zeros((max(episode_len, chunk), *original_action_shape[1:]), dtype=np.float32)
    padded_action[:action_len] = action
    is_pad = np.zeros(max(episode_len, chunk))
    is_pad[action_len:] = 1
    return image, qpos, padded_action[:chunk], is_pad[:chunk].astype(bool)


@pytest.mark.parametrize("is_sim", [True, False], ids=["sim", "real"])
@pytest.mark.parametrize("chunk", [1, 16, 40])
def test_windows_are_acts(daemon, tmp_path, is_sim, chunk):
    """Every start that ACT may draw is an anchor. A real robot's chunk begins one row earlier. At row 0, where ACT
    cannot do that, it shifts the chunk: that start is not a window here."""
    write_aloha(tmp_path)
    at = f"0..{chunk - 1}" if is_sim else f"-1..{chunk - 2}"
    client = daemon(ACT_FEED.format(folder=tmp_path, at=at)).client()
    info = client.open("windows")
    paths = sorted(tmp_path.glob("episode_*.hdf5"), key=lambda path: natural(path.name))
    first = 0 if is_sim else 1
    starts = [(path, start) for path, rows in zip(paths, ACT_EPISODES.values()) for start in range(first, rows)]
    assert info.window_count == len(starts)
    seen = set()
    for _, arrays in client.epoch():
        for row, window in enumerate(arrays["window_id"]):
            path, start = starts[window]
            image, qpos, action, is_pad = act_item(path, start, is_sim, chunk)
            for name, want in (("image", image), ("qpos", qpos), ("action", action)):
                got = arrays[name][row].reshape(want.shape)
                assert got.dtype == want.dtype and got.tobytes() == want.tobytes(), (name, path.name, start)
            np.testing.assert_array_equal(np.isin(arrays["action.mask"][row], (BEFORE, AFTER)), is_pad)
            seen.add(int(window))
    client.close()
    assert seen == set(range(len(starts)))


# ---- diffusion_policy ----

DP_KEYS = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
DP_FEED = """
datasets: {{parity: {{path: {path}, layout: robomimic}}}}
feeds:
  windows:
    dataset: parity
    global_batch: 7
    order: sequential
    tail: short
    anchor: {{clock: actions}}
    pad: {{before: {before}, after: {after}, with: edge}}
    outputs:
      obs/robot0_eef_pos:      {{at: {obs}}}
      obs/robot0_eef_quat:     {{at: {obs}}}
      obs/robot0_gripper_qpos: {{at: {obs}}}
      obs/object:              {{at: {obs}}}
      actions:                 {{at: {actions}}}
"""


def create_indices(episode_ends, sequence_length, pad_before, pad_after):
    """Returns (buffer_start, buffer_end, sample_start, sample_end) of every sample, episode by episode."""
    pad_before = min(max(pad_before, 0), sequence_length - 1)
    pad_after = min(max(pad_after, 0), sequence_length - 1)
    indices = []
    for i, end_idx in enumerate(episode_ends):
        start_idx = episode_ends[i - 1] if i > 0 else 0
        episode_length = end_idx - start_idx
        for idx in range(-pad_before, episode_length - sequence_length + pad_after + 1):
            buffer_start_idx = max(idx, 0) + start_idx
            buffer_end_idx = min(idx + sequence_length, episode_length) + start_idx
            start_offset = buffer_start_idx - (idx + start_idx)
            end_offset = (idx + sequence_length + start_idx) - buffer_end_idx
            indices.append((buffer_start_idx, buffer_end_idx, start_offset, sequence_length - end_offset))
    return indices


def sample_sequence(replay, index, sequence_length, n_obs_steps):
    """Returns the result of SequenceSampler.sample_sequence with observations cut to the steps that the policy
    reads (key_first_k), and the steps that were repeated. sample_sequence does not return the latter, but they
    are its padding."""
    buffer_start, buffer_end, sample_start, sample_end = index
    result = {}
    for key, rows in replay.items():
        sample = rows[buffer_start:buffer_end]
        data = np.zeros((sequence_length,) + rows.shape[1:], rows.dtype)
        if sample_start > 0:
            data[:sample_start] = sample[0]
        if sample_end < sequence_length:
            data[sample_end:] = sample[-1]
        data[sample_start:sample_end] = sample
        result[key] = data if key == "actions" else data[:n_obs_steps]
    mask = np.zeros(sequence_length, np.uint8)
    mask[:sample_start], mask[sample_end:] = BEFORE, AFTER
    return result, mask


def read_replay(path):
    """Returns ReplayBuffer's arrays: all episodes behind one another, sorted by number, and the end of each episode."""
    with h5py.File(path) as file:
        demos = [file["data"][name] for name in sorted(file["data"], key=natural)]
        replay = {key: np.concatenate([demo[key][:] for demo in demos]).astype(np.float32) for key in (*DP_KEYS, "actions")}
        return replay, list(np.cumsum([len(demo["actions"]) for demo in demos]))


@pytest.mark.parametrize("horizon, n_obs_steps, n_action_steps", [(16, 2, 8), (4, 1, 4), (1, 1, 1), (10, 3, 8)])
def test_windows_are_diffusion_policys(daemon, tmp_path, horizon, n_obs_steps, n_action_steps):
    path = tmp_path / "parity.hdf5"
    subprocess.run([sys.executable, ROOT / "tests/tools/make_parity_dataset.py", path], check=True, stdout=subprocess.DEVNULL,
                   env=clean_environment())
    replay, ends = read_replay(path)
    before, after = n_obs_steps - 1, n_action_steps - 1  # as its datasets pad
    indices = create_indices(ends, horizon, before, after)
    first = 1 - n_obs_steps
    client = daemon(DP_FEED.format(path=path, before=before, after=after, obs=f"{first}..0",
                                   actions=f"{first}..{first + horizon - 1}")).client()
    info = client.open("windows")
    assert info.window_count == len(indices) > 0
    seen = 0
    for _, arrays in client.epoch():
        for row, window in enumerate(arrays["window_id"]):
            assert window == seen  # in its order, without a shuffle
            want, mask = sample_sequence(replay, indices[window], horizon, n_obs_steps)
            for key, value in want.items():
                got = arrays[key][row]
                assert got.dtype == value.dtype and got.tobytes() == value.tobytes(), (key, window)
                np.testing.assert_array_equal(arrays[f"{key}.mask"][row], mask[:len(value)])
            seen += 1
    client.close()
    assert seen == len(indices)
