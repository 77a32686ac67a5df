"""This version and the one before side by side: any worker with any daemon, and a rolling restart.

TRAJD_BEFORE is a build folder of the version before. `make release-check` makes one."""
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from paths import BUILD
from versions import Place, Worker

BEFORE = os.environ.get("TRAJD_BEFORE")
OLD, NEW = pathlib.Path(BEFORE or "").resolve(), BUILD
pytestmark = pytest.mark.skipif(not BEFORE, reason="TRAJD_BEFORE names no build of the version before (make release-check)")
PAIRS = pytest.mark.parametrize("daemon, worker", [(OLD, NEW), (NEW, OLD)], ids=["old daemon", "new daemon"])


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "a")


@pytest.fixture
def all_batches(tmp_path):
    """The epoch as this version alone delivers it."""
    place = Place(tmp_path / "alone")
    place.start(NEW)
    batches = Worker(NEW, place, "train").rest()
    place.stop()
    assert len(batches) == 24
    return batches


def position_of(batch):
    return batch["position"]


def assert_complete(got, all_batches):
    """Each batch comes once, with its values."""
    assert sorted(got, key=position_of) == all_batches


@PAIRS
def test_an_epoch(place, all_batches, daemon, worker):
    place.start(daemon)
    assert Worker(worker, place, "train").rest() == all_batches
    place.stop()


@PAIRS
def test_two_workers_of_one_job(place, all_batches, daemon, worker):
    """One of each version take the batches of one queue."""
    place.start(daemon)
    workers = [Worker(version, place, "train", "--credit", 2) for version in (NEW, OLD)]
    got = [worker.next() for worker in workers]
    with ThreadPoolExecutor() as threads:
        got += [batch for batches in threads.map(Worker.rest, workers) for batch in batches]
    assert sorted(got, key=position_of) == all_batches
    place.stop()


@pytest.mark.parametrize("first, second", [(OLD, NEW), (NEW, OLD)], ids=["upgrade", "back again"])
@pytest.mark.parametrize("version", [OLD, NEW], ids=["old worker", "new worker"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_daemon_is_replaced_beneath_a_worker(place, all_batches, first, second, version, is_killed):
    """No batch is lost, and none comes twice."""
    place.start(first)
    worker = Worker(version, place, "train")
    got = [worker.next() for _ in range(5)]
    if is_killed:
        place.kill()
    else:
        place.stop()
    place.start(second)
    got += worker.rest()
    assert_complete(got, all_batches)
    place.stop()


def test_a_rolling_restart(place, all_batches, tmp_path):
    """First the daemon is replaced, then the worker, which leaves its state to the next one."""
    place.start(OLD)
    worker = Worker(OLD, place, "train")
    got = [worker.next() for _ in range(5)]
    place.stop()
    place.start(NEW)
    got += [worker.next() for _ in range(5)]
    token = worker.end()["checkpoint"]
    got += Worker(NEW, place, "train", "--resume", token).rest()
    assert_complete(got, all_batches)
    place.stop()
