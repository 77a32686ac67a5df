"""Images from files larger than the store: contiguous, gzipped in blocks of rows, and one chunk per frame in many
files."""

import h5py
import numpy as np
import pytest

import libtrajd as trajd
from datasets import make_demo_file

FEED = """
datasets: {{images: {{path: {path}, layout: {layout}}}}}
feeds:
  train:
    dataset: images
    global_batch: 8
    tail: short
    order: {order}
    block: {{windows: 32, neighbours: 2}}
    anchor: {{clock: {clock}}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
      image: {{from: {image}, at: -1..0}}
      state: {{from: {state}, at: -1..0, dtype: {dtype}}}
"""


def write_aloha(folder, episodes=4, rows=30):
    """Writes files as ACT's recorder does: float32, images in chunks of one frame, one episode per file."""
    random = np.random.default_rng(3)
    for e in range(episodes):
        with h5py.File(folder / f"episode_{e}.hdf5", "w") as file:
            file.attrs["sim"] = True
            file.create_dataset("action", data=random.normal(size=(rows, 14)).astype(np.float32))
            observations = file.create_group("observations")
            observations.create_dataset("qpos", data=random.normal(size=(rows, 14)).astype(np.float32))
            image = random.integers(0, 256, (rows, 48, 64, 3), dtype=np.uint8)
            observations.create_dataset("images/top", data=image, chunks=(1, 48, 64, 3))
    return [folder / f"episode_{e}.hdf5" for e in range(episodes)]


def receive(one, expected, dtype):
    """Checks every window of an epoch. expected[episode] is (images, state) of that episode."""
    client = one.client()
    info = client.open("train")
    assert info.window_count == sum(len(images) for images, _ in expected)
    offsets = np.cumsum([0] + [len(images) for images, _ in expected])
    for _, arrays in client.epoch():
        for row, window in enumerate(arrays["window_id"].tolist()):
            episode = int(arrays["episode_index"][row])
            t = window - offsets[episode]
            history = [max(t - 1, 0), t]
            images, state = expected[episode]
            assert arrays["image"].dtype == np.uint8
            np.testing.assert_array_equal(arrays["image"][row], images[history])
            np.testing.assert_array_equal(arrays["state"][row], state[history].astype(dtype))
    status = client.status()
    client.close()
    return status["datasets"][0]["store"]


@pytest.mark.slow
@pytest.mark.parametrize("gzip", [[], ["--gzip"]], ids=["contiguous", "gzip"])
@pytest.mark.parametrize("order", ["blocked", "global"])
def test_images_of_one_file_that_does_not_fit_the_store(daemon, tmp_path, gzip, order):
    path = tmp_path / "images.hdf5"
    make_demo_file(path, "--images", *gzip, episodes=10)
    with h5py.File(path) as file:
        names = sorted(file["data"], key=lambda name: int(name.split("_")[1]))
        expected = [(file["data"][n]["obs/agentview_image"][:], file["data"][n]["obs/robot0_eef_pos"][:]) for n in names]
    largest = max(images.nbytes for images, _ in expected)
    config = FEED.format(path=path, layout="demo", order=order, clock="actions", image="obs/agentview_image",
                         state="obs/robot0_eef_pos", dtype="float16")
    one = daemon(config, store=f"{2 * largest + 65536}")
    store = receive(one, expected, np.float16)
    assert store["pieces_evicted"] > 0 and store["resident_bytes"] <= store["budget_bytes"] < store["total_bytes"]


def test_one_episode_a_file_with_a_chunk_a_frame(daemon, tmp_path):
    write_aloha(tmp_path)
    expected = []
    for e in range(4):
        with h5py.File(tmp_path / f"episode_{e}.hdf5") as file:
            expected.append((file["observations/images/top"][:], file["observations/qpos"][:]))
    one = daemon(FEED.format(path=tmp_path, layout="aloha", order="global", clock="steps",
                             image="observations/images/top", state="observations/qpos", dtype="float32"))
    receive(one, expected, np.float32)


def test_an_episode_larger_than_the_store_is_said(daemon, tmp_path):
    write_aloha(tmp_path, episodes=1)
    one = daemon(FEED.format(path=tmp_path, layout="aloha", order="global", clock="steps", image="observations/images/top",
                             state="observations/qpos", dtype="float32"), store="100KiB")
    client = one.client()
    client.open("train")
    with pytest.raises(trajd.TrajdError, match="episode_0.hdf5.*bytes"):
        client.next()
    client.close()
