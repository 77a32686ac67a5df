"""Finds the rank of this process, the world size, and the ranks on this node.

The first of these that applies is used: explicit arguments; Ray Train, in its workers; torch.distributed if it is
initialised; torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE); the environment of a Slurm step
(SLURM_PROCID, SLURM_NTASKS, SLURM_NODEID, SLURM_TASKS_PER_NODE). A batch script outside srun is not a step, and counts
as one process. So does a task of Ray outside Ray Train: if Slurm started Ray, it has the variables of Ray's own step."""
from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, replace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from .errors import ArgumentError


@dataclass(frozen=True)
class Topology:
    rank: int = 0
    world_size: int = 1
    local_ranks: Optional[Tuple[int, ...]] = None  # None: all ranks read from the daemon of this process
    source: str = field(default="", compare=False)  # who said so, for people; "": the caller, or nobody

    def __post_init__(self) -> None:
        if self.world_size < 1 or not 0 <= self.rank < self.world_size:
            raise ArgumentError(f"rank {self.rank} of {self.world_size}: ranks are 0 to world_size - 1")
        for local in self.local_ranks or ():
            if not 0 <= local < self.world_size:
                raise ArgumentError(f"local_ranks: {local} is not a rank of {self.world_size}")
        if self.local_ranks is not None and self.rank not in self.local_ranks:
            raise ArgumentError(f"local_ranks {list(self.local_ranks)} lack this process's own rank {self.rank}")


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ArgumentError(f"${name} is {environment[name]!r}, which is not a number") from None


def parse_tasks_per_node(text: str) -> "list[int]":
    """Parses Slurm's counts: "2(x3),1" becomes [2, 2, 2, 1]."""
    counts: "list[int]" = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not match:
            raise ArgumentError(f"$SLURM_TASKS_PER_NODE is {text!r}: expected counts like 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _narrowed(rank: int, world: int, first: int, count: int) -> Topology:
    if count >= world:
        return Topology(rank, world)
    return Topology(rank, world, tuple(range(first, first + count)))


def is_ray_worker(environment: Mapping[str, str]) -> bool:
    """Returns True in a task or actor of Ray, and in what it starts. Ray sets both for them alone."""
    return "RAY_JOB_ID" in environment and "RAY_RAYLET_PID" in environment


def ray_train(environment: Mapping[str, str]) -> Any:
    """Returns the context of Ray Train in one of its workers, else None."""
    train = sys.modules.get("ray.train")
    if train is None or not is_ray_worker(environment):
        return None
    try:
        context = train.get_context()
        return context if context.get_world_size() else None
    except RuntimeError:  # a worker of Ray that Ray Train did not start
        return None


def _from_ray(context: Any) -> Topology:
    rank, world = context.get_world_rank(), context.get_world_size()
    return _narrowed(rank, world, rank - context.get_local_rank(), context.get_local_world_size())


def _is_slurm_step(environment: Mapping[str, str]) -> bool:
    return not is_ray_worker(environment) and "SLURM_PROCID" in environment and "SLURM_NTASKS" in environment and "SLURM_STEP_ID" in environment


def _from_torchrun(environment: Mapping[str, str], rank: int, world: int) -> Topology:
    if "LOCAL_RANK" not in environment or "LOCAL_WORLD_SIZE" not in environment:
        # torch.distributed was given its rank by hand; if Slurm counts ranks the same way, it knows the local ones
        alike = _is_slurm_step(environment) and (
            _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_NTASKS")) == (rank, world)
        return _from_slurm(environment) if alike else Topology(rank, world)
    first = rank - _number(environment, "LOCAL_RANK")
    return _narrowed(rank, world, first, _number(environment, "LOCAL_WORLD_SIZE"))


def _from_slurm(environment: Mapping[str, str]) -> Topology:
    rank, world = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_NTASKS")
    if "SLURM_NODEID" not in environment or "SLURM_TASKS_PER_NODE" not in environment:
        return Topology(rank, world)
    node, counts = _number(environment, "SLURM_NODEID"), parse_tasks_per_node(environment["SLURM_TASKS_PER_NODE"])
    if node >= len(counts):
        raise ArgumentError(f"$SLURM_NODEID is {node}, but $SLURM_TASKS_PER_NODE lists {len(counts)} nodes")
    first = sum(counts[:node])
    if len(counts) > 1 and not first <= rank < first + counts[node]:
        raise ArgumentError(f"Slurm's rank {rank} on node {node} is not one of {first}..{first + counts[node] - 1}: "
                            "ranks are not distributed in blocks, so give local_ranks=[...]")
    return _narrowed(rank, world, first, counts[node])


def initialized() -> Any:
    """Returns torch.distributed if it is initialised."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed if distributed is not None and distributed.is_available() and distributed.is_initialized() else None


def detect(environment: Optional[Mapping[str, str]] = None) -> Topology:
    """Returns the topology of Ray Train, torch.distributed or the environment. Without any: rank 0 of 1."""
    environment = os.environ if environment is None else environment
    context, distributed = ray_train(environment), initialized()
    if context is not None:
        return replace(_from_ray(context), source="Ray Train")
    if distributed is not None:
        found = _from_torchrun(environment, distributed.get_rank(), distributed.get_world_size())
        return replace(found, source="torch.distributed")
    if "RANK" in environment and "WORLD_SIZE" in environment:
        found = _from_torchrun(environment, _number(environment, "RANK"), _number(environment, "WORLD_SIZE"))
        return replace(found, source="$RANK and $WORLD_SIZE")
    if _is_slurm_step(environment):
        return replace(_from_slurm(environment), source="Slurm")
    return Topology()


def resolve(rank: Optional[int], world_size: Optional[int], local_ranks: Optional[Sequence[int]]) -> Topology:
    """Returns the topology of explicit arguments. If rank and world_size are both None they are detected."""
    if rank is None and world_size is None:
        found = detect()
        if local_ranks is None:
            return found
        return Topology(found.rank, found.world_size, tuple(local_ranks), found.source)
    if rank is None or world_size is None:
        raise ArgumentError("give both rank and world_size, or neither")
    return Topology(rank, world_size, None if local_ranks is None else tuple(local_ranks))


# ---- checks across the processes of a job ----


def _distributed() -> Any:
    distributed = initialized()
    return distributed if distributed is not None and distributed.get_world_size() > 1 else None


def ranks_beside(gpu: Optional[str], topology: Topology) -> Tuple[int, ...]:
    """Returns the ranks whose workers use this process's GPU, its own rank included.

    Without torch.distributed that is only its own rank. A collective call: all ranks make it."""
    distributed = _distributed()
    if distributed is None or (
            distributed.get_rank(), distributed.get_world_size()) != (topology.rank, topology.world_size):
        return (topology.rank,)
    gpus: "List[Optional[str]]" = [None] * topology.world_size
    distributed.all_gather_object(gpus, gpu)
    return tuple(rank for rank, one in enumerate(gpus) if one == gpu)
