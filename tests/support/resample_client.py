"""A client of the daemon's resampling socket that can break the protocol, and a program that sends requests without end.

    resample_client.py ENDPOINT      # prints "ready", then sends requests until it is killed
"""
import array
import fcntl
import os
import pathlib
import socket
import struct
import sys
import types

import msgpack
import numpy as np

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
RESAMPLE, RESAMPLED, ERROR = 9, 74, 72


def align(bytes_):
    return bytes_ + bytes(-len(bytes_) % 64)


def block(rows=8, steps=5, answer=None):
    """Returns a request: one f32 stream of one feature, linear, in the format of kernels/block.h."""
    stamps = range(0, 10 * rows, 10)
    stream = struct.pack("<8I5Q3q2d", 0, 0, 3, 3, 1, 0, 0, 0, 4, 0, 4, 0, 0, -1, -1, 0, 1.0, float("nan"))
    parts = [struct.pack("<5Q4I", int.from_bytes(b"TRBLOCK1", "little"), rows, 4 * rows, 4 * steps, steps, steps, 1, 1, 0), stream,
             struct.pack("<3q", 0, rows, 0), struct.pack(f"<{steps}q", *(7 * t for t in range(steps))), struct.pack(f"<{rows}q", *stamps),
             np.arange(rows, dtype="<f4").tobytes()]
    return b"".join(map(align, parts)) + (bytes(64 * (-(-4 * steps // 64)) + 64) if answer is None else answer)


ASKED = block(answer=b"")
EXPECTED = np.arange(5, dtype=np.float32) * np.float32(0.7)


def memory(content, seals=SEALS, allocate=True):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, len(content))
    if allocate:
        os.posix_fallocate(fd, 0, len(content))
        os.pwrite(fd, content, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class Client:
    def __init__(self, daemon):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(30)
        self.socket.connect(str(daemon.endpoint / "resample.sock"))
        self.request = 0

    def say(self, body, fds=(), op=RESAMPLE):
        frame = b"TRJD" + bytes([1, op, 0, 0]) + msgpack.packb(body)
        self.socket.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def hear(self):
        """Returns op and body of the next message, or None at the end of the connection."""
        frame = self.socket.recv(4096)
        return (frame[5], msgpack.unpackb(frame[8:])) if frame else None

    def ask(self, fd, size):
        self.request += 1
        self.say({"request": self.request, "size": size}, [fd])
        op, body = self.hear()
        assert body["request"] == self.request
        return op, body

    def works(self):
        fd = memory(block())
        op, body = self.ask(fd, len(block()))
        assert op == RESAMPLED and "device" not in body
        assert np.allclose(np.frombuffer(os.pread(fd, 20, len(ASKED)), np.float32), EXPECTED)
        assert os.pread(fd, 44, len(ASKED) + 20) == bytes(44)  # padding between outputs stays zero
        os.close(fd)

    def refused(self, fd, size, word, status="argument"):
        op, body = self.ask(fd, size)
        os.close(fd)
        assert op == ERROR and body["status"] == status and word in body["message"], body


def main():
    client, fd = Client(types.SimpleNamespace(endpoint=pathlib.Path(sys.argv[1]))), memory(block())
    print("ready", flush=True)
    while True:
        client.ask(fd, len(block()))


if __name__ == "__main__":
    main()
