#!/bin/sh
# gpu_bundle.sh [BUILD]: builds what a GPU machine runs and gathers it, with the libraries that such a machine lacks, in
# BUILD/gpu_bundle, which can be copied anywhere. There: gpu_run.sh PROGRAM [ARGUMENT...]
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/release}
bundle=$build/gpu_bundle
programs="test_gpu_resample bench_resample"

[ -f "$build/build.ninja" ] || cmake --preset release -B "$build"
ninja -C "$build" $programs
rm -rf "$bundle"
mkdir -p "$bundle"
for program in $programs; do
    file=$(find "$build/tests" -type f -name "$program" -perm -u+x)
    strip -o "$bundle/$program" "$file"
    # the C library is the other machine's own
    ldd "$file" | awk '$3 ~ /^\// {print $3}' | grep -Ev '/(libc|libm|libdl|librt|libpthread)\.so' |
        xargs -r -I{} cp -Lu {} "$bundle/"
done
cp tests/tools/gpu_run.sh "$bundle/"
git rev-parse --short HEAD >"$bundle/commit"
git diff --quiet HEAD -- kernels tests/bench tests/gpu || echo "and changes" >>"$bundle/commit"
du -sh "$bundle"
