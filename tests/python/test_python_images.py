"""Images that the worker finishes: they come as u8, and what the policy gets has the bytes that the daemon makes where
it finishes them itself."""
import itertools
import re
import textwrap

import h5py
import numpy as np
import pytest

import trajd
from paths import ROOT
from image_files import random_frames, write_encoded
from trajd import arrays, styles

FEED = """
{more}
datasets: {{arm: {{path: {path}, layout: aloha, color: rgb}}}}
feeds:
  train:
    dataset: arm
    global_batch: 4
    tail: short
    seed: 1
    anchor: {{clock: steps}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
{outputs}
"""
TOP = "{from: observations/images/top, at: -1..0, image: {resize: [20, 31], filter: nearest}"
WRIST = "{from: observations/images/wrist, at: 0, image: {resize: [17, 13], filter: nearest, augment: [{crop: [9, 11]}]}"
FORMS = f"""
qpos: {{from: observations/qpos, at: 0}}
obs/top: {TOP}, layout: chw, norm: imagenet}}
obs/half: {TOP}, norm: signed, dtype: float16}}
obs/planes: {TOP}, layout: chw}}
obs/plain: {TOP}}}
obs/wrist: {WRIST}, layout: chw, norm: unit}}
action: {{at: 0..1}}
"""
IMAGES = ("obs/top", "obs/half", "obs/planes", "obs/plain", "obs/wrist")


@pytest.fixture
def arm(tmp_path):
    for e in range(2):
        write_encoded(tmp_path / f"episode_{e}.hdf5", {"top": random_frames(9, 48, 64, e), "wrist": random_frames(9, 40, 40, 5 + e)})
    return tmp_path


def config_of(path, outputs=FORMS, more=""):
    return FEED.format(path=path, outputs=textwrap.indent(textwrap.dedent(outputs), " " * 6), more=more)


def productions(feed):
    return sorted(each["name"] for each in feed.status()["feeds"])


def read(feed, names=IMAGES):
    """Returns the arrays of one epoch, by name and position."""
    return {(name, batch.position): np.array(batch.raw(name)) for batch in feed.epoch(0) for name in (*names, "action")}


def check_equal(found, expected):
    assert found.keys() == expected.keys() and len(found) > 5
    for key, value in found.items():
        assert value.dtype == expected[key].dtype and value.shape == expected[key].shape, key
        assert value.tobytes() == expected[key].tobytes(), key


def test_a_device_gets_u8_and_finishes_it(daemon, arm, device):
    one = daemon(config_of(arm))
    with trajd.connect(one.endpoint, feed="train", job="here", timeout=60) as here, \
            trajd.connect(one.endpoint, feed="train", job="there", timeout=60, device="cuda:0") as there:
        expected, found = read(here), read(there)
        check_equal(found, expected)
        assert found["obs/top", 0].shape == (4, 2, 3, 20, 31) and found["obs/wrist", 0].shape == (4, 1, 3, 9, 11)
        assert len({str(value.dtype) for value in found.values()}) == 3
        assert productions(here) == ["train", "train@u8"]
        assert here.info.norm_digest == there.info.norm_digest and here.info.fingerprint == there.info.fingerprint
        batch = next(iter(there.epoch(1)))
        raw = {name: dtype for name, _, _, dtype, _, finish in batch._core._held.schema() if finish}
        assert raw == {name: "u8" for name in IMAGES if name != "obs/plain"}, "as the ring carries them"


def test_a_remote_worker_gets_u8_and_finishes_it(daemon, arm, key_file):
    one = daemon(config_of(arm, more='listen: {tcp: "127.0.0.1:0", keys: keys}'))
    endpoint = re.search(r"remote workers at (tcp://\S+)", one.text())[1]
    with trajd.connect(one.endpoint, feed="train", job="here", timeout=60) as here, \
            trajd.connect(endpoint, feed="train", job="there", timeout=60, key_file=key_file) as there:
        check_equal(read(there), read(here))
        assert productions(here) == ["train", "train@u8"]


def test_a_policy_that_maps_over_its_observations_sees_no_augmentation(daemon, arm):
    one = daemon(config_of(arm, outputs=FORMS.replace("qpos:", "obs/qpos:")))
    for style in ("raw", "diffusion_policy"):
        with trajd.connect(one.endpoint, feed="train", job=style, timeout=60, style=style) as feed:
            batch = next(iter(feed.epoch(0)))
            assert set(batch["obs"]) == {"qpos", "top", "half", "planes", "plain", "wrist"}
            assert ("obs/wrist.augment" in batch) == (style == "raw")
            drawn = batch["obs/wrist.augment"] if style == "raw" else batch.raw("obs/wrist.augment")
            assert drawn.shape == (4, 1, 1, 4) and drawn[..., 2:].max() == 0  # top and left of the crop
            assert style != "raw" or set(batch.copy()) > {"obs", "action", "obs/wrist.augment"}


