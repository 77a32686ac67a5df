"""Reads every byte of a batch, for both sides of a comparison."""
import numpy as np


def read_all(arrays):
    """Reads each array once. Returns how many bytes that were."""
    for array in arrays:
        flat = array.reshape(-1)
        whole = flat.nbytes // 8 * 8 // flat.itemsize
        np.bitwise_or.reduce(flat[:whole].view(np.uint64))
    return sum(array.nbytes for array in arrays)
