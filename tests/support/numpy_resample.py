"""Resampling by numpy and scipy, for comparison. Each function takes stamps (ns), values (rows x features) and target times (ns)."""
import numpy as np
from scipy.spatial.transform import Rotation, Slerp


def rows_before(stamps, at):
    """Returns the index of the last row at or before each target time."""
    return np.searchsorted(stamps, at, side="right") - 1


def linear(stamps, values, at):
    return np.stack([np.interp(at - stamps[0], stamps - stamps[0], column) for column in values.reshape(len(values), -1).T], axis=-1)


def previous(stamps, values, at):
    return values[rows_before(stamps, at)]


def slerp(stamps, values, at):
    if len(stamps) == 1:
        return np.repeat(values, len(at), axis=0)
    return Slerp(stamps - stamps[0], Rotation.from_quat(values))(at - stamps[0]).as_quat()


def angle(stamps, values, at):
    low = rows_before(stamps, at)
    high = np.minimum(low + 1, len(stamps) - 1)
    width = np.maximum(stamps[high] - stamps[low], 1)
    turn = (values[high].astype(float) - values[low] + np.pi) % (2 * np.pi) - np.pi
    return values[low] + ((at - stamps[low]) / width)[:, None] * turn
