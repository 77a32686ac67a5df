"""Recordings of ROS 2 and Foxglove: MCAP files, rosbag2's folders and .db3 files.

Each topic becomes streams on their own times. A recording is read once, into spools, and is one episode, or several
where it is cut. The streams of a conversion keep their columns from file to file: one layout fits all its episodes."""
from __future__ import annotations

import collections
import fnmatch
import itertools
import json
import pathlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..errors import ArgumentError, shown
from .bags import Channel, files_of, read_messages
from .messages import FAULTS, Odd, decoder
from .objects import Object, text_of
from .output import Episode, Episodes, LeftOut, Source, first_line
from .spool import SPOOLS, Rows, Spool, Stream, choose_clock
from .topics import Row, is_event, reader, stream_name

STREAMS_MAX = 400  # of a conversion, each with two open files
FIRST, END = -1 << 63, (1 << 63) - 1


class Streams:
    """The streams of all files of a conversion."""

    def __init__(self) -> None:
        self.all: Dict[Any, Stream] = {}  # by topic, type and what tells rows apart
        self.notes: List[str] = []
        self.episodes = 0

    def find(self, channel: Channel, row: Row) -> Stream:
        kinds = [(value.dtype, value.shape) for value in row.values]
        key = channel.topic, channel.type, row.suffix, row.parts, row.image, *kinds
        if key not in self.all:
            if len(self.all) >= STREAMS_MAX:
                raise Odd(f"there are {STREAMS_MAX} streams, which is the most")
            if not row.parts and not row.image:
                raise Odd("it has no numbers")
            base, taken = stream_name(channel.topic, row.suffix), {stream.name for stream in self.all.values()}
            names = (f"{base}_{number}" if number > 1 else base for number in itertools.count(1))
            name = next(name for name in names if name not in taken)
            self.all[key] = Stream(name, channel.topic, row, is_event(channel))
            if name != base:
                parts = [f"{part.name} {', '.join(part.columns or ())}".strip() for part in row.parts]
                what = "; ".join(parts) or str(row.image)
                self.notes.append(f"topic {channel.topic}: messages of another form are the stream {name}: {what}")
        return self.all[key]

    def facts(self) -> Dict[str, Any]:
        """Returns what the layout has to say of the streams that were written."""
        written = ((key, one) for key, one in self.all.items() if one.episodes)
        return {"episodes": self.episodes, "streams": {one.name: {
            "form": str(key), "color": one.image.color if one.image else "", "is_event": one.is_event, "episodes": one.episodes,
            "parts": [(part.name, part.unit, part.kind) for part in one.parts], "is_repeated": one.has_equal_times,
            "zero_rotations": sorted(one.zero_rotations)} for key, one in written}}


class _Topic:
    """The messages of a channel in one recording."""

    def __init__(self, channel: Channel, streams: Streams, spool_of: Callable[[Stream], Spool], is_cut: bool):
        self.count, self.value, self.is_cut = 0, None, is_cut
        self._channel, self._streams, self._spool_of = channel, streams, spool_of
        self._odd: Dict[str, int] = collections.Counter()
        self._read = reader(channel)
        self._decode, self._why = None, f"their type {channel.type or '(none)'} is not known"
        if self._read or is_cut:
            try:
                self._decode = decoder(channel)
                self._why = f"their encoding \"{channel.encoding}\" is not read"
            except FAULTS as error:
                self._why = f"their definition cannot be read: {first_line(error)}"

    def add(self, log: int, publish: int, data: bytes) -> None:
        self.count += 1
        if not self._decode:
            return
        try:
            message = self._decode(data)
            if self.is_cut:
                self.value = getattr(message, "data", None)
                if not isinstance(self.value, (str, int, float, type(None))):
                    self.value = None
                    raise Odd("its data are not a single value by which a recording could be cut")
            for row in self._read(message) if self._read else ():
                spool = self._spool_of(self._streams.find(self._channel, row))
                spool.add(log, publish, row.stamp, row.payload or b"".join([value.tobytes() for value in row.values]))
        except Odd as error:
            self._odd[str(error)] += 1
        except FAULTS as error:
            self._odd[f"it does not fit to its type: {first_line(error)}"] += 1

    def notes(self) -> Iterator[str]:
        name = f"left out: topic {self._channel.topic}"
        if not self._decode:
            yield f"{name}: {self.count} messages: {self._why}"
        for why, count in self._odd.items():
            yield f"{name}: {count} of {self.count} messages: {why}"


