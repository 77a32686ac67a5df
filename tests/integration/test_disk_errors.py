"""A bad disk below the state folder and the folder of caches, and a limit of the file size: the daemon and its feeds go on."""
import errno
import re
import resource
import subprocess

import pytest

from daemons import Daemon, smallest
from faults import ALLOCATE, OPEN, READ, RENAME, SYNC, WRITE, FaultyDaemon
from paths import TRAJCTL, clean_environment
from waiting import wait_for

pytestmark = pytest.mark.slow


def config(demo_file):
    return (f"datasets: {{demo: {{path: {demo_file}, layout: demo}}}}\n"
            f"feeds: {{train: {smallest(batch=4)}, scaled: {smallest(batch=4).replace('at: 0', 'at: 0, norm: min_max')}}}")


class Reader:
    """A worker that outlives its daemon, with the positions of its batches."""

    def __init__(self, one):
        self.client, self.positions = one.client(reconnect=True), []
        self.info = self.client.open("train", job="run")

    def use(self, count):
        while count and (batch := self.client.next()):
            self.positions.append(batch.position)
            batch.release()
            count -= 1

    def job(self):
        """Returns the status of the worker's job."""
        return next(feed for feed in self.client.status()["feeds"] if feed["name"] == "train")


def status_text(one):
    return subprocess.run([TRAJCTL, "status", "--endpoint", one.endpoint], capture_output=True, text=True, check=True,
                          env=clean_environment(), timeout=60).stdout


def check_no_journal(one, reader, reason):
    """The job goes on; the log, the status document and `trajctl status` tell why it has no journal."""
    reader.use(3)
    wait_for(lambda: "goes on without a journal" in one.text())
    reader.use(40)
    assert reason in reader.job()["journal_failure"]
    assert re.search(f"no journal: .*state/run@.*: {reason}; if the daemon dies", status_text(one))


def check_journal_again(one, reader):
    """The epoch survives the daemon: a worker reports its last 16 batches, and the journal has those before."""
    wait_for(lambda: "has its journal again" in one.text())
    assert "journal_failure" not in reader.job() and "no journal" not in status_text(one)
    reader.use(3)
    one.kill()
    one.start()
    reader.use(1 << 20)
    assert sorted(reader.positions) == list(range(0, reader.info.epoch_length, 4))
    reader.client.close()


@pytest.mark.parametrize("code, calls, exists", [
    (errno.EIO, WRITE, False), (errno.EIO, WRITE, True), (errno.EIO, SYNC, False), (errno.EIO, SYNC, True),
    (errno.EIO, OPEN | WRITE | SYNC | ALLOCATE, True), (errno.EDQUOT, ALLOCATE, False), (errno.EDQUOT, WRITE, True),
    (errno.EDQUOT, SYNC, True), (errno.EROFS, OPEN, False), (errno.EROFS, OPEN | WRITE | ALLOCATE, True)])
def test_a_journal_that_cannot_be_written(tmp_path, started, demo_file, code, calls, exists):
    """The disk fails before the journal exists, or after the first batches."""
    one = started(FaultyDaemon(tmp_path, config(demo_file), faulty="state"))
    reader = Reader(one)
    if exists:
        reader.use(3)
        wait_for(lambda: list((one.folder / "state").glob("run@*.journal")))
    one.faults.fail_disk(code, calls)
    check_no_journal(one, reader, {errno.EIO: "Input/output error", errno.EDQUOT: "Disk quota exceeded",
                                   errno.EROFS: "Read-only file system"}[code])
    assert one.text().count("goes on without a journal") == 1
    one.faults.fail_disk(0, 0)
    check_journal_again(one, reader)


@pytest.mark.parametrize("calls", [OPEN, WRITE, RENAME, READ])
def test_caches_that_cannot_be_written_or_read(tmp_path, started, demo_file, calls):
    """The daemon starts. The next start takes longer, and the log tells why. Caches are not synced: they carry a digest."""
    one = FaultyDaemon(tmp_path, config(demo_file), faulty="cache")
    for attempt in range(2):
        one.faults.fail_disk(errno.EIO, calls)
        started(one)
        assert one.faults.page.disk_failed or (calls == READ and not attempt)
        client = one.client()
        client.open("scaled")
        client.next().release()
        client.close()
        one.stop()
    assert one.text().count("1 file (0 from the cache), 24 episodes kept of 24") == 2
    assert one.text().count("its index cannot be written to the directory of caches: Input/output error") == (0 if calls == READ else 2)
    left = [path.name for path in (one.folder / "cache").iterdir() if path.suffix not in (".index", ".lock", ".statistics")]
    assert not left


def test_a_limit_of_the_file_size(daemon, demo_file):
    """A journal that exceeds the limit is an error, not a signal that ends the daemon."""
    one = daemon(config(demo_file))
    reader = Reader(one)
    limits = resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (10 << 10, limits[1]))
    check_no_journal(one, reader, "File too large")
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, limits)
    check_journal_again(one, reader)


def test_a_limit_of_the_file_size_at_the_start(tmp_path, demo_file):
    """Rings are files, too: the start is refused."""
    one = Daemon(tmp_path, config(demo_file), prefix=("prlimit", "--fsize=8192"))
    with pytest.raises(AssertionError):
        one.start()
    assert one.process.returncode == 1 and "File too large" in one.text(), one.text()
