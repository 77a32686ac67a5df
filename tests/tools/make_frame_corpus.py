"""Writes the corpora of fuzz/encoded, fuzz/video and fuzz/image_header: build/venv/bin/python tests/tools/make_frame_corpus.py"""
import pathlib
import struct
import zlib

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "golden/fuzz"
PADDED, STRING, HEAP, PACKED = range(4)  # as fuzz_encoded.c counts them


def heap_object(index, data):
    return struct.pack("<HHIQ", index, 1, 0, len(data)) + data + bytes(-len(data) % 8)


def collection(*objects, size=512):
    body = b"".join(objects)
    free = size - 16 - len(body)
    return b"GCOL\1\0\0\0" + struct.pack("<Q", size) + body + struct.pack("<HHIQ", 0, 0, 0, free) + bytes(free - 16)


def reference(length, place, index):
    return struct.pack("<IQI", length, place, index)


def write_encoded(folder):
    def write(name, form, rows, width, offset, payload, size, file):
        (folder / name).write_bytes(bytes([form, rows, width, offset, payload, size]) + file)
    words = [b"a", b"of five", b"a longer row of bytes " * 5]
    heap = collection(*(heap_object(i + 1, word) for i, word in enumerate(words)))
    references = b"".join(reference(len(word), 64, i + 1) for i, word in enumerate(words)) + reference(0, 0, 0)
    write("heap", HEAP, 4, 0, 0, 0, 0, references + heap)
    write("heap_of_two", HEAP, 2, 0, 0, 0, 0, reference(1, 64, 1) + reference(7, 64 + 512, 2) + bytes(32) + heap + heap)
    large = collection(*(heap_object(i + 1, bytes([i]) * 200) for i in range(40)), size=16384)
    write("heap_larger_than_one_read", HEAP, 3, 0, 0, 0, 0,
          b"".join(reference(200, 64, i) for i in (1, 30, 40)) + bytes(16) + large)
    write("padded", PADDED, 3, 8, 0, 0, 0, b"row\0\0\0\0\0" + b"12345678" + bytes(8))
    write("strings", STRING, 2, 5, 3, 0, 0, b"...ab\0\0\0abcde")
    write("packed", PACKED, 3, 0, 0, 2, 4, struct.pack("<4q", 0, 5, 5, 60) + bytes(range(64)))


def write_video(folder):
    def write(name, rows, packets, units, ends, extradata, payload):
        packets = [(at, size, zlib.crc32(payload[max(at, 0):at + size])) for at, size in packets]

        def table(width, entries):
            return b"".join(struct.pack(f"<{width}q", *entry) for entry in entries)
        (folder / name).write_bytes(bytes([len(rows), len(packets), len(units), len(ends), len(extradata)])
                                    + struct.pack(f"<{len(rows)}q", *rows) + table(3, packets) + table(3, units) + table(1, ends)
                                    + extradata + payload)
    whole = bytes(range(32))
    write("two_units", [1, 0, 3, 2], [(0, 7), (7, 9), (16, 8), (24, 8)], [(0, 0, 0), (2, 2, 1)], [(3,), (5,)], b"extra", whole)
    write("gaps", [1, 0], [(20, 7), (0, 9), (9, 1)], [(0, 0, 0)], [(0,)], b"", whole)
    write("bad_row", [0, 5], [(0, 7), (7, 9)], [(0, 0, 0)], [(0,)], b"", whole)
    write("bad_packet", [0], [(-1, 7)], [(0, 0, 0)], [(0,)], b"", whole)


def jpeg(height, width, components, marker=0xC0):
    frame = struct.pack(">BHHB", 8, height, width, components) + b"\1\x11\0" * components
    return (b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xff\xff" + bytes([marker])
            + struct.pack(">H", len(frame) + 2) + frame + b"\xff\xda\0\2..\xff\xd9")


def png(height, width, bits, color):
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0) + bytes(4)


def write_images(folder):
    depth, rgb, gray = 0, 4, 12  # encoding 0 finds the encoding
    for name, head, row in [("jpeg", bytes([rgb, 0]), jpeg(480, 640, 3)), ("gray", bytes([gray, 0]), jpeg(24, 32, 1)),
                            ("progressive", bytes([rgb, 32]), jpeg(32, 32, 3, 0xC2)), ("png", bytes([rgb, 0]), png(24, 32, 8, 2)),
                            ("depth", bytes([depth, 0]), png(24, 32, 16, 0)), ("raw", bytes([rgb, 4]), bytes(range(48))),
                            ("raw_depth", bytes([depth, 4]), bytes(range(64)))]:
        (folder / name).write_bytes(head + row)


if __name__ == "__main__":
    for name, write in ("encoded", write_encoded), ("video", write_video), ("image", write_images):
        (CORPUS / name).mkdir(exist_ok=True)
        write(CORPUS / name)
