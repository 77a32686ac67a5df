"""trajctl resample: a dataset that no stream names, with an entry for each row of the episode, gets the entries of
the rows that the steps take, or the file is refused by name."""
import h5py
import numpy as np
import pytest

from paths import ALOHA_BYTES, RECORDINGS
from resample_runs import resample

CAMERAS = ["cam_high", "cam_left_wrist", "cam_right_wrist"]
ALOHA = ["--layout", ALOHA_BYTES, "--assume-rate"]  # without declared images: the rows here are not frames


def write_aloha(path, rows=150, padded=64, **beside):
    """Writes an episode as Mobile ALOHA does: rows of bytes, padded to one length, and the lengths beside them."""
    random = np.random.default_rng(5)
    lengths = random.integers(10, padded, (len(CAMERAS), rows))
    with h5py.File(path, "w") as file:
        for name, columns in (("action", 14), ("observations/qpos", 14)):
            file[name] = random.normal(size=(rows, columns)).astype(np.float32)
        for i, camera in enumerate(CAMERAS):
            images = random.integers(1, 255, (rows, padded), dtype=np.uint8)
            images[np.arange(padded)[None] >= lengths[i][:, None]] = 0
            file.create_dataset(f"observations/images/{camera}", data=images, chunks=(1, padded))
        file["compress_len"] = lengths.astype(np.float32)
        for name, value in beside.items():
            file[name] = value
    return path


def check_lengths(path, steps):
    with h5py.File(path) as made:
        assert made["compress_len"].shape == (3, steps) and made["compress_len"].dtype == np.float32
        for i, camera in enumerate(CAMERAS):
            images = made[f"observations/images/{camera}"][...]
            assert len(images) == steps
            ends = images.shape[1] - np.argmax(images[:, ::-1] != 0, axis=1)
            assert np.array_equal(ends, made["compress_len"][i]), camera


@pytest.mark.parametrize("rate, steps", [(10, 30), (15, 45), (20, 60), (29.97, 90), (90, 269)])
@pytest.mark.parametrize("kind", ["previous", "nearest"])
def test_lengths_of_images_follow_them(tmp_path, rate, steps, kind):
    path, out = write_aloha(tmp_path / "episode_0.hdf5"), tmp_path / "out.hdf5"
    done = resample(path, "-o", out, "--rate", rate, *ALOHA, "--kind", f"observations/images/*={kind}")
    check_lengths(out, steps)
    assert "compress_len: no stream of the layout, but axis 1 has an entry for each row" in done.stderr


def test_the_public_recorder_s_file(tmp_path):
    path, out = RECORDINGS / "images/mobile_aloha.hdf5", tmp_path / "out.hdf5"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/episode_0.hdf5").symlink_to(path)
    resample(tmp_path / "in/episode_0.hdf5", "-o", out, "--rate", 20, "--layout", "aloha", "--assume-rate")
    with h5py.File(out) as made:
        steps = len(made["action"])
    check_lengths(out, steps)
    assert steps == 5


def test_the_same_rate_copies(tmp_path):
    path, out = write_aloha(tmp_path / "episode_0.hdf5", rows=3, square=np.eye(3)), tmp_path / "out.hdf5"
    resample(path, "-o", out, "--rate", 50, *ALOHA)
    with h5py.File(out) as made, h5py.File(path) as source:
        assert np.array_equal(made["compress_len"], source["compress_len"]) and np.array_equal(made["square"], np.eye(3))


def test_every_shape_and_type(tmp_path):
    """The first, a middle and the last axis; chunks and filters; texts of any length; an empty row."""
    rows, steps = 50, 10
    path, out = write_aloha(tmp_path / "episode_0.hdf5", rows=rows), tmp_path / "out.hdf5"
    random = np.random.default_rng(1)
    with h5py.File(path, "r+") as file:
        file["first"] = random.normal(size=(rows, 3, 2))
        file.create_dataset("middle", data=random.integers(0, 99, (4, rows, 5)), chunks=(2, 7, 5), compression="gzip", maxshape=(4, None, 5))
        file["last"] = random.normal(size=(2, 3, rows)) > 0
        file["words"] = [f"step {i}" * (i % 3) for i in range(rows)]
        file["names"] = np.array([f"{i}".encode() for i in range(rows)])
        file["none"] = np.zeros((rows, 0))
        file["kept"] = np.arange(7)
        jpeg = file.create_dataset("jpeg", (rows,), h5py.vlen_dtype(np.uint8))
        for i in range(rows):
            jpeg[i] = np.full(i % 5, i, np.uint8)
        file["first"].attrs["unit"] = "m"
    done = resample(path, "-o", out, "--rate", 10, *ALOHA)
    picked = np.arange(0, rows, 5)
    with h5py.File(out) as made, h5py.File(path) as source:
        assert len(picked) == steps and made["first"].attrs["unit"] == "m"
        for name, axis in {"first": 0, "middle": 1, "last": 2, "words": 0, "names": 0, "none": 0}.items():
            assert np.array_equal(made[name][...], np.take(source[name][...], picked, axis)), name
            assert made[name].dtype == source[name].dtype and f"{name}: no stream of the layout, but axis {axis}" in done.stderr
        assert made["middle"].compression == "gzip" and np.array_equal(made["kept"], np.arange(7))
        for step, row in enumerate(picked):
            assert np.array_equal(made["jpeg"][step], source["jpeg"][row])


