"""Each shipped layout on a file of its family: every row of every stream equals h5py's reading, frames byte for byte."""
import json
import subprocess
import sys

import h5py
import numpy as np
import pytest

import families
from paths import RECORDINGS, ROOT, TRAJCTL

sys.path.insert(0, str(ROOT / "tests/tools"))
from make_frame_files import rows_of  # noqa: E402

WHOLE_FILES = ("aloha", "droid_raw", "droid_im", "robomind", "robotwin", "robotwin_bgr")
DATASET = "datasets: {{lab: {{path: {path}, layout: {layout}}}}}\nfeeds:\n"
FEED = """\
  {clock}:
    dataset: lab
    global_batch: 8
    tail: short
    anchor: {{clock: {clock}}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
{outputs}
"""
MADE = [("aloha", "aloha", {}), ("aloha", "aloha", {"compress": True}), ("robotwin", "robotwin", {}), ("robotwin", "robotwin_bgr", {}),
        ("robomind", "robomind", {}), ("libero", "libero", {}), ("robomimic", "robomimic", {}), ("mimicgen", "mimicgen", {}),
        ("isaaclab", "isaaclab", {}), ("maniskill", "maniskill", {}), ("minari", "minari", {}), ("droid_raw", "droid_raw", {}),
        ("droid_im", "droid_im", {})]
SHARED = [("images/act_raw.hdf5", "aloha"), ("images/mobile_aloha.hdf5", "aloha"), ("images/libero.hdf5", "libero"),
          ("images/robomimic_image84.hdf5", "robomimic"), ("images/robomimic_image84_gzip.hdf5", "robomimic"),
          ("images/robomind.hdf5", "robomind"), ("images/maniskill_rgbd.h5", "maniskill"), ("images/droid_im128.h5", "droid_im"),
          ("images/robotwin.hdf5", "robotwin_bgr"), ("robosuite_lift_panda_demo.hdf5", "robosuite_raw"),
          ("robosuite_SawyerLift_demo.hdf5", "robosuite_raw")]
# The two files of Minari there have no observation behind the last action, unlike Minari's own: test_pack.py reads their frames.


def inspect(path, layout):
    done = subprocess.run([TRAJCTL, "inspect", "--json", "--layout", layout, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[0]


def groups_of(file, layout, document):
    """Returns the groups of the episodes, in the order of the index."""
    if layout in WHOLE_FILES:
        return [file["/"]]
    return [(file["data"] if "data" in file else file)[episode["id"]] for episode in document["episodes"]]


def is_encoded(stream):
    return any(form in stream["storage"] for form in ("padded", "strings", "variable length"))


def columns_of(dataset, stream):
    """Returns h5py's rows in the stream's type and shape: those of a stream of some columns are found by their names in the layouts."""
    rows, shape = dataset[:], stream["row_shape"]
    if list(rows.shape[1:]) == shape:
        return rows
    first = {"position": 0, "eef_position": 0, "orientation": 3, "eef_euler": 3}[stream["name"].split("/")[-1]]
    return rows[:, first:first + shape[0]]


def streams_of(document, clock):
    return [s for s in document["streams"] if not is_encoded(s) and s["clock"] == clock]


def start(daemon, path, layout, document, clocks):
    """Starts a daemon with a feed for each clock."""
    config = DATASET.format(path=path, layout=layout)
    for clock in clocks:
        outputs = [f'      o{i}: {{from: "{s["name"]}", at: 0, dtype: {s["dtype"]}}}' for i, s in enumerate(streams_of(document, clock))]
        config += FEED.format(clock=clock, outputs="\n".join(outputs))
    return daemon(config)


def compare_rows(one, path, layout, document, clock):
    """Compares the streams of one clock, at the rows of that clock."""
    streams = streams_of(document, clock)
    client = one.client()
    info = client.open(clock)
    with h5py.File(path) as file:
        groups = groups_of(file, layout, document)
        expected = [[columns_of(group[s["dataset"]], s) for s in streams] for group in groups]
    counts = [min(map(len, rows)) for rows in expected]
    offsets, compared = np.cumsum([0] + counts), 0
    assert info.window_count == sum(counts)
    for _, arrays in client.epoch():
        for w, window in enumerate(arrays["window_id"].tolist()):
            episode = int(arrays["episode_index"][w])
            for i, stream in enumerate(streams):
                got, row = arrays[f"o{i}"][w, 0], expected[episode][i][window - offsets[episode]]
                np.testing.assert_array_equal(got.reshape(np.shape(row)), row, err_msg=f"{stream['name']} of episode {episode}")
            compared += 1
    client.close()
    assert compared == sum(counts)


def compare_frames(tmp_path, path, layout, document):
    """Frames as `trajctl pack` reads them."""
    out = tmp_path / "packed.hdf5"
    done = subprocess.run([TRAJCTL, "pack", path, "-o", out, "--layout", layout], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with h5py.File(path) as before, h5py.File(out) as after:
        for group, packed in zip(groups_of(before, layout, document), groups_of(after, layout, document)):
            for stream in filter(is_encoded, document["streams"]):
                assert rows_of(packed[stream["dataset"]]) == rows_of(group[stream["dataset"]]), stream["name"]


def compare_all(daemon, tmp_path, path, layout):
    document = inspect(path, layout)
    assert document["kept_count"] == document["episode_count"]
    clocks = sorted({s["clock"] for s in document["streams"] if not is_encoded(s)})
    one = start(daemon, path, layout, document, clocks) if clocks else None
    for clock in clocks:
        compare_rows(one, path, layout, document, clock)
    if any(map(is_encoded, document["streams"])):
        compare_frames(tmp_path, path, layout, document)


@pytest.mark.parametrize("family, layout, options", MADE)
def test_made_files(daemon, tmp_path, family, layout, options):
    path = tmp_path / f"{family}.hdf5"
    getattr(families, family)(path, **options)
    compare_all(daemon, tmp_path, path, layout)


@pytest.mark.parametrize("name, layout", SHARED)
def test_files_of_public_recorders(daemon, tmp_path, name, layout):
    if not (RECORDINGS / name).exists():
        pytest.skip(f"there is no {RECORDINGS / name}")
    compare_all(daemon, tmp_path, RECORDINGS / name, layout)
