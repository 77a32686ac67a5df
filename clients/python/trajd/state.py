"""The state of a feed: a small dict that JSON can hold. state_dict() returns it, and load_state_dict() accepts it.

    version      1
    seed, epoch  determine the order of the windows
    position     the number of windows of the epoch that are worked on, over all ranks; the next batch begins there
    fingerprint  identifies dataset and windows: 16 hexadecimal digits
    norm         how the values were scaled: {"digest": 16 hexadecimal digits of all scales and offsets, "outputs":
                 {NAME: "mean_std over rows"}}. Absent in states of trajd 0.1.0, whose statistics are over windows
    images     how images are made: {"digest": 16 hexadecimal digits, "outputs": {NAME: {KEY: text}}}. Absent if there
                 are none
    token        only in mode queue, if the DONE windows are not one range from the beginning: the daemon's list of
                 them, base64"""
from __future__ import annotations

import base64
import logging
import re
import struct
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

from .errors import DataWarning, StateError, level_of_caller

log = logging.getLogger("trajd")

VERSION = 1
_TOKEN_MAGIC = int.from_bytes(b"TRJTOKN1", "little")


@dataclass(frozen=True)
class Norm:
    """How a feed scales its values: a digest, and the rule of each normalised output in words.

    `changed` lists the outputs that trajd 0.1.0 would scale otherwise."""

    digest: int
    outputs: Mapping[str, str]
    changed: "tuple[str, ...]" = ()


def norm_of(digest: int, listed: List[Dict[str, Any]]) -> Norm:
    """Makes a Norm of the outputs that the query `statistics` lists."""
    outputs = {output["name"]: _words(output) for output in listed if output["norm"] != "none"}
    return Norm(digest, outputs, tuple(output["name"] for output in listed
                                       if output.get("over") == "rows" or "min_std" in output))


def _words(output: Mapping[str, Any]) -> str:
    words: str = output["norm"]
    if "over" in output:
        words += f" over {output['over']} of feed {output['from']}"
    elif output.get("from"):
        words += f" of {output['from']}"
    return words + (f" with min_std {output['min_std']:g}" if "min_std" in output else "")


def check_norm(saved: Optional[Norm], found: Norm, feed: str) -> None:
    """Raises StateError if the values were scaled in another way when the state was made."""
    if saved is None:
        if found.changed:
            rules = ", ".join(f"{name} by {found.outputs[name]}" for name in found.changed)
            raise StateError(f"the state is of trajd 0.1.0, whose statistics are over windows, but feed {feed} normalises "
                             f"{rules}: write `norm: {{by: RULE, over: windows}}`, without min_std, for these outputs "
                             "to get the same values (strict=False uses the state all the same)")
        return
    if saved.digest == found.digest:
        return
    names = [name for name in {**saved.outputs, **found.outputs} if saved.outputs.get(name) != found.outputs.get(name)]
    if names:
        why = "; ".join(f"output {name}: norm was {saved.outputs.get(name, 'not given')}, "
                        f"is {found.outputs.get(name, 'not given')}" for name in names)
    else:
        why = ("the same rules, but other numbers: another mask, other numbers or another file in norm:, or "
               "statistics of other episodes")
    raise StateError(f"the state was made with other normalisation (digest {saved.digest:016x}) than feed {feed} has "
                     f"({found.digest:016x}): {why}. Change `norm:` back, or begin again "
                     "(strict=False uses the state all the same)")


@dataclass(frozen=True)
class Images:
    """A digest of everything that decides the values of images, and these keys of each output, as texts."""

    digest: int
    outputs: Mapping[str, Mapping[str, str]]

    def to_dict(self) -> Dict[str, Any]:
        return {"digest": f"{self.digest:016x}", "outputs": {name: dict(keys) for name, keys in self.outputs.items()}}


def _parse_images(document: Mapping[str, Any]) -> Images:
    """Reads what to_dict returned. Raises KeyError, TypeError, ValueError or AttributeError."""
    outputs = {str(name): {str(key): str(text) for key, text in keys.items()} for name, keys in document["outputs"].items()}
    return Images(int(document["digest"], 16), outputs)


def _change(key: str, old: Optional[str], new: Optional[str]) -> str:
    """Returns "crop was none, is 30x30 at 5, 5", or of an augmentation's step what differs of it, counted from 0 as in
    configurations: "augment[1]: factor 0.7 to 1.3 -> factor 0.6 to 1.4"."""
    if key.startswith("augment "):
        key = f"augment[{int(key[8:]) - 1}]" if key[8:].isdigit() else key
        parts = [re.split(", (?=[a-z])", text) for text in (old, new) if text is not None]
        if len(parts) == 2 and len(parts[0]) == len(parts[1]) and parts[0][0].split()[0] == parts[1][0].split()[0]:
            return f"{key}: " + ", ".join(f"{was} -> {now}" for was, now in zip(*parts) if was != now)
    return f"{key} was {old or 'not given'}, is {new or 'not given'}"


def _differences(before: Images, found: Images) -> str:
    """Returns "output top: crop was none, is 30x30 at 5, 5; ...", or "" if the lists do not differ."""
    texts = []
    for name in {**before.outputs, **found.outputs}:
        old, new = before.outputs.get(name), found.outputs.get(name)
        if old is None or new is None:
            texts.append(f"output {name} {'is new' if old is None else 'is gone'}")
            continue
        changed = [_change(key, old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)]
        if changed:
            texts.append(f"output {name}: {', '.join(changed)}")
    return "; ".join(texts)


def warn_of_images(before: Optional[Images], found: Optional[Images], feed: str) -> None:
    """Logs and issues a DataWarning if a job goes on with other images than it had `before`. None: it is not known."""
    if before is None or found is None or before.digest == found.digest:
        return
    why = _differences(before, found) or "the keys are the same, but their numbers differ"
    text = (f"feed {feed}: the job goes on with other images (digest {before.digest:016x} before, {found.digest:016x} now): "
            f"{why}. The windows and their order are the same")
    log.warning("%s", text)
    warnings.warn(text, DataWarning, stacklevel=level_of_caller())


@dataclass(frozen=True)
class State:
    seed: int
    epoch: int
    position: int
    fingerprint: int
    token: Optional[bytes] = None
    norm: "Optional[Norm]" = None
    images: "Optional[Images]" = None

    def to_dict(self) -> Dict[str, Any]:
        state: Dict[str, Any] = {"version": VERSION, "seed": self.seed, "epoch": self.epoch, "position": self.position,
                                 "fingerprint": f"{self.fingerprint:016x}"}
        if self.norm is not None:
            state["norm"] = {"digest": f"{self.norm.digest:016x}", "outputs": dict(self.norm.outputs)}
        if self.images is not None:
            state["pictures"] = self.images.to_dict()
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
        norm = Norm(int(state["norm"]["digest"], 16), dict(state["norm"]["outputs"])) if "norm" in state else None
        made = _parse_images(state["pictures"]) if "pictures" in state else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(f"state: fingerprint, norm, pictures or token cannot be read ({error!r})") from None
    return State(fingerprint=fingerprint, token=token, norm=norm, images=made, **numbers)
