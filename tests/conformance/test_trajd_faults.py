"""Faults of what trajd delivers, and of its configuration, are all seen. Each starts some daemons, which takes seconds."""
import pathlib
import tempfile
import time

import pytest
from loaderproof import results, seen_by, timing
from loaderproof.__main__ import Run
from loaderproof.driver import load
from loaderproof.drivers import trajd_feed
from paths import PACKAGE

pytestmark = [pytest.mark.slow, pytest.mark.release]

# Of each wrong configuration: the driver's texts that are replaced, and the case that must see it.
CONFIGURATIONS = {
    "latency is not stated": ({"latency: 80000000ns": "latency: 0ns"}, "T1", "latency 80 ms"),
    "positions are held": ({"kind: linear": "kind: previous"}, "T1", "clean"),
    "rotations are held": ({"kind: slerp, order: xyzw": "kind: previous"}, "T1", "clean"),
    "gaps are bridged": ({", max_gap: 100ms": ""}, "T3", "drop-outs 200 ms"),
    "the wrong clock": ({"path: wrist/t, unit: ns": "path: wrist/t, unit: ns, offset: 40ms"}, "T1", "clean"),
}


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """The package is that of the build, here and in the training processes."""
    monkeypatch.syspath_prepend(str(PACKAGE))


@pytest.fixture
def folder():
    """A folder with a short path: the sockets of a private daemon are in it."""
    with tempfile.TemporaryDirectory(prefix="lp-", ignore_cleanup_errors=True) as made:
        yield pathlib.Path(made)


# Of same_rank, see the test after this one.
@pytest.mark.parametrize("fault", sorted(set(seen_by.SEEN_BY) - {"same_rank"}))
def test_a_fault_of_the_delivery_is_seen(fault, folder):
    assert seen_by.complaints("trajd", fault, folder)


def test_two_processes_of_one_rank_are_seen(folder):
    """trajd waits for the absent rank and delivers nothing. The test sees that, after as long as it is told to wait."""
    begin = time.monotonic()
    assert seen_by.complaints("trajd", "same_rank", folder, patience=20) == ["failed: nothing was written for 20 seconds"]
    assert time.monotonic() - begin < 120


@pytest.mark.parametrize("fault", CONFIGURATIONS)
def test_a_wrong_configuration_is_seen(fault, folder, monkeypatch):
    replaced, test, case = CONFIGURATIONS[fault]
    run = Run("trajd", 0, folder)
    base = timing.run(test, case, 0, run.make)
    whole = trajd_feed.Trajd.layout

    def layout(self, recording):
        text = whole(self, recording)
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        return text

    monkeypatch.setattr(trajd_feed.Trajd, "layout", layout)
    assert results.worse(test, timing.run(test, case, 0, run.make), base)


def test_a_look_ahead_is_seen(folder, monkeypatch):
    run = Run("trajd", 0, folder)
    base = timing.run("T2", "clean", 0, run.make)
    monkeypatch.setattr(trajd_feed.Trajd, "output", "lookahead: 40ms")
    assert results.worse("T2", timing.run("T2", "clean", 0, run.make), base)


def test_trajd_has_none_of_these_faults(folder):
    run = Run("trajd", 0, folder)
    for test, cases in (("T2", timing.T2_CASES), ("T3", timing.T3_CASES)):
        for case in cases:
            ideal = timing.run(test, case, 0, lambda: run.make(load("reference")))
            assert not results.worse(test, timing.run(test, case, 0, run.make), ideal), (test, case)
