"""Images decide values, never the order: a job may go on with others, and gets a warning that names what differs."""
import json
import warnings

import numpy as np
import pytest
from image_files import nearest, random_frames, write_encoded

import trajd

LAYOUT = """\
layout: cameras
episodes: {files: "**/episode_*.hdf5", groups: /}
clocks: {steps: {rate: 50, rows: action}}
streams:
  action: {path: action, kind: previous}
  observations/qpos: {path: observations/qpos, kind: linear}
  observations/images/*: {path: observations/images/*, kind: previous, image: {color: COLOR, flip: FLIP}}
"""
FEED = """
datasets: {{arm: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: arm
    global_batch: 4
    slots: 4  # fewer than an epoch has batches, which must not all be on their way when a daemon dies
    tail: short
    seed: 1
    anchor: {{clock: steps}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      top: {{from: observations/images/top, at: 0{top}}}
"""
ROWS, SIZE = 24, (48, 64)
IMAGE = ", image: {%s}"


class Runs:
    """Starts one daemon after the other, with other keys of the images each time."""

    def __init__(self, daemon, folder):
        self.daemon, self.folder, self.one, self.count = daemon, folder, None, 0
        self.frames = random_frames(ROWS, *SIZE, 1)
        write_encoded(folder / "episode_0.hdf5", {"top": self.frames})

    def config(self, top, color="rgb", flip="none"):
        layout = self.folder / "cameras.yaml"
        layout.write_text(LAYOUT.replace("COLOR", color).replace("FLIP", flip))
        return FEED.format(path=self.folder, layout=layout, top=top)

    def feed(self, top="", **layout):
        if self.one:
            self.one.stop()
        self.count += 1
        self.one = self.daemon(self.config(top, **layout), folder=f"run{self.count}")
        return trajd.connect(self.one.endpoint, feed="train", timeout=60)

    def state(self, top="", **layout):
        with self.feed(top, **layout) as feed:
            batches = feed.epoch(1)
            next(batches), next(batches)
            return json.loads(json.dumps(feed.state_dict())), feed.info

    def resume(self, state, top="", **layout):
        """Returns the warnings, and (row, image) of the windows that remain."""
        with self.feed(top, **layout) as feed, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", trajd.DataWarning)
            feed.load_state_dict(state)
            batches = list(feed.epoch(1))
            assert batches[0].position == 8
            seen = [(round(float(q[0, 0])), np.array(image[0]))
                    for batch in batches for q, image in zip(batch["qpos"], batch["top"])]
        texts = [str(one.message) for one in caught if "other images" in str(one.message)]
        return texts, seen


@pytest.fixture
def runs(daemon, tmp_path):
    return Runs(daemon, tmp_path)


@pytest.mark.parametrize("top, layout, words, make", [
    (IMAGE % "crop: {top: 3, left: 5, height: 40, width: 50}", {}, "crop was none, is 40x50 at 3, 5", lambda f: f[3:43, 5:55]),
    (IMAGE % "resize: [20, 30], filter: nearest", {},
     "resize was none, is 20x30, fit was not given, is stretch, filter was not given, is nearest", lambda f: nearest(f, 20, 30)),
    (", layout: chw", {}, "layout was hwc, is chw", lambda f: f.transpose(2, 0, 1)),
    (IMAGE % "augment: [{flip: 1}]", {}, "augment[0] was not given, is flip", lambda f: f[:, ::-1]),
    ("", {"color": "bgr"}, "color was rgb, is bgr", lambda f: f[..., ::-1]),
    ("", {"flip": "180"}, "flip was none, is 180", lambda f: f[::-1, ::-1])],
    ids=["crop", "resize", "layout", "augment", "color", "flip"])
def test_other_images_give_a_warning(runs, caplog, top, layout, words, make):
    state, before = runs.state()
    texts, seen = runs.resume(state, top, **layout)
    assert len(texts) == 1 and f"output top: {words}" in texts[0] and texts[0].startswith("feed train: the job goes on with other images")
    assert texts[0] in caplog.text
    with runs.feed(top, **layout) as feed:
        assert feed.info.fingerprint == before.fingerprint and feed.info.values_digest != before.values_digest
    texts, same = runs.resume(state)
    assert texts == [] and [row for row, _ in same] == [row for row, _ in seen] and len(seen) == ROWS - 8
    for row, image in seen:
        np.testing.assert_array_equal(image, make(runs.frames[row]))


def test_other_numbers_of_an_augmentation_are_named(runs):
    state, _ = runs.state(IMAGE % "augment: [{crop: [40, 40]}, {brightness: 0.3}]")
    (text,), _ = runs.resume(state, IMAGE % "augment: [{crop: [40, 40]}, {brightness: 0.4}], draw_per: window")
    assert "output top: augment[1]: factor 0.7 to 1.3 -> factor 0.6 to 1.4" in text and "affine" not in text
    assert "draw_per was frame, is window" in text and "augment[0]" not in text