@pytest.mark.parametrize("first", ["cpu", "cuda:0"])
def test_workers_of_one_job_get_one_form(daemon, arm, device, first):
    """The second worker reads where the first one is, and both get the same values."""
    one = daemon(config_of(arm))
    expected = read(trajd.connect(one.endpoint, feed="train", job="alone", timeout=60))
    options = [{}, {"device": "cuda:0"}]
    feeds = [trajd.connect(one.endpoint, feed="train", job="two", timeout=60, mode="shard", rank=rank, world_size=2, **each)
             for rank, each in enumerate(options if first == "cpu" else options[::-1])]
    place = "train" if first == "cpu" else "train@u8"
    feeds[0]._client.open(feed="train", job="two", shard=True, rank=0, world=2, unfinished=1 if first == "cpu" else 2)
    feeds[1]._client.open(feed="train", job="two", shard=True, rank=1, world=2, unfinished=2 if first == "cpu" else 1)
    sessions = next(each for each in feeds[0].status()["feeds"] if each["name"] == place)
    assert sessions["sessions"] == 2
    for rank, feed in enumerate(feeds):
        feed._opened_at = (0, 0)
    batches = [next(iter(feed.epoch(0))) for feed in feeds]
    for name in IMAGES:
        both = np.concatenate([np.array(batch.raw(name)) for batch in batches])
        assert both.tobytes() == expected[name, 0].tobytes(), name
    for feed in feeds:
        feed.close()


def test_images_as_they_are_have_one_ring(daemon, arm, device):
    one = daemon(config_of(arm, f"obs/plain: {TOP}}}\nqpos: {{from: observations/qpos, at: 0}}\naction: {{at: 0}}"))
    with trajd.connect(one.endpoint, feed="train", timeout=60, device="cuda:0") as feed:
        assert read(feed, ["obs/plain"])["obs/plain", 0].dtype == np.uint8
        assert productions(feed) == ["train"]


def test_a_feed_that_a_job_sends(daemon, arm, device):
    """It gets one ring, the one that its workers read."""
    one = daemon(config_of(arm, "qpos: {from: observations/qpos, at: 0}\naction: {at: 0}"))
    text = textwrap.dedent(config_of(arm)[config_of(arm).index("    dataset: arm"):])
    with trajd.connect(one.endpoint, spec=text, job="there", timeout=60, device="cuda:0") as there:
        found = read(there)
        names = productions(there)
        assert len(names) == 2 and re.fullmatch("spec:[0-9a-f]{16}@u8", names[0]), names
        with trajd.connect(one.endpoint, spec=text, job="here", timeout=60) as here:
            check_equal(found, read(here))


def test_where_the_second_ring_has_no_room(daemon, arm, device):
    one = daemon(config_of(arm), rings="640KiB")
    with trajd.connect(one.endpoint, feed="train", timeout=60, device="cuda:0") as feed:
        assert read(feed)["obs/top", 0].dtype == np.float32
        assert productions(feed) == ["train"]
    assert "the daemon finishes the images instead" in one.text()


def test_the_form_stays_when_the_daemon_returns(daemon, arm, device):
    one = daemon(config_of(arm))
    expected = read(trajd.connect(one.endpoint, feed="train", job="alone", timeout=60))
    feed = trajd.connect(one.endpoint, feed="train", job="j", timeout=30, device="cuda:0", mode="shard", rank=0, world_size=1)
    epoch = feed.epoch(0)
    found = []
    for batch in itertools.islice(epoch, 2):
        found.append(np.array(batch.raw("obs/top")))
    one.kill()
    one.start()
    found += [np.array(batch.raw("obs/top")) for batch in epoch]
    assert b"".join(value.tobytes() for value in found) == b"".join(
        expected[key].tobytes() for key in sorted(key for key in expected if key[0] == "obs/top"))
    feed.close()


def test_a_daemon_that_returns_with_too_little_room(daemon, arm, device):
    """The worker keeps its form: it waits until there is room for it again."""
    one = daemon(config_of(arm))
    feed = trajd.connect(one.endpoint, feed="train", job="j", timeout=3, device="cuda:0", mode="shard", rank=0, world_size=1)
    expected = {batch.position: np.array(batch.raw("obs/top")) for batch in feed.epoch(0)}
    epoch = feed.epoch(0)
    next(epoch)
    one.kill()
    config = one.config.read_text()
    one.config.write_text(config.replace("rings: 64MiB", "rings: 640KiB"))
    one.start()
    with pytest.raises(trajd.Timeout):
        list(epoch)
    assert "the daemon finishes the images instead" not in one.text()
    one.kill()
    one.config.write_text(config)
    one.start()
    found = {batch.position: np.array(batch.raw("obs/top")) for batch in feed.epoch(0)}
    assert max(found) == max(expected) and all(found[at].tobytes() == expected[at].tobytes() for at in found)
    feed.close()


# ---- finishing alone ----

