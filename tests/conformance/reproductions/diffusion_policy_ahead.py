"""diffusion_policy: the observation that is recorded for a step is the first one of the period that begins there."""
import os
import sys

import numpy as np

sys.path.append(os.environ["DIFFUSION_POLICY"])
from diffusion_policy.common.timestamp_accumulator import TimestampObsAccumulator  # noqa: E402

camera = np.arange(30) / 30 + 0.020  # the camera's frames come 20 ms after the steps of the control loop
taken = TimestampObsAccumulator(start_time=0, dt=1 / 30)
taken.put({"sensed": camera}, camera)
for step, sensed in list(enumerate(taken.data["sensed"]))[:3]:
    print(f"step {step} at {1000 * step / 30:.0f} ms has the frame of {1000 * sensed:.0f} ms")
