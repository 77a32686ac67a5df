"""trajctl resample: objects of one episode that are no streams are copied, even where the other episodes have none
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
    assert "forces: no stream of the layout" in done.stderr
    with h5py.File(path) as source, h5py.File(out) as made:
        for i in range(2 * len(BESIDE)):
            was, now = source[f"data/demo_{i}"], made[f"data/demo_{i}"]
            expected = tree(was)
            expected[""] = sorted([*expected[""], "trajd_source"])
            expected.pop("forces", None)
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
