"""Runs the systemd units for real: boots a container and runs the steps of units.sh in it."""
import pathlib
import re
import shutil
import subprocess

import pytest

import systemd_machine as machine
from installing import install
from paths import BUILD

pytestmark = [pytest.mark.slow, pytest.mark.release]
HERE = pathlib.Path(__file__).parent
STEPS = re.search(r"for step in (.*?);", (HERE / "units.sh").read_text(), re.S).group(1).replace("\\", "").split()
CONFIG = """\
version: 2
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
PREPROCESS = """\
version: 1
inbox: /srv/trajd/lab/inbox
outbox: /srv/trajd/lab/outbox
quarantine: /srv/trajd/lab/quarantine
settle: 200ms
layout: demo
rate: 10
"""


@pytest.fixture(scope="module")
def day(tmp_path_factory, demo_file):
    reason = machine.why_not()
    if reason:
        pytest.skip(reason)
    package = tmp_path_factory.mktemp("package")
    subprocess.run(["cpack", "-G", "DEB", "-B", package], cwd=BUILD, check=True, stdout=subprocess.DEVNULL)
    return machine.boot(tmp_path_factory.mktemp("machine"), (HERE / "units.sh").read_text(), {
        "/srv/trajd.deb": next(package.glob("*.deb")).read_bytes(),
        "/etc/trajd/trajd.yaml": CONFIG,
        "/etc/trajd/lab.yaml": CONFIG,
        "/home/member/.config/trajd/trajd.yaml": CONFIG,
        "/srv/demo.hdf5": demo_file.read_bytes(),
        "/etc/trajd/preprocess/lab.yaml": PREPROCESS,
        "/etc/systemd/system/trajd.service.d/quick.conf": "[Service]\nWatchdogSec=3\n",
    })


@pytest.mark.parametrize("step", STEPS)
def test_step(day, step):
    steps, log = day
    assert steps.get(step) == "ok", f"{step}: {steps.get(step, 'was not reached')}\n{log}"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_exposure(tmp_path):
    """systemd-analyze rates the sandbox of the units 1.5 or better (0 is best, 10 is none) and knows all their keys."""
    install("/usr", DESTDIR=str(tmp_path))
    units = sorted((tmp_path / "usr/lib/systemd/system").glob("*.service"))
    assert [unit.name for unit in units] == ["trajd-metrics@.service", "trajd-preprocess@.service", "trajd.service", "trajd@.service"]
    for unit in units:
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=15", unit], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
        assert "nknown" not in done.stderr and "ignoring" not in done.stderr, done.stderr
