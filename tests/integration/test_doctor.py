"""trajctl doctor and python -m trajd doctor: what they find on machines that lack something."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from daemons import FAKE_PROGRAM, Daemon, smallest_config
from paths import BUILD, PACKAGE, PROGRAM, ROOT, TRAJCTL, clean_environment, package_environment
from waiting import wait_for

FAKE = BUILD / "tests" / "fake"
HELPERS = [BUILD / "daemon/hdf5/trajd-indexer", BUILD / "daemon/decode/trajd-decoder"]


def has_libcuda():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.fixture
def runtime():
    """A folder for private daemons. Its path is short: those of sockets are limited."""
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def doctor(runtime):
    """Runs the doctor and returns its exit status and its findings, {topic: [(level, text), ...]}."""
    def run(*arguments, program=(TRAJCTL,), seconds=0, **environment):
        own = clean_environment(**{"TRAJD_RUNTIME_DIR": str(runtime), **environment})
        own.pop("TRAJD_ENDPOINT", None)
        done = subprocess.run([*program, "doctor", *arguments, "--seconds", str(seconds), "--json"], capture_output=True, text=True,
                              env=own, timeout=120)
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        found = {}
        for finding in document["findings"]:
            found.setdefault(finding["topic"], []).append((finding["level"], finding["text"]))
        levels = [level for findings in found.values() for level, text in findings]
        assert (document["failed"], document["slow"]) == (levels.count("fail"), levels.count("slow"))
        assert not list(runtime.iterdir()), "the self test has left its folder"
        return done.returncode, found

    return run


@pytest.fixture
def installation(tmp_path):
    """Returns a function that makes an installation with other programs, and returns its trajctl."""
    def make(trajd=PROGRAM):
        folder = tmp_path / "usr" / "bin"
        folder.mkdir(parents=True)
        for source, name in ((TRAJCTL, "trajctl"), (trajd, "trajd"), *((path, path.name) for path in HELPERS)):
            shutil.copy2(source, folder / name)
        (tmp_path / "usr/share/trajd").mkdir(parents=True)
        (tmp_path / "usr/share/trajd/layouts").symlink_to(ROOT / "configs/layouts")
        return folder / "trajctl"

    return make


def test_a_machine_without_a_gpu(doctor):
    if has_libcuda():
        pytest.skip("this machine has libcuda.so.1")
    status, found = doctor(seconds=1)
    assert status == 0, found
    assert found["gpu"][0][0] == "slow" and "no NVIDIA driver" in found["gpu"][0][1]
    assert "gpu-ipc" not in found
    assert re.match(r"1 s, [1-9]\d* batches with the right values", found["selftest"][0][1])
    assert found["selftest"][0][0] in ("ok", "slow") and "handover" in found


def test_what_a_person_reads():
    done = subprocess.run([TRAJCTL, "doctor", "--seconds", "0"], capture_output=True, text=True, env=clean_environment(), timeout=60)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("trajctl ") and lines[-1].startswith("result: trajd works here")
    assert max(map(len, lines)) <= 100 and re.search(r"^  ok    version +trajd and trajctl \d+\.\d+\.\d+\S*, protocol \d", done.stdout, re.M)
    assert subprocess.run([TRAJCTL, "doctor", "--seconds", "x"], capture_output=True).returncode == 2


@pytest.mark.parametrize("mib, memory, selftest, status", [(120, "fail", "fail", 1), (1000, "slow", "ok", 0), (9000, "ok", "ok", 0)])
def test_little_memory(doctor, tmp_path, mib, memory, selftest, status):
    (tmp_path / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {mib << 10} kB\n")
    code, found = doctor(seconds=1, LD_PRELOAD=str(FAKE / "liblittle_memory.so"), TRAJD_TEST_MEMINFO=str(tmp_path / "meminfo"),
                         ASAN_OPTIONS="verify_asan_link_order=0")
    assert (code, found["memory"][0][0]) == (status, memory), found
    if selftest == "fail":
        assert f"{mib} MiB are free on this machine" in found["memory"][0][1]
        assert found["selftest"][0][0] == "fail" and "memory.reserve" in found["selftest"][0][1]  # the daemon's own words
    else:
        assert found["selftest"][0][0] != "fail"


@pytest.mark.parametrize("text, level", [("50000 100000\n", "slow"), ("6400000 100000\n", "ok"), ("max 100000\n", "ok"), ("", "ok")])
def test_a_limit_of_processors(doctor, tmp_path, text, level):
    if len(os.sched_getaffinity(0)) not in range(2, 64):
        pytest.skip("needs 2 to 63 processors")
    (tmp_path / "cpu.max").write_text(text)
    status, found = doctor(LD_PRELOAD=str(FAKE / "liblittle_memory.so"), TRAJD_TEST_CPU_MAX=str(tmp_path / "cpu.max"),
                           ASAN_OPTIONS="verify_asan_link_order=0")
    assert status == 0 and found["processors"][0][0] == level, found
    assert level == "ok" or "the time of 0.5 of" in found["processors"][0][1]


@pytest.mark.release  # sanitizers need a large address space
def test_a_limit_of_the_address_space(doctor):
    status, found = doctor(program=("sh", "-c", f'ulimit -v 200000; exec {TRAJCTL} "$@"', "sh"))
    assert status == 1 and found["memory"][0][0] == "fail" and "ulimit -v" in found["memory"][0][1]


def test_a_daemon_that_lives_is_stopped_and_is_dead(doctor, tmp_path, demo_file):
    daemon = Daemon(tmp_path / "daemon", smallest_config(demo_file)).start()
    try:
        status, found = doctor("--endpoint", daemon.endpoint)
        assert status == 0 and found["daemon"][0][0] == "ok" and "answers at" in found["daemon"][0][1]
        daemon.process.send_signal(signal.SIGSTOP)
        status, found = doctor("--endpoint", daemon.endpoint)
        assert status == 1 and "holds the lock" in found["daemon"][0][1], found
    finally:
        daemon.kill()
    status, found = doctor("--endpoint", daemon.endpoint)
    assert status == 1 and found["daemon"][0][0] == "fail" and "is dead" in found["daemon"][0][1], found
    status, found = doctor("--endpoint", tmp_path / "nowhere")
    assert status == 1 and "none has run at" in found["daemon"][0][1]
    status, found = doctor("--endpoint", "tcp://127.0.0.1:9", "--key", "absent")
    assert status == 1 and found["daemon"][0][0] == "fail"


def test_the_data_of_a_configuration(doctor, tmp_path, demo_file):
    config = tmp_path / "trajd.yaml"
    config.write_text("version: 2\nmemory: {store: 64KiB, rings: 64MiB}\n" + smallest_config(demo_file))
    status, found = doctor(config)
    assert status == 0 and found["data"][0][0] == "slow" and "read again in each epoch" in found["data"][0][1], found
    config.write_text("version: 2\nmemory: {store: 64MiB, rings: 64MiB}\n" + smallest_config(demo_file))
    assert doctor(config)[1]["data"][0][0] == "ok"
    assert found["plans"] == [("ok", f"all feeds of {config} can be made (trajctl check)")]
    config.write_text(config.read_text().replace("outputs: {", "outputs: {obs/x: {from: absent, at: 0}, "))
    status, found = doctor(config)
    assert status == 1 and found["plans"][0][0] == "fail" and "outputs.obs/x: no stream absent" in found["plans"][0][1], found
    config.write_text("version: 2\n" + smallest_config(tmp_path / "absent.hdf5"))
    status, found = doctor(config)
    assert status == 1 and found["data"][0] == ("fail", f"demo: {tmp_path}/absent.hdf5: No such file or directory")
    config.write_text("version: 2\nnonsense: 1\n")
    status, found = doctor(config)
    assert status == 1 and "trajd.yaml:2: nonsense" in found["config"][0][1]


def test_programs_that_do_not_belong_together(doctor, installation, tmp_path):
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho trajd 9.9.9\n")
    other.chmod(0o755)
    trajctl = installation(other)
    status, found = doctor(program=[trajctl], seconds=1)
    assert status == 1 and "two installations are mixed" in found["version"][0][1] and "selftest" not in found
    (trajctl.parent / "trajd").write_text("#!/bin/sh\nexit 1\n")
    status, found = doctor(program=[trajctl])
    assert status == 1 and "does not run here" in found["version"][0][1]
    (trajctl.parent / "trajd-indexer").unlink()
    status, found = doctor(program=[trajctl])
    assert status == 1 and found["programs"][0][1].startswith("trajd-indexer: neither beside")


def test_a_gpu(doctor, installation):
    """With the simulated GPU. A real one, and the driver's IPC, are in tests/gpu."""
    if not FAKE_PROGRAM.exists():
        pytest.skip("this build has no simulated GPU")
    simulated = {"LD_LIBRARY_PATH": str(FAKE), "ASAN_OPTIONS": "verify_asan_link_order=0"}
    trajctl = installation(FAKE_PROGRAM)
    status, found = doctor(program=[trajctl], seconds=1, **simulated)
    assert status == 0 and found["gpu"][0][0] == "ok" and found["gpu-ipc"][0][0] == "ok", found
    shutil.copy2(PROGRAM, trajctl.parent / "trajd")  # a daemon without CUDA: it says why
    status, found = doctor(program=[trajctl], seconds=1, **simulated)
    assert status == 0 and found["gpu-ipc"][0][0] == "slow" and "batches come in host memory" in found["gpu-ipc"][0][1], found


