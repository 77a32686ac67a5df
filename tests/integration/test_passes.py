"""`windows: one_per_episode` (ACT's epoch) and `epoch:` of one dataset: the same windows for any number of workers, after a
resume, with another batch size and after the daemon died."""
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import libtrajd as trajd
from datasets import write_robomimic
from epochs import arrays_of, rest
from feeds import JOBS

EPISODES, ROWS = 10, 30
KEYS = {"one": "windows: one_per_episode", "long": "windows: one_per_episode\n    epoch: 64", "all": "epoch: 80"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Ten episodes of ten to thirty-seven rows. The actions of a row are (episode, row)."""
    path = tmp_path_factory.mktemp("passes") / "demos.hdf5"
    rows = {f"demo_{e}": np.stack([np.full(10 + 3 * e, e), np.arange(10 + 3 * e)], 1).astype("f4") for e in range(EPISODES)}
    write_robomimic(path, rows)
    return path


def config(path, keys, batch=8, tail="short"):
    text = JOBS.format(path=path, batch=batch, tail=tail, seed=3, rank_timeout="600s")
    text = text.replace("layout: demo", "layout: robomimic").replace("      obs/robot0_eef_pos: {at: -1..0}\n", "")
    return text.replace("    slots: 6\n", f"    slots: 6\n    {keys}\n")


def rows_of(client):
    """Returns (window_id, episode, row) of all windows of the epoch, in the order of positions."""
    return [(int(w), *(int(x) for x in action[0])) for _, arrays in client.epoch()
            for w, action in zip(arrays["window_id"], arrays["actions"])]


def read(one, **opened):
    client = one.client()
    info = client.open("train", **opened)
    rows = rows_of(client)
    client.close()
    return info, rows


def test_an_epoch_has_one_window_of_each_episode(daemon, path):
    one = daemon(config(path, KEYS["one"]))
    epochs = [read(one, epoch=epoch) for epoch in range(30)]
    assert (epochs[0][0].window_count, epochs[0][0].epoch_length) == (EPISODES, EPISODES)
    for _, rows in epochs:
        assert sorted(e for _, e, _ in rows) == list(range(EPISODES))
    assert len({tuple(e for _, e, _ in rows) for _, rows in epochs}) == 30
    drawn = [row / (9 + 3 * e) for _, rows in epochs for _, e, row in rows]  # uniform in [0, 1]
    assert abs(np.mean(drawn) - 0.5) < 0.07 and min(drawn) < 0.05 and max(drawn) > 0.95
    client = one.client()
    client.open("train")
    for window_id, episode, row in epochs[4][1]:  # a window's number says which one it is
        found = client.ask("explain", window=window_id)
        assert (found["episode"], found["anchor"]) == (f"demo_{episode}", row)
    assert "windows: each pass draws one of each episode's windows, 10 of 235" in one.run("--check").stdout
    positions = client.ask("position", window=4, first=0)["items"]
    assert [p["window_id"] for p in positions] == [w for w, _, _ in epochs[4][1]]
    client.close()


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("world", [2, 8])
def test_any_number_of_workers(daemon, path, keys, world):
    one = daemon(config(path, KEYS[keys]))
    straight = [w for w, _, _ in read(one, epoch=1, mode=trajd.SHARD, rank=0, world=1)[1]]
    clients = [one.client() for _ in range(world)]
    for rank, client in enumerate(clients):
        client.open("train", mode=trajd.SHARD, rank=rank, world=world, epoch=1, local=range(world))
    parts = arrays_of(clients)
    assert [w for place in sorted(parts) for w in parts[place]["window_id"].tolist()] == straight
    for client in clients:
        client.close()
    queue = [one.client() for _ in range(2)]
    for client in queue:
        client.open("train", job="queue", epoch=1)
    with ThreadPoolExecutor(2) as threads:
        parts = threads.map(lambda client: [(p, arrays["window_id"].tolist()) for p, arrays in client.epoch()], queue)
        seen = [batch for part in parts for batch in part]
    assert [w for _, ids in sorted(seen) for w in ids] == straight
    for client in queue:
        client.close()


@pytest.mark.parametrize("keys", ["long", "all"])
def test_resume_at_any_position(daemon, path, keys):
    """In the middle of a pass and of an epoch, also with another batch size, and after the daemon died."""
    shard = {"mode": trajd.SHARD, "rank": 0, "world": 1}
    one = daemon(config(path, KEYS[keys]))
    straight = [w for w, _, _ in read(one, epoch=2, **shard)[1]]
    assert len(straight) == (64 if keys == "long" else 80)
    for position in (8, 16, 40):
        assert [w for w, _, _ in read(one, epoch=2, position=position, **shard)[1]] == straight[position:]
    one.kill()
    one.start()
    assert [w for w, _, _ in read(one, epoch=2, position=24, **shard)[1]] == straight[24:]
    other = daemon(config(path, KEYS[keys], batch=5), folder="other")
    assert [w for w, _, _ in read(other, epoch=2, position=13, **shard)[1]] == straight[13:]
    client = other.client()
    client.open("train", epoch=2)
    assert rest(client) == straight
    client.close()


def test_an_epoch_goes_on_through_the_passes(daemon, path):
    """235 windows in epochs of 80: whatever the position, no window has come more than once more than another."""
    one = daemon(config(path, KEYS["all"]))
    ids = [w for epoch in range(6) for w, _, _ in read(one, epoch=epoch)[1]]
    assert len(ids) == 480 and sorted(ids[:235]) == sorted(ids[235:470]) == list(range(235))
    assert ids[:235] != ids[235:470]
    assert "epoch: passes of 235 windows go on over the ends of epochs" in one.run("--check").stdout
    wrapped = daemon(config(path, "windows: one_per_episode\n    epoch: 13", tail="wrap"), folder="wrap")
    info, rows = read(wrapped)
    assert (info.window_count, info.epoch_length) == (13, 16) and rows[13:] == rows[:3]
