"""embodied-sync: its aligner, which makes one rate of several. It is not a loader: T1 to T3."""
import pickle
import warnings

import numpy as np
from embodied_sync.align import align_run
from embodied_sync.core.policy import AlignmentPolicy
from embodied_sync.core.sample import Modality, Sample

from ..driver import Batch, Driver
from ..formulas import BY_NAME, CONTROL_HZ, SECOND
from ..rules import OLDEST, row_steps

METHODS = {"linear": "linear_interp", "rotation": "zoh", "image": "zoh", "hold": "zoh"}


class EmbodiedSync(Driver):
    name = "embodied-sync"
    docs = "https://pypi.org/project/embodied-sync/"
    rule = "align_run: linear_interp for positions, zoh for others, tolerance 60 ms, stamps less the known latency"
    package = "embodied-sync"
    tests = ("T1", "T2", "T3")

    def write(self, recording):
        episodes = [self.align(episode) for episode in recording.episodes]
        (self.folder / "aligned.pickle").write_bytes(pickle.dumps(episodes))

    def align(self, episode):
        """Returns {tick: {stream: value or None}}. The aligner's grid begins where all streams have begun."""
        run = {name: [Sample(stream_name=name, modality=list(Modality)[0], sequence_id=number, source_clock_domain="host",
                             acquisition_time_ns=int(stamp) - stream.latency, receive_time_ns=int(stamp), payload=value.tolist()
                             if stream.sensor.kind == "linear" else value)
                      for number, (stamp, value) in enumerate(zip(stream.stamps, stream.values))]
               for name, stream in episode.streams.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = align_run(run, target_rate_hz=CONTROL_HZ, method={
                name: AlignmentPolicy(METHODS[BY_NAME[name].kind], tolerance_ns=OLDEST) for name in run})
        return {round(frame.target_time_ns * CONTROL_HZ / SECOND):
                {name: None if sample is None else np.asarray(sample.payload) for name, sample in frame.samples.items()}
                for frame in done.frames}

    def read(self, share, state=None):
        for number, frames in enumerate(pickle.loads((self.folder / "aligned.pickle").read_bytes())):
            known = {name: next(frame[name] for frame in frames.values() if frame[name] is not None)
                     for name in next(iter(frames.values()))}
            ticks = np.array(sorted(frames))
            values, valid = {}, {}
            for name, like in known.items():
                steps = (ticks[:, None] + row_steps(name)).ravel()
                got = [frames.get(tick, {}).get(name) for tick in steps]
                values[name] = np.stack([np.zeros_like(like) if value is None else value for value in got]).reshape(
                    len(ticks), -1, *like.shape)
                valid[name] = np.array([value is not None for value in got]).reshape(len(ticks), -1)
            yield Batch(np.full(len(ticks), number), ticks, values, valid)
