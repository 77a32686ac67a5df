"""Batches that are made and read in GPU memory, with the fake GPU of tests/fake: the daemon's production, its
rings, the wire, and how libtrajd handles streams. tests/gpu does the same with a real GPU."""
import ctypes
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from daemons import FAKE_PROGRAM, GpuDaemon
from datasets import make_demo_file
from fake_gpu import CONFIG, CUDA, UUID
from paths import BUILD, ROOT, SUPPORT
from waiting import wait_for

HELD, OTHER = 5, 6  # streams


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu") / "demo.hdf5"
    make_demo_file(path, episodes=6)
    return path


@pytest.fixture
def make(tmp_path, data, started):
    def start(fake="", gpu="", slots=4, name="gpu"):
        daemon = GpuDaemon(tmp_path / name, CONFIG.format(data=data, gpu=gpu, slots=slots), program=FAKE_PROGRAM)
        daemon.fake = fake
        return started(daemon)

    return start


def collect(client):
    found = {}
    while (batch := client.next()) is not None:
        found[batch.position] = batch.copy()
        batch.use_stream(OTHER)
        batch.release()
    return found


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


@pytest.mark.parametrize("captures", [0, 1])  # another thread captures a graph at the same time
def test_a_part_goes_back_when_the_streams_have_passed(make, captures):
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=8)
    CUDA.fake_cuda_capture(captures)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    batches = [client.next() for _ in range(3)]
    kept = [batch.arrays() for batch in batches]
    before = [{name: array.copy() for name, array in arrays.items()} for arrays in kept]
    for batch in batches:
        batch.use_stream(HELD)
        batch.use_stream(OTHER)
        batch.release()
    with pytest.raises(trajd.TrajdError) as refused:  # libtrajd must assume that every slot is still being read
        client.next(timeout_ms=300)
    assert refused.value.status == trajd.TIMEOUT
    for arrays, was in zip(kept, before):
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, was[name], err_msg=name)
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    batch = client.next()
    assert batch.position == 3 * 16
    batch.release()
    CUDA.fake_cuda_capture(0)
    client.close()


def take_all(client, stream, count=3):
    """Takes and releases `count` batches. libtrajd must assume that the stream still reads them."""
    for _ in range(count):
        batch = client.next()
        batch.use_stream(stream)
        batch.release()


def is_kept_waiting(client, timeout_ms=300):
    with pytest.raises(trajd.TrajdError) as refused:
        client.next(timeout_ms=timeout_ms)
    return refused.value.status == trajd.TIMEOUT


def test_a_release_while_a_graph_is_captured_on_the_stream(make):
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=8)
    CUDA.fake_cuda_capture_stream(ctypes.c_size_t(HELD), 1)
    take_all(client, HELD)
    assert is_kept_waiting(client)
    CUDA.fake_cuda_capture_stream(ctypes.c_size_t(HELD), 0)
    batch = client.next()
    assert batch.position == 3 * 16 and CUDA.fake_cuda_invalidated() == 0
    batch.release()
    client.close()


def test_a_stream_that_takes_no_event(make):
    """A stream that accepts no event: libtrajd waits for all work that the process has given to the GPU."""
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=8)
    CUDA.fake_cuda_reject_events(ctypes.c_size_t(HELD), 1)
    CUDA.fake_cuda_hold(ctypes.c_size_t(OTHER))
    take_all(client, HELD)
    assert is_kept_waiting(client)
    CUDA.fake_cuda_let_go(ctypes.c_size_t(OTHER))
    batch = client.next()
    assert batch.position == 3 * 16
    batch.release()
    CUDA.fake_cuda_reject_events(ctypes.c_size_t(HELD), 0)
    client.close()
    wait_for(lambda: CUDA.fake_cuda_events() == 0, what="all events given back")


