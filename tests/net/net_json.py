"""The part `json`: what the commands of trajctl print, as text and as JSON, and the drafts and
images that they write."""

import json
import pathlib
import re

import net_families
import net_feeds
import net_image_families
from net_build import write_config
from net_layout_files import LAYOUTS

LAB = ("data/lab.hdf5", "--layout", "data/lab.yaml")
CAMERAS = ("data/cameras.hdf5", "--layout", "data/cameras.yaml")
FAULTY = ("data/odd/faulty.hdf5", "--layout", "data/odd/faulty.yaml")
FILES = {
    "lab": LAB,
    "cameras": CAMERAS,
    "policy": ("data/policy.hdf5",),
    "folder": ("data/folder",),
    "faulty": FAULTY,
    **{
        f"stamps_{policy}": ("data/odd/faulty.hdf5", "--layout", f"data/odd/stamps_{policy}.yaml")
        for policy in ("error", "drop", "keep_last")
    },
    **{
        f"cut_{kind}": ("data/odd/joined.hdf5", "--layout", f"data/odd/{kind}.yaml")
        for kind in ("flags", "lengths", "ends", "starts")
    },
    "stranger": ("data/odd/stranger.hdf5",),
    **{
        f"layout_{layout}": (f"data/layouts/{place}", "--layout", layout)
        for layout, place in LAYOUTS.items()
    },
}
STYLES = ("act", "diffusion_policy", "lerobot", "openpi", "robomimic")
# what depends on the machine and on time in the text of a plan, and in a status
WORK = (r", \d+ threads?, \d+ us of work, [^\n\"]*", ", <threads>")
# the fingerprints of statistics contain inodes and times of files
STATISTICS = (r'"fingerprint":"[0-9a-f]+"', '"fingerprint":0')
SECONDS = (r"in \d+\.\d+ s\b", "in <seconds>")
STABLE = """
    version name layout files episodes found kept quarantined refused_files fingerprint
    episodes_found episodes_kept episodes_quarantined episodes_used norm_digest values_digest
    weight of datasets producers global_batch seed epoch_length window_count
""".split()


def say(part, build, name, *arguments, patterns=(), **options):
    """Adds exit status and standard output of a command. What it writes on standard error belongs
    to the part `messages`."""
    if part.has(name):
        done = build.run(*arguments, **options)
        part.text(name, f"{done.stdout}exit status {done.returncode}\n", WORK, SECONDS, *patterns)


def record(part, build):
    with part.case("files"):
        record_files(part, build)
        record_drafts(part, build)
        record_drawn(part, build)
    net_feeds.write_files()
    for group, datasets, feeds in net_feeds.groups():
        if part.has(f"feeds/{group}"):
            with (
                part.case(f"feeds/{group}"),
                build.daemon(net_feeds.config_of(datasets, feeds), f"json_{group}") as endpoint,
            ):
                record_group(part, build, group, feeds, endpoint)
    with part.case("two_daemons"):
        record_two_daemons(part, build)
    say(part, build, "version", "--version")
    for words in (
        (),
        ("resample",),
        ("resample", "--backend"),
        ("stats", "--format"),
        ("--layouts",),
    ):
        say(part, build, f"names/{'_'.join(words)}", "names", *words)


def record_files(part, build):
    for name, arguments in FILES.items():
        for form, more in {"text": (), "json": ("--json",)}.items():
            say(part, build, f"inspect/{name}/{form}", "inspect", *arguments, *more)
            say(part, build, f"validate/{name}/{form}", "validate", *arguments, *more)
    for name, arguments in {"cameras": CAMERAS, "robomind": ("data/layouts/robomind",)}.items():
        say(part, build, f"validate/{name}/decoded", "validate", *arguments, "--decode", "--json")
    say(
        part, build, "validate/ignored", "validate", *FAULTY, "--ignore", "gaps", "--ignore", "idle"
    )
    idle = {
        "plain": (),
        "joints": ("--idle-streams", "pos", "--idle-tolerance", "1e-3", "--idle-length", "466ms"),
    }
    for name, more in idle.items():
        if part.has("validate/idle"):
            path = pathlib.Path(f"idle_{name}.json")
            say(part, build, f"validate/idle_{name}", "validate", *FAULTY, "--idle", path, *more)
            part.text(f"validate/idle_{name}/ranges", path.read_text())


