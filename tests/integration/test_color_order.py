"""Encoded frames of which no file says whether red or blue is first: feeds need the key `color` of their dataset, and init shows both readings."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from families import T, png as depth_png, random, variable
from paths import RECORDINGS, TRAJCTL
from image_files import png, random_frames, read_png, write_encoded

FEED = """
datasets: {{arm: {{path: {path}, layout: {layout}{color}}}}}
feeds:
  train:
    dataset: arm
    global_batch: 4
    tail: short
    anchor: {{clock: steps}}
    outputs: {{{outputs}}}
"""
ALOHA, MIND = "observations/images/top", "observations/rgb_images/camera_top"
FRAMES = random_frames(T, 24, 32, 1)


def write_robomind(path, frames):
    """An episode with encoded frames and with depth."""
    rows = [png(frame) for frame in frames]
    with h5py.File(path, "w") as file:
        for side in ("master", "puppet"):
            file[f"{side}/joint_position"] = random((len(rows), 8))
        variable(file.require_group("observations/rgb_images"), "camera_top", rows)
        variable(file.require_group("observations/depth_images"), "camera_top", [depth_png(480, 640, 100 + i) for i in range(len(rows))])


def write_raw(path, frames):
    with h5py.File(path, "w") as file:
        file["action"] = file["observations/qpos"] = random((len(frames), 14), np.float32)
        file[ALOHA] = frames


@pytest.fixture(params=["aloha", "robomind"])
def family(request, tmp_path):
    """The keys of a feed of encoded frames: its files, layout, the stream of frames and one of numbers."""
    (tmp_path / "data").mkdir()
    path = tmp_path / "data/episode_0.hdf5"
    if request.param == "aloha":
        write_encoded(path, {"top": FRAMES})
        return {"path": path.parent, "layout": "aloha", "camera": ALOHA, "numbers": "observations/qpos"}
    write_robomind(path, FRAMES)
    return {"path": path.parent, "layout": "robomind", "camera": MIND, "numbers": "puppet/joint_position"}


def config_of(family, color=None, outputs="", numbers=True):
    both = (f"numbers: {{from: {family['numbers']}, at: 0}}, " if numbers else "") + outputs.format(**family)
    return FEED.format(**{**family, "color": f", color: {color}" if color else ""}, outputs=both)


def trajctl(*arguments):
    return subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def check(folder, text):
    path = folder / "checked.yaml"
    path.write_text("version: 2\n" + text)
    return trajctl("check", path)


def deliver(daemon, text, folder="daemon"):
    client = daemon(text, folder=folder).client()
    client.open("train")
    batches = [{name: np.array(values) for name, values in arrays.items()} for _, arrays in client.epoch()]
    client.close()
    order = np.argsort(np.concatenate([batch["window_id"] for batch in batches]))
    return {name: np.concatenate([batch[name] for batch in batches])[order] for name in batches[0] if name != "slot_generation"}


@pytest.mark.parametrize("keys", ["", ", image: {preset: act}", ", image: {channels: bgr}", ", image: {resize: 16}"])
def test_a_feed_of_such_frames_is_refused_without_the_key(family, tmp_path, keys):
    output = "cam: {{from: {camera}, at: 0" + keys.replace("{", "{{").replace("}", "}}") + "}}"
    done = check(tmp_path, config_of(family, outputs=output))
    assert done.returncode == 78, done.stdout
    for text in ("outputs.cam: datasets.arm.color is missing", f"neither layout {family['layout']} nor the files say", family["camera"],
                 "rgb: a standard decoder gives RGB", "bgr: it gives red and blue exchanged", "act-plus-plus' compress_data.py",
                 "mobile-aloha's recorder"):
        assert text in done.stderr, (text, done.stderr)


def test_the_key_says_which_channels_are_exchanged(daemon, family, tmp_path):
    cameras = ("plain: {{from: {camera}, at: 0}}, small: {{from: {camera}, at: 0, image: {{resize: [12, 16]}}}}, "
               "blue: {{from: {camera}, at: 0, image: {{channels: bgr}}}}, cv2: {{from: {camera}, at: 0, image: {{channels: cv2}}}}")
    found = {color: deliver(daemon, config_of(family, color, cameras), color) for color in ("rgb", "bgr")}
    order = found["rgb"]["window_id"]
    np.testing.assert_array_equal(found["rgb"]["plain"][:, 0], FRAMES[order])
    np.testing.assert_array_equal(found["bgr"]["plain"][:, 0], FRAMES[order][..., ::-1])
    np.testing.assert_array_equal(found["bgr"]["small"], found["rgb"]["small"][..., ::-1])
    np.testing.assert_array_equal(found["bgr"]["blue"], found["rgb"]["blue"][..., ::-1])
    for color in found:  # as OpenCV decodes them, whatever the colours mean
        np.testing.assert_array_equal(found[color]["cv2"][:, 0], FRAMES[order][..., ::-1])
        np.testing.assert_array_equal(found[color]["numbers"], found["rgb"]["numbers"])


def test_act_plus_plus_needs_no_key(daemon, family):
    output = "cam: {{from: {camera}, at: 0, image: {{preset: act++}}}}"
    found = [deliver(daemon, config_of(family, color, output), f"daemon_{color}")["cam"] for color in (None, "rgb", "bgr")]
    assert found[0].std() > 0
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_feeds_without_encoded_colours_need_no_key(daemon, tmp_path):
    write_raw(tmp_path / "episode_0.hdf5", FRAMES)
    raw = {"path": tmp_path, "layout": "aloha", "camera": ALOHA, "numbers": "observations/qpos"}
    for color in (None, "rgb", "bgr"):  # the key is about encoded frames
        found = deliver(daemon, config_of(raw, color, "cam: {{from: {camera}, at: 0, image: {{}}}}"), f"daemon_{color}")
        np.testing.assert_array_equal(found["cam"][:, 0], FRAMES[found["window_id"]])


def test_depth_and_numbers_need_no_key(tmp_path):
    write_robomind(tmp_path / "a.hdf5", FRAMES)
    mind = {"path": tmp_path, "layout": "robomind", "numbers": "puppet/joint_position"}
    for outputs in ("", "depth: {{from: observations/depth_images/camera_top, at: 0}}"):
        done = check(tmp_path, config_of(mind, outputs=outputs))
        assert done.returncode == 0 and "color of" not in done.stdout, done.stderr


def test_the_fingerprint_does_not_depend_on_the_key(family, tmp_path):
    checked = [check(tmp_path, config_of(family, color, "cam: {{from: {camera}, at: 0}}")).stdout for color in ("rgb", "bgr")]
    fingerprints = {[line for line in text.splitlines() if "fingerprint" in line][0] for text in checked}
    assert len(fingerprints) == 1
    for text, color in zip(checked, ("rgb", "bgr")):
        assert f"color of cam: {color} (key)" in text, text


def test_every_tool_says_where_the_order_comes_from(daemon, family, tmp_path):
    stream = next(one for one in json.loads(trajctl("inspect", "--json", "--layout", family["layout"], family["path"]).stdout)[0]["streams"]
                  if one["name"] == family["camera"])
    assert (stream["color"], stream["color_from"]) == ("undecided", "undecided")
    assert "png 24x32 undecided (rgb or bgr)" in trajctl("inspect", "--layout", family["layout"], family["path"]).stdout
    output = "cam: {{from: {camera}, at: 0, image: {{channels: cv2}}}}"
    assert "color of cam: undecided (channels: cv2 needs none)" in check(tmp_path, config_of(family, None, output)).stdout
    for color, expected in ((None, ("undecided", "undecided")), ("bgr", ("bgr", "key"))):
        client = daemon(config_of(family, color, output), folder=f"daemon_{color}").client()
        client.open("train")
        image = client.ask("explain", window=0, name="cam")["outputs"][0]["picture"]
        assert (image["color"], image["color_from"]) == expected
        client.close()


def test_a_mixture_has_the_order_of_each_dataset(daemon, tmp_path):
    for name, frames in (("one", FRAMES), ("other", FRAMES[..., ::-1])):
        (tmp_path / name).mkdir()
        write_encoded(tmp_path / name / "episode_0.hdf5", {"top": frames})
    text = (f"datasets:\n  one: {{path: {tmp_path}/one, layout: aloha, color: rgb}}\n  other: {{path: {tmp_path}/other, layout: aloha}}\n"
            f"feeds:\n  train:\n    mix: {{one: 1, other: 1}}\n    global_batch: 4\n    anchor: {{clock: steps}}\n"
            f"    outputs: {{cam: {{from: {ALOHA}, at: 0}}}}\n")
    done = check(tmp_path, text)
    assert done.returncode == 78 and "datasets.other.color is missing" in done.stderr, done.stderr
    found = deliver(daemon, text.replace("other, layout: aloha", "other, layout: aloha, color: bgr"))
    for window, frame in zip(found["window_id"], found["cam"]):
        np.testing.assert_array_equal(frame[0], FRAMES[window % T])


def test_reload_reads_frames_in_the_new_order(daemon, family):
    one = daemon(config_of(family, "rgb", "cam: {{from: {camera}, at: 0}}"))
    one.config.write_text(one.config.read_text().replace("color: rgb", "color: bgr"))
    assert trajctl("reload", "--wait", "--endpoint", one.endpoint).returncode == 0
    client = one.client()
    client.open("train")
    for _, arrays in client.epoch():
        np.testing.assert_array_equal(arrays["cam"][:, 0], FRAMES[arrays["window_id"]][..., ::-1])
    client.close()


@pytest.mark.parametrize("value", ["gray", "undecided", "RGB"])
def test_other_values_are_refused(family, tmp_path, value):
    done = check(tmp_path, config_of(family, value, "cam: {{from: {camera}, at: 0}}"))
    assert done.returncode == 78 and "datasets.arm.color" in done.stderr and "rgb, bgr" in done.stderr, done.stderr


# ---- pack ----


def test_packed_frames_stay_undecided_and_prepared_ones_are_decided(daemon, family, tmp_path):
    path = family["path"] / "episode_0.hdf5"
    config = tmp_path / "train.yaml"
    config.write_text("version: 2\n" + config_of(family, "bgr", "cam: {{from: {camera}, at: 0, image: {{resize: [12, 16], filter: nearest}}}}"))
    for folder in ("packed", "prepared"):
        (tmp_path / folder).mkdir()
    assert trajctl("pack", path, "-o", tmp_path / "packed/episode_0.hdf5", "--layout", family["layout"]).returncode == 0
    packed = {**family, "path": tmp_path / "packed"}
    assert "color is missing" in check(tmp_path, config_of(packed, None, "cam: {{from: {camera}, at: 0}}")).stderr
    found = deliver(daemon, config_of(packed, "bgr", "cam: {{from: {camera}, at: 0}}"), "packed_daemon")
    np.testing.assert_array_equal(found["cam"][:, 0], FRAMES[found["window_id"]][..., ::-1])
    done = trajctl("pack", path, "-o", tmp_path / "prepared/episode_0.hdf5", "--prepare", f"{config}:train")
    assert done.returncode == 0, done.stderr
    outputs = ("cam: {{from: {camera}, at: 0, image: {{resize: [12, 16], filter: nearest}}}}, "
               "cv2: {{from: {camera}, at: 0, image: {{resize: [12, 16], filter: nearest, channels: cv2}}}}")
    of_prepared = deliver(daemon, config_of({**family, "path": tmp_path / "prepared"}, None, outputs), "prepared_daemon")
    of_files = deliver(daemon, config_of(family, "bgr", outputs), "files_daemon")
    for name in ("cam", "cv2"):
        np.testing.assert_array_equal(of_prepared[name], of_files[name])
    config.write_text(config.read_text().replace(", color: bgr", ""))
    done = trajctl("pack", path, "-o", tmp_path / "refused.hdf5", "--prepare", f"{config}:train")
    assert done.returncode == 1 and "have red or blue first" in done.stderr and "`color: rgb` or `color: bgr`" in done.stderr, done.stderr


# ---- init, inspect --frame and plot ----


def sides(path):
    """Returns both halves of the image that shows two readings."""
    image = read_png(path)
    return image[:, :32], image[:, -32:]


def test_inspect_shows_both_readings(family, tmp_path):
    done = trajctl("inspect", "--layout", family["layout"], family["path"], "--frame", f"{family['camera']}:5", "-o", tmp_path / "both.png")
    assert done.returncode == 0 and "left color: rgb, right color: bgr" in done.stdout, done.stderr
    left, right = sides(tmp_path / "both.png")
    np.testing.assert_array_equal(left, FRAMES[5])
    np.testing.assert_array_equal(right, FRAMES[5][..., ::-1])


def test_init_lets_the_user_choose(family, tmp_path):
    made = trajctl("init", family["path"], "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0 and f"{tmp_path}/lab.colors.png: left color: rgb, right color: bgr" in made.stderr, made.stderr
    left, right = sides(tmp_path / "lab.colors.png")
    np.testing.assert_array_equal(left, FRAMES[T // 2])
    np.testing.assert_array_equal(right, FRAMES[T // 2][..., ::-1])
    text = (tmp_path / "lab.yaml").read_text()
    assert "    # color: rgb " in text and "    # color: bgr " in text and "lab.colors.png shows both" in text, text
    done = trajctl("check", tmp_path / "lab.yaml")
    assert done.returncode == 78 and "datasets.data.color is missing" in done.stderr, done.stderr
    (tmp_path / "lab.yaml").write_text(text.replace("# color: bgr", "color: bgr"))
    done = trajctl("check", tmp_path / "lab.yaml")
    assert done.returncode == 0 and "bgr (key)" in done.stdout, done.stderr


def test_init_to_stdout_says_how_to_see_both(family):
    made = trajctl("init", family["path"])
    assert made.returncode == 0 and "# color: rgb" in made.stdout, made.stderr
    assert "choose its color in the configuration: rgb or bgr. With -o FILE.yaml, init writes an image of both readings" in made.stderr


def test_init_without_a_frame_that_can_be_decoded(tmp_path):
    write_encoded(tmp_path / "episode_0.hdf5", {"top": FRAMES}, bad=[("top", T // 2)])
    made = trajctl("init", tmp_path / "episode_0.hdf5", "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0 and "data: no image of both readings of its colours: " in made.stderr, made.stderr
    text = (tmp_path / "lab.yaml").read_text()
    assert "# color: rgb" in text and "shows both" not in text and not (tmp_path / "lab.colors.png").exists()


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_raw_copies_decide(tmp_path, color):
    """As act-plus-plus' compress_data.py leaves them: the same episode raw and encoded, in two folders."""
    for name in ("data/raw", "data/small"):
        (tmp_path / name).mkdir(parents=True)
    noise = np.random.default_rng(3).integers(-9, 10, FRAMES.shape)
    seen = np.clip(FRAMES.astype(int) + noise, 0, 255).astype(np.uint8)  # what an encoder loses
    write_raw(tmp_path / "data/raw/episode_0.hdf5", FRAMES)
    write_encoded(tmp_path / "data/small/episode_0.hdf5", {"top": seen if color == "rgb" else seen[..., ::-1]})
    made = trajctl("init", tmp_path / "data", "-o", tmp_path / "lab.yaml")
    raw = f"{tmp_path}/data/raw/episode_0.hdf5"
    assert made.returncode == 0 and f"small: color: {color}, because its frames are then those of {raw}" in made.stderr, made.stderr
    assert not (tmp_path / "lab.colors.png").exists() and not (tmp_path / "lab.small.colors.png").exists()
    done = trajctl("check", tmp_path / "lab.yaml")
    assert done.returncode == 0 and f"{color} (key)" in done.stdout, done.stderr


