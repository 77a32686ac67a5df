"""trajd.connect attaches to a daemon; trajd.open finds one, or starts a private one."""
from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

from . import launch
from .feed import Feed
from .settings import Config, Options, make
from .topology import detect

if TYPE_CHECKING:
    from typing_extensions import Unpack


def connect(endpoint: Optional[str] = None, *, feed: Optional[str] = None, spec: Union[str, Mapping[str, Any], None] = None,
            timeout: Optional[float] = None, **options: Unpack[Options]) -> Feed:
    """A feed of the daemon at `endpoint` (its runtime directory, or tcp://HOST:PORT; default $TRAJD_ENDPOINT, else /run/trajd/main).

    feed         the name of a feed in the daemon's configuration; or
    spec         a feed as a dict, or as YAML text, as it would stand there
    job          which workers belong together; "" by default
    mode         "queue": each batch goes to the next worker that is free. "shard": rank r of W gets its rows of every
                 global batch. Default: shard if there is more than one rank, queue otherwise
    rank, world_size, local_ranks
                 of shard; default as torch.distributed says if it is initialised, else torchrun's or Slurm's environment.
                 local_ranks are those that read from this daemon, where each node has its own
    gpu_ranks    with zero_copy, of shard: those that read on this one's GPU; default as torch.distributed says if it is initialised, else
                 this one alone
    credit       batches that may be held or under way, at least 2, and no more than the feed has slots; default 4, with zero_copy on
                 a GPU 16. Workers of one job in mode "queue" should each ask for their share of the slots
    epoch        that iteration begins with; default 0
    resume       in mode "queue": what checkpoint() returned in that epoch
    device       None: numpy arrays. "cpu": torch tensors. "cuda", "cuda:N": torch tensors on the GPU, copied one batch ahead
    framework    "numpy" or "torch", if it is not to be what device says
    style        the names in a batch: raw, robomimic, lerobot, act, diffusion_policy, openpi (trajd.styles)
    zero_copy    with device="cuda": batches are made in that GPU's memory and read there, where the daemon has one (`gpu:` of its
                 configuration); a side stream that reads them is named by batch.record_stream. Where it cannot be they are copied,
                 and the log says why. Else: views also of a ring that other jobs read: numpy's are not writeable, and torch's
                 must not be written to. Otherwise such batches are copied
    timeout      seconds to wait for the daemon, its answers and a batch; None: waits, and says so
    reconnect    wait for a daemon that died, and go on; else Closed is raised
    name         shown by trajctl status
    key_file     of a tcp:// endpoint: what `trajctl keygen DIR --client NAME` made for this machine
    server_key   of a tcp:// endpoint: the daemon's public key, if it is not the one that key_file names"""
    return Feed(make(endpoint=endpoint, feed=feed, spec=spec, timeout=timeout, **options))


def open(config: Config, *, feed: Optional[str] = None, overrides: Optional[Mapping[str, Any]] = None,
         timeout: Optional[float] = None, **options: Unpack[Options]) -> Feed:
    """A feed of the configuration `config` (a path, or what would stand in the file as a dict): from the daemon at $TRAJD_ENDPOINT
    if that is set, else from a private daemon of this user, node, job and configuration, which is started if it does not run and
    ends a minute after its last worker. Should it die before, it is started again, and the feed goes on.

    feed         may be left out where the configuration has one
    overrides    merged into the feed's mapping (None removes a key): a sweep needs no files, and shares the daemon's data

    The other options are those of connect. Processes that are to share the batches of a job say mode= or job=; without, one that
    is no rank of several is a job of its own."""
    target = launch.resolve(config, feed, overrides, timeout=timeout)
    if target.private is None:
        return connect(target.endpoint, feed=target.feed, spec=target.spec, timeout=timeout, **options)
    if not {"job", "mode", "rank", "world_size", "resume"} & set(options) and detect().world_size == 1:
        # two runs of one terminal, at once or one after the other, never share out one epoch by accident
        options["job"] = f"pid {os.getpid()} {uuid.uuid4().hex[:8]}"
    with launch.Keeper(target.private) as keeper:
        opened: Feed = keeper.watch(connect(target.endpoint, feed=target.feed, spec=target.spec, timeout=timeout, **options))
        return opened
