"""Files that are nearly alike: the helper program takes over what it knows of a dataset only where the header is the same."""
import os
import pathlib

import h5py
import numpy as np

import trajd

LAYOUT = """
layout: alike
episodes: {files: "*.hdf5", groups: /}
clocks: {arm: {rate: 10}}
streams:
  action: {kind: linear}
  "obs/*": {kind: previous}
"""
CONFIG = """
datasets: {{lab: {{path: {folder}/all, layout: {folder}/alike.yaml}}}}
feeds:
  train:
    dataset: lab
    global_batch: 8
    tail: short
    order: sequential
    anchor: {{clock: arm}}
    outputs:
      state: {{from: obs/state, at: 0, missing: skip}}
      other: {{from: obs/other, at: 0}}
      action: {{at: 0}}
"""


def write(path, rows=20, **changes):
    """Writes a file whose datasets differ from those of the others in one thing."""
    random = np.random.default_rng(rows)
    options = {"data": random.normal(size=(rows, 4)).astype(changes.pop("dtype", "f4")), **changes.pop("options", {})}
    with h5py.File(path, "w", **changes.pop("file", {})) as file:
        file["padding"] = np.zeros(changes.pop("padding", 1), "u1")
        file["action"] = random.normal(size=(rows, 3))
        if changes.pop("scalar", False):
            options["data"] = np.float32(1)
        made = file.create_dataset("obs/state", **options)
        for name, value in changes.items():
            made.attrs[name] = value
        file.create_dataset("obs/other", data=random.normal(size=(rows, 2)))


FILES = {
    "0": {}, "1": {}, "longer": {"rows": 33}, "elsewhere": {"padding": 5000}, "shorter": {"rows": 7}, "f8": {"dtype": "f8"},
    "i4": {"dtype": "i4"}, "attribute": {"unit": "m"}, "chunks": {"options": {"chunks": (5, 4)}}, "gzip": {"options": {"compression": "gzip"}},
    "fill": {"options": {"fillvalue": 3}}, "big": {"dtype": ">f4"}, "times": {"options": {"track_times": True}}, "scalar": {"scalar": True},
    "latest": {"file": {"libver": "latest"}}, "user": {"file": {"userblock_size": 512}}, "moved": {"padding": 9000, "rows": 41}, "last": {},
}


OTHER_TYPES = {"f8", "i4", "big", "scalar"}  # their rows are not float32 [4], so a feed of obs/state leaves them out


def test_rows_are_those_of_the_file(daemon, tmp_path):
    """One child reads all files, each with one thing that differs from the others."""
    (tmp_path / "alike.yaml").write_text(LAYOUT)
    (tmp_path / "all").mkdir()
    for i, (name, changes) in enumerate(FILES.items()):
        write(tmp_path / "all" / f"{i:02}_{name}.hdf5", **dict(changes))
    one = daemon(CONFIG.format(folder=tmp_path), prefix=["taskset", "-c", str(min(os.sched_getaffinity(0)))])
    seen = {}
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        names = [pathlib.Path(episode["file"]).stem[3:] for episode in feed.episodes()]
        assert names == list(FILES)
        for batch in feed.epoch(0):
            for episode, state, other, action in zip(batch.episode_index, batch["state"][:, 0], batch["other"][:, 0], batch["action"][:, 0]):
                seen.setdefault(names[episode], []).append(np.concatenate([state, other, action]))
    assert set(seen) == set(FILES) - OTHER_TYPES
    for i, name in enumerate(FILES):
        if name in seen:
            with h5py.File(tmp_path / "all" / f"{i:02}_{name}.hdf5") as file:
                rows = np.concatenate([file[key][:].astype("f4") for key in ("obs/state", "obs/other", "action")], 1)
            np.testing.assert_array_equal(np.array(seen[name]), rows)