@pytest.mark.parametrize("raw", ["another recording", "grey"])
def test_other_raw_frames_do_not_decide(tmp_path, raw):
    for name in ("data/raw", "data/small"):
        (tmp_path / name).mkdir(parents=True)
    grey = np.repeat(FRAMES[..., :1], 3, axis=3)
    write_raw(tmp_path / "data/raw/episode_0.hdf5", grey if raw == "grey" else random_frames(T, 24, 32, 2))
    write_encoded(tmp_path / "data/small/episode_0.hdf5", {"top": grey if raw == "grey" else FRAMES})
    made = trajctl("init", tmp_path / "data", "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0 and f"{tmp_path}/lab.small.colors.png: left color: rgb" in made.stderr, made.stderr
    assert "# color: rgb" in (tmp_path / "lab.yaml").read_text()


def test_plot_says_that_it_has_taken_one_reading(family, tmp_path):
    done = trajctl("plot", "--layout", family["layout"], family["path"] / "episode_0.hdf5", family["camera"], "-o", tmp_path / "strip.png")
    assert done.returncode == 0 and "note: drawn as `color: rgb`. Red and blue may be exchanged" in done.stderr, done.stderr


# ---- files of public writers ----


@pytest.mark.parametrize("file, layout, camera", [("mobile_aloha", "aloha", "observations/images/cam_high"), ("robomind", "robomind", MIND)])
def test_recordings(daemon, tmp_path, file, layout, camera):
    path = RECORDINGS / f"images/{file}.hdf5"
    if not path.exists():
        pytest.skip("../shared/data/images is not here")
    one = {"path": path, "layout": layout, "camera": camera, "numbers": "observations/qpos" if layout == "aloha" else "puppet/joint_position"}
    assert "datasets.arm.color is missing" in check(tmp_path, config_of(one, None, "cam: {{from: {camera}, at: 0}}")).stderr
    found = {color: deliver(daemon, config_of(one, color, "cam: {{from: {camera}, at: 0}}"), color)["cam"] for color in ("rgb", "bgr")}
    assert found["rgb"].std() > 10 and (found["rgb"] != found["bgr"]).any()
    np.testing.assert_array_equal(found["rgb"], found["bgr"][..., ::-1])
