#!/bin/sh
# Checks formatting, lints, generated files, module cycles, and licences and sources of dependencies.
set -eu
. tools/static.sh

cargo fmt --all --check
cargo clippy --quiet --workspace --all-targets -- -D warnings
if command -v gofmt >/dev/null 2>&1; then
    unformatted=$(gofmt -l tools/oprc-sandbox/programs)
    if [ -n "$unformatted" ]; then
        echo "not formatted: $unformatted. Run: make fmt" >&2
        exit 1
    fi
fi
fresh=$(mktemp -d)
trap 'rm -r "$fresh"' EXIT
tools/generate.sh "$fresh"
for file in k8s/crds/classruntimes.gen.yaml docs/configuration.md docs/configuration-pm.md; do
    if ! cmp -s "$file" "$fresh/$file"; then
        echo "$file is outdated. Run: make crds" >&2
        exit 1
    fi
done
# Built by generate.sh.
"$built/module-cycles"
if ! command -v cargo-deny >/dev/null 2>&1; then
    echo "Installing cargo-deny" >&2
    # Without the flags for static images, which would also apply to proc macros and fail there.
    env -u CARGO_BUILD_TARGET RUSTFLAGS= cargo install --quiet --locked --debug cargo-deny
fi
cargo deny --log-level error check bans licenses sources
