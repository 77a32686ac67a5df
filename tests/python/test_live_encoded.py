"""trajd.Live takes the JPEG and PNG files that a recorder would write, and shows what the daemon makes of the same bytes."""
import json
import re
import struct
import sys

import h5py
import numpy as np
import pytest

import trajd
from daemons import Daemon
from hostile_images import cut_between_scans, exif, jpeg, jpeg_of_many_scans
from live_replay import replay, windows_of
from paths import ROOT
from image_files import png, random_frames
from trajd.live import encoded_frames

GOLDEN = ROOT / "tests/golden/decoded"
COLOUR = ("420.jpg", "422.jpg", "rgb.png", "444.jpg", "progressive.jpg", "restart.jpg", "palette_transparent.png", "transparent.png")
FILES = {"rgb": COLOUR, "bgr": COLOUR, "jpeg": [name for name in COLOUR if name.endswith("jpg")], "gray": ("gray.jpg", "gray.png", "gray_transparent.png"),
         "depth": ("depth.png",)}
ROWS, ROW_NS = 8, 20_000_000

LAYOUT = """
layout: cameras
version: 1
episodes: {files: "*.hdf5", groups: /}
clocks:
  steps: {rate: 50}
streams:
  action: {path: action, kind: previous}
  rgb:    {path: rgb, kind: previous, image: {color: rgb}}
  bgr:    {path: bgr, kind: previous, image: {color: bgr, flip: "180"}}
  jpeg:   {path: jpeg, kind: previous, image: {color: rgb, encoding: jpeg, flip: v}}
  gray:   {path: gray, kind: previous, image: {color: gray, flip: h}}
  depth:  {path: depth, kind: previous, image: {unit: mm, flip: h}}
  pixels: {path: pixels, kind: previous, image: {color: rgb}}
"""
CONFIG = """
datasets: {{cameras: {{path: {path}, layout: {path}/cameras.yaml}}}}
feeds:
  train:
    dataset: cameras
    global_batch: 4
    tail: short
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      action: {{at: 0}}
      rgb:    {{from: rgb, at: -1..0}}
      cv2:    {{from: rgb, at: 0, image: {{channels: cv2}}}}
      bgr:    {{from: bgr, at: 0}}
      jpeg:   {{from: jpeg, at: 0, layout: chw, norm: imagenet, image: {{resize: [20, 30]}}}}
      gray:   {{from: gray, at: 0}}
      depth:  {{from: depth, at: 0}}
      pixels: {{from: pixels, at: 0}}
"""


def golden(name):
    return (GOLDEN / name).read_bytes()


