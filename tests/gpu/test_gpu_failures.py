#!/usr/bin/env python3
"""A GPU that is lost, and a GPU that is full: the daemon and its workers on a real GPU, whose settings stay as they
are.

    BUNDLE/gpu_run.sh test_gpu_failures.py
    BUNDLE/gpu_run.sh test_gpu_failures.py test_no_memory_for_the_ring      # only this

The test starts an MPS server of its own. To lose a GPU it ends the context of one client of the server
(terminate_client), or kills the server. Workers are processes of their own: a lost CUDA context stays lost in its
process."""
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gpu_checks
import gpu_feed
import torch
from gpu_mps import mps

LIMIT_S = 240
DEVICE = "cuda"
MIB = 1 << 20


# ---- workers ----

WORKER = """
import json, logging, sys, time
sys.path.insert(0, {python!r})
import torch, trajd
def tell(**what):
    print(json.dumps(what), flush=True)
feed = trajd.connect({endpoint!r}, feed="train", device={device!r}, zero_copy={zero_copy!r}, mode="shard", rank=0, world_size=1, credit=4, timeout=60)
state = json.loads({state!r})
if state:
    feed.load_state_dict(state)
number = state["epoch"] if state else 0
while True:
    epoch = feed.epoch(number)
    while True:
        try:
            batch = next(epoch)
        except StopIteration:
            break
        except trajd.DataError as error:
            tell(error=str(error))
            continue
        sums = [batch.raw("window_id").sum().item(), batch.raw("gripper").double().sum().item(), batch.raw("actions").double().sum().item()]
        on_gpu = getattr(feed._stage, "_copying", feed) is None
        tell(epoch=batch.epoch, position=batch.position, on_gpu=on_gpu, why=feed._client.gpu_refusal, sums=sums, state=feed.state_dict())
        del batch
        time.sleep(0.005)
    number += 1
"""


class Worker:
    """Takes batch after batch, epoch after epoch, and reports what it read of each."""

    def __init__(self, daemon, environment=None, state=None):
        self.text = WORKER.format(python=str(gpu_feed.BUNDLE / "python"), endpoint=str(daemon.endpoint), device=DEVICE, zero_copy=DEVICE == "cuda",
                                  state=json.dumps(state))
        self.seen = []  # its reports, in order
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, "-c", self.text], env=environment, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.seen.append(json.loads(line))

    def _complaints(self):
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def wait_for(self, condition, limit_s=60, what=""):
        """Returns the first report for which condition(it) is true."""
        end, looked = time.monotonic() + limit_s, 0
        while True:
            while looked < len(self.seen):
                if condition(self.seen[looked]):
                    return self.seen[looked]
                looked += 1
            over = self.process.poll() is not None and not self.reader.is_alive()
            assert not over and time.monotonic() < end, f"{what}: {len(self.seen)} told, last {self.seen[-3:]}; {self._complaints()}"
            time.sleep(0.02)

    def wait_for_more(self, count, limit_s=60, what=""):
        """Waits for `count` further batches."""
        wanted = len(self.seen) + count
        self.wait_for(lambda _: len(self.seen) >= wanted, limit_s, what)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.errors.close()


@contextlib.contextmanager
def worker(*arguments, **options):
    one = Worker(*arguments, **options)
    try:
        yield one
    finally:
        one.end()


def host_sums(one, epoch_count):
    """Returns {(epoch, position): sums} as the CPU makes them."""
    found = {}
    with one.connect(device="cpu", zero_copy=False, job="host", mode="queue") as host:
        for epoch in range(epoch_count):
            for batch in host.epoch(epoch):
                found[epoch, batch.position] = [batch.raw("window_id").sum().item(), batch.raw("gripper").double().sum().item(),
                                                batch.raw("actions").double().sum().item()]
    return found


def check_batches(seen, one):
    """Checks that every batch came once and in order, except those with an error, and that all values are the CPU's."""
    wanted = host_sums(one, 1 + max(batch["epoch"] for batch in seen if "epoch" in batch))
    places = list(wanted)
    for number, batch in enumerate(seen):
        if "error" in batch:
            continue
        place = (batch["epoch"], batch["position"])
        assert place == places[number], (number, place, places[number], seen[max(0, number - 3):number + 2])
        ids, gripper, actions = wanted[place]
        assert batch["sums"][:2] == [ids, gripper] and abs(batch["sums"][2] - actions) < 1e-3, (batch, wanted[place])


# ---- an MPS server ----

