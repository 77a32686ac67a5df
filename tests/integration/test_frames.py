"""Encoded frames (JPEG, PNG) in files, by the layout key `image`: what inspect, validate, check and init say about them."""
import json
import subprocess
import sys

import h5py
import numpy as np
import pytest

from paths import ROOT, TRAJCTL

sys.path.insert(0, str(ROOT / "tests/tools"))
from make_frame_files import LAYOUT, jpeg, packed, pad, png, variable  # noqa: E402

ROWS = 12
STREAMS = """\
  action: {kind: previous}
  "cams/*": {path: images/*, kind: previous, image: {color: rgb}}
  "depth/*": {path: depth/*, kind: nearest, image: {unit: mm}}
"""


def run(*arguments):
    return subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=60)


@pytest.fixture
def layout(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(LAYOUT.format(name="lab", groups="/", streams=STREAMS))
    return path


def write(path, **images):
    with h5py.File(path, "w") as file:
        file["action"] = np.arange(ROWS * 2, dtype="f4").reshape(ROWS, 2)
        for name, rows in images.items():
            parent = file.require_group("depth" if name == "distance" else "images")
            if isinstance(rows, list):
                variable(parent, name, rows)
            else:
                parent[name] = rows
    return path


def frames(**options):
    return [jpeg(size=400 + 40 * i, **options) for i in range(ROWS)]


def findings(layout, path):
    return [(f["stream"], f["row"], f["count"], f["message"])
            for f in json.loads(run("validate", "--json", "--layout", layout, path).stdout) if f["rule"] == "frames"]


def test_inspect_shows_how_frames_are_stored(tmp_path, layout):
    path = write(tmp_path / "a.h5", front=pad(frames()), wrist=frames(height=48, progressive=True),
                 side=np.array(frames(), "S2000"), distance=[png() for _ in range(ROWS)])
    text = run("inspect", "--layout", layout, path).stdout
    assert "jpeg 24x32 rgb (layout), padded, contiguous" in text
    assert "jpeg 48x32 rgb (layout), variable length, contiguous" in text
    assert "jpeg 24x32 rgb (layout), strings, contiguous" in text
    assert "png 24x32 depth, variable length, contiguous" in text
    streams = {s["name"]: s for s in json.loads(run("inspect", "--json", "--layout", layout, path).stdout)[0]["streams"]}
    assert streams["cams/front"]["row_shape"] == [24, 32, 3] and streams["cams/front"]["dtype"] == "u8"
    assert streams["depth/distance"]["row_shape"] == [24, 32, 1] and streams["depth/distance"]["dtype"] == "u16"


def test_validate_names_each_bad_row(tmp_path, layout):
    rows = frames()
    rows[2] = rows[9] = b""
    rows[4] = jpeg(height=25)
    rows[7] = rows[7][:20]
    path = write(tmp_path / "a.h5", front=rows, wrist=frames())
    assert findings(layout, path) == [
        ("cams/front", 2, 2, "2 empty frames, the first is row 2"),
        ("cams/front", 4, 2, "2 frames cannot be decoded, the first is row 4: a jpeg of 25x32, the others have 24x32")]


def test_validate_goes_on_after_a_reference_that_leads_nowhere(tmp_path, layout):
    path = write(tmp_path / "a.h5", front=frames(), wrist=frames())
    with h5py.File(path) as file:
        place = file["images/front"].id.get_offset()
    with open(path, "r+b") as file:
        file.seek(place + 16 * 5 + 4)
        file.write((1 << 40).to_bytes(8, "little"))
    [(stream, row, count, text)] = findings(layout, path)
    assert (stream, row, count) == ("cams/front", 5, 1) and "row 5: its reference" in text and "beyond the file" in text


def test_a_first_frame_that_is_bad_quarantines_its_episode(tmp_path, layout):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data/good.hdf5", front=frames())
    write(tmp_path / "data/not_a_image.hdf5", front=[b"text " * 20] * ROWS)
    write(tmp_path / "data/empty.hdf5", front=np.zeros((ROWS, 90), "u1"))
    write(tmp_path / "data/gray.hdf5", front=frames(components=1))
    [found] = json.loads(run("inspect", "--json", "--layout", layout, tmp_path / "data").stdout)
    reasons = {e["file"]: e["quarantine"] for e in found["episodes"]}
    assert found["kept_count"] == 1 and reasons["good.hdf5"] is None
    assert "images/front: row 0: 100 bytes that begin neither like a JPEG nor like a PNG" in reasons["not_a_image.hdf5"]
    assert "images/front: the first 12 rows are empty" in reasons["empty.hdf5"]
    assert "images/front: row 0: a jpeg in grey, the layout says rgb" in reasons["gray.hdf5"]


def write_packed(path, spoil=None, **attributes):
    with h5py.File(path, "w") as file:
        file["action"] = np.zeros((ROWS, 2), "f4")
        packed(file, "images/front", frames(), **attributes)
        if spoil:
            spoil(file["images/front"])
    return path


def test_packed_frames_are_a_group_in_place_of_a_dataset(tmp_path, layout):
    path = write_packed(tmp_path / "a.h5", color="rgb", flip="none")
    assert "jpeg 24x32 rgb (layout), packed, contiguous" in run("inspect", "--layout", layout, path).stdout
    assert findings(layout, path) == []


def replace(name, data, **options):
    def spoil(group):
        del group[name]
        group.create_dataset(name, data=data, **options)
    return spoil


def shorten(group):
    group["offsets"][-1] += 1


def turn_back(group):
    group["offsets"][5] = 1


@pytest.mark.parametrize("spoil, attributes, rule", [
    (None, {"color": "bgr"}, "its attribute color is bgr, the layout says rgb"),
    (None, {"flip": "v"}, "its attribute flip is v, the layout says none"),
    (None, {"unit": "mm"}, "its attribute unit is mm, the layout says none"),
    (replace("offsets", np.arange(ROWS + 1, dtype="u4")), {}, "its dataset offsets must be i64"),
    (replace("offsets", np.zeros(0, "i8")), {}, "one entry more than there are frames"),
    (replace("offsets", np.zeros((ROWS + 1, 1), "i8")), {}, "its dataset offsets must be of one axis"),
    (replace("bytes", np.ones(9000, "u1"), compression="gzip"), {}, "without compression"),
    (shorten, {}, "row 11: it ends at"),
    (turn_back, {}, "row 4: offsets do not ascend"),
])
def test_packed_frames_that_cannot_be_read(tmp_path, layout, spoil, attributes, rule):
    path = write_packed(tmp_path / "a.h5", spoil, **attributes)
    done = run("validate", "--json", "--layout", layout, path)
    assert rule in done.stdout + done.stderr


CONFIG = """\
version: 2
datasets: {{lab: {{path: {path}, layout: {layout}}}}}
feeds:
  one:
    dataset: lab
    global_batch: 1
    anchor: {{clock: robot}}
    outputs:
      action: {{at: 0..3}}
{outputs}"""


def check(tmp_path, layout, path, outputs=""):
    (tmp_path / "trajd.yaml").write_text(CONFIG.format(path=path, layout=layout, outputs=outputs))
    return run("check", tmp_path / "trajd.yaml")


def test_a_feed_takes_encoded_frames(tmp_path, layout):
    path = write(tmp_path / "a.h5", front=pad(frames()))
    assert check(tmp_path, layout, path).returncode == 0
    taken = check(tmp_path, layout, path, "      cams/front: {at: 0}\n")
    assert taken.returncode == 0 and "cams/front" in taken.stdout


def test_another_size_leaves_out_only_feeds_that_use_the_stream(tmp_path, layout):
    (tmp_path / "data").mkdir()
    for i in range(3):
        write(tmp_path / f"data/{i}.hdf5", front=pad(frames(), 2000 + i))
    write(tmp_path / "data/other.hdf5", front=frames(height=48))
    [found] = json.loads(run("inspect", "--json", "--layout", layout, tmp_path / "data").stdout)
    assert found["kept_count"] == 4
    [note] = found["notes"]
    assert "other.hdf5: images/front: its rows are encoded frames of 48x32x3 with 8 bits" in note
    assert "encoded frames of 24x32x3 with 8 bits, the shape of 3 of 4 episodes, is kept" in note
    done = check(tmp_path, layout, tmp_path / "data")
    assert done.returncode == 0 and "(4 of 4 kept)" in done.stdout, done.stdout


def test_without_the_key_they_are_numbers_or_refused(tmp_path, layout):
    layout.write_text(layout.read_text().replace(", image: {color: rgb}", ""))
    path = write(tmp_path / "a.h5", front=pad(frames(), 2000), wrist=frames(), side=np.array(frames(), "S2000"))
    [found] = json.loads(run("inspect", "--json", "--layout", layout, path).stdout)
    shapes = {s["name"]: s["row_shape"] for s in found["streams"]}
    assert shapes["cams/front"] == [2000] and "cams/wrist" not in shapes
    assert any("images/side: left out: a string type is not supported, except for frames: a stream with the key image" in n for n in found["notes"])
    assert any("images/wrist: left out: a variable-length type is not supported, except for frames" in n for n in found["notes"])


def test_raw_frames_have_the_shape_that_the_layout_says(tmp_path, layout):
    layout.write_text(layout.read_text().replace("color: rgb", "color: rgb, size: [24, 32]"))
    assert "contiguous" in run("inspect", "--layout", layout, write(tmp_path / "a.h5", front=np.ones((ROWS, 24, 32, 3), "u1"))).stdout
    for rows, rule in [(np.ones((ROWS, 24, 30, 3), "u1"), "its frames are 24x30, the layout says 24x32"),
                       (np.ones((ROWS, 24, 32, 4), "u1"), "the shape (T, height, width, 3) and type uint8"),
                       (np.ones((ROWS, 24, 32, 3), "f4"), "and this is f32 of rank 4")]:
        refused = run("inspect", "--layout", layout, write(tmp_path / "b.h5", front=rows))
        assert refused.returncode != 0 and rule in refused.stderr, refused.stderr
