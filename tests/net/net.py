#!/usr/bin/env python3
"""The net: records digests of everything that a build of trajd puts out, and compares two records.

    net.py record --build build/release --out base.json [--only PART]
    net.py compare base.json new.json

README.md in this folder says what is covered."""

import argparse
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

# noqa: E402 (the other modules need numpy, and are imported where they are used)
import net_compare

PARTS = ("resample", "feeds", "live", "arrays", "json", "messages")
RECORDINGS = HERE.parents[2] / "shared" / "data"


def read_options():
    parser = argparse.ArgumentParser(
        description="Records what a build of trajd puts out, and compares records."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="run everything, write a digest per item")
    record.add_argument(
        "--build",
        type=pathlib.Path,
        required=True,
        help="a build folder, or a folder with an installed package",
    )
    record.add_argument("--out", type=pathlib.Path, required=True, help="the record, a JSON file")
    record.add_argument(
        "--only",
        action="append",
        metavar="PART[/CASE]",
        help=f"one of {', '.join(PARTS)}, or a case of it; may be given several times",
    )
    record.add_argument(
        "--artefacts",
        type=pathlib.Path,
        help="a folder with .live files of the first record, which later records read too",
    )
    record.add_argument(
        "--data", type=pathlib.Path, help="data that `net.py data` wrote; else it is written"
    )
    record.add_argument("--work", type=pathlib.Path, help="a folder for all files; it is kept")
    record.add_argument(
        "--device",
        choices=("numpy", "cpu", "cuda"),
        default="numpy",
        help="what a batch consists of; cuda: the daemon makes it on the GPU",
    )
    record.add_argument(
        "--threads", type=int, default=0, help="of all programs; 0: one per processor"
    )
    compare = commands.add_parser(
        "compare", help="list the items that differ, are missing or are new"
    )
    compare.add_argument("before", type=pathlib.Path)
    compare.add_argument("after", type=pathlib.Path)
    compare.add_argument(
        "--only", action="append", metavar="PREFIX", help="compare these items alone"
    )
    compare.add_argument(
        "--without", action="append", default=[], metavar="PREFIX", help="leave these items out"
    )
    data = commands.add_parser("data", help="write the data alone, for a machine without h5py")
    data.add_argument("--out", type=pathlib.Path, required=True, help="a folder")
    return parser.parse_args()


def module_of(part):
    return __import__(f"net_{part}")


def record_part(part, items, build, only):
    """Runs the cases of a part that `only` names. Prints how long they took."""
    begin, before = time.monotonic(), len(items.items)
    cases = [name.partition("/")[2] for name in only if name.split("/")[0] == part]
    module_of(part).record(items.part(part, [case for case in cases if case]), build)
    print(
        f"{part}: {len(items.items) - before} items in {time.monotonic() - begin:.0f} s", flush=True
    )


def find_parts(options):
    """Returns the parts to record. On a GPU these are the parts with arithmetic; the files of one
    need h5py."""
    on_gpu = ("feeds", "arrays", *(["resample"] if importlib.util.find_spec("h5py") else []))
    only = options.only or list(on_gpu if options.device == "cuda" else PARTS)
    unknown = [name for name in only if name.split("/")[0] not in PARTS]
    if unknown:
        sys.exit(f"net.py: no part is called {unknown[0]} (there are: {', '.join(PARTS)})")
    return only, list(dict.fromkeys(name.split("/")[0] for name in only))


def write_data(folder):
    """Writes the data, or returns at once where a run before has written them."""
    import net_data

    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        net_data.write(folder)
        (folder / "complete").touch()


def record(options):
    """Records all parts in one folder, into which the data are linked, so that all paths are
    relative to it."""
    from net_build import Build
    from net_items import Items

    only, parts = find_parts(options)
    if options.threads:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    work = options.work or pathlib.Path(tempfile.mkdtemp(prefix="net"))
    work.mkdir(parents=True, exist_ok=True)
    out, artefacts = options.out.resolve(), options.artefacts and options.artefacts.resolve()
    build = Build(
        options.build.resolve(), work.resolve(), options.device, options.threads, artefacts
    )
    data = (options.data or work / "data_of_net").resolve()
    items = Items(
        [
            (str(data), "<data>"),
            (str(build.work), "<work>"),
            (str(build.folder), "<build>"),
            (str(HERE.parents[1]), "<tree>"),
        ]
    )
    try:
        write_data(data)
        os.chdir(work)
        build.prepare(data, RECORDINGS)
        for part in parts:
            record_part(part, items, build, only)
        items.write(out, parts)
        print(
            f"{len(items.items)} items, of which {items.error_count} say that a case failed: {out}"
        )
        return 1 if items.error_count else 0
    finally:
        os.chdir("/")
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)


def main():
    options = read_options()
    if options.command == "data":
        return write_data(options.out.resolve())
    if options.command == "record":
        return record(options)
    return net_compare.compare(options.before, options.after, options.only, options.without)


if __name__ == "__main__":
    sys.exit(main())
