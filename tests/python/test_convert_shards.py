"""trajd.convert --shard I/N: all shards together have what one run has."""
import json
import struct

import h5py
import numpy as np
import pytest
from conversions import contents, converted, kill_at, run
from lerobot_sets import make_v3
from paths import ROOT

import trajd

GOLDEN = ROOT / "tests/golden"
LENGTHS = (5, 7, 4, 6, 3)
START = 1_700_000_000_000_000_000


def write_recording(path, values, topics=("/width",)):
    """Writes Float64 messages every 0.1 s."""
    writer_of = pytest.importorskip("mcap.writer").Writer
    with open(path, "wb") as file:
        writer = writer_of(file)
        writer.start(profile="ros2")
        number = writer.register_schema("std_msgs/msg/Float64", "ros2msg", b"float64 data")
        for topic in topics:
            channel = writer.register_channel(topic, "cdr", number)
            for row, value in enumerate(values):
                writer.add_message(channel, START + row * 10**8, b"\0\1\0\0" + struct.pack("<d", value), START)
        writer.finish()
    return path


def make_lerobot(folder):
    return make_v3(folder / "set", LENGTHS)


def make_recordings(folder):
    """Four recordings; the last one alone has a topic that the others lack."""
    pytest.importorskip("rosbags", reason="rosbags needs Python 3.10")
    (folder / "in").mkdir()
    return [write_recording(folder / f"in/run_{number}.mcap", np.arange(5) + 10 * number,
                            ("/width", "/late") if number == 3 else ("/width",)) for number in range(4)]


def make_zarr(folder):
    pytest.importorskip("imagecodecs")
    return GOLDEN / "zarr/umi.zarr.zip"


SETS = {"lerobot": make_lerobot, "droid": lambda folder: GOLDEN / "video/droid", "zarr": make_zarr,
        "rlds": lambda folder: GOLDEN / "rlds/droid_small/1.0.1", "mcap": make_recordings}
MORE = {"droid": ("--media", GOLDEN)}


def shard_path(folder, index, count):
    return folder / f"out-{index:05d}-of-{count:05d}.hdf5"


def episodes_of(found):
    """Returns the contents of a file without those of /data itself."""
    return {key: value for key, value in found.items() if (key if isinstance(key, str) else key[0]) != "data"}


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("source", SETS)
def test_all_shards_have_what_one_run_has(source, count, tmp_path):
    data, more = SETS[source](tmp_path), MORE.get(source, ())
    shards = tmp_path / "shards"
    shards.mkdir()
    converted(source, data, tmp_path / "out.hdf5", *more)
    whole, found, total = contents(tmp_path / "out.hdf5"), {}, 0
    for index in reversed(range(count)):
        lines = converted(source, data, shards / "out.hdf5", "--shard", f"{index}/{count}", *more)
        path = shard_path(shards, index, count)
        if path.exists():
            own = contents(path)
            assert not set(episodes_of(own)) & set(episodes_of(found)) and own["data", "recipe"]
            found.update(own)
            total += len(h5py.File(path)["data"])
        assert lines[0].startswith(f"shard {index}/{count}: ") and path.exists() == (not lines[0].startswith(f"shard {index}/{count}: 0 of"))
    assert episodes_of(found) == episodes_of(whole) and total == len(h5py.File(tmp_path / "out.hdf5")["data"])
    if source == "mcap":
        layout = shards / "out.layout.yaml"
        assert layout.read_text() == (tmp_path / "out.layout.yaml").read_text()
        layout.unlink()  # as if the last run had been killed before it wrote the layout
        converted(source, data, shards / "out.hdf5", "--shard", f"{count - 1}/{count}", *more)
        assert layout.read_text() == (tmp_path / "out.layout.yaml").read_text()


def test_a_complete_shard_is_not_made_again(tmp_path):
    folder = make_lerobot(tmp_path)
    path = shard_path(tmp_path, 1, 2)
    assert converted("lerobot", folder, tmp_path / "out.hdf5", "--shard", "1/2")[0] == "shard 1/2: 3 of 5 episodes"
    made = path.stat()
    assert converted("lerobot", folder, tmp_path / "out.hdf5", "--shard", "1/2") == [f"shard 1/2: {path} is complete"]
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    converted("lerobot", folder, tmp_path / "out.hdf5", "--shard", "1/2", "--force")
    assert path.stat().st_ino != made.st_ino


