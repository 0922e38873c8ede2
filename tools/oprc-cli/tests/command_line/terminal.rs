//! Colors on a terminal, which `script` provides.

use std::process::{Command, Stdio};

use crate::oprc;

/// Standard output and error of a failing command.
fn output_of(terminal: bool, color: Option<&str>, variables: &[(&str, &str)]) -> String {
    let program = oprc();
    let mut line = format!("'{}' status --server none", program.get_program().display());
    line.extend(color.map(|color| format!(" --color {color}")));
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
    let done = command.output().expect("script of util-linux is installed");
    let output = String::from_utf8(done.stdout).unwrap();
    assert!(output.contains("invalid server URL"), "{output}");
    output
}

#[test]
fn colors_depend_on_terminal_options_and_environment() {
    for (terminal, color, variables, colored) in [
        (true, None, &[][..], true),
        (true, None, &[("NO_COLOR", "1")], false),
        (true, None, &[("TERM", "dumb")], false),
        (true, Some("never"), &[], false),
        (true, Some("auto"), &[], true),
        // Options override the environment.
        (true, Some("always"), &[("NO_COLOR", "1")], true),
        (true, Some("always"), &[("TERM", "dumb")], true),
        (false, None, &[], false),
        (false, Some("always"), &[("NO_COLOR", "1")], true),
    ] {
        let output = output_of(terminal, color, variables);
        let case = format!("{terminal} {color:?} {variables:?}: {output:?}");
        assert_eq!(output.contains("\x1b[31merror:\x1b[0m"), colored, "{case}");
        assert_eq!(output.contains('\x1b'), colored, "{case}");
    }
}
