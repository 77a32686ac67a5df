"""The part `feeds`: all batches of two epochs of each family, and of feeds for several ranks,
queues, styles and resumed jobs."""

import json
import pathlib
import threading
import warnings

import net_families
import net_image_families
from net_items import Chain

BATCHES_MAX = 2000  # of a family
EPOCHS = 2
BLOCK = 100  # batches with a digest of their own
# Several connections of one process get copies: a process maps the memory of a GPU once
OPTIONS = {"numpy": {}, "cpu": {"device": "cpu"}, "cuda": {"device": "cuda", "zero_copy": True}}
SEVERAL = {**OPTIONS, "cuda": {"device": "cuda"}}
META = {"lab": ("language", "place", "robot"), "policy": ("language",), "folder": ("language",)}
BEFORE = {"before": "any", "after": "any", "with": "edge"}


def groups():
    """Yields (name, datasets, feeds) of each group."""
    for module in (net_families, net_image_families):
        for name, feeds in module.GROUPS.items():
            yield name, module.DATASETS, feeds


def config_of(datasets, feeds):
    return {"datasets": datasets, "feeds": feeds}


def write_files():
    """Writes the files that feeds name: ranges, and statistics in trajd's format."""
    pathlib.Path("ranges.json").write_text(json.dumps(net_families.RANGES))
    columns = {"place": 3, "state": 3, "actions": 7}
    stats = {
        name: {
            "mean": [0.1 * n for n in range(width)],
            "std": [0.5 + n for n in range(width)],
            "min": [-1.0 - n for n in range(width)],
            "max": [2.0 + n for n in range(width)],
            "q01": [-0.5] * width,
            "q99": [1.5] * width,
            "count": 100,
        }
        for name, width in columns.items()
    }
    pathlib.Path("stats_trajd.json").write_text(json.dumps(stats))
    del stats["place"]
    pathlib.Path("norm_stats.json").write_text(json.dumps({"norm_stats": stats}))


def to_numpy(value):
    """Returns an array of the host. bfloat16 has no type in numpy: its bits are u16."""
    if hasattr(value, "detach"):
        import torch

        value = value.detach().cpu()
        return (value.view(torch.int16) if value.dtype is torch.bfloat16 else value).numpy()
    return value


def flatten(batch, prefix=""):
    for name in batch:
        value = batch[name]
        if hasattr(value, "keys"):
            yield from flatten(value, f"{prefix}{name}/")
        elif hasattr(value, "dtype"):
            yield f"{prefix}{name}", value
        else:
            yield f"{prefix}{name}", __import__("numpy").array(
                [str(one) for one in value], dtype="S64"
            )


def arrays_of(batch):
    """Yields all arrays of a batch: what the style names, and the mask of each output."""
    from trajd import NotFound

    names = [name for name, _ in flatten(batch)]
    yield from ((name, to_numpy(value)) for name, value in flatten(batch))
    for name in names:
        try:
            yield f"{name}.mask", to_numpy(batch.mask(name))
        except NotFound:
            pass
    for name in ("window_id", "episode_index", "anchor_ns", "dataset_index"):
        if name not in names:
            yield f".{name}", to_numpy(getattr(batch, name))


class Reading:
    """The digests of the batches of one feed: a chain per array, and one digest per 100 batches."""

    def __init__(self, meta=()):
        self.chains, self.blocks, self.block, self.count, self.meta = {}, [], Chain(), 0, meta

    def take(self, batch):
        import numpy as np

        place = np.array([batch.epoch, batch.position, batch.row_begin, batch.rows])
        for name, array in [("position", place), *sorted(arrays_of(batch)), *self.texts(batch)]:
            self.chains.setdefault(name, Chain()).add(array)
            self.block.add(array)
        self.count += 1
        if self.count % BLOCK == 0:
            self.end_block()

    def texts(self, batch):
        import numpy as np

        return [
            (f"meta.{name}", np.array([str(text) for text in batch.meta(name)], dtype="S64"))
            for name in self.meta
        ]

    def end_block(self):
        if self.block.count:
            self.blocks.append(self.block.item()["sha256"])
        self.block = Chain()

    def add_to(self, part, name):
        self.end_block()
        for array, chain in self.chains.items():
            part.chain(f"{name}/{array}", chain)
        for place, digest in enumerate(self.blocks):
            part.put(f"{name}/batches/{place * BLOCK:05}", {"sha256": digest})