def test_the_default_stream_of_another_thread(make):
    """The number of the default stream means another stream in the thread that releases: libtrajd waits for the
    whole GPU."""
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=8)
    CUDA.fake_cuda_hold(ctypes.c_size_t(OTHER))

    def in_a_thread(call, *arguments):
        thread = threading.Thread(target=call, args=arguments)
        thread.start()
        thread.join()

    for is_released_here in (True, False, False):
        batch = client.next()
        in_a_thread(batch.use_stream, 2)
        if is_released_here:
            batch.release()
        else:
            in_a_thread(batch.release)  # in a thread that gets the same system id as the previous one
    assert is_kept_waiting(client)
    CUDA.fake_cuda_let_go(ctypes.c_size_t(OTHER))
    batch = client.next()
    assert batch.position == 3 * 16
    batch.use_stream(2)
    batch.release()
    client.close()


def test_late_streams_are_asked_about_now_and_then(make):
    """libtrajd queries late streams from time to time, and less often the longer a stream takes."""
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=8)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    batch = client.next()
    batch.use_stream(HELD)
    begin, queries = time.monotonic(), CUDA.fake_cuda_queries()
    batch.release()
    time.sleep(1)
    queries = CUDA.fake_cuda_queries() - queries
    assert 0 < queries < 100 + 1000 * (time.monotonic() - begin)
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    client.close()


def test_credit_that_late_streams_have_is_waited_for(make):
    daemon = make(slots=4)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=3)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    take_all(client, HELD)
    assert is_kept_waiting(client, timeout_ms=1300)  # it has not received the message about the release
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    client.next().release()
    client.close()


def test_a_batch_of_no_stream_goes_back_at_once(make):
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=2)
    for position in range(0, 16 * 12, 16):
        batch = client.next()
        assert batch.position == position
        batch.release()
    client.close()


def made_on_gpu(client):
    (producer,) = [one for one in client.status()["producers"] if one.get("gpu")]
    return producer["batches"]


@pytest.mark.parametrize("ahead", [False, True])  # of the GPU; batches whose streams have not passed count as work, too
def test_parts_go_back_in_lots(make, ahead):
    """Releases are sent in bursts while the worker has other work: one burst costs one time slice of a GPU that
    training uses."""
    daemon = make(slots=8)
    client, watcher = daemon.client(), daemon.client()
    client.open("train", gpu=UUID, credit=8)
    streams, ready_ns = list(range(16, 48)), []

    def take(stream, timeout_ms):
        try:
            batch = client.next(timeout_ms=timeout_ms)
        except trajd.TrajdError as error:
            assert error.status == trajd.TIMEOUT
            return False
        ready_ns.append(batch.ready_ns)
        batch.use_stream(stream)
        batch.release()
        return True

    wait_for(lambda: made_on_gpu(watcher) == 8, what="the ring to be full")
    taken = 0
    for n in range(20):
        if ahead:
            CUDA.fake_cuda_hold(ctypes.c_size_t(streams[taken]))
            while taken < n + 8 and take(streams[taken], 20):
                taken += 1
                CUDA.fake_cuda_hold(ctypes.c_size_t(streams[taken]))
            CUDA.fake_cuda_let_go(ctypes.c_size_t(streams[n]))
        else:
            take(OTHER, 10000)
        time.sleep(0.005)
    # the batches after the first ring were made when their slots came back
    pauses = [b - a for a, b in zip(ready_ns[7:], ready_ns[8:])]
    lots = sum(pause > 2e6 for pause in pauses)
    assert len(pauses) >= 12 and lots <= len(pauses) // 2, pauses  # not one at a time
    for stream in streams:
        CUDA.fake_cuda_let_go(ctypes.c_size_t(stream))
    client.close()
    watcher.close()


def test_a_lot_goes_back_in_time(make):
    """The worker takes no further batch. Its released batches become free all the same."""
    daemon = make(slots=8)
    client, watcher = daemon.client(), daemon.client()
    client.open("train", gpu=UUID, credit=8)
    wait_for(lambda: [one["held"] for one in daemon_sessions(watcher) if one["held"]] == [8], what="the whole ring to be sent")
    client.next().release()
    wait_for(lambda: made_on_gpu(watcher) == 9, timeout=5, what="its slot to be filled again")
    client.close()
    watcher.close()


