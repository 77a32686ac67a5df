"""The options of a feed as plain values, which can be pickled and sent to another process."""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Literal, Mapping, Optional, Sequence, TypedDict, Union

from .errors import ArgumentError, names_there_are
from .styles import STYLES
from .topology import Topology, resolve

FRAMEWORKS = ("numpy", "torch")
LONGEST_S = 1e6  # the longest timeout, because libtrajd counts milliseconds in 32 bits
Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class Options(TypedDict, total=False):
    """The options of connect, open and FeedDataset. The docstring of connect describes each of them."""

    job: str
    mode: Optional[Literal["queue", "shard", "share"]]  # "share" is the name of "queue" in 0.1.0
    rank: Optional[int]
    world_size: Optional[int]
    local_ranks: Optional[Sequence[int]]
    gpu_ranks: Optional[Sequence[int]]
    credit: int
    epoch: int
    resume: Optional[bytes]
    device: Optional[str]
    framework: Optional[Literal["numpy", "torch"]]
    style: Literal["raw", "robomimic", "lerobot", "act", "diffusion_policy", "openpi"]
    zero_copy: bool
    reconnect: Union[bool, float]
    name: Optional[str]
    key_file: "Union[str, os.PathLike[str], None]"
    server_key: Optional[str]


def _place_of(endpoint: Optional[str]) -> str:
    return os.environ.get("TRAJD_ENDPOINT", "") if endpoint is None else endpoint


@dataclass(frozen=True)
class Settings:
    endpoint: Optional[str]
    feed: Optional[str]
    spec: Optional[str]
    job: str
    shard: bool
    topology: Topology
    credit: int  # 0: as many as the daemon grants
    epoch: int
    resume: Optional[bytes]
    device: str  # "cpu", or a torch name such as "cuda:0"
    framework: str
    style: str
    zero_copy: bool
    timeout: Optional[float]  # in seconds; None: waits as long as the daemon lives or may return
    reconnect: bool
    away_ms: int  # how long a daemon that died may be away; 0: the default of libtrajd
    name: Optional[str]
    key_file: Optional[str] = None
    server_key: Optional[str] = None
    gpu_ranks: "Optional[tuple[int, ...]]" = None  # None: found when the feed is opened

    @property
    def place(self) -> str:
        """The endpoint, also if $TRAJD_ENDPOINT names it."""
        return _place_of(self.endpoint) or "/run/trajd/main"

    @property
    def finishes(self) -> bool:
        """True if images shall come as u8: a GPU finishes them, or the network carries them."""
        return self.device != "cpu" or self.place.startswith("tcp://")

    @property
    def title(self) -> str:
        return self.feed if self.feed is not None else "(sent)"


def _choose_device(device: Optional[str], framework: Optional[str]) -> "tuple[str, str]":
    if framework is not None and framework not in FRAMEWORKS:
        raise ArgumentError(f"framework {framework!r}: must be one of {', '.join(FRAMEWORKS)}")
    if device is None:
        return "cpu", framework or "numpy"
    device = str(device)
    if device != "cpu" and device.split(":")[0] != "cuda":
        raise ArgumentError(f"device {device!r}: must be cpu, cuda or cuda:N")
    if device != "cpu" and framework == "numpy":
        raise ArgumentError(f"device {device!r} needs framework='torch'")
    return device, framework or "torch"


_OTHERS_OPTIONS = {  # of DataLoader, and where they are in trajd
    "batch_size": "the rows of a batch are the feed's global_batch, over all ranks: set it in the configuration, or "
                  "with overrides={'global_batch': ...} of trajd.open and FeedDataset",
    "num_workers": "the daemon is the worker pool; `threads.readers` of the configuration is its size",
    "shuffle": "the order is the feed's `order:` and `seed:`",
}


