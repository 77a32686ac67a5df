"""The faults that tests/fake/faults.c makes: memory that runs out, a wall clock that jumps, a bad disk. Not for programs with
a sanitizer, which has an allocator of its own: tests that use this have the mark slow."""
import ctypes as c
import mmap
import re
import subprocess

from daemons import Daemon
from paths import BUILD, PROGRAM, TRAJCTL

PROGRAMS = {"trajd": PROGRAM, "trajd-indexer": PROGRAM.parent / "hdf5" / "trajd-indexer", "trajctl": TRAJCTL,
            "trajd-decoder": PROGRAM.parent / "decode" / "trajd-decoder",
            "fake_worker": BUILD / "tests/support/fake_worker"}

OPEN, WRITE, SYNC, RENAME, ALLOCATE, READ = 1, 2, 4, 8, 16, 32  # calls on a disk, for Page.disk_calls


def own_parts(program):
    """Returns BEGIN-END,BEGIN-END: trajd's own code, without libhdf5 and the CUDA runtime where the program contains them."""
    lines = subprocess.run(["nm", "-n", program], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [(line.split()[0], line.split()[-1]) for line in lines if re.search(" [tT] ", line)]
    symbols = symbols[next(i for i, (_, name) in enumerate(symbols) if name == "_start"):]
    end = next((i for i, (_, name) in enumerate(symbols) if name.startswith("H5")), len(symbols) - 1)
    foreign = [i for i, (_, name) in enumerate(symbols[:end]) if re.match("libcudart_|cuda[A-Z]", name)] or [end]
    cuts = [0, foreign[0], min(foreign[-1] + 1, end), end]
    return f"{symbols[cuts[0]][0]}-{symbols[cuts[1]][0]},{symbols[cuts[2]][0]}-{symbols[cuts[3]][0]}"


class Call(c.Structure):
    """An allocation: its place in the program, and a number that is another one for other callers."""
    _fields_ = [("place", c.c_uint64), ("stack", c.c_uint64)]


class Page(c.Structure):
    """Mirrors struct page of faults.c."""
    _fields_ = [(name, c.c_uint64) for name in ("allocations", "fail_begin", "fail_count", "failed", "failed_place", "fail_stack")] + [
        ("wall_shift_s", c.c_int64)] + [(name, c.c_uint64) for name in ("disk_error", "disk_calls", "disk_failed")] + [
            ("calls", Call * 8192)]  # by the number of the allocation


class Faults:
    """A page that programs with environment() share. Its fields take effect at once."""

    def __init__(self, path, program="trajd", folder=""):
        path.write_bytes(bytes(c.sizeof(Page)))
        with open(path, "r+b") as file:
            self.page = Page.from_buffer(mmap.mmap(file.fileno(), c.sizeof(Page)))
        self.program = PROGRAMS[program]
        self.names = {"LD_PRELOAD": str(BUILD / "tests/fake/libfaults.so"), "TRAJD_TEST_FAULTS": str(path),
                      "TRAJD_TEST_PROGRAM": program, "TRAJD_TEST_FOLDER": str(folder),
                      "TRAJD_TEST_OWN": own_parts(self.program)}

    def environment(self, base):
        """Returns the environment of a program that has these faults."""
        return {**base, **self.names}

    def fail_memory(self, at=0, count=1, stack=0):
        """Lets `count` allocations fail: from number `at` on, or the first ones of the callers `stack`. The count begins again."""
        self.page.allocations, self.page.failed = 0, 0
        self.page.fail_begin, self.page.fail_count, self.page.fail_stack = at, count, stack

    def stacks(self):
        """Returns the sequence of callers of each allocation so far."""
        return [self.page.calls[number].stack for number in range(1, self.page.allocations + 1)]

    def fail_disk(self, error, calls):
        """Lets calls fail with an errno below the folder; calls=0 ends that."""
        self.page.disk_failed, self.page.disk_calls, self.page.disk_error = 0, calls, error

    def place(self):
        """Returns the place in the source of the allocation that failed last."""
        assert self.page.failed, "no allocation has failed"
        address = hex(self.page.failed_place - 1)
        return subprocess.run(["addr2line", "-sfpe", self.program, address], capture_output=True, text=True).stdout.strip()


class FaultyDaemon(Daemon):
    """A daemon with faults in its memory, its clock or its folder `faulty`. Allocations of the program `counted` count."""

    def __init__(self, folder, config, counted="trajd", faulty="state", **options):
        super().__init__(folder, config, **options)
        self.faults = Faults(self.folder / "faults", counted, self.folder / faulty)

    def environment(self):
        return self.faults.environment(super().environment())
