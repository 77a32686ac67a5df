"""Attacks a daemon's sockets until it is killed. Runs as a process of its own, with the lowest priority, so that the CPU
time of the attacker is not counted against the daemon.

The attacker speaks ZMTP 3 by hand, because libzmq would not send an unfinished message. It prints a line when it has begun."""
import argparse
import contextlib
import os
import selectors
import socket
import struct
import time

import msgpack

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
HELLO, PING, STATUS = 1, 4, 6


def frame(body, flags=0):
    if len(body) < 256:
        return struct.pack("BB", flags, len(body)) + body
    return struct.pack(">BQ", flags | 2, len(body)) + body


def message(op, **keys):
    return frame(b"TRJD\x01" + bytes([op, 0, 0]) + msgpack.packb(keys))


def ready(identity=b""):
    return frame(b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity" + struct.pack(">I", len(identity)) + identity, flags=4)


READY = ready()


def connect(endpoint, timeout=5.0, ready=READY):
    """Returns a socket on feed.sock (or tcp) after the handshake."""
    if endpoint.startswith("tcp://"):
        host, port = endpoint[6:].rsplit(":", 1)
        peer = socket.create_connection((host, int(port)), timeout)
    else:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(timeout)
        peer.connect(f"{endpoint}/feed.sock")
    peer.sendall(GREETING)
    receive(peer, 64)
    peer.sendall(ready)
    receive_frame(peer)
    return peer


def receive(peer, size):
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def receive_frame(peer):
    flags, size = receive(peer, 2)
    if flags & 2:
        size = struct.unpack(">Q", bytes([size]) + receive(peer, 7))[0]
    return receive(peer, size)


def open_session(endpoint):
    """Returns the sockets of a session that is attached."""
    peer = connect(endpoint)
    peer.sendall(message(HELLO, minor=2, client="flood"))
    token = msgpack.unpackb(receive_frame(peer)[8:])["token"]
    if endpoint.startswith("tcp://"):
        return peer, peer
    attached = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    attached.connect(f"{endpoint}/fd.sock")
    attached.send(token)
    return peer, attached


def send_to_all(peers, data, piece=None):
    """Sends data to all peers again and again, at most `piece` bytes with a system call, and reads nothing. Ends when all of
    them are closed."""
    selector = selectors.DefaultSelector()
    for peer in peers:
        peer.setblocking(False)
        selector.register(peer, selectors.EVENT_WRITE, [b""])
    while selector.get_map():
        for key, _ in selector.select():
            try:
                rest = key.data[0] or data  # a message that was sent in part goes on where it stopped
                key.data[0] = rest[key.fileobj.send(rest[:piece]):]
            except BlockingIOError:
                pass
            except OSError:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def frames(options):
    """Frames of `size` bytes on each of `count` connections, which have the flags `flags` in turn: 1 has a successor, so 0 is a
    message, 10 one of two frames, and 1 one that never ends. Connects again where one was cut."""
    data = b"".join(frame(bytes(options.size), flags=int(flag)) for flag in options.flags)
    data *= max(1, 65536 // len(data)) if options.piece != len(data) else 1
    print("begun", flush=True)
    while True:
        sessions = []
        for _ in range(options.count):
            with contextlib.suppress(OSError, KeyError):  # KeyError: ERROR instead of WELCOME
                sessions.append(open_session(options.endpoint) if options.session else (connect(options.endpoint), None))
        send_to_all([peer for peer, _ in sessions], data, options.piece)
        for _, attached in sessions:  # the sessions end, so there is room for others
            if attached:
                attached.close()


def elsewhere(options):
    """Attacks nobody: sends to a socket of its own, and reads it."""
    sender, receiver = socket.socketpair()
    print("begun", flush=True)
    while True:
        sender.sendall(bytes(4096))
        receive(receiver, 4096)


def leave(options):
    """Connections that send messages up to their limit, and end before the server has received them."""
    data = frame(bytes(options.size)) * (16000 // (options.size + 512))
    print("begun", flush=True)
    while True:
        with contextlib.suppress(OSError):
            peer = connect(options.endpoint)
            peer.sendall(data)
            peer.close()


def identity(options):
    """Connections that all have the identity of the first one, and send messages until they are closed."""
    print("begun", flush=True)
    first = None
    while True:
        with contextlib.suppress(OSError):
            peer = connect(options.endpoint, ready=ready(b"attacker"))
            peer.sendall(frame(bytes(40)) * 90)
            first = first or peer
            if peer is not first:
                peer.close()


def open_sessions(options):
    """Returns `count` sessions. Tries again where the daemon refuses one, because others have not ended yet."""
    sessions = []
    while len(sessions) < options.count:
        with contextlib.suppress(OSError, KeyError):  # KeyError: ERROR instead of WELCOME
            sessions.append(open_session(options.endpoint))
    return sessions


def status(options):
    """`count` sessions that request the status document and never read it."""
    sessions = open_sessions(options)
    print("begun", flush=True)
    while True:
        send_to_all([peer for peer, _ in sessions], b"".join(message(STATUS, request=i + 1) for i in range(16)))
        for _, attached in sessions:  # the sessions end, so there is room for others
            attached.close()
        sessions = open_sessions(options)


def hello(options):
    """`count` connections that send HELLO again and again and read nothing."""
    print("begun", flush=True)
    while True:
        peers = []
        for _ in range(options.count):
            with contextlib.suppress(OSError):
                peers.append(connect(options.endpoint))
        send_to_all(peers, message(HELLO, minor=2, client="flood") * 16)


def descriptors(options):
    """Holds as many connections as the daemon accepts, up to `count`, and replaces each one that is closed."""
    peers, begun = [], False
    while True:
        with contextlib.suppress(OSError):
            while len(peers) < options.count:
                peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                peer.setblocking(False)
                peers.append(peer)
                peer.connect(f"{options.endpoint}/feed.sock")
                peer.send(GREETING + READY)
        if not begun:
            print("begun", flush=True)
            begun = True
        time.sleep(0.02)
        peers = [peer for peer in peers if is_open(peer)]


def is_open(peer):
    try:
        while peer.recv(4096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    peer.close()
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attack", choices=("frames", "elsewhere", "leave", "identity", "status", "hello", "descriptors"))
    parser.add_argument("endpoint")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--size", type=int, default=0, help="bytes of a frame")
    parser.add_argument("--flags", default="1", help="of the frames, in turn")
    parser.add_argument("--piece", type=int, help="bytes with each system call")
    parser.add_argument("--session", action="store_true", help="begin a session first")
    options = parser.parse_args()
    os.nice(19)
    globals()[options.attack](options)


if __name__ == "__main__":
    main()
