"""trajctl's options: each command's table is what --help, completions and the manual have, and each value has a right and a wrong form."""
import re
import subprocess

import pytest

from paths import ROOT, TRAJCTL

GENERAL = {"--endpoint", "--key", "--server-key", "--json", "--layout"}  # the page tells them once
VALUES = {"HZ": "10", "TIME": "1s", "[STREAM=]TIME": "a=1s", "STREAM=KIND": "a=linear", "[STREAM=]TYPE": "float32", "RULE": "gaps", "KIND": "mean",
          "I/N": "0/2", "X": "1e-3", "NAME": "name", "FILE": "file", "TRAIN,VALID": "a,b"}


def run(*arguments):
    return subprocess.run([TRAJCTL, *arguments], capture_output=True, text=True, timeout=60)


COMMANDS = run("names").stdout.split()


def options(command):
    return [word for word in run("names", command).stdout.split() if word.startswith("-")]


def values(command):
    """Returns the options that take a value, with a right one."""
    shown = re.findall(r"^ +(?:(-\w) (\S+)|(--[\w-]+)\[?=(\S+?\]?))(?: |$)", run(command, "--help").stdout, re.M)
    for letter, letters_value, name, value in shown:
        value = (letters_value or value).removesuffix("]") if value == "HZ]" else letters_value or value
        first = value.split("|")[0]
        yield letter or name, VALUES.get(value, "1" if value in {"N", "R", "W", "ID", "P", "E", "STEP", "POSITION", "QUALITY", "PERCENT"} else first)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_every_option(command):
    done = run(command, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: trajctl {command}") and not done.stderr
    assert run(command, "-h").stdout == done.stdout
    for option in options(command):
        assert re.search(rf"^ +{option}\b", done.stdout, re.M), option


@pytest.mark.parametrize("command", COMMANDS)
def test_values_follow_a_space_or_an_equals_sign(command):
    with_value = dict(values(command))
    assert set(with_value) == {o for o in options(command) if run("names", command, o).stdout.split()}
    for option, value in with_value.items():
        ways = [[option + ("=" if option.startswith("--") else "") + value]]
        ways += [[option, value]] if option != "--assume-rate" else [[option]]
        for words in ways:  # the value is read; then the command lacks an operand, or has too many
            done = run(command, *words, *(["a", "b", "c", "d"] if command in {"status", "metrics", "reload", "doctor", "names"} else []))
            assert done.returncode == 2 and re.search(r"trajctl: (name |unexpected argument|there is no command)", done.stderr), done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_slips_are_refused(command):
    for option in options(command):
        slip = option[:-1]
        if len(slip) < 5 or slip in options(command):
            continue
        done = run(command, slip)
        assert done.returncode == 2 and f"unknown option: {slip}" in done.stderr and f"usage: trajctl {command}" in done.stderr
        assert "did you mean --" in done.stderr


@pytest.mark.parametrize("words, message", [
    ("recv train --json=1", "--json takes no value"), ("recv train --count", "--count needs a value"), ("recv --count=", "not a whole number"),
    ("recv train --count=-1", 'count: "-1" is not a whole number'), ("recv train --rank 4294967296", 'rank: "4294967296" is too large'),
    ("bench train --workers=65", "--workers 65: choose 1 to 64"), ("explain train --window 1 --count 0", "--count must be at least 1"),
    ("plot file stream --rate=0", 'rate: "0" is not a rate above 0 (such as 20,'), ("plot file stream --from=5", 'from: "5" is not a time (such'),
    ("plot file stream --window 0s", 'window: "0s" is not a time above 0'), ("plot file stream --kind liner", "did you mean linear?"),
    ("stats train --format=csv", "--format csv: choose trajd, openpi or lerobot"), ("validate file --ignore=gabs", "the rules are"),
    ("resample file --assume-rate=0", 'assume-rate: "0" is not a rate'), ("resample file --compress gzip:10", "gzip:1 to gzip:9"),
    ("resample file --backend=gpu", "choose cpu, auto, cuda or daemon"), ("resample file --threads=0", "choose 1 to 64"),
    ("keygen keys --client=a/b", "1 to 64 letters"), ("inspect a b --frame s:0 -o x.png", "--frame takes one file"),
    ("check", "name a configuration file"), ("diff a b", "name two endpoints and a feed"), ("names nope", "there is no command nope")])
def test_wrong_values(words, message):
    done = run(*words.split())
    assert done.returncode == 2 and message in done.stderr and f"usage: trajctl {words.split()[0]}" in done.stderr, done.stderr


def test_two_dashes_end_the_options(tmp_path):
    done = run("inspect", "--json", "--", "--json", "-o")
    assert done.returncode == 1 and "--json: No such file" in done.stderr and "-o: No such file" in done.stderr


def test_the_manual_has_the_same_options():
    page = (ROOT / "clients/cli/trajctl.1").read_text()
    told = {}
    for entry in re.split(r"(?m)^\.(?=It Cm|Ss)", page.split(".Ss Metrics")[0]):
        if entry.startswith("It Cm"):
            found = re.findall(r"\bFl (-?[a-z][\w-]*)| , (-[a-z][\w-]*)", entry)
            told.setdefault(entry.split()[2], set()).update("-" + (one or other) for one, other in found)
    every = set().union(*map(options, COMMANDS)) | {"--check"}
    for command in COMMANDS:
        lacking = set(options(command)) - GENERAL - told[command]
        assert not lacking, f"trajctl.1 lacks {lacking} of {command}"
        assert told[command] <= every, f"trajctl.1 has {told[command] - every} at {command}, which no command has"
