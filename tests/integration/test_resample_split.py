"""trajctl resample: episodes that lie one after another in the arrays of a file each get a group, with the values of numpy on their
own rows. The layout of the input reads the output."""
import json
import subprocess

import h5py
import numpy as np
import pytest

from numpy_resample import linear
from paths import TRAJCTL
from image_files import png, random_frames
from resample_runs import resample

# rows of each episode; behind the flags, ten more rows follow that no flag ends
LENGTHS = [5, 40, 1, 30, 24]
ENDS = np.cumsum(LENGTHS)
OPEN = 10
LAYOUT = """\
layout: joined
episodes: {{files: "*.hdf5", groups: {groups}, split: {split}}}
meta: {{algorithm: {{path: metadata/algorithm}}, env: {{attribute: "{env}"}}}}
clocks: {{steps: {{rate: 10}}}}
streams:
  observations: {{kind: linear}}
  actions: {{kind: previous}}
  terminals: {{kind: previous, optional: true}}
  top: {{kind: previous, optional: true, image: {{color: rgb}}}}
"""
FLAGS = "{flags: [terminals, timeouts]}"


def write(folder, split=FLAGS, inside="", seed=0, name="in.hdf5", groups=("",)):
    """Writes a layout and a file of joined episodes, as D4RL's (flags) or diffusion policy's (ends). Returns both paths."""
    rng, is_flagged = np.random.default_rng(seed), "flags" in split
    rows = ENDS[-1] + OPEN * is_flagged
    (folder / "joined.yaml").write_text(LAYOUT.format(split=split, groups=inside or "/", env="@env" if inside else "/@env"))
    with h5py.File(folder / name, "w") as file:
        for group in (file.require_group(group or "/") for group in groups):
            group["observations"] = rng.normal(size=(rows, 5)).astype(np.float32)
            group.create_dataset("actions", data=rng.normal(size=(rows, 3)), compression="gzip", chunks=(16, 3))
            group["infos/goal"] = rng.normal(size=(rows, 2))
            group["infos/goal"].attrs["unit"] = "m"
            group["infos/names"] = np.array([f"row {i}" for i in range(rows)], dtype=object)
            group["metadata/algorithm"] = f"SAC {seed}"
            group["metadata/weight"] = rng.normal(size=(len(LENGTHS), 30))  # as many rows as there are episodes
            group["metadata/bias"] = rng.normal(size=40)                    # as many as an episode has
            group.attrs["env"] = f"hopper {seed}"
            if is_flagged:
                group["terminals"] = np.isin(np.arange(rows), ENDS[:3] - 1)
                group["timeouts"] = np.isin(np.arange(rows), ENDS[3:] - 1)
            else:
                numbers = {"ends": ENDS, "lengths": LENGTHS, "starts": [0, *ENDS[:-1]]}
                group["meta/numbers"] = np.array(numbers[split[1:].partition(":")[0]])
    return folder / "joined.yaml", folder / name


def check_episode(source, made, first, rows, rate):
    """Compares an episode of the output with numpy on the rows of the input."""
    t, grid = np.arange(rows) / 10, np.arange(int((rows - 1) * rate / 10 + 1e-9) + 1) / rate
    before = first + np.minimum(np.floor(grid * 10 + 1e-6).astype(int), rows - 1)
    observations = source["observations"][first:first + rows]
    expected = linear(t, observations, grid) if rows > 1 else observations
    np.testing.assert_allclose(made["observations"][:], expected, atol=1e-6)
    for name in {"actions", "infos/goal", "infos/names", "terminals", "timeouts", "top"} & {*made, "infos/goal", "infos/names"}:
        found, wanted = made[name][:], source[name][:][before]
        assert len(found) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(found, wanted)), name


def check_shared(source, made):
    """What belongs to no row is that of the input, and the rows that the source counts are not there."""
    for name in ("metadata/algorithm", "metadata/weight", "metadata/bias"):
        assert np.array_equal(made[name][()], source[name][()]), name
    assert made["infos/goal"].attrs["unit"] == "m" and made.attrs["env"] == source.attrs["env"]
    assert "meta" not in made or not len(made["meta"])


