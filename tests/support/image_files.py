"""Files with encoded images, made with nothing but zlib, and what a preparation makes of their frames."""
import pathlib
import struct
import zlib

import h5py
import numpy as np


def png(pixels):
    """Returns the bytes of a PNG file of pixels (height, width, 3), u8."""
    height, width, _ = pixels.shape

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def read_png(path):
    """Reads the image that trajctl writes: 8 bits, RGB, filter 0 in each row."""
    data, at, chunks = path.read_bytes(), 8, {}
    while at < len(data):
        length, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        assert zlib.crc32(data[at + 4:at + 8 + length]) == int.from_bytes(data[at + 8 + length:at + 12 + length], "big")
        chunks[kind], at = data[at + 8:at + 8 + length], at + 12 + length
    width, height = (int.from_bytes(chunks[b"IHDR"][i:i + 4], "big") for i in (0, 4))
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def random_frames(rows, height, width, seed):
    return np.random.default_rng(seed).integers(0, 256, (rows, height, width, 3), dtype=np.uint8)


def smooth_frames(rows, height, width, seed):
    """Returns frames that compress as photographs do: waves, and a little noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [[np.sin(y / 7 + row / 3 + a) + np.sin(x / 9 + b) for a, b in random.uniform(0, 6, (3, 2))]
             for row in range(rows)]
    noise = random.normal(0, 3, (rows, height, width, 3))
    return (127 + 55 * np.moveaxis(np.array(waves), 1, -1) + noise).clip(0, 255).astype(np.uint8)


def assert_near(one, other, cameras, mean, most):
    """Compares the batches of two feeds: values of cameras within these differences, all others equal."""
    assert one.keys() == other.keys()
    for name in one:
        if name not in cameras:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    difference = np.concatenate([np.abs(one[name].astype(int) - other[name]).ravel() for name in cameras])
    assert 0 < difference.mean() <= mean and difference.max() <= most, (difference.mean(), difference.max())


def write_encoded(path, cameras, bad=(), encode=png):
    """Writes an episode in the layout aloha, its frames as padded rows of PNG, or of what `encode` returns.

    cameras: {name: frames}. bad: (camera, row) of frames that are cut off in the middle."""
    rows = len(next(iter(cameras.values())))
    with h5py.File(path, "w") as file:
        file.attrs["sim"], file.attrs["compress"] = False, True
        steps = np.arange(rows, dtype=np.float32)[:, None] + np.arange(14, dtype=np.float32) / 100
        file.create_dataset("action", data=steps)
        file.create_dataset("observations/qpos", data=steps)
        for name, frames in cameras.items():
            encoded = [encode(frame) for frame in frames]
            encoded = [e[: len(e) // 2] if (name, i) in bad else e for i, e in enumerate(encoded)]
            padded = np.zeros((rows, max(map(len, encoded))), np.uint8)
            for row, data in zip(padded, encoded):
                row[: len(data)] = np.frombuffer(data, np.uint8)
            file.create_dataset(f"observations/images/{name}", data=padded, chunks=(1, padded.shape[1]))


def write_episodes(folder, episodes=4, rows=60):
    """Writes episodes with two cameras of smooth images, which resize as photographs do."""
    pathlib.Path(folder).mkdir()
    for e in range(episodes):
        cameras = {}
        for camera, (height, width) in {"top": (240, 320), "wrist": (120, 160)}.items():
            coarse = np.random.default_rng(1000 * e + height).integers(0, 256, (rows, height // 8, width // 8, 3), dtype=np.uint8)
            cameras[camera] = coarse.repeat(8, axis=1).repeat(8, axis=2)
        write_encoded(pathlib.Path(folder) / f"episode_{e}.hdf5", cameras)


def nearest(frame, height, width):
    """Resizes a frame by the filter nearest."""
    rows = ((np.arange(height) + 0.5) * frame.shape[0] / height).astype(int)
    columns = ((np.arange(width) + 0.5) * frame.shape[1] / width).astype(int)
    return frame[rows][:, columns]
