"""Part `defaults`: what a user gets. The configuration is that of `trajctl init`, as it is or with the changes that the
figure names, and a plain loop reads every byte of every tensor. Peers deliver the same tensors of the same types, which is
checked, to the same loop."""
import json
import subprocess
import sys

from bench_daemon import Daemon, ROOT, demo_dataset, figure, find_built, middle
from part_feed import robomimic as run_robomimic
from part_image_feeds import LOW, beside, loaders, warm_memory, write_resident

FORMS = ("u8", "float32")
DOUBLE = "float64 observations"                 # as robomimic leaves them; the default is float32
EVERY_ROW = "every row a window, batches of 8"  # of ACT: its own preset draws one window per episode
TWO_ROWS = "two rows of every key, float64"     # robomimic's frame_stack 2 and seq_length 1


def init(options, path, *arguments):
    """Returns what `trajctl init` writes, without the version, which Daemon writes."""
    out = subprocess.run([find_built(options.build, "trajctl"), "init", *arguments, path], check=True, capture_output=True, text=True)
    return out.stdout.replace("version: 2\n", "")


def batch_of(config):
    return int(config.split("global_batch: ")[1].split()[0])


def read(daemon, length, peer=""):
    """One turn of a worker that has set nothing but the style. It reads all tensors, or those that the peer delivers."""
    out = subprocess.run([sys.executable, ROOT / "tests/bench/image_worker.py", daemon.build, daemon.endpoint, "train", "0",
                          str(daemon.process.pid), str(length), peer], check=True, capture_output=True, text=True)
    result = json.loads(out.stdout)
    result["cpu_us"] = result["daemon_us"] + result["worker_us"]
    return result


def check(ours, theirs, name):
    if ours["kinds"] != theirs["kinds"]:
        raise RuntimeError(f"{name}: not the same tensors: {ours['kinds']} and {theirs['kinds']}")


def windows(options):
    """The configuration of the README's first commands. There is no peer: no other loader makes these tensors."""
    with Daemon(options.build, options.work / "defaults", init(options, demo_dataset(options.work))) as daemon:
        turns = [read(daemon, options.seconds) for _ in range(options.rounds)]
        ring = daemon.trajctl("status")["producers"][0]["ring"]
    yield figure("init, every tensor read", middle([turn["windows_per_s"] for turn in turns], 0), "windows/s", ring=ring,
                 cpu_us_per_window=middle([turn["cpu_us"] for turn in turns]))


def robomimic(options):
    """robomimic's template: 10 rows of every observation and of the actions. It delivers observations as they are in the file."""
    path, ours, theirs = demo_dataset(options.work), [], []
    tried = run_robomimic(options, path, options.seconds, more=("--template",))["results"]
    best = max(tried, key=lambda one: one["windows_per_s"])
    config = init(options, path, "--preset", "robomimic").replace("lookahead: 10s}", "lookahead: 10s, dtype: float64}")
    with Daemon(options.build, options.work / "defaults", config) as daemon:
        for _ in range(options.rounds):
            ours.append(read(daemon, options.seconds, "robomimic"))
            theirs += run_robomimic(options, path, options.seconds, (best["cache_mode"],), (str(best["workers"]),), ("--template",))["results"]
    check(ours[0], theirs[0], "robomimic")
    for turn in theirs:
        turn["cpu_us_per_window"] = turn["cpu_us_per_batch"] / 256
    yield beside(f"init --preset robomimic ({DOUBLE})", ours, theirs, f"robomimic, cache {best['cache_mode']}, {best['workers']} workers")


def act(options):
    folder = options.work / "act"
    if not (folder / "done").exists():
        loaders(options, "make_act", folder)
        (folder / "done").touch()
    made = init(options, folder, "--preset", "act").replace("    # color: rgb ", "    color: rgb ")  # no file says so
    config = "".join(line for line in made.replace(f"global_batch: {batch_of(made)}", "global_batch: 8").splitlines(True)
                     if not line.strip().startswith("windows:"))
    tried = loaders(options, "act", folder, "--batch", 8, "--seconds", options.seconds)
    chosen = {form: max((one for one in tried if one["u8"] == (form == "u8")), key=lambda one: one["windows_per_s"])["workers"] for form in FORMS}
    ours, theirs = {}, {form: [] for form in FORMS}
    for _ in range(options.rounds):
        for form in FORMS:
            warm_memory()
            text = config if form == "float32" else config.replace("image: {preset: act}", "image: {}")
            with Daemon(options.build, options.work / "defaults", text) as daemon:
                for when, length in (("first epoch", "first"), ("later epochs", options.seconds)):
                    ours.setdefault((form, when), []).append(read(daemon, length, f"act {form}"))
            theirs[form] += loaders(options, "act", folder, "--batch", 8, "--seconds", options.seconds, "--forms", form, "--workers", chosen[form])
    check(ours["float32", "first epoch"][0], theirs["float32"][0], "ACT")
    if ours["u8", "first epoch"][0]["batch_bytes"] != theirs["u8"][0]["batch_bytes"]:  # three arrays here, and one there
        raise RuntimeError("ACT, u8: not the same bytes")
    for (form, when), turns in ours.items():
        how = EVERY_ROW if form == "float32" else f"{EVERY_ROW}, images as stored"
        yield beside(f"init --preset act ({how}), {form}, {when}", turns, theirs[form],
                     f"act-plus-plus, {form}, {chosen[form]} workers")


def robomimic_images(options):
    """u8 as stored: robomimic makes floats of them on the GPU."""
    path, ours, theirs = write_resident(options, "robomimic"), [], []
    config = init(options, path).replace("at: -1..14", "at: -1..0").replace("at: 0}", "at: -1..0}")
    for name in LOW:
        config = config.replace(f"obs/{name}: {{at: -1..0}}", f"obs/{name}: {{at: -1..0, dtype: float64}}")
    batch = batch_of(config)
    config = "".join(line for line in config.splitlines(True) if not line.strip().startswith("split:"))
    tried = loaders(options, "robomimic", path, "--batch", batch, "--seconds", options.seconds, "--forms", "u8")
    workers = max(tried, key=lambda one: one["windows_per_s"])["workers"]
    with Daemon(options.build, options.work / "defaults", config) as daemon:
        for _ in range(options.rounds):
            ours.append(read(daemon, options.seconds, "robomimic"))
            theirs += loaders(options, "robomimic", path, "--batch", batch, "--seconds", options.seconds, "--forms", "u8", "--workers", workers)
    check(ours[0], theirs[0], "robomimic's images")
    yield beside(f"init ({TWO_ROWS}), two cameras of 84x84, u8", ours, theirs, f"robomimic, cache all, {workers} workers")


def run(options):
    figures = list(windows(options))
    if options.robomimic_python:
        figures += [*robomimic(options), *robomimic_images(options), *act(options)]
    note = "" if options.robomimic_python else "not beside other loaders: no --robomimic-python (tests/bench/make_peers.sh makes one)"
    return {"figures": figures, "note": note, "seconds_a_turn": options.seconds}
