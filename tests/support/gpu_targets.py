"""A recording and feeds whose outputs have transforms or are sums, for GPUs, simulated ones and real ones.

gpu_bundle.sh writes the recording, so that a machine with a GPU needs no h5py."""
import pathlib

LAYOUT = """
layout: lab
episodes: {files: "*.hdf5", groups: /ep_*}
clocks:
  arm:  {path: arm_t, unit: ns}
  base: {rate: 60, rows: twist, start: {path: base_t0, unit: ns}}
streams:
  actions: {clock: arm, kind: previous}
  place:   {clock: arm, kind: linear}
  turn:    {clock: arm, kind: linear}
  quat:    {path: quat, clock: base, kind: slerp, order: xyzw}
  where:   {clock: base, kind: linear}
  joints:  {clock: arm, kind: linear}
  yaw:     {clock: arm, kind: angle}
  move:    {clock: arm, kind: previous, semantics: delta, max_gap: 90ms}
  twist:   {clock: base, kind: previous, semantics: delta}
  rewards: {clock: arm, kind: previous}
"""
POSE = 'rotation: {from: axis_angle, to: rot6d, columns: "3:6", position: "0:3"}'
UNPLACED = 'rotation: {from: axis_angle, to: %s, columns: "3:6"}'
MASK = "mask: [true, true, true, true, true, true, false]"
STATE = f"relative_to: {{from: [place, turn], {MASK}%s}}"
FEEDS = {  # name: (keys of the feed, outputs)
    "openpi": ("anchor: {clock: arm}", {
        "state": "{from: joints, at: 0}",
        "actions": "{from: joints, preset: openpi, relative_to: {from: joints, mask: [true, true, true, true, true, true, false]}}"}),
    "umi": ("anchor: {clock: arm}", {
        "state": "{from: [place, turn], at: -1..0}", "actions": f"{{preset: umi, {POSE}, {STATE % ''}}}"}),
    "gr00t": ("anchor: {clock: arm}", {"actions": f"{{preset: gr00t, {POSE}, {STATE % ''}}}", "joints": "{at: -1..0, norm: mean_std}"}),
    "act": ("anchor: {clock: arm}", {"joints": "{at: 0, norm: mean_std}", "actions": "{preset: act}"}),
    "steps": ("anchor: {clock: arm}", {
        "actions": f"{{at: 0..15, {POSE}, {STATE % ', step: before'}, norm: {{by: mean_std, per: step}}}}",
        "based": f"{{from: actions, at: 0..7, role: action, dtype: float64, {UNPLACED % 'euler_XYZ'}, {STATE % ', frame: base'}}}",
        "half": f"{{from: actions, at: 0..7, role: action, dtype: float16, {UNPLACED % 'matrix'}}}",
        "wide": "{from: joints, at: 0..3, role: action, norm: {by: min_max, per: step}}",
        "yaw": "{at: 0..7, role: action, relative_to: yaw}", "plain": "{from: joints, at: -2..0}"}),
    # steps between the rows: rotations in the file's form are blended by slerp
    "rates": ("anchor: {rate: 9}\n    rate: 15", {
        "actions": f"{{from: [place, turn, grip], at: 0..15, role: action, {POSE}, {STATE % ', kind: linear'}, norm: mean_std}}",
        "eef": '{from: [where, quat], at: 0..9, role: action, relative_to: {from: [where, quat], kind: nearest}, '
               'rotation: {from: quat_xyzw, to: axis_angle, columns: "3:7", position: "0:3"}}',
        "joints": "{at: -1..0}"}),
    "sums": ("anchor: {clock: arm}", {
        "move": "{at: 0..5 @ 10, role: action, norm: mean_std}", "fast": "{from: twist, at: 0..20 @ 120, role: action}",
        "both": "{from: [move, twist], at: 0..4 @ 20, role: action}", "before": "{from: twist, at: -4..-1 @ 20, role: obs}",
        "rest": "{from: rewards, at: 0..3, role: action, return: {gamma: 0.9}}", "joints": "{at: -1..0}",
        "actions": "{at: 0..7}"}),
}
# outputs whose arithmetic on a GPU is the CPU's: they have the same bits. Others are within 1e-6.
EXACT = {"openpi": ["actions"], "umi": ["actions"], "gr00t": ["actions"], "act": [], "steps": ["actions", "based", "half", "wide", "yaw"],
         "rates": [], "sums": ["move", "fast", "both", "before", "rest"]}
