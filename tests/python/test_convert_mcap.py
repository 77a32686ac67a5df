"""trajd.convert mcap: recordings of the projects' own writers, against what their own readers read (tests/golden/mcap)."""
import base64
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import pytest
from paths import ROOT, TRAJCTL, package_environment
from PIL import Image

import trajd
from trajd.convert.__main__ import main

pytest.importorskip("rosbags", reason="rosbags needs Python 3.10")
from mcap.writer import CompressionType, Writer  # noqa: E402

GOLDEN = ROOT / "tests/golden/mcap"
VECTORS = np.load(GOLDEN / "vectors.npz")
START = 1_700_000_000_000_000_000
START_CODE = re.compile(rb"\x00\x00+\x01")


def run(files, output, *options):
    """Converts, and returns the exit status, the lines of the summary and those of stderr."""
    out, err = io.StringIO(), io.StringIO()
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        status = main(["mcap", *map(str, files), "-o", str(output), *map(str, options)])
    finally:
        sys.stdout, sys.stderr = kept
    return status, out.getvalue().splitlines(), err.getvalue().strip()


def converted(files, output, *options):
    status, lines, err = run(files, output, *options)
    assert (status, err) == (0, ""), err
    return lines


def rows_of_images(group):
    """Returns the rows of packed images or video, as bytes. Video has lengths in the place of start codes."""
    if "offsets" in group:
        data, offsets = group["bytes"][()].tobytes(), group["offsets"][()]
        return [data[begin:end] for begin, end in zip(offsets[:-1], offsets[1:])]
    data = group["bytes"][()].tobytes()
    return [data[position:position + size] for position, size, _ in group["packets"][()][group["rows"][()]]]


def nal_units(packet):
    units = []
    while packet:
        size = int.from_bytes(packet[:4], "big")
        units.append(packet[4:4 + size])
        packet = packet[4 + size:]
    return units


