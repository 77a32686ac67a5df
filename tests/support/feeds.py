"""Configurations of feeds over the demonstration dataset. All but MIXED are called `train`."""

SMALL_BATCHES = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
limits: {{credit: 8}}
feeds:
  train:
    dataset: demo
    global_batch: 16
    tail: short
    anchor: {{clock: actions}}
    slots: 6
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      actions: {{at: 0..7}}
"""

JOBS = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
limits: {{credit: 8}}
feeds:
  train:
    dataset: demo
    global_batch: {batch}
    tail: {tail}
    seed: {seed}
    rank_timeout: {rank_timeout}
    anchor: {{clock: actions}}
    slots: 6
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      actions: {{at: 0..7}}
"""

POLICY = """
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: {batch}
    tail: short
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    seed: 3
    outputs:
      obs/robot0_eef_pos: {{at: -1..0}}
      obs/robot0_gripper_qpos: {{at: 0}}
      actions: {{at: -1..14}}
"""

# a feed that resamples streams of several clocks to 10 Hz
MIXED = """\
  mixed:
    dataset: demo
    global_batch: 16
    rate: 10
    anchor: {{clock: pose}}
    tail: short
    outputs:
      joints:   {{from: joint_pos, at: -3..0}}
      position: {{from: pose_pos, at: -3..0}}
      rotation: {{from: pose_quat, at: -3..0}}
      gripper:  {{from: gripper_cmd, at: -3..0}}
      fast:     {{from: pose_pos, at: -40ms..0ms @ 100}}
      actions:  {{from: [pose_pos, gripper_cmd], at: 0..5, role: action}}
"""


def feed(path, batch=64, tail="short", seed=3, rank_timeout="600s"):
    """Returns the configuration of a feed that jobs of one or several ranks read."""
    return JOBS.format(path=path, batch=batch, tail=tail, seed=seed, rank_timeout=rank_timeout)


def fan_out(path, policy="", **options):
    """Returns the same feed with slots that two jobs may read. `policy` adds keys to fan_out."""
    return feed(path, **options).replace("slots: 6", f"slots: 6\n    fan_out: {{jobs: 2{policy}}}")


def policy_feed(path, batch=32):
    """Returns the configuration of a feed with a history of two rows and sixteen actions per window."""
    return POLICY.format(path=path, batch=batch)
