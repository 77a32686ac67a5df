"""Part `image_feeds`: images to one Python worker that reads every byte. Frames that are resident against memcpy and memset; compressed ALOHA
episodes against act-plus-plus; robomimic's images against memcpy, robomimic and diffusion_policy."""
import ctypes
import json
import mmap
import os
import subprocess
import sys
import time

import h5py
import numpy as np

from bench_daemon import Daemon, ROOT, figure, middle
from part_images import run_bench

LOADERS = ROOT / "tests/bench/bench_image_loaders.py"
CREDIT, SIDE, BATCH, ACT_BATCH = 2, 224, 64, 8
MEMCPY_RATIO, MEMSET_RATIO, MOVE_RATIO = 0.7, 0.5, 1.4
FIRST_BATCH_MS = 20  # beside the time that bare decoding of its frames takes
ACT_FIRST, ACT_RESIDENT, ACT_STYLE = 3, 15, 3
ROBOMIMIC = {"u8": 10, "float32": 5}
RESIDENT = {"frames": (4, 256, {"cam_image": (240, 320)}), "robomimic": (20, 100, {"agentview_image": (84, 84), "robot0_eye_in_hand_image": (84, 84)})}
LOW = {"robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2}
CONFIG = """memory: {{store: 2GiB, rings: 1GiB, reserve: 0}}
datasets:
  d: {{path: {path}, layout: {layout}}}
feeds:
"""
FEED = """  {name}:
    dataset: d
    global_batch: {batch}
    slots: {slots}
    anchor: {{clock: {clock}}}
    pad: {{before: any, after: any, with: edge}}
    outputs:
{outputs}
"""
CROP = "augment: [{crop: [76, 76], excludes_last: true}]"
FORMS = {"u8": "layout: hwc", "float32": "layout: chw, norm: unit"}


def outputs(rows):
    return "\n".join(f"      {row}" for row in rows)


def resident_config(path):
    rows = {form: outputs([f"cam: {{from: obs/cam_image, at: 0, image: {{resize: {SIDE}}}, {keys}}}"]) for form, keys in FORMS.items()}
    return CONFIG.format(path=path, layout="robomimic") + "".join(
        FEED.format(name=form, batch=BATCH, slots=CREDIT + 1, clock="actions", outputs=text) for form, text in rows.items())


def robomimic_config(path):
    low, cameras = [f"obs/{name}: {{at: -1..0}}" for name in LOW], list(RESIDENT["robomimic"][2])
    rows = {form: outputs([*low, "actions: {at: -1..14}", *(f"obs/{name}: {{at: -1..0, image: {{{CROP}}}, {keys}}}" for name in cameras)])
            for form, keys in FORMS.items()}
    return CONFIG.format(path=path, layout="robomimic") + "".join(
        FEED.format(name=form, batch=BATCH, slots=CREDIT + 1, clock="actions", outputs=text) for form, text in rows.items())


def act_config(path):
    feeds = ""
    for name, keys in (("act", "at: 0"), ("act_style", "at: 0, image: {}, " + FORMS["float32"])):
        cameras = [f"image/{camera}: {{from: observations/images/{camera}, {keys}}}" for camera in ("cam_high", "cam_left_wrist", "cam_right_wrist")]
        rows = outputs(["qpos: {from: observations/qpos, at: 0, norm: mean_std}", "action: {at: -1..98, norm: mean_std}", *cameras])
        feeds += FEED.format(name=name, batch=ACT_BATCH, slots=CREDIT + 1, clock="steps", outputs=rows)
    return CONFIG.format(path=path, layout="aloha, color: rgb") + feeds


def write_resident(options, name):
    """Writes a robomimic file with raw frames."""
    path, (demos, rows, cameras), random = options.work / f"images_{name}.hdf5", RESIDENT[name], np.random.default_rng(9)
    if path.exists():
        return path
    made = path.with_suffix(".part")
    with h5py.File(made, "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
        for d in range(demos):
            demo = file.create_group(f"data/demo_{d}")
            demo.attrs["num_samples"] = rows
            demo["actions"] = random.standard_normal((rows, 7), np.float32)
            for low, width in LOW.items():
                demo[f"obs/{low}"] = random.standard_normal((rows, width))
            for camera, size in cameras.items():
                demo[f"obs/{camera}"] = random.integers(0, 256, (rows, *size, 3), np.uint8)
        file["data"].attrs["total"] = demos * rows
    made.rename(path)
    return path


def worker(daemon, feed, length, credit=CREDIT, peer=""):
    out = subprocess.run([sys.executable, ROOT / "tests/bench/image_worker.py", daemon.build, daemon.endpoint, feed, str(credit),
                          str(daemon.process.pid), str(length), peer], check=True, capture_output=True, text=True)
    result = json.loads(out.stdout)
    result["cpu_us"] = result["daemon_us"] + result["worker_us"]
    return result


def loaders(options, *arguments):
    out = subprocess.run([options.robomimic_python, LOADERS, *map(str, arguments)], check=True, capture_output=True, text=True)
    return json.loads(out.stdout) if out.stdout else None


def move_windows(window_bytes, seconds):
    """Copies rows at random places, as many and as large as the frames of robomimic's windows, out of an array that has as many rows as the data set
    has frames, to a ring as large as that of the feed with its default of slots. Returns windows per second."""
    demos, rows, cameras = RESIDENT["robomimic"]
    per_window = 2 * len(cameras)
    source = np.ones((demos * rows * len(cameras), window_bytes // per_window), np.uint8)
    slots = min(max((64 << 20) // (BATCH * window_bytes), 4), 16)  # as daemon/base/defaults.c
    ring = np.ones((slots, BATCH * per_window, source.shape[1]), np.uint8)
    order, moved = np.random.default_rng(1).integers(0, len(source), (64, BATCH * per_window)), 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        np.take(source, order[moved % 64], axis=0, out=ring[moved % slots], mode="clip")
        moved += 1
    return moved * BATCH / (time.perf_counter() - begin)


def memory_speed(batch_bytes, is_copy, seconds):
    """Copies frames, or sets the memory of batches, as large as those of the feed and in as many buffers. Returns bytes per second, and bytes per
    second of processor time."""
    frame = batch_bytes // BATCH
    count = RESIDENT["frames"][0] * RESIDENT["frames"][1]
    source, slots = np.ones((count if is_copy else 1, frame), np.uint8), np.ones((CREDIT + 1, BATCH, frame), np.uint8)
    order, moved, slot = np.random.default_rng(1).integers(0, len(source), 4096).tolist(), 0, 0
    begin, cpu = time.perf_counter(), time.thread_time()
    while time.perf_counter() - begin < seconds:
        at, from_address = slots[slot].ctypes.data, source.ctypes.data
        for i in range(BATCH):
            if is_copy:
                ctypes.memmove(at + i * frame, from_address + order[(moved + i) % 4096] * frame, frame)
            else:
                ctypes.memset(at + i * frame, 1, frame)
        moved, slot = moved + BATCH, (slot + 1) % len(slots)
    return moved * frame / (time.perf_counter() - begin), moved * frame / (time.thread_time() - cpu)


def resident(options):
    turns = {form: [] for form in FORMS}
    with Daemon(options.build, options.work / "image_feeds", resident_config(write_resident(options, "frames"))) as daemon:
        for _ in range(options.rounds):
            for form, list_of in turns.items():
                turn = worker(daemon, form, options.seconds)
                turn["plain"] = memory_speed(turn["batch_bytes"], form == "u8", options.seconds)
                list_of.append(turn)
    for form, what, least in (("u8", "memcpy", MEMCPY_RATIO), ("float32", "memset", MEMSET_RATIO)):
        speeds = [turn["batch_bytes"] * turn["batches_per_s"] for turn in turns[form]]
        one = figure(f"frames of {SIDE}, prepared, {form}, to one worker", middle([speed / 1e9 for speed in speeds], 2), "GB/s",
                     ratio=middle([speed / turn["plain"][0] for speed, turn in zip(speeds, turns[form])], 2), ratio_to=what,
                     cpu_ratio=middle([turn["batch_bytes"] / BATCH / turn["daemon_us"] * 1e6 / turn["plain"][1] for turn in turns[form]], 2),
                     worker_us_per_frame=middle([turn["worker_us"] for turn in turns[form]]),
                     daemon_us_per_frame=middle([turn["daemon_us"] for turn in turns[form]]))
        one["budget"], one["met"] = f">= {least} of {what}", one["ratio"]["median"] >= least
        yield one


def beside(name, ours, theirs, peer, least=None, by_cpu=False):
    """Returns the figure of windows per second with the ratio to a peer. by_cpu: per second of processor time."""
    wall, cpu = ([turn["windows_per_s"] for turn in ours], [1e6 / turn["cpu_us"] for turn in ours])
    peer_wall, peer_cpu = ([turn["windows_per_s"] for turn in theirs], [1e6 / turn["cpu_us_per_window"] for turn in theirs])
    ratios = [middle([a / b for a, b in zip(mine, other)], 2) for mine, other in ((wall, peer_wall), (cpu, peer_cpu))]
    one = figure(name, middle(cpu if by_cpu else wall, 0), "windows/CPU s" if by_cpu else "windows/s", ratio=ratios[1 if by_cpu else 0], ratio_to=peer,
                 **{"wall_ratio" if by_cpu else "cpu_ratio": ratios[0 if by_cpu else 1]})
    if least is not None:
        one["budget"], one["met"] = f">= {least}x", one["ratio"]["median"] >= least
    return one


def best_of(results, form, key, sign):
    return max((one for one in results if one["u8"] == (form == "u8")), key=lambda one: sign * one[key])


def warm_memory(megabytes=1500):
    """Has the kernel gather huge pages, and the host of a virtual machine give them: else the first program that wants memory pays for that."""
    memory = mmap.mmap(-1, megabytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8)[::4096] = 1


def write_act(options):
    folder = options.work / "act"
    if not (folder / "done").exists():
        loaders(options, "make_act", folder)
        (folder / "done").touch()
    return folder


def first_batch(options):
    """trajd.open of ACT's episodes, with the index cached, and the first batch, beside decoding of its frames by bare libjpeg-turbo on all cores."""
    folder, config, image = write_act(options), options.work / "first_batch.yaml", options.work / "first_batch.jpg"
    config.write_text("version: 2\n" + act_config(folder).split("  act_style:")[0])
    with h5py.File(min(folder.glob("*.hdf5"))) as file:
        image.write_bytes(bytes(file["observations/images/cam_high"][0]))
    times, bare = [], []
    for index in ("first", *["cached"] * max(3, options.rounds)):
        out = subprocess.run([sys.executable, ROOT / "tests/bench/open_worker.py", options.build, options.work / "first_batch", config, index],
                             check=True, capture_output=True, text=True)
        if index == "cached":
            times.append(json.loads(out.stdout)["first_batch_ms"])
            bare.append(run_bench(options, "decode", image)["decode bare"] * 3 * ACT_BATCH / len(os.sched_getaffinity(0)) / 1e3)
    one = figure(f"{3 * ACT_BATCH} frames of 640x480: from trajd.open to the first batch", middle(times), "ms",
                 beside=middle([ours - plain for ours, plain in zip(times, bare)]), bare_ms=middle(bare))
    one["budget"], one["met"] = f"<= {FIRST_BATCH_MS} ms more than bare decoding", one["beside"]["median"] <= FIRST_BATCH_MS
    yield one


def act(options):
    folder = write_act(options)
    tried = loaders(options, "act", folder, "--batch", ACT_BATCH, "--seconds", options.seconds)
    chosen = {form: best_of(tried, form, "cpu_us_per_window", -1)["workers"] for form in FORMS}
    fastest = best_of(tried, "float32", "windows_per_s", 1)["workers"]
    ours, theirs = {"first": [], "resident": [], "first style": [], "style": []}, {form: [] for form in (*FORMS, "fastest")}
    for _ in range(options.rounds):
        warm_memory()
        with Daemon(options.build, options.work / "image_feeds", act_config(folder)) as daemon:
            ours["first"].append(worker(daemon, "act", "first"))
            ours["resident"].append(worker(daemon, "act", options.seconds))
        warm_memory()
        with Daemon(options.build, options.work / "image_feeds", act_config(folder)) as daemon:
            ours["first style"].append(worker(daemon, "act_style", "first", peer="act float32"))
            ours["style"].append(worker(daemon, "act_style", options.seconds, peer="act float32"))
        theirs["fastest"] += loaders(options, "act", folder, "--batch", ACT_BATCH, "--seconds", options.seconds, "--forms", "float32", "--workers", fastest)
        for form in FORMS:
            theirs[form] += loaders(options, "act", folder, "--batch", ACT_BATCH, "--seconds", options.seconds, "--forms", form, "--workers", chosen[form])
    for name, least in (("first", ACT_FIRST), ("resident", ACT_RESIDENT)):
        for form in reversed(FORMS):
            yield beside(f"ACT, 3 cameras, u8, {'first epoch' if name == 'first' else 'epochs after it'}", ours[name], theirs[form],
                         f"act-plus-plus, {form}, {chosen[form]} workers", least if form == "float32" else None, by_cpu=True)
    for name, what, least in (("first style", "first epoch", None), ("style", "epochs after it", ACT_STYLE)):
        yield beside(f'ACT, 3 cameras, float32, style="act", {what}', ours[name], theirs["fastest"], f"act-plus-plus, float32, {fastest} workers", least)


def robomimic_default_config(path):
    """As robomimic_config, with the default number of slots."""
    return "\n".join(line for line in robomimic_config(path).splitlines() if not line.startswith("    slots:"))


def beside_memcpy(options):
    """One worker that reads every byte, with the default slots and credit, beside a memcpy of the bytes of its frames."""
    turns = {form: [] for form in FORMS}
    with Daemon(options.build, options.work / "image_feeds", robomimic_default_config(write_resident(options, "robomimic"))) as daemon:
        for _ in range(options.rounds):
            for form, list_of in turns.items():
                turn = worker(daemon, form, options.seconds, credit=0)
                turn["moved_per_s"] = move_windows(2 * 2 * 76 * 76 * 3 * (1 if form == "u8" else 4), options.seconds)
                list_of.append(turn)
    for form, list_of in turns.items():
        one = figure(f"2 cameras of 84, crop 76, history 2, {form}, default slots and credit", middle([1e6 / turn["windows_per_s"] for turn in list_of], 2),
                     "us per window", ratio=middle([turn["moved_per_s"] / turn["windows_per_s"] for turn in list_of], 2),
                     ratio_to="the time of a memcpy of its frames", worker_us=middle([turn["worker_us"] for turn in list_of]),
                     daemon_us=middle([turn["daemon_us"] for turn in list_of]))
        one["budget"], one["met"] = f"<= {MOVE_RATIO}x", one["ratio"]["median"] <= MOVE_RATIO
        yield one


def robomimic(options):
    path, ours, theirs, chosen = write_resident(options, "robomimic"), {form: [] for form in FORMS}, {}, {}
    for peer in ("robomimic", "diffusion_policy"):
        tried = loaders(options, peer, path, "--batch", BATCH, "--seconds", options.seconds)
        chosen.update({(peer, form): best_of(tried, form, "windows_per_s", 1)["workers"] for form in FORMS})
    with Daemon(options.build, options.work / "image_feeds", robomimic_config(path)) as daemon:
        for _ in range(options.rounds):
            for form, list_of in ours.items():
                list_of.append(worker(daemon, form, options.seconds))
            for (peer, form), workers in chosen.items():
                theirs.setdefault((peer, form), []).extend(
                    loaders(options, peer, path, "--batch", BATCH, "--seconds", options.seconds, "--forms", form, "--workers", workers))
    for (peer, form), workers in chosen.items():
        yield beside(f"2 cameras of 84, crop 76, history 2, {form}", ours[form], theirs[peer, form], f"{peer}, {workers} workers", ROBOMIMIC[form])


def run(options):
    figures = [*resident(options), *beside_memcpy(options)]
    if options.robomimic_python:
        figures += [*first_batch(options), *act(options), *robomimic(options)]
    note = "" if options.robomimic_python else "not beside other loaders: no --robomimic-python (tests/bench/make_peers.sh makes one)"
    return {"figures": figures, "note": note, "credit": CREDIT, "seconds_a_turn": options.seconds}
