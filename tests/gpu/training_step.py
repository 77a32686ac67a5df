"""A training step on the feed's batches against the same step on one constant batch. Batches are made on the same
GPU (in time slices, and with an MPS server), on a second GPU and copied, or on the CPU and copied.

The step is a CUDA graph, so that the GPU limits the speed and not Python: copies into static inputs, forward,
backward, AdamW. `the copy` is the step with the same copies from a constant tensor: the difference between it and
the feed is the cost of the feed."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

from gpu_mps import mps
from report import figure, middle

FOLDER = pathlib.Path(__file__).resolve().parent
BATCH, OBSERVED, ACTED = 256, 2 * (7 + 4 + 3 + 1), 4
NAMES = ("joints", "pose", "place", "gripper", "actions")

# where batches are made: the GPUs that the daemon sees (None: all), and the worker's device= and zero_copy=
SOURCES = {"same": (None, "cuda", True), "second": ("1", "cuda:1", True), "host": ("", "cuda", False)}


class Policy(torch.nn.Module):
    """A transformer over an observation and 16 actions, with about 50 M parameters by default."""

    def __init__(self, width=640, depth=10):
        super().__init__()
        self.see, self.act = torch.nn.Linear(OBSERVED, width), torch.nn.Linear(ACTED, width)
        layer = torch.nn.TransformerEncoderLayer(width, 10, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
        self.body = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.leave = torch.nn.Linear(width, ACTED)

    def forward(self, seen, noisy):
        return self.leave(self.body(torch.cat([self.see(seen)[:, None], self.act(noisy)], 1))[:, 1:])


class Step:
    def __init__(self, place):
        torch.manual_seed(0)
        self.place = place
        policy = (Policy() if place.has_gpu else Policy(40, 1)).to(place.device)
        self.parameters = sum(p.numel() for p in policy.parameters())
        more = {"fused": True, "capturable": True} if place.has_gpu else {}
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, **more)
        self.seen = torch.randn(BATCH, OBSERVED, device=place.device)
        self.acted = torch.randn(BATCH, 16, ACTED, device=place.device)

        def step():
            with torch.autocast(place.device, torch.bfloat16, enabled=place.has_gpu):
                loss = torch.nn.functional.mse_loss(policy(self.seen, torch.roll(self.acted, 1, 1)), self.acted)
            optimizer.zero_grad(set_to_none=False) if place.has_gpu else optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        self.replay = self._capture(step) if place.has_gpu else step

    @staticmethod
    def _capture(step):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def take(self, tensors):
        at = 0
        for name in ("joints", "pose", "place", "gripper"):
            flat = tensors[name].reshape(BATCH, -1)
            self.seen[:, at:at + flat.shape[1]].copy_(flat)
            at += flat.shape[1]
        self.acted.copy_(tensors["actions"])

    def time(self, source, count):
        """Returns ms per step over `count` steps."""
        for _ in range(5):
            if source is not None:
                self.take(source())
            self.replay()
        self.place.wait()
        begin = time.perf_counter()
        for _ in range(count):
            if source is not None:
                self.take(source())
            self.replay()
        self.place.wait()
        return (time.perf_counter() - begin) / count * 1e3


def measure(has_gpu, path, rounds, count, source):
    """Runs in a process of its own with the daemon as its child: an MPS server serves both or neither. `source` is
    a key of SOURCES."""
    import bench_device_feed as b
    place = b.Place(has_gpu)
    visible, device, zero_copy = SOURCES[source]
    environment = None
    if has_gpu:
        place.options = {"device": device, "zero_copy": zero_copy}
        place.fall_back = "false" if zero_copy else "true"
        environment = None if visible is None else {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
    step = Step(place)
    found = {"copy": [], "feed": [], "few": [], "beside": []}
    found["constant"] = [step.time(None, count) for _ in range(rounds)]
    with b.gpu_feed.daemon(batch=b.BATCH, slots=16, path=path, fall_back=place.fall_back, environment=environment) as one, \
            one.connect(**place.options, credit=16) as feed, one.connect(**place.options, credit=4, job="few") as few:
        batches, of_few = feed.forever(), few.forever()
        first = next(batches)
        if zero_copy:
            place.check(feed)
        kept = {name: first[name].to(place.device, copy=True) for name in NAMES}
        del first
        step.take(kept)
        for _ in range(rounds):
            found["beside"].append(step.time(None, count))  # the daemon runs and is idle
            found["copy"].append(step.time(lambda: kept, count))
            found["feed"].append(step.time(lambda: next(batches), count))
            found["few"].append(step.time(lambda: next(of_few), count))
    found["constant"] += [step.time(None, count) for _ in range(rounds)]
    return {"parameters": step.parameters, **found}


def in_process(options, environment, count, source="same"):
    arguments = json.dumps([options.place.has_gpu, str(options.dataset), options.rounds, count, source])
    done = subprocess.run([sys.executable, FOLDER / "training_step.py", arguments], env=environment, stdout=subprocess.PIPE, text=True, timeout=240,
                          check=True)
    return json.loads(done.stdout.splitlines()[-1])


def tell(name, found):
    base = statistics.median(found["constant"])
    kinds = {"constant": "one constant batch, no daemon", "beside": "a constant batch, an idle daemon", "copy": "the copy from a constant tensor",
             "feed": "the feed, credit 16", "few": "the feed, credit 4"}
    for kind, what in kinds.items():
        ratio = middle([one / base for one in found[kind]], 4)
        more = {} if kind == "constant" else {"ratio": ratio, "ratio_to": "the constant batch"}
        if kind == "feed":
            more.update(budget="<= 2 %", met=ratio["median"] <= 1.02)
        yield figure(f"{name}: {what}", middle(found[kind], 3), "ms/step", **more)


def run(options):
    count = 100 if options.place.has_gpu else 3
    found = in_process(options, None, count)
    yield figure("parameters", found["parameters"], "")
    yield from tell("time slices", found)
    with mps() as environment:
        if environment is None:
            yield figure("MPS: no server can be started here", 0, "ms/step")
        else:
            yield from tell("MPS", in_process(options, environment, count))
    if torch.cuda.device_count() > 1:
        yield from tell("a second GPU's feed", in_process(options, None, count, "second"))
    else:
        yield figure("a second GPU's feed: there is one GPU", 0, "ms/step")
    yield from tell("the CPU's feed", in_process(options, None, count, "host"))


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    sys.argv[1:] = []
    print(json.dumps(measure(*told)))
