"""Frames from hostile files, decoded by the real helper program: each one gives the right pixels or a plain reason, in bounded time
and memory."""
import os
import struct
import subprocess
import zlib

import pytest

from hostile_images import (blocks, chunk, cut_between_scans, dc_bits, entropy, exif, jpeg, jpeg_head, jpeg_of_many_scans, png, png_rows, progressive, scan,
                              segment)
from paths import BUILD, PROGRAM, ROOT

GOLDEN = ROOT / "tests/golden/decoded"
HEIGHT, WIDTH, POISON = 29, 42, 0xA5
MOST_KILOBYTES = 2 << 20  # of any process
MOST_SECONDS = 30  # of processor time, of all processes


def decode(folder, frames, height=HEIGHT, width=WIDTH, colour="rgb", bits=8):
    """Returns [(reason, pixels)]."""
    paths = [folder / str(i) for i in range(len(frames))]
    for path, data in zip(paths, frames):
        path.write_bytes(data)
    decoder = PROGRAM.parent / "decode/trajd-decoder"
    command = [BUILD / "tests/support/decode_frames", decoder, colour, bits, height, width, folder / "out", *paths]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    reasons, errors = process.stdout.read().split("\n")[:-1], process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0, errors
    assert "ERROR" not in errors and "runtime error" not in errors, errors  # of a sanitizer, in the helper
    assert usage.ru_maxrss < MOST_KILOBYTES and usage.ru_utime + usage.ru_stime < MOST_SECONDS
    pixels = (folder / "out").read_bytes()
    assert len(reasons) == len(frames)
    size = len(pixels) // len(frames)
    return [(reason, pixels[i * size:(i + 1) * size]) for i, reason in enumerate(reasons)]


def check_good(results, expected):
    for reason, pixels in results:
        assert reason == "" and pixels == expected


def check_bad(results, *words):
    """Each frame is bad, its reason has one of the words, and its pixels are untouched."""
    for i, (reason, pixels) in enumerate(results):
        assert reason, f"frame {i} is good"
        assert any(word in reason for word in words), reason
        assert "the image library" not in reason and pixels == bytes([POISON]) * len(pixels)


def golden(name):
    return (GOLDEN / name).read_bytes()


def flat(value, channels=3):
    return bytes([value]) * (HEIGHT * WIDTH * channels)


@pytest.mark.parametrize("name", ["420.jpg", "progressive.jpg", "restart.jpg", "rgb.png"])
def test_a_image_that_is_cut_off(tmp_path, name):
    data = golden(name)
    cuts = [data[:size] for size in range(0, len(data), 64)] + [data[:-1], data[:-2]]
    assert all(reason for reason, _ in decode(tmp_path, cuts))
    check_good(decode(tmp_path, [data]), golden(name + ".pixels"))


