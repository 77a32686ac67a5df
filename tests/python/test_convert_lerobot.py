"""trajd.convert lerobot: sets of LeRobot's own writer, and small ones that are faulty in one place."""
import io
import json
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_sets import FEATURES, TASKS, info, make_v2, make_v3, values, write_json
from paths import TRAJCTL, clean_environment, package_environment
from video_groups import VECTORS, VIDEO as RECORDED, packets_of

from trajd.convert import video
from trajd.convert.__main__ import main
from trajd.convert.lerobot import LeRobot, exact_rate

SETS = RECORDED / "lerobot"
TOP, WRIST = "observation.images.top", "observation.images.wrist"
VIDEO = {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"], "info": {"video.codec": "h264"}}
NUMBERS = {name: feature for name, feature in FEATURES.items() if name in ("observation.state", "action")}


def run(folder, output, *options):
    """Converts, and returns the exit status, the lines of the summary and those of stderr."""
    out, err = io.StringIO(), io.StringIO()
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        status = main(["lerobot", str(folder), "-o", str(output), *map(str, options)])
    finally:
        sys.stdout, sys.stderr = kept
    return status, out.getvalue().splitlines(), err.getvalue().strip()


def converted(folder, output, *options):
    status, lines, err = run(folder, output, *options)
    assert (status, err) == (0, ""), err
    return lines


def data_of(folder):
    """Returns the rows of all data files of a set, by episode."""
    rows = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("data/*/*.parquet"))])
    return {number: rows.filter(pa.compute.equal(rows["episode_index"], number)) for number in set(rows["episode_index"].to_pylist())}


# ---- sets of LeRobot's writer ----


@pytest.mark.parametrize("name", sorted(path.name for path in SETS.iterdir()))
def test_numbers_are_those_of_the_parquet_files(name, tmp_path):
    converted(SETS / name, tmp_path / "out.hdf5")
    features = json.loads((SETS / name / "meta/info.json").read_text())["features"]
    places = {"observation.state": "observation/state", "action": "action", "next.reward": "next.reward", "next.done": "next.done",
              "observation.tactile": "observation/tactile", "observation.mode": "observation/mode", "state": "state",
              "actions": "actions"}
    with h5py.File(tmp_path / "out.hdf5") as file:
        rows = data_of(SETS / name)
        assert len(file["data"]) == len(rows) - (name == "v30_short_video")
        for group in file["data"].values():
            held = rows[group.attrs["episode_index"]]
            for key in set(places) & set(features):
                stored, expected = group[places[key]], np.array(held[key].to_pylist(), features[key]["dtype"])
                assert stored.dtype == expected.dtype and stored.shape == (len(held), *features[key]["shape"])
                assert np.array_equal(stored[()].reshape(expected.shape), expected)
                assert json.loads(stored.attrs.get("names", "null")) == features[key]["names"]


@pytest.mark.parametrize("name, options", [("v30_av1", ()), ("v30_h264_g10", ()), ("v30_h264_g30", ()), ("v30_2997", ()), ("v30_order", ()),
                                           ("v30_drift_small", ()), ("v30_drift_large", ()), ("v30_late", ()),
                                           ("v21_av1", ()), ("v20_av1", ("--reference",)), ("v30_av1", ("--reference",)),
                                           ("v30_order", ("--reference",))])
def test_each_row_has_the_packet_that_shows_its_number(name, options, tmp_path):
    """The frames of LeRobot's sets show 32 * episode + row. Those of v30_order are in the file as they were recorded."""
    folder = shutil.copytree(SETS / name, tmp_path / name)
    converted(folder, tmp_path / "out.hdf5", *options)
    recorded = {}  # the number that is shown, by packet
    source = {"v20_av1": "v21_av1", **dict.fromkeys(("v30_order", "v30_drift_small", "v30_drift_large", "v30_late"), "v30_h264_g10")}.get(name, name)
    for path in (path for path in VECTORS if path.startswith(f"lerobot/{source}/")):
        vector, data = VECTORS[path], (SETS.parent / path).read_bytes()
        for row, packet in enumerate(vector["rows"]):
            position, size = vector["packets"][packet]
            recorded[next(part for part in path.split("/") if part.startswith("observation.")), data[position:position + size]] = vector["numbers"][row]
    with h5py.File(tmp_path / "out.hdf5") as file:
        for group in file["data"].values():
            for camera, video in group["observation/images"].items():
                media = tmp_path / video.attrs["media"] if options else None
                assert ("bytes" in video) == (not options)
                shown = [recorded[f"observation.images.{camera}", packet] for packet in packets_of(video, media)]
                episode = group.attrs["episode_index"]
                if name == "v30_order" and camera == "wrist":  # the frames of 2 and 1 are in the order 1, 2
                    assert shown == sorted(shown)
                    if episode not in (1, 2):
                        assert shown == [32 * episode + row for row in range(len(shown))]
                else:
                    assert shown == [32 * episode + row for row in range(len(shown))]