def frames_of(camera):
    """The files of a camera, row by row."""
    return [golden(FILES[camera][row % len(FILES[camera])]) for row in range(ROWS)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The windows of the daemon, the description, and the rows as they would come."""
    folder = tmp_path_factory.mktemp("cameras")
    (folder / "cameras.yaml").write_text(LAYOUT)
    pixels = random_frames(ROWS, 20, 30, 1)
    with h5py.File(folder / "episode_0.hdf5", "w") as file:
        file["action"], file["pixels"] = np.zeros((ROWS, 2), np.float32), pixels
        for camera in FILES:
            encoded = frames_of(camera)
            padded = np.zeros((ROWS, max(map(len, encoded))), np.uint8)
            for row, data in zip(padded, encoded):
                row[: len(data)] = np.frombuffer(data, np.uint8)
            file.create_dataset(camera, data=padded, chunks=(1, padded.shape[1]))
    one = Daemon(folder, CONFIG.format(path=folder)).start()
    try:
        with trajd.connect(one.endpoint, feed="train") as feed:
            trajd.Live(feed).save(folder / "cameras.live")
            windows = windows_of(feed)[0]
    finally:
        one.stop()
    rows = [(i * ROW_NS, camera, data) for camera in FILES for i, data in enumerate(frames_of(camera))]
    return folder / "cameras.live", windows, rows + [(i * ROW_NS, "pixels", frame) for i, frame in enumerate(pixels)]


@pytest.fixture(autouse=True)
def fresh_decoder():
    encoded_frames._decoder.cache_clear()
    yield
    encoded_frames._decoder.cache_clear()


@pytest.fixture
def live(recorded):
    return trajd.Live(recorded[0])


@pytest.mark.parametrize("library", ["PIL", "cv2"])
def test_encoded_frames_give_the_bytes_of_the_daemons_windows(recorded, live, library, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.setitem(sys.modules, {"PIL": "cv2", "cv2": "PIL"}[library], None)
    _, windows, rows = recorded
    assert len(windows) == ROWS and replay(live, rows, windows) == ROWS * 8
    assert len(np.unique(live.observation(0, partial=True).raw("bgr"))) > 50  # images, and not frames that are bad in both


def test_bytes_come_as_any_buffer(live):
    pytest.importorskip("PIL")
    for row, kind in enumerate((bytes, bytearray, memoryview)):
        assert live.push("rgb", row * ROW_NS, kind(golden("420.jpg")))


def test_an_array_of_the_bytes_of_a_file_is_decoded(live):
    """cv2.imencode gives one, and np.frombuffer."""
    pytest.importorskip("PIL")
    for row, kind in enumerate((bytes, lambda data: np.frombuffer(data, np.uint8))):
        for name, data in (("rgb", golden("420.jpg")), ("depth", golden("depth.png"))):
            assert live.push(name, row * ROW_NS, kind(data))
    assert live.state()["rgb"]["taken"] == live.state()["depth"]["taken"] == 2
    with pytest.raises(trajd.DataError, match="^rgb: the frame cannot be decoded: "):
        live.push("rgb", 2 * ROW_NS, np.frombuffer(golden("420.jpg")[:500], np.uint8))


def test_frames_of_another_kind(live):
    with pytest.raises(ValueError, match=re.escape("rgb: a frame has the shape [29, 42, 3] and 8 bits a value, not [20, 30, 3] and 8")):
        live.push("rgb", 0, png(random_frames(1, 20, 30, 2)[0]))
    with pytest.raises(ValueError, match=re.escape("rgb: a frame has the shape [29, 42, 3] and 8 bits a value, not [29, 42, 1] and 8")):
        live.push("rgb", 0, golden("gray.jpg"))
    with pytest.raises(trajd.DataError, match="rgb: the frame cannot be decoded: a CMYK JPEG is not supported"):
        live.push("rgb", 0, golden("cmyk.jpg"))
    with pytest.raises(ValueError, match="depth: .* 16 bits a value, not .* and 8"):
        live.push("depth", 0, golden("gray.png"))
    with pytest.raises(ValueError, match="jpeg: the frame is png, the layout says encoding: jpeg"):
        live.push("jpeg", 0, golden("rgb.png"))
    for data in (golden("turned.jpg"), jpeg(29, 42, components=3, before=exif(6))):
        with pytest.raises(trajd.DataError, match="rgb: .* EXIF data say that it must be turned"):
            live.push("rgb", 0, data)
    with pytest.raises(TypeError, match=re.escape("rgb: the frame begins neither like a JPEG nor like a PNG: push pixels as an array of uint8")):
        live.push("rgb", 0, bytes(29 * 42 * 3))
    line = re.escape("for example cv2.imdecode(numpy.frombuffer(row, numpy.uint8), cv2.IMREAD_COLOR)[..., ::-1]")
    with pytest.raises(TypeError, match=f"pixels: the recordings hold pixels, so frames come as arrays of uint8 .20, 30, 3., upright and "
                                        f"with red first, {line}$"):
        live.push("pixels", 0, golden("rgb.png"))
    with pytest.raises(TypeError, match=f"pixels: the recordings hold pixels, .*{line}$"):
        live.push("pixels", 0, np.frombuffer(golden("rgb.png"), np.uint8))
    with pytest.raises(ValueError, match="encoded frames come as bytes"):
        live.push("rgb", 0, list(golden("420.jpg")))
    assert all(counts["newest_ns"] is None for counts in live.state().values())


def test_the_header_is_looked_at_before_any_pixel(live, monkeypatch):
    monkeypatch.setattr(encoded_frames, "_decoder", lambda: pytest.fail("it was decoded"))
    data = bytearray(golden("420.jpg"))
    struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, 65535, 65535)
    with pytest.raises(ValueError, match=re.escape("not [65535, 65535, 3]")):
        live.push("rgb", 0, data)


@pytest.mark.parametrize("name", ["420.jpg", "progressive.jpg", "restart.jpg", "rgb.png"])
def test_a_frame_that_is_cut_off_changes_nothing(live, name):
    pytest.importorskip("PIL")
    data = golden(name)
    for size in [*range(8, len(data), 37), len(data) - 1, len(data) - 2]:
        with pytest.raises(trajd.DataError, match="^rgb: the frame cannot be decoded: "):
            live.push("rgb", 0, data[:size])
    for cut in cut_between_scans(data) + cut_between_scans(jpeg_of_many_scans(29, 42, 3)):
        with pytest.raises(trajd.DataError, match="^rgb: the frame cannot be decoded: it was cut: some of its scans are missing"):
            live.push("rgb", 0, cut)
    assert live.state()["rgb"] == {"taken": 0, "late": 0, "repeated": 0, "busy": 0, "off_rate": 0, "newest_ns": None}
    assert live.push("rgb", 0, data)


def test_damaged_frames(live):
    data = golden("rgb.png")
    for at in range(8, len(data), 7):
        with pytest.raises(trajd.DataError, match="^rgb: the frame cannot be decoded: "):
            live.push("rgb", 0, data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    data = golden("restart.jpg")
    first, second = (data.index(marker) for marker in (b"\xff\xd0", b"\xff\xd1"))
    with pytest.raises(trajd.DataError, match="rgb: .* restart markers do not count on"):
        live.push("rgb", 0, data[:first] + data[second:])
    for data in (b"\xff\xd8\xff", b"\xff\xd8\xff\xd9", b"\xff\xd8\xff\xe1\0\x08Exif\0\0\xff\xd9", b"\x89PNG\r\n\x1a\n", b"\xff\xd8" + b"\xff" * 500):
        with pytest.raises(trajd.DataError, match="^rgb: the frame cannot be decoded: "):
            live.push("rgb", 0, data)


def test_without_pillow_and_opencv(live, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=re.escape("rgb: a frame in JPEG needs Pillow with libjpeg-turbo (pip install pillow) or OpenCV")):
        live.push("rgb", 0, golden("420.jpg"))
    assert live.push("rgb", 0, np.zeros((29, 42, 3), np.uint8))


def test_a_description_says_how_frames_are_stored(recorded, tmp_path):
    document = json.loads(recorded[0].read_text())
    streams = {stream["name"]: stream for stream in document["streams"]}
    assert streams["bgr"]["encoded"] == {"encoding": "auto", "color": "bgr", "flip": "180"}
    assert streams["depth"]["encoded"] == {"encoding": "auto", "color": "depth", "flip": "h"} and "encoded" not in streams["pixels"]
    good = streams["bgr"]["encoded"]
    for wrong in ({**good, "flip": "w"}, {**good, "color": "cmyk"}, {**good, "encoding": "raw"}, {**good, "gamma": 1}, {"flip": "h"}, [], None):
        streams["bgr"]["encoded"] = wrong
        (tmp_path / "a.live").write_text(json.dumps(document))
        with pytest.raises(trajd.ArgumentError):
            trajd.Live(tmp_path / "a.live")
