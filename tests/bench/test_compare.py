"""compare.py: regressions and noise, regret, exit status."""
import importlib.util
import json
import pathlib
import random

import pytest

spec = importlib.util.spec_from_file_location("compare", pathlib.Path(__file__).with_name("compare.py"))
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)


def row(times, candidates=(), **keys):
    shape = {"B": 1, "S": 2, "T": 3, "D": 4, "source": "f32", "output": "f32", "kind": 0, "layout": "dense", **keys}
    return {**shape, "cold_us": list(times), "candidates": [{"cold_us": list(c)} for c in candidates]}


def write(path, *rows):
    path.write_text(json.dumps({"rows": rows}))
    return str(path)


def noise(around, seed, count=9):
    draw = random.Random(seed)
    return [around * (1 + 0.005 * draw.uniform(-1, 1)) for _ in range(count)]


@pytest.mark.parametrize("factor, status", [(1.0, 0), (1.02, 0), (1.06, 1), (0.8, 0)])
def test_a_slower_shape_is_told(tmp_path, capsys, factor, status):
    old = write(tmp_path / "old.json", row(noise(5, 1)), row(noise(9, 2), D=7))
    new = write(tmp_path / "new.json", row(noise(5 * factor, 3)), row(noise(9, 4), D=7))
    assert compare.compare(old, new, 0.03) == status
    told = capsys.readouterr().out
    assert ("SLOWER" in told) == bool(status) and ("faster" in told) == (factor < 0.97)
    assert "2 shapes in both" in told


def test_one_outlier_is_no_regression(tmp_path):
    old = write(tmp_path / "old.json", row(noise(5, 1)))
    new = write(tmp_path / "new.json", row(noise(5, 2, 8) + [9.0]))
    assert compare.compare(old, new, 0.03) == 0


def test_shapes_differ_by_layout_too(tmp_path, capsys):
    old = write(tmp_path / "old.json", row(noise(5, 1), layout="dense"))
    new = write(tmp_path / "new.json", row(noise(9, 1), layout="rows"))
    assert compare.compare(old, new, 0.03) == 0
    assert "0 shapes in both, 2 in one" in capsys.readouterr().out


def test_rank_statistics():
    p, delta = compare.mann_whitney([1, 2, 3, 4, 5, 6, 7, 8, 9], [11, 12, 13, 14, 15, 16, 17, 18, 19])
    assert delta == 1 and p < 1e-3  # scipy.stats.mannwhitneyu: 4.1e-4 by the same approximation
    p, delta = compare.mann_whitney([1, 2, 3], [1, 2, 3])
    assert delta == 0 and p == 1
    low, high = compare.bootstrap_ratio([2.0] * 9, [3.0] * 9)
    assert low == high == 1.5


def test_regret_of_another_runs_choice(tmp_path, capsys):
    def tried(tile, microseconds):
        return {"tile": tile, "cold_us": [microseconds] * 3}

    made = write(tmp_path / "made.json", row([9.0] * 3) | {"candidates": [tried(16, 5.0), tried(32, 4.0)]},
                 row([9.0] * 3, D=7) | {"candidates": [tried(64, 4.0)]})
    measured = write(tmp_path / "measured.json", row([4.0] * 3) | {"candidates": [tried(16, 5.0), tried(32, 5.5)]},
                   row([4.0] * 3, D=7) | {"candidates": [tried(16, 5.0)]})
    assert compare.regret(measured, made) == 0
    told = capsys.readouterr().out
    assert "1 shapes" in told and "worst 10.0%" in told and "1 shapes not compared" in told


def test_regret_ties_where_samples_overlap(tmp_path, capsys):
    path = write(tmp_path / "r.json", row([5.0, 5.1, 5.2], [[4.9, 5.05, 5.2]]), row([6.0, 6.0, 6.0], [[5.0, 5.0, 5.0]], D=9))
    assert compare.regret(path) == 0
    told = capsys.readouterr().out
    assert "2 shapes" in told and "worst 20.0%" in told and "  0.0% (1, 2, 3, 4" in told
