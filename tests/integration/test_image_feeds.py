"""Feeds with images: decoded, cropped, resized and padded, from files of any encoding, against numpy."""
import os
import pathlib
import subprocess
import textwrap

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from daemons import decoders_of, kill_decoders
from paths import TRAJCTL
from image_files import nearest, random_frames, write_encoded
from waiting import wait_for

BAD_FRAME = 8

FEED = """
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: {batch}
    tail: short
    {more}
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      action: {{at: 0..1}}
      {outputs}
"""
SMALL = "top: {from: observations/images/top, at: -1..0, image: {resize: [20, 30], filter: nearest}}"


@pytest.fixture
def arm(tmp_path):
    """Two episodes with two cameras; returns the folder and the frames of each episode."""
    frames = []
    for e in range(2):
        frames.append({"top": random_frames(9, 48, 64, 10 + e), "wrist": random_frames(9, 40, 40, 20 + e)})
        write_encoded(tmp_path / f"episode_{e}.hdf5", frames[-1])
    return tmp_path, frames


def rewrite_raw(path, frames, compression=None):
    """Replaces the encoded frames of the fixture `arm` by pixels."""
    for e, cameras in enumerate(frames):
        with h5py.File(path / f"episode_{e}.hdf5", "r+") as file:
            file.attrs["compress"] = False
            for name, pixels in cameras.items():
                del file["observations/images"][name]
                file["observations/images"].create_dataset(name, data=pixels, compression=compression)


def config_of(path, outputs, batch=4, more="seed: 1", decoders=0):
    return f"threads: {{decoders: {decoders}}}\n" + textwrap.dedent(FEED.format(path=path, batch=batch, outputs=outputs, more=more))


def run(daemon, path, outputs, epochs=1, store="64MiB", **config):
    """Reads whole epochs; returns the batches of each, and the daemon's status."""
    client = daemon(config_of(path, outputs, **config), store=store).client()
    batches = []
    for epoch in range(epochs):
        client.open("train", epoch=epoch)
        batches.append([arrays for _, arrays in client.epoch()])
    status = client.status()
    client.close()
    return batches, status


def windows(batches):
    """Yields (episode, row, window) of an epoch's batches."""
    for arrays in batches:
        for w in range(len(arrays["window_id"])):
            row = int(round(float(arrays["qpos"][w, 0, 0])))
            yield int(arrays["episode_index"][w]), row, {k: v[w] for k, v in arrays.items()}


def test_images_are_cropped_resized_padded_and_normalised(daemon, arm):
    path, frames = arm
    outputs = """
      top: {from: observations/images/top, at: -1..0, image: {crop: {top: 3, left: 5, height: 40, width: 50}, resize: [20, 30], filter: nearest}}
      wrist: {from: observations/images/wrist, at: 0, image: {resize: [30, 60], fit: pad, filter: nearest, pad_value: 7}, layout: chw}
      unit: {from: observations/images/wrist, at: 0, image: {crop: [38, 36]}, layout: chw, norm: {mean: [0.5, 0.25, 0], std: 0.5}}
      whole: {from: observations/images/wrist, at: 0}"""
    (batches,), status = run(daemon, path, outputs)
    seen = 0
    for episode, row, window in windows(batches):
        top, wrist = frames[episode]["top"], frames[episode]["wrist"]
        history = [max(row - 1, 0), row]
        np.testing.assert_array_equal(window["top"], [nearest(top[i][3:43, 5:55], 20, 30) for i in history])
        padded = np.full((30, 60, 3), 7, np.uint8)
        padded[:, 15:45] = nearest(wrist[row], 30, 30)
        np.testing.assert_array_equal(window["wrist"][0], padded.transpose(2, 0, 1))
        cropped = wrist[row][1:39, 2:38].astype(np.float64) / 255
        expected = ((cropped - [0.5, 0.25, 0]) / 0.5).transpose(2, 0, 1)
        assert window["unit"].dtype == np.float32
        np.testing.assert_allclose(window["unit"][0], expected, atol=1e-6)
        np.testing.assert_array_equal(window["whole"][0], wrist[row])
        assert not window["wrist.mask"].any()
        assert window["top.mask"].tolist() == [1 if row == 0 else 0, 0]
        seen += 1
    assert seen == 18
    assert status["datasets"][0]["frames"]["bad"] == 0


