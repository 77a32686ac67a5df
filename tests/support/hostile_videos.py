"""Makes video bit by bit, so that its headers can say anything. H.264 (ITU H.264): grey frames of macroblocks without residual;
AV1: the sequence header of another stream with other sizes."""
import struct
import zlib

import numpy as np


def ue(value):
    return f"{value + 1:b}".zfill(2 * (value + 1).bit_length() - 1)


def se(value):
    return ue(2 * value - 1 if value > 0 else -2 * value)


def nal(kind, bits):
    """Returns a NAL unit: its bits with the stop bit, and a byte 3 before what would look like a start code."""
    bits += "1" + "0" * (-(len(bits) + 1) % 8)
    raw, out, zeros = int(bits, 2).to_bytes(len(bits) // 8, "big"), bytearray([kind]), 0
    for byte in raw:
        if zeros >= 2 and byte <= 3:
            out.append(3)
            zeros = 0
        out.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    return bytes(out)


def sps(height, width, references=1, level=62):
    """Baseline, 4 bits of frame_num, images in decode order (type 2)."""
    bits = f"{66:08b}{0:08b}{level:08b}" + ue(0) + ue(0) + ue(2) + ue(references) + "0"
    return nal(0x67, bits + ue((width + 15) // 16 - 1) + ue((height + 15) // 16 - 1) + "1" + "1" + "0" + "0")


def pps():
    return nal(0x68, ue(0) + ue(0) + "0" + "0" + ue(0) + ue(0) + ue(0) + "0" + "00" + se(0) + se(0) + se(0) + "0" + "0" + "0")


def avcc(sets, images):
    head = bytes([1, 66, 0, 62, 0xFF, 0xE0 | len(sets)])
    return head + b"".join(struct.pack(">H", len(s)) + s for s in sets) + bytes([len(images)]) + b"".join(struct.pack(">H", len(s)) + s for s in images)


def sized(unit):
    return struct.pack(">I", len(unit)) + unit


def grey_key_frame(height, width):
    """IDR: each macroblock is predicted from its neighbours, without residual. 8 bits each."""
    head = ue(0) + ue(7) + ue(0) + "0000" + ue(0) + "0" + "0" + se(0)
    return sized(nal(0x65, head + (ue(3) + ue(0) + se(0) + "1") * (-(-height // 16) * -(-width // 16))))


def skipped_frame(height, width, number):
    """P: all macroblocks are those of the frame before."""
    head = ue(0) + ue(5) + ue(0) + f"{number % 16:04b}" + "0" + "0" + "0" + se(0)
    return sized(nal(0x61, head + ue(-(-height // 16) * -(-width // 16))))


def av1_header(obus, side):
    """Returns an AV1 sequence header with a size of side x side pixels (at most 65536), from one that has no timing information."""
    assert obus[0] == 0x0A
    bits = "".join(f"{byte:08b}" for byte in obus[2:2 + obus[1]])
    at = 5 + 1 + 5 + 12  # profile and flags, no initial delay, one operating point
    at += 5 + (int(bits[at:at + 5], 2) > 7)
    sizes = [int(bits[at + i:at + i + 4], 2) + 1 for i in (0, 4)]
    bits = bits[:at] + "11111111" + f"{side - 1:016b}" * 2 + bits[at + 8 + sum(sizes):]
    bits += "0" * (-len(bits) % 8)
    return bytes([0x0A, len(bits) // 8]) + int(bits, 2).to_bytes(len(bits) // 8, "big")


def grey_video(video, height, width, gop, references=1):
    """Makes a Video hold grey H.264 frames, in units of `gop`."""
    rows = len(video.rows)
    video.extradata = [avcc([sps(height, width, references)], [pps()])]
    key = grey_key_frame(height, width)
    video.packets = [skipped_frame(height, width, t % gop) if t % gop else key for t in range(rows)]
    video.attributes |= {"codec": "h264", "size": np.array([height, width], np.int64), "matrix": "unspecified", "range": "full"}
    settle(video)


def settle(video):
    """Makes the table fit the packets: positions, sizes and checksums, and the largest unit."""
    sizes = np.array([len(packet) for packet in video.packets])
    ends = [*video.units[1:, 0], len(sizes)]
    video.table = np.stack([np.cumsum(sizes) - sizes, sizes, [zlib.crc32(packet) for packet in video.packets]], 1)
    units = [(end - first, sizes[first:end].sum()) for first, end in zip(video.units[:, 0], ends)]
    video.attributes["largest_unit"] = np.array([max(n for n, _ in units), max(b for _, b in units)], np.int64)