@pytest.mark.parametrize("saved, found, words", [
    ("unit", "signed", "output top: norm was unit, is signed."),
    ("{mean: [0.5, 0.4, 0.3], std: 0.25}", "imagenet", "output top: norm was mean 0.5, 0.4, 0.3, std 0.25, 0.25, 0.25, is imagenet.")])
def test_other_normalisation_of_images_is_refused(runs, saved, found, words):
    state, _ = runs.state(f", norm: {saved}")
    with pytest.raises(trajd.StateError, match="the state was made with other normalisation") as caught:
        runs.resume(state, f", norm: {found}")
    assert words in str(caught.value)


def test_states_without_images_say_nothing(runs):
    state, _ = runs.state()
    assert set(state["pictures"]["outputs"]) == {"top"} and state["pictures"]["outputs"]["top"]["color"] == "rgb"
    texts, _ = runs.resume({key: value for key, value in state.items() if key != "pictures"}, IMAGE % "crop: [40, 40]")
    assert texts == []
    with runs.feed() as feed:
        for bad in (None, {"digest": "1f"}, {"digest": "xyz", "outputs": {}}, {"digest": "1f", "outputs": {"top": 3}}):
            with pytest.raises(trajd.StateError, match="pictures"):
                feed.load_state_dict({**state, "pictures": bad})


def test_a_daemon_that_returns_with_other_images(runs):
    """The job goes on in the order it was in, and the images have another size from there on."""
    rows, shapes = [], []
    with runs.feed() as feed, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", trajd.DataWarning)
        for number, batch in enumerate(feed.epoch(0)):
            rows += batch["qpos"][:, 0, 0].round().astype(int).tolist()
            shapes.append(batch["top"].shape[2:])
            del batch
            if number == 1:
                runs.one.kill()
                images = "images/top, at: 0"
                runs.one.config.write_text(runs.one.config.read_text().replace(
                    images, images + IMAGE % "crop: [40, 40], augment: [{flip: 1}]"))
                runs.one.start()
    assert sorted(rows) == list(range(ROWS))
    assert shapes[0] == (48, 64, 3) and shapes[-1] == (40, 40, 3)
    (text,) = [str(one.message) for one in caught if "other images" in str(one.message)]
    assert "crop was none, is 40x40 at 4, 12" in text and "augment[0] was not given, is flip" in text


MIXED = """
datasets:
  near: {{path: {path}/near, layout: {path}/cameras.yaml}}
  far: {{path: {path}/far, layout: {path}/cameras.yaml}}
feeds:
  train:
    mix: {{near: {{weight: 1}}, far: {{weight: 1}}}}
    global_batch: 4
    anchor: {{clock: steps}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      top: {{from: observations/images/top, at: 0, image: {{crop: {crop}, resize: [16, 16]}}}}
"""


def test_a_mixture_names_the_dataset_whose_images_differ(daemon, tmp_path):
    """A crop in the middle has another place in the frames of each dataset; where a crop is the whole frame, nothing differs."""
    (tmp_path / "cameras.yaml").write_text(LAYOUT.replace("COLOR", "rgb").replace("FLIP", "none"))
    for name, size in (("near", 32), ("far", 40)):
        (tmp_path / name).mkdir()
        write_encoded(tmp_path / name / "episode_0.hdf5", {"top": random_frames(ROWS, size, size, size)})
    states, digests = [], []
    for number, crop in enumerate(("[32, 32]", "{top: 0, left: 0, height: 32, width: 32}")):
        one = daemon(MIXED.format(path=tmp_path, crop=crop), folder=f"run{number}")
        with trajd.connect(one.endpoint, feed="train", timeout=60) as feed, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", trajd.DataWarning)
            if states:
                feed.load_state_dict(states[0])
            next(feed.epoch(1))
            states.append(feed.state_dict())
            digests.append(feed.info.fingerprint)
    assert set(states[0]["pictures"]["outputs"]) == {"top of near", "top of far"} and digests[0] == digests[1]
    (text,) = [str(warning.message) for warning in caught if "other images" in str(warning.message)]
    assert "output top of far: crop was 32x32 at 4, 4, is 32x32 at 0, 0" in text and "near" not in text


def test_a_daemon_that_has_no_time_to_answer_is_asked_again(runs, monkeypatch):
    """The batch is not lost, and its images are compared with the next one."""
    with runs.feed() as feed:
        batches = feed.epoch(0)
        next(batches)
        runs.one.kill()
        runs.one.config.write_text(runs.one.config.read_text().replace("images/top, at: 0", "images/top, at: 0" + IMAGE % "crop: [40, 40]"))
        runs.one.start()
        asked = []

        def refuse(*arguments):
            asked.append(arguments)
            raise trajd.Busy("too many questions")

        monkeypatch.setattr("trajd.feed._ASK_AGAIN_S", 0)
        monkeypatch.setattr("trajd.connection.Connection.images", refuse)
        while not asked:
            next(batches)
        monkeypatch.undo()
        with pytest.warns(trajd.DataWarning, match="crop was none, is 40x40"):
            assert next(batches)["top"].shape[2:] == (40, 40, 3)
