"""trajctl resample --max-gap: an episode is split where its rows are too far apart. Each part is compared with
numpy on its own rows."""
import json
import signal
import subprocess

import h5py
import numpy as np
import pytest

from numpy_resample import linear
from paths import BUILD, TRAJCTL, clean_environment
from resample_runs import resample
from waiting import wait_for

LAYOUT = """
layout: gaps
episodes: {files: "*.hdf5", groups: /data/demo_*}
filter: /mask/{key}
clocks: {arm: {path: t, unit: ns}, hand: {path: ht, unit: ns}}
streams:
  pose: {path: pose, clock: arm, kind: linear}
  wrench: {path: wrench, clock: arm, kind: mean}
  grip: {path: grip, clock: hand, kind: previous}
"""
MS = 10**6


def stamps_of(count, holes, seed, step_ms=10):
    """Returns stamps `step_ms` apart with some jitter. `holes` maps a row to the further ms after it."""
    steps = np.full(count, step_ms * MS) + np.random.default_rng(seed).integers(-MS, MS, count)
    for row, ms in holes.items():
        steps[row + 1] += ms * MS
    return 10**18 + np.cumsum(steps)


def write(path, episodes, rows=400):
    random = np.random.default_rng(7)
    with h5py.File(path, "w") as file:
        for name, holes in episodes.items():
            group = file.create_group(f"data/{name}")
            t, seed = stamps_of(rows, holes, len(name) + len(holes)), int(name[5:])
            group["t"], group["ht"] = t, np.arange(t[0] - 5 * MS, t[-1] + 29 * MS, 28 * MS)
            group["pose"], group["wrench"] = random.normal(size=(rows, 3)), random.normal(size=(rows, 6)).astype(np.float32)
            group["grip"] = np.arange(len(group["ht"]), dtype=np.int32)[:, None] + 1000 * seed
            group["table"] = np.arange(3)
            group.attrs["num_samples"] = rows
        file["mask/train"] = np.array([name.encode() for name in list(episodes)[1:]])
        file["data"].attrs["total"] = rows * len(episodes)


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaps")
    (folder / "gaps.yaml").write_text(LAYOUT)
    write(folder / "in.hdf5", {"demo_2": {}, "demo_5": {100: 500}, "demo_11": {50: 300, 51: 300, 200: 900}})
    return folder


# demo_11's row 51 stands alone between two gaps: a single step is not part
PARTS = [("demo_2", 0, 400), ("demo_5", 0, 101), ("demo_5", 101, 400), ("demo_11", 0, 51), ("demo_11", 52, 201), ("demo_11", 201, 400)]


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_parts(tmp_path, gaps, compress):
    out = tmp_path / "out.hdf5"
    done = resample(gaps / "in.hdf5", "-o", out, "--rate", 50, "--layout", gaps / "gaps.yaml", "--max-gap", "pose=200ms", "--window", "2s",
                    "--compress", compress)
    assert "2 split into parts" in done.stdout and "demo_5: split at gaps into 2 parts" in done.stderr
    assert "demo_11: split at gaps into 3 parts, 1 of a single step left out" in done.stderr and "get new numbers" in done.stderr
    with h5py.File(gaps / "in.hdf5") as source, h5py.File(out) as made:
        assert sorted(made["data"]) == [f"demo_{i}" for i in range(len(PARTS))]
        total = 0
        for i, (name, first, last) in enumerate(PARTS):
            was, group = source["data"][name], made["data"][f"demo_{i}"]
            t, at = was["t"][first:last], group["t"][...]
            assert at[0] == t[0] and t[-1] - 20 * MS < at[-1] <= t[-1] and np.array_equal(at, at[0] + np.arange(len(at)) * 20 * MS)
            assert np.allclose(group["pose"], linear(t, was["pose"][first:last], at), atol=1e-9)
            for step, x in enumerate(at):  # rows before the gap do not enter the mean
                rows = was["wrench"][first:last][(t > x - 2 * 10**9) & (t <= x)]
                assert np.allclose(group["wrench"][step], rows.mean(axis=0), atol=1e-5)
            ht = was["ht"][...]
            assert np.array_equal(group["grip"][:, 0], was["grip"][:, 0][np.searchsorted(ht, at, side="right") - 1])
            assert group.attrs["num_samples"] == len(at) and group.attrs["trajd_source"] == f"in.hdf5:{name}"
            assert np.array_equal(group["table"], np.arange(3))
            assert ("trajd_part" in group.attrs) == (name != "demo_2")
            if name != "demo_2":
                part = json.loads(group.attrs["trajd_part"])
                its = [p for p in PARTS if p[0] == name]
                assert part["episode"] == name and part["part"] == its.index((name, first, last)) and part["parts"] == len(its)
                assert part["rows"]["arm"] == [first, last] and part["ns"] == [t[0], t[-1]]
                assert part["rows"]["hand"] == [int(np.searchsorted(ht, t[0])), int(np.searchsorted(ht, t[-1], side="right"))]
            total += len(at)
        assert made["data"].attrs["total"] == total
        assert [key.decode() for key in made["mask/train"]] == ["demo_1", "demo_2", "demo_3", "demo_4", "demo_5"]


