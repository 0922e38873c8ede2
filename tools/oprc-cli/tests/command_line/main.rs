//! Runs the program: help, usage errors, exit codes, and the output for responses of a package
//! manager.
//!
//! `TRYCMD=overwrite` updates the expected output.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod completion;
mod fake_grid;
mod fake_pm;
mod fixtures;
mod json_output;
mod nfr;
mod objects;
mod terminal;

use std::process::Command;

/// The program with a clean environment.
fn oprc() -> Command {
    let mut oprc = Command::new(env!("CARGO_BIN_EXE_oprc"));
    oprc.env_clear().env("OPRC_CONFIG", "/nonexistent/oprc.yaml");
    oprc
}

#[test]
fn output_without_a_server() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("OPRC_CONFIG", "/nonexistent/oprc.yaml")
        .case("tests/cmd/*.toml");
}
