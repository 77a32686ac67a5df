"""Feeds of hostile videos: each costs the frames that are not right, with a reason for each, in bounded time and memory. The other
frames of the file, and the other feeds of the daemon, are right."""
import contextlib
import pathlib
import threading
import time

import h5py
import numpy as np
import pytest

from daemons import decoders_of
from hostile_videos import avcc, av1_header, grey_video, pps, settle, sps
from video_groups import VIDEO, Video, of_mp4

BAD_FRAME = 8
LAYOUT = """\
layout: lab
episodes: {files: "*.h5", groups: /ep_*}
clocks: {robot: {rate: 30}}
streams:
  state: {kind: linear}
  cam: {kind: previous, image: {color: rgb}}
"""
FEED = """  {name}: {{dataset: {name}, global_batch: 12, tail: short, order: sequential, bad_rows: {bad}, anchor: {{clock: robot}},
    outputs: {{state: {{at: 0}}, cam: {{at: 0, image: {{resize: [24, 32], filter: nearest}}}}}}}}
"""
STORE, RINGS = 16, 16  # MiB
OTHERWISE = 32 << 20  # bytes that a daemon may have beside its configured memory
CHILD = 2 << 30  # bytes of address space of a decoder
SECONDS = 60


def whole(name, *how):
    """Returns a function that makes the video of an MP4 file. The video knows the function."""
    def make():
        video = of_mp4(VIDEO / f"mp4/{name}.mp4", *how)
        video.again = make
        return video
    return make


h264 = whole("h264", 6)
av1 = whole("av1", 2, "av1", b"av1C")
av1_g10 = whole("av1_g10", 10, "av1", b"av1C")


def flip(packet, at, mask=0xFF):
    return packet[:at] + bytes([packet[at] ^ mask]) + packet[at + 1:]


# Each returns the video of the second episode, and which of its rows are bad. The first episode is the same video, whole.

def bits_without_checksum():
    video = h264()
    video.packets[8] = flip(video.packets[8], 40)
    return video, range(8, 12), "the bytes of packet 8 have changed since the conversion"


def bits_with_checksum():
    video = h264()
    video.packets[8] = video.packets[8][:6] + bytes(byte ^ 0x55 for byte in video.packets[8][6:])
    return settled(video), range(8, 12), "packet 2 of its decode unit"


def settled(video):
    settle(video)
    return video


def av1_bits_with_checksum():
    video = av1_g10()
    video.packets[10] = video.packets[10][:30] + bytes(byte ^ 0x55 for byte in video.packets[10][30:])
    return settled(video), None, None  # which frames dav1d finds faults in is its own matter


