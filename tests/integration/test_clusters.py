"""Tests configs/clusters: the Slurm script with a replacement for srun, and the Kubernetes manifest as far as one
machine can."""
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from paths import BUILD, PROGRAM, ROOT, SUPPORT, TRAJCTL
from published import published_wheel
from waiting import wait_for

pytestmark = pytest.mark.release
CLUSTERS = ROOT / "configs" / "clusters"
PACKAGE = BUILD / "clients" / "python"
CONFIG = """\
version: 2
memory: {{reserve: 0}}
datasets: {{demo: {{path: {path}, layout: demo}}}}
feeds:
  train:
    dataset: demo
    global_batch: 8
    anchor: {{clock: actions}}
    outputs: {{actions: {{at: 0..3}}}}
"""
RANK = """
import json, os, sys, time, trajd
feed = trajd.connect(feed="train")
ids = []
for batch in feed.epoch(0):
    ids += batch["window_id"].tolist()
    if len(ids) >= 12:
        break
rank = os.environ["SLURM_PROCID"]
with open(f"rank-{rank}.part", "w") as out:
    json.dump(ids, out)
os.rename(f"rank-{rank}.part", f"rank-{rank}.json")
if sys.argv[1] == "fail" and rank == "1":
    sys.exit(3)
if sys.argv[1] == "stay" or sys.argv[1] == "fail":
    time.sleep(600)
"""


