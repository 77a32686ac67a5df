"""Reads a feed by Ray Data and by trajd.open, in a Python that has Ray, and compares them: ray_read.py CONFIG"""
import sys

import numpy as np
import ray
import trajd
import trajd.ray

ray.init("local", num_cpus=3, include_dashboard=False, object_store_memory=200 << 20, logging_level="ERROR")
windows = trajd.ray.read(sys.argv[1], feed="train", override_num_blocks=4)
rows = {row["window_id"]: row for row in windows.iter_rows()}
means = windows.map_batches(lambda batch: {"mean": batch["actions"].mean((1, 2))}).take_all()
count = 0
with trajd.open(sys.argv[1], feed="train", overrides={"order": "sequential", "tail": "short"}, mode="queue") as feed:
    episodes = {one["episode_index"]: one for one in feed.episodes()}
    for batch in feed.epoch(0):
        for index, number in enumerate(batch["window_id"].tolist()):
            row, episode = rows[number], episodes[int(batch["episode_index"][index])]
            assert np.array_equal(row["actions"], batch["actions"][index]) and np.array_equal(row["actions_is_pad"], batch["actions_is_pad"][index])
            assert np.array_equal(row["obs/object"], batch["obs"]["object"][index]) and row["actions"].dtype == batch["actions"].dtype
            assert (row["dataset"], row["file"], row["episode"]) == ("demo", episode["file"], episode["episode"])
            count += 1
assert count == len(rows) == len(means) == windows.count() and windows.materialize().num_blocks() >= 4, (count, len(rows), len(means))
print(count, "windows are the same")
