"""The part `resample`: the files that `trajctl resample`, `pack` and `preprocess` write."""

import pathlib
import shutil

import net_hdf5
from net_build import write_config
from net_layout_files import LAYOUTS

LAB = "data/lab.hdf5 --layout data/lab.yaml --assume-rate"
CAMERA_FILE = "data/cameras.hdf5 --layout data/cameras.yaml"
CAMERAS = f"{CAMERA_FILE} --assume-rate"
NOT_PACKED = (
    "--streams actions,qpos,raw,raw_bgr,raw_gray,png,png_180,jpeg,jpeg_text,jpeg_gray,mixed,zeros,"
    "bad,depth16,depth32,depth_png,plain"
)
NO_DELTAS = (  # only these are resampled by a daemon or on a GPU
    "--streams joints,degrees,velocity,pos,quat,wxyz,euler,holes,wrench,grip,grip_near,table_pos,"
    "table_quat,actions,frame,types/*"
)
STREAMS = f"{NO_DELTAS},axis,delta,move,reward"  # not those of integers that end before their episode: they are refused
POLICY = "data/policy.hdf5"
RATES = (10, 20, 29.97, "30000/1001", 30, 100)
KINDS = {
    "pos": ("linear", "previous", "nearest", "mean", "angle"),
    "joints": ("linear", "angle", "nearest"),
    "quat": ("slerp", "slerp_wxyz", "slerp_xyzw", "nearest", "previous"),
    "wrench": ("mean", "linear"),
    "frame": ("previous", "nearest"),
    "holes": ("linear", "mean", "nearest"),
}

