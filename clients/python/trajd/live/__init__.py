"""trajd.Live: the observation of a policy, built on the robot from rows as they come.

    live = trajd.Live("square.yaml", feed="train")     # where the dataset is: asks the daemon
    live.save("square.live")

    live = trajd.Live("square.live")                   # on the robot: needs neither daemon nor dataset
    live.push("joint_pos", t_ns, q)                    # from any thread, as rows come
    batch = live.observation(t_ns)                     # what the policy saw in training: batch["obs"]
"""
from .live import Live
from .observation import Observation, Stream

__all__ = ["Live", "Observation", "Stream"]
