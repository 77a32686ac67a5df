"""What a camera sees while joints move."""
import numpy as np

SECONDS, FPS = 20, 30


def joints_at(times):
    """Returns positions of three joints that move by turns, as an operator moves them: below 2 Hz, with pauses."""
    random = np.random.default_rng(4)
    grid = np.arange(-1, SECONDS + 1, 0.01)
    steps = np.array([np.convolve(random.normal(size=len(grid)), np.hanning(40), "same") for _ in range(3)])
    steps *= np.clip(2 * np.sin(grid * [[1.2], [0.9], [1.7]]) + 1, 0, 1)
    return np.stack([np.interp(times, grid, row) for row in np.cumsum(steps, axis=1) * 0.01], axis=1)


def swing_at(times):
    """Returns positions of three joints that swing at 0.5 Hz and less: the speed of the first repeats each second."""
    return np.stack([np.sin(2 * np.pi * rate * times) for rate in (0.5, 0.31, 0.17)], axis=1)


def frames_at(times, joints=joints_at):
    """Returns what a camera sees: a texture that moves with the joints, and the noise of the sensor."""
    random = np.random.default_rng(1)
    texture = random.integers(0, 256, (12, 100, 3)).repeat(8, axis=0).repeat(8, axis=1).astype(float)
    left = joints(times) @ ([1, 0.7, -0.5] if joints is joints_at else [1, 0, 0]) * 30 + 300
    columns = left[:, None] + np.arange(96)
    whole, part = columns.astype(int), (columns % 1)[..., None]
    frames = np.stack([texture[:, a] * (1 - b) + texture[:, a + 1] * b for a, b in zip(whole, part)])
    return (frames + random.normal(0, 2, frames.shape)).clip(0, 255).astype(np.uint8)
