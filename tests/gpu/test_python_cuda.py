#!/usr/bin/env python3
"""The Python package on a GPU: device="cuda", against the same feed on the host.

    BUNDLE/gpu_run.sh test_python_cuda.py         # on the GPU machine; tests/tools/gpu_bundle.sh has made the bundle
    BUNDLE/gpu_run.sh test_python_cuda.py cpu     # the same with torch on the host, to see that a bundle is whole

Needs a Python from 3.9 whose torch has CUDA, and nothing else: package, daemon, dataset and the integration tests' producer are in
the bundle. A line a check and then times as JSON, one minute in all. A check that hangs ends it after 60 s, with the stack."""
import contextlib
import faulthandler
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60  # of a check: a hang is a failure
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
BUNDLE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BUNDLE / "python"))

import gpu_checks  # noqa: E402
import torch  # noqa: E402

import trajd  # noqa: E402
import trajd.torch  # noqa: E402

CONFIG = """
version: 2
memory: {{store: 256MiB, rings: 256MiB, reserve: 0}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 32
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/robot0_eef_pos:  {{at: -1..0}}
      obs/robot0_eef_quat: {{at: -1..0}}
      actions:             {{at: -1..14}}
"""


class Producer:
    """A fake producer: batches whose values are functions of their position. It does not write "obs/payload"."""

    def __init__(self, folder, **options):
        self.endpoint = folder
        self.command = [BUNDLE / "fake_producer", folder, *(f"{name}={value}" for name, value in options.items())]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "LD_LIBRARY_PATH": str(BUNDLE)})
        assert self.process.stdout.readline() == "READY\n", "the producer does not start"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def connect(self, **options):
        return trajd.connect(self.endpoint, **{"spec": {"any": 1}, "timeout": 30, "device": DEVICE, **options})


@contextlib.contextmanager
def producer(**options):
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        one = Producer(folder, **options)
        one.start()
        try:
            yield one
        finally:
            one.kill()


@contextlib.contextmanager
def configuration():
    """Yields a configuration over the bundle's dataset, and the folder of its private daemon, which ends with it."""
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        path = pathlib.Path(folder) / "demo.yaml"
        path.write_text(CONFIG.format(path=BUNDLE / "demo.hdf5"))
        os.environ.update(TRAJD_RUNTIME_DIR=folder, XDG_CACHE_HOME=folder)
        os.environ.pop("TRAJD_ENDPOINT", None)
        try:
            yield path
        finally:
            for pid in daemons(folder):
                os.kill(pid, signal.SIGKILL)


def daemons(folder):
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"runtime={folder}/".encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def check_values(batch):
    expected = batch.window_id[:, None].double() + batch.epoch * 100000 + 0.25 * torch.arange(3, device=DEVICE)
    assert torch.equal(batch["actions"], expected.float()), batch
    assert batch["actions_is_pad"].dtype == torch.bool and not batch["actions_is_pad"].any()


def test_values_and_ownership():
    """Every batch is right on the device. All may be kept after feed and daemon have ended. The ring is registered
    with CUDA once."""
    with producer(length=4001, batch=32, payload=1000) as one:
        feed = one.connect()
        kept = []
        for batch in feed.epoch(0):
            assert batch["actions"].device.type == DEVICE and batch["obs"]["payload"].shape == (batch.rows, 1000)
            check_values(batch)
            window, actions = batch.window_id, batch["actions"]
            kept.append((window, actions) if DEVICE != "cpu" else (window.clone(), actions.clone()))
        if DEVICE != "cpu":
            print(f"   ring registered with CUDA: {[registered for _, registered in feed._stage._rings.values()]}", flush=True)
            assert len(feed._stage._rings) == 1
        feed.close()
    ids = torch.cat([window for window, _ in kept])
    assert torch.equal(ids.sort().values, torch.arange(4001, device=DEVICE))
    assert torch.equal(torch.cat([actions for _, actions in kept])[:, 0].long(), ids)


def test_order_with_streams():
    """Work that is queued on a slow stream reads its own batch, although the slot has been filled again since."""
    on_side = torch.cuda.stream(torch.cuda.Stream()) if DEVICE != "cpu" else contextlib.nullcontext()
    with producer(length=2000, batch=8, slots=4) as one:
        feed, sums = one.connect(), []
        with on_side:
            burn = torch.randn(2048 if DEVICE != "cpu" else 8, device=DEVICE).diag()
            for batch in feed.epoch(0):
                for _ in range(3):
                    burn = (burn @ burn).clamp(-1, 1)
                sums.append((batch.window_id.sum(), batch["actions"][:, 0].sum(), batch.position))
            totals = [(ids.item(), int(actions.item()), position) for ids, actions, position in sums]
        assert len(totals) == 250
        for ids, actions, position in totals:
            assert ids == sum(range(position, position + 8)) == actions, position
        feed.close()


def test_daemon_comes_back():
    """The next daemon's ring is registered in place of the old one, and no batch repeats or is lost."""
    with producer(length=2000, batch=8) as one:
        feed = one.connect(mode="shard", rank=0, world_size=1)
        epoch = feed.epoch(0)
        seen = [next(epoch).position for _ in range(5)]
        one.kill()
        one.start()
        for batch in epoch:
            check_values(batch)
            seen.append(batch.position)
        assert seen == list(range(0, 2000, 8)) and (DEVICE == "cpu" or len(feed._stage._rings) == 1)
        feed.close()


