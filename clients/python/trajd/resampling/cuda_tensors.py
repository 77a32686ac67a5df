"""trajd.resample and resample_many for torch tensors on a GPU: one launch on torch's current stream.

Nothing here waits for the GPU or reads its memory, so it also works while a graph is captured. Tensors that are made
here are freed by torch's allocator in the order of the stream, behind the launch that reads them.

Where values [B, S, D] and times [B, S] are dense, or all rows of the batch share them, a call is a launch and nothing
else. Other layouts are copied to dense ones first. Ragged and causal calls compute where the rows of each window lie.
"""
from __future__ import annotations

import functools
import sys

import numpy as np

from .. import _core
from ..arrays import TORCH_NAMES
from ..errors import ArgumentError, Unsupported

CONVERT = ("On a GPU times are int64 ns, because nothing can be checked there without waiting for it. Convert the "
           "seconds once: (seconds * 1e9).round().long()")


@functools.lru_cache(None)
def _names():
    """Returns trajd's names of torch's types, and the other way round."""
    torch = sys.modules["torch"]
    types = {name: getattr(torch, long_name) for name, long_name in TORCH_NAMES.items() if hasattr(torch, long_name)}
    return {dtype: name for name, dtype in types.items()}, types


def run(streams, targets):
    """Resamples streams, each a tuple (name for messages or None, its place in messages, values, times, row_splits, kind,
    order, max_gap, max_age, width, causal, pad, period, range_low, dtype, out). Returns (result, mask) of each."""
    torch = sys.modules["torch"]
    for stream in streams:
        if is_on_gpu(stream[2]):
            device = stream[2].device
            break
    views = _Views(torch, device)
    targets_view = views.of(targets, "", "targets", is_time=True)
    if not targets.is_contiguous():
        targets = targets.contiguous()
        targets_view = views.of(targets, "", "targets")
    described = [views.of_stream(*stream[1:5], stream[-1]) for stream in streams]
    row_arrays, arguments, alone = [], [], None
    for (label, place, values, times, splits, *how, dtype, _), (values_view, times_view, *others) in zip(streams, described):
        rows = None
        if (splits is not None or how[5] or values.dim() != 3 or times.dim() != 2 or not times.is_contiguous() or
                not _is_dense(values) or not values.shape[1]):
            if alone is None:
                alone = _is_one_window(streams, targets)
            values, times, rows = views.arrange(values, times, splits, targets, how[5], streams, alone)
            values_view, times_view = views.of(values, place, "values"), views.of(times, place, "times")
        if dtype is not None and not isinstance(dtype, str):
            dtype = str(dtype)[6:] if isinstance(dtype, torch.dtype) else np.dtype(dtype).name
        splits_view, result_view, mask_view = others
        arguments.append((label, values_view, None, times_view, splits_view, *how, dtype, result_view, mask_view))
        row_arrays.append(rows)
    found = _launch(torch, device, (tuple(arguments), targets_view, views.empty, tuple(row_arrays)))
    return [(result[4], mask[4]) for result, mask in found]


@functools.lru_cache(None)
def _stream_of():
    """Returns a function that returns the address of a GPU's current stream. That of torch._C makes no object, which saves a
    microsecond."""
    torch = sys.modules["torch"]
    return getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda gpu: torch.cuda.current_stream(gpu).cuda_stream)


def _launch(torch, device, arguments):
    gpu = device.index
    stream = _stream_of()(gpu)
    try:
        if torch.cuda.current_device() == gpu:
            return _core.resample_cuda(*arguments, gpu, stream)
        with torch.cuda.device(gpu):  # the launch makes the GPU current
            return _core.resample_cuda(*arguments, gpu, stream)
    except Unsupported as error:
        if "built without CUDA" not in str(error):
            raise
        raise Unsupported("values is on a GPU, and this trajd has no GPU kernels: install a wheel that `make wheel` has built on a "
                          "machine with nvcc (the published wheels have none), or pass values.cpu(), times.cpu() and "
                          "targets.cpu()") from None