def info_of(feed):
    """Returns what an open feed says of itself, with its fingerprint. Warnings are texts, which the
    part `messages` has."""
    info = feed.info
    return {
        name: getattr(info, name)
        for name in (
            "global_batch",
            "epoch_length",
            "window_count",
            "dropped_count",
            "fingerprint",
            "seed",
            "norm_digest",
            "values_digest",
            "episodes_found",
            "episodes_kept",
            "episodes_quarantined",
            "episodes_used",
        )
    }


def read(part, build, endpoint, name, feed_name, meta=(), epochs=EPOCHS, **options):
    """Reads a feed from its beginning and adds all of it."""
    import trajd

    with part.case(name):
        reading = Reading(meta)
        with trajd.connect(
            endpoint,
            feed=feed_name,
            timeout=120,
            **{"mode": "queue", "job": name, **OPTIONS[build.device], **options},
        ) as feed:
            part.json(f"{name}/info", info_of(feed))
            for epoch in range(epochs):
                for batch in feed.epoch(epoch):
                    reading.take(batch)
                    if reading.count in (1, 7):
                        part.json(f"{name}/state/{reading.count}", feed.state_dict())
                    batch.release()
                    if reading.count >= BATCHES_MAX:
                        break
            part.json(f"{name}/state/end", feed.state_dict())
            part.json(f"{name}/episodes", feed.episodes())
        reading.add_to(part, name)


def record(part, build):
    """Reads all families, each group with a daemon of its own."""
    warnings.simplefilter("ignore")
    write_files()
    for group, datasets, feeds in groups():
        chosen = [name for name in feeds if part.has(f"{group}/{name}")]
        if chosen:
            with (
                part.case(group),
                build.daemon(config_of(datasets, feeds), f"feeds_{group}") as endpoint,
            ):
                for name in chosen:
                    more = (
                        {"framework": "torch"} if "bfloat16" in json.dumps(feeds[name]) else {}
                    )  # numpy lacks the type
                    read(
                        part,
                        build,
                        endpoint,
                        f"{group}/{name}",
                        name,
                        META.get(feeds[name].get("dataset"), ()),
                        **more,
                    )
    record_jobs(part, build)


# ---- ways of reading ----

JOBS = {
    "policy": net_families.policy(
        {
            **net_families.POLICY_OUTPUTS,
            "goal/p": {"goal": {"from": "future", "of": net_families.POS}},
        },
        global_batch=30,
    ),
    "blocked": net_families.policy(
        global_batch=30, order="blocked", block={"windows": 60, "neighbours": 2}, tail="short"
    ),
    "mixed": net_families.mixture({"policy": 7, "other": 3}, global_batch=30),
    "images": net_image_families.feed(
        {
            "jpeg": net_image_families.augmented(
                {"crop": [40, 56]}, {"flip": 0.5}, {"hue": 0.1}, stream="jpeg"
            ),
            "raw": {"at": 0},
        },
        tail="wrap",
    ),
    "shared": net_families.policy(global_batch=30, fan_out={"jobs": 2, "slow": "block"}),
    "styled": net_image_families.feed(
        {
            "qpos": {"at": "0", "norm": "mean_std"},
            "obs/top": net_image_families.image("jpeg"),
            "obs/raw": {"from": "raw", "at": "-1..0"},
            "actions": {"at": "0..5"},
        }
    ),
}
STYLES = ("raw", "robomimic", "lerobot", "act", "diffusion_policy", "openpi")


def record_jobs(part, build):
    if not part.has("jobs"):
        return
    datasets = {**net_families.DATASETS, **net_image_families.DATASETS}
    with part.case("jobs"), build.daemon(config_of(datasets, JOBS), "feeds_jobs") as endpoint:
        for name in ("policy", "blocked", "mixed", "images"):
            for world in (1, 2, 3):
                read_ranks(part, build, endpoint, f"jobs/{name}_world_{world}", name, world)
            read_queue(part, build, endpoint, f"jobs/{name}_queue", name)
            read_resumed(part, build, endpoint, f"jobs/{name}_resumed", name)
        for style in STYLES:
            read(part, build, endpoint, f"jobs/style_{style}", "styled", style=style, epochs=1)
        read_both(part, build, endpoint)
        read_changed(part, build, endpoint)
    read_private(part, build, datasets)


