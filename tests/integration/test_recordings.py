"""Published recordings, unchanged: robosuite's demonstrations at exactly 20 Hz, and demonstrations of 2018 with
stamps 10 to 24 ms apart."""
import h5py
import numpy as np
import pytest

from datasets import natural
from paths import RECORDINGS

FILES = sorted(path.name for path in RECORDINGS.glob("*.hdf5"))
FEED = """
datasets: {{raw: {{path: {path}, layout: robosuite_raw}}}}
feeds:
  rows:
    dataset: raw
    global_batch: 16
    tail: short
    anchor: {{clock: sim}}
    outputs:
      states:  {{at: -2..0}}
      actions: {{from: [{action}], at: 0..3, role: action}}
  grid:
    dataset: raw
    global_batch: 16
    tail: short
    anchor: {{rate: 30}}
    outputs:
      states:  {{at: 0..2, role: action}}
"""


def demos(path):
    """Returns per episode the stamps in ns without repeated rows, as the layout drops them, and the remaining rows."""
    result = []
    with h5py.File(path) as file:
        for name in sorted((n for n in file["data"] if n.startswith("demo_")), key=natural):
            demo = file["data"][name]
            stamps = np.rint(demo["states"][:, 0] * 1e9).astype(np.int64)
            keep = np.concatenate([[True], np.diff(stamps) > 0])
            action = demo["actions" if "actions" in demo else "joint_velocities"][:]
            result.append((stamps[keep], demo["states"][:][keep], action[keep]))
    return result


@pytest.mark.skipif(not FILES, reason="the recordings are not here (../shared/data)")
@pytest.mark.parametrize("name", FILES or ["none"])
def test_recording(daemon, name):
    path = RECORDINGS / name
    expected = demos(path)
    with h5py.File(path) as file:
        action = "actions" if "actions" in next(iter(file["data"].values())) else "joint_velocities"
    one = daemon(FEED.format(path=path, action=action))
    client = one.client()
    info = client.open("rows")
    assert info.window_count == sum(len(stamps) for stamps, _, _ in expected), one.text()
    for _, arrays in client.epoch():
        for row in range(len(arrays["window_id"])):
            stamps, states, actions = expected[arrays["episode_index"][row]]
            t = int(np.searchsorted(stamps, arrays["anchor_ns"][row]))
            assert stamps[t] == arrays["anchor_ns"][row]
            history = np.clip([t - 2, t - 1, t], 0, None)
            np.testing.assert_array_equal(arrays["states"][row], states[history].astype(np.float32))
            chunk = np.clip(np.arange(t, t + 4), None, len(stamps) - 1)
            np.testing.assert_array_equal(arrays["actions"][row], actions[chunk].astype(np.float32))
    client.close()

    client = one.client()
    client.open("grid")
    for _, arrays in client.epoch():
        for row in range(len(arrays["window_id"])):
            stamps, states, _ = expected[arrays["episode_index"][row]]
            origin, anchor = stamps[0], int(arrays["anchor_ns"][row])
            step = round((anchor - origin) * 30 / 1e9)
            assert anchor - origin == step * 10**9 // 30
            x = np.array([(step + k) * 10**9 // 30 for k in range(3)])
            want = np.stack([np.interp(x, (stamps - origin).astype(float), states[:, d]) for d in range(states.shape[1])], -1)
            np.testing.assert_allclose(arrays["states"][row], want, rtol=3e-7, atol=3e-7)
            np.testing.assert_array_equal(arrays["states.mask"][row], np.where(x > stamps[-1] - origin, 2, 0))
    client.close()
