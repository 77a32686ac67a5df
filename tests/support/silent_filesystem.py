"""A real FUSE filesystem with one file, `file`, whose close never returns: FLUSH is not answered.

    silent_filesystem.py FOLDER        # root alone; prints "ready"; ends with its standard input
    silent_filesystem.py FOLDER reads  # its reads never return, nor its close in a process that has read

The process must be killed before FOLDER is unmounted: the kernel then ends the calls that wait.
"""
import contextlib
import ctypes
import os
import signal
import stat
import struct
import subprocess
import sys
import threading

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 42
SILENT = (FORGET, BATCH_FORGET, READ)
ENOSYS = 38


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o666
    return struct.pack("<6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node):
    """Returns the body of the answer, or None: the call is not served."""
    if opcode == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 12, 10, 4096, 1, 0, 0, *[0] * 8)
    if opcode == LOOKUP:
        return struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2)
    if opcode == GETATTR:
        return struct.pack("<Q2I", 3600, 0, 0) + attributes(node)
    if opcode == OPEN:
        return struct.pack("<Q2I", 1, 0, 0)
    return b"" if opcode in (RELEASE, FLUSH) else None


def serve(device, closes):
    readers = set()
    while True:
        request = os.read(device, 1 << 17)
        _, opcode, unique, node, _, _, process = struct.unpack_from("<2I2Q3I", request)
        if opcode == READ:
            readers.add(process)
        if opcode in SILENT or (opcode == FLUSH and (not closes or process in readers)):
            continue
        body = answer(opcode, node)
        head = struct.pack("<IiQ", 16 + len(body or b""), -ENOSYS if body is None else 0, unique)
        os.write(device, head + (body or b""))


def mount(folder):
    """Mounts a filesystem at the folder. Returns the descriptor by which this process serves it."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if ctypes.CDLL(None, use_errno=True).mount(b"silent", folder.encode(), b"fuse", 0, options.encode()):
        sys.exit(os.strerror(ctypes.get_errno()))
    return device


def main():
    device = mount(sys.argv[1])
    threading.Thread(target=serve, args=(device, "reads" in sys.argv), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


@contextlib.contextmanager
def silent_filesystem(folder, *options, answers=True):
    """Mounts the filesystem at the folder, which must exist. Yields the path of its file, or None where the system does not allow it.
    With `answers` False its process is stopped, so that every call waits."""
    process = subprocess.Popen([sys.executable, __file__, folder, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    is_ready = process.stdout.readline() == b"ready\n"
    if not answers:
        process.send_signal(signal.SIGSTOP)
    try:
        yield folder / "file" if is_ready else None
    finally:
        process.kill()
        process.wait()
        if is_ready:
            subprocess.run(["umount", "-l", folder], check=True)


if __name__ == "__main__":
    main()
