"""The daemon's sockets: modes of their files, and how sessions end."""
import stat
import subprocess

import pytest

from daemons import Daemon
from feeds import SMALL_BATCHES
from paths import PROGRAM
from waiting import wait_for
from workers import Worker


@pytest.mark.parametrize("group_access, mode", [(False, 0o700), (True, 0o770)])
def test_the_files_of_sockets_have_the_modes_of_the_configuration(tmp_path, demo_file, group_access, mode):
    """The umask of the service does not matter."""
    config = SMALL_BATCHES.format(path=demo_file) + f"group_access: {str(group_access).lower()}\n"
    one = Daemon(tmp_path / "one", config, prefix=["sh", "-c", 'umask 0; exec "$@"', "sh"]).start()
    sockets = [path for path in one.endpoint.iterdir() if stat.S_ISSOCK(path.stat().st_mode)]
    assert {path.name for path in sockets} >= {"fd.sock", "resample.sock"} and len(sockets) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == mode for path in sockets), [oct(path.stat().st_mode) for path in sockets]
    one.stop()
    assert not [path for path in sockets if path.exists()]


def test_the_daemon_never_changes_its_umask():
    """The umask is that of the process: a change would also apply to files that other threads create at that moment."""
    names = subprocess.run(["nm", "-D", "--undefined-only", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert "sendmsg" in names and "umask" not in names


def test_a_session_that_says_bye_is_not_a_dead_one(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    watcher, leaver, victim = one.client(), one.client(), Worker(one, "--hold", 1)
    leaver.open("train")
    leaver.next().release()
    leaver.close()  # further batches are on their way to it, and not DONE
    wait_for(lambda: len(watcher.status()["sessions"]) == 2, what="the end of the session")
    assert watcher.status()["dead_sessions"] == 0
    victim.read("holding")
    victim.kill()
    wait_for(lambda: watcher.status()["dead_sessions"] == 1, what="the dead session")
    watcher.close()
