"""trajctl resample: objects of one episode that are not streams are copied, even where the other episodes have none
of the kind."""
import h5py
import numpy as np

from resample_runs import resample

ROWS = 9


def table(group):
    group["control/gains"] = np.arange(3)


def text(group):
    group["language"] = "lift the cube"


def group_alone(group):
    group.create_group("notes")


def folder_with_an_attribute(group):
    group["obs"].attrs["camera"] = "front"


def dataset_with_an_attribute(group):
    group["actions"].attrs["unit"] = "rad"
    group["obs/pos"].attrs["frame"] = np.arange(4)


def soft_link(group):
    group["also"] = h5py.SoftLink("calibration")
    group["calibration"] = np.eye(3)


def deep(group):
    group["obs/camera/lens/k"] = np.eye(3)


def stream_of_its_own(group):
    group["forces"] = np.zeros((ROWS, 2))


BESIDE = [table, text, group_alone, folder_with_an_attribute, dataset_with_an_attribute, soft_link, deep, stream_of_its_own]


def write(path):
    """Writes plain episodes, and after each of them one with a further object."""
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for i in range(2 * len(BESIDE)):
            group = file.create_group(f"data/demo_{i}")
            group.attrs["num_samples"] = ROWS
            group["actions"] = np.full((ROWS, 2), float(i))
            group["obs/pos"] = np.linspace(0, i, ROWS)[:, None]
            if i % 2:
                BESIDE[i // 2](group)


def tree(group):
    """Returns the path of every object, with the names of its attributes."""
    found = {"": sorted(group.attrs)}
    group.visititems(lambda name, item: found.update({name: sorted(item.attrs)}))
    return found


def test_what_stands_beside_one_episode(tmp_path):
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write(path)
    done = resample(path, "-o", out, "--rate", 40)
    assert "forces: no stream of the layout, but axis 0 has an entry for each row" in done.stderr
    with h5py.File(path) as source, h5py.File(out) as made:
        for i in range(2 * len(BESIDE)):
            was, now = source[f"data/demo_{i}"], made[f"data/demo_{i}"]
            expected = tree(was)
            expected[""] = sorted([*expected[""], "trajd_source"])
            if "forces" in expected:
                assert len(now["forces"]) == 2 * ROWS - 1
            assert {name: attributes for name, attributes in tree(now).items() if name != "also"} == expected, i
            assert now.attrs["num_samples"] == len(now["actions"]) == 2 * ROWS - 1 and now["actions"][0, 0] == i
        assert made["data/demo_1/control/gains"][...].tolist() == [0, 1, 2]
        assert made["data/demo_3/language"][()] == b"lift the cube"
        assert made["data/demo_7/obs"].attrs["camera"] == "front"
        assert made["data/demo_9/actions"].attrs["unit"] == "rad" and made["data/demo_9/obs/pos"].attrs["frame"].tolist() == [0, 1, 2, 3]
        assert np.array_equal(made["data/demo_11/also"], np.eye(3))
        assert np.array_equal(made["data/demo_13/obs/camera/lens/k"], np.eye(3))


def test_folders_of_streams_that_are_not_taken_stay(tmp_path):
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write(path)
    resample(path, "-o", out, "--rate", 40, "--streams", "actions")
    with h5py.File(out) as made:
        assert sorted(made["data/demo_0"]) == ["actions", "obs"] and not len(made["data/demo_0/obs"])
        assert made["data/demo_7/obs"].attrs["camera"] == "front"


def unwritten(group, name, shape):
    """Creates an array whose bytes are in the file but were never written, which takes no time and no disk."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    h5py.h5d.create(group.id, name.encode(), h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple(shape), creation)


def test_which_arrays_without_a_stream_are_copied(tmp_path):
    """Tables are copied as they are. An array of another length than the recording is copied too, and reported once. One
    with a row more than the recording would no longer fit its steps, and a large one would fill the disk: both stay
    behind, and are reported. (test_resample_lengths.py has the arrays that are as long as the recording.)"""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    copied = {"half": 4, "more_than_half": 5, "one_less": ROWS - 1, "two_more": ROWS + 2}
    left = {"one_more": ROWS + 1}
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for demo in range(2):
            group = file.create_group(f"data/demo_{demo}")
            group["actions"] = np.zeros((ROWS, 2))
            for name, length in {**copied, **left}.items():
                group[name] = np.arange(length) + demo
        unwritten(group, "largest", (2, 32 << 20))
        unwritten(group, "too_large", (1, (64 << 20) + 1))
    done = resample(path, "-o", out, "--rate", 40)
    notes = {name: [line for line in done.stderr.splitlines() if f" {name}:" in line] for name in (*copied, *left, "largest", "too_large")}
    with h5py.File(out) as made:
        for demo in range(2):
            group = made[f"data/demo_{demo}"]
            assert len(group["actions"]) == 2 * ROWS - 1
            for name, length in copied.items():
                assert group[name][...].tolist() == list(range(demo, demo + length)), name
            assert not [name for name in left if name in group]
        assert group["largest"].shape == (2, 32 << 20) and "too_large" not in group
    for name, lines in notes.items():
        assert len(lines) == (name not in ("half", "largest")), (name, done.stderr)
        assert all("no stream of the layout" in line for line in lines)
    assert all("not resampled" in notes[name][0] for name in copied if name != "half")
    assert all("a row a step: left out (first in " in notes[name][0] and "demo_0" in notes[name][0] for name in left)
    assert "large: left out" in notes["too_large"][0]


def test_columns_without_a_stream_are_held(tmp_path):
    """An array whose columns belong to no stream of the layout, but for two of them: the others are held. NaN is counted
    for the stream alone."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    text = ["layout: some", "episodes: {files: '*.hdf5', groups: /data/demo_*}", "clocks: {a: {rate: 20, rows: x}}", "streams:",
            "  x: {path: state, columns: '1:3', clock: a, kind: linear}"]
    (tmp_path / "some.yaml").write_text("\n".join(text))
    values = np.arange(4.0 * ROWS).reshape(ROWS, 4)
    values[3:6, 3] = np.nan
    values[4, 1] = np.nan
    with h5py.File(path, "w") as file:
        file["data/demo_0/state"] = values
    done = resample(path, "-o", out, "--rate", 40, "--layout", tmp_path / "some.yaml", "--assume-rate", "--json")
    with h5py.File(out) as made:
        state = made["data/demo_0/state"][...]
    assert np.array_equal(state[:, 0], np.repeat(values[:, 0], 2)[:-1])
    assert np.array_equal(state[:, 3], np.repeat(values[:, 3], 2)[:-1], equal_nan=True)
    assert np.array_equal(state[::2, 1:3], values[:, 1:3], equal_nan=True) and np.isnan(state[7:10, 1]).all() and not np.isnan(state[:, 2]).any()
    assert "columns 0 to 0 belong to no stream" in done.stdout and "columns 3 to 3 belong to no stream" in done.stdout


