"""python -m trajd.convert SOURCE PATH -o OUT.hdf5"""
from __future__ import annotations

import argparse
import pathlib
import re
import sys
from fractions import Fraction
from typing import Any, List, Optional

from ..errors import ArgumentError, run_command, shown
from . import shard as shards
from .rate import exact_rate


def _ranges(text: str) -> List[range]:
    """Reads numbers of episodes, such as 0-9,12."""
    ranges = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not found:
            raise argparse.ArgumentTypeError(f"\"{text}\" is not like 0-9,12")
        ranges.append(range(int(found[1]), int(found[2] or found[1]) + 1))
    return ranges


def _names(text: str) -> List[str]:
    return [name.strip() for name in text.split(",")]


def _rate(text: str) -> Fraction:
    try:
        return exact_rate(float(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"\"{text}\" is not a rate in Hz, such as 10 or 29.97") from None


def _quality(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d?|100", text):
        raise argparse.ArgumentTypeError(f"\"{text}\" is not a quality from 1 to 100")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    output = argparse.ArgumentParser(add_help=False)
    output.add_argument("-o", "--output", metavar="OUT.hdf5", type=pathlib.Path, required=True,
                        help="the file to write (mcap: OUT.layout.yaml becomes its layout)")
    output.add_argument("--shard", metavar="I/N", type=shards.parse,
                        help="convert only part I of N, counted from 0, into OUT-0000I-of-0000N.hdf5; a part that is "
                             "complete is not made again")
    output.add_argument("--force", action="store_true", help="replace files that exist")
    common = argparse.ArgumentParser(add_help=False, parents=[output])
    common.add_argument("folder", metavar="PATH", type=pathlib.Path, help="the data set: a folder (zarr: or a .zip)")
    common.add_argument("--episodes", metavar="N,N-M", type=_ranges, help="only these episodes, such as 0-9,12")
    common.add_argument("--cameras", metavar="NAME,...", type=_names, help="only the frames of these cameras")
    video = argparse.ArgumentParser(add_help=False)
    video.add_argument("--media", metavar="FOLDER", type=pathlib.Path,
                       help="the folder beneath which MP4 files are referred to (default: that of OUT.hdf5); give it "
                            "to the data set in the configuration as `media: FOLDER`")
    rate = argparse.ArgumentParser(add_help=False)
    rate.add_argument("--fps", metavar="HZ", type=_rate, help="the rate of the steps, which is not in the data set")
    parser = argparse.ArgumentParser(
        prog="trajd-convert",
        description="Converts recordings into an HDF5 file that trajd reads. Video and encoded images stay as they "
                    "were recorded, except JPEG XL and JPEG 2000. The summary names each episode that is left out, and "
                    "why.",
        epilog="Exit status: 0 if episodes were converted, though some may be left out; 2 after an error or if none "
               "could be converted, which leaves no file.")
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    lerobot = sources.add_parser("lerobot", parents=[common, video], help="a LeRobot data set, v3.0, v2.1 or v2.0")
    lerobot.add_argument("--reference", action="store_true", help="leave the video in its MP4 files, and refer to it")
    sources.add_parser("droid", parents=[common, video],
                       help="DROID raw: folders with trajectory.h5; video stays in its MP4 files")
    sources.add_parser("agibot", parents=[common, video], help="AgiBot World; video stays in its MP4 files")
    zarr = sources.add_parser("zarr", parents=[common, rate], help="a ReplayBuffer of diffusion_policy or UMI")
    zarr.add_argument("--jpeg", metavar="QUALITY", type=_quality, help="store frames as JPEG, such as of quality 95")
    sources.add_parser("rlds", parents=[common, rate], help="RLDS of TFDS, such as DROID and Open X-Embodiment")
    mcap = sources.add_parser("mcap", parents=[output], help="MCAP files of ROS 2 or Foxglove, rosbag2 folders and .db3 files; a layout "
                                           "is written, too")
    mcap.add_argument("files", metavar="FILE", type=pathlib.Path, nargs="+", help="a file, or a rosbag2 folder")
    mcap.add_argument("--topics", metavar="NAME,...", type=_names,
                      help="only these topics, such as /joint_states,/camera/*")
    cut = mcap.add_mutually_exclusive_group()
    cut.add_argument("--cut-topic", metavar="TOPIC", help="an episode begins where the value of this topic (its field "
                     "data) changes, and there is none while it is 0, false or empty")
    cut.add_argument("--cut-gap", metavar="SECONDS", type=float,
                     help="an episode begins after such a pause of all topics")
    return parser


def _source(options: argparse.Namespace) -> Any:
    """Returns the output.Source. Its packages are imported here, because other sources do not need them."""
    if options.source == "mcap":
        from .mcap import Mcap
        return Mcap(options.files, options.output, options)
    chosen = options.episodes, options.cameras
    if options.source == "zarr":
        from .replay_buffer import ReplayBuffer
        return ReplayBuffer(options.folder, *chosen, options.fps, options.jpeg)
    if options.source == "rlds":
        from .rlds import Rlds
        return Rlds(options.folder, *chosen, options.fps)
    media = (options.media or options.output.parent).resolve()
    if options.source == "lerobot":
        from .lerobot import LeRobot, Options
        reference = media if options.reference or options.media else None
        return LeRobot(options.folder, Options(reference, *chosen))
    from .beside import SOURCES
    return SOURCES[options.source](options.folder, media, *chosen)


def _convert(options: argparse.Namespace) -> None:
    from .output import convert
    source, path, shard = _source(options), options.output, options.shard
    episodes = source.episodes()
    if not episodes:
        raise ArgumentError("the set has none of the episodes that --episodes names")
    if shard:
        recipe, total, path = shards.recipe(options, len(episodes)), len(episodes), shard.path(path)
        if not options.force and shards.is_complete(path, recipe):
            print(shown(f"{shard}: {path} is complete"))
            source.after()  # the run that made it may have been killed before
            return
        source.attributes["recipe"], episodes = recipe, shard.part(episodes)
        print(f"{shard}: {len(episodes)} of {total} episodes", flush=True)
        if not episodes:
            return
    for line in source.expect(episodes):
        print(shown(line), flush=True)
    convert(source, episodes, path, options.force)
    source.after()


def main(arguments: Optional[List[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    return run_command("trajd-convert", "convert", lambda: _convert(options), shown, "interrupted; nothing was written")


if __name__ == "__main__":
    sys.exit(main())
