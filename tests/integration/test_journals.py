"""Journals whose folder is full, or that another process cuts off: workers go on."""
import os
import subprocess

import pytest

from daemons import smallest_config
from waiting import wait_for


def journals(one):
    return list((one.folder / "state").glob("*.journal"))


def use(client, count):
    for _ in range(count):
        client.next().release()


@pytest.fixture
def full_disk(tmp_path):
    """Mounts a disk of one page, which has no room for a journal."""
    path = tmp_path / "state"  # of the daemon in this folder
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", path], capture_output=True).returncode:
        pytest.skip("a disk cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_a_full_state_folder(full_disk, daemon, demo_file):
    one = daemon(smallest_config(demo_file, batch=4))
    client = one.client()
    client.open("train", job="run")
    use(client, 3)
    wait_for(lambda: "goes on without a journal" in one.text())
    job = client.status()["feeds"][0]
    assert "No space left on device" in job["journal_failure"]
    assert "state/run@" in job["journal_failure"]
    use(client, 20)
    subprocess.run(["mount", "-o", "remount,size=1m", full_disk], check=True)
    wait_for(lambda: "has its journal again" in one.text())
    assert "journal_failure" not in client.status()["feeds"][0]
    assert len(list(full_disk.glob("run@*.journal"))) == 1
    assert one.text().count("goes on without a journal") == 1
    client.close()


def test_a_journal_exists_from_the_first_done_on(daemon, demo_file):
    one = daemon(smallest_config(demo_file, batch=4))
    client = one.client()
    for i in range(200):
        client.open("train", job=f"job{i}")
    assert not journals(one)
    use(client, 2)
    wait_for(lambda: len(journals(one)) == 1)
    client.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_journal_that_is_gone_when_the_daemon_returns(daemon, demo_file, is_there):
    """The epoch begins again, and the log says so."""
    one = daemon(smallest_config(demo_file, batch=4))
    client = one.client(reconnect=True, timeout_ms=60000)
    client.open("train", job="run")
    use(client, 50)
    wait_for(lambda: journals(one))
    one.kill()
    if not is_there:
        journals(one)[0].unlink()
    one.start()
    positions = []
    for _ in range(20):  # the first ones are those that the worker held
        batch = client.next()
        positions.append(batch.position)
        batch.release()
    assert (min(positions) >= 50 * 4) == is_there, positions
    assert one.text().count('job "run" of feed train begins epoch 0 again: its workers were beyond window') == (not is_there)
    client.close()


def test_a_journal_that_is_cut_off(daemon, demo_file):
    one = daemon(smallest_config(demo_file, batch=4))
    client = one.client()
    client.open("train", job="run")
    use(client, 2)
    wait_for(lambda: journals(one))
    path = journals(one)[0]
    for size in (0, 1, 4096, 8192, 0):
        os.truncate(path, size)
        use(client, 3)
        assert one.process.poll() is None
    wait_for(lambda: path.stat().st_size == 12288)
    client.close()
    assert one.process.poll() is None
