"""trajd.convert zarr: stores of ReplayBuffer of diffusion_policy and UMI, and stores that are faulty in one place."""
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest
from conversions import MOMENTS, contents, converted, kill_and_repeat, left_out, run
from paths import ROOT, TRAJCTL, clean_environment, package_environment
from PIL import Image
from scipy.spatial.transform import Rotation

import trajd
from drafted import init

pytest.importorskip("imagecodecs")
SETS = ROOT / "tests" / "golden" / "zarr"
ABOUT = json.loads((SETS / "vectors.json").read_text())
VECTORS = np.load(SETS / "vectors.npz")
PATHS = {"pusht": SETS / "pusht.zarr", "real": SETS / "real.zarr.zip", "umi": SETS / "umi.zarr.zip"}
IMAGES = {"pusht": ["img"], "real": ["camera_0", "camera_1"], "umi": ["camera0_rgb"]}
NEITHER = "it is neither a folder nor a file"
DECODERS_DIFFER = 2  # by so much at most, of another version or processor


def frames_of(images):
    """Returns the pixels of a stream of images."""
    if isinstance(images, h5py.Dataset):
        return images[()]
    data, offsets = images["bytes"][()].tobytes(), images["offsets"][()]
    return np.stack([np.array(Image.open(io.BytesIO(data[begin:end]))) for begin, end in zip(offsets, offsets[1:])])


def check(path, name, episodes=None, tolerance=DECODERS_DIFFER):
    """Compares episodes of a converted file, by default all, with what the project's reader returned."""
    about = ABOUT[name]
    ends = about["episode_ends"]
    rows = {number: slice(begin, end) for number, (begin, end) in enumerate(zip([0, *ends], ends))}
    with h5py.File(path) as file:
        assert list(file["data"]) == [f"episode_{number:06d}" for number in (rows if episodes is None else episodes)]
        for group in file["data"].values():
            for key in about["keys"]:
                expected = VECTORS[f"{name}/{key}"][rows[int(group.name[-6:])]]
                if key in IMAGES[name]:
                    found = frames_of(group[f"observation/images/{key}"])
                    assert found.dtype == np.uint8 and np.abs(found.astype(int) - expected).max() <= tolerance
                else:
                    assert group[key].dtype == expected.dtype and np.array_equal(group[key], expected)


@pytest.fixture
def pusht(tmp_path):
    return shutil.copytree(PATHS["pusht"], tmp_path / "pusht.zarr")


