"""Epoch: the iterator over the batches of one epoch."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator

from .batch import Batch
from .errors import ArgumentError

if TYPE_CHECKING:
    from .feed import Feed


@dataclass(eq=False)
class Run:
    """An epoch under way, shared by the feed and its iterator.

    The iterator refers to the feed, but the feed does not refer to the iterator: so a feed is closed as soon as the
    program drops it, even within an epoch."""

    over: bool = False


class Epoch(Iterator[Batch]):
    """The iterator over the batches of one epoch.

    Ends when every window of the epoch is worked on; in mode queue that means by all workers.

    epoch     the number of the epoch
    position  the position after the last batch that was returned"""

    def __init__(self, feed: "Feed", run: Run, epoch: int, position: int) -> None:
        self._feed, self._run = feed, run
        self.epoch = epoch
        self.position = position  # after the last batch that was returned
        self._begin = position

    def __iter__(self) -> "Epoch":
        return self

    def __len__(self) -> int:
        """The number of batches from the position at which the iterator began."""
        info = self._feed.info
        return -(-(info.epoch_length - self._begin) // info.global_batch)

    def __next__(self) -> Batch:
        if self._run.over:
            raise StopIteration
        feed = self._feed
        if feed._running is not self._run:
            raise ArgumentError(f"epoch {self.epoch} ended when another epoch of this feed began: a feed reads one epoch at a time")
        begin = time.perf_counter()
        batch = feed._take()
        feed.dataloading_s += time.perf_counter() - begin
        if batch is None:
            self._run.over = True
            feed._stand(self.epoch + 1, 0)
            raise StopIteration
        info = feed.info
        self.position = min(batch.position + info.global_batch, info.epoch_length)
        feed._stand(self.epoch, self.position)
        feed.batch_count += 1
        return batch
