# Sourced by scripts that run cargo: everything is built in the way that `make` does, and so once.
host=$(rustc -vV | sed -n 's/^host: //p')
CARGO_BUILD_TARGET=$host
export CARGO_BUILD_TARGET
# The name of the variable has the target in capitals.
export "CARGO_TARGET_$(echo "$host" | tr 'a-z-' 'A-Z_')_RUSTFLAGS=-C target-feature=+crt-static"
built=target/$host/debug