def test_tables_of_a_copy_and_of_a_reference_agree(tmp_path):
    folder = shutil.copytree(SETS / "v30_h264_g10", tmp_path / "set")
    converted(folder, tmp_path / "copy.hdf5")
    converted(folder, tmp_path / "reference.hdf5", "--reference")
    with h5py.File(tmp_path / "copy.hdf5") as copy, h5py.File(tmp_path / "reference.hdf5") as reference:
        for name, group in copy["data"].items():
            for camera, video in group["observation/images"].items():
                other = reference[f"data/{name}/observation/images/{camera}"]
                for table_name in ("rows", "units", "extradata", "extradata_ends"):
                    assert np.array_equal(video[table_name], other[table_name])
                assert np.array_equal(video["packets"][:, 1:], other["packets"][:, 1:])
                assert video["packets"][0, 0] == 0 and video["packets"][-1, :2].sum() == len(video["bytes"])
                units = video["units"][()]
                assert list(units[0, :2]) == [0, 0] and (np.diff(units[:, :2], axis=0) > 0).all()
                for begin, end in zip(units, [*units[1:], [len(video["packets"]), len(video["rows"])]]):
                    held = video["rows"][begin[1]:end[1]]
                    assert begin[0] <= held.min() and held.max() < end[0]
                assert {key: video.attrs[key] for key in ("codec", "pixel_format", "encoding", "color")} == {
                    "codec": "h264", "pixel_format": "yuv420p", "encoding": "video", "color": "rgb"}
                assert list(video.attrs["size"]) == [96, 128]
                media = tmp_path / other.attrs["media"]
                assert other.attrs["media_size"] == media.stat().st_size and packets_of(other, media) == packets_of(video)
                assert video.attrs["version"] == 1
                sizes = np.split(video["packets"][:, 1], units[1:, 0])
                assert list(video.attrs["largest_unit"]) == [max(map(len, sizes)), max(map(sum, sizes))]


def test_images_are_rows_of_png(tmp_path):
    lines = converted(SETS / "openpi_libero_v30", tmp_path / "out.hdf5")
    assert lines[0].split(": ", 1)[1].startswith("2 of 2 episodes, 12 rows, ")
    rows = data_of(SETS / "openpi_libero_v30")
    with h5py.File(tmp_path / "out.hdf5") as file:
        for number, group in enumerate(file["data"].values()):
            for camera in ("image", "wrist_image"):
                images = group[f"observation/images/{camera}"]
                held = [row["bytes"] for row in rows[number][camera].to_pylist()]
                found = [images["bytes"][begin:end].tobytes() for begin, end in zip(images["offsets"][:-1], images["offsets"][1:])]
                assert found == held and images.attrs["encoding"] == "png"


def test_tasks_are_texts_of_the_episode(tmp_path):
    lines = converted(SETS / "v30_h264_g10", tmp_path / "out.hdf5")
    assert [line for line in lines if "episode 3" in line] == [
        "kept: episode 3: several tasks, so no text `task`: the attribute `tasks` has each with its first row"]
    with h5py.File(tmp_path / "out.hdf5") as file:
        texts = [group.attrs.get("task") for group in file["data"].values()]
        tasks = json.loads(file["data/episode_000003"].attrs["tasks"])
    assert [text for text in texts if text] == [texts[0], texts[1], texts[0], texts[0]] and texts[3] is None
    assert tasks == [{"task": texts[0], "row": 0}, {"task": texts[1], "row": 10}]


