"""trajd.connect attaches to a running daemon. trajd.open finds one or starts a private one."""
from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

from . import launch
from .feed import Feed
from .progress import check as check_progress
from .settings import Config, Options, check_options, make
from .topology import detect

if TYPE_CHECKING:
    from typing_extensions import Unpack


def connect(endpoint: Optional[str] = None, *, feed: Optional[str] = None,
            spec: Union[str, Mapping[str, Any], None] = None, timeout: Optional[float] = None,
            **options: Unpack[Options]) -> Feed:
    """Connects to the daemon at `endpoint` and returns a feed.

    endpoint     the daemon's runtime directory, or tcp://HOST:PORT. Default: $TRAJD_ENDPOINT, else /run/trajd/main
    feed         the name of a feed in the daemon's configuration. Exactly one of feed and spec is given
    spec         a feed as a dict or as YAML text, as it would stand in the configuration under `feeds: NAME:`
    timeout      the longest time in seconds to wait for the daemon, for a reply and for a batch; then Timeout is
                 raised. None: waits 600 s (or `reconnect` seconds) for a daemon, and without limit for the answers of
                 one that lives, and logs a warning

    Dividing the batches among workers:

    job          workers with the same job divide its batches among them. Default ""
    mode         "queue": each batch goes to the next worker that is free. "shard": rank r of world size W gets its rows
                 of every global batch. Default: shard if there is more than one rank, else queue
    rank, world_size, local_ranks
                 in mode shard. Default: those of Ray Train, else of torch.distributed if it is initialised, else those
                 of torchrun's or Slurm's environment. local_ranks lists the ranks that read from this daemon, if each node has its own
    gpu_ranks    in mode shard with zero_copy: the ranks that read on this process's GPU. Default: found through
                 torch.distributed if it is initialised, else only this rank
    credit       the most batches that may be held or on their way, at least 2. The daemon grants at most the number of
                 slots of the feed. Default: three quarters of them, so that processes which join later get batches
                 at once. In mode queue the next batch goes to the worker that holds the fewest
    epoch        the epoch with which iteration begins. Default 0
    resume       in mode queue: the token that checkpoint() returned in this epoch

    What a batch contains:

    device       None: numpy arrays. "cpu": torch tensors. "cuda" or "cuda:N": torch tensors on the GPU, copied one
                 batch ahead. "cuda" is torch's current GPU, or that of LOCAL_RANK if it is still GPU 0 and there are
                 several; the log says so
    framework    "numpy" or "torch", where device alone would select the other one
    style        the names and shapes in a batch: raw, robomimic, lerobot, act, diffusion_policy or openpi; see
                 trajd.styles
    zero_copy    with device="cuda": the daemon makes the batches in that GPU's memory, and tensors are views of it. It
                 needs `gpu:` in the daemon's configuration; where that is impossible batches are copied, and the log
                 says why. Name each side stream that reads a batch with batch.record_stream. Without a GPU: arrays are
                 views even if other jobs read the same ring. numpy's are then not writeable, and torch's must not be
                 written to. False: batches of such a ring are copied

    The connection:

    reconnect    True: waits for the return of a daemon that died, and goes on; raises Closed if it is away for 600 s. A
                 number of seconds instead of these 600. False: raises Closed at once
    name         the name of this worker in `trajctl status`
    key_file     for tcp:// endpoints: the key file that `trajctl keygen DIR --client NAME` made for this machine
    server_key   for tcp:// endpoints: the daemon's public key. Default: the one in key_file

    Raises Timeout if no daemon answers in time, and ArgumentError for wrong options. A wrong feed name is reported when
    the feed is first used."""
    check_options(options)
    return Feed(make(endpoint=endpoint, feed=feed, spec=spec, timeout=timeout, **options))


def open(config: Config, *, feed: Optional[str] = None, overrides: Optional[Mapping[str, Any]] = None,
         timeout: Optional[float] = None, progress: Optional[str] = None, **options: Unpack[Options]) -> Feed:
    """Returns a feed of the configuration `config`: a path, or a dict with the content of such a file.

    If $TRAJD_ENDPOINT is set, the feed is one of that daemon. Otherwise a private daemon serves it, which belongs to
    this user, node, job and configuration. It is started if it does not run, and ends a minute after its last worker.
    If it dies before, it is started again, and the feed goes on.

    feed         the name of a feed in the configuration. May be left out if there is only one
    overrides    a mapping that is merged into the feed's mapping; None removes a key. Sweeps need no further files, and
                 share the daemon's data
    progress     how far a private daemon is with its index and statistics is shown while it starts: on a terminal
                 in one line, else in a line each 10 s, or with "tqdm" as a bar of tqdm

    All other options are those of connect. Pass mode= or job= in processes that are to divide the batches of one job.
    Without them, a process that is not one rank of several is a job of its own.

    Raises LaunchError if the private daemon does not start; the message contains its errors. Raises MissingFile, which
    is a FileNotFoundError, if the configuration or a dataset's path does not exist."""
    check_options(options)
    check_progress(progress)
    target = launch.resolve(config, feed, overrides, timeout=timeout, progress=progress)
    if target.private is None:
        return connect(target.endpoint, feed=target.feed, spec=target.spec, timeout=timeout, **options)
    ranks = detect()
    if not {"job", "mode", "rank", "world_size", "resume"} & set(options) and ranks.world_size == 1:
        # so that two runs in one terminal never divide an epoch between them by accident
        options["job"] = f"pid {os.getpid()} {uuid.uuid4().hex[:8]}"
    with launch.DaemonWatcher(target.private, ranks.rank == min(ranks.local_ranks or (0,))) as watcher:
        opened: Feed = watcher.watch(
            connect(target.endpoint, feed=target.feed, spec=target.spec, timeout=timeout, **options))
        return opened