def test_data_loader():
    """A state taken in the middle of an epoch resumes exactly there. DataLoader gives device tensors in this
    process."""
    with producer(length=800, batch=8) as one:
        data = trajd.torch.FeedDataset(endpoint=one.endpoint, spec={"any": 1}, timeout=30, device=DEVICE)
        loader = torch.utils.data.DataLoader(data, batch_size=None)
        ids, state = [], None
        for count, batch in enumerate(loader):
            assert batch["actions"].device.type == DEVICE
            ids.append(batch["window_id"].tolist())
            if count == 30:
                state = json.loads(json.dumps(data.state_dict()))
        assert len(ids) == 100
        data.load_state_dict(state)
        assert [batch["window_id"].tolist() for batch in loader] == ids[31:]
        data.close()


def tensors_of(batch):
    return {**{f"obs/{key}": value for key, value in batch["obs"].items()}, "actions": batch["actions"],
            "pad": batch["actions_is_pad"], "window_id": batch.window_id}


def test_real_daemon_same_as_on_the_host():
    """The lines of README, with a private daemon: bit for bit the host's batches."""
    with configuration() as path:
        with trajd.open(path, feed="train", device="cpu", timeout=30) as host:
            wanted = [{key: value.clone() for key, value in tensors_of(batch).items()} for batch in host.epoch(3)]
        with trajd.open(path, feed="train", device=DEVICE, timeout=30) as feed:
            count = 0
            for batch, want in zip(feed.epoch(3), wanted):
                for key, value in tensors_of(batch).items():
                    assert value.device.type == DEVICE and torch.equal(value.cpu(), want[key]), (key, batch)
                count += 1
            assert count == len(wanted) == len(feed) > 20


def train(path, steps, checkpoint=None):
    """Returns the losses of `steps` steps of behaviour cloning, and a checkpoint."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(14, 128), torch.nn.Tanh(), torch.nn.Linear(128, 16 * 7)).to(DEVICE)
    optimizer, losses = torch.optim.Adam(network.parameters(), 1e-3), []
    feed = trajd.open(path, feed="train", device=DEVICE, timeout=30)
    if checkpoint:
        network.load_state_dict(checkpoint["network"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        feed.load_state_dict(checkpoint["feed"])
    for batch in feed.forever():
        x = torch.cat([value.flatten(1) for value in batch["obs"].values()], 1)
        loss = (((network(x).view_as(batch["actions"]) - batch["actions"]) ** 2)[~batch["actions_is_pad"]]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if len(losses) == steps:
            break
    state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "feed": feed.state_dict()}
    feed.close()
    return [loss.item() for loss in losses], state


def test_training_resumes_after_the_daemon_was_killed():
    """A run that was killed in the middle of an epoch has the same losses as one that was not, bit for bit."""
    with configuration() as path:
        whole, _ = train(path, 120)
        assert sum(whole[-10:]) < 0.9 * sum(whole[:10]), "it does not learn"
        first, state = train(path, 50)
        for pid in daemons(path.parent):
            os.kill(pid, signal.SIGKILL)
        rest, _ = train(path, 70, state)
        assert first == whole[:50] and rest == whole[50:]


def measure(payload, device, seconds=2.0):
    """Measures batches of 256 from a fake producer. Each is used before the next one is requested."""
    with producer(length=1 << 40, batch=256, payload=payload, slots=8) as one:
        feed = one.connect(device=device, credit=6)
        waits, count = [], 0
        begin = cpu = None
        for batch in feed.epoch(0):
            actions = batch["actions"]
            if device != "cpu":
                torch.cuda.current_stream().synchronize()
            waits.append((time.monotonic_ns() - batch.ready_ns) / 1000)
            count += 1
            if count == 100:
                begin, cpu, waits = time.perf_counter(), time.process_time(), []
            if begin and time.perf_counter() - begin > seconds:
                break
            del actions
        wall, used = time.perf_counter() - begin, time.process_time() - cpu
        feed.close()
    waits.sort()
    return {"device": device, "batch_bytes": 256 * (payload + 12 + 8 + 1), "batches_per_s": round(len(waits) / wall),
            "gb_per_s": round(len(waits) / wall * 256 * payload / 1e9, 2), "cpu_us_per_batch": round(used / len(waits) * 1e6, 1),
            "age_at_use_us": {"p50": round(statistics.median(waits), 1), "p99": round(waits[int(0.99 * len(waits))], 1)}}


def main():
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    if DEVICE != "cpu" and not torch.cuda.device_count():
        print(f"0 passed, 0 failed, {len(tests)} skipped: 0 GPUs")
        return 0
    on = torch.cuda.get_device_name() if DEVICE != "cpu" else "the host"
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, trajd {trajd.__version__}, {on}", flush=True)
    failed, _ = gpu_checks.run(tests, LIMIT_S)
    for payload in (100, 16384):
        for device in dict.fromkeys(("cpu", DEVICE)):
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            print(json.dumps(measure(payload, device)), flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