# name: arguments beside -o
CASES = {
    **{f"lab/rate_{str(rate).replace('/', '_')}": f"{LAB} {STREAMS} --rate {rate}" for rate in RATES},
    **{
        f"lab/kind_{stream}_{kind}": f"{LAB} --rate 40 --streams {stream} --kind {stream}={kind}"
        for stream, kinds in KINDS.items()
        for kind in kinds
    },
    "lab/window": f"{LAB} --rate 25 --streams wrench,pos --kind pos=mean --window 7ms "
    "--window pos=120ms",
    "lab/dtype": f"{LAB} --rate 25 --streams pos,quat,wrench,joints --dtype float32 "
    "--dtype quat=float16 --dtype wrench=float16",
    "lab/max_gap": f"{LAB} {STREAMS} --rate 25 --max-gap 300ms",
    "lab/max_gap_of_one": f"{LAB} --rate 25 --max-gap pos=60ms --max-gap delta=1s "
    "--streams pos,delta,grip",
    "lab/episodes": f"{LAB} --rate 25 --episodes demo_1,3,demo_7 --streams actions,pos",
    "lab/episode_range": f"{LAB} --rate 25 --episodes 2..4 --streams actions,pos",
    "lab/filter": f"{LAB} --rate 25 --filter valid --streams actions,types/*",
    "lab/compress_none": f"{LAB} --rate 50 --compress none --streams joints,velocity,degrees",
    "lab/compress_gzip": f"{LAB} --rate 50 --compress gzip --streams joints,velocity,degrees,frame",
    "lab/compress_gzip_9": f"{LAB} --rate 50 --compress gzip:9 "
    "--streams joints,velocity,degrees,frame",
    "lab/moves": f"{LAB} --rate 12.5 --streams delta,move",
    "lab/moves_faster": f"{LAB} --rate 60 --streams delta,move",
    **{f"policy/rate_{rate}": f"{POLICY} --rate {rate}" for rate in RATES if rate != "30000/1001"},
    **{
        f"policy/exact_gap_{gap}": f"{POLICY} --rate 40 --max-gap {gap}"
        for gap in ("50ms", "49999999ns")
    },
    "policy/exact_window": f"{POLICY} --rate 20 --streams states,obs/robot0_eef_pos "
    "--kind states=mean --window 100ms --kind obs/robot0_eef_pos=mean --window obs/robot0_eef_pos=50ms",
    "policy/middles": f"{POLICY} --rate 40 --streams states,obs/robot0_eef_pos "
    "--kind states=nearest",
    "policy/filter": f"{POLICY} --rate 8 --filter few",
    "policy/several": "data/policy.hdf5 data/changed.hdf5 --rate 15 --streams actions,obs/*",
    "policy/folder": "data/folder --rate 15",
    "policy/slerp": f"{POLICY} --rate 33 --streams obs/robot0_eef_quat,obs/object "
    "--kind obs/object=linear",
    **{f"cameras/rate_{rate}": f"{CAMERAS} {NOT_PACKED} --rate {rate}" for rate in (10, 20, 29.97)},
    "cameras/nearest": f"{CAMERAS} {NOT_PACKED} --rate 13 --kind jpeg=nearest --kind raw=nearest "
    "--compress gzip",
    **{
        f"odd/stamps_{policy}": f"data/odd/faulty.hdf5 --layout data/odd/stamps_{policy}.yaml "
        "--rate 30"
        for policy in ("error", "drop", "keep_last")
    },
    "odd/gaps": "data/odd/faulty.hdf5 --layout data/odd/stamps_drop.yaml --rate 30 --max-gap 200ms",
    **{
        f"layouts/{layout}_{rate}": f"data/layouts/{place} --layout {layout} "
        f"--rate {rate} --assume-rate"
        for layout, place in LAYOUTS.items()
        for rate in (7, 30)
    },
    "odd/split": "data/odd/joined.hdf5 --layout data/odd/ends.yaml --rate 10 --assume-rate",
    "layouts/assumed_rate": "data/layouts/isaaclab --rate 30 --assume-rate=25",
    "layouts/parts": "data/layouts/droid_raw/ep2/trajectory.h5 --rate 30 --max-gap 75ms",
}
NOT_ON_THE_CPU = {
    **{f"lab_{str(rate).replace('/', '_')}": f"{LAB} {NO_DELTAS} --rate {rate}" for rate in RATES},
    "lab_gaps": f"{LAB} {NO_DELTAS} --rate 25 --max-gap 300ms",
    **{
        f"kind_{stream}_{kind}": CASES[f"lab/kind_{stream}_{kind}"]
        for stream, kinds in KINDS.items()
        for kind in kinds
    },
    "policy": f"{POLICY} --rate 30",
    "cameras": CASES["cameras/rate_10"],
    "stamps": CASES["odd/stamps_drop"],
}
RECORDED = ("robosuite_door_panda_demo", "robosuite_SawyerStack_demo", "robosuite_lift_panda_demo")
IMAGES = {
    "act_raw": "aloha",
    "droid_im128": "droid_im",
    "libero": "libero",
    "maniskill_rgbd": "maniskill",
    "mobile_aloha": "aloha",
    "robomimic_image84": "robomimic",
    "robomimic_image84_gzip": "robomimic",
    "robomind": "robomind",
    "robotwin": "robotwin",
}
PACKED = {
    "cameras": CAMERA_FILE,
    "robomind": "data/layouts/robomind/ep0/trajectory.hdf5",
    "aloha": "data/layouts/aloha/episode_0.hdf5 data/layouts/aloha/episode_1.hdf5",
    "robotwin": "data/layouts/robotwin/data/episode0.hdf5 --layout robotwin",
}
IMAGE = {"crop": [40, 56], "resize": [24, 32], "filter": "pillow-bicubic"}
PREPARED_OUTPUTS = {
    "raw": {"at": 0, "image": IMAGE},
    "png": {"at": 0, "image": {"resize": 20, "fit": "pad", "pad_value": 7}},
    "jpeg": {
        "at": 0,
        "image": {
            "crop": {"top": 3, "left": 5, "height": 32, "width": 40},
            "resize": [16, 20],
            "fit": "cover",
            "filter": "area",
        },
    },
    "bad": {"at": 0, "image": IMAGE},
    "zeros": {"at": 0, "image": IMAGE},
    "packed": {"at": 0, "image": {"resize": 24}},
    "depth_png": {"at": 0, "image": {"resize": [24, 32], "filter": "nearest"}},
    "png_180": {"at": 0, "image": {}},
    "jpeg_gray": {
        "at": 0,
        "image": {"resize": [20, 30], "fit": "pad_topleft", "filter": "pillow-lanczos"},
    },
}


