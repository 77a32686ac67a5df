"""One id finds a failed batch in the exception, in the log and in the status: FEED/EPOCH/POSITION."""
import re

import h5py
import numpy as np

import libtrajd as trajd
from daemons import Daemon

LAYOUT = """
layout: lab
episodes: {files: "*.hdf5", groups: /data/demo_*}
clocks: {arm: {path: t, unit: ns}}
streams: {pos: {path: pos, clock: arm, kind: linear}}
"""
CONFIG = """
    datasets: {{one: {{path: {folder}/one.hdf5, layout: {folder}/lab.yaml}}}}
    feeds: {{one: {{dataset: one, global_batch: 4, anchor: {{clock: arm}}, outputs: {{pos: {{at: 0..0}}}}}}}}
"""


def test_one_id_in_three_places(tmp_path, started):
    (tmp_path / "lab.yaml").write_text(LAYOUT)
    path = tmp_path / "one.hdf5"
    with h5py.File(path, "w") as file:
        for episode in range(8):  # 4 MiB of rows: they are read when a batch needs them
            file[f"data/demo_{episode}/t"] = np.arange(1000, dtype=np.int64) * 10_000_000
            file[f"data/demo_{episode}/pos"] = np.zeros((1000, 128), np.float32)
    daemon = started(Daemon(tmp_path / "run", CONFIG.format(folder=tmp_path), store="1MiB"))
    client = daemon.client()
    client.open("one", epoch=3)
    path.write_bytes(path.read_bytes()[:100_000])
    failure = None
    while failure is None:
        try:
            client.next().release()
        except trajd.TrajdError as error:
            failure = str(error)
    batch = re.search(r"batch one/3/\d+: ", failure)
    assert batch, failure
    assert batch[0] in daemon.text()
    (producer,) = client.status()["producers"]
    assert re.match(r"batch one/3/\d+: ", producer["last_failure"]) and producer["failed_batches"] > 0
    client.close()
