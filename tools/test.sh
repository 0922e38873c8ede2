#!/bin/sh
# All tests, or those whose names contain the words given.
# usage: tools/test.sh [WORDS]
set -eu
. tools/static.sh

oprc=$built/oprc
shared="sandbox up --name test --node real --prometheus --knative --no-fsync"
# Most tests on a cluster wait for it: more of them run at once than there are processors. Those
# that measure time see to it themselves that they are alone.
threads=8

if [ "$(id -u)" != 0 ]; then
    echo "The tests run containers on a real node, and that takes root: try: sudo env \"PATH=\$PATH\" make test" >&2
    exit 1
fi
# What is tested beside the code. Documentation has no examples to run.
units="cargo test --quiet --workspace --exclude oprc-tests --tests"
# Word splitting is meant.
# shellcheck disable=SC2086
$units --no-run
cargo test --quiet -p oprc-tests --no-run
# shellcheck disable=SC2086
$units -- "$@"
# These look at the whole machine: before any cluster is shared.
cargo test --quiet -p oprc-tests --test machine -- "$@"

trap '$oprc sandbox down --name test; $oprc sandbox down --name test-second' EXIT
trap 'exit 130' INT TERM
$oprc sandbox up --name test-second --node real --no-fsync &
second=$!
# shellcheck disable=SC2086
$oprc $shared
wait $second
cargo test --quiet -p oprc-tests --test store -- --test-threads $threads "$@"
cargo test --quiet -p oprc-tests --test sandbox -- --test-threads $threads "$@"
cargo test --quiet -p oprc-tests --test crm -- --test-threads $threads "$@"
cargo test --quiet -p oprc-tests --test pm -- --test-threads $threads "$@"
cargo test --quiet -p oprc-tests --test faults -- --test-threads 4 "$@"