def edit_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rezip(path, change, target):
    """Writes the .zip file again, with change(name, data) in place of each file; None leaves it out."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as file:
        for name in dict.fromkeys(source.namelist()):
            data = change(name, source.read(name))
            if data is not None:
                file.writestr(name, data)
    return target


@pytest.mark.parametrize("name", PATHS)
def test_values_are_those_of_the_projects_reader(name, tmp_path):
    lines = converted("zarr", PATHS[name], tmp_path / "out.hdf5")
    assert f": {len(ABOUT[name]['episode_ends'])} of " in lines[-1]
    check(tmp_path / "out.hdf5", name, tolerance=0 if name == "pusht" else DECODERS_DIFFER)


def test_a_folder_and_a_zip_file_give_the_same(tmp_path):
    with zipfile.ZipFile(PATHS["umi"]) as file:
        file.extractall(tmp_path / "umi.zarr")
    shutil.make_archive(tmp_path / "below", "zip", tmp_path, "umi.zarr")  # as people pack a folder
    for source in (PATHS["umi"], tmp_path / "umi.zarr", tmp_path / "below.zip"):
        converted("zarr", source, tmp_path / "out.hdf5", "--force")
        check(tmp_path / "out.hdf5", "umi")
        (tmp_path / "first.hdf5").exists() or shutil.copy(tmp_path / "out.hdf5", tmp_path / "first.hdf5")
        assert contents(tmp_path / "out.hdf5") == contents(tmp_path / "first.hdf5")


def test_frames_of_camera_codecs_are_png(tmp_path):
    lines = converted("zarr", PATHS["umi"], tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        images = [group["observation/images/camera0_rgb"] for group in file["data"].values()]
        assert {(one.attrs["encoding"], one.attrs["color"]) for one in images} == {("png", "rgb")}
        stored = sum(len(one["bytes"]) for one in images)
    with zipfile.ZipFile(PATHS["umi"]) as file:
        size = sum(one.file_size for one in file.infolist()
                   if one.filename.startswith("data/camera0_rgb/") and "/." not in one.filename)
    before, _, after = lines[0].partition("; as PNG about ")
    assert before == f"data/camera0_rgb: 20 frames, {size} bytes as JPEG XL"
    assert abs(int(after.split()[0]) - stored) < 0.1 * stored


@pytest.mark.parametrize("name, key", [("umi", "camera0_rgb"), ("pusht", "img")])
def test_frames_as_jpeg(name, key, tmp_path):
    lines = converted("zarr", PATHS[name], tmp_path / "out.hdf5", "--jpeg", 95)
    assert lines[0].startswith(f"data/{key}: 20 frames, ") and "; as JPEG of quality 95 about " in lines[0]
    check(tmp_path / "out.hdf5", name, tolerance=120)  # at the edges of colours
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file[f"data/episode_000000/observation/images/{key}"].attrs["encoding"] == "jpeg"
        found = np.concatenate([frames_of(group[f"observation/images/{key}"]) for group in file["data"].values()])
    assert np.abs(found.astype(int) - VECTORS[f"{name}/{key}"]).mean() < 4


def test_chosen_episodes_and_cameras(tmp_path):
    lines = converted("zarr", PATHS["real"], tmp_path / "out.hdf5", "--episodes", "1", "--cameras", "camera_1")
    assert lines[0].startswith("data/camera_1: 6 frames, ") and len(lines) == 2
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert list(file["data"]) == ["episode_000001"]
        assert list(file["data/episode_000001/observation/images"]) == ["camera_1"]
    assert run("zarr", PATHS["real"], tmp_path / "no.hdf5", "--cameras", "camera_2") == (
        2, [], "trajd-convert: --cameras camera_2: did you mean camera_1? there are: camera_0, camera_1")


@pytest.mark.parametrize("name, options, rate", [("pusht", (), None), ("pusht", ("--fps", 10), 10),
                                                 ("umi", ("--fps", 59.94), "60000/1001")])
def test_rates(name, options, rate, tmp_path):
    converted("zarr", PATHS[name], tmp_path / "out.hdf5", *options)
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file["data"].attrs.get("rate") == rate
    told = subprocess.run([TRAJCTL, "inspect", tmp_path / "out.hdf5"],
                          capture_output=True, text=True, env=clean_environment()).stdout
    hertz = {"60000/1001": "59.9401 Hz", 10: "10 Hz", None: "10 Hz (assumed)"}[rate]
    assert "layout replay_buffer, " in told and f"regular, {hertz}, " in told


# ---- faults ----


@pytest.mark.parametrize("chunk, change, lost, sentence", [
    ("state/0.0", lambda data: data[:20], [0], "state/0.0: "),
    ("state/1.0", lambda data: data[:20], [0, 1], "state/1.0: "),
    ("action/3.0", lambda data: b"", [1, 2], "action/3.0: "),
    ("img/2.0.0.0", lambda data: data[:-40], [1], "img/2.0.0.0: "),
])
def test_a_damaged_chunk_costs_the_episodes_that_have_its_rows(pusht, chunk, change, lost, sentence, tmp_path):
    """A chunk has five rows. The episodes are rows 0 to 6, 7 to 15 and 16 to 19."""
    path = pusht / "data" / chunk
    path.write_bytes(change(path.read_bytes()))
    [line] = left_out("zarr", pusht, tmp_path / "out.hdf5")
    who = f"episode {lost[0]}" if len(lost) == 1 else f"episodes {lost[0]} to {lost[-1]}"
    assert line.startswith(f"left out: {who}: data/{sentence}")
    check(tmp_path / "out.hdf5", "pusht", [number for number in range(3) if number not in lost], tolerance=0)


def test_a_chunk_of_another_size_is_damaged(pusht, tmp_path):
    edit_json(pusht / "data/n_contacts/.zarray", compressor=None)
    size = (pusht / "data/n_contacts/0.0").stat().st_size
    status, lines, err = run("zarr", pusht, tmp_path / "out.hdf5")
    assert status == 2 and f"left out: episode 0: data/n_contacts/0.0: it has {size} bytes, and a chunk has 20" in lines
    assert err == "trajd-convert: no episode could be converted, so no file was written"


@pytest.mark.parametrize("name, chunk, lost, words", [("umi", "camera0_rgb/8.0.0.0", 1, "Jxl"),
                                                      ("real", "camera_1/2.0.0.0", 0, "opj")])
def test_a_damaged_frame_costs_its_episode(name, chunk, lost, words, tmp_path):
    def halve(one, data):
        return data[:len(data) // 2] if one == f"data/{chunk}" else data

    path = rezip(PATHS[name], halve, tmp_path / "set.zip")
    [line] = left_out("zarr", path, tmp_path / "out.hdf5")
    assert line.startswith(f"left out: episode {lost}: data/{chunk}: ") and words in line
    check(tmp_path / "out.hdf5", name, [number for number in range(len(ABOUT[name]["episode_ends"])) if number != lost])


def test_a_changed_byte_in_a_zip_file_costs_its_episode(tmp_path):
    """The .zip has a CRC of each chunk, of numbers without compression, too."""
    data = bytearray(PATHS["umi"].read_bytes())
    with zipfile.ZipFile(PATHS["umi"]) as file:
        data[file.getinfo("data/camera0_rgb/17.0.0.0").header_offset + 120] ^= 1
    (tmp_path / "umi.zip").write_bytes(data)
    assert left_out("zarr", tmp_path / "umi.zip", tmp_path / "out.hdf5") == [
        "left out: episode 2: data/camera0_rgb/17.0.0.0: Bad CRC-32 for file 'data/camera0_rgb/17.0.0.0'"]
    check(tmp_path / "out.hdf5", "umi", [0, 1])


def test_a_missing_chunk_costs_its_episode(pusht, tmp_path):
    (pusht / "data/state/2.0").unlink()
    assert left_out("zarr", pusht, tmp_path / "out.hdf5") == [
        "left out: episode 1: data/state/2.0: there is no such chunk"]
    check(tmp_path / "out.hdf5", "pusht", [0, 2], tolerance=0)


@pytest.mark.parametrize("changes, sentence", [
    (None, "there is none"),
    ({"dtype": "|O"}, "its dtype is |O"),
    ({"zarr_format": 3}, "its zarr_format is 3"),
    ({"compressor": {"id": "imagecodecs_avif"}}, "imagecodecs_avif"),
    ({"compressor": {"id": "pickle"}}, "its compressor is pickle"),
    ({"filters": [{"id": "pickle"}]}, "its filter is pickle"),
    ({"dimension_separator": "/../"}, "its dimension_separator is '/../'"),
    ({"chunks": [5]}, "its shape is [20, 5], in chunks of [5]"),
    ({"chunks": [0, 5]}, "its shape is [20, 5], in chunks of [0, 5]"),
    ({"shape": [20, 1 << 40], "chunks": [5, 1 << 40]}, " bytes"),
    ({"order": "Z"}, "'Z'"),
    ({"shape": "x"}, "invalid literal"),
])
def test_an_array_that_cannot_be_read_is_left_out(pusht, changes, sentence, tmp_path):
    path = pusht / "data/state/.zarray"
    path.unlink() if changes is None else edit_json(path, **changes)
    [line] = left_out("zarr", pusht, tmp_path / "out.hdf5")
    assert line.startswith("left out: data/state/.zarray: ") and sentence in line
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert len(file["data"]) == 3 and "state" not in file["data/episode_000000"]
        assert np.array_equal(file["data/episode_000002/action"], VECTORS["pusht/action"][16:])


@pytest.mark.parametrize("ends, kept, sentences", [
    ([7, 16, 24], [0, 1], ["left out: episode 2: data/action: it has 20 rows, and the episode is rows 16 to 23"]),
    ([7, 16, 19], [0, 1, 2],
     [f"left out: data/{key}: its rows 19 to 19 are of no episode" for key in ABOUT["pusht"]["keys"]]),
    ([7, 7, 20], [0, 2],
     ["left out: episode 1: meta/episode_ends: its entry 1 is 7, and the episode would begin at row 7"]),
    ([7, 3, 20], [], [
        "left out: episode 0: meta/episode_ends: the episode is rows 0 to 6, and another one has some of them, too",
        "left out: episode 1: meta/episode_ends: its entry 1 is 3, and the episode would begin at row 7",
        "left out: episode 2: meta/episode_ends: the episode is rows 3 to 19, and another one has some of them, too"
    ]),
    ([500, 16, 20], [2], [
        "left out: episode 0: data/action: it has 20 rows, and the episode is rows 0 to 499",
        "left out: episode 1: meta/episode_ends: its entry 1 is 16, and the episode would begin at row 500"
    ]),
    ([-4, 16, 20], [2], [
        "left out: episode 0: meta/episode_ends: its entry 0 is -4, and the episode would begin at row 0",
        "left out: episode 1: meta/episode_ends: its entry 1 is 16, and the episode would begin at row -4"
    ]),
])
def test_ends_that_do_not_fit(pusht, ends, kept, sentences, tmp_path):
    path = pusht / "meta/episode_ends"
    edit_json(path / ".zarray", compressor=None, chunks=[3])
    (path / "0").write_bytes(np.array(ends, "<i8").tobytes())
    status, lines, _ = run("zarr", pusht, tmp_path / "out.hdf5")
    assert [line for line in lines if line.startswith("left out")] == sentences and status == (0 if kept else 2)
    if kept:
        with h5py.File(tmp_path / "out.hdf5") as file:
            assert list(file["data"]) == [f"episode_{number:06d}" for number in kept]
            for number in kept:
                rows = slice([0, *ends][number], ends[number])
                assert np.array_equal(file[f"data/episode_{number:06d}/state"], VECTORS["pusht/state"][rows])


def test_an_array_that_is_too_short_costs_the_last_episodes(pusht, tmp_path):
    edit_json(pusht / "data/keypoint/.zarray", shape=[12, 9, 2])
    assert left_out("zarr", pusht, tmp_path / "out.hdf5") == [
        "left out: episode 1: data/keypoint: it has 12 rows, and the episode is rows 7 to 15",
        "left out: episode 2: data/keypoint: it has 12 rows, and the episode is rows 16 to 19"]
    check(tmp_path / "out.hdf5", "pusht", [0], tolerance=0)


def test_pixels_in_floats_are_whole_numbers(pusht, tmp_path):
    array = VECTORS["pusht/img"][15:20].copy()
    array[2, 1, 1, 1] += 0.5  # row 17
    edit_json(pusht / "data/img/.zarray", compressor=None)
    for number in range(4):
        (pusht / f"data/img/{number}.0.0.0").write_bytes(
            (array if number == 3 else VECTORS["pusht/img"][5 * number:5 * number + 5]).tobytes())
    assert left_out("zarr", pusht, tmp_path / "out.hdf5") == [
        "left out: episode 2: data/img: row 17 has pixels that are not whole numbers from 0 to 255, unlike row 0"]
    check(tmp_path / "out.hdf5", "pusht", [0, 1], tolerance=0)


@pytest.mark.parametrize("change, sentence", [
    (lambda root: shutil.rmtree(root / "meta"),
     ": it has no meta/episode_ends/.zarray, as a ReplayBuffer in Zarr, version 2, has"),
    (lambda root: (root / "meta/episode_ends/0").write_bytes(b"1"), ": meta/episode_ends/0: "),
    (lambda root: edit_json(root / "meta/episode_ends/.zarray", shape=[0]),
     ": meta/episode_ends is int64 [0], and no list of ends"),
    (lambda root: edit_json(root / "meta/episode_ends/.zarray", dtype="<f8"),
     ": meta/episode_ends is float64 [3], and no list of ends"),
    (lambda root: shutil.rmtree(root / "data"), ": it has no array in data that can be read"),
])
def test_a_store_that_is_none(pusht, change, sentence, tmp_path):
    change(pusht)
    status, lines, err = run("zarr", pusht, tmp_path / "out.hdf5")
    assert (status, lines) == (2, []) and err.startswith(f"trajd-convert: {pusht}{sentence}"), err
    assert not list(tmp_path.glob("out*"))


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.zip").write_text("no zip file")
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("text.zip", "File is not a zip file"), ("pipe", NEITHER), ("nothing", NEITHER)):
        assert run("zarr", tmp_path / name, tmp_path / "out.hdf5")[2] == f"trajd-convert: {tmp_path}/{name}: {why}"


def test_without_imagecodecs(tmp_path):
    script = ("import sys; sys.modules['imagecodecs'] = None; from trajd.convert.__main__ import main; "
              "sys.exit(main(sys.argv[1:]))")

    def convert(name, *options):
        output = str(tmp_path / f"{name}.hdf5")
        command = [sys.executable, "-c", script, "zarr", str(PATHS[name]), "-o", output, *options]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **package_environment()})

    done = convert("umi")
    assert (done.returncode, done.stderr) == (
        2, f"trajd-convert: {PATHS['umi']}: camera0_rgb is decoded and encoded by imagecodecs, which is not "
        "installed: pip install imagecodecs; or name the other cameras with --cameras\n")
    assert convert("pusht").returncode == 0
    check(tmp_path / "pusht.hdf5", "pusht", tolerance=0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_was_killed_begins_again(moment, tmp_path):
    kill_and_repeat(moment, "zarr", PATHS["umi"], tmp_path / "out.hdf5")
    check(tmp_path / "out.hdf5", "umi")


# ---- feeds ----


@pytest.mark.parametrize("style, state", [("diffusion_policy", "obs/state"), ("lerobot", "observation.state"),
                                          ("act", "qpos")])
def test_presets_give_feeds_that_train(daemon, style, state, tmp_path):
    """A linear policy is fitted by gradient descent, and its loss falls."""
    converted("zarr", PATHS["pusht"], tmp_path / "out.hdf5", "--fps", "10")
    text = init(style, tmp_path / "out.hdf5", tmp_path / "made.yaml")
    assert "layout: replay_buffer" in text and "GUESS" not in text
    one = daemon(text.replace("version: 2\n", ""), folder="daemon", rings="256MiB")
    losses, weights = [], 0.0
    with trajd.connect(one.endpoint, feed="train", timeout=60, style=style) as feed:
        for epoch in range(60):
            errors = []
            for batch in feed.epoch(epoch):
                seen, wanted = np.array(batch[state]).reshape(len(batch[state]), -1), np.array(batch["action"])[:, 0]
                seen = np.concatenate([seen, np.ones((len(seen), 1))], axis=1)
                errors.append(seen @ (weights + np.zeros((seen.shape[1], wanted.shape[1]))) - wanted)
                weights = weights - 0.2 * seen.T @ errors[-1] / (seen ** 2).sum()
            losses.append(np.mean(np.concatenate(errors) ** 2))
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:3])


def feed_of_the_page():
    """Returns the configuration of clients/docs/how-to/convert.md, for frames that are smaller than UMI's."""
    lines = (ROOT / "clients/docs/how-to/convert.md").read_text().splitlines()
    begin = lines.index("feeds:")
    end = next(number for number, line in enumerate(lines[begin:], begin) if line == "```")
    return "\n".join(lines[begin:end]).replace(
        "image: {preset: umi}", "image: {preset: umi, resize: 32}").replace(
            "global_batch: 64", "global_batch: 4\n    tail: short\n    pad: {before: any, after: any, with: edge}")


