#!/usr/bin/env python3
"""Writes the RLDS sets in tests/golden/rlds and what TFDS itself reads of them, with tensorflow-datasets.

    python3 -m venv /tmp/tfds && /tmp/tfds/bin/pip install tensorflow-datasets tensorflow-cpu
    /tmp/tfds/bin/python tests/tools/rlds_sets.py

tests/golden/rlds/README.md describes the sets."""
import hashlib
import json
import pathlib
import shutil
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "rlds"
F = tfds.features
STEP = {"is_first": F.Scalar(np.bool_), "is_last": F.Scalar(np.bool_), "is_terminal": F.Scalar(np.bool_)}


def image(encoding=None, **more):
    return F.Image(shape=(18, 32, more.pop("channels", 3)), encoding_format=encoding, dtype=more.pop("dtype", np.uint8))


def pixels(number, channels=3, dtype=np.uint8):
    y, x = np.mgrid[:18, :32]
    return ((np.stack([x * 5, y * 9, x + y], -1)[..., :channels] + number * 11) % 251).astype(dtype)


def numbers(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(dtype)


def flags(row, rows):
    return {"is_first": row == 0, "is_last": row == rows - 1, "is_terminal": row == rows - 1}


class DroidSmall(tfds.core.GeneratorBasedBuilder):
    """The features of DROID, with images a tenth as high and wide, in two files."""

    VERSION = tfds.core.Version("1.0.1")
    ROWS = {"train": (9, 6, 11, 4, 7)}

    def _info(self):
        cameras = dict.fromkeys(("exterior_image_1_left", "exterior_image_2_left", "wrist_image_left"), image("jpeg"))
        arm = {"cartesian_position": 6, "joint_position": 7, "gripper_position": 1}
        action = {**arm, "cartesian_velocity": 6, "joint_velocity": 7, "gripper_velocity": 1}

        def tensors(sizes):
            return {name: F.Tensor(shape=(size,), dtype=np.float64) for name, size in sizes.items()}

        texts = dict.fromkeys(("language_instruction", "language_instruction_2", "language_instruction_3"), F.Text())
        steps = {**STEP, **texts, "observation": {**cameras, **tensors(arm)}, "action_dict": tensors(action),
                 "discount": F.Scalar(np.float32), "reward": F.Scalar(np.float32),
                 "action": F.Tensor(shape=(7,), dtype=np.float64)}
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict({
            "steps": F.Dataset(steps), "episode_metadata": {"recording_folderpath": F.Text(), "file_path": F.Text()}}))

    def _split_generators(self, _):
        return {split: self._generate_examples(split) for split in self.ROWS}

    def _generate_examples(self, split):
        for episode, rows in enumerate(self.ROWS[split]):
            yield episode, self.episode(episode, rows)

    def episode(self, episode, rows):
        def arm(row):
            return {name: numbers(1000 * episode + 10 * row + size, size, dtype=np.float64)
                    for name, size in (("cartesian_position", 6), ("joint_position", 7), ("gripper_position", 1))}

        cameras = ("exterior_image_1_left", "exterior_image_2_left", "wrist_image_left")
        steps = [{**flags(row, rows), "language_instruction": "" if episode == 3 else f"put the cup {episode}",
                  "language_instruction_2": f"move cup {episode}" if row < 3 or episode != 2 else "another",
                  "language_instruction_3": "", "discount": 1.0, "reward": float(row == rows - 1),
                  "observation": {**{name: pixels(100 * camera + 20 * episode + row)
                                     for camera, name in enumerate(cameras)}, **arm(row)},
                  "action_dict": {**arm(row + 500), **{name.replace("position", "velocity"): value
                                                       for name, value in arm(row + 700).items()}},
                  "action": numbers(episode * 50 + row, 7, dtype=np.float64)}
                 for row in range(rows)]
        paths = {"recording_folderpath": f"/r/{episode}", "file_path": f"/f/{episode}.h5"}
        return {"steps": steps, "episode_metadata": paths}


