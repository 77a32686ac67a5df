"""Mistakes in a configuration: the message with file, line and key, and the exit status that a service manager
reads."""
import json
import os
import re
import subprocess
import time

import pytest

from daemons import Daemon
from waiting import wait_for

EX_CONFIG = 78
GOOD = """\
datasets:
  demo: {{path: {path}, layout: demo}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    anchor: {{clock: actions}}
    outputs:
      actions: {{at: 0..3}}
      obs/robot0_eef_pos: {{at: -1..0}}
"""

MISTAKES = [
    ("feeds:", "tuning: nowhere.tuning\nfeeds:", r"trajd.yaml: tuning: .*nowhere.tuning: No such file"),
    ("feeds:", "tuning: trajd.yaml\nfeeds:", r"tuning: .*trajd.yaml:1: the first line is not trajd-tuning 1"),
    ("global_batch: 8", "global_bach: 8", r"trajd.yaml:11: feeds.train.*global_bach.*global_batch"),
    ("  train:", "  ../train:", r"feeds.../train: a name is 1 to 64 letters"),
    ("global_batch: 8", "global_batch: 0", r"trajd.yaml:11: feeds.train.global_batch: "),
    ("global_batch: 8", "global_batch: 8\n    global_batch: 9", r"trajd.yaml:12: .*global_batch.*twice|duplicate"),
    ("clock: actions", "clock: action", r"no clock action .*did you mean actions"),
    ("obs/robot0_eef_pos: {at: -1..0}", "obs/robot0_eef_poss: {at: -1..0}",
     r"line 15: outputs.obs/robot0_eef_poss: no stream .*did you mean obs/robot0_eef_pos"),
    ("{at: -1..0}", "{at: -1..2}", r"trajd.yaml:15: .*an observation reads nothing after its anchor"),
    ("{at: -1..0}", "{at: 2..-1}", r"FROM is greater than TO"),
    ("{at: -1..0}", "{at: -2..-1ms}", r"one end is a number of steps and the other a time"),
    ("{at: -1..0}", "{at: -100ms..0ms @ zero}", r"not a rate in Hz"),
    ("{at: -1..0}", "{at: -1..0, kind: cubic}", r"trajd.yaml:15: .*cubic"),
    ("{at: -1..0}", "{at: -1..0, norm: {scale: [1, 2]}}", r"norm has 2 numbers, but the output has 3 features"),
    ("dataset: demo", "dataset: demos", r"trajd.yaml:10: feeds.train.dataset: there is no dataset demos \(did you mean demo\?\)"),
    ("layout: demo", "layout: dmo", r"layout dmo|dmo"),
    ("global_batch: 8", "global_batch: 8\n    filter: nobody", r"filter: no mask nobody"),
    ("global_batch: 8", "global_batch: 8\n    split: 0.5..0.1", r"split: "),
    ("global_batch: 8", "global_batch: 8\n    slots: 2", r"slots"),
    ("global_batch: 8", "global_batch: 8\n    slots: 481", r"trajd.yaml:12: feeds.train.slots: 481 is out of range \(3 to 480\)"),
    ("global_batch: 8", "global_batch: 1000000", r"fewer than a global batch|memory.rings"),
]


def test_check_prints_the_feed(tmp_path, demo_file):
    done = Daemon(tmp_path, GOOD.format(path=demo_file)).run("--check")
    assert done.returncode == 0, done.stderr
    assert "feed train:" in done.stdout and "rows -1..0" in done.stdout and "float32" in done.stdout.replace("f32", "float32")


def test_print_config_is_a_configuration(tmp_path, demo_file):
    first = Daemon(tmp_path, GOOD.format(path=demo_file))
    printed = first.run("--print-config").stdout
    first.config.write_text(printed)
    assert first.run("--print-config").stdout == printed
    assert first.run("--check").returncode == 0


@pytest.mark.parametrize("good, bad, message", MISTAKES, ids=[m[1].replace("\n", " ").strip() for m in MISTAKES])
def test_mistakes(tmp_path, demo_file, good, bad, message):
    config = GOOD.format(path=demo_file)
    assert good in config
    done = Daemon(tmp_path, config.replace(good, bad, 1)).run("--check")
    assert done.returncode != 0
    assert re.search(message, done.stderr), done.stderr


def test_a_missing_file_and_a_glob_that_matches_nothing(tmp_path):
    for path in ("nowhere.hdf5", "nowhere/*.hdf5"):
        done = Daemon(tmp_path, GOOD.format(path=path)).run("--check")
        assert done.returncode in (1, EX_CONFIG) and path.removesuffix("/*.hdf5") in done.stderr, done.stderr


@pytest.mark.parametrize("content", [b"", b"not HDF5 at all\n" * 100, b"\x89HDF\r\n\x1a\n" + bytes(88)],
                         ids=["empty", "text", "truncated"])
def test_files_that_are_no_files(tmp_path, content):
    (tmp_path / "bad.hdf5").write_bytes(content)
    done = Daemon(tmp_path, GOOD.format(path="bad.hdf5")).run("--check")
    assert done.returncode == 1 and "bad.hdf5" in done.stderr, done.stderr


def test_memory_that_is_not_there_is_refused(tmp_path, demo_file):
    one = Daemon(tmp_path, GOOD.format(path=demo_file))
    one.config.write_text(one.config.read_text().replace("store: 64MiB", "store: 100000GiB"))
    done = one.run("--check")
    assert done.returncode == 1 and "memory.store and memory.rings need" in done.stderr, done.stderr