def test_a_image_that_is_cut_between_its_scans(tmp_path):
    """What is there is whole, and the library makes up the rest without a warning."""
    of_components = jpeg_of_many_scans(HEIGHT, WIDTH, 3, 200)
    for data in golden("progressive.jpg"), progressive(HEIGHT, WIDTH, 33, 200), of_components:
        assert len(cut_between_scans(data)) > 1
        check_bad(decode(tmp_path, cut_between_scans(data)), "some of its scans are missing")
    check_good(decode(tmp_path, [of_components]), flat(200))
    end = b"\xff\xd9"
    whole = golden("420.jpg")
    check_bad(decode(tmp_path, [whole[:len(whole) * k // 5] + end for k in (2, 3, 4)]), "Corrupt JPEG data", "Premature end")
    rows = png_rows(HEIGHT, WIDTH, b"\xc8" * 3, interlace=1)
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, interlace=1, rows=rows[:len(rows) * k // 7]) for k in range(7)]), "IDAT", "data")


def test_zero_length_and_no_image(tmp_path):
    (empty, _), *others = decode(tmp_path, [b"", b"\xff\xd8\xff\xd9", b"\x89PNG\r\n\x1a\n", b"GIF89a" + bytes(100), b"\xff" * 500])
    assert empty == "the row is empty"
    check_bad(others, "JPEG", "PNG", "begin neither")


def test_each_way_to_write_a_jpeg(tmp_path):
    frames = [jpeg(HEIGHT, WIDTH, 200, 3), jpeg(HEIGHT, WIDTH, 200, 3, restart=3), jpeg_of_many_scans(HEIGHT, WIDTH, 100, 200),
              progressive(HEIGHT, WIDTH, 33, 200), jpeg(HEIGHT, WIDTH, 200, 3, before=exif(1)),
              jpeg(HEIGHT, WIDTH, 200, 3, frame=0xC1)]
    check_good(decode(tmp_path, frames), flat(200))
    check_good(decode(tmp_path, [jpeg(HEIGHT, WIDTH, 7)], colour="gray"), flat(7, 1))


def test_what_follows_a_image_is_left_alone(tmp_path):
    first, second = jpeg(HEIGHT, WIDTH, 200, 3), jpeg(HEIGHT, WIDTH, 10, 3)
    check_good(decode(tmp_path, [first + bytes(1000), first + second, first + b"\xff" * 64, first + golden("rgb.png")]), flat(200))
    small = png(HEIGHT, WIDTH, b"\xc8" * 3)
    check_good(decode(tmp_path, [small + b"garbage" * 50, small + small]), flat(200))


def test_one_pixel(tmp_path):
    check_good(decode(tmp_path, [jpeg(1, 1, 90, 3), png(1, 1, b"\x5a" * 3)], 1, 1), b"\x5a" * 3)


def test_forms_of_jpeg_that_are_refused(tmp_path):
    check_bad(decode(tmp_path, [jpeg(HEIGHT, WIDTH, 90, 3, precision=12)]), "with other than 8 bits")
    arithmetic = [jpeg(HEIGHT, WIDTH, 90, 3, frame=frame) for frame in (0xC3, 0xC5, 0xC9, 0xCA, 0xCB, 0xCF)]
    check_bad(decode(tmp_path, arithmetic), "neither baseline nor progressive")
    check_bad(decode(tmp_path, [golden("cmyk.jpg"), jpeg(HEIGHT, WIDTH, 90, 4)]), "a CMYK JPEG is not supported")
    check_bad(decode(tmp_path, [jpeg(HEIGHT, WIDTH, 90, 3, before=exif(turn)) for turn in (0, 2, 3, 6, 8, 9)]), "must be turned")


def test_another_size_than_the_streams(tmp_path):
    frames = [make(height, width) for make in (lambda *size: jpeg(*size, components=3), png)
              for height, width in ((HEIGHT - 1, WIDTH), (HEIGHT, WIDTH + 1), (WIDTH, HEIGHT), (8000, 4000))]
    check_bad(decode(tmp_path, frames), "the others have 29x42")


def test_a_size_that_the_data_do_not_have(tmp_path):
    """The header states the stream's size; the data behind it are those of a smaller or larger image."""
    def restate(data, at, layout):
        return data[:at] + struct.pack(layout, *((HEIGHT, WIDTH) if layout == ">HH" else (WIDTH, HEIGHT))) + data[at + struct.calcsize(layout):]

    small, large = jpeg(8, 8, components=3), jpeg(100, 100, components=3)
    frames = [restate(data, data.index(b"\xff\xc0") + 5, ">HH") for data in (small, large)]
    check_bad(decode(tmp_path, frames), "Premature end", "Corrupt JPEG data")
    rows = png_rows(HEIGHT - 1, WIDTH, b"\0\0\0")
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, rows=rows)]), "IDAT", "data")


@pytest.mark.parametrize("height, width", [(0, 10), (10, 0), (8193, 8), (8, 8193), (8192, 8192), (65535, 65535)])
def test_sizes_out_of_bounds(tmp_path, height, width):
    """The library must not see them; the size of the stream does not matter."""
    heads = [jpeg_head(height, width, 3) + scan([0, 1, 2], b"\0" * 99), png(height, width, rows=b"")]
    check_bad(decode(tmp_path, heads), "a side has 1 to 8192 pixels")


def test_progressive_bombs(tmp_path):
    """A few kilobytes that ask for a hundred passes over 32 million pixels."""
    height, width = 8000, 4000
    bomb = progressive(height, width)
    assert len(bomb) < 1 << 20
    check_bad(decode(tmp_path, [bomb], height, width), "more than 100 scans")
    check_bad(decode(tmp_path, [progressive(HEIGHT, WIDTH, 34), jpeg_of_many_scans(HEIGHT, WIDTH, 101)]), "more than 100 scans")


def test_jpeg_tables_that_are_damaged(tmp_path):
    def frame(*segments):
        return (b"\xff\xd8" + b"".join(segments)
                + jpeg_head(HEIGHT, WIDTH, 3)[2:] + scan([0, 1, 2], entropy(dc_bits(90) * blocks(HEIGHT, WIDTH))) + b"\xff\xd9")

    frames = [frame(segment(0xC4, b"\0" + b"\xff" * 16)), frame(segment(0xC4, b"\x05" + b"\x01" * 20)), frame(segment(0xDB, b"\x0f" + bytes(64))),
              frame(segment(0xDD, b"\0")), frame(segment(0xDA, b"\0")), frame()]
    check_bad(decode(tmp_path, frames), "JPEG", "Bogus", "Corrupt", "DHT", "DQT", "marker", "Huffman", "frame header")


def test_each_way_to_write_a_png(tmp_path):
    pixel = b"\xc8" * 3
    text = chunk(b"tEXt", b"Comment\0" + b"x" * 1000)
    check_good(decode(tmp_path, [png(HEIGHT, WIDTH, pixel), png(HEIGHT, WIDTH, pixel, interlace=1), png(HEIGHT, WIDTH, pixel, before=text),
                                 png(HEIGHT, WIDTH, pixel, after=text), png(HEIGHT, WIDTH, pixel, before=chunk(b"tRNS", bytes(6)))]), flat(200))
    check_good(decode(tmp_path, [png(HEIGHT, WIDTH, b"\x07", colour=0), png(HEIGHT, WIDTH, b"\x07", colour=0, interlace=1)], colour="gray"),
               flat(7, 1))
    colours = b"\0\0\0" + pixel
    check_good(decode(tmp_path, [png(HEIGHT, WIDTH, b"\1", colour=3, before=chunk(b"PLTE", colours)),
                                 png(HEIGHT, WIDTH, b"\1", colour=3, before=chunk(b"PLTE", colours) + chunk(b"tRNS", b"\xff\0"), interlace=1),
                                 png(HEIGHT, WIDTH, pixel + b"\0", colour=6), png(HEIGHT, WIDTH, pixel + b"\x80", colour=6, interlace=1)]),
               flat(200))
    check_good(decode(tmp_path, [png(HEIGHT, WIDTH, b"\x07\0", colour=4)], colour="gray"), flat(7, 1))
    deep = [png(HEIGHT, WIDTH, b"\x12\x34", colour=0, bits=16, interlace=interlace) for interlace in (0, 1)]
    check_good(decode(tmp_path, deep, colour="depth", bits=16), b"\x34\x12" * (HEIGHT * WIDTH))


def test_forms_of_png_that_are_refused(tmp_path):
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, bytes(2), colour=4), png(HEIGHT, WIDTH, b"\0", colour=0)]), "a png in grey, the layout says rgb")
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, b"\0", colour=3, before=chunk(b"PLTE", bytes(6))), png(HEIGHT, WIDTH, bytes(4), colour=6)],
                     colour="gray"), "a png in colour, the layout says gray")
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, b"\0", colour=3), png(HEIGHT, WIDTH, b"\0", colour=7)]), "PLTE", "Invalid")
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, bytes(6), bits=16)]), "16 bits a value")
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, b"\0", colour=0, bits=4)], colour="gray"), "4 bits a value")