def test_a_feed_of_umi(daemon, tmp_path):
    """Actions are the poses that follow, relative to that of the anchor, with rotations in six numbers."""
    converted("zarr", PATHS["umi"], tmp_path / "out.hdf5", "--fps", "59.94")
    one = daemon(f"datasets: {{umi: {{path: {tmp_path}/out.hdf5, layout: replay_buffer}}}}\n{feed_of_the_page()}\n",
                 folder="daemon",
                 rings="256MiB")
    rotations = Rotation.from_rotvec(VECTORS["umi/robot0_eef_rot_axis_angle"])
    begins = [0, *ABOUT["umi"]["episode_ends"]]
    with trajd.connect(one.endpoint, feed="train", timeout=60) as feed:
        scale = feed.stats()
        for batch in feed.epoch(0):
            chunks = scale.unnormalize("actions", np.array(batch["actions"]))
            for chunk, episode, anchor in zip(chunks, batch.episode_index, batch.anchor_ns):
                row = begins[episode] + round(int(anchor) * 59.94e-9)
                rows = np.minimum(np.arange(row, row + 16), begins[episode + 1] - 1)
                back = rotations[row].inv()
                positions = back.apply(VECTORS["umi/robot0_eef_pos"][rows] - VECTORS["umi/robot0_eef_pos"][row])
                matrices = (back * rotations[rows]).as_matrix()[:, :2].reshape(16, 6)
                assert np.allclose(chunk[:, :9], np.concatenate([positions, matrices], axis=1), atol=1e-4)
                assert np.allclose(chunk[:, 9:], VECTORS["umi/robot0_gripper_width"][rows], atol=1e-5)
