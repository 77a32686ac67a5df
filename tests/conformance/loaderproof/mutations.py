"""Faults that are put into a driver on purpose. A test suite that does not see them proves nothing."""
import numpy as np

from .formulas import BY_NAME


def swapped_batches(batches, driver, share):
    """Every world size has another order: two batches change places where there are several ranks."""
    held = None
    for batch in batches:
        if share.world > 1 and held is None:
            held = batch
        else:
            yield batch
            if held not in (None, False):
                yield held
                held = False


def repeated_batch(batches, driver, share):
    for number, batch in enumerate(batches):
        yield batch
        if number == 3:
            yield batch


def lost_batch(batches, driver, share):
    yield from (batch for number, batch in enumerate(batches) if number != 3)


def one_window_twice(batches, driver, share):
    for batch in batches:
        batch.episode[0], batch.tick[0] = batch.episode[-1], batch.tick[-1]
        yield batch


def same_rank(batches, driver, share):
    """Each rank gets the windows of rank 0."""
    share.rank, world = 0, share.world
    yield from batches if world else ()


def mask_inverted(batches, driver, share):
    for batch in batches:
        batch.valid = {name: ~valid for name, valid in batch.valid.items()}
        yield batch


def mask_lost(batches, driver, share):
    for batch in batches:
        batch.valid = {}
        yield batch


def row_off_by_one(batches, driver, share):
    """Each window has the values of the window before it in its batch."""
    for batch in batches:
        batch.values = {name: np.roll(values, 1, axis=0) for name, values in batch.values.items()}
        yield batch


def steps_reversed(batches, driver, share):
    for batch in batches:
        batch.values = {name: values[:, ::-1] for name, values in batch.values.items()}
        yield batch


def quaternion_order(batches, driver, share):
    """wxyz where xyzw is said."""
    for batch in batches:
        batch.values = {name: values[..., [3, 0, 1, 2]] if BY_NAME[name].kind == "rotation" else values
                        for name, values in batch.values.items()}
        yield batch


def cameras_swapped(batches, driver, share):
    for batch in batches:
        if "wrist" in batch.values:
            batch.values["wrist"], batch.values["scene"] = batch.values["scene"], batch.values["wrist"]
        yield batch


DELIVERED = {made.__name__: made for made in (
    swapped_batches, repeated_batch, lost_batch, one_window_twice, same_rank, mask_inverted, mask_lost, row_off_by_one,
    steps_reversed, quaternion_order, cameras_swapped)}
STATES = ("state_too_old", "state_ignored")
NAMES = (*DELIVERED, *STATES)


def mutated(driver, name):
    """Returns the class of a driver with a fault."""
    if not name:
        return driver

    class Mutant(driver):
        before = None

        def read(self, share, state=None):
            if name == "same_rank":
                share.rank = 0
            batches = super().read(share, None if name == "state_ignored" else state)
            return self.watched(DELIVERED[name](batches, self, share) if name in DELIVERED else batches)

        def watched(self, batches):
            for batch in batches:
                yield batch
                self.before = super().state()

        def state(self):
            return self.before if name == "state_too_old" else super().state()

    return Mutant
