"""python -m trajd.plot CONFIG|FILE [STREAM...] [-o OUT.svg]: streams of one episode over time, by matplotlib.

Each stream has a plot: dots are recorded rows, lines are steps, bands are masked steps and gaps with their reason. The
histogram beside it counts the rows of the episode, and its lines are statistics of the dataset. The guide's page on recordings has an example."""
from __future__ import annotations

import argparse
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from .errors import ArgumentError, NotFound
from .recordings import COLUMNS_MAX, Output, Recording, Series, Stream, parser, run

COLORS = "tab20"
BAND_COLORS = {"gap": "tab:red", "too old": "tab:orange", "missing": "tab:purple"}  # others are grey
LINES = ("-", "--", ":", "-.")  # of several outputs that have the same stream
FIGURES = {"mean": "-", "q01": ":", "q99": ":"}
FORMATS = (".svg", ".png", ".pdf")
TEXTS_MAX = 6  # gaps with a text of their own
DOTS_MAX = 20000  # more of them are an image in an SVG or a PDF


def _color(column: int) -> Any:
    from matplotlib import colormaps
    return colormaps[COLORS]((column * 2 + column // 10) % 20)  # the ten strong colours come first


def _draw_bands(axis: Any, bands: List[Tuple[float, float, str]], gaps: List[Tuple[float, float, str]]) -> None:
    """Draws masked steps over the whole height, and gaps between rows at the top."""
    for begin, end, reason in bands:
        axis.axvspan(begin, end, color=BAND_COLORS.get(reason, "grey"), alpha=0.2, lw=0, label=f"masked: {reason}")
    for number, (begin, end, text) in enumerate(gaps):
        axis.axvspan(begin, end, ymin=0.94, color="tab:red", alpha=0.6, lw=0, label="gap between rows", gid=text)
        if number < TEXTS_MAX:
            axis.annotate(text, (begin, 0.93), xycoords=("data", "axes fraction"), fontsize=7, va="top", rotation=90)


def _draw_series(axis: Any, times: np.ndarray, values: np.ndarray, label: str, **style: Any) -> None:
    for column in range(min(values.shape[1], COLUMNS_MAX)):
        axis.plot(times, values[:, column], color=_color(column), label=label, **style)


def _draw_legend(main: Any, side: Any, columns: Tuple[str, ...]) -> None:
    """Lists the columns by their colour, then once what dots, lines and bands are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    handles: Dict[str, Any] = {name: Patch(color=_color(column)) for column, name in enumerate(columns[:COLUMNS_MAX])}
    for line in main.lines:
        handles.setdefault(line.get_label(), Line2D([], [], color="black", ls=line.get_linestyle(), marker=line.get_marker(), lw=1, ms=3))
    handles.update({patch.get_label(): patch for patch in main.patches})
    side.legend(handles.values(), handles, loc="upper left", bbox_to_anchor=(1.02, 1.05), fontsize=7, frameon=False,
                ncols=1 + len(handles) // 13)


def _draw_histogram(axis: Any, values: np.ndarray, figures: Optional[Mapping[str, np.ndarray]]) -> None:
    """Draws how often the values of each column occur, on the axis of the values, and statistics of the dataset as lines."""
    finite = values[np.isfinite(values)]
    if finite.size:
        edges = np.linspace(finite.min(), finite.max() + 1e-9 * max(1.0, abs(finite.max())), 31)
        for column in range(min(values.shape[1], COLUMNS_MAX)):
            axis.hist(values[:, column], bins=edges, orientation="horizontal", histtype="step", color=_color(column))
            for name, line in FIGURES.items() if figures else ():
                axis.axhline(figures[name][column], color=_color(column), ls=line, lw=0.8, gid=f"{name} {column}")
    axis.set_xlabel("rows, and of all episodes\n— mean, ··· q01 and q99" if figures else "rows", fontsize=8)
    axis.tick_params(labelleft=False)


def _draw_stream(axes: Any, stream: Stream, rows: Series, outputs: List[Output], figures: Optional[Mapping[str, np.ndarray]]) -> None:
    main, side = axes
    if len(stream.columns) > COLUMNS_MAX:
        print(f"note: {stream.name}: the plot shows the first {COLUMNS_MAX} of {len(stream.columns)} columns", file=sys.stderr)
    _draw_series(main, rows.times_s, rows.values, "recorded row", ls="", marker=".", ms=3, alpha=0.5,
                 rasterized=rows.values.size > DOTS_MAX)
    bands: List[Tuple[float, float, str]] = []
    for output, line in zip(outputs, LINES):
        for name, first, count in output.sources:
            if name == stream.name:
                _draw_series(main, output.series.times_s, output.series.values[:, first:first + count], f"step of {output.name}",
                             ls=line, lw=1, drawstyle="steps-post" if stream.kind == "previous" else "default")
        bands += output.series.bands()
    _draw_bands(main, bands, rows.gaps())
    main.set_title(f"{stream.name} ({stream.kind}, clock {stream.clock})", loc="left", fontsize=9)
    main.set_ylabel(stream.unit or "unit not stated")
    _draw_histogram(side, rows.values, figures)
    _draw_legend(main, side, stream.columns)


def _draw_output(axes: Any, output: Output) -> None:
    """Draws an output whose numbers are not those of its streams, such as relative actions."""
    main, side = axes
    _draw_series(main, output.series.times_s, output.series.values, f"step of {output.name}", ls="-", lw=1)
    _draw_bands(main, output.series.bands(), [])
    main.set_title(f"{output.name}, as the policy gets it", loc="left", fontsize=9)
    _draw_histogram(side, output.series.values, None)
    _draw_legend(main, side, tuple(str(column) for column in range(output.series.values.shape[1])))


def draw(recording: Recording, names: List[str], statistics: bool = True, span: Tuple[Optional[float], Optional[float]] = (None, None)) -> Any:
    """Returns a matplotlib figure of an episode. `names` are streams; without any, those that the feed reads, or all of a file."""
    from matplotlib.figure import Figure
    outputs = recording.steps()
    read = [stream for one in outputs for stream, _, _ in one.sources]
    streams = recording.choose(names or [name for name in recording.streams if name in read])
    if any(one.is_image for one in streams):
        raise ArgumentError(f"{next(one.name for one in streams if one.is_image)} has images: python -m trajd.view shows them")
    rows = recording.rows(streams)
    streams = [one for one in streams if one.name in rows]
    if not streams:
        raise NotFound(f"{recording.episode} has no rows to plot")
    others = [] if names else [one for one in outputs if not one.sources]
    figures: Dict[str, Mapping[str, np.ndarray]] = dict(recording.statistics([one.name for one in streams])) if statistics else {}
    height = len(streams) + len(others)
    figure = Figure(figsize=(12, 2.6 * height + 0.6), layout="constrained")
    axes = figure.subplots(height, 2, squeeze=False, sharey="row", width_ratios=(5, 1))
    for pair, stream in zip(axes, streams):
        using = [one for one in outputs if any(name == stream.name for name, _, _ in one.sources)]
        _draw_stream(pair, stream, rows[stream.name], using, figures.get(stream.name))
    for pair, output in zip(axes[len(streams):], others):
        _draw_output(pair, output)
    for main, _ in axes:
        main.ticklabel_format(useOffset=False)
        main.grid(alpha=0.3)
        main.sharex(axes[-1][0])
    axes[-1][0].set_xlabel("time from the begin of the episode [s]")
    axes[-1][0].set_xlim(*span)
    figure.suptitle(f"{recording.file}, {recording.episode}: dots are recorded rows, lines are steps", fontsize=10)
    return figure


def _show(options: argparse.Namespace, recording: Recording) -> None:
    figure = draw(recording, options.streams, not options.no_statistics, (options.begin, options.end))
    if options.output:
        figure.savefig(options.output, dpi=100)
        print(f"{options.output}: {recording.file}, {recording.episode}")
        return
    from matplotlib import pyplot
    if pyplot.get_backend().lower() == "agg":
        raise ArgumentError("this terminal has no display: name a file with -o, such as -o OUT.svg")
    window = pyplot.figure()
    figure.set_canvas(window.canvas)
    window.canvas.figure = figure
    pyplot.show()


def main(arguments: Optional[List[str]] = None) -> int:
    options = parser("trajd.plot", __doc__.splitlines()[0].split(": ", 1)[1])
    options.add_argument("streams", metavar="STREAM", nargs="*", help="the streams (default: those of the feed, or all)")
    options.add_argument("--from", dest="begin", type=float, metavar="S", help="where the plot begins, in seconds")
    options.add_argument("--to", dest="end", type=float, metavar="S", help="where it ends")
    options.add_argument("--no-statistics", action="store_true", help="do not compute statistics of the dataset")
    options.add_argument("-o", "--output", metavar="OUT.svg|png|pdf", help="the file to write (default: a window)")
    chosen = options.parse_intermixed_args(arguments)
    if chosen.output and not chosen.output.endswith(FORMATS):
        options.error(f"-o {chosen.output}: its name ends in none of {', '.join(FORMATS)}")
    return run("trajd.plot", chosen, lambda recording: _show(chosen, recording))


if __name__ == "__main__":
    sys.exit(main())
