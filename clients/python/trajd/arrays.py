"""Makes numpy arrays or torch tensors of a batch's tensors, and applies the conversions of key styles to them."""
from __future__ import annotations

import importlib
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _core
from .errors import ArgumentError

_VALID, _BEFORE_START, _AFTER_END = 0, 1, 2  # mask codes of kernels/resample.h

# trajd's names of element types, and numpy's, which has no bf16
NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32,
         "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
         "bf16": np.uint16}
TORCH_NAMES = {**{name: np.dtype(kind).name for name, kind in NUMPY.items()}, "bf16": "bfloat16"}


def import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise ArgumentError("device= or framework= needs torch, which is not installed; without them batches are numpy "
                            "arrays") from None


def _bfloat16() -> Any:
    try:
        return importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        raise ArgumentError("bf16: numpy has no such type; install ml_dtypes, use framework='torch', or set dtype f32 "
                            "in the feed") from None


def numpy_view(tensor: "_core.Tensor", copy: bool) -> np.ndarray:
    """Returns [B, ...], a view of the ring or a copy of it. A view is writeable if no other job reads the ring."""
    array = np.array(tensor) if copy else np.asarray(tensor)
    return array.view(_bfloat16()) if tensor.dtype == "bf16" else array


Adopt = Callable[["_core.Batch", int, bool], Any]


def adopter() -> Adopt:
    """Returns a function that returns a tensor of a batch as torch's, in the memory of the batch."""
    torch = import_torch()
    from_dlpack, boolean = torch.utils.dlpack.from_dlpack, torch.bool

    def adopt(core: "_core.Batch", index: int, is_bool: bool) -> Any:
        tensor = from_dlpack(core.capsule(index))
        return tensor.view(boolean) if is_bool else tensor
    return adopt


def torch_of_shared(tensor: "_core.Tensor", copy: bool) -> Any:
    """Returns [B, ...] of a ring that other jobs read, as a torch tensor on the CPU. Torch has no read-only tensors:
    writing to a view of a shared ring ends the process (SIGSEGV)."""
    torch = import_torch()
    if (copy or tensor.dtype == "bf16") and tensor.dtype != "bool":  # older versions of torch take no bool from DLPack
        return torch.utils.dlpack.from_dlpack(tensor.__dlpack__(copy=True))
    return torch.from_numpy(np.array(tensor) if copy else np.asarray(tensor))


class Finish(NamedTuple):
    """How frames of u8, channels last, become what the policy gets: value * scale + shift of the channel, a product and
    a sum in float32, then the type. The bytes are those that the daemon makes where it finishes them itself."""

    dtype: str
    is_planes: bool  # the channels come before height and width then
    scale: bytes     # one float32 a channel; empty: the values stay
    shift: bytes

    def shape(self, frames: Sequence[int]) -> Tuple[int, ...]:
        """Returns the shape of finished frames."""
        *rest, height, width, channels = frames if self.is_planes else (*frames, 0, 0, 0)
        return (*rest, channels, height, width) if self.is_planes else tuple(frames)

    def factors(self) -> Tuple[Optional[np.ndarray], Optional[np.ndarray]]:
        """Returns scale and shift in a shape that fits the finished frames. None: they change nothing."""
        extents = (-1, 1, 1) if self.is_planes else (-1,)
        scale, shift = (np.frombuffer(values, np.float32).reshape(extents) for values in (self.scale, self.shift))
        return (scale if scale.size else None), (shift if shift.any() else None)


def finish_numpy(frames: np.ndarray, finish: Finish) -> np.ndarray:
    """Returns finished frames, a new array."""
    if finish.is_planes:
        frames = np.moveaxis(frames, -1, -3)
    scale, shift = finish.factors()
    if scale is None:
        return np.ascontiguousarray(frames)
    values = np.empty(frames.shape, np.float32)
    np.multiply(frames, scale, out=values)
    if shift is not None:
        values += shift
    if finish.dtype == "f32":
        return values
    return values.astype(np.float16 if finish.dtype == "f16" else _bfloat16())


def finish_torch(frames: Any, finish: Finish, scale: Any, shift: Any, finished: Any) -> Any:
    """Writes finished frames to `finished`, on the device of the tensors. `scale` and `shift` are finish.factors() as
    tensors."""
    torch = import_torch()
    if finish.is_planes:
        frames = frames.movedim(-1, -3)
    if scale is None:
        return finished.copy_(frames)
    if shift is None:
        return torch.mul(frames, scale, out=finished)
    values = torch.mul(frames, scale, out=finished) if finish.dtype == "f32" else torch.mul(frames, scale)
    return torch.add(values, shift, out=finished)


def torch_type(dtype: str) -> Any:
    torch = import_torch()
    kind = getattr(torch, TORCH_NAMES[dtype], None)
    if kind is None:
        raise ArgumentError(f"torch {torch.__version__} has no type for {dtype}: set another dtype in the feed")
    return kind


