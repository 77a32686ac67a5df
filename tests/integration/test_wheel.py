"""The wheels of `make wheel` and `make wheels` in a fresh environment with numpy only: a training runs, and no
library comes from the build tree or from the distribution's development packages."""
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tempfile
import zipfile

import pytest

from paths import BUILD, ROOT
from published import published_wheel
from waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.release,
    pytest.mark.skipif(not list((BUILD / "clients/python/trajd").glob("_core*")), reason="built without Python's headers"),
]
# Libraries of every Linux: the C library's parts, libgcc, libstdc++ and zlib, as the manylinux tag promises.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nss_\w+|z|gcc_s|stdc\+\+))(-[\d.]+)?\.so[.\d]*$")
CONFIG = """
version: 2
memory: {{store: 64MiB, rings: 64MiB, reserve: 0}}
datasets: {{square: {{path: {path}, layout: robomimic}}}}
feeds:
  train:
    dataset: square
    filter: train
    global_batch: 32
    anchor: {{clock: actions}}
    pad: {{before: 1, after: any, with: edge}}
    outputs:
      obs/robot0_eef_pos:  {{at: -1..0}}
      obs/robot0_eef_quat: {{at: -1..0}}
      actions:             {{at: -1..14}}
"""
PROGRAM = """
import os, pathlib, trajd
with trajd.open("square.yaml", feed="train") as before:
    before.epoch(2)
    saved = {"feed": before.state_dict()}
seen = []
def policy(obs, actions, is_pad):
    assert set(obs) == {"robot0_eef_pos", "robot0_eef_quat"} and obs["robot0_eef_quat"].shape == (32, 2, 4)
    assert actions.shape == (32, 16, 7) and is_pad.shape == (32, 16)
    seen.append(int(is_pad.sum()))
feed = trajd.open("square.yaml", feed="train")
feed.load_state_dict(saved["feed"])
for batch in feed.epoch(feed.state_dict()["epoch"]):
    policy(batch["obs"], batch["actions"], batch["actions_is_pad"])
import numpy
assert trajd.resample(numpy.eye(3), numpy.arange(3) * 10, numpy.array([5]))[0].tolist() == [[0.5, 0.5, 0.0]]
trajd.Live("square.yaml", feed="train").save("square.live")
live = trajd.Live("square.live")
for t in (0, 50_000_000):
    live.push("obs/robot0_eef_pos", t, [t, 2, 3]), live.push("obs/robot0_eef_quat", t, [0, 0, 0, 1])
assert live.observation(50_000_000)["obs"]["robot0_eef_pos"][0, :, 0].tolist() == [0, 50_000_000]
assert len(seen) == len(feed) > 10 and 0 < sum(seen) < len(seen) * 32 * 16
print(trajd.__version__, os.getpid())
print(*sorted({line.split()[5] for line in open("/proc/self/maps") if len(line.split()) > 5}), sep="\\n")
"""


@pytest.fixture(scope="module", params=["for this machine", "to publish"])
def wheel(request, tmp_path_factory):
    if request.param == "to publish":
        return published_wheel(platform.machine())
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, ROOT / "clients/python/packaging/trajd_wheel.py", "--build", BUILD, "--out", out],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel):
    with tempfile.TemporaryDirectory(prefix="trajd") as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        pip = [folder / "venv/bin/pip", "--disable-pip-version-check", "-q", "install"]
        numpy = subprocess.run([*pip, "numpy"], capture_output=True, text=True)
        if numpy.returncode != 0:
            pytest.skip(f"numpy is to be had from nowhere: {numpy.stderr.strip().splitlines()[-1]}")
        subprocess.run([*pip, "--no-index", wheel], check=True)
        yield folder
        for pid in daemons(folder):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not daemons(folder), 60, "the end of its daemon")


def daemons(folder):
    return [int(process.name) for process in pathlib.Path("/proc").glob("[0-9]*")
            if (process / "cmdline").exists() and f"runtime={folder}/".encode() in read(process / "cmdline")]


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def mapped(pid):
    lines = read(pathlib.Path(f"/proc/{pid}/maps")).decode().splitlines()
    return {line.split()[5] for line in lines if len(line.split()) > 5}


def check_daemon(paths, folder):
    """Each library of the daemon comes from the wheel or from every Linux."""
    for path in paths:
        if ".so" in path:
            assert path.startswith(os.path.realpath(folder)) or SYSTEM.match(os.path.basename(path)), path


def check_worker(paths, folder):
    """Python has libraries of its own. The libraries that the wheel bundles come from the wheel, and none comes
    from the build tree."""
    bundled = {path.name.split("-")[0] for path in folder.glob("venv/lib/python3*/site-packages/trajd.libs/*")} | {"libtrajd", "libtrajd_kernels"}
    ours = {path for path in paths if re.split(r"[-.]", os.path.basename(path))[0] in bundled}
    assert bundled & {"libzmq", "libtrajd"} <= {re.split(r"[-.]", os.path.basename(path))[0] for path in ours}
    for path in ours:
        assert path.startswith(os.path.realpath(folder)), path
    assert not [path for path in paths if path.startswith(str(ROOT))]


