"""Batches that are made and read in GPU memory, with the fake GPU of tests/fake: the daemon's production, its
rings, the wire, and what dies. tests/gpu does the same with a real GPU."""
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import libtrajd as trajd
from fake_gpu import CUDA, HELD, OTHER, SECOND, UUID, collect, daemon_sessions
from fake_gpu import data, make  # noqa: F401  (fixtures)
from paths import BUILD, SUPPORT
from waiting import wait_for


def test_the_same_batches_as_in_host_memory(make):
    daemon = make(fake="slow=500")
    here, there = daemon.client(), daemon.client()
    assert here.open("train").gpu is None
    info = there.open("train", job="gpu", gpu=UUID)
    assert (info.gpu, info.gpu_ordinal, info.gpu_refusal) == (UUID.encode(), 0, None)
    host, device = collect(here), collect(there)
    assert host.keys() == device.keys() and len(host) > 4
    for position, arrays in host.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, device[position][name], err_msg=f"{name} at {position}")
    wait_for(lambda: CUDA.fake_cuda_events() == 0, what="all events given back")
    state = here.status()
    assert [gpu["uuid"] for gpu in state["gpus"]] == [UUID]
    assert {item["dataset"] for item in state["gpus"][0]["resident"]} == {"demo"}
    assert 0 < state["gpus"][0]["rows_bytes"] <= state["gpus"][0]["rows_budget_bytes"]
    assert [producer.get("gpu") for producer in state["producers"]] == [None, UUID]
    told = subprocess.run([BUILD / "clients/cli/trajctl", "status", "--endpoint", daemon.endpoint], capture_output=True, text=True, check=True,
                          env=daemon.environment()).stdout
    assert "a GPU that is not there" in told and "joint_pos" in told and f"train@{UUID}" in told
    here.close()
    there.close()
    assert CUDA.fake_cuda_mappings() == 0


def test_a_ring_that_is_left_is_closed(make):
    """The memory of a production that the daemon has ended is free when no client has it open."""
    daemon = make()
    client = daemon.client()
    client.open("train", gpu=UUID)
    kept = client.next()
    kept.use_stream(OTHER)
    for at in ("-1..0", "-2..0", "-3..0"):
        spec = "{dataset: demo, global_batch: 16, rate: 10, anchor: {clock: pose}, outputs: {pose: {from: pose_quat, at: %s}}}" % at
        assert client.open(spec=spec, gpu=UUID).gpu is not None
        assert CUDA.fake_cuda_mappings() == 2  # this one's ring, and the ring of the held batch
    kept.release()
    wait_for(lambda: CUDA.fake_cuda_mappings() == 1, what="the first ring to be closed")
    client.next().release()
    client.close()
    assert CUDA.fake_cuda_mappings() == 0


WORKER = """
    import ctypes, sys, time
    sys.path.insert(0, {folder!r})
    import libtrajd as trajd
    cuda = ctypes.CDLL({cuda!r})
    client = trajd.Client(trajd.load({build!r}), {endpoint!r})
    info = client.open("train", gpu={uuid!r}, credit=2)
    cuda.fake_cuda_hold(ctypes.c_size_t({held}))
    batch = client.next()
    batch.use_stream({held})
    batch.release()
    other = client.next()
    print(info.gpu, batch.position, other.position, flush=True)
    time.sleep(60)
"""


def start_worker(daemon, text=WORKER, **environment):
    text = textwrap.dedent(text).format(folder=str(SUPPORT), cuda=str(BUILD / "tests/fake/libcuda.so.1"), build=str(BUILD),
                                        endpoint=str(daemon.endpoint), uuid=UUID, held=HELD)
    return subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def test_a_killed_worker_gives_its_device_leases_back(make):
    daemon = make(slots=3)
    worker = start_worker(daemon)
    assert worker.stdout.readline().split() == [f"b'{UUID}'", "0", "16"]
    client = daemon.client()
    client.open("train", gpu=UUID)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    positions = sorted(collect(client))
    assert positions == list(range(16, 16 + len(positions) * 16, 16))  # the first one was DONE when the worker requested the next one
    client.close()


def test_a_killed_daemon_leaves_held_batches_readable(make):
    daemon = make()
    client = daemon.client(reconnect=True)
    client.open("train", gpu=UUID, mode=trajd.SHARD)
    batch = client.next()
    view = batch.arrays()["actions"]
    was = view.copy()
    daemon.kill()
    np.testing.assert_array_equal(view, was)
    daemon.start()
    follower = client.next()
    assert follower.position == 16
    np.testing.assert_array_equal(view, was)
    batch.use_stream(OTHER)
    batch.release()
    follower.release()
    client.close()
    wait_for(lambda: CUDA.fake_cuda_mappings() == 0, what="both rings to be closed")


def test_what_outlives_session_and_client_is_let_go_all_the_same(make):
    daemon = make()
    client = daemon.client()
    client.open("train", gpu=UUID)
    batch = client.next()
    batch.use_stream(OTHER)
    daemon.kill()
    with pytest.raises(trajd.TrajdError) as ended:
        while True:
            client.next().release()  # the batches that came before libtrajd noticed the end
    assert ended.value.status == trajd.CLOSED
    client.close()
    assert CUDA.fake_cuda_mappings() == 1
    batch.release()
    assert (CUDA.fake_cuda_mappings(), CUDA.fake_cuda_events()) == (0, 0)


