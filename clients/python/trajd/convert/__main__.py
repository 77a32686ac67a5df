"""python -m trajd.convert SOURCE DIR -o OUT.hdf5"""
import argparse
import pathlib
import re
import sys
from typing import List, Optional

from ..errors import Error


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


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("folder", metavar="DIR", type=pathlib.Path, help="the folder of the data set")
    common.add_argument("-o", "--output", metavar="OUT.hdf5", type=pathlib.Path, required=True, help="the file to write")
    common.add_argument("--episodes", metavar="N,N-M", type=_ranges, help="only these episodes, such as 0-9,12")
    common.add_argument("--cameras", metavar="NAME,...", type=_names, help="only the frames of these cameras")
    common.add_argument("--media", metavar="FOLDER", type=pathlib.Path,
                        help="the folder beneath which MP4 files are referred to (default: that of OUT.hdf5); give it to "
                             "the data set in the configuration as `media: FOLDER`")
    common.add_argument("--force", action="store_true", help="replace OUT.hdf5 if it exists")
    parser = argparse.ArgumentParser(
        prog="trajd-convert",
        description="Converts recordings into an HDF5 file that trajd reads. Nothing is decoded: video stays as it was "
                    "recorded. The summary names each episode that is left out, and why.",
        epilog="Exit status: 0 if episodes were converted, though some may be left out; 2 after an error or if none "
               "could be converted, which leaves no file.")
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    lerobot = sources.add_parser("lerobot", parents=[common], help="a LeRobot data set, v3.0, v2.1 or v2.0")
    lerobot.add_argument("--reference", action="store_true", help="leave the video in its MP4 files, and refer to it")
    sources.add_parser("droid", parents=[common], help="DROID raw: folders with trajectory.h5; video stays in its MP4 files")
    sources.add_parser("agibot", parents=[common], help="AgiBot World; video stays in its MP4 files")
    mcap = sources.add_parser("mcap", help="MCAP files of ROS 2 or Foxglove, rosbag2 folders and .db3 files; a layout is "
                                           "written, too")
    mcap.add_argument("files", metavar="FILE", type=pathlib.Path, nargs="+", help="a file, or a rosbag2 folder")
    mcap.add_argument("-o", "--output", metavar="OUT.hdf5", type=pathlib.Path, required=True,
                      help="the file to write; OUT.layout.yaml becomes its layout")
    mcap.add_argument("--topics", metavar="NAME,...", type=_names,
                      help="only these topics, such as /joint_states,/camera/*")
    cut = mcap.add_mutually_exclusive_group()
    cut.add_argument("--cut-topic", metavar="TOPIC", help="an episode begins where the value of this topic (its field "
                     "data) changes, and there is none while it is 0, false or empty")
    cut.add_argument("--cut-gap", metavar="SECONDS", type=float, help="an episode begins after such a pause of all topics")
    mcap.add_argument("--force", action="store_true", help="replace OUT.hdf5 and its layout if they exist")
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        from .output import convert, shown
        if options.source == "mcap":
            from .mcap import Mcap
            recordings = Mcap(options.files, options.output, options)
            convert(recordings, options.output, options.force, recordings.write_layout)
            return 0
        media = (options.media or options.output.parent).resolve()
        if options.source == "lerobot":
            from .lerobot import LeRobot, Options
            reference = media if options.reference or options.media else None
            source = LeRobot(options.folder, Options(reference, options.episodes, options.cameras))
        else:
            from .beside import SOURCES
            source = SOURCES[options.source](options.folder, media, options.episodes, options.cameras)
        convert(source, options.output, options.force)
        return 0
    except ImportError as error:
        print(f"trajd-convert: {error.name} is not installed: pip install 'trajd[convert]'", file=sys.stderr)
    except (Error, OSError) as error:
        print(f"trajd-convert: {shown(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        print("trajd-convert: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
