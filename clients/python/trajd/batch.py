"""Batch: what a feed hands out. A mapping of names to arrays whose first extent is this worker's rows."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional

from . import arrays
from .errors import Closed, NotFound
from .styles import Field, Plan, Tensor

if TYPE_CHECKING:
    from .feed import Feed

IDS = ("window_id", "dataset_index", "episode_index", "anchor_ns")


class Layout:
    """What all batches of an opened feed have in common: the schema, and the keys of a style."""

    def __init__(self, schema: List[Tensor], plan: Plan) -> None:
        self.schema, self.plan = schema, plan
        self.index = {tensor.name: place for place, tensor in enumerate(schema)}
        self.masks = {tensor.of: place for place, tensor in enumerate(schema) if tensor.role == "mask"}

    def find(self, name: str) -> int:
        if name not in self.index:
            raise NotFound(f"no tensor {name} in this feed (there are: {', '.join(self.index)})")
        return self.index[name]

    def find_mask(self, name: str) -> int:
        if name not in self.masks:
            raise NotFound(f"no output {name} in this feed (there are: {', '.join(str(of) for of in self.masks)})")
        return self.masks[name]


class Explanation(Dict[str, Any]):
    """What the daemon says of one window: source file, rows, stamps, weights, and the reason of each masked step."""

    def __repr__(self) -> str:
        head = (f"window {self['window_id']}: {self['dataset']}, {self['file']}, episode {self['episode']}, anchor {self['anchor']} at "
                f"{self['anchor_ns'] / 1e9:.6f} s")
        lines = [head]
        for output in self["outputs"]:
            for item in output["items"]:
                lines.append(f"  {output['name']}[{item['step']}] at {item['ns'] / 1e9:.6f} s: {self._say(output, item)}")
        return "\n".join(lines)

    @staticmethod
    def _say(output: Mapping[str, Any], item: Mapping[str, Any]) -> str:
        said = []
        for source, part in zip(output["sources"], item["sources"]):
            rows = " + ".join(f"{weight:.6g} * row {row}" for row, _, weight in part["rows"]) or output["edge"]
            reason = f" ({part['reason']})" if part.get("reason") else ""
            said.append(f"{source['stream']} {source['kind']} = {rows}{reason}")
        return "; ".join(said)


class Group(Mapping[str, Any]):
    """A nested part of a batch, such as batch["obs"]."""

    __slots__ = ("_batch", "_plan", "_path")

    def __init__(self, batch: "Batch", plan: Plan, path: str) -> None:
        self._batch, self._plan, self._path = batch, plan, path

    def __getitem__(self, key: str) -> Any:
        return self._batch[f"{self._path}/{key}"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan)

    def __len__(self) -> int:
        return len(self._plan)

    def __repr__(self) -> str:
        return f"Group({self._path}: {', '.join(self._plan)})"


class Batch(Mapping[str, Any]):
    """Rows of one global batch, B of them here, as arrays made when they are asked for.

    `batch["obs"]["x"]` and `batch["obs/x"]` are the same: [B, T, D] (or [B, T, H, W, C]). `batch["actions_is_pad"]` is bool
    [B, T], True where a step lies outside the episode. Which keys there are is a matter of the feed's style (styles.py).

    The memory is the daemon's ring. It is given back when the batch and all its arrays are gone, or by release(); until then
    the ring has one slot less for all. Arrays may be kept, views too, and used in other threads.

    epoch, position: of the global batch's first window. rows: B. row_begin: where they begin in the global batch."""

    __slots__ = ("_core", "_layout", "_view", "_feed", "_made", "__weakref__")

    def __init__(self, core: Any, layout: Layout, view: Callable[[int], Any], feed: "Feed") -> None:
        self._core, self._layout, self._view = core, layout, view
        self._feed = weakref.ref(feed)  # a batch that somebody keeps must not keep the others that its feed was sent
        self._made: Dict[Any, Any] = {}

    # ---- the mapping ----

    def __getitem__(self, key: str) -> Any:
        made = self._made.get(key)
        if made is not None:
            return made
        entry: Any = self._layout.plan
        for part in key.split("/") if isinstance(key, str) else (key,):
            if not isinstance(entry, dict) or part not in entry:
                raise KeyError(f"{key} (there are: {', '.join(self._layout.plan)})")
            entry = entry[part]
        made = Group(self, entry, key) if isinstance(entry, dict) else self._make(entry)
        if not isinstance(made, Group):  # a group refers to the batch: kept here, it would keep the batch
            self._made[key] = made
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.plan)

    def __len__(self) -> int:
        return len(self._layout.plan)

    def __repr__(self) -> str:
        state = "released" if self._core.released else f"{self.rows} rows"
        return f"Batch(epoch {self.epoch}, position {self.position}, {state}: {', '.join(self._layout.plan)})"

    def _tensor(self, index: int) -> Any:
        made = self._made.get(index)
        if made is None:
            if self._core.released:
                raise ValueError("this batch is released")
            made = self._made[index] = self._view(index)
        return made

    def _make(self, field: Field) -> Any:
        if field.meta is not None:
            try:
                return self.meta(field.meta)
            except NotFound:  # a dataset without such texts
                return [None] * self.rows
        parts = [self._tensor(source) for source in field.sources]
        for step in field.steps:
            if step == "stack":
                return arrays.stack(parts)
            parts = [arrays.STEPS[step](part) for part in parts]
        return parts[0]

    # ---- what is told of it ----

    def _ask_feed(self) -> "Feed":
        feed = self._feed()
        if feed is None:
            raise Closed("the feed that this batch is of is gone, and can no longer be asked about it: keep the feed as well")
        return feed

    @property
    def epoch(self) -> int:
        return int(self._core.epoch)

    @property
    def position(self) -> int:
        return int(self._core.position)

    @property
    def rows(self) -> int:
        return int(self._core.row_count)

    @property
    def row_begin(self) -> int:
        return int(self._core.row_begin)

    @property
    def ready_ns(self) -> int:
        """CLOCK_MONOTONIC when the daemon had it ready, as time.monotonic_ns() counts."""
        return int(self._core.ready_ns)

    @property
    def window_id(self) -> Any:
        """int64 [B], unique in the dataset."""
        return self._tensor(self._layout.find("window_id"))

    @property
    def dataset_index(self) -> Any:
        """int64 [B], of the feed's datasets."""
        return self._tensor(self._layout.find("dataset_index"))

    @property
    def episode_index(self) -> Any:
        """int64 [B], in its dataset."""
        return self._tensor(self._layout.find("episode_index"))

    @property
    def anchor_ns(self) -> Any:
        """int64 [B], the time that a window is anchored at, as its recording counts time."""
        return self._tensor(self._layout.find("anchor_ns"))

    def raw(self, name: str) -> Any:
        """Any tensor by the feed's own name, whatever the style."""
        return self._tensor(self._layout.find(name))

    def mask(self, name: str) -> Any:
        """uint8 [B, T] of an output (by the feed's name): 0 valid, 1 before start, 2 after end, 3 gap, 4 bad stamp, 5 NaN in the
        source, 6 stream missing, 7 too old."""
        return self._tensor(self._layout.find_mask(name))

    def is_pad(self, name: str) -> Any:
        """bool [B, T] of an output (by the feed's name): True = padding, before the episode's start or after its end."""
        return arrays.STEPS["is_pad"](self.mask(name))

    def meta(self, name: str) -> List[Optional[str]]:
        """A text of each row's episode, such as "language"; None where its episode has none. NotFound: no layout has it."""
        texts = self._ask_feed()._texts_of(name)
        return [texts[place] for place in zip(self.dataset_index.tolist(), self.episode_index.tolist())]

    def explain(self, row: int) -> Explanation:
        """Where row `row` of this batch comes from; print it."""
        return self._ask_feed().explain(int(self.window_id[row]))

    # ---- its life ----

    @property
    def released(self) -> bool:
        return bool(self._core.released)

    def done(self) -> None:
        """It is worked on: it will not be handed out again, whoever dies. Said by itself when the next one is asked for."""
        self._core.done()

    def record_stream(self, stream: Any) -> None:
        """On a GPU: work on this torch stream reads tensors of the batch, beside work on the streams on which they were asked for. To be
        said before the last of them is dropped."""
        record = getattr(self._view, "record_stream", None)
        if record is not None:
            record(stream)

    def release(self) -> None:
        """Gives the memory back now. BufferError while arrays of it live; those that this object keeps do not count."""
        self._made.clear()
        forget = getattr(self._view, "forget", None)
        if forget is not None:
            forget()
        self._core.release()
