//! The command line as it is called: help, wrong use, exit codes, and what it prints of what a
//! package manager answers.
//!
//! `TRYCMD=overwrite` writes what is said now.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod answers;
mod canned;
mod documents;
mod names;
mod terminal;

use std::process::Command;

/// The program, with nothing said by the one who tests.
fn oprc() -> Command {
    let mut oprc = Command::new(env!("CARGO_BIN_EXE_oprc"));
    oprc.env_clear().env("OPRC_CONFIG", "/nonexistent/oprc.yaml");
    oprc
}

#[test]
fn what_is_said_without_a_server() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("OPRC_CONFIG", "/nonexistent/oprc.yaml")
        .case("tests/cmd/*.toml");
}
