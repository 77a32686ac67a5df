#!/bin/sh
# gpu_run.sh PART... | PROGRAM [ARGUMENT...]: runs parts, or one program of the bundle in this script's folder.
#   suite       all tests: the kernels, the feed in GPU memory, CUDA graphs, the Python package, trajctl resample,
#               README's training and the ACT tutorial with torchrun;
#               two GPUs, where there are two; a GPU that is lost or full (last: it kills an MPS server of its own)
#   sanitizer   compute-sanitizer's memcheck of the kernels' tests, and of the daemon during the feed's tests
#   feed        batches/s and latency to 1, 2 and 4 workers            (minutes, with 3 turns of 2 s)
#   tensors     batches/s with all five tensors and with none, to one process and to 2 and 4 ranks of one job
#   workers     the part of `feed` with several workers; on two GPUs, where there are two
#   targets     relative actions on the GPU, against the actions as they are recorded
#   loaders     torch's DataLoader, torch on the GPU, robomimic, beside the feed
#   train       a training step on the feed and on a constant batch; time slices, MPS
#   fill        rows to the GPU against a pinned copy
#   gate        is this build slower than that of gpu_bundle.sh --base COMMIT? On the CPU, and on the GPU (9 minutes);
#               gpu_run.sh gate/tests/bench/gate.py --help has more, such as the proofs
#   net         a record of digests of all feeds, arrays and files as the GPU makes them (tests/net)
# Each measurement has a time limit (GPU_LIMIT_S, 540 seconds; each program of suite and sanitizer 300): a hang is a
# failure. The output also goes to OUT/PART.log, and the JSON of a measurement to OUT/PART.json. OUT is the folder in
# $OUT, or this one. The exit status is the number of parts that failed.
# GPU_PYTHON: a Python with torch (python3). GPU_TOOL: a command that runs the program. GPU_ARGUMENTS: further arguments
# of a measurement (--rounds 5).
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
export GPU_GOLDEN="$bundle/golden" # recorded results
python=${GPU_PYTHON:-python3}

run_program() { # only C programs get the bundle's libraries; torch has others of the same names
    program=$1
    shift
    case $program in
    *.py) timeout -k 10 "${GPU_LIMIT_S:-300}" ${GPU_TOOL:-} "$python" "$bundle/$program" "$@" ;;
    *) LD_LIBRARY_PATH=$bundle${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout -k 10 "${GPU_LIMIT_S:-300}" ${GPU_TOOL:-} "$bundle/$program" "$@" ;;
    esac
}

suite() {
    bad=0
    for program in test_gpu_resample test_gpu_library test_gpu_images test_gpu_transforms test_device_feed.py test_target_feed.py test_graphs.py test_python_cuda.py test_cuda_tensors.py test_image_feed.py test_backends.py test_pages.py test_two_gpus.py test_gpu_failures.py; do
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
    # findings are in the daemon's log; the tests check the daemon's exit status
    GPU_DAEMON_TOOL="$memcheck --target-processes application-only" run_program test_device_feed.py test_values test_rows_that_do_not_fit || bad=1
    echo "== the kernels"
    GPU_TOOL=$memcheck run_program test_gpu_resample || bad=1
    GPU_TOOL=$memcheck run_program test_gpu_images 200 || bad=1
    GPU_TOOL=$memcheck run_program test_gpu_transforms 200 || bad=1
    return $bad
}

gate() {
    bad=0
    for rows in cpu gpu; do
        GPU_LIMIT_S=400 run_program gate/tests/bench/gate.py --builds "$bundle/base" "$bundle" "--$rows" --out "$out/gate-$rows.json" ${GPU_ARGUMENTS:-} || bad=1
    done
    return $bad
}

run_part() { # in a subshell, so that the limit is the part's
    case $1 in
    suite | sanitizer | gate) "$1" ;;
    net) GPU_LIMIT_S=${GPU_LIMIT_S:-540} run_program net/net.py record --device cuda --build "$bundle/python" \
        --data "$bundle/net/data" --out "$out/net.json" ${GPU_ARGUMENTS:-} ;;
    *) GPU_LIMIT_S=${GPU_LIMIT_S:-540} run_program bench_device_feed.py "$1" --out "$out/$1.json" ${GPU_ARGUMENTS:-} ;;
    esac
}

case ${1:-} in
suite | sanitizer | feed | tensors | workers | targets | loaders | train | fill | gate | net) ;;
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
    case $part in suite | sanitizer | feed | tensors | workers | targets | loaders | train | fill | gate | net) ;; *) echo "no part is called $part" >&2; exit 2 ;; esac
done
for part; do
    begin=$(date +%s)
    { run_part "$part" && echo "$part: passed" || echo "$part: FAILED"; } 2>&1 | tee "$out/$part.log"
    echo "$part took $(($(date +%s) - begin)) s"
    tail -1 "$out/$part.log" | grep -q "$part: passed" || failed=$((failed + 1))
done
exit "$failed"
