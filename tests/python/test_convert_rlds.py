"""trajd.convert rlds: sets that TFDS wrote, and files that are faulty in one place."""
import hashlib
import json
import os
import shutil
import struct
import subprocess

import google_crc32c
import h5py
import numpy as np
import pytest
from conversions import MOMENTS, converted, kill_and_repeat, left_out, run
from paths import ROOT, TRAJCTL, clean_environment

import trajd
from drafted import init
from trajd.convert import tfrecord

SETS = ROOT / "tests" / "golden" / "rlds"
ABOUT = json.loads((SETS / "vectors.json").read_text())
VECTORS = np.load(SETS / "vectors.npz")
FOLDERS = {"droid_small": SETS / "droid_small/1.0.1", "oxe_small": SETS / "oxe_small/0.1.0"}
NOT_READ = ("observation/depth", "observation/code", "observation/points")
# of two and of three episodes
FIRST, SECOND = (f"droid_small-train.tfrecord-0000{number}-of-00002" for number in range(2))


def check(path, name, episodes=None):
    """Compares episodes of a converted file, by default all, with what TFDS read."""
    with h5py.File(path) as file:
        assert list(file["data"]) == [
            f"episode_{number:06d}" for number in (range(len(ABOUT[name])) if episodes is None else episodes)
        ]
        for group in file["data"].values():
            number = int(group.name[-6:])
            held = ABOUT[name][number]
            prefix = f"{name}/{number}/"
            for key in (key[len(prefix):] for key in VECTORS if key.startswith(prefix)):
                expected = VECTORS[prefix + key]
                if key in NOT_READ:
                    assert key not in group
                else:
                    assert group[key].dtype == expected.dtype and np.array_equal(group[key], expected), key
            for key, digests in held["images"].items():
                if key not in NOT_READ:
                    images = group[key.replace("observation/", "observation/images/")]
                    data, offsets = images["bytes"][()].tobytes(), images["offsets"][()]
                    assert [
                        hashlib.sha256(data[begin:end]).hexdigest()[:16] for begin, end in zip(offsets, offsets[1:])
                    ] == digests
            for key, texts in held["texts"].items():
                if len(set(texts)) == 1:
                    assert group.attrs[key] == texts[0]
                else:
                    by_row = json.loads(group.attrs[f"{key} by row"])
                    assert [entry["text"] for entry in by_row] == list(dict.fromkeys(texts))
                    assert [entry["row"] for entry in by_row] == [texts.index(text) for text in dict.fromkeys(texts)]
            assert {key: group.attrs[key] for key in held["metadata"]} == held["metadata"]
            assert group.attrs["split"] == held["split"]


@pytest.fixture
def droid(tmp_path):
    return shutil.copytree(FOLDERS["droid_small"], tmp_path / "1.0.1")


def records_of(path):
    places, fault = tfrecord.find_records(path)
    assert not fault
    return places, [tfrecord.read_record(path, *place) for place in places]


def write_records(path, records):
    """Writes records by the published format."""
    with path.open("wb") as file:
        for data in records:
            length = struct.pack("<Q", len(data))
            file.write(length + struct.pack("<I", tfrecord.masked_crc(length)) + data +
                       struct.pack("<I", tfrecord.masked_crc(data)))


def field(number, data):
    """Returns a Protobuf field with bytes."""
    size, length = len(data), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def example(features):
    """Returns a tf.train.Example of lists: (kind, the list's bytes)."""
    entries = (field(1, key.encode()) + field(2, field(kind, data)) for key, (kind, data) in features.items())
    return field(1, b"".join(field(1, entry) for entry in entries))


def lists_of(data):
    """Returns the features of an Example in the form that example() takes."""
    [features] = [value for _, value in tfrecord._fields(memoryview(data))]
    found = {}
    for _, entry in tfrecord._fields(features):
        (_, key), (_, feature) = tfrecord._fields(entry)
        [(kind, values)] = tfrecord._fields(feature)
        found[bytes(key).decode()] = kind, bytes(values)
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_values_are_those_of_tfds(name, tmp_path):
    lines = converted("rlds", FOLDERS[name], tmp_path / "out.hdf5")
    assert f": {len(ABOUT[name])} of {len(ABOUT[name])} episodes, " in lines[0]
    assert lines[1:] == {
        "droid_small": [
            "kept: episode 4: steps/language_instruction_2 changes, so there is no text language_instruction_2: "
            "the attribute \"language_instruction_2 by row\" has each with its first row"
        ], "oxe_small": [
            "left out: feature steps/observation/code: its encoding is zlib",
            "left out: feature steps/observation/depth: images of uint16 [18, 32, 1] are not read",
            "left out: feature steps/observation/points: a Sequence is not read"
        ]
    }[name]
    check(tmp_path / "out.hdf5", name)
    assert sum(map(len, ABOUT[name][0]["images"].values())) > 0


