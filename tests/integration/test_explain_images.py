"""`explain` of images: how a frame is made, whether it is bad, and what is drawn for it, as the batch has it."""
import re
import subprocess

import numpy as np
import pytest

from paths import TRAJCTL
from image_files import random_frames, write_encoded

CONFIG = """
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: 4
    tail: short
    seed: 7
    bad_rows: keep
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: zero}}
    outputs:
      qpos: {{from: observations/qpos, at: 0}}
      top: {{from: observations/images/top, at: -1..0, image: {{resize: [20, 30], filter: nearest, {augment}}}}}
      whole: {{from: observations/images/top, at: 0}}
"""
AUGMENT = "augment: [{crop: [16, 24]}, {flip: 0.5}, {affine: 10}, {brightness: 0.3}, {hue: 0.1}], draw_per: "
KINDS = ["crop", "flip", "affine", "brightness", "hue"]


@pytest.fixture
def arm(tmp_path):
    write_encoded(tmp_path / "episode_0.hdf5", {"top": random_frames(9, 48, 64, 1)}, bad=[("top", 5)])
    return tmp_path


def steps_of(client, window, name, **question):
    page = client.ask("explain", window=window, name=name, **question)
    return page["outputs"][0]["items"], page["outputs"][0], page


@pytest.mark.parametrize("draw_per", ["frame", "window", "frame, draw: center"])
def test_draws_and_bad_frames_are_those_of_the_batch(daemon, arm, draw_per):
    client = daemon(CONFIG.format(path=arm, augment=AUGMENT + draw_per)).client()
    drawn, masks = set(), []
    for epoch in (0, 3):
        client.open("train", epoch=epoch)
        for _, arrays in client.epoch():
            for row, window in enumerate(arrays["window_id"]):
                steps, output, page = steps_of(client, int(window), "top", pass_number=epoch)
                assert page["pass"] == epoch and page["file"] == "episode_0.hdf5"
                assert [step["mask"] for step in steps] == arrays["top.mask"][row].tolist()
                for step, values in zip(steps, arrays["top.augment"][row]):
                    masks.append(step["mask"])
                    if step["mask"]:
                        assert "draws" not in step
                        assert ("observations/images/top: row 5: " if step["mask"] == 8 else "before start") in step["sources"][0]["reason"]
                        continue
                    assert [draw["kind"] for draw in step["draws"]] == KINDS
                    np.testing.assert_allclose([draw["values"] for draw in step["draws"]], values, rtol=1e-6)
                    drawn.add(str(step["draws"]))
    assert output["picture"]["decoder"] == "png" and output["picture"]["resize"] == "20x30" and output["picture"]["filter"] == "nearest"
    assert sorted(set(masks)) == [0, 1, 8]
    assert len(drawn) == (1 if "center" in draw_per else {"frame": 30, "window": 18}[draw_per])
    client.close()


def test_trajctl_explain_of_images(daemon, arm):
    one = daemon(CONFIG.format(path=arm, augment=AUGMENT + "frame"))
    client = one.client()
    client.open("train")
    list(client.epoch())

    def explain(*arguments):
        return subprocess.run([TRAJCTL, "explain", "train", *arguments, "--endpoint", one.endpoint], capture_output=True, text=True,
                              timeout=30, env=one.environment(), check=True).stdout

    text = explain("--window", "6", "--output", "top")
    assert "goals and draws of images are those of pass 0" in text
    assert re.search(r"  frames: decoder png, color rgb, .*crop none, resize 20x30, fit stretch, filter nearest", text)
    assert re.search(r" 5 +8 .*episode_0.hdf5: observations/images/top: row 5: ", text)
    assert re.search(r"draws crop row [0-4] column [0-6]; flip [01]; affine degrees -?[\d.]+ down 0 right 0 scale 1; brightness [\d.]+; hue -?[\d.]+\n", text)
    assert text.count("draws crop") == 1  # none for the bad frame
    whole = explain("--window", "6", "--output", "whole")
    assert "resize none" in whole and "draws crop" not in whole
    client.close()


def test_frames_that_are_prepared_in_the_file_are_named(daemon, arm, tmp_path):
    (tmp_path / "packed").mkdir()
    outputs = CONFIG.format(path=arm, augment="pad_value: 3").replace("      whole: {from: observations/images/top, at: 0}\n", "")
    (tmp_path / "train.yaml").write_text("version: 2\n" + outputs)
    subprocess.run([TRAJCTL, "pack", arm / "episode_0.hdf5", "-o", tmp_path / "packed", "--prepare", tmp_path / "train.yaml"], check=True,
                   capture_output=True, timeout=60)
    client = daemon(outputs.replace(str(arm), str(tmp_path / "packed"))).client()
    client.open("train")
    steps, output, _ = steps_of(client, 6, "top")
    assert output["picture"]["prepared"] == "48x64, resized to 20x30 by nearest" and output["picture"]["decoder"] == "none"
    assert [step["mask"] for step in steps] == [8, 0] and "row 5: " in steps[0]["sources"][0]["reason"]
    client.close()
