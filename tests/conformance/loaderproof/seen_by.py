"""Whether the tests see the faults of mutations.py in a driver."""
import functools
import tempfile

from . import order, results, timing
from .__main__ import ONCE, Run

# Of each fault: the test that must see it, and the case.
SEEN_BY = {
    "mask_inverted": ("T3", "drop-outs 200 ms"), "mask_lost": ("T3", "camera stops"), "row_off_by_one": ("T1", "clean"),
    "steps_reversed": ("T1", "clean"), "quaternion_order": ("T1", "clean"), "cameras_swapped": ("T1", "camera stops"),
    "repeated_batch": ("T4", "one process"), "lost_batch": ("T4", "one process"), "one_window_twice": ("T4", "one process"),
    "swapped_batches": ("T4", "2 ranks"), "same_rank": ("T4", "2 ranks"), "state_too_old": ("T4", "resumed"),
    "state_ignored": ("T4", "resumed")}


def case_of_order(run, case, patience=120):
    """Returns the score of one case of T4. Several ranks that write nothing for `patience` seconds have failed."""
    folder, windows = order.prepare(run)
    base, flat, _ = order.read_epoch(run, folder, order.share_of(run))
    if case == "one process":
        return order.ledger(windows, flat)
    if case == "2 ranks":
        clean = Run(run.name, run.seed, run.folder)
        base, _, _ = order.read_epoch(clean, folder, order.share_of(run))
        return order.tried(two_ranks, run, folder, windows, base, patience)
    return order.resumed(run, folder, windows, base, 1, 2)


def two_ranks(run, folder, windows, base, patience):
    batches, flat, _ = order.read_epoch(run, folder, order.share_of(run, world=2), patience=patience)
    return {**order.ledger(windows, flat), "same order": batches == base}


def complaints(name, fault, folder, patience=120):
    """Returns what the test that must see a fault says with it. The driver itself must pass that test."""
    test, case = SEEN_BY[fault]
    run, clean = Run(name, 0, folder, mutation=fault), Run(name, 0, folder)
    if test == "T4":
        score = case_of_order(run, case, patience)
        if not sound(name, case):
            raise AssertionError(f"{name} does not pass {test}, {case}, without a fault")
        return results.worse(test, score, ideal_of(score))
    return results.worse(test, timing.run(test, case, 0, run.make), timing.run(test, case, 0, clean.make))


@functools.lru_cache(maxsize=None)
def sound(name, case):
    """Returns whether a driver without a fault passes a case of T4."""
    with tempfile.TemporaryDirectory(prefix="lp-", ignore_cleanup_errors=True) as folder:
        score = case_of_order(Run(name, 0, folder), case)
    return not results.worse("T4", score, ideal_of(score))


def ideal_of(score):
    return {key: ONCE.ideal[key] for key in score if key in ONCE.ideal}
