//! Help and configuration of the program.

use std::{
    fs,
    process::{Command, Output},
};

use oprc_crm::config::SCHEMA;
use oprc_tests::program;

fn oprc_crm(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program("oprc-crm"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn help_and_config_list_every_setting() {
    let help = oprc_crm(&["--help"], &[]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    // Help texts are wrapped at the width of the terminal.
    let words: Vec<&str> = help.split_whitespace().collect();
    let (text, command) = (words.join(" "), SCHEMA.command());
    for setting in SCHEMA.settings {
        let argument = command.get_arguments().find(|it| it.get_id() == setting.path).unwrap();
        let flag = format!("--{}", argument.get_long().unwrap());
        assert!(
            words.iter().any(|word| word.split(['=', '[']).next() == Some(&flag)),
            "{flag}: {help}"
        );
        assert!(text.contains(setting.help), "{flag}: {}", setting.help);
        for variable in setting.env {
            assert!(text.contains(variable), "{variable}");
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crm.yaml");
    let path = file.to_str().unwrap();
    fs::write(&file, "crm:\n  templates:\n    drain: 7s\n").unwrap();
    let output =
        oprc_crm(&["config", "--config", path, "--odgm-disk=3Gi"], &[("HTTP_PORT", "1234")]);
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let row = |setting: &str| -> Vec<&str> {
        let row = output.lines().find(|line| line.split_whitespace().next() == Some(setting));
        row.unwrap_or_else(|| panic!("{setting}: {output}")).split_whitespace().collect()
    };
    assert_eq!(row("server.port")[1..], ["1234", "variable", "HTTP_PORT"]);
    assert_eq!(row("odgm.disk")[1..], ["3Gi", "flag", "--odgm-disk"]);
    assert_eq!(row("templates.drain")[1..], ["7s", "file", path, "(crm.templates.drain)"]);
    assert_eq!(row("kubernetes.lease")[2..], ["default", "of", "dev"]);
    for setting in SCHEMA.settings {
        row(setting.path);
    }

    fs::write(&file, "crm:\n  templates:\n    drian: 7s\n").unwrap();
    let rejected = oprc_crm(&["--config", path], &[]);
    assert!(!rejected.status.success());
    let stderr = String::from_utf8(rejected.stderr).unwrap();
    assert!(stderr.contains("crm.templates.drian") && stderr.contains("did you mean"), "{stderr}");
}
