"""Part `video`: LeRobot's videos, kept as packets. First and later epochs against bare dav1d, LeRobot's own readers and JPEG rows; how many frames
are decoded where memory.store is too small; H.264; and the conversion."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import h5py

from bench_daemon import Daemon, ROOT, figure, middle
from part_image_feeds import warm_memory, worker

LOADERS = ROOT / "tests/bench/bench_video_loaders.py"
SIDE, BATCH, CREDIT = 224, 48, 2  # a batch that divides the windows: no frame is decoded for windows that are dropped
CAMERAS = {"av1": ("top", "wrist"), "h264": ("top",)}
KEY_FRAMES = {"av1": 2, "h264": 30}  # the distance from one to the next
BLOCK_UNITS = 5
DAV1D, PYAV, TORCHCODEC, BLOCKED, H264_US, JPEG, EPISODES_PER_MINUTE, CP = 0.85, 3, 1.8, 1.2, 900, 0.95, 5000, 0.7
COPIES, PEER_SECONDS = 40, 6
CONFIG = """memory: {{store: {store}, rings: 256MiB, reserve: 0}}
datasets:
{datasets}
feeds:
{feeds}
"""
FEED = """  {name}:
    dataset: {dataset}
    global_batch: {batch}
    slots: {slots}
    anchor: {{clock: steps}}
    order: {order}
    outputs:
{outputs}
"""


def with_budget(one, value, least=None, most=None, unit="x"):
    """Adds a budget to a figure, and whether `value` is within it."""
    limit = most if least is None else least
    one["budget"] = f"{'<=' if least is None else '>='} {limit:g}{unit}"
    one["met"] = value <= limit if least is None else value >= limit
    return one


def feed(name, dataset, cameras, order="global", batch=BATCH):
    images = [f"{camera}: {{from: observation/images/{camera}, at: 0, image: {{resize: {SIDE}}}, layout: chw}}" for camera in cameras]
    rows = ["observation/state: {at: 0}", "action: {at: 0}", *images]
    return FEED.format(name=name, dataset=dataset, order=order, batch=batch, slots=CREDIT + 1, outputs="\n".join(f"      {row}" for row in rows))


def config(store, datasets, *feeds):
    """`datasets`: the paths, by name."""
    return CONFIG.format(store=store, datasets="\n".join(f"  {name}: {{path: {path}, layout: lerobot}}" for name, path in datasets.items()),
                         feeds="".join(feeds))


def convert(options, folder, out, *arguments):
    """Runs trajd.convert and returns its seconds."""
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "trajd.convert", "lerobot", folder, "-o", out, *arguments]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(options.build / "clients/python")})
    if done.returncode or "left out" in done.stdout:
        raise RuntimeError(f"trajd.convert: {done.stdout}{done.stderr}")
    return time.perf_counter() - begin


def make_sets(options):
    """Makes what is missing: the sets of LeRobot, and their conversions."""
    folder = options.work / "video"
    folder.mkdir(exist_ok=True)
    if not (folder / "done").exists():
        subprocess.run([options.lerobot_python, LOADERS, "make", folder], check=True, capture_output=True, text=True)
        for name in CAMERAS:
            convert(options, folder / name, folder / f"{name}.hdf5")
        write_jpeg_set(folder)
        (folder / "done").touch()
    return folder


def write_jpeg_set(folder):
    """The set av1 with JPEG rows in the place of its videos."""
    path = folder / "jpeg.hdf5"
    shutil.copy(folder / "av1.hdf5", path)
    with h5py.File(path, "r+") as to, h5py.File(folder / "av1_jpeg.hdf5") as images:
        for episode in to["data"]:
            for camera in CAMERAS["av1"]:
                place = f"data/{episode}/observation/images/{camera}"
                del to[place]
                images.copy(images[place], to, place)


def frames_of(daemon):
    frames = [dataset["frames"] for dataset in daemon.trajctl("status")["datasets"] if dataset.get("frames")]
    return {key: sum(one[key] for one in frames) for key in frames[0]}


def first_epoch_of(options, path, cameras, order="global"):
    """Reads the first epoch of a daemon that has just started. Memory was touched right before: the host of a virtual machine takes it back after
    two seconds, and needs 400 us for that of a frame."""
    with Daemon(options.build, options.work / "video_feeds", config("1GiB", {"d": path}, feed("f", "d", cameras, order))) as daemon:
        warm_memory()
        return worker(daemon, "f", "first")


# H.264, in order.


def h264(options, folder):
    turns = [first_epoch_of(options, folder / "h264.hdf5", CAMERAS["h264"], "sequential") for _ in range(options.rounds)]
    us = middle([turn["cpu_us"] for turn in turns])
    one = figure(f"H.264, a key frame every {KEY_FRAMES['h264']}th, in order, daemon + worker", us, "CPU us/frame",
                 wall_us=middle([1e6 / turn["windows_per_s"] for turn in turns]))
    yield with_budget(one, us["median"], most=H264_US, unit=" us")


# A store that is too small.


def small_store(options, folder):
    """Decoded frames per delivered one, and what `trajctl check` says before."""
    for name, cameras in CAMERAS.items():
        g = KEY_FRAMES[name]
        for order, most in (("global", (g + 1) / 2), ("blocked", BLOCKED)):
            ordered = order if order == "global" else f"blocked\n    block: {{windows: {BLOCK_UNITS * g}, neighbours: 3}}"
            text = config("96MiB", {"d": folder / f"{name}.hdf5"}, feed("f", "d", cameras, ordered, 16))
            with Daemon(options.build, options.work / "video_feeds", text) as daemon:
                turn = worker(daemon, "f", 3 * options.seconds)  # some epochs: at the end, a few frames are made ahead and not used yet
                counts = frames_of(daemon)
                said = subprocess.run([options.build / "clients/cli/trajctl", "check", daemon.folder / "trajd.yaml"], check=True,
                                      capture_output=True, text=True).stdout
            decoded = round(counts["decoded"] / counts["used"], 3)
            printed = re.search(r"up to ([\d.]+) frames are decoded", said)
            one = figure(f"{name}, g={g}, store too small, order {order}: decoded per delivered", decoded, "frames",
                         printed_before=float(printed[1]), windows_per_s=turn["windows_per_s"])
            yield with_budget(one, decoded, most=most, unit="")
            yield with_budget(figure("  the same, as trajctl check says before", float(printed[1]), "frames"), float(printed[1]), most=most, unit="")


# The conversion.


def write_many(folder):
    """The set av1 as many times, each with its own files: a thousand episodes."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    made, one = folder / "many", folder / "av1"
    shutil.rmtree(made, ignore_errors=True)
    info = json.loads((one / "meta/info.json").read_text())
    rows = pa.concat_tables([pq.read_table(path) for path in sorted((one / "data").rglob("*.parquet"))])
    episodes = pa.concat_tables([pq.read_table(path) for path in sorted((one / "meta/episodes").rglob("*.parquet"))]).to_pylist()
    files = {key: {episode[f"videos/{key}/file_index"] for episode in episodes} for key in (f"observation.images.{name}" for name in CAMERAS["av1"])}
    table = []
    for copy in range(COPIES):
        first = copy * len(episodes)
        changed = rows
        for column, step in (("episode_index", len(episodes)), ("index", len(rows))):
            values = pa.array([value + copy * step for value in rows[column].to_pylist()], rows[column].type)
            changed = changed.set_column(changed.column_names.index(column), column, values)
        path = made / info["data_path"].format(chunk_index=0, file_index=copy)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(changed, path)
        for episode in episodes:
            row = {"episode_index": first + episode["episode_index"], "length": episode["length"], "tasks": episode["tasks"],
                   "data/chunk_index": 0, "data/file_index": copy}
            for key, indices in files.items():
                row |= {f"videos/{key}/chunk_index": 0, f"videos/{key}/from_timestamp": episode[f"videos/{key}/from_timestamp"],
                        f"videos/{key}/file_index": copy * len(indices) + episode[f"videos/{key}/file_index"]}
            table.append(row)
        for key, indices in files.items():
            for index in indices:
                source, target = (root / info["video_path"].format(video_key=key, chunk_index=0, file_index=number)
                                  for root, number in ((one, index), (made, copy * len(indices) + index)))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    (made / "meta/episodes/chunk-000").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(table), made / "meta/episodes/chunk-000/file-000.parquet")
    shutil.copy(one / "meta/tasks.parquet", made / "meta/tasks.parquet")
    info.update(total_episodes=len(table), total_frames=COPIES * len(rows))
    (made / "meta/info.json").write_text(json.dumps(info))


