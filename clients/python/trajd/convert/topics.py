"""What the messages of the known types become: streams with named columns and units, and images.

A plan says for one form of a message which bytes are a row of which stream."""
from __future__ import annotations

import re
import struct
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .bags import Channel
from .messages import Form, Leaf, Odd, base64_bytes
from .objects import SIGNATURES

PACKAGES = {"sensor_msgs", "geometry_msgs", "std_msgs", "tf2_msgs", "nav_msgs", "trajectory_msgs", "foxglove", "foxglove_msgs"}
STAMPS = (("sec", "nanosec"), ("seconds", "nanos"), ("sec", "nsec"))
VIDEO = {"h264"}
RAW = {"rgb8": ("|u1", 3, "rgb"), "8UC3": ("|u1", 3, "rgb"), "bgr8": ("|u1", 3, "bgr"), "mono8": ("|u1", 1, "gray"),
       "8UC1": ("|u1", 1, "gray"), "16UC1": ("<u2", 1, "mm"), "mono16": ("<u2", 1, "mm"), "32FC1": ("<f4", 1, "m")}


class Field(NamedTuple):
    """A dataset of a stream: a struct of numbers such as x, y, z; an array (); or one number (None)."""

    path: str                       # in the message
    name: str
    columns: Optional[Sequence[str]] = ()
    unit: str = ""
    kind: str = "previous"


def _vector(path: str, unit: str, name: str = "", kind: str = "linear") -> Field:
    return Field(path, name or path.rpartition(".")[2], ("x", "y", "z"), unit, kind)


def _rotation(path: str) -> Field:
    return Field(path, path.rpartition(".")[2], ("x", "y", "z", "w"), "", "slerp")


def _array(path: str, unit: str = "", kind: str = "previous") -> Field:
    return Field(path, path.rpartition(".")[2], (), unit, kind)


def _pose(prefix: str = "") -> List[Field]:
    return [_vector(f"{prefix}position", "m"), _rotation(f"{prefix}orientation")]


def _transform(prefix: str = "") -> List[Field]:
    return [_vector(f"{prefix}translation", "m"), _rotation(f"{prefix}rotation")]


def _twist(prefix: str = "", unit: str = "/s") -> List[Field]:
    return [_vector(f"{prefix}linear", f"m{unit}"), _vector(f"{prefix}angular", f"rad{unit}")]


def _wrench(prefix: str = "") -> List[Field]:
    return [_vector(f"{prefix}force", "N"), _vector(f"{prefix}torque", "N m")]