class Mcap(Source):
    """`layout` is the file that is written beside the output. With --shard, each run leaves what the layout has to say of
    its recordings beside its output, and the last one puts it together.

    The options are those of the command line: `topics` are patterns, and `cut_topic` or `cut_gap` say where a recording
    is cut into episodes."""

    def __init__(self, paths: Sequence[pathlib.Path], output: pathlib.Path, options: Any):
        self._paths, self._options, self._output = paths, options, output
        self.layout = output.with_suffix(".layout.yaml")
        self.attributes = {"source": "MCAP or rosbag2"}
        self._streams = Streams()
        self.notes = self._streams.notes
        for path in paths:
            if not path.exists():
                raise ArgumentError(f"{path}: there is no such file or folder")
        if options.cut_gap is not None and not options.cut_gap > 0:
            raise ArgumentError(f"--cut-gap {options.cut_gap}: it must be above 0")

    def episodes(self) -> Episodes:
        return [(number, lambda path=path: self._read(path)) for number, path in enumerate(self._paths)]

    def _read(self, path: pathlib.Path) -> Iterator[Episode]:
        recording = _Recording(self._streams, self._options, self._output.parent)
        try:
            recording.read(path, self.show)
            yield from recording.episodes(path)
        finally:
            recording.close()

    def finish(self, path: pathlib.Path) -> None:
        facts = self._streams.facts()
        if self._options.shard:
            facts_path(path).write_text(json.dumps(facts))
            self.notes.append(f"its layout {self.layout} is written by the last shard")
        else:
            self._write_layout(facts)

    def after(self) -> None:
        shard = self._options.shard
        paths = shard.paths(self._output, len(self._paths)) if shard else []
        if paths and all(path.exists() and facts_path(path).exists() for path in paths):
            self._write_layout(together([json.loads(facts_path(path).read_text()) for path in paths]))
            print(shown(self.notes[-1]))

    def _write_layout(self, facts: Dict[str, Any]) -> None:
        made = self.layout.with_name(f"{self.layout.name}.partial")
        made.write_text(layout_of(self.layout.name.partition(".")[0], facts))
        made.replace(self.layout)
        self.notes.append(f"its layout is {self.layout}")


def facts_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_suffix(".layout.json")


class _Recording:
    """One recording while it is read: the rows of its streams, and where it is cut."""

    def __init__(self, streams: Streams, options: Any, folder: pathlib.Path):
        self._streams, self._options, self._folder = streams, options, folder
        self._spools: Dict[str, Spool] = {}
        self._topics: Dict[Channel, Optional[_Topic]] = {}  # None: it is not asked for
        self._cuts: List[Tuple[int, Any]] = []  # where an episode begins, in log time, and the value of the topic
        self._notes: List[str] = []

    def close(self) -> None:
        for spool in self._spools.values():
            spool.close()

    def read(self, path: pathlib.Path, show: Callable[[float], None]) -> None:
        files = files_of(path)
        last = None  # log time
        for number, file in enumerate(files):
            for channel, log, publish, data in read_messages(file, lambda text: self._notes.append(f"left out: {text}"),
                                                              lambda share: show((number + share) / len(files))):
                if channel not in self._topics:
                    self._topics[channel] = self._topic_of(channel)
                topic = self._topics[channel]
                if topic is None:
                    continue
                if self._options.cut_gap and last is not None and log - last > self._options.cut_gap * 1e9:
                    self._cuts.append((log, None))
                last = log if last is None else max(last, log)
                topic.add(log, publish, data)
                if topic.is_cut and (not self._cuts or topic.value != self._cuts[-1][1]):
                    self._cuts.append((log, topic.value))
        if last is None:
            raise LeftOut(f"{path}: it has no messages")

    def _topic_of(self, channel: Channel) -> Optional[_Topic]:
        is_cut = channel.topic == self._options.cut_topic
        is_chosen = any(fnmatch.fnmatchcase(channel.topic, pattern) for pattern in self._options.topics or ["*"])
        return _Topic(channel, self._streams, self._spool_of, is_cut) if is_cut or is_chosen else None

    def _spool_of(self, stream: Stream) -> Spool:
        if stream.name not in self._spools:
            self._spools[stream.name] = SPOOLS[stream.image and stream.image.kind](stream, self._folder)
        return self._spools[stream.name]

    def episodes(self, path: pathlib.Path) -> Iterator[Episode]:
        notes = [*self._notes, *(note for topic in self._topics.values() if topic for note in topic.notes())]
        clocks = []
        for spool in self._spools.values():
            try:
                spool.finish()
                clock, odd = choose_clock(spool)
            except LeftOut as error:
                notes.append(f"left out: {error}")
            else:
                clocks.append((spool, clock))
                notes += odd
        if not clocks:
            raise LeftOut(f"{path}: it has no topic that can be converted: {'; '.join(notes)}")
        pieces = self._pieces()
        if not pieces:
            raise LeftOut(f"{path}: the topic {self._options.cut_topic} has no value by which it could be cut")
        for number, (begin, end, value) in enumerate(pieces):
            rows = {spool.stream.name: Rows(spool, clock, begin, end, notes) for spool, clock in clocks}
            objects: Dict[str, Object] = {name: one for name, one in rows.items() if one.count}
            texts = {"file": text_of(path.name), "task": text_of(value)}
            attributes = {name: text for name, text in texts.items() if text}
            suffix = f"_{number:03d}" if self._options.cut_gap or self._options.cut_topic else ""
            self._streams.episodes += 1
            yield Episode(sum(one.count for one in rows.values()), attributes, objects, notes, suffix)
            notes = []

    def _pieces(self) -> List[Tuple[int, int, Any]]:
        cuts = self._cuts if self._options.cut_topic else [(FIRST, None), *self._cuts]
        ends = [begin for begin, _ in cuts[1:]] + [END]
        return [(begin, end, value) for (begin, value), end in zip(cuts, ends) if value or not self._options.cut_topic]


