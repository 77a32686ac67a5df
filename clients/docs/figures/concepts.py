"""Draws the figures of the concepts. mkdocs calls `on_files` for each build; run as a program, it writes them into a folder.

Numbers are those of a run on the dataset of `make_demo_dataset.py demo.hdf5 --episodes 8 --seed 1` (tests/tools), with the
configurations that the pages show.
"""
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from svg import Figure  # noqa: E402 (the file beside this one)

ROOT = pathlib.Path(__file__).resolve().parents[3]


def draw_windows():
    figure = Figure(760, 330, "Three windows of an episode", "An episode of ten rows on one clock. Three windows have the steps "
                    "minus 1 to 3 around their anchors, rows 0, 4 and 9. The window of row 0 has a padded step before the episode, "
                    "with mask 1. The window of row 4 has only valid steps. The window of row 9 has three padded steps after the "
                    "episode, with mask 2.")
    left, step = 200, 40

    def x_of(row):
        return left + step * (row + 1)

    figure.rect(x_of(0) - 18, 40, 10 * step - 4, 40, "shade", rx=6)
    figure.text_at(24, 64, "rows", size=14, font_weight="bold")
    for row in range(10):
        figure.circle(x_of(row), 60, 12, "panel", "blue", stroke_width=1.5)
        figure.text_at(x_of(row), 65, str(row), size=13, anchor="middle")
    figure.text_at(x_of(4.5), 28, "one episode, on one clock", "soft", 13, "middle")
    for index, (anchor, name) in enumerate(((0, "anchor 0"), (4, "anchor 4"), (9, "anchor 9"))):
        top = 108 + index * 62
        figure.text_at(24, top + 21, f"window of {name}", size=14, font_weight="bold")
        for at in range(-1, 4):
            row = anchor + at
            code = 1 if row < 0 else 2 if row > 9 else 0
            figure.rect(x_of(row) - 18, top, 36, 34, "band" if code else "panel", "orange" if at == 0 else "soft", rx=4,
                        stroke_width=2.5 if at == 0 else 1)
            figure.text_at(x_of(row), top + 15, f"{at:+d}" if at else "0", size=12, anchor="middle")
            figure.text_at(x_of(row), top + 29, f"mask {code}", "red" if code else "soft", 9, "middle")
    figure.rect(24, 296, 16, 16, "panel", "orange", stroke_width=2.5)
    figure.text_at(48, 309, "step 0 is at the anchor", "soft", 13)
    figure.rect(236, 296, 16, 16, "band", "soft")
    figure.text_at(260, 309, "padding: the step is outside the episode, and repeats the nearest row", "soft", 13)
    return figure


def draw_time():
    figure = Figure(760, 300, "Rows of three clocks and two steps of a window", "Joints have rows at 500 Hz, poses at about 20 Hz and "
                    "the gripper at 30 Hz. The anchor is the pose row at 187.32 ms, and the step before it is at 87.32 ms. There the "
                    "pose is 99.7 percent of row 1 and 0.3 percent of row 0, the gripper is its row 2 at 66.67 ms, and the joints are "
                    "blended from rows 26 and 27. At the anchor the gripper is row 5, at 166.67 ms. Rows after the anchor are not read.")
    left, scale = 130, 2.45
    steps = (87.32, 187.32)

    def x_of(ms):
        return left + ms * scale

    rows = {"joints": ([2.0 * i for i in range(118)], 70), "pose": ([37.24, 87.45, 137.1, 187.32, 236.03], 140),
            "gripper": ([0.0, 33.33, 66.67, 100.0, 133.33, 166.67, 200.0, 233.33], 210)}
    used = {"pose": (1, 3), "gripper": (2, 5)}
    rates = {"joints": "500 Hz", "pose": "about 20 Hz", "gripper": "30 Hz"}
    figure.rect(x_of(steps[1]), 34, 240 * scale - steps[1] * scale, 206, "band", opacity=0.45)
    figure.text_at(x_of(214), 54, "not read", "red", 12.5, "middle")
    for at, ms in zip((-1, 0), steps):
        figure.line([(x_of(ms), 34), (x_of(ms), 240)], "orange", 1.5, stroke_dasharray="5 4")
        figure.text_at(x_of(ms), 26, f"step {at}: {ms} ms" + (" (the anchor)" if at == 0 else ""), "orange", 13, "middle", font_weight="bold")
    for name, (times, y) in rows.items():
        figure.text_at(20, y, name, size=14, font_weight="bold")
        figure.text_at(20, y + 17, rates[name], "soft", 12)
        figure.line([(left, y), (x_of(240), y)], "soft", 1)
        for number, ms in enumerate(times):
            is_used = number in used.get(name, ())
            figure.circle(x_of(ms), y, 1.4 if name == "joints" else 6, "blue" if is_used or name == "joints" else "panel", "blue", stroke_width=1.2)
            if name != "joints":
                figure.text_at(x_of(ms), y + 20, str(number), "ink" if is_used else "soft", 11, "middle")
    for ms, gripper in zip(steps, (66.67, 166.67)):
        figure.arrow(x_of(gripper), 198, x_of(ms) - 1, 198, "green", 1.5)
        figure.text_at((x_of(gripper) + x_of(ms)) / 2, 190, "held", "green", 11.5, "middle")
    for ms in range(0, 241, 40):
        figure.text_at(x_of(ms), 264, f"{ms}", "soft", 12, "middle")
    figure.text_at(x_of(120), 286, "ms from the origin of the episode", "soft", 12.5, "middle")
    return figure


