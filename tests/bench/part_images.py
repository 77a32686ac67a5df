"""Part `images`: decoding and resizing on one core, against bare libjpeg-turbo, Pillow, pillow-simd and OpenCV."""
import json
import subprocess

from bench_daemon import ROOT, figure

PEERS = ROOT / "tests/bench/image_peers.py"
BARE_RATIO, HELPER_COST = 0.95, 1.05
# by quality, of decoding and resizing to 224: of bare libjpeg-turbo, over Pillow, over OpenCV's INTER_AREA
RATIOS_224 = {75: (0.72, 2.3, 1.8), 95: (None, None, None)}
RESIZE_SIMD, RESIZE_AREA = 1.3, 3.8


def run_bench(options, *arguments):
    out = subprocess.run([options.build / "tests/bench/bench_images", *map(str, arguments)], check=True, capture_output=True, text=True)
    return {name: float(us) for name, us in (line.rsplit(" ", 1) for line in out.stdout.splitlines())}


def run_peers(python, file):
    out = subprocess.run([python, PEERS, "measure", file], check=True, capture_output=True, text=True)
    return {f"{program} {what}": us for program, times in json.loads(out.stdout).items() for what, us in times.items()}


def keep_least(times, measured):
    for name, us in measured.items():
        times[name] = min(us, times.get(name, us))


def against(name, ours, theirs, peer, least=None):
    """Returns the figure of a time with its ratio to a peer's."""
    one = figure(name, round(ours, 1), "us", ratio=round(theirs / ours, 2), ratio_to=f"{peer}, {theirs:.1f} us")
    if least is not None:
        one["budget"], one["met"] = f">= {least}x", theirs / ours >= least
    return one


def find(times, program, what):
    """Returns the full name and the time of what a program of any version does; (None, None): it was not measured."""
    return next(((name, us) for name, us in times.items() if name.startswith(program) and name.endswith(what)), (None, None))


def decoding(times, quality, size):
    bare, least = times["decode bare"], RATIOS_224[quality]
    head = f"q{quality}, {size / 1000:.0f} KB:"
    yield against(f"{head} decoded in a thread", times["decode thread"], bare, "bare libjpeg-turbo", BARE_RATIO)
    yield against(f"{head} decoded to 224 by the helper", times["decode helper_224"], bare, "bare, decoding alone", least[0])
    for program, what, least_ratio in (("Pillow", " decode 224", least[1]), ("OpenCV", " decode 224", least[2])):
        name, us = find(times, program, what)
        if us:
            yield against(f"{head} decoded to 224 by the helper", times["decode helper_224"], us, name, least_ratio)
    cost = times["decode helper_224"] / times["decode thread_224"]
    yield figure(f"{head} helper over thread, decoded to 224", round(cost, 3), "x", budget=f"<= {HELPER_COST}x", met=cost <= HELPER_COST)
    yield figure(f"{head} helper over thread, whole frames", round(times["decode helper"] / times["decode thread"], 3), "x")


def resizing(times, simd):
    bilinear, area = times["resize pillow-bilinear 224"], times["resize area 224"]
    for found, least in ((find(simd, "Pillow", " bilinear 224"), RESIZE_SIMD), (find(times, "Pillow", " bilinear 224"), None)):
        if found[1]:
            yield against("640x480 to 224, pillow-bilinear", bilinear, found[1], found[0], least)
    name, us = find(times, "OpenCV", " area 224")
    if us:
        yield against("640x480 to 224, area", area, us, name, RESIZE_AREA)


def run(options):
    """The Python with Pillow makes the images, so it is needed. Each figure is the best of all turns."""
    if not options.images_python:
        return {"figures": [], "note": "nothing measured: no --images-python (tests/bench/make_peers.sh makes one)"}
    folder, figures, simd, resize = options.work / "images", [], {}, {}
    folder.mkdir(exist_ok=True)
    subprocess.run([options.images_python, PEERS, "make", folder], check=True)
    for quality in RATIOS_224:
        files, times = sorted(folder.glob(f"q{quality}_*.jpg")), {}
        for _ in range(options.rounds):
            keep_least(times, run_bench(options, "decode", *files))
            keep_least(times, run_peers(options.images_python, files[0]))
            keep_least(resize, run_bench(options, "resize"))
            if options.simd_python:
                keep_least(simd, {name.replace("Pillow", "Pillow-SIMD"): us for name, us in run_peers(options.simd_python, files[0]).items()})
        keep_least(resize, {name: us for name, us in times.items() if not name.startswith("decode")})
        figures += decoding(times, quality, sum(file.stat().st_size for file in files) / len(files))
    return {"figures": figures + list(resizing(resize, simd)), "note": "" if options.simd_python else "not beside pillow-simd: no --simd-python",
            "us": {**resize, **simd}}