def cut_packet():
    video = h264()
    video.packets[13] = video.packets[13][:len(video.packets[13]) // 2]
    return settled(video), range(13, 18), "packet 1 of its decode unit"


def packet_of_one_byte():
    video = av1()
    video.packets[4] = video.packets[4][:1]
    return settled(video), range(4, 6), "packet 0 of its decode unit"


def empty_packet():
    video = av1()
    video.packets[4] = b""
    return settled(video), range(4, 6), ""


def swapped_packets():
    """Inter frames of two units change places. Their numbers do not follow those of the frames before."""
    video = h264()
    video.packets[7], video.packets[14] = video.packets[14], video.packets[7]
    return settled(video), [*range(7, 12), *range(14, 18)], "packet "


def swapped_key_frames():
    """A key frame stands in the middle of a unit, and an inter frame at its start."""
    video = h264()
    video.packets[0], video.packets[1] = video.packets[1], video.packets[0]
    return settled(video), range(6), "packet 0 of its decode unit"


def wrong_codec():
    video = h264()
    video.attributes["codec"] = "hevc"
    return video, range(24), "libavcodec"


def wrong_codec_av1():
    video = h264()
    video.attributes["codec"] = "av1"
    return video, range(24), "its extradata is not an av1C"


def av1_as_h264():
    video = av1()
    video.attributes["codec"] = "h264"
    return video, range(24), ""


def wrong_size():
    video = h264()
    video.attributes["size"] = np.array([40, 64])
    return video, range(24), "a frame of 48x64 in a video of 40x64"


def small_size():
    """More pixels than the video may have: not decoded."""
    video = h264()
    video.attributes["size"] = np.array([2, 2])
    return video, range(24), ""


def huge_h264():
    video = h264()
    video.extradata = [avcc([sps(65520, 65520)], [pps()])]
    return video, range(24), ""


def huge_av1():
    video = av1()
    header = av1_header(video.packets[0], 65536)
    for i in range(0, 24, 2):
        own = video.packets[i]
        video.packets[i] = header + own[2 + own[1]:]
    video.extradata = [video.extradata[0][:4] + header]
    return settled(video), range(24), "packet 0 of its decode unit"


def larger_av1():
    """A frame of four times the pixels in a video of small ones."""
    video = av1()
    video.attributes["size"] = np.array([24, 32])
    return video, range(24), "its frame is larger than the video's"


def extradata_of_another():
    video = h264()
    video.extradata = of_mp4(VIDEO / "mp4/h264_cropped.mp4", 6).extradata
    return video, range(24), ""


def extradata_of_noise():
    video = h264()
    video.extradata = [bytes(range(256)) * 64]
    return video, range(24), ""


def no_extradata():
    video = h264()
    video.extradata = [b"", b""]
    return video, range(24), ""


def no_extradata_av1():
    """The sequence header stands in the packets, too."""
    video = av1()
    video.extradata = [b""]
    return video, range(0), ""


def many_references():
    video = h264()
    video.extradata = [avcc([sps(48, 64, references=255)], [pps()])]
    return video, range(24), ""


def tiny_packets():
    video = Video(rows=4096, gop=4096, largest=2)
    grey_video(video, 16, 16, 4096)
    return video, range(0), ""


def tiny_packets_of_noise():
    video = Video(rows=4096, gop=4096, largest=5, seed=3, size=(48, 64))
    video.attributes["codec"] = "h264"
    video.extradata = h264().extradata
    return settled(video), range(4096), "packet 0 of its decode unit"


def at_the_byte_limit():
    """64 MiB of zeros behind frames, as a filler."""
    video = h264()
    video.packets = video.packets[:6]
    video.rows, video.units = video.rows[:6], video.units[:1]
    room = (64 << 20) - sum(map(len, video.packets))
    for i in range(1, 6):
        video.packets[i] += bytes(room // 5)
    return settled(video), None, None


def deep_frames():
    """All 16 references of the level in frames of 8192x4000: more memory than a decoder has."""
    video = Video(rows=4, gop=4, largest=2)
    grey_video(video, 8192, 4000, 4, references=16)
    return video, None, None


def slow_frames():
    """Frames of 32 million pixels, in packets of some bytes."""
    video = Video(rows=40, gop=40, largest=2)
    grey_video(video, 8192, 4000, 40)
    return video, None, None


CASES = [bits_without_checksum, bits_with_checksum, av1_bits_with_checksum, cut_packet, packet_of_one_byte, empty_packet, swapped_packets,
         swapped_key_frames, wrong_codec, wrong_codec_av1, av1_as_h264, wrong_size, small_size, huge_h264, huge_av1, larger_av1,
         extradata_of_another, extradata_of_noise, no_extradata, no_extradata_av1, many_references, tiny_packets, tiny_packets_of_noise,
         at_the_byte_limit, deep_frames, slow_frames]


def write(folder, good, hostile):
    """Writes the whole video as an episode, where there is one, and the hostile one as the next."""
    folder.mkdir()
    (folder / "lab.yaml").write_text(LAYOUT)
    with h5py.File(folder / "a.h5", "w") as file:
        for e, video in enumerate((good, hostile)):
            group = file.create_group(f"ep_{e}")
            group["state"] = np.repeat(np.arange(len(video.rows), dtype="f4")[:, None], 3, 1)
            video.write(group.create_group("cam"))
    return f"  {folder.name}: {{path: {folder}/a.h5, layout: {folder}/lab.yaml}}\n"


class Watch(threading.Thread):
    """Notes the most memory of the daemon, and of any of its decoders."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.pid, self.is_over, self.daemon_bytes, self.child_bytes = daemon.process.pid, threading.Event(), 0, 0

    @staticmethod
    def peak(pid, name="VmHWM"):
        with contextlib.suppress(OSError, StopIteration):
            lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
            return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
        return 0

    def look(self):
        self.daemon_bytes = self.peak(self.pid)
        for child in decoders_of(self.pid):
            self.child_bytes = max(self.child_bytes, self.peak(child))

    def run(self):
        while not self.is_over.wait(0.02):
            self.look()
        self.look()


def read(client, feed):
    """Returns {(episode, row): (mask, image, window)} of an epoch."""
    client.open(feed)
    found = {}
    while (batch := client.next(1000 * SECONDS)) is not None:
        arrays = batch.copy()
        batch.release()
        for w, window in enumerate(arrays["window_id"]):
            key = int(arrays["episode_index"][w]), int(arrays["state"][w, 0, 0])
            found[key] = int(arrays["cam.mask"][w, 0]), arrays["cam"][w, 0].copy(), int(window)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_hostile_video(daemon, tmp_path, case):
    hostile, bad, words = case()
    good = hostile.again() if hasattr(hostile, "again") else hostile
    is_alone = len(good.rows) != len(hostile.rows) or list(good.attributes["size"]) != list(hostile.attributes["size"]) or good is hostile
    datasets = write(tmp_path / "lab", hostile if is_alone else good, hostile) + write(tmp_path / "other", av1(), av1())
    feeds = "".join(FEED.format(name=name, bad="keep") for name in ("lab", "other"))
    one = daemon(f"threads: {{decoders: 1}}\ndatasets:\n{datasets}feeds:\n{feeds}", store=f"{STORE}MiB", rings=f"{RINGS}MiB")
    watch = Watch(one)
    watch.start()
    client, other = one.client(timeout_ms=1000 * SECONDS), one.client(timeout_ms=1000 * SECONDS)
    begin = time.monotonic()
    found = read(client, "lab")
    seconds = time.monotonic() - begin
    others = read(other, "other")
    watch.is_over.set()
    watch.join()

    rows = [row for episode, row in found if episode == 1]
    assert sorted(rows) == list(range(len(hostile.rows)))
    assert len(others) == 48 and all(mask == 0 for mask, _, _ in others.values())
    assert is_alone or all(found[0, row][0] == 0 for row in rows)
    masked = {row for row in rows if found[1, row][0] == BAD_FRAME}
    assert {found[1, row][0] for row in rows} <= {0, BAD_FRAME}
    print(case.__name__, f"{seconds:.1f} s, daemon {watch.daemon_bytes >> 20} MiB, child {watch.child_bytes >> 20} MiB, bad {sorted(masked)[:30]}")
    for row in sorted(masked)[:3]:
        reason = client.ask("explain", window=found[1, row][2], name="cam")["outputs"][0]["items"][0]["sources"][0]["reason"]
        print(reason)
        assert f"a.h5: ep_1/cam: row {row}: " in reason
        assert words is None or words in reason
    if bad is not None:
        assert masked == set(bad)
        for row in set(rows) - masked:
            np.testing.assert_array_equal(found[1, row][1], found[0, row][1])
    assert one.process.poll() is None and seconds < SECONDS
    assert watch.child_bytes < CHILD
    unit = int(hostile.attributes["largest_unit"][1])  # is in the daemon twice while it is decoded
    assert watch.daemon_bytes < (STORE + RINGS << 20) + OTHERWISE + 2 * unit
    assert watch.peak(one.process.pid, "VmRSS") < (STORE + RINGS << 20) + OTHERWISE
    client.close()
    other.close()