@pytest.mark.parametrize("over", ["rows", "windows"])
def test_a_feed_normalises_numbers_and_images(daemon, arm, over):
    path, frames = arm
    (batches,), _ = run(daemon, path, f"""
      unit: {{from: observations/images/top, at: 0, image: {{preset: act, resize: [20, 30]}}, layout: chw, norm: unit}}
      scaled: {{from: observations/qpos, at: 0, norm: {{by: min_max, over: {over}}}}}""")
    windows_ = list(windows(batches))
    for _, _, window in windows_:
        assert window["unit"].shape == (1, 3, 20, 30) and 0 <= window["unit"].min() < window["unit"].max() <= 1
    scaled = np.stack([window["scaled"][0, 0] for _, _, window in windows_])
    assert (scaled.min(), scaled.max()) == (-1, 1)


def test_a_frame_is_decoded_once(daemon, arm):
    path, _ = arm
    batches, status = run(daemon, path, SMALL, epochs=3)
    frames = status["datasets"][0]["frames"]
    assert [sum(len(b["window_id"]) for b in epoch) for epoch in batches] == [18, 18, 18]
    assert frames["decoded"] == 18 and frames["used"] >= 3 * 36 and frames["evicted"] == 0


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("encoding", ["png", "raw", "gzip"])
@pytest.mark.parametrize("store", ["64MiB", "96KiB"], ids=["all frames kept", "few frames kept"])
@pytest.mark.parametrize("decoders", [1, 2, 3, 5, 8])
def test_the_bytes_do_not_depend_on_decoders_and_memory(daemon, arm, decoders, store, encoding):
    """Cold, from memory or the disk, and after the helper programs were killed: a frame has the same bytes."""
    path, frames = arm
    if encoding != "png":
        rewrite_raw(path, frames, "gzip" if encoding == "gzip" else None)
    outputs = "top: {from: observations/images/top, at: -1..0, image: {resize: [45, 60], filter: nearest}}"
    one = daemon(config_of(path, outputs, batch=2, decoders=decoders), store=store)
    client = one.client()
    killed = 0
    for epoch in range(3):
        client.open("train", epoch=epoch)
        for _, arrays in client.epoch():
            for episode, row, window in windows([arrays]):
                expected = [nearest(frames[episode]["top"][i], 45, 60) for i in (max(row - 1, 0), row)]
                np.testing.assert_array_equal(window["top"], expected)
        killed += kill_decoders(one.process.pid) if epoch == 1 else 0
    counts = client.status()["datasets"][0]["frames"]
    client.close()
    assert 0 < killed <= decoders and counts["bad"] == 0
    assert counts["decoded"] == 18 if store == "64MiB" else counts["evicted"] > 0


def test_all_feeds_share_few_helper_programs(daemon, arm):
    """Two feeds with three kinds of images, and threads for each of them: two programs decode for all."""
    path, frames = arm
    config = textwrap.dedent(config_of(path, """
      top: {from: observations/images/top, at: 0, image: {resize: [20, 30], filter: nearest}}
      wrist: {from: observations/images/wrist, at: 0, image: {resize: [10, 10], filter: nearest}}""", batch=3, decoders=2))
    config += "  other: {like: train, outputs: {top: {image: {resize: [45, 60], filter: nearest}}}}\n"
    one = daemon(config)
    clients, most = [one.client(), one.client()], 0
    for client, name in zip(clients, ("train", "other")):
        client.open(name)
    for arrays in zip(*[client.epoch() for client in clients]):
        most = max(most, len(decoders_of(one.process.pid)))
        for (_, batch), size in zip(arrays, ((20, 30), (45, 60))):
            for episode, row, window in windows([batch]):
                np.testing.assert_array_equal(window["top"][0], nearest(frames[episode]["top"][row], *size))
                np.testing.assert_array_equal(window["wrist"][0], nearest(frames[episode]["wrist"][row], 10, 10))
    for client in clients:
        client.close()
    assert most <= 2