def test_a_lot_does_not_wait_for_what_is_stalled(make):
    """Batches whose stream has been late for long do not delay the release of other batches."""
    daemon = make(slots=8)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=8)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    take_all(client, HELD, 5)
    begin = time.monotonic()
    for _ in range(20):  # three at a time; a tenth of a second for each if they had to wait
        client.next().release()
    assert time.monotonic() - begin < 0.5
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    client.close()


def test_close_waits_for_streams(make):
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    batch = client.next()
    view = batch.arrays()["joints"]
    was = view.copy()
    batch.use_stream(HELD)
    batch.release()
    client.close()  # waits for one second; then the session goes on
    watcher = daemon.client()
    assert sum(session["held"] for session in watcher.status()["sessions"]) >= 1
    np.testing.assert_array_equal(view, was)
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    wait_for(lambda: len(watcher.status()["sessions"]) == 1, what="the session's end")
    wait_for(lambda: CUDA.fake_cuda_mappings() == 0, what="the ring to be closed")
    watcher.close()


def test_close_has_said_all_once_the_streams_have_passed(make):
    """close() waits for streams as it does in host memory, so that a program that closes and ends loses nothing. It
    waits one second at most."""
    daemon = make(slots=3)
    client = daemon.client()
    client.open("train", gpu=UUID)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    batch = client.next()
    batch.use_stream(HELD)
    batch.release()
    passed = threading.Event()

    def pass_soon():
        time.sleep(0.2)
        CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
        passed.set()

    thread = threading.Thread(target=pass_soon)
    thread.start()
    begin = time.monotonic()
    client.close()
    assert passed.is_set() or time.monotonic() - begin >= 1
    thread.join()
    wait_for(lambda: CUDA.fake_cuda_mappings() == 0, what="the ring to be closed")


def test_what_is_released_is_done_before_its_streams_have_passed(make):
    """A checkpoint contains a released batch, and another epoch does not deliver it again, before its streams have
    passed it."""
    daemon = make(slots=4)
    client = daemon.client()
    info = client.open("train", job="one", gpu=UUID)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    batch = client.next()
    batch.use_stream(HELD)
    batch.release()
    token = client.checkpoint()
    CUDA.fake_cuda_let_go(ctypes.c_size_t(HELD))
    client.close()
    again = daemon.client()
    again.open("train", job="two", gpu=UUID, resume=token)
    positions = sorted(collect(again))
    assert positions == list(range(16, info.epoch_length, 16))
    again.close()


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


SECOND = UUID[:-1] + "e"


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


