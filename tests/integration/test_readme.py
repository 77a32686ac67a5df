"""The first page runs as it is copied: its commands print what it shows, and its training loop trains."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

from datasets import make_demo_file
from paths import PACKAGE, PROGRAM, ROOT, TRAJCTL, package_environment
from waiting import wait_for

README = (ROOT / "README.md").read_text()


def blocks(heading):
    """Returns the indented blocks of a section, without their indentation."""
    section = README[README.index(f"## {heading}\n"):].split("\n## ")[0]
    return [re.sub("^    ", "", block, flags=re.M) for block in re.findall(r"(?:^    .*\n)+", section, re.M)]


def without_digests(text):
    """The bytes of the demo's file depend on the libraries that write it."""
    return re.sub(r"fingerprint [0-9a-f]{16}", "fingerprint", text)


def test_the_commands_print_what_the_page_shows(tmp_path):
    make_demo_file(tmp_path / "demo.hdf5", episodes=200)
    shown = blocks("Install and try")[1]
    commands = re.findall(r"^\$ (.*?) *(?:#.*)?\n((?:[^$].*\n)*)", shown, re.M)
    assert [command.split()[1] for command, _ in commands] == ["inspect", "init", "check"]
    for command, wanted in commands:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": f"{TRAJCTL.parent}:{os.environ['PATH']}"})
        assert done.returncode == 0 and without_digests(done.stdout) == without_digests(wanted), done


def test_the_training_loop_runs_as_it_is_copied(demo_file):
    """It trains, and with the checkpoint of a run that ended inside an epoch it goes on there."""
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    (loop,) = blocks("The training loop")
    assert loop.count(", {}  #") == 1
    loop += "        print(e, batch.position, loss, len(feed), len(batch['obs']))\n"
    again = loop.replace(", {}  #", ", {'feed': saved}  #")
    program = f"{loop}        if (e, batch.position) == (1, 256): saved = ckpt['feed']\n{again}"
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:  # a socket's path is short
        folder = pathlib.Path(folder)
        config = subprocess.run([TRAJCTL, "init", demo_file], capture_output=True, text=True, check=True, timeout=60).stdout
        limits = "version: 2\nexit_idle: 1s\nmemory: {store: 64MiB, rings: 64MiB, reserve: 0}\n"
        (folder / "square.yaml").write_text(config.replace("version: 2\n", limits))
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TRAJD_", "SLURM_", "MASTER_"))}
        env.update(TRAJD_RUNTIME_DIR=str(folder), XDG_CACHE_HOME=str(folder), TRAJD_PROGRAM=str(PROGRAM), **package_environment())
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True, timeout=120)
        wait_for(lambda: not list(folder.glob("trajd-*/*/run/feed.sock")), 60, "the end of the daemon")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    count = int(lines[0][3])
    assert count > 3 and all(float(line[2]) > 0 and int(line[4]) >= 4 for line in lines), lines
    batches = [(int(line[0]), int(line[1]) // 256) for line in lines]
    whole = [(epoch, batch) for epoch in range(3) for batch in range(count)]
    assert batches == whole + whole[count + 2:], batches
