"""Records what a version delivers and leaves behind: record.py BUILD NAME writes tests/golden/upgrade/NAME.

BUILD is a build folder of that version, made from its commit. The dataset and the configuration are those of the folder above.
Each folder is recorded once, when the version is released, and never again."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from versions import RECORDED, Place, Worker  # noqa: E402


def statistics(build, place, path):
    program = "import sys, trajd; trajd.connect(sys.argv[1], feed='normed', timeout=30).stats().save(sys.argv[2])"
    subprocess.run([sys.executable, "-c", program, place.endpoint, path], check=True,
                   env={**os.environ, "PYTHONPATH": str(build / "clients/python")})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("name")
    arguments = parser.parse_args()
    build, out = arguments.build.resolve(), RECORDED / arguments.name
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(pathlib.Path(folder) / "a")
        time.sleep(2.1)  # the index of a file that is younger is not kept
        place.start(build)
        batches = {f"{feed}/{epoch}": Worker(build, place, feed, epoch).rest() for feed, epoch in
                   (("train", 0), ("train", 1), ("normed", 0))}
        (out / "batches.json").write_text(json.dumps(batches, indent=0) + "\n")
        for feed in ("train", "normed"):
            worker = Worker(build, place, feed, 1)
            for _ in range(5):
                worker.next()
            (out / f"state-{feed}.json").write_text(json.dumps(worker.end(), indent=1) + "\n")
        statistics(build, place, out / "statistics.json")
        place.stop()
        shutil.copytree(place.folder / "cache", out / "cache")
        # a job that was killed: its journal
        place = Place(pathlib.Path(folder) / "b")
        place.start(build)
        worker = Worker(build, place, "train")
        for _ in range(7):
            worker.next()
        place.kill()  # first: a daemon that has seen its worker end waits for none to return
        worker.kill()
        shutil.copytree(place.folder / "state", out / "state")
    print(f"recorded {out}")


main()