def record_drafts(part, build):
    for name, arguments in FILES.items():
        if name != "stranger":
            say(part, build, f"init/{name}", "init", *arguments)
    for style in STYLES:
        for name in ("policy", "layout_aloha", "layout_robomimic", "cameras"):
            say(part, build, f"init/{name}_{style}", "init", *FILES[name], "--preset", style)
    say(part, build, "init/mixed_folder", "init", "data/layouts/libero")
    for name, place in {"stranger": "data/odd/stranger.hdf5", "policy": "data/policy.hdf5"}.items():
        if part.has(f"init/{name}_drafted"):
            say(part, build, f"init/{name}_drafted", "init", place, "-o", f"draft_{name}.yaml")
            for path in sorted(pathlib.Path().glob(f"draft_{name}*.yaml")):
                part.text(f"init/{name}_drafted/{path.name}", path.read_text())
    say(
        part,
        build,
        "init/stranger_read",
        "inspect",
        "data/odd/stranger.hdf5",
        "--layout",
        "./draft_stranger.layout.yaml",
    )
    say(part, build, "init/stranger_checked", "check", "draft_stranger.yaml")


def draw(part, build, name, path, *arguments):
    """Adds an image or a drawing that a command writes."""
    if part.has(name):
        say(part, build, name, *arguments, "-o", path)
        part.bytes(f"{name}/written", pathlib.Path(path).read_bytes())


def record_drawn(part, build):
    plots = {
        "pos": ("--rate", 25),
        "joints": ("--rate", 25, "--episode", "demo_3", "--from", "200ms", "--to", "900ms"),
        "quat": ("--rate", 60),
        "wrench": ("--rate", 20, "--kind", "mean", "--window", "90ms"),
        "grip": (),
        "delta": ("--rate", 10),
    }
    for stream, more in plots.items():
        say(part, build, f"plot/{stream}/text", "plot", LAB[0], stream, *LAB[1:], *more)
    for stream in ("raw", "raw_bgr", "png_180", "jpeg", "jpeg_gray", "depth16", "zeros"):
        more = (
            ("--resize", "24x32", "--filter", "pillow-bicubic", "--fit", "pad")
            if stream == "jpeg"
            else ()
        )
        draw(
            part,
            build,
            f"plot/{stream}/film",
            f"film_{stream}.png",
            "plot",
            CAMERAS[0],
            stream,
            *CAMERAS[1:],
            *more,
        )
        draw(
            part,
            build,
            f"frame/{stream}",
            f"frame_{stream}.png",
            "inspect",
            "--frame",
            f"{stream}:4",
            *CAMERAS,
            *more,
        )


# ---- feeds ----


def record_group(part, build, group, feeds, endpoint):
    at, config = ("--endpoint", endpoint), f"json_{group}.yaml"
    say(
        part,
        build,
        f"feeds/{group}/plan",
        "--config",
        config,
        "--check",
        program=build.daemon_program,
    )
    say(
        part,
        build,
        f"feeds/{group}/config",
        "--config",
        config,
        "--print-config",
        program=build.daemon_program,
        patterns=((r"^( *(readers|resample|decoders): )\d+$", r"\1<threads>"),),
    )
    if group in net_families.GROUPS:  # statistics of images take minutes
        say(part, build, f"feeds/{group}/check", "check", config)
    for name, keys in feeds.items():
        if part.has(f"feeds/{group}/{name}"):
            record_feed(part, build, f"feeds/{group}/{name}", name, keys, at)
            if group in net_families.GROUPS:
                record_statistics(part, build, f"feeds/{group}/{name}", name, at)
    record_status(part, build, group, at)


