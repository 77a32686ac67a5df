"""LeRobot: LeRobotDataset, with the sampler and the settings of lerobot-train."""
import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from lerobot.datasets import EpisodeAwareSampler, compute_sampler_state  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ..driver import Batch, Driver  # noqa: E402
from ..formulas import BY_NAME, CONTROL_HZ, SECOND  # noqa: E402
from ..rules import one_rate, steps_of  # noqa: E402


def key_of(name):
    return name if name == "action" else f"observation.{'images.' if BY_NAME[name].kind == 'image' else ''}{name}"


class LeRobot(Driver):
    name = "LeRobotDataset"
    docs = "https://huggingface.co/docs/lerobot/lerobot-dataset-v3"
    rule = "recorded as lerobot-record does: at each tick the newest row of each stream; then i / fps"
    package = "lerobot torch"
    workers = (0, 1, 2)
    tests = (*Driver.tests, "T6")
    saved = None

    def write(self, recording):
        rows = one_rate(recording, "newest")
        features = {}
        for name, values in rows[0].items():
            image = values.ndim == 4
            features[key_of(name)] = {"dtype": "image" if image else "float32", "shape": values.shape[1:],
                                      "names": ["height", "width", "channels"] if image else None}
        made = LeRobotDataset.create("conformance/set", CONTROL_HZ, features, root=self.folder / "set", use_videos=False)
        for episode in rows:
            for tick in range(len(episode["action"])):
                made.add_frame({**{key_of(name): values[tick] for name, values in episode.items()}, "task": "none"})
            made.save_episode()
        made.finalize()

    def open(self, kind=LeRobotDataset, **more):
        features = json.loads((self.folder / "set/meta/info.json").read_text())["features"]
        names = [name for name in BY_NAME if key_of(name) in features]
        deltas = {key_of(name): [step / SECOND for step in steps_of(name)] for name in names}
        return kind("conformance/set", root=self.folder / "set", delta_timestamps=deltas, **more), names

    def read(self, share, state=None):
        dataset, names = self.open()
        episodes = dataset.meta.episodes
        sampler = EpisodeAwareSampler(episodes["dataset_from_index"], episodes["dataset_to_index"], shuffle=share.shuffle,
                                      seed=share.seed)
        sampler.set_epoch(share.epoch)
        step = state["step"] if state else 0
        if state:
            sampler.load_state_dict(compute_sampler_state(step, len(sampler), share.batch // state["world"], state["world"]))
        loader = DataLoader(dataset, share.batch // share.world, sampler=sampler, num_workers=share.workers)
        if share.world > 1:  # as accelerator.prepare does: rank r gets every W-th batch
            from accelerate.data_loader import BatchSamplerShard
            batches = BatchSamplerShard(loader.batch_sampler, share.world, share.rank)
            loader = DataLoader(dataset, batch_sampler=batches, num_workers=share.workers)
        for item in loader:
            step += 1
            self.saved = {"step": step, "world": share.world}
            yield self.batch(item, names)

    def state(self):
        return self.saved

    def frames(self, folder):
        dataset = LeRobotDataset("conformance/video", root=folder)
        for index in range(len(dataset)):
            row = dataset.hf_dataset[index]
            place = int(row["episode_index"]), int(row["frame_index"])
            try:
                image = dataset[index]["observation.images.top"]
            except Exception:  # FrameTimestampError, or that of the decoder
                image = None
            yield (*place, None if image is None else (image.movedim(0, -1) * 255).round().byte().numpy())

    @staticmethod
    def batch(item, names):
        values, valid = {}, {}
        for name in names:
            value = item[key_of(name)]
            values[name] = (value.movedim(-3, -1) * 255).round().to(torch.uint8).numpy() if value.ndim == 5 else value.numpy()
            valid[name] = ~item[f"{key_of(name)}_is_pad"].numpy()
        return Batch(np.asarray(item["episode_index"]), np.asarray(item["frame_index"]), values, valid)