def test_a_killed_daemon_costs_nothing(daemon, arm):
    """A worker connects again, and each window comes once with the bytes that it has without the kill."""
    path, frames = arm
    one = daemon(config_of(path, AUGMENTED.replace("DRAW", "frame"), batch=2, more="seed: 1"))
    client = one.client(reconnect=True)
    client.open("train")
    undisturbed = {(e, row): window for e, row, window in windows([arrays for _, arrays in client.epoch()])}
    seen = {}
    client.open("train")
    for number, (_, arrays) in enumerate(client.epoch()):
        for e, row, window in windows([arrays]):
            assert (e, row) not in seen
            seen[e, row] = window
        if number in (1, 4):
            orphans = decoders_of(one.process.pid)
            one.kill()
            wait_for(lambda pids=orphans: not any(map(is_running, pids)), what="the end of the helper programs")
            one.start()
    client.close()
    assert seen.keys() == undisturbed.keys() and len(seen) == 18
    for key, window in seen.items():
        for name in ("top", "wrist", "top.augment", "top.mask"):
            np.testing.assert_array_equal(window[name], undisturbed[key][name])


def frames_of(client):
    return client.status()["datasets"][0]["frames"]


def test_frames_are_kept_prepared_while_they_fit_then_read_again(daemon, tmp_path):
    """Prepared frames stay. Of those that do not fit, each epoch reads and decodes the rest, from the page cache."""
    rows = 1600
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(rows, 32, 40, 1)})
    outputs = "top: {from: observations/images/top, at: 0, image: {resize: [16, 16], filter: nearest}}"
    sizes = rows * 16 * 16 * 3
    made = {}
    for name, store in (("all", 64 << 20), ("some", sizes * 3 // 4 + (32 << 10))):
        # frames of as many batches as there are slots are decoded ahead; a store this small loses some of the first ones
        client = daemon(config_of(tmp_path, outputs, batch=8, decoders=1, more="slots: 4\n    seed: 1"), name, store=f"{store >> 10}KiB").client()
        counts = [{"decoded": 0, "bytes_read": 0}]
        for epoch in range(4):
            client.open("train", epoch=epoch)
            for _, row, window in windows([arrays for _, arrays in client.epoch()]):
                assert window["top"].shape == (1, 16, 16, 3)
            counts.append(frames_of(client))
        client.close()
        made[name] = [(b["decoded"] - a["decoded"], b["bytes_read"] - a["bytes_read"]) for a, b in zip(counts, counts[1:])]
        assert (counts[-1]["evicted"] > 0) == (name == "some")
        assert counts[-1]["resident_bytes"] <= store
    encoded = made["all"][0][1]
    assert made["all"] == [(rows, encoded), (0, 0), (0, 0), (0, 0)] and encoded > sizes
    (first, _), *later = made["some"]
    assert rows <= first <= 1.05 * rows
    for decoded, read in later:
        assert 0 < decoded <= 0.54 * rows and 0 < read <= 0.54 * encoded, made  # at best 0.47 of them do not fit


def test_a_cold_dataset_decodes_what_it_delivers(daemon, tmp_path):
    """One window of each episode is delivered, with its history: nothing else of the episodes is decoded or read."""
    episodes, rows = 6, 60
    for e in range(episodes):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(rows, 24, 24, e)})
    outputs = "top: {from: observations/images/top, at: -1..0, image: {resize: [12, 12], filter: nearest}}"
    client = daemon(config_of(tmp_path, outputs, batch=episodes, more="windows: one_per_episode")).client()
    delivered, decoded = set(), []
    for epoch in range(2):
        client.open("train", epoch=epoch)
        ((_, arrays),) = client.epoch()
        assert len(arrays["window_id"]) == episodes
        delivered |= {(e, i) for e, row, _ in windows([arrays]) for i in (max(row - 1, 0), row)}
        decoded.append(frames_of(client)["decoded"])
    client.close()
    assert 2 * episodes <= decoded[0] <= 1.05 * len(delivered)  # the next epoch's batch may be made already


def test_a_bad_frame_is_an_error_with_file_and_row(daemon, tmp_path):
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(8, 32, 32, 1)}, bad=[("top", 5)])
    client = daemon(config_of(tmp_path, "top: {from: observations/images/top, at: 0}", batch=8)).client()
    client.open("train")
    with pytest.raises(trajd.TrajdError, match=r"episode_0.hdf5: observations/images/top: row 5: .*`bad_rows: keep` of the feed"):
        list(client.epoch())
    client.close()


