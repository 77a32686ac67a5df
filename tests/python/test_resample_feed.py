"""trajd.resample gives the bytes of a feed: the windows of a daemon, made again from the rows of its files."""
import h5py
import numpy as np
import pytest

import trajd

LAYOUT = """
layout: lab
episodes: {files: "*.hdf5", groups: /ep_*}
clocks:
  arm:   {path: arm_t, unit: ns}
  wrist: {path: ft_t, unit: ns}
streams:
  q:      {clock: arm, kind: linear}
  turn:   {clock: arm, kind: angle}
  rot:    {clock: arm, kind: slerp, order: wxyz}
  mode:   {clock: arm, kind: previous}
  wrench: {clock: wrist, kind: mean}
"""
CONFIG = """
datasets: {{lab: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: lab
    global_batch: 16
    tail: short
    rate: 20
    anchor: {{clock: arm}}
    pad: {{before: any, after: any, with: {pad}}}
    outputs:
      q:       {{at: -3..0, max_gap: 25ms}}
      rot:     {{at: -3..0}}
      turn:    {{at: -3..0, range_low: 0}}
      mode:    {{at: -3..0, max_age: 12ms}}
      wrench:  {{at: -3..0, width: 22ms, max_age: 10ms}}
      actions: {{from: q, at: 0..7, role: action}}
"""
STEP_NS = 50_000_000
KINDS = {"q": {"max_gap": "25ms"}, "rot": {"kind": "slerp", "order": "wxyz"}, "turn": {"kind": "angle", "range_low": 0},
         "mode": {"kind": "previous", "max_age": "12ms"}, "wrench": {"kind": "mean", "width": "22ms", "max_age": "10ms"}}
CLOCKS = {"q": "arm_t", "rot": "arm_t", "turn": "arm_t", "mode": "arm_t", "wrench": "ft_t"}


def write(path):
    rng = np.random.default_rng(11)
    episodes = []
    with h5py.File(path, "w") as file:
        for number, rows in enumerate((150, 90)):
            group = file.create_group(f"ep_{number}")
            group["arm_t"] = np.cumsum(rng.integers(6_000_000, 14_000_000, rows) + 40_000_000 * (rng.random(rows) < .03))
            group["ft_t"] = np.cumsum(rng.integers(1_500_000, 2_500_000, rows * 5)) + 3_000_000
            group["q"] = rng.standard_normal((rows, 7)).astype("f4")
            group["turn"] = rng.uniform(-4, 4, (rows, 2)).astype("f4")
            rotation = rng.standard_normal((rows, 4))
            group["rot"] = (rotation / np.linalg.norm(rotation, axis=1, keepdims=True)).astype("f4")
            group["mode"] = rng.integers(0, 9, (rows, 1)).astype("f4")
            group["wrench"] = rng.standard_normal((rows * 5, 6)).astype("f4")
            episodes.append({name: group[name][:] for name in group})
    return episodes


@pytest.mark.parametrize("pad", ["edge", "zero", "nan"])
def test_the_windows_of_a_feed(daemon, tmp_path, pad):
    (tmp_path / "lab.yaml").write_text(LAYOUT)
    episodes = write(tmp_path / "d.hdf5")
    one = daemon(CONFIG.format(path=tmp_path / "d.hdf5", layout=tmp_path / "lab.yaml", pad=pad))
    seen, codes = 0, set()
    with trajd.connect(str(one.endpoint), feed="train") as feed:
        for batch in feed.epoch(0):
            for b, (episode, anchor) in enumerate(zip(batch.episode_index, batch.anchor_ns)):
                arrays = episodes[episode]
                zero = min(arrays["arm_t"][0], arrays["ft_t"][0]) * 0
                targets = anchor + zero + np.arange(-3, 1) * STEP_NS
                for name, keywords in KINDS.items():
                    found, mask = trajd.resample(arrays[name], arrays[CLOCKS[name]], targets, causal=True, pad=pad, **keywords)
                    np.testing.assert_array_equal(mask, batch.mask(name)[b], err_msg=name)
                    assert found.tobytes() == batch[name][b].tobytes(), name
                    codes |= set(mask)
                found, mask = trajd.resample(arrays["q"], arrays["arm_t"], anchor + np.arange(8) * STEP_NS, pad=pad)
                assert found.tobytes() == batch["actions"][b].tobytes() and (mask == batch.mask("actions")[b]).all()
                codes |= set(mask)
                seen += 1
    assert seen > 200 and codes >= {0, 1, 2, 3, 7}
