"""robomimic: SequenceDataset, with the settings of its diffusion policy."""
import json

import h5py
import numpy as np
import robomimic.utils.obs_utils as obs_utils
import torch
from robomimic.utils.dataset import SequenceDataset
from torch.utils.data import DataLoader

from ..driver import Batch, Driver
from ..formulas import BY_NAME
from ..rules import one_rate, row_steps


class Robomimic(Driver):
    name = "robomimic"
    docs = "https://robomimic.github.io/docs/tutorials/dataset_contents.html"
    rule = "recorded at the control rate: at each step the newest row of each stream"
    package = "robomimic torch h5py"
    workers = (0, 1, 2)
    worlds = (1,)  # its training has no ranks

    def write(self, recording):
        with h5py.File(self.folder / "data.hdf5", "w") as file:
            data = file.create_group("data")
            data.attrs["env_args"], total = json.dumps({"env_name": "none", "type": 1, "env_kwargs": {"control_freq": 30}}), 0
            for number, rows in enumerate(one_rate(recording, "newest")):
                demo = data.create_group(f"demo_{number}")
                demo.attrs["num_samples"] = count = len(rows["action"])
                total += count
                demo["actions"] = rows["action"]
                demo["obs/id"] = np.stack([np.full(count, number), np.arange(count)], 1)
                for name in recording.names:
                    demo[f"obs/{name}"] = rows[name]
            data.attrs["total"] = total
        (self.folder / "names.json").write_text(json.dumps(recording.names))

    def read(self, share, state=None):
        names = json.loads((self.folder / "names.json").read_text())
        images = [name for name in names if BY_NAME[name].kind == "image"]
        low = [name for name in names if name not in images] + ["id"]
        obs_utils.initialize_obs_modality_mapping_from_dict({"low_dim": low, "rgb": images})
        past, ahead = -row_steps("arm")[0], row_steps("action")[-1]
        dataset = SequenceDataset(str(self.folder / "data.hdf5"), (*low, *images), ("actions",), frame_stack=past + 1,
                                  seq_length=ahead + 1, get_pad_mask=True, hdf5_cache_mode="low_dim", load_next_obs=False)
        torch.manual_seed(share.seed + share.epoch)
        for item in DataLoader(dataset, share.batch, shuffle=share.shuffle, num_workers=share.workers):
            pad = item["pad_mask"][..., 0].numpy().astype(bool)
            steps = {name: past + row_steps(name) for name in ("action", *names)}
            values = {name: item["obs"][name][:, steps[name]].numpy() for name in names}
            values["action"] = item["actions"][:, steps["action"]].numpy()
            ids = item["obs"]["id"][:, past].numpy().astype(int)
            yield Batch(ids[:, 0], ids[:, 1], values, {name: pad[:, steps[name]] for name in steps})
