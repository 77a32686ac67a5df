"""The package with a remote daemon: the same batches. Their memory stays valid as long as it is referenced, even
after the feed is gone."""
import re

import numpy as np
import pytest

import trajd
from feeds import policy_feed


def start(daemon, demo_file):
    one = daemon("listen: {tcp: \"127.0.0.1:0\", keys: keys}\n" + policy_feed(demo_file))
    return one, re.search(r"remote workers at (tcp://\S+)", one.text())[1]


def test_the_same_batches(daemon, demo_file, key_file):
    one, endpoint = start(daemon, demo_file)
    with trajd.connect(one.endpoint, feed="train", job="here", timeout=60) as here, \
            trajd.connect(endpoint, feed="train", job="there", timeout=60, key_file=key_file) as there:
        count = 0
        for local, remote in zip(here.epoch(0), there.epoch(0)):
            count += 1
            assert local.window_id.tolist() == remote.window_id.tolist()
            for name in ("obs/robot0_eef_pos", "obs/robot0_gripper_qpos", "actions"):
                np.testing.assert_array_equal(local[name], remote[name])
        assert count == len(here)


def test_arrays_outlive_the_feed(daemon, demo_file, key_file):
    _, endpoint = start(daemon, demo_file)
    feed = trajd.connect(endpoint, feed="train", timeout=60, key_file=key_file)
    batch = next(iter(feed.epoch(0)))
    actions, copy = batch["actions"], batch["actions"].copy()
    del batch
    feed.close()
    np.testing.assert_array_equal(actions, copy)


def test_a_key_is_needed(daemon, demo_file, key_file):
    _, endpoint = start(daemon, demo_file)
    with pytest.raises(trajd.Timeout, match="requires a key file"):
        trajd.connect(endpoint, feed="train", timeout=0.5)
    with pytest.raises(trajd.ArgumentError, match="keygen"):
        trajd.connect("tcp://192.0.2.1:7878", feed="train", timeout=0.5)


def test_a_state_survives_the_death_of_a_remote_daemon(daemon, demo_file, key_file):
    """The worker notices late that the daemon is another one, and asks it again."""
    one, endpoint = start(daemon, demo_file)
    with trajd.connect(endpoint, feed="train", timeout=60, key_file=key_file) as feed:
        next(feed.epoch(0))
        one.config.write_text(one.config.read_text().replace("127.0.0.1:0", endpoint[len("tcp://"):]))
        one.kill()
        one.start()
        assert feed.state_dict()["position"] == feed.info.global_batch