class Server:
    """An MPS server of the test. `environment` is that of its clients."""

    def __init__(self, environment):
        self.environment = environment

    def ask(self, command):
        done = subprocess.run(["nvidia-cuda-mps-control"], input=command + "\n", env=self.environment, capture_output=True, text=True, timeout=30)
        return (done.stdout + done.stderr).strip()

    def numbers(self, command):
        return [int(word) for word in self.ask(command).split() if word.isdigit()]

    def pid(self):
        pids = self.numbers("get_server_list")
        if len(pids) != 1:
            raise gpu_checks.Skipped(f"the MPS control daemon has {pids} as its servers while a client runs: {self.log()}")
        return pids[0]

    def log(self):
        return {path.name: path.read_text(errors="replace")[-800:]
                for path in pathlib.Path(self.environment["CUDA_MPS_LOG_DIRECTORY"]).glob("*.log")}

    def end_client(self, pid, clients):
        """Ends the contexts of one client. The client and all others live on."""
        assert pid in clients, (pid, clients)
        print(f"   terminate_client {self.pid()} {pid}: {self.ask(f'terminate_client {self.pid()} {pid}')!r}", flush=True)


@contextlib.contextmanager
def server():
    with mps() as environment:
        if environment is None:
            raise gpu_checks.Skipped("no MPS server can be started here (nvidia-cuda-mps-control -d)")
        yield Server(environment)


def client_of(one, own):
    """Returns the daemon's number among the server's clients."""
    clients = own.numbers(f"get_client_list {own.pid()}")
    if one.process.pid not in clients:
        raise gpu_checks.Skipped(f"the daemon ({one.process.pid}) is none of the MPS server's clients ({clients}): {own.log()}")
    return clients


def told_of_the_loss(one):
    """Checks that the log has the error with GPU, feed, plan and shape."""
    lines = [line for line in one.text().splitlines() if "GPU GPU-" in line and "feed train" in line and "cuda" in line]
    assert lines, one.text()[-2000:]
    print(f"   {lines[0]}", flush=True)


