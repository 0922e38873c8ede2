#!/bin/sh
# Runs all tests, or those whose names contain FILTER.
# usage: tools/test.sh [FILTER]
set -eu
. tools/static.sh

oprc=$built/oprc
# Always the whole workspace: cargo's features depend on the selected packages, and another selection
# would rebuild dependencies.
test="cargo test --quiet --workspace"
# Unit tests and the tests of single crates. There are no doc tests.
units="--lib --bins"
for file in */*/tests/*.rs; do
    units="$units --test $(basename "$file" .rs)"
done
for file in */*/tests/*/main.rs; do
    name=$(basename "$(dirname "$file")")
    # Its nodes fail on purpose, and others must notice that in time, so it runs later.
    [ "$name" = replicas ] || units="$units --test $name"
done
# Tests on a cluster mostly wait, so more of them run in parallel than there are CPUs. Tests that
# measure time take an exclusive lock.
threads=8

if [ "$(id -u)" != 0 ]; then
    echo "the tests run containers on a real node, which requires root. Run: sudo env \"PATH=\$PATH\" make test" >&2
    exit 1
fi
# Clusters of a killed run would disturb this one.
for name in $($oprc sandbox list -o name); do
    case $name in
    test | test-*) $oprc sandbox down --name "$name" || true ;;
    esac
done
output=$(mktemp)
background=
cleanup() {
    # After a failure the background job is killed and its output is printed.
    if [ -n "$background" ]; then
        kill -- "-$background" || true
        cat "$output.background"
    fi
    wait
    rm -f "$output" "$output.passed" "$output.background"
    # Deleting a cluster is tested elsewhere, so an error here is not a failure of this run.
    for name in $($oprc sandbox list -o name); do
        case $name in
        test | test-second) $oprc sandbox down --name "$name" || true ;;
        esac
    done
}
trap cleanup EXIT
trap 'exit 130' INT TERM
# Starts a background job in its own process group, so that it can be killed.
start_background() {
    setsid "$@" >"$output.background" 2>&1 &
    background=$!
}
# Waits for the background job and prints its output.
finish_background() {
    status=0
    wait "$background" || status=$?
    background=
    cat "$output.background"
    if [ "$status" != 0 ]; then
        exit "$status"
    fi
}
# Tests run CRM and PM in their own threads, where unoptimised code needs more than the default of 2 MiB.
export RUST_MIN_STACK=8388608
# Go programs of short-lived clusters may use more memory to save CPU time.
export GOGC=400

# These compare the whole machine before and after, so they run before other clusters exist. They
# mostly wait, so the other tests are built in the background; cargo is busy with that, so the test
# program is run directly.
machine=$($test --test machine --no-run --message-format json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\/machine-[^"]*\)".*/\1/p')
start_background $test --tests --no-run
(cd tests && "$machine" --quiet "$@")
finish_background
$oprc sandbox up --name test-second --node real --no-fsync &
second=$!
$oprc sandbox up --name test --node real --prometheus --knative --no-fsync &
first=$!
# Unit tests need CPUs and no cluster, while the first suites on clusters mostly wait, so they run in
# parallel. Proofs run one after the other because they write the same file.
# Each word is an option.
# shellcheck disable=SC2086
if [ -n "${OPRC_PROVE:-}" ]; then
    $test $units -- "$@"
else
    start_background $test $units -- "$@"
fi
wait $first
wait $second

# Runs a suite on the clusters. If at most two tests of a program fail, they are retried alone, to
# distinguish failures from timeouts on a busy machine; retried tests are listed at the end. Proofs are
# not retried.
retried= retried_of=
suite() {
    name=$1 parallel=$2
    shift 2
    { $test --test "$name" -- --test-threads "$parallel" "$@" 2>&1 && echo passed >"$output.passed"; } | tee "$output"
    if [ -e "$output.passed" ]; then
        rm "$output.passed"
        return
    fi
    failed=$(sed -n '/^failures:$/,$s/^    \([a-z_0-9:][a-z_0-9:]*\)$/\1/p' "$output" | sort -u)
    for _ in $failed; do
        retried_of="$retried_of $name"
    done
    # Each word is a name.
    # shellcheck disable=SC2086
    if [ -n "${OPRC_PROVE:-}" ] || [ -z "$failed" ] ||
        [ "$(printf '%s\n' $retried_of | grep -cx "$name")" -gt 2 ]; then
        exit 1
    fi
    # Each word is a name.
    # shellcheck disable=SC2086
    $test --test "$name" -- --test-threads 1 --exact $failed
    retried="$retried $failed"
}
suite store $threads "$@"
suite sandbox $threads "$@"
if [ -n "$background" ]; then
    finish_background
fi
suite grid $threads "$@"
suite replicas 2 "$@"
# Exclusive tests wait for all others and block them, so they run at the end.
suite crm $threads --skip exclusive:: "$@"
exclusive=$($test --test crm -- --list "$@" | sed -n 's/^\(exclusive::.*\): test$/\1/p')
if [ -n "$exclusive" ]; then
    # They exclude each other, so more in parallel would only disturb those that measure.
    # Each word is a name.
    # shellcheck disable=SC2086
    suite crm 2 --exact $exclusive
fi
suite pm $threads "$@"
# Fewer in parallel, because these tests count requests during faults.
suite faults 4 "$@"
for name in $retried; do
    echo "PASSED ON RETRY: $name; see above for its first failure"
done