def test_a_socket_path_that_is_too_long(tmp_path, demo_file):
    one = Daemon(tmp_path, GOOD.format(path=demo_file))
    one.config.write_text(one.config.read_text().replace("runtime: run", "runtime: " + "r" * 120))
    done = one.run()
    assert done.returncode != 0 and "107" in done.stderr, done.stderr


def test_texts_that_documents_must_quote(tmp_path, demo_file):
    folder = tmp_path / 'a, "b": c'
    folder.mkdir()
    (folder / "demo.hdf5").write_bytes(demo_file.read_bytes())
    one = Daemon(tmp_path, GOOD.format(path="'" + str(folder / "demo.hdf5") + "'"))
    printed = one.run("--print-config").stdout
    one.config.write_text(printed)
    assert one.run("--print-config").stdout == printed and str(folder).replace('"', '\\"') in printed
    assert one.run("--check").returncode == 0


def test_the_json_of_a_configuration_is_the_configuration(tmp_path, demo_file):
    one = Daemon(tmp_path, GOOD.format(path=demo_file) + "    split: 0..0.9\n    seed: +7\n    filter: 'train'\n    rate: 29.97\n")
    document = json.loads(one.run("--print-config", "--json").stdout)
    feed = document["feeds"]["train"]
    assert feed["seed"] == 7 and feed["global_batch"] == 8 and feed["rate"] == 29.97 and feed["filter"] == "train"
    assert feed["split"] == "0..0.9" and feed["outputs"]["actions"] == {"at": "0..3"}
    assert document["datasets"]["demo"] == {"path": str(demo_file), "layout": "demo"}
    one.config.write_text(json.dumps(document))  # JSON is valid YAML
    assert json.loads(one.run("--print-config", "--json").stdout) == document
    assert one.run("--check").returncode == 0


def test_a_document_that_does_not_arrive_whole_is_an_error(tmp_path, demo_file):
    one = Daemon(tmp_path, GOOD.format(path=demo_file))
    for what in ("--check", "--print-config"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([one.program, "--config", one.config, what], stdout=full, stderr=subprocess.PIPE, text=True,
                                  env=one.environment(), timeout=60)
        assert done.returncode != 0 and "standard output: No space left" in done.stderr, done.stderr


def test_values_of_the_command_line(tmp_path, demo_file):
    one = Daemon(tmp_path, GOOD.format(path=demo_file))

    def memory(*arguments):
        return json.loads(one.run("--print-config", "--json", *arguments).stdout)["memory"]

    assert memory("--set", "memory.store=1MiB")["store"] == 1 << 20
    assert memory("--preset", "memory.store=1MiB")["store"] == 64 << 20  # the file has 64MiB
    assert memory("--set", "memory.store=50%")["store"] > memory("--set", "memory.store=1%")["store"] > 1 << 20
    document = json.loads(one.run("--print-config", "--json", "--preset", "exit_idle=2s", "--set", "runtime=/else").stdout)
    assert document["exit_idle"] == "2000000000ns" and document["runtime"] == "/else"
    for first, second in (("--set", "--preset"), ("--preset", "--set")):  # the value of --set wins in either order
        values = {"--set": "exit_idle=7s", "--preset": "exit_idle=2s"}
        document = json.loads(one.run("--print-config", "--json", first, values[first], second, values[second]).stdout)
        assert document["exit_idle"] == "7000000000ns"
    for value, message in (("memory.stor=1MiB", "did you mean memory.store"), ("memory.store", "must have the form KEY=VALUE"),
                           ("memory.store=101%", "between 1% and 100%"), ("exit_idle=5", "command line:1: exit_idle: "),
                           ("feeds=1", "no such key")):
        done = one.run("--print-config", "--set", value)
        assert done.returncode == EX_CONFIG and message in done.stderr, done.stderr


def test_ready_fd_is_written_and_closed(tmp_path, demo_file):
    one = Daemon(tmp_path, GOOD.format(path=demo_file))
    reader, writer = os.pipe()
    process = subprocess.Popen([one.program, "--config", one.config, "--ready-fd", str(writer)], pass_fds=[writer],
                               env=one.environment(), stderr=subprocess.DEVNULL)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "ready\n"  # read to its end: the daemon has closed it
    process.terminate()
    assert process.wait(60) == 0
    assert one.run("--ready-fd", "99").returncode == 64


@pytest.mark.slow
def test_the_daemon_ends_after_its_last_worker(tmp_path, demo_file):
    one = Daemon(tmp_path, "exit_idle: 2s\n" + GOOD.format(path=demo_file)).start()
    client = one.client()
    client.open("train")
    client.next().release()
    begin = time.monotonic()
    while time.monotonic() < begin + 2.5:  # longer than exit_idle, but the daemon is not idle
        assert one.process.poll() is None
        one.client().close()
    client.close()
    wait_for(lambda: one.process.poll() is not None, 60, "its end")
    assert one.process.returncode == 0 and "no worker for 2 s (exit_idle)" in one.text()


def test_the_daemon_ends_if_nobody_ever_came(tmp_path, demo_file):
    one = Daemon(tmp_path, "exit_idle: 0.2s\n" + GOOD.format(path=demo_file))
    done = one.run()
    assert done.returncode == 0 and "(exit_idle)" in done.stderr, done.stderr
