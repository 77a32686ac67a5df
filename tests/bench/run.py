#!/usr/bin/env python3
"""`make bench`: runs the benchmarks that need no GPU, prints a table and writes JSON.

    run.py --build build/release [PART...] [--rounds 5] [--seconds 2] [--out FILE.json]
           [--robomimic-python /path/to/python] [--torch-python /path/to/python] [--small-files]

Parts, all by default: defaults, feed, start, service, handover, remote, read, index, cpu, mixture, statistics, resample,
frames, targets, arrays, images, image_feeds, video.
Programs that are compared take turns in one run. The table has the median of the turns and, in brackets, their
range. tests/bench/README.md says more."""
import argparse
import datetime
import json
import os
import pathlib
import sys
import time

import part_arrays
import part_defaults
import part_feed
import part_frames
import part_mixture
import part_image_feeds
import part_images
import part_programs
import part_resample
import part_service
import part_start
import part_statistics
import part_targets
import part_video
from bench_daemon import ROOT, commit, cpu_name
from report import command_line, print_figure

PARTS = {"defaults": part_defaults.run, "feed": part_feed.run, "start": part_start.run, "service": part_service.run, "handover": part_programs.handover, "remote": part_programs.remote,
         "read": part_programs.read, "index": part_programs.index, "cpu": part_programs.cpu,
         "mixture": part_mixture.run, "statistics": part_statistics.run,
         "resample": part_resample.run, "frames": part_frames.run, "targets": part_targets.run, "arrays": part_arrays.run, "images": part_images.run,
         "image_feeds": part_image_feeds.run, "video": part_video.run}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--work", help="folder for data sets and sockets; default BUILD/bench")
    parser.add_argument("--out", help="the JSON; default WORK/results.json")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each side of a comparison gets")
    parser.add_argument("--seconds", type=float, default=2, help="length of a turn")
    parser.add_argument("--robomimic-python", help="a Python that has robomimic and torch: the feed is then compared with it")
    parser.add_argument("--torch-python", help="a Python that has torch and h5py; default: robomimic's, else build/venv-torch")
    for name, what in (("images", "Pillow and OpenCV"), ("simd", "pillow-simd"), ("lerobot", "lerobot and h5py")):
        peer = ROOT / "build" / {"images": "venv-images", "simd": "venv-pillow-simd", "lerobot": "venv-lerobot"}[name] / "bin/python"
        parser.add_argument(f"--{name}-python", default=peer if peer.exists() else None, help=f"a Python that has {what}; default: {peer.relative_to(ROOT)}")
    parser.add_argument("--small-files", action="store_true", help="10,000 small files too")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part is called {part}: {', '.join(PARTS)}")
    options.build = (ROOT / options.build).resolve()
    options.work = pathlib.Path(options.work).resolve() if options.work else options.build / "bench"
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = parse_arguments()
    command = command_line("tests/bench/run.py")
    report = {"device": cpu_name(), "cores": len(os.sched_getaffinity(0)), "commit": commit(), "command": command,
              "date": datetime.date.today().isoformat(), "load_before": [round(one, 2) for one in os.getloadavg()], "parts": {}}
    print(f"{report['device']}, {report['cores']} cores, commit {report['commit']}, {report['date']}, load {report['load_before'][0]}\n{command}")
    failed = []
    for part in options.parts or PARTS:
        print(f"\n{part}", flush=True)
        begin = time.monotonic()
        try:
            report["parts"][part] = result = PARTS[part](options)
        except Exception as error:  # the other parts' figures are kept
            failed.append(part)
            print(f"  FAILED: {error}\n{getattr(error, 'stderr', None) or ''}", flush=True)
            continue
        result["took_s"] = round(time.monotonic() - begin, 1)
        for one in result["figures"]:
            print_figure(one)
        if result.get("note"):
            print(f"  {result['note']}")
    out = pathlib.Path(options.out) if options.out else options.work / "results.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{out}" + (f", without {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
