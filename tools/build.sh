#!/bin/sh
# Runs a cargo build that shows progress: cargo's own on a terminal; elsewhere a line at the start,
# every 30 seconds and at the end. A build that has nothing to do prints nothing there.
# usage: tools/build.sh TITLE CARGO-ARGUMENT...
set -eu
title=$1
shift
if [ -t 2 ]; then
    exec cargo build "$@"
fi

log=$(mktemp)
started=$(date +%s)
cargo build "$@" >"$log" 2>&1 &
build=$!
report() { # prints elapsed time until it is terminated
    trap 'kill $pause; exit' TERM
    sleep 2 & pause=$!
    wait $pause
    echo "… $title" >&2
    while :; do
        sleep 30 & pause=$!
        wait $pause
        compiled=$(grep -c '^ *Compiling ' "$log" || true)
        echo "… $title: $compiled crates compiled ($(($(date +%s) - started)) s)" >&2
    done
}
report &
reporter=$!
trap 'kill $reporter $build 2>/dev/null || true; rm -f "$log"' EXIT
trap 'exit 130' INT TERM
status=0
wait $build || status=$?
elapsed=$(($(date +%s) - started))
if [ $status != 0 ]; then
    # Errors and warnings without the list of crates.
    grep -v '^ *\(Compiling\|Downloading\|Downloaded\|Locking\|Updating\) ' "$log" >&2 || true
elif [ $elapsed -gt 2 ]; then
    echo "✓ $title ($elapsed s)" >&2
fi
exit $status
