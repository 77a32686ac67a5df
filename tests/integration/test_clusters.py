"""Tests configs/clusters: the Slurm scripts with a replacement for srun, and the manifests of Kubernetes and SkyPilot as far
as one machine can. test_ray.py has Ray."""
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


# ---- shards ----


@pytest.fixture
def recordings(tmp_path, small_file):
    """Three recordings in data/in."""
    folder = tmp_path / "data/in"
    folder.mkdir(parents=True)
    for number in range(3):
        shutil.copy(small_file, folder / f"{number}.hdf5")
    return folder


def shell(script, folder, *arguments, **variables):
    """Runs a script in a folder that stands for the root, with a trajctl that knows the layout of the recordings."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/trajctl").write_text(f'#!/bin/sh\n[ "$1" = merge ] || set -- "$@" --layout demo\nexec {TRAJCTL} "$@"\n')
    (folder / "bin/trajctl").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", **{name: str(value) for name, value in variables.items()}}
    return subprocess.run(["bash", "-c", script.replace("/data/", f"{folder}/data/"), *map(str, arguments)], cwd=folder, env=env, capture_output=True,
                          text=True, timeout=120)


def check_merged(folder, command="trajctl merge /data/out", shards=3):
    done = shell(command, folder)
    assert done.returncode == 0 and f"3 files of {shards} shards" in done.stdout, done.stderr


def test_an_array_of_slurm_jobs(recordings, tmp_path):
    script = f"bash {CLUSTERS}/shards.sbatch resample /data/in -o /data/out --rate 10"
    refused = shell(script, tmp_path, SLURM_ARRAY_TASK_ID="")
    assert refused.returncode != 0 and "--array=0-N" in refused.stderr
    assert shell(f"bash {CLUSTERS}/shards.sbatch", tmp_path).returncode == 64
    for task in range(3, 6):  # an array need not begin at 0
        done = shell(script, tmp_path, SLURM_ARRAY_TASK_ID=task, SLURM_ARRAY_TASK_MIN=3, SLURM_ARRAY_TASK_COUNT=3)
        assert done.returncode == 0, done.stderr
    check_merged(tmp_path, re.search(r'--wrap "(.*)"', (CLUSTERS / "shards.sbatch").read_text())[1])


# The fields of batch/v1 and v1 that a manifest may have, those with a star it must have. A dict has fields, a list items.
TEXT = None
CONTAINER = {"name*": TEXT, "image*": TEXT, "command": TEXT, "args": TEXT, "restartPolicy": TEXT,
             "env": [{"name*": TEXT, "value": TEXT}], "resources": {"requests": TEXT, "limits": TEXT},
             "securityContext": {"allowPrivilegeEscalation": TEXT, "readOnlyRootFilesystem": TEXT, "capabilities": {"drop": TEXT}},
             "startupProbe": {"exec*": {"command*": TEXT}, "periodSeconds": TEXT, "failureThreshold": TEXT},
             "livenessProbe": {"exec*": {"command*": TEXT}, "periodSeconds": TEXT, "timeoutSeconds": TEXT},
             "volumeMounts": [{"name*": TEXT, "mountPath*": TEXT, "readOnly": TEXT}]}
POD = {"restartPolicy*": TEXT, "terminationGracePeriodSeconds": TEXT, "initContainers": [CONTAINER], "containers*": [CONTAINER],
       "securityContext": {"runAsUser": TEXT, "runAsGroup": TEXT, "fsGroup": TEXT, "runAsNonRoot": TEXT, "seccompProfile": {"type*": TEXT}},
       "volumes": [{"name*": TEXT, "emptyDir": {"medium": TEXT, "sizeLimit": TEXT}, "configMap": {"name*": TEXT},
                    "persistentVolumeClaim": {"claimName*": TEXT, "readOnly": TEXT}}]}
HEAD = {"apiVersion*": TEXT, "kind*": TEXT, "metadata*": {"name*": TEXT}}
KINDS = {"Job": {**HEAD, "spec*": {"completionMode": TEXT, "completions": TEXT, "parallelism": TEXT, "backoffLimit": TEXT, "suspend": TEXT,
                                   "template*": {"spec*": POD}}},
         "ConfigMap": {**HEAD, "data": TEXT}}
# of SkyPilot's reference of its YAML
SKY = {"name": TEXT, "num_nodes": TEXT, "resources": {"accelerators": TEXT, "cpus": TEXT, "memory": TEXT, "infra": TEXT}, "workdir": TEXT,
       "file_mounts": TEXT, "volumes": TEXT, "envs": TEXT, "setup": TEXT, "run*": TEXT}


def check_fields(value, fields, where):
    if isinstance(fields, list):
        assert isinstance(value, list) and value, where
        for item in value:
            check_fields(item, fields[0], f"{where}[]")
    elif fields is not None:
        known = {name.rstrip("*"): inner for name, inner in fields.items()}
        assert isinstance(value, dict) and value.keys() <= known.keys(), (where, value.keys() - known.keys())
        assert {name[:-1] for name in fields if name.endswith("*")} <= value.keys(), (where, value.keys())
        for name, inner in value.items():
            check_fields(inner, known[name], f"{where}.{name}")


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kubernetes_shards.yaml"])
def test_the_fields_of_manifests(name):
    for document in yaml.safe_load_all((CLUSTERS / name).read_text()):
        check_fields(document, KINDS[document["kind"]], document["metadata"]["name"])
        assert document["apiVersion"] == ("batch/v1" if document["kind"] == "Job" else "v1")
        pod = document["spec"]["template"]["spec"] if document["kind"] == "Job" else {"containers": [], "volumes": []}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
    with pytest.raises(AssertionError, match="volumeMount"):
        check_fields({"name": "a", "image": "b", "volumeMount": []}, CONTAINER, "a container")


def test_an_indexed_job(recordings, tmp_path):
    shards, merge = yaml.safe_load_all((CLUSTERS / "kubernetes_shards.yaml").read_text())
    spec = shards["spec"]
    assert spec["completionMode"] == "Indexed" and merge["spec"]["suspend"] and spec["template"]["spec"]["restartPolicy"] == "Never"
    program, option, script = spec["template"]["spec"]["containers"][0]["command"]
    assert (program, option) == ("/bin/sh", "-c") and script.endswith(f'"$JOB_COMPLETION_INDEX/{spec["completions"]}"')
    for index in range(spec["completions"]):  # more shards than files
        done = shell(script, tmp_path, JOB_COMPLETION_INDEX=index)
        assert done.returncode == 0, done.stderr
    check_merged(tmp_path, " ".join(merge["spec"]["template"]["spec"]["containers"][0]["command"]), spec["completions"])


def test_skypilot(recordings, tmp_path):
    train, shards = (yaml.safe_load((CLUSTERS / f"sky_{name}.yaml").read_text()) for name in ("train", "shards"))
    for document in train, shards:
        check_fields(document, SKY, document["name"])
    for node in range(shards["num_nodes"]):
        done = shell(shards["run"], tmp_path, SKYPILOT_NODE_RANK=node, SKYPILOT_NUM_NODES=shards["num_nodes"])
        assert done.returncode == 0, done.stderr
    check_merged(tmp_path, re.search(r"sky exec shards '(.*)'", (CLUSTERS / "sky_shards.yaml").read_text())[1], shards["num_nodes"])
    (tmp_path / "bin/torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "bin/torchrun").chmod(0o755)
    done = shell(train["run"], tmp_path, SKYPILOT_NODE_RANK=1, SKYPILOT_NUM_NODES=2, SKYPILOT_NUM_GPUS_PER_NODE=8, SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2")
    assert done.stdout.split() == ["--nnodes=2", "--nproc-per-node=8", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=29500",
                                   "train.py", "square.yaml"], done