def copy_by_cp(source, target):
    """Returns the seconds that cp takes."""
    shutil.rmtree(target, ignore_errors=True)
    begin = time.perf_counter()
    subprocess.run(["cp", "-r", source, target], check=True)
    return time.perf_counter() - begin


def conversion(options, folder):
    many, out = folder / "many", folder / "many.hdf5"
    if not (many / "meta/info.json").exists():
        write_many(folder)
    episodes = json.loads((many / "meta/info.json").read_text())["total_episodes"]
    turns = {"reference": [], "copy": [], "cp": []}
    for _ in range(options.rounds):
        os.sync()
        turns["reference"].append(convert(options, many, out, "--reference"))
        for name in ("cp", "copy"):
            os.sync()  # what was written before is not written meanwhile
            turns[name].append(copy_by_cp(many, folder / "cp") if name == "cp" else convert(options, many, out))
    size = sum(path.stat().st_size for path in many.rglob("*") if path.is_file())
    out.unlink()
    shutil.rmtree(folder / "cp")
    rate = middle([60 * episodes / seconds for seconds in turns["reference"]], 0)
    yield with_budget(figure(f"{episodes} episodes by reference", rate, "episodes/min"), rate["median"], least=EPISODES_PER_MINUTE, unit="/min")
    ratio = middle([cp / copy for cp, copy in zip(turns["cp"], turns["copy"])], 2)
    one = figure(f"the same by copy, {size / 1e9:.1f} GB", middle([size / 1e6 / seconds for seconds in turns["copy"]], 0), "MB/s", ratio=ratio,
                 ratio_to="cp -r", seconds={name: middle(list_of, 2) for name, list_of in turns.items()})
    yield with_budget(one, ratio["median"], least=CP)


