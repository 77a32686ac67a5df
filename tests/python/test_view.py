"""trajd.plot and trajd.view: what they draw are the rows of the file, and the steps and masks of the feed."""
import re
import sys
import tempfile

import h5py
import numpy as np
import pytest
from saved_rrd import Saved

from trajd import errors, launch
from trajd.recordings import Recording

LAYOUT = """layout: arm
version: 1
episodes: {files: "*.hdf5", groups: /data/*}
clocks:
  arm: {path: arm_t, unit: ns}
  pose: {path: pose_t, unit: ns}
  camera: {path: camera_t, unit: ns}
  command: {path: command_t, unit: ns}
  mode: {path: mode_t, unit: ns}
streams:
  arm/q: {path: q, clock: arm, kind: linear, unit: rad, max_gap: 100ms}
  hand_pos: {path: hand_pos, clock: pose, kind: linear, unit: m}
  hand_quat: {path: hand_quat, clock: pose, kind: slerp, order: xyzw}
  top: {path: top, clock: camera, kind: previous, image: {color: rgb}}
  action: {path: action, clock: command, kind: previous}
  mode: {path: mode, clock: mode, kind: previous, events: true}
"""
CONFIG = """version: 2
memory: {store: 64MiB, rings: 64MiB, reserve: 0}
datasets: {arm: {path: arm.hdf5, layout: ./arm.yaml}}
feeds:
  train:
    dataset: arm
    global_batch: 8
    order: blocked
    block: {windows: 16, neighbours: 2}
    fan_out: {jobs: 2}
    tail: wrap
    anchor: {clock: command}
    pad: {before: any, after: any}
    outputs:
      obs/q: {from: arm/q, at: -100ms..0ms @ 20, norm: mean_std}
      obs/relative: {from: hand_pos, at: 0, relative_to: {from: hand_pos, kind: linear}}
      top: {at: 0, image: {resize: [6, 8], filter: nearest, augment: [{crop: [4, 4]}]}}
      action: {at: 0..3, norm: min_max}
"""
BEGIN = 1_700_000_000_000_000_000
MS = 1_000_000
GAP = slice(100, 130)  # rows that are lost: from 1.0 s to before 1.3 s


def stamps(count, every_ms):
    return BEGIN + np.arange(count) * every_ms * MS


@pytest.fixture
def arm(tmp_path, monkeypatch):
    """A folder with arm.hdf5 (two episodes of 2 s), arm.yaml and train.yaml. Its private daemons are its own."""
    runtime = tempfile.TemporaryDirectory(prefix="trajd-view-")  # the path of a socket must be short
    monkeypatch.setenv("TRAJD_RUNTIME_DIR", runtime.name)
    monkeypatch.setenv("TRAJD_JOB", "test_view")
    kept = np.delete(np.arange(200), GAP)
    with h5py.File(tmp_path / "arm.hdf5", "w") as file:
        for number in range(2):
            group = file.create_group(f"data/demo_{number}")
            group["arm_t"], group["pose_t"], group["camera_t"], group["command_t"] = (
                stamps(200, 10)[kept], stamps(100, 20), stamps(20, 100), stamps(40, 50))
            turns = np.linspace(0, 1, 200) + number
            group["q"] = np.stack([np.sin(turns), np.cos(turns)], 1)[kept]
            group["q"].attrs["names"] = '["shoulder", "elbow"]'
            angle = np.linspace(0, 1, 100)
            group["hand_pos"] = np.stack([angle, 2 * angle, 3 * angle], 1)
            group["hand_quat"] = np.stack([0 * angle, 0 * angle, np.sin(angle / 2), np.cos(angle / 2)], 1)
            group["top"] = np.arange(20 * 12 * 16 * 3).reshape(20, 12, 16, 3).astype(np.uint8)
            group["action"] = np.arange(40.0)[:, None] * [1, -1]
            group["mode_t"], group["mode"] = stamps(1, 1), [[7.0]]
    (tmp_path / "arm.yaml").write_text(LAYOUT)
    (tmp_path / "train.yaml").write_text(CONFIG)
    yield tmp_path
    for process in launch._started:
        process.terminate()
        process.wait()
    launch._started.clear()
    runtime.cleanup()


def of_file(arm, name, episode="demo_1"):
    with h5py.File(arm / "arm.hdf5") as file:
        return file[f"data/{episode}/{name}"][...]


def seconds(values):
    return (values - BEGIN) * 1e-9


# ---- plots ----

