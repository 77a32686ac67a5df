#!/bin/sh
# Runs all tests of all loaders, one row after another: tests/conformance/run_all.sh BUILD FOLDER RESULTS [OPTION...]
#
# FOLDER has the environments of make_peers.sh. Options go to each run: --quick, --tests T1,T2. A loader whose environment
# is missing is named and left out; a row that fails does not end the run.
build=$1 folder=$2 results=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$results"

row() { # python, path of its packages, driver, option...
    python=$1 path=$2 driver=$3
    shift 3
    [ -x "$python" ] || { echo "not run: $driver: $python is missing"; return; }
    echo "== $driver"
    PYTHONPATH="$here:$path" "$python" -m loaderproof run "$driver" --out "$results/$driver.jsonl" "$@" >/dev/null ||
        echo "failed: $driver"
}

tests="--tests T1,T2,T3,T4,T5,T6,T7,T8"
row "$folder/venv-peers/bin/python" "$build/clients/python" trajd $tests "$@"
for driver in plain stateful robomimic lerobot lerobot-streaming grain litdata rerun embodied-sync; do
    row "$folder/venv-peers/bin/python" "" $driver $tests "$@"
done
row "$folder/venv-mosaicml/bin/python" "" mosaicml $tests "$@"
row "$folder/venv-rlds/bin/python" "" rlds $tests "$@"
if [ -n "$DIFFUSION_POLICY" ]; then
    row "$folder/venv-peers/bin/python" "$DIFFUSION_POLICY" diffusion-policy $tests "$@"
else
    echo "not run: diffusion-policy: \$DIFFUSION_POLICY does not name a checkout"
fi
