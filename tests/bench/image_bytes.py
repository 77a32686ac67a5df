"""Reads every byte of a batch, for both sides of a comparison."""
import numpy as np

IDS = ("window_id", "dataset_index", "episode_index", "anchor_ns")  # of a batch: what is not its data


def arrays_of(group):
    """Returns every tensor of a batch, those of its groups too, without the arrays that say which rows they are."""
    values = [group[key] for key in group if key not in IDS]
    return [array for value in values for array in ([value] if hasattr(value, "nbytes") else arrays_of(value))]


def kinds_of(arrays):
    """Returns the types and shapes of arrays, in an order of their own: equal for both sides of a fair comparison."""
    return sorted([str(array.dtype), *array.shape] for array in arrays)


def read_all(arrays):
    """Reads each array once. Returns how many bytes that were."""
    for array in arrays:
        flat = array.ravel(order="K")  # no copy, also of cameras that lie side by side
        whole = flat.nbytes // 8 * 8 // flat.itemsize
        np.bitwise_or.reduce(flat[:whole].view(np.uint64))
    return sum(array.nbytes for array in arrays)