class OxeSmall(DroidSmall):
    """As fractal20220817_data and others of Open X-Embodiment: nested actions, PNG, depth, integers, two splits."""

    VERSION = tfds.core.Version("0.1.0")
    ROWS = {"train": (5, 8), "val": (3,)}

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=F.FeaturesDict({"steps": F.Dataset({
            **STEP, "reward": F.Scalar(np.float32),
            "observation": {"image": image(), "hand_image": image("png"),
                            "depth": image("png", channels=1, dtype=np.uint16),
                            "natural_language_instruction": F.Text(),
                            "natural_language_embedding": F.Tensor(shape=(16,), dtype=np.float32),
                            "robot_orientation_positions_box": F.Tensor(shape=(3, 3), dtype=np.float32),
                            "points": F.Sequence(F.Scalar(np.float32)),
                            "code": F.Tensor(shape=(2,), dtype=np.float32, encoding="zlib")},
            "action": {"world_vector": F.Tensor(shape=(3,), dtype=np.float32),
                       "rotation_delta": F.Tensor(shape=(3,), dtype=np.float32),
                       "gripper_closedness_action": F.Tensor(shape=(1,), dtype=np.float32),
                       "terminate_episode": F.Tensor(shape=(3,), dtype=np.int32)},
            "counter": F.Scalar(np.int64), "small": F.Tensor(shape=(2,), dtype=np.uint8)}),
            "aspects": {"success": F.Scalar(np.bool_), "score": F.Scalar(np.int32)}}))

    def episode(self, episode, rows):
        steps = [{**flags(row, rows), "reward": 0.5 * row,
                  "observation": {"image": pixels(episode * 20 + row), "hand_image": pixels(episode * 20 + row + 7),
                                  "depth": pixels(row, 1, np.uint16) * 200,
                                  "natural_language_instruction": f"pick the can {episode}",
                                  "natural_language_embedding": numbers(row, 16),
                                  "robot_orientation_positions_box": numbers(row + 90, 3, 3),
                                  "points": [1.0] * row, "code": numbers(row, 2)},
                  "action": {"world_vector": numbers(row + episode, 3), "rotation_delta": numbers(row + 30, 3),
                             "gripper_closedness_action": numbers(row + 60, 1),
                             "terminate_episode": np.arange(3, dtype=np.int32) - row},
                  "counter": (-1) ** row * (1 << (9 * row % 63)), "small": np.array([row, 255 - row], np.uint8)}
                 for row in range(rows)]
        return {"steps": steps, "aspects": {"success": episode % 2 == 0, "score": -episode}}


def record(builder, arrays):
    """Reads the set with TFDS. Returns texts and digests by episode; numbers go to `arrays`."""
    kept = builder.info.features["steps"]
    skipped = {name: tfds.decode.SkipDecoding() for name, one in kept.feature["observation"].items()
               if isinstance(one, F.Image)}
    read = tfds.ReadConfig(interleave_cycle_length=1, add_tfds_id=True)
    episodes = []
    for split in builder.info.splits:
        for episode in builder.as_dataset(split=split, read_config=read, decoders={"steps": {"observation": skipped}}):
            held = {"split": split, "id": episode.pop("tfds_id").numpy().decode(),
                    "images": {}, "texts": {}, "metadata": {}}
            steps = [tfds.core.utils.flatten_nest_dict(step) for step in episode.pop("steps")]
            for name, value in tfds.core.utils.flatten_nest_dict(dict(episode)).items():
                held["metadata"][name] = value.numpy().decode() if value.dtype == tf.string else value.numpy().item()
            for name, first in steps[0].items():
                if isinstance(first, tf.RaggedTensor) or (first.shape.rank == 1 and first.shape[0] is None):
                    continue
                values = [step[name].numpy() for step in steps]
                if first.dtype == tf.string and name.rpartition("/")[2] in skipped:
                    held["images"][name] = [hashlib.sha256(value).hexdigest()[:16] for value in values]
                elif first.dtype == tf.string:
                    held["texts"][name] = [value.decode() for value in values]
                elif name != "observation/points":
                    arrays[f"{builder.name}/{len(episodes)}/{name}"] = np.stack(values)
            episodes.append(held)
    return episodes


def main():
    arrays, about = {}, {"made_by": {"tensorflow-datasets": tfds.__version__, "tensorflow": tf.__version__}}
    for builder_class, shards in ((DroidSmall, 2), (OxeSmall, 1)):
        with tempfile.TemporaryDirectory() as folder:
            builder = builder_class(data_dir=folder)
            builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=shards))
            shutil.rmtree(FOLDER / builder.name, ignore_errors=True)
            shutil.copytree(builder.data_path, FOLDER / builder.name / str(builder.version))
        about[builder.name] = record(tfds.builder_from_directory(FOLDER / builder.name / str(builder.version)), arrays)
    np.savez_compressed(FOLDER / "vectors.npz", **arrays)
    (FOLDER / "vectors.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
