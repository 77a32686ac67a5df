"""Rerun: its PyTorch data set over a catalog server, which each training process starts on the same recordings."""
import io
import multiprocessing
import warnings

import numpy as np
import rerun
from PIL import Image
from rerun.experimental.dataloader import DataSource, Field, FixedRateSampling, ImageDecoder, NumericDecoder, RerunMapDataset
from torch.utils.data import DataLoader, DistributedSampler

from ..driver import Batch, Driver
from ..formulas import BY_NAME, CONTROL_HZ, SECOND, tick_times, ticks, window_ids
from ..rules import steps_of

EARLY = 1000  # ns that the row of an anchor is logged before it: the loader's grid has times that are rounded down


def png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return file.getvalue()


def whole(item):
    """Returns whether a sample has all its values. A window that begins before the first row of a stream has none."""
    return all(value is not None for value in item.values())


def collate(items):
    items = [item for item in items if whole(item)]
    return {name: np.stack([np.asarray(item[name]) for item in items]) for name in items[0]} if items else None


class Rerun(Driver):
    name = "Rerun"
    docs = "https://rerun.io/docs/howto/train/dataloader"
    rule = "latest-at: the newest row, by the stamps; windows that reach beyond a recording are left out"
    package = "rerun-sdk torch"
    workers = (0, 1, 2)

    def write(self, recording):
        (self.folder / "set").mkdir()
        (self.folder / "names").write_text("\n".join(recording.names))
        for number, episode in enumerate(recording.episodes):
            to = rerun.RecordingStream("loaderproof", recording_id=f"{number:04d}")
            to.save(str(self.folder / f"set/{number:04d}.rrd"))
            times = tick_times(np.arange(ticks(episode)))
            self.log(to, "id", np.maximum(times - EARLY, 0), np.stack([np.full(len(times), number), np.arange(len(times))], 1))
            for name, stream in episode.streams.items():
                order = np.argsort(stream.stamps, kind="stable")
                self.log(to, name, stream.stamps[order], stream.values[order])
            to.disconnect()

    @staticmethod
    def log(to, name, stamps, values):
        keep = (stamps >= 0)  # a recording begins at its first anchor, and so does the grid of its samples
        column = [rerun.TimeColumn("t", duration=stamps[keep].astype("timedelta64[ns]"))]
        if values.ndim == 4:
            images = [png(image) for image in values[keep]]
            to.send_columns(name, column, rerun.EncodedImage.columns(blob=images, media_type=["image/png"] * len(images)))
        else:
            flat = values[keep].astype(np.float64).ravel()
            to.send_columns(name, column, rerun.Scalars.columns(scalars=flat).partition([values.shape[1]] * int(keep.sum())))

    def windows(self, recording):
        """Those whose steps are all inside the recording."""
        first, last = -steps_of("arm")[0] * CONTROL_HZ // SECOND, steps_of("action")[-1] * CONTROL_HZ // SECOND
        return [number for number in window_ids(recording)
                if first < number % 100_000 < ticks(recording.episodes[number // 100_000]) - last]

    def read(self, share, state=None):
        names = [*(self.folder / "names").read_text().split(), "action"]
        fields = {"id": Field("/id:Scalars:scalars", decode=NumericDecoder())}
        for name in names:
            image = BY_NAME[name].kind == "image"
            fields[name] = Field(f"/{name}:EncodedImage:blob" if image else f"/{name}:Scalars:scalars",
                                 decode=ImageDecoder() if image else NumericDecoder(),
                                 window=tuple(step / SECOND for step in steps_of(name)))
        with rerun.server.Server(host="127.0.0.1", datasets={"set": self.folder / "set"}) as server, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = DataSource(server.client().get_dataset("set"))
            dataset = RerunMapDataset(source, "t", fields, timeline_sampling=FixedRateSampling(CONTROL_HZ))
            sampler = DistributedSampler(dataset, share.world, share.rank, share.shuffle, share.seed)
            sampler.set_epoch(share.epoch)
            context = multiprocessing.get_context("spawn") if share.workers else None
            for item in DataLoader(dataset, share.batch // share.world, sampler=sampler, num_workers=share.workers,
                                   multiprocessing_context=context, collate_fn=collate):
                if item is not None:
                    ids = item.pop("id").astype(int)
                    yield Batch(ids[:, 0], ids[:, 1], {name: self.last(value) for name, value in item.items()}, {})

    @staticmethod
    def last(value):
        """Returns images with their colours last, as the other values have their dimensions."""
        return np.moveaxis(value, 2, -1) if value.ndim == 5 and value.shape[2] == 3 else value
