"""Batch: a dict from names to arrays, with this worker's rows of one global batch."""
from __future__ import annotations

import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from . import arrays
from .connection import Connection, Explanation
from .errors import Closed, DataWarning, NotFound, level_of_caller, names_there_are
from .group import Group
from .styles import Field, Plan, Tensor

_BAD_FRAME = 8  # mask code of kernels/resample.h


class Layout:
    """The common part of all batches of an open feed: the schema, and the keys of the style."""

    def __init__(self, schema: List[Tensor], plan: Plan, finishes: Optional[Dict[int, arrays.Finish]] = None) -> None:
        self.schema, self.plan = schema, plan
        self.finishes = finishes or {}  # how the tensors are finished that the ring has as u8
        self.index = {tensor.name: place for place, tensor in enumerate(schema)}
        self.bools = {place for place, tensor in enumerate(schema) if tensor.dtype == "bool"}
        self.masks = {tensor.of: place for place, tensor in enumerate(schema) if tensor.role == "mask"}
        self.frames = [(tensor.name, self.masks[tensor.name]) for tensor in schema
                       if len(tensor.shape) == 4 and tensor.name in self.masks]

    def find(self, name: str) -> int:
        if name not in self.index:
            raise NotFound(f"no tensor {name} in this feed ({names_there_are(name, self.index)})")
        return self.index[name]

    def find_mask(self, name: str) -> int:
        if name not in self.masks:
            raise NotFound(f"no output {name} in this feed ({names_there_are(name, map(str, self.masks))})")
        return self.masks[name]


def report_bad_frames(core: Any, layout: Layout, feed: str) -> bool:
    """Issues a DataWarning if a batch in host memory has steps with a bad frame. Returns whether it did."""
    found = []
    for name, place in layout.frames:
        mask = np.asarray(core.tensor(place))
        count = int(np.count_nonzero(mask == _BAD_FRAME))
        if count:
            found.append(f"output {name}: {count} of {mask.size} steps")
    if found:
        warnings.warn(f"feed {feed}, the batch at position {core.position}: bad frames (they cannot be decoded, or "
                      f"are zeros that the layout masks), delivered as pad_value: {'; '.join(found)}. batch.mask(OUTPUT) == "
                      f"{_BAD_FRAME} is True there, is_pad is not; feed.metrics() counts bad frames. Further ones give no "
                      "warning", DataWarning, stacklevel=level_of_caller())
    return bool(found)


class Arrays:
    """Makes the arrays of one batch, each once. Keeps the batch's memory."""

    __slots__ = ("core", "layout", "view", "_connection", "_made", "__weakref__")

    def __init__(self, core: Any, layout: Layout, view: Callable[[int], Any], connection: Connection) -> None:
        self.core, self.layout, self.view = core, layout, view
        self._connection = weakref.ref(connection)  # a batch that is kept must not keep its feed, and so the batches ahead
        self._made: Dict[int, Any] = {}

    def tensor(self, index: int) -> Any:
        made = self._made.get(index)
        if made is None:
            if self.core.released:
                raise ValueError("this batch is released")
            made = self._made[index] = self.view(index)
        return made

    def named(self, name: str) -> Any:
        return self.tensor(self.layout.find(name))

    def make(self, field: Field) -> Any:
        if field.meta is not None:
            try:
                return self.texts(field.meta)
            except NotFound:  # the datasets have no such texts
                return [None] * int(self.core.row_count)
        if not field.steps:
            return self.tensor(field.sources[0])
        if field.steps[-1:] == ("stack",) and "unit_range" not in field.steps and isinstance(self.view, arrays.RingView):
            stacked = self.view.stacked(field.sources)
            if stacked is not None:
                return arrays.convert_stacked(stacked, field.steps[:-1])
        return arrays.convert([self.tensor(source) for source in field.sources], field.steps)

    def connection(self) -> Connection:
        connection = self._connection()
        if connection is None:
            raise Closed("only the feed of this batch can answer this, and it no longer exists: keep a reference to the feed")
        return connection

    def texts(self, name: str) -> List[Optional[str]]:
        texts = self.connection().texts(name)
        places = zip(self.named("dataset_index").tolist(), self.named("episode_index").tolist())
        return [texts[place] for place in places]

    def release(self) -> None:
        self._made.clear()
        self.core.release()


