"""The feeds of the net, in groups that share a daemon and its datasets. A group: {feed's name:
its keys}.

The groups of images are in net_image_families.py. Each key of configs/trajd.yaml that decides
values is in one of them.
"""

DATASETS = {
    "policy": {"path": "data/policy.hdf5", "layout": "robomimic"},
    "other": {"path": "data/other.hdf5", "layout": "robomimic"},
    "folder": {"path": "data/folder", "layout": "robomimic"},
    "lab": {"path": "data/lab.hdf5", "layout": "./data/lab.yaml"},
    **{
        kind: {"path": "data/odd/joined.hdf5", "layout": f"./data/odd/{kind}.yaml"}
        for kind in ("flags", "lengths", "ends", "starts")
    },
    "faulty": {"path": "data/odd/faulty.hdf5", "layout": "./data/odd/stamps_drop.yaml"},
    "faster": {"path": "data/odd/joined.hdf5", "layout": "./data/odd/ends.yaml", "rate": 50},
}

POS, QUAT, GRIP = "obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos"
POLICY_OUTPUTS = {
    POS: {"at": "-1..0"},
    QUAT: {"at": "-1..0"},
    GRIP: {"at": "-1..0"},
    "actions": {"at": "-1..14"},
}
MASK7 = [True, True, True, True, True, True, False]


def policy(outputs=None, **keys):
    """A feed as of robomimic or diffusion_policy."""
    return {
        "dataset": "policy",
        "global_batch": 32,
        "anchor": {"clock": "actions"},
        "pad": {"before": 1, "after": "any", "with": "edge"},
        "outputs": outputs or POLICY_OUTPUTS,
        **keys,
    }


def lab(outputs, clock="pose", **keys):
    """A feed of streams with several clocks. The names of outputs are those of streams, unless they
    have `from`."""
    return {
        "dataset": "lab",
        "global_batch": 24,
        "anchor": clock if isinstance(clock, dict) else {"clock": clock},
        "pad": {"before": "any", "after": "any", "with": "edge"},
        "outputs": outputs,
        **keys,
    }


