#!/bin/sh
# gpu_run.sh PROGRAM [ARGUMENT...]: runs a program of the bundle that this script lies in, with its libraries and a time
# limit (GPU_LIMIT_S, 300 seconds): a hang is a failure. A program in front of it (a sanitizer) goes into GPU_TOOL.
#   gpu_run.sh test_gpu_resample           the kernels
#   gpu_run.sh test_python_cuda.py         the Python package with device="cuda", by python3 (GPU_PYTHON) and its torch
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
case $program in
*.py) # it finds its own libraries; torch has others of the same names
    exec timeout -k 10 "${GPU_LIMIT_S:-300}" ${GPU_TOOL:-} "${GPU_PYTHON:-python3}" "$bundle/$program" "$@" ;;
esac
LD_LIBRARY_PATH=$bundle${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec timeout -k 10 "${GPU_LIMIT_S:-300}" ${GPU_TOOL:-} "$bundle/$program" "$@"
