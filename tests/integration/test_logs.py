"""The daemon's log as JSON, and as a file that is renamed at its limit."""
import json
import subprocess

import pytest

from daemons import Daemon
from paths import PROGRAM
from waiting import wait_for

CONFIG = "datasets: {demo: {path: %s, layout: demo}}\nfeeds: {}\n"


class LoggingDaemon(Daemon):
    options = ()

    def start(self):
        with open(self.folder / "stderr", "w") as errors:
            self.process = subprocess.Popen([self.program, "--config", self.config, *self.options], env=self.environment(),
                                            stderr=errors)
        log = self.log if "--log-file" in self.options else self.folder / "stderr"
        wait_for(lambda: log.exists() and "ready after" in log.read_text() or self.process.poll() is not None, 60, "READY")
        assert self.process.poll() is None
        return self


def start(started, folder, data, *options):
    daemon = LoggingDaemon(folder, CONFIG % data)
    daemon.options = options
    return started(daemon)


def test_each_line_is_an_object(tmp_path, demo_file, started):
    daemon = start(started, tmp_path / "json", demo_file, "--log-format", "json")
    lines = [json.loads(line) for line in (daemon.folder / "stderr").read_text().splitlines()]
    assert all(list(line) == ["time", "level", "message"] for line in lines)
    assert any(line["level"] == "info" and line["message"].startswith("ready after") for line in lines)


def test_a_log_at_its_limit_is_renamed(tmp_path, demo_file, started):
    folder = tmp_path / "file"
    folder.mkdir()
    (folder / "log").write_bytes(b"x" * ((8 << 20) + 1) + b"\n")
    daemon = start(started, folder, demo_file, "--log-file", folder / "log")
    wait_for(lambda: (folder / "log.1").exists() and (folder / "log").exists(), 60, "a second file")
    assert (folder / "log.1").stat().st_size > 8 << 20 and "ready after" in (folder / "log.1").read_text()
    daemon.stop()
    assert "stopping" in (folder / "log").read_text() and (folder / "stderr").read_text() == ""


@pytest.mark.parametrize("options, message", [(("--log-format", "xml"), "must be text or json"),
                                              (("--log-file", "/nowhere/log"), "--log-file /nowhere/log: No such file")])
def test_mistakes(tmp_path, options, message):
    done = subprocess.run([PROGRAM, "--config", tmp_path / "trajd.yaml", *options], capture_output=True, text=True)
    assert done.returncode != 0 and message in done.stderr
