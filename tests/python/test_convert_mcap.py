"""trajd.convert mcap: recordings of the projects' own writers, against what their own readers read (tests/golden/mcap)."""
import io
import json
import re
import sys

import h5py
import numpy as np
import pytest
from paths import ROOT

pytest.importorskip("rosbags", reason="rosbags needs Python 3.10")
from trajd.convert.__main__ import main  # noqa: E402

GOLDEN = ROOT / "tests/golden/mcap"
VECTORS = np.load(GOLDEN / "vectors.npz")
START_CODE = re.compile(rb"\x00\x00+\x01")


def run(files, output, *options):
    """Converts, and returns the exit status, the lines of the summary and those of stderr."""
    out, err = io.StringIO(), io.StringIO()
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        status = main(["mcap", *map(str, files), "-o", str(output), *map(str, options)])
    finally:
        sys.stdout, sys.stderr = kept
    return status, out.getvalue().splitlines(), err.getvalue().strip()


def converted(files, output, *options):
    status, lines, err = run(files, output, *options)
    assert (status, err) == (0, ""), err
    return lines


def rows_of_images(group):
    """Returns the rows of packed images or video, as bytes. Video has lengths in the place of start codes."""
    if "offsets" in group:
        data, offsets = group["bytes"][()].tobytes(), group["offsets"][()]
        return [data[begin:end] for begin, end in zip(offsets[:-1], offsets[1:])]
    data = group["bytes"][()].tobytes()
    return [data[position:position + size] for position, size, _ in group["packets"][()][group["rows"][()]]]


def nal_units(packet):
    units = []
    while packet:
        size = int.from_bytes(packet[:4], "big")
        units.append(packet[4:4 + size])
        packet = packet[4 + size:]
    return units


@pytest.mark.parametrize("name", sorted({key.partition("|")[0] for key in VECTORS}))
def test_values_are_those_of_the_projects_own_readers(name, tmp_path):
    converted([GOLDEN / name], tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        episode = file["data/episode_000000"]
        expected = {key.partition("|")[2]: VECTORS[key] for key in VECTORS if key.startswith(f"{name}|")}
        for path, values in expected.items():
            if path.endswith("/sizes"):
                continue
            if path.endswith("/image"):
                ends = np.cumsum(expected[path.replace("/image", "/sizes")])
                images = [part.tobytes() for part in np.split(values, ends[:-1])]
                if path == "camera/video/image":
                    assert [nal_units(packet) for packet in rows_of_images(episode[path])] == [START_CODE.split(one)[1:] for one in images]
                else:
                    assert rows_of_images(episode[path]) == images
            else:
                assert episode[path].dtype.kind == values.dtype.kind and np.array_equal(episode[path][()], values), path
        found = []
        episode.visititems(lambda path, one: found.append(re.sub(r"/image/.*", "/image", path)) if isinstance(one, h5py.Dataset) else None)
        assert set(found) == {path for path in expected if not path.endswith("/sizes")}  # nothing but what the readers read
