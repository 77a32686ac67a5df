"""The units, run for real: a machine is booted, an operator's day is acted out in it (units.sh)."""
import pathlib
import re
import shutil
import subprocess

import pytest

import machine
from conftest import BUILD

HERE = pathlib.Path(__file__).parent
UNITS = BUILD / "systemd"
STEPS = re.search(r"for step in (.*?);", (HERE / "units.sh").read_text(), re.S).group(1).replace("\\", "").split()
CONFIG = """\
version: 1
group_access: true
memory: {store: 16MiB, rings: 16MiB, reserve: 0}
datasets: {demo: {path: /srv/demo.hdf5, layout: demo}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    anchor: {clock: actions}
    outputs: {actions: {at: 0..3}}
"""


@pytest.fixture(scope="module")
def day(tmp_path_factory, demo_file):
    reason = machine.why_not()
    if reason:
        pytest.skip(reason)
    return machine.boot(tmp_path_factory.mktemp("machine"), BUILD, (HERE / "units.sh").read_text(), {
        "/usr/local/etc/trajd/trajd.yaml": CONFIG,
        "/usr/local/etc/trajd/lab.yaml": CONFIG,
        "/home/member/.config/trajd/trajd.yaml": CONFIG,
        "/srv/demo.hdf5": demo_file.read_bytes(),
        "/etc/systemd/system/trajd.service.d/quick.conf": "[Service]\nWatchdogSec=3\n",
    })


@pytest.mark.parametrize("step", STEPS)
def test_step(day, step):
    steps, log = day
    assert steps.get(step) == "ok", f"{step}: {steps.get(step, 'was not reached')}\n{log}"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", ["trajd.service", "trajd@.service"])
def test_exposure(unit):
    """The sandbox of a unit is worth 1.5 or better (0 is best, 10 none)."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=15", UNITS / unit], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
