"""trajctl preprocess: each file of an inbox is published once, even if files, folders or the program change
meanwhile."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import textwrap
import time

import h5py
import numpy as np
import pytest

from paths import BUILD, ROOT, TRAJCTL
from preprocess_station import ENVIRONMENT, Station, counts
from waiting import wait_for


def values(path):
    with h5py.File(path) as file:
        return {name: file[name][()] for name in
                [n for n in (lambda found: file.visititems(lambda n, o: found.append(n) if isinstance(o, h5py.Dataset) else None) or found)([])]}


def test_a_file_is_published_once(station):
    station.drop("sub/a.hdf5")
    said = station.run()
    assert counts(said) == (1, 0, 0, 0, 0, 1) and "sub/a.hdf5: published, 8 episodes, 0 left out" in said
    manifest = station.manifest("sub/a.hdf5")
    assert manifest["state"] == "published" and manifest["episodes"] == 8 and manifest["left_out"] == 0 and manifest["layout"] == "demo" and manifest["rate_hz"] == 10
    assert manifest["source"]["size_bytes"] == (station.inbox / "sub/a.hdf5").stat().st_size
    checked = subprocess.run(["sha256sum", "-c", "a.hdf5.sha256"], cwd=station.outbox / "sub", capture_output=True, text=True)
    assert checked.returncode == 0 and manifest["output"]["sha256"] in (station.outbox / "sub/a.hdf5.sha256").read_text()
    assert values(station.outbox / "sub/a.hdf5")
    found = json.loads(subprocess.run([TRAJCTL, "validate", "--json", "--layout", "demo", station.outbox / "sub/a.hdf5"],
                                      capture_output=True, text=True).stdout)
    assert not {f["rule"] for f in found} & {"refused", "quarantined", "unreadable", "gaps", "stamps"}
    assert station.staged() == []
    before = (station.outbox / "sub/a.hdf5").stat()
    assert counts(station.run()) == (0, 0, 0, 0, 0, 1)
    os.utime(station.inbox / "sub/a.hdf5")  # the same content: recognised by its digest, and from then on by its time
    assert counts(station.run()) == (0, 0, 0, 0, 0, 1)
    assert station.manifest("sub/a.hdf5")["source"]["mtime_ns"] == (station.inbox / "sub/a.hdf5").stat().st_mtime_ns
    assert station.manifest("sub/a.hdf5")["source"]["sha256"] == manifest["source"]["sha256"]
    written = station.outbox / "sub/a.hdf5.manifest.json"
    written.write_text(json.dumps(json.loads(written.read_text())))  # with spaces, as older versions wrote it
    os.utime(station.inbox / "sub/a.hdf5")
    assert counts(station.run())[0] == 0
    assert station.manifest("sub/a.hdf5")["source"]["mtime_ns"] == (station.inbox / "sub/a.hdf5").stat().st_mtime_ns
    assert (station.outbox / "sub/a.hdf5").stat().st_ino == before.st_ino


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664)])
def test_manifest_and_checksum_have_the_mode_of_the_data(station, umask, mode):
    station.drop()
    before = os.umask(umask)
    try:
        station.run("--once")
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in station.outbox.glob("a.hdf5*")} == {
        "a.hdf5": mode, "a.hdf5.sha256": mode, "a.hdf5.manifest.json": mode}


def test_a_small_file_stays_small(tmp_path):
    """Its datasets have some KB; so has the space for the names of its objects."""
    with h5py.File(tmp_path / "small.hdf5", "w") as file:
        for demo in range(20):
            for name, width in (("actions", 7), ("obs/pos", 3), ("obs/quat", 4)):
                file[f"data/demo_{demo}/{name}"] = np.arange(60.0 * width, dtype=np.float32).reshape(60, width)
    one = Station(tmp_path, tmp_path / "small.hdf5", layout="robomimic", rate=20, assume_rate="true")
    one.drop()
    one.run("--once")
    before, after = ((folder / "a.hdf5").stat().st_size for folder in (one.inbox, one.outbox))
    assert after < 1.2 * before, f"{before} bytes became {after}"


def test_what_has_changed_is_made_anew(station):
    path = station.drop()
    station.run()
    first = station.manifest()
    station.write(rate=20)
    assert counts(station.run())[0] == 1
    second = station.manifest()
    assert second["recipe"] != first["recipe"] and second["output"]["size_bytes"] > first["output"]["size_bytes"]
    with h5py.File(path, "a") as file:  # another content
        file["note"] = 1
    assert counts(station.run())[0] == 1
    assert station.manifest()["source"]["sha256"] != second["source"]["sha256"]
    (station.outbox / "a.hdf5").write_bytes(b"damaged")
    assert counts(station.run())[0] == 1 and station.manifest()["output"]["size_bytes"] == (station.outbox / "a.hdf5").stat().st_size
    os.utime(station.outbox / "a.hdf5")  # an outbox that was copied: the content decides
    assert counts(station.run())[0] == 0
    (station.outbox / "a.hdf5").write_bytes(bytes(station.manifest()["output"]["size_bytes"]))
    assert counts(station.run())[0] == 1
    (station.outbox / "a.hdf5.manifest.json").write_text('{"version": 1, "sta')
    assert counts(station.run())[0] == 1
    station.write(settle="60ms", threads=1)  # place and time do not affect a file's output
    assert counts(station.run())[0] == 0


def test_what_is_not_fit_is_put_aside_with_the_reason(station):
    station.drop("good.hdf5")
    station.drop("bad.hdf5", b"not HDF5 at all\n" * 100)
    station.drop("cut.hdf5", station.source_file.read_bytes()[:20000])
    with h5py.File(station.drop("nan.hdf5"), "a") as file:
        episode = next(name for name in file["data"] if len(file[f"data/{name}/obs/robot0_eef_pos"]) > 9)
        file[f"data/{episode}/obs/robot0_eef_pos"][5, 1] = np.nan
    said = station.run()
    assert counts(said) == (1, 3, 0, 0, 0, 4) and "nan.hdf5: quarantined: not-finite: " in said, said
    assert sorted(p.name for p in station.inbox.iterdir()) == ["good.hdf5"]
    for name, rule in (("bad", "bad.hdf5"), ("cut", "cut.hdf5"), ("nan", "not-finite")):
        assert (station.quarantine / f"{name}.hdf5").exists()
        report = json.loads((station.quarantine / f"{name}.hdf5.report.json").read_text())
        assert report["state"] == "refused" and rule in report["reason"] and not (station.outbox / f"{name}.hdf5").exists()
    finding = next(f for f in report["findings"] if f["refuses"])
    assert finding["episode"] == episode and finding["row"] == 5 and report["finding_count"] == len(report["findings"])
    station.write(rules="{not-finite: report}")
    os.rename(station.quarantine / "nan.hdf5", station.inbox / "nan.hdf5")  # as an operator does after reading the report
    assert counts(station.run())[:2] == (2, 0)  # another recipe: all files are made again
    assert any(f["rule"] == "not-finite" for f in station.manifest("nan.hdf5")["findings"])
    station.write(resample="{streams: [nothing]}")
    assert counts(station.run())[:2] == (0, 2)
    assert "nothing" in json.loads((station.quarantine / "good.hdf5.report.json").read_text())["reason"]


def test_what_was_put_aside_is_not_overwritten(station):
    contents = [b"first", b"second", b"third"]
    for content in contents:
        station.drop("bad.hdf5", content)
        assert counts(station.run())[:2] == (0, 1)
    for name, content in zip(("bad.hdf5.1", "bad.hdf5.2", "bad.hdf5"), contents):
        assert (station.quarantine / name).read_bytes() == content
        assert json.loads((station.quarantine / f"{name}.report.json").read_text())["source"]["size_bytes"] == len(content)


def test_a_lease_that_is_broken_ends_nothing(station):
    """When another program opens a file with a lease the kernel sends SIGIO, which by default kills the process."""
    def ignores():
        return int(re.search(r"SigIgn:\s+(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1], 16) >> (signal.SIGIO - 1) & 1

    with open(station.drop(), "ab"):
        process = station.begin()
        wait_for(ignores, 60, "it to ignore SIGIO")
        process.send_signal(signal.SIGIO)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0 and counts(said)[0] == 1, said


def test_a_file_that_is_being_written_is_left_alone(station):
    with open(station.drop("open.hdf5"), "ab"):  # no program has changed it for long, but one may
        station.drop("other.hdf5.partial")
        station.drop(".hidden.hdf5")
        station.drop("closed.hdf5")
        said = station.run("--once")
        assert counts(said) == (1, 0, 0, 0, 1, 2) and (station.outbox / "closed.hdf5").exists(), said
        process = station.begin()  # waits for it
        wait_for(lambda: process.poll() is not None or pathlib.Path(f"/proc/{process.pid}/wchan").exists())
        time.sleep(0.3)
        assert process.poll() is None and not (station.outbox / "open.hdf5").exists()
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 0 and counts(said)[0] == 1 and counts(said)[4] == 0, said


def test_a_disk_that_fails_condemns_no_file(station, small_file, monkeypatch):
    """The disk fails while rows are read for the first time, because the index is there already."""
    with h5py.File(small_file) as file:
        rows = file["data/demo_4/joint_pos"].id
        offset = rows.get_offset() + rows.get_storage_size() // 2
    monkeypatch.setitem(ENVIRONMENT, "LD_PRELOAD", str(BUILD / "tests/fake/libbad_disk.so"))
    monkeypatch.setitem(ENVIRONMENT, "ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0")
    monkeypatch.setitem(ENVIRONMENT, "TRAJD_TEST_BAD_BYTE", str(offset))
    path = station.drop()
    said = station.run(code=1)
    assert counts(said)[:3] == (0, 0, 1) and "demo_4: joint_pos: " in said and "Input/output error" in said, said
    assert path.exists() and not any(station.quarantine.glob("a.hdf5*"))
    monkeypatch.setitem(ENVIRONMENT, "TRAJD_TEST_BAD_BYTE", "-1")
    assert counts(station.run())[:3] == (1, 0, 0)


@pytest.mark.slow
def test_a_file_that_grows_is_not_settled(station):
    station.write(settle="2s")
    data = station.source_file.read_bytes()
    path = station.drop(content=data[:1000])
    process = station.begin()
    for at in range(1000, len(data), len(data) // 6):  # by a program that closes it each time
        time.sleep(0.15)
        assert process.poll() is None and not station.outbox.joinpath("a.hdf5").exists()
        with open(path, "ab") as file:
            file.write(data[at:at + len(data) // 6])
    said = process.communicate(timeout=60)[0]
    assert counts(said)[:2] == (1, 0) and path.read_bytes() == data, said


def test_a_kill_at_any_moment_loses_nothing(tmp_path, small_file):
    whole = Station(tmp_path, small_file)
    whole.drop()
    begin = time.monotonic()
    whole.run()
    duration = time.monotonic() - begin
    wanted = values(whole.outbox / "a.hdf5")
    (tmp_path / "killed").mkdir()
    station = Station(tmp_path / "killed", small_file, settle="0s")
    station.drop()
    station.drop("bad.hdf5", b"nothing")
    done = 0
    for turn in range(12):
        process = station.begin()
        time.sleep(duration * turn / 8)
        if turn % 4 == 3:  # late enough on any machine
            wait_for(lambda: process.poll() is not None or (station.outbox / "a.hdf5").exists())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if (station.outbox / "a.hdf5").exists():  # each file that is there is complete
            assert values(station.outbox / "a.hdf5").keys() == wanted.keys()
            done += 1
        assert (station.inbox / "bad.hdf5").exists() or (station.quarantine / "bad.hdf5").exists()
        if turn % 4 == 3:
            shutil.rmtree(station.outbox)
            station.drop("bad.hdf5", b"nothing else %d" % turn)
    assert 0 < done < 12
    station.run()
    again = values(station.outbox / "a.hdf5")
    assert all(np.array_equal(again[name], wanted[name], equal_nan=wanted[name].dtype.kind == "f") for name in wanted)
    assert json.loads((station.quarantine / "bad.hdf5.report.json").read_text())["state"] == "refused"
    assert station.staged() == [] and not list(station.folder.rglob("*.new"))
    assert counts(station.run())[:3] == (0, 0, 0)


def test_two_runs_do_not_collide(station):
    for number in range(6):
        station.drop(f"{number}.hdf5")
    runs = [station.begin("--once") for _ in range(3)]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert sum(counts(text)[0] for text in said) == 6 and sum(text.count(": published") for text in said) == 6, said
    assert len(list(station.outbox.glob("*.hdf5"))) == 6
    assert counts(station.run())[:4] == (0, 0, 0, 0) and station.staged() == []


def test_shards_split_the_inbox(station):
    for number in range(9):
        station.drop(f"{number}.hdf5", b"x")
    seen = []
    for shard in range(3):
        station.run("--shard", f"{shard}/3")
        now = sorted(p.name for p in station.quarantine.glob("*.hdf5"))
        seen.append(len(now) - sum(seen))
    assert sum(seen) == 9 and max(seen) < 9
    for wrong in ("3/3", "0/0", "1", "a/b", "1/3x"):
        assert "I from 0 to N-1" in station.run("--shard", wrong, code=2)


def test_other_filesystems_and_full_or_read_only_ones(tmp_path, small_file):
    def mount(path, *options):
        path.mkdir(exist_ok=True)
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path, "-o", ",".join(options)], capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        stack.callback(subprocess.run, ["umount", "-l", path])

    with contextlib.ExitStack() as stack:
        mount(tmp_path / "elsewhere", "size=64M")
        station = Station(tmp_path, small_file, inbox=tmp_path / "elsewhere")
        station.drop()
        station.drop("bad.hdf5", b"nothing")
        assert counts(station.run())[:2] == (1, 1)  # across filesystems
        assert (station.quarantine / "bad.hdf5").read_bytes() == b"nothing" and not (station.inbox / "bad.hdf5").exists()
        station.drop("worse.hdf5", b"still nothing")
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "elsewhere"], check=True)
        said = station.run()
        assert "worse.hdf5: quarantined" in said and "stays in the inbox" in said
        assert (station.quarantine / "worse.hdf5.report.json").exists() and (station.inbox / "worse.hdf5").exists()
        said = station.run()
        assert counts(said)[:3] == (0, 0, 0) and "quarantined: " not in said, said
    with contextlib.ExitStack() as stack:
        (tmp_path / "small").mkdir()
        mount(tmp_path / "small" / "outbox", "size=40k")
        station = Station(tmp_path / "small", small_file)
        station.drop()
        said = station.run(code=1)
        assert "No space left" in said and "left for the next run" in said, said
        assert not list(station.outbox.glob("*.hdf5")) and (station.inbox / "a.hdf5").exists() and not list(station.quarantine.iterdir())
        subprocess.run(["mount", "-o", "remount,size=64M", tmp_path / "small" / "outbox"], check=True)
        assert counts(station.run())[0] == 1


def test_a_clock_that_jumps_decides_nothing(station):
    for name, seconds in (("past.hdf5", 1), ("future.hdf5", 4102444800)):
        os.utime(station.drop(name), (seconds, seconds))
    assert counts(station.run())[0] == 2 and counts(station.run())[0] == 0


def test_a_configuration_that_changes_meanwhile(station):
    station.write(settle="1s")
    station.drop()
    process = station.begin()
    wait_for(lambda: station.quarantine.exists())
    station.write(rate=20)
    said = process.communicate(timeout=60)[0]
    assert "has changed since this run read it" in said and station.manifest()["rate_hz"] == 10, said
    assert counts(station.run())[0] == 1 and station.manifest()["rate_hz"] == 20


def test_a_signal_ends_it_and_the_next_run_goes_on(station):
    station.write(settle="60s")
    station.drop()
    process = station.begin()
    wait_for(lambda: station.quarantine.exists())
    process.terminate()
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 143 and "the next run continues" in said
    station.write(settle="0s")
    assert counts(station.run())[0] == 1


@pytest.fixture
def tools(station):
    """tools(text) makes a folder with trajctl and, beside it, a script in place of the helper program. Without text
    it is the helper program itself."""
    folder = station.folder / "bin"
    folder.mkdir()
    (station.folder / "share/trajd").mkdir(parents=True)
    (station.folder / "share/trajd/layouts").symlink_to(ROOT / "configs/layouts")
    shutil.copy(TRAJCTL, folder / "trajctl")
    real = BUILD / "daemon/hdf5/trajd-indexer"

    def make(text="exec"):
        (folder / "trajd-indexer").write_text(f'#!/bin/sh\n[ "$1" = write ] && exec {real} "$@"\n' +
                                              ("" if text == "exec" else f"{text}\n") + f'exec {real} "$@"\n')
        (folder / "trajd-indexer").chmod(0o755)
        return folder / "trajctl"

    return make


def test_a_child_that_is_killed_condemns_no_file(station, tools):
    station.drop()
    said = station.run(code=1, program=tools("kill -KILL $$"))
    assert counts(said)[:3] == (0, 0, 1) and "killed by signal 9 (Killed) from outside, 3 times" in said and "left for the next run" in said, said
    assert (station.inbox / "a.hdf5").exists() and not list(station.quarantine.iterdir()) and not list(station.outbox.glob("*.hdf5"))
    once = station.folder / "killed"
    assert counts(station.run(program=tools(f"[ -e {once} ] || {{ touch {once}; kill -KILL $$; }}")))[:3] == (1, 0, 0)


def test_ctrl_c_condemns_no_file(station, tools):
    """Ctrl-C sends the signal to the terminal's whole process group, children included."""
    station.drop()
    begun = station.folder / "begun"
    process = station.begin(program=tools(f"touch {begun}\nexec sleep 3600"), start_new_session=True)
    wait_for(begun.exists)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130 and "ended by signal 2: the next run continues" in said, said
    assert counts(said.replace("ended by", "").rsplit("\n", 2)[0])[:3] == (0, 0, 0) and (station.inbox / "a.hdf5").exists()
    assert not list(station.quarantine.iterdir())
    assert counts(station.run(program=tools()))[0] == 1


