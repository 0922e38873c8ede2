#!/bin/sh
# All tests, or those whose names contain the words given.
# usage: tools/test.sh [WORDS]
set -eu
. tools/static.sh

oprc=$built/oprc
# With the whole workspace each time: what is built depends on what is asked for, and so it is
# built once.
test="cargo test --quiet --workspace"
# What is tested beside the code. Documentation has no examples to run.
units="--lib --bins"
for file in */*/tests/*.rs; do
    units="$units --test $(basename "$file" .rs)"
done
# Most tests on a cluster wait for it: more of them run at once than there are processors. Those
# that measure time see to it themselves that they are alone.
threads=8

if [ "$(id -u)" != 0 ]; then
    echo "The tests run containers on a real node, and that takes root: try: sudo env \"PATH=\$PATH\" make test" >&2
    exit 1
fi
# What a run has left that was killed would disturb this one.
for name in $($oprc sandbox list -o name); do
    case $name in
    test | test-*) $oprc sandbox down --name "$name" || true ;;
    esac
done
# These look at the whole machine: before any cluster is shared.
$test --test machine -- "$@"

# Clusters start while tests are built.
end() {
    wait
    # That a cluster ends well is tested; one that is slow to end is no failure.
    $oprc sandbox down --name test || true
    $oprc sandbox down --name test-second || true
}
trap end EXIT
trap 'exit 130' INT TERM
$oprc sandbox up --name test-second --node real --no-fsync &
second=$!
$oprc sandbox up --name test --node real --prometheus --knative --no-fsync &
first=$!
$test --tests --no-run
# Each word is an option.
# shellcheck disable=SC2086
$test $units -- "$@"
wait $first
wait $second
$test --test store --test sandbox --test crm --test pm -- --test-threads $threads "$@"
# Faults last a while, and how much is asked for meanwhile is counted.
$test --test faults -- --test-threads 4 "$@"