WINDOWS = {
    "policy": policy(),
    "frame_stack": policy(
        {name: {"at": "-1..15", "role": "action"} for name in POLICY_OUTPUTS},
        pad={"before": 1, "after": 0},
    ),
    **{
        f"pad_{value}": policy(pad={"before": "any", "after": "any", "with": value})
        for value in ("edge", "zero", "nan")
    },
    "pad_none": policy(pad={"before": 0, "after": 0}),
    "pad_some": policy(
        pad={"before": 2, "after": 3, "with": "zero"},
        outputs={POS: {"at": "-4..0"}, "actions": {"at": "0..9"}},
    ),
    **{
        f"order_{order}": policy(order=order, block={"windows": 64, "neighbours": 3})
        for order in ("blocked", "sequential")
    },
    "order_blocked_large": policy(order="blocked", block={"windows": 200, "neighbours": 1}, seed=4),
    **{f"tail_{tail}": policy(tail=tail, global_batch=100) for tail in ("drop", "wrap", "short")},
    "tail_short_blocked": policy(
        tail="short", global_batch=77, order="blocked", block={"windows": 50, "neighbours": 2}
    ),
    "seed": policy(seed=123456789),
    "filter": policy(filter="few"),
    "epoch": policy(epoch=500),
    "epoch_longer": policy(epoch=3000, tail="wrap"),
    "one_per_episode": policy(windows="one_per_episode", global_batch=5),
    "one_per_episode_more": policy(windows="one_per_episode", epoch=40, global_batch=8),
    "episodes": policy(episodes=["1..3", 5, "demo_9"]),
    "split_begin": policy(split="0..0.6"),
    "split_end": policy(split="0.6..1"),
    "hold_out_train": policy(split={"hold_out": 3, "take": "train"}),
    "hold_out_valid": policy(split={"hold_out": 3, "take": "validation"}, global_batch=8),
    "ranges": policy(ranges="ranges.json"),
    "where": policy(dataset="folder", where={"language": ["task 1", "task 2"]}, global_batch=9),
    "folder": policy(dataset="folder", global_batch=9, seed=2),
    "anchor_rate": policy(anchor={"rate": 7}),
    "rate": policy(rate=50, anchor={"clock": "actions"}),
    "rate_ntsc": policy(rate=29.97),
    "rate_fraction": policy(rate="30000/1001", anchor={"rate": "30000/1001"}),
    "next": policy(
        {
            POS: {"at": "-1..0"},
            "next_pos": {"from": POS, "at": 1, "role": "next"},
            "next_obs/robot0_eef_quat": {"at": 0, "role": "next"},
            "actions": {"at": 0},
        }
    ),
    "everything": policy(
        {
            name: {"at": "-1..1", "role": "action"}
            for name in (
                "actions",
                "actions_abs",
                "rewards",
                "dones",
                "action_dict/gripper",
                "states",
                "obs/object",
                "obs/robot0_joint_pos",
                "next_obs/robot0_eef_pos",
            )
        }
    ),
    # regular rows on twice their rate: gaps, ages, widths and middles that are exactly at their
    # limits
    "exact_kinds": policy(
        {
            kind: {"from": POS, "at": "-6..0", "kind": kind, "max_gap": "50ms", "lookahead": "25ms"}
            for kind in ("linear", "nearest", "previous", "mean")
        },
        rate=40,
        anchor={"rate": 40},
    ),
    "exact_limits": policy(
        {
            "gap": {"from": POS, "at": "-6..0", "max_gap": "50ms"},
            "less": {"from": POS, "at": "-6..0", "max_gap": "49ms"},
            "age": {"from": GRIP, "at": "-6..0", "max_age": "25ms"},
            "old": {"from": GRIP, "at": "-6..0", "max_age": "24ms"},
            "later": {"from": GRIP, "at": "0..4", "role": "action", "max_age": "50ms"},
            "ahead": {"from": POS, "at": "-1..2", "lookahead": "50ms"},
            "quat": {"from": QUAT, "at": "-3..0", "max_gap": "50ms"},
            "mean": {"from": POS, "at": "-6..0", "kind": "mean", "width": "100ms"},
            "short": {"from": POS, "at": "-6..0", "kind": "mean", "width": "50ms"},
        },
        rate=40,
        anchor={"rate": 40},
    ),
    "large": policy(global_batch=1, outputs={POS: {"at": "-1..0"}, "actions": {"at": "0..3"}}),
    **{
        f"cut_{kind}": {
            "dataset": kind,
            "global_batch": 7,
            "anchor": {"clock": "steps"},
            "tail": "short",
            "outputs": {"pos": {"at": "-2..0"}, "actions": {"at": "0..3"}},
        }
        for kind in ("flags", "lengths", "ends", "starts", "faster")
    },
    "faulty": {
        "dataset": "faulty",
        "global_batch": 7,
        "anchor": {"clock": "steps"},
        "rate": 20,
        "outputs": {"pos": {"at": "-2..0", "max_gap": "200ms"}, "actions": {"at": "0..3"}},
    },
}

TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
CLOCKS = {
    "all_kinds": lab(
        {
            "joints": {"at": "-3..0"},
            "degrees": {"at": "-3..0", "range_low": -180},
            "velocity": {"at": "-3..0"},
            "pos": {"at": "-3..0"},
            "quat": {"at": "-3..0"},
            "wxyz": {"at": "-3..0"},
            "wrench": {"at": "-3..0"},
            "grip": {"at": "-3..0"},
            "grip_near": {"at": "-3..0"},
            "axis": {"at": "-1..0"},
            "frame": {"at": "-1..0"},
            "holes": {"at": "-3..0"},
            "table_quat": {"at": "-3..0"},
            "actions": {"at": "0..7"},
        },
        rate=15,
    ),
    "other_kinds": lab(
        {
            **{
                f"pos_{kind}": {"from": "pos", "at": "-4..0", "kind": kind}
                for kind in ("linear", "previous", "nearest", "mean")
            },
            **{
                f"joints_{kind}": {"from": "joints", "at": "-4..0", "kind": kind}
                for kind in ("nearest", "previous")
            },
            "wide": {"from": "wrench", "at": "-4..0", "width": "80ms"},
            "narrow": {"from": "wrench", "at": "-4..0", "width": "1500us"},
            "turned": {"from": "joints", "at": "-1..0", "range_low": 0},
        },
        rate=22,
        clock="arm",
        global_batch=64,
    ),
    "history_in_time": lab(
        {
            "joints": {"at": "-100ms..0ms @ 100"},
            "pos": {"at": "-500ms..0ms @ 10"},
            "quat": {"at": "-3..0 @ 29.97"},
            "grip": {"at": "-250ms..50ms @ 40", "lookahead": "60ms"},
            "actions": {"at": "0ms..330ms @ 30", "role": "action"},
        },
        clock="cam",
        rate=29.97,
    ),
    "limits": lab(
        {
            "joints": {"at": "-4..0", "max_gap": "8ms"},
            "grip": {"at": "-4..0", "max_age": "30ms"},
            "velocity": {"at": "-4..0"},
            "pos": {"at": "-4..2", "max_gap": "25ms", "lookahead": "100ms"},
            "wrench": {"at": "-4..0", "max_gap": "2ms", "max_age": "10ms"},
            "later": {"from": "pos", "at": "0..9", "role": "action", "max_age": "70ms"},
        },
        rate=30,
    ),
    **{
        f"clock_{clock}": lab(
            {
                "pos": {"at": "-2..0"},
                "quat": {"at": "-2..0"},
                "joints": {"at": "-2..0"},
                "actions": {"at": "0..2"},
                "table_pos": {"at": "-1..0"},
            },
            clock=clock,
            global_batch=64,
        )
        for clock in ("pose", "cam", "grip", "table", "steps")
    },
    "clock_arm": lab({"joints": {"at": "-2..0"}, "pos": {"at": 0}}, clock="arm", global_batch=128),
    "clock_force": lab(
        {"wrench": {"at": "-9..0"}, "joints": {"at": 0}}, clock="force", global_batch=256
    ),
    "clock_rate": lab(
        {
            "pos": {"at": "-2..0"},
            "wrench": {"at": "-2..0"},
            "move": {"at": "0..3", "role": "action"},
            "actions": {"at": "0..5"},
        },
        clock={"rate": 17},
    ),
    **{
        f"edge_{value}": lab(
            {
                "pos": {"at": "-9..0"},
                "grip_near": {"at": "-9..0"},
                "types/u4": {"at": "-9..0"},
                "actions": {"at": "0..9"},
            },
            rate=20,
            pad={"before": "any", "after": "any", "with": value},
        )
        for value in ("edge", "zero")
    },
    "edge_nan": lab(
        {"pos": {"at": "-9..0"}, "quat": {"at": "-9..0"}, "actions": {"at": "0..9"}},
        rate=20,
        pad={"before": "any", "after": "any", "with": "nan"},
    ),
    "types_kept": lab(
        {**{f"types/{name}": {"at": "-1..0"} for name in TYPES}, "flags/bool": {"at": "-1..0"}},
        clock="steps",
    ),
    "types_blended": lab({f"types/{name}": {"at": "-1..0"} for name in TYPES}, rate=45),
    **{
        f"to_{dtype}": lab(
            {
                name: {"at": "-2..0", "dtype": dtype}
                for name in (
                    ("quat", "types/f8", "table_pos", "joints")
                    + (("pos", "wrench", "types/f4") if dtype != "float64" else ())
                )
            },
            rate=33,
        )
        for dtype in ("float16", "bfloat16", "float32", "float64")
    },
    "deltas": lab(
        {
            "delta": {"at": "-5..-1"},
            "move": {"at": "0..6", "role": "action"},
            "slow": {"from": "move", "at": "0..2 @ 5", "role": "action"},
            "fast": {"from": "move", "at": "0..9 @ 90", "role": "action", "max_gap": "20ms"},
            "scaled": {"from": "delta", "at": "0..4", "role": "action", "norm": "mean_std"},
        },
        rate=20,
    ),
    "deltas_exact": lab(
        {
            "move": {"at": "0..5", "role": "action"},
            "gap": {"from": "move", "at": "0..5", "role": "action", "max_gap": "33366666ns"},
        },
        clock="steps",
        rate="10000/1001",
    ),
    "deltas_nan": lab(
        {"move": {"at": "0..9", "role": "action", "dtype": "float64"}},
        rate=13,
        pad={"before": "any", "after": "any", "with": "nan"},
    ),
    **{
        f"missing_{what}": lab(
            {
                "pos": {"at": "-1..0"},
                "touch": {"at": "-1..0", "missing": what},
                "wrench16": {"at": "-1..0", "missing": what},
            },
            rate=20,
        )
        for what in ("zero", "skip")
    },
    "joined": lab(
        {
            "state": {"from": ["pos", "quat", "touch", "grip"], "at": "-1..0", "missing": "zero"},
            "command": {"from": ["actions", "move", "grip_near"], "at": "0..3", "role": "action"},
        },
        rate=20,
    ),
    "meta": lab(
        {"pos": {"at": 0}, "actions": {"at": 0}},
        clock="steps",
        where={"language": ["pick", "fold"], "place": "room 0"},
    ),
    "filter": lab({"pos": {"at": 0}, "actions": {"at": 0}}, clock="steps", filter="train"),
}

