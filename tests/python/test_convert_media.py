"""Feeds of videos by reference, whose MP4 files change while the daemon runs. The frames of a file that is not what was converted are
never made of other bytes: they are reported with file and episode. All others are right."""
import os
import re
import shutil

import h5py
import numpy as np
import pytest
from paths import ROOT

import libtrajd
from trajd.convert.__main__ import main

SET = ROOT / "tests/golden/video/lerobot/v30_av1"
BAD_FRAME = 8
CAMERAS = ("top", "wrist")
# The store has room for a seventh of the frames.
CONFIG = """
datasets: {{set: {{path: {folder}/set.hdf5, layout: lerobot}}}}
feeds:
  train:
    dataset: set
    global_batch: 3
    tail: short
    order: sequential
    bad_rows: {bad_rows}
    anchor: {{clock: steps}}
    outputs:
      top: {{from: observation/images/top, at: 0, image: {{resize: [48, 64]}}}}
      wrist: {{from: observation/images/wrist, at: 0, image: {{resize: [48, 64]}}}}
"""


@pytest.fixture
def converted(tmp_path):
    """Returns the folder of a set by reference, a media file of the camera `top`, and its episodes."""
    shutil.copytree(SET, tmp_path / "set")
    assert main(["lerobot", str(tmp_path / "set"), "-o", str(tmp_path / "set.hdf5"), "--reference"]) == 0
    with h5py.File(tmp_path / "set.hdf5") as file:
        media = {name: group["observation/images/top"].attrs["media"] for name, group in file["data"].items()}
    first = media["episode_000000"]
    concerned = {number for number, name in enumerate(sorted(media)) if media[name] == first}
    assert 0 < len(concerned) < len(media)
    return tmp_path, tmp_path / first, concerned


def shrink(media):
    os.truncate(media, media.stat().st_size // 3)


def replace(media):
    """By the file of the other camera, made as long as this one."""
    size = media.stat().st_size
    other = media.parents[2] / "observation.images.wrist/chunk-000" / media.name
    content = other.read_bytes()[:size]
    media.with_name("new").write_bytes(content + bytes(size - len(content)))
    media.with_name("new").rename(media)


def overwrite(media):
    """In place, with its size."""
    with open(media, "r+b") as file:
        file.seek(media.stat().st_size // 4)
        file.write(bytes(media.stat().st_size // 2))


def fifo(media):
    media.unlink()
    os.mkfifo(media)


def leave(media):
    """By a link to the same bytes, outside the folder of the data set."""
    outside = media.parents[5] / f"{media.parents[4].name}_outside.mp4"
    media.rename(outside)
    media.symlink_to(outside)


def folder(media):
    media.unlink()
    media.mkdir()


def take_folder_away(media):
    media.parent.rename(media.parent.with_name("away"))


CHANGES = {shrink: "changed while it was in use", replace: "changed while it was in use", overwrite: "changed while it was in use",
           os.unlink: "No such file or directory", fifo: "it is not a regular file", folder: "it is not a regular file",
           leave: "a symbolic link, which is not followed", take_folder_away: "No such file or directory"}


def read(client, epoch):
    """Returns {(episode, frame in it): (mask and image of each camera, window)}, and the errors of batches."""
    client.open("train", epoch=epoch)
    found, errors, counts = {}, [], {}
    while True:
        try:
            batch = client.next()
        except libtrajd.TrajdError as error:
            errors.append(error)
            assert len(errors) < 100
            continue
        if batch is None:
            return found, errors
        arrays = batch.copy()
        batch.release()
        for w, episode in enumerate(arrays["episode_index"]):
            row = counts[int(episode)] = counts.get(int(episode), -1) + 1
            found[int(episode), row] = [(int(arrays[f"{name}.mask"][w, 0]), arrays[name][w, 0]) for name in CAMERAS], int(arrays["window_id"][w])


def assert_equal(found, expected):
    for (mask, image), (_, other) in zip(found, expected):
        assert mask == 0
        np.testing.assert_array_equal(image, other)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_frames_of_a_changed_file_are_masked(daemon, converted, change):
    path, media, concerned = converted
    one = daemon(CONFIG.format(folder=path, bad_rows="keep"), folder="daemon", store="1MiB")
    client = one.client(timeout_ms=60_000)
    before, errors = read(client, 0)
    assert not errors and len(before) == 75 and all(mask == 0 for cameras, _ in before.values() for mask, _ in cameras)
    change(media)
    after, errors = read(client, 1)
    assert not errors and after.keys() == before.keys()
    bad = {key for key, (cameras, _) in after.items() if cameras[0][0] == BAD_FRAME}
    if change is take_folder_away:  # it has the camera's other file, too
        concerned = {episode for episode, _ in before}
    assert bad and {episode for episode, _ in bad} <= concerned
    # frames that were read ahead of the change are as before
    assert len(bad) > sum(episode in concerned for episode, _ in before) / 4
    for key, (cameras, window) in after.items():
        assert_equal(cameras[key in bad:], before[key][0][key in bad:])
    told, = re.findall("warning: feed train: (.*)", one.text())
    assert re.search(rf"set.hdf5: episode_00000[{''.join(map(str, concerned))}]/.*images/top: media file set/videos/.*{CHANGES[change]}", told)
    episode, row = max(bad)
    source, = client.ask("explain", window=after[episode, row][1], name="top")["outputs"][0]["items"][0]["sources"]
    assert re.search(rf"set.hdf5: .*episode_00000{episode}.*images/top: media file set/videos/.*{CHANGES[change]}", source["reason"]), source
    client.close()


@pytest.mark.parametrize("change", [shrink, fifo, leave], ids=lambda change: change.__name__)
def test_a_trainer_gets_the_error_and_the_other_batches(daemon, converted, change):
    """By default, a batch with such a frame is an error. When the file is back, an epoch of which no batch was made ahead is whole."""
    path, media, concerned = converted
    one = daemon(CONFIG.format(folder=path, bad_rows="error"), folder="daemon", store="1MiB")
    client = one.client(timeout_ms=60_000)
    before, errors = read(client, 0)
    assert not errors and len(before) == 75
    os.link(media, path / "kept")
    change(media)
    after, errors = read(client, 1)
    assert errors and all(re.search(rf"batch train/1/\d+: .*set.hdf5: .*episode_00000[{''.join(map(str, concerned))}]", str(error))
                          and CHANGES[change] in str(error) for error in errors)
    assert 3 * len(errors) - 2 <= len(before) - len(after) <= 3 * len(errors)
    if change is not shrink:
        os.link(path / "kept", path / "back")
        os.replace(path / "back", media)
        read(client, 2)
        again, errors = read(client, 3)
        assert not errors and again.keys() == before.keys()
        for key, (cameras, _) in again.items():
            assert_equal(cameras, before[key][0])
    client.close()