def test_a_gpu_that_this_process_does_not_see(make, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA", "other")  # as CUDA_VISIBLE_DEVICES=1 does
    daemon = make(fake="gpus=2")
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu is None and b"not one of the 1 that this process sees" in info.gpu_refusal
    info = client.open("train", gpu=SECOND, epoch=1)
    assert (info.gpu, info.gpu_ordinal) == (SECOND.encode(), 0)
    client.next().release()
    client.close()


def test_one_of_two_gpus_does_not_open(make, tmp_path, data):
    daemon = make(fake="gpus=2,bad=1", gpu=", fall_back: true")
    client = daemon.client()
    assert "busy or unavailable: batches for this GPU and those after it lie in host memory (gpu.fall_back)" in daemon.text()
    assert client.open("train", gpu=UUID).gpu is not None
    info = client.open("train", gpu=SECOND, epoch=1)
    assert info.gpu is None and b"the daemon uses other GPUs" in info.gpu_refusal
    client.close()
    other = GpuDaemon(tmp_path / "bad", CONFIG.format(data=data, gpu="", slots=4), program=FAKE_PROGRAM)
    other.fake = "gpus=2,bad=1"
    found = other.run()
    assert found.returncode == 69 and "busy or unavailable" in found.stderr


def test_where_the_daemon_has_no_such_gpu(make):
    daemon = make()
    client = daemon.client()
    info = client.open("train", gpu="GPU-ffffffff-0000-0000-0000-000000000000")
    assert info.gpu is None and b"the daemon uses other GPUs" in info.gpu_refusal
    assert len(collect(client)) > 4
    client.close()


@pytest.mark.parametrize("gpu, fake, why", [(", fall_back: true", "none", b"the daemon uses no GPU"), ("", "oom", b"out of memory")])
def test_where_the_gpu_is_not_there_or_full(make, gpu, fake, why):
    daemon = make(fake=fake, gpu=gpu)
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu is None and why in info.gpu_refusal
    assert len(collect(client)) > 4
    client.close()


STREAMED_ROWS = """
    gpu: {{devices: all, rows: {rows}, rings: 64MiB}}
    datasets: {{demo: {{path: {data}, layout: {layout}}}}}
    feeds:
      grid:
        dataset: demo
        global_batch: 16
        slots: 4
        rate: 10
        anchor: {{clock: pose}}
        pad: {{before: 3, after: any, with: edge}}
        outputs:
          joints:  {{from: joint_pos, at: -4..0, max_gap: 3ms}}
          smooth:  {{from: obs/object, at: -2..0, kind: mean, width: 130ms}}
          near:    {{from: pose_pos, at: -2..0, kind: nearest}}
          gripper: {{from: gripper_cmd, at: -4..0, max_age: 10ms}}
          eef:     {{from: obs/robot0_eef_pos, at: -3..0}}
          turn:    {{from: obs/robot0_eef_quat, at: -3..0}}
          actions: {{from: [pose_pos, gripper_cmd, actions], at: 0..30, role: action, norm: mean_std}}
      rows:
        dataset: demo
        global_batch: 16
        slots: 4
        anchor: {{clock: actions}}
        pad: {{before: 1, after: any, with: zero}}
        outputs:
          eef:     {{from: obs/robot0_eef_pos, at: -1..0}}
          smooth:  {{from: obs/robot0_eef_pos, at: -1..0, kind: mean, width: 200ms}}
          pose:    {{from: pose_quat, at: -1..0}}
          joints:  {{from: joint_pos, at: "-35ms..0ms @ 100"}}
          actions: {{at: 0..15}}
      rates:
        dataset: demo
        global_batch: 16
        slots: 4
        anchor: {{rate: 7}}
        pad: {{before: any, after: any}}
        rate: 15
        outputs:
          eef:     {{from: obs/robot0_eef_pos, at: -5..0}}
          object:  {{from: obs/object, at: -5..0}}
          actions: {{at: 0..9}}
"""


def lay_out(folder, rate):
    """Writes the demo layout with another rate for its regular clock, whose rows then are at fractions of a
    nanosecond."""
    text = (ROOT / "configs/layouts/demo.yaml").read_text()
    begin = text.index("{rate: {attribute")
    end = text.index(", rows: actions", begin)
    path = folder / "other.yaml"
    path.write_text(text[:begin] + "{rate: " + rate + text[end:])
    return path


@pytest.mark.parametrize("rows, store, rate", [("64KiB", "64MiB", None), ("128KiB", "64MiB", "30"), ("64KiB", "700KiB", "30000/1001")])
def test_rows_beyond_the_budget_come_batch_by_batch(tmp_path, data, rows, store, rate):
    """Rows that are not resident come from host memory (from files where the store is small). The batches are the
    same, bit for bit."""
    layout = "demo" if rate is None else lay_out(tmp_path, rate)
    daemon = GpuDaemon(tmp_path / "small", STREAMED_ROWS.format(data=data, rows=rows, layout=layout), program=FAKE_PROGRAM, store=store).start()
    for feed in ("grid", "rows", "rates"):
        here, there = daemon.client(), daemon.client()
        here.open(feed)
        info = there.open(feed, job="gpu", gpu=UUID)
        assert info.gpu == UUID.encode(), info.gpu_refusal
        host, device = collect(here), collect(there)
        assert host.keys() == device.keys() and len(host) > 4
        for position, arrays in host.items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, device[position][name], err_msg=f"{feed}: {name} at {position}")
        gpu = here.status()["gpus"][0]
        places = {(item["path"], item["place"]) for item in gpu["resident"]}
        assert feed != "grid" or {("joint_pos", "host"), ("gripper_cmd", "gpu")} <= places
        assert feed != "rates" or rows != "64KiB" or ("obs/object", "host") in places
        assert gpu["rows_bytes"] <= gpu["rows_budget_bytes"]
        here.close()
        there.close()
    daemon.stop()