def together(shards: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Returns what the layout has to say of the recordings of all shards."""
    found: Dict[str, Any] = {}
    for name, one in (named for shard in shards for named in shard["streams"].items()):
        known = found.setdefault(name, {**one, "episodes": 0})
        if known["form"] != one["form"]:
            raise ArgumentError(f"the stream {name} has messages of one form in some shards and of another one in others, so no "
                                "layout fits all: convert these files without --shard")
        known.update(episodes=known["episodes"] + one["episodes"], is_repeated=known["is_repeated"] or one["is_repeated"],
                     zero_rotations=sorted({*known["zero_rotations"], *one["zero_rotations"]}))
    return {"episodes": sum(shard["episodes"] for shard in shards), "streams": found}


def layout_of(name: str, facts: Dict[str, Any]) -> str:
    """Returns the layout of the files of a conversion."""
    lines = ["# Written by trajd.convert: each topic has the times of its own messages. `latency` is the time from the",
             "# exposure of a camera to its stamps: fill it in. The columns' names are attributes of the datasets.",
             f"layout: {json.dumps(name)}", "version: 1", 'episodes: {files: "**/*.hdf5", groups: /data/episode_*}',
             'meta: {task: {attribute: "@task"}}', "clocks:"]
    for name, stream in facts["streams"].items():
        more = ", latency: 0ms" if stream["color"] else ""
        more += ", repeated: keep_last, lost_rows: 50%" if stream["is_repeated"] else ""
        lines.append(f"  {json.dumps(name)}: {{path: {name}/time, unit: ns{more}}}")
    lines.append("streams:")
    for name, stream in facts["streams"].items():
        more = ", optional: true" if stream["episodes"] < facts["episodes"] else ""
        more += ", events: true" if stream["is_event"] else ""
        clock = f"clock: {json.dumps(name)}"
        if stream["color"]:
            color = f"{'unit' if stream['color'] in ('mm', 'm') else 'color'}: {stream['color']}"
            lines.append(f"  {name}/image: {{{clock}, kind: previous, image: {{{color}}}{more}}}")
        for part, unit, kind in stream["parts"]:
            kind = "previous" if stream["is_event"] or part in stream["zero_rotations"] else kind
            order = ", order: xyzw" if kind == "slerp" else ""
            unit = f", unit: {json.dumps(unit)}" if unit else ""
            lines.append(f"  {name}/{part}: {{{clock}, kind: {kind}{order}{unit}{more}}}")
    return "\n".join(lines) + "\n"
