"""The values that a worker receives, against numpy and scipy on the same file."""
import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

from datasets import natural
from feeds import MIXED

DEMO = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
"""
POLICY = DEMO + """\
  policy:
    dataset: demo
    global_batch: 32
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    tail: short
    outputs:
      obs/robot0_eef_pos:  {{at: -1..0}}
      obs/robot0_eef_quat: {{at: -1..0}}
      actions:             {{at: -1..14}}
      rewards:             {{at: 0, dtype: float64}}
      flags:               {{from: dones, at: 0}}
"""


def episodes(file):
    return [file["data"][name] for name in sorted(file["data"], key=natural)]


def batches(daemon, config, feed):
    client = daemon(config).client()
    info = client.open(feed)
    rows = {}
    for _, arrays in client.epoch():
        for row in range(len(arrays["window_id"])):
            window = int(arrays["window_id"][row])
            assert window not in rows, "a window came twice"
            rows[window] = {name: array[row] for name, array in arrays.items()}
    client.close()
    assert sorted(rows) == list(range(info.window_count))
    return rows


def test_rows_of_the_anchor_clock_are_the_files_rows(daemon, demo_file):
    rows = batches(daemon, POLICY.format(path=demo_file), "policy")
    with h5py.File(demo_file) as file:
        demos = episodes(file)
        expected = [(e, t) for e, demo in enumerate(demos) for t in range(len(demo["actions"]))]
        assert len(expected) == len(rows)
        for window, (e, t) in enumerate(expected):
            got, demo = rows[window], demos[e]
            assert got["episode_index"] == e
            assert got["anchor_ns"] == demo["step_t0"][()].item() + t * 10**9 // 20
            history = np.clip([t - 1, t], 0, None)
            steps = np.arange(t - 1, t + 15)
            chunk = np.clip(steps, 0, len(demo["actions"]) - 1)
            for name, index, source in (("obs/robot0_eef_pos", history, "obs/robot0_eef_pos"), ("actions", chunk, "actions")):
                np.testing.assert_array_equal(got[name], demo[source][:][index].astype(np.float32), err_msg=name)
            np.testing.assert_array_equal(got["obs/robot0_eef_quat"], demo["obs/robot0_eef_quat"][:][history].astype(np.float32))
            assert got["rewards"].dtype == np.float64 and got["rewards"][0] == demo["rewards"][t]
            assert got["flags"].dtype == demo["dones"].dtype and got["flags"][0] == demo["dones"][t]
            np.testing.assert_array_equal(got["actions.mask"], np.where(steps < 0, 1, np.where(steps >= len(demo["actions"]), 2, 0)))
            np.testing.assert_array_equal(got["obs/robot0_eef_pos.mask"], [1 if t == 0 else 0, 0])


def grid_targets(anchor, steps, hz):
    """Returns the exact grid: the floor of k periods, from the anchor."""
    return np.array([anchor + (k * 10**9) // hz for k in steps])


def linear(stamps, values, x):
    """np.interp in float64 on differences: absolute stamps of 1.7e18 ns have more digits than a float."""
    origin = stamps[0]
    t, u = (stamps - origin).astype(np.float64), (x - origin).astype(np.float64)
    return np.stack([np.interp(u, t, values[:, d]) for d in range(values.shape[1])], axis=-1)


def previous(stamps, values, x):
    return values[np.clip(np.searchsorted(stamps, x, side="right") - 1, 0, len(stamps) - 1)]


def slerp(stamps, quats, x):
    t = (stamps - stamps[0]).astype(np.float64)
    u = np.clip((x - stamps[0]).astype(np.float64), t[0], t[-1])
    return Slerp(t, Rotation.from_quat(quats))(u).as_quat()


def angle(stamps, values, x):
    return linear(stamps, np.unwrap(values.astype(np.float64), axis=0), x)


def wrapped_error(a, b):
    return np.abs((a - b + np.pi) % (2 * np.pi) - np.pi)


def seen(stamps, anchor):
    """An observation contains no row after its anchor."""
    return max(int(np.searchsorted(stamps, anchor, side="right")), 1)


def test_many_clocks_on_one_grid(daemon, demo_file):
    rows = batches(daemon, (DEMO + MIXED).format(path=demo_file), "mixed")
    with h5py.File(demo_file) as file:
        demos = [{name: demo[name][:] for name in ("joint_t", "joint_pos", "pose_t", "pose_pos", "pose_quat", "gripper_t",
                                                   "gripper_cmd")} for demo in episodes(file)]
    for got in rows.values():
        demo, anchor = demos[got["episode_index"]], int(got["anchor_ns"])
        x = grid_targets(anchor, range(-3, 1), 10)
        n = seen(demo["joint_t"], anchor)
        error = wrapped_error(got["joints"], angle(demo["joint_t"][:n], demo["joint_pos"][:n], x))
        assert error.max() < 2e-6
        n = seen(demo["pose_t"], anchor)
        stamps = demo["pose_t"][:n]
        np.testing.assert_allclose(got["position"], linear(stamps, demo["pose_pos"][:n], x), atol=2e-7)
        if n > 1:
            want = slerp(stamps, demo["pose_quat"][:n], x)
            same = np.abs((got["rotation"] * want).sum(-1))
            np.testing.assert_allclose(same, 1, atol=2e-7)
        np.testing.assert_allclose(np.linalg.norm(got["rotation"], axis=-1), 1, atol=2e-7)
        n = seen(demo["gripper_t"], anchor)
        np.testing.assert_array_equal(got["gripper"], previous(demo["gripper_t"][:n], demo["gripper_cmd"][:n], x))
        x = grid_targets(anchor, range(-4, 1), 100)
        n = seen(demo["pose_t"], anchor)
        np.testing.assert_allclose(got["fast"], linear(demo["pose_t"][:n], demo["pose_pos"][:n], x), atol=2e-7)
        x = grid_targets(anchor, range(0, 6), 10)
        want = np.concatenate([linear(demo["pose_t"], demo["pose_pos"], x), previous(demo["gripper_t"], demo["gripper_cmd"], x)], axis=-1)
        np.testing.assert_allclose(got["actions"], want, atol=2e-7)
        late = (x > demo["pose_t"][-1]) | (x > demo["gripper_t"][-1])
        np.testing.assert_array_equal(got["actions.mask"], np.where(late, 2, 0))


@pytest.mark.parametrize("order", ["global", "blocked", "sequential"])
def test_order_is_the_same_again_and_covers_every_window(daemon, demo_file, order):
    config = POLICY.format(path=demo_file).replace("tail: short", f"tail: drop\n    order: {order}\n    seed: 7")
    one = daemon(config)
    sequences = []
    for epoch in (0, 1, 0):
        client = one.client()
        info = client.open("policy", epoch=epoch)
        sequences.append([i for _, arrays in client.epoch() for i in arrays["window_id"].tolist()])
        assert len(sequences[-1]) == info.epoch_length == info.window_count // 32 * 32
        assert len(set(sequences[-1])) == len(sequences[-1])
        client.close()
    assert sequences[0] == sequences[2]
    if order == "sequential":
        assert sequences[0] == sorted(sequences[0])
    else:
        assert sequences[0] != sequences[1] and sequences[0] != sorted(sequences[0])


def test_wrapped_rows_are_marked(daemon, demo_file):
    client = daemon(POLICY.format(path=demo_file).replace("tail: short", "tail: wrap")).client()
    info = client.open("policy")
    batches = [arrays for _, arrays in client.epoch()]
    client.close()
    ids = np.concatenate([arrays["window_id"] for arrays in batches])
    wrapped = np.concatenate([arrays["wrapped"] for arrays in batches])
    assert all(len(arrays["window_id"]) == 32 for arrays in batches)
    assert sorted(ids[~wrapped]) == list(range(info.window_count))
    assert list(ids[wrapped]) == list(ids[:wrapped.sum()])  # the beginning of the same epoch


def test_resume_in_the_middle_repeats_nothing(daemon, demo_file):
    one = daemon(POLICY.format(path=demo_file).replace("tail: short", "tail: drop"))
    client = one.client()
    client.open("policy", epoch=3)
    whole = [ids for _, arrays in client.epoch() for ids in arrays["window_id"].tolist()]
    client.close()
    client = one.client()
    client.open("policy", epoch=3, position=5 * 32)
    rest = [ids for _, arrays in client.epoch() for ids in arrays["window_id"].tolist()]
    client.close()
    assert rest == whole[5 * 32:]


def test_a_feed_sent_by_the_job(daemon, demo_file):
    one = daemon(f"datasets: {{demo: {{path: {demo_file}, layout: demo}}}}")
    for horizon in (2, 8):
        client = one.client()
        client.open(spec=f'{{"dataset": "demo", "global_batch": 8, "anchor": {{"clock": "actions"}}, '
                         f'"outputs": {{"actions": {{"at": "0..{horizon - 1}"}}}}}}')
        batch = client.next()
        assert batch.arrays()["actions"].shape == (8, horizon, 7)
        batch.release()
        client.close()
    client = one.client()
    with pytest.raises(Exception, match="no stream acions.*did you mean actions"):
        client.open(spec='{dataset: demo, global_batch: 8, anchor: {clock: actions}, outputs: {acions: {at: 0}}}')
    with pytest.raises(Exception, match="no dataset other"):
        client.open(spec='{dataset: other, global_batch: 8, anchor: {clock: actions}, outputs: {actions: {at: 0..1}}}')
    client.close()
