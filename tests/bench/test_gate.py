"""The gate against slower builds: verdicts, correction, neighbouring slices that resemble each other, and a round of all rows."""
import json
import math
import pathlib
import random
import subprocess
import sys

import pytest
from paths import BUILD

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import gate_verdict  # noqa: E402

ROWS = 13


def row(low, high, holm=0.0001, rounds=24):
    return {"ratio": (low + high) / 2, "low": low, "high": high, "holm": holm, "rounds": rounds}


@pytest.mark.parametrize("figures, verdict, text", [
    (row(1.02, 1.04), "slower", "slower by 3.0 %"),
    (row(0.96, 0.98), "faster", "faster by 3.0 %"),
    (row(0.995, 1.012, 0.4), "equal", "equal within 1.2 %"),
    (row(0.98, 1.005, 0.4), "equal", "equal within 2.0 %"),
    (row(1.02, 1.04, 0.02), "equal", "equal within 4.0 %"),  # not sure that it is slower; sure that it is not by 5 %
    (row(1.03, 1.056, 0.02), "not judged", "not judged: the interval reaches 1.056"),
    (row(0.97, 1.02, 0.4), "not judged", "not judged: the interval is 5.0 % wide"),
    (row(1.01, 1.06), "not judged", "not judged: the interval is 5.0 % wide"),
    (row(1.06, 1.20), "slower", "slower by 13.0 %"),
    (row(0.70, 0.80), "faster", "faster by 25.0 %"),
    (row(1.02, 1.04, rounds=15), "not judged", "not judged: 15 rounds, 16 are needed")])
def test_verdicts(figures, verdict, text):
    figures["verdict"] = gate_verdict.verdict(figures)
    assert (figures["verdict"], gate_verdict.describe(figures)) == (verdict, text)


@pytest.mark.parametrize("verdicts, status", [
    (["equal", "faster"], 0), (["equal", "not judged"], 3), (["slower", "not judged"], 1), (["slightly", "equal"], 0), (["slightly", "not judged"], 3)])
def test_exit_status(verdicts, status):
    ratios = {"slower": 1.06, "slightly": 1.03}
    rows = {n: {"verdict": one.replace("slightly", "slower"), "ratio": ratios.get(one, 1)} for n, one in enumerate(verdicts)}
    assert gate_verdict.status(rows) == status


def test_the_correction():
    assert gate_verdict.holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert gate_verdict.holm([0.01], 13) == pytest.approx([0.13])
    assert gate_verdict.holm([0.5, 0.9], 2) == [1, 1]


def test_signed_ranks():
    p, delta = gate_verdict.test([[0.01 * n] for n in range(1, 25)])
    assert delta == 1 and 1.8e-5 <= p < 3e-5  # scipy.stats.wilcoxon, method="approx": 1.8e-5
    p, delta = gate_verdict.test([[0.01 * n] for n in range(-12, 13)])
    assert delta == 0 and p == 1


def noise(draw, change=0.0, rounds=24, pairs=15, per_round=0.015, per_pair=0.03, kept=0.8):
    """Returns rounds of log ratios: each round has a shift of its own, and a pair resembles the one before it."""
    made = []
    for _ in range(rounds):
        shift, drift, of_round = draw.gauss(change, per_round), draw.gauss(0, per_pair), []
        for _ in range(pairs):
            drift = kept * drift + math.sqrt(1 - kept**2) * draw.gauss(0, per_pair)
            # one in 30 slices is interrupted
            of_round.append(shift + drift + (draw.choice((-1, 1)) * draw.uniform(0, 1) if draw.random() < 1 / 30 else 0))
        made.append(of_round)
    return made


def count_tables(draw, tables, as_rounds):
    """Returns the share of tables of equal builds in which a row has a significant p."""
    found = 0
    for _ in range(tables):
        ps = [gate_verdict.test(as_rounds(noise(draw)))[0] for _ in range(ROWS)]
        found += min(gate_verdict.holm(ps, ROWS)) < gate_verdict.LEVEL
    return found / tables


def test_equal_builds_are_not_called():
    draw = random.Random(1)
    assert count_tables(draw, 100, lambda rounds: rounds) <= 0.03
    # the same noise with each pair as if it were independent
    assert count_tables(draw, 4, lambda rounds: [[one] for pairs in rounds for one in pairs]) > 0.5


def test_the_interval_has_the_truth():
    draw, hits = random.Random(2), 0
    for _ in range(100):
        low, high = gate_verdict.interval(noise(draw, 0.02), draws=200)
        hits += low <= 0.02 <= high
    assert hits >= 90


def test_three_percent_are_found():
    draw, found = random.Random(3), 0
    for _ in range(10):
        rounds = noise(draw, math.log(1.03), per_round=0.01, per_pair=0.02)
        made = gate_verdict.judge({"row": [[(1, math.exp(one)) for one in pairs] for pairs in rounds]}, ROWS)["row"]
        found += made["verdict"] == "slower"
        assert made["new_us"] / made["old_us"] == pytest.approx(made["ratio"])
    assert found >= 9


def gate(*arguments):
    return subprocess.run([sys.executable, FOLDER / "gate.py", *map(str, arguments)], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_round_of_all_rows(tmp_path):
    done = gate("--builds", BUILD, BUILD, "--seconds", 1, "--turn-ms", 30, "--data", tmp_path / "data", "--out", tmp_path / "table.json")
    assert done.returncode == 3, done.stdout + done.stderr
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert len(rows) == ROWS and all(one["verdict"] == "not judged" and one["old_us"] > 0 and one["pairs"] >= 2 for one in rows.values())
    assert done.stdout.count("not judged: 1 rounds") == ROWS and "not passed" in done.stdout


@pytest.mark.parametrize("arguments, message", [
    (("--base", "no-such-commit"), "this clone has no such commit"), ((), "give the old build"),
    (("--builds", BUILD, BUILD, "--rows", "feeds"), "no row is called feeds"), (("--builds", BUILD, BUILD, "--slice-ms", 200), "a slice may have")])
def test_wrong_arguments(arguments, message):
    done = gate(*arguments)
    assert done.returncode == 2 and message in done.stderr
