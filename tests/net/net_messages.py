"""The part `messages`: errors and warnings, with exit status. Their wording may be changed on
purpose, which is why they are a part of their own."""

import copy
import pathlib

import net_families
import net_feeds
from net_build import write_config
from net_special_files import LAB_LAYOUT

POLICY, LAB = "data/policy.hdf5", "data/lab.hdf5 --layout data/lab.yaml"
TIMES = (
    (r"20\d\d-\d\d-\d\d[T ][0-9:.]+Z?", "<time>"),
    (r"\bin \d+\.\d+ s\b", "in <seconds>"),
    (r", \d+ threads?, \d+ us of work, .*", ", <threads>"),
    (r"\b\d+(\.\d+)? (MiB|GiB|ms|windows/s|s left)\b", r"<amount> \2"),
    (r"^<time> info: .*\n+", ""),
)

COMMANDS = {
    "nothing": "",
    "unknown": "resampel",
    "no_file": "inspect",
    "missing_file": "inspect nope.hdf5",
    "not_hdf5": "inspect messages.json",
    "unknown_layout": f"inspect {POLICY} --layout robomimik",
    "other_layout": f"inspect {POLICY} --layout aloha",
    "stranger": "validate data/odd/stranger.hdf5",
    "unknown_rule": f"validate {POLICY} --ignore nope",
    "no_rate": f"resample {POLICY} -o x.hdf5",
    "no_output": f"resample {POLICY} --rate 10",
    "rate_0": f"resample {POLICY} --rate 0 -o x.hdf5",
    "rate_word": f"resample {POLICY} --rate fast -o x.hdf5",
    "unknown_stream": f"resample {POLICY} --rate 10 -o x.hdf5 --streams obs/nope",
    "kind_without_stream": f"resample {POLICY} --rate 10 -o x.hdf5 --kind mean",
    "kind_word": f"resample {POLICY} --rate 10 -o x.hdf5 --kind actions=cubic",
    "kind_of_actions": f"resample {LAB} --rate 10 -o x.hdf5 --kind quat=linear",
    "slerp_of_3": f"resample {LAB} --rate 10 -o x.hdf5 --kind pos=slerp_xyzw",
    "window_word": f"resample {LAB} --rate 10 -o x.hdf5 --window 5",
    "dtype_word": f"resample {LAB} --rate 10 -o x.hdf5 --dtype int8",
    "dtype_wider": f"resample {LAB} --rate 10 -o x.hdf5 --dtype pos=float64",
    "gap_word": f"resample {LAB} --rate 10 -o x.hdf5 --max-gap -1s",
    "episode_unknown": f"resample {LAB} --rate 10 -o x.hdf5 --episodes demo_99",
    "filter_unknown": f"resample {LAB} --rate 10 -o x.hdf5 --filter nope",
    "compress_word": f"resample {LAB} --rate 10 -o x.hdf5 --compress zip",
    "compress_level": f"resample {LAB} --rate 10 -o x.hdf5 --compress gzip:12",
    "backend_word": f"resample {LAB} --rate 10 -o x.hdf5 --backend gpu",
    "backend_daemon": f"resample {LAB} --rate 10 -o x.hdf5 --backend daemon --endpoint nowhere",
    "backend_cuda": f"resample {LAB} --rate 10 -o x.hdf5 --backend cuda",
    "onto_itself": f"resample {POLICY} --rate 10 -o {POLICY}",
    "assumed": "resample data/layouts/isaaclab/dataset.hdf5 --rate 10 -o x.hdf5",
    "packed": "resample data/cameras.hdf5 --layout data/cameras.yaml --rate 10 -o x.hdf5",
    "several": "resample data/layouts/aloha --rate 10 -o x.hdf5",
    "types_differ": "resample data/policy.hdf5 data/other.hdf5 --rate 10 -o x.hdf5",
    "resume_nothing": f"resample {POLICY} --rate 10 -o y.hdf5 --resume --streams rewards",
    "exists": f"resample {POLICY} --rate 10 -o y.hdf5 --streams rewards",
    "threads": f"resample {POLICY} --rate 10 -o x.hdf5 --threads many",
    "pack_no_output": f"pack {POLICY}",
    "pack_nothing": f"pack {POLICY} -o packed.hdf5",
    "pack_preset": "pack data/cameras.hdf5 --layout data/cameras.yaml -o p.hdf5 --prepare nope",
    "pack_gr00t": "pack data/cameras.hdf5 --layout data/cameras.yaml -o p.hdf5 --prepare gr00t",
    "plot_stream": f"plot {POLICY} nope",
    "plot_episode": f"plot {POLICY} actions --episode demo_77",
    "plot_rate": f"plot {POLICY} actions --rate x",
    "plot_images": "plot data/cameras.hdf5 raw --layout data/cameras.yaml",
    "frame_word": "inspect --frame raw data/cameras.hdf5 -o f.png --layout data/cameras.yaml",
    "frame_row": "inspect --frame raw:9999 data/cameras.hdf5 -o f.png --layout data/cameras.yaml",
    "frame_bad": "inspect --frame bad:3 data/cameras.hdf5 -o f.png --layout data/cameras.yaml",
    "init_preset": f"init {POLICY} --preset nope",
    "init_stranger": "init data/odd/stranger.hdf5",
    "init_mixed": "init data/layouts",
    "init_notes": f"init {POLICY}",
    "check_missing": "check nope.yaml",
    "preprocess_missing": "preprocess nope.yaml",
    "preprocess_shard": "preprocess nope.yaml --shard 3",
    "status_nobody": "status --endpoint nowhere",
    "stats_nobody": "stats train --endpoint nowhere",
    "explain_nothing": "explain",
    "recv_rank": "recv x --rank 3 --endpoint nowhere",
    "keygen_nothing": "keygen",
    "diff_one": "diff nowhere",
    "names_word": "names nope",
    "help": "--help",
}
OUTPUT = {  # of a feed of policy, in the place of obs/robot0_eef_pos: {at: 0}
    "at_word": {"at": "now"},
    "at_reversed": {"at": "3..1"},
    "at_future": {"at": "0..3"},
    "unknown_key": {"at": 0, "sped": 3},
    "no_stream": {"from": "obs/nope", "at": 0},
    "kind": {"at": 0, "kind": "cubic"},
    "dtype": {"at": 0, "dtype": "complex"},
    "dtype_wide": {"at": 0, "dtype": "int8"},
    "role": {"at": 0, "role": "state"},
    "max_age": {"at": 0, "max_age": "soon"},
    "goal": {"goal": {"from": "first", "of": "actions"}},
    "goal_gamma": {"goal": {"from": "future", "p": "geometric", "of": "actions"}},
    "return": {"from": "rewards", "at": 0, "return": {"gamma": 1}},
    "return_gamma": {"from": "rewards", "at": 0, "role": "action", "return": {"gamma": 2}},
    "rotation": {"at": 0, "rotation": {"from": "quaternion", "to": "rot6d"}},
    "rotation_width": {"at": 0, "rotation": {"from": "quat_xyzw", "to": "rot6d"}},
    "relative": {"at": 0, "relative_to": "obs/robot0_joint_pos"},
    "relative_frame": {"at": 0, "relative_to": {"from": "obs/robot0_eef_pos", "frame": "world"}},
    "relative_mask": {"at": 0, "relative_to": {"from": "obs/robot0_eef_pos", "mask": [True]}},
    "norm": {"at": 0, "norm": "sigma"},
    "norm_numbers": {"at": 0, "norm": {"scale": [1]}},
    "norm_file": {"at": 0, "norm": {"by": "mean_std", "stats": "nope.json"}},
    "norm_per": {"at": 0, "norm": {"by": "mean_std", "per": "window"}},
    "image": {"at": 0, "image": {}},
    "preset": {"at": 0, "preset": "nope"},
    "preset_openpi": {"preset": "openpi"},
    "join": {"from": ["obs/robot0_eef_pos", "obs/robot0_eef_pos", "nope"], "at": 0},
    "width": {"at": 0, "width": "5ms"},
}
FEED = {
    "dataset": {"dataset": "nope"},
    "no_batch": {"global_batch": None},
    "batch_0": {"global_batch": 0},
    "batch_large": {"global_batch": 5000},
    "anchor": {"anchor": {"clock": "nope"}},
    "anchor_none": {"anchor": None},
    "pad": {"pad": {"before": -1}},
    "pad_with": {"pad": {"with": "mirror"}},
    "pad_typo": {"pad": {"befor": 1}},
    "order": {"order": "random"},
    "tail": {"tail": "keep"},
    "split": {"split": "0.9..0.1"},
    "hold_out": {"split": {"hold_out": 99, "take": "train"}},
    "filter": {"filter": "nope"},
    "episodes": {"episodes": ["demo_99"]},
    "where": {"where": {"language": ["fly"]}},
    "where_key": {"where": {"colour": ["red"]}},
    "ranges": {"ranges": "nope.json"},
    "epoch": {"epoch": -5},
    "windows": {"windows": "some"},
    "rate": {"rate": "x"},
    "slots": {"slots": 1},
    "seed": {"seed": "x"},
    "statistics_from": {"statistics_from": "nope"},
    "no_outputs": {"outputs": {}},
    "like": {"like": "nope"},
    "block": {"windows": "one_per_episode", "order": "blocked"},
    "too_short": {"pad": {"before": 0, "after": 0}, "outputs": {"actions": {"at": "0..500"}}},
    "fan_out": {"fan_out": {"jobs": 0}},
}
CAMERA = {
    "crop_large": {"crop": [500, 500]},
    "resize_0": {"resize": 0},
    "fit": {"resize": 9, "fit": "squeeze"},
    "filter": {"resize": 9, "filter": "cubic"},
    "area": {"resize": 500, "filter": "area"},
    "preset": {"preset": "nope"},
    "view": {"preset": "act", "view": "wrist"},
    "step": {"augment": [{"blur": 3}]},
    "step_two": {"augment": [{"crop": [9, 9], "flip": 0.5}]},
    "hue": {"augment": [{"hue": 0.9}]},
    "draw": {"augment": [{"flip": 0.5}], "draw": "never"},
    "rounding": {"augment": [{"hue": 0.1}], "rounding": "end"},
    "p": {"augment": [{"flip": 2}]},
    "channels": {"channels": "xyz"},
}
WHOLE = {
    "version": {"version": 2},
    "unknown": {"sets": {}},
    "no_datasets": {"datasets": {}},
    "path": {"datasets": {"policy": {"path": "nope.hdf5", "layout": "robomimic"}}},
    "layout": {"datasets": {"policy": {"path": POLICY, "layout": "nope"}}},
    "rate": {"datasets": {"policy": {"path": POLICY, "layout": "robomimic", "rate": 0}}},
    "quarantine": {
        "datasets": {
            "policy": {"path": "data/folder", "layout": "robomimic", "quarantine": {"at_most": 0}}
        }
    },
    "store": {"memory": {"store": "huge"}},
    "store_small": {"memory": {"store": "1KiB"}},
    "gpu": {"gpu": {"devices": "all"}},
    "tcp": {"listen": {"tcp": "here"}},
    "threads": {"threads": {"readers": -1}},
}
STREAM = {
    "kind": {"kind": "spline"},
    "order": {"kind": "slerp", "order": "xywz"},
    "no_order": {"kind": "slerp"},
    "clock": {"clock": "nope"},
    "columns": {"columns": "3:1"},
    "columns_many": {"columns": "0:9"},
    "max_gap": {"max_gap": "x"},
    "unknown": {"knd": "linear"},
    "rows": {"rows": "last"},
    "semantics": {"kind": "linear", "semantics": "delta"},
    "image": {"image": {"color": "rgb"}},
    "path": {"path": "nope"},
    "glob": {"path": "*/*"},
}


