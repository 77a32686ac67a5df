"""A feed for torch.utils.data.DataLoader: trajd.torch.FeedDataset.

    dataset = trajd.torch.FeedDataset("/run/trajd/main", feed="train")
    for batch in DataLoader(dataset, batch_size=None): ...

Batches are made already: without batch_size=None a DataLoader would collate them once more, which is an error that says so. The daemon is the worker pool: num_workers=0 is the fast way. One spawn worker works, and copies every batch once more; more are
refused, for each would be a worker of the job of its own, and rank r is one process."""
from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional

from torch.utils.data import IterableDataset, get_worker_info

from .batch import Group
from .connect import connect
from .connect import open as open_feed
from .errors import ArgumentError, ForkError
from .feed import Feed
from .settings import Config, Settings, make

_imported_by = os.getpid()  # a worker that was forked has not imported this itself


def plain(batch: Mapping[str, Any]) -> Dict[str, Any]:
    """A batch as dicts of tensors, all made."""
    return {key: plain(value) if isinstance(value, Group) else value for key, value in batch.items()}


class Batched(Dict[str, Any]):
    """A batch on its way through a DataLoader, known by its type to torch's default_collate. Whatever is made of it is a plain dict: by
    default_convert (batch_size=None), which calls the type or copies, and by pickling."""

    def __new__(cls, *arguments: Any) -> "Batched":
        return dict(*arguments)  # type: ignore[return-value]

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> "Batched":
        made = dict.__new__(cls)
        made.update(plain(batch))
        return made

    def __copy__(self) -> Dict[str, Any]:
        return dict(self)


def refuse_to_collate(batches: List[Batched], *, collate_fn_map: Any = None) -> NoReturn:
    raise ArgumentError("DataLoader(FeedDataset) without batch_size=None: it would collate batches, which are [B, T, ...] already, into a further "
                        "dimension. Use DataLoader(dataset, batch_size=None); rows of a batch are the feed's global_batch")


try:
    from torch.utils.data._utils.collate import default_collate_fn_map
except ImportError:  # torch before 1.13
    pass
else:
    default_collate_fn_map[Batched] = refuse_to_collate


class FeedDataset(IterableDataset):  # type: ignore[misc]
    """Iterates over dicts of tensors, already batched: [B, T, ...]. Takes what trajd.connect takes, or with config= what trajd.open
    does; device is "cpu" unless said. Connects where and when it is first iterated, and is pickled as its configuration.

    Rank and world size are found out when it is made, so make it after torch.distributed is initialised. Each iteration is the
    next epoch, unless set_epoch says which; a worker process that is started for each epoch needs set_epoch before each."""

    def __init__(self, endpoint: Optional[str] = None, *, config: Optional[Config] = None,
                 overrides: Optional[Mapping[str, Any]] = None, **options: Any) -> None:
        if config is not None and endpoint is not None:
            raise ArgumentError("either endpoint or config")
        options.setdefault("device", "cpu")
        self._endpoint, self._config, self._overrides = endpoint, config, overrides
        # what is wrong is told here, and the ranks are those of this process; of a configuration the feed may go unnamed
        self._settings: Settings = make(endpoint=endpoint, **({"feed": "", **options} if config is not None else options))
        if self._settings.shard:
            ranks = self._settings.topology
            options.update(rank=ranks.rank, world_size=ranks.world_size, local_ranks=ranks.local_ranks)
        self._options = options
        self._state: Optional[Mapping[str, Any]] = None
        self._strict = True
        self._epoch: Optional[int] = None
        self._feed: Optional[Feed] = None

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(self.__dict__)
        if self._feed is not None and not self._feed.closed:
            state["_state"] = self.state_dict()
        state["_feed"] = None
        return state

    def _check_worker(self) -> None:
        info = get_worker_info()
        if os.getpid() != _imported_by:
            raise ForkError("FeedDataset in a forked process: libtrajd's threads and CUDA do not survive fork. Use num_workers=0 (the "
                            "daemon prepares batches in its own processes), or DataLoader(..., num_workers=1, "
                            "multiprocessing_context='spawn')")
        if info is not None and info.num_workers > 1:
            raise ArgumentError(f"FeedDataset with {info.num_workers} workers: each would be another worker of the job, and a rank is one "
                                "process. Use num_workers=0: the daemon is the worker pool")
        if info is not None and self._settings.device != "cpu":
            raise ArgumentError(f"FeedDataset with device {self._settings.device!r} in a worker process: use num_workers=0, or device='cpu'")

    def _connect(self) -> Feed:
        if self._feed is None or self._feed.closed:
            self._check_worker()
            if self._config is None:
                self._feed = connect(self._endpoint, **self._options)
            else:
                self._feed = open_feed(self._config, overrides=self._overrides, **self._options)
            if self._state:
                self._feed.load_state_dict(self._state, self._strict)
                self._state = None
        if self._epoch is not None:
            self._feed.set_epoch(self._epoch)
            self._epoch = None
        return self._feed

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        self._check_worker()
        for batch in self._connect():
            yield Batched.of(batch)

    def __len__(self) -> int:
        """Batches of an epoch, once it is connected in this process."""
        if self._feed is None:
            raise TypeError("FeedDataset has a length once it is connected: iterate it, or call connect() in this process")
        return len(self._feed)

    def connect(self) -> Feed:
        """The feed itself, in this process."""
        return self._connect()

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is of."""
        self._epoch = epoch

    def state_dict(self) -> Dict[str, Any]:
        """As torchdata's StatefulDataLoader calls it: the batches that were yielded count. Empty before the first iteration."""
        if self._feed is not None and not self._feed.closed:
            return self._feed.state_dict()
        return dict(self._state or {})

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        if not state:
            return
        self._strict = strict
        if self._feed is not None and not self._feed.closed:
            self._feed.load_state_dict(state, strict)
        else:
            self._state = dict(state)

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()

