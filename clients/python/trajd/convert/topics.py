"""What messages of the known types become: rows of streams with named columns and units, and images."""
from __future__ import annotations

import base64
import functools
import re
from operator import attrgetter
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .bags import Channel, natural
from .messages import Odd
from .objects import SIGNATURES

PACKAGES = {"sensor_msgs", "geometry_msgs", "std_msgs", "tf2_msgs", "nav_msgs", "trajectory_msgs", "foxglove",
            "foxglove_msgs"}
NO_STAMP = -1 << 63
RAW = {"rgb8": ("|u1", 3, "rgb"), "8UC3": ("|u1", 3, "rgb"), "bgr8": ("|u1", 3, "bgr"), "mono8": ("|u1", 1, "gray"),
       "8UC1": ("|u1", 1, "gray"), "16UC1": ("<u2", 1, "mm"), "mono16": ("<u2", 1, "mm"), "32FC1": ("<f4", 1, "m")}
YUV = {"yuv422": 1, "uyvy": 1, "yuv422_yuy2": 0, "yuyv": 0}  # pixels in pairs: the place of the first luma
DEPTH_HEADER_BYTES = 12  # before the PNG of compressedDepth: how 32FC1 was quantised


class Image(NamedTuple):
    kind: str                    # encoded, raw or video
    color: str                   # or the unit of depth
    size: Tuple[int, ...] = ()   # height and width of raw ones


class Part(NamedTuple):
    """A dataset of a stream."""

    name: str
    unit: str = ""
    kind: str = "previous"
    columns: Optional[Sequence[str]] = ()  # None: one number; (): numbered
    dtype: str = ""                        # "": that of what is read


class Row(NamedTuple):
    """What a message adds to a stream. Rows of a topic that differ in suffix, parts, types or image are two streams."""

    stamp: int                             # the sensor's time in ns
    parts: Tuple[Part, ...]
    values: Sequence[np.ndarray]
    suffix: str = ""                       # of the stream's name, behind that of the topic
    image: Optional[Image] = None
    payload: bytes = b""                   # of the image


Reader = Callable[[Any], Iterable[Row]]

NUMBERS = {"Bool": "|b1", "Byte": "|u1", "Char": "|u1", "Int8": "|i1", "Int16": "<i2", "Int32": "<i4", "Int64": "<i8",
           "UInt8": "|u1", "UInt16": "<u2", "UInt32": "<u4", "UInt64": "<u8", "Float32": "<f4", "Float64": "<f8"}
VECTORS = {"position": "m", "translation": "m", "point": "m", "vector": "", "linear": "m/s", "angular": "rad/s",
           "force": "N", "torque": "N m", "angular_velocity": "rad/s", "linear_acceleration": "m/s^2"}
ROTATIONS = ("orientation", "rotation", "quaternion")
TYPES = {name: paths.split() for name, paths in {
    "Imu": "orientation angular_velocity linear_acceleration orientation_covariance angular_velocity_covariance "
           "linear_acceleration_covariance",
    "Pose": "position orientation", "PoseStamped": "pose.position pose.orientation",
    "PoseInFrame": "pose.position pose.orientation",
    "PoseWithCovarianceStamped": "pose.pose.position pose.pose.orientation pose.covariance",
    "Odometry": "pose.pose.position pose.pose.orientation twist.twist.linear twist.twist.angular",
    "Twist": "linear angular", "TwistStamped": "twist.linear twist.angular",
    "Accel": "linear angular", "AccelStamped": "accel.linear accel.angular",
    "Wrench": "force torque", "WrenchStamped": "wrench.force wrench.torque",
    "Transform": "translation rotation", "TransformStamped": "transform.translation transform.rotation",
    "FrameTransform": "translation rotation", "PointStamped": "point", "Vector3Stamped": "vector",
    "QuaternionStamped": "quaternion", "Joy": "axes buttons",
    **{f"{name}{suffix}": "data" for name in NUMBERS for suffix in ("", "MultiArray")}}.items()}
EVENTS = {"Bool", "JointTrajectory"}  # what comes when something happens counts until the episode ends


