"""What `python -m trajd doctor` adds to `trajctl doctor`: this Python, its packages, and the programs of the wheel."""
import importlib
import json
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

from . import _core
from .launch import program


class Finding(NamedTuple):
    level: str  # "ok", "slow" or "fail", as in trajctl doctor
    topic: str
    text: str


def _python() -> Finding:
    numpy = importlib.import_module("numpy")
    return Finding("ok", "python", f"Python {sys.version.split()[0]}, numpy {numpy.__version__}, trajd {_core.version} in "
                                   f"{_core.__file__}")


def _programs() -> Finding:
    path = program("trajctl")
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    found = done.stdout.split()[-1] if done.returncode == 0 and done.stdout else "none"
    if found != _core.version:
        return Finding("fail", "wheel", f"the package has version {_core.version} and {path} has {found}: two installations are "
                                        "mixed. Run `pip install --force-reinstall trajd`, and unset TRAJD_PROGRAM.")
    return Finding("ok", "wheel", f"{path} has the same version")


def _torch() -> Finding:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return Finding("ok", "torch", f"not usable ({error}): batches are numpy arrays")
    if torch.cuda.is_available():
        return Finding("ok", "torch", f"torch {torch.__version__} sees {torch.cuda.device_count()} GPUs, CUDA {torch.version.cuda}")
    try:
        _core.gpu_uuid(0)
    except Exception:
        return Finding("ok", "torch", f"torch {torch.__version__} without a GPU")
    return Finding("slow", "torch", f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees no GPU, and the driver has one: "
                                    "install a torch that is built for CUDA and fits the driver")


def find() -> List[Finding]:
    """Returns the findings about this Python."""
    return [_python(), _programs(), _torch()]


def run(arguments: Sequence[str]) -> int:
    """Prints the findings about this Python and then those of `trajctl doctor`. Returns the exit status."""
    findings = find()
    failed = sum(finding.level == "fail" for finding in findings)
    command = [program("trajctl"), "doctor", *arguments]
    if "--json" not in arguments:
        print(f"trajd {_core.version} for Python")
        for finding in findings:
            print(f"  {finding.level:5} {finding.topic:11} {finding.text}", flush=True)
        return max(subprocess.run(command).returncode, int(failed > 0))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        return done.returncode
    document: Dict[str, Any] = json.loads(done.stdout)
    document["findings"] = [finding._asdict() for finding in findings] + document["findings"]
    for level in ("slow", "fail"):
        key = "failed" if level == "fail" else level
        document[key] += sum(finding.level == level for finding in findings)
    print(json.dumps(document))
    return int(document["failed"] > 0)
