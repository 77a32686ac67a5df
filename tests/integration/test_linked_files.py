"""Files that have several names in a dataset's folder: each is read once, and a message names the other names."""
import json
import os
import shutil
import subprocess

from daemons import Daemon, smallest
from paths import TRAJCTL, clean_environment

CONFIG = """
    datasets: {{demo: {{path: "{path}", layout: demo}}}}
    feeds: {{all: {feed}}}
"""


def opened(folder, path):
    daemon = Daemon(folder, CONFIG.format(path=path, feed=smallest(batch=1))).start()
    client = daemon.client()
    feed = client.open("all")
    client.close()
    daemon.stop()
    return feed.window_count, feed.fingerprint, daemon.text()


def inspect(*arguments):
    done = subprocess.run([TRAJCTL, "inspect", "--layout", "demo", *arguments], capture_output=True, text=True, timeout=60,
                          env=clean_environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_linked_file_gives_its_windows_once(tmp_path, demo_file):
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(demo_file, data / "one.hdf5")
    count, fingerprint, said = opened(tmp_path / "plain", data)
    assert "by another name" not in said
    os.link(data / "one.hdf5", data / "three.hdf5")
    (data / "two.hdf5").symlink_to("one.hdf5")
    again, same, said = opened(tmp_path / "linked", data)
    assert (again, same) == (count, fingerprint)
    for name in ("three", "two"):
        assert said.count(f"dataset demo: {name}.hdf5: left out: it is one.hdf5 by another name") == 1
    assert inspect(data).count("it is one.hdf5 by another name") == 2
    assert "three.hdf5: left out" in inspect("--json", data) and json.loads(inspect("--json", data))