# Later epochs, from the store.


def later_epochs(options, folder):
    turns = {"video": [], "jpeg": []}
    text = config("2GiB", {"video": folder / "av1.hdf5", "jpeg": folder / "jpeg.hdf5"}, *(feed(name, name, CAMERAS["av1"]) for name in turns))
    with Daemon(options.build, options.work / "video_feeds", text) as daemon:
        for _ in range(options.rounds):
            for name, list_of in turns.items():
                list_of.append(worker(daemon, name, options.seconds))
    rates = {name: [turn["windows_per_s"] for turn in list_of] for name, list_of in turns.items()}
    ratio = middle([video / jpeg for video, jpeg in zip(rates["video"], rates["jpeg"])], 2)
    cpu = middle([jpeg["cpu_us"] / video["cpu_us"] for video, jpeg in zip(turns["video"], turns["jpeg"])], 2)
    one = figure("2 cameras, epochs after the first", middle(rates["video"], 0), "windows/s", ratio=ratio, ratio_to="JPEG rows", cpu_ratio=cpu)
    yield with_budget(one, ratio["median"], least=JPEG)


# The first epoch.


def write_packets(options, folder):
    """Writes the packets of both cameras as bench_video reads them, shared among as many files as there are cores. Each unit begins with a key
    frame that has the sequence header, so extradata is not needed."""
    cores = len(os.sched_getaffinity(0))
    parts = [bytearray() for _ in range(cores)]
    units = 0
    with h5py.File(folder / "av1.hdf5") as file:
        for group in (file[f"data/{episode}/observation/images/{camera}"] for episode in file["data"] for camera in CAMERAS["av1"]):
            data, packets, firsts = group["bytes"][()].tobytes(), group["packets"][()], group["units"][:, 0]
            starts = set(firsts.tolist())
            for number, (position, size, *_) in enumerate(packets.tolist()):
                units += number in starts
                parts[units % cores] += size.to_bytes(4, "little") + data[position:position + size]
    paths = [folder / f"packets_{number}" for number in range(cores)]
    for path, part in zip(paths, parts):
        path.write_bytes(part)
    return paths


