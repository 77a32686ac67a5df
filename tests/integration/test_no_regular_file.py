"""A FIFO, a socket or a device where a file is expected is refused at once: reading one waits for another program, or
never ends."""
import os
import socket
import subprocess
import sys

import pytest

from daemons import Daemon, smallest_config
from paths import TRAJCTL, clean_environment, package_environment

KINDS = {"fifo": "a FIFO, not a regular file", "socket": "a socket, not a regular file",
         "device": "a device, not a regular file"}
CONFIG = """\
{top}datasets:
  demo: {{path: {path}, layout: {layout}}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    anchor: {{clock: actions}}
{feed}    outputs: {{actions: {{at: 0{output}}}}}
"""
# what each place of a configuration says instead of the file
PLACES = {
    "tuning": {"top": "tuning: {odd}\n"},
    "layout": {"layout": "{odd}"},
    "path": {"path": "{odd}"},
    "ranges": {"feed": "    ranges: {odd}\n"},
    "norm.stats": {"output": ", norm: {{stats: {odd}, by: min_max}}"},
}


@pytest.fixture(params=KINDS)
def odd(tmp_path, request):
    """The path of something that is not a file, and what is said of it."""
    path = tmp_path / "odd.hdf5"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    return path, KINDS[request.param]


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=20, env=clean_environment(**environment))


@pytest.mark.parametrize("place", PLACES)
def test_in_a_configuration(tmp_path, demo_file, odd, place):
    path, words = odd
    keys = {"top": "", "layout": "demo", "path": str(demo_file), "feed": "", "output": ""}
    keys.update({key: text.format(odd=path) for key, text in PLACES[place].items()})
    daemon = Daemon(tmp_path, CONFIG.format(**keys))
    words = "not a regular file" if place == "path" else words
    done = run(TRAJCTL, "check", daemon.config)
    assert done.returncode and words in done.stderr and path.name in done.stderr, done
    assert words in daemon.run("--check").stderr


def test_as_the_operand_of_a_command(demo_file, odd, tmp_path):
    path, words = odd
    for command in (["check", path], ["inspect", path], ["inspect", "--layout", "demo", path], ["init", path],
                    ["validate", path], ["resample", path, "-o", tmp_path / "out.hdf5", "--rate", "10"],
                    ["pack", path, "-o", tmp_path / "out.hdf5"], ["plot", path, "actions"],
                    ["preprocess", path], ["inspect", "--layout", path, demo_file],
                    ["status", "--endpoint", "tcp://127.0.0.1:1", "--key", path, "--server-key", path]):
        done = run(TRAJCTL, *command)
        assert done.returncode and "regular file" in done.stderr + done.stdout, (command, done)
    assert not (tmp_path / "out.hdf5").exists()


def test_in_a_reload_the_daemon_goes_on(daemon, demo_file, tmp_path):
    one = daemon(smallest_config(demo_file))
    os.mkfifo(tmp_path / "odd.json")
    text = one.config.read_text()
    one.config.write_text(text.replace("{at: 0}", "{at: 0, norm: {stats: odd.json, by: min_max}}"))
    refused = run(TRAJCTL, "reload", "--wait", "--endpoint", one.endpoint)
    assert refused.returncode == 1 and "odd.json: a FIFO, not a regular file" in refused.stderr + refused.stdout, refused
    one.config.write_text(text)
    assert run(TRAJCTL, "reload", "--wait", "--endpoint", one.endpoint).returncode == 0


@pytest.mark.parametrize("call", ["trajd.Stats.load(path)", "trajd.Live(path)", "trajd.open(path)",
                                  "trajd.open({'datasets': {'demo': {'path': data, 'layout': path}}, 'feeds': feeds})"])
def test_in_python(tmp_path, demo_file, odd, call):
    code = ("import sys, trajd\npath, data = sys.argv[1:]\nfeeds = {'train': {'dataset': 'demo', 'global_batch': 8, "
            "'anchor': {'clock': 'actions'}, 'outputs': {'actions': {'at': 0}}}}\n"
            f"try:\n    {call}\nexcept (ValueError, trajd.LaunchError) as error:\n    print(error)\n")
    done = run(sys.executable, "-c", code, odd[0], demo_file, TRAJD_RUNTIME_DIR=str(tmp_path), **package_environment())
    assert "not a regular file" in done.stdout, done
