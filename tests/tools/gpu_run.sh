#!/bin/sh
# gpu_run.sh PROGRAM [ARGUMENT...]: runs a program of the bundle that this script lies in, with its libraries and a time
# limit (GPU_LIMIT_S, 300 seconds): a hang is a failure. A program in front of it (a sanitizer) goes into GPU_TOOL.
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
LD_LIBRARY_PATH=$bundle${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec timeout -k 10 "${GPU_LIMIT_S:-300}" ${GPU_TOOL:-} "$bundle/$program" "$@"
