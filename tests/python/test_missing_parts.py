"""`missing: zero` of joined streams: an episode that lacks one of them keeps the values, masks and statistics of the others."""
import subprocess
import warnings

import h5py
import numpy as np
import pytest

import trajd
from daemons import Daemon
from datasets import write_robomimic
from lab_clocks import make_episode, write_lab
from paths import TRAJCTL, clean_environment

LAB = """
datasets: {{lab: {{path: {folder}/lab.hdf5, layout: {folder}/lab.yaml}}}}
feeds:
  train:
    dataset: lab
    global_batch: 16
    tail: short
    {steps}
    anchor: {{clock: arm}}
    pad: {{with: {pad}}}
    outputs:
      q:     {{at: -4..3, role: action, max_gap: 25ms}}
      extra: {{at: -4..3, role: action, max_gap: 25ms, missing: zero}}
      both:  {{from: [q, extra], at: -4..3, role: action, max_gap: 25ms, missing: zero}}
"""
ROBOMIMIC = """
datasets: {{d: {{path: {path}, layout: robomimic}}}}
feeds:
  train:
    dataset: d
    global_batch: 16
    tail: short
    anchor: {{clock: actions}}
    outputs:
      actions: {{from: [actions, actions_abs], at: 0..3, missing: zero, norm: mean_std{more}}}
"""


def windows_of(one, style="raw", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trajd.DataWarning)
        with trajd.connect(one.endpoint, feed="train", timeout=60, style=style, **options) as feed:
            for batch in feed.epoch(0):
                yield batch


@pytest.mark.parametrize("steps", ["", "rate: 37"])
@pytest.mark.parametrize("pad", ["edge", "zero", "nan"])
def test_masks_are_those_of_the_streams_there_are(daemon, tmp_path, steps, pad):
    """Even episodes lack `extra`; q has NaN and gaps."""
    random = np.random.default_rng(3)
    write_lab(tmp_path, [make_episode(random, number) for number in range(4)])
    one = daemon(LAB.format(folder=tmp_path, steps=steps, pad=pad))
    codes = {0: set(), 1: set()}
    for batch in windows_of(one):
        lacks = batch.episode_index % 2 == 0
        assert (batch["both.missing"] == (lacks[:, None] & np.array([False, False, True, True]))).all() and batch["both.missing"].dtype == bool
        q, extra, both = (batch.mask(name) for name in ("q", "extra", "both"))
        np.testing.assert_array_equal(both[lacks], q[lacks])
        np.testing.assert_array_equal(both[~lacks], np.maximum(q, extra)[~lacks])
        assert (extra[lacks] == 6).all()
        np.testing.assert_array_equal(batch["both"][..., :2], batch["q"])
        np.testing.assert_array_equal(batch["both"][..., 2:], batch["extra"])
        assert pad == "nan" or not batch["both"][lacks][..., 2:].any()
        for part in (0, 1):
            codes[part] |= set(np.unique(both[lacks == part]))
    assert codes[0] >= {0, 1, 2, 5} and codes[1] >= {0, 1, 2, 5} and (not steps or 3 in codes[1])


def test_torch_gets_bool_without_a_copy(daemon, tmp_path):
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    write_lab(tmp_path, [make_episode(random, number) for number in range(4)])
    one = daemon(LAB.format(folder=tmp_path, steps="", pad="edge"))
    for batch in windows_of(one, device="cpu"):
        missing = batch["both.missing"]
        assert missing.dtype == torch.bool and missing.data_ptr() == batch._core.tensor(batch._arrays.layout.find("both.missing")).address
        assert torch.equal(missing[:, 2], batch.episode_index % 2 == 0) and not missing[:, :2].any()