def record(part, build):
    """Runs what is wrong, and the commands whose warnings users read."""
    net_feeds.write_files()
    for name, arguments in COMMANDS.items():
        hear(part, build, f"commands/{name}", *arguments.split())
    for place, cases in {"output": OUTPUT, "feed": FEED, "camera": CAMERA, "whole": WHOLE}.items():
        for name, change in cases.items():
            if part.has(f"{place}/{name}"):
                write_config("wrong.yaml", build.complete(WRONG[place](change)))
                hear(
                    part,
                    build,
                    f"{place}/{name}",
                    "--config",
                    "wrong.yaml",
                    "--check",
                    program=build.daemon_program,
                )
    for name, change in STREAM.items():
        if part.has(f"layout/{name}"):
            layout = copy.deepcopy(LAB_LAYOUT)
            layout["streams"]["pos"].update(change)
            write_config("wrong_layout.yaml", layout)
            hear(
                part,
                build,
                f"layout/{name}",
                "inspect",
                "data/lab.hdf5",
                "--layout",
                "./wrong_layout.yaml",
            )
    record_yaml(part, build)
    record_python(part, build)


def hear(part, build, name, *arguments, **options):
    """Adds exit status and all that a command writes; the JSON of a plan is in the part `json`."""
    if part.has(name):
        done = build.run(*arguments, **options)
        text = done.stderr if done.returncode == 0 else done.stdout + done.stderr
        part.text(name, f"{text}exit status {done.returncode}\n", *TIMES)


