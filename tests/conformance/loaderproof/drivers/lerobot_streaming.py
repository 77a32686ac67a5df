"""LeRobot: StreamingLeRobotDataset, on a local folder."""
import torch
from lerobot.datasets.streaming_dataset import StreamingLeRobotDataset

from ..driver import Driver
from .lerobot_local import LeRobot


class Streaming(LeRobot):
    name = "StreamingLeRobotDataset"
    docs = "https://huggingface.co/docs/lerobot/lerobot-dataset-v3#stream-without-downloading"
    tests = Driver.tests
    workers = (0,)
    worlds = (1,)  # it has no ranks of its own

    def read(self, share, state=None):
        dataset, names = self.open(StreamingLeRobotDataset, shuffle=share.shuffle, seed=share.seed + share.epoch)
        for item in torch.utils.data.DataLoader(dataset, share.batch, num_workers=share.workers):
            yield self.batch(item, names)

    def state(self):
        return None
