"""Writes those corpora of fuzzers that follow from other files of the tree or from formats: wire, codec, tree, layout, config, journal, checkpoint,
helper_frames, resample_messages, decode_frame, decode_reply, decode_job, image_prepare and zmtp. The others were written by hand, or by make_record_corpus.py. To be run after a change of a
format: build/venv/bin/python tests/tools/make_fuzz_corpus.py"""
import fcntl
import pathlib
import re
import struct
import sys

import msgpack

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import flood
from hostile_images import jpeg, jpeg_of_many_scans, png, progressive
from paths import ROOT
from resample_client import ASKED, SEALS, block

CORPUS = ROOT / "tests/golden/fuzz"
CONFIG = """\
version: 2
runtime: run
group_access: true
memory: {store: 50%, rings: 64MiB, reserve: 0}
gpu: {devices: "0,2", fall_back: true}
threads: {readers: 4, resample: 2}
listen: {tcp: "127.0.0.1:0", insecure_loopback: true, worker_timeout: 1s}
limits: {sessions: 4, feeds: 3, credit: 8}
journal_idle: 90d
datasets:
  a: {path: a.hdf5, layout: robomimic, rate: 29.97, quarantine: {at_most: 3}}
  b: {path: folder, layout: ./mine.yaml}
feeds:
  train:
    mix: {a: 7, b: 3}
    global_batch: 8
    fan_out: {jobs: 2, slow: leave, after: 30s}
    rank_timeout: 600s
    rejoin_wait: 5s
    anchor: {clock: actions}
    outputs: {actions: {at: 0..7, norm: mean_std}}
"""


def wire():
    return {path.stem: bytes.fromhex(path.read_text()) for path in (ROOT / "tests/golden/wire").glob("*.hex")}


def codec():
    """Returns inputs of fuzz_codec.c: a byte for the form, and the struct."""
    leaves, stamps = [[-5, None], [70000, "two words"]], struct.pack("<2q", -1, 2**63 - 1)
    whole = {"version": 1, "scale": 0.5, "name": "a tree", "note": "Z\u00fcrich", "shape": [1, 2**40, 0], "leaves": leaves,
             "extra": [0, ""], "stamps": stamps, "seed": 0}
    bare = {"version": 65535, "name": ""}
    return {
        "map": b"\1" + msgpack.packb(whole),
        "map_bare": b"\1" + msgpack.packb(bare),
        "map_newer": b"\1" + msgpack.packb({**bare, "more": [{"a": 1.5}, -7, None], "leaves": None}),
        "row": b"\0" + msgpack.packb(list(whole.values())),
        "row_bare": b"\0" + msgpack.packb([bare.get(key, None) for key in whole]),
    }


GROUP, DATASET, PROBLEM = range(3)
PLAIN, STRING, TEXT, VARIABLE, FOREIGN = range(5)
F32, U8 = 3, 9


def node(kind, path, form=PLAIN, dtype=0, type="", shape=(), storage="", attributes=0):
    return [kind, path, form, dtype, type, list(shape), storage, attributes]


def numbers(path, dtype, *shape):
    return node(DATASET, path, PLAIN, dtype, {F32: "f32", U8: "u8"}[dtype], shape, "contiguous")


def tree():
    demos = [node(GROUP, "", attributes=1), node(GROUP, "data")]
    for i in range(4):
        demos += [node(GROUP, f"data/demo_{i}"), numbers(f"data/demo_{i}/actions", F32, 10 + i, 7),
                  numbers(f"data/demo_{i}/obs/q", F32, 11 + i, 7)]
    cameras = [node(GROUP, ""), numbers("action", F32, 10, 7)]
    for i in range(2):
        cameras += [node(GROUP, f"cam_{i}"), numbers(f"cam_{i}/rgb", U8, 10, 4, 4, 3)]
    forms = [node(GROUP, ""), node(DATASET, "a", TEXT, type="text", storage="contiguous"),
             node(DATASET, "b", STRING, type="S12", shape=[5], storage="contiguous"),
             node(DATASET, "c", VARIABLE, type="u8 of variable length", shape=[5], storage="contiguous"),
             node(DATASET, "d", FOREIGN, type="compound", shape=[5], storage="contiguous"),
             node(PROBLEM, "e", storage="a link that leads nowhere")]
    trees = {"demos": [None, False, demos, [["fps", "30"]]], "forms": [None, True, forms, []],
             "one": [None, False, cameras, []], "refused": ["not readable as HDF5", False, [], []]}
    return {name: msgpack.packb(content) for name, content in trees.items()}


