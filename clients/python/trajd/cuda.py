"""Copies batches to the GPU (`device="cuda"`), one ahead, on a stream of its own.

Images that the feed makes float, or with the channels first, come as u8. They are finished on that stream, so no
kernel of theirs is left to the training's. torch's allocator keeps their memory from batch to batch.

Tensors belong to torch's allocator, and may outlive feed and daemon. Each stream that reads them waits for the copy:
the stream that is current when the batch is taken, the streams that are current when a tensor is read from the batch,
and those that `record_stream` names.

A batch in the ring is given back when its copy has finished *and* the program has asked for the next batch. Only then
is it counted as DONE, so a batch that was only copied ahead never is. The ring is registered with CUDA once, which
makes the copies asynchronous. If the registration fails the copies are slower, and still correct.

A Stage holds up to three batches of the credit: the one in use, the next one, and one whose copy has not finished."""
from __future__ import annotations

import functools
import logging
import os
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import numpy as np

from . import _core, arrays
from .batch import Layout
from .errors import Busy, DataError, DeviceError, Timeout

log = logging.getLogger("trajd")

_ALIGNMENT = 64
_REGISTER_PORTABLE, _REGISTER_READ_ONLY = 1, 8  # flags of cudaHostRegister

@dataclass(frozen=True)
class CopyPlan:
    """The offsets of a slot's tensors in one block of `size` bytes on the GPU."""

    offsets: Tuple[int, ...]
    size: int
    in_one_copy: bool  # one copy from the first tensor to the last; else one copy for each tensor


def plan_copy(begin: int, span: int, places: Sequence[Tuple[int, int]]) -> CopyPlan:
    """Plans the copies of one slot. Plans a single copy unless most of its bytes would be rows of other ranks.

    places: (address, bytes) of each tensor, all inside [begin, begin + span)."""
    if 2 * sum(size for _, size in places) >= span:
        return CopyPlan(tuple(address - begin for address, _ in places), span, True)
    offsets, end = [], 0
    for _, size in places:
        offsets.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return CopyPlan(tuple(offsets), end, False)


class Frames(NamedTuple):
    """The place of images of u8 in a block, and how they are finished."""

    offset: int
    size: int
    shape: Tuple[int, ...]
    finish: arrays.Finish


class Event(Protocol):
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...


class Device(Protocol):
    """The GPU operations that Stage needs. Tests replace it."""

    def register(self, ring: "_core.Ring") -> bool: ...
    def unregister(self, ring: "_core.Ring") -> None: ...
    def copy(self, plan: CopyPlan, sources: Sequence[np.ndarray],
             frames: Sequence[Frames]) -> Tuple[Any, List[Any], Event]: ...
    def current_stream(self) -> int: ...
    def hand_over(self, blocks: Sequence[Any], event: Event, stream: Any = None) -> None: ...
    def view(self, block: Any, offset: int, size: int, dtype: str, shape: Sequence[int]) -> Any: ...
    def settle(self) -> None: ...


@functools.lru_cache(maxsize=None)  # once in a process
def _tell_of_local_rank(local: int) -> None:
    log.warning('device "cuda": torch stands on GPU 0 in the rank with LOCAL_RANK %d. The batches go to GPU %d, so that the '
                'ranks of this node do not all use GPU 0. Call torch.cuda.set_device(%d) before the feed is made, or give '
                'device="cuda:N"', local, local, local)


def _current_index(torch: Any) -> int:
    """Returns the index of torch's GPU, or LOCAL_RANK where no one has chosen a GPU for this rank."""
    current, local = int(torch.cuda.current_device()), os.environ.get("LOCAL_RANK", "")
    if current != 0 or not local.isdecimal() or not 0 < int(local) < torch.cuda.device_count():
        return current
    _tell_of_local_rank(int(local))
    return int(local)


def torch_index(name: str) -> int:
    """Returns the index of the GPU for "cuda" or "cuda:N". Raises DeviceError if there is none."""
    torch = arrays.import_torch()
    if not torch.cuda.is_available():
        raise DeviceError(f"device {name!r}: torch {torch.__version__} sees no CUDA device here")
    index = torch.device(name).index
    index = _current_index(torch) if index is None else index
    if index >= torch.cuda.device_count():
        raise DeviceError(f"device {name!r}: torch sees {torch.cuda.device_count()} GPUs")
    return int(index)


