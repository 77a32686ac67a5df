"""python -m trajd.view CONFIG|FILE [--window ID] [--save OUT.rrd]: an episode in the Rerun viewer.

    streams/STREAM/recorded, .../steps/OUTPUT         rows and steps, in one plot for each stream
    outputs/OUTPUT                                    steps whose numbers are not those of a stream, such as relative ones
    bands/STREAM, bands/steps/OUTPUT                  gaps between rows, and masked steps with their reason
    cameras/STREAM/recorded, .../steps/OUTPUT         frames as recorded, and prepared and augmented
    poses/STREAM                                      positions and rotations as axes
    window/OUTPUT, window/origin                      the steps of the window, their masks, and the rows behind them"""
from __future__ import annotations

import argparse
import re
import sys
from typing import Any, List, Sequence, Tuple

import numpy as np

from .recordings import REASONS, Output, Recording, Series, Stream, parser, run

TIMELINE = "episode"
RAW_BYTES = 24 << 10  # larger frames are stored as JPEG
AXIS_M = 0.1
COLORS = (0x1f77b4ff, 0xff7f0eff, 0x2ca02cff, 0xd62728ff, 0x9467bdff, 0x8c564bff, 0xe377c2ff, 0x7f7f7fff, 0xbcbd22ff, 0x17becfff)
PLOTS_MAX = 4  # under one another; the feed's streams come first, and others are tabs
ROTATION = re.compile(r"(.*)(quaternion|quat|orientation|rotation|rot|ori)(.*)")  # its last one in a name
POSITIONS = ("pos", "position", "translation")