FORMS = (
    "quat_xyzw",
    "quat_wxyz",
    "axis_angle",
    "matrix",
    "rot6d",
    "euler_xyz",
    "euler_zyx",
    "euler_XYZ",
    "euler_ZYX",
    "euler_xzy",
    "euler_yxz",
    "euler_yzx",
    "euler_zxy",
    "euler_XZY",
    "euler_YXZ",
    "euler_YZX",
    "euler_ZXY",
)
SOURCES = {
    "quat_xyzw": "quat",
    "quat_wxyz": "wxyz",
    "axis_angle": "axis",
    "matrix": "matrix",
    "rot6d": "rot6d",
    "euler_xyz": "euler",
}


def pose(**more):
    """An output of a position and a rotation vector, whose state is the same."""
    return {
        "from": ["pos", "axis"],
        "at": "0..5",
        "role": "action",
        "rotation": {"from": "axis_angle", "to": "rot6d", "columns": "3:6", "position": "0:3"},
        "relative_to": {"from": ["pos", "axis"]},
        **more,
    }


def state_of(**more):
    return {"from": ["pos", "quat"], "rotation": "quat_xyzw", **more}


NORM = ("min_max", "mean_std", "q01_q99")
JOINTS = "obs/robot0_joint_pos"
TRANSFORMS = {
    **{
        f"rotation_{source}": lab(
            {
                f"to_{form}": {
                    "from": stream,
                    "at": "-2..0",
                    "rotation": {"from": source, "to": form},
                }
                for form in FORMS
            },
            rate=37,
        )
        for source, stream in SOURCES.items()
    },
    "rotation_list": lab(
        {
            "two": {
                "from": ["pos", "quat", "axis"],
                "at": "-1..0",
                "rotation": [
                    {"from": "quat_xyzw", "to": "rot6d", "columns": "3:7"},
                    {"from": "axis_angle", "to": "quat_wxyz", "columns": "7:10"},
                ],
            }
        },
        rate=20,
    ),
    "relative": lab(
        {
            "plain": {"from": "pos", "at": "0..5", "role": "action", "relative_to": "pos"},
            "list": {
                "from": ["pos", "grip"],
                "at": "0..5",
                "role": "action",
                "relative_to": {
                    "from": ["pos", "grip"],
                    "mask": [True, True, True, False],
                    "kind": "previous",
                },
            },
            "fewer": {
                "from": ["pos", "grip"],
                "at": "0..5",
                "role": "action",
                "relative_to": {"from": "pos", "mask": [True, True, True, False]},
            },
            "angles": {
                "from": "joints",
                "at": "0..5",
                "role": "action",
                "relative_to": {"from": "joints", "kind": "nearest"},
            },
            "steps": {
                "from": "pos",
                "at": "0..5",
                "role": "action",
                "relative_to": {"from": "pos", "step": "before"},
            },
            "angle_steps": {
                "from": "joints",
                "at": "0..5",
                "role": "action",
                "relative_to": {"from": "joints", "step": "before", "kind": "previous"},
            },
            "other_kind": {
                "from": "pos",
                "at": "0..5",
                "role": "action",
                "relative_to": {"from": "pos", "kind": "nearest"},
            },
            "observed": {"from": "pos", "at": "-4..0", "relative_to": "pos"},
        },
        rate=18,
    ),
    "poses": lab(
        {
            "anchor": pose(),
            "base": pose(
                relative_to={"from": ["pos", "axis"], "frame": "base"},
                rotation={"from": "axis_angle", "to": "quat_xyzw", "columns": "3:6"},
            ),
            "before": pose(relative_to={"from": ["pos", "axis"], "step": "before"}),
            "before_base": pose(
                relative_to={"from": ["pos", "axis"], "step": "before", "frame": "base"},
                rotation={"from": "axis_angle", "columns": "3:6"},
            ),
            "of_quaternions": pose(relative_to=state_of()),
            "euler": pose(
                rotation={
                    "from": "axis_angle",
                    "to": "euler_ZYX",
                    "columns": "3:6",
                    "position": "0:3",
                }
            ),
            "scaled": pose(norm="q01_q99"),
            "per_step": pose(norm={"by": "mean_std", "per": "step"}),
        },
        rate=18,
    ),
    **{
        f"norm_{by}": policy(
            {
                POS: {"at": "-1..0", "norm": by},
                JOINTS: {"at": "-1..0", "norm": {"by": by, "over": "windows"}},
                "obs/object": {"at": "-1..0", "norm": {"by": by, "mask": [True] * 9 + [False]}},
                "actions": {"at": "-1..14", "norm": {"by": by, "mask": MASK7}},
                "actions_abs": {"at": "0..5", "norm": {"by": by, "per": "step"}},
                "states": {
                    "at": "-1..0",
                    "norm": {"by": by, "over": "windows"},
                    "dtype": "float64",
                },
            }
        )
        for by in NORM
    },
    "norm_min_std": policy(
        {
            POS: {"at": 0, "norm": {"by": "mean_std", "min_std": 0.3}},
            "actions": {"at": 0, "norm": {"by": "mean_std", "min_std": 0.01}},
        }
    ),
    "norm_numbers": policy(
        {
            POS: {"at": 0, "norm": {"scale": [1, 2, 0.5], "offset": [0, -1, 0.25]}},
            "actions": {"at": "0..3"},
        }
    ),
    "norm_filter": policy(
        {POS: {"at": 0, "norm": "mean_std"}, "actions": {"at": "0..3", "norm": "min_max"}},
        filter="train",
    ),
    "norm_from": policy(
        {POS: {"at": 0, "norm": "mean_std"}, "actions": {"at": "0..3", "norm": "min_max"}},
        filter="valid",
        statistics_from="norm_filter",
    ),
    "norm_ranges": policy(
        {POS: {"at": 0, "norm": "mean_std"}, "actions": {"at": "0..3", "norm": "min_max"}},
        ranges="ranges.json",
    ),
    "norm_clocks": lab(
        {
            "pos": {"at": "-1..0", "norm": "min_max"},
            "wrench": {"at": "-1..0", "norm": "mean_std"},
            "joints": {"at": "-1..0", "norm": "q01_q99"},
            "holes": {"at": "-1..0", "norm": "mean_std"},
            "types/i4": {"at": "0", "norm": "min_max"},
            "actions": {"at": "0..3", "norm": "q01_q99"},
        },
        rate=25,
    ),
    "norm_rotated": lab(
        {
            "quat": {
                "at": "-1..0",
                "rotation": {"from": "quat_xyzw", "to": "rot6d"},
                "norm": "mean_std",
            }
        },
        rate=25,
    ),
    "norm_file": policy(
        {
            POS: {"at": 0, "norm": {"by": "mean_std", "stats": "stats_trajd.json", "key": "place"}},
            "actions": {"at": 0, "norm": {"by": "min_max", "stats": "stats_trajd.json"}},
        }
    ),
    "norm_openpi": policy(
        {
            POS: {"at": 0, "norm": {"by": "q01_q99", "stats": "norm_stats.json", "key": "state"}},
            "actions": {"at": "0..3", "norm": {"by": "mean_std", "stats": "norm_stats.json"}},
        }
    ),
    "preset_openpi": policy(
        {
            "actions": {
                "from": JOINTS,
                "preset": "openpi",
                "relative_to": {"from": JOINTS, "mask": MASK7},
            }
        }
    ),
    "preset_gr00t": policy(
        {
            "actions": {
                "from": JOINTS,
                "preset": "gr00t",
                "relative_to": {"from": JOINTS, "mask": MASK7},
            }
        }
    ),
    "preset_umi": lab(
        {
            "actions": {
                **{key: value for key, value in pose().items() if key != "at"},
                "preset": "umi",
                "rotation": {"from": "axis_angle", "columns": "3:6", "position": "0:3"},
            }
        }
    ),
    **{
        f"preset_{preset}": policy({JOINTS: {"at": 0}, "actions": {"preset": preset}})
        for preset in ("act", "act_real", "diffusion_policy", "octo")
    },
    "like": {"like": "norm_min_max", "filter": "valid", "outputs": {"states": None}},
}