def is_on_gpu(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.is_cuda


def _is_dense(values):
    """Returns whether row s of window b of values [B, S, D] lies at row b * S + s."""
    if values.is_neg():
        return False
    if values.is_contiguous():
        return True
    batch, rows, features = values.shape
    window, row, feature = values.stride()
    return rows > 1 and (features <= 1 or feature == 1) and row >= features and (batch <= 1 or window == rows * row)


def _is_one_window(streams, targets):
    """Returns whether all rows of the batch see the same rows of all streams, and results are written one behind the
    other: a window of B * T steps."""
    for _, _, values, times, splits, *how, _, out in streams:
        outs = out if isinstance(out, (tuple, list)) else (out,)
        if (splits is not None or how[5] or values.dim() != 2 or times.dim() != 1 or not len(times) or
                not all(one is None or one.is_contiguous() for one in outs)):
            return False
    return targets.numel() < 2**31


class _Views:
    """Describes the tensors of a call for _core: (address, shape, strides, type, tensor). Checks what _core cannot see."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.names, self.types = _names()
        self.made = {}  # what several streams share

    def of(self, tensor, place, name, is_time=False):
        try:
            dtype = self.names[tensor.dtype]
            if tensor.device == self.device and not tensor.requires_grad and (dtype == "i64" or not is_time):
                return tensor.data_ptr(), tensor.shape, tensor.stride(), dtype, tensor
        except (AttributeError, KeyError):
            pass
        raise self._refusal(tensor, f"{place}{name}", name, is_time)

    def of_stream(self, place, values, times, splits, out):
        """Returns the descriptions of values, times, row_splits, result and mask; None for those that were not passed."""
        result, mask = out if isinstance(out, (tuple, list)) and len(out) == 2 else (out, None)
        return (self.of(values, place, "values"), self.of(times, place, "times", is_time=True),
                None if splits is None else self.of(splits, place, "row_splits"),
                None if result is None else self.of(result, place, "out"),
                None if mask is None else self.of(mask, place, "out[1] (the mask)"))

    def _refusal(self, tensor, what, name, is_time):
        if not isinstance(tensor, self.torch.Tensor) or tensor.device != self.device:
            where = f"on {tensor.device}" if isinstance(tensor, self.torch.Tensor) else "not a torch tensor"
            return ArgumentError(f"{what} is {where}, but values is on {self.device}: all arguments must be tensors there")
        if tensor.requires_grad:
            return ArgumentError(f"{what} requires gradients, which trajd.resample does not have: pass {name}.detach()")
        return ArgumentError(f"{what} has type {tensor.dtype}" + (f". {CONVERT}" if is_time else ": pass floats, integers or bools"))

    def empty(self, shape, dtype):
        made = self.torch.empty(shape, dtype=self.types[dtype], device=self.device)
        return made.data_ptr(), made.shape, made.stride(), dtype, made

    def arrange(self, values, times, splits, targets, is_causal, streams, is_one_window):
        """Returns dense values and times, and the addresses of (row_begin, row_count, anchor), None where the windows are
        dense. Shapes that do not fit are left as they are, because _core refuses them."""
        values = values.resolve_neg()
        if values.dim() < 2 or (values.dim() == 3 and not _is_dense(values)) or (values.dim() == 2 and not _is_dense(values[None])):
            values = values.contiguous()
        times = times.contiguous()
        batch = self._batch(streams, targets)
        if not targets.numel() or batch == 0 or not self._fits(values, times, splits, targets, batch):
            return values, times, None
        if splits is None and values.dim() == 3 and times.dim() == 1:
            times = self._shared(times, lambda: times.expand(batch, -1).contiguous())
        elif splits is None and values.dim() == 2 and times.dim() == 2:
            values = values.expand(batch, -1, -1).contiguous()
        is_dense = splits is None and times.shape[-1] and (values.dim() == 3 or is_one_window or batch == 1)
        if is_dense and not is_causal:
            return values, times, None
        rows = self._shared(times, lambda: self._rows(times, splits, targets, is_causal, batch), splits, is_causal)
        return values, times, tuple(one.data_ptr() for one in rows)

    def _shared(self, times, make, splits=None, is_causal=None):
        """Makes it once for all streams with the same times, so that they also share one search."""
        key = (times.data_ptr(), times.shape, None if splits is None else (splits.data_ptr(), splits.stride()), is_causal)
        if key not in self.made:
            self.made[key] = make(), times  # `times` stays until the launch: else its address may be that of the next copy
        return self.made[key][0]

    @staticmethod
    def _batch(streams, targets):
        """Returns B by the first argument that has it; 1 if none has."""
        if targets.dim() == 2:
            return targets.shape[0]
        for _, _, values, times, splits, *_ in streams:
            if splits is not None:
                return max(splits.numel() - 1, 0)
            if values.dim() == 3 or times.dim() == 2:
                return values.shape[0] if values.dim() == 3 else times.shape[0]
        return 1

    def _fits(self, values, times, splits, targets, batch):
        ranks = values.dim() in (2, 3) and times.dim() in (1, 2) and targets.dim() in (1, 2)
        if not ranks or values.shape[-2] != times.shape[-1]:
            return False
        if splits is not None:
            return (values.dim(), times.dim(), splits.dim(), splits.dtype) == (2, 1, 1, self.torch.int64) and splits.numel() == batch + 1
        return values.shape[0] == batch or values.dim() == 2 if times.dim() == 1 else times.shape[0] == batch and (
            values.dim() == 2 or values.shape[0] == batch)

    def _rows(self, times, splits, targets, is_causal, batch):
        """Returns row_begin, row_count and anchor of each window. Splits that do not ascend give windows within the rows."""
        torch, rows = self.torch, times.shape[-1]
        none = torch.zeros(batch, dtype=torch.int64, device=self.device)
        if not rows:
            return none, none, none
        if splits is not None:
            ends = splits.clamp(0, rows)
            begin, count = ends[:-1], (ends[1:] - ends[:-1]).clamp_(min=0)
        else:
            begin = none if times.dim() == 1 else torch.arange(0, batch * rows, rows, device=self.device)
            count = torch.full((batch,), rows, device=self.device)
        if is_causal:
            latest = targets.amax(-1).expand(batch).contiguous()
            if splits is not None:
                every = torch.arange(rows, device=self.device)
                window = torch.searchsorted(ends[1:].contiguous(), every, right=True).clamp_(max=batch - 1)
                seen = torch.nn.functional.pad((times <= latest[window]).cumsum(0), (1, 0))
                count = torch.minimum(count, (seen[begin + count] - seen[begin]))
            elif times.dim() == 1:
                count = torch.searchsorted(times, latest, right=True)
            else:
                count = torch.searchsorted(times, latest[:, None], right=True).view(-1)
        return begin, count, none