@pytest.mark.parametrize("environment, why", [({"FAKE_CUDA": "open"}, "cuIpcOpenMemHandle"), ({"FAKE_CUDA": "init"}, "cuInit"),
                                               ({"FAKE_CUDA": "short"}, "has 4096 bytes instead of the")])
def test_a_worker_that_cannot_open_the_memory_falls_back(make, environment, why):
    daemon = make()
    worker = start_worker(daemon, """
        import ctypes, sys
        sys.path.insert(0, {folder!r})
        import libtrajd as trajd
        cuda = ctypes.CDLL({cuda!r})
        client = trajd.Client(trajd.load({build!r}), {endpoint!r})
        info = client.open("train", gpu={uuid!r})
        print(info.gpu, info.gpu_refusal.decode(), len(list(client.epoch())), sep="|", flush=True)
        client.close()
    """, **environment)
    gpu, refusal, count = worker.stdout.readline().strip().split("|")
    assert worker.wait(60) == 0
    assert gpu == "None" and why in refusal and int(count) > 4


def test_where_nobody_tells_how_long_the_memory_is(make):
    daemon = make()
    worker = start_worker(daemon, FAKE_CUDA="unranged")
    assert worker.stdout.readline().split()[0] == f"b'{UUID}'"
    worker.kill()
    worker.wait()


LATE = """
    import ctypes, sys
    sys.path.insert(0, {folder!r})
    import libtrajd as trajd
    cuda = ctypes.CDLL({cuda!r})
    client = trajd.Client(trajd.load({build!r}), {endpoint!r})
    client.open("train", gpu={uuid!r}, credit=2)
    batch = client.next()
    batch.use_stream({held})
    print("open", flush=True)
    sys.stdin.readline()
    try:
        while True:
            client.next().release()
    except trajd.TrajdError as ended:
        assert ended.status == trajd.CLOSED, ended
    client.close()
    cuda.fake_cuda_capture_stream(ctypes.c_size_t({held}), 1)
    batch.release()
    print(cuda.fake_cuda_mappings(), cuda.fake_cuda_invalidated(), flush=True)
"""


def test_a_last_release_in_a_capture_keeps_what_the_graph_may_name(make):
    daemon = make()
    worker = start_worker(daemon, LATE)
    assert worker.stdout.readline() == "open\n"
    daemon.kill()
    told, _ = worker.communicate("go\n", timeout=60)
    assert (worker.returncode, told.split()) == (0, ["1", "0"])


@pytest.mark.parametrize("seen, ordinals", [("two", (0, 1)), ("two turned", (1, 0))])
def test_two_gpus_in_one_process(make, monkeypatch, seen, ordinals):
    """Two GPUs in one process, whatever order the process counts them in. Each has its own production. Memory is
    mapped, events are queried and rings are closed in the context of their GPU."""
    monkeypatch.setenv("FAKE_CUDA", seen)
    daemon = make(fake="gpus=2")
    host = daemon.client()
    host.open("train", job="host")
    clients = [daemon.client(), daemon.client()]
    infos = [client.open("train", job=uuid, gpu=uuid) for client, uuid in zip(clients, (UUID, SECOND))]
    assert tuple(info.gpu_ordinal for info in infos) == ordinals and [info.gpu.decode() for info in infos] == [UUID, SECOND]
    wanted = collect(host)
    for client in clients:
        found = collect(client)
        assert found.keys() == wanted.keys()
        for position, arrays in wanted.items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, found[position][name], err_msg=f"{name} at {position}")
    assert [gpu["uuid"] for gpu in host.status()["gpus"]] == [UUID, SECOND]
    assert all(gpu["filled_bytes"] > 0 for gpu in host.status()["gpus"])
    for client in (*clients, host):
        client.close()
    assert (CUDA.fake_cuda_mappings(), CUDA.fake_cuda_events()) == (0, 0)


def test_signals_go_to_no_thread_of_the_driver(make):
    """A signal in a thread of the driver would end the daemon."""
    wanted = sum(1 << number - 1 for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    assert all(mask & wanted == wanted for mask in make().signals_of_threads())


def test_a_job_is_in_one_place(make):
    daemon = make()
    first, second = daemon.client(), daemon.client()
    first.open("train", job="one", gpu=UUID)
    with pytest.raises(trajd.TrajdError) as refused:
        second.open("train", job="one", timeout_ms=300)
    assert refused.value.status == trajd.BUSY and "in one place" in str(refused.value)
    second.open("train", job="two")
    first.close()
    wait_for(lambda: len(daemon_sessions(second)) == 1)
    second.open("train", job="one")
    second.close()


def test_a_production_on_a_gpu_is_not_opened_by_its_name(make):
    daemon = make()
    first, second = daemon.client(), daemon.client()
    first.open("train", gpu=UUID)
    with pytest.raises(trajd.TrajdError) as refused:
        second.open(f"train@{UUID}")
    assert refused.value.status == trajd.NOT_FOUND and "feeds: train" in str(refused.value)
    first.close()
    second.close()