TARGETS = {
    "goals": policy(
        {
            POS: {"at": "-1..0"},
            "actions": {"at": "0..3"},
            "goal/last": {"goal": {"from": "last", "of": POS}},
            "goal/future": {"goal": {"from": "future", "of": [POS, QUAT]}},
            "goal/near": {
                "at": "-1..0",
                "goal": {"from": "future", "p": "geometric", "gamma": 0.8, "of": POS},
                "norm": "mean_std",
            },
            "goal/far": {"goal": {"from": "future", "p": "geometric", "gamma": 0.99, "of": GRIP}},
        }
    ),
    "goals_ranges": policy(
        {"goal/future": {"goal": {"from": "future", "of": POS}}, "actions": {"at": 0}},
        ranges="ranges.json",
        seed=8,
    ),
    "goals_clocks": lab(
        {
            "goal/quat": {"at": "-2..0", "goal": {"from": "future", "of": "quat"}},
            "goal/last": {"goal": {"from": "last", "of": ["wrench", "joints"]}},
            "pos": {"at": 0},
        },
        rate=21,
    ),
    "returns": policy(
        {
            POS: {"at": 0},
            "rest": {"from": "rewards", "at": "0..7", "return": {"gamma": 0.9}, "dtype": "float64"},
            "ever": {"from": "rewards", "at": "-1..2", "role": "action", "return": {"gamma": 1}},
            "chunk": {
                "from": "rewards",
                "at": "0..7",
                "role": "action",
                "return": {"gamma": 0.9, "until": "chunk"},
            },
            "done": {
                "from": "dones",
                "at": "0..7",
                "role": "action",
                "return": {"gamma": 1, "until": "chunk"},
            },
            "next": {"from": ["rewards"], "at": 0, "role": "next", "return": {"gamma": 0.5}},
        },
        pad={"before": "any", "after": "any", "with": "zero"},
    ),
    "returns_scaled": policy(
        {
            "rest": {
                "from": "rewards",
                "at": "0..3",
                "role": "action",
                "return": {"gamma": 0.9},
                "norm": "mean_std",
                "dtype": "float64",
            },
            "chunk": {
                "from": "rewards",
                "at": "0..3",
                "role": "action",
                "return": {"gamma": 0.9, "until": "chunk"},
                "norm": {"by": "min_max", "over": "windows"},
            },
        }
    ),
}
for keys in (TARGETS["returns"], TARGETS["returns_scaled"]):
    for output in keys["outputs"].values():
        if "return" in output:
            output.setdefault("role", "action")