class Allocation:
    """A folder that stands for a job. Runs `sbatch` with two tasks on one node."""

    def __init__(self, folder, config):
        self.folder = folder
        (folder / "bin").mkdir()
        srun = f"{sys.executable} {SUPPORT}/srun.py"
        for name, command in (("srun", srun), ("scancel", f"{srun} --scancel"), ("trajd", PROGRAM)):
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
        (folder / "square.yaml").write_text(config)
        (folder / "rank.py").write_text(RANK)
        self.endpoint = folder / "trajd-77"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TRAJD_", "SLURM_"))}
        self.env.update(PATH=f"{folder}/bin:{self.env['PATH']}", TMPDIR=str(folder), SLURM_JOB_ID="77", SLURM_NNODES="1", SLURM_NTASKS="2",
                        PYTHONPATH=str(PACKAGE))

    def submit(self, what):
        return subprocess.Popen(["bash", CLUSTERS / "feed.sbatch", "square.yaml", sys.executable, "rank.py", what], cwd=self.folder,
                                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def is_over(self):
        """Returns True when the daemon has removed its sockets."""
        return not (self.endpoint / "feed.sock").exists()


@pytest.fixture
def allocation(tmp_path, demo_file):
    if not list((PACKAGE / "trajd").glob("_core*")):
        pytest.skip("built without Python's headers")
    return Allocation(tmp_path, CONFIG.format(path=demo_file))


def test_the_ranks_of_a_job_read_their_rows(allocation):
    job = allocation.submit("go")
    said = job.communicate(timeout=60)[0]
    assert job.returncode == 0 and allocation.is_over(), said
    ids = [json.loads((allocation.folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert len(ids[0]) == len(ids[1]) == 12 and len(set(ids[0]) | set(ids[1])) == 24
    assert (allocation.endpoint.stat().st_mode & 0o777) == 0o700


def test_a_rank_that_fails_ends_the_job(allocation):
    job = allocation.submit("fail")
    said = job.communicate(timeout=60)[0]
    assert job.returncode == 137 and allocation.is_over(), said  # the other rank's status: srun kills it


def test_a_cancelled_job_leaves_nothing(allocation):
    job = allocation.submit("stay")
    wait_for(lambda: (allocation.folder / "rank-1.json").exists(), 60, "the ranks to read")
    job.send_signal(signal.SIGTERM)
    said = job.communicate(timeout=60)[0]
    assert job.returncode == 143 and allocation.is_over(), said


def test_a_wrong_configuration_ends_the_job(allocation):
    config = allocation.folder / "square.yaml"
    config.write_text(config.read_text().replace("global_batch", "global_bach"))
    job = allocation.submit("go")
    said = job.communicate(timeout=60)[0]
    assert job.returncode == 78 and "did you mean global_batch" in said, said


@pytest.fixture(scope="module")
def manifest():
    documents = {d["kind"]: d for d in yaml.safe_load_all((CLUSTERS / "kubernetes.yaml").read_text())}
    pod = documents["Job"]["spec"]["template"]["spec"]
    return documents["ConfigMap"], pod, pod["initContainers"][0], pod["containers"][0]


def size(text):
    return int(text[:-2]) << {"Mi": 20, "Gi": 30}[text[-2:]]


def test_the_manifest_is_of_one_piece(manifest):
    config_map, pod, daemon, trainer = manifest
    volumes = {v["name"]: v for v in pod["volumes"]}
    for container in (daemon, trainer):
        assert {m["name"] for m in container["volumeMounts"]} <= set(volumes)
    runtime = [next(m["mountPath"] for m in c["volumeMounts"] if m["name"] == "runtime") for c in (daemon, trainer)]
    endpoint = {e["name"]: e["value"] for e in trainer["env"]}["TRAJD_ENDPOINT"]
    assert runtime[0] == runtime[1] and endpoint.startswith(runtime[0]) and volumes["runtime"]["emptyDir"]["medium"] == "Memory"
    assert {e["name"]: e["value"] for e in daemon["env"]}["RUNTIME_DIRECTORY"] == endpoint
    assert volumes["config"]["configMap"]["name"] == config_map["metadata"]["name"]
    assert daemon["restartPolicy"] == "Always" and not {"hostIPC", "hostPID"} & set(pod)


def test_its_configuration_and_memory(manifest, tmp_path):
    config_map, _, daemon, _ = manifest
    (tmp_path / "trajd.yaml").write_text(config_map["data"]["trajd.yaml"])
    done = subprocess.run([PROGRAM, *daemon["command"][1:2], tmp_path / "trajd.yaml", "--print-config", "--json"], capture_output=True, text=True)
    memory = json.loads(done.stdout)["memory"]
    limit = size(daemon["resources"]["limits"]["memory"])
    assert memory["store"] + memory["rings"] + memory["reserve"] + (256 << 20) <= limit


def test_its_probes_and_what_containers_share(manifest, daemon, demo_file):
    """Daemon and worker run in namespaces of their own, without capabilities. They share the runtime folder only."""
    container = manifest[2]
    isolated = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--net", "--uts", "--ipc",
                "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]
    if subprocess.run([*isolated, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    one = daemon(CONFIG.format(path=demo_file).replace("version: 2\nmemory: {reserve: 0}\n", ""), prefix=isolated[:-6])
    for probe in ("startupProbe", "livenessProbe"):
        command = [word.replace("/run/trajd/main", str(one.endpoint)) for word in container[probe]["exec"]["command"]]
        assert subprocess.run([TRAJCTL, *command[1:]], capture_output=True).returncode == 0
    done = subprocess.run([*isolated, TRAJCTL, "recv", "train", "--count", "3", "--endpoint", one.endpoint], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr
    done = subprocess.run([*isolated, TRAJCTL, "reload", "--wait", "--endpoint", one.endpoint], capture_output=True, text=True)
    assert done.returncode == 1 and "in another container" in done.stderr, done.stderr
    os.kill(int(subprocess.check_output(["pgrep", "-P", str(one.process.pid)])), signal.SIGTERM)  # unshare does not pass signals on
    assert one.process.wait(60) == 0


def image_steps():
    """Returns the instructions of the Dockerfile, with continued lines joined."""
    text = (CLUSTERS / "Dockerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ").splitlines()
    return [line.split(None, 1) for line in lines if line.strip()]


def test_the_image_is_the_manifests(manifest):
    _, _, daemon, _ = manifest
    version = re.search(r"set\(TRAJD_VERSION ([^)]+)\)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert daemon["image"] == f"registry.example/trajd:{version}"
    assert f" -t {daemon['image']} build/wheels" in (CLUSTERS / "Dockerfile").read_text()
    command = json.loads(dict(image_steps())["CMD"])
    assert command[:3] == daemon["command"]
    done = subprocess.run([PROGRAM, *command[3:], "--config", "/nowhere", "--check"], capture_output=True, text=True)
    assert json.loads(done.stderr)["level"] == "error" and "/nowhere" in done.stderr


def test_the_steps_of_the_image(tmp_path):
    """Runs the steps after apt-get in folders of the test, on the wheels that `make wheels` has built."""
    wheels, place = tmp_path / "wheels", tmp_path / "trajd"
    wheels.mkdir()
    shutil.copy(published_wheel(platform.machine()), wheels)
    path, done = os.environ["PATH"], 0
    for word, rest in image_steps():
        rest = rest.replace("/opt/trajd", str(place)).replace("/wheels", str(wheels))
        if word == "ENV":
            path = rest.split("=", 1)[1]
        if word == "RUN" and "apt-get" not in rest:
            ran = subprocess.run(["sh", "-c", rest], env={"PATH": path, "HOME": str(tmp_path)}, capture_output=True, text=True)
            assert ran.returncode == 0, ran.stderr
            done += 1
    assert done == 2 and "trajctl" in ran.stdout and not wheels.exists()
