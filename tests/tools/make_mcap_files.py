#!/usr/bin/env python3
"""Writes the recordings that the tests of `trajd.convert mcap` read, and what the projects' own readers say is in them:
tests/golden/mcap/. vectors.npz has an array for each dataset that a conversion should have: FILE|STREAM/DATASET.

    python3 -m venv /tmp/mcap && /tmp/mcap/bin/pip install rosbags==0.11.9 mcap==1.6.0 mcap-ros2-support==0.6.0 \\
        mcap-protobuf-support==0.6.0 foxglove-schemas-protobuf==0.4.0 pillow numpy
    /tmp/mcap/bin/python tests/tools/make_mcap_files.py

numbers.mcap, images.mcap and lab.mcap are written by mcap-ros2-support, bag/ and bag_mcap/ (rosbag2 folders) by rosbags, protobuf.mcap by
mcap-protobuf-support with Foxglove's schemas, json.mcap by mcap's writer."""
import base64
import io
import json
import pathlib
import shutil
import struct
import sys
from types import SimpleNamespace

import numpy as np
from foxglove_schemas_protobuf import (CompressedImage_pb2, CompressedVideo_pb2, FrameTransforms_pb2, JointStates_pb2,
                                       PoseInFrame_pb2, RawImage_pb2)
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer as McapWriter
from mcap_protobuf.decoder import DecoderFactory as ProtobufDecoder
from mcap_protobuf.writer import Writer as ProtobufWriter
from mcap_ros2.decoder import DecoderFactory as RosDecoder
from mcap_ros2.writer import Writer as RosWriter
from PIL import Image
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer as BagWriter
from rosbags.typesys import Stores, get_typestore

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
FOLDER = GOLDEN / "mcap"
START = 1_700_000_000_000_000_000
STORE = get_typestore(Stores.ROS2_HUMBLE)
ARM = [f"joint{i}" for i in range(1, 8)]
GRIPPER = ["finger_left", "finger_right"]
random = np.random.default_rng(32)