def await_end(one, own):
    """Waits for the daemon's end. Where it hangs, shows in which call."""
    try:
        return one.process.wait(60)
    except subprocess.TimeoutExpired:
        where = {}
        for task in pathlib.Path(f"/proc/{one.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                where[(task / "comm").read_text().strip()] = (task / "wchan").read_text()
        raise AssertionError(f"the daemon lives 60 s after its GPU: {where}\n{one.text()[-2000:]}\n{own.log()}") from None


def on_gpu(batch):
    return batch.get("on_gpu") is True


def in_host_memory(batch):
    return batch.get("on_gpu") is False


# ---- lost ----

def test_a_lost_gpu():
    """The daemon ends with 69 and logs what it was doing. When the next daemon is there, its worker goes on at its
    position, on the GPU again."""
    with server() as own, gpu_feed.daemon(slots=4, environment=own.environment) as one, worker(one, own.environment) as reader:
        reader.wait_for(lambda batch: on_gpu(batch) and batch["epoch"] > 0, what="a batch on the GPU")
        own.end_client(one.process.pid, client_of(one, own))
        status = await_end(one, own)
        assert status == 69, (status, one.text()[-2000:])
        told_of_the_loss(one)
        one.start()
        reader.wait_for_more(100, what="batches of the next daemon")
        assert on_gpu(reader.seen[-1]), reader.seen[-1]
        reader.end()
        check_batches(reader.seen, one)


def test_a_lost_gpu_and_leave_to_go_without():
    """With fall_back the daemon stays, and the same worker goes on in host memory."""
    with server() as own, gpu_feed.daemon(slots=4, fall_back="true", environment=own.environment) as one, worker(one, own.environment) as reader:
        reader.wait_for(on_gpu, what="a batch on the GPU")
        own.end_client(one.process.pid, client_of(one, own))
        batch = reader.wait_for(in_host_memory, what="a batch in host memory")
        assert "GPU" in batch["why"], batch
        reader.wait_for_more(100, what="batches in host memory")
        reader.end()
        assert one.process.poll() is None, one.text()[-2000:]
        told_of_the_loss(one)
        check_batches(reader.seen, one)


def test_a_killed_mps_server():
    """The server's clients lose their GPU: the daemon ends with 69. The worker, which was a client, too, starts
    again from its state."""
    with server() as own, gpu_feed.daemon(slots=4, environment=own.environment) as one:
        with worker(one, own.environment) as reader:
            reader.wait_for(lambda batch: on_gpu(batch) and batch["epoch"] > 0, what="a batch on the GPU")
            client_of(one, own)
            os.kill(own.pid(), signal.SIGKILL)
            status = await_end(one, own)
            assert status == 69, (status, one.text()[-2000:])
            told_of_the_loss(one)
        first = [batch for batch in reader.seen if "state" in batch]  # an error may be its last report
        one.start()
        with worker(one, own.environment, state=first[-1]["state"]) as follower:
            follower.wait_for_more(100, what="batches of the next server's client")
            assert on_gpu(follower.seen[-1]), follower.seen[-1]
        check_batches(first + follower.seen, one)


def test_a_killed_mps_server_beside_a_worker_of_none():
    """A worker that is not a client of the server keeps its own context and goes on. Skipped where it cannot open the
    memory of a client of the server."""
    with server() as own, gpu_feed.daemon(slots=4, environment=own.environment) as one, worker(one) as reader:
        batch = reader.wait_for(lambda batch: "on_gpu" in batch, what="a batch")
        if not on_gpu(batch):
            raise gpu_checks.Skipped(f"a worker that is not an MPS client cannot open a client's memory: {batch['why']}")
        client_of(one, own)
        os.kill(own.pid(), signal.SIGKILL)
        status = await_end(one, own)
        assert status == 69, (status, one.text()[-2000:])
        one.start()
        reader.wait_for_more(100, what="batches of the next daemon")
        assert on_gpu(reader.seen[-1]), reader.seen[-1]
        reader.end()
        check_batches(reader.seen, one)


# ---- full ----

@contextlib.contextmanager
def full_but_for(room_bytes):
    """Takes all of the GPU's memory except `room_bytes`, rounded down to 2 MiB."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    driver, taken, step = ctypes.CDLL("libcuda.so.1"), [], 1 << 40
    while True:
        step = min(step, (torch.cuda.mem_get_info()[0] - room_bytes) // (2 * MIB) * 2 * MIB)
        if step < 2 * MIB:
            break
        memory = ctypes.c_uint64()
        if driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(step)) == 0:
            taken.append(memory)
        else:  # in pieces
            step //= 2
    try:
        yield
    finally:
        assert not [memory for memory in taken if driver.cuMemFree_v2(memory) != 0]


def check_refused_and_then_not(one):
    """Reads one epoch in host memory, with the reason, and one on the GPU when there is room."""
    with one.connect(device="cpu", zero_copy=False, job="host") as host:
        wanted = {batch.position: gpu_feed.snapshot(batch) for batch in host.epoch(0)}
    for job, refused in (("early", True), ("late", False)):
        count = 0
        with one.connect(job=job) as feed:
            with full_but_for(6 * MIB) if refused else contextlib.nullcontext():
                assert feed.info.batches == len(wanted)
                why = feed._client.gpu_refusal
            if refused:
                gpu = feed.status()["gpus"][0]
                assert why and "memory" in why, why
                assert (gpu["rows_bytes"], gpu["rings_bytes"]) == (0, 0), gpu
                print(f"   {why}", flush=True)
            for batch in feed.epoch(0):
                gpu_feed.same(wanted[batch.position], {name: value.cpu() for name, value in gpu_feed.snapshot(batch).items()}, batch.position)
                count += 1
            assert count == len(wanted) and gpu_feed.is_direct(feed) is not refused, (count, gpu_feed.is_direct(feed), feed._client.gpu_refusal)
    assert "memory" in one.text()


def test_no_memory_for_the_ring():
    with gpu_feed.daemon(batch=512, slots=64) as one:  # some 12 MiB
        check_refused_and_then_not(one)


def test_no_memory_for_the_rows():
    """gpu.rows has room, the GPU has not: rows that are already there are freed."""
    with tempfile.TemporaryDirectory(prefix="trajd") as folder:
        path = pathlib.Path(folder) / "large.hdf5"
        subprocess.run([sys.executable, gpu_feed.BUNDLE / "make_demo_dataset.py", path, "--episodes", "400"], check=True, stdout=subprocess.DEVNULL)
        with gpu_feed.daemon(path=path, batch=256) as one:
            check_refused_and_then_not(one)


def test_no_memory_at_the_start():
    """The GPU lacks the memory of the budgets: no daemon starts or, with fall_back, one in host memory. It does not
    wait for the memory."""
    with full_but_for(1536 * MIB):
        with tempfile.TemporaryDirectory(prefix="trajd") as folder:
            try:
                one = gpu_feed.Daemon(folder)
            except AssertionError as told:
                assert "gpu.rows and gpu.rings need 2304 MiB" in str(told), told
            else:
                one.kill()
                raise AssertionError("it has started")
        with gpu_feed.daemon(fall_back="true") as one:
            assert "batches are in host memory (gpu.fall_back)" in one.text()
            with one.connect() as feed:
                assert feed.info.batches > 20 and "the daemon uses no GPU" in feed._client.gpu_refusal


if __name__ == "__main__":
    sys.exit(gpu_checks.main(globals(), LIMIT_S))
