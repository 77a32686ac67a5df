#!/usr/bin/env python3
"""Outputs with transforms, and sums, in GPU memory, by a real daemon on a real GPU, against the CPU's batches of the
same feeds: presets of openpi, umi, gr00t and act, steps relative to the step before, rotations between rows, differences
that are added, returns.

    BUNDLE/gpu_run.sh test_target_feed.py            # on the GPU machine; tests/tools/gpu_bundle.sh has made the bundle

tests/integration/test_gpu_targets.py does the same without a GPU."""
import sys

import gpu_checks
import gpu_targets
import torch
from gpu_feed import BUNDLE, LIMIT_S, daemon, is_direct

HEAD = """
version: 2
runtime: run
state: state
memory: {store: 1GiB, rings: 512MiB, reserve: 0}
gpu: {devices: all, rows: ROWS, rings: 512MiB}
limits: {credit: 64}
"""
MOST = 1e-6  # of a value, and of 1


def text(edge="edge", mixed=False, rows="2GiB"):
    return (HEAD.replace("ROWS", rows) + gpu_targets.datasets(BUNDLE / "targets", mixed) +
            gpu_targets.feeds(edge, batch=64, slots=8, mixed=mixed))


def snapshot(batch):
    return {tensor.name: batch.raw(tensor.name).clone().cpu() for tensor in batch._arrays.layout.schema}


def assert_close(name, key, wanted, found):
    """Returns the largest difference."""
    assert wanted.dtype == found.dtype and wanted.shape == found.shape, (name, key)
    if not wanted.is_floating_point():
        assert torch.equal(wanted, found), (name, key)
        return 0.0
    wanted, found = wanted.double(), found.double()
    assert torch.equal(wanted.isnan(), found.isnan()), (name, key)
    wanted, found = wanted.nan_to_num(), found.nan_to_num()
    worst = ((wanted - found).abs() / wanted.abs().clamp(min=1)).max().item()
    assert worst <= (0 if key in gpu_targets.EXACT[name] else MOST), (name, key, worst)
    return worst


def compare(one, name):
    with one.connect(feed=name, device="cpu", zero_copy=False, job="host") as host:
        wanted = {batch.position: snapshot(batch) for batch in host.epoch(1)}
    with one.connect(feed=name, job="gpu") as feed:
        found = {batch.position: snapshot(batch) for batch in feed.epoch(1)}
        assert is_direct(feed), feed._client.gpu_refusal
    assert wanted.keys() == found.keys() and len(found) >= 5
    worst = max(assert_close(name, key, value, found[position][key]) for position, tensors in wanted.items() for key, value in tensors.items())
    print(f"   {name}: {len(found)} batches, the largest difference is {worst:.2e}")


def test_values():
    for edge in gpu_targets.EDGES:
        with daemon(text=text(edge)) as one:
            for name in gpu_targets.FEEDS:
                compare(one, name)


def test_rows_that_travel_with_each_batch():
    with daemon(text=text(rows="64KiB")) as one:
        for name in gpu_targets.FEEDS:
            compare(one, name)


def test_mixtures():
    with daemon(text=text(mixed=True)) as one:
        for name in gpu_targets.FEEDS:
            compare(one, name)


def test_a_training_graph_reads_them():
    """Batches are made while a stream of the worker replays a graph that reads a copy of them."""
    with daemon(text=text()) as one, one.connect(feed="umi", job="gpu") as feed, one.connect(feed="umi", device="cpu", zero_copy=False, job="host") as host:
        wanted = {batch.position: batch.raw("actions").nan_to_num().double().sum().item() for batch in host.epoch(0)}
        shape = None
        for batch in feed.epoch(0):
            actions = batch.raw("actions")
            if shape is None:
                held, total = torch.zeros_like(actions), torch.zeros((), device="cuda", dtype=torch.double)
                graph, shape = torch.cuda.CUDAGraph(), actions.shape
                torch.cuda.synchronize()
                with torch.cuda.graph(graph):
                    total.copy_(held.nan_to_num().double().sum())
            held.copy_(actions)
            graph.replay()
            assert abs(total.item() - wanted[batch.position]) < 1e-3, batch.position


if __name__ == "__main__":
    sys.exit(gpu_checks.main(globals(), LIMIT_S))