EPOCHS = ([12, 6, 9, 14, 17, 8, 23, 10, 22, 1, 0, 16, 4, 15, 20, 3, 7, 21, 5, 11, 13, 2, 18, 19],  # seed 7
          [4, 20, 21, 16, 18, 8, 1, 11, 3, 15, 12, 17, 23, 14, 13, 6, 10, 7, 0, 19, 22, 9, 5, 2])


def draw_order():
    figure = Figure(760, 250, "The order of two epochs", "24 windows in batches of six. Epoch 0 delivers windows 12, 6, 9, 14, 17, 8 "
                    "first, and epoch 1 windows 4, 20, 21, 16, 18, 8. Of two ranks, rank 0 gets the first three windows of each batch and "
                    "rank 1 the others. A run that resumes at position 12 of epoch 0 gets the batches behind it.")
    left, cell = 108, 26
    for epoch, windows in enumerate(EPOCHS):
        top = 56 + epoch * 84
        figure.text_at(20, top + 23, f"epoch {epoch}", size=14, font_weight="bold")
        for position, window in enumerate(windows):
            x = left + position * cell + position // 6 * 4
            figure.rect(x, top, cell - 2, 34, "shade" if position % 6 < 3 else "panel", "blue" if position % 6 < 3 else "soft", rx=3)
            figure.text_at(x + cell / 2 - 1, top + 22, str(window), size=12, anchor="middle")
        for batch in range(4):
            x = left + batch * (6 * cell + 4)
            figure.text_at(x + 3 * cell, top + 50, f"batch {batch}", "soft", 11.5, "middle")
    x = left + 12 * cell + 2 * 4 - 2
    figure.line([(x, 40), (x, 98)], "orange", 3)
    figure.text_at(x, 30, "position 12: a run resumes here", "orange", 13, "middle", font_weight="bold")
    figure.rect(left, 222, 16, 14, "shade", "blue")
    figure.text_at(left + 24, 234, "rank 0 of 2", "soft", 13)
    figure.rect(left + 130, 222, 16, 14, "panel", "soft")
    figure.text_at(left + 154, 234, "rank 1 of 2", "soft", 13)
    return figure


def draw_failures():
    figure = Figure(760, 320, "What the others do when something dies", "Mode shard: rank 1 dies, and rank 0 goes on until all slots are "
                    "full, then waits until rank 1 returns or rank_timeout, 600 s, is over. Mode queue: a process dies, and its batch goes to "
                    "another process at once. The daemon dies: every process works on the batches that it holds, then waits for the daemon, "
                    "600 s at most.")
    left, right = 190, 740

    def lane(y, name, parts):
        figure.text_at(20, y + 17, name, size=13.5)
        x = left
        for width, text, fill, stroke in parts:
            figure.rect(x, y, width - 3, 26, fill, stroke, rx=4)
            figure.text_at(x + width / 2 - 1, y + 17, text, size=11.5, anchor="middle")
            x += width

    def heading(y, text):
        figure.text_at(20, y, text, "blue", 14, font_weight="bold")

    heading(28, "mode shard: a rank dies")
    lane(38, "rank 0", ((150, "batches", "shade", "blue"), (110, "slots that are full", "shade", "blue"),
                        (170, "waits, up to 600 s", "band", "red"), (120, "batches", "shade", "blue")))
    lane(70, "rank 1", ((150, "batches", "shade", "blue"), (280, "dead: you or Slurm restart it", "panel", "soft"),
                        (120, "batches", "shade", "blue")))
    heading(130, "mode queue: a process dies")
    lane(140, "process A", ((230, "batches 0, 2", "shade", "blue"), (100, "batch 3 again", "shade", "green"), (220, "batches 4, 5, 6", "shade", "blue")))
    lane(172, "process B", ((150, "batches 1, 3", "shade", "blue"), (400, "dead", "panel", "soft")))
    heading(232, "the daemon dies")
    lane(242, "every process", ((150, "batches", "shade", "blue"), (110, "those it holds", "shade", "blue"),
                                (130, "waits, up to 600 s", "band", "red"), (160, "batches, none twice", "shade", "blue")))
    lane(274, "daemon", ((150, "", "panel", "blue"), (240, "dead, then restarted", "panel", "soft"),
                         (160, "", "panel", "blue")))
    figure.line([(left + 148, 34), (left + 148, 304)], "red", 1.5, stroke_dasharray="4 4")
    figure.text_at(right, 28, "the broken line is the death; time runs to the right", "soft", 12, "end")
    return figure