class CudaDevice:
    def __init__(self, name: str) -> None:
        self._torch = torch = arrays.import_torch()
        self.device = torch.device("cuda", torch_index(name))
        self._stream = torch.cuda.Stream(self.device)
        self._raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # ten times faster than current_stream()
        self._factors: Dict[arrays.Finish, Tuple[Any, Any]] = {}  # on the GPU

    def register(self, ring: "_core.Ring") -> bool:
        flags = _REGISTER_PORTABLE | (0 if ring.writable else _REGISTER_READ_ONLY)
        with self._torch.cuda.device(self.device):
            code = int(self._torch.cuda.cudart().cudaHostRegister(ring.base, ring.size_bytes, flags))
            if code != 0:
                log.warning("cudaHostRegister of a ring of %d bytes failed (%d): copies to %s wait for the host",
                            ring.size_bytes, code, self.device)
                try:  # otherwise torch's next operation would report the error
                    self._torch.zeros(1, device=self.device)
                except RuntimeError:
                    pass
        return code == 0

    def unregister(self, ring: "_core.Ring") -> None:
        with self._torch.cuda.device(self.device):
            self._torch.cuda.cudart().cudaHostUnregister(ring.base)

    def _from_host(self, source: np.ndarray) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that a shared ring is not writeable, but it is only read here
            return self._torch.from_numpy(source)

    def _finish(self, block: Any, frames: Frames) -> Any:
        finish, torch = frames.finish, self._torch
        if finish not in self._factors:
            scale, shift = (None if values is None else torch.tensor(values, device=self.device)
                            for values in finish.factors())
            self._factors[finish] = scale, shift
        finished = torch.empty(finish.shape(frames.shape), dtype=arrays.torch_type(finish.dtype), device=self.device)
        return arrays.finish_torch(self.view(block, frames.offset, frames.size, "u8", frames.shape), finish,
                                   *self._factors[finish], finished)

    def copy(self, plan: CopyPlan, sources: Sequence[np.ndarray],
             frames: Sequence[Frames]) -> Tuple[Any, List[Any], Event]:
        """Copies sources to a new block, and finishes the frames in it. The event comes after both."""
        torch = self._torch
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            block = torch.empty(plan.size, dtype=torch.uint8, device=self.device)
            for offset, source in zip((0,) if plan.in_one_copy else plan.offsets, sources):
                block[offset:offset + source.size].copy_(self._from_host(source), non_blocking=True)
            finished = [self._finish(block, each) for each in frames]
            event = torch.cuda.Event()
            event.record(self._stream)
        return block, finished, event

    def current_stream(self) -> int:
        index = self.device.index
        return int(self._raw(index) if self._raw is not None else self._torch.cuda.current_stream(index).cuda_stream)

    def hand_over(self, blocks: Sequence[Any], event: Event, stream: Any = None) -> None:
        """Lets a stream read the blocks of a copy after it. None: the current stream."""
        stream = self._torch.cuda.current_stream(self.device) if stream is None else stream
        stream.wait_event(event)
        for block in blocks:
            block.record_stream(stream)

    def view(self, block: Any, offset: int, size: int, dtype: str, shape: Sequence[int]) -> Any:
        return block[offset:offset + size].view(arrays.torch_type(dtype)).view(tuple(shape))

    def settle(self) -> None:
        self._stream.synchronize()


def open_device(name: str) -> Device:
    return CudaDevice(name)


class DeviceBatch:
    """Stands in for _core.Batch in a Batch that was copied. Stage gives the copied batch's slot back."""

    def __init__(self, core: "_core.Batch") -> None:
        self.epoch, self.position = core.epoch, core.position
        self.row_begin, self.row_count = core.row_begin, core.row_count
        self.ready_ns, self.sequence = core.ready_ns, core.sequence
        self.released = False
        self._held: Optional["_core.Batch"] = core

    def done(self) -> None:
        if self._held is not None:
            self._held.done()

    def forget(self) -> None:
        self._held = None

    def release(self) -> None:
        self.released = True


class _Copied:
    def __init__(self, core: "_core.Batch", layout: Layout, device: Device) -> None:
        tensors = [core.tensor(index) for index in range(len(layout.schema))]
        hosts = [np.asarray(tensor).reshape(-1).view(np.uint8) for tensor in tensors]
        slab = core.slab()
        self.core = core
        self._device = device
        self._facts = [(host.size, tensor.dtype, tensor.shape) for host, tensor in zip(hosts, tensors)]
        self._plan = plan_copy(slab.address, slab.shape[0], [(t.address, h.size) for t, h in zip(tensors, hosts)])
        images = {index: Frames(self._plan.offsets[index], hosts[index].size, tuple(tensors[index].shape), finish)
                    for index, finish in layout.finishes.items()}
        self._block, finished, self.event = device.copy(
            self._plan, [np.asarray(slab)] if self._plan.in_one_copy else hosts, list(images.values()))
        self._finished = dict(zip(images, finished))
        self.batch = DeviceBatch(core)

    def hand_over(self, to_any_stream: bool) -> "View":
        if to_any_stream:
            self.event.synchronize()
        return View(self._device, self._block, self._finished, self.event, self._plan, self._facts)


