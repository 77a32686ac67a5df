#!/bin/sh
# gpu_bundle.sh [--base COMMIT | --pages] [BUILD]: makes a bundle of programs, scripts and libraries for a GPU machine: the folder BUILD/gpu_bundle,
# which can be copied anywhere, and BUILD/gpu_bundle.tar.gz. On that machine `gpu_run.sh --help` lists the parts to run:
# suite, feed, tensors, targets, loaders, train, fill, gate, net, sanitizer, or a program of the bundle (test_gpu_resample, bench_resample [ARGUMENT...],
# bench_transforms_gpu, test_python_cuda.py [cpu], image_step.py). The bundle includes robomimic where build/venv-robomimic has it (tests/bench/README.md).
# With --base it also has a build of COMMIT, with which the part `gate` compares BUILD. With --pages it has the package
# and what `gpu_run.sh test_pages.py` reads, in 41 MB.
set -eu
cd "$(dirname "$0")/../.."
base= only_pages=
[ "${1:-}" != --base ] || { base=$2; shift 2; }
[ "${1:-}" != --pages ] || { only_pages=1; shift; }
build=${1:-build/release}
bundle=$build/gpu_bundle
programs="test_gpu_resample test_gpu_library test_gpu_images test_gpu_transforms bench_transforms_gpu bench_resample bench_image_gpu fake_producer"

[ -f "$build/build.ninja" ] || cmake --preset release -B "$build"
ninja -C "$build"
rm -rf "$bundle"
mkdir -p "$bundle"
copy_program() { # from a build, into a folder, with its libraries but the C library: the other machine has its own
    file=$(find "$1/tests" -type f -name "$3" -perm -u+x)
    strip -o "$2/$3" "$file"
    ldd "$file" | awk '$3 ~ /^\// {print $3}' | grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' |
        xargs -r -I{} cp -Lu {} "$2/"
}
copy_package() { # of a build of a tree, into a folder: the Python package with the daemon, as in the wheel
    build/venv/bin/python "$1/clients/python/packaging/trajd_wheel.py" --build "$2" --out "$3"
    build/venv/bin/python -m pip --disable-pip-version-check -q install --no-index --no-deps --no-compile --target "$3/python" "$3"/trajd-*.whl
    rm "$3"/trajd-*.whl
}
copy_package . "$build" "$bundle"
mkdir "$bundle/pages"
cp README.md clients/docs/tutorials/act.md "$bundle/pages/"
build/venv/bin/python tests/tools/make_demo_dataset.py "$bundle/pages/demo.hdf5" >/dev/null
build/venv/bin/python tests/tools/example_data.py aloha "$bundle/pages/aloha"
tar -C "$bundle/pages" --remove-files -czf "$bundle/pages/aloha.tar.gz" aloha # 0.7 MB in place of 62
cp tests/support/page_blocks.py tests/support/gpu_checks.py tests/gpu/test_pages.py tests/tools/gpu_run.sh "$bundle/"
[ -z "$only_pages" ] || { du -sh "$bundle"; exit 0; }
for program in $programs; do
    copy_program "$build" "$bundle" "$program"
done
mkdir -p "$bundle/gate/tests/tools"
cp -r tests/bench "$bundle/gate/tests/"
rm -rf "$bundle/gate/tests/bench/results"
cp tests/tools/make_demo_dataset.py "$bundle/gate/tests/tools/"
if [ -n "$base" ]; then
    old=$(build/venv/bin/python tests/bench/gate.py --base "$base" --build "$build" --only-build | tail -1)
    mkdir "$bundle/base"
    copy_program "$old" "$bundle/base" fake_producer
    copy_package "$old/../.." "$old" "$bundle/base"
    git rev-parse --short "$base" >"$bundle/base/commit"
fi
build/venv/bin/python tests/tools/make_demo_dataset.py "$bundle/demo.hdf5" --episodes 24 >/dev/null
PYTHONPATH=tests/support build/venv/bin/python -c "import image_files; image_files.write_episodes('$bundle/images')"
PYTHONPATH=tests/support build/venv/bin/python -c "import gpu_targets; gpu_targets.write('$bundle/targets', longer=24)"
cp tests/support/gpu_*.py tests/gpu/test_*.py tests/gpu/bench_*.py tests/gpu/loaders.py tests/gpu/training_step.py tests/gpu/image_step.py "$bundle/"
mkdir "$bundle/net" "$bundle/golden"
cp tests/net/*.py "$bundle/net/"
build/venv/bin/python tests/net/net.py data --out "$bundle/net/data"
cp -r tests/golden/image tests/golden/augment "$bundle/golden/"
cp tests/bench/report.py tests/bench/image_bytes.py tests/bench/bench_robomimic.py tests/bench/bench_torch_loader.py tests/tools/make_demo_dataset.py tests/tools/gpu_run.sh "$bundle/"
for site in build/venv-robomimic/lib/python3*/site-packages; do # packages in pure Python that machines with torch lack
    [ -d "$site/robomimic" ] || continue
    mkdir "$bundle/robomimic_site"
    for package in robomimic termcolor tensorboardX tqdm; do
        [ ! -d "$site/$package" ] || cp -r "$site/$package" "$bundle/robomimic_site/"
    done
done
git rev-parse --short HEAD >"$bundle/commit"
git diff --quiet HEAD -- kernels daemon clients proto tests || echo "and changes" >>"$bundle/commit"
tar -C "$build" -czf "$bundle.tar.gz" gpu_bundle
du -sh "$bundle" "$bundle.tar.gz"