def config(feed=None, datasets=None, **more):
    known = {"policy": net_families.DATASETS["policy"]}
    return {
        "datasets": known if datasets is None else datasets,
        "feeds": {"train": feed or net_families.policy()},
        **more,
    }


def of_feed(change):
    keys = {**net_families.policy(), **change}
    return config({key: value for key, value in keys.items() if value is not None})


def of_camera(image):
    feed = {
        "dataset": "cameras",
        "global_batch": 4,
        "anchor": {"clock": "steps"},
        "outputs": {"raw": {"at": 0, "image": image}},
    }
    return config(feed, {"cameras": {"path": "data/cameras.hdf5", "layout": "./data/cameras.yaml"}})


WRONG = {
    "output": lambda change: config(
        net_families.policy({net_families.POS: change, "actions": {"at": 0}})
    ),
    "feed": of_feed,
    "camera": of_camera,
    "whole": lambda change: config(**change),
}


def record_yaml(part, build):
    """Texts that are not YAML, or not a mapping."""
    texts = {
        "empty": "",
        "list": "- a\n",
        "tab": "version: 1\n\tdatasets: {}\n",
        "twice": "version: 1\nversion: 1\n",
        "anchor": "version: &a 1\n",
        "open": "version: {1\n",
        "binary": "\0\1\2",
    }
    for name, text in texts.items():
        pathlib.Path("text.yaml").write_text(text)
        hear(part, build, f"yaml/{name}", "check", "text.yaml")
        hear(part, build, f"yaml/layout_{name}", "inspect", POLICY, "--layout", "./text.yaml")


