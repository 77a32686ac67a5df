"""A file that appears under the output's name while the output is written is not replaced, on old and new
filesystems (tests/fake/old_filesystem.c)."""
import os
import subprocess

import pytest

from paths import BUILD, TRAJCTL
from preprocess_station import ENVIRONMENT, counts

OLD = {"LD_PRELOAD": str(BUILD / "tests/fake/libold_filesystem.so"), "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0"}
KINDS = {"as it is": {}, "links": OLD, "neither": {**OLD, "TRAJD_TEST_NO_LINKS": "1"}}


def resample(source, output, **environment):
    return subprocess.run([TRAJCTL, "resample", source, "-o", output, "--layout", "demo", "--rate", "10", "--json"], capture_output=True, text=True,
                          env={**ENVIRONMENT, **environment}, timeout=120)


@pytest.mark.parametrize("kind", KINDS)
def test_resample_takes_a_free_name(tmp_path, small_file, kind):
    output = tmp_path / "out.hdf5"
    done = resample(small_file, output, **KINDS[kind])
    assert done.returncode == 0 and output.stat().st_nlink == 1 and sorted(os.listdir(tmp_path)) == ["out.hdf5"], done
    assert ("can neither rename without replacing nor link" in done.stdout + done.stderr) == (kind == "neither")


@pytest.mark.parametrize("kind", ["links", "neither"])
def test_resample_replaces_nothing_that_appeared(tmp_path, small_file, kind):
    output = tmp_path / "out.hdf5"
    done = resample(small_file, output, **KINDS[kind], TRAJD_TEST_APPEARS=str(output))
    assert done.returncode == 1 and "out.hdf5: File exists" in done.stderr, done
    assert output.read_text() == "another's\n" and not (tmp_path / "out.hdf5.partial").exists()
    assert output.stat().st_nlink == 1


@pytest.mark.parametrize("kind", KINDS)
def test_preprocess_publishes_what_is_new_and_its_own(station, kind, monkeypatch):
    for key, value in KINDS[kind].items():
        monkeypatch.setitem(ENVIRONMENT, key, value)
    station.drop()
    assert counts(station.run())[:3] == (1, 0, 0)
    assert any("can neither rename" in note for note in station.manifest()["notes"]) == (kind == "neither")
    station.write(rate=20)
    assert counts(station.run())[:3] == (1, 0, 0) and station.manifest()["rate_hz"] == 20
    assert station.staged() == [] and (station.outbox / "a.hdf5").stat().st_nlink == 1
    (station.outbox / "a.hdf5.manifest.json").unlink()  # killed before it was written
    station.write(rate=10)
    assert counts(station.run())[:3] == (1, 0, 0) and station.manifest()["rate_hz"] == 10


@pytest.mark.parametrize("kind", ["links", "neither"])
def test_preprocess_replaces_nothing_of_others(station, kind, monkeypatch):
    output = station.outbox / "a.hdf5"
    station.drop()
    for key, value in {**KINDS[kind], "TRAJD_TEST_APPEARS": str(output)}.items():
        monkeypatch.setitem(ENVIRONMENT, key, value)
    assert "a.hdf5: File exists: it is left for the next run" in station.run(code=1)
    assert output.read_text() == "another's\n"
    assert "no manifest shows that it was published here: it is not replaced" in station.run(code=1)
    assert output.read_text() == "another's\n" and (station.inbox / "a.hdf5").exists()
    output.unlink()
    monkeypatch.delitem(ENVIRONMENT, "TRAJD_TEST_APPEARS")
    assert counts(station.run())[:3] == (1, 0, 0)


@pytest.mark.parametrize("kind", ["another user's", "a link", "a pipe"])
def test_a_partial_file_of_someone_else(tmp_path, small_file, kind):
    """In a folder that others may write to, someone can put OUT.partial there and read or change the rows."""
    partial, theirs = tmp_path / "out.hdf5.partial", tmp_path / "theirs"
    if kind == "a pipe":
        os.mkfifo(partial)
    else:
        (partial if kind == "another user's" else theirs).write_bytes(b"theirs")
    if kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file to another user")
        os.chown(partial, 65534, 65534)
    elif kind == "a link":
        os.link(theirs, partial)
    done = resample(small_file, tmp_path / "out.hdf5")
    assert done.returncode == 1 and f"{partial}: exists, and is not a regular file of this user" in done.stderr, done
    assert kind == "a pipe" or partial.read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == sorted({partial.name} | ({"theirs"} if kind == "a link" else set()))