def test_a_plot_of_a_file(arm):
    pytest.importorskip("matplotlib")
    from trajd.plot import draw
    figure = draw(Recording(arm / "arm.hdf5", layout=arm / "arm.yaml", episode="demo_1", rate="25"), ["arm/q", "action"])
    main, side, below, _ = figure.axes
    assert [axis.get_ylabel() for axis in (main, below)] == ["rad", "unit not stated"] and main.get_title("left") == "arm/q (linear, clock arm)"
    rows = [line for line in main.lines if line.get_label() == "recorded row"]
    steps = [line for line in main.lines if line.get_label() == "step of arm/q"]
    q, times = of_file(arm, "q"), seconds(of_file(arm, "arm_t"))
    for column in range(2):
        assert np.array_equal(rows[column].get_ydata(), q[:, column]) and np.allclose(rows[column].get_xdata(), times, rtol=0, atol=1e-12)
        at, values = steps[column].get_data()
        lost = (at > times[99]) & (at < times[100])
        assert np.array_equal(np.isnan(values), lost) and lost.sum() == 8 and np.allclose(np.diff(at), 0.04)
        assert np.allclose(values[~lost], np.interp(at[~lost], times, q[:, column]), rtol=0, atol=1e-6)
    bands = {patch.get_label(): patch for patch in main.patches}
    assert set(bands) == {"masked: gap", "gap between rows"}
    for label, begin, end in (("masked: gap", at[lost][0] - 0.02, at[lost][-1] + 0.02), ("gap between rows", times[99], times[100])):
        assert np.allclose([bands[label].get_x(), bands[label].get_x() + bands[label].get_width()], [begin, end])
    assert [text.get_text() for text in main.texts] == ["no rows for 310 ms"]
    assert [text.get_text() for text in side.get_legend().get_texts()][:4] == ["shoulder", "elbow", "recorded row", "step of arm/q"]
    means = {line.get_ydata()[0] for line in side.lines if line.get_gid().startswith("mean")}
    both = np.concatenate([of_file(arm, "q", "demo_0"), q])
    assert np.allclose(sorted(means), sorted(both.mean(0)), atol=1e-5)
    assert sum(patch.get_label() == "masked: gap" for patch in below.patches) == 0
    ticks = np.diff(main.get_yticks())
    assert np.allclose(ticks, ticks[0]) and f"{ticks[0]:.1e}"[:3] in ("1.0", "2.0", "2.5", "5.0")


def test_all_streams_of_a_file(arm):
    """Each clock has a grid of its own, so a stream of one row does not shorten the others. It has no steps itself."""
    pytest.importorskip("matplotlib")
    from trajd.plot import draw
    figure = draw(Recording(arm / "arm.hdf5", layout=arm / "arm.yaml"), [], statistics=False)
    drawn = {axis.get_title("left").split()[0]: axis for axis in figure.axes[::2]}
    assert list(drawn) == ["arm/q", "hand_pos", "hand_quat", "action"]
    assert all(max(line.get_xdata()) > 1.8 for axis in drawn.values() for line in axis.lines)


def test_a_plot_of_a_feed(arm):
    """Steps are those that the policy gets, without the norm. What is relative to a state has a plot of its own."""
    pytest.importorskip("matplotlib")
    from trajd.plot import draw
    figure = draw(Recording(arm / "train.yaml", episode="demo_1"), [])
    titles = [axis.get_title("left") for axis in figure.axes[::2]]
    assert titles == ["arm/q (linear, clock arm)", "action (previous, clock command)", "obs/relative, as the policy gets it"]
    action = figure.axes[2]
    step = next(line for line in action.lines if line.get_label() == "step of action")
    assert np.array_equal(step.get_ydata(), np.arange(40.0)) and np.allclose(step.get_xdata(), seconds(of_file(arm, "command_t")))
    observed = next(line for line in figure.axes[0].lines if line.get_label() == "step of obs/q")
    at, values = observed.get_data()
    times, q = seconds(of_file(arm, "arm_t")), of_file(arm, "q")
    lost = (at > times[99]) & (at < times[100])  # an observation does not see the row after the gap: it holds the one before
    assert np.allclose(values, np.where(lost, q[99, 0], np.interp(at, times, q[:, 0])), rtol=0, atol=1e-6) and lost.sum() == 6