@pytest.mark.parametrize("more", ["", ", kind: linear", ", dtype: float64"])
def test_statistics_count_what_is_there(daemon, tmp_path, more):
    """Of five episodes with 530 rows, two with 330 rows lack a stream: its columns count 200 rows, the others 530."""
    random = np.random.default_rng(1)
    lengths = (60, 130, 80, 200, 60)
    episodes = [{"actions": random.normal(2, 3, (length, 2))} for length in lengths]
    for number in (0, 2, 4):
        episodes[number]["actions_abs"] = random.normal(-5, 7, (lengths[number], 3))
    write_robomimic(tmp_path / "d.hdf5", {f"demo_{number}": episode for number, episode in enumerate(episodes)})
    one = daemon(ROBOMIMIC.format(path=tmp_path / "d.hdf5", more=more))
    wanted = [np.concatenate([episode[name] for episode in episodes if name in episode]) for name in ("actions", "actions_abs")]
    mean, std = (np.concatenate([getattr(np, figure)(rows, axis=0) for rows in wanted]) for figure in ("mean", "std"))
    with pytest.warns(trajd.DataWarning, match=r"actions: actions_abs is missing in 2 of 5 episodes \(330 of 530 rows\)"):
        with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
            stats = feed.stats()
    assert stats["actions"]["count"].tolist() == [530, 530, 200, 200, 200]
    np.testing.assert_allclose(stats["actions"]["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(stats["actions"]["std"], std, rtol=1e-5)
    for batch in windows_of(one):
        for row, (number, is_pad) in enumerate(zip(batch.episode_index, batch["actions_is_pad"])):
            episode, missing = episodes[number], batch["actions.missing"][row]
            assert missing.tolist() == [False] * 2 + ["actions_abs" not in episode] * 3
            first = round(batch.anchor_ns[row] / 5e7)
            raw = np.concatenate([episode["actions"], episode.get("actions_abs", np.zeros((lengths[number], 3)))], axis=1)
            made = batch["actions"][row][~is_pad]
            assert (batch.mask("actions")[row][~is_pad] == 0).all() and len(made) == min(4, lengths[number] - first)
            np.testing.assert_allclose(made, (raw[first:first + len(made)] - mean) / std, atol=1e-5)


def test_over_windows_as_over_rows_of_one_step(daemon, tmp_path):
    random = np.random.default_rng(2)
    write_robomimic(tmp_path / "d.hdf5", {"demo_0": {"actions": random.normal(size=(9, 2))},
                                          "demo_1": {"actions": random.normal(size=(5, 2)), "actions_abs": random.normal(size=(5, 3))}})
    found = []
    for over in ("rows", "windows"):
        one = daemon(ROBOMIMIC.format(path=tmp_path / "d.hdf5", more="").replace("at: 0..3", "at: 0").replace("norm: mean_std", f"norm: {{by: mean_std, over: {over}}}"), folder=over)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", trajd.DataWarning)
            with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
                found.append(feed.stats()["actions"])
    assert found[0]["count"].tolist() == found[1]["count"].tolist() == [14, 14, 5, 5, 5]
    np.testing.assert_array_equal(found[0]["mean"], found[1]["mean"])


def test_a_dataset_of_a_mixture_that_lacks_a_stream(daemon, tmp_path):
    """Dataset b has no gripper at all: its actions are normalised by its own rows, and not masked."""
    random = np.random.default_rng(4)
    a = {"actions": random.normal(3, 2, (20, 2)), "actions_abs": random.normal(size=(20, 1))}
    b = {"actions": random.normal(-3, 2, (30, 2))}
    write_robomimic(tmp_path / "a.hdf5", {"demo_0": a})
    write_robomimic(tmp_path / "b.hdf5", {"demo_0": b})
    one = daemon(f"""
datasets: {{a: {{path: {tmp_path}/a.hdf5, layout: robomimic}}, b: {{path: {tmp_path}/b.hdf5, layout: robomimic}}}}
feeds:
  train:
    mix: {{by: size, datasets: [a, b]}}
    global_batch: 10
    anchor: {{clock: actions}}
    outputs: {{actions: {{from: [actions, actions_abs], at: 0, missing: zero, norm: mean_std}}}}
""")
    rows = {0: [], 1: []}
    for batch in windows_of(one):
        assert (batch["actions.missing"] == ((batch.dataset_index == 1)[:, None] & np.array([False, False, True]))).all()
        assert not batch.mask("actions").any()
        for number, action in zip(batch.dataset_index, batch["actions"][:, 0]):
            rows[number].append(action.copy())
    rows = {number: np.array(values) for number, values in rows.items()}
    assert len(rows[0]) == 20 and len(rows[1]) == 30 and not rows[1][:, 2].any()
    np.testing.assert_allclose(rows[0].mean(axis=0), 0, atol=1e-5)
    for number, columns in ((0, 3), (1, 2)):
        np.testing.assert_allclose(rows[number][:, :columns].std(axis=0), 1, atol=1e-5)


def test_check_and_explain_say_it(daemon, tmp_path):
    random = np.random.default_rng(5)
    write_lab(tmp_path, [make_episode(random, number) for number in range(3)])
    one = daemon(LAB.format(folder=tmp_path, steps="", pad="edge"))
    done = subprocess.run([TRAJCTL, "check", one.config], capture_output=True, text=True, timeout=60, env=clean_environment())
    assert "both: extra is missing in 2 of 3 episodes (120 of 180 rows): its columns are 0 there before norm, and both.missing" in done.stdout, done
    assert "extra: extra is missing in 2 of 3 episodes (120 of 180 rows): all steps are masked there" in done.stdout
    client = one.client()
    client.open("train")
    masks = {int(window): mask.tolist() for _, batch in client.epoch() for window, mask in zip(batch["window_id"], batch["both.mask"])}
    for window in list(masks)[::7]:
        (output,) = client.ask("explain", window=window, first=0, name="both")["outputs"]
        assert [step["mask"] for step in output["items"]] == masks[window]
    client.close()


def test_streams_behind_a_transform_are_masked_whole(daemon, tmp_path):
    """A chain makes a row from all of its columns, so such an output has no `.missing`."""
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        for number, names in enumerate((("actions", "actions_abs"), ("actions",))):
            for name in names:
                file[f"data/demo_{number}/{name}"] = np.ones((4, 3))
    one = daemon(ROBOMIMIC.format(path=tmp_path / "d.hdf5", more=', rotation: {from: axis_angle, columns: "0:3"}'))
    for batch in windows_of(one):
        masks = batch.mask("actions")[:, 0]
        assert (masks == np.where(batch.episode_index == 1, 6, 0)).all() and "actions.missing" not in batch


def test_version_1_masks_whole_steps(started, tmp_path):
    """As trajd 0.1.0, with a warning of what version 2 would do."""
    write_robomimic(tmp_path / "d.hdf5", {"demo_0": {"actions": np.ones((9, 2)), "actions_abs": np.ones((9, 3))}, "demo_1": {"actions": np.ones((5, 2))}})
    one = Daemon(tmp_path / "one", ROBOMIMIC.format(path=tmp_path / "d.hdf5", more=""))
    one.config.write_text(one.config.read_text().replace("version: 2", "version: 1"))
    started(one)
    with pytest.warns(trajd.DataWarning, match="`version: 2` would mask only the columns of actions_abs in actions where episodes lack it"):
        with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
            assert feed.stats()["actions"]["count"].tolist() == [9] * 5
            for batch in feed.epoch(0):
                assert (batch.mask("actions")[batch.episode_index == 1] == 6).all() and "actions.missing" not in batch
