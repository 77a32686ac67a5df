"""Messages of ROS 2, Protobuf and JSON as objects whose fields are attributes."""
from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Callable, Dict, Optional

from google.protobuf.message import DecodeError
from mcap.exceptions import McapError
from mcap.records import Schema
from mcap_protobuf.decoder import DecoderFactory
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, TypesysError, get_types_from_idl, get_types_from_msg, get_typestore

from .bags import Channel

IDL_RULE = "=" * 80 + "\n"  # between the parts of a definition in IDL


class Odd(Exception):
    """A message cannot be converted. The text is why."""


# of a definition, and of messages that do not fit to theirs
FAULTS = (SerdeError, TypesysError, McapError, DecodeError, AttributeError, IndexError, KeyError, MemoryError,
          OverflowError, RecursionError, TypeError, ValueError)


def decoder(channel: Channel) -> Optional[Callable[[bytes], Any]]:
    """Returns a function that decodes a message, or None where the encoding is not read. Both raise FAULTS."""
    if channel.encoding == "protobuf":
        schema = Schema(id=1, name=channel.type, encoding=channel.schema, data=channel.definition)
        return DecoderFactory().decoder_for(channel.encoding, schema)
    if channel.encoding == "json":
        return lambda data: json.loads(data, object_hook=lambda fields: SimpleNamespace(**fields))
    return _ros_decoder(channel) if channel.encoding == "cdr" else None


def _ros_decoder(channel: Channel) -> Callable[[bytes], Any]:
    """Files before ROS 2 Iron may have no definitions: then those of ROS 2 itself are taken."""
    name = channel.type if channel.type.count("/") != 1 else channel.type.replace("/", "/msg/")  # as before ROS 2 Foxy
    text = channel.definition.decode(errors="replace")
    types: Dict[str, Any] = {}
    if channel.schema == "ros2msg":
        types = get_types_from_msg(text, name)
    elif channel.schema in ("ros2idl", "omgidl"):
        for part in filter(None, text.split(IDL_RULE)):
            types.update(get_types_from_idl(part.partition("\n")[2] if part.startswith("IDL: ") else part))
    store = get_typestore(Stores.EMPTY if types else Stores.LATEST)
    store.register(types)
    store.fielddefs[name]  # KeyError where there is none
    return lambda data: store.deserialize_cdr(data, name)
