"""Images in GPU memory, on the simulated GPU: the batches are those of the CPU, frames come to the GPU once, and what has
no room there travels with each batch. tests/gpu does the same with a real GPU."""
import os
import re
import subprocess
import textwrap
import threading

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from daemons import FAKE_PROGRAM, GpuDaemon
from fake_gpu import UUID, collect
from paths import BUILD
from image_files import random_frames, write_encoded
from video_groups import VIDEO, of_mp4
from waiting import wait_for

FEED = """
gpu: {{devices: all, rows: {rows}, rings: 64MiB, fall_back: {fall_back}}}
threads: {{decoders: 1}}
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: 5
    tail: short
    seed: 3
    slots: 4
    {more}
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: {pad}}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      obs/top: {{from: observations/images/top, at: -1..0, image: {{resize: [40, 61], filter: nearest}}, layout: chw, norm: imagenet}}
      obs/half: {{from: observations/images/top, at: 0, image: {{resize: [40, 61], filter: nearest}}, norm: signed, dtype: float16}}
      obs/wrist:
        from: observations/images/wrist
        at: -1..0
        image: {{resize: [17, 13], filter: nearest, augment: [{{crop: [9, 11]}}, {{brightness: [0.8, 1.2]}}]}}
        layout: chw
      obs/again:
        from: observations/images/wrist
        at: 0
        image: {{resize: [17, 13], filter: nearest, augment: [{{crop: [9, 11]}}, {{brightness: [0.8, 1.2]}}]}}
        layout: chw
      action: {{at: 0..1}}
"""
IMAGES = ("obs/top", "obs/half", "obs/wrist", "obs/again")


@pytest.fixture
def arm(tmp_path):
    for e in range(2):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(9, 48, 64, e), "wrist": random_frames(9, 40, 40, 5 + e)})
    return tmp_path


@pytest.fixture
def make(tmp_path, started):
    def start(path, rows="64MiB", pad="edge", more="", fake="", store="64MiB", fall_back="false", action="at: 0..1"):
        config = FEED.format(path=path, rows=rows, pad=pad, more=more, fall_back=fall_back).replace("at: 0..1}", action + "}")
        daemon = GpuDaemon(tmp_path / "run", textwrap.dedent(config), program=FAKE_PROGRAM, store=store)
        daemon.fake = fake
        return started(daemon)

    return start


def both(daemon, epochs=2, windows=18, **options):
    """Reads epochs in host memory and on the GPU, and compares all tensors. Returns the batches of the last epoch, and the
    status."""
    here, there = daemon.client(), daemon.client()
    for epoch in range(epochs):
        here.open("train", job="here", epoch=epoch)
        info = there.open("train", job="there", epoch=epoch, gpu=UUID, **options)
        assert info.gpu_refusal is None and info.gpu == UUID.encode()
        host, device = dict(here.epoch()), collect(there)
        assert host.keys() == device.keys() and sum(len(arrays["window_id"]) for arrays in host.values()) == windows
        for position, arrays in host.items():
            assert arrays.keys() == device[position].keys() and set(IMAGES) < arrays.keys()
            for name, array in arrays.items():
                assert array.tobytes() == device[position][name].tobytes(), (name, position)
    status = there.status()
    here.close()
    there.close()
    return host, status


def images_of(status):
    return {item["path"].split("/")[-1]: item for item in status["gpus"][0]["resident"] if "frames" in item}