@pytest.mark.parametrize("keys, message", [
    ({"rate": 0}, "rate"), ({"rat": 3}, "lab.yaml:9: rat: no such key (did you mean rate?)"), ({"layout": "dmo"}, "dmo.yaml"),
    ({"outbox": "inbox/out"}, "must not contain each other"), ({"resample": "{each: {actions: {kind: cubic}}}"}, "cubic"),
    ({"resample": "{dtype: int8}"}, "float16, float32 and float64"), ({"resample": "{max_gap: 0}"}, "a time above 0"),
    ({"rules": "{gap: ignore}"}, "did you mean gaps"), ({"rules": "{refused: ignore}"}, "always refused"), ({"settle": "2h"}, "between 0s and 1h"),
    ({"outbox": "/proc/nothing"}, "/proc/nothing"),
])
def test_mistakes(station, keys, message):
    station.write(**keys)
    assert message in station.run(code=1)


def test_the_example_is_a_configuration(station):
    text = (ROOT / "configs/preprocess.yaml").read_text().replace("/srv/trajd/NAME", str(station.folder))
    text = re.sub(r"(?m)^# (layout: robomimic.*)$", "layout: demo", text)
    station.config.write_text(text.replace("settle: 10s", "settle: 0s").replace("rate: 20", "rate: 10"))
    station.drop()
    assert counts(station.run())[0] == 1
    uncommented = re.sub(r"(?m)^( *)# (\w+: .*|  obs/.*)$", r"\1\2", textwrap.dedent(text))
    assert "compress_level: 4" in uncommented


