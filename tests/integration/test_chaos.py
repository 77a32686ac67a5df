"""Random kills, floods, full disks and reloads, with a ledger of all windows. tests/tools/chaos.py runs this for minutes."""
import contextlib

import pytest

import chaos_trial as chaos


@pytest.mark.slow
@pytest.mark.parametrize("seed, events", [(4, chaos.KILLS), (11, chaos.EVENTS)])
def test_no_window_is_lost_or_repeated_without_need(tmp_path, demo_file, seed, events):
    with contextlib.closing(chaos.Trial(tmp_path / "daemon", demo_file, seed, events)) as trial:
        book = trial.run()
    for event, why in trial.skipped.items():
        print(f"{event} was left out: {why}")
    assert book.is_good(), (chaos.report(f"seed {seed}", trial.counts, book), book.errors)
    assert trial.counts["both"] + trial.counts["daemon"] + trial.counts["worker"] > 0
