"""HDF5 files that no layout reads: inspect prints their tree and a draft, init writes a configuration that check accepts."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL

RANDOM = np.random.default_rng(5)


def trajctl(*arguments):
    return subprocess.run([TRAJCTL, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def turning(rows):
    """Quaternions, xyzw, of a body that turns about a slanted axis."""
    half = np.linspace(0.1, 1, rows)[:, None]
    return np.concatenate([np.sin(half) * [[0.6, 0.64, 0.48]], np.cos(half)], 1)


def write_lab(path, trials=12):
    """Trials with two clocks of their own, one in s and one in ns."""
    with h5py.File(path, "w") as file:
        for i in range(trials):
            group, rows = file.create_group(f"trials/trial_{i:03d}"), 100 + 7 * i
            group.attrs["task_description"] = "put the cup on the plate"
            group["arm/t"] = 1.7e9 + np.arange(rows) * 0.002
            group["arm/q"] = RANDOM.normal(size=(rows, 7))
            group["arm/pose"] = np.concatenate([RANDOM.normal(size=(rows, 3)), turning(rows)], 1)
            group["hand/stamp_ns"] = 1_700_000_000_000_000_000 + np.arange(rows // 5) * 33_333_333
            group["hand/command"] = RANDOM.normal(size=(rows // 5, 2))
            group["K"] = np.eye(3)


def write_single(path):
    """One episode, without a rate; the observations have one row more than the commands."""
    with h5py.File(path, "w") as file:
        file["cmd"] = RANDOM.normal(size=(77, 6))
        file["obs/joints"] = RANDOM.normal(size=(78, 6))
        file["obs/cube_rotation"] = turning(78)
        for camera in range(2):
            file[f"cam_{camera}/rgb"] = RANDOM.integers(0, 255, (78, 8, 8, 3), dtype=np.uint8)


def draft_of(path):
    shown = trajctl("inspect", "--json", path)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)[0]


def make_config(tmp_path, *arguments):
    """Runs init and check. Returns the configuration, the draft and what check prints."""
    made = trajctl("init", *arguments, "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0, made.stderr
    checked = trajctl("check", tmp_path / "lab.yaml")
    assert checked.returncode == 0, checked.stderr
    layout = tmp_path / "lab.layout.yaml"
    return (tmp_path / "lab.yaml").read_text(), layout.read_text() if layout.exists() else None, checked.stdout


def test_inspect_prints_tree_and_draft(tmp_path):
    write_lab(tmp_path / "lab.h5")
    shown = trajctl("inspect", tmp_path / "lab.h5")
    assert shown.returncode == 0, shown.stderr
    for text in ("no group matches /data/demo_*", "\n    aloha: action: missing\n", "trial_000/  @task_description=put the cup on the plate",
                 "f64 (100,7) contiguous", "... 11 more like it, up to trial_011", "12 of 12 episodes kept",
                 "arm_t: {path: arm/t, unit: s}", "stamps of 500 Hz", "{path: hand/stamp_ns, unit: ns}", "stamps of 30 Hz",
                 'columns: "3:7"', "slerp, order: xyzw", "GUESS", "left out: K: no stamps have its number of rows"):
        assert text in shown.stdout, text


def test_rows_in_a_file_of_their_own(tmp_path):
    with h5py.File(tmp_path / "lab.h5", "w") as file:
        file.create_dataset("outside", (10, 7), "f8", external=[(str(tmp_path / "rows.raw"), 0, 560)])
        file["inside"] = np.ones((10, 7))
    shown = trajctl("inspect", tmp_path / "lab.h5").stdout
    assert "f64 (10,7) external" in shown and "f64 (10,7) contiguous" in shown, shown


def test_json(tmp_path):
    write_lab(tmp_path / "lab.h5", trials=3)
    document = draft_of(tmp_path / "lab.h5")
    objects = {entry["path"]: entry for entry in document["tree"]}
    assert objects["trials/trial_001/arm/q"]["shape"] == [107, 7] and objects["trials/trial_001/arm/q"]["type"] == "f64"
    assert objects["trials/trial_002"]["attributes"] == {"task_description": "put the cup on the plate"}
    assert document["draft_result"] == "3 of 3 episodes kept" and "groups: \"/trials/trial_*\"" in document["draft"]
    assert document["error"] and document["layout"] is None


def test_init_of_several_clocks(tmp_path):
    write_lab(tmp_path / "lab.h5")
    config, layout, checked = make_config(tmp_path, tmp_path / "lab.h5")
    assert 'layout: "./lab.layout.yaml"' in config and "language: {attribute: \"@task_description\"}" in layout
    assert "arm/pose_3_7" in checked and "slerp xyzw" in checked and "12 of 12 kept" in checked
    assert trajctl("init", tmp_path / "lab.h5", "-o", tmp_path / "lab.yaml").returncode == 1  # nothing is written over


def test_init_of_one_episode(tmp_path):
    write_single(tmp_path / "episode_0.hdf5")
    config, layout, checked = make_config(tmp_path, tmp_path / "episode_0.hdf5")
    assert "nothing states a rate" in layout and layout.count("rows: first") == 4
    assert "20 Hz (assumed)" in checked and "77 windows" in checked


def test_presets(tmp_path):
    write_single(tmp_path / "one.hdf5")
    for preset, steps in (("diffusion_policy", ("-1..0", "norm: min_max", "after: 7")), ("act", ("at: 0,", "with: zero", "windows: one_per_episode"))):
        made = trajctl("init", "--preset", preset, tmp_path / "one.hdf5", "-o", tmp_path / f"{preset}.yaml")
        assert made.returncode == 0, made.stderr
        text = (tmp_path / f"{preset}.yaml").read_text().replace("at: 0}", "at: 0,")
        assert all(step in text for step in steps), text
        assert trajctl("check", tmp_path / f"{preset}.yaml").returncode == 0
    wrong = trajctl("init", "--preset", "akt", tmp_path / "one.hdf5")
    assert wrong.returncode == 1 and "diffusion_policy" in wrong.stderr


def test_without_a_place_for_the_draft(tmp_path):
    write_single(tmp_path / "one.hdf5")
    made = trajctl("init", tmp_path / "one.hdf5")
    assert made.returncode == 1 and "-o FILE.yaml" in made.stderr and not made.stdout


def test_a_folder_of_several_kinds(tmp_path):
    data = tmp_path / "data"
    for folder in ("a", "b"):
        (data / folder).mkdir(parents=True)
    write_lab(data / "a" / "1.h5", trials=2)
    write_single(data / "b" / "run_1.h5")
    write_single(data / "b" / "run_2.h5")
    made = trajctl("init", data, "-o", tmp_path / "lab.yaml")
    assert made.returncode == 0, made.stderr
    config = (tmp_path / "lab.yaml").read_text()
    assert "train_a:" in config and "train_b:" in config and f'path: "{data}/b"' in config
    checked = trajctl("check", tmp_path / "lab.yaml")
    assert checked.returncode == 0 and "feed train_a" in checked.stdout and "2 of 2 kept" in checked.stdout, checked.stderr

    write_lab(data / "b" / "run_3.h5", trials=2)  # neither folders nor names separate the kinds
    made = trajctl("init", data, "-o", tmp_path / "mixed.yaml")
    assert "several kinds" in made.stderr


def test_a_git_lfs_pointer(tmp_path):
    (tmp_path / "demo.hdf5").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5000000\n")
    shown = trajctl("inspect", tmp_path / "demo.hdf5")
    assert shown.returncode == 1 and "git lfs pull" in shown.stderr


def test_odd_files(tmp_path):
    """Links in circles, links that lead nowhere, types without rows: the tree shows them, and nothing crashes."""
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["a/b/values"] = np.arange(12.0).reshape(4, 3)
        file["a/b/up"] = file["a"]
        file["a/lost"] = h5py.SoftLink("/nowhere")
        file["a/outside"] = h5py.ExternalLink("other.h5", "/x")
        file["a/records"] = np.zeros(4, dtype=[("x", "f4"), ("y", "i4")])
        file["a/words"] = ["x", "y", "z", "u"]
        file["a/big"] = np.arange(4, dtype=">f8")
        file["a/nothing"] = h5py.Empty("f4")
        file.attrs["note"] = "two\nlines\tand a tab"
    shown = trajctl("inspect", tmp_path / "odd.h5")
    for text in ("up  ! a link to a group above it", "lost  ! a link that leads nowhere", "outside  ! ", "records",
                 "compound (x, y)", "@note=two lines and a tab", "left out: a/records: it is a table with named columns"):
        assert text in shown.stdout, (text, shown.stdout)
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    shown = trajctl("inspect", tmp_path / "empty.h5")
    assert shown.returncode == 1 and "no array of numbers" in shown.stdout


@pytest.mark.parametrize("offset", range(0, 4000, 131))
def test_a_damaged_byte(tmp_path, offset):
    write_single(tmp_path / "one.hdf5")
    data = bytearray((tmp_path / "one.hdf5").read_bytes())
    data[offset] ^= 0xFF
    (tmp_path / "one.hdf5").write_bytes(data)
    shown = trajctl("inspect", tmp_path / "one.hdf5")
    assert shown.returncode in (0, 1) and "Traceback" not in shown.stderr


JPEG = bytes.fromhex("ffd8ffc00011080010001003011100021100031100ffd9")  # a header of 16 x 16 pixels, and nothing to decode


def test_encoded_images(tmp_path):
    """Padded bytes and values of variable length are found by their first bytes; a feed cannot have them yet."""
    with h5py.File(tmp_path / "cams.h5", "w") as file:
        for episode in range(3):
            group, rows = file.create_group(f"episode_{episode}"), 20 + episode
            group["joint"] = RANDOM.normal(size=(rows, 6))
            group["info/fps"] = 30
            padded = np.zeros((rows, 80 + episode), np.uint8)
            padded[:, :len(JPEG)] = np.frombuffer(JPEG, np.uint8)
            group["top"] = padded
            frames = group.create_dataset("wrist", (rows,), dtype=h5py.vlen_dtype(np.uint8))
            for row in range(rows):
                frames[row] = np.frombuffer(JPEG, np.uint8)
    config, layout, checked = make_config(tmp_path, tmp_path / "cams.h5")
    assert layout.count("image: {color: rgb}") == 2 and "red and blue may be swapped" in layout
    assert "rate: {path: info/fps}" in layout and "joint" in checked and "30 Hz" in checked
    assert "      obs/top: {from: top, at: 0}" in config and "jpeg frames" in config


def test_a_period(tmp_path):
    with h5py.File(tmp_path / "sim.h5", "w") as file:
        file.attrs["dt"] = 0.002
        file["q"] = RANDOM.normal(size=(50, 6))
        file["cmd"] = RANDOM.normal(size=(50, 6))
    _, layout, checked = make_config(tmp_path, tmp_path / "sim.h5")
    assert 'rate: {attribute: "@dt", unit: s}' in layout and "500 Hz" in checked and "assumed" not in checked


def test_outcomes(tmp_path):
    """What says how an episode went is a text to select by: a dataset of one value, or an attribute. The rate is not left out."""
    with h5py.File(tmp_path / "runs.h5", "w") as file:
        for run in range(4):
            group = file.create_group(f"run_{run}")
            group["q"] = RANDOM.normal(size=(30 + run, 6))
            group["success"] = run % 2 == 1
            group["fps"] = 30
            group.attrs.update(success="yes", weather=["rain", "sun"][run % 2], robot="a")
    config, layout, _ = make_config(tmp_path, tmp_path / "runs.h5")
    assert "  success: {path: success}" in layout and '  weather: {attribute: "@weather"}' in layout and "robot" not in layout
    assert "left out" not in layout and "rate: {path: fps}" in layout
    (tmp_path / "lab.yaml").write_text(config.replace("    dataset: data\n", "    dataset: data\n    where: {success: ['true']}\n"))
    assert "2 episodes" in trajctl("check", tmp_path / "lab.yaml").stdout


@pytest.mark.parametrize("name", ["run[left]_{}", "take *{}", "what?\\{}", "sets [a]/trial_{}"])
def test_wildcards_in_the_names_of_groups(tmp_path, name):
    """Names of groups are not patterns: the draft finds the episodes, and nothing else."""
    with h5py.File(tmp_path / "lab.h5", "w") as file:
        for i in range(4):
            file[f"{name.format(i)}/q"] = RANDOM.normal(size=(30, 7))
        file["run_l/q"] = RANDOM.normal(size=(77, 2))
    make_config(tmp_path, tmp_path / "lab.h5")
    seen = trajctl("inspect", "--json", "--layout", tmp_path / "lab.layout.yaml", tmp_path / "lab.h5")
    assert seen.returncode == 0, seen.stderr
    assert json.loads(seen.stdout)[0]["kept_count"] == 4


def test_folders_of_rarer_extensions(tmp_path):
    """init and inspect look for the same extensions."""
    (tmp_path / "data").mkdir()
    for i in range(2):
        write_single(tmp_path / f"data/episode_{i}.he5")
    assert "draft" in draft_of(tmp_path / "data")
    make_config(tmp_path, tmp_path / "data")


def test_a_draft_takes_both_endings(tmp_path):
    (tmp_path / "data").mkdir()
    write_single(tmp_path / "data/episode_0.h5")
    write_single(tmp_path / "data/episode_1.hdf5")
    assert "from 2 episodes" in make_config(tmp_path, tmp_path / "data")[0]


def test_tables_with_named_columns_are_named(tmp_path):
    table = np.zeros(40, dtype=[("time", "f8"), ("joints", "f4", (7,))])
    with h5py.File(tmp_path / "tables.h5", "w") as file:
        file["telemetry/log"] = table
    shown = trajctl("inspect", tmp_path / "tables.h5")
    assert shown.returncode == 1 and "log                      compound (time, joints) (40)" in shown.stdout
    made = trajctl("init", tmp_path / "tables.h5", "-o", tmp_path / "lab.yaml")
    assert made.returncode == 1 and "telemetry/log is a table with named columns: compound (time, joints)" in made.stderr
    with h5py.File(tmp_path / "demo.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros((40, 3))
        file["data/demo_0/obs/log"] = table
    assert "demo_0/obs/log: left out: a compound type (a table with named columns)" in trajctl("inspect", tmp_path / "demo.hdf5").stdout


@pytest.mark.parametrize("shuffle", [False, True])
def test_lzf_in_columns_that_split_and_time(tmp_path, shuffle):
    """libhdf5 has no filter lzf, which h5py has: flags, ends, rates and stamps may be compressed by it, too."""
    ends = np.zeros(3000, bool)
    ends[[999, 1999, 2999]] = True
    options = {"compression": "lzf", "chunks": (100,), "shuffle": shuffle, "fletcher32": shuffle}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("actions", data=np.arange(3000.0), **options)
        file.create_dataset("terminals", data=ends, **options)
        file.create_dataset("ends", data=np.flatnonzero(ends) + 1, compression="lzf", chunks=(2,))
        file.create_dataset("rate", data=[25.0], compression="lzf", chunks=(1,))
    for split in ("flags: terminals", "ends: ends"):
        (tmp_path / "own.yaml").write_text(
            "layout: own\nversion: 1\nepisodes: {files: '*.h5', groups: /, split: {%s}}\n"
            "clocks: {steps: {rate: {path: rate}, rows: actions}}\n"
            "streams: {actions: {path: actions, kind: previous}}\n" % split)
        shown = trajctl("inspect", "--json", "--layout", tmp_path / "own.yaml", tmp_path / "a.h5")
        assert shown.returncode == 0, shown.stderr
        document = json.loads(shown.stdout)[0]
        assert [e["rows"]["steps"] for e in document["episodes"]] == [1000] * 3 and document["quarantined_count"] == 0
        assert document["clocks"][0]["lowest_rate_hz"] == 25