def inspect(layout, path):
    done = subprocess.run([TRAJCTL, "inspect", "--json", "--layout", layout, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[0]


SPLITS = [FLAGS, "{ends: meta/numbers}", "{lengths: meta/numbers}", "{starts: meta/numbers}"]


@pytest.mark.parametrize("rate", [5, 20, 10])
@pytest.mark.parametrize("split", SPLITS)
def test_each_episode_gets_a_group(tmp_path, split, rate):
    layout, path = write(tmp_path, split)
    done = resample(path, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", rate, "--assume-rate", "--backend", "cpu")
    assert ("not set in the rows 100 to 109" in done.stderr) == (split == FLAGS)
    with h5py.File(path) as source, h5py.File(tmp_path / "out.hdf5") as made:
        assert {name for name in made if name.startswith("episode_")} == {f"episode_{i}" for i in range(5)}
        for i, (rows, end) in enumerate(zip(LENGTHS, ENDS)):
            check_episode(source, made[f"episode_{i}"], end - rows, rows, rate)
            check_shared(source, made[f"episode_{i}"])
        assert made["episode_1/metadata/weight"] == made["episode_4/metadata/weight"] == made["metadata/weight"], "stored once"
        assert not {"observations", "infos", "meta", "terminals"} & set(made)
        lengths = [len(made[f"episode_{i}/actions"]) for i in range(5)]
    document = inspect(layout, tmp_path / "out.hdf5")
    assert [e["id"] for e in document["episodes"]] == [f"episode_{i}" for i in range(5)]
    assert [e["rows"]["steps"] for e in document["episodes"]] == lengths
    assert all(e["meta"] == {"algorithm": "SAC 0", "env": "hopper 0"} for e in document["episodes"])


def test_an_output_is_resampled_again(tmp_path):
    layout, path = write(tmp_path)
    layout.write_text(layout.read_text() + "tables: [metadata/*]\n")  # some are as long as an episode
    options = ("--layout", layout, "--assume-rate", "--backend", "cpu")
    resample(path, "-o", tmp_path / "twice.hdf5", *options, "--rate", "10")
    resample(tmp_path / "twice.hdf5", "-o", tmp_path / "out.hdf5", *options, "--rate", "5")
    with h5py.File(path) as source, h5py.File(tmp_path / "out.hdf5") as made:
        for i, (rows, end) in enumerate(zip(LENGTHS, ENDS)):
            check_episode(source, made[f"episode_{i}"], end - rows, rows, 5)
            check_shared(source, made[f"episode_{i}"])


def test_chosen_episodes_of_several_groups(tmp_path):
    layout, path = write(tmp_path, "{ends: meta/numbers}", "/runs/*", groups=("runs/one", "runs/two"))
    resample(path, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", "5", "--assume-rate", "--episodes", "3..4")
    with h5py.File(path) as source, h5py.File(tmp_path / "out.hdf5") as made:
        for run in ("runs/one", "runs/two"):
            assert {name for name in made[run] if name.startswith("episode_")} == {"episode_3", "episode_4"}
            for i in (3, 4):
                check_episode(source[run], made[f"{run}/episode_{i}"], ENDS[i] - LENGTHS[i], LENGTHS[i], 5)
                check_shared(source[run], made[f"{run}/episode_{i}"])
    assert [e["id"] for e in inspect(layout, tmp_path / "out.hdf5")["episodes"]] == [
        f"{run}/episode_{i}" for run in ("one", "two") for i in (3, 4)]


def test_several_files_keep_what_is_their_own(tmp_path):
    layout, first = write(tmp_path)
    _, second = write(tmp_path, seed=1, name="second.hdf5")
    resample(first, second, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", "5", "--assume-rate")
    with h5py.File(first) as a, h5py.File(second) as b, h5py.File(tmp_path / "out.hdf5") as made:
        for i, (source, k) in enumerate([(a, k) for k in range(5)] + [(b, k) for k in range(5)]):
            check_episode(source, made[f"episode_{i}"], ENDS[k] - LENGTHS[k], LENGTHS[k], 5)
            check_shared(source, made[f"episode_{i}"])


@pytest.mark.parametrize("form", ["padded", "variable"])
def test_encoded_frames_are_those_of_the_rows(tmp_path, form):
    layout, path = write(tmp_path)
    encoded = [np.frombuffer(png(frame), np.uint8) for frame in random_frames(ENDS[-1] + OPEN, 6, 8, 4)]
    with h5py.File(path, "r+") as file:
        if form == "padded":
            file["top"] = np.stack([np.pad(e, (0, max(map(len, encoded)) - len(e))) for e in encoded])
        else:
            frames = file.create_dataset("top", len(encoded), h5py.vlen_dtype(np.uint8))
            for i, data in enumerate(encoded):
                frames[i] = data
    resample(path, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", "5", "--assume-rate")
    with h5py.File(path) as source, h5py.File(tmp_path / "out.hdf5") as made:
        for i, (rows, end) in enumerate(zip(LENGTHS, ENDS)):
            assert "top" in made[f"episode_{i}"]
            check_episode(source, made[f"episode_{i}"], end - rows, rows, 5)


def test_a_feed_reads_the_output_as_it_reads_the_input(tmp_path, daemon):
    layout, path = write(tmp_path, "{ends: meta/numbers}")
    resample(path, "-o", tmp_path / "out.hdf5", "--layout", layout, "--rate", "5", "--assume-rate", "--backend", "cpu")
    outputs = "{observations: {at: -1..0}, actions: {at: 0..2}}"
    client = daemon(f"""
datasets:
  in: {{path: {path}, layout: {layout}, rate: 10}}
  out: {{path: {tmp_path / "out.hdf5"}, layout: {layout}}}
feeds:
  in: {{dataset: in, rate: 5, global_batch: 8, tail: short, anchor: {{rate: 5}}, outputs: {outputs}}}
  out: {{dataset: out, global_batch: 8, tail: short, anchor: {{clock: steps}}, outputs: {outputs}}}
""").client()
    windows = {}
    for name in ("in", "out"):
        client.open(name)
        windows[name] = {int(arrays["window_id"][w]): {key: array[w].copy() for key, array in arrays.items()}
                         for _, arrays in client.epoch() for w in range(len(arrays["window_id"]))}
    client.close()
    assert windows["in"].keys() == windows["out"].keys() == set(range(sum(len(range(0, rows, 2)) for rows in LENGTHS)))
    for i, window in windows["in"].items():
        other = windows["out"][i]
        assert window["episode_index"] == other["episode_index"]
        for name in ("observations", "actions"):
            taken = window[f"{name}.mask"] == 0
            assert np.array_equal(taken, other[f"{name}.mask"] == 0) and taken.any()
            np.testing.assert_allclose(window[name][taken], other[name][taken], atol=1e-6, err_msg=f"{name} of window {i}")