def test_a_bad_frame_is_masked_where_bad_rows_are_kept(daemon, tmp_path):
    frames = random_frames(8, 32, 32, 1)
    write_encoded(tmp_path / "episode_0.hdf5", {"top": frames}, bad=[("top", 5)])
    outputs = "top: {from: observations/images/top, at: -1..0, image: {pad_value: 9}}"
    (batches,), status = run(daemon, tmp_path, outputs, more="bad_rows: keep")
    for _, row, window in windows(batches):
        for step, i in enumerate((max(row - 1, 0), row)):
            bad = i == 5
            assert window["top.mask"][step] == (BAD_FRAME if bad else 1 if row == 0 and step == 0 else 0)
            np.testing.assert_array_equal(window["top"][step], np.full((32, 32, 3), 9) if bad else frames[i])
    assert status["datasets"][0]["frames"]["bad"] == 1


ZEROS = """\
layout: zeros
episodes: {files: "**/episode_*.hdf5", groups: /}
clocks: {steps: {rate: 50, rows: action}}
streams:
  action: {path: action, kind: previous}
  observations/qpos: {path: observations/qpos, kind: linear}
  observations/images/*: {path: observations/images/*, kind: previous, image: {color: rgb, zero_frames: mask}}
"""


@pytest.mark.parametrize("form", ["raw", "padded", "packed"])
def test_frames_of_zeros_are_masked(daemon, tmp_path, form):
    """The recorder wrote zeros where it had no frame: the step is masked, and the others are delivered, without bad_rows: keep."""
    frames = random_frames(8, 32, 32, 1)
    write_encoded(tmp_path / "episode_0.hdf5", {"top": frames})
    with h5py.File(tmp_path / "episode_0.hdf5", "r+") as file:
        images = file["observations/images"]
        if form == "padded":
            rows = images["top"][:]
            rows[5] = 0
        else:
            rows = frames.copy()
            rows[5] = 0
        del images["top"]
        images.create_dataset("top", data=rows, compression="gzip" if form == "packed" else None)
    (tmp_path / "zeros.yaml").write_text(ZEROS)
    if form == "packed":
        done = subprocess.run([TRAJCTL, "pack", tmp_path / "episode_0.hdf5", "-o", tmp_path / "packed.hdf5", "--layout",
                               tmp_path / "zeros.yaml"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        os.replace(tmp_path / "packed.hdf5", tmp_path / "episode_0.hdf5")
    config = config_of(tmp_path, "top: {from: observations/images/top, at: 0}").replace("layout: aloha", f"layout: {tmp_path}/zeros.yaml")
    client = daemon(config).client()
    client.open("train")
    seen = 0
    for _, row, window in windows([arrays for _, arrays in client.epoch()]):
        seen += 1
        assert window["top.mask"][0] == (BAD_FRAME if row == 5 else 0)
        np.testing.assert_array_equal(window["top"][0], np.zeros((32, 32, 3)) if row == 5 else frames[row])
    assert seen == 8
    client.close()


def test_a_killed_decoder_costs_nothing(daemon, tmp_path):
    frames = random_frames(60, 48, 64, 3)
    write_encoded(tmp_path / "episode_0.hdf5", {"top": frames})
    one = daemon(config_of(tmp_path, SMALL, more="slots: 3", decoders=2))
    client = one.client()
    client.open("train")
    killed = 0
    for number, (_, arrays) in enumerate(client.epoch()):
        if number in (1, 8):  # twice in a row, a frame would be blamed
            killed += kill_decoders(one.process.pid)
        for _, row, window in windows([arrays]):
            np.testing.assert_array_equal(window["top"][1], nearest(frames[row], 20, 30))
    assert killed > 0
    assert client.status()["datasets"][0]["frames"]["bad"] == 0
    client.close()


MIXED = """
datasets:
  encoded: {{path: {first}, layout: aloha, color: rgb}}
  raw: {{path: {second}, layout: aloha}}
feeds:
  train:
    mix: {{encoded: {{weight: 1}}, raw: {{weight: 1}}}}
    global_batch: 6
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      top: {{from: observations/images/top, at: 0, image: {{resize: [20, 30], filter: nearest}}}}
      wrist: {{from: observations/images/wrist, at: 0, missing: zero, image: {{resize: [20, 20], filter: nearest, pad_value: 3}}}}
"""


def test_datasets_of_a_mixture_have_their_own_sizes_and_encodings(daemon, tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(), second.mkdir()
    encoded = {"top": random_frames(9, 48, 64, 1), "wrist": random_frames(9, 40, 40, 2)}
    raw = random_frames(9, 60, 80, 3)
    write_encoded(first / "episode_0.hdf5", encoded)
    write_encoded(second / "episode_0.hdf5", {"top": raw})
    with h5py.File(second / "episode_0.hdf5", "a") as file:
        del file["observations/images/top"]
        file["observations/images/top"] = raw
        file.attrs["compress"] = False
    client = daemon(MIXED.format(first=first, second=second)).client()
    client.open("train")
    seen = set()
    for _, arrays in client.epoch():
        for w in range(len(arrays["window_id"])):
            dataset, row = int(arrays["dataset_index"][w]), int(round(float(arrays["qpos"][w, 0, 0])))
            seen.add(dataset)
            source = raw if dataset else encoded["top"]
            np.testing.assert_array_equal(arrays["top"][w, 0], nearest(source[row], 20, 30))
            wrist = np.full((20, 20, 3), 3) if dataset else nearest(encoded["wrist"][row], 20, 20)
            np.testing.assert_array_equal(arrays["wrist"][w, 0], wrist)
            assert arrays["wrist.mask"][w, 0] == (6 if dataset else 0)
    assert seen == {0, 1}
    client.close()


@pytest.mark.parametrize("output, message", [
    ("x: {from: observations/qpos, at: 0, layout: chw}", "observations/qpos has no images"),
    ("x: {from: observations/images/top, at: 0, norm: mean_std}", "norm: observations/images/top has images: use unit"),
    ("x: {from: observations/images/top, at: 0, kind: linear}", "images, which are never blended"),
    ("x: {from: observations/images/top, at: 0, image: {crop: [100, 10]}}", "crop: 100x10 is larger than the frames, which have 48x64"),
    ("x: {from: observations/images/top, at: 0, image: {filter: area}}", "there is no resize"),
    ("x: {from: observations/images/top, at: 0, image: {resize: [10, 0]}}", "image.resize"),
    ("x: {from: [observations/images/top, observations/qpos], at: 0}", "cannot be joined"),
    ("x: {from: observations/images/top, at: 0, image: {resise: 3}}", "resise"),
])
def test_what_does_not_fit_is_refused(daemon, arm, output, message):
    config = arm[0] / "refused.yaml"
    config.write_text("version: 2\n" + config_of(arm[0], output))
    refused = subprocess.run([TRAJCTL, "check", config], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert refused.returncode != 0 and message in refused.stdout, refused.stdout


AUGMENTED = """
      top: {from: observations/images/top, at: -1..0, image: {resize: [40, 50], filter: nearest, draw_per: DRAW, augment: [{crop: [32, 40]}, {flip: 0.5}, {brightness: 0.4}]}}
      wrist: {from: observations/images/wrist, at: -1..0, image: {draw_per: DRAW, augment: [{crop: [38, 38], excludes_last: true}]}}"""


def augment(frame, steps):
    """Repeats a crop, a flip and a brightness from their parameters."""
    (top, left, _, _), (is_flipped, _, _, _), (factor, _, _, _) = steps
    frame = frame[int(top):int(top) + 32, int(left):int(left) + 40]
    frame = frame[:, ::-1] if is_flipped else frame
    return np.clip(np.floor(np.clip(frame * np.float64(factor), 0, 255) + 0.5), 0, 255)


@pytest.mark.parametrize("draw_per", ["frame", "step", "camera", "window"])
def test_augmentations_are_repeated_from_their_parameters(daemon, arm, draw_per):
    path, frames = arm
    batches, _ = run(daemon, path, AUGMENTED.replace("DRAW", draw_per), epochs=2)
    draws = [{}, {}]
    flips = set()
    for epoch in range(2):
        for episode, row, window in windows(batches[epoch]):
            for step, i in enumerate((max(row - 1, 0), row)):
                steps = window["top.augment"][step]
                expected = augment(nearest(frames[episode]["top"][i], 40, 50), steps)
                assert np.abs(window["top"][step] - expected).max() <= 1
                top, left = window["wrist.augment"][step][0, :2].astype(int)
                assert 0 <= top < 2 and 0 <= left < 2
                np.testing.assert_array_equal(window["wrist"][step], frames[episode]["wrist"][i][top:top + 38, left:left + 38])
                flips.add(float(steps[1, 0]))
            draws[epoch][episode, row] = window["top.augment"]
            is_shared = draw_per in ("camera", "window")
            assert is_shared == bool((window["top.augment"][0] == window["top.augment"][1]).all())
    assert flips == {0.0, 1.0}
    assert all((draws[0][key] != draws[1][key]).any() for key in draws[0])  # another epoch, other draws


def test_colors_as_tf_image_has_them(daemon, arm):
    path, frames = arm
    outputs = ("wrist: {from: observations/images/wrist, at: 0, image: {augment: "
               "[{shift: 0.1}, {channel_contrast: [0.5, 0.9]}, {hsv_saturation: 0.4, p: 0}, {hue: 0.05, p: 0}]}}")
    (batches,), _ = run(daemon, path, outputs)
    shifts = []
    for episode, row, window in windows(batches):
        (shift, contrast, saturation, hue) = window["wrist.augment"][0][:, 0]
        assert abs(shift) <= 0.1 and 0.5 <= contrast <= 0.9 and (saturation, hue) == (1, 0)
        expected = np.clip(frames[episode]["wrist"][row] + 255 * np.float64(shift), 0, 255)
        mean = expected.mean((0, 1))
        expected = np.clip((expected - mean) * contrast + mean, 0, 255)
        assert np.abs(window["wrist"][0] - expected).max() <= 0.51
        shifts.append(shift)
    assert min(shifts) < 0 < max(shifts)


def test_draws_do_not_depend_on_batches_and_decoders(daemon, arm):
    path, _ = arm
    outputs = AUGMENTED.replace("DRAW", "frame")
    (first,), _ = run(daemon, path, outputs, batch=3, decoders=1, more="order: sequential")
    one = daemon(config_of(path, outputs, batch=6, decoders=3, more="order: global"), "other")
    client = one.client()
    client.open("train")
    seen = {}
    for batch in (first, [arrays for _, arrays in client.epoch()]):
        for arrays in batch:
            for w, window in enumerate(arrays["window_id"].tolist()):
                seen.setdefault(window, []).append(arrays["top"][w])
    client.close()
    assert len(seen) == 18
    for a, b in seen.values():
        np.testing.assert_array_equal(a, b)


def test_evaluation_draws_nothing(daemon, arm):
    path, frames = arm
    outputs = "wrist: {from: observations/images/wrist, at: 0, image: {draw: center, augment: [{crop: [36, 36]}, {flip: 0.5}]}}"
    (batches,), _ = run(daemon, path, outputs)
    for episode, row, window in windows(batches):
        np.testing.assert_array_equal(window["wrist"][0], frames[episode]["wrist"][row][2:38, 2:38])
        assert window["wrist.augment"][0].tolist() == [[2, 2, 0, 0], [0, 0, 0, 0]]


def test_images_are_in_the_digest_of_values_alone(daemon, arm):
    path, _ = arm
    images = ("{crop: [30, 30]}", "{crop: {top: 0, left: 0, height: 30, width: 30}}", "{crop: [30, 30], augment: [{flip: 0.5}]}",
              "{crop: [30, 30], resize: [30, 31]}", "{crop: [30, 30]}, norm: unit", "{crop: {top: 5, left: 5, height: 30, width: 30}}")
    values, norms = [], []
    for i, image in enumerate(images):
        client = daemon(config_of(path, f"wrist: {{from: observations/images/wrist, at: 0, dtype: float32, image: {image}}}"), f"d{i}").client()
        info = client.open("train")
        (producer,) = client.status()["producers"]
        assert int(producer["values_digest"], 16) == info.values_digest
        values.append((info.fingerprint, info.values_digest))
        norms.append(info.norm_digest)
        client.close()
    assert len({fingerprint for fingerprint, _ in values}) == 1  # the same windows in the same order
    assert len({digest for _, digest in values}) == 4 and values[0] == values[4] == values[5]
    assert norms.count(1) == 5 and norms[4] != 1


def test_the_query_of_images(daemon, arm):
    path, _ = arm
    client = daemon(config_of(path, SMALL + "\n      wrist: {from: observations/images/wrist, at: 0, image: {augment: [{flip: 0.5}]}}")).client()
    info = client.open("train")
    whole = client.ask("pictures")
    pages = [client.ask("pictures", first=first, count=1) for first in range(2)]
    assert whole["items"] == [item for page in pages for item in page["items"]] and int(whole["values_digest"], 16) == info.values_digest
    assert [page["next"] for page in (whole, *pages)] == [None, 1, None] and [page["first"] for page in pages] == [0, 1]
    top, wrist = whole["items"]
    assert (top["output"], top["dataset"]) == ("top", "arm") and top["keys"]["resize"] == "20x30" and top["keys"]["filter"] == "nearest"
    assert (top["keys"]["decoder"], top["keys"]["color"], top["keys"]["crop"]) == ("png", "rgb", "none")
    assert wrist["keys"]["augment 1"].startswith("flip") and "p 0.5" in wrist["keys"]["augment 1"] and wrist["keys"]["draw_per"] == "frame"
    assert client.ask("pictures", first=2)["items"] == []
    with pytest.raises(trajd.TrajdError, match="item 3 does not exist: there are 2"):
        client.ask("pictures", first=3)
    client.close()


def test_another_preparation_takes_memory_from_the_first(daemon, arm):
    path, frames = arm
    config = textwrap.dedent(config_of(path, "top: {from: observations/images/top, at: 0, image: {resize: [45, 60], filter: nearest}}", batch=2))
    config += "  other: {like: train, outputs: {top: {image: {resize: [40, 60], filter: nearest}}}}\n"
    one = daemon(config, store="96KiB")
    for name, height in (("train", 45), ("other", 40)):
        client = one.client()
        client.open(name)
        for episode, row, window in windows([arrays for _, arrays in client.epoch()]):
            np.testing.assert_array_equal(window["top"][0], nearest(frames[episode]["top"][row], height, 60))
        client.close()


def test_channels_are_the_colours_of_opencv_or_chosen(daemon, tmp_path):
    frames = random_frames(6, 30, 40, 3)
    write_encoded(tmp_path / "episode_0.hdf5", {"top": frames})
    with h5py.File(tmp_path / "episode_0.hdf5", "r+") as file:
        file.create_dataset("observations/images/raw", data=frames, chunks=(1, 30, 40, 3))
    outputs = """
      rgb: {from: observations/images/top, at: 0}
      bgr: {from: observations/images/top, at: 0, image: {channels: bgr}}
      cv2: {from: observations/images/top, at: 0, image: {channels: cv2}}
      raw_bgr: {from: observations/images/raw, at: 0, image: {channels: bgr}}
      raw_cv2: {from: observations/images/raw, at: 0, image: {channels: cv2}}
      preset: {from: observations/images/top, at: 0, image: {preset: act++}}"""
    (batches,), _ = run(daemon, tmp_path, outputs)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    seen = 0
    for _, row, window in windows(batches):
        swapped = frames[row][..., ::-1]
        for name, expected in {"rgb": frames[row], "bgr": swapped, "cv2": swapped, "raw_bgr": swapped, "raw_cv2": frames[row]}.items():
            np.testing.assert_array_equal(window[name][0], expected, name)
        np.testing.assert_allclose(window["preset"][0], ((swapped / 255 - mean) / std).transpose(2, 0, 1), atol=1e-5)
        seen += 1
    assert seen == 6


def test_check_prints_what_a_preset_is(tmp_path):
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(6, 84, 84, 3)})
    outputs = "top: {from: observations/images/top, at: 0, image: {preset: umi}}"
    config = tmp_path / "trajd.yaml"
    config.write_text("version: 2\n" + config_of(tmp_path, outputs))
    done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "filter area only reduces, and 84x84 would be enlarged to 224x224: write `filter: linear`" in done.stderr
    config.write_text("version: 2\n" + config_of(tmp_path, outputs.replace("preset: umi", "random_crop: [76, 76]")))
    done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "random_crop: no such key; a random crop is written `augment: [{crop: [76, 76]}]`" in done.stderr
    config.write_text("version: 2\n" + config_of(tmp_path, outputs.replace("umi}", "umi, filter: linear}")))
    done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "image.preset of top: umi is {image: {resize: [224, 224], fit: cover, filter: area, augment: [{crop: 0.95}" in done.stdout
    assert "the trainer draws once for a camera of a whole batch, here for each window" in done.stdout
    assert "f32 [4,1,3,224,224]" in done.stdout
    for preset in ("act++", "act++_diffusion"):
        config.write_text("version: 2\n" + config_of(tmp_path, outputs.replace("umi", preset)))
        done = subprocess.run([TRAJCTL, "check", config], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and "the trainer averages base_action over 5 rows" in done.stdout, done


PRESET_DRAWS = {  # preset: (draw_per, [(step, parameter, least, most)]), as the trainer draws for frames of 84x84 or larger
    "robomimic": ("frame", [(0, 0, 0, 7), (0, 1, 0, 7)]),  # of 84 - 76: 8 never occurs
    "act++_diffusion": ("step", [(0, 0, 0, 5), (2, 0, -5, 5), (3, 0, 0.7, 1.3), (4, 0, 0.6, 1.4), (5, 0, 0.5, 1.5)]),
    "umi, filter: linear": ("camera", [(0, 0, 0, 12), (2, 0, 0.7, 1.3), (5, 0, -0.08, 0.08)]),
    "gr00t": ("window", [(0, 0, 0, 5), (2, 0, 0.7, 1.3), (3, 0, 0.6, 1.4), (4, 0, 0.5, 1.5), (5, 0, -0.08, 0.08)]),
    "openpi": ("step", [(0, 0, -5, 5), (0, 1, -6, 6), (1, 0, -0.3, 0.3), (2, 0, -0.4, 0.4), (3, 0, -0.1, 0.1)]),
    "openpi_torch": ("camera", [(0, 0, 0, 12), (2, 0, -5, 5), (3, 0, 0.7, 1.3), (4, 0, 0.6, 1.4), (5, 0, 0.5, 1.5)]),
    "octo": ("camera", [(0, 2, 0.85, 1), (0, 3, 0.84, 1), (1, 0, -0.1, 0.1), (2, 0, 0.9, 1.1), (3, 0, 0.9, 1.1), (4, 0, -0.05, 0.05)]),
}


@pytest.mark.parametrize("preset", PRESET_DRAWS)
def test_a_preset_draws_as_its_trainer(daemon, tmp_path, preset):
    rows = 100
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(rows, 84, 84, 3), "wrist": random_frames(rows, 84, 84, 4)})
    image = "image: {preset: %s}, dtype: uint8, norm: none" % preset
    outputs = "\n      ".join(f"{name}: {{from: observations/images/{name}, at: -1..0, {image}}}" for name in ("top", "wrist"))
    (batches,), _ = run(daemon, tmp_path, "\n      " + outputs)
    draw_per, limits = PRESET_DRAWS[preset]
    drawn = np.concatenate([np.stack([arrays["top.augment"], arrays["wrist.augment"]], 1) for arrays in batches])
    assert drawn.shape[:3] == (rows, 2, 2)  # windows, cameras, steps
    same_cameras = (drawn[:, 0] == drawn[:, 1]).all()
    same_steps = (drawn[:, :, 0] == drawn[:, :, 1]).all()
    assert (bool(same_cameras), bool(same_steps)) == {"frame": (False, False), "step": (True, False), "camera": (False, True), "window": (True, True)}[draw_per]
    for step, parameter, least, most in limits:
        values = drawn[..., step, parameter]
        reach = (most - least) / 5  # what hundreds of draws leave free at the ends
        assert least <= values.min() <= least + reach + 1e-6 and most - reach - 1e-6 <= values.max() <= most, (step, parameter, values.min(), values.max())
        whole = (step, parameter) in ((0, 0), (0, 1)) and "octo" not in preset and not (preset == "openpi" and parameter == 0)
        assert not whole or len(np.unique(values)) == most - least + 1
