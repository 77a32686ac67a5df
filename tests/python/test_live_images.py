"""trajd.Live with cameras: frames that are pushed as they come give the bytes of the daemon's windows."""
import json
import sys
import threading
import time

import h5py
import numpy as np
import pytest

import trajd
from live_replay import replay, windows_of
from image_files import random_frames, write_encoded

FEED = """
  {name}:
    dataset: arm
    global_batch: 8
    tail: short
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: {pad}}}
    outputs:
      qpos:    {{from: observations/qpos, at: -1..0}}
      action:  {{at: 0..1}}
      top:     {{from: observations/images/top, at: -1..0, layout: chw, norm: imagenet,
                image: {{crop: {{top: 3, left: 5, height: 40, width: 50}}, resize: [20, 30]}}}}
      mirrored: {{from: observations/images/top, at: 0, image: {{resize: [24, 24], channels: bgr}}}}
      wrist:   {{from: observations/images/wrist, at: 0, layout: chw, norm: unit, dtype: float16,
                image: {{resize: [30, 60], fit: pad, pad_value: 7, draw: {draw},
                        augment: [{{crop: [24, 51]}}, {{resize: [20, 22], filter: pillow-bilinear}}, {{flip: 0.5}}, {{brightness: 0.3}}]}}}}
      box:     {{from: observations/images/wrist, at: 0,
                image: {{draw: {draw}, augment: [{{random_resized_crop: [16, 16], scale: [0.8, 1], ratio: [0.9, 1.1]}}, {{affine: 10}}]}}}}
      slow:    {{from: observations/images/wrist, at: "-100ms..0ms @ 20", image: {{crop: [38, 36]}}, max_age: 35ms}}
      whole:   {{from: observations/images/wrist, at: 0}}
"""


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """Two episodes with two cameras, and their frames."""
    folder, frames = tmp_path_factory.mktemp("arm"), []
    for episode in range(2):
        frames.append({"top": random_frames(9, 48, 64, 10 + episode), "wrist": random_frames(9, 40, 40, 20 + episode)})
        write_encoded(folder / f"episode_{episode}.hdf5", frames[-1])
    return folder, frames


def config_of(path, pad="edge"):
    feeds = "".join(FEED.format(name=name, pad=pad, draw=draw) for name, draw in (("train", "random"), ("eval", "center")))
    return f"datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}\nfeeds:\n{feeds}"


def rows_of(path, frames, episode):
    with h5py.File(path / f"episode_{episode}.hdf5") as file:
        qpos = file["observations/qpos"][:]
    rows = [(i * 20_000_000, "observations/qpos", row) for i, row in enumerate(qpos)]
    return rows + [(i * 20_000_000, f"observations/images/{camera}", frame)
                   for camera, taken in frames[episode].items() for i, frame in enumerate(taken)]


@pytest.mark.parametrize("pad", ["edge", "zero"])
def test_frames_give_the_bytes_of_the_daemons_windows(daemon, arm, pad):
    """The training draws; an observation is what the feed gives without chance (draw: center)."""
    path, frames = arm
    one = daemon(config_of(path, pad))
    with trajd.connect(one.endpoint, feed="eval") as feed:
        windows = windows_of(feed)
    with trajd.connect(one.endpoint, feed="train") as feed:
        live = trajd.Live(feed)
    assert set(live.left_out) == {"action"}
    assert sum(replay(live, rows_of(path, frames, episode), windows[episode]) for episode in range(2)) > 150


def test_styles_have_the_images_of_the_training(daemon, arm, tmp_path):
    path, frames = arm
    feed = """
  train:
    dataset: arm
    global_batch: 8
    tail: short
    anchor: {clock: steps}
    outputs:
      qpos: {from: observations/qpos, at: 0}
      action: {at: 0..1}
      image/top: {from: observations/images/top, at: 0, image: {resize: [24, 32]}}
      image/wrist: {from: observations/images/wrist, at: 0, image: {resize: [24, 32]}}
"""
    one = daemon(f"datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}\nfeeds:\n{feed}")
    with trajd.connect(one.endpoint, feed="train", style="act") as opened:
        trajd.Live(opened).save(tmp_path / "act.live")
        for batch in opened.epoch(0):
            episode, anchor_ns = int(batch.episode_index[0]), int(batch.anchor_ns[0])
            images, qpos = np.array(batch["image"][0]), np.array(batch["qpos"][0])
    live = trajd.Live(tmp_path / "act.live", style="act")
    for stamp, name, row in rows_of(path, frames, episode):
        live.push(name, stamp, row)
    seen = live.observation(anchor_ns)
    assert list(seen) == ["image", "qpos"] and seen["image"].shape == (1, 2, 3, 24, 32) and seen["image"].dtype == np.float32
    np.testing.assert_array_equal(seen["image"][0], images)
    np.testing.assert_array_equal(seen["qpos"][0], qpos)


