"""A file that appears under the output's name while the output is written is not replaced, on old and new
filesystems (tests/fake/old_filesystem.c)."""
import os
import subprocess
import sys

import h5py
import pytest

from paths import BUILD, ROOT, TRAJCTL
from preprocess_station import ENVIRONMENT, counts
from users import ROOT_ALONE

sys.path.insert(0, str(ROOT / "tests/tools"))
from make_frame_files import LAYOUT, jpeg, pad  # noqa: E402

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


def pack(source, output, **environment):
    layout = output.with_name("lab.yaml")
    layout.write_text(LAYOUT.format(name="lab", groups="/data/ep_*", streams='  "cams/*": {path: images/*, kind: previous, image: {color: rgb}}\n'))
    done = subprocess.run([TRAJCTL, "pack", source, "-o", output, "--layout", layout], capture_output=True, text=True,
                          env={**ENVIRONMENT, **environment}, timeout=120)
    layout.unlink()
    return done


@pytest.fixture
def frames_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("frames") / "frames.hdf5"
    with h5py.File(path, "w") as file:
        file["data/ep_0/images/front"] = pad([jpeg(size=3000) for _ in range(8)], 4000)
    return path


@pytest.mark.parametrize("command", [resample, pack])
def test_a_partial_file_that_is_swapped_at_the_rename(tmp_path, small_file, frames_file, command):
    """In a folder that others may write to, another file can take the place of the one that was checked."""
    output = tmp_path / "out.hdf5"
    (tmp_path / "out.hdf5.partial.theirs").write_bytes(b"theirs")
    done = command(small_file if command is resample else frames_file, output, **OLD, TRAJD_TEST_SWAPS=f"{output}.partial")
    assert done.returncode == 1 and f"{output}: another process put its own file in the place of this one" in done.stderr, done


@pytest.mark.parametrize("command", [resample, pack])
def test_the_partial_file_of_a_killed_run_is_not_written_to(tmp_path, small_file, frames_file, command):
    """Whoever may write to it can have it open, and would write to the published file."""
    partial = tmp_path / "out.hdf5.partial"
    partial.write_bytes(b"of a killed run")
    partial.chmod(0o666)
    with open(partial, "r+b") as theirs:
        done = command(small_file if command is resample else frames_file, tmp_path / "out.hdf5")
        assert done.returncode == 0, done
        assert os.fstat(theirs.fileno()).st_nlink == 0 and theirs.read() == b"of a killed run"


@pytest.mark.parametrize("command", [resample, pack])
@pytest.mark.parametrize("kind", ["another user's", "a link", "a pipe"])
def test_a_partial_file_of_someone_else(tmp_path, small_file, frames_file, kind, command):
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
    done = command(small_file if command is resample else frames_file, tmp_path / "out.hdf5")
    assert done.returncode == 1 and f"{partial}: exists, and is not a regular file of this user" in done.stderr, done
    assert kind == "a pipe" or partial.read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == sorted({partial.name} | ({"theirs"} if kind == "a link" else set()))


COMMANDS = {"init": [], "resample": ["--rate", "10"], "pack": [], "inspect": ["--frame", "actions:0"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_is_a_pipe_is_refused_at_once(tmp_path, small_file, command):
    """No process reads it, so open would wait. `trajctl stats` is in tests/python/test_stats.py."""
    pipe = tmp_path / "out"
    os.mkfifo(pipe)
    done = subprocess.run([TRAJCTL, command, small_file, *COMMANDS[command], "-o", pipe], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 1 and pipe.name in done.stderr and pipe.is_fifo(), done


NOT_OURS = "is not a folder of this user that no other user may write to: remove it"


@pytest.mark.parametrize("kind", ["another user's", "a link to another user's", "a link to our own", "open to others", "a file"])
def test_a_staging_folder_of_someone_else(station, tmp_path, kind):
    """Whoever can write to it can have other bytes published, with a digest that fits."""
    if "another user's" in kind and os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    staging, other = station.outbox / ".trajd", tmp_path / "other"
    station.outbox.mkdir()
    (other if "link" in kind else staging).mkdir(mode=0o755) if kind != "a file" else staging.touch()
    if "link" in kind:
        staging.symlink_to(other)
    if "another user's" in kind:
        os.chown(staging, 65534, 65534)
    if kind == "open to others":
        staging.chmod(0o777)
    station.drop()
    assert f"a.hdf5: {staging}: {NOT_OURS}" in station.run(code=1)
    assert os.listdir(station.outbox) == [".trajd"] and os.listdir(station.inbox) == ["a.hdf5"]
    staging.rmdir() if staging.is_dir() and not staging.is_symlink() else staging.unlink()
    assert counts(station.run())[:3] == (1, 0, 0)


def test_a_staging_folder_that_is_swapped(station, monkeypatch):
    """Who may write to the outbox can give the name .trajd to another folder, with other files, but what was checked is published."""
    station.drop()
    station.run()
    expected = (station.outbox / "a.hdf5").read_bytes()
    identity = subprocess.run(["sha256sum"], input=b"a.hdf5", capture_output=True).stdout[:24].decode()
    for path in (station.outbox / "a.hdf5", station.outbox / "a.hdf5.manifest.json"):
        path.unlink()
    theirs = station.outbox / ".trajd.theirs"
    theirs.mkdir()
    (theirs / f"{identity}.staged").write_bytes(b"theirs")
    for key, value in {**OLD, "TRAJD_TEST_SWAPS": str(station.outbox / ".trajd")}.items():
        monkeypatch.setitem(ENVIRONMENT, key, value)
    assert counts(station.run())[:3] == (1, 0, 0)
    assert not theirs.exists() and (station.outbox / "a.hdf5").read_bytes() == expected
    assert os.listdir(station.outbox / ".trajd.aside") == []


@ROOT_ALONE
def test_a_manifest_of_someone_else(station):
    """Its owner chose what it says: it proves nothing, neither that a file is published nor which files may be removed."""
    station.drop()
    station.run()
    manifest, precious = station.outbox / "a.hdf5.manifest.json", station.folder / "precious"
    precious.write_text("precious")
    manifest.write_text(manifest.read_text().replace('"name":"a.hdf5","size_bytes"', '"name":"../precious","size_bytes"'))
    os.chown(manifest, 65534, 65534)
    (station.outbox / "a.hdf5").unlink()
    said = station.run()
    assert f"{manifest}: is not a regular file of this user, so it is not trusted" in said and counts(said)[:3] == (1, 0, 0), said
    assert precious.read_text() == "precious" and manifest.stat().st_uid == 0
