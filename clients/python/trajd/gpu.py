"""Reads batches in the GPU memory in which the daemon made them (`device="cuda", zero_copy=True`).

Torch receives each tensor by DLPack when it is first read. That is the only torch object of a tensor: a view of a block,
cast and reshaped, was three, and took four times as long. Tensors are not kept for the next batch in the same slot,
although it has the same address: only the end of a tensor's memory tells that nothing reads the batch any more.

A batch is given back when all of its tensors are gone *and* the streams that use it have finished the work they were
given until then. These streams are the one that is current when the batch is taken, those that are current when a
tensor is read from the batch, and those that `record_stream` names. So a tensor may be dropped while its kernels are
still queued, even by the threads of autograd.

If batches cannot be made in that GPU's memory they are copied, with the same rules for streams. The log says why."""
from __future__ import annotations

import logging
from typing import Any, Callable, List, Optional, Set, Tuple

from . import _core, arrays
from .batch import Layout
from .cuda import Stage, torch_index
from .errors import Error

log = logging.getLogger("trajd")

Wait = Callable[[Optional[float]], Optional["_core.Batch"]]


class Torch:
    """The operations of torch that Direct needs on one GPU. Tests replace it."""

    def __init__(self, name: str) -> None:
        self._torch = torch = arrays.import_torch()
        self.index = torch_index(name)
        torch.cuda.init()
        self._raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # ten times faster than current_stream()
        self.adopt = arrays.adopter()

    def current_stream(self) -> int:
        """Returns the handle of the current stream. 1 is the legacy default stream."""
        raw = (self._raw(self.index) if self._raw is not None else
               self._torch.cuda.current_stream(self.index).cuda_stream)
        return int(raw) or 1

    def type_of(self, dtype: str) -> Any:
        return arrays.torch_type(dtype)


def open_torch(name: str) -> Torch:
    return Torch(name)


class Tensors:
    """Makes the tensors of a batch by their numbers, and names the streams that use them."""

    __slots__ = ("_torch", "_core", "_bools", "_stream")

    def __init__(self, torch: Torch, core: "_core.Batch", bools: Set[int]) -> None:
        self._torch, self._core, self._bools = torch, core, bools
        self._stream = torch.current_stream()
        core.use_stream(self._stream)

    def __call__(self, index: int) -> Any:
        stream = self._torch.current_stream()
        if stream != self._stream:
            self._core.use_stream(stream)
        return self._torch.adopt(self._core, index, index in self._bools)

    def record_stream(self, stream: Any) -> None:
        self._core.use_stream(stream.cuda_stream or 1)


class Direct:
    """Takes batches from the client and passes their tensors to torch, where cuda.Stage would copy them."""

    def __init__(self, name: str, refusal: Callable[[], Optional[str]]) -> None:
        self._name, self._refusal = name, refusal
        self._torch = open_torch(name)
        self.uuid: Optional[str] = None  # the GPU to request; None: batches come in host memory
        self._unnamed = ""               # why uuid is None
        try:
            self.uuid = _core.gpu_uuid(self._torch.index)
        except Error as error:
            self._unnamed = str(error)
        self._current: Optional["_core.Batch"] = None
        self._layout: Optional[Layout] = None  # of the batch before
        self._copying: Optional[Stage] = None  # not None once batches come in host memory

    def take(self, wait: Wait, timeout: Optional[float],
             lay_out: Callable[["_core.Batch"], Layout]) -> Optional[Tuple[Any, Callable[[int], Any]]]:
        if self._copying is not None:
            return self._copying.take(wait, timeout, lay_out)
        self._finish()
        core = wait(timeout)
        if core is None:
            return None
        if core.gpu < 0:
            return self._copy_from_now_on(core, wait, timeout, lay_out)
        self._current = core
        return core, self._view_of(core, lay_out(core))

    def _view_of(self, core: "_core.Batch", layout: Layout) -> Tensors:
        if layout is not self._layout:
            self._layout = layout
            for tensor in layout.schema:
                self._torch.type_of(tensor.dtype)  # raises where this version of torch has no such type
        return Tensors(self._torch, core, layout.bools)

    def _copy_from_now_on(self, core: "_core.Batch", wait: Wait, timeout: Optional[float],
                          lay_out: Callable[["_core.Batch"], Layout]) -> Optional[Tuple[Any, Callable[[int], Any]]]:
        log.warning("device %s, zero_copy: %s: batches are copied from host memory instead", self._name,
                    self._unnamed or self._refusal() or "the daemon serves them in host memory")
        # Stage cannot copy batches that are on a GPU, so later epochs must not be opened there
        self._copying, self.uuid = Stage(self._name, to_any_stream=True), None
        first = [core]
        return self._copying.take(lambda limit: first.pop() if first else wait(limit), timeout, lay_out)

    def done(self) -> None:
        """Counts the last batch that the program was given as worked on."""
        if self._copying is not None:
            self._copying.done()
        elif self._current is not None and not self._current.released:
            self._current.done()

    def _finish(self) -> None:
        self.done()
        self._current = None

    def leave(self) -> List[Any]:
        """Returns all batches, before another epoch is opened. The caller drops them after the opening."""
        if self._copying is not None:
            remaining: List[Any] = self._copying.leave()
            return remaining
        kept, self._current = self._current, None
        return [] if kept is None else [kept]

    def end(self) -> None:
        """Counts the last batch as worked on, before the client is closed."""
        if self._copying is not None:
            self._copying.end()
        else:
            self._finish()