def record(part, build):
    """Runs all conversions. On a GPU machine those with the GPU's arithmetic."""
    folder = pathlib.Path("resampled")
    folder.mkdir(exist_ok=True)
    if build.device == "cuda":
        return record_gpu(part, build, folder)
    recorded = {f"recorded/{name}": f"recordings/{name}.hdf5 --rate 30" for name in RECORDED}
    recorded |= {
        f"recorded/{name}": f"recordings/images/{name}{suffix_of(name)} --layout {layout} "
        "--rate 12 --assume-rate"
        for name, layout in IMAGES.items()
    }
    if not pathlib.Path("recordings").is_dir():
        print("resample: the recordings are missing: skipped", flush=True)
        recorded = {}
    for name, arguments in {**CASES, **recorded}.items():
        convert(part, build, folder, name, arguments, "--backend", "cpu")
    record_by_daemon(part, build, folder)
    record_again(part, build, folder)
    record_packed(part, build, folder)
    record_preprocessed(part, build, folder)


def suffix_of(name):
    return ".h5" if name in ("droid_im128", "maniskill_rgbd") else ".hdf5"


def record_by_daemon(part, build, folder):
    cases = {
        name: arguments for name, arguments in NOT_ON_THE_CPU.items() if part.has(f"daemon/{name}")
    }
    if cases:
        with (
            part.case("daemon"),
            build.daemon(
                {"datasets": {"any": {"path": "data/policy.hdf5", "layout": "robomimic"}}},
                "resampling",
            ) as endpoint,
        ):
            for name, arguments in cases.items():
                convert(
                    part,
                    build,
                    folder,
                    f"daemon/{name}",
                    arguments,
                    "--backend",
                    "daemon",
                    "--endpoint",
                    endpoint,
                )


def record_gpu(part, build, folder):
    record_by_daemon(part, build, folder)
    for name, arguments in NOT_ON_THE_CPU.items():
        convert(part, build, folder, f"cuda/{name}", arguments, "--backend", "cuda")


def convert(part, build, folder, name, arguments, *more):
    """Runs a conversion into a folder of its own, and adds its files and its summary."""
    if not part.has(name):
        return
    out = folder / name
    out.mkdir(parents=True, exist_ok=True)
    with part.case(name):
        words = ("-o", out / "out.hdf5", *more, *build.thread_options(), "--json", "--force")
        said = build.must("resample", *arguments.split(), *words)
        part.text(f"{name}/summary", said, (r'^\{"event":"progress".*\n', ""))
        net_hdf5.add_folder(part, name, out)
    shutil.rmtree(out)


def record_again(part, build, folder):
    """A file that was resampled is resampled again."""
    if not part.has("again"):
        return
    with part.case("again"):
        (folder / "again").mkdir(exist_ok=True)
        first = f"{CASES['policy/rate_20']} -o {folder}/again/first.hdf5".split()
        second = f"{folder}/again/first.hdf5 --rate 35 -o {folder}/again/second.hdf5".split()
        plan = f"{LAB} {STREAMS} --rate 35 -o {folder}/again/third.hdf5 --dry-run".split()
        build.must("resample", *first)
        build.must("resample", *second)
        part.text("again/plan", build.must("resample", *plan))
        net_hdf5.add_folder(part, "again", folder / "again")


