"""The net: two records of one build are equal, whatever the folder, the threads and the seed of
hashes; a change is listed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from paths import BUILD

pytestmark = [pytest.mark.slow, pytest.mark.release]
NET = pathlib.Path(__file__).with_name("net.py")
TINY = ("arrays/layouts/linear", "resample/odd/stamps", "feeds/windows/pad_some")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, NET, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_two_records_are_equal_and_a_change_is_listed(tmp_path):
    assert run("data", "--out", tmp_path / "data").returncode == 0
    only = [word for name in TINY for word in ("--only", name)]
    for number, more in enumerate(((), ("--threads", "1"))):
        done = run(
            "record",
            "--build",
            BUILD,
            "--data",
            tmp_path / "data",
            "--out",
            tmp_path / f"{number}.json",
            *only,
            *more,
            PYTHONHASHSEED=str(number),
        )
        assert done.returncode == 0 and "of which 0 say that a case failed" in done.stdout, (
            done.stdout + done.stderr
        )
    same = run("compare", tmp_path / "0.json", tmp_path / "1.json")
    assert same.returncode == 0, same.stdout

    record = json.loads((tmp_path / "1.json").read_text())
    record["items"].pop("arrays/layouts/linear/strided")
    record["items"]["feeds/windows/pad_some/actions"]["sha256"] = "0"
    (tmp_path / "1.json").write_text(json.dumps(record))
    changed = run("compare", tmp_path / "0.json", tmp_path / "1.json")
    assert changed.returncode == 1
    assert (
        "missing  arrays/layouts/linear/strided\n" in changed.stdout
        and "differs  feeds/windows/pad_some/actions\n" in changed.stdout
    )
