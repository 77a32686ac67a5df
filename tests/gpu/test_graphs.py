#!/usr/bin/env python3
"""CUDA graphs that a worker captures while batches are taken and released. In global mode a capture forbids unsafe
calls of every thread of the process. Neither the capture nor the feed breaks the other.

    BUNDLE/gpu_run.sh test_graphs.py"""
import collections
import itertools
import math
import sys
import threading
import time

import gpu_checks
import gpu_feed
import torch

LIMIT_S = 120
BATCH, KEPT = 64, 2000
CAPTURES, BATCHES_IN_ONE = 8, 5


def wait_for(condition, what, limit_s=30):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"waited {limit_s} s for {what}"
        time.sleep(0.0005)


class Reader(threading.Thread):
    """Takes and drops batches on a late stream. Copies into existing tensors, because an allocation by torch breaks
    another thread's capture."""

    def __init__(self, feed):
        super().__init__(daemon=True)
        self.feed, self.stop, self.failure = feed, False, None
        self.ids = torch.zeros(KEPT, BATCH, dtype=torch.int64, device="cuda")
        self.actions = torch.zeros(KEPT, BATCH, 16, 4, device="cuda")
        self.places = []  # (epoch, position, rows) of each
        self.stream = torch.cuda.Stream()

    def _keep(self, batch):
        at, rows = len(self.places), batch.rows
        if at < KEPT:
            self.ids[at, :rows].copy_(batch.raw("window_id"))
            self.actions[at, :rows].copy_(batch.raw("actions"))
        self.places.append((batch.epoch, batch.position, rows))

    def _read(self):
        for number in itertools.count():
            for batch in self.feed.epoch(number):
                self._keep(batch)
                del batch
                if len(self.places) % 4 == 0:
                    torch.cuda._sleep(2_000_000)  # about 1 ms: events are not complete at the first query
                if self.stop:
                    return

    def run(self):
        try:
            with torch.cuda.stream(self.stream):
                self._read()
        except BaseException as failure:
            self.failure = failure

    def go_on(self, count):
        """Waits for `count` further batches, until the streams have passed the earlier ones."""
        wanted = len(self.places) + count
        wait_for(lambda: len(self.places) >= wanted or self.failure, f"{count} batches more than {wanted - count}")
        if self.failure:
            raise self.failure


def wanted_of(one, epoch_count):
    with one.connect(device="cpu", zero_copy=False, job="host") as host:
        return {(batch.epoch, batch.position): (batch.raw("window_id").clone(), batch.raw("actions").clone())
                for number in range(epoch_count) for batch in host.epoch(number)}


def check_values(reader, one):
    wanted = wanted_of(one, 1 + reader.places[-1][0])
    repeated = [place for place, count in collections.Counter(reader.places).items() if count > 1]
    assert not repeated and [place[:2] for place in reader.places] == sorted(wanted)[:len(reader.places)], reader.places[-5:]
    for at, (epoch, position, rows) in enumerate(reader.places[:KEPT]):
        ids, actions = wanted[epoch, position]
        assert torch.equal(reader.ids[at, :rows].cpu(), ids), f"overwritten: {(epoch, position)}"
        assert (reader.actions[at, :rows].cpu() - actions).abs().max() <= 2e-6, (epoch, position)


def warm_up():
    """Loads modules and fills memory pools before any capture."""
    scratch = torch.zeros(1024, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        scratch.add_(1).mul_(1)
        torch.cuda._sleep(1000)
    torch.cuda.synchronize()


def test_captures_beside_releases():
    """Each capture lasts until the other thread has had more batches than there are slots: slots are released
    meanwhile."""
    warm_up()
    with gpu_feed.daemon(slots=4) as one, one.connect(job="gpu", credit=3, mode="shard", rank=0, world_size=1) as feed:
        reader = Reader(feed)
        torch.cuda.synchronize()
        reader.start()
        reader.go_on(2 * BATCHES_IN_ONE)
        assert gpu_feed.is_direct(feed)
        graphs, counters = [], [torch.zeros(1024, device="cuda") for _ in range(CAPTURES)]
        for counter in counters:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                counter.add_(1)
                reader.go_on(BATCHES_IN_ONE)
                counter.mul_(2)
            graphs.append(graph)
        reader.stop = True
        reader.join(30)
        assert not reader.is_alive() and reader.failure is None, reader.failure
        for graph in graphs:
            graph.replay()
            graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(counter, torch.full_like(counter, 6)) for counter in counters)
        check_values(reader, one)