def test_the_same_batches_as_in_host_memory(make, arm):
    daemon = make(arm, fake="slow=300")
    batches, status = both(daemon)
    assert any(arrays["obs/wrist.augment"].any() for arrays in batches.values())
    found = images_of(status)
    assert found["top"]["frames"] == found["top"]["resident_frames"] == 18 == found["wrist"]["resident_frames"]
    told = subprocess.run([BUILD / "clients/cli/trajctl", "status", "--endpoint", daemon.endpoint], capture_output=True, text=True, check=True,
                          env=daemon.environment()).stdout
    assert re.search("images/top +0.1 MiB on gpu, [0-9] feeds, 18 of 18 frames are there", told), told
    assert found["top"]["place"] == "gpu" and found["top"]["bytes"] >= 18 * 40 * 61 * 3
    # obs/wrist and obs/again are made alike: one launch
    assert [int(line.split(" images a batch")[0].split()[-1]) for line in daemon.text().splitlines() if "images a batch" in line] == [10, 5, 15]


def test_relative_actions_beside_images(make, arm):
    both(make(arm, fake="slow=300", action="at: 0..7, relative_to: observations/qpos, norm: {by: mean_std, per: step}"))


def test_frames_that_do_not_fit_travel_with_the_batch(make, arm):
    """Some frames of one camera stay on the GPU, and almost none of the other."""
    _, status = both(make(arm, rows="64KiB"))
    found = images_of(status)
    assert 4 < found["top"]["resident_frames"] < 12 and found["wrist"]["resident_frames"] < 12
    assert status["gpus"][0]["rows_bytes"] <= 65536


@pytest.mark.parametrize("rows", ["64MiB", "64KiB"])
def test_frames_of_videos(make, tmp_path, rows):
    """The store has room for some of the frames only, so that units are decoded again in each epoch."""
    for e in range(2):
        path = tmp_path / f"episode_{e}.hdf5"
        write_encoded(path, {name: random_frames(24, 48, 64, e) for name in ("top", "wrist")})
        with h5py.File(path, "r+") as file:
            for name, video in (("top", of_mp4(VIDEO / "mp4/h264.mp4", 6)), ("wrist", of_mp4(VIDEO / "mp4/av1.mp4", 2, "av1", b"av1C"))):
                for old in [key for key in file["observations/images"] if key.startswith(name)]:
                    del file["observations/images"][old]
                video.write(file.create_group(f"observations/images/{name}"))
    batches, status = both(make(tmp_path, rows=rows, store="256KiB"), windows=48)
    assert not any(arrays[f"{name}.mask"].any() for arrays in batches.values() for name in ("obs/half", "obs/again"))
    assert len({arrays["obs/half"][0].tobytes() for arrays in batches.values()}) > 1
    frames = status["datasets"][0]["frames"]
    assert frames["bad"] == 0 and frames["decoded"] > (2 * 48 if rows == "64KiB" else 0)


def test_rows_of_one_rank(make, arm):
    """The daemon of a node makes the rows of its ranks alone."""
    daemon = make(arm)
    here, there = daemon.client(), daemon.client()
    ranks = {"mode": trajd.SHARD, "rank": 1, "world": 2, "local": [1]}
    here.open("train", job="here", **ranks)
    there.open("train", job="there", gpu=UUID, **ranks)
    host, device = dict(here.epoch()), collect(there)
    assert host.keys() == device.keys() == {0, 5, 10, 15} and len(host[0]["window_id"]) == 3
    for position, arrays in host.items():
        for name, array in arrays.items():
            assert array.tobytes() == device[position][name].tobytes(), (name, position)
    here.close()
    there.close()


@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_steps_without_a_frame(make, arm, pad):
    batches, _ = both(make(arm, pad=pad))
    masks = np.concatenate([arrays["obs/top.mask"] for arrays in batches.values()])
    assert (masks[:, 0] == 1).any() and not masks[:, 1].any()


def test_bad_frames(make, tmp_path):
    for e in range(2):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(9, 48, 64, e), "wrist": random_frames(9, 40, 40, 5 + e)},
                      bad=[("wrist", 4)] if e else ())
    batches, _ = both(make(tmp_path, more="bad_rows: keep"))
    masks = np.concatenate([arrays["obs/again.mask"] for arrays in batches.values()])
    assert (masks == 8).sum() == 1