def test_parts_of_an_episode_are_files(tmp_path):
    """A layout with one episode per file: max_gap gives a file for each part, and one manifest lists them."""
    (tmp_path / "one.yaml").write_text("layout: one\nepisodes: {files: '*.hdf5', groups: /}\nclocks: {arm: {path: t, unit: ms}}\n"
                                       "streams: {pose: {path: pose, kind: linear}}\n")

    def drop(station, name, *holes):
        t = np.arange(100) * 10
        for row in holes:
            t[row:] += 1000
        with h5py.File(station.inbox / name, "w") as file:
            file["t"], file["pose"] = t, np.arange(100.0)

    def names():
        return sorted(path.name for path in station.outbox.glob("*") if path.name[0] != ".")

    def with_checksums(*outputs):
        return sorted([*outputs, *(f"{name}.sha256" for name in outputs), "a.hdf5.manifest.json"])

    station = Station(tmp_path, None, layout=tmp_path / "one.yaml", rate=50, resample="{max_gap: 200ms}")
    drop(station, "a.hdf5", 20, 60)
    assert counts(station.run()) == (1, 0, 0, 0, 0, 1)
    parts = ["a_part0.hdf5", "a_part1.hdf5", "a_part2.hdf5"]
    assert names() == with_checksums(*parts) and station.staged() == []
    manifest = station.manifest()
    assert [part["name"] for part in manifest["parts"]] == parts and manifest["output"] == manifest["parts"][0] and manifest["cut"] == 1
    assert subprocess.run("sha256sum -c *.sha256", shell=True, cwd=station.outbox, capture_output=True).returncode == 0
    lengths = [len(values(station.outbox / name)["pose"]) for name in parts]
    assert lengths == [10, 20, 20] and not (station.outbox / "a.hdf5").exists()
    assert counts(station.run())[0] == 0  # the manifest shows that it is done
    (station.outbox / parts[1]).unlink()
    assert counts(station.run())[0] == 1 and names() == with_checksums(*parts)
    (station.outbox / "a.hdf5.manifest.json").unlink()  # killed before it was written
    assert counts(station.run())[0] == 1 and names() == with_checksums(*parts)
    drop(station, "a.hdf5", 50)  # fewer parts: those of the earlier file are removed
    assert counts(station.run())[0] == 1 and names() == with_checksums(*parts[:2])
    drop(station, "a.hdf5")  # none
    assert counts(station.run())[0] == 1 and names() == with_checksums("a.hdf5") and "parts" not in station.manifest()
    (station.outbox / "a_part1.hdf5").write_text("another's")
    drop(station, "a.hdf5", 50)
    assert "a_part1.hdf5 exists, but no manifest shows" in station.run(code=1)
    assert (station.outbox / "a_part1.hdf5").read_text() == "another's" and (station.outbox / "a.hdf5").exists()
    (station.outbox / "a_part1.hdf5").unlink()
    assert counts(station.run())[0] == 1 and names() == with_checksums(*parts[:2])
