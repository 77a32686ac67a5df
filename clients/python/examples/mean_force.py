"""What does a mean over 50 ms do to my force?

    python mean_force.py                      a contact that this program makes up
    python mean_force.py FILE TIMES FORCE     arrays of an HDF5 file: seconds or int64 ns [S], force [S, D] or [S];
                                              needs h5py (pip install h5py)

A policy reads the force at 20 Hz. The program resamples it in three ways, `previous`, `linear` and `mean` over 50 ms,
and prints what each of them keeps of the peak, the noise and the time of the contact. With matplotlib it writes
mean_force.png.
"""
import sys

import numpy as np

import trajd

STEP_NS = 50_000_000
WAYS = {"previous": {"kind": "previous"}, "linear": {"kind": "linear"}, "mean 50 ms": {"kind": "mean", "width": "50ms"}}


def make_contact():
    """Returns 4 s of a force at 1 kHz with jitter: noise of 0.4 N, and a contact of 8 N from 1.5 s on that begins with
    a knock of 20 N."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.integers(900_000, 1_100_000, 4000))
    after = (times - 1_500_000_000) / 1e9
    force = np.where(after > 0, 8 + 12 * np.exp(-np.maximum(after, 0) / .015), 0) + .4 * rng.standard_normal(4000)
    return times, force[:, None]


def read_file(path, times, force):
    import h5py
    with h5py.File(path) as file:
        times, force = file[times][:], file[force][:]
    if times.dtype.kind == "f":
        times = np.rint((times - times[0]) * 1e9)
    return times.astype("int64"), force.reshape(len(force), -1).astype("float64")


def main():
    times, force = read_file(*sys.argv[1:]) if len(sys.argv) == 4 else make_contact()
    targets = np.arange(times[0], times[-1], STEP_NS)
    results, masks = trajd.resample_many({name: {"values": force, **way} for name, way in WAYS.items()}, targets, times=times)
    size = np.linalg.norm(force, axis=1)
    quiet = targets < times[np.argmax(size > (size.min() + size.max()) / 2)] - STEP_NS  # before the contact
    print(f"{len(times)} rows at {1e9 * (len(times) - 1) / (times[-1] - times[0]):.0f} Hz, {len(targets)} steps at 20 Hz; "
          f"peak {size.max():.2f}, noise before the contact {force[:np.searchsorted(times, targets[quiet][-1])].std():.3f}")
    print(f"{'kind':<12} {'peak':>8} {'noise':>8} {'half height at':>15}")
    for name, result in results.items():
        valid = masks[name] == 0
        height = np.where(valid, np.linalg.norm(result, axis=1), 0)
        at = targets[np.argmax(height > height.max() / 2)] - times[0]
        print(f"{name:<12} {height.max():>8.2f} {result[quiet & valid].std():>8.3f} {at / 1e9:>13.3f} s")
    plot(times, force, targets, results)


def plot(times, force, targets, results):
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.figure(figsize=(9, 4))
    pyplot.plot((times - times[0]) / 1e9, force[:, 0], color="0.8", label="as recorded")
    for name, result in results.items():
        pyplot.plot((targets - times[0]) / 1e9, result[:, 0], ".-", label=name)
    pyplot.xlabel("s"), pyplot.ylabel("force"), pyplot.legend()
    pyplot.savefig("mean_force.png", dpi=150)
    print("wrote mean_force.png")


if __name__ == "__main__":
    main()
