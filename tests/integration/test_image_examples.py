"""Each recording with images is trained on for an epoch by clients/python/examples/trainers/with_images.py; and a compressed ALOHA
file as `preset: act` gives it, from the file to the values."""
import os
import pathlib
import re
import subprocess
import tempfile

import numpy as np
import pytest

from paths import PACKAGE, PROGRAM, RECORDINGS, ROOT
from pythons import find_python
from waiting import wait_for

IMAGES = RECORDINGS / "images"
EXAMPLE = ROOT / "clients/python/examples/trainers/with_images.py"
ALOHA = [f"observations/images/cam_{name}" for name in ("high", "left_wrist", "right_wrist")]
ROBOMIMIC = ["obs/agentview_image", "obs/robot0_eye_in_hand_image"]
CASES = {  # name: (file, layout, preset, actions, cameras, rows)
    "act_raw": ("act_raw.hdf5", "aloha", "act", "action", ["observations/images/top"], 3),
    "act": ("mobile_aloha.hdf5", "aloha", "act", "action", ALOHA, 12),
    "act_plus_plus": ("mobile_aloha.hdf5", "aloha", "act++", "action", ALOHA[:1], 12),
    "act_plus_plus_diffusion": ("mobile_aloha.hdf5", "aloha", "act++_diffusion", "action", ALOHA[:2], 12),
    "diffusion_policy": ("mobile_aloha.hdf5", "aloha", "diffusion_policy", "action", ALOHA[:1], 12),
    "robotwin": ("robotwin.hdf5", "robotwin_bgr", "gr00t", "joint_action/left_arm", ["observation/head_camera/rgb"], 12),
    "robomind": ("robomind.hdf5", "robomind", "umi", "master/joint_position", ["observations/rgb_images/camera_top"], 12),
    "robomimic": ("robomimic_image84.hdf5", "robomimic", "robomimic", "actions", ROBOMIMIC, 12),
    "robomimic_gzip": ("robomimic_image84_gzip.hdf5", "robomimic", "robomimic", "actions", ROBOMIMIC, 12),
    "openpi": ("libero.hdf5", "libero", "openpi", "actions", ["obs/agentview_rgb", "obs/eye_in_hand_rgb"], 12),
    "openpi_torch": ("robomind.hdf5", "robomind", "openpi_torch", "master/joint_position", ["observations/rgb_images/camera_left"], 12),
    "libero": ("libero.hdf5", "libero", "octo", "actions", ["obs/agentview_rgb"], 12),
    "droid": ("droid_im128.h5", "droid_im", "robomimic", "observation/robot_state/eef_position",
              ["observation/camera/image/hand_camera_left_image"], 12),
    "maniskill": ("maniskill_rgbd.h5", "maniskill", "lerobot_act", "actions", ["obs/sensor_data/base_camera/rgb"], 12),
    "minari_equal": ("minari_jpeg_equal.hdf5", "minari_jpeg", "octo", "actions", ["observations"], 12),
    "minari_vlen": ("minari_jpeg_vlen.hdf5", "minari_jpeg", "octo", "actions", ["observations"], 12),
}


def recording(name):
    path = IMAGES / name
    if not path.exists():
        pytest.skip("../shared/data/images is not here")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_epoch_on_each_recording(name):
    file, layout, preset, actions, cameras, rows = CASES[name]
    path, python = recording(file), find_python("torch")
    if not python:
        pytest.skip("no Python of this machine has torch")
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        if layout == "minari_jpeg":  # these files have no last observation
            text = (ROOT / "configs/layouts/minari_jpeg.yaml").read_text().replace("rows: first, ", "").replace("layout: minari_jpeg", "layout: own")
            layout = pathlib.Path(folder) / "own.yaml"
            layout.write_text(text)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TRAJD_", "SLURM_", "MASTER_"))}
        env.update(TRAJD_RUNTIME_DIR=folder, XDG_CACHE_HOME=folder, TRAJD_PROGRAM=str(PROGRAM), PYTHONPATH=str(PACKAGE), CUDA_VISIBLE_DEVICES="")
        clock = "actions" if layout == "robomimic" else "steps"
        color = ["--color", "rgb"] if layout in ("aloha", "robomind") else []
        done = subprocess.run([python, EXAMPLE, path, layout, preset, actions, *cameras, "--clock", clock, "--batch", "2", *color], env=env, cwd=folder,
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found = re.search(r"^epoch 0: (\d+) batches, loss (\S+)$", done.stdout, re.M)
        assert found and int(found[1]) == (rows + 1) // 2 and np.isfinite(float(found[2])), done.stdout
        wait_for(lambda: not list(pathlib.Path(folder).glob("trajd-*/*/run/feed.sock")), 60, "the end of the daemon")


FEED = """
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: 2
    anchor: {{clock: steps}}
    outputs:
      plain: {{from: observations/images/cam_high, at: 0}}
      act: {{from: observations/images/cam_high, at: 0, image: {{preset: act}}}}
      plus: {{from: observations/images/cam_high, at: 0, image: {{preset: act++}}}}
"""


def test_compressed_aloha_as_act_sees_it(daemon):
    client = daemon(FEED.format(path=recording("mobile_aloha.hdf5"))).client()
    client.open("train")
    mean, std = np.float64([0.485, 0.456, 0.406]), np.float64([0.229, 0.224, 0.225])
    seen = 0
    for _, arrays in client.epoch():
        plain = arrays["plain"]
        assert plain.std() > 10  # an image, not one colour
        for name, pixels in {"act": plain, "plus": plain[..., ::-1]}.items():
            expected = ((pixels / 255 - mean) / std).transpose(0, 1, 4, 2, 3)
            assert arrays[name].dtype == np.float32 and arrays[name].shape == expected.shape
            np.testing.assert_allclose(arrays[name], expected, atol=2e-6)
        seen += len(plain)
    client.close()
    assert seen == 12
