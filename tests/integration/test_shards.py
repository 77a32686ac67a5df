"""--shard I/N of resample, pack and preprocess, and trajctl merge: shards that are killed at random make the folder that
one process makes."""
import hashlib
import json
import random
import shutil
import subprocess

import pytest

from daemons import Daemon
from datasets import make_demo_file
from paths import TRAJCTL, clean_environment
from preprocess_station import Station
from waiting import wait_for

FILES = 11
FEED = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    anchor: {{clock: actions}}
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      obs/robot0_eef_quat: {{at: -1..0}}
      actions: {{at: 0..3}}
"""
ENVIRONMENT = clean_environment(ASAN_OPTIONS="detect_leaks=1:abort_on_error=0")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory):
    """A folder of recordings with different episodes, of which one is in a folder of its own."""
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "b").mkdir()
    for number in range(FILES):
        make_demo_file(folder / (f"run_{number}.hdf5" if number else "b/run_0.hdf5"), "--seed", str(number), episodes=2)
    return folder


def begin(command, *arguments):
    return subprocess.Popen([TRAJCTL, command, *map(str, arguments)], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(command, *arguments, code=0):
    process = begin(command, *arguments)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == code, said
    return said


def resample(folder, out, shard, *more, rate=10, **options):
    return run("resample", folder, "-o", out, "--rate", rate, "--layout", "demo", "--shard", shard, *more, **options)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def figures(started, path):
    """Returns fingerprint and statistics of a feed on a folder, by a daemon without a cache."""
    client = started(Daemon(path.with_name(f"daemon_{path.name}"), FEED.format(path=path))).client()
    found = {"fingerprint": client.open("train").fingerprint}
    for name in ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "actions"):
        wait_for(lambda: client.ask("statistics", name)["state"] != "computing", 60, "statistics")
        found[name] = client.ask("statistics", name)
        del found[name]["fingerprint"]  # of these files on this disk, for the cache
    client.close()
    return found


def kill_until_done(random_, start):
    """Starts a shard again and again, and kills it after a random time, until it ends by itself. Returns the number of kills."""
    kills = 0
    while True:
        process = start()
        try:
            said = process.communicate(timeout=random_.uniform(0, 0.02) * (1 + 2 * kills))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            continue
        if process.returncode == 0:
            return kills
        assert "another run" in said or "killed" in said, said  # the helper program of the killed run is just ending


@pytest.mark.slow
def test_killed_shards_make_the_folder_of_one_process(started, recordings, tmp_path):
    whole = tmp_path / "whole"
    resample(recordings, whole, "0/1")
    assert f"{FILES} files of 1 shard" in run("merge", whole)
    expected, kills, random_ = figures(started, whole), 0, random.Random(33)
    digests = {path.relative_to(whole): hashlib.sha256(path.read_bytes()).digest() for path in whole.rglob("*.hdf5")}
    assert len(digests) == FILES
    for count in (1, 3, 7):
        out = tmp_path / f"of_{count}"
        for shard in random_.sample(range(count), count):
            kills += kill_until_done(random_, lambda: begin("resample", recordings, "-o", out, "--rate", 10, "--layout", "demo", "--shard",
                                                            f"{shard}/{count}"))
        run("merge", out)
        assert manifest(out)["fingerprint"] == manifest(whole)["fingerprint"]
        assert manifest(out)["episodes"] == manifest(whole)["episodes"] == 2 * FILES
        assert [file["source"]["name"] for file in manifest(out)["files"]] == [file["source"]["name"] for file in manifest(whole)["files"]]
        assert figures(started, out) == expected
        assert {path.relative_to(out): hashlib.sha256(path.read_bytes()).digest() for path in out.rglob("*.hdf5")} == digests
    assert kills >= 5, kills


def test_a_shard_skips_what_it_has_finished(recordings, tmp_path):
    out = tmp_path / "out"
    said = resample(recordings, out, "1/3")
    assert f"shard 1/3: 4 of {FILES} files" in said and "0 skipped" in said
    assert sorted(path.name for path in out.rglob("*.hdf5")) == ["run_1.hdf5", "run_10.hdf5", "run_4.hdf5", "run_7.hdf5"]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.hdf5")}
    said = resample(recordings, out, "1/3")
    assert said.count("is finished, skipped") == 4 and "of which 4 skipped" in said
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.hdf5")} == before
    (out / "run_4.hdf5").write_bytes(b"cut")  # an output that is damaged is made again, and so is one whose source has changed
    assert resample(recordings, out, "1/3").count("is finished, skipped") == 3
    copy = tmp_path / "copy"
    shutil.copytree(out, copy, copy_function=shutil.copy)  # other times, the same content
    assert resample(recordings, copy, "1/3").count("is finished, skipped") == 4
    content = (copy / "run_7.hdf5").read_bytes()
    (copy / "run_7.hdf5").write_bytes(bytes(len(content)))  # the same size, another content
    assert resample(recordings, copy, "1/3").count("is finished, skipped") == 3
    assert (copy / "run_7.hdf5").read_bytes() == content
    with open(out / "shard-1-of-3.jsonl", "a") as record:
        record.write('{"begin":"ru')  # a line at which a run was killed
    assert resample(recordings, out, "1/3").count("is finished, skipped") == 4


def test_what_a_shard_refuses(recordings, tmp_path):
    out = tmp_path / "out"
    for wrong in ("3/3", "0/0", "1", "a/b", "1/3x", "-1/3", "0/10001"):
        assert "I from 0 to N-1" in resample(recordings, out, wrong, code=2)
    assert "leave out --force" in resample(recordings, out, "0/3", "--force", code=2)
    resample(recordings, out, "0/3")
    assert "another recipe than shard 0/3" in resample(recordings, out, "1/3", rate=20, code=1)
    assert "use a folder for each number of shards" in resample(recordings, out, "1/4", code=1)
    assert "was given another list of files (1)" in resample(recordings / "b", out, "1/3", code=1)
    (out / "run_4.hdf5").write_text("of someone else")
    said = resample(recordings, out, "1/3", code=1)
    assert "run_4.hdf5 is there, but shard 1/3 has not made it" in said and "1 of 4 files failed" in said
    assert (out / "run_4.hdf5").read_text() == "of someone else"
    copy = tmp_path / "copy"
    shutil.copytree(recordings, copy / "a")
    said = run("resample", recordings, copy / "a/run_1.hdf5", "-o", out, "--rate", 10, "--shard", "0/2", code=1)
    assert "would both become" in said and "run_1.hdf5" in said


def test_what_merge_refuses(recordings, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert "no shard has been here" in run("merge", out, code=1)
    for shard in (0, 2):
        resample(recordings, out, f"{shard}/4")
    said = run("merge", out, code=1)
    assert "2 of 4 shards are not finished: 1/4 (missing), 3/4 (missing)" in said and not (out / "manifest.json").exists()
    for shard in (1, 3):
        resample(recordings, out, f"{shard}/4")
    run("merge", out)
    record = out / "shard-1-of-4.jsonl"
    lines = record.read_text().splitlines(keepends=True)

    def refused(text):
        said = run("merge", out, code=1)
        record.write_text("".join(lines))
        return text in said or pytest.fail(said)

    record.write_text("".join(lines[:-1]))
    assert refused("1 of 4 shards are not finished: 1/4 (begun)")
    record.write_text(lines[0].replace("--rate 10", "--rate 20") + "".join(lines[1:]))
    assert refused("shard 1/4 has another recipe than shard 0/4")
    record.write_text((out / "shard-2-of-4.jsonl").read_text())
    assert refused("this is not the record of shard 1/4")
    double = (out / "shard-2-of-4.jsonl").read_text().splitlines(keepends=True)[2]
    record.write_text("".join([*lines[:-1], double, lines[-1]]))
    assert refused("run_2.hdf5 is of shard 1/4 and of shard 2/4")
    record.write_text("".join(lines).replace('"name":"run_1.hdf5"', '"name":"../run_1.hdf5"'))
    assert refused("../run_1.hdf5 is not a name of a file below its folder")
    shutil.copy(out / "run_1.hdf5", out / "more.hdf5")
    assert refused("more.hdf5 is of no shard")
    (out / "more.hdf5").unlink()
    shutil.move(out / "run_1.hdf5", tmp_path)
    assert refused("run_1.hdf5 of shard 1/4 is missing")
    (out / "run_1.hdf5").write_bytes(b"cut")
    assert refused("has 3 bytes instead of")
    shutil.move(tmp_path / "run_1.hdf5", out / "run_1.hdf5")
    run("merge", out)


def test_two_runs_of_one_shard(recordings, tmp_path):
    """A task that is started while its predecessor is still alive does not disturb it."""
    out = tmp_path / "out"
    runs = [begin("resample", recordings, "-o", out, "--rate", 10, "--layout", "demo", "--shard", "0/1") for _ in range(2)]
    said = [one.communicate(timeout=120)[0] for one in runs]
    assert sorted(one.returncode for one in runs) in ([0, 1], [0, 0]), said
    assert all(one.returncode == 0 or "another run is working on shard 0/1" in text for one, text in zip(runs, said))
    run("merge", out)


def test_pack_in_shards(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        make_demo_file(folder / f"{number}.hdf5", "--images", "--gzip", "--seed", str(number), episodes=1)
    for out, count in (("whole", 1), ("parts", 2)):
        for shard in range(count):
            run("pack", folder, "-o", tmp_path / out, "--layout", "robomimic", "--shard", f"{shard}/{count}")
        run("merge", tmp_path / out)
    assert manifest(tmp_path / "parts")["fingerprint"] == manifest(tmp_path / "whole")["fingerprint"]
    assert "leave out --resume" in run("pack", folder, "-o", tmp_path / "parts", "--resume", "--shard", "0/2", code=2)


def test_an_inbox_in_shards(tmp_path, recordings, small_file):
    station = Station(tmp_path, small_file)
    for path in recordings.glob("*.hdf5"):
        station.drop(path.name, path.read_bytes())
    station.drop("bad.hdf5", b"x")
    for shard in range(2):
        station.run("--once", "--shard", f"{shard}/3")
    assert "1 of 3 shards are not finished: 2/3 (missing)" in run("merge", station.outbox, code=1)
    station.run("--once", "--shard", "2/3")
    assert f"{FILES - 1} files of 3 shards, {2 * (FILES - 1)} episodes" in run("merge", station.outbox)
    (tmp_path / "one").mkdir()
    whole = Station(tmp_path / "one", small_file)
    for path in recordings.glob("*.hdf5"):
        whole.drop(path.name, path.read_bytes())
    whole.run("--once", "--shard", "0/1")
    run("merge", whole.outbox)
    assert manifest(whole.outbox)["fingerprint"] == manifest(station.outbox)["fingerprint"]
    station.write(rate=20)
    station.run("--once", "--shard", "1/3")
    assert "another recipe" in run("merge", station.outbox, code=1)
