"""What the version before delivered and left behind, read by this one. record.py has made the files."""
import json
import re
import subprocess
import sys
import time

import pytest
from paths import BUILD, PACKAGE
from versions import RECORDED, Place, Worker
from waiting import wait_for

VERSIONS = sorted(path.name for path in RECORDED.iterdir() if path.is_dir())
pytestmark = pytest.mark.skipif(not list((PACKAGE / "trajd").glob("_core*")), reason="built without Python's headers")


@pytest.fixture(params=VERSIONS)
def version(request):
    return RECORDED / request.param


@pytest.fixture
def recorded(version):
    return json.loads((version / "batches.json").read_text())


@pytest.mark.parametrize("epoch", ["train/0", "train/1"])
def test_the_same_windows_in_the_same_order(started, recorded, tmp_path, epoch):
    place = started(Place(tmp_path / "a"))
    assert Worker(BUILD, place, *epoch.split("/")).rest() == recorded[epoch]


def test_statistics_scale_as_before(started, recorded, version, tmp_path):
    """0.1.0 weighed windows where rows are weighed now. `over: windows` gives its values."""
    place = Place(tmp_path / "a")
    config = place.folder / "trajd.yaml"
    if version.name == "0.1.0":
        config.write_text(config.read_text().replace("norm: mean_std", "norm: {by: mean_std, over: windows}")
                          .replace("norm: min_max", "norm: {by: min_max, over: windows}"))
    assert Worker(BUILD, started(place), "normed").rest() == recorded["normed/0"]


def test_a_state_goes_on(started, recorded, version, tmp_path):
    (tmp_path / "state.json").write_text(json.dumps(json.loads((version / "state-train.json").read_text())["state"]))
    place = started(Place(tmp_path / "a"))
    assert Worker(BUILD, place, "train", 1, "--state", tmp_path / "state.json").rest() == recorded["train/1"][5:]


@pytest.mark.parametrize("version", ["0.1.0"], indirect=True)
def test_a_state_of_other_statistics_is_refused(started, version, tmp_path):
    """Those of 0.1.0, which weighed windows."""
    (tmp_path / "state.json").write_text(json.dumps(json.loads((version / "state-normed.json").read_text())["state"]))
    worker = Worker(BUILD, started(Place(tmp_path / "a")), "normed", 1, "--state", tmp_path / "state.json", stderr=subprocess.PIPE)
    printed, told = worker.process.communicate("\n", timeout=30)
    assert worker.process.returncode == 1 and not printed and "StateError" in told


def test_a_checkpoint_goes_on(started, recorded, version, tmp_path):
    token = json.loads((version / "state-train.json").read_text())["checkpoint"]
    place = started(Place(tmp_path / "a"))
    assert Worker(BUILD, place, "train", 1, "--resume", token).rest() == recorded["train/1"][5:]


@pytest.mark.slow
def test_a_journal_is_read(started, version, recorded, tmp_path):
    """Daemon and worker were killed with seven batches handed out. A new worker waits for the old one, and begins again."""
    place = started(Place(tmp_path / "a", state=version / "state"))
    assert Worker(BUILD, place, "train").rest() == recorded["train/0"]
    assert re.search("begins epoch 0 again: [5-7] of 24 batches of epoch 0 were DONE under an earlier daemon", place.text())


def test_statistics_in_a_file(version):
    sys.path.insert(0, str(PACKAGE))
    import trajd

    told = trajd.Stats.load(version / "statistics.json")
    figures = json.loads((version / "statistics.json").read_text())["outputs"]
    assert told["joint"]["mean"].tolist() == figures["joint"]["mean"]


@pytest.mark.parametrize("suffix, made", [("index", "1 file (0 from the cache)"), ("statistics", "statistics of 2 outputs over")])
def test_a_cache_is_made_anew(started, version, tmp_path, suffix, made):
    """A cache of another version is not read, also under the name that this version gives it. The one that is made is."""
    place = Place(tmp_path / "a")
    wait_for(lambda: time.time() > (place.folder / "arm.hdf5").stat().st_ctime + 2.1, what="a file that does not change any more")
    place.start().stop()
    ours = sorted((place.folder / "cache").glob(f"*.{suffix}"))
    for file, old in zip(ours, sorted((version / "cache").glob(f"*.{suffix}")), strict=True):
        file.write_bytes(old.read_bytes())
    place.start().stop()
    assert made in place.last_start()
    started(place)
    assert made not in place.last_start()
