"""Boots systemd in a container over an overlay of this machine's root, for tests of units. This machine does not
change.

The container runs a script of steps. A step's line in the results is "NAME ok" or "NAME FAILED message"."""
import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

DRIVER = """\
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /results/driver.sh
ExecStopPost=/bin/systemctl poweroff --force
StandardOutput=file:/results/driver.log
StandardError=file:/results/driver.log
"""


def why_not():
    """Returns the reason why no container can be booted here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not shutil.which("systemd-nspawn"):
        return "systemd-nspawn is not installed (package systemd-container)"
    return None


def boot(folder, script, files, timeout=300):
    """Boots, runs the bash `script` and powers off. `files` maps a path in the container to text or bytes. Returns
    {step: rest of its line} and the script's log."""
    with open(pathlib.Path(tempfile.gettempdir()) / "trajd-machine.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two containers at once share a control group, and each kills the other's processes
        return boot_alone(pathlib.Path(folder), script, files, timeout)


def boot_alone(folder, script, files, timeout):
    upper, work, root, results = (folder / name for name in ("upper", "work", "root", "results"))
    for path in (upper, work, root, results):
        path.mkdir()
    for path, text in {**files, "/etc/systemd/system/driver.service": DRIVER}.items():
        target = upper / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.write_bytes if isinstance(text, bytes) else target.write_text)(text)
    (results / "driver.sh").write_text(script)
    mounted = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", root],
                             capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip("no overlay can be mounted over / here: " + mounted.stderr.strip())
    try:
        with open("/dev/zero", "rb") as nothing, open(folder / "boot.log", "wb") as log:
            subprocess.run(["systemd-nspawn", "-q", "-b", "-D", root, "--register=no", "--keep-unit", f"--bind={results}:/results",
                            "systemd.wants=driver.service"], stdin=nothing, stdout=log, stderr=subprocess.STDOUT, timeout=timeout)
    finally:
        subprocess.run(["umount", "-l", root], check=True)
    if not (results / "driver.log").exists():
        pytest.skip("systemd does not boot here: " + (folder / "boot.log").read_text(errors="replace")[-300:])
    lines = (results / "steps").read_text().splitlines() if (results / "steps").exists() else []
    return dict(line.partition(" ")[::2] for line in lines), (results / "driver.log").read_text()