def test_a_bad_frame_is_an_error(make, tmp_path):
    for e in range(2):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(9, 48, 64, e), "wrist": random_frames(9, 40, 40, 5 + e)},
                      bad=[("wrist", 4)] if e else ())
    client = make(tmp_path).client()
    client.open("train", gpu=UUID)
    with pytest.raises(Exception, match="episode_1.hdf5.*wrist"):
        collect(client)
    client.close()


def test_two_feeds_share_the_frames(make, arm):
    """The second feed decodes nothing: its frames are on the GPU already."""
    daemon = make(arm)
    first, second = daemon.client(), daemon.client()
    first.open("train", gpu=UUID)
    collect(first)
    decoded = first.status()["datasets"][0]["frames"]
    spec = "{dataset: arm, global_batch: 6, anchor: {clock: steps}, outputs: {qpos: {from: observations/qpos, at: 0}, top: {from: observations/images/top, at: 0, image: {resize: [40, 61], filter: nearest}}}}"
    info = second.open(spec=spec, gpu=UUID)
    assert info.gpu == UUID.encode()
    assert len(collect(second)) == 3
    state = second.status()
    assert images_of(state)["top"]["feeds"] == 3 and state["datasets"][0]["frames"]["decoded"] == decoded["decoded"] == 36
    assert state["datasets"][0]["frames"]["used"] == decoded["used"], "no frame was pinned in host memory again"
    first.close()
    second.close()


UNREADABLE = """
gpu: {{devices: all, rows: 64KiB, rings: 64MiB}}
threads: {{decoders: 1}}
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: 8
    tail: short
    bad_rows: keep
    anchor: {{clock: steps}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      top: {{from: observations/images/top, at: 0, norm: unit}}
      same: {{from: observations/images/top, at: 0}}
"""


def test_rows_that_come_along_and_cannot_be_read(tmp_path, started):
    """Images of windows without rows are missing, as in host memory."""
    for e in range(4):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(400, 16, 16, e)})
    daemon = started(GpuDaemon(tmp_path / "run", textwrap.dedent(UNREADABLE.format(path=tmp_path)), program=FAKE_PROGRAM, store="64KiB"))
    client = daemon.client()
    os.truncate(tmp_path / "episode_1.hdf5", 1000)
    info = client.open("train", gpu=UUID)
    assert info.gpu_refusal is None, info.gpu_refusal
    batches = collect(client).values()
    assert [item["place"] for item in client.status()["gpus"][0]["resident"] if "frames" not in item] == ["host"]
    masks, unit, same = (np.concatenate([arrays[name] for arrays in batches]) for name in ("top.mask", "top", "same"))
    missing = np.concatenate([np.isnan(arrays["qpos"]).any(axis=(1, 2)) for arrays in batches])
    assert len(missing) == 1600 and 100 < missing.sum() <= 400
    # a row that was read before the file was cut has a frame (8) that was not
    assert (masks[missing] == 6).all() and np.isin(masks[~missing], (0, 8)).all()
    assert np.isnan(unit[missing]).all() and np.isfinite(unit[~missing]).all() and not same[missing].any()
    client.close()


SHARING = "{{dataset: arm, global_batch: 18, slots: 3, seed: {seed}, anchor: {{clock: steps}}, outputs: {{qpos: {{from: observations/qpos, at: 0}}, top: {{from: observations/images/top, at: 0, image: {{resize: [120, 160], filter: nearest}}}}}}}}"


