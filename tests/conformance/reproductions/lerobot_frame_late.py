"""LeRobot: if from_timestamp is off by whole frames, frames of another moment or episode come without an error."""
import os
import pathlib
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402
from loaderproof.formulas import STAMP_UNIT, read_stamp  # noqa: E402
from loaderproof.frames import FPS, KEY, write_set  # noqa: E402

folder = pathlib.Path(tempfile.mkdtemp()) / "set"
folder.mkdir()
write_set(folder, late=1 / FPS)  # episode k is said to begin k frames later than it does
dataset = LeRobotDataset("conformance/video", root=folder)
for index in (19, 20, 44, 45):
    item = dataset[index]
    shown = round(float(read_stamp((item[KEY].movedim(0, -1) * 255).numpy()[None])[0, 0]) * 1e6 / STAMP_UNIT)
    print(f"asked for episode {int(item['episode_index'])}, frame {int(item['frame_index'])}; "
          f"got episode {shown // 1000}, frame {shown % 1000}")
