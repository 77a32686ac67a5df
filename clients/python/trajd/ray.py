"""A feed as a dataset of Ray Data, for curation and offline inference: trajd.ray.read.

    windows = trajd.ray.read("square.yaml", feed="train")
    windows.map_batches(Scorer, batch_size=256).write_parquet("scores")

Each row is one window. Its columns are the outputs as tensors [T, ...], their masks, and dataset, file and episode.
A read task reads a range of the windows in the order of episodes, from the private daemon of its node. For training,
open a feed in each worker of Ray Train instead: batches then do not pass through the object store."""
from __future__ import annotations

import os
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import pyarrow
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.data.extensions import ArrowTensorArray

from .connect import open as open_feed
from .feed import Feed
from .launch import Config
from .state import VERSION

Episodes = Dict[Tuple[int, int], Tuple[str, str, str]]  # (dataset, episode) as numbers: their names, with the file's
BATCH_ROWS = 64  # windows that a task takes from the daemon at once
TASK_BYTES = 128 << 20  # of a read task, as Ray Data aims at for its blocks


def read(config: Config, feed: Optional[str] = None, *, overrides: Optional[Mapping[str, Any]] = None,
         override_num_blocks: Optional[int] = None, **options: Any) -> "ray.data.Dataset":
    """Returns the windows of a feed as a dataset of Ray Data, in the order of episodes.

    config, feed   as in trajd.open. Path and data must be the same on each node
    overrides      a mapping that is merged into the feed's mapping. `order`, `tail` and `global_batch` are replaced
    override_num_blocks, options
                   of ray.data.read_datasource, such as concurrency

    Raises what trajd.open raises. A task that sees other data than this process raises StateError."""
    return ray.data.read_datasource(FeedSource(config, feed, overrides), override_num_blocks=override_num_blocks, **options)


class FeedSource(Datasource):
    """The windows of a feed. One read task for each range of positions."""

    def __init__(self, config: Config, feed: Optional[str] = None, overrides: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__()
        self._config = config if isinstance(config, Mapping) else os.path.abspath(os.fspath(config))
        self._feed = feed
        self._overrides = {**(overrides or {}), "order": "sequential", "tail": "short", "global_batch": BATCH_ROWS}
        with _open(self._config, feed, self._overrides) as opened:
            info = opened.info
            self._state = {"version": VERSION, "seed": info.seed, "epoch": 0, "position": 0, "fingerprint": f"{info.fingerprint:016x}"}
            found = opened.episodes()
            datasets = {name: number for number, name in enumerate(dict.fromkeys(one["dataset"] for one in found))}
            self._episodes = {(datasets[one["dataset"]], one["episode_index"]): (one["dataset"], one["file"], one["episode"]) for one in found}
            first = next(iter(opened.epoch(0)), None)
            self._window_count = info.epoch_length
            self._window_bytes = 0 if first is None else _table(first, self._episodes).nbytes // len(first["window_id"])

    def get_name(self) -> str:
        return "trajd"

    def estimate_inmemory_data_size(self) -> int:
        return self._window_count * self._window_bytes

    def get_read_tasks(self, parallelism: int, per_task_row_limit: Optional[int] = None, data_context: Any = None) -> List[ReadTask]:
        """Returns tasks for ranges of whole batches, at least `parallelism` of them where there are so many."""
        batches = -(-self._window_count // BATCH_ROWS)
        largest = max(1, TASK_BYTES // max(1, self._window_bytes * BATCH_ROWS))
        count = min(batches, max(parallelism, -(-batches // largest)))
        bounds = [BATCH_ROWS * (batches * task // count) for task in range(count)] + [self._window_count]
        return [self._task(begin, end, per_task_row_limit) for begin, end in zip(bounds, bounds[1:])] if count else []

    def _task(self, begin: int, end: int, row_limit: Optional[int]) -> ReadTask:
        arguments = self._config, self._feed, self._overrides, {**self._state, "position": begin}, end, self._episodes
        metadata = BlockMetadata(num_rows=end - begin, size_bytes=(end - begin) * self._window_bytes, input_files=None, exec_stats=None)
        return ReadTask(lambda: _read(*arguments), metadata, per_task_row_limit=row_limit)


def _open(config: Config, feed: Optional[str], overrides: Mapping[str, Any]) -> Feed:
    """Opens the feed for this process alone, even if it is a rank of several."""
    return open_feed(config, feed=feed, overrides=overrides, mode="queue", job=f"read {os.getpid()} {uuid.uuid4().hex[:8]}")


def _read(config: Config, feed: Optional[str], overrides: Mapping[str, Any], state: Dict[str, Any], end: int,
          episodes: Episodes) -> Iterator[pyarrow.Table]:
    """Yields the windows from the position of the state up to `end`, in the process of a task."""
    with _open(config, feed, overrides) as opened:
        opened.load_state_dict(state)
        position = state["position"]
        for batch in opened.epoch(0):
            yield _table(batch, episodes)
            position += len(batch["window_id"])
            if position >= end:
                return


def _columns(values: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _columns(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def _table(batch: Any, episodes: Episodes) -> pyarrow.Table:
    """Copies a batch into Arrow, because its memory belongs to the daemon."""
    columns = {}
    for name, value in _columns(batch):
        array = np.array(value)
        columns[name] = ArrowTensorArray.from_numpy(array) if array.ndim > 1 else pyarrow.array(array)
    places = [episodes[place] for place in zip(batch["dataset_index"].tolist(), batch["episode_index"].tolist())]
    for number, name in enumerate(("dataset", "file", "episode")):
        columns[name] = pyarrow.array([place[number] for place in places])
    return pyarrow.table(columns)
