"""Numbers and images that are the same on every machine, with every numpy: whole numbers, sums,
products and roots alone."""

import struct
import zlib

import numpy as np

MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
GOLDEN = 0x9E3779B97F4A7C15


class Draw:
    """A stream of numbers of a seed: splitmix64."""

    def __init__(self, seed):
        self.at = np.uint64(seed * 1_000_003 + 17)

    def bits(self, count):
        """Returns this number of values of 64 random bits."""
        with np.errstate(over="ignore"):
            z = (self.at + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(GOLDEN)
            self.at += np.uint64(count)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX[0])
            z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX[1])
            return z ^ (z >> np.uint64(31))

    def uniform(self, *shape, low=0.0, high=1.0):
        count = int(np.prod(shape, dtype=np.int64))
        unit = (self.bits(count) >> np.uint64(11)).astype(np.float64) / 2.0**53
        return (low + (high - low) * unit).reshape(shape)

    def integers(self, low, high, *shape):
        """Returns whole numbers from low to high - 1."""
        count = int(np.prod(shape, dtype=np.int64))
        return (low + (self.bits(count) % np.uint64(high - low)).astype(np.int64)).reshape(shape)

    def walk(self, rows, columns, step=0.1):
        """Returns rows that move by at most `step` from one to the next, as joints do."""
        return np.cumsum(self.uniform(rows, columns, low=-step, high=step), axis=0)

    def quaternions(self, rows, step=0.15):
        """Returns unit quaternions of a slow rotation. Some rows have the other sign, as recorders
        write them."""
        q = self.walk(rows, 4, step) + np.array([0.3, -0.5, 0.4, 0.7])
        length = np.sqrt(
            q[:, 0] * q[:, 0] + q[:, 1] * q[:, 1] + q[:, 2] * q[:, 2] + q[:, 3] * q[:, 3]
        )
        q = q / length[:, None]
        return np.where(self.integers(0, 9, rows)[:, None] == 0, -q, q)

    def stamps(self, rows, rate, jitter=0.3, start_ns=0):
        """Returns ascending stamps in ns: those of a rate, moved by at most `jitter` of a step."""
        step = 10**9 / rate
        moved = np.arange(rows) * step + self.uniform(rows, low=-jitter / 2, high=jitter / 2) * step
        return (np.rint(moved) + start_ns).astype(np.int64)

    def image(self, height, width, channels=3):
        """Returns a smooth image: blocks of 8 x 8 with a slope."""
        coarse = self.integers(0, 200, -(-height // 8), -(-width // 8), channels)
        whole = coarse.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
        slope = (np.arange(height)[:, None, None] * 3 + np.arange(width)[None, :, None] * 2) % 56
        return (whole + slope).astype(np.uint8)

    def images(self, rows, height, width, channels=3):
        return np.stack([self.image(height, width, channels) for _ in range(rows)])


def png(pixels):
    """Returns a PNG file of u8 or u16 pixels (height, width[, channels]), not compressed, so
    that its bytes depend on no library."""
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    height, width, channels = pixels.shape

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes() for row in pixels)
    header = struct.pack(
        ">IIBBBBB", width, height, 8 * pixels.itemsize, 2 if channels == 3 else 0, 0, 0, 0
    )
    blocks = [rows[at : at + 65535] for at in range(0, len(rows), 65535)]
    stored = b"".join(
        struct.pack("<BHH", at == len(blocks) - 1, len(one), len(one) ^ 0xFFFF) + one
        for at, one in enumerate(blocks)
    )
    data = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(rows))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


# A JPEG whose coefficients are drawn: there is no encoder whose rounding could differ. All codes
# have 8 bits, so that a
# code is the number of a symbol in its table.
DC_SYMBOLS = bytes(range(12))
AC_SYMBOLS = bytes([0x00, 0xF0, *(run << 4 | size for run in range(4) for size in range(1, 8))])


class Bits:
    def __init__(self):
        self.text = []

    def put(self, value, count):
        if count:
            self.text.append(format(value, f"0{count}b"))

    def code(self, table, symbol):
        self.put(table.index(symbol), 8)

    def number(self, value):
        """The bits of a coefficient: negative ones count from the least of their size."""
        size = int(abs(value)).bit_length()
        self.put(value if value > 0 else value + (1 << size) - 1, size)

    def bytes(self):
        text = "".join(self.text)
        text += "1" * (-len(text) % 8)
        data = int(text, 2).to_bytes(len(text) // 8, "big") if text else b""
        return data.replace(b"\xff", b"\xff\0")


def _segment(marker, data):
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def _block(bits, draw, before):
    """Writes a block: a mean that goes on from that of the block before, and three drawn
    coefficients."""
    mean = int(np.clip(before + draw[0] % 25 - 12, -40, 40))
    size = abs(mean - before).bit_length()
    bits.code(DC_SYMBOLS, size)
    bits.number(mean - before)
    for one in draw[1:4]:
        value = int(one % 11) - 5 or 3
        bits.code(AC_SYMBOLS, (one >> 8) % 4 << 4 | abs(value).bit_length())
        bits.number(value)
    bits.code(AC_SYMBOLS, 0)
    return mean


def jpeg(draw, height, width, channels=3, halved=False, restart=0):
    """Returns a baseline JPEG file with drawn content. `halved`: colours have half the size
    (4:2:0)."""
    factor = 2 if halved else 1
    sampling = [(factor, factor)] + [(1, 1)] * (channels - 1)
    quantised = bytes(4 + n // 4 for n in range(64))
    # 255 codes of 8 bits may not include the one of ones alone, and fewer symbols than that are
    # used
    frame = struct.pack(">BHHB", 8, height, width, channels)
    frame += b"".join(struct.pack("BBB", n + 1, h << 4 | v, 0) for n, (h, v) in enumerate(sampling))
    scan = (
        struct.pack("B", channels)
        + b"".join(struct.pack("BB", n + 1, 0) for n in range(channels))
        + b"\0\x3f\0"
    )
    head = b"\xff\xd8" + _segment(0xDB, b"\0" + quantised) + _segment(0xC0, frame)
    for kind, symbols in (0x00, DC_SYMBOLS), (0x10, AC_SYMBOLS):
        head += _segment(
            0xC4, bytes([kind, 0, 0, 0, 0, 0, 0, 0, len(symbols), 0, 0, 0, 0, 0, 0, 0, 0]) + symbols
        )
    head += _segment(0xDD, struct.pack(">H", restart)) if restart else b""
    side = 8 * factor
    units = -(-height // side) * -(-width // side)
    blocks = sum(h * v for h, v in sampling)
    drawn = (
        (draw.bits(units * blocks * 4) >> np.uint64(20)).astype(np.int64).reshape(units, blocks, 4)
    )
    parts, bits, before = [], Bits(), [0] * channels
    for unit in range(units):
        if restart and unit and unit % restart == 0:
            parts.append(bits.bytes() + bytes([0xFF, 0xD0 + (unit // restart - 1) % 8]))
            bits, before = Bits(), [0] * channels
        at = 0
        for n, (h, v) in enumerate(sampling):
            for _ in range(h * v):
                before[n] = _block(bits, drawn[unit, at].tolist(), before[n])
                at += 1
    return head + _segment(0xDA, scan) + b"".join(parts) + bits.bytes() + b"\xff\xd9"
