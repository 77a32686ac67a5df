"""The package's own tests: the perfect loader is perfect, and each fault that is put into it is seen. They need no peer."""
import json
import random

import numpy as np
import pytest
from loaderproof import formulas, mutations, order, results, seen_by, timing
from loaderproof.__main__ import Run
from loaderproof.drivers.reference import Reference, Waiting
from loaderproof.formulas import BY_NAME, MS, draw_stamp, error, multiply, read_stamp, truth

def test_an_image_shows_its_stamp():
    times = np.array([0, 1234, 16777215, 33_366_667 // 100_000]) * 100_000
    images = draw_stamp(times)
    assert images.shape[1:] == (32, 48, 3)
    assert read_stamp(images)[:, 0] == pytest.approx(times / MS)
    assert read_stamp(images / np.float32(255))[:, 0] == pytest.approx(times / MS)


def test_the_errors_are_those_of_the_field():
    tool, times = BY_NAME["tool"], np.arange(50) * 20 * MS
    true = truth(tool, 0, times)
    turn = np.array([[0, np.sin(np.radians(5)), 0, np.cos(np.radians(5))]])
    assert error(tool, multiply(true, np.repeat(turn, 50, 0)), true) == pytest.approx(np.full(50, 10))
    assert error(tool, -true, true) == pytest.approx(np.zeros(50), abs=1e-5)
    arm = BY_NAME["arm"]
    assert error(arm, truth(arm, 0, times) + [3, 4, 0], truth(arm, 0, times)) == pytest.approx(np.full(50, 5))


def test_a_recording_is_a_function_of_its_arguments():
    one, other = formulas.make("jitter 5 ms", 1, 2.0), formulas.make("jitter 5 ms", 1, 2.0)
    for name, stream in one.episodes[0].streams.items():
        assert (stream.values == other.episodes[0].streams[name].values).all()
    later = one.episodes[0].streams["arm"].changed_after(1000 * MS)
    changed = (later.values != one.episodes[0].streams["arm"].values).any(1)
    assert (changed == (later.sensed > 1000 * MS)).all()


def test_the_perfect_loader_is_perfect(tmp_path):
    run = Run("reference", 0, tmp_path)
    leak = timing.run("T2", "jitter 5 ms", 0, run.make)
    assert all(unit["share"] == 0 and unit["ahead_of_arrival_ms"] == 0 for unit in leak.values())
    waits = timing.run("T2", "jitter 5 ms", 0, lambda: run.make(Waiting))
    assert waits["mm"]["share"] == 1 and 0 < waits["mm"]["ahead_ms"] < 17 + 10  # a period of the slower stream and its jitter
    for case in timing.T3_CASES:
        assert timing.run("T3", case, 0, run.make) == {**timing.run("T3", case, 0, run.make), "unmarked": 0, "nan": 0, "overmarked": 0}
    score = timing.run("T1", "latency 80 ms", 0, run.make)
    assert score["mm"]["mean"] < 2 and score["ms"]["max"] < 34


@pytest.mark.parametrize("fault", seen_by.SEEN_BY)
def test_a_fault_is_seen(fault, tmp_path):
    assert seen_by.complaints("reference", fault, tmp_path)


def test_all_faults_are_tried():
    assert set(seen_by.SEEN_BY) == set(mutations.NAMES)


def test_a_killed_trainer_goes_on(tmp_path):
    run = Run("reference", 0, tmp_path, quick=True)
    folder, windows = order.prepare(run)
    fine = order.trial(run, folder, windows, "the trainer", 1, 0, random.Random(1))
    assert fine == {"missing": 0, "doubled": 0, "restarts": 1, "hung": 0}
    faulty = Run("reference", 0, tmp_path, mutation="state_too_old")
    assert order.trial(faulty, folder, windows, "the trainer", 1, 0, random.Random(1))["doubled"] == 24


def test_a_result_is_one_line_and_a_table_shows_it(tmp_path):
    score = {"missing": 0, "doubled": 3}
    one = results.result("T5", Reference(tmp_path), "kill -9 the trainer", 0, score, perfect={"missing": 0, "doubled": 0})
    (tmp_path / "perfect.jsonl").write_text(json.dumps(one) + "\n")
    table = results.table(results.read([tmp_path]))
    assert "doubled 3" in table and "kill -9 the trainer" in table
    assert results.worse("T5", score, one["perfect"]) == ["doubled: 3"]
