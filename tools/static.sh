# Sourced by scripts that run cargo: sets the same flags as the Makefile, so that nothing is built twice.
host=$(rustc -vV | sed -n 's/^host: //p')
CARGO_BUILD_TARGET=$host
export CARGO_BUILD_TARGET
# The name of the variable contains the target in upper case.
export "CARGO_TARGET_$(echo "$host" | tr 'a-z-' 'A-Z_')_RUSTFLAGS=-C target-feature=+crt-static"
built=target/$host/debug