def test_cameras_whose_colours_nothing_says_are_left_out(daemon, arm):
    """A feed of act++ needs no key, because files are read as OpenCV does. A robot's pixels need to know what they were in the files."""
    path, _ = arm
    feed = """
  train:
    dataset: arm
    global_batch: 1
    anchor: {clock: steps}
    outputs:
      qpos: {from: observations/qpos, at: 0}
      top: {from: observations/images/top, at: 0, image: {preset: act++}}
"""
    one = daemon(f"datasets: {{arm: {{path: {path}, layout: aloha}}}}\nfeeds:\n{feed}")
    with trajd.connect(one.endpoint, feed="train") as opened, pytest.warns(trajd.DataWarning, match="observations have no output top: .*color: rgb or bgr"):
        live = trajd.Live(opened)
    assert set(live.left_out) == {"top"}


def test_frames_that_are_wrong(daemon, arm, tmp_path):
    path, frames = arm
    with trajd.connect(daemon(config_of(path)).endpoint, feed="train") as feed:
        live = trajd.Live(feed)
    with pytest.raises(TypeError, match="observations/qpos: a row is an array of float32 .14., not bytes"):
        live.push("observations/qpos", 0, bytes(56))
    with pytest.raises(ValueError, match=r"a row has the shape \[48, 64, 3\], not \[40, 40, 3\]"):
        live.push("observations/images/top", 0, frames[0]["wrist"][0])
    with pytest.raises(TypeError, match="Cannot cast"):
        live.push("observations/images/top", 0, frames[0]["top"][0] / 255)
    live.save(tmp_path / "a.live")
    document = json.loads((tmp_path / "a.live").read_text())
    document.update(trajd_live=1, digest=None)  # nothing then tells that it was changed
    top = next(output for output in document["outputs"] if output["name"] == "top")
    for change, text in (({"crop": [3, 5, 40, 99]}, "crop"), ({"source": [48, 63]}, "another size or type"),
                         ({"filter": "blurred"}, "preparation.filter: an unknown word"), ({"output": [20, 31]}, "another size or type")):
        kept = dict(top["picture"]["preparation"])
        top["picture"]["preparation"].update(change)
        (tmp_path / "b.live").write_text(json.dumps(document))
        with pytest.raises(trajd.Error, match=text):
            trajd.Live(tmp_path / "b.live")
        top["picture"]["preparation"] = kept


CAMERA = {"trajd_live": 1, "feed": "f", "dataset": "d", "fingerprint": "0", "norm_digest": "0", "pad": "edge", "anchor_clock": 0,
          "anchor_rate": None, "left_out": [], "clocks": [{"name": "camera", "rate": None, "interval_ns": 10**8, "shift_ns": 0}],
          "streams": [{"name": "camera", "clock": 0, "dtype": "u8", "shape": [480, 640, 3]}],
          "outputs": [{"name": "obs/camera", "role": "obs", "hidden": False, "dtype": "f32", "shape": [2, 480, 640, 3], "from": -1,
                       "rate": None, "sources": [{"stream": 0, "columns": 921600, "rule": "rows", "lookahead_ns": 0,
                                                  "kind": "previous", "max_gap_ns": -1, "max_age_ns": 2**63 - 1, "missing": "error"}],
                       "picture": {"preparation": {"source": [480, 640], "channels": 3, "type": "u8", "crop": [0, 0, 480, 640],
                                                   "filter": "pillow-bilinear", "inner": [480, 640], "corner": [0, 0],
                                                   "output": [480, 640], "is_bgr": True, "pad_value": 0},
                                   "augment": [], "finish": {"size": [480, 640], "channels": 3, "source": "u8", "type": "f32",
                                                             "layout": "hwc", "scale": [2, 2, 2, 1], "offset": [1, 1, 1, 0]}}}]}


@pytest.mark.parametrize("call", ["open", "push", "observe"])
def test_another_thread_runs_while_frames_are_taken_and_shown(call):
    """Python would not switch threads by itself for 1000 s: the other one runs only if a call lets it."""
    text, frame = json.dumps(CAMERA).encode(), bytes(480 * 640 * 3)
    core = trajd._core.Live(text, max_anchor_age_ns=2**62)
    core.push(0, 0, frame)
    may_run, has_run = threading.Event(), []
    other = threading.Thread(target=lambda: (may_run.wait(), has_run.append(True)))
    other.start()
    interval, begin, step = sys.getswitchinterval(), time.monotonic(), 0
    sys.setswitchinterval(1000)
    try:
        may_run.set()
        while not has_run and time.monotonic() - begin < 60 and step < 3000:
            step += 1
            if call == "open":
                trajd._core.Live(text)
            elif call == "push":
                core.push(0, step, frame)
            else:
                core.observe(0, False)
        ran = bool(has_run)
    finally:
        sys.setswitchinterval(interval)
    other.join()
    assert ran, f"{step} calls of {call} kept the other thread waiting"