def test_the_commands(arm, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    from trajd import plot
    file, layout = str(arm / "arm.hdf5"), str(arm / "arm.yaml")
    assert plot.main([file, "--layout", layout, "arm/q", "--to", "1.5", "-o", str(arm / "q.svg")]) == 0
    text = (arm / "q.svg").read_text()
    assert "shoulder" in text and "masked: gap" in text and "no rows for 310 ms" in text
    for arguments, words in ((["arm/p"], "no stream arm/p"), (["top"], "python -m trajd.view"), (["--episode", "demo_7"], "no episode demo_7"),
                             (["--feed", "train"], "has no feeds")):
        assert plot.main([file, "--layout", layout, "-o", str(arm / "no.svg"), *arguments]) == 2
        assert words in capsys.readouterr().err and not (arm / "no.svg").exists()
    assert plot.main([str(arm / "absent.hdf5")]) == 2 and "absent.hdf5" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        plot.main([file, "-o", "plot.doc"])
    assert "none of .svg, .png, .pdf" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plot.main([file, "--layout", layout]) == 2 and "pip install 'trajd[view]'" in capsys.readouterr().err


def test_a_feed_of_several_datasets_is_refused(arm):
    config = arm / "train.yaml"
    config.write_text(CONFIG.replace("dataset: arm", "mix: {arm: 1}"))
    with pytest.raises(errors.ArgumentError, match="like: train, mix: null, dataset: DATASET"):
        Recording(config)


def test_a_window_that_the_feed_does_not_have(arm):
    with pytest.raises(errors.NotFound, match="windows 0 to 79"):
        Recording(arm / "train.yaml", window=80)


# ---- the viewer ----

def test_the_viewer_has_what_the_feed_has(arm):
    """Window 40 is the first one of demo_1: its steps before the anchor are masked."""
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (170 MB, 490 MB when unpacked)")
    from trajd import view
    assert view.main([str(arm / "train.yaml"), "--window", "40", "--save", str(arm / "out.rrd")]) == 0
    saved = Saved(arm / "out.rrd")
    times, values = saved.get("/streams/arm/q/recorded", "scalars")
    q, stamped = of_file(arm, "q"), seconds(of_file(arm, "arm_t"))
    assert np.array_equal(values, q) and np.allclose(times, stamped, rtol=0, atol=2e-9)
    assert saved.get("/streams/arm/q/recorded", "names")[1] == [["shoulder", "elbow"]]
    at, steps = saved.get("/streams/arm/q/steps/obs/q", "scalars")
    lost = (at > stamped[99]) & (at < stamped[100])
    assert np.allclose(steps, np.where(lost[:, None], q[99], np.stack([np.interp(at, stamped, q[:, i]) for i in range(2)], 1)), atol=1e-6)
    times, texts = saved.get("/bands/arm/q", "state")
    assert texts == [["no rows for 310 ms"], []] and np.allclose(times, stamped[[99, 100]], rtol=0, atol=2e-9)
    assert len(saved.get("/outputs/obs/relative", "scalars")[1]) == 40
    _, places = saved.get("/poses/hand_quat", "translation")
    _, turns = saved.get("/poses/hand_quat", "quaternion")
    assert np.allclose(np.squeeze(places), of_file(arm, "hand_pos")) and np.allclose(np.squeeze(turns), of_file(arm, "hand_quat"))


def test_cameras_before_and_after_preparation(arm):
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (170 MB, 490 MB when unpacked)")
    from trajd import view
    assert view.main([str(arm / "train.yaml"), "--window", "45", "--save", str(arm / "out.rrd")]) == 0
    saved, recorded = Saved(arm / "out.rrd"), of_file(arm, "top")
    times, frames = saved.images("/cameras/top/recorded", (12, 16, 3))
    assert np.array_equal(frames, recorded) and np.allclose(times, np.arange(20) / 10)
    times, frames = saved.images("/cameras/top/steps/top", (4, 4, 3))
    resized = recorded[:, 1::2, 1::2]  # nearest takes the pixel behind the middle of four

    def is_crop(frame, number):
        whole = np.lib.stride_tricks.sliding_window_view(resized[number], (4, 4, 3)).reshape(-1, 4, 4, 3)
        return (whole == frame).all((1, 2, 3)).any()

    assert len(frames) == 40 and all(is_crop(frame, number // 2) for number, frame in enumerate(frames))
    times, frames = saved.images("/window/top/frames", (4, 4, 3))
    assert np.allclose(times, [0.25]) and is_crop(frames[0], 2)


def test_frames_without_a_key_image(arm):
    """As `trajctl init` writes them for a layout without a preset."""
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (170 MB, 490 MB when unpacked)")
    from trajd import view
    config = re.sub("top: {at: 0, image.*}", "obs/camera: {from: top, at: 0}", CONFIG)
    (arm / "train.yaml").write_text(config)
    assert view.main([str(arm / "train.yaml"), "--window", "45", "--save", str(arm / "out.rrd")]) == 0
    saved, recorded = Saved(arm / "out.rrd"), of_file(arm, "top")
    _, frames = saved.images("/cameras/top/steps/obs/camera", (12, 16, 3))
    assert np.array_equal(frames, recorded.repeat(2, axis=0))
    assert np.array_equal(saved.images("/window/obs/camera/frames", (12, 16, 3))[1], recorded[2:3])
    assert not len(saved.get("/window/obs/camera/steps", "scalars")[1])


def test_the_steps_of_a_window(arm):
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (170 MB, 490 MB when unpacked)")
    from trajd import view
    assert view.main([str(arm / "train.yaml"), "--window", "40", "--save", str(arm / "out.rrd")]) == 0
    saved = Saved(arm / "out.rrd")
    times, states = saved.get("/window/obs/q/mask", "state")
    assert states == [["step 0: before the start"], ["step 1: before the start"], ["step 2: valid"]] and np.allclose(times, [-0.1, -0.05, 0])
    _, values = saved.get("/window/obs/q/steps", "scalars")
    assert np.isnan(values[:2]).all() and np.allclose(values[2], of_file(arm, "q")[0])
    _, actions = saved.get("/window/action/steps", "scalars")
    assert np.array_equal(actions, of_file(arm, "action")[:4])
    [[origin]] = saved.get("/window/origin", "text")[1]
    assert origin.startswith("window 40: arm, arm.hdf5, episode demo_1") and "action[3] at 0.150000 s: action previous = 1 * row 3" in origin