def test_steps_that_are_not_finite_are_said(tmp_path):
    """An infinity, and a number that float32 does not hold between rows that it holds."""
    path = tmp_path / "in.hdf5"
    (tmp_path / "some.yaml").write_text("\n".join([
        "layout: some", "episodes: {files: '*.hdf5', groups: /data/demo_*}", "clocks: {a: {rate: 20, rows: x}}", "streams:",
        "  x: {path: state, clock: a, kind: linear}", "  y: {path: speed, clock: a, kind: linear}"]))
    with h5py.File(path, "w") as file:
        file["data/demo_0/state"], file["data/demo_0/speed"] = np.arange(2.0 * ROWS).reshape(ROWS, 2), np.arange(2.0 * ROWS).reshape(ROWS, 2)
        file["data/demo_0/state"][4, 1], file["data/demo_0/speed"][2, 0] = np.inf, 1.5e308
        file["data/demo_0/speed"][3, 0] = -1.5e308
    said = resample(path, "-o", tmp_path / "out.hdf5", "--rate", 40, "--assume-rate", "--layout", tmp_path / "some.yaml").stdout
    assert "x: not finite in 3 steps, because" in said and "y: not finite in 1 step, because" in said, said


def test_a_dry_run_checks_the_output(tmp_path):
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write(path)
    out.write_text("mine")
    done = resample(path, "-o", out, "--rate", 40, "--dry-run", check=False)
    assert done.returncode == 1 and "out.hdf5" in done.stderr and out.read_text() == "mine"
