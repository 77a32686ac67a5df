"""What is pushed, and what is observed."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from .. import arrays
from ..batch import Layout
from ..errors import ArgumentError
from ..group import Group
from ..styles import Field, Plan, Tensor, make_plan


class Stream(NamedTuple):
    """A stream that must be pushed."""

    name: str
    clock: str
    dtype: str              # "f64", ...; rows of other numbers are converted to it
    shape: Tuple[int, ...]  # of a row; (0,) for a "clock:NAME", whose rows are stamps alone
    interval_ns: int        # the mean time from row to row in the recordings; 0: no episode has two rows
    latency_ns: int         # is subtracted from each stamp: latency minus offset of the clock
    capacity: int           # rows that are kept


class Placed(NamedTuple):
    """Where a tensor is in the bytes of an observation."""

    dtype: str
    shape: Tuple[int, ...]  # with B = 1
    offset: int


def _drop(plan: Plan, gone: Set[int]) -> Plan:
    """Returns the plan without the keys that need a tensor which is left out, or a text of an episode."""
    kept: Plan = {}
    for key, entry in plan.items():
        if isinstance(entry, Field):
            if entry.meta is None and not gone.intersection(entry.sources):
                kept[key] = entry
        else:
            inner = _drop(entry, gone)
            if inner:
                kept[key] = inner
    return kept


class Frame:
    """The common part of all observations: where each tensor lies, and the keys of the style."""

    def __init__(self, outputs: Sequence[Tuple[str, str, Tuple[int, ...], int, int]], roles: Dict[str, str],
                 left_out: Sequence[Dict[str, Any]], style: str) -> None:
        self.placed: List[Placed] = []
        schema: List[Tensor] = []
        for name, dtype, shape, offset, mask_offset in outputs:
            schema += [Tensor(name, roles[name], None, dtype, shape),
                       Tensor(f"{name}.mask", "mask", name, "u8", shape[:1])]
            self.placed += [Placed(dtype, (1, *shape), offset), Placed("u8", (1, shape[0]), mask_offset)]
        gone = {len(schema) + place for place in range(len(left_out))}
        schema += [Tensor(one["name"], one["role"], None, one["dtype"], one["shape"]) for one in left_out]
        self.plan = _drop(make_plan(style, schema), gone)
        self.layout = Layout(schema, self.plan)
        for place in self.placed:
            if place.dtype == "bf16":
                arrays._bfloat16()  # raises where numpy has no such type


class Observation(Group):
    """What the policy sees at one moment: a dict like a batch of one row, without what it predicts.

    `observation["obs"]["x"]` is [1, T, D]. The style determines the keys, as in trajd.Batch. The arrays are the
    program's own; they stay as they are when the next rows come."""

    __slots__ = ("_frame", "_bytes", "anchor_ns")

    _frame: Frame
    _bytes: bytearray
    anchor_ns: int  # the time that it shows, after the latency of its clock: at most that of the call

    @classmethod
    def _of(cls, frame: Frame, anchor_ns: int, content: bytearray) -> "Observation":
        made: "Observation" = dict.__new__(cls)
        made._frame, made._bytes, made.anchor_ns = frame, content, anchor_ns
        made._begin(frame.plan, made._make_field)
        return made

    def _array(self, index: int) -> Any:
        place = self._frame.placed[index]
        array: np.ndarray = np.ndarray(place.shape, arrays.NUMPY[place.dtype], self._bytes, place.offset)
        return array.view(arrays._bfloat16()) if place.dtype == "bf16" else array

    def _make_field(self, field: Field) -> Any:
        return arrays.convert([self._array(source) for source in field.sources], field.steps)

    def raw(self, name: str) -> Any:
        """Returns an output by its name in the feed, in any style: [1, T, ...]. Raises NotFound, and ArgumentError for
        one that is left out."""
        index = self._frame.layout.find(name)
        if index >= len(self._frame.placed):
            raise ArgumentError(f"{name} is not part of an observation: see Live.left_out")
        return self._array(index)

    def mask(self, name: str) -> Any:
        """Returns the reason for each step of an output, u8 [1, T]: 0 valid, else as Batch.mask. Raises NotFound."""
        return self._array(self._frame.layout.find_mask(name))

    def __repr__(self) -> str:
        return f"Observation(anchor {self.anchor_ns / 1e9:.6f} s: {', '.join(self)})"
