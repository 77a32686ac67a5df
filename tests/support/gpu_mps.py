"""Starts an NVIDIA MPS server for one test or benchmark. It has folders of its own and does not touch a server that is already there."""
import contextlib
import os
import subprocess
import tempfile


@contextlib.contextmanager
def mps():
    """Starts an MPS server. Yields the environment of its clients, or None where no server can be started."""
    with tempfile.TemporaryDirectory(prefix="trajdmps") as folder:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        try:
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True, timeout=30, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError):
            yield None
            return
        try:
            yield environment
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=environment, timeout=60, check=False)