def test_a_hole_before_the_grid(tmp_path, gaps):
    """The hand begins after the gap: the episode is not split, but the mean excludes the rows before the gap."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write(path, {"demo_3": {20: 300}})
    with h5py.File(path, "r+") as file:
        group = file["data/demo_3"]
        t = group["t"][...]
        late = group["ht"][...] > t[30]
        for name in ("ht", "grip"):
            rows = group[name][...][late]
            del group[name]
            group[name] = rows
    done = resample(path, "-o", out, "--rate", 50, "--layout", gaps / "gaps.yaml", "--max-gap", "pose=200ms", "--window", "2s")
    assert "cut" not in done.stdout + done.stderr
    with h5py.File(path) as source, h5py.File(out) as made:
        group = made["data/demo_3"]
        for step, x in enumerate(group["t"][...]):
            rows = source["data/demo_3/wrench"][21:][(t[21:] > x - 2 * 10**9) & (t[21:] <= x)]
            assert np.allclose(group["wrench"][step], rows.mean(axis=0), atol=1e-5)


def test_what_is_chosen_is_the_input(tmp_path, gaps):
    """--episodes and --filter name episodes of the input. An episode that gives a single part keeps its name."""
    common = ["--rate", 50, "--layout", gaps / "gaps.yaml", "--max-gap", "200ms", "--json"]
    done = resample(gaps / "in.hdf5", "--dry-run", *common, "--filter", "train")
    plan = next(json.loads(line) for line in done.stdout.splitlines() if '"plan"' in line)
    assert (plan["episodes"], plan["cut"], plan["left_out"]) == (5, 2, 0)
    write(tmp_path / "one.hdf5", {"demo_2": {}, "demo_40": {0: 300}})
    resample(tmp_path / "one.hdf5", "-o", tmp_path / "out.hdf5", *common)
    with h5py.File(tmp_path / "out.hdf5") as made:
        assert sorted(made["data"]) == ["demo_2", "demo_40"]
        assert json.loads(made["data/demo_40"].attrs["trajd_part"])["rows"]["arm"] == [1, 400]
    resample(gaps / "in.hdf5", "-o", tmp_path / "five.hdf5", *common, "--episodes", "demo_5")
    with h5py.File(tmp_path / "five.hdf5") as made:
        assert sorted(made["data"]) == ["demo_0", "demo_1"]


def one_per_file(folder):
    """Writes the layout with one episode per file, and returns it."""
    (folder / "one.yaml").write_text(LAYOUT.replace("/data/demo_*", "/data/demo_11").replace("filter: /mask/{key}\n", ""))
    return folder / "one.yaml"


def test_parts_of_a_file_are_files(tmp_path, gaps):
    """With one episode per file, each part is a file of its own, with the rows that it has as an episode."""
    common = [gaps / "in.hdf5", "--rate", 50, "--max-gap", "200ms", "--window", "2s"]
    resample(*common, "-o", tmp_path / "all.hdf5", "--layout", gaps / "gaps.yaml", "--episodes", "demo_11")
    out, layout = tmp_path / "out.v2.hdf5", one_per_file(tmp_path)
    resample(*common, "-o", out, "--layout", layout, "--dry-run")
    done = resample(*common, "-o", out, "--layout", layout, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [f"out.v2_part{i}.hdf5" for i in range(3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.hdf5", "one.yaml", *names]
    assert [event["outputs"] for event in events if event["event"] == "done"] == [[str(tmp_path / name) for name in names]]
    assert [event["episodes"] for event in events if event["event"] == "plan"] == [3]
    assert [event["episodes_done"] for event in events if event.get("phase") == "done"] == [3]
    with h5py.File(tmp_path / "all.hdf5") as whole:
        for i, name in enumerate(names):
            with h5py.File(tmp_path / name) as made:
                group, expected = made["data/demo_11"], whole[f"data/demo_{i}"]
                for stream in ("t", "ht", "pose", "wrench", "grip", "table"):
                    assert np.array_equal(group[stream], expected[stream]), (name, stream)
                assert json.loads(group.attrs["trajd_part"])["rows"] == json.loads(expected.attrs["trajd_part"])["rows"]
                assert json.loads(group.attrs["trajd_part"])["part"] == i and group.attrs["num_samples"] == len(expected["t"])


def test_files_of_other_runs_beside_parts(tmp_path, gaps):
    """No file may look like a part that this run did not write."""
    out, layout = tmp_path / "out.hdf5", one_per_file(tmp_path)
    common = [gaps / "in.hdf5", "-o", out, "--rate", 50, "--layout", layout]
    parts = [tmp_path / f"out_part{i}.hdf5" for i in range(3)]
    resample(*common)
    done = resample(*common, "--max-gap", "200ms", "--force", check=False)
    assert done.returncode == 1 and f"{out} exists, but this run writes the 3 parts" in done.stderr and not parts[0].exists()
    out.unlink()
    resample(*common, "--max-gap", "200ms")
    before = [part.read_bytes() for part in parts]
    done = resample(*common, "--max-gap", "200ms", check=False)
    assert done.returncode == 1 and f"{parts[0]} exists: --force" in done.stderr
    resample(*common, "--max-gap", "200ms", "--force")
    assert [part.read_bytes() for part in parts] == before
    for gap, text in (("600ms", f"{parts[2]} exists, but this run writes 2 parts"), ("2s", f"{parts[0]} exists, but this run writes 0 parts")):
        done = resample(*common, "--max-gap", gap, "--force", check=False)
        assert done.returncode == 1 and text in done.stderr, done.stderr
    parts[1].unlink()
    (tmp_path / "in").mkdir()
    parts[1].symlink_to(gaps / "in.hdf5")
    done = resample(*common, "--max-gap", "200ms", "--force", check=False)
    assert done.returncode == 1 and "an input is not overwritten" in done.stderr and parts[0].read_bytes() == before[0]


@pytest.mark.slow
def test_parts_of_a_killed_run(fast_path):
    """Finished parts have no names yet. The next run makes and names all of them."""
    path, out, whole = fast_path / "in.hdf5", fast_path / "out.hdf5", fast_path / "whole.hdf5"
    write(path, {"demo_11": {8000 * i: 900 for i in range(1, 8)}}, rows=64000)
    (fast_path / "gaps.yaml").write_text(LAYOUT)
    options = [path, "--rate", 2000, "--layout", one_per_file(fast_path), "--max-gap", "pose=200ms", "--threads", 1]
    resample(*options, "-o", whole)
    finished = fast_path / "out_part2.hdf5.partial"
    for _ in range(10):
        process = subprocess.Popen([TRAJCTL, "resample", *map(str, options), "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: process.poll() is not None or finished.exists(), 60, "the third part")
        process.send_signal(signal.SIGKILL)
        if process.wait(60):
            break
        for part in fast_path.glob("out_part*"):
            part.unlink()
    assert not list(fast_path.glob("out_part*.hdf5")) and finished.exists()
    assert json.loads(resample(*options, "-o", out, "--json").stdout.splitlines()[-1])["episodes_written"] == 8
    assert sorted(path.name for path in fast_path.glob("out*")) == [f"out_part{i}.hdf5" for i in range(8)]
    for i in range(8):
        assert (fast_path / f"out_part{i}.hdf5").read_bytes() == (fast_path / f"whole_part{i}.hdf5").read_bytes(), i


def test_stopped_while_parts_get_their_names(tmp_path, gaps):
    """A file of another takes the name of the second part when the first one has its name: it stays, and no partial file does."""
    out, layout = tmp_path / "out.hdf5", one_per_file(tmp_path)
    parts = [tmp_path / f"out_part{i}.hdf5" for i in range(3)]
    options = [gaps / "in.hdf5", "-o", out, "--rate", 50, "--layout", layout, "--max-gap", "200ms"]
    fake = {"LD_PRELOAD": str(BUILD / "tests/fake/libold_filesystem.so"), "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
            "TRAJD_TEST_APPEARS": str(parts[1])}
    done = subprocess.run([TRAJCTL, "resample", *map(str, options)], capture_output=True, text=True, env={**clean_environment(), **fake}, timeout=120)
    assert done.returncode == 1 and "out_part1.hdf5: File exists" in done.stderr, done
    assert sorted(tmp_path.glob("out*")) == parts[:2] and parts[1].read_text() == "another's\n"
    parts[1].unlink()
    assert f"{parts[0]} exists: --force" in resample(*options, check=False).stderr
    resample(*options, "--force")
    assert sorted(tmp_path.glob("out*")) == parts