@pytest.mark.parametrize("moment", ["first", "second", "end"])
def test_a_killed_shard_is_made_again(moment, tmp_path):
    folder = make_lerobot(tmp_path)
    whole, path = tmp_path / "whole", shard_path(tmp_path, 0, 2)
    whole.mkdir()
    converted("lerobot", folder, whole / "out.hdf5", "--shard", "0/2")
    kill_at(moment, "lerobot", folder, tmp_path / "out.hdf5", "--shard", "0/2", partial=path)
    assert not path.exists()
    converted("lerobot", folder, tmp_path / "out.hdf5", "--shard", "0/2")
    assert contents(path) == contents(whole / path.name) and not list(tmp_path.glob("*.partial"))


def test_a_file_of_another_conversion_is_not_taken_for_the_shard(tmp_path):
    folder, path = make_lerobot(tmp_path), shard_path(tmp_path, 0, 2)
    converted("lerobot", folder, tmp_path / "out.hdf5", "--shard", "0/2")
    sentence = f"trajd-convert: {path}: it exists, and is of another set, of other options or of another --shard .../N: --force replaces it"
    assert run("lerobot", folder, tmp_path / "out.hdf5", "--shard", "0/2", "--episodes", "0-1")[::2] == (2, sentence)
    assert run("lerobot", make_v3(tmp_path / "grown", (*LENGTHS, 2)), tmp_path / "out.hdf5", "--shard", "0/2")[::2] == (2, sentence)
    path.write_text("mine")
    assert run("lerobot", folder, tmp_path / "out.hdf5", "--shard", "0/2")[::2] == (2, sentence)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("words", ["2/2", "0/0", "-1/2", "1", "1/2/3", "0/10001", "a/b"])
def test_wrong_words(words, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run("lerobot", tmp_path, tmp_path / "out.hdf5", f"--shard={words}")


def test_recordings_that_no_layout_fits(tmp_path):
    """In one run, the second form of the topic would be the stream width_2."""
    files = make_recordings(tmp_path)[:2]
    with open(files[1], "wb") as file:
        writer = pytest.importorskip("mcap.writer").Writer(file)
        writer.start(profile="ros2")
        channel = writer.register_channel("/width", "cdr", writer.register_schema("std_msgs/msg/Int64", "ros2msg", b"int64 data"))
        writer.add_message(channel, START, b"\0\1\0\0" + struct.pack("<q", 7), START)
        writer.finish()
    assert converted("mcap", files, tmp_path / "out.hdf5", "--shard", "0/2")[-1] == (
        f"its layout {tmp_path}/out.layout.yaml is written by the last shard")
    status, _, err = run("mcap", files, tmp_path / "out.hdf5", "--shard", "1/2")
    assert status == 2 and "the stream width has messages of one form in some shards and of another one in others" in err
    assert not (tmp_path / "out.layout.yaml").exists()


def test_a_data_set_over_all_shards_is_that_of_one_run(daemon, tmp_path):
    folder, shards = make_lerobot(tmp_path), tmp_path / "shards"
    shards.mkdir()
    converted("lerobot", folder, tmp_path / "out.hdf5")
    for index in range(3):
        converted("lerobot", folder, shards / "out.hdf5", "--shard", f"{index}/3")
    found = []
    for number, path in enumerate((tmp_path / "out.hdf5", shards)):
        config = {"datasets": {"data": {"path": str(path), "layout": "lerobot"}}, "feeds": {"train": {
            "dataset": "data", "global_batch": 5, "order": "sequential", "anchor": {"clock": "steps"}, "pad": {"before": "any", "after": "any", "with": "edge"},
            "outputs": {"obs/state": {"from": "observation/state", "at": "-1..0"}, "action": {"at": "0..2"}}}}}
        one = daemon("\n".join(f"{key}: {json.dumps(value)}" for key, value in config.items()), folder=f"daemon_{number}", rings="64MiB")
        with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
            found.append([np.concatenate([np.array(batch["obs/state"]).ravel(), np.array(batch["action"]).ravel()]) for batch in feed.epoch(0)])
    assert len(found[0]) == sum(LENGTHS) // 5
    assert all(np.array_equal(one, other) for one, other in zip(*found))
