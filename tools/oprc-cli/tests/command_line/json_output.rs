//! JSON output of each command. Programs depend on it: no field may be renamed or removed.

use crate::{fake_pm, fixtures, oprc};

#[test]
fn json_output_is_stable() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("OPRC_CONFIG", "tests/json/contexts.yaml")
        .env("OPRC_SERVER", fake_pm::start(fixtures::all()))
        .case("tests/json/*.toml");
}

#[test]
fn diff_reports_a_rolled_back_deployment() {
    let mut responses = fixtures::all();
    // After a rollback the desired state equals the last plan.
    let plan = responses["GET /api/v1/deployments/counter"]["plan"].clone();
    responses.insert("POST /api/v1/plan".to_owned(), plan);
    let diff = |responses: fake_pm::Responses| {
        let server = fake_pm::start(responses);
        let done = oprc().args(["diff", "counter", "--server", &server]).output().unwrap();
        let stderr = String::from_utf8(done.stderr).unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap(), stderr)
    };
    assert_eq!(diff(responses.clone()), (Some(0), String::new(), String::new()));
    let deployment = responses.get_mut("GET /api/v1/deployments/counter").unwrap();
    deployment["status"]["condition"] = "ROLLED_BACK".into();
    let (code, stdout, stderr) = diff(responses);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("-condition: ROLLED_BACK\n+condition: RUNNING\n"), "{stdout}");
    assert!(stderr.contains("deployment counter failed and was rolled back"), "{stderr}");
}

#[test]
fn strips_control_characters_of_servers() {
    let mut responses = fixtures::all();
    let evil = "a\u{1b}[2J\u{9b}2J\rb";
    let put = responses.get_mut("PUT /api/v1/deployments/counter").unwrap();
    put["plan"]["warnings"] = vec![evil].into();
    put["revision"] = evil.into();
    put["deployment"]["key"] = evil.into();
    let problem = serde_json::json!({"title": evil, "detail": evil, "blockers": [evil]});
    responses.insert("DELETE /api/v1/packages/counter".to_owned(), problem);
    // Unknown enum values are quoted in the error.
    responses.insert("GET /api/v1/clusters/east".to_owned(), serde_json::json!({"health": evil}));
    let server = fake_pm::start(responses);
    for arguments in [
        &["deploy", "counter", "--no-wait"][..],
        &["deploy", "counter", "--no-wait", "-o", "name"],
        &["deploy", "counter", "--no-wait", "-o", "json"],
        &["package", "delete", "counter", "--all"],
        &["cluster", "health", "east"],
    ] {
        let done = oprc().args(arguments).args(["--server", &server]).output().unwrap();
        let output = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert!(output.contains("[2J"), "{arguments:?}: {output}");
        let controls = |it: char| it.is_control() && it != '\n';
        assert!(!output.contains(controls), "{arguments:?}: {output:?}");
    }
}

#[test]
fn plan_prints_one_unit_per_line_by_name() {
    let mut responses = fixtures::all();
    let plan = responses.get_mut("POST /api/v1/plan").unwrap();
    let mut unit = plan["units"][0].clone();
    unit["id"] = "counter.Other..east".into();
    plan["units"].as_array_mut().unwrap().push(unit);
    let server = fake_pm::start(responses);
    let done = oprc().args(["plan", "counter", "-o", "name", "--server", &server]).output();
    let stdout = String::from_utf8(done.unwrap().stdout).unwrap();
    assert_eq!(stdout, "counter.Counter..east\ncounter.Other..east\n");
}

#[test]
fn parses_only_bodies_that_are_needed() {
    let mut responses = fixtures::all();
    responses.insert("DELETE /api/v1/packages/counter".to_owned(), true.into());
    responses.insert("GET /api/v1/packages".to_owned(), serde_json::Value::Null);
    let server = fake_pm::start(responses);
    let run = |arguments: &[&str]| {
        let done = oprc().args(arguments).args(["--server", &server]).output().unwrap();
        let output = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        (done.status.success(), output)
    };
    let (deleted, output) = run(&["package", "delete", "counter", "--all"]);
    assert!(deleted, "{output}");
    let (accepted, output) = run(&["check", "--no-clusters"]);
    assert!(!accepted && output.contains("credentials not accepted"), "{output}");
}
