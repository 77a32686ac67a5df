"""trajd.resample of CUDA tensors: the checks of tests/gpu/test_cuda_tensors.py on a simulated GPU, and builds without GPU kernels."""
import os
import subprocess
import types

import numpy as np
import pytest

import trajd
import trajd._core
from paths import BUILD, ROOT
from pythons import find_python
from trajd.resampling import cuda_tensors


def test_the_checks_pass_on_a_simulated_gpu():
    python = find_python("torch")
    if not python:
        pytest.skip("no Python here has torch")
    done = subprocess.run([python, ROOT / "tests/gpu/test_cuda_tensors.py"], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "SIMULATED": "1", "FAKE_GPU": "unified",
                               "PYTHONPATH": f"{BUILD / 'tests/fake/python'}:{ROOT / 'tests/support'}"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok test_") >= 6


def describe(array, name):
    return array.ctypes.data, array.shape, tuple(stride // array.itemsize for stride in array.strides), name, array


def arguments():
    values, times, targets = np.zeros((2, 3, 1), "f4"), np.zeros((2, 3), "i8"), np.zeros((2, 2), "i8")
    stream = (None, describe(values, "f32"), None, describe(times, "i64"), None, "linear", None, None, None, None, False, "edge", None,
              None, None, None, None)

    def empty(shape, name):
        return describe(np.zeros(shape, "f4" if name == "f32" else "u1"), name)

    return (stream,), describe(targets, "i64"), empty, (None,)


def test_kernels_that_are_not_there():
    try:
        trajd._core.resample_cuda(*arguments(), 0, 0)
    except trajd.Unsupported as error:
        assert "built without CUDA" in str(error)
    except trajd.NotFound as error:  # built with CUDA
        assert "GPU 0" in str(error)
    else:
        pytest.skip("there is a GPU")


def test_the_message_says_what_to_install(monkeypatch):
    def refuse(*_):
        raise trajd.Unsupported("GPU: built without CUDA")

    monkeypatch.setattr(trajd._core, "resample_cuda", refuse)
    monkeypatch.setattr(cuda_tensors, "_stream_of", lambda: lambda gpu: 0)
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(current_device=lambda: 0))
    with pytest.raises(trajd.Unsupported, match="this trajd has no GPU kernels: install a wheel that `make wheel` has built .* nvcc"):
        cuda_tensors._launch(torch, types.SimpleNamespace(index=0), arguments())


def test_what_the_core_refuses():
    streams, targets, empty, rows = arguments()
    for wrong, error in ((((), 0, 0), ValueError), ((rows, -1, 0), ValueError), ((rows, 64, 0), trajd.ArgumentError),
                         (((("x", 1, 2),), 0, 0), TypeError)):
        with pytest.raises(error):
            trajd._core.resample_cuda(streams, targets, empty, *wrong)
    bad = (None, (1, 2, 3, "f32", None), *streams[0][2:])
    with pytest.raises(trajd.ArgumentError, match="values is not a tensor"):
        trajd._core.resample_cuda((bad,), targets, empty, rows, 0, 0)
