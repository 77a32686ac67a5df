"""behaviour_cloning.py on batches in the style `act`: each pixel of each camera, 0 to 1, counts in the loss."""
import functools
import pathlib
import sys

import numpy as np
import trajd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "examples"))
import behaviour_cloning  # noqa: E402

BLOCK = 8  # pixels of each side of a block, whose mean the network sees


def rows_of(batch):
    image, qpos, action, is_pad = list(batch.values())[:4]  # as ACT takes them
    count, cameras, channels, height, width = image.shape
    means = image.reshape(count, cameras, channels, height // BLOCK, BLOCK, width // BLOCK, BLOCK).mean((4, 6), dtype=np.float64)
    return np.concatenate([qpos, means.reshape(count, -1).astype(np.float32)], 1), action, ~is_pad


behaviour_cloning.rows_of = rows_of
trajd.open = functools.partial(trajd.open, style="act")
behaviour_cloning.main()