def record_packed(part, build, folder):
    """Packs frames, and prepares them as a feed and as a preset asks for."""
    config = {
        "datasets": {"cameras": {"path": "data/cameras.hdf5", "layout": "./data/cameras.yaml"}},
        "feeds": {
            "train": {
                "dataset": "cameras",
                "global_batch": 4,
                "anchor": {"clock": "steps"},
                "outputs": PREPARED_OUTPUTS,
            }
        },
    }
    write_config("prepare.yaml", build.complete(config))
    cases = {f"pack/{name}": arguments for name, arguments in PACKED.items()}
    cases["pack/prepared"] = f"{CAMERA_FILE} --prepare prepare.yaml:train"
    cases["pack/preset_openpi"] = f"{CAMERA_FILE} --prepare openpi"
    for name, arguments in cases.items():
        if part.has(name):
            with part.case(name):
                out = folder / name
                out.mkdir(parents=True, exist_ok=True)
                said = build.must("pack", *arguments.split(), "-o", out, "--force")
                part.text(f"{name}/summary", said)
                net_hdf5.add_folder(part, name, out)


def record_preprocessed(part, build, folder):
    """Files of an inbox: published ones, and refused ones with their reports."""
    if not part.has("preprocess"):
        return
    station = folder / "preprocess"
    (station / "inbox").mkdir(parents=True, exist_ok=True)
    for name in ("policy", "other", "lab"):
        shutil.copy(f"data/{name}.hdf5", station / "inbox" / f"{name}.hdf5")
    shutil.copy("data/layouts/isaaclab/dataset.hdf5", station / "inbox/assumed.hdf5")
    shutil.copy("data/odd/faulty.hdf5", station / "inbox/faulty.hdf5")
    each = {"obs/robot0_eef_pos": {"kind": "mean", "window": "150ms", "dtype": "float32"}}
    runs = {
        "default": {"rate": 15},
        "lab": {"rate": 25, "layout": "./data/lab.yaml", "files": "lab.hdf5"},
        "kept": {
            "rate": 12,
            "files": "p*.hdf5",
            "resample": {
                "compress": "gzip",
                "compress_level": 7,
                "each": each,
                "filter": "train",
                "streams": ["actions", "obs/*"],
                "dtype": "float32",
                "max_gap": "1s",
            },
        },
        "faulty": {
            "rate": 12,
            "files": "faulty.hdf5",
            "layout": "./data/odd/stamps_drop.yaml",
            "rules": {"not-finite": "report", "gaps": "refuse"},
        },
    }
    for name, keys in runs.items():
        with part.case(f"preprocess/{name}"):
            folders = {key: f"{station}/{name}/{key}" for key in ("outbox", "quarantine")}
            config = {
                "version": 1,
                "inbox": f"{station}/{name}/inbox",
                **folders,
                "settle": "10ms",
                "threads": build.threads,
                **keys,
            }
            shutil.copytree(station / "inbox", station / name / "inbox")
            write_config(f"preprocess_{name}.yaml", config)
            build.run("preprocess", f"preprocess_{name}.yaml", "--once")
            add_station(part, f"preprocess/{name}", station / name)


TIMES = (
    (
        r'("(?:[a-z_]*time|[a-z_]*_at|published|started|finished|seconds|[mc]time_ns|host|pid)"): ?'
        r'("[^"]*"|[0-9.e+-]+)',
        r"\1: 0",
    ),
    (r"20\d\d-\d\d-\d\d[T ][0-9:.]+Z?", "<time>"),
)


def add_station(part, name, station):
    """Adds what was published and refused. A manifest contains digests of files, whose bytes HDF5
    decides."""
    for place in ("outbox", "quarantine"):
        net_hdf5.add_folder(part, f"{name}/{place}", station / place)
        for path in sorted((station / place).rglob("*.json")):
            if ".trajd" not in path.parts:
                part.text(
                    f"{name}/{place}/{path.name}",
                    path.read_text(),
                    *TIMES,
                    (r'"sha256": ?"[0-9a-f]*"', '"sha256": 0'),
                )