def stamp(ns):
    return {"sec": ns // 10**9, "nanosec": ns % 10**9}


def header(ns, frame="base"):
    return {"stamp": stamp(ns), "frame_id": frame}


def xyz(values):
    return dict(zip("xyz", map(float, values)))


def xyzw():
    values = random.normal(size=4)
    return dict(zip("xyzw", map(float, values / np.linalg.norm(values))))


def joint_state(ns, i):
    """The names are in another order in every third message, and every fifth is that of the gripper."""
    if i % 5 == 4:
        return {"header": header(ns), "name": GRIPPER, "position": [i * 0.01, -i * 0.01], "velocity": [], "effort": []}
    order = random.permutation(7) if i % 3 == 0 else np.arange(7)
    return {"header": header(ns), "name": [ARM[j] for j in order], "position": [i + j * 0.1 for j in order],
            "velocity": [i - j * 0.1 for j in order], "effort": [j * 1.0 for j in order]}


def transforms(ns, i, names=("wrist", "tool")):
    return {"transforms": [{"header": header(ns + n), "child_frame_id": name, "transform": {
        "translation": xyz([i, n, 0.5]), "rotation": xyzw()}} for n, name in enumerate(names)]}


def trajectory(ns, i):
    return {"header": header(ns), "joint_names": GRIPPER, "points": [
        {"positions": [i * 0.1, p], "velocities": [], "accelerations": [], "effort": [], "time_from_start": stamp(p * 500_000_000)}
        for p in range(2)]}


NUMBERS = {  # topic: type, period in ns, message
    "/joint_states": ("sensor_msgs/msg/JointState", 2_000_000, joint_state),
    "/imu": ("sensor_msgs/msg/Imu", 5_000_000, lambda ns, i: {
        "header": header(ns), "orientation": xyzw(), "orientation_covariance": [0.1] * 9, "angular_velocity": xyz(random.normal(size=3)),
        "angular_velocity_covariance": [0.2] * 9, "linear_acceleration": xyz(random.normal(size=3)),
        "linear_acceleration_covariance": [0.3] * 9}),
    "/pose": ("geometry_msgs/msg/PoseStamped", 10_000_000, lambda ns, i: {
        "header": header(ns), "pose": {"position": xyz([i, 1, 2]), "orientation": xyzw()}}),
    "/twist": ("geometry_msgs/msg/TwistStamped", 10_000_000, lambda ns, i: {
        "header": header(ns), "twist": {"linear": xyz([i, 1, 2]), "angular": xyz([3, i, 4])}}),
    "/cmd_vel": ("geometry_msgs/msg/Twist", 10_000_000, lambda ns, i: {"linear": xyz([i, 1, 2]), "angular": xyz([3, i, 4])}),
    "/wrench": ("geometry_msgs/msg/WrenchStamped", 4_000_000, lambda ns, i: {
        "header": header(ns, "ft" if i % 2 else "sensor"), "wrench": {"force": xyz([i, 1, 2]), "torque": xyz([3, i, 4])}}),
    "/tf": ("tf2_msgs/msg/TFMessage", 10_000_000, transforms),
    "/tf_static": ("tf2_msgs/msg/TFMessage", 10**9, lambda ns, i: transforms(ns, i, ("camera",))),
    "/action": ("std_msgs/msg/Float64MultiArray", 20_000_000, lambda ns, i: {
        "layout": {"dim": [{"label": "joints", "size": 3, "stride": 3}], "data_offset": 0}, "data": [i, i + 0.5, -i]}),
    "/width": ("std_msgs/msg/Float64", 20_000_000, lambda ns, i: {"data": i / 7}),
    "/count": ("std_msgs/msg/Int32", 50_000_000, lambda ns, i: {"data": -i}),
    "/closed": ("std_msgs/msg/Bool", 50_000_000, lambda ns, i: {"data": i % 2 == 1}),
    "/task": ("std_msgs/msg/String", 100_000_000, lambda ns, i: {"data": ["", "pick", "place"][i % 3]}),
    "/joy": ("sensor_msgs/msg/Joy", 20_000_000, lambda ns, i: {"header": header(ns), "axes": [i / 8, -1.0], "buttons": [i % 2, 0, 1]}),
    "/trajectory": ("trajectory_msgs/msg/JointTrajectory", 100_000_000, trajectory),
    "/zero": ("geometry_msgs/msg/PointStamped", 10_000_000, lambda ns, i: {"header": header(0 if i == 3 else ns), "point": xyz([i, 0, 0])}),
    "/epoch": ("geometry_msgs/msg/PointStamped", 10_000_000, lambda ns, i: {"header": header(ns - START), "point": xyz([i, 0, 0])}),
    "/swapped": ("geometry_msgs/msg/PointStamped", 10_000_000, lambda ns, i: {
        "header": header(ns + (-15_000_000 if i == 5 else 0)), "point": xyz([i, 0, 0])}),
    "/reset": ("geometry_msgs/msg/PointStamped", 10_000_000, lambda ns, i: {
        "header": header(ns - (30 * 10**9 if i > 9 else 0)), "point": xyz([i, 0, 0])}),
    "/unknown": ("diagnostic_msgs/msg/DiagnosticArray", 10**9, lambda ns, i: {"header": header(ns), "status": []}),
}


def schedule(topics, seconds):
    """Returns (log time, topic, number) of all messages in order. They are logged 1 ms after their stamps."""
    return sorted((START + i * period + 1_000_000 + n, topic, i) for n, (topic, (_, period, _)) in enumerate(topics.items())
                  for i in range(max(1, int(seconds * 1e9 / period))))


def write_ros(path, topics, seconds, **options):
    with open(path, "wb") as file:
        writer = RosWriter(file, **options)
        schemas = {kind: writer.register_msgdef(kind, STORE.generate_msgdef(kind, ros_version=2)[0]) for kind, _, _ in topics.values()}
        for log, topic, i in schedule(topics, seconds):
            kind, period, make = topics[topic]
            writer.write_message(topic, schemas[kind], make(START + i * period, i), log_time=log, publish_time=log - 400_000)
        writer.finish()


def to_rosbags(kind, value):
    """Returns a dict as a message of rosbags."""
    fields = {}
    for name, (node, what) in STORE.fielddefs[kind][1]:
        if node.name == "NAME":
            fields[name] = to_rosbags(what, value[name])
        elif node.name == "BASE":
            fields[name] = value[name]
        elif what[0][0].name == "NAME":
            fields[name] = [to_rosbags(what[0][1], one) for one in value[name]]
        else:
            fields[name] = value[name] if what[0][1][0] == "string" else np.array(value[name], what[0][1][0])
    return STORE.types[kind](**fields)


def write_bag(folder, topics, seconds, version, plugin):
    shutil.rmtree(folder, ignore_errors=True)
    with BagWriter(folder, version=version, storage_plugin=plugin) as writer:
        made = {topic: writer.add_connection(topic, kind, typestore=STORE) for topic, (kind, _, _) in topics.items()}
        for log, topic, i in schedule(topics, seconds):
            kind, period, make = topics[topic]
            writer.write(made[topic], log, STORE.serialize_cdr(to_rosbags(kind, make(START + i * period, i)), kind))


# ---- images ----


def encoded(pixels, form):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def image(i, height=24, width=32, channels=3):
    y, x = np.mgrid[:height, :width]
    return np.stack([(7 * x + 5 * i + 40 * c) % 256 if c % 2 else (9 * y + 11 * i) % 256 for c in range(channels)], 2).astype(np.uint8)


def raw(ns, encoding, pixels, padding=0):
    rows = pixels.reshape(pixels.shape[0], -1).view(np.uint8)
    data = np.pad(rows, ((0, 0), (0, padding)))
    return {"header": header(ns, "camera"), "height": pixels.shape[0], "width": pixels.shape[1], "encoding": encoding, "is_bigendian": 0,
            "step": data.shape[1], "data": data.tobytes()}


def depth(i):
    return (image(i, channels=1)[..., 0].astype(np.uint16) * 17)


def compressed(ns, form, data):
    return {"header": header(ns, "camera"), "format": form, "data": data}


IMAGES = {
    "/top/compressed": ("sensor_msgs/msg/CompressedImage", 33_333_333, lambda ns, i: compressed(
        ns, "rgb8; jpeg compressed bgr8", encoded(image(i), "JPEG"))),
    "/wrist/compressed": ("sensor_msgs/msg/CompressedImage", 33_333_333, lambda ns, i: compressed(ns, "png", encoded(image(i + 9), "PNG"))),
    "/grey/compressed": ("sensor_msgs/msg/CompressedImage", 100_000_000, lambda ns, i: compressed(
        ns, "mono8; jpeg compressed ", encoded(image(i)[..., 0], "JPEG"))),
    "/depth/compressedDepth": ("sensor_msgs/msg/CompressedImage", 100_000_000, lambda ns, i: compressed(
        ns, "16UC1; compressedDepth png", struct.pack("<iff", 0, 0, 0) + encoded(depth(i), "PNG"))),
    "/raw/rgb": ("sensor_msgs/msg/Image", 100_000_000, lambda ns, i: raw(ns, "rgb8", image(i), 4)),
    "/raw/bgr": ("sensor_msgs/msg/Image", 100_000_000, lambda ns, i: raw(ns, "bgr8", image(i))),
    "/raw/mono": ("sensor_msgs/msg/Image", 100_000_000, lambda ns, i: raw(ns, "mono8", image(i, channels=1))),
    "/raw/depth": ("sensor_msgs/msg/Image", 100_000_000, lambda ns, i: raw(ns, "16UC1", depth(i))),
    "/raw/metres": ("sensor_msgs/msg/Image", 100_000_000, lambda ns, i: raw(ns, "32FC1", depth(i).astype("<f4") / 1000)),
    "/raw/yuv": ("sensor_msgs/msg/Image", 100_000_000, lambda ns, i: raw(ns, "yuv422_yuy2", image(i)[..., :2])),
    "/rvl/compressedDepth": ("sensor_msgs/msg/CompressedImage", 100_000_000, lambda ns, i: compressed(
        ns, "16UC1; compressedDepth rvl", bytes(40))),
}


LAB = {  # two cameras at 30 Hz, joints at 500 Hz, a wrench at 100 Hz
    "/joint_states": ("sensor_msgs/msg/JointState", 2_000_000, lambda ns, i: {
        "header": header(ns), "name": ARM, "position": [ns % 10**10 / 1e9 * (j + 1) for j in range(7)], "velocity": [], "effort": []}),
    "/wrench": ("geometry_msgs/msg/WrenchStamped", 10_000_000, lambda ns, i: {
        "header": header(ns), "wrench": {"force": xyz([i, -i, 1]), "torque": xyz([0, 0, i])}}),
    "/action": ("std_msgs/msg/Float64MultiArray", 20_000_000, lambda ns, i: {
        "layout": {"dim": [], "data_offset": 0}, "data": [i, i + 0.5]}),
    "/top/compressed": IMAGES["/top/compressed"], "/wrist/compressed": IMAGES["/wrist/compressed"],
}


def annex_b():
    """Returns the frames of tests/golden/video/mp4/h264.mp4 with start codes, the parameter sets before each key frame."""
    data = (GOLDEN / "video/mp4/h264.mp4").read_bytes()
    at = data.index(b"avcC") + 4
    sps_size = struct.unpack(">H", data[at + 6:at + 8])[0]
    sps = data[at + 8:at + 8 + sps_size]
    pps_size = struct.unpack(">H", data[at + 9 + sps_size:at + 11 + sps_size])[0]
    pps = data[at + 11 + sps_size:at + 11 + sps_size + pps_size]
    at = data.index(b"stsz") + 12
    sizes = struct.unpack(f">{struct.unpack('>I', data[at:at + 4])[0]}I", data[at + 4:at + 4 + 4 * struct.unpack(">I", data[at:at + 4])[0]])
    at = struct.unpack(">I", data[data.index(b"stco") + 12:data.index(b"stco") + 16])[0]
    frames = []
    for size in sizes:
        sample, at, units = data[at:at + size], at + size, []
        while sample:
            length = struct.unpack(">I", sample[:4])[0]
            units.append(sample[4:4 + length])
            sample = sample[4 + length:]
        sets = [sps, pps] if any(unit[0] & 31 == 5 for unit in units) else []
        frames.append(b"".join(b"\0\0\0\1" + unit for unit in [b"\x09\xf0", *sets, *units]))
    return frames


def set_time(message, ns):
    message.timestamp.FromNanoseconds(ns)
    return message


def protobuf_messages():
    """Yields (ns, topic, message)."""
    for i, frame in enumerate(annex_b()):
        ns = START + i * 33_333_333
        yield ns, "/camera/video", set_time(CompressedVideo_pb2.CompressedVideo(frame_id="camera", format="h264", data=frame), ns)
        yield ns, "/camera/jpeg", set_time(CompressedImage_pb2.CompressedImage(frame_id="camera", format="jpeg", data=encoded(
            image(i), "JPEG")), ns)
        pixels = image(i)
        yield ns, "/camera/raw", set_time(RawImage_pb2.RawImage(width=32, height=24, encoding="rgb8", step=96, data=pixels.tobytes()), ns)
        pose = set_time(PoseInFrame_pb2.PoseInFrame(frame_id="base"), ns)
        for name, value in (*xyz([i, 0, 2]).items(),):
            setattr(pose.pose.position, name, value)
        for name, value in xyzw().items():
            setattr(pose.pose.orientation, name, value)
        yield ns, "/pose", pose
        joints = set_time(JointStates_pb2.JointStates(), ns)
        for name in ARM[::-1] if i % 2 else ARM:
            joints.joints.add(name=name, position=i + ARM.index(name) / 10, velocity=0.0)
        yield ns, "/joints", joints
        tree = FrameTransforms_pb2.FrameTransforms()
        for child in ("wrist", "tool"):
            one = set_time(tree.transforms.add(parent_frame_id="base", child_frame_id=child), ns)
            one.translation.x, one.rotation.w = i + len(child), 1.0
        yield ns, "/transforms", tree


def write_protobuf(path):
    with open(path, "wb") as file, ProtobufWriter(file) as writer:
        for ns, topic, message in protobuf_messages():
            writer.write_message(topic=topic, message=message, log_time=ns + 1_000_000, publish_time=ns + 500_000)


def write_json(path):
    with open(path, "wb") as file:
        writer = McapWriter(file, chunk_size=4000, compression=CompressionType.LZ4)
        writer.start()
        topics = {}
        for topic, kind in (("/pose", "foxglove.PoseInFrame"), ("/image", "foxglove.CompressedImage")):
            schema = writer.register_schema(name=kind, encoding="jsonschema", data=b'{"type": "object"}')
            topics[topic] = writer.register_channel(topic=topic, message_encoding="json", schema_id=schema)
        for i in range(10):
            ns = START + i * 100_000_000
            time = {"sec": ns // 10**9, "nsec": ns % 10**9}
            messages = {"/pose": {"timestamp": time, "frame_id": "base", "pose": {"position": xyz([i, 1, 2]), "orientation": xyzw()}},
                        "/image": {"timestamp": time, "format": "jpeg", "data": base64.b64encode(encoded(image(i), "JPEG")).decode()}}
            for topic, message in messages.items():
                writer.add_message(channel_id=topics[topic], log_time=ns + 1_000_000, publish_time=ns, data=json.dumps(message).encode())
        writer.finish()


# ---- what the projects' readers read ----


def read_mcap(path):
    """Yields (topic, type, log time, publish time, message)."""
    with open(path, "rb") as file:
        reader = make_reader(file, decoder_factories=[RosDecoder(), ProtobufDecoder()])
        for schema, channel, message in reader.iter_messages(log_time_order=True):
            if channel.message_encoding == "json":
                decoded = json.loads(message.data, object_hook=lambda value: SimpleNamespace(**value))
                if hasattr(decoded, "data"):
                    decoded.data = base64.b64decode(decoded.data)
            else:
                factory = RosDecoder() if channel.message_encoding == "cdr" else ProtobufDecoder()
                decoded = DECODERS.setdefault((path, channel.id), factory.decoder_for(channel.message_encoding, schema))(message.data)
            yield channel.topic, schema.name.rpartition("/")[2].rpartition(".")[2], message.log_time, message.publish_time, decoded


DECODERS = {}


def read_bag(path):
    with AnyReader([path], default_typestore=STORE) as reader:
        for connection, log, data in reader.messages():
            yield connection.topic, connection.msgtype.rpartition("/")[2], log, 0, reader.deserialize(data, connection.msgtype)


def time_of(message):
    found = message.header.stamp if hasattr(message, "header") else getattr(message, "timestamp", None)
    if found is None:
        return None
    if hasattr(found, "seconds"):
        return found.seconds * 10**9 + found.nanos
    return found.sec * 10**9 + (found.nanosec if hasattr(found, "nanosec") else found.nsec)


def columns(message, path, names):
    for part in filter(None, path.split(".")):
        message = getattr(message, part)
    return [getattr(message, name) for name in names]


PLAIN = {
    "Imu": {"orientation": "xyzw", "angular_velocity": "xyz", "linear_acceleration": "xyz"},
    "PoseStamped": {"pose.position": "xyz", "pose.orientation": "xyzw"}, "PoseInFrame": {"pose.position": "xyz", "pose.orientation": "xyzw"},
    "TwistStamped": {"twist.linear": "xyz", "twist.angular": "xyz"}, "Twist": {"linear": "xyz", "angular": "xyz"},
    "WrenchStamped": {"wrench.force": "xyz", "wrench.torque": "xyz"}, "PointStamped": {"point": "xyz"},
}
ARRAYS = {"Imu": ["orientation_covariance", "angular_velocity_covariance", "linear_acceleration_covariance"], "Joy": ["axes", "buttons"],
          "Float64MultiArray": ["data"], "Float64": ["data"], "Int32": ["data"], "Bool": ["data"]}


def rows_of(kind, message):
    """Yields (the stream's name behind that of the topic, stamp, {dataset: row})."""
    if kind in PLAIN or kind in ARRAYS:
        row = {path.rpartition(".")[2]: columns(message, path, names) for path, names in PLAIN.get(kind, {}).items()}
        yield "", time_of(message), row | {name: getattr(message, name) for name in ARRAYS.get(kind, ())}
    elif kind in ("TFMessage", "FrameTransforms"):
        for one in message.transforms:
            inner = "transform." if kind == "TFMessage" else ""
            yield f"_{one.child_frame_id}", time_of(one), {"translation": columns(one, f"{inner}translation", "xyz"),
                                                          "rotation": columns(one, f"{inner}rotation", "xyzw")}
    elif kind == "JointState":
        names = ARM if len(message.name) == 7 else GRIPPER
        order = [list(message.name).index(name) for name in names]
        yield "" if names is ARM else "_2", time_of(message), {
            name: np.array(values)[order] for name in ("position", "velocity", "effort") if len(values := getattr(message, name))}
    elif kind == "JointStates":
        joints = {joint.name: joint for joint in message.joints}
        yield "", time_of(message), {name: [getattr(joints[joint], name) for joint in ARM] for name in ("position", "velocity")}
    elif kind == "JointTrajectory":
        points = message.points
        times = [point.time_from_start.sec + point.time_from_start.nanosec / 1e9 for point in points]
        yield "", time_of(message), {"positions": np.concatenate([point.positions for point in points]),
                                     "time_from_start": times}
    elif kind in ("CompressedImage", "CompressedVideo", "Image", "RawImage") and not any(
            word in (getattr(message, "format", "") + getattr(message, "encoding", "")) for word in ("rvl", "yuv")):
        data = bytes(message.data)
        if "compressedDepth" in getattr(message, "format", ""):
            data = data[12:]
        if hasattr(message, "step"):
            size = len(data) // message.step
            width = {"rgb8": 3, "bgr8": 3, "mono8": 1, "16UC1": 2, "32FC1": 4}[message.encoding] * message.width
            data = b"".join(data[row * message.step:row * message.step + width] for row in range(size))
        yield "", time_of(message), {"image": data}


BY_LOG = ("/zero", "/epoch", "/reset")  # topics whose stamps are not a clock


def vectors_of(name, messages):
    found = {}
    for topic, kind, log, publish, message in messages:
        for suffix, time, row in rows_of(kind, message):
            found.setdefault(topic.strip("/").replace("/", "_") + suffix, []).append((log if time is None or topic in BY_LOG else time, log, publish, time, row))
    arrays = {}
    for stream, rows in found.items():
        rows.sort(key=lambda row: row[0])
        put = lambda dataset, values: arrays.__setitem__(f"{name}|{stream}/{dataset}", np.array(values))  # noqa: E731
        put("time", [row[0] for row in rows])
        put("log_time", [row[1] for row in rows])
        if rows[0][2]:
            put("publish_time", [row[2] for row in rows])
        if f"/{stream}" in BY_LOG:
            put("header_stamp", [row[3] for row in rows])
        for dataset in rows[0][4]:
            if dataset == "image":
                arrays[f"{name}|{stream}/image"] = np.frombuffer(b"".join(row[4]["image"] for row in rows), np.uint8)
                put("sizes", [len(row[4]["image"]) for row in rows])
            else:
                put(dataset, [row[4][dataset] for row in rows])
    return arrays


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    write_ros(FOLDER / "numbers.mcap", NUMBERS, 0.3, chunk_size=20000)
    write_ros(FOLDER / "images.mcap", IMAGES, 0.3, chunk_size=20000)
    write_ros(FOLDER / "lab.mcap", LAB, 0.6, chunk_size=20000)
    some = {topic: NUMBERS[topic] for topic in ("/joint_states", "/pose", "/width", "/closed")}
    write_bag(FOLDER / "bag", some, 0.2, 8, StoragePlugin.SQLITE3)
    write_bag(FOLDER / "bag_mcap", some, 0.2, 9, StoragePlugin.MCAP)
    write_protobuf(FOLDER / "protobuf.mcap")
    write_json(FOLDER / "json.mcap")
    arrays = {}
    for path in sorted(FOLDER.iterdir()):
        mcap = path / f"{path.name}.mcap" if path.is_dir() else path
        arrays |= vectors_of(path.name, read_mcap(mcap) if mcap.exists() else read_bag(path))
    np.savez_compressed(FOLDER / "vectors.npz", **arrays)
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    print(f"{FOLDER}: {len(arrays)} arrays, {size} bytes")


if __name__ == "__main__":
    sys.exit(main())
