#!/usr/bin/env python3
"""Draws the figures of README.md and of the guide's first pages: overview.py [FOLDER].

The recording is that of tests/tools/make_demo_dataset.py, and trajd.resample makes the steps and masks. The package
`trajd` must be importable: PYTHONPATH=build/release/clients/python."""
import base64
import io
import json
import pathlib
import sys
import tempfile

import h5py
import numpy as np
from PIL import Image
from svg import Figure

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/tools"))
GAP_S = (0.62, 0.98)  # the sensor is silent
STEPS_HZ, MAX_GAP = 32, "150ms"


def recording():
    """Returns times in s and one coordinate in mm of the first 1.8 s of an episode, without the rows in the gap."""
    from make_demo_dataset import write_dataset
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "demo.hdf5"
        write_dataset(path, episodes=3)
        with h5py.File(path) as file:
            stamps, rows = file["data/demo_1/pose_t"][:], file["data/demo_1/pose_pos"][:, 0]
    times = (stamps - stamps[0]) / 1e9
    kept = (times < 1.72) & ~((GAP_S[0] < times) & (times < GAP_S[1]))
    return stamps[kept] - stamps[0], (rows[kept] - rows[0]) * 1000


def draw_resampling(folder):
    import trajd
    times, values = recording()
    steps = np.arange(-3, 54) * 10**9 // STEPS_HZ
    resampled, mask = trajd.resample(values.astype(np.float32)[:, None], times, steps, max_gap=MAX_GAP)
    resampled, mask = resampled[:, 0], mask.astype(int)
    low, high = values.min() - 4, values.max() + 4

    figure = Figure(860, 320, "What trajd makes of a sensor",
                    f"Recorded rows of a tracker come at uneven times, and none for {(GAP_S[1] - GAP_S[0]) * 1000:.0f} ms. "
                    f"A line of steps, 32 each second, runs through them. Steps in the gap are marked with mask 3, gap, and the "
                    f"steps before the first row with mask 1, before the start.")

    def x(seconds):
        return 70 + (seconds + 0.13) / 1.9 * 770

    def y(value):
        return 262 - (value - low) / (high - low) * 190

    half = 0.5 / STEPS_HZ
    for reason, name, colour in (3, "gap: mask 3", "band"), (1, "before the start: mask 1", "panel"):
        inside = steps[mask == reason] / 1e9
        figure.rect(round(x(inside[0] - half), 1), 56, round(x(inside[-1] + half) - x(inside[0] - half), 1), 214, fill=colour)
        figure.text_at(round(x((inside[0] + inside[-1]) / 2), 1) if reason == 3 else 72, 48, name, "red" if reason == 3 else "soft", 14,
                       "middle" if reason == 3 else "start")
    figure.line([(x(-0.13), 270), (x(1.77), 270)], "soft", 1)
    for tenth in range(0, 18, 2):
        figure.text_at(round(x(tenth / 10), 1), 290, f"{tenth / 10:.1f}", "soft", 12, "middle")
    figure.text_at(840, 310, "seconds", "soft", 12, "end")
    figure.text_at(14, 66, "mm", "soft", 12)
    for time, value in zip(times / 1e9, values):
        figure.circle(x(time), y(value), 7, stroke="orange", stroke_width=2)
    for begin in range(len(steps) - 1):
        if mask[begin] == mask[begin + 1] == 0:
            figure.line([(x(steps[i] / 1e9), y(resampled[i])) for i in (begin, begin + 1)], "blue", 2)
    for step, value, reason in zip(steps / 1e9, resampled, mask):
        figure.circle(x(step), y(value), 3.5, fill="red" if reason else "blue")
    figure.circle(330, 22, 7, stroke="orange", stroke_width=2)
    figure.text_at(344, 27, "recorded row", "ink", 13)
    for at, colour, text in (460, "blue", "step of the batch, 32 Hz"), (650, "red", "step that is not valid"):
        figure.circle(at, 22, 4.5, fill=colour)
        figure.text_at(at + 11, 27, text, "ink", 13)
    figure.text_at(20, 27, "A tracker with a gap, resampled", "ink", 16, font_weight="bold")
    figure.save(folder / "resampling.svg")