def reader(channel: Channel) -> Optional[Reader]:
    """Returns a function that makes rows of a message, or None for unknown types."""
    package, _, name = channel.type.replace(".", "/").rpartition("/")
    if package.partition("/")[0] not in PACKAGES:
        return None
    if name in TYPES:
        return _plain_reader(name)
    if name in ("TFMessage", "FrameTransforms"):
        read_one = _plain_reader("TransformStamped" if name == "TFMessage" else "FrameTransform")
        return lambda message: (row._replace(suffix=one.child_frame_id)
                                for one in message.transforms for row in read_one(one))
    return {"JointState": _read_joints, "JointStates": _read_joints, "JointTrajectory": _read_trajectory,
            "Image": _read_raw, "RawImage": _read_raw, "CompressedImage": _read_encoded,
            "CompressedVideo": _read_encoded}.get(name)


def is_event(channel: Channel) -> bool:
    return channel.type.rpartition("/")[2] in EVENTS or channel.topic.endswith("/tf_static")


def _stamp_of(message: Any) -> int:
    stamp = message.header.stamp if hasattr(message, "header") else getattr(message, "timestamp", None)
    for seconds, nanoseconds in (("sec", "nanosec"), ("seconds", "nanos"), ("sec", "nsec")):
        if hasattr(stamp, seconds) and hasattr(stamp, nanoseconds):
            return int(getattr(stamp, seconds)) * 1000000000 + int(getattr(stamp, nanoseconds))
    return NO_STAMP


def _part(path: str, kind: str) -> Part:
    name = path.rpartition(".")[2]
    if name in ROTATIONS:
        return Part(name, "", "slerp", ("x", "y", "z", "w"), "<f8")
    if name in VECTORS:
        return Part(name, VECTORS[name] + "^2" * kind.startswith("Accel"), "linear", ("x", "y", "z"), "<f8")
    columns = None if kind in NUMBERS else ()
    dtype = {"axes": "<f4", "buttons": "<i4"}.get(name) or NUMBERS.get(kind.replace("MultiArray", ""), "<f8")
    return Part(name, "", "linear" if name == "axes" else "previous", columns, dtype)


def _plain_reader(kind: str) -> Reader:
    paths = TYPES[kind]
    parts = tuple(_part(path, kind) for path in paths)
    getters = [attrgetter(*([f"{path}.{column}" for column in part.columns or ()] or [path]))
               for path, part in zip(paths, parts)]

    def read(message: Any) -> Iterator[Row]:
        values = [np.asarray(get(message), part.dtype) for get, part in zip(getters, parts)]
        if any(value.ndim != (part.columns is not None) for value, part in zip(values, parts)):
            raise Odd("a list is in the place of a number, or a number in that of a list")
        if all(value.size for value in values):
            yield Row(_stamp_of(message), parts, values)
        else:
            found = [(part, value) for part, value in zip(parts, values) if value.size]
            yield Row(_stamp_of(message), tuple(part for part, _ in found), [value for _, value in found])

    return read


@functools.lru_cache(maxsize=1024)
def _order(names: Tuple[str, ...]) -> Tuple[Tuple[str, ...], List[int]]:
    """Returns names in the order of columns, which is the same for all messages, and the number of each in this one."""
    if len(set(names)) < len(names):
        raise Odd("a name is in it twice")
    order = sorted(names, key=natural)
    return tuple(order), [names.index(name) for name in order]


_joint_part = functools.lru_cache(maxsize=1024)(Part)


def _sorted(values: Any, numbers: List[int], name: str) -> np.ndarray:
    if len(values) != len(numbers):
        raise Odd(f"{name} has {len(values)} values for {len(numbers)} names")
    return np.asarray(values, "<f8")[numbers]


def _read_joints(message: Any) -> Iterator[Row]:
    joints = getattr(message, "joints", None)  # Foxglove's JointStates
    names, numbers = _order(tuple(message.name) if joints is None else tuple(joint.name for joint in joints))
    parts, found = [], []
    for name, unit in (("position", "rad"), ("velocity", "rad/s"), ("effort", "N m")):
        values = getattr(message, name) if joints is None else [
            getattr(joint, name) for joint in joints if _is_set(joint, name)]
        if len(values):
            parts.append(_joint_part(name, unit, "linear", names))
            found.append(_sorted(values, numbers, name))
    yield Row(_stamp_of(message), tuple(parts), found)


def _read_trajectory(message: Any) -> Iterator[Row]:
    """Points lie one after another in a row: the columns of one point, and then those of the next one."""
    names, numbers = _order(tuple(message.joint_names))
    points, parts, found = message.points, [], []
    for name, unit in (("positions", "rad"), ("velocities", "rad/s"), ("accelerations", "rad/s^2"), ("effort", "N m")):
        if any(len(getattr(point, name)) for point in points):
            parts.append(Part(name, unit, "previous", _of_points(names, len(points))))
            found.append(np.concatenate([_sorted(getattr(point, name), numbers, name) for point in points]))
    parts.append(Part("time_from_start", "s", "previous", _of_points([""], len(points))))
    found.append(np.array([point.time_from_start.sec + point.time_from_start.nanosec / 1e9 for point in points]))
    yield Row(_stamp_of(message), tuple(parts), found)