def test_a_length_by_chance(tmp_path):
    """A square is refused; `tables:` in the layout says that it counts no rows."""
    path, out = write_aloha(tmp_path / "episode_0.hdf5", rows=3, camera_matrix=np.eye(3)), tmp_path / "out.hdf5"
    done = resample(path, "-o", out, "--rate", 25, *ALOHA, check=False)
    assert done.returncode == 1 and not out.exists()
    assert "camera_matrix: 3 elements, like the rows of the episode" in done.stderr and "tables:" in done.stderr
    text = ["layout: mine", "episodes: {files: 'episode_*.hdf5', groups: /}", "clocks: {steps: {rate: 50, rows: action}}", "streams:",
            "  action: {kind: previous}", "tables: [camera_*, compress_len]"]
    (tmp_path / "mine.yaml").write_text("\n".join(text))
    resample(path, "-o", out, "--rate", 25, "--layout", tmp_path / "mine.yaml", "--assume-rate")
    with h5py.File(out) as made:
        assert np.array_equal(made["camera_matrix"], np.eye(3)) and len(made["action"]) == 2 and made["compress_len"].shape == (3, 3)


def write_demos(path, shapes):
    with h5py.File(path, "w") as file:
        for i, (rows, shape) in enumerate(shapes):
            file[f"data/demo_{i}/actions"] = np.arange(rows * 2.0).reshape(rows, 2)
            file[f"data/demo_{i}/beside"] = np.arange(np.prod(shape)).reshape(shape)
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
    return path


def test_one_rule_for_all_episodes(tmp_path):
    """A table that is as long as one of the episodes, but not as the others, is refused."""
    out = tmp_path / "out.hdf5"
    for i, second in enumerate([12, 15]):
        path = write_demos(tmp_path / f"{i}.hdf5", [(9, (4, 12)), (second, (4, 12)), (15, (4, 12))])
        done = resample(path, "-o", out, "--rate", 10, "--assume-rate", check=second != 12)
        if second == 12:
            assert done.returncode == 1 and "beside: in some episodes one of its axes is as long as the episode" in done.stderr
            assert "demo_1" in done.stderr and not out.exists()
    path = write_demos(tmp_path / "rows.hdf5", [(9, (4, 9)), (12, (4, 12)), (15, (4, 15))])
    resample(path, "-o", out, "--rate", 10, "--assume-rate", "--force")
    with h5py.File(out) as made, h5py.File(path) as source:
        for name in source["data"]:
            assert np.array_equal(made[f"data/{name}/beside"], source[f"data/{name}/beside"][:, ::2])


def test_two_clocks_of_one_length(tmp_path):
    """Streams of one length that take different rows: to which of them a dataset belongs is unknown."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    text = ["layout: two", "episodes: {files: '*.hdf5', groups: /data/demo_*}", "clocks: {a: {path: at, unit: s}, b: {path: bt, unit: s}}",
            "streams:", "  x: {path: x, clock: a, kind: previous}", "  y: {path: y, clock: b, kind: previous}"]
    (tmp_path / "two.yaml").write_text("\n".join(text))
    for late, result in ((1.2, 1), (1, 0)):
        with h5py.File(path, "w") as file:
            group = file.create_group("data/demo_0")
            group["at"], group["bt"] = np.arange(40) / 20, np.arange(40) / 20 * late
            group["x"] = group["y"] = np.arange(40.0)
            group["lengths"] = np.arange(40)
        done = resample(path, "-o", out, "--rate", 10, "--assume-rate", "--layout", tmp_path / "two.yaml", check=False)
        assert done.returncode == result, done.stderr
    with h5py.File(out) as made:
        assert np.array_equal(made["data/demo_0/lengths"], np.arange(0, 40, 2))


def test_parts_and_dropped_rows(tmp_path):
    """Episodes that are split at gaps, and clocks that drop rows: the entries are those of the rows in the file."""
    path, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    text = ["layout: one", "episodes: {files: '*.hdf5', groups: /data/demo_*}", "clocks: {a: {path: t, unit: ms, repeated: drop}}",
            "streams:", "  x: {path: x, clock: a, kind: previous}"]
    (tmp_path / "one.yaml").write_text("\n".join(text))
    stamps = np.arange(60) * 10
    stamps[20:] += 500
    stamps[30] = stamps[29]
    with h5py.File(path, "w") as file:
        group = file.create_group("data/demo_0")
        group["t"], group["x"], group["lengths"] = stamps, np.arange(60), np.arange(120).reshape(2, 60)
    resample(path, "-o", out, "--rate", 50, "--max-gap", "100ms", "--assume-rate", "--layout", tmp_path / "one.yaml")
    with h5py.File(out) as made:
        assert sorted(made["data"]) == ["demo_0", "demo_1"]
        for episode in made["data"].values():
            assert len(episode["x"]) and np.array_equal(episode["lengths"], [episode["x"][...], episode["x"][...] + 60])
