"""The state of a feed: a small dict that JSON can hold. state_dict() returns it, and load_state_dict() accepts it.

    version      1
    seed, epoch  determine the order of the windows
    position     the number of windows of the epoch that are worked on, over all ranks; the next batch begins there
    fingerprint  identifies dataset and windows: 16 hexadecimal digits
    token        only in mode queue, if the DONE windows are not one range from the beginning: the daemon's list of
                 them, base64"""
from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

from .errors import StateError

VERSION = 1
_TOKEN_MAGIC = int.from_bytes(b"TRJTOKN1", "little")


@dataclass(frozen=True)
class State:
    seed: int
    epoch: int
    position: int
    fingerprint: int
    token: Optional[bytes] = None

    def to_dict(self) -> Dict[str, Any]:
        state: Dict[str, Any] = {"version": VERSION, "seed": self.seed, "epoch": self.epoch, "position": self.position,
                                 "fingerprint": f"{self.fingerprint:016x}"}
        if self.token is not None:
            state["token"] = base64.b64encode(self.token).decode()
        return state


def frontier(token: bytes) -> Optional[int]:
    """Returns the position that separates the DONE windows from the others. None: no single position does.

    The token is a list of 64-bit words, described in daemon/feed/checkpoint_token.h."""
    words = struct.unpack(f"<{len(token) // 8}Q", token)
    if len(words) < 11 or words[0] != _TOKEN_MAGIC or len(words) != 11 + words[9]:
        raise StateError("checkpoint: the daemon's token has another version")
    begin, length, batch, high, undone = words[5], words[6], words[7], words[8], words[10:-1]
    front = high - len(undone)
    return min(begin + front * batch, length) if undone == tuple(range(front, high)) else None


def parse(state: Mapping[str, Any]) -> State:
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        version = state.get("version") if isinstance(state, Mapping) else type(state).__name__
        raise StateError(f"not a state of a feed that this version can read (version {version!r}, expected {VERSION})")
    numbers = {}
    for key in ("seed", "epoch", "position"):
        value = state.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
            raise StateError(f"state: {key} is {value!r}, expected an integer from 0")
        numbers[key] = value
    try:
        fingerprint = int(state["fingerprint"], 16)
        token = base64.b64decode(state["token"], validate=True) if state.get("token") is not None else None
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"state: fingerprint or token cannot be read ({error!r})") from None
    return State(fingerprint=fingerprint, token=token, **numbers)
