#!/bin/sh
# Makes sure that the tools are here which the other targets need: installs what Debian has when
# that is possible, and says what is missing otherwise.
set -eu

packages=
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || packages="$packages $2"
}
need cc gcc
need curl curl
# Envoy comes from PyPI, and so does Go where it is missing or too old.
python3 -m pip --version >/dev/null 2>&1 || packages="$packages python3 python3-pip"

if [ -n "$packages" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing$packages" >&2
        apt-get update -q >&2
        # Word splitting is meant: each word is a package.
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages libc6-dev >&2
    else
        echo "missing:$packages. Install them with this system's package manager and try again." >&2
        exit 1
    fi
fi

wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$(rustc --version 2>/dev/null | sed 's/^rustc \([0-9.]*\).*/\1/')
if [ -z "$found" ] || [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
    echo "Rust $wanted or newer is needed, and here is ${found:-none}: install it with rustup (https://rustup.rs), or bring it up to date with 'rustup update'." >&2
    exit 1
fi