def _check_endpoint(endpoint: Optional[str]) -> None:
    """Refuses a file, which a user may take for an endpoint. Without this check, the wait would have no end."""
    place = _place_of(endpoint)
    if "://" not in place and (os.path.isfile(place) or place.endswith((".yaml", ".yml"))):
        raise ArgumentError(f"endpoint {place}: this is a file. An endpoint is the runtime directory of a daemon, or "
                            "tcp://HOST:PORT. A configuration is the first argument of trajd.open or FeedDataset")


def check_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that does not exist, such as those of DataLoader."""
    known = {*Options.__annotations__, "endpoint", "feed", "spec", "timeout"}
    for name in options.keys() - known:
        raise TypeError(f"no option {name}: {_OTHERS_OPTIONS.get(name) or names_there_are(name, sorted(known))}")


def make(*, endpoint: Optional[str] = None, feed: Optional[str] = None,
         spec: Union[str, Mapping[str, Any], None] = None, job: str = "", mode: Optional[str] = None,
         rank: Optional[int] = None, world_size: Optional[int] = None,
         local_ranks: Optional[Sequence[int]] = None, credit: Optional[int] = None, epoch: int = 0,
         resume: Optional[bytes] = None, device: Optional[str] = None, framework: Optional[str] = None,
         style: str = "raw", zero_copy: bool = False, timeout: Optional[float] = None, reconnect: Union[bool, float] = True,
         name: Optional[str] = None,
         key_file: "Union[str, os.PathLike[str], None]" = None, server_key: Optional[str] = None,
         gpu_ranks: Optional[Sequence[int]] = None) -> Settings:
    """Checks the options and fills in defaults. Raises ArgumentError."""
    _check_endpoint(None if endpoint is None else str(endpoint))
    if (feed is None) == (spec is None):
        raise ArgumentError("give exactly one of feed= (a name in the daemon's configuration) and spec= (a feed of "
                            "your own)")
    if mode not in (None, "queue", "shard", "share"):
        raise ArgumentError(f"mode {mode!r}: must be queue or shard")
    if style not in STYLES:
        raise ArgumentError(f"style {style!r}: must be one of {', '.join(sorted(STYLES))}")
    if timeout is not None and not timeout > 0:
        raise ArgumentError(f"timeout {timeout}: must be seconds above 0, or None to wait for a daemon that lives")
    if not isinstance(reconnect, bool) and not reconnect > 0:
        raise ArgumentError(f"reconnect {reconnect}: must be True, False, or seconds above 0")
    if epoch < 0:
        raise ArgumentError(f"epoch {epoch}: epochs count from 0")
    chosen_device, chosen_framework = _choose_device(device, framework)
    if credit is not None and credit < 2:
        raise ArgumentError(f"credit {credit}: must be at least 2, one batch in use and one on its way")
    if chosen_device != "cpu" and credit is not None and credit < 3:
        raise ArgumentError(f"credit {credit}: must be at least 3 with device {chosen_device!r}, because one batch is "
                            "copied ahead")
    topology = resolve(rank, world_size, local_ranks)
    shard = topology.world_size > 1 if mode is None else mode == "shard"
    if not shard:
        topology = Topology()
    if gpu_ranks is not None and topology.rank not in gpu_ranks:
        raise ArgumentError(f"gpu_ranks {list(gpu_ranks)} lack this process's own rank {topology.rank}")
    return Settings(endpoint=None if endpoint is None else str(endpoint), feed=feed,
                    spec=spec if spec is None or isinstance(spec, str) else json.dumps(spec), job=job, shard=shard,
                    topology=topology, credit=credit or 0, epoch=epoch, resume=resume, device=chosen_device,
                    framework=chosen_framework, style=style, zero_copy=zero_copy,
                    timeout=None if timeout is None else min(timeout, LONGEST_S), reconnect=bool(reconnect),
                    away_ms=0 if isinstance(reconnect, bool) else max(1, int(min(reconnect, LONGEST_S) * 1000)), name=name,
                    key_file=None if key_file is None else os.fspath(key_file), server_key=server_key,
                    gpu_ranks=None if gpu_ranks is None else tuple(gpu_ranks))