EDGES = ("edge", "zero", "nan")


def write(folder, longer=1):
    """Writes the layout and a file of three episodes: an arm at about 20 Hz with jitter and a gap, and a base at 60 Hz
    that starts later. Some rotations are none. longer: episodes have so many times 40 to 70 rows."""
    import h5py
    import numpy as np

    def quaternions(turns):
        angle = np.linalg.norm(turns, axis=1, keepdims=True)
        return np.concatenate([turns / angle * np.sin(angle / 2), np.cos(angle / 2)], axis=1)

    folder = pathlib.Path(folder)
    random = np.random.default_rng(4)
    (folder / "data").mkdir(parents=True)
    (folder / "lab.yaml").write_text(LAYOUT.replace("  joints:", "  grip:    {clock: arm, kind: previous}\n  joints:"))
    with h5py.File(folder / "data" / "a.hdf5", "w") as file:
        for e in range(3):
            rows, episode = (40 + 15 * e) * longer, file.create_group(f"ep_{e}")
            many = rows * 3 + 20
            stamps = np.arange(rows) * 50_000_000 + random.integers(0, 20_000_000, rows)
            stamps[20:] += 400_000_000
            stamps[0] = 0
            turn = np.cumsum(random.normal(scale=0.1, size=(rows, 3)), axis=0)
            actions = np.concatenate([random.normal(size=(rows, 3)), turn + random.normal(scale=0.05, size=(rows, 3)),
                                      random.choice([-1.0, 1.0], (rows, 1))], axis=1)
            actions[7, 4] = np.nan
            episode["arm_t"], episode["base_t0"] = stamps, np.int64(30_000_000)
            episode["actions"], episode["turn"], episode["place"] = actions, turn, random.normal(size=(rows, 3))
            episode["grip"], episode["joints"] = actions[:, 6:], random.normal(size=(rows, 7)).astype("f4")
            episode["yaw"] = random.uniform(-3.1, 3.1, (rows, 2)).astype("f4")
            episode["rewards"], episode["move"] = random.normal(size=(rows, 1)).astype("f4"), random.normal(size=(rows, 3))
            episode["twist"] = random.normal(size=(many, 1)).astype("f4")
            episode["where"] = random.normal(size=(many, 3)).astype("f4")
            quat = quaternions(np.cumsum(random.normal(scale=0.05, size=(many, 3)), axis=0))
            quat[11] = 0
            episode["quat"] = quat.astype("f4")


def feeds(edge="edge", batch=16, slots=4, mixed=False, names=tuple(FEEDS)):
    """Returns the configuration of these feeds. mixed: of two datasets, which are the same file."""
    where = f"mix: {{lab: {{weight: 2}}, again: {{weight: 1}}}}\n    epoch: {10 * batch}" if mixed else "dataset: lab"
    text = ""
    for name in names:
        keys, outputs = FEEDS[name]
        lines = "".join(f"      {output}: {value}\n" for output, value in outputs.items())
        text += (f"  {name}:\n    {where}\n    global_batch: {batch}\n    slots: {slots}\n    {keys}\n"
                 f"    pad: {{before: any, after: any, with: {edge}}}\n    outputs:\n{lines}")
    return "feeds:\n" + text


def datasets(folder, mixed=False):
    one = f"{{path: {folder}/data, layout: {folder}/lab.yaml}}"
    return f"datasets: {{lab: {one}{f', again: {one}' if mixed else ''}}}\n"
