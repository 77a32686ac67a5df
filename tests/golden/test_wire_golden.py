"""The golden frames of the protocol, read by another msgpack than the daemon's: bytes, words and table must agree."""

import json
import pathlib

import msgpack
import pytest

FOLDER = pathlib.Path(__file__).parent / "wire"
VECTORS = json.loads((FOLDER / "vectors.json").read_text(encoding="utf-8"))


def plain(value):
    """The words' {"bin": hex} as bytes."""
    if isinstance(value, dict):
        return bytes.fromhex(value["bin"]) if set(value) == {"bin"} else {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_every_frame_has_words():
    assert {path.stem for path in FOLDER.glob("*.hex")} == set(VECTORS)


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_frame(name):
    frame = bytes.fromhex((FOLDER / f"{name}.hex").read_text())
    op, body = VECTORS[name]["op"], plain(VECTORS[name]["body"])
    assert frame[:8] == b"TRJD" + bytes([1, op, 0, 0])
    assert msgpack.unpackb(frame[8:]) == body
    assert msgpack.packb(body) == frame[8:]  # the shortest form of every number and length, on both sides
