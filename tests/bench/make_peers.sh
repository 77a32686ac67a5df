#!/bin/sh
# Makes the Python environments of the programs that trajd is measured against, below build/ or the folder that is given:
#
#     tests/bench/make_peers.sh [FOLDER]
#
# venv-images: Pillow and OpenCV. venv-pillow-simd: pillow-simd for AVX2; it is built, which takes libjpeg's headers.
# venv-lerobot: lerobot, with PyAV and torchcodec, which needs FFmpeg's libraries (Debian: libavfilter8, libavdevice59).
# venv-robomimic: robomimic, OpenCV and torch. torch is Debian's, of /usr/bin/python3, where that has one.
set -e
into=${1:-$(dirname "$0")/../../build}
python3 -m venv "$into/venv-images"
"$into/venv-images/bin/pip" install -q numpy h5py pillow opencv-python-headless
python3 -m venv "$into/venv-pillow-simd"
CC="cc -mavx2" "$into/venv-pillow-simd/bin/pip" install -q numpy pillow-simd
python3 -m venv "$into/venv-lerobot"
"$into/venv-lerobot/bin/pip" install -q lerobot==0.4.4 h5py
if /usr/bin/python3 -c "import torch" 2>/dev/null; then
    /usr/bin/python3 -m venv --system-site-packages "$into/venv-robomimic"
    "$into/venv-robomimic/bin/pip" install -q --no-deps robomimic==0.3.0
    "$into/venv-robomimic/bin/pip" install -q "numpy<2" h5py tqdm psutil termcolor imageio tensorboardX opencv-python-headless==4.10.0.84
else
    python3 -m venv "$into/venv-robomimic"
    "$into/venv-robomimic/bin/pip" install -q robomimic==0.3.0 torch h5py opencv-python-headless
fi
