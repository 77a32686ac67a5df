"""Outputs of kind angle, and mixtures, with relative_to in a real daemon: differences the short way round, between rows too,
against the step before, and each member of a mixture minus its own state."""
import h5py
import numpy as np
import pytest

import trajd

LAYOUT = """
layout: lab
episodes: {files: "*.h5", groups: /ep_*}
clocks: {arm: {rate: 10, rows: grip}}
streams:
  turn: {path: turn, clock: arm, kind: angle, unit: UNIT}
  aim: {path: aim, clock: arm, kind: angle, unit: UNIT}
  grip: {path: grip, clock: arm, kind: previous}
"""
CONFIG = """
datasets:
  a: {{path: {folder}/a, layout: {folder}/lab.yaml}}
  b: {{path: {folder}/b, layout: {folder}/lab.yaml}}
feeds:
  train:
    {which}
    global_batch: 16
    tail: short
    anchor: {{clock: arm}}
    {keys}
    outputs:
      actions: {{from: [aim, grip], at: 0..5, {chain}}}
"""
RELATIVE = "relative_to: {from: turn, %smask: [true, true, false]}"
LENGTHS = (37, 21)


def short_way(difference, period):
    return difference - period * np.floor(difference / period + 0.5)


@pytest.fixture(params=["rad", "deg"])
def lab(tmp_path, request):
    """Two folders with the same episodes but for an offset of all angles; the period; rows of each dataset and episode."""
    period = 360.0 if request.param == "deg" else 2 * np.pi
    random = np.random.default_rng(3)
    (tmp_path / "lab.yaml").write_text(LAYOUT.replace("UNIT", request.param))
    rows = {}
    for dataset, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        with h5py.File(tmp_path / name / "rows.h5", "w") as file:
            for e, length in enumerate(LENGTHS):
                turn = np.cumsum(random.normal(scale=0.1 * period, size=(length, 2)), axis=0)
                one = {"turn": short_way(turn, period), "aim": short_way(turn + random.normal(scale=0.2 * period, size=(length, 2)), period),
                       "grip": random.normal(size=(length, 1))}
                rows[dataset, e] = {key: values.astype(np.float32) for key, values in one.items()}
                for key, values in rows[dataset, e].items():
                    file[f"ep_{e}/{key}"] = values
    return tmp_path, period, rows


def steps(feed):
    for batch in feed.epoch(0):
        for row in range(batch.rows):
            members = batch.dataset_index if batch.dataset_index is not None else np.zeros(batch.rows, int)
            yield (int(members[row]), int(batch.episode_index[row]), batch.anchor_ns[row] / 1e9, batch["actions"][row].copy(),
                   batch.mask("actions")[row].copy())


def assert_same_angles(found, want, period):
    np.testing.assert_allclose(short_way(found - want, period), np.zeros_like(want), rtol=0, atol=2e-6 * period)
    assert (np.abs(found) <= period / 2 * (1 + 1e-6)).all()


@pytest.mark.parametrize("before", [False, True])
def test_angles_relative_to_a_state(daemon, lab, before):
    folder, period, rows = lab
    one = daemon(CONFIG.format(folder=folder, which="dataset: a", keys="", chain=RELATIVE % ("step: before, " if before else "")))
    count = 0
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats, deltas = feed.stats(), []
        for _, episode, time_s, found, mask in steps(feed):
            streams, first = rows[0, episode], round(time_s * 10)
            aim = streams["aim"][first:first + 6].astype(float)
            zero = np.concatenate([streams["turn"][first:first + 1], aim[:-1]]) if before else streams["turn"][first]
            np.testing.assert_array_equal(mask, np.where(np.arange(6) < len(aim), 0, 2))
            assert_same_angles(found[:len(aim), :2], short_way(aim - zero, period), period)
            np.testing.assert_array_equal(found[:len(aim), 2:], streams["grip"][first:first + 6])
            deltas.append(found[:len(aim)])
            count += 1
    assert count == sum(LENGTHS)
    deltas = np.concatenate(deltas).astype(float)
    np.testing.assert_allclose(stats["actions"]["mean"], deltas.mean(0), atol=1e-6 * period)
    np.testing.assert_allclose(stats["actions"]["q99"], np.quantile(deltas, 0.99, axis=0), rtol=1e-6)
    np.testing.assert_array_equal(stats["actions"]["count"], [len(deltas)] * 3)


def test_angles_between_rows(daemon, lab):
    """At 15 Hz on rows of 10 Hz, state and steps are blended the short way round before they are subtracted."""
    folder, period, rows = lab
    one = daemon(CONFIG.format(folder=folder, which="dataset: a", keys="rate: 15", chain=RELATIVE % ""))

    def at(values, times):
        low = np.minimum(np.floor(times * 10 + 1e-6).astype(int), len(values) - 1)
        high = np.minimum(low + 1, len(values) - 1)
        return values[low] + (times * 10 - low)[:, None] * short_way(values[high] - values[low], period)

    blended = 0
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        for _, episode, time_s, found, mask in steps(feed):
            streams = {key: values.astype(float) for key, values in rows[0, episode].items()}
            times = time_s + np.arange(6) / 15
            good = (mask == 0) & (times <= (len(streams["aim"]) - 1) / 10)
            want = at(streams["aim"], times[good]) - at(streams["turn"], np.array([time_s]))
            np.testing.assert_allclose(short_way(found[good, :2] - want, period), np.zeros_like(want), rtol=0, atol=1e-5 * period)
            blended += good.sum()
    assert blended > 200


def test_a_mixture_subtracts_each_members_state(daemon, lab):
    folder, period, rows = lab
    one = daemon(CONFIG.format(folder=folder, which="mix: {a: 1, b: 1}", keys="epoch: 160", chain=RELATIVE % ""))
    seen = set()
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        stats = feed.stats()
        assert set(stats) == {"a:actions", "b:actions"}
        for member, episode, time_s, found, mask in steps(feed):
            streams, first = rows[member, episode], round(time_s * 10)
            aim = streams["aim"][first:first + 6].astype(float)
            assert_same_angles(found[:len(aim), :2], short_way(aim - streams["turn"][first], period), period)
            assert (mask[:len(aim)] == 0).all()
            seen.add((member, episode))
    assert len(seen) == 4
