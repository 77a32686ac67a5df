"""torch's tensors on the CPU as tensors on the simulated GPU, for trajd.resample. Import it after torch and before a call.

Needs FAKE_GPU=unified, because all memory of this process is that of the GPU, and the package of tests/fake."""
import ctypes
import types

import torch

import trajd._core
import trajd.resampling.cuda_tensors

library = ctypes.CDLL(trajd._core.__file__)
DEVICE = torch.device("cuda", 0)


class OnGpu(torch.Tensor):
    is_cuda, is_cpu = True, False
    device = DEVICE


def to_gpu(tensor):
    return tensor.clone().as_subclass(OnGpu)


def to_cpu(tensor):
    return tensor.as_subclass(torch.Tensor)


def make_stream():
    device, stream, error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    assert not library.trajd_device_open(0, ctypes.byref(device), error)
    assert not library.trajd_device_stream_create(device, ctypes.byref(stream), error)
    return stream


STREAM = make_stream()
launch = trajd._core.resample_cuda


def launch_and_wait(*arguments):
    """Waits before the call returns, because its temporary tensors are freed at once and not in the order of the stream."""
    found = launch(*arguments)
    assert not library.trajd_device_stream_wait(STREAM, ctypes.create_string_buffer(4096))
    return found


def on_gpu(name):
    return lambda *shape, device, **options: getattr(torch, name)(*shape, **options).as_subclass(OnGpu)


class Torch(types.ModuleType):
    """torch, but for the functions that make tensors on a device and for torch.cuda."""

    def __getattr__(self, name):
        return getattr(torch, name)


fake = Torch("torch")
for name in ("empty", "zeros", "full", "arange"):
    setattr(fake, name, on_gpu(name))
fake.cuda = types.SimpleNamespace(current_device=lambda: 0)
fake._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda gpu: STREAM.value)
trajd.resampling.cuda_tensors.sys = types.SimpleNamespace(modules={"torch": fake})
trajd._core.resample_cuda = launch_and_wait