def in_threads(count, work):
    """Calls work(number) in this number of threads. Raises what one of them raised."""
    errors = []

    def call(number):
        try:
            work(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def read_ranks(part, build, endpoint, name, feed_name, world):
    """All ranks of a world, each in a thread."""
    import trajd

    readings = [Reading() for _ in range(world)]

    def work(rank):
        with trajd.connect(
            endpoint,
            feed=feed_name,
            timeout=120,
            mode="shard",
            rank=rank,
            world_size=world,
            job=name,
            **SEVERAL[build.device],
        ) as feed:
            for epoch in range(EPOCHS):
                for batch in feed.epoch(epoch):
                    readings[rank].take(batch)
                    batch.release()

    with part.case(name):
        in_threads(world, work)
        for rank, reading in enumerate(readings):
            reading.add_to(part, f"{name}/rank_{rank}")


def read_queue(part, build, endpoint, name, feed_name):
    """Two workers of one queue. Who gets which batch is open, so they are sorted by position."""
    import trajd

    found, lock = {}, threading.Lock()

    def work(_):
        with trajd.connect(
            endpoint,
            feed=feed_name,
            timeout=120,
            mode="queue",
            job=name,
            credit=2,
            **SEVERAL[build.device],
        ) as feed:
            for batch in feed.epoch(1):
                reading = Reading()
                reading.take(batch)
                with lock:
                    found[batch.position] = reading.block.item()["sha256"]
                batch.release()

    with part.case(name):
        in_threads(2, work)
        part.json(name, {f"{position:06}": digest for position, digest in found.items()})


def read_resumed(part, build, endpoint, name, feed_name):
    """An epoch that goes on after its fifth batch, in a new job, with one worker, and with two
    ranks."""
    import trajd

    with part.case(name):
        connect = {"feed": feed_name, "timeout": 120, **SEVERAL[build.device]}
        with trajd.connect(endpoint, mode="queue", job=name, **connect) as feed:
            for count, batch in enumerate(feed.epoch(1)):
                batch.release()
                if count == 4:
                    break
            state = feed.state_dict()
        part.json(f"{name}/state", state)
        reading = Reading()
        with trajd.connect(endpoint, mode="queue", job=f"{name} again", **connect) as feed:
            feed.load_state_dict(state)
            for batch in feed:
                reading.take(batch)
                batch.release()
        reading.add_to(part, name)

        def work(rank):
            with trajd.connect(
                endpoint, mode="shard", rank=rank, world_size=2, job=f"{name} ranks", **connect
            ) as feed:
                feed.load_state_dict(state)
                for batch in feed.epoch(1):
                    halves[rank].take(batch)
                    batch.release()

        halves = [Reading(), Reading()]
        in_threads(2, work)
        for rank, half in enumerate(halves):
            half.add_to(part, f"{name}/rank_{rank}")


def read_both(part, build, endpoint):
    """Two jobs that share the slots of a ring."""
    import trajd

    readings = [Reading(), Reading()]

    def work(number):
        with trajd.connect(
            endpoint,
            feed="shared",
            timeout=120,
            mode="queue",
            job=f"shared {number}",
            **SEVERAL[build.device],
        ) as feed:
            for batch in feed.epoch(0):
                readings[number].take(batch)
                batch.release()

    with part.case("jobs/fan_out"):
        in_threads(2, work)
        for number, reading in enumerate(readings):
            reading.add_to(part, f"jobs/fan_out/job_{number}")


def read_changed(part, build, endpoint):
    """A feed that the job sends, as a dict."""
    spec = {
        "like": "policy",
        "global_batch": 13,
        "seed": 3,
        "outputs": {"actions": {"at": "0..1"}, "goal/p": None},
    }
    read(part, build, endpoint, "jobs/sent", None, spec=spec, epochs=1)


def read_private(part, build, datasets):
    """trajd.open with a private daemon, and with overrides."""
    import trajd

    config = build.complete({**config_of(datasets, JOBS), "exit_idle": "1s"})
    del config["runtime"], config["state"]
    with part.case("jobs/private"):
        reading = Reading()
        with trajd.open(
            config,
            feed="policy",
            overrides={"global_batch": 17, "tail": "short"},
            timeout=120,
            **SEVERAL[build.device],
        ) as feed:
            part.json("jobs/private/info", info_of(feed))
            for batch in feed.epoch(0):
                reading.take(batch)
                batch.release()
        reading.add_to(part, "jobs/private")
