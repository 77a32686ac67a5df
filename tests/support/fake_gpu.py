"""A feed on the fake GPU of tests/fake: the daemon trajd_fake_gpu, and the libcuda.so.1 that its workers load."""
import ctypes

from paths import BUILD

UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
CUDA = ctypes.CDLL(str(BUILD / "tests" / "fake" / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)  # libtrajd finds it by its name

CONFIG = """
    gpu: {{devices: all, rows: 64MiB, rings: 16MiB{gpu}}}
    datasets: {{demo: {{path: {data}, layout: demo}}}}
    feeds:
      train:
        dataset: demo
        global_batch: 16
        slots: {slots}
        rate: 10
        anchor: {{clock: pose}}
        pad: {{before: 1, after: any, with: edge}}
        outputs:
          joints:  {{from: joint_pos, at: -4..0}}
          pose:    {{from: pose_quat, at: -1..0}}
          gripper: {{from: gripper_cmd, at: -4..0, max_age: 100ms}}
          actions: {{from: [pose_pos, gripper_cmd], at: 0..7, role: action, norm: mean_std}}
"""
