#!/bin/sh
# gpu_run.sh PART... | PROGRAM [ARGUMENT...]: runs parts of what is to be run on a GPU machine, or one program of the bundle that this script lies in.
#   suite       all tests: the kernels, the feed in the GPU's memory beside graphs, the Python package, trajctl resample; those for two GPUs where there
#               are two; a GPU that is lost or full (last: they kill an MPS server of their own)
#   sanitizer   compute-sanitizer's memcheck over the kernels' tests and over the daemon beneath the feed's tests
#   feed        batches/s and latency to 1, 2 and 4 workers                              (minutes, with 3 turns of 2 s)
#   workers     of these the several workers alone; on two GPUs, where there are two
#   rivals      torch's DataLoader, torch on the GPU, robomimic, beside the feed
#   train       a training step on the feed and on a constant batch; time slices, MPS
#   fill        rows to the GPU against a pinned copy
# Each measurement has a time limit (GPU_LIMIT_S, 540 seconds; each program of suite and sanitizer 300): a hang is a failure. What it prints goes to OUT/PART.log as well, a
# measurement's JSON to OUT/PART.json; OUT is the folder in $OUT, or this one. The exit status is the number of parts that failed.
# GPU_PYTHON: a Python with torch (python3). GPU_TOOL: stands before a program. GPU_ARGUMENTS: behind a measurement (--rounds 5).
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
python=${GPU_PYTHON:-python3}

run_program() { # it finds its own libraries; torch has others of the same names
    program=$1
    shift
    case $program in
    *.py) timeout -k 10 "${GPU_LIMIT_S:-300}" ${GPU_TOOL:-} "$python" "$bundle/$program" "$@" ;;
    *) LD_LIBRARY_PATH=$bundle${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout -k 10 "${GPU_LIMIT_S:-300}" ${GPU_TOOL:-} "$bundle/$program" "$@" ;;
    esac
}

suite() {
    bad=0
    for program in test_gpu_resample test_device_feed.py test_graphs.py test_python_cuda.py test_backends.py test_two_gpus.py test_gpu_failures.py; do
        echo "== $program"
        run_program "$program" || bad=1
    done
    return $bad
}

sanitizer() {
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1) || true
    [ -n "$tool" ] || { echo "no compute-sanitizer here: skipped"; return 0; }
    memcheck="$tool --tool memcheck --error-exitcode 9 --print-limit 20"
    bad=0
    echo "== the daemon"
    # what it finds is in the daemon's log; the daemon's exit status is checked by the tests
    GPU_DAEMON_TOOL="$memcheck --target-processes application-only" run_program test_device_feed.py test_values test_rows_that_do_not_fit || bad=1
    echo "== the kernels"
    GPU_TOOL=$memcheck run_program test_gpu_resample || bad=1
    return $bad
}

run_part() { # a shell of its own, so that the limit is the part's
    case $1 in
    suite | sanitizer) "$1" ;;
    *) GPU_LIMIT_S=${GPU_LIMIT_S:-540} run_program bench_device_feed.py "$1" --out "$out/$1.json" ${GPU_ARGUMENTS:-} ;;
    esac
}

case ${1:-} in
suite | sanitizer | feed | workers | rivals | train | fill) ;;
'' | -h | --help)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0 ;;
*)
    run_program "$@"
    exit ;;
esac
out=${OUT:-$bundle}
failed=0
for part; do
    case $part in suite | sanitizer | feed | workers | rivals | train | fill) ;; *) echo "no part is called $part" >&2; exit 2 ;; esac
done
for part; do
    begin=$(date +%s)
    { run_part "$part" && echo "$part: passed" || echo "$part: FAILED"; } 2>&1 | tee "$out/$part.log"
    echo "$part took $(($(date +%s) - begin)) s"
    tail -1 "$out/$part.log" | grep -q "$part: passed" || failed=$((failed + 1))
done
exit "$failed"