def test_the_folder_of_private_daemons(doctor, runtime, tmp_path):
    status, found = doctor(TRAJD_RUNTIME_DIR=str(runtime / "made" / "later"))
    assert status == 0 and found["runtime"][0][1].startswith(f"{runtime} is on ")
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    status, found = doctor(TRAJD_RUNTIME_DIR=str(closed))
    assert status == 1 and found["runtime"][0][0] == "fail"


def test_an_interrupt_leaves_nothing(runtime):
    process = subprocess.Popen([TRAJCTL, "doctor", "--seconds", "60"], stdout=subprocess.PIPE, text=True,
                               env=clean_environment(TRAJD_RUNTIME_DIR=str(runtime)))
    # the daemon creates its lock, and then writes its number there
    pid = int(wait_for(lambda: "".join(lock.read_text() for lock in runtime.glob("trajd-doctor-*/run/lock")), what="the daemon of the self test"))
    process.terminate()
    assert "interrupted" in process.communicate(timeout=30)[0] and process.returncode == 1
    assert not list(runtime.iterdir()) and not pathlib.Path(f"/proc/{pid}").exists()


def test_python(doctor):
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    python = (sys.executable, "-m", "trajd")
    status, found = doctor(program=python, **package_environment())
    assert status == 0 and found["python"][0][0] == "ok" and found["wheel"][0][0] == "ok" and "torch" in found and "memory" in found
    environment = clean_environment(**package_environment())
    assert subprocess.run([*python, "--version"], capture_output=True, text=True, env=environment).stdout.startswith("trajctl ")
    assert subprocess.run([*python, "doctor", "--nonsense"], capture_output=True, env=environment).returncode == 2