MIXED = {POS: {"at": "-1..0"}, QUAT: {"at": "-1..0"}, "actions": {"at": "0..3"}}


def mixture(mix, outputs=None, **keys):
    return {
        "mix": mix,
        "global_batch": 20,
        "anchor": {"clock": "actions"},
        "pad": {"before": "any", "after": "any", "with": "edge"},
        "outputs": outputs or MIXED,
        **keys,
    }


MIXTURES = {
    "weights": mixture({"policy": 7, "other": 3}),
    "weights_three": mixture({"policy": 5, "other": 2, "folder": 3}, epoch=4000),
    "by_size": mixture({"by": "size", "datasets": ["policy", "other"]}),
    "blocked": mixture(
        {"policy": 2, "other": 1}, order="blocked", block={"windows": 100, "neighbours": 2}
    ),
    "scaled": mixture(
        {"policy": 7, "other": 3},
        {POS: {"at": "-1..0", "norm": "mean_std"}, "actions": {"at": "0..3", "norm": "min_max"}},
    ),
    "keys": mixture(
        {
            "policy": {"weight": 7, "filter": "train", "split": "0..0.8"},
            "other": {
                "weight": 3,
                "episodes": [0, 2, 3],
                "streams": {POS: "states", "actions": ["actions_abs", "dones"]},
            },
        },
        {POS: {"at": "-1..0", "missing": "zero"}, "actions": {"at": "0..3"}},
    ),
    "one_per_episode": mixture({"policy": 1, "folder": 1}, windows="one_per_episode"),
    "lab": mixture(
        {
            "policy": {"weight": 2},
            "lab": {
                "weight": 1,
                "anchor": {"clock": "pose"},
                "streams": {POS: "pos", QUAT: "quat"},
            },
        },
        rate=20,
    ),
    "wrap": mixture({"policy": 3, "other": 1}, tail="wrap", seed=9),
}
MIXTURES["keys"]["mix"]["other"]["streams"] = {
    POS: "obs/robot0_eef_pos",
    "actions": ["obs/robot0_eef_pos", "obs/robot0_eef_quat"],
}

GROUPS = {
    "windows": WINDOWS,
    "clocks": CLOCKS,
    "transforms": TRANSFORMS,
    "targets": TARGETS,
    "mixtures": MIXTURES,
}
RANGES = {
    "demo_0": [[0, 51], [60, 153]],
    "demo_1": [],
    "demo_4": [[10, 200]],
    "demo_7": [[1, 2], [50, 170]],
}