def test_releases_on_the_stream_that_captures():
    """Releases on the capturing stream wait for the end of the capture and do not break it. Nothing else waits."""
    warm_up()
    with gpu_feed.daemon(slots=4) as one, one.connect(job="gpu", credit=4, mode="shard", rank=0, world_size=1) as feed:
        counter, copied = torch.zeros(1024, device="cuda"), torch.zeros(BATCH, 16, 4, device="cuda")
        epoch, graph = feed.epoch(0), torch.cuda.CUDAGraph()
        positions = [next(epoch).position]
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            for _ in range(3):
                batch = next(epoch)
                copied.copy_(batch["actions"])
                positions.append(batch.position)
                del batch
            counter.add_(1)
        for batch in epoch:
            positions.append(batch.position)
            ids = batch.raw("window_id")
            assert ids.is_cuda
            del batch, ids
        assert gpu_feed.is_direct(feed) and positions == list(range(0, BATCH * len(positions), BATCH)) and len(positions) > 20, positions[:6]
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(counter, torch.full_like(counter, 2))
        with one.connect(device="cpu", zero_copy=False, job="host") as host:
            wanted = sorted(batch.position for batch in host.epoch(0))
        assert positions == wanted


def test_a_batch_that_is_held_over_a_capture():
    """A batch that is taken before the capture, read by it and dropped after it does not change."""
    warm_up()
    with gpu_feed.daemon(slots=4) as one, one.connect(job="gpu", credit=4, mode="shard", rank=0, world_size=1) as feed:
        epoch = feed.epoch(0)
        batch = next(epoch)
        copied = torch.zeros(BATCH, 16, 4, device="cuda")
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):
            copied.copy_(batch["actions"])
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(copied, batch["actions"]) and copied.abs().sum() > 0
        del batch
        assert [next(epoch).position for _ in range(8)] == [BATCH * k for k in range(1, 9)]


def test_training_in_a_graph():
    """A training step is captured once and replayed on every batch. The losses are those without a graph."""
    def losses(has_graph):
        torch.manual_seed(0)
        inputs, outputs = torch.zeros(BATCH, 8, device="cuda"), torch.zeros(BATCH, 64, device="cuda")
        model = torch.nn.Linear(8, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        told = torch.zeros((), device="cuda")

        def step():
            optimizer.zero_grad(set_to_none=False)
            loss = torch.nn.functional.mse_loss(model(inputs), outputs)
            loss.backward()
            optimizer.step()
            told.copy_(loss)

        found, graph = [], None
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        with one.connect(job=f"graph {has_graph}", credit=4, mode="shard", rank=0, world_size=1) as feed:
            epoch = feed.epoch(0)
            for number, batch in enumerate(epoch):
                if has_graph and graph is None:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        step()
                if number == 0:
                    model.load_state_dict(state)
                inputs.copy_(batch["pose"].reshape(BATCH, 8))
                outputs.copy_(batch["actions"].reshape(BATCH, 64))
                del batch
                graph.replay() if has_graph else step()
                found.append(told.clone())
                if len(found) == 20:
                    break
            assert gpu_feed.is_direct(feed)
        return [loss.item() for loss in found]

    with gpu_feed.daemon(slots=4) as one:
        without, inside = losses(False), losses(True)
    assert len(without) == 20 and all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(without, inside)), (without, inside)


if __name__ == "__main__":
    sys.exit(gpu_checks.main(globals(), LIMIT_S))
