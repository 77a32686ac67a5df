"""A disk that is full, or a limit of the file size, ends `resample` and `preprocess` with that reason. No input is blamed."""
import os
import resource
import subprocess

import h5py
import numpy as np
import pytest

from paths import TRAJCTL
from preprocess_station import ENVIRONMENT, Station, counts

pytestmark = pytest.mark.slow

KIB, MIB = 1 << 10, 1 << 20
SIZES = [64 * KIB, 128 * KIB, 192 * KIB, 320 * KIB, 512 * KIB, 768 * KIB, MIB, 3 * MIB // 2, 2 * MIB, 3 * MIB, 4 * MIB]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Eight episodes with streams, and with objects beside them that libhdf5 copies: 6 MB."""
    path = tmp_path_factory.mktemp("source") / "a.hdf5"
    random = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for e in range(8):
            group = file.create_group(f"data/demo_{e}")
            group["obs/robot0_eef_pos"] = random.normal(size=(200, 3))
            group["actions"] = random.normal(size=(200, 7))
            for i in range(40):
                group[f"calibration/camera_{i}/map"] = random.normal(size=(16, 16))
            group["calibration/table"] = random.normal(size=(300, 250))
            group["calibration/packed"] = h5py.Empty("f4") if e else np.zeros(3)
            group.create_dataset("calibration/chunks", data=random.normal(size=(64, 100)), chunks=(16, 100), compression="gzip")
        file["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'
    return path


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a disk of a given size."""
    mounted = []

    def mount(size):
        path = tmp_path / "disk"
        path.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True).returncode:
            pytest.skip("a disk cannot be mounted here")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", path], check=True)


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def resample(source, output, **options):
    return subprocess.run([TRAJCTL, "resample", source, "-o", output, "--layout", "robomimic", "--rate", "10"], capture_output=True,
                          text=True, env=ENVIRONMENT, timeout=120, **options)


def check_refusal(done, output, reason):
    assert done.returncode == 1 and reason in done.stderr, done
    assert "damaged" not in done.stderr and "signal" not in done.stderr, done
    assert not output.exists() and not output.with_name(output.name + ".partial").exists()


@pytest.mark.parametrize("size", SIZES)
def test_resample_on_a_full_disk(source, small_disk, size):
    output = small_disk(size) / "out.hdf5"
    check_refusal(resample(source, output), output, "No space left on device")


@pytest.mark.parametrize("size", SIZES)
def test_resample_with_a_limit_of_the_file_size(source, tmp_path, size):
    output = tmp_path / "out.hdf5"
    check_refusal(resample(source, output, preexec_fn=limit_files(size)), output, "File too large")


@pytest.mark.parametrize("size", SIZES[::2])
def test_preprocess_puts_nothing_aside(source, small_disk, tmp_path, size):
    """The whole inbox waits until there is room."""
    disk = small_disk(size)
    station = Station(tmp_path, source, layout="robomimic", outbox=disk / "outbox")
    for name in ("a.hdf5", "b.hdf5", "c.hdf5"):
        station.drop(name)
    said = station.run(code=1)
    assert "No space left on device" in said and "damaged" not in said, said
    assert counts(said)[:2] == (0, 0) and not station.quarantine.exists() or not os.listdir(station.quarantine), said
    subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
    assert counts(station.run())[:3] == (3, 0, 0)


def test_preprocess_with_a_limit_of_the_file_size(source, tmp_path):
    station = Station(tmp_path, source, layout="robomimic")
    station.drop()
    process = station.begin(preexec_fn=limit_files(700 * KIB))
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 1 and "File too large" in said and "damaged" not in said, said
    assert counts(said)[:2] == (0, 0)
    assert counts(station.run())[:3] == (1, 0, 0)
