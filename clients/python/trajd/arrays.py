"""Makes numpy arrays or torch tensors of a batch's tensors, and applies the conversions of key styles to them."""
from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List

import numpy as np

from . import _core
from .errors import ArgumentError

_BEFORE_START, _AFTER_END = 1, 2  # mask codes of kernels/resample.h


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


def torch_view(tensor: "_core.Tensor", copy: bool) -> Any:
    """Returns the same as a torch tensor on the CPU. Torch has no read-only tensors: writing to a view of a shared ring
    ends the process (SIGSEGV)."""
    torch = import_torch()
    if copy or (tensor.read_only and tensor.dtype == "bf16"):
        copied = torch.utils.dlpack.from_dlpack(tensor.__dlpack__(copy=True)) if tensor.dtype != "bool" else \
            torch.from_numpy(np.array(tensor))
        return copied
    if tensor.read_only or tensor.dtype == "bool":  # older versions of torch do not accept bool from DLPack
        return torch.from_numpy(np.asarray(tensor))
    return torch.utils.dlpack.from_dlpack(tensor.__dlpack__())


def _is_pad(x: Any) -> Any:
    return (x == _BEFORE_START) | (x == _AFTER_END)


def _is_valid(x: Any) -> Any:
    return ~_is_pad(x)


def _last_step(x: Any) -> Any:
    return x[:, -1]


def _channels_first(x: Any) -> Any:
    return np.moveaxis(x, -1, -3) if isinstance(x, np.ndarray) else x.movedim(-1, -3)


def _unit_range(x: Any) -> Any:
    return x.astype(np.float32) / np.float32(255) if isinstance(x, np.ndarray) else x.float() / 255


def _as_column(x: Any) -> Any:
    return x[..., None]


STEPS: Dict[str, Callable[[Any], Any]] = {
    "is_pad": _is_pad, "is_valid": _is_valid, "last_step": _last_step, "channels_first": _channels_first,
    "unit_range": _unit_range, "as_column": _as_column,
}


def stack(parts: List[Any]) -> Any:
    """Returns [B, K, ...] for K arrays of [B, ...]."""
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts, axis=1)
    return import_torch().stack(parts, dim=1)
