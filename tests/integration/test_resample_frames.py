"""`trajctl resample` of encoded frames: each step gets the frame of one row, as it is stored, in every form."""
import sys

import h5py
import numpy as np
import pytest

from paths import ROOT
from resample_runs import resample

sys.path.insert(0, str(ROOT / "tests/tools"))
from make_frame_files import LAYOUT, jpeg, pad, variable  # noqa: E402

STREAMS = """\
  action: {{kind: linear}}
  phase: {{kind: previous, optional: true}}
  "cams/*": {{path: images/*, kind: {kind}, image: {{color: rgb}}}}
"""
FORMS = ["padded", "strings", "variable"]


def frames(count, first=0):
    return [jpeg(size=300 + 50 * (i + first)) for i in range(count)]


def write_episode(group, counts, width):
    rows = counts[0]
    group["action"] = np.arange(rows * 2, dtype="f4").reshape(rows, 2)
    group.create_dataset("phase", data=np.arange(rows) % 3, dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, "i1"))
    images = group.create_group("images")
    stored = frames(counts[1])
    images.create_dataset("padded", data=pad(stored, width), chunks=(1, width), compression="gzip")
    images["strings"] = np.array(stored, "S4000")
    variable(images, "variable", stored)
    images["padded"].attrs["serial"] = 17
    return stored


@pytest.fixture(params=["previous", "nearest"])
def data(tmp_path, request):
    """A file with two episodes, whose padded rows have different widths; the second has one frame more than actions."""
    layout = tmp_path / "lab.yaml"
    layout.write_text(LAYOUT.format(name="lab", groups="/ep_*", streams=STREAMS.format(kind=request.param)))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        stored = [write_episode(file.create_group("ep_0"), (12, 12), 3000), write_episode(file.create_group("ep_1"), (9, 9), 3100)]
    return request.param, layout, tmp_path / "in.h5", stored


def bytes_of(dataset):
    rows = dataset[:]
    return [row if isinstance(row, bytes) else row.tobytes().rstrip(b"\0") for row in rows]


def rows_of(kind, rate, count):
    """Returns the rows that the steps of a grid at `rate` take from `count` rows at 30 Hz."""
    times = np.arange(int((count - 1) / 30 * rate + 1e-9) + 1) / rate
    return np.floor(times * 30 + (0.5 if kind == "nearest" else 0) + 1e-6).astype(int)


@pytest.mark.parametrize("rate", [10, 20, 45])
def test_each_step_has_the_frame_of_its_row(data, tmp_path, rate):
    kind, layout, path, stored = data
    out = tmp_path / "out.h5"
    resample(path, "-o", out, "--layout", layout, "--rate", rate, "--assume-rate", "--backend", "cpu")
    with h5py.File(out) as file, h5py.File(path) as source:
        for episode, rows in zip(("ep_0", "ep_1"), stored):
            picked = rows_of(kind, rate, len(rows))
            assert len(file[episode]["action"]) == len(picked)
            for form in FORMS:
                made, original = file[episode]["images"][form], source[episode]["images"][form]
                assert bytes_of(made) == [rows[i] for i in picked], form
                assert made.dtype == original.dtype and made.shape[1:] == original.shape[1:]
            assert file[episode]["images/padded"].attrs["serial"] == 17 and file[episode]["images/padded"].compression == "gzip"
            assert h5py.check_enum_dtype(file[episode]["phase"].dtype) == {"A": 0, "B": 1, "C": 2}


def test_streams_that_are_not_chosen_are_left_out(data, tmp_path):
    _, layout, path, _ = data
    out = tmp_path / "out.h5"
    resample(path, "-o", out, "--layout", layout, "--rate", 10, "--assume-rate", "--streams", "action,cams/padded", "--backend", "cpu")
    with h5py.File(out) as file:
        assert list(file["ep_0/images"]) == ["padded"]


def test_frames_cannot_be_blended_or_cast(data, tmp_path):
    _, layout, path, _ = data
    for option, rule in [(("--kind", "cams/padded=linear"), "cannot be interpolated"),
                         (("--dtype", "cams/padded=float32"), "no other type")]:
        refused = resample(path, "-o", tmp_path / "out.h5", "--layout", layout, "--rate", 10, "--assume-rate", *option, "--backend", "cpu", check=False)
        assert refused.returncode and rule in refused.stderr, refused.stderr
    assert not (tmp_path / "out.h5").exists()


def test_rows_of_a_stream_that_the_clock_does_not_count(tmp_path):
    """A set with T+1 frames: the last one has no action."""
    layout = tmp_path / "lab.yaml"
    layout.write_text(LAYOUT.format(name="lab", groups="/ep_*", streams=STREAMS.format(kind="previous")).replace(
        "clocks: {robot: {rate: 30}}", "clocks: {robot: {path: t, unit: s}}"))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        stored = write_episode(file.create_group("ep_0"), (12, 13), 3000)
        file["ep_0/t"] = np.arange(12) / 30
    out = tmp_path / "out.h5"
    resample(tmp_path / "in.h5", "-o", out, "--layout", layout, "--rate", 10, "--assume-rate", "--backend", "cpu")
    with h5py.File(out) as file:
        for form in FORMS:
            assert bytes_of(file["ep_0/images"][form]) == stored[0:12:3]