WIDE_LAYOUT = """
    layout: wide
    version: 1
    episodes: {files: "*.hdf5", groups: /data/demo_*}
    clocks: {rows: {rate: 20, rows: wide}}
    streams: {wide: {path: wide, clock: rows, kind: previous}, narrow: {path: narrow, clock: rows, kind: previous}}
"""

WIDE = """
    gpu: {{devices: all, rows: 128MiB, rings: 32MiB}}
    datasets: {{wide: {{path: {path}, layout: {layout}}}}}
    feeds:
      train: {{dataset: wide, global_batch: 256, slots: 4, order: sequential, anchor: {{clock: rows}},
              outputs: {{wide: {{at: 0}}, narrow: {{at: 0}}}}}}
"""


@pytest.mark.parametrize("store", ["256MiB", "74MiB"])  # all of the store, and no more than the long episode
def test_rows_that_go_there_in_many_chunks(tmp_path, store):
    """An episode that is longer than all buffers together, between short ones: each row is in its place."""
    counts = [3, 0, 18000, 2, 700, 1]
    rows = np.arange(sum(counts), dtype=np.float32)
    with h5py.File(tmp_path / "wide.hdf5", "w") as file:
        for n, begin in enumerate(np.cumsum(counts) - counts):
            some = rows[begin:begin + counts[n]]
            file[f"data/demo_{n}/wide"] = np.repeat(some[:, None], 1024, 1)
            file[f"data/demo_{n}/narrow"] = np.stack([some, -some], 1)
    (tmp_path / "wide.yaml").write_text(textwrap.dedent(WIDE_LAYOUT))
    daemon = GpuDaemon(tmp_path / "run", WIDE.format(path=tmp_path / "wide.hdf5", layout=tmp_path / "wide.yaml"), program=FAKE_PROGRAM, store=store).start()
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu == UUID.encode(), info.gpu_refusal
    batches = collect(client)
    assert sorted(batches) == list(range(0, len(rows) - 255, 256))
    for position, arrays in batches.items():
        wanted = rows[position:position + 256]
        np.testing.assert_array_equal(arrays["narrow"].reshape(256, 2), np.stack([wanted, -wanted], 1))
        np.testing.assert_array_equal(arrays["wide"].reshape(256, 1024), np.repeat(wanted[:, None], 1024, 1))
    gpu = client.status()["gpus"][0]
    assert {item["place"] for item in gpu["resident"]} == {"gpu"} and gpu["filled_bytes"] >= rows.nbytes * 1024
    client.close()
    daemon.stop()


MIXTURE = """
    gpu: {{devices: all, rows: {rows}, rings: 64MiB}}
    datasets: {{demo: {{path: {data}, layout: demo}}, other: {{path: {other}, layout: demo}}}}
    feeds:
      train:
        global_batch: 16
        slots: 4
        rate: 10
        mix:
          demo:  {{weight: 2, streams: {{lift: gone}}}}
          other: {{weight: 1, streams: {{lift: obs/object}}, filter: train}}
        epoch: 320
        anchor: {{clock: pose}}
        pad: {{before: 2, after: any, with: edge}}
        outputs:
          joints:  {{from: joint_pos, at: -4..0}}
          lift:    {{from: lift, at: -1..0, missing: zero}}
          actions: {{from: [pose_pos, gripper_cmd], at: 0..7, role: action}}
"""


