#!/bin/sh
# Formatting, lints, licences and sources of what we depend on.
set -eu

cargo fmt --all --check
cargo clippy --quiet --workspace --all-targets -- -D warnings
if command -v gofmt >/dev/null 2>&1; then
    unformatted=$(gofmt -l tools/oprc-sandbox/programs)
    if [ -n "$unformatted" ]; then
        echo "not formatted: $unformatted (make fmt)" >&2
        exit 1
    fi
fi
if ! command -v cargo-deny >/dev/null 2>&1; then
    echo "Installing cargo-deny" >&2
    cargo install --quiet --locked cargo-deny
fi
cargo deny --log-level error check bans licenses sources
