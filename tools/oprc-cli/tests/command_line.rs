//! The command line as it is called, without a server: help, wrong use, exit codes.
//!
//! `TRYCMD=overwrite` writes what is said now.

#[test]
fn what_is_said_without_a_server() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("OPRC_CONFIG", "/nonexistent/oprc.yaml")
        .case("tests/cmd/*.toml");
}
