"""A killed training run resumes from its checkpoint with the same losses as a run that was not killed:
clients/python/examples/behaviour_cloning.py in numpy, and in torch where a Python of this machine has it."""
import sys

import pytest

from paths import RECORDINGS
from pythons import find_python
from training_runs import PACKAGE, Training, check_resumed, folder  # noqa: F401

DEMO = """
version: 2
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 16
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/robot0_eef_pos:      {{at: -1..0}}
      obs/robot0_eef_quat:     {{at: -1..0}}
      obs/robot0_gripper_qpos: {{at: -1..0}}
      obs/object:              {{at: -1..0}}
      actions:                 {{at: -1..14}}
"""
RECORDED = """
version: 2
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{raw: {{path: {path}, layout: robosuite_raw}}}}
feeds:
  train:
    dataset: raw
    global_batch: 4
    anchor: {{clock: sim}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/states: {{from: states, at: -1..0}}
      actions:    {{at: 0..7}}
"""


def check(training, with_daemon):
    whole = training.run("whole")
    epochs = [line.split()[0] for line in whole]
    losses = [float.fromhex(line.split()[2]) for line in whole]
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])  # the loss falls
    check_resumed(training, whole, "killed", epochs.index("1") + epochs.count("1") // 3, with_daemon)  # in the middle of the second epoch


pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(not list((PACKAGE / "trajd").glob("_core*")), reason="built without Python's headers"),
]


@pytest.mark.slow
@pytest.mark.parametrize("with_daemon", [False, True], ids=["job", "job and daemon"])
def test_a_killed_run_has_the_losses_of_one_that_was_not(folder, demo_file, with_daemon):
    check(Training(folder, DEMO.format(path=demo_file), sys.executable, "numpy"), with_daemon)


@pytest.mark.skipif(not (RECORDINGS / "robosuite_lift_panda_demo.hdf5").exists(), reason="the recordings are not here (../shared/data)")
def test_the_same_on_a_recording(folder):
    check(Training(folder, RECORDED.format(path=RECORDINGS / "robosuite_lift_panda_demo.hdf5"), sys.executable, "numpy"), True)


@pytest.mark.slow
def test_the_same_in_torch(folder, demo_file):
    python = find_python("torch")
    if python is None:
        pytest.skip("no Python here has torch")
    check(Training(folder, DEMO.format(path=demo_file), python, "torch"), True)
