"""What `trajd.view --save` has written. Needs rerun-sdk."""
import numpy as np


class Saved:
    """The content of a .rrd, by the path of an entity and the name of a component."""

    def __init__(self, path):
        from rerun.chunk import RrdReader
        self.chunks = [(str(chunk.entity_path), chunk.to_record_batch()) for chunk in RrdReader(path).stream()]

    def get(self, entity, component):
        """Returns (times in s, values) of all rows of a component; its times are empty if it is static."""
        found = []
        for path, batch in self.chunks:
            names = [name for name in batch.schema.names if name.endswith(":" + component)]
            if path == entity and names:
                times = batch.column("episode").cast("int64").to_pylist() if "episode" in batch.schema.names else []
                found += zip(times or [0] * batch.num_rows, batch.column(names[0]).to_pylist())
        found.sort(key=lambda row: row[0])
        return np.array([time for time, _ in found]) * 1e-9, [value for _, value in found]

    def images(self, entity, shape):
        times, buffers = self.get(entity, "buffer")
        return times, np.array([np.array(buffer[0], np.uint8).reshape(shape) for buffer in buffers])
