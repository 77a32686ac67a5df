#!/bin/sh
# Makes the Python environments of the loaders that trajd is compared with: tests/conformance/make_peers.sh FOLDER
#
# venv-peers: LeRobot, robomimic, diffusion_policy's requirements, torchdata, Grain, litdata, Rerun, embodied-sync, on Python
# 3.12 or later ($PYTHON). venv-mosaicml: MosaicML Streaming, which wants an older datasets. venv-rlds: RLDS, on TensorFlow
# for the CPU. diffusion_policy itself is in no registry: $DIFFUSION_POLICY names a checkout of commit 5ba07ac.
set -e
into=$1
python=${PYTHON:-python3}
[ -x "$into/venv-peers/bin/pip" ] || "$python" -m venv "$into/venv-peers"
"$into/venv-peers/bin/pip" install -q "lerobot[dataset]==0.6.1" accelerate torchdata==0.11.0 grain==0.2.18 litdata==0.2.76 \
    embodied-sync==0.1.3 "rerun-sdk[catalog,dataloader]==0.41.0" "zarr<3" numba h5py termcolor tensorboardX tqdm
"$into/venv-peers/bin/pip" install -q --no-deps robomimic==0.3.0
[ -x "$into/venv-mosaicml/bin/pip" ] || "$python" -m venv "$into/venv-mosaicml"
"$into/venv-mosaicml/bin/pip" install -q mosaicml-streaming==0.13.0 torch==2.11.0
[ -x "$into/venv-rlds/bin/pip" ] || "$python" -m venv "$into/venv-rlds"
"$into/venv-rlds/bin/pip" install -q tensorflow-cpu==2.21.0 tensorflow-datasets==4.9.10 importlib_resources
