"""A FUSE filesystem that passes a folder through, read-only, with the faults of slow storage, which a test sets while it is mounted.

    slow_filesystem.py SOURCE FOLDER    # root alone; prints "ready"; each line of standard input is a JSON object of settings

The settings: latency (s, of each call), rate (bytes/s, of all reads together; 0: no limit), stall (calls wait until it is false),
error (reads of files whose name has this end fail with EIO; "": none), direct (files opened from now on bypass the page cache).
A line is answered with the reads that came since the one before: [name, offset, size] of each, and with the number of calls that
wait for the end of a stall.
"""
import errno
import heapq
import json
import os
import select
import stat
import struct
import subprocess
import sys
import time

from silent_filesystem import BATCH_FORGET, FLUSH, FORGET, GETATTR, INIT, LOOKUP, OPEN, READ, RELEASE, mount

STATFS, INTERRUPT, OPENDIR, READDIR, RELEASEDIR = 17, 36, 27, 28, 29
UNANSWERED = (FORGET, BATCH_FORGET, INTERRUPT)
KEPT_S = 1                        # the kernel keeps names and attributes for so long
ASYNC_READ, MAX_PAGES = 1, 1 << 22
READAHEAD, PAGES = 128 << 10, 256  # the kernel's default, and reads of up to 1 MiB
DIRECT_IO, KEEP_CACHE = 1, 2


class Server:
    """Answers the calls of the kernel, each when it is due."""

    def __init__(self, source, device):
        self.device, self.paths, self.nodes = device, {1: source}, {source: 1}
        self.settings = {"latency": 0, "rate": 0, "stall": False, "error": "", "direct": False}
        self.reads, self.stalled, self.due, self.free_at = [], [], [], 0.0

    def attributes(self, node):
        """Returns a struct fuse_attr."""
        found = os.stat(self.paths[node])
        kind = stat.S_IFDIR | 0o755 if stat.S_ISDIR(found.st_mode) else stat.S_IFREG | 0o644
        times = [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns]
        return struct.pack("<6Q10I", node, found.st_size, found.st_blocks, *[ns // 10**9 for ns in times], *[ns % 10**9 for ns in times],
                           kind, 1, 0, 0, 0, 4096, 0)

    def look_up(self, node, name):
        path = os.path.join(self.paths[node], name)
        os.stat(path)
        found = self.nodes.setdefault(path, len(self.nodes) + 1)
        self.paths[found] = path
        return struct.pack("<4Q2I", found, 0, KEPT_S, KEPT_S, 0, 0) + self.attributes(found)

    def list_folder(self, node, offset):
        entries = b""
        for i, name in enumerate(sorted(os.listdir(self.paths[node]))[offset:], offset + 1):
            encoded = name.encode()
            entries += struct.pack("<2Q2I", i + 1, i, len(encoded), 0) + encoded + bytes(-len(encoded) % 8)
        return entries[:4096] if len(entries) <= 4096 else b""

    def answer(self, opcode, node, body):
        if opcode == INIT:
            return struct.pack("<4I2H2I2H8I", 7, 31, READAHEAD, ASYNC_READ | MAX_PAGES, 64, 64, 4096, 1, PAGES, 0, *[0] * 8)
        if opcode == LOOKUP:
            return self.look_up(node, body.rstrip(b"\0").decode())
        if opcode == GETATTR:
            return struct.pack("<Q2I", KEPT_S, 0, 0) + self.attributes(node)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<Q2I", 0, DIRECT_IO if self.settings["direct"] and opcode == OPEN else KEEP_CACHE, 0)
        if opcode in (READ, READDIR):
            _, offset, size = struct.unpack_from("<2QI", body)
            return self.list_folder(node, offset) if opcode == READDIR else self.read(node, offset, size)
        if opcode in (RELEASE, RELEASEDIR, FLUSH):
            return b""
        if opcode == STATFS:
            return bytes(80)
        raise OSError(errno.ENOSYS, "")

    def read(self, node, offset, size):
        path = self.paths[node]
        if self.settings["error"] and path.endswith(self.settings["error"]):
            raise OSError(errno.EIO, "")
        with open(path, "rb") as file:
            return os.pread(file.fileno(), size, offset)

    def take(self, request):
        """Sets when the call is answered."""
        _, opcode, _, node = struct.unpack_from("<2I2Q", request)
        if opcode in UNANSWERED:
            return
        if self.settings["stall"]:
            self.stalled.append(request)
            return
        at = time.monotonic() + (opcode != INIT) * self.settings["latency"]
        if opcode == READ:
            _, offset, size = struct.unpack_from("<2QI", request, 40)
            self.reads.append([os.path.basename(self.paths[node]), offset, size])
            if self.settings["rate"]:
                at = self.free_at = max(at, self.free_at) + size / self.settings["rate"]
        heapq.heappush(self.due, (at, struct.unpack_from("<Q", request, 8)[0], request))

    def send(self, request):
        _, opcode, unique, node = struct.unpack_from("<2I2Q", request)
        try:
            body, code = self.answer(opcode, node, request[40:]), 0
        except OSError as error:
            body, code = b"", -error.errno
        try:
            os.writev(self.device, [struct.pack("<IiQ", 16 + len(body), code, unique), body])
        except FileNotFoundError:
            pass  # the call was interrupted

    def change(self, line):
        self.settings.update(json.loads(line))
        if not self.settings["stall"]:
            stalled, self.stalled = self.stalled, []
            for request in stalled:
                self.take(request)
        print(json.dumps([self.reads, len(self.stalled)]), flush=True)
        self.reads = []

    def serve(self):
        lines = b""
        while True:
            wait_s = max(0, self.due[0][0] - time.monotonic()) if self.due else None
            ready, _, _ = select.select([self.device, 0], [], [], wait_s)
            if 0 in ready:
                more = os.read(0, 65536)
                if not more:
                    return
                *whole, lines = (lines + more).split(b"\n")
                for line in whole:
                    self.change(line)
            if self.device in ready:
                self.take(os.read(self.device, 1 << 17))
            while self.due and self.due[0][0] <= time.monotonic():
                self.send(heapq.heappop(self.due)[2])


class SlowFilesystem:
    """The filesystem in a process of its own, mounted at the folder, which must exist. `is_mounted`: the system allows it."""

    def __init__(self, source, folder, **settings):
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, __file__, source, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, bufsize=1)
        self.is_mounted = self.process.stdout.readline() == "ready\n"
        if self.is_mounted:
            self.set(**settings)

    def set(self, **settings):
        """Changes settings. Returns the reads since the last change, [name, offset, size] of each, and how many calls wait."""
        self.process.stdin.write(json.dumps(settings) + "\n")
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # the kernel ends the calls that wait
        self.process.wait()
        if self.is_mounted:
            subprocess.run(["umount", "-l", self.folder], check=True)


def main():
    device = mount(sys.argv[2])
    print("ready", flush=True)
    Server(sys.argv[1], device).serve()


if __name__ == "__main__":
    main()
