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
for file in */*/tests/*/main.rs; do
    units="$units --test $(basename "$(dirname "$file")")"
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
seen=$(mktemp)
beside=
end() {
    # What runs beside something that failed isn't awaited; what it has said is told.
    if [ -n "$beside" ]; then
        kill -- "-$beside" || true
        cat "$seen.beside"
    fi
    wait
    rm -f "$seen" "$seen.end" "$seen.beside"
    # That a cluster ends well is tested; one that is slow to end is no failure.
    for name in $($oprc sandbox list -o name); do
        case $name in
        test | test-second) $oprc sandbox down --name "$name" || true ;;
        esac
    done
}
trap end EXIT
trap 'exit 130' INT TERM
# Begins something beside the rest, in a group of its own so that it can be ended.
begin() {
    setsid "$@" >"$seen.beside" 2>&1 &
    beside=$!
}
# Waits for it, and tells what it has said.
finish() {
    ended=0
    wait "$beside" || ended=$?
    beside=
    cat "$seen.beside"
    if [ "$ended" != 0 ]; then
        exit "$ended"
    fi
}
# Clusters that start and end again and again: their programs may take memory instead of time.
export GOGC=400

# These look at the whole machine: before any cluster is shared. They mostly wait, so the other
# tests are built meanwhile; cargo, which is busy with that then, has no part in running them.
machine=$($test --test machine --no-run --message-format json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\/machine-[^"]*\)".*/\1/p')
begin $test --tests --no-run
(cd tests && "$machine" --quiet "$@")
finish
$oprc sandbox up --name test-second --node real --no-fsync &
second=$!
$oprc sandbox up --name test --node real --prometheus --knative --no-fsync &
first=$!
# These need processors and no cluster, and the first suites on clusters mostly wait: they run side
# by side, but for what is proven, which goes into one file.
# Each word is an option.
# shellcheck disable=SC2086
if [ -n "${OPRC_PROVE:-}" ]; then
    $test $units -- "$@"
else
    begin $test $units -- "$@"
fi
wait $first
wait $second

# A suite on the clusters. At most two of its tests that fail are run once more, alone: what a busy
# machine has spoilt is green then, and is told of at the end. What is to be proven isn't tried twice.
twice=
suite() {
    name=$1 threads=$2
    shift 2
    { $test --test "$name" -- --test-threads "$threads" "$@" 2>&1 && echo passed >"$seen.end"; } | tee "$seen"
    if [ -e "$seen.end" ]; then
        rm "$seen.end"
        return
    fi
    failed=$(sed -n '/^failures:$/,$s/^    \([a-z_0-9:][a-z_0-9:]*\)$/\1/p' "$seen" | sort -u)
    if [ -n "${OPRC_PROVE:-}" ] || [ -z "$failed" ] || [ "$(echo "$failed" | wc -l)" -gt 2 ]; then
        exit 1
    fi
    # Each word is a name.
    # shellcheck disable=SC2086
    $test --test "$name" -- --test-threads 1 --exact $failed
    twice="$twice $failed"
}
suite store $threads "$@"
suite sandbox $threads "$@"
if [ -n "$beside" ]; then
    finish
fi
suite crm $threads "$@"
suite pm $threads "$@"
# Faults last a while, and how much is asked for meanwhile is counted.
suite faults 4 "$@"
for name in $twice; do
    echo "FAILED AT FIRST: $name; see above for why"
done