@pytest.mark.parametrize("name", sorted({key.partition("|")[0] for key in VECTORS}))
def test_values_are_those_of_the_projects_own_readers(name, tmp_path):
    converted([GOLDEN / name], tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        episode = file["data/episode_000000"]
        expected = {key.partition("|")[2]: VECTORS[key] for key in VECTORS if key.startswith(f"{name}|")}
        for path, values in expected.items():
            if path.endswith("/sizes"):
                continue
            if path.endswith("/image"):
                ends = np.cumsum(expected[path.replace("/image", "/sizes")])
                images = [part.tobytes() for part in np.split(values, ends[:-1])]
                if path == "camera_video/image":
                    assert [nal_units(packet) for packet in rows_of_images(episode[path])] == [START_CODE.split(one)[1:] for one in images]
                else:
                    assert rows_of_images(episode[path]) == images
            else:
                assert episode[path].dtype.kind == values.dtype.kind and np.array_equal(episode[path][()], values), path
        found = []
        episode.visititems(lambda path, one: found.append(re.sub(r"/image/.*", "/image", path)) if isinstance(one, h5py.Dataset) else None)
        found = {path for path in found if not path.startswith("raw_yuv/")}  # which has a test of its own
        assert found == {path for path in expected if not path.endswith("/sizes")}  # nothing but what the readers read


# ---- the summary, names and units ----


def test_odd_stamps_and_unknown_types_are_told(tmp_path):
    lines = converted([GOLDEN / "numbers.mcap"], tmp_path / "out.hdf5")
    assert lines[0].startswith(f"{tmp_path}/out.hdf5: 1 of 1 episodes, 616 rows, ")
    told = "\n".join(lines[1:])
    for sentence in ("topic /zero: of 30 header stamps, 1 are 0 and 0 others are more than a day from the log time: the log time was taken for all",
                     "topic /epoch: of 30 header stamps, 1 are 0 and 29 others are more than a day from the log time: the log time was taken for all",
                     "topic /swapped: of 30 header stamps, 1 go back, by up to 5.000 ms: the rows were put in the order of the stamps",
                     "topic /reset: of 30 header stamps, 1 go back, by up to 29.990 s, and 0 equal the one before: the log time was taken for all",
                     "left out: episode 0: topic /unknown: 1 messages: their type diagnostic_msgs/msg/DiagnosticArray is not known",
                     "topic /joint_states: messages of another form are the stream joint_states_2: position finger_left, finger_right",
                     f"its layout is {tmp_path}/out.layout.yaml"):
        assert sentence in told
    assert "/imu" not in told


def test_images_that_are_not_read_are_told(tmp_path):
    told = "\n".join(converted([GOLDEN / "images.mcap"], tmp_path / "out.hdf5"))
    assert "topic /rvl/compressedDepth: 3 of 3 messages: its format is \"16UC1; compressedDepth rvl\"" in told


@pytest.mark.parametrize("encoding", ["yuv422", "uyvy", "yuv422_yuy2", "yuyv"])
def test_pixels_in_pairs_become_rgb(encoding, tmp_path):
    """As OpenCV's COLOR_YUV2RGB_UYVY and _YUY2 make them, which cv_bridge takes."""
    y, u, v = np.array([[16, 255], [90, 140]]), np.array([[128], [60]]), np.array([[128], [230]])
    pairs = np.stack([y[:, :1], u, y[:, 1:], v] if "y" == encoding[0] and "yuv422" != encoding else [u, y[:, :1], v, y[:, 1:]], -1)
    message = {"width": 2, "height": 2, "step": 6, "encoding": encoding, "header": {"stamp": {"sec": START // 10**9, "nanosec": 0}},
               "data": base64.b64encode(np.pad(pairs.reshape(2, 4).astype(np.uint8), ((0, 0), (0, 2))).tobytes()).decode()}
    with open(tmp_path / "a.mcap", "wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/top", "json", writer.register_schema("sensor_msgs/msg/Image", "jsonschema", b"{}"))
        for number, width in enumerate((2, 1)):
            writer.add_message(channel, START + number, json.dumps({**message, "width": width}).encode(), START)
        writer.finish()
    told = converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5")
    assert f"left out: episode 0: topic /top: 1 of 2 messages: its encoding is \"{encoding}\"" in "\n".join(told)
    with h5py.File(tmp_path / "out.hdf5") as file:
        image = file["data/episode_000000/top/image"]
        pixels = image["bytes"][()].reshape(2, 2, 3)
    assert pixels.tolist() == [[[0, 0, 0], [255, 255, 255]], [[249, 30, 0], [255, 88, 7]]]


@pytest.mark.parametrize("path, names, unit", [
    ("joint_states/velocity", [f"joint{i}" for i in range(1, 8)], "rad/s"), ("joint_states_2/position", ["finger_left", "finger_right"], "rad"),
    ("imu/linear_acceleration", ["x", "y", "z"], "m/s^2"), ("imu/orientation", ["x", "y", "z", "w"], None), ("wrench/torque", ["x", "y", "z"], "N m"),
    ("tf_tool/translation", ["x", "y", "z"], "m"), ("action/data", ["0", "1", "2"], None), ("width/data", None, None),
    ("trajectory/positions", ["0.finger_left", "0.finger_right", "1.finger_left", "1.finger_right"], "rad"), ("trajectory/time_from_start", ["0", "1"], "s")])
def test_columns_have_names_and_units(numbers, path, names, unit):
    attributes = numbers["data/episode_000000"][path].attrs
    assert json.loads(attributes.get("names", "null")) == names and attributes.get("unit") == unit


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    converted([GOLDEN / "numbers.mcap"], folder / "out.hdf5")
    with h5py.File(folder / "out.hdf5") as file:
        yield file


# ---- small files, written by mcap's writer ----


def write_numbers(path, topics, schema="std_msgs/msg/Float64", encoding="ros2msg", definition=b"float64 data", **options):
    """Writes Float64 messages: topics has (log time in s, value) by topic."""
    with open(path, "wb") as file:
        writer = Writer(file, **options)
        writer.start(profile="ros2")
        number = writer.register_schema(schema, encoding, definition)
        for topic, messages in topics.items():
            channel = writer.register_channel(topic, "cdr", number)
            for time, value in messages:
                log = START + round(time * 1e9)
                writer.add_message(channel, log, b"\0\1\0\0" + struct.pack("<d", value), log)
        writer.finish()
    return path


def write_raw(path, kind, messages):
    """Writes messages of the topic /top: (log time, CDR)."""
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start(profile="ros2")
        channel = writer.register_channel("/top", "cdr", writer.register_schema(kind, "", b""))
        for log, data in messages:
            writer.add_message(channel, log, data, log)
        writer.finish()
    return path


def episodes_of(path, dataset="width/data"):
    with h5py.File(path) as file:
        return {name: (group[dataset][()].tolist(), dict(group.attrs)) for name, group in file["data"].items()}


@pytest.mark.parametrize("options", [{}, {"use_chunking": False}, {"compression": CompressionType.LZ4}, {"compression": CompressionType.NONE}])
def test_forms_of_files(options, tmp_path):
    write_numbers(tmp_path / "a.mcap", {"/width": [(i, i / 3) for i in range(200)]}, chunk_size=1000, **options)
    converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5")
    assert episodes_of(tmp_path / "out.hdf5")["episode_000000"][0] == [i / 3 for i in range(200)]


@pytest.mark.parametrize("schema, encoding, definition", [
    ("std_msgs/msg/Float64", "ros2idl", b"module std_msgs { module msg { struct Float64 { double data; }; }; };"),
    ("std_msgs/msg/Float64", "ros2idl", b"=" * 80 + b"\nIDL: std_msgs/msg/Float64\nmodule std_msgs { module msg { struct Float64 { double data; }; }; };"),
    ("std_msgs/Float64", "ros2msg", b"float64 data"), ("std_msgs/msg/Float64", "", b"")])
def test_forms_of_definitions(schema, encoding, definition, tmp_path):
    write_numbers(tmp_path / "a.mcap", {"/width": [(0, 1.5)]}, schema, encoding, definition)
    converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5")
    assert episodes_of(tmp_path / "out.hdf5")["episode_000000"][0] == [1.5]


def test_a_definition_that_cannot_be_read_costs_its_topic(tmp_path):
    write_numbers(tmp_path / "a.mcap", {"/width": [(0, 1.5)]}, definition=b"float64 data\n---\nint")
    lines = run([tmp_path / "a.mcap", GOLDEN / "bag"], tmp_path / "out.hdf5")[1]
    assert "topic /width: 1 messages: their definition cannot be read: " in "\n".join(lines) and "1 of 2 episodes" in lines[0]


def test_files_of_a_folder_are_one_episode(tmp_path):
    (tmp_path / "bag").mkdir()
    for part in range(11):
        write_numbers(tmp_path / f"bag/bag_{part}.mcap", {"/width": [(part + i / 10, part) for i in range(10)]})
    lines = converted([tmp_path / "bag", GOLDEN / "bag"], tmp_path / "out.hdf5")
    assert "2 of 2 episodes" in lines[0]
    assert episodes_of(tmp_path / "out.hdf5")["episode_000000"][0] == [part for part in range(11) for _ in range(10)]
    assert "width/data: {clock: \"width\", kind: previous}" in (tmp_path / "out.layout.yaml").read_text()
    assert "pose/position: {clock: \"pose\", kind: linear, unit: \"m\", optional: true}" in (tmp_path / "out.layout.yaml").read_text()


def test_cut_by_gaps(tmp_path):
    write_numbers(tmp_path / "a.mcap", {"/width": [(i, i) for i in (0, 1, 2, 10, 11, 30)]})
    lines = converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5", "--cut-gap", "5")
    assert "3 of 3 episodes, 6 rows" in lines[0]
    assert {name: values for name, (values, _) in episodes_of(tmp_path / "out.hdf5").items()} == {
        "episode_000000_000": [0, 1, 2], "episode_000000_001": [10, 11], "episode_000000_002": [30]}


def test_cut_by_the_value_of_a_topic(tmp_path):
    """/task is "" from 0 ms on, "pick" from 100 ms on and "place" from 200 ms on. What is static counts in each episode."""
    converted([GOLDEN / "numbers.mcap"], tmp_path / "out.hdf5", "--cut-topic", "/task")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert [group.attrs["task"] for group in file["data"].values()] == ["pick", "place"]
        for group, begin in zip(file["data"].values(), (100, 200)):
            log = VECTORS["numbers.mcap|imu/log_time"]
            taken = (log >= START + begin * 10**6 + 10**6) & (log < START + (begin + 100) * 10**6 + 10**6)
            assert abs(int(taken.sum()) - len(group["imu/time"])) <= 1 and np.isin(group["imu/time"], VECTORS["numbers.mcap|imu/time"]).all()
            assert np.array_equal(group["tf_static_camera/rotation"], VECTORS["numbers.mcap|tf_static_camera/rotation"])
    assert "no value by which" in run([GOLDEN / "bag"], tmp_path / "b.hdf5", "--cut-topic", "/task")[1][-1]


def test_chosen_topics(tmp_path):
    converted([GOLDEN / "numbers.mcap"], tmp_path / "out.hdf5", "--topics", "/tf*,/imu")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert sorted(file["data/episode_000000"]) == ["imu", "tf_static_camera", "tf_tool", "tf_wrist"]


def test_topics_of_equal_names_get_numbers(tmp_path):
    write_numbers(tmp_path / "a.mcap", {"/a/b": [(0, 1)], "/a_b": [(0, 2)], "a b": [(0, 3)], "/../data": [(0, 4)]})
    converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert {name: one["data"][()].tolist() for name, one in file["data/episode_000000"].items()} == {
            "a_b": [1], "a_b_2": [2], "a_b_3": [3], "_data": [4]}


def test_stamps_that_stand_still_are_no_clock(tmp_path):
    points = [struct.pack("<4siIII3d", b"\0\1\0\0", START // 10**9, 0, 1, 0, i, 0, 0) for i in range(3)]
    write_raw(tmp_path / "a.mcap", "geometry_msgs/msg/PointStamped", [(START + i * 10**6, point) for i, point in enumerate(points)])
    assert "of 3 header stamps, 0 go back, by up to 0.000 s, and 2 equal the one before: the log time was taken for all" in "\n".join(
        converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5"))
    assert episodes_of(tmp_path / "out.hdf5", "top/time")["episode_000000"][0] == [START + i * 10**6 for i in range(3)]


def test_stamps_far_from_the_log_time_are_told(tmp_path):
    points = [struct.pack("<4siIII3d", b"\0\1\0\0", START // 10**9 + i, 0, 1, 0, i, 0, 0) for i in range(9)]
    write_raw(tmp_path / "a.mcap", "geometry_msgs/msg/PointStamped", [(START + (i + 30) * 10**9, point) for i, point in enumerate(points)])
    assert "topic /top: header stamps are 30.000 s before the log time: they were taken" in "\n".join(
        converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5"))


def test_equal_times_are_told_and_the_layout_keeps_the_last(tmp_path):
    write_numbers(tmp_path / "a.mcap", {"/width": [(0, 1), (0, 2), (1, 3)]})
    lines = converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5")
    assert "topic /width: 1 of 3 rows have the time of the one before" in "\n".join(lines)
    assert "repeated: keep_last" in (tmp_path / "out.layout.yaml").read_text()


# ---- H.264 ----


def write_frames(path, frames, times=range(0, 10**9, 33_333_333)):
    """Writes frames of H.264 as CompressedImage messages. Times are those after START, in ns."""
    messages = []
    for time, frame in zip((START + time for time in times), frames):
        head = struct.pack("<4siII4sI8sI", b"\0\1\0\0", time // 10**9, time % 10**9, 2, b"c\0", 5, b"h264\0", len(frame))
        messages.append((time, head + frame))
    return write_raw(path, "sensor_msgs/msg/CompressedImage", messages)


@pytest.fixture(scope="module")
def frames():
    ends = np.cumsum(VECTORS["protobuf.mcap|camera_video/sizes"])
    return [part.tobytes() for part in np.split(VECTORS["protobuf.mcap|camera_video/image"], ends[:-1])]


def test_video_has_the_decode_units_of_its_key_frames(frames, tmp_path):
    lines = converted([write_frames(tmp_path / "a.mcap", frames[2:])], tmp_path / "out.hdf5")
    assert "topic /top: 4 of 22 messages: it is before the first key frame with its parameter sets" in "\n".join(lines)
    with h5py.File(tmp_path / "out.hdf5") as file:
        group = file["data/episode_000000/top"]
        assert group["time"][()].tolist() == [START + i * 33_333_333 for i in range(4, 22)]
        assert [nal_units(packet) for packet in rows_of_images(group["image"])] == [START_CODE.split(frame)[1:] for frame in frames[6:]]
        assert group["image/units"][()].tolist() == [[0, 0, 0], [6, 6, 0], [12, 12, 0]]
    text = (tmp_path / "out.layout.yaml").read_text()
    assert "\"top\": {path: top/time, unit: ns, latency: 0ms}" in text and "image: {color: rgb}" in text
    inspected = subprocess.run([TRAJCTL, "inspect", tmp_path / "out.hdf5", "--layout", tmp_path / "out.layout.yaml"], capture_output=True, text=True)
    assert "1 of 1 episode kept" in inspected.stdout and "h264 48x64" in inspected.stdout, inspected.stdout + inspected.stderr


def test_video_that_is_cut_has_the_packets_that_it_needs(frames, tmp_path):
    """The second episode begins in a unit: its key frame is a packet that no row shows."""
    write_frames(tmp_path / "b.mcap", frames, [(i + 30 * (i > 8)) * 10**9 for i in range(24)])
    converted([tmp_path / "b.mcap"], tmp_path / "out.hdf5", "--cut-gap", "10")
    with h5py.File(tmp_path / "out.hdf5") as file:
        group = file["data/episode_000000_001/top/image"]
        assert group["rows"][()].tolist() == list(range(3, 18)) and group["units"][()].tolist() == [[0, 0, 0], [6, 3, 0], [12, 9, 0]]


def test_video_that_is_out_of_order_is_left_out(frames, tmp_path):
    write_frames(tmp_path / "a.mcap", frames, [0, 2, 1, *range(3, 24)])
    assert "left out: episode 0: topic /top: its frames are not in the order of their times" in "\n".join(
        converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5"))
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert not list(file["data/episode_000000"])


@pytest.mark.parametrize("change, sentence", [
    (lambda frames: [frame[4:] for frame in frames], "24 of 24 messages: it does not begin with a start code"),
    (lambda frames: frames[1:6], "5 of 5 messages: it is before the first key frame"),
    (lambda frames: [bytes(30)] * 5, "5 of 5 messages: it does not begin with a start code"),
    (lambda frames: [b"\1" + bytes(1 << 20) + b"\2"] * 5, "5 of 5 messages: it does not begin with a start code")])
def test_video_that_is_none_is_told(frames, change, sentence, tmp_path):
    status, lines, _ = run([write_frames(tmp_path / "a.mcap", change(frames))], tmp_path / "out.hdf5")
    assert status == 2 and sentence in lines[-1]


# ---- damage ----


def chunks_of(data):
    """Returns where the chunks of an MCAP lie, with their first and last log time."""
    at, found = 8, []
    while data[at] != 0x0f:
        end = at + 9 + struct.unpack_from("<Q", data, at + 1)[0]
        if data[at] == 6:
            found.append((at, end, *struct.unpack_from("<QQ", data, at + 9)))
        at = end
    return found


def flip_crc(data, chunk):
    return data[:chunk[0] + 33] + bytes([data[chunk[0] + 33] ^ 1]) + data[chunk[0] + 34:]


def cut_middle(data, chunk):
    return data[:chunk[0] + 500] + data[chunk[0] + 600:]


def damage_content(data, chunk):
    return data[:chunk[0] + 500] + bytes(8) + data[chunk[0] + 508:]


def cut_end(data, chunk):
    return data[:chunk[0] + 500]


@pytest.mark.parametrize("damage, number, sentence", [
    (flip_crc, 1, r"the chunk at byte \d+ is lost: its CRC is 0x\w{8} and should be 0x\w{8}; its messages were recorded from 1700000000\.\d+ s"),
    (damage_content, 0, r"the chunk at byte \d+ is lost: it"), (cut_middle, 1, r"the chunk at byte \d+ is lost: it"),
    (cut_end, 3, r"bytes \d+ to \d+ are lost: at byte \d+, the file ends within the chunk")])
def test_a_damaged_chunk_costs_its_messages_and_is_named(numbers, damage, number, sentence, tmp_path):
    data = (GOLDEN / "numbers.mcap").read_bytes()
    chunks = chunks_of(data)
    assert len(chunks) > 3
    (tmp_path / "a.mcap").write_bytes(damage(data, chunks[number]))
    told = "\n".join(converted([tmp_path / "a.mcap"], tmp_path / "out.hdf5"))
    assert re.search(sentence, told) and told.count(" lost") == 1
    first, last = chunks[number][2], chunks[number][3] if damage != cut_end else 1 << 62
    with h5py.File(tmp_path / "out.hdf5") as file:
        for name in ("imu/angular_velocity", "wrench/force", "joint_states/position"):
            log = numbers["data/episode_000000"][name.partition("/")[0] + "/log_time"][()]
            kept = (log < first) | (log > last)
            assert 0 < kept.sum() < len(log)
            assert np.array_equal(file["data/episode_000000"][name][()], numbers["data/episode_000000"][name][()][kept])


def test_any_damage_ends_in_words(tmp_path):
    """Bytes of small files are changed at random: what can be read is converted, and nothing else happens."""
    random = np.random.default_rng(1)
    for name in ("numbers.mcap", "protobuf.mcap", "bag/bag.db3"):
        data = (GOLDEN / name).read_bytes()
        for trial in range(8):
            changed = bytearray(data)
            for place in random.integers(0, len(data), 1 + trial):
                changed[place] = random.integers(256)
            (tmp_path / "a.mcap").write_bytes(changed[:random.integers(len(data) // 2, len(data))] if trial % 2 else changed)
            status, lines, err = run([tmp_path / "a.mcap"], tmp_path / "out.hdf5", "--force")
            assert status == 0 and not err or status == 2 and err.startswith("trajd-convert: no episode")


# ---- runs ----


@pytest.mark.parametrize("moment", ["bags._Mcap._read", "spool.Rows.write", "mcap.Mcap.finish"])
def test_a_run_that_was_killed_begins_again(moment, tmp_path):
    """It is killed while it reads, while it writes, and when all is written."""
    converted([GOLDEN / "numbers.mcap"], tmp_path / "whole.hdf5")
    module, _, place = moment.partition(".")
    script = (f"import os, signal\nfrom trajd.convert import {module} as module\nfrom trajd.convert.__main__ import main\n"
              f"own, calls = module.{place}, []\n"
              "def kill(*arguments):\n"
              "    calls.append(1)\n"
              f"    return own(*arguments) if len(calls) < {1 if 'finish' in moment else 3} else os.kill(os.getpid(), signal.SIGKILL)\n"
              f"module.{place} = kill\n"
              f"main(['mcap', {str(GOLDEN / 'numbers.mcap')!r}, '-o', {str(tmp_path / 'out.hdf5')!r}])\n")
    killed = subprocess.run([sys.executable, "-c", script], env={**os.environ, **package_environment()}, capture_output=True, text=True)
    assert killed.returncode == -9 and [path.name for path in tmp_path.glob("out*")] == ["out.hdf5.partial"], killed.stderr
    converted([GOLDEN / "numbers.mcap"], tmp_path / "out.hdf5")
    assert (tmp_path / "out.hdf5").read_bytes() == (tmp_path / "whole.hdf5").read_bytes()
    assert not (tmp_path / "out.hdf5.partial").exists()


def test_files_that_are_none_are_named(tmp_path):
    (tmp_path / "a.bag").write_bytes(b"#ROSBAG V2.0\n")
    assert "it is neither an MCAP file nor one of rosbag2's SQLite files" in run([tmp_path / "a.bag"], tmp_path / "out.hdf5")[1][-1]
    assert run([tmp_path / "no.mcap"], tmp_path / "out.hdf5")[2] == f"trajd-convert: {tmp_path}/no.mcap: there is no such file or folder"
    (tmp_path / "empty").mkdir()
    assert "it has no *.mcap and no *.db3" in run([tmp_path / "empty"], tmp_path / "out.hdf5")[1][-1]
    assert not list(tmp_path.glob("out*"))


# ---- feeds ----


@pytest.fixture
def lab(tmp_path):
    """lab.mcap, converted, and the configuration that `trajctl init` writes of it."""
    converted([GOLDEN / "lab.mcap"], tmp_path / "out.hdf5")
    subprocess.run([TRAJCTL, "init", "out.hdf5", "--layout", "out.layout.yaml", "-o", "made.yaml"], check=True, cwd=tmp_path,
                   capture_output=True, timeout=60)
    made = tmp_path / "made.yaml"
    made.write_text(made.read_text().replace("anchor: {clock: action}", "anchor: {clock: wrench}"))
    return made


def test_two_cameras_and_their_robot_go_into_the_view(lab, tmp_path):
    """The rows as they were recorded, on their own times, and the steps and frames that a policy gets of them."""
    pytest.importorskip("rerun", reason="rerun-sdk is not installed (170 MB, 490 MB when unpacked)")
    from saved_rrd import Saved
    script = "import sys; from trajd.view import main; sys.exit(main(sys.argv[1:]))"
    with tempfile.TemporaryDirectory(prefix="trajd-view-") as runtime:
        subprocess.run([sys.executable, "-c", script, lab, "--window", "5", "--save", tmp_path / "out.rrd"], check=True, timeout=120,
                       env={**os.environ, **package_environment(), "TRAJD_RUNTIME_DIR": runtime}, capture_output=True)
    saved = Saved(tmp_path / "out.rrd")
    with h5py.File(tmp_path / "out.hdf5") as file:
        group = file["data/episode_000000"]
        first = min(group[name]["time"][0] for name in group)
        for name, rate in (("joint_states", 500), ("wrench", 100)):
            part, step = {"joint_states": ("position", "obs/position"), "wrench": ("force", "obs/force")}[name]
            times, values = saved.get(f"/streams/{name}/{part}/recorded", "scalars")
            assert np.allclose(times, (group[name]["time"][()] - first) / 1e9, atol=2e-9) and np.isclose(np.median(np.diff(times)), 1 / rate)
            assert np.array_equal(values, group[name][part][()])
            at, steps = saved.get(f"/streams/{name}/{part}/steps/{step}", "scalars")
            assert len(at) >= len(group["wrench/time"]) - 2  # the first steps are before the episode
            assert np.allclose(np.array(steps)[1:-1], [[np.interp(time, times, column) for column in np.transpose(values)] for time in at[1:-1]],
                               atol=1e-5)
        frames = np.array([np.array(Image.open(io.BytesIO(row))) for row in rows_of_images(group["wrist_compressed/image"])])
    times, shown = saved.images("/cameras/wrist_compressed/image/recorded", (24, 32, 3))
    assert np.array_equal(shown, frames)
    at, steps = saved.images("/cameras/wrist_compressed/image/steps/obs/wrist_compressed_image", (24, 32, 3))
    assert np.array_equal(steps, frames[np.searchsorted(times, at + 1e-7, "right") - 1])
    assert len(saved.images("/cameras/top_compressed/image/recorded", (24, 32, 3))[0]) == 18
    assert "window 5: data, out.hdf5, episode episode_000000" in saved.get("/window/origin", "text")[1][0][0]


def test_two_cameras_and_their_robot_go_into_a_feed(daemon, lab, tmp_path):
    """500 Hz, 100 Hz and 30 Hz, each on its own stamps. The position of joint j is (j + 1) times the time, so that linear steps
    between rows are exact, and wrist frames are PNG: each step has the one that was recorded last."""
    text = lab.read_text()
    one = daemon(text.replace("version: 2\n", ""), folder="daemon")
    with h5py.File(tmp_path / "out.hdf5") as file:
        group = file["data/episode_000000"]
        anchors, captured = group["wrench/time"][()], group["wrist_compressed/time"][()]
        frames = [np.array(Image.open(io.BytesIO(row))) for row in rows_of_images(group["wrist_compressed/image"])]
    windows = 0
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        for batch in feed.epoch(0):
            for row in range(len(batch["obs/position"])):
                anchor = anchors[np.argmin(np.abs(np.array(batch["obs/force"])[row, -1, 0] - np.arange(len(anchors))))]
                expected = (anchor % 10**10 / 1e9) * np.arange(1, 8)
                assert np.allclose(np.array(batch["obs/position"])[row, -1], expected, atol=1e-5)
                frame = frames[np.searchsorted(captured, anchor, "right") - 1]
                assert np.array_equal(np.array(batch["obs/wrist_compressed_image"])[row, 0], frame)
                windows += 1
    assert windows == len(anchors) - 2  # of the first two, more than one step is before the episode