def _is_set(message: Any, name: str) -> bool:
    return message.HasField(name) if hasattr(message, "HasField") else hasattr(message, name)


def _of_points(names: Sequence[str], points: int) -> Tuple[str, ...]:
    return tuple(names) if points == 1 else tuple(
        f"{point}.{name}".rstrip(".") for point in range(points) for name in names)


# ---- images ----


def _data_of(message: Any) -> bytes:
    if isinstance(message.data, int):  # bytes() makes as many zeros
        raise Odd("its data are a number")
    return base64.b64decode(message.data, validate=True) if isinstance(message.data, str) else bytes(message.data)


def _from_yuv(pixels: np.ndarray, luma: int) -> np.ndarray:
    """Returns RGB of pairs [height, bytes], as cv_bridge and OpenCV make it (BT.601, limited range)."""
    pairs = pixels.reshape(len(pixels), -1, 4).astype(np.int64)
    y, chroma = 1220542 * (pairs[..., luma::2] - 16).clip(0)[..., None], pairs[..., 1 - luma::2] - 128
    parts = chroma @ np.array([[0, -409993, 2116026], [1673527, -852492, 0]]) + (1 << 19)
    return ((y + parts[..., None, :]) >> 20).clip(0, 255).astype(np.uint8)


def _read_raw(message: Any) -> Iterator[Row]:
    luma = YUV.get(message.encoding)
    if message.encoding not in RAW and (luma is None or message.width % 2):
        raise Odd(f"its encoding is \"{message.encoding}\", and {', '.join((*RAW, *YUV))} are read")
    dtype, channels, color = RAW.get(message.encoding, ("|u1", 2, "rgb"))
    height, width, step, data = int(message.height), int(message.width), int(message.step), _data_of(message)
    size = width * channels * np.dtype(dtype).itemsize
    if not size or not height or step < size or len(data) < step * height:
        raise Odd(f"it has {len(data)} bytes for {height} rows of {step} bytes, of which {size} are pixels")
    if np.dtype(dtype).itemsize > 1 and getattr(message, "is_bigendian", 0):
        raise Odd("its pixels are big-endian")
    pixels = np.frombuffer(data, np.uint8, step * height).reshape(height, step)[:, :size]
    pixels = pixels if luma is None else _from_yuv(pixels, luma)
    yield Row(_stamp_of(message), (), (), "", Image("raw", color, (height, width)), pixels.tobytes())


def _read_encoded(message: Any) -> Iterator[Row]:
    words, data = message.format, _data_of(message)
    if words.lower() == "h264":
        yield Row(_stamp_of(message), (), (), "", Image("video", "rgb"), data)
        return
    if "compressedDepth" in words:
        if not words.startswith("16UC1"):
            raise Odd(f"its format is \"{words}\", and of compressedDepth 16UC1 is read")
        data = data[DEPTH_HEADER_BYTES:]
    encoding = next((name for name, sign in SIGNATURES.items() if data.startswith(sign)), None)
    if encoding is None:
        raise Odd(f"its format is \"{words}\", and JPEG, PNG and H.264 are read")
    yield Row(_stamp_of(message), (), (), "", Image("encoded", _color_of(data, encoding)), data)


def _color_of(data: bytes, encoding: str) -> str:
    """Returns what the pixels of an encoded image are: rgb, gray or, with 16 bits, depth in mm."""
    if encoding == "png":
        bits, kind = data[24:26] if len(data) > 25 else (8, 2)
        return "rgb" if kind not in (0, 4) else "mm" if bits == 16 else "gray"
    at = 2
    while at + 10 <= len(data) and data[at] == 0xff:
        if 0xc0 <= data[at + 1] <= 0xcf and data[at + 1] not in (0xc4, 0xc8, 0xcc):  # the header of the frame
            return "gray" if data[at + 9] == 1 else "rgb"
        at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
    return "rgb"


def stream_name(topic: str, suffix: str) -> str:
    """Returns a name that an HDF5 file and a layout can have. It has no "/": no stream is in another one's group."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{topic}/{suffix}".strip("/")).strip(".") or "_"
