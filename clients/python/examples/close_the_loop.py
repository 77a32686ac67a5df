"""Trains a small policy, and runs it on a simulated arm: the same feed gives its windows and its observations.

    python close_the_loop.py trajd.yaml FEED

The policy sees where the arm was, and predicts velocities. It is linear, fitted by least squares; numpy is all it needs. The feed is
one on the demonstration dataset (make demo writes build/demo/demo.hdf5) with `layout: demo`:

    anchor: {clock: actions}
    outputs:
      obs/pos: {from: pose_pos, at: -450ms..0ms @ 20, norm: min_max}
      actions: {at: 0..7, norm: min_max}

The arm sends its position at 20 Hz with jitter, as in the recordings, and the policy acts at 20 Hz. trajd.Live resamples the rows
to the steps of the feed and normalises them; Stats.to_robot turns the chunk into velocities.
"""
import sys

import numpy as np

import trajd

STEP_NS = 50_000_000  # of control
TAKE_OVER = 12        # steps that the demonstrator moves the arm
EXECUTED = 4          # steps of a chunk before the next one


def collect(feed):
    """Returns what the policy sees, and the chunk, of all complete windows."""
    seen, chunks = [], []
    for batch in feed.epoch(0):
        good = (batch.mask("obs/pos") == 0).all(axis=1) & (batch.mask("actions") == 0).all(axis=1)
        seen.append(batch["obs"]["pos"][good].reshape(good.sum(), -1))
        chunks.append(batch["actions"][good].copy())
    return np.concatenate(seen), np.concatenate(chunks)


def fit(seen, chunks):
    """Returns a policy: a function from what it sees to a normalised chunk."""
    weights, *_ = np.linalg.lstsq(np.c_[np.ones(len(seen)), seen], chunks.reshape(len(chunks), -1), rcond=1e-6)
    return lambda obs: (np.r_[1, obs.ravel()] @ weights).reshape(1, *chunks.shape[1:])


class Demonstrator:
    """Moves each axis as a wave of its own, as in the demonstrations."""

    size, hertz, centre = np.array([0.15, 0.20, 0.08]), np.array([0.23, 0.17, 0.31]), np.array([0, 0, 1.0])

    def __init__(self, random):
        self.phase = random.uniform(-np.pi, np.pi, 3)

    def position(self, seconds):
        return self.centre + self.size * np.sin(2 * np.pi * self.hertz * seconds + self.phase)

    def velocity(self, seconds):
        return self.size * 2 * np.pi * self.hertz * np.cos(2 * np.pi * self.hertz * seconds + self.phase)


class Arm:
    """Moves at the velocity that it is given. Its sensor pushes where it is, every 50 ms with some jitter."""

    def __init__(self, position, t_ns, random):
        self.position, self.velocity, self.t_ns, self.random = position, np.zeros(3), t_ns, random
        self.next_row_ns = t_ns

    def move(self, t_ns, live):
        while self.next_row_ns <= t_ns:
            at = self.position + self.velocity * (self.next_row_ns - self.t_ns) / 1e9
            live.push("pose_pos", self.next_row_ns, at)
            self.next_row_ns += STEP_NS + int(self.random.integers(-1_000_000, 1_000_000))
        self.position = self.position + self.velocity * (t_ns - self.t_ns) / 1e9
        self.t_ns = t_ns


def run(live, stats, policy, seconds, random):
    """Returns how far the arm is from where the demonstrator would have moved it: the largest distance, in m."""
    demonstrator, start_ns = Demonstrator(random), 1_800_000_000_000_000_000
    arm, chunk, furthest = Arm(demonstrator.position(0), start_ns, random), None, 0.0
    live.reset()
    for step in range(TAKE_OVER + int(seconds * 1e9) // STEP_NS):
        now = step * STEP_NS
        arm.move(start_ns + now, live)
        ahead = (step - TAKE_OVER) % EXECUTED
        if step >= TAKE_OVER and ahead == 0:
            observation = live.observation(start_ns + now)
            chunk = stats.to_robot("actions", policy(observation["obs"]["pos"]))[0]
        arm.velocity = demonstrator.velocity(now / 1e9) if step < TAKE_OVER else chunk[ahead, :3]
        furthest = max(furthest, float(np.abs(arm.position - demonstrator.position(now / 1e9)).max()))
    return furthest


def main():
    with trajd.open(sys.argv[1], feed=sys.argv[2]) as feed:
        stats, live = feed.stats(), trajd.Live(feed)  # on a real robot: Stats.load and Live of saved files
        policy = fit(*collect(feed))
    distances = [run(live, stats, policy, 4.0, np.random.default_rng(seed)) for seed in range(5)]
    print(f"in 4 s the arm is at most {max(distances):.3f} m from the demonstrator's path, which is {2 * Demonstrator.size.max():.1f} m wide")


if __name__ == "__main__":
    main()