def test_what_is_in_it(wheel):
    assert re.fullmatch(r"trajd-\d+\.\d+\.\d+(\.dev\d+)?-cp39-abi3-manylinux_2_\d+_x86_64\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in ("bin/trajd", "bin/trajctl", "libexec/trajd/trajd-indexer"):
            assert archive.getinfo(f"trajd/{name}").external_attr >> 16 & 0o111 == 0o111
        assert any(name.endswith("licenses/LICENSE") for name in names) and any(re.search("licenses/(libhdf5-dev|hdf5).txt$", name) for name in names)
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {f"trajd/share/trajd/layouts/{path.name}" for path in (ROOT / "configs/layouts").iterdir()} <= set(names)
    version = re.search(r"set\(TRAJD_VERSION ([^)]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert f"\nVersion: {version}\n" in metadata and wheel.name.startswith(f"trajd-{version}-")
    requires = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    assert [name for name in requires if "extra" not in name] == ["numpy"]


def test_a_training_in_a_fresh_environment(environment, demo_file):
    folder = environment
    (folder / "square.yaml").write_text(CONFIG.format(path=demo_file))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TRAJD_RUNTIME_DIR": str(folder / "run")}
    done = subprocess.run([folder / "venv/bin/python", "-c", PROGRAM], env=env, cwd=folder,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    version = done.stdout.split()[0]
    check_worker(done.stdout.splitlines()[1:], folder)
    (daemon,) = daemons(folder)
    check_daemon(mapped(daemon), folder)
    assert os.path.realpath(f"/proc/{daemon}/exe").startswith(os.path.realpath(folder))
    endpoint = next((folder / "run").glob("trajd-*/square-*/run"))
    told = subprocess.run([folder / "venv/bin/trajctl", "status", "--endpoint", endpoint], env=env, capture_output=True, text=True)
    assert told.returncode == 0 and "train" in told.stdout, told.stderr
    for name in ("trajd", "trajctl"):
        assert version in subprocess.run([folder / "venv/bin" / name, "--version"], env=env, capture_output=True, text=True).stdout


def readme_commands():
    """Returns the commands of README's first try."""
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^\$ (trajctl \w+ [^#\n]*?) *(?:#.*)?$", text[:text.index("## In the loop that you have")], re.M)
    assert [command.split()[1] for command in commands] == ["init", "check"]
    return commands


FIRST_HOUR = """
import trajd
for wrong, error, message in [("missing.yaml", FileNotFoundError, "missing.yaml"), ("demo.hdf5", trajd.LaunchError, "trajctl init"),
                              ("lost.yaml", FileNotFoundError, "datasets.data.path")]:
    try:
        trajd.open(wrong)
    except error as found:
        assert message in str(found), found
    else:
        raise AssertionError(wrong)
with trajd.open("square.yaml", feed="train") as feed:
    for batch in feed.epoch(0):
        assert batch["actions"].shape[1:] == (16, 7) and set(batch["obs"]) >= {"robot0_eef_pos", "robot0_eef_quat"}
    assert repr(feed.stats()).startswith("Stats(actions, ")
    assert feed.metrics()["trajd/batches"] == len(feed)
"""


def test_the_first_hour_of_a_new_user(environment, demo_file):
    """README's commands on a file, then training with the configuration that init has written, and its daemon's status."""
    folder = environment
    if not (folder / "demo.hdf5").exists():
        (folder / "demo.hdf5").symlink_to(demo_file)
    env = {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "HOME": str(folder), "TRAJD_RUNTIME_DIR": str(folder / "hour")}

    def run(*command):
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    _, checked = [run("bash", "-c", command) for command in readme_commands()]
    assert "actions                  actions 20 Hz" in checked and "rows -1..14" in checked
    config = (folder / "square.yaml").read_text()
    (folder / "square.yaml").write_text(config.replace("  train:", "  train:\n    tail: short", 1))  # the file is smaller than a batch
    (folder / "lost.yaml").write_text(config.replace("demo.hdf5", "lost.hdf5"))
    run("python", "-c", FIRST_HOUR)
    if not pathlib.Path("/run/trajd/main/feed.sock").exists():  # a service comes first
        for program in (["trajctl"], ["python", "-m", "trajd"]):
            assert run(*program, "status").startswith(f"{folder}/hour/")


def test_the_doctor_of_a_wheel(environment):
    folder = environment
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TRAJD_RUNTIME_DIR": str(folder)}
    done = subprocess.run([folder / "venv/bin/python", "-m", "trajd", "doctor", "--seconds", "1", "--json"], env=env, cwd=folder,
                          capture_output=True, text=True, timeout=120)
    found = {finding["topic"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0, found
    assert found["wheel"]["level"] == "ok" and str(folder) in found["wheel"]["text"] and "right values" in found["selftest"]["text"]


def test_a_build_forgets_modules_that_are_gone(tmp_path):
    """An earlier build of the same folder has left a link to a module that is no longer in the tree."""
    package = tmp_path / "clients/python/trajd"
    configure = ["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", "-DTRAJD_TESTS=OFF", "-DTRAJD_CUDA=OFF"]
    subprocess.run(configure, check=True, capture_output=True, timeout=300)
    links = set(package.iterdir())
    for name in ("gone.py", "folder"):
        (package / name).symlink_to(tmp_path / "removed" / name)
    subprocess.run(configure, check=True, capture_output=True, timeout=300)
    assert set(package.iterdir()) == links and package / "batch.py" in links