class Batch(Group):
    """This worker's B rows of one global batch: a dict. Each array is made when it is first read.

    `batch["obs"]["x"]` and `batch["obs/x"]` are the same array, [B, T, D] (images: [B, T, H, W, C]).
    `batch["actions_is_pad"]` is bool [B, T], True where a step lies outside the episode. The feed's style determines
    the keys and shapes (trajd.styles).

    copy(), a pickle, and what torch's pytree and the like make of a batch are plain dicts. A pickle has copies of the
    arrays, and all others the same arrays.

    Memory: arrays are views of the daemon's ring. The memory goes back when the batch and all arrays and views of it
    are gone, or by release(). Until then the ring has one slot less for all its workers. Copy what you keep for long.

    Threads: arrays may be used, kept and dropped in any thread."""

    __slots__ = ("_arrays", "_core")

    _arrays: Arrays
    _core: Any

    @classmethod
    def _of(cls, made: Arrays) -> "Batch":
        batch: "Batch" = dict.__new__(cls)
        batch._arrays, batch._core = made, made.core
        batch._begin(made.layout.plan, made.make)
        return batch

    def __repr__(self) -> str:
        state = "released" if self._core.released else f"{self.rows} rows"
        return f"Batch(epoch {self.epoch}, position {self.position}, {state}: {', '.join(self)})"

    # ---- its rows ----

    @property
    def epoch(self) -> int:
        """The epoch of the batch."""
        return int(self._core.epoch)

    @property
    def position(self) -> int:
        """The position of the global batch's first window in the epoch."""
        return int(self._core.position)

    @property
    def rows(self) -> int:
        """B, the number of this worker's rows."""
        return int(self._core.row_count)

    @property
    def row_begin(self) -> int:
        """The index of this worker's first row in the global batch."""
        return int(self._core.row_begin)

    @property
    def ready_ns(self) -> int:
        """The time at which the daemon had the batch ready, on the clock of time.monotonic_ns() of its machine."""
        return int(self._core.ready_ns)

    @property
    def window_id(self) -> Any:
        """int64 [B]: the number of each window, unique in the dataset."""
        return self._arrays.named("window_id")

    @property
    def dataset_index(self) -> Any:
        """int64 [B]: the index of each window's dataset among the datasets of the feed."""
        return self._arrays.named("dataset_index")

    @property
    def episode_index(self) -> Any:
        """int64 [B]: the index of each window's episode in its dataset."""
        return self._arrays.named("episode_index")

    @property
    def anchor_ns(self) -> Any:
        """int64 [B]: the time of each window's anchor in nanoseconds, on the clock of its recording."""
        return self._arrays.named("anchor_ns")

    def raw(self, name: str) -> Any:
        """Returns a tensor by its name in the feed, in any style. Raises NotFound."""
        return self._arrays.named(name)

    def mask(self, name: str) -> Any:
        """Returns the mask of an output, uint8 [B, T]. `name` is the output's name in the feed.

        0 valid, 1 before the episode's start, 2 after its end, 3 gap, 4 bad stamp, 5 not finite, 6 stream
        missing, 7 too old, 8 an image that cannot be decoded or is zeros that the layout masks. Raises NotFound."""
        return self._arrays.tensor(self._arrays.layout.find_mask(name))

    def is_pad(self, name: str) -> Any:
        """Returns bool [B, T] of an output: True for padding, before the episode's start or after its end.

        An image that cannot be decoded is not padding: mask(name) == 8. `name` is the output's name in the feed. Raises NotFound."""
        return arrays.STEPS["is_pad"](self.mask(name))

    def meta(self, name: str) -> List[Optional[str]]:
        """Returns a text of each row's episode, such as "language". None for an episode without that text.

        Raises NotFound if no dataset of the feed has such a text, and Closed if the feed is gone."""
        return self._arrays.texts(name)

    def explain(self, row: int) -> Explanation:
        """Returns the origin of row `row`: print it. Raises Closed if the feed is gone."""
        connection, number = self._arrays.connection(), 0
        if any(tensor.role == "goal" for tensor in self._arrays.layout.schema):
            number = connection.pass_of(self.epoch, self.position + self.row_begin + row)
        return connection.explain(int(self.window_id[row]), None, number)

    # ---- its end ----

    @property
    def released(self) -> bool:
        """True after release()."""
        return bool(self._core.released)

    def done(self) -> None:
        """Counts the batch as worked on: it is not delivered again, whichever process dies.

        Asking for the next batch does the same."""
        self._core.done()

    def record_stream(self, stream: Any) -> None:
        """Names a torch stream whose work reads this batch on a GPU.

        Streams that are current when a tensor is read from the batch need not be named. Call it before the last tensor
        is dropped. Does nothing in host memory."""
        record = getattr(self._arrays.view, "record_stream", None)
        if record is not None:
            record(stream)

    def release(self) -> None:
        """Gives the memory back now. Raises BufferError while arrays of the batch are in use outside this object."""
        self._forget()
        self._arrays.release()
