"""Measures how much slower a training step is with a second process on its GPU, and how long torch takes for a
tensor by DLPack. Runs beside probe_ipc.

    python probe_torch.py PATH_OF_probe_ipc [mps]

With `mps` it measures the steps only, in a process that the MPS server serves."""
import statistics
import subprocess
import sys
import time

import torch


def median_us(call, count=2000, turns=5):
    times = []
    for _ in range(turns):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - begin) / count * 1e6)
    return statistics.median(times)


def ask_dlpack():
    slab = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    part = slab[4096:4096 + 256 * 16 * 7 * 4]
    print(f"torch.from_dlpack of a torch tensor: {median_us(lambda: torch.from_dlpack(part)):.2f} us")
    print(f"its __dlpack__ alone: {median_us(lambda: part.__dlpack__(max_version=(1, 0))):.2f} us")
    print("slice, view as float32, view as [256, 16, 7]: "
          f"{median_us(lambda: slab[4096:4096 + 256 * 16 * 7 * 4].view(torch.float32).view(256, 16, 7)):.2f} us")
    print(f"torch.cuda.current_stream().cuda_stream: {median_us(lambda: torch.cuda.current_stream().cuda_stream):.2f} us")
    event = torch.cuda.Event()
    print(f"torch event record: {median_us(event.record):.2f} us")


class Policy(torch.nn.Module):
    """A transformer of about 50 M parameters over 16 + 2 steps."""

    def __init__(self, width=640, depth=10):
        super().__init__()
        self.enter = torch.nn.Linear(32, width)
        layer = torch.nn.TransformerEncoderLayer(width, 10, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
        self.body = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.leave = torch.nn.Linear(width, 7)

    def forward(self, x):
        return self.leave(self.body(self.enter(x)))


def make_step():
    torch.manual_seed(0)
    policy = Policy().cuda()
    count = sum(p.numel() for p in policy.parameters())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, fused=True, capturable=True)
    x = torch.randn(256, 18, 32, device="cuda")
    y = torch.randn(256, 18, 7, device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.mse_loss(policy(x), y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()  # as a graph, so that the GPU limits the speed and not Python
    with torch.cuda.graph(graph):
        step()
    return graph.replay, count


def time_steps(step, count=150):
    for _ in range(10):
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    return times[len(times) // 2], times[int(len(times) * 0.95)]


def main():
    probe, mode = sys.argv[1], "MPS" if "mps" in sys.argv[2:] else "time slices"
    if mode != "MPS":
        ask_dlpack()
    step, parameters = make_step()
    time_steps(step, 20)
    alone = time_steps(step)
    print(f"{mode}: a step of {parameters / 1e6:.0f} M parameters alone: {alone[0]:.3f} ms (p95 {alone[1]:.3f})")
    for rate in (0, 100, 1000, 5000, 20000):
        load = subprocess.Popen([probe, "load", str(rate), "60"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        load.stdout.read(1)
        beside = time_steps(step)
        load.kill()
        load.wait()
        what = "an idle context" if rate == 0 else f"{rate} launches/s"
        print(f"{mode}: beside {what}: {beside[0]:.3f} ms (p95 {beside[1]:.3f}), {100 * (beside[0] / alone[0] - 1):+.1f} %", flush=True)
    again = time_steps(step)
    print(f"{mode}: alone again: {again[0]:.3f} ms")


main()
