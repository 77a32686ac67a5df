#!/bin/sh
# Runs trajctl as a user types it: test_cli.sh TRAJCTL FAKE_PRODUCER [PYTHON]. PYTHON, with h5py, writes a file to inspect.
set -u
trajctl=$1 producer=$2 python=${3:-}
folder=$(mktemp -d /tmp/trajd-cli-XXXXXX)
daemon= failed=0

end() {
    [ -n "$daemon" ] && kill "$daemon" && wait "$daemon"
    rm -r "$folder"
}
trap end EXIT

# expect STATUS PATTERN ARGUMENTS...: checks the exit status, and that the output matches an extended pattern.
expect() {
    status=$1 pattern=$2
    shift 2
    "$trajctl" "$@" >"$folder/said" 2>&1
    got=$?
    if [ $got -ne "$status" ] || ! grep -Eq "$pattern" "$folder/said"; then
        echo "trajctl $*: exit $got, not $status, or no \"$pattern\" in:"
        cat "$folder/said"
        failed=1
    fi
}

expect 2 'trajctl recv FEED'
expect 0 'trajctl inspect .*FILE' --help
expect 0 'trajctl bench FEED' help
expect 0 '^trajctl [0-9]+\.[0-9]' --version
expect 2 'unknown command: nope; `trajctl --help` shows all$' nope
expect 2 'unknown command: inpsect \(did you mean inspect\?\)' inpsect file
expect 2 'unknown option: --jsn \(did you mean --json\?\)' inspect file --jsn
expect 2 'unknown option: --assume-rat=5 \(did you mean --assume-rate=5\?\)' resample file --assume-rat=5
expect 2 '\-o is missing' resample file --rate=10
expect 2 'unknown option: --htpt \(did you mean --http\?\)' metrics --htpt
expect 2 'unknown option: --secnds \(did you mean --seconds\?\)' doctor lab.yaml --secnds 1
expect 2 'unknown option: --zzzz$' plot file stream --zzzz
for command in 'init file --preset' 'pack file -o' 'preprocess file --shard' 'reload --endpoint' 'keygen keys --client'; do
    expect 2 "^trajctl: ${command##* } needs a value" $command
done
for command in inspect status recv bench explain diff stats; do
    expect 2 "usage: trajctl $command" $command --nonsense
done
expect 0 '^usage: trajctl recv FEED' recv --help
expect 2 'too large' recv train --epoch 18446744073709551616
expect 2 'name a feed' recv
expect 2 'name one or more files' inspect --json
expect 2 'needs a value' recv train --count
expect 2 'needs a value' inspect file --layout
expect 2 'not a whole number' recv train --count -1
expect 2 'unexpected argument: other' recv train other
expect 1 'no daemon answers' status --endpoint "$folder"
expect 1 '.' inspect "$folder/absent.hdf5"
echo nothing >"$folder/text.hdf5"
expect 1 '"error":' inspect "$folder/text.hdf5" --json

# A configuration in place of a dataset: the message names the commands for it, and the file once.
echo 'version: 2' >"$folder/lab.yaml"
for command in inspect validate init; do
    expect 1 "lab.yaml: a YAML file, not a dataset.*\`trajctl check $folder/lab.yaml\`" $command "$folder/lab.yaml"
done
expect 1 "^trajctl: $folder/lab.yaml: a YAML file" plot "$folder/lab.yaml" actions
expect 1 "^trajctl: $folder/absent.hdf5: No such file" plot "$folder/absent.hdf5" actions

mkfifo "$folder/ready" "$folder/input"
exec 3<>"$folder/input" # stays open: the producer ends with its input
"$producer" "$folder" length=80 batch=8 <"$folder/input" >"$folder/ready" &
daemon=$!
read -r ready <"$folder/ready"
[ "$ready" = READY ] || failed=1
expect 0 '^\{.*"feeds":' status --json --endpoint "$folder"
expect 0 '^feed +job' status --endpoint "$folder"
expect 0 ': 0 workers,' status --endpoint "$folder" # this command is none
if grep -q '^trajctl' "$folder/said"; then
    echo "trajctl status lists itself:" && cat "$folder/said"
    failed=1
fi
# A document that cannot be written completely is an error.
if "$trajctl" status --json --endpoint "$folder" >/dev/full 2>"$folder/said" || ! grep -q 'standard output: No space' "$folder/said"; then
    echo "trajctl status onto a full disk:" && cat "$folder/said"
    failed=1
fi
expect 0 '^\{"epoch":0,"position":8,"rows":\[0,8\],"tensors":\[.*"window_id"' recv train --json --count 2 --endpoint "$folder"
expect 0 'epoch 1 position 72 rows 0\.\.8' recv --endpoint "$folder" --next 72 --epoch 1 train
expect 0 '  window_id +i64 +\[8\]' recv --count 1 train --endpoint "$folder"
expect 0 'rows":\[0,8\]' recv train --rank 0 --world 1 --endpoint "$folder" --json --count 1
expect 1 'rank 1 of 1' recv train --rank 1 --world 1 --endpoint "$folder" --json --count 1
expect 1 'nope' recv nope --endpoint "$folder"
expect 0 '"batches_per_second":[1-9]' bench --seconds 1 --endpoint "$folder" train --json --workers 2
expect 0 'latency +p50' bench train --endpoint "$folder" --seconds 1

[ -x "$python" ] && "$python" - "$folder/demo.hdf5" <<'END'
import sys
import h5py
import numpy
with h5py.File(sys.argv[1], "w") as file:
    demo = file.create_group("data/demo_0")
    file["data"].attrs["env_args"] = "{}"
    demo.attrs["num_samples"] = 20
    demo["actions"] = numpy.zeros((20, 7))
    demo["obs/robot0_eef_pos"] = numpy.zeros((20, 3))
END
if [ -f "$folder/demo.hdf5" ]; then
    expect 0 'robot0_eef_pos' inspect "$folder/demo.hdf5"
    expect 0 'language +in 0 of [0-9]+ episodes?' inspect "$folder/demo.hdf5"
    expect 0 '\{"name":"obs/robot0_eef_pos"' inspect "$folder/demo.hdf5" --layout robomimic --json
    expect 0 '^\[\{"path"' inspect --json "$folder/demo.hdf5"
    expect 1 'nope' inspect "$folder/demo.hdf5" --layout nope
    expect 1 'robot0_eef_pos' inspect "$folder/text.hdf5" "$folder/demo.hdf5"
fi
exit $failed