@pytest.mark.parametrize("store", ["64MiB", "192KiB"])  # for all frames; for two
def test_feeds_that_bring_the_same_frames_at_once(make, tmp_path, store):
    """Each batch needs all frames, and there is room for each frame once. Decoding takes longer than opening the feeds."""
    for e in range(2):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(9, 720, 960, e), "wrist": random_frames(9, 40, 40, 5 + e)})
    daemon = make(tmp_path, fake="slow=2000", store=store)
    clients = [daemon.client() for _ in range(4)]
    for i, client in enumerate(clients):
        assert client.open(spec=SHARING.format(seed=i), gpu=UUID).gpu == UUID.encode()
    found = [None] * 4

    def read(i):
        found[i] = collect(clients[i])

    threads = [threading.Thread(target=read, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = clients[0].status()
    assert all(len(batches) == 1 and len(batches[0]["window_id"]) == 18 for batches in found)
    assert images_of(state)["top"]["resident_frames"] == 18
    slowest = max(state["producers"], key=lambda producer: producer["frames_ns"])
    assert slowest["resample_ns"] < slowest["frames_ns"], "the time of waiting for frames counts twice"
    for client in clients:
        client.close()


def test_a_gpu_without_room_for_records(make, arm):
    daemon = make(arm, fake="oom")
    client = daemon.client()
    assert client.open("train", gpu=UUID).gpu is None
    client.close()


def test_images_alone_stay_in_host_memory(make, arm):
    client = make(arm).client()
    info = client.open(spec="{dataset: arm, global_batch: 6, anchor: {clock: steps}, outputs: {top: {from: observations/images/top, at: 0}}}", gpu=UUID)
    assert info.gpu is None and b"all outputs are images" in info.gpu_refusal
    client.close()




def test_a_lost_gpu(make, arm):
    """With leave to go without it, the job goes on in host memory, with the same windows."""
    daemon = make(arm, fake="lost=3", fall_back="true")
    client = daemon.client()
    client.open("train", gpu=UUID, mode=trajd.SHARD)
    found = {position: arrays["obs/top"].shape for position, arrays in client.epoch()}
    assert sorted(found) == [0, 5, 10, 15] and found[15] == (3, 2, 3, 40, 61)
    assert b"GPU" in client.library.trajd_client_feed_info(client.handle).contents.gpu_refusal
    client.close()
    wait_for(lambda: "its GPU has failed" in daemon.text(), what="the feed on the GPU to be closed")


MIXED = """
gpu: {{devices: all, rows: {rows}, rings: 64MiB}}
datasets:
  first: {{path: {first}, layout: aloha, color: rgb}}
  second: {{path: {second}, layout: aloha, color: rgb}}
feeds:
  train:
    mix: {{first: {{weight: 1}}, second: {{weight: 1}}}}
    global_batch: 5
    slots: 4
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      obs/top: {{from: observations/images/top, at: -1..0, image: {{resize: [20, 30], filter: nearest, augment: [{{crop: [16, 18]}}]}}, layout: chw}}
      obs/half: {{from: observations/images/wrist, at: 0, missing: zero, image: {{resize: [20, 20], filter: nearest, pad_value: 3}}, norm: unit}}
"""


@pytest.mark.parametrize("rows", ["64MiB", "64KiB"])
def test_a_mixture(tmp_path, started, rows):
    """Each dataset has its own size, and one lacks a camera."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(), second.mkdir()
    write_encoded(first / "episode_0.hdf5", {"top": random_frames(40, 48, 64, 1), "wrist": random_frames(40, 40, 40, 2)})
    write_encoded(second / "episode_0.hdf5", {"top": random_frames(40, 60, 80, 3)})
    daemon = started(GpuDaemon(tmp_path / "run", textwrap.dedent(MIXED.format(first=first, second=second, rows=rows)), program=FAKE_PROGRAM))
    here, there = daemon.client(), daemon.client()
    here.open("train", job="here")
    assert there.open("train", job="there", gpu=UUID).gpu_refusal is None
    host, device = dict(here.epoch()), collect(there)
    assert host.keys() == device.keys() and len(host) > 10
    for position, arrays in host.items():
        for name, array in arrays.items():
            assert array.tobytes() == device[position][name].tobytes(), (name, position)
    masks = np.concatenate([arrays["obs/half.mask"] for arrays in host.values()])
    assert (masks == 6).any() and not masks.all()
    here.close()
    there.close()
