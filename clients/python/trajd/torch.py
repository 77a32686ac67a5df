"""A feed for torch.utils.data.DataLoader: trajd.torch.FeedDataset.

    dataset = trajd.torch.FeedDataset("square.yaml", feed="train")
    for batch in DataLoader(dataset, batch_size=None): ...

batch_size=None is required: the dataset yields complete batches, and a DataLoader with a batch size would collate them
again. Use num_workers=0, because the daemon already prepares batches in parallel. One worker process (spawn) works, but
copies every batch once more. More are refused: each would be a further worker of the job, and a rank is one process."""
from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, NoReturn, Optional

from torch.utils.data import IterableDataset, get_worker_info

from .batch import Batch
from .connect import connect
from .connect import open as open_feed
from .errors import ArgumentError, Busy, ForkError
from .feed import Feed
from .launch import check_config
from .progress import check as check_progress
from .settings import Config, Settings, check_options, make

_imported_by = os.getpid()  # differs from os.getpid() in a forked worker


def refuse_to_collate(batches: List[Batch], *, collate_fn_map: Any = None) -> NoReturn:
    raise ArgumentError("DataLoader(FeedDataset) without batch_size=None: it would collate batches, which are "
                        "[B, T, ...] already, into a further dimension. Use DataLoader(dataset, batch_size=None); rows "
                        "of a batch are the feed's global_batch")


try:
    from torch.utils.data._utils.collate import default_collate_fn_map
except ImportError:  # torch before 1.13
    pass
else:
    default_collate_fn_map[Batch] = refuse_to_collate


class FeedDataset(IterableDataset):  # type: ignore[misc]
    """An iterable dataset of complete batches of tensors, [B, T, ...]. A DataLoader makes plain dicts of them.

    Takes the arguments of trajd.open: the configuration comes first. Without one, or with endpoint=, it takes those of
    trajd.connect. The default device is "cpu". It connects when it is first iterated, in the process that iterates.
    Pickling it keeps its configuration and state, and not the connection.

    Make it after torch.distributed is initialised, because it finds rank and world size when it is made. Each iteration
    is the next epoch, or the epoch of set_epoch. Call set_epoch before each epoch if worker processes are restarted
    for each epoch.

    Raises MissingFile if the configuration does not exist, ArgumentError for wrong options, more than one worker process, or a GPU device in a worker process, and
    ForkError in a forked worker process."""

    def __init__(self, config: Optional[Config] = None, *, endpoint: Optional[str] = None,
                 overrides: Optional[Mapping[str, Any]] = None, progress: Optional[str] = None,
                 **options: Any) -> None:
        if config is not None and endpoint is not None:
            raise ArgumentError("give either endpoint or config")
        if config is None and overrides:
            raise ArgumentError("overrides= changes a feed of a configuration: give config, or the whole feed as spec=")
        if config is not None:
            check_config(config)
        check_options(options)
        check_progress(progress)
        options.setdefault("device", "cpu")
        self._endpoint, self._config, self._overrides, self._progress = endpoint, config, overrides, progress
        # checks the options here and finds this process's ranks; with config= the feed's name may be missing
        self._settings: Settings = make(
            endpoint=endpoint, **({"feed": "", **options} if config is not None else options))
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
            raise ForkError("FeedDataset in a forked process: libtrajd's threads and CUDA do not survive fork. Use "
                            "num_workers=0 (the daemon prepares batches in its own processes), or DataLoader(..., "
                            "num_workers=1, multiprocessing_context='spawn')")
        if info is not None and info.num_workers > 1:
            raise ArgumentError(f"FeedDataset with {info.num_workers} workers: each would be another worker of the "
                                "job, and a rank is one process. Use num_workers=0: the daemon is the worker pool")
        if info is not None and self._settings.device != "cpu":
            raise ArgumentError(f"FeedDataset with device {self._settings.device!r} in a worker process: "
                                "use num_workers=0, or device='cpu'")

    def _connect(self) -> Feed:
        if self._feed is None or self._feed.closed:
            self._check_worker()
            if self._config is None:
                self._feed = connect(self._endpoint, **self._options)
            else:
                self._feed = open_feed(self._config, overrides=self._overrides, progress=self._progress,
                                       **self._options)
            if self._state:
                self._feed.load_state_dict(self._state, self._strict)
                self._state = None
        if self._epoch is not None:
            self._feed.set_epoch(self._epoch)
            self._epoch = None
        return self._feed

    def __iter__(self) -> Iterator[Batch]:
        self._check_worker()
        try:
            for batch in self._connect():
                yield batch
        except Busy as error:
            raise Busy(f"{error}. A DataLoader that collects batches needs batch_size=None") from None

    def __len__(self) -> int:
        """The number of batches of an epoch. Raises TypeError before this process has connected."""
        if self._feed is None:
            raise TypeError(
                "FeedDataset has a length once it is connected: iterate it, or call connect() in this process")
        return len(self._feed)

    def connect(self) -> Feed:
        """Connects in this process and returns the feed."""
        return self._connect()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self._epoch = epoch

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position after the yielded batches, as torchdata's StatefulDataLoader expects.

        Empty before the first iteration."""
        if self._feed is not None and not self._feed.closed:
            return self._feed.state_dict()
        return dict(self._state or {})

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continues at `state` with the next iteration, like Feed.load_state_dict."""
        if not state:
            return
        self._strict = strict
        if self._feed is not None and not self._feed.closed:
            self._feed.load_state_dict(state, strict)
        else:
            self._state = dict(state)

    def close(self) -> None:
        """Closes the feed of this process, if it is connected."""
        if self._feed is not None:
            self._feed.close()