@pytest.mark.parametrize("rows", ["64MiB", "192KiB"])
def test_a_mixture(tmp_path, data, rows):
    """The windows of each dataset go to their own rows, with one launch per dataset. One dataset lacks a stream,
    and (with few rows) is not resident."""
    other = tmp_path / "other.hdf5"
    make_demo_file(other, "--seed", "5", episodes=4)
    daemon = GpuDaemon(tmp_path / "mixture", MIXTURE.format(data=data, other=other, rows=rows), program=FAKE_PROGRAM).start()
    here, there = daemon.client(), daemon.client()
    here.open("train")
    info = there.open("train", job="gpu", gpu=UUID)
    assert info.gpu == UUID.encode(), info.gpu_refusal
    host, device = collect(here), collect(there)
    assert host.keys() == device.keys() and len(host) == 20
    for position, arrays in host.items():
        assert len(set(arrays["dataset_index"])) == 2
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, device[position][name], err_msg=f"{name} at {position}")
    resident = here.status()["gpus"][0]["resident"]
    assert {item["dataset"] for item in resident} == {"demo", "other"}
    assert {item["place"] for item in resident} == ({"gpu"} if rows == "64MiB" else {"gpu", "host"})
    here.close()
    there.close()
    daemon.stop()


BAD_ROWS = """
    gpu: {{devices: all, rows: 64KiB, rings: 16MiB}}
    datasets: {{demo: {{path: {path}, layout: demo}}}}
    feeds:
      train:
        dataset: demo
        global_batch: 16
        slots: 4
        bad_rows: {bad_rows}
        anchor: {{clock: actions}}
        pad: {{before: 1, after: any, with: zero}}
        outputs:
          object:  {{from: obs/object, at: -1..0}}
          actions: {{at: 0..3}}
"""


