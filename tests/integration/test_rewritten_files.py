"""A file that is rewritten in place, with its size, inode and time of modification as before: only its ctime tells. Nothing may take it for
the old one."""
import json
import os
import re
import subprocess
import time

import h5py
import numpy as np

from daemons import Daemon
from paths import PROGRAM, TRAJCTL
from preprocess_station import counts

CONFIG = """\
version: 2
cache: {folder}/cache
datasets: {{one: {{path: {folder}/one.hdf5, layout: robomimic}}}}
feeds:
  one: {{dataset: one, global_batch: 4, anchor: {{clock: actions}}, outputs: {{actions: {{at: 0..0, norm: min_max}}}}}}
"""
ROWS = 2000
PAST = 1_600_000_000 * 10**9


def write(path, scale=1.0):
    with h5py.File(path, "w") as file:
        file["data/demo_0/actions"] = np.linspace(-1, scale, ROWS)[:, None]
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
    os.utime(path, ns=(PAST, PAST))
    settle(path)
    return path


def settle(path):
    """Waits until a further change gives another ctime: the index trusts no younger file."""
    while time.time_ns() < path.stat().st_ctime_ns + 300_000_000:
        time.sleep(0.05)


def rewrite(path, row, value):
    """Changes a value in place and restores the time."""
    before = path.stat()
    with h5py.File(path, "r") as file:
        at = file["data/demo_0/actions"].id.get_offset()
    with open(path, "r+b") as file:
        file.seek(at + 8 * row)
        file.write(np.float64(value).tobytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (before.st_size, before.st_ino, before.st_mtime_ns) == (after.st_size, after.st_ino, after.st_mtime_ns)
    settle(path)


def check(folder):
    """Returns the number of files from the cache, and the feed's fingerprint."""
    done = subprocess.run([PROGRAM, "--check", "--config", folder / "one.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(re.search(r"\((\d+) from the cache", done.stderr)[1]), re.search(r"fingerprint (\w+)", done.stdout)[1]


def test_the_cache_of_the_index(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "one.yaml").write_text(CONFIG.format(folder=tmp_path))
    path = write(tmp_path / "one.hdf5")
    cached, first = check(tmp_path)
    assert cached == 0 and check(tmp_path) == (1, first)
    rewrite(path, 0, 0.25)
    cached, second = check(tmp_path)
    assert cached == 0 and second != first


def test_a_cache_of_another_version(tmp_path):
    """A cache file of 0.1.0 is read as stale."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "one.yaml").write_text(CONFIG.format(folder=tmp_path))
    write(tmp_path / "one.hdf5")
    first = check(tmp_path)[1]
    [cache] = (tmp_path / "cache").glob("*.index")
    raw = bytearray(cache.read_bytes())
    at = raw.index(b"TJTR") + 4
    raw[at:at + 4] = (4).to_bytes(4, "little")  # the record's version in 0.1.0; the digests of the cache are wrong now, too
    cache.write_bytes(raw)
    assert check(tmp_path) == (0, first) and check(tmp_path) == (1, first)


def stats(daemon):
    done = subprocess.run([TRAJCTL, "stats", "one", "--json", "--endpoint", daemon.endpoint], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reload(daemon):
    done = subprocess.run([TRAJCTL, "reload", "--wait", "--endpoint", daemon.endpoint], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


DATASET = "datasets: {{one: {{path: {}, layout: robomimic}}}}\nfeeds:\n  one: {{dataset: one, global_batch: 4, anchor: {{clock: actions}}, " \
          "outputs: {{actions: {{at: 0..0, norm: min_max}}}}}}\n"
NOT_SAMPLED = 100  # the fingerprint samples the rows 0..15, 661.., 1322.., 1984..


def test_statistics_and_reload(tmp_path):
    """A row that no sample reads: the fingerprint stays, and the statistics are those of the new rows."""
    path = write(tmp_path / "one.hdf5")
    one = Daemon(tmp_path / "daemon", DATASET.format(path)).start()
    assert "9.25" not in stats(one)
    assert "nothing has changed" in reload(one)
    rewrite(path, NOT_SAMPLED, 9.25)
    assert "1 changed" in reload(one)
    assert "9.25" in stats(one)
    one.stop()
    rewrite(path, NOT_SAMPLED, 10.25)
    one.start()  # with the cache of statistics
    assert "10.25" in stats(one)
    one.stop()


def test_preprocess(station):
    path = station.drop()
    os.utime(path, ns=(PAST, PAST))
    assert counts(station.run())[0] == 1
    first = station.manifest()
    assert first["source"].get("ctime_ns") == path.stat().st_ctime_ns
    assert counts(station.run())[0] == 0
    settle(path)
    with h5py.File(path) as file:
        at = file["data/demo_0/actions"].id.get_offset()
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(np.float64(0.123).tobytes())
    os.utime(path, ns=(PAST, PAST))
    assert counts(station.run())[0] == 1
    second = station.manifest()
    assert second["source"]["mtime_ns"] == first["source"]["mtime_ns"] and second["source"]["sha256"] != first["source"]["sha256"]


def test_a_manifest_without_ctime(station):
    """0.1.0 wrote none: the content decides once, and then the manifest has it."""
    path = station.drop()
    station.run()
    written = station.outbox / "a.hdf5.manifest.json"
    manifest = json.loads(written.read_text())
    ctime = manifest["source"].pop("ctime_ns")
    for text in (json.dumps(manifest), json.dumps(manifest, separators=(",", ":"))):
        written.write_text(text)
        assert counts(station.run())[0] == 0
        assert station.manifest()["source"]["ctime_ns"] == ctime
    os.chmod(path, 0o600)
    assert counts(station.run())[0] == 0 and station.manifest()["source"]["ctime_ns"] == path.stat().st_ctime_ns
    assert station.manifest()["source"]["mtime_ns"] == manifest["source"]["mtime_ns"]