def bare_dav1d(options, paths):
    """Returns frames per second, and processor time per frame in us."""
    out = subprocess.run([options.build / "tests/bench/bench_video", *map(str, paths)], check=True, capture_output=True, text=True).stdout
    frames, seconds, us = map(float, out.split())
    return frames / seconds, us


def read_by_lerobot(options, folder, backend, *arguments):
    out = subprocess.run([options.lerobot_python, LOADERS, "read", folder, "--backend", backend, *map(str, arguments)], check=True,
                         capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def first_epoch(options, folder):
    paths, cameras = write_packets(options, folder), len(CAMERAS["av1"])
    chosen, turns = {}, {"trajd": [], "dav1d": [], "pyav": [], "torchcodec": []}
    for backend in ("pyav", "torchcodec"):
        chosen[backend] = max(read_by_lerobot(options, folder, backend, "--seconds", PEER_SECONDS), key=lambda one: one["windows_per_s"])
    for _ in range(options.rounds):
        turns["dav1d"].append(bare_dav1d(options, paths))
        turns["trajd"].append(first_epoch_of(options, folder / "av1.hdf5", CAMERAS["av1"]))
        for backend, one in chosen.items():
            turns[backend] += read_by_lerobot(options, folder, backend, "--seconds", PEER_SECONDS, "--forms", one["form"], "--workers", one["workers"])
    ours = [cameras * turn["windows_per_s"] for turn in turns["trajd"]]
    cpu = [turn["cpu_us"] / cameras for turn in turns["trajd"]]
    ratio = middle([mine / bare[0] for mine, bare in zip(ours, turns["dav1d"])], 2)
    one = figure("2 cameras, first epoch, global order", middle(ours, 0), "frames/s", ratio=ratio, ratio_to="bare dav1d",
                 cpu_ratio=middle([bare[1] / mine for mine, bare in zip(cpu, turns["dav1d"])], 2),
                 cpu_us_per_frame=middle(cpu), dav1d_us_per_frame=middle([bare[1] for bare in turns["dav1d"]]))
    yield with_budget(one, ratio["median"], least=DAV1D)
    for backend, least in (("pyav", PYAV), ("torchcodec", TORCHCODEC)):
        ratio = middle([mine / (cameras * peer["windows_per_s"]) for mine, peer in zip(ours, turns[backend])], 2)
        one = figure("  the same", middle(ours, 0), "frames/s", ratio=ratio,
                     ratio_to=f"LeRobot, {backend}, {chosen[backend]['workers']} workers, {chosen[backend]['form']}")
        yield with_budget(one, ratio["median"], least=least)


ROWS = {"h264": h264, "small_store": small_store, "conversion": conversion, "later_epochs": later_epochs, "first_epoch": first_epoch}


def run(options):
    if not options.lerobot_python:
        return {"figures": [], "note": "nothing measured: no --lerobot-python (tests/bench/make_peers.sh makes one)"}
    folder = make_sets(options)
    return {"figures": [one for row in ROWS.values() for one in row(options, folder)], "credit": CREDIT, "seconds_a_turn": options.seconds}
