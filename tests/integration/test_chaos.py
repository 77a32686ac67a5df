"""Random kills of workers, of the daemon, and of both, with a ledger of all windows. tests/tools/chaos.py runs it for minutes."""
import pytest

import chaos_trial as chaos


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 5])
def test_no_window_is_lost_or_repeated_without_need(daemon, demo_file, seed):
    trial = chaos.Trial(daemon(chaos.configuration(demo_file)), seed)
    book = trial.run()
    assert book.is_good(), (chaos.report(f"seed {seed}", trial.counts, book), book.errors)
    assert trial.counts["both"] + trial.counts["daemon"] + trial.counts["worker"] > 0