def test_the_task_is_the_first_language_instruction(tmp_path):
    converted("rlds", FOLDERS["droid_small"], tmp_path / "droid.hdf5")
    converted("rlds", FOLDERS["oxe_small"], tmp_path / "oxe.hdf5")
    for name in ("droid", "oxe"):
        with h5py.File(tmp_path / f"{name}.hdf5") as file:
            for number, group in enumerate(file["data"].values()):
                texts = [
                    texts[0] for texts in ABOUT[f"{name}_small"][number]["texts"].values()
                    if len(set(texts)) == 1 and texts[0]
                ]
                assert group.attrs["task"] == texts[0]


@pytest.mark.parametrize("texts, task", [
    (([""], ["a"], ["b"]), "a"),
    ((["x", "y"], ["a"], ["b"]), "a"),
    ((["", "y"], [""], ["b"]), "b"),
    (([""], [""], [""]), None),
])
def test_a_task_is_neither_empty_nor_does_it_change(droid, texts, task, tmp_path):
    """`texts`: those of each of the three instructions, the last of which holds until the end."""
    _, records = records_of(droid / SECOND)
    features = lists_of(records[1])
    steps = len(tfrecord.parse_example(records[1])["steps/is_first"])
    for number, own in enumerate(texts, 1):
        rows = [*own, *(steps - len(own)) * own[-1:]]
        key = "steps/language_instruction" + (f"_{number}" if number > 1 else "")
        features[key] = tfrecord.BYTES, b"".join(field(1, text.encode()) for text in rows)
    write_records(droid / SECOND, [records[0], example(features), records[2]])
    converted("rlds", droid, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file["data/episode_000003"].attrs.get("task") == task
        assert ("language_instruction" in file["data/episode_000003"].attrs) == (len(texts[0]) == 1)


def test_chosen_episodes_and_cameras(tmp_path):
    converted("rlds", FOLDERS["droid_small"], tmp_path / "out.hdf5", "--episodes", "1-2", "--cameras",
              "wrist_image_left")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert list(file["data"]) == ["episode_000001", "episode_000002"]
        assert list(file["data/episode_000001/observation/images"]) == ["wrist_image_left"]
    assert run("rlds", FOLDERS["oxe_small"], tmp_path / "no.hdf5", "--cameras", "images")[2] == (
        "trajd-convert: --cameras images: did you mean image? there are: hand_image, image")


@pytest.mark.parametrize("options, rate", [((), "10 Hz (assumed)"), (("--fps", 15), "15 Hz")])
def test_a_layout_fits(options, rate, tmp_path):
    for name, folder in FOLDERS.items():
        converted("rlds", folder, tmp_path / f"{name}.hdf5", *options)
        told = subprocess.run([TRAJCTL, "inspect", tmp_path / f"{name}.hdf5"],
                              capture_output=True, text=True, env=clean_environment()).stdout
        assert "layout rlds, " in told and f"regular, {rate}, " in told
        for stream in {"droid_small": ("action_dict/joint_velocity", "observation/images/wrist_image_left", "reward"),
                       "oxe_small": ("action/world_vector", "observation/images/hand_image", "small")}[name]:
            assert f"\n  {stream} " in told


# ---- the format ----


def test_the_crc_is_castagnoli():
    """The value is that of RFC 3720, and the mask is TensorFlow's."""
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert tfrecord.masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32


@pytest.mark.parametrize("values", [[], [0], [1, 127, 128, 300], [-1, 2**63 - 1, -2**63, 2**35],
                                    list(range(-200, 200))])
def test_numbers_of_any_length(values):
    data = b""
    for value in values:
        value %= 2**64
        while value > 127:
            data, value = data + bytes([value & 127 | 128]), value >> 7
        data += bytes([value])
    found = tfrecord.parse_example(example({"x": (tfrecord.INTEGERS, field(1, data))}))["x"]
    assert found.dtype == np.int64 and found.tolist() == values


def test_any_bytes_are_an_example_or_an_error():
    """Whatever the bytes are, reading them ends with features or with a ValueError."""
    random = np.random.default_rng(7)
    _, [data, *_] = records_of(FOLDERS["oxe_small"] / "oxe_small-val.tfrecord-00000-of-00001")
    refused = 0
    for _ in range(2000):
        changed = bytearray(data[:random.integers(1, 400)] if random.random() < 0.3 else data)
        for at in random.integers(0, min(len(changed), 600), random.integers(1, 4)):
            changed[at] = random.integers(0, 256)
        try:
            for values in tfrecord.parse_example(bytes(changed)).values():
                assert isinstance(values, (list, np.ndarray))
        except ValueError:
            refused += 1
    assert 200 < refused < 2000


# ---- faults ----


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_a_wrong_crc_of_the_data_costs_the_episode(droid, tmp_path):
    places, records = records_of(droid / SECOND)
    flip(droid / SECOND, places[1][0] + 1000)
    lines = left_out("rlds", droid, tmp_path / "out.hdf5")
    assert lines[-1] == f"left out: episode 3: {SECOND}: record 1: its {len(records[1])} bytes have a wrong CRC"
    check(tmp_path / "out.hdf5", "droid_small", [0, 1, 2, 4])


@pytest.mark.parametrize("byte", [0, 7, 9])
def test_a_wrong_length_costs_the_records_after_it_in_the_file(droid, byte, tmp_path):
    places, _ = records_of(droid / FIRST)
    flip(droid / FIRST, places[1][0] - 12 + byte)
    lines = left_out("rlds", droid, tmp_path / "out.hdf5")
    assert lines[-1] == (f"left out: episode 1: {FIRST}: its record 1, at byte {places[1][0] - 12}, has a length with "
                         "a wrong CRC, so no record after it can be found")
    check(tmp_path / "out.hdf5", "droid_small", [0, 2, 3, 4])


@pytest.mark.parametrize("cut, words", [(4, "the file has {size} bytes"),
                                        (12, "it would end at byte {end}, and the file has {size} bytes"),
                                        (500, "it would end at byte {end}, and the file has {size} bytes")])
def test_a_truncated_file_costs_the_records_that_it_lacks(droid, cut, words, tmp_path):
    places, records = records_of(droid / SECOND)
    begin = places[1][0] - 12
    os.truncate(droid / SECOND, begin + cut)
    words = words.format(size=begin + cut, end=places[1][0] + len(records[1]) + 4)
    assert left_out("rlds", droid, tmp_path / "out.hdf5")[-1] == (
        f"left out: episodes 3 to 4: {SECOND}: its record 1, at byte {begin}, is cut short: {words}")
    check(tmp_path / "out.hdf5", "droid_small", [0, 1, 2])


def test_missing_files_and_records_are_named(droid, tmp_path):
    """The numbers of episodes stay: a set of which some files were downloaded is common."""
    _, records = records_of(droid / SECOND)
    write_records(droid / SECOND, records[:2])
    (droid / FIRST).unlink()
    lines = left_out("rlds", droid, tmp_path / "out.hdf5")
    assert lines[0] == f"left out: 1 files of dataset_info.json are not there: {FIRST} ..."
    assert f"left out: episode 4: {SECOND}: it has 2 records, and dataset_info.json says 3" in lines
    check(tmp_path / "out.hdf5", "droid_small", [2, 3])
    write_records(droid / SECOND, [*records, records[0]])
    lines = left_out("rlds", droid, tmp_path / "out.hdf5")
    assert lines[0] == f"left out: {SECOND}: it has 4 records, and dataset_info.json says 3"
    check(tmp_path / "out.hdf5", "droid_small", [2, 3, 4])


@pytest.mark.parametrize("key, change, sentence", [
    ("steps/action", None, "it has no steps/action"),
    ("steps/observation/wrist_image_left", None, "it has no steps/observation/wrist_image_left"),
    ("steps/action", lambda kind, data: (kind, field(1, bytes(4 * 48))),
     "steps/action has 48 values, and a step has 7"),
    ("steps/action", lambda kind, data: (kind, field(1, bytes(4 * 70))),
     "steps/action has 10 steps, and steps/action_dict/cartesian_position has "),
    ("steps/action", lambda kind, data: (tfrecord.INTEGERS, field(1, bytes(49))),
     "steps/action has no float64, as features.json says"),
    ("steps/action", lambda kind, data: (tfrecord.BYTES, field(1, b"x")),
     "steps/action has no float64, as features.json says"),
    ("steps/is_first", lambda kind, data: (tfrecord.FLOATS, field(1, bytes(28))),
     "steps/is_first has no bool, as features.json says"),
    ("steps/is_first", lambda kind, data: (kind, b""), " steps, and steps/is_first has 0"),
    ("steps/language_instruction", lambda kind, data: (tfrecord.FLOATS, field(1, bytes(28))),
     "steps/language_instruction has numbers, and features.json says string"),
    ("steps/observation/wrist_image_left", lambda kind, data: (kind, data.replace(b"\xff\xd8\xff", b"GIF", 1)),
     "steps/observation/wrist_image_left: an image is neither PNG nor JPEG"),
    ("episode_metadata/file_path", lambda kind, data: (kind, data * 2),
     "episode_metadata/file_path has 2 values, and not one"),
])
def test_a_record_that_does_not_fit_costs_its_episode(droid, key, change, sentence, tmp_path):
    _, records = records_of(droid / SECOND)
    features = lists_of(records[1])
    assert tfrecord.parse_example(example(features)).keys() == tfrecord.parse_example(records[1]).keys()
    features[key] = change(*features[key]) if change else features.pop(key)
    kept = {name: held for name, held in features.items() if change or name != key}
    write_records(droid / SECOND, [records[0], example(kept), records[2]])
    line = left_out("rlds", droid, tmp_path / "out.hdf5")[-1]
    assert line.startswith(f"left out: episode 3: {SECOND}: record 1: ") and sentence in line
    check(tmp_path / "out.hdf5", "droid_small", [0, 1, 2, 4])


def test_a_record_of_something_else_costs_its_episode(droid, tmp_path):
    _, records = records_of(droid / SECOND)
    write_records(droid / SECOND, [records[0], b"\xff" * 40, records[2]])
    assert left_out("rlds", droid, tmp_path / "out.hdf5")[-1] == (
        f"left out: episode 3: {SECOND}: record 1: it is not a tf.train.Example: a number is cut short")
    check(tmp_path / "out.hdf5", "droid_small", [0, 1, 2, 4])


@pytest.mark.parametrize("name, change, sentence", [
    ("features.json", None,
     "features.json: No such file or directory: a data set of TFDS has this file; name the folder of its version"),
    ("features.json", lambda about: [about], "features.json: it is not a mapping"),
    ("features.json", lambda about: {"featuresDict": 3},
     "its features.json or dataset_info.json is not as TFDS writes it (TypeError: "),
    ("dataset_info.json", None, "dataset_info.json: No such file or directory: a data set of TFDS has this file"),
    ("dataset_info.json", lambda about: {**about, "fileFormat": "array_record"},
     "its fileFormat is array_record, and only tfrecord is read"),
    ("dataset_info.json", lambda about: {**about, "splits": [{"name": "train"}]},
     "not as TFDS writes it (KeyError: 'shardLengths')"),
    ("dataset_info.json", lambda about: {**about, "name": "../droid_small"},
     "not as TFDS writes it (ValueError: ../droid_small-train.tfrecord-00000-of-00002 with 2 records)"),
])
def test_faulty_metadata_is_an_error(droid, name, change, sentence, tmp_path):
    about = json.loads((droid / name).read_text())
    (droid / name).unlink() if change is None else (droid / name).write_text(json.dumps(change(about)))
    status, lines, err = run("rlds", droid, tmp_path / "out.hdf5")
    assert (status, lines) == (2, []) and sentence in err, err
    assert not list(tmp_path.glob("out*"))


def test_a_set_without_steps_has_no_episodes(droid, tmp_path):
    (droid / "features.json").write_text('{"featuresDict": {"features": {}}}')
    status, lines, err = run("rlds", droid, tmp_path / "out.hdf5")
    assert (status, err) == (2, "trajd-convert: no episode could be converted, so no file was written")
    assert lines[-1] == f"left out: episode 4: {SECOND}: record 2: it has no steps"


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_was_killed_begins_again(moment, tmp_path):
    kill_and_repeat(moment, "rlds", FOLDERS["droid_small"], tmp_path / "out.hdf5")
    check(tmp_path / "out.hdf5", "droid_small")


# ---- feeds ----


@pytest.mark.parametrize("style, state, action", [("openpi", "state", "actions"),
                                                  ("lerobot", "observation.state", "action")])
def test_presets_give_feeds_that_train(daemon, style, state, action, tmp_path):
    """A linear policy is fitted by gradient descent, and its loss falls. The texts are those of the episodes."""
    converted("rlds", FOLDERS["droid_small"], tmp_path / "out.hdf5", "--fps", 15)
    text = init(style, tmp_path / "out.hdf5", tmp_path / "made.yaml")
    assert "layout: rlds" in text and "# reward:" in text
    one = daemon(text.replace("version: 2\n", ""), folder="daemon", rings="512MiB")
    losses, weights, tasks = [], 0.0, set()
    with trajd.connect(one.endpoint, feed="train", timeout=60, style=style) as feed:
        for epoch in range(40):
            errors = []
            for batch in feed.epoch(epoch):
                seen, wanted = np.array(batch[state]).reshape(len(batch[state]), -1), np.array(batch[action])[:, 0]
                seen = np.concatenate([seen, np.ones((len(seen), 1))], axis=1)
                errors.append(seen @ (weights + np.zeros((seen.shape[1], wanted.shape[1]))) - wanted)
                weights = weights - 0.2 * seen.T @ errors[-1] / (seen ** 2).sum()
                tasks |= set(batch["task" if style == "lerobot" else "prompt"])
            losses.append(np.mean(np.concatenate(errors) ** 2))
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:2])
    assert tasks == {texts["language_instruction"][0] or texts["language_instruction_2"][0]
                     for texts in (held["texts"] for held in ABOUT["droid_small"])}
