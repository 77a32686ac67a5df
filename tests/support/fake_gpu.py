"""A feed on the fake GPU of tests/fake: the daemon trajd_fake_gpu, and the libcuda.so.1 that its workers load. Tests import the
fixtures `data` and `make`."""
import ctypes

import pytest

import libtrajd as trajd
from daemons import FAKE_PROGRAM, GpuDaemon
from datasets import make_demo_file
from paths import BUILD

UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
SECOND = UUID[:-1] + "e"
HELD, OTHER = 5, 6  # streams
CUDA = ctypes.CDLL(str(BUILD / "tests" / "fake" / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)  # libtrajd finds it by its name

CONFIG = """
    gpu: {{devices: all, rows: 64MiB, rings: 16MiB{gpu}}}
    datasets: {{demo: {{path: {data}, layout: demo}}}}
    feeds:
      train:
        dataset: demo
        global_batch: 16
        slots: {slots}
        rate: 10
        anchor: {{clock: pose}}
        pad: {{before: 1, after: any, with: edge}}
        outputs:
          joints:  {{from: joint_pos, at: -4..0}}
          pose:    {{from: pose_quat, at: -1..0}}
          gripper: {{from: gripper_cmd, at: -4..0, max_age: 100ms}}
          actions: {{from: [pose_pos, gripper_cmd], at: 0..7, role: action, norm: mean_std}}
"""


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


def made_on_gpu(client):
    (producer,) = [one for one in client.status()["producers"] if one.get("gpu")]
    return producer["batches"]


def daemon_sessions(client):
    return client.status()["sessions"]