def test_a_png_that_is_damaged(tmp_path):
    data = golden("rgb.png")
    frames = []
    for name in (b"IHDR", b"IDAT"):  # its checksum
        at = data.index(name)
        end = at + 4 + struct.unpack(">I", data[at - 4:at])[0]
        frames.append(data[:end] + bytes([data[end] ^ 1]) + data[end + 1:])
    middle = data.index(b"IDAT") + 100
    frames += [data[:middle] + b"\0" * 20 + data[middle + 20:], data.replace(b"IDAT", b"IDAX"),
               png(HEIGHT, WIDTH, rows=b"\x09" * len(png_rows(HEIGHT, WIDTH, b"\0\0\0")))]  # there is no filter 9
    check_bad(decode(tmp_path, frames), "CRC", "IDAT", "filter", "Missing", "unknown critical")


def test_png_bombs(tmp_path):
    """Data that expand to a thousand times what the image has, in each place that is compressed."""
    zeros = bytes(64 << 20)
    packed = zlib.compress(zeros, 9)
    for bomb in (png(HEIGHT, WIDTH, rows=png_rows(HEIGHT, WIDTH, b"\xc8" * 3) + zeros),
                 png(HEIGHT, WIDTH, b"\xc8" * 3, before=chunk(b"zTXt", b"Comment\0\0" + packed)),
                 png(HEIGHT, WIDTH, b"\xc8" * 3, before=chunk(b"iCCP", b"profile\0\0" + packed)),
                 png(HEIGHT, WIDTH, b"\xc8" * 3, before=chunk(b"iTXt", b"Comment\0\1\0\0\0" + packed)),
                 png(HEIGHT, WIDTH, b"\xc8" * 3, before=chunk(b"tEXt", b"Comment\0x") * 20000)):
        ((reason, pixels),) = decode(tmp_path, [bomb])
        assert "the image library" not in reason
        assert reason or pixels == flat(200)
    check_bad(decode(tmp_path, [png(HEIGHT, WIDTH, rows=png_rows(HEIGHT, WIDTH, b"\xc8" * 3) + zeros)]), "IDAT", "data")
    largest = png(8000, 4000, rows=zeros)  # 96 MB of pixels, of which 64 MiB are there
    check_bad(decode(tmp_path, [largest], 8000, 4000), "IDAT", "data")


def test_a_bad_frame_costs_only_itself(tmp_path):
    good = jpeg(HEIGHT, WIDTH, 200, 3)
    results = decode(tmp_path, [good, golden("cmyk.jpg"), b"", good, good[:-5], good])
    check_good([results[0], results[3], results[5]], flat(200))
    check_bad([results[1], results[4]], "CMYK", "JPEG", "Premature")