def record_feed(part, build, item, name, keys, at):
    """A feed's windows and batches, as the commands show them."""
    is_drawn = "image" in json.dumps(keys) or "goal" in json.dumps(keys)
    say(part, build, f"{item}/explain", "explain", name, "--window", 5, *at)
    say(
        part,
        build,
        f"{item}/explain_json",
        "explain",
        name,
        "--position",
        3,
        "--epoch",
        1 if is_drawn else 0,
        "--json",
        *at,
    )
    say(
        part,
        build,
        f"{item}/recv",
        "recv",
        name,
        "--count",
        1,
        "--json",
        "--job",
        "json",
        *at,
        patterns=((r'"(ready_ns|sequence|slot)": ?\d+', r'"\1": 0'),),
    )


def record_statistics(part, build, item, name, at):
    """Statistics as text, as JSON, and as files for other projects."""
    say(part, build, f"{item}/stats", "stats", name, "--json", *at, patterns=(STATISTICS,))
    say(part, build, f"{item}/stats_text", "stats", name, *at)
    for form in ("openpi", "lerobot"):
        path = pathlib.Path(f"stats_of_{form}.json")
        path.unlink(missing_ok=True)
        say(part, build, f"{item}/stats_{form}", "stats", name, "--format", form, "-o", path, *at)
        if path.exists():
            part.text(f"{item}/stats_{form}/file", path.read_text())


def stable_part(document):
    """Returns the members of a status that do not depend on time and machine."""
    if isinstance(document, dict):
        return {key: stable_part(value) for key, value in document.items() if key in STABLE}
    if isinstance(document, list):
        return [stable_part(one) for one in document]
    return document


def record_status(part, build, group, at):
    """The stable part of the status, and the metrics, without those of jobs, which end."""
    status = json.loads(build.must("status", "--json", *at))
    status["producers"] = status["producers"][:9]  # a long status leaves out some of them
    part.json(f"feeds/{group}/status", stable_part(status))
    part.json(f"feeds/{group}/status_keys", sorted(status))
    lines = build.must("metrics", *at).splitlines()
    part.json(
        f"feeds/{group}/metrics",
        [
            line
            for line in lines
            if line.startswith("#") and not re.search(r" trajd_(job|worker)_", line)
        ],
    )


def record_two_daemons(part, build):
    """Two daemons whose data differ in an episode; and the names of doctor's topics."""
    feed = {
        "train": net_families.policy(dataset="one"),
        "scaled": net_families.policy({"actions": {"at": 0, "norm": "mean_std"}}, dataset="one"),
    }
    if not part.has("diff"):
        return
    first, second = (
        {"datasets": {"one": {"path": f"data/{name}.hdf5", "layout": "robomimic"}}, "feeds": feed}
        for name in ("policy", "changed")
    )
    with build.daemon(first, "diff_first") as one, build.daemon(second, "diff_second") as other:
        for name in feed:
            say(part, build, f"diff/{name}", "diff", one, other, name)
            say(part, build, f"diff/{name}_same", "diff", one, one, name)
        for word in ("stream:states", "actions"):
            say(
                part,
                build,
                f"stats/{word}",
                "stats",
                "scaled",
                "--output",
                word,
                "--json",
                "--endpoint",
                one,
                patterns=(STATISTICS,),
            )
        say(
            part,
            build,
            "explain/part",
            "explain",
            "train",
            "--window",
            100,
            "--output",
            "actions",
            "--first",
            3,
            "--count",
            5,
            "--endpoint",
            one,
        )
    config = write_config(
        "doctor.yaml",
        build.complete(
            {
                "datasets": net_image_families.DATASETS,
                "feeds": {"one": net_image_families.feed({"qpos": {"at": 0}})},
            }
        ),
    )
    found = json.loads(build.run("doctor", config, "--seconds", 0, "--json").stdout)
    part.json("doctor/topics", sorted({finding["topic"] for finding in found["findings"]}))
    part.json("doctor/keys", sorted(found))