def finish(dtype, planes, channels, rng):
    values = [rng.normal(size=channels).astype(np.float32).tobytes() if dtype != "u8" else b"" for _ in range(2)]
    return arrays.Finish(dtype, planes, *values)


@pytest.mark.parametrize("dtype", ["u8", "f32", "f16", "bf16"])
@pytest.mark.parametrize("planes", [False, True])
def test_torch_finishes_as_numpy_does(dtype, planes):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    for channels in (1, 3, 4):
        frames = rng.integers(0, 256, (2, 3, 7, 5, channels), dtype=np.uint8)
        how = finish(dtype, planes, channels, rng)
        if dtype == "u8" and not planes:
            continue
        found = arrays.finish_view(frames_of(frames), how, "torch")
        wide = frames.astype(np.float32)
        expected = np.moveaxis(wide, -1, -3) if planes else wide
        if dtype != "u8":
            scale, shift = (np.frombuffer(values, np.float32) for values in (how.scale, how.shift))
            extents = (-1, 1, 1) if planes else (-1,)
            expected = expected * scale.reshape(extents) + shift.reshape(extents)
        exact = torch.from_numpy(np.ascontiguousarray(expected)).to(found.dtype)
        assert found.is_contiguous() and tuple(found.shape) == how.shape(frames.shape) and torch.equal(found, exact)
        if dtype != "bf16":
            assert arrays.finish_numpy(frames, how).tobytes() == found.numpy().tobytes()


def frames_of(frames):
    frames = frames.view()
    frames.flags.writeable = False
    return frames


# ---- styles ----

def test_a_style_scales_into_one_buffer_and_names_the_preset_once(daemon, arm, caplog, monkeypatch):
    monkeypatch.setattr(styles, "_named", set())
    made = []
    monkeypatch.setattr(arrays.np, "empty", lambda *shape, empty=np.empty, **more: made.append(empty(*shape, **more)) or made[-1])
    outputs = f"obs/top: {TOP}}}\nobs/wrist: {TOP.replace('top', 'wrist')}}}\nqpos: {{from: observations/qpos, at: 0}}\naction: {{at: 0}}"
    one = daemon(config_of(arm, outputs))
    with trajd.connect(one.endpoint, feed="train", timeout=60, style="act") as feed:
        for batch in itertools.islice(feed.epoch(0), 2):
            made.clear()
            raw = np.stack([batch.raw("obs/top")[:, -1], batch.raw("obs/wrist")[:, -1]], axis=1)
            expected = np.moveaxis(raw, -1, -3).astype(np.float32) / np.float32(255)
            image = batch["image"]
            assert image.tobytes() == expected.tobytes() and any(image is each for each in made)
    named = [record.message for record in caplog.records if "preset: act" in record.message]
    assert len(named) == 1 and "image" in named[0] and "feed train" in named[0]


def test_cameras_of_two_forms_are_not_stacked():
    frames = {"obs/a": ("u8", [1, 4, 4, 3]), "obs/b": ("f32", [1, 3, 4, 4])}
    schema = [styles.Tensor(name, "obs", None, dtype, shape) for name, (dtype, shape) in frames.items()]
    with pytest.raises(trajd.ArgumentError, match="style act stacks obs/a, u8, and obs/b, f32"):
        styles.make_plan("act", schema)


def test_the_last_bits_differ_as_the_page_says(daemon, tmp_path):
    """`norm:` multiplies once, where a trainer divides by 255, subtracts the mean and divides by the std, in float32."""
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+)(?: to (\d+))? \| ([0-9.e-]+)", (ROOT / "clients/docs/how-to/images.md").read_text(), re.M)
    assert {name for name, *_ in rows} == {"unit", "signed", "imagenet", "signed-imagenet"}
    levels = np.arange(256, dtype=np.uint8)
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros((1, 2), np.float32)
        file["data/demo_0/obs/top_image"] = np.broadcast_to(levels.reshape(1, 16, 16, 1), (1, 16, 16, 3))
    outputs = "\n".join(f"      {name}: {{from: obs/top_image, at: 0, image: {{}}, norm: {name}}}" for name, *_ in rows)
    one = daemon(f"""
datasets: {{d: {{path: {tmp_path}/d.hdf5, layout: robomimic}}}}
feeds:
  train:
    dataset: d
    global_batch: 1
    anchor: {{clock: actions}}
    outputs:
{outputs}
""")
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        batch = next(iter(feed.epoch(0)))
    for name, least, most, bound in rows:
        unit = np.repeat(levels[:, None], 3, axis=1).astype(np.float32) / np.float32(255)
        trainer = unit * np.float32(2) - np.float32(1) if name.startswith("signed") else unit
        trainer = (trainer - mean) / std if name.endswith("imagenet") else trainer
        made = batch[name].reshape(256, 3)
        counts = (made != trainer).sum(axis=0)
        assert (counts.min(), counts.max()) == (int(least), int(most or least)), name
        assert 0.9 * float(bound) < np.abs(made - trainer).max() <= 1.01 * float(bound), name