@pytest.mark.parametrize("bad_rows", ["keep", "error"])
def test_rows_that_come_along_and_cannot_be_read(tmp_path, bad_rows):
    path = tmp_path / "cut.hdf5"
    make_demo_file(path, episodes=24)
    daemon = GpuDaemon(tmp_path / "bad", BAD_ROWS.format(path=path, bad_rows=bad_rows), program=FAKE_PROGRAM, store="64KiB").start()
    client = daemon.client()
    info = client.open("train", gpu=UUID)
    assert info.gpu == UUID.encode(), info.gpu_refusal
    os.truncate(path, path.stat().st_size // 2)
    rows = bad = failed = 0
    while True:
        try:
            batch = client.next()
        except trajd.TrajdError as error:
            assert error.status == trajd.DATA and "cut.hdf5" in str(error), error
            failed += 1
            continue
        if batch is None:
            break
        arrays = batch.copy()
        missing = arrays["object.mask"][:, 1] == 6
        assert np.isnan(arrays["object"][missing]).all() and np.isfinite(arrays["object"][~missing]).all()
        rows += len(missing)
        bad += missing.sum()
        batch.release()
    assert (failed == 0 and bad > 0 and rows // 16 == info.window_count // 16) if bad_rows == "keep" else (failed > 0 and bad == 0)
    client.close()
    daemon.stop()


def test_a_batch_that_failed_is_done_when_it_is_told(tmp_path):
    """A checkpoint counts a failed batch as DONE, whatever releases are still waiting."""
    path = tmp_path / "cut.hdf5"
    make_demo_file(path, episodes=24)
    daemon = GpuDaemon(tmp_path / "bad", BAD_ROWS.format(path=path, bad_rows="error"), program=FAKE_PROGRAM, store="64KiB").start()
    client, watcher = daemon.client(), daemon.client()
    client.open("train", gpu=UUID, credit=8)
    os.truncate(path, path.stat().st_size // 2)
    taken = failed = 0
    while failed < 20:
        try:
            client.next().release()
        except trajd.TrajdError as error:
            assert error.status == trajd.DATA, error
            failed += 1
        taken += 1
        client.checkpoint()
        assert watcher.status()["batches_done"] == taken
    client.close()
    watcher.close()
    daemon.stop()


def test_slots_that_nobody_asked_for(tmp_path, data):
    """A feed without `slots` has sixteen slots where the budget has room for them, else four."""
    for rings, slots, count in (("64MiB", "", 16), ("6MiB", "", 4), ("6MiB", "slots: 5", 5)):
        text = CONFIG.replace("global_batch: 16", "global_batch: 500").replace("slots: {slots}", slots).format(data=data, gpu="").replace("rings: 16MiB", f"rings: {rings}")
        daemon = GpuDaemon(tmp_path / f"{rings}{len(slots)}", text, program=FAKE_PROGRAM).start()
        client = daemon.client()
        info = client.open("train", gpu=UUID)
        assert info.gpu == UUID.encode(), info.gpu_refusal
        (feed,) = [one for one in client.status()["feeds"] if one["name"].endswith(UUID)]
        assert feed["slots"]["count"] == count, feed
        client.close()
        daemon.stop()


@pytest.mark.parametrize("rings", [4, 8, 16])
def test_slots_that_nobody_asked_for_and_rows_that_come_along(tmp_path, data, rings):
    """The memory for sixteen slots is freed before four are tried. A sanitizer looks for leaks."""
    text = STREAMED_ROWS.format(data=data, rows="64KiB", layout="demo").replace("slots: 4", "").replace("rings: 64MiB}", f"rings: {rings}MiB}}")
    daemon = GpuDaemon(tmp_path / "gpu", text, program=FAKE_PROGRAM).start()
    client = daemon.client()
    client.open("grid", gpu=UUID)
    assert len(collect(client)) > 4
    client.close()
    daemon.stop()


def test_rows_that_no_room_is_left_for(tmp_path, data):
    """Streamed rows take memory beside the rings."""
    text = STREAMED_ROWS.format(data=data, rows="64KiB", layout="demo").replace("rings: 64MiB}", "rings: 2MiB}")
    daemon = GpuDaemon(tmp_path / "small", text, program=FAKE_PROGRAM).start()
    client = daemon.client()
    info = client.open("grid", gpu=UUID)
    assert info.gpu is None and b"but gpu.rings on" in info.gpu_refusal
    assert len(collect(client)) > 4
    client.close()
    daemon.stop()


def test_pinned_memory_is_within_the_budget(tmp_path, data):
    """Streamed rows use pinned memory, which `memory.rings` counts. With less of it fewer batches are in flight;
    without any the batches are in host memory."""
    def ask(name, rings):
        daemon = GpuDaemon(tmp_path / name, STREAMED_ROWS.format(data=data, rows="64KiB", layout="demo"), program=FAKE_PROGRAM, rings=rings).start()
        client = daemon.client()
        rings = sum(feed["ring_bytes"] for feed in client.status()["feeds"])
        info = client.open("grid", gpu=UUID)
        told = info.gpu, info.gpu_refusal  # the client's own memory
        assert len(collect(client)) > 4
        client.close()
        daemon.stop()
        return rings, *told

    rings, gpu, _ = ask("wide", "64MiB")
    assert gpu == UUID.encode()
    _, gpu, why = ask("none", rings)
    wanted, left = map(int, re.fullmatch(rb"feed grid@\S+: pinned memory for streamed rows needs (\d+) bytes, but memory.rings has only (\d+) bytes left", why).groups())
    assert gpu is None and wanted > left
    assert ask("two", rings + wanted - left)[1] == UUID.encode()
    assert ask("short", rings + wanted - left - 1)[1] is None


def test_no_gpu_and_no_leave_to_go_without(tmp_path, data):
    daemon = GpuDaemon(tmp_path / "none", CONFIG.format(data=data, gpu="", slots=4), program=FAKE_PROGRAM)
    daemon.fake = "none"
    found = daemon.run()
    assert found.returncode == 69 and "gpu.devices: all: this process finds no GPU that it can use: GPU 0: there are 0" in found.stderr


@pytest.mark.parametrize("devices, status, why", [('"0,x"', 78, "`all`, or numbers"), ('"3"', 69, "can use only 1 GPUs"), ('"0,"', 78, "`all`, or numbers")])
def test_devices_that_are_none(tmp_path, data, devices, status, why):
    text = CONFIG.format(data=data, gpu="", slots=4).replace("devices: all", f"devices: {devices}")
    found = GpuDaemon(tmp_path / "bad", text, program=FAKE_PROGRAM).run()
    assert found.returncode == status and why in found.stderr


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


def daemon_sessions(client):
    return client.status()["sessions"]


@pytest.mark.slow
@pytest.mark.parametrize("fake", ["lost=6", "lost=6,deaf"])  # a driver whose calls do not return any more
def test_a_lost_gpu_ends_the_daemon_with_its_own_status(make, fake):
    daemon = make(fake=fake)
    client = daemon.client(reconnect=True)
    client.open("train", gpu=UUID, mode=trajd.SHARD)
    seen = []
    while daemon.process.poll() is None:
        try:
            batch = client.next(timeout_ms=50)
            seen.append(batch.position)
            batch.release()
        except trajd.TrajdError as error:
            assert error.status == trajd.TIMEOUT, error  # a batch in flight is not reported as one that failed
    assert daemon.process.returncode == 69
    assert ("a GPU that does not respond: ended without it" in daemon.text()) == ("deaf" in fake)
    assert "unspecified launch failure" in daemon.text() and "feed train" in daemon.text() and "cuda" in daemon.text()
    daemon.fake = ""
    daemon.start()
    batch = client.next()
    assert batch.position == 16 * len(seen)
    batch.release()
    client.close()


def test_a_gpu_that_is_lost_while_nothing_is_asked_of_it(make):
    """A GPU is lost while the whole ring is leased. The next client would open memory that is gone."""
    daemon = make(fake="event=5")
    client = daemon.client()
    client.open("train", gpu=UUID, credit=4)
    held = [client.next() for _ in range(4)]
    assert daemon.process.wait(30) == 69
    assert "unspecified launch failure" in daemon.text()
    for batch in held:
        batch.release()
    client.close()


@pytest.mark.parametrize("when", ["gone=1", "gone=3", "copy=3"])  # the first use is the ring; rows are copied by the third copy
def test_a_gpu_that_is_lost_while_a_feed_is_made(make, when):
    daemon = make(fake=when, name="ends")
    client = daemon.client(reconnect=True)
    daemon.fake = ""
    opened = threading.Thread(target=client.open, args=("train",), kwargs={"gpu": UUID, "mode": trajd.SHARD})
    opened.start()
    assert daemon.process.wait(60) == 69
    assert "unspecified launch failure" in daemon.text()
    daemon.start()
    opened.join()
    client.next().release()
    client.close()
    daemon.stop()
    stays = make(fake=when, gpu=", fall_back: true", name="stays")
    for why in (b"launch failure", b"has failed"):
        client = stays.client()
        info = client.open("train", gpu=UUID)
        assert info.gpu is None and why in info.gpu_refusal
        assert len(collect(client)) > 4
        client.close()


def test_a_gpu_whose_memory_is_not_to_be_shared(make):
    """The memory of this GPU cannot be shared. It has not failed, so that the next feed tries again."""
    daemon = make(fake="unshared")
    client = daemon.client()
    for epoch in (0, 1):
        info = client.open("train", gpu=UUID, epoch=epoch)
        assert info.gpu is None and b"not supported" in info.gpu_refusal
        assert len(collect(client)) > 4
    client.close()


def test_a_lost_gpu_and_leave_to_go_without(make):
    daemon = make(fake="lost=6", gpu=", fall_back: true")
    client = daemon.client()
    client.open("train", gpu=UUID, mode=trajd.SHARD)
    positions = []
    while (batch := client.next()) is not None:
        positions.append(batch.position)
        batch.release()
    assert daemon.process.poll() is None
    assert client.library.trajd_client_feed_info(client.handle).contents.gpu is None
    assert b"GPU" in client.library.trajd_client_feed_info(client.handle).contents.gpu_refusal
    assert positions == list(range(0, positions[-1] + 16, 16))
    client.close()
