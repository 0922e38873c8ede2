//! Documents of each command (`-o json`), which programs read: no name in them may change.

use crate::{answers, canned, oprc};

#[test]
fn documents_stay_as_they_are() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("OPRC_CONFIG", "tests/documents/contexts.yaml")
        .env("OPRC_SERVER", canned::start(answers::all()))
        .case("tests/documents/*.toml");
}

#[test]
fn what_was_rolled_back_is_told_and_differs() {
    let mut answers = answers::all();
    // What is wanted is what was planned last, as it is after a rollback.
    let plan = answers["GET /api/v1/deployments/counter"]["plan"].clone();
    answers.insert("POST /api/v1/plan".to_owned(), plan);
    let diff = |answers: canned::Answers| {
        let server = canned::start(answers);
        let done = oprc().args(["diff", "counter", "--server", &server]).output().unwrap();
        let told = String::from_utf8(done.stderr).unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap(), told)
    };
    assert_eq!(diff(answers.clone()), (Some(0), String::new(), String::new()));
    let deployment = answers.get_mut("GET /api/v1/deployments/counter").unwrap();
    deployment["status"]["condition"] = "ROLLED_BACK".into();
    let (code, said, told) = diff(answers);
    assert_eq!(code, Some(1));
    assert!(said.contains("-condition: ROLLED_BACK\n+condition: RUNNING\n"), "{said}");
    assert!(told.contains("deployment counter failed and was rolled back"), "{told}");
}

#[test]
fn what_servers_say_steers_no_terminal() {
    let mut answers = answers::all();
    let evil = "a\u{1b}[2J\u{9b}2J\rb";
    let put = answers.get_mut("PUT /api/v1/deployments/counter").unwrap();
    put["plan"]["warnings"] = vec![evil].into();
    put["revision"] = evil.into();
    put["deployment"]["key"] = evil.into();
    let problem = serde_json::json!({"title": evil, "detail": evil, "blockers": [evil]});
    answers.insert("DELETE /api/v1/packages/counter".to_owned(), problem);
    // Words that nobody knows are told as they came.
    answers.insert("GET /api/v1/clusters/east".to_owned(), serde_json::json!({"health": evil}));
    let server = canned::start(answers);
    for arguments in [
        &["deploy", "counter", "--no-wait"][..],
        &["deploy", "counter", "--no-wait", "-o", "name"],
        &["deploy", "counter", "--no-wait", "-o", "json"],
        &["package", "delete", "counter", "--all"],
        &["cluster", "health", "east"],
    ] {
        let done = oprc().args(arguments).args(["--server", &server]).output().unwrap();
        let told = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert!(told.contains("[2J"), "{arguments:?}: {told}");
        let steers = |it: char| it.is_control() && it != '\n';
        assert!(!told.contains(steers), "{arguments:?}: {told:?}");
    }
}

#[test]
fn plans_name_their_units_line_by_line() {
    let mut answers = answers::all();
    let plan = answers.get_mut("POST /api/v1/plan").unwrap();
    let mut unit = plan["units"][0].clone();
    unit["id"] = "counter.Other..east".into();
    plan["units"].as_array_mut().unwrap().push(unit);
    let server = canned::start(answers);
    let done = oprc().args(["plan", "counter", "-o", "name", "--server", &server]).output();
    let said = String::from_utf8(done.unwrap().stdout).unwrap();
    assert_eq!(said, "counter.Counter..east\ncounter.Other..east\n");
}
