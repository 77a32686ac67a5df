"""How libtrajd handles streams, with the fake GPU of tests/fake: a batch goes back when its streams have passed, and
batches go back in lots."""
import ctypes
import threading
import time

import numpy as np
import pytest

import libtrajd as trajd
from fake_gpu import CUDA, HELD, OTHER, UUID, collect, daemon_sessions, is_kept_waiting, made_on_gpu, take_all
from fake_gpu import data, make  # noqa: F401  (fixtures)
from waiting import wait_for


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
    assert len(pauses) >= 12 and lots <= len(pauses) * 3 // 4, pauses  # not one at a time, on a busy machine either
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
    wait_for(lambda: made_on_gpu(watcher) == 9, what="its slot to be filled again")
    client.close()
    watcher.close()


def test_a_lot_does_not_wait_for_what_is_stalled(make):
    """Batches whose stream has been late for long do not delay the release of other batches."""
    daemon = make(slots=8)
    client = daemon.client()
    client.open("train", gpu=UUID, credit=8)
    CUDA.fake_cuda_hold(ctypes.c_size_t(HELD))
    take_all(client, HELD, 5)
    ends = []
    for _ in range(20):
        client.next().release()
        ends.append(time.monotonic())
    # Three go back at a time, after a tenth of a second if they had to wait. A busy machine does not delay all of them.
    assert min(later - earlier for earlier, later in zip(ends, ends[6:])) < 0.15
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
