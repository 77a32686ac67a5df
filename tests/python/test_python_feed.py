"""Feeds, epochs and states, against a real daemon."""
import concurrent.futures
import json

import h5py
import numpy as np
import pytest

import trajd
from feeds import policy_feed
from paths import ROOT


def ids_of(batches):
    return [int(i) for batch in batches for i in batch.window_id]


def test_every_window_once_and_the_shapes(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        assert feed.info.global_batch == 32 and len(feed) == -(-feed.info.window_count // 32)
        seen, count = [], 0
        for batch in feed.epoch(0):
            count += 1
            rows = batch.rows
            assert batch["obs"]["robot0_eef_pos"].shape == (rows, 2, 3) == batch["obs/robot0_eef_pos"].shape
            assert batch["actions"].shape == (rows, 16, 7) and batch["actions"].dtype == np.float32
            pad = batch["actions_is_pad"]
            assert pad.shape == (rows, 16) and pad.dtype == bool
            np.testing.assert_array_equal(pad, (batch.mask("actions") == 1) | (batch.mask("actions") == 2))
            np.testing.assert_array_equal(batch["obs_is_pad"]["robot0_eef_pos"], batch.is_pad("obs/robot0_eef_pos"))
            seen += batch.window_id.tolist()
        assert count == len(feed)
        assert sorted(seen) == list(range(feed.info.window_count))
        assert feed.state_dict()["epoch"] == 1 and feed.state_dict()["position"] == 0


def test_epochs_differ_and_repeat(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        zero, first = ids_of(feed), ids_of(feed)
        assert zero != first and sorted(zero) == sorted(first)
        feed.set_epoch(0)
        assert ids_of(feed) == zero
        endless = feed.forever()
        again = ids_of(next(endless) for _ in range(2 * len(feed)))
        assert again[:len(first)] == first


@pytest.mark.slow
@pytest.mark.parametrize("batch", [32, 20])
def test_a_state_goes_on_at_the_same_window(daemon, demo_file, tmp_path, batch):
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        whole = ids_of(feed.epoch(2))
        begun = []
        for done in feed.epoch(2):
            begun += done.window_id.tolist()
            if len(begun) == 4 * 32:
                state = json.loads(json.dumps(feed.state_dict()))
                break
    one.stop()
    other = daemon(policy_feed(demo_file, batch))
    with trajd.connect(other.endpoint, feed="train", timeout=60) as feed:
        feed.load_state_dict(state)
        assert feed.state_dict() == state
        assert begun + ids_of(feed.epoch(2)) == whole


def test_a_state_of_one_goes_on_as_ranks(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        whole = ids_of(feed.epoch(0))
        epoch = feed.epoch(0)
        begun = ids_of(next(epoch) for _ in range(3))
        state = feed.state_dict()
        del epoch
    ranks = [trajd.connect(one.endpoint, feed="train", rank=r, world_size=2, timeout=60) for r in range(2)]
    for feed in ranks:
        feed.load_state_dict(state)
    # an epoch ends at the same time for all ranks, so each has a thread
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(lambda feed: [(b.position, b.window_id.tolist()) for b in feed.epoch(0)], ranks))
    rest = []
    for (position, first), (same, second) in zip(*halves):
        assert position == same
        rest += first + second
    assert begun + rest == whole
    assert ranks[0].state_dict() == ranks[1].state_dict()
    for feed in ranks:
        feed.close()


def test_workers_that_share_checkpoint_together(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    workers = [trajd.connect(one.endpoint, feed="train", timeout=60) for _ in range(2)]
    first, second = (feed.epoch(0) for feed in workers)
    done = ids_of([next(first)])
    undone = next(second)
    while (batch := next(first)).position < undone.position:
        done += batch.window_id.tolist()
    done += batch.window_id.tolist()
    state = workers[0].state_dict()
    assert "token" in state
    del batch, undone
    for feed in workers:
        feed.close()
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        feed.load_state_dict(json.loads(json.dumps(state)))
        assert sorted(done + ids_of(feed.epoch(0))) == list(range(feed.info.window_count))
        with pytest.raises(trajd.StateError, match="queue"):
            trajd.connect(one.endpoint, feed="train", rank=0, world_size=2, timeout=60).load_state_dict(state)


def test_a_state_of_another_dataset_is_refused(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        state = feed.state_dict()
        foreign = {**state, "fingerprint": "00000000000000ff"}
        with pytest.raises(trajd.StateError, match="00000000000000ff.*another dataset"):
            feed.load_state_dict(foreign)
        with pytest.raises(trajd.StateError, match="seed 9"):
            feed.load_state_dict({**state, "seed": 9})
        feed.load_state_dict({**foreign, "epoch": 1, "position": 64}, strict=False)
        assert next(feed.epoch(1)).position == 64
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        feed.load_state_dict(foreign)
        with pytest.raises(trajd.StateError, match="another dataset"):
            feed.epoch(0)
        for bad in ({}, {**state, "version": 2}, {**state, "position": -1}, {**state, "fingerprint": "x"}, [], {**state, "epoch": True}):
            with pytest.raises(trajd.StateError):
                feed.load_state_dict(bad)


def test_a_specification_of_the_jobs_own(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    spec = {"dataset": "demo", "global_batch": 8, "anchor": {"clock": "actions"}, "outputs": {"actions": {"at": "0..3"}}}
    with trajd.connect(one.endpoint, spec=spec, timeout=60) as feed:
        assert next(feed.epoch(0))["actions"].shape == (8, 4, 7)


def test_a_daemon_that_dies_and_returns(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", mode="shard", timeout=30) as feed:
        whole = ids_of(feed.epoch(0))
        epoch = feed.epoch(0)
        seen = ids_of(next(epoch) for _ in range(3))
        kept = next(epoch)
        seen += kept.window_id.tolist()
        before = kept["actions"].copy()
        one.kill()
        np.testing.assert_array_equal(kept["actions"], before)
        one.start()
        rest = ids_of(epoch)
        assert sorted(seen + rest) == sorted(whole), "nothing repeats, nothing is lost"
    with trajd.connect(one.endpoint, feed="train", timeout=60, reconnect=False) as feed:
        epoch = feed.epoch(0)
        next(epoch)
        one.kill()
        with pytest.raises(trajd.Closed):
            list(epoch)


@pytest.mark.parametrize("is_held", [True, False])
def test_nobody_waits_for_a_dead_daemon_to_close(daemon, demo_file, monkeypatch, is_held):
    monkeypatch.setattr(trajd.feed, "_CLOSING_MS", 3600000)  # a live daemon has to answer
    one = daemon(policy_feed(demo_file))
    feed = trajd.connect(one.endpoint, feed="train", timeout=60)
    batch = next(feed.epoch(0))
    before = batch["actions"].copy()
    if not is_held:
        batch.release()
    one.kill()
    feed.close()
    if is_held:
        np.testing.assert_array_equal(batch["actions"], before)


def test_episodes_and_status(daemon, demo_file):
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        batch = next(feed.epoch(0))
        with pytest.raises(trajd.NotFound, match="no meta language"):
            batch.meta("language")
        told = feed.episodes()
        assert told[0]["episode"] == "demo_0" and len(told) == 24
        assert feed.status()["feeds"]
        told = batch.explain(3)
        assert told["window_id"] == batch.window_id[3] and told["episode_index"] == batch.episode_index[3]
        assert [len(output["items"]) for output in told["outputs"]] == [2, 1, 16]
        item = told["outputs"][2]["items"][5]
        assert item["mask"] == batch.mask("actions")[3, 5]
        with h5py.File(demo_file) as file:
            rows = file[f"data/{told['episode']}/actions"][:]
        value = sum(weight * rows[row] for row, _, weight in item["sources"][0]["rows"])
        np.testing.assert_allclose(batch["actions"][3, 5], value, rtol=1e-6)
        assert f"{told['episode']}, anchor" in repr(told) and "actions[5] at" in repr(told)



def test_goals_in_styles_and_explained(daemon, demo_file):
    """robomimic has no steps in goal_obs. A batch of a later epoch is explained with the goals of that epoch."""
    one = daemon(policy_feed(demo_file) + """
      next_obs/robot0_eef_pos: {from: obs/robot0_eef_pos, at: 0..1, role: next}
      goal_obs/robot0_eef_pos: {goal: {from: future, of: obs/robot0_eef_pos}}
""")
    with trajd.connect(one.endpoint, feed="train", timeout=60, style="robomimic") as feed:
        batch = next(feed.epoch(3))
        assert batch["next_obs/robot0_eef_pos"].shape == (32, 2, 3)
        assert batch["goal_obs/robot0_eef_pos"].shape == (32, 3)
        with h5py.File(demo_file) as file:
            for row in range(0, 32, 5):
                told = batch.explain(row)
                goal = next(output["goal"] for output in told["outputs"] if output["role"] == "goal")
                rows = file[f"data/{told['episode']}/obs/robot0_eef_pos"][:].astype(np.float32)
                np.testing.assert_array_equal(batch["goal_obs/robot0_eef_pos"][row], rows[goal])
                assert goal > told["anchor"] or goal == len(rows) - 1

def test_texts_of_episodes(daemon, demo_file, tmp_path):
    path = tmp_path / "language.hdf5"
    path.write_bytes(demo_file.read_bytes())
    with h5py.File(path, "r+") as file:
        for number, name in enumerate(sorted(file["data"])):
            file["data"][name].attrs["language"] = f"do {name}"
    layout = (ROOT / "configs/layouts/demo.yaml").read_text()
    (tmp_path / "spoken.yaml").write_text(layout + "\nmeta:\n  language: {attribute: \"@language\"}\n")
    one = daemon(policy_feed(path).replace("layout: demo", "layout: ./spoken.yaml"))
    for style, key in (("lerobot", "task"), ("raw", None)):
        with trajd.connect(one.endpoint, feed="train", style=style, timeout=60) as feed:
            batch = next(feed.epoch(0))
            names = {item["episode_index"]: item["episode"] for item in feed.episodes()}
            expected = [f"do {names[int(i)]}" for i in batch.episode_index]
            assert (batch[key] if key else batch.meta("language")) == expected


def test_statistics_of_the_feed(daemon, demo_file, tmp_path):
    stats = pytest.importorskip("trajd.stats")
    one = daemon(policy_feed(demo_file))
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        told = feed.stats()
        assert isinstance(told, stats.Stats) and set(told) == {"obs/robot0_eef_pos", "obs/robot0_gripper_qpos", "actions"}
        with h5py.File(demo_file) as file:
            values = np.concatenate([demo["actions"][:] for demo in file["data"].values()]).astype(np.float32).astype(np.float64)
        np.testing.assert_allclose(told["actions"]["mean"], values.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(told["actions"]["std"], values.std(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(told["actions"]["max"], values.max(axis=0))
        told.save(tmp_path / "stats.json")
        np.testing.assert_array_equal(stats.Stats.load(tmp_path / "stats.json")["actions"]["mean"], told["actions"]["mean"])
        assert set(feed.stats(["actions"])) == {"actions"}