class Writer:
    """Sends an episode to a rerun.RecordingStream."""

    def __init__(self, stream: Any) -> None:
        import rerun
        self._rr, self._stream = rerun, stream
        stream.set_log_time_enabled(False)
        stream.set_log_tick_enabled(False)

    def _columns(self, path: str, times_s: Sequence[float], columns: Any) -> None:
        self._stream.send_columns(path, [self._rr.TimeColumn(TIMELINE, duration=np.asarray(times_s, float))], columns)

    def series(self, path: str, series: Series, names: Sequence[str], style: Any) -> None:
        """Draws all columns of a series as one plot. A masked step interrupts its line."""
        colors = np.resize(np.array(COLORS, np.uint32), len(names))
        self._stream.log(path, style(names=list(names), colors=colors), static=True)
        values = self._rr.Scalars.columns(scalars=series.values.ravel())
        self._columns(path, series.times_s, values.partition([series.values.shape[1]] * len(series.times_s)))

    def bands(self, path: str, bands: Sequence[Tuple[float, float, str]]) -> None:
        """Draws spans of time with a text each. Behind a span there is nothing, unless the next one begins there."""
        ends = {end: None for _, end, _ in bands}
        changes = sorted({**ends, **{begin: text for begin, _, text in bands}}.items())
        if changes:
            texts = self._rr.StateChange.columns(state=[text for _, text in changes if text is not None])
            self._columns(path, [time for time, _ in changes], texts.partition([int(text is not None) for _, text in changes]))

    def frame(self, path: str, time_s: float, frame: np.ndarray) -> None:
        self._stream.set_time(TIMELINE, duration=float(time_s))
        if frame.shape[-1] == 1 and frame.dtype != np.uint8:
            self._stream.log(path, self._rr.DepthImage(frame[..., 0]))
            return
        image = self._rr.Image(np.clip(np.rint(frame), 0, 255).astype(np.uint8).squeeze())
        self._stream.log(path, image.compress(jpeg_quality=95) if frame.size > RAW_BYTES else image)

    def pose(self, path: str, position: np.ndarray, rotation: np.ndarray, times_s: np.ndarray) -> None:
        good = np.isfinite(position).all(1) & np.isfinite(rotation).all(1)
        self._stream.log(path, self._rr.TransformAxes3D(AXIS_M), static=True)
        self._columns(path, times_s[good], self._rr.Transform3D.columns(translation=position[good], quaternion=rotation[good]))

    # ---- an episode ----

    def streams(self, recording: Recording, outputs: List[Output]) -> None:
        rows = recording.rows(recording.choose([]))
        for name, series in rows.items():
            self.series(f"streams/{name}/recorded", series, recording.streams[name].columns, self._rr.SeriesPoints)
            self.bands(f"bands/{name}", series.gaps())
        for output in outputs:
            for stream, first, count in output.sources:
                if stream in rows:
                    part = output.series._replace(values=output.series.values[:, first:first + count])
                    self.series(f"streams/{stream}/steps/{output.name}", part, recording.streams[stream].columns, self._rr.SeriesLines)
            if not output.sources and output.series.values.size:
                self.series(f"outputs/{output.name}", output.series, _numbers(output), self._rr.SeriesLines)
            self.bands(f"bands/steps/{output.name}", output.series.bands())
        for stream in recording.streams.values():
            if stream.kind.startswith("slerp") and stream.name in rows:
                self._poses(recording, stream, rows)

    def _poses(self, recording: Recording, stream: Stream, rows: Any) -> None:
        """Draws each quaternion of a stream at the position that has the stream's name, with `pos` in place of `quat`."""
        series = rows[stream.name]
        names = [ROTATION.sub(rf"\1{word}\3", stream.name) for word in POSITIONS]
        position = next((rows[name].values for name in names if name in rows and recording.streams[name].clock == stream.clock
                         and rows[name].values.shape[1] == 3), np.zeros((len(series.times_s), 3)))
        for first in range(0, series.values.shape[1], 4):
            rotation = series.values[:, first:first + 4]
            rotation = np.roll(rotation, -1, axis=1) if stream.kind.endswith("wxyz") else rotation
            path = f"poses/{stream.name}" if series.values.shape[1] == 4 else f"poses/{stream.name}/{first // 4}"
            self.pose(path, position, rotation, series.times_s)

    def cameras(self, recording: Recording) -> List[Output]:
        """Draws the frames of all cameras. Returns the outputs of the feed, which come with the frames."""
        cameras = [one for one in recording.streams.values() if one.is_image]
        for stream in cameras:
            for time, frame in recording.frames(stream):
                self.frame(f"cameras/{stream.name}/recorded", time, frame)
        return recording.steps(lambda name, time, frame: self.frame(f"cameras/{recording.source_of(name)}/steps/{name}", time, frame))

    def window(self, recording: Recording) -> None:
        outputs, frames, explained = recording.window()
        for output in outputs:
            path, times = f"window/{output.name}", output.series.times_s
            if output.name in frames:
                for time, frame in zip(times, frames[output.name]):
                    self.frame(f"{path}/frames", time, frame)
            else:
                self.series(f"{path}/steps", output.series, _numbers(output), self._rr.SeriesPoints)
            texts = self._rr.StateChange.columns(state=[f"step {step}: {REASONS[mask]}" for step, mask in enumerate(output.series.masks)])
            self._columns(f"{path}/mask", times, texts)
        self._stream.log("window/origin", self._rr.TextDocument(repr(explained)), static=True)

    def blueprint(self, recording: Recording, outputs: List[Output], has_window: bool) -> None:
        """Arranges the views: plots under one another, cameras and poses beside them, bands below."""
        from rerun import blueprint as rrb
        read = [stream for one in outputs for stream, _, _ in one.sources]
        streams = sorted((one for one in recording.streams.values() if not one.is_image), key=lambda one: one.name not in read)
        plots = [rrb.TimeSeriesView(origin=f"streams/{one.name}", name=f"{one.name} [{one.unit}]" if one.unit else one.name)
                 for one in streams]
        if len(plots) > PLOTS_MAX:
            plots[PLOTS_MAX - 1:] = [rrb.Tabs(*plots[PLOTS_MAX - 1:])]
        if any(not one.sources and one.series.values.size for one in outputs):
            plots.append(rrb.TimeSeriesView(origin="outputs", name="outputs that are not streams"))
        beside = [rrb.Spatial2DView(origin=f"cameras/{one.name}", contents=f"cameras/{one.name}/{part}/**", name=f"{one.name}, {part}")
                  for one in recording.streams.values() if one.is_image for part in ("recorded", "steps")]
        if any(one.kind.startswith("slerp") for one in recording.streams.values()):
            beside.append(rrb.Spatial3DView(origin="poses", name="poses"))
        if has_window:
            beside.append(rrb.TextDocumentView(origin="window/origin", name="window"))
            plots.append(rrb.TimeSeriesView(origin="window", name="steps of the window"))
        lanes = rrb.StateTimelineView(origin="/", contents=["bands/**", "window/**"], name="gaps and masks")
        rows = rrb.Horizontal(rrb.Vertical(*plots), rrb.Grid(*beside)) if beside else rrb.Vertical(*plots)
        self._stream.send_blueprint(rrb.Blueprint(rrb.Vertical(rows, lanes, row_shares=[4, 1]), rrb.SelectionPanel(state="collapsed"),
                                                  rrb.BlueprintPanel(state="collapsed"), rrb.TimePanel(state="collapsed")))


def _numbers(output: Output) -> List[str]:
    return [str(column) for column in range(output.series.values.shape[1])]


def _show(options: argparse.Namespace, recording: Recording) -> None:
    import rerun
    stream = rerun.RecordingStream("trajd")
    stream.save(options.save) if options.save else stream.spawn()
    stream.send_recording_name(f"{recording.file}, {recording.episode}")
    writer = Writer(stream)
    outputs = writer.cameras(recording)
    writer.streams(recording, outputs)
    writer.blueprint(recording, outputs, options.window is not None)
    if options.window is not None:
        writer.window(recording)
    stream.flush()
    stream.disconnect()
    if options.save:
        print(f"{options.save}: {recording.file}, {recording.episode}")


def main(arguments: "List[str] | None" = None) -> int:
    options = parser("trajd.view", "Shows an episode in the Rerun viewer: streams, cameras, poses, masks and gaps.")
    options.add_argument("--window", metavar="ID", type=int, help="also show the steps of this window, with its episode")
    options.add_argument("--save", metavar="OUT.rrd", help="write a file for the viewer instead of starting it")
    chosen = options.parse_args(arguments)
    return run("trajd.view", chosen, lambda recording: _show(chosen, recording))


if __name__ == "__main__":
    sys.exit(main())
