"""Part `arrays`: trajd.resample on arrays, against numpy.interp, scipy's Slerp and torch (bench_arrays.py)."""
import json
import os
import pathlib
import subprocess
import sys

from bench_daemon import ROOT
from report import figure

BUDGET = 10


def run(options):
    found = [python for python in (options.torch_python, ROOT / "build/venv-torch/bin/python", sys.executable) if python and os.path.exists(python)]
    done = subprocess.run([found[0], pathlib.Path(__file__).with_name("bench_arrays.py"), "--json", "--rounds", str(options.rounds),
                           "--seconds", str(options.seconds / 10)], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(options.build / "clients/python")})
    figures = []
    for one in json.loads(done.stdout):
        figures.append(figure(one["name"], one["us"]["trajd"], "us"))
        for peer, ratio in one["ratio"].items():
            figures.append(figure(f"  the same by {peer}", one["us"][peer], "us", ratio=ratio, ratio_to="trajd.resample",
                                  budget=f">= {BUDGET}x", met=ratio >= BUDGET))
    return {"figures": figures}
