"""Pushes the rows of a recording to trajd.Live as they would come, and compares observations with a daemon's batches."""
import collections

import numpy as np

AGED = ("seen", "held", "aged")  # outputs with max_age


def windows_of(feed, dataset=0):
    """Returns {episode: [(anchor_ns, {name: (values, mask)})...]} of a dataset in an epoch, ordered by time."""
    found = collections.defaultdict(list)
    for batch in feed.epoch(0):
        names = [name[:-5] for name in batch._arrays.layout.index if name.endswith(".mask")]
        values = {name: (np.array(batch.raw(name)), np.array(batch.mask(name))) for name in names}
        for row in np.flatnonzero(batch.dataset_index == dataset):
            found[int(batch.episode_index[row])].append(
                (int(batch.anchor_ns[row]), {name: (x[row], mask[row]) for name, (x, mask) in values.items()}))
        batch.release()
    return {episode: sorted(windows, key=lambda window: window[0]) for episode, windows in found.items()}


def replay(live, rows, windows, lookahead_ns=0, partial=True, before=None):
    """Pushes rows [(stamp_ns, stream, row)...] of one episode. Observes at each anchor when all rows up to it have come.

    Returns how many steps were compared. `before(live, stamp_ns, stream, row)` is called before each push."""
    live.reset()
    shift = {name: -stream.latency_ns for name, stream in live.streams.items()}
    rows = sorted((row for row in rows if row[1] in live.streams), key=lambda row: row[0] + shift[row[1]])
    at, compared = 0, 0
    for anchor_ns, expected in windows:
        while at < len(rows) and rows[at][0] + shift[rows[at][1]] <= anchor_ns + lookahead_ns:
            stamp_ns, name, row = rows[at]
            if before:
                before(live, stamp_ns, name, row)
            assert live.push(name, stamp_ns, row)
            at += 1
        observed = live.observation(anchor_ns, partial=partial)
        assert observed.anchor_ns == anchor_ns
        for name, (values, mask) in expected.items():
            if name in live.left_out:
                continue
            told = f"{name} at {anchor_ns}"
            seen = observed.mask(name)[0]
            if name not in AGED:  # the daemon knows that the stream has ended; on the robot its next row may come
                mask = np.where((mask == 7) & np.isin(seen, (0, 2)), seen, mask)
            np.testing.assert_array_equal(seen, mask, err_msg=told)
            assert observed.raw(name).dtype == values.dtype and observed.raw(name)[0].shape == values.shape, told
            assert observed.raw(name)[0].tobytes() == values.tobytes(), (told, observed.raw(name)[0], values, mask)
            compared += len(mask)
    return compared
