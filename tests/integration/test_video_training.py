"""Training by ACT's recipe on a LeRobot set with video: its trainer, its daemon and the decoders are killed, and the losses are those
of a run that was not, bit for bit. The store is too small for all frames, so that units are decoded to the end of the run."""
import shutil
import subprocess
import sys

import pytest

from daemons import kill_decoders, private_daemons
from drafted import init
from paths import ROOT, clean_environment, package_environment
from training_runs import EVERY, PACKAGE, Training, check_resumed, folder  # noqa: F401

SETS = ROOT / "tests/golden/video/lerobot"
SCRIPT = ROOT / "tests/support/act_training.py"
EPOCHS = 8
CHANGES = [("version: 2\n", "version: 2\nmemory: {store: 1MiB, rings: 64MiB, reserve: 0}\nthreads: {decoders: 2}\n"),
           ("global_batch: 1\n", "global_batch: 2\n    slots: 3\n"), ("    windows: one_per_episode", "    # all rows"), ("at: 0..99", "at: 0..9")]

pytestmark = [
    pytest.mark.release,
    pytest.mark.slow,
    pytest.mark.skipif(not list((PACKAGE / "trajd").glob("_core*")), reason="built without Python's headers"),
]


@pytest.fixture(scope="module", params=["v30_h264_g10", "v30_av1", "v30_h264_g10 by reference"])
def made(request, tmp_path_factory):
    """The configuration that `trajctl init` writes for ACT, with a small store."""
    path = tmp_path_factory.mktemp("set")
    name, *reference = request.param.split(" by ")
    shutil.copytree(SETS / name, path / "set")  # by reference, its MP4 files must lie below the folder of the output
    subprocess.run([sys.executable, "-m", "trajd.convert", "lerobot", path / "set", "-o", path / "set.hdf5", *(f"--{word}" for word in reference)],
                   check=True, env=clean_environment(**package_environment()))
    config = init("act", path / "set.hdf5", path / "act.yaml")
    for before, after in CHANGES:
        assert before in config
        config = config.replace(before, after)
    return config


@pytest.fixture
def training(folder, made):  # noqa: F811
    return Training(folder, made, sys.executable, "numpy", SCRIPT, EPOCHS)


def test_losses_are_those_of_an_undisturbed_run(training):
    whole = training.run("whole")
    per_epoch = len(whole) // EPOCHS
    assert per_epoch == 75 // 2
    losses = [float.fromhex(line.split()[2]) for line in whole]
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])

    for name, count, with_daemon in (("early", EVERY + 1, False), ("job", per_epoch + 10, False), ("both", per_epoch + 3, True)):
        check_resumed(training, whole, name, count, with_daemon)

    killed = []

    def disturb(count):
        if count % 9 == 4:
            killed.extend(map(kill_decoders, private_daemons(training.folder)))

    assert training.run("decoders", disturb) == whole
    assert sum(killed) >= 4

    def kill_daemon(count):
        if count in (3, per_epoch + 5, 2 * per_epoch - 1):
            killed.extend(map(kill_decoders, private_daemons(training.folder)))
            assert training.kill_daemon()

    assert training.run("daemon", kill_daemon) == whole