NUMBERS = ("Byte", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")
TYPES: Dict[str, List[Field]] = {
    "Imu": [_rotation("orientation"), _vector("angular_velocity", "rad/s"), _vector("linear_acceleration", "m/s^2"),
            _array("orientation_covariance"), _array("angular_velocity_covariance"), _array("linear_acceleration_covariance")],
    "Pose": _pose(), "PoseStamped": _pose("pose."), "PoseInFrame": _pose("pose."),
    "PoseWithCovarianceStamped": [*_pose("pose.pose."), _array("pose.covariance")],
    "Odometry": [*_pose("pose.pose."), *_twist("twist.twist.")],
    "Twist": _twist(), "TwistStamped": _twist("twist."), "Accel": _twist("", "/s^2"), "AccelStamped": _twist("accel.", "/s^2"),
    "Wrench": _wrench(), "WrenchStamped": _wrench("wrench."),
    "Transform": _transform(), "TransformStamped": _transform("transform."), "FrameTransform": _transform(),
    "Point": [Field("", "point", "xyz", "m", "linear")], "PointStamped": [_vector("point", "m")],
    "Vector3": [Field("", "vector", "xyz", "", "linear")], "Vector3Stamped": [_vector("vector", "")],
    "Quaternion": [Field("", "quaternion", "xyzw", "", "slerp")], "QuaternionStamped": [_rotation("quaternion")],
    "Joy": [_array("axes", "", "linear"), _array("buttons")],
    **{f"{name}MultiArray": [_array("data")] for name in NUMBERS},
    **{name: [Field("data", "data", None)] for name in ("Bool", "Char", *NUMBERS)},
}
EVENTS = {"Bool", "JointTrajectory"}  # what comes when something happens counts until the episode ends
TRANSFORMS = {"TFMessage": "transform.", "FrameTransforms": ""}  # lists, with the prefix of each one's fields


class Part(NamedTuple):
    """A dataset of a stream, in the bytes of a message."""

    name: str
    dtype: str
    columns: Optional[List[str]]     # None: one number
    unit: str
    kind: str
    slices: List[Tuple[int, int]]


class Image(NamedTuple):
    kind: str                                    # encoded, raw or video
    color: str                                   # or the unit of depth
    dtype: str = ""                              # of raw ones
    shape: Tuple[int, ...] = ()


class Plan(NamedTuple):
    """A row of a stream. Rows of a topic whose `form` differs are different streams."""

    form: Any
    suffix: str                                  # of the stream's name, behind that of the topic
    stamp: Optional[Callable[[bytes], int]]      # returns the sensor's time in ns
    parts: List[Part]
    note: str = ""                               # what sets it apart from other forms
    is_event: bool = False
    image: Optional[Image] = None
    payload: Callable[[bytes], bytes] = bytes    # of an image


Orders = Dict[Any, List[str]]  # of the columns, by the set of names: as the first message has them


def planner(channel: Channel) -> Optional[Callable[[bytes, Form, Orders], List[Plan]]]:
    """Returns a function that makes the plans for a message, or None for unknown types."""
    package, _, name = channel.type.replace(".", "/").rpartition("/")
    package = package.partition("/")[0]
    if package not in PACKAGES:
        return None
    if name in TYPES:
        return lambda data, form, orders: [_plain(form, TYPES[name], "", "", name in EVENTS)]
    if name in TRANSFORMS:
        return lambda data, form, orders: list(_transforms(form, TRANSFORMS[name], channel.topic))
    if name in ("JointState", "JointStates"):
        return lambda data, form, orders: [_joints(form, orders)]
    if name == "JointTrajectory":
        return lambda data, form, orders: [_trajectory(form, orders)]
    if name in ("Image", "RawImage"):
        return lambda data, form, orders: [_raw_image(data, form)]
    if name in ("CompressedImage", "CompressedVideo"):
        return lambda data, form, orders: [_encoded_image(data, form)]
    return None


def _leaf(form: Form, path: str) -> Leaf:
    if path not in form.leaves:
        raise Odd(f"it has no number {path}")
    return form.leaves[path]


def _stamp(form: Form, prefix: str = "") -> Optional[Callable[[bytes], int]]:
    for base in ("header.stamp.", "timestamp."):
        for names in STAMPS:
            leaves = [form.leaves.get(f"{prefix}{base}{name}") for name in names]
            if leaves[0] and leaves[1]:
                return _stamp_reader(leaves[0], leaves[1])
    return None


def _stamp_reader(seconds: Leaf, nanoseconds: Leaf) -> Callable[[bytes], int]:
    formats = {"<i4": "<i", "<u4": "<I", "<i8": "<q", "<f8": "<d"}
    if seconds.dtype not in formats or nanoseconds.dtype not in formats:
        raise Odd(f"its stamp is of {seconds.dtype} and {nanoseconds.dtype}")
    first, second = struct.Struct(formats[seconds.dtype]).unpack_from, struct.Struct(formats[nanoseconds.dtype]).unpack_from
    return lambda data: int(first(data, seconds.at)[0]) * 1000000000 + int(second(data, nanoseconds.at)[0])


def _part(name: str, leaves: Sequence[Leaf], columns: Optional[Sequence[str]], unit: str, kind: str) -> Part:
    """Returns a dataset whose columns are numbers one after another, wherever they are in the message."""
    if len({leaf.dtype for leaf in leaves}) != 1:
        raise Odd(f"the numbers of {name} differ in type")
    dtype, slices = leaves[0].dtype, []
    for begin, end in ((leaf.at, leaf.at + leaf.count * int(leaf.dtype[-1])) for leaf in leaves):
        if slices and slices[-1][1] == begin:
            slices[-1] = (slices[-1][0], end)
        else:
            slices.append((begin, end))
    return Part(name, dtype, None if columns is None else list(columns), unit,
                kind if dtype[1] == "f" else "previous", slices)


def _plain(form: Form, fields: Sequence[Field], prefix: str, suffix: str, is_event: bool, more: Any = ()) -> Plan:
    parts = []
    for field in fields:
        path = prefix + field.path
        if field.columns:
            begin = f"{path}." if path else ""
            parts.append(_part(field.name, [_leaf(form, begin + column) for column in field.columns], field.columns, field.unit,
                               field.kind))
        elif _leaf(form, path).count:
            leaf = form.leaves[path]
            columns = None if field.columns is None else [str(i) for i in range(leaf.count)]
            parts.append(_part(field.name, [leaf], columns, field.unit, field.kind))
    if not parts:
        raise Odd("it has no numbers")
    sizes = tuple((part.name, part.dtype, part.columns and len(part.columns)) for part in parts)
    note = ", ".join(f"{size or 1} numbers {name}" for name, _, size in sizes)
    return Plan((sizes, more), suffix, _stamp(form, prefix), parts, note, is_event)


def _transforms(form: Form, inner: str, topic: str) -> Iterator[Plan]:
    for i in range(form.counts.get("transforms", 0)):
        prefix = f"transforms.{i}."
        child = form.texts.get(f"{prefix}child_frame_id", "")
        parent = form.texts.get(f"{prefix}header.frame_id", form.texts.get(f"{prefix}parent_frame_id", ""))
        plan = _plain(form, _transform(inner), prefix, child or "frame", "static" in topic, (parent, child))
        yield plan._replace(stamp=_stamp(form, prefix), note=f"{child} in {parent}")


def _ordered(form: Form, names: List[str], orders: Orders) -> Tuple[List[str], List[int]]:
    """Returns the names in the order of the first message that had them, and the number of each in this one."""
    if len(set(names)) < len(names):
        raise Odd("a name is in it twice")
    order = orders.setdefault(frozenset(names), names)
    return order, [names.index(name) for name in order]


def _texts(form: Form, pattern: str, count_of: str) -> List[str]:
    return [form.texts.get(pattern.format(i), "") for i in range(form.counts.get(count_of, 0))]


def _elements(leaf: Leaf, numbers: Sequence[int]) -> List[Leaf]:
    size = int(leaf.dtype[-1])
    return [Leaf(leaf.at + size * number, leaf.dtype, 1) for number in numbers]


def _joints(form: Form, orders: Orders) -> Plan:
    names = _texts(form, "name.{}", "name") or _texts(form, "joints.{}.name", "joints")
    found = {}
    for name, unit in (("position", "rad"), ("velocity", "rad/s"), ("effort", "N m")):
        leaf = form.leaves.get(name)
        if leaf and leaf.count and not names:
            names = [str(i) for i in range(leaf.count)]
        if leaf and leaf.count not in (0, len(names)):
            raise Odd(f"{name} has {leaf.count} values for {len(names)} names")
        leaves = _elements(leaf, range(leaf.count)) if leaf else [
            form.leaves[path] for path in (f"joints.{i}.{name}" for i in range(len(names))) if path in form.leaves]
        if leaves and len(leaves) == len(names):
            found[name] = leaves, unit
    if not found:
        raise Odd("it has no numbers")
    order, numbers = _ordered(form, names, orders)
    parts = [_part(name, [leaves[number] for number in numbers], order, unit, "linear") for name, (leaves, unit) in found.items()]
    return Plan((frozenset(names), tuple(found)), "", _stamp(form), parts, f"{', '.join(found)} of {', '.join(order)}")


def _trajectory(form: Form, orders: Orders) -> Plan:
    """Points lie one after another in a row: the columns of one point, and then those of the next one."""
    order, numbers = _ordered(form, _texts(form, "joint_names.{}", "joint_names"), orders)
    points, parts = form.counts.get("points", 0), []
    for name, unit in (("positions", "rad"), ("velocities", "rad/s"), ("accelerations", "rad/s^2"), ("effort", "N m")):
        leaves = [_leaf(form, f"points.{i}.{name}") for i in range(points)]
        if not any(leaf.count for leaf in leaves):
            continue
        if any(leaf.count != len(order) for leaf in leaves):
            raise Odd(f"{name} of a point has not one value for each of {len(order)} joints")
        columns = [joint if points == 1 else f"{i}.{joint}" for i in range(points) for joint in order]
        parts.append(_part(name, [one for leaf in leaves for one in _elements(leaf, numbers)], columns, unit, "previous"))
    if not parts:
        raise Odd("it has no points")
    # a number of nanoseconds below 2^31 is the same in both types
    times = [_leaf(form, f"points.{i}.time_from_start.{name}")._replace(dtype="<i4") for i in range(points) for name in STAMPS[0]]
    columns = [name if points == 1 else f"{i}.{name}" for i in range(points) for name in STAMPS[0]]
    parts.append(_part("time_from_start", times, columns, "s and ns", "previous"))
    form_key = (frozenset(order), points, tuple(part.name for part in parts))
    return Plan(form_key, "", _stamp(form), parts, f"{points} points of {', '.join(order)}", True)


# ---- images ----


def _payload(form: Form) -> Tuple[int, int]:
    leaf = _leaf(form, "data")
    return leaf.at, leaf.at + leaf.count


def _number(data: bytes, form: Form, path: str) -> int:
    leaf = _leaf(form, path)
    if leaf.dtype == "<f8":
        return int(struct.unpack_from("<d", data, leaf.at)[0])
    return int.from_bytes(data[leaf.at:leaf.at + int(leaf.dtype[-1])], "little")


def _raw_image(data: bytes, form: Form) -> Plan:
    encoding = form.texts.get("encoding", "")
    if encoding not in RAW:
        raise Odd(f"its encoding is \"{encoding}\", and {', '.join(RAW)} are read")
    dtype, channels, color = RAW[encoding]
    height, width, step = (_number(data, form, name) for name in ("height", "width", "step"))
    size = width * channels * int(dtype[-1])
    take = _taker(data, form)
    if not size or not height or step < size or len(take(data)) < step * (height - 1) + size:
        raise Odd(f"it has {len(take(data))} bytes for {height} rows of {step} bytes, of which {size} are pixels")
    if dtype[-1] != "1" and "is_bigendian" in form.leaves and _number(data, form, "is_bigendian"):
        raise Odd("its pixels are big-endian")
    if step > size:
        payload = lambda data: b"".join(take(data)[row * step:row * step + size] for row in range(height))  # noqa: E731
    else:
        payload = lambda data: take(data)[:height * size]  # noqa: E731
    shape = (height, width) + ((channels,) if channels > 1 else ())
    return Plan((encoding, shape), "", _stamp(form), [], f"{encoding}, {width}x{height}", False, Image("raw", color, dtype, shape), payload)


def _taker(data: bytes, form: Form) -> Callable[[bytes], bytes]:
    """Returns a function that returns the payload: bytes, or Base64 in JSON."""
    if "data" in form.texts:
        payload = base64_bytes(form.texts["data"])
        return lambda data: payload
    begin, end = _payload(form)
    return lambda data: data[begin:end]


def _encoded_image(data: bytes, form: Form) -> Plan:
    words = form.texts.get("format", "")
    take = _taker(data, form)
    if words.lower() in VIDEO:
        return Plan("video", "", _stamp(form), [], words, False, Image("video", "rgb"), take)
    head = take(data)
    skipped = 0
    if "compressedDepth" in words:
        skipped = 12  # the transport's own header: how 32FC1 was quantised
        if not words.startswith("16UC1"):
            raise Odd(f"its format is \"{words}\", and of compressedDepth 16UC1 as PNG is read")
    payload = head[skipped:]
    encoding = next((name for name, sign in SIGNATURES.items() if payload.startswith(sign)), None)
    if encoding is None:
        raise Odd(f"its format is \"{words}\", and JPEG, PNG and H.264 are read")
    color = _color(payload, encoding)
    return Plan((encoding, color), "", _stamp(form), [], f"{encoding}, {color}", False, Image("encoded", color),
                lambda data: take(data)[skipped:])


def _color(data: bytes, encoding: str) -> str:
    """Returns what the pixels of an encoded image are: rgb, gray or, with 16 bits, depth in mm."""
    if encoding == "png":
        bits, kind = data[24:26] if len(data) > 25 else (8, 2)
        return "rgb" if kind not in (0, 4) else "mm" if bits == 16 else "gray"
    at = 2
    while at + 10 <= len(data) and data[at] == 0xff:
        if 0xc0 <= data[at + 1] <= 0xcf and data[at + 1] not in (0xc4, 0xc8, 0xcc):
            return "gray" if data[at + 9] == 1 else "rgb"
        at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
    return "rgb"


def stream_name(topic: str, suffix: str) -> str:
    """Returns a name that an HDF5 file and a layout can have."""
    parts = [re.sub(r"[^A-Za-z0-9_.-]", "_", part) for name in (topic, suffix) for part in name.split("/") if part]
    return "/".join(part if part.strip(".") else "_" for part in parts) or "_"
