"""trajd: a feed of a private daemon."""
import json
import os
import subprocess
import sys

import h5py
import numpy as np

from ..driver import Batch, Driver
from ..frames import LENGTHS
from ..formulas import CONTROL_HZ, SECOND

KINDS = {"linear": "kind: linear, max_gap: 100ms", "rotation": "kind: slerp, order: xyzw, max_gap: 100ms",
         "image": "kind: previous, max_gap: 100ms, image: {color: rgb}", "hold": "kind: previous"}


class Trajd(Driver):
    name = package = "trajd"
    docs = "configs/trajd.yaml, configs/layouts/template.yaml, clients/python/README.md"
    rule = "the time of sensing: stamps less the latency that the layout states"
    tests = (*Driver.tests, "T6")
    server_names = ("trajd",)
    output = "max_age: 60ms"  # of each observation
    kinds = KINDS

    def __init__(self, folder):
        super().__init__(folder)
        os.environ.update(TRAJD_RUNTIME_DIR=str(folder / "tmp"), XDG_CACHE_HOME=str(folder / "cache"), TRAJD_JOB="loaderproof")
        (folder / "tmp").mkdir(exist_ok=True)
        self.feed = None

    def write(self, recording):
        with h5py.File(self.folder / "data.hdf5", "w") as file:
            for number, episode in enumerate(recording.episodes):
                for name, stream in episode.streams.items():
                    file[f"episode_{number}/{name}/t"] = stream.stamps
                    file[f"episode_{number}/{name}/x"] = stream.values
        (self.folder / "layout.yaml").write_text(self.layout(recording))
        (self.folder / "names.json").write_text(json.dumps(recording.names))

    def layout(self, recording):
        lines = ["layout: loaderproof", 'episodes: {files: "*.hdf5", groups: /episode_*}', "clocks:"]
        for name, stream in recording.episodes[0].streams.items():
            lines.append(f"  {name}: {{path: {name}/t, unit: ns, latency: {stream.latency}ns, repeated: drop, lost_rows: 20%}}")
        lines.append("streams:")
        for name, stream in recording.episodes[0].streams.items():
            lines.append(f"  {name}: {{path: {name}/x, clock: {name}, {self.kinds[stream.sensor.kind]}}}")
        return "\n".join(lines) + "\n"

    def config(self, share):
        outputs = {"action": {"at": "0ms..300ms @ 10", "role": "action"}}
        for name in json.loads((self.folder / "names.json").read_text()):
            outputs[name] = {"at": "-100ms..0ms @ 10", "role": "obs", **dict([self.output.split(": ")])}
        feed = {"dataset": "set", "global_batch": share.batch, "anchor": {"clock": "action"}, "seed": share.seed,
                "pad": {"before": "any", "after": "any", "with": "edge"}, "tail": "short",
                "order": "global" if share.shuffle else "sequential", "outputs": outputs}
        return {"version": 2, "datasets": {"set": {"path": str(self.folder / "data.hdf5"),
                                                  "layout": str(self.folder / "layout.yaml")}},
                "memory": {"store": "256MiB", "rings": "64MiB", "reserve": "64MiB"}, "feeds": {"train": feed}}

    def read(self, share, state=None):
        import trajd
        self.feed = trajd.open(self.config(share), feed="train", mode="shard", rank=share.rank, world_size=share.world)
        if state:
            self.feed.load_state_dict(state)
        for batch in self.feed.epoch(share.epoch):
            names = [name for name in batch if f"{name}_is_pad" in batch or f"obs_is_pad/{name}" in batch]
            yield Batch(np.array(batch.episode_index), np.round(batch.anchor_ns * (CONTROL_HZ / SECOND)).astype(int),
                        {name: np.array(batch[name]) for name in names}, {name: batch.mask(name) == 0 for name in names})

    def frames(self, folder):
        import trajd
        made = self.folder / "video.hdf5"
        subprocess.run([sys.executable, "-m", "trajd.convert", "lerobot", folder, "-o", made], check=False, stdout=sys.stderr)
        kept = set()
        if made.exists():
            feed = {"dataset": "set", "global_batch": 8, "order": "sequential", "tail": "short", "anchor": {"clock": "steps"},
                    "outputs": {"x": {"from": ["observation/images/top"], "at": 0, "role": "obs", "image": {}}}}
            config = {"version": 2, "datasets": {"set": {"path": str(made), "layout": "lerobot"}}, "feeds": {"train": feed}}
            with h5py.File(made) as file:
                names = sorted(int(name.split("_")[1]) for name in file["data"])
            self.feed = trajd.open(config, feed="train")
            for batch in self.feed.epoch(0):
                for row, (place, time) in enumerate(zip(batch.episode_index, batch.anchor_ns)):
                    kept.add(names[place])
                    bad = batch.mask("x")[row, 0] != 0
                    yield names[place], round(time * CONTROL_HZ / SECOND), None if bad else np.array(batch["x"][row, 0])
        yield from ((number, step, None) for number, length in enumerate(LENGTHS) if number not in kept for step in range(length))

    def state(self):
        return self.feed.state_dict()

    def close(self):
        if self.feed is not None:
            self.feed.close()
            self.feed = None

    def versions(self):
        import trajd
        return {"trajd": trajd.__version__}