def draw_batch(folder):
    figure = Figure(860, 300, "The way of a batch",
                    "Files are read by a daemon, which trajd.open starts for the job. The daemon chooses windows, keeps rows and "
                    "images in memory, resamples and augments them, and puts batches into shared memory. Four ranks, which "
                    "torchrun starts, each read their share of a batch from there without a copy, and may copy it to their own GPU.")
    figure.box(16, 105, 116, 90, "HDF5 files", "joints, forces,", "images, video")
    figure.arrow(132, 150, 168, 150)
    figure.rect(170, 40, 380, 220, fill="shade", stroke="blue", rx=10)
    figure.text_at(360, 64, "the daemon", "ink", 15, "middle", font_weight="bold")
    figure.text_at(360, 83, "trajd.open starts it; it ends after the job", "soft", 12.5, "middle")
    for number, lines in enumerate((("order", "which windows"), ("row cache", "rows, images"), ("steps", "resample, decode,", "augment, norm"))):
        figure.box(182 + number * 123, 110, 110, 80, *lines, fill="paper", size=12.5)
        if number:
            figure.arrow(169 + number * 123, 150, 181 + number * 123, 150)
    figure.text_at(360, 225, "one per node: the data is in memory once", "soft", 12.5, "middle")
    figure.arrow(550, 150, 578, 150)
    figure.box(580, 42, 90, 212, "memory", "that all", "ranks share:", "batches of", "8 windows", size=14)
    for rank in range(4):
        top = 42 + rank * 56
        figure.arrow(670, top + 22, 694, top + 22)
        figure.box(696, top, 150, 44, f"rank {rank}", f"windows {2 * rank}, {2 * rank + 1} → GPU {rank}", size=13.5)
    figure.text_at(770, 282, "your training, by torchrun", "soft", 12.5, "middle")
    figure.save(folder / "batch.svg")


def as_png(pixels):
    """Returns an image of u8 as text for the attribute href."""
    file = io.BytesIO()
    Image.fromarray(pixels).resize((152, 152), Image.NEAREST).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def draw_augmentation(folder):
    """One frame as it was recorded, and what three epochs make of it."""
    import trajd
    from example_data import write_robomimic
    with tempfile.TemporaryDirectory(prefix="trajd") as work:
        path = pathlib.Path(work) / "lift.hdf5"
        write_robomimic(path, episodes=3)
        with h5py.File(path) as file:
            recorded = file["data/demo_0/obs/agentview_image"][30]
        steps = [{"crop": [70, 70]}, {"brightness": 0.3}, {"hue": 0.08}]
        config = {"exit_idle": "1s", "datasets": {"lift": {"path": str(path), "layout": "robomimic"}}, "feeds": {"train": {
            "dataset": "lift", "global_batch": 1, "order": "sequential", "anchor": {"clock": "actions"},
            "outputs": {"obs/image": {"from": "obs/agentview_image", "at": 0, "image": {"augment": steps}}}}}}
        frames = []
        with trajd.open(config, feed="train") as feed:
            for epoch in range(3):
                batch = next(batch for batch in feed.epoch(epoch) if batch.window_id[0] == 30)
                top, left = batch["obs/image.augment"][0, 0, 0, :2]
                frames.append((batch["obs/image"][0, 0].copy(), f"epoch {epoch}: crop at {top:.0f}, {left:.0f}"))
    figure = Figure(860, 220, "A frame as it was recorded and as three epochs get it",
                    "The recorded frame has 84x84 pixels. Each epoch cuts 70x70 out of it at another place and changes brightness and hue: "
                    + "; ".join(text for _, text in frames))
    for number, (pixels, text) in enumerate([(recorded, "recorded, 84x84")] + frames):
        x = 30 + number * 208
        figure.shape("image", x=x, y=22, width=152, height=152, href=as_png(pixels))
        figure.text_at(x + 76, 200, text, "ink" if number else "soft", 13.5, "middle")
    figure.save(folder / "augmentation.svg")