class View:
    """Makes the tensors of a copied batch by their numbers, and lets each stream that uses them wait for the copy."""

    __slots__ = ("_device", "_block", "_finished", "_event", "_plan", "_facts", "_streams")

    def __init__(self, device: Device, block: Any, finished: Dict[int, Any], event: Event, plan: CopyPlan,
                 facts: Sequence[Any]) -> None:
        self._device, self._block, self._event, self._plan, self._facts = device, block, event, plan, facts
        self._finished = finished  # images, by the numbers of their tensors
        self._streams: "set[int]" = set()
        self._follow()

    def _blocks(self) -> List[Any]:
        return [self._block, *self._finished.values()]

    def _follow(self) -> None:
        stream = self._device.current_stream()
        if stream not in self._streams:
            self._device.hand_over(self._blocks(), self._event)
            self._streams.add(stream)

    def __call__(self, index: int) -> Any:
        self._follow()
        if index in self._finished:
            return self._finished[index]
        return self._device.view(self._block, self._plan.offsets[index], *self._facts[index])

    def record_stream(self, stream: Any) -> None:
        self._device.hand_over(self._blocks(), self._event, stream)


class Stage:
    """Takes batches from the client one ahead, and copies them to the GPU."""

    def __init__(self, name: str, to_any_stream: bool = False) -> None:
        self._device = open_device(name)
        self._to_any_stream = to_any_stream  # waits for each copy, so that any stream may read the batch
        self._rings: Dict[int, Tuple["_core.Ring", bool]] = {}
        self._ahead: Optional[_Copied] = None
        self._failure: Optional[DataError] = None  # of the batch ahead, raised when it is taken
        self._current: Optional[_Copied] = None
        self._finishing: List[_Copied] = []  # worked on, but their copies may still run

    def take(self, wait: Callable[[Optional[float]], Optional["_core.Batch"]], timeout: Optional[float],
             lay_out: Callable[["_core.Batch"], Layout]) -> Optional[Tuple[Any, Callable[[int], Any]]]:
        self._finish_current()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._ahead is None:
            self._collect(wait_for_copies=True)
            core = wait(timeout)
            if core is None:
                return None
            self._ahead = self._begin(core, lay_out)
        taken, self._ahead = self._ahead, None
        self._current = taken
        view = taken.hand_over(self._to_any_stream)
        self._collect(wait_for_copies=False)
        self._look_ahead(wait, lay_out)
        return taken.batch, view

    def _begin(self, core: "_core.Batch", lay_out: Callable[["_core.Batch"], Layout]) -> _Copied:
        ring = core.ring()
        if ring is not None and ring.base not in self._rings:
            self._drop_rings()  # they belong to another daemon or feed
            self._rings[ring.base] = (ring, self._device.register(ring))
        return _Copied(core, lay_out(core), self._device)

    def _look_ahead(self, wait: Callable[[Optional[float]], Optional["_core.Batch"]],
                    lay_out: Callable[["_core.Batch"], Layout]) -> None:
        try:
            core = wait(0.0)
        except (Timeout, Busy):
            return
        except DataError as error:
            self._failure = error
            return
        if core is not None:
            self._ahead = self._begin(core, lay_out)

    def done(self) -> None:
        """Counts the last batch that the program was given as worked on."""
        if self._current is not None:
            self._current.core.done()

    def _finish_current(self) -> None:
        if self._current is not None:
            self._current.core.done()
            self._current.batch.forget()
            self._finishing.append(self._current)
            self._current = None

    def _collect(self, wait_for_copies: bool) -> None:
        """Gives back batches that are worked on and copied."""
        kept = []
        for copied in self._finishing:
            if wait_for_copies:
                copied.event.synchronize()
            if copied.event.query():
                copied.core.release()
            else:
                kept.append(copied)
        self._finishing = kept

    def _drop_rings(self) -> None:
        if self._rings:
            self._device.settle()
        for ring, registered in self._rings.values():
            if registered:
                self._device.unregister(ring)
        self._rings.clear()

    def leave(self) -> "List[_Copied]":
        """Returns all batches, before another epoch is opened. The caller drops them after the opening.

        A release before would count as DONE."""
        self._device.settle()
        self._failure = None
        remaining = [copied for copied in (self._ahead, self._current, *self._finishing) if copied is not None]
        for copied in remaining:
            copied.batch.forget()
        self._ahead, self._current, self._finishing = None, None, []
        return remaining

    def end(self) -> None:
        """Gives everything back before the client is closed. The batch ahead does not count as DONE."""
        self._finish_current()
        self._collect(wait_for_copies=True)
        if self._ahead is not None:
            self._device.settle()
            self._ahead.core.abandon()
        self.leave()
        self._drop_rings()