def draw_memory():
    figure = Figure(760, 300, "Where a batch lives in memory", "Files are read into the row cache, whose size is memory.store. A thread "
                    "resamples windows from the row cache into a slot of a ring, whose size is memory.rings. Training processes map the ring and "
                    "read the slot in place: nothing is copied. memory.reserve stays free.")
    figure.box(16, 96, 120, 64, "files", "HDF5, MP4")
    figure.box(196, 70, 170, 116, "row cache", "rows and frames", "memory.store", "1 GiB", fill="shade", stroke="blue")
    figure.rect(426, 50, 150, 156, "shade", "blue", rx=6)
    figure.text_at(501, 72, "ring of a feed", size=14, anchor="middle", font_weight="bold")
    for index, (state, fill, stroke) in enumerate((("READY", "panel", "green"), ("READY", "panel", "green"), ("FILLING", "panel", "orange"), ("FREE", "panel", "soft"))):
        figure.rect(440, 82 + index * 24, 122, 20, fill, stroke, rx=3)
        figure.text_at(501, 96 + index * 24, f"slot: {state}", size=12, anchor="middle")
    figure.text_at(501, 196, "memory.rings: 1 GiB", "soft", 12.5, "middle")
    figure.box(636, 60, 112, 56, "process 0", "maps the ring")
    figure.box(636, 140, 112, 56, "process 1", "maps the ring")
    for x1, x2, y, text in ((136, 194, 128, "read"), (366, 424, 128, "resample")):
        figure.arrow(x1, y, x2, y)
        figure.text_at((x1 + x2) / 2, y - 8, text, "soft", 12, "middle")
    figure.arrow(578, 92, 634, 92, "green")
    figure.arrow(578, 166, 634, 166, "green")
    figure.text_at(606, 84, "no copy", "green", 11.5, "middle")
    figure.rect(16, 236, 732, 44, "panel", "soft", rx=6, stroke_dasharray="6 4")
    figure.text_at(382, 263, "memory.reserve: 256 MiB stay free, on the machine and in the control group", "soft", 13.5, "middle")
    figure.text_at(382, 30, "the daemon: sized at the start, or it does not start", "ink", 14, "middle", font_weight="bold")
    return figure


def draw_gpu():
    figure = Figure(760, 330, "Two ways of a batch to a GPU", "With device=cuda the daemon makes the batch in host memory, and the package "
                    "copies it to the GPU one batch ahead. With zero_copy=True rows stay in GPU memory, the daemon makes the batch there with one "
                    "launch, and the training process opens the ring by a CUDA IPC handle.")

    def side(top, title, boxes):
        figure.text_at(20, top, title, "blue", 14.5, font_weight="bold")
        for index, (x, width, lines, on_gpu) in enumerate(boxes):
            figure.box(x, top + 22, width, 76, *lines, fill="shade" if on_gpu else "panel", stroke="green" if on_gpu else "soft", size=13)
            if index:
                before = boxes[index - 1]
                figure.arrow(before[0] + before[1] + 2, top + 60, x - 3, top + 60)

    side(32, 'device="cuda"', ((20, 150, ("row cache", "host memory"), False), (218, 150, ("ring", "host memory", "memory.rings"), False),
                               (416, 140, ("copy", "one batch ahead"), False), (604, 140, ("tensors", "torch's GPU memory"), True)))
    side(186, 'device="cuda", zero_copy=True', ((20, 150, ("row cache", "host memory"), False), (218, 150, ("rows", "stay on the GPU", "gpu.rows"), True),
                                                 (416, 140, ("ring", "one launch a batch", "gpu.rings"), True), (604, 140, ("tensors", "views of the ring"), True)))
    figure.text_at(194, 276, "once", "soft", 11.5, "middle")
    figure.rect(20, 300, 16, 14, "shade", "green")
    figure.text_at(44, 312, "in GPU memory", "soft", 13)
    figure.rect(170, 300, 16, 14, "panel", "soft")
    figure.text_at(194, 312, "in host memory", "soft", 13)
    return figure


FIGURES = {"windows": draw_windows, "time": draw_time, "order": draw_order, "failures": draw_failures, "memory": draw_memory,
           "gpu": draw_gpu}


def write(folder):
    """Writes all figures into a folder, and returns {name: path}."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.svg" for name in FIGURES}
    for name, path in paths.items():
        FIGURES[name]().save(path)
    return paths


def on_files(files, config):
    from mkdocs.structure.files import File
    for name, path in write(ROOT / "build/docs-figures").items():
        files.append(File.generated(config, f"figures/{name}.svg", abs_src_path=str(path)))
    return files


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