def without_comments(path):
    lines = (re.sub(r"(^|\s+)#.*", "", line) for line in path.read_text(encoding="utf-8").splitlines())
    return "".join(line + "\n" for line in lines if line.strip()).encode()


def layout():
    return {path.name: without_comments(path) for path in (ROOT / "configs/layouts").glob("*.yaml")}


def config():
    return {"trajd.yaml": without_comments(ROOT / "configs/trajd.yaml"), "many_keys.yaml": CONFIG.encode(),
            "value": b"memory.store=50%\n" + CONFIG.encode()}


# ---- journal: operations of fuzz_journal.c ----

BEGIN, PRODUCE, DONE, SESSIONS, SAVE, FLUSH, OPEN, SWEEP, CUT, BYTES, WORD, SEAL = range(12)
PAGE = 4096


def number(value):
    """Returns a number as value << shift, in two bytes. It must have the form."""
    shift = max(value.bit_length() - 8, 0)
    assert value >> shift << shift == value
    return bytes([value >> shift, shift])


def operation(kind, *numbers):
    return bytes([kind]) + b"".join(map(number, numbers))


def begin(epoch=3, requested=0, begins=0, length=960, batch=9, high=0, undone=()):
    steps = [u - previous - 1 for previous, u in zip((-1, *undone), undone)]
    return (operation(BEGIN, 11, 22, epoch, requested, begins, length, batch, high, 5, 2) + bytes([len(undone)] + steps))


def change(place, value, kind=WORD):
    return bytes([kind]) + struct.pack("<H", place) + number(value)


def cut(size):
    return change(size, 0, CUT)


def journal():
    head, record = 0, 8192  # of the first epoch
    run, days, length, batch, run_of_record, high, undone = 16, 32, 40, 48, 56, 72, 256
    written = begin() + b"".join(operation(PRODUCE, i) for i in range(12)) + operation(DONE, 0) + operation(DONE, 7)
    saved = written + operation(SAVE)
    again, seal = bytes([OPEN]), change(0, 0, SEAL)
    return {
        "epoch": saved + again + operation(DONE, 3) + again,
        "two_epochs": saved + begin(epoch=4) + operation(PRODUCE, 0) + operation(DONE, 0) + operation(SAVE) + again,
        "begins_later": begin(begins=64, high=20, undone=(1, 5, 19)) + operation(DONE, 5) + operation(SAVE) + again,
        "no_file": begin() + operation(PRODUCE, 0) + operation(SAVE) + again,
        "cut_off": saved + cut(4096) + operation(DONE, 3) + operation(SAVE) + bytes([FLUSH]) + again,
        "emptied": saved + cut(0) + bytes([FLUSH]) + again,
        "damaged_head": saved + change(head, 77) + again + written + operation(SAVE) + again,
        "other_version": saved + change(head + 8, 1) + again,
        "damaged_word": saved + change(record + undone, 1) + again,
        "damaged_byte": saved + change(record + high, 1, BYTES) + again,
        "sealed_twice_undone": saved + change(record + undone, 4) + change(record + undone + 8, 4) + seal + again,
        "sealed_batch_0": saved + change(record + batch, 0) + seal + again,
        "sealed_batch_large": saved + change(record + batch, 255 << 56) + seal + again,
        "sealed_length": saved + change(record + length, 255 << 56) + seal + again,
        "sealed_high": saved + change(record + high, 255 << 40) + seal + again,
        "sealed_run": saved + change(head + run, 255 << 56) + change(4096 + run_of_record, 255 << 56) + seal + again,
        "days": saved + change(head + days, 200) + operation(SWEEP, 1 << 56) + again + operation(SWEEP, 0) + again,
        "sessions": saved + operation(SESSIONS, 255 << 8) + operation(SESSIONS, 255 << 24) + again,
    }