def test_rate_is_exact(tmp_path):
    converted(SETS / "v30_2997", tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file["data"].attrs["fps"] == "30000/1001"
    told = subprocess.run([TRAJCTL, "inspect", tmp_path / "out.hdf5"], capture_output=True, text=True, env=clean_environment()).stdout
    assert "layout lerobot" in told and "regular, 29.97 Hz" in told


@pytest.mark.parametrize("fps, expected", [(30, "30"), (30.0, "30"), (29.97, "30000/1001"), (30000 / 1001, "30000/1001"),
                                           (23.976, "24000/1001"), (59.94, "60000/1001"), (12.5, "25/2")])
def test_rates(fps, expected):
    assert str(exact_rate(fps)) == expected


@pytest.mark.parametrize("fps", [0, -1, True, "30", None, float("nan"), 1e9])
def test_no_rates(fps):
    with pytest.raises(ValueError):
        exact_rate(fps)


# ---- sets by hand ----


@pytest.mark.parametrize("make, version", [(make_v3, None), (make_v2, "v2.1"), (make_v2, "v2.0")])
def test_small_sets_of_all_versions(make, version, tmp_path):
    folder = make(tmp_path / "set", **({"version": version} if version else {}))
    lines = converted(folder, tmp_path / "out.hdf5")
    assert lines[0].startswith(f"{tmp_path}/out.hdf5: 3 of 3 episodes, 16 rows, ")
    assert lines[1:] == ["left out: feature observation.note: its dtype is string"]
    with h5py.File(tmp_path / "out.hdf5") as file:
        for number, length in enumerate((5, 7, 4)):
            group = file[f"data/episode_{number:06d}"]
            assert group.attrs["task"] == TASKS[number % 2]
            for key, held in values(number, length).items():
                stored = group[key.replace("observation.", "observation/")]
                assert stored.dtype == held.dtype and np.array_equal(stored, held)


def test_chosen_episodes_and_cameras(tmp_path):
    folder = make_v3(tmp_path / "set")
    converted(folder, tmp_path / "out.hdf5", "--episodes", "0,2-5", "--cameras", "top")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert list(file["data"]) == ["episode_000000", "episode_000002"]
        assert list(file["data/episode_000000/observation/images"]) == ["top"]
    assert run(folder, tmp_path / "other.hdf5", "--cameras", "topp") == (
        2, [], "trajd-convert: --cameras topp: there are: observation.images.top")


def with_videos(folder, make=make_v2, mp4="h264", lengths=(5, 7, 4), fps=30, **more):
    """A set in which each episode has the frames of a file of tests/golden/video/mp4."""
    make(folder, lengths=lengths, fps=fps, features={**NUMBERS, TOP: VIDEO}, **more)
    for number in range(len(lengths)):
        path = folder / f"videos/chunk-000/{TOP}/episode_{number:06d}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SETS.parent / f"mp4/{mp4}.mp4", path)
    return folder


def left_out(folder, tmp_path, *options, of=3):
    """Converts a set of which one episode is left out, and returns the sentence. The others are as without the fault."""
    lines = converted(folder, tmp_path / "out.hdf5", *options)
    assert f": {of - 1} of {of} episodes, " in lines[0]
    sentences = [line for line in lines if line.startswith("left out: episode")]
    assert len(sentences) == 1
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert len(file["data"]) == of - 1
        for group in file["data"].values():
            number = group.attrs["episode_index"]
            held = values(number, len(group["action"]))
            assert np.array_equal(group["action"], held["action"]) and np.array_equal(group["observation/state"], held["observation.state"])
    return sentences[0]


def rewrite(path, change):
    """Replaces the table of a Parquet file by change(table)."""
    pq.write_table(change(pq.read_table(path)), path)


def set_column(name, change):
    return lambda content: content.set_column(content.column_names.index(name), name, pa.array(change(content[name].to_pylist())))


def edit(value, row):
    def change(held):
        held[row] = value
        return held
    return change


SECOND = "data/chunk-000/episode_000001.parquet"


@pytest.mark.parametrize("change, sentence", [
    (lambda content: content.drop_columns("action"), "it lacks the column action"),
    (lambda content: content.drop_columns("timestamp"), "it lacks the column timestamp"),
    (lambda content: content.slice(0, 6), "it has 6 rows of it, and meta/episodes says 7"),
    (set_column("frame_index", edit(9, 3)), "its row 3 has the frame_index 9"),
    (set_column("timestamp", edit(0.36, 3)),
     "its row 3 has the timestamp 0.360000 s, more than half a frame from 0.300000 s, which is 3 / 10 fps"),
    (set_column("timestamp", edit(float("nan"), 3)),
     "its row 3 has the timestamp nan s, more than half a frame from 0.300000 s, which is 3 / 10 fps"),
    (set_column("task_index", edit(7, 3)), "its task_index 7 is not in meta/tasks"),
    (set_column("action", edit(None, 3)), "feature action: 1 of its 7 values are empty"),
    (set_column("action", edit([1.0, 2.0, 3.0], 3)), "feature action: row 3 has 3 values, and its shape is [2]"),
    (set_column("action", lambda held: [row[0] for row in held]), "feature action: a row has 1 values, and its shape is [2]"),
    (set_column("action", lambda held: [["a", "b"]] * len(held)), "feature action: its values are object, and its dtype is float32"),
    (set_column(TOP, edit({"bytes": b"GIF89a", "path": None}, 2)), f"feature {TOP}: an image is neither PNG nor JPEG"),
    (set_column(TOP, edit({"bytes": None, "path": "x.png"}, 2)), f"feature {TOP}: 1 of its 7 images have no bytes"),
])
def test_a_faulty_data_file_costs_its_episode(change, sentence, tmp_path):
    folder = make_v2(tmp_path / "set")
    rewrite(folder / SECOND, change)
    separator = ", " if sentence.startswith("feature") else ": "
    assert left_out(folder, tmp_path) == f"left out: episode 1: {SECOND}{separator}{sentence}"


def test_a_truncated_data_file_costs_its_episode(tmp_path):
    folder = make_v2(tmp_path / "set")
    data = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(data[:len(data) // 2])
    assert left_out(folder, tmp_path).startswith(f"left out: episode 1: {SECOND}: Parquet magic bytes not found")


def test_a_data_file_that_is_a_pipe_costs_its_episode(tmp_path):
    folder = make_v2(tmp_path / "set")
    (folder / SECOND).unlink()
    os.mkfifo(folder / SECOND)
    assert left_out(folder, tmp_path) == f"left out: episode 1: {SECOND}: it is not a regular file"


def test_a_missing_file_costs_its_episodes(tmp_path):
    folder = make_v3(tmp_path / "set")
    (folder / "data/chunk-000/file-000.parquet").unlink()
    status, lines, _ = run(folder, tmp_path / "out.hdf5")
    assert status == 0 and lines[-1] == "left out: episodes 0 to 1: data/chunk-000/file-000.parquet: No such file or directory"


@pytest.mark.parametrize("mp4, length, sentence", [
    ("h264", 25, "it has 24 shown frames, and the episode would be frames 0 to 24"),
    ("truncated", 7, None), ("truncated_no_moov", 7, None), ("mpeg4", 7, None), ("no_video", 7, None),
    ("edit_parts", 7, None), ("edit_middle", 7, None), ("h264_fragmented", 7, None),
    ("h264_stepped", 7, "its frame 1, row 1, is 0.066667 s after the episode's first, more than half a frame from 0.033333 s"),
])
def test_a_faulty_video_costs_its_episode(mp4, length, sentence, tmp_path):
    folder = with_videos(tmp_path / "set", lengths=(5, length, 4))
    path = f"videos/chunk-000/{TOP}/episode_000001.mp4"
    shutil.copy(SETS.parent / f"mp4/{mp4}.mp4", folder / path)
    told = left_out(folder, tmp_path)
    assert told.startswith(f"left out: episode 1: {path}: ") and "\n" not in told
    assert sentence is None or told == f"left out: episode 1: {path}: {sentence}"
    assert left_out(folder, tmp_path, "--reference", "--force") == told


def test_a_video_with_fewer_packets_costs_the_episode_that_lacks_them():
    lines = LeRobot(SETS / "v30_short_video").episodes()
    told = []
    for number, read in lines:
        try:
            read()
        except Exception as error:
            told.append((number, str(error)))
    assert told == [(4, f"videos/{TOP}/chunk-000/file-001.mp4: it has 10 shown frames, and the episode would be frames 0 to 12")]


def shared_video(folder, lengths, begins, fps=30):
    """A set whose episodes are in h264.mp4, which has 24 frames of 1/30 s and a key frame every 6 frames."""
    make_v3(folder, lengths=lengths, fps=fps, features={**NUMBERS, TOP: VIDEO}, videos={TOP: [(0, 0, begin) for begin in begins]})
    path = folder / f"videos/{TOP}/chunk-000/file-000.mp4"
    path.parent.mkdir(parents=True)
    shutil.copy(SETS.parent / "mp4/h264.mp4", path)
    return folder


@pytest.mark.parametrize("lengths, begins, sentence", [
    ((9, 8, 7), (0, 9 / 30 + 5, 17 / 30 - 0.1), None),  # as many frames as rows: from_timestamp is only an order
    ((9, 8), (0, 9 / 30 + 0.016), None),
    ((9, 8), (0, 9 / 30 + 0.017), "it has 24 shown frames, its episodes have 17 rows, and from_timestamp is 0.317000 s, more than half "
                                  "a frame from 0.300000 s, where the episode begins"),
    ((9, 16), (0, 0.3), "it has 24 shown frames, and the episode would be frames 9 to 24"),
    ((9, 8), (0, float("nan")), None),
])
def test_where_an_episode_begins(lengths, begins, sentence, tmp_path):
    folder = shared_video(tmp_path / "set", lengths, begins)
    path = f"videos/{TOP}/chunk-000/file-000.mp4"
    if begins[1] != begins[1]:
        assert left_out(folder, tmp_path, of=2) == f"left out: episode 1: meta/episodes does not say where its video of {TOP} is"
    elif sentence:
        assert left_out(folder, tmp_path, of=2) == f"left out: episode 1: {path}: {sentence}"
    else:
        assert len(converted(folder, tmp_path / "out.hdf5")) == 1


def test_frames_at_another_rate_cost_the_episodes_that_show_it(tmp_path):
    folder = with_videos(tmp_path / "set", fps=29, lengths=(5, 24, 4))
    assert left_out(folder, tmp_path) == (
        f"left out: episode 1: videos/chunk-000/{TOP}/episode_000001.mp4: its frame 15, row 15, is 0.500000 s after the episode's "
        "first, more than half a frame from 0.517241 s")


def test_an_episode_that_begins_inside_a_unit_has_the_packets_before_it(tmp_path):
    """h264.mp4 has a key frame every 6 frames. The file has the episodes 1 and 0, in this order."""
    folder = shared_video(tmp_path / "set", (9, 8), (8 / 30, 0.0))
    converted(folder, tmp_path / "out.hdf5")
    data, vector = (folder / f"videos/{TOP}/chunk-000/file-000.mp4").read_bytes(), VECTORS["mp4/h264.mp4"]
    with h5py.File(tmp_path / "out.hdf5") as file:
        for episode, first, hidden, units in ((0, 8, 2, [[0, 0, 0], [6, 4, 0]]), (1, 0, 0, [[0, 0, 0], [6, 6, 0]])):
            video = file[f"data/episode_{episode:06d}/observation/images/top"]
            rows = len(video["rows"])
            assert list(video["rows"]) == list(range(hidden, hidden + rows)) and video["units"][()].tolist() == units
            assert len(video["packets"]) == hidden + rows
            assert packets_of(video) == [data[begin:begin + size] for begin, size in vector["packets"][first:first + rows]]


def test_depth_and_unknown_features_are_left_out_by_name(tmp_path):
    more = {"observation.images.depth": {**VIDEO, "info": {"is_depth_map": True}}, "language": {"dtype": "language", "shape": [1]},
            "observation/x": {"dtype": "float32", "shape": [1]}, "gray": {"dtype": "image", "shape": [8, 12, 1]}}
    lines = converted(make_v2(tmp_path / "set", features={**FEATURES, **more}), tmp_path / "out.hdf5")
    assert lines[1:] == ["left out: feature observation.note: its dtype is string",
                         "left out: feature observation.images.depth: video of depth is not read",
                         "left out: feature language: its dtype is language",
                         "left out: feature observation/x: its name cannot be one in an HDF5 file",
                         "left out: feature gray: images of the shape [8, 12, 1] are not read"]


@pytest.mark.parametrize("change, sentence", [
    ({"fps": None}, "its fps is null, and no rate"),
    ({"codebase_version": "v1.6"}, "its codebase_version is \"v1.6\": v3.0, v2.1, v2.0 are read"),
    ({"storage_format": "lance"}, "its storage_format is \"lance\": only Parquet and MP4 files are read"),
    ({"data_path": "../data/{episode_index}.parquet"}, "data_path leads out of the set: ../data/0.parquet"),
    ({"data_path": "/data/{episode_index}.parquet"}, "data_path leads out of the set: /data/0.parquet"),
    ({"data_path": "{episode_index.__class__}"}, "data_path is {episode_index.__class__}: it may have the fields"),
    ({"data_path": "{episode_index:9999999999d}"}, "data_path is {episode_index:9999999999d}: it may have the fields"),
    ({"data_path": None}, "data_path is null, and no path"),
    ({"data_path": "data/{"}, "data_path is data/{: it may have the fields"),
    ({"data_path": "data/\ud800"}, "data_path is \"data/\\ud800\", and no path"),
    ({"chunks_size": 0}, "its chunks_size is 0"),
    ({"features": None}, "it has no features"),
    ({"features": {"action": {"dtype": "float32"}}}, "feature action has no dtype or shape"),
    ({"features": {"\x1b[2J": 3}}, "feature \\x1b[2J has no dtype or shape"),
])
def test_faulty_metadata_is_an_error(change, sentence, tmp_path):
    folder = make_v2(tmp_path / "set")
    write_json(folder / "meta/info.json", {**info("v2.1"), **change})
    status, lines, err = run(folder, tmp_path / "out.hdf5")
    assert (status, lines) == (2, []) and "meta/info.json: " in err and sentence in err
    assert not list(tmp_path.glob("out.hdf5*"))


def test_info_without_fps_is_an_error(tmp_path):
    folder = make_v2(tmp_path / "set")
    write_json(folder / "meta/info.json", {name: value for name, value in info("v2.1").items() if name != "fps"})
    assert run(folder, tmp_path / "out.hdf5") == (2, [], f"trajd-convert: {folder}/meta/info.json: it has no fps")


def test_a_video_key_that_leads_outside_is_left_out(tmp_path):
    folder = with_videos(tmp_path / "set")
    write_json(folder / "meta/info.json", info("v2.1", 30, {**NUMBERS, "observation.images...": VIDEO, "../x": VIDEO}))
    lines = converted(folder, tmp_path / "out.hdf5")
    assert lines[1:] == [f"left out: feature {key}: its name cannot be one in an HDF5 file" for key in ("observation.images...", "../x")]


@pytest.mark.parametrize("line, sentence", [
    ({"episode_index": 1, "tasks": []}, "episodes.jsonl: line 2 lacks episode_index or length"),
    ([1, 2], "episodes.jsonl: line 2 lacks episode_index or length"),
    ({"episode_index": 0, "length": 5}, ": episode 0 is there twice"),
])
def test_faulty_lists_of_episodes_are_errors(line, sentence, tmp_path):
    folder = make_v2(tmp_path / "set")
    lines = (folder / "meta/episodes.jsonl").read_text().splitlines()
    (folder / "meta/episodes.jsonl").write_text("\n".join([lines[0], json.dumps(line), lines[2]]))
    status, told, err = run(folder, tmp_path / "out.hdf5")
    assert (status, told) == (2, []) and f"{folder}/meta" in err and err.endswith(sentence)


def test_a_second_codec_in_a_file_costs_its_episode(tmp_path):
    folder = with_videos(tmp_path / "set")
    path = f"videos/chunk-000/{TOP}/episode_000001.mp4"
    data = (RECORDED / "mp4/h264_two_stsd.mp4").read_bytes()
    second = data.rindex(b"avc1")  # the type of the second sample entry
    (folder / path).write_bytes(data[:second] + b"hev1" + data[second + 4:])
    assert left_out(folder, tmp_path) == f"left out: episode 1: {path}: its video track has two codecs, h264 and hevc"


# ---- the sandboxed child, which has read an untrusted file ----


def changed(output, **more):
    line, _, data = output.partition(b"\n")
    return json.dumps({**json.loads(line), **more}).encode() + b"\n" + data


def with_number(output, place, value):
    """Replaces the number at `place`, counted in numbers from the end of the header."""
    begin = output.index(b"\n") + 1 + 8 * place
    return output[:begin] + value.to_bytes(8, "little") + output[begin + 8:]


@pytest.mark.parametrize("change", [
    lambda output: b"", lambda output: b"{}\n", lambda output: b"[" * 100000, lambda output: output[:-1], lambda output: output + b"x",
    lambda output: changed(output, rows=25), lambda output: changed(output, packets=-1), lambda output: changed(output, units=1 << 60),
    lambda output: changed(output, codec="../x"), lambda output: changed(output, matrix=3), lambda output: changed(output, width=True),
    lambda output: changed(output, timescale=0), lambda output: changed(output, file_bytes=1), lambda output: changed(output, extradata_ends=[]),
    lambda output: changed(output, extradata_ends=["a"]), lambda output: with_number(output, 0, 24), lambda output: with_number(output, 3, 8),
    lambda output: with_number(output, 48, 1 << 62), lambda output: with_number(output, 49, 0), lambda output: with_number(output, 49, 1 << 63),
    lambda output: with_number(output, 120, 1), lambda output: with_number(output, 124, 0), lambda output: with_number(output, 122, 7),
])
def test_a_child_that_lies_costs_its_episode(change, tmp_path, monkeypatch):
    """h264.mp4 has 24 rows and packets and 4 units: its numbers are rows 0 to 23, pts, packets from 48 on, units from 120 on."""
    folder, path = with_videos(tmp_path / "set"), f"videos/chunk-000/{TOP}/episode_000001.mp4"
    own = video._run_describe
    monkeypatch.setattr(video, "_run_describe", lambda decoder, file, seconds: (
        (0, change(own(decoder, file, seconds)[1]), "") if file.name.endswith(path) else own(decoder, file, seconds)))
    assert left_out(folder, tmp_path) == f"left out: episode 1: {path}: what trajd-decoder says of it does not add up"


@pytest.mark.parametrize("script, sentence", [
    ("exec sleep 60", "trajd-decoder was killed by signal 9; it may run for 1 s"),
    ("exec cat /dev/zero", "trajd-decoder was killed by signal 9; it may run for 1 s"),
    ("cat /dev/zero >&2; sleep 60", "trajd-decoder was killed by signal 9; it may run for 1 s"),
    ("exit 3", "trajd-decoder ended with status 3"), ("echo one >&2; echo two >&2; exit 1", "one"),
])
def test_a_child_that_does_not_end_is_killed(script, sentence, tmp_path, monkeypatch):
    (tmp_path / "child").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "child").chmod(0o755)
    monkeypatch.setattr(video, "program", lambda name: str(tmp_path / "child"))
    monkeypatch.setattr(video, "DESCRIBE_SECONDS", 1)
    monkeypatch.setattr(video, "DESCRIBED_BYTES_MAX", 1 << 20)
    with pytest.raises(video.LeftOut, match=f"^x.mp4: {sentence}$"):
        video.describe(RECORDED / "mp4/h264.mp4", "x.mp4")


# ---- MP4 files by reference ----


def test_links_are_resolved(tmp_path):
    """As in a cache of the hub, where a snapshot has links to blobs."""
    folder = with_videos(tmp_path / "hub/snapshot")
    (tmp_path / "hub/blobs").mkdir()
    for number, path in enumerate(sorted(folder.glob("videos/*/*/*.mp4"))):
        path.rename(tmp_path / f"hub/blobs/{number}")
        path.symlink_to(os.path.relpath(tmp_path / f"hub/blobs/{number}", path.parent))
    converted(folder, tmp_path / "hub/out.hdf5", "--reference")
    with h5py.File(tmp_path / "hub/out.hdf5") as file:
        assert [group["observation/images/top"].attrs["media"] for group in file["data"].values()] == ["blobs/0", "blobs/1", "blobs/2"]
    status, _, err = run(folder, tmp_path / "hub/snapshot/out.hdf5", "--reference")
    assert status == 2 and "blobs/0: it is not beneath" in err and f"give --media {tmp_path}/hub, and `media: {tmp_path}/hub`" in err
    assert not list((tmp_path / "hub/snapshot").glob("out*"))
    converted(folder, tmp_path / "hub/snapshot/out.hdf5", "--media", tmp_path)
    with h5py.File(tmp_path / "hub/snapshot/out.hdf5") as file:
        assert file["data/episode_000000/observation/images/top"].attrs["media"] == "hub/blobs/0"


# ---- the output ----


def test_a_run_that_was_killed_begins_again(tmp_path):
    folder = make_v3(tmp_path / "set")
    converted(folder, tmp_path / "whole.hdf5")
    script = ("import os, signal, trajd.convert.output as output\n"
              "own = output._write\n"
              "output._write = lambda group, episode: own(group, episode) if '2' not in group.name else os.kill(os.getpid(), signal.SIGKILL)\n"
              "from trajd.convert.__main__ import main\n"
              f"main(['lerobot', {str(folder)!r}, '-o', {str(tmp_path / 'out.hdf5')!r}])\n")
    killed = subprocess.run([sys.executable, "-c", script], env={**os.environ, **package_environment()}, capture_output=True, text=True)
    assert killed.returncode == -9 and [path.name for path in tmp_path.glob("out*")] == ["out.hdf5.partial"], killed.stderr
    converted(folder, tmp_path / "out.hdf5")
    assert (tmp_path / "out.hdf5").read_bytes() == (tmp_path / "whole.hdf5").read_bytes()
    assert not (tmp_path / "out.hdf5.partial").exists()


def test_other_files_are_not_replaced(tmp_path):
    folder = make_v3(tmp_path / "set")
    (tmp_path / "out.hdf5").write_text("mine")
    assert run(folder, tmp_path / "out.hdf5")[2] == f"trajd-convert: {tmp_path}/out.hdf5: it exists; --force replaces it"
    converted(folder, tmp_path / "out.hdf5", "--force")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "other.hdf5.partial").symlink_to(tmp_path / "victim")
    assert "it is not a file of a conversion of yours" in run(folder, tmp_path / "other.hdf5")[2]
    assert (tmp_path / "victim").read_text() == "mine"
    with h5py.File(tmp_path / "busy.hdf5.partial", "w", locking=True):
        assert "another conversion is writing it" in run(folder, tmp_path / "busy.hdf5")[2]


def test_nothing_to_convert_leaves_no_file(tmp_path):
    folder = make_v3(tmp_path / "set")
    assert run(folder, tmp_path / "out.hdf5", "--episodes", "9")[2] == (
        "trajd-convert: the set has none of the episodes that --episodes names")
    assert run(folder, tmp_path / "no/out.hdf5")[2] == f"trajd-convert: {tmp_path}/no: it is not a folder"
    for path in folder.glob("data/*/*"):
        path.unlink()
    (tmp_path / "out.hdf5").write_text("mine")
    status, lines, err = run(folder, tmp_path / "out.hdf5", "--force")
    assert status == 2 and ": 0 of 3 episodes, 0 rows, " in lines[0]
    assert err == "trajd-convert: no episode could be converted, so no file was written"
    assert (tmp_path / "out.hdf5").read_text() == "mine" and not (tmp_path / "out.hdf5.partial").exists()


def test_missing_packages_are_named(tmp_path):
    script = "import sys; sys.modules['pyarrow'] = None; from trajd.convert.__main__ import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", script, "lerobot", str(tmp_path), "-o", str(tmp_path / "out.hdf5")], capture_output=True,
                          text=True, env={**os.environ, **package_environment()})
    assert (done.returncode, done.stderr) == (2, "trajd-convert: pyarrow is not installed: pip install 'trajd[convert]'\n")


def test_packages_that_do_not_fit_each_other_are_not_called_missing(tmp_path):
    """As pyarrow does beside a numpy for which it was not built: the error has no name."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('numpy.core.multiarray failed to import\\n\\nand more')\n")
    script = "import sys; sys.path.insert(0, sys.argv.pop()); from trajd.convert.__main__ import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", script, "lerobot", tmp_path, "-o", tmp_path / "out.hdf5", tmp_path], capture_output=True,
                          text=True, env={**os.environ, **package_environment()})
    assert (done.returncode, done.stderr) == (
        2, "trajd-convert: numpy.core.multiarray failed to import: pip install -U 'trajd[convert]'\n")
