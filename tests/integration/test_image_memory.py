"""Many ranks and feeds on one dataset with images: the daemon has one copy of the prepared frames, and decodes each once."""
import threading

import pytest

import libtrajd as trajd
from image_files import random_frames, write_encoded

RANKS, EPISODES, ROWS, SIDE = 8, 2, 64, 256
FRAME_BYTES = SIDE * SIDE * 3
IMAGE = f"image: {{resize: [{SIDE}, {SIDE}], filter: nearest}}"
FEEDS = {"bytes": "", "planes": ", layout: chw", "floats": ", layout: chw, norm: imagenet"}
CONFIG = "datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}\nfeeds:\n"
FEED = """  {name}:
    dataset: arm
    global_batch: 8
    slots: 3
    seed: {seed}
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      top: {{from: observations/images/top, at: -1..0, {image}{keys}}}
"""


def anonymous_bytes(pid):
    """Returns the memory of a process that has no file behind it: its heap and its caches, and no ring."""
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))


def read_as_rank(one, feed, rank, seen):
    client = one.client(timeout_ms=60000)
    client.open(feed, mode=trajd.SHARD, rank=rank, world=RANKS)
    seen[feed, rank] = sum(len(arrays["window_id"]) for _, arrays in client.epoch())
    client.close()


def read_feeds(one, feeds):
    """Has eight ranks read an epoch of each feed, all at the same time. Returns how many windows each rank of each feed saw."""
    seen = {}
    threads = [threading.Thread(target=read_as_rank, args=(one, feed, rank, seen)) for feed in feeds for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


@pytest.mark.release  # a sanitizer has memory of its own beside that of the daemon
def test_feeds_and_ranks_share_one_copy_of_the_frames(daemon, tmp_path):
    for e in range(EPISODES):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(ROWS, 48, 64, 30 + e)})
    config = CONFIG.format(path=tmp_path) + "".join(FEED.format(name=name, seed=1 + i, image=IMAGE, keys=keys)
                                                   for i, (name, keys) in enumerate(FEEDS.items()))
    one = daemon(config, store="512MiB")
    before = anonymous_bytes(one.process.pid)
    seen = read_feeds(one, FEEDS)
    grown = anonymous_bytes(one.process.pid) - before
    client = one.client()
    frames = client.status()["datasets"][0]["frames"]
    client.close()
    total = EPISODES * ROWS
    assert seen == {(feed, rank): total // RANKS for feed in FEEDS for rank in range(RANKS)}
    assert frames["decoded"] == total and frames["evicted"] == 0
    assert frames["used"] >= len(FEEDS) * 2 * total  # two steps a window
    assert total * FRAME_BYTES <= frames["resident_bytes"] <= 32 << 20  # one block of 32 MiB has room for all
    assert total * FRAME_BYTES <= grown < 2 * total * FRAME_BYTES