# ---- checkpoint ----

def token(*words, undone=()):
    words = [int.from_bytes(b"TRJTOKN1", "little"), *words, len(undone), *undone]
    check = words[0]
    for word in words:
        check = (check ^ word) * 0xbf58476d1ce4e5b9 % (1 << 64)
        check ^= check >> 29
    return struct.pack(f"<{len(words) + 1}Q", *words, check)


def checkpoint():
    return {
        "begun": token(11, 22, 3, 0, 0, 1000, 10, 0),
        "undone": token(11, 22, 3, 64, 64, 1000, 10, 40, undone=(1, 5, 39)),
        "impossible": token(11, 22, 3, 64, 64, 1000, 0, 40, undone=(41, 5)),
        "version_2": token(11, 22, 3, 0, 0, 1000, 10, 0).replace(b"TRJTOKN1", b"TRJTOKN2"),
    }


# ---- frames of the helper program ----

READY, RECORD, WRITER_READY, OFFSETS, NOTE, WRITER_DONE, FAILED = 3, 4, 23, 24, 25, 26, 27


def frame(kind, body=b"", length=None):
    return struct.pack("<IIQ", 0x58494A54, kind, len(body) if length is None else length) + body


def helper_frames():
    failed = struct.pack("<I", 28) + b"out.hdf5: No space left on device"
    return {
        "record": frame(READY) + frame(RECORD, b"bytes of a record"),
        "too_long": frame(RECORD, b"", 1 << 40),
        "cut_off": frame(RECORD, b"some of it", 100000),
        "no_magic": bytes(32),
        "offsets": frame(WRITER_READY) + frame(OFFSETS, struct.pack("<2Q", 4096, 2**64 - 1)),
        "note": frame(NOTE, b"a note\nof two lines %s") + frame(OFFSETS) + frame(WRITER_DONE),
        "failed": frame(FAILED, failed),
        "failed_short": frame(FAILED, b"\x1c"),
        "failed_bare": frame(FAILED, failed[:4]),
    }


# ---- messages of resample.sock ----

MEMORY, NULL_FILE, SOCKET, FOLDER = range(4)


def resample(body, count=1, kind=MEMORY, seals=SEALS, pages=1 | 8, op=9, content=ASKED):
    """Returns an input of fuzz_resample_messages.c. `pages` with the bit 8: they are allocated."""
    message = b"TRJD" + bytes([1, op, 0, 0]) + msgpack.packb(body)
    return bytes([kind, count, seals, pages]) + struct.pack("<H", len(message)) + message + content


def resample_messages():
    size = len(block())
    whole = {"request": 1, "size": size}
    return {
        "who": resample({"request": 7}, count=0, content=b""),
        "block": resample(whole),
        "no_descriptor": resample(whole, count=0),
        "two_descriptors": resample(whole, count=2),
        "not_sealed": resample(whole, seals=0),
        "sealed_against_writing": resample(whole, seals=SEALS | fcntl.F_SEAL_WRITE),
        "holes": resample(whole, pages=1),
        "short": resample({"request": 1, "size": 1 << 40}),
        "no_block": resample({"request": 1, "size": 64}, content=b""),
        "null_file": resample(whole, kind=NULL_FILE),
        "socket": resample(whole, kind=SOCKET),
        "folder": resample(whole, kind=FOLDER),
        "other_message": resample({"request": 1}, op=6),
        "empty": bytes([MEMORY, 1, SEALS, 1, 0, 0]),
    }


# ---- images: frames, and the packets of both sides of decode_protocol.h ----