def finish_view(tensor: "_core.Tensor", finish: Finish, framework: str) -> Any:
    """Returns a tensor of the ring as finished images, in new memory on the CPU."""
    frames = np.asarray(tensor)
    if framework == "numpy":
        return finish_numpy(frames, finish)
    torch = import_torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that a shared ring is not writeable, but it is only read here
        source = torch.from_numpy(frames)
    factors = (None if values is None else torch.from_numpy(values.copy()) for values in finish.factors())
    return finish_torch(source, finish, *factors, torch.empty(finish.shape(frames.shape), dtype=torch_type(finish.dtype)))


class RingView:
    """Makes the tensors of a batch in host memory by their numbers. `adopt` makes torch tensors of a ring that no other
    job reads; None: the ring is shared, or arrays are numpy's."""

    __slots__ = ("_core", "_layout", "_framework", "_copy", "_adopt")

    def __init__(self, core: "_core.Batch", layout: Any, framework: str, copy: bool, adopt: "Optional[Adopt]") -> None:
        self._core, self._layout, self._framework, self._copy, self._adopt = core, layout, framework, copy, adopt

    def __call__(self, index: int) -> Any:
        if index in self._layout.finishes:
            return finish_view(self._core.tensor(index), self._layout.finishes[index], self._framework)
        if self._adopt is not None:
            return self._adopt(self._core, index, index in self._layout.bools)
        make = numpy_view if self._framework == "numpy" else torch_of_shared
        return make(self._core.tensor(index), self._copy)

    def stacked(self, indices: Sequence[int]) -> Any:
        """Returns [B, K, ...] of K tensors as a view of the slot, in which the daemon puts cameras that are alike side by
        side. None: the tensors are copied, or have another layout in memory."""
        if self._copy or any(index in self._layout.finishes for index in indices):
            return None
        tensors = [self._core.tensor(index) for index in indices]
        first, gap = tensors[0], tensors[-1].address - tensors[0].address
        step = gap // max(len(tensors) - 1, 1)
        if step < 0 or any((tensor.dtype, tensor.shape, tensor.address) != (first.dtype, first.shape, first.address + k * step)
                           for k, tensor in enumerate(tensors)):
            return None
        array = np.asarray(first)  # keeps the whole slot
        view = np.lib.stride_tricks.as_strided(array, (array.shape[0], len(tensors), *array.shape[1:]),
                                               (array.strides[0], step, *array.strides[1:]), writeable=not first.read_only)
        if self._framework == "numpy":
            return view.view(_bfloat16()) if first.dtype == "bf16" else view
        torch = import_torch()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a shared ring, to which this module's page forbids to write
            return torch.from_numpy(view.view(np.int16)).view(torch.bfloat16) if first.dtype == "bf16" else torch.from_numpy(view)


def _is_pad(x: Any) -> Any:
    return (x == _BEFORE_START) | (x == _AFTER_END)


def _is_valid(x: Any) -> Any:
    return x == _VALID


def _last_step(x: Any) -> Any:
    return x[:, -1]


def _channels_first(x: Any) -> Any:
    return np.moveaxis(x, -1, -3) if isinstance(x, np.ndarray) else x.movedim(-1, -3)


def _unit_range(x: Any) -> Any:
    """Returns u8 as float32 from 0 to 1, in one new buffer."""
    return np.divide(x, np.float32(255), dtype=np.float32) if isinstance(x, np.ndarray) else x.float().div_(255)


def _as_column(x: Any) -> Any:
    return x[..., None]


STEPS: Dict[str, Callable[[Any], Any]] = {
    "is_pad": _is_pad, "is_valid": _is_valid, "last_step": _last_step, "channels_first": _channels_first,
    "unit_range": _unit_range, "as_column": _as_column,
}


def convert(parts: List[Any], steps: Sequence[str]) -> Any:
    """Applies the steps of a key to the tensors that it is made from."""
    for place, step in enumerate(steps):
        if steps[place:] == ("unit_range", "stack"):
            return _stack_unit_range(parts)
        if step == "stack":
            return _stack(parts)
        parts = [STEPS[step](part) for part in parts]
    return parts[0]


def convert_stacked(stacked: Any, steps: Sequence[str]) -> Any:
    """Applies the steps of a key to [B, K, T, ...]."""
    for step in steps:
        stacked = stacked[:, :, -1] if step == "last_step" else STEPS[step](stacked)
    return stacked


def _stack(parts: List[Any]) -> Any:
    """Returns [B, K, ...] for K arrays of [B, ...]."""
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts, axis=1)
    return import_torch().stack(parts, dim=1)


def _stack_unit_range(parts: List[Any]) -> Any:
    """Returns [B, K, ...] as float32 from 0 to 1 for K arrays of u8, in one new buffer."""
    shape = (parts[0].shape[0], len(parts), *parts[0].shape[1:])
    if isinstance(parts[0], np.ndarray):
        stacked: Any = np.empty(shape, np.float32)
        for k, part in enumerate(parts):
            np.divide(part, np.float32(255), out=stacked[:, k])
        return stacked
    stacked = import_torch().empty(shape, dtype=import_torch().float32, device=parts[0].device)
    for k, part in enumerate(parts):
        stacked[:, k].copy_(part)
    return stacked.div_(255)