RECORD = ROOT / "tests/bench/results/cpu-epyc-2cores-defaults.json"
ROWS = {  # of the record: what the figure calls them
    "init --preset robomimic": "joints and poses",
    "later epochs": "ACT, JPEG, later epochs",
    "84x84": "robomimic's images",
    "first epoch": "ACT, JPEG, first epoch",
}


def draw_ratios(folder):
    figures = [one for one in json.loads(RECORD.read_text())["parts"]["defaults"]["figures"] if "float32" not in one["name"]]
    rows = [(label, one["ratio"]["median"], one["cpu_ratio"]["median"], one["ratio_to"].split(",")[0])
            for part, label in ROWS.items() for one in figures if part in one["name"]]
    told = ". ".join(f"{label}: {rate:.1f} times the rate of {loader}, {cpu:.1f} times by processor time" for label, rate, cpu, loader in rows)
    figure = Figure(860, 62 + 52 * len(rows), "How many times the rate of another loader", f"{told}.")
    figure.text_at(20, 28, "times the rate of the other loader", "ink", 15, font_weight="bold")
    figure.text_at(20 + 310, 28, "and by processor time", "soft", 14)
    for number, (label, rate, cpu, loader) in enumerate(rows):
        y = 46 + number * 52
        figure.text_at(210, y + 24, label, "ink", 13.5, "end")
        for top, ratio, colour, text in (y, rate, "blue", f"{rate:.1f}x {loader}"), (y + 21, cpu, "orange", f"{cpu:.1f}x"):
            figure.rect(220, top, round(ratio * 14, 1), 18, fill=colour, rx=3)
            figure.text_at(228 + round(ratio * 14), top + 14, text, "soft", 13)
    figure.line([(220 + 14, 40), (220 + 14, 46 + 52 * len(rows))], "soft", 1, stroke_dasharray="3 3")
    figure.save(folder / "ratios.svg")


def draw_leakage(folder):
    """The table of tests/conformance/README.md as a plot: errors of positions at jitter of 5 ms, and how far ahead they look."""
    table = (ROOT / "tests/conformance/README.md").read_text().split("| loader | error")[1].split("\n\n")[0]
    points = {}
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) > 3 and "/" in cells[1] and "/" in cells[3]:
            place = tuple(float(cells[index].split("/")[0]) for index in (3, 1))
            near = next((other for other in points if max(abs(other[0] - place[0]), 10 * abs(other[1] - place[1])) < 0.5), place)
            points.setdefault(near, []).append(cells[0].strip("()"))
    figure = Figure(860, 330, "Errors of positions, and looking ahead",
                    ". ".join(f"{', '.join(names)}: error {error} mm, looks {ahead} ms ahead" for (ahead, error), names in points.items()))
    figure.text_at(20, 28, "Positions: mean error at 5 ms jitter, in mm", "ink", 15, font_weight="bold")
    left, right, bottom, top = 70, 640, 280, 50

    def x(ahead):
        return left + 20 + ahead / 14 * (right - left - 20)

    def y(error):
        return bottom - error / 3.5 * (bottom - top)

    figure.line([(left, top), (left, bottom), (right + 20, bottom)], "soft", 1)
    for error in range(4):
        figure.text_at(left - 8, y(error) + 4, str(error), "soft", 12, "end")
    for ahead in 0, 4, 8, 12:
        figure.text_at(round(x(ahead)), bottom + 18, str(ahead), "soft", 12, "middle")
    figure.text_at(right + 20, bottom + 38, "ms of the future that an observation has seen", "soft", 12.5, "end")
    for (ahead, error), names in points.items():
        figure.circle(x(ahead), y(error), 6, fill="red" if "trajd" in names else "blue")
        offset, anchor = (12, "start") if ahead < 8 else (-12, "end")
        for number, name in enumerate([", ".join(names[index:index + 3]) for index in range(0, len(names), 3)]):
            figure.text_at(round(x(ahead)) + offset, round(y(error)) + 5 + number * 16, name, "ink", 12.5, anchor)
    figure.save(folder / "leakage.svg")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent
    draw_resampling(folder)
    draw_batch(folder)
    draw_ratios(folder)
    draw_leakage(folder)
    draw_augmentation(folder)


if __name__ == "__main__":
    main()
