"""Feeds of videos of several cameras, one of which has a fault; and where the library for H.264 is missing."""
import shutil
import subprocess
import zlib

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from daemons import Daemon
from paths import PROGRAM, ROOT, TRAJCTL, clean_environment
from video_groups import VIDEO, of_mp4

BAD_FRAME = 8
ROWS, GOP = 24, 6
LAYOUT = """\
layout: lab
episodes: {files: "*.h5", groups: /ep_*}
clocks: {robot: {rate: 30}}
streams:
  state: {kind: linear}
  top: {kind: previous, image: {color: rgb}}
  wrist: {kind: previous, image: {color: rgb}}
"""
FEED = """  {name}: {{dataset: {dataset}, global_batch: 4, order: sequential, {more} anchor: {{clock: robot}},
    outputs: {{state: {{at: 0}}, top: {{at: 0, image: {{resize: [24, 32]}}}}, wrist: {{at: 0, image: {{resize: [24, 32]}}}}}}}}
"""


def h264():
    return of_mp4(VIDEO / "mp4/h264.mp4", GOP)


def av1():
    return of_mp4(VIDEO / "mp4/av1.mp4", 2, "av1", b"av1C")


def write(folder, *episodes):
    """Writes a data set, whose episodes are pairs of videos."""
    folder.mkdir()
    (folder / "lab.yaml").write_text(LAYOUT)
    with h5py.File(folder / "a.h5", "w") as file:
        for e, videos in enumerate(episodes):
            group = file.create_group(f"ep_{e}")
            group["state"] = np.repeat(np.arange(ROWS, dtype="f4")[:, None], 3, 1)
            for name, video in zip(("top", "wrist"), videos):
                video.write(group.create_group(name))
    return f"  {folder.name}: {{path: {folder}/a.h5, layout: {folder}/lab.yaml}}\n"


def read(one, feed):
    """Returns {(episode, row): (masks, images) of both cameras} of an epoch, and the errors of batches."""
    client = one.client(timeout_ms=60_000)
    client.open(feed)
    found, errors = {}, []
    while True:
        try:
            batch = client.next()
        except trajd.TrajdError as error:
            errors.append(str(error))
            assert len(errors) <= 2 * ROWS
            continue
        if batch is None:
            client.close()
            return found, errors
        arrays = batch.copy()
        batch.release()
        for w, episode in enumerate(arrays["episode_index"]):
            found[int(episode), int(arrays["state"][w, 0, 0])] = [(int(arrays[f"{name}.mask"][w, 0]), arrays[name][w, 0]) for name in ("top", "wrist")]


def test_one_camera_has_a_damaged_packet(daemon, tmp_path):
    """The crc32 is right, so only the decoder sees it. The other camera's frames of these steps are right."""
    damaged = h264()
    damaged.packets[8] = damaged.packets[8][:5] + bytes(len(damaged.packets[8]) - 5)
    damaged.table[8, 2] = zlib.crc32(damaged.packets[8])
    bad = [(1, row) for row in range(8, 12)]  # from the packet to the end of its unit
    datasets = write(tmp_path / "whole", (h264(), av1()), (av1(), h264())) + write(tmp_path / "lab", (h264(), av1()), (av1(), damaged))
    feeds = "".join(FEED.format(name=name, dataset=dataset, more=more) for name, dataset, more in
                    (("whole", "whole", ""), ("default", "lab", ""), ("kept", "lab", "bad_rows: keep,")))
    one = daemon(f"datasets:\n{datasets}feeds:\n{feeds}")
    whole, errors = read(one, "whole")
    assert not errors and len(whole) == 2 * ROWS and all(mask == 0 for cameras in whole.values() for mask, _ in cameras)

    found, errors = read(one, "default")
    assert len(errors) == 1 and "batch default/0/32: " in errors[0]
    assert "a.h5: ep_1/wrist: row 8: packet 2 of its decode unit: " in errors[0] and "(`bad_rows: keep` of the feed masks such frames)" in errors[0]
    assert whole.keys() - found.keys() == set(bad)

    kept, errors = read(one, "kept")
    assert not errors and kept.keys() == whole.keys()
    assert [key for key in sorted(kept) if kept[key][1][0] == BAD_FRAME] == bad
    assert one.text().count("warning: feed kept: ") == 1 and "/lab/a.h5: ep_1/wrist: row 8: packet 2" in one.text().split("warning: feed kept: ")[1]
    for some in (found, kept):
        for key, cameras in some.items():
            for camera, (mask, image) in enumerate(cameras):
                if camera == 0 or key not in bad:
                    assert mask == 0
                    np.testing.assert_array_equal(image, whole[key][camera][1])


@pytest.fixture
def without_module(tmp_path):
    """The programs of the build in a folder that lacks the module with libavcodec."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for program in (PROGRAM, TRAJCTL, PROGRAM.parent / "decode/trajd-decoder", PROGRAM.parent / "hdf5/trajd-indexer"):
        shutil.copy2(program, folder)
    shutil.copytree(ROOT / "configs/layouts", folder / "configs/layouts")
    return folder


def test_without_the_library_for_h264(started, tmp_path, without_module):
    datasets = write(tmp_path / "av1", (av1(), av1())) + write(tmp_path / "mixed", (av1(), h264()))
    feeds = "".join(FEED.format(name=name, dataset=dataset, more=more) for name, dataset, more in
                    (("av1", "av1", ""), ("mixed", "mixed", ""), ("kept", "mixed", "bad_rows: keep,")))
    one = started(Daemon(tmp_path / "daemon", f"datasets:\n{datasets}feeds:\n{feeds}", program=without_module / "trajd"))
    found, errors = read(one, "mixed")
    assert not found and len(errors) == ROWS / 4
    for error in errors:
        assert "a.h5: ep_0/wrist: row " in error and "H.264 and HEVC: they need the package libavcodec" in error
        assert "trajd-decoder-avcodec.so, which is missing" in error
    whole, errors = read(one, "av1")
    assert not errors and len(whole) == ROWS
    kept, errors = read(one, "kept")
    assert not errors and kept.keys() == whole.keys()
    for key, (top, wrist) in kept.items():
        assert top[0] == 0 and wrist[0] == BAD_FRAME
        np.testing.assert_array_equal(top[1], whole[key][0][1])
    done = subprocess.run([without_module / "trajctl", "doctor", "--seconds", "1"], capture_output=True, text=True, timeout=120, env=clean_environment())
    line, = (line for line in done.stdout.splitlines() if line.split()[1:2] == ["video"])
    assert "AV1: dav1d" in line and "H.264 and HEVC: they need the package libavcodec" in line
