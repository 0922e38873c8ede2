//! What is printed on a terminal, which `script` gives.

use std::process::{Command, Stdio};

use crate::oprc;

/// What a command says, whether on a terminal or not; all of it goes to the same place.
fn said(terminal: bool, colour: Option<&str>, variables: &[(&str, &str)]) -> String {
    let program = oprc();
    let mut line = format!("'{}' status --server none", program.get_program().display());
    line.extend(colour.map(|colour| format!(" --colour {colour}")));
    let mut command = if terminal {
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script
    } else {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{line} 2>&1")]);
        shell
    };
    command.env_clear().envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("TERM", "xterm").envs(variables.iter().copied()).stdin(Stdio::null());
    let done = command.output().expect("script, of util-linux, is there");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains("is no address"), "{said}");
    said
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    for (terminal, colour, variables, painted) in [
        (true, None, &[][..], true),
        (true, None, &[("NO_COLOR", "1")], false),
        (true, None, &[("TERM", "dumb")], false),
        (true, Some("never"), &[], false),
        (true, Some("auto"), &[], true),
        // What is said counts more than what variables say.
        (true, Some("always"), &[("NO_COLOR", "1")], true),
        (true, Some("always"), &[("TERM", "dumb")], true),
        (false, None, &[], false),
        (false, Some("always"), &[("NO_COLOR", "1")], true),
    ] {
        let said = said(terminal, colour, variables);
        let case = format!("{terminal} {colour:?} {variables:?}: {said:?}");
        assert_eq!(said.contains("\x1b[31merror:\x1b[0m"), painted, "{case}");
        assert_eq!(said.contains('\x1b'), painted, "{case}");
    }
}