def record_python(part, build):
    """Exceptions of the Python package."""
    import numpy as np
    import trajd

    values, times = np.zeros((4, 3), "f4"), np.arange(4) * 10**7
    calls = {
        "kind": {"kind": "cubic"},
        "order": {"kind": "slerp"},
        "slerp_of_3": {"kind": "slerp", "order": "xyzw"},
        "width": {"kind": "mean"},
        "short_width": {"kind": "mean", "width": 50},
        "unit": {"max_gap": "50"},
        "pad": {"pad": "mirror"},
        "dtype": {"dtype": "complex64"},
        "period": {"kind": "angle", "period": -1.0},
        "out": {"out": np.zeros((2, 3), "f4")},
        "splits": {"row_splits": [0, 9]},
        "seconds": {"max_gap": 0.5},
    }
    for name, options in calls.items():
        except_of(
            part,
            f"python/resample_{name}",
            lambda options=options: trajd.resample(values, times, times, **options),
        )
    except_of(part, "python/descending", lambda: trajd.resample(values, times[::-1].copy(), times))
    except_of(part, "python/shapes", lambda: trajd.resample(values, times[:2], times))
    except_of(part, "python/open_missing", lambda: trajd.open("nope.yaml", feed="train"))
    except_of(part, "python/option", lambda: trajd.connect("nowhere", feed="train", styl="raw"))
    except_of(part, "python/style", lambda: trajd.connect("nowhere", feed="train", style="nope"))
    except_of(part, "python/live_missing", lambda: trajd.Live("nope.live"))
    pathlib.Path("broken.live").write_text('{"trajd_live": 1}\n')
    except_of(part, "python/live_broken", lambda: trajd.Live("broken.live"))


def except_of(part, name, work):
    if part.has(name):
        try:
            work()
            part.text(name, "no exception")
        except Exception as error:
            part.text(name, f"{type(error).__name__}: {error}", *TIMES)
