"""RLDS: a TFDS data set of episodes, whose windows are cut by tf.data, as Octo and Open X-Embodiment's examples do it."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

from ..driver import Driver  # noqa: E402
from ..rules import as_batch, one_rate, row_steps  # noqa: E402


def windows(episode):
    """Returns the windows of an episode as a data set: what Octo's chunk_act_obs does, with its marks."""
    number = episode["number"]
    rows = episode["steps"].batch(100_000).get_single_element()
    count = tf.shape(rows["action"])[0]
    ticks = tf.range(count)
    items = {"id": tf.stack([tf.repeat(tf.cast(number, tf.int64), count), tf.cast(ticks, tf.int64)], 1)}
    for name, values in rows.items():
        wanted = ticks[:, None] + tf.constant(row_steps(name), tf.int32)
        items[name] = tf.gather(values, tf.clip_by_value(wanted, 0, count - 1))
        items[f"{name}_is_pad"] = (wanted < 0) | (wanted >= count)
    return tf.data.Dataset.from_tensor_slices(items)


class RLDS(Driver):
    name = "RLDS"
    docs = "https://www.tensorflow.org/datasets/external_tfrecord, https://github.com/google-research/rlds"
    rule = "one rate, by the nearest stamp, at conversion"
    package = "tensorflow-datasets tensorflow-cpu"

    def write(self, recording):
        episodes = one_rate(recording, "nearest")
        steps = {name: tfds.features.Tensor(shape=values.shape[1:], dtype=values.dtype) for name, values in episodes[0].items()}
        features = tfds.features.FeaturesDict({"number": tf.int64, "steps": tfds.features.Dataset(steps)})
        whole = tf.data.Dataset.from_generator(
            lambda: ({"number": number, "steps": tf.data.Dataset.from_tensor_slices(rows)} for number, rows in enumerate(episodes)),
            output_signature={"number": tf.TensorSpec((), tf.int64), "steps": tf.data.DatasetSpec(
                {name: tf.TensorSpec(values.shape[1:], values.dtype) for name, values in episodes[0].items()})})
        tfds.dataset_builders.store_as_tfds_dataset(
            "loaderproof", "1.0.0", features, {"train": whole}, data_dir=str(self.folder / "set"))

    def read(self, share, state=None):
        data = tfds.builder("loaderproof", data_dir=str(self.folder / "set")).as_dataset(split="train").flat_map(windows)
        if share.shuffle:
            data = data.shuffle(10_000, seed=share.seed + share.epoch, reshuffle_each_iteration=False)
        data = data.shard(share.world, share.rank).batch(share.batch // share.world)
        yield from map(as_batch, tfds.as_numpy(data))
