"""Names of workers and jobs that hide or turn what follows them: every output shows them as escapes."""
import json
import subprocess

import pytest

import libtrajd as trajd
from daemons import LIBRARY
from feeds import SMALL_BATCHES
from paths import TRAJCTL, clean_environment

HIDDEN = ["\x1b", "\u202e", "\u2066", "\u200b", "\x9b", "\ufeff", "\U000e0041"]
NAME, JOB = "gnp\u202efdp\u2066\x1b[2J", "job\n1\t\u200b\x9b2J\ufeff\U000e0041"
SHOWN_NAME, SHOWN_JOB = r"gnp\u202efdp\u2066\u001b[2J", r"job\u000a1\u0009\u200b\u009b2J\ufeff\U000e0041"


def trajctl(one, *arguments):
    return subprocess.run([TRAJCTL, *arguments, "--endpoint", one.endpoint], capture_output=True, text=True, env=clean_environment(), timeout=60)


def assert_visible(text):
    assert not [character for character in HIDDEN if character in text], text


def test_names_that_hide_something(daemon, demo_file):
    one = daemon(SMALL_BATCHES.format(path=demo_file))
    client = trajd.Client(LIBRARY, str(one.endpoint), name=NAME)
    client.open("train", job=JOB, mode=trajd.SHARD, rank=0, world=2)
    said = trajctl(one, "status").stdout
    assert_visible(said)
    assert SHOWN_NAME in said and SHOWN_JOB in said
    said = trajctl(one, "status", "--json").stdout
    document = json.loads(said)
    assert_visible(said)  # escapes of JSON, with the same value
    assert NAME in [session["client"] for session in document["sessions"]] and document["feeds"][0]["job"] == JOB
    said = trajctl(one, "metrics").stdout
    assert_visible(said)
    assert SHOWN_NAME.replace("\\", "\\\\") in said and SHOWN_JOB.replace("\\", "\\\\") in said
    other = trajd.Client(LIBRARY, str(one.endpoint))
    with pytest.raises(trajd.TrajdError) as refused:
        other.open("train", job=JOB, mode=trajd.SHARD, rank=5, world=3, timeout_ms=1000)
    assert_visible(str(refused.value))
    other.close()
    client.close()
    one.stop()
    assert_visible(one.text())
