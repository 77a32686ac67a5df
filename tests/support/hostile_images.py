"""Makes JPEG and PNG files byte by byte, so that each rule of the formats can be broken. Images are of one colour."""
import re
import struct
import zlib

# ---- JPEG (ITU T.81). Quantisation is 1, so a block of the value v has the DC coefficient 8 * (v - 128), and all else is 0 ----

DC_CODES = bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12))  # each category of differences has a code of 4 bits: its number
EOB_CODES = bytes([0, 0, 0, 15] + [0] * 12) + bytes(16 * i for i in range(15))  # ends of blocks: runs of 2^i, 4 bits each
PLAIN_END, DC_ZERO = "0000", "0000"


def segment(marker, content):
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def dc_bits(value):
    """Returns the code of the difference from 0 to the DC coefficient of a block of `value`."""
    difference = 8 * (value - 128)
    size = abs(difference).bit_length()
    rest = difference if difference > 0 else difference + (1 << size) - 1
    return f"{size:04b}" + (f"{rest:0{size}b}" if size else "")


def entropy(bits):
    """Returns the bits as bytes, filled up with ones, with a zero byte behind each 0xFF."""
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")


def jpeg_head(height, width, components, frame=0xC0, precision=8, before=b"", restart=0):
    sof = struct.pack(">BHHB", precision, height, width, components) + b"".join(bytes([i + 1, 0x11, 0]) for i in range(components))
    interval = segment(0xDD, struct.pack(">H", restart)) if restart else b""
    return (b"\xff\xd8" + before + segment(0xDB, b"\0" + b"\x01" * 64) + segment(frame, sof) + segment(0xC4, b"\0" + DC_CODES)
            + segment(0xC4, b"\x10" + EOB_CODES) + interval)


def scan(numbers, bits, begin=0, end=63, low=0):
    head = bytes([len(numbers)]) + b"".join(bytes([n + 1, 0]) for n in numbers) + bytes([begin, end, low])
    return segment(0xDA, head) + bits


def blocks(height, width):
    return -(-height // 8) * -(-width // 8)


def jpeg(height, width, value=90, components=1, restart=0, **head):
    """A sequential JPEG: one scan of all components. Colours are grey."""
    first = "".join(dc_bits(value if c == 0 else 128) + PLAIN_END for c in range(components))
    other, count = (DC_ZERO + PLAIN_END) * components, blocks(height, width)
    step, parts = restart or count, []
    for i, begin in enumerate(range(0, count, step)):
        marker = bytes([0xFF, 0xD0 + (i - 1) % 8]) if i else b""
        parts.append(marker + entropy(first + other * (min(step, count - begin) - 1)))
    data = jpeg_head(height, width, components, restart=restart, **head)
    return data + scan(range(components), b"".join(parts)) + b"\xff\xd9"


def jpeg_of_many_scans(height, width, scans, value=90):
    """A sequential JPEG whose first component comes again and again: valid, but for no purpose."""
    count = blocks(height, width)
    first = scan([0], entropy(dc_bits(value) + PLAIN_END + (DC_ZERO + PLAIN_END) * (count - 1)))
    grey = scan([1], entropy((DC_ZERO + PLAIN_END) * count)) + scan([2], entropy((DC_ZERO + PLAIN_END) * count))
    return jpeg_head(height, width, 3) + grey + first * (scans - 2) + b"\xff\xd9"


def run_bits(count):
    """Returns codes that end `count` blocks."""
    bits = ""
    while count:
        size = min(count.bit_length() - 1, 14)
        run = min(count, (2 << size) - 1)
        bits += f"{size:04b}" + (f"{run - (1 << size):0{size}b}" if size else "")
        count -= run
    return bits


def progressive(height, width, bands=63, value=90):
    """A progressive JPEG whose coefficients come in `bands` scans for each of three components: 1 + 3 * bands scans."""
    count = blocks(height, width)
    first = dc_bits(value) + DC_ZERO * 2
    data = scan([0, 1, 2], entropy(first + DC_ZERO * 3 * (count - 1)), 0, 0)
    band = entropy(run_bits(count))
    for component in range(3):
        data += b"".join(scan([component], band, 1 + 63 * k // bands, 63 * (k + 1) // bands) for k in range(bands))
    return jpeg_head(height, width, 3, frame=0xC2) + data + b"\xff\xd9"


def cut_between_scans(data):
    """Returns a JPEG cut behind each of its scans but the last, with an end marker."""
    ends = [re.compile(rb"\xff[^\x00\xd0-\xd7]").search(data, scan.end()).start() for scan in re.finditer(rb"\xff\xda..", data)]
    return [data[:end] + b"\xff\xd9" for end in ends[:-1]]


def exif(orientation):
    return segment(0xE1, b"Exif\0\0II*\0" + struct.pack("<IHHHII", 8, 1, 0x0112, 3, 1, orientation) + bytes(4))


# ---- PNG ----

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def ihdr(height, width, colour=2, bits=8, interlace=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlace))


def png_rows(height, width, pixel, interlace=0):
    """Returns the unfiltered rows: of the whole image, or of Adam7's seven passes."""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)] if interlace else [(0, 0, 1, 1)]
    rows = b""
    for top, left, down, right in passes:
        columns = len(range(left, width, right))
        rows += (b"\0" + pixel * columns) * (len(range(top, height, down)) if columns else 0)
    return rows


def png(height, width, pixel=b"\x10\x20\x30", colour=2, bits=8, interlace=0, before=b"", after=b"", rows=None):
    rows = png_rows(height, width, pixel, interlace) if rows is None else rows
    return (SIGNATURE + ihdr(height, width, colour, bits, interlace) + before + chunk(b"IDAT", zlib.compress(rows, 9)) + after
            + chunk(b"IEND", b""))