DEPTH, RGB, BGR, GRAY, PREPARED = 0, 1, 2, 3, 4
JPEG = 4


def image(name):
    return (ROOT / "tests/golden/decoded" / name).read_bytes()


def decode_frame():
    colours = {"420.jpg": RGB, "progressive.jpg": BGR, "restart.jpg": RGB | PREPARED, "gray.jpg": GRAY, "turned.jpg": RGB, "cmyk.jpg": RGB,
               "rgb.png": RGB, "gray.png": GRAY | PREPARED, "depth.png": DEPTH, "alpha.png": RGB, "palette_transparent.png": RGB, "gray_transparent.png": GRAY}
    made = {name: bytes([colour, 0]) + image(name) for name, colour in colours.items()}
    return made | {"one.jpg": bytes([RGB, 1]) + jpeg(1, 1, components=3), "one.png": bytes([RGB, 1]) + png(1, 1),
                   "scans": bytes([RGB, 2]) + jpeg_of_many_scans(8, 8, 9), "passes": bytes([RGB, 3]) + png(48, 17, interlace=1),
                   "bands": bytes([RGB, 2]) + progressive(8, 8, 9), "raw": bytes([GRAY, 2]) + bytes(64),
                   "written.jpg": bytes([RGB | PREPARED, JPEG]) + image("420.jpg"),
                   "written_gray.jpg": bytes([GRAY | PREPARED, JPEG]) + image("gray.png")}


def decode_reply():
    good = {str(count): bytes([count - 1, count, 0]) for count in (1, 2, 32)}
    return good | {"reasons": bytes([1, 2, 0]) + b"Not a JPEG file\n".ljust(160, b"\0") + b"\xff" * 160,
                   **{f"damage_{bit}": bytes([1, 2, 1 << bit]) for bit in range(6)},
                   "jpegs": bytes([1, 2, 1 << 6]) + struct.pack("<2I", 11, 1 << 30)}


def decode_job():
    frame = image("420.jpg")
    changes = bytes([2, 9, 0, 1, 60, 0, 7])
    return {"plain": bytes([0, 0]) + frame, "prepared": bytes([1, 0]) + frame, "changed": bytes([1]) + changes + frame,
            "two_setups": bytes([2, 0]) + frame, "two_setups_changed": bytes([3]) + changes + frame}


def image_prepare():
    noise = bytes(i * 37 % 251 for i in range(300))
    made = {f"filter_{f}": bytes([40, 50, 3, 0, 2, 3, 30, 40, f, 12, 13, 2, 253, 20, 15, 9]) + noise for f in range(8)}
    return made | {"depth": bytes([40, 50, 1, 2, 0, 0, 40, 50, 7, 60, 61, 0, 0, 60, 61, 0]) + noise}


def zmtp():
    start = flood.GREETING + flood.READY
    frames = b"".join(flood.frame(bytes(size), flags=more) for size in (0, 33, 300) for more in (1, 0))
    ping = flood.frame(b"\x04PING\0\0", flags=4)
    return {"frames": b"\x50" + start + frames + ping, "ready": b"\x45" + start + ping,
            "identity": b"\x45" + flood.GREETING + flood.ready(b"one"), "subscribe": b"\x70" + start + flood.frame(b"\x09SUBSCRIBE", flags=4),
            "long": b"\x6c" + start + struct.pack(">BQ", 2, 1 << 40)}


MAKERS = (wire, codec, tree, layout, config, journal, checkpoint, helper_frames, resample_messages, decode_frame, decode_reply, decode_job, image_prepare, zmtp)


def corpora():
    """Returns {path below the corpus: bytes}."""
    return {f"{maker.__name__}/{name}": content for maker in MAKERS for name, content in maker().items()}


def main():
    for path, content in corpora().items():
        (CORPUS / path).parent.mkdir(exist_ok=True)
        (CORPUS / path).write_bytes(content)


if __name__ == "__main__":
    main()
