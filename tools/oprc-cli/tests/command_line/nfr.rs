//! `oprc nfr`: names of classes, and errors that say what to do.

use serde_json::json;

use crate::{fake_pm, fixtures, oprc};

/// Exit code, standard output and error.
fn run(responses: fake_pm::Responses, arguments: &[&str]) -> (Option<i32>, String, String) {
    let server = fake_pm::start(responses);
    let done = oprc().arg("nfr").args(arguments).args(["--server", &server]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn shows_a_class_by_any_of_its_names() {
    for name in ["Counter", "counter.Counter", "counter.Counter..east"] {
        let (code, stdout, stderr) = run(fixtures::all(), &[name]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{name}");
        for part in [
            "class Counter, environment dev, cluster east, deployment counter",
            "function increment, measured ",
            "latency p95   <= 200ms   300ms (",
            "replicas (enforce): 3 -> 5\n  basis: p95 of 300 ms\n",
            "out-of-memory kills: 2, last ",
            "next change: possible now, waits for the cooldown of 120 s",
            "throughput   : #  min 10/s, max 41.5/s",
            "replicas    2 -> 3   p95 of 250 ms",
        ] {
            assert!(stdout.contains(part), "{part}: {stdout}");
        }
    }
}

#[test]
fn watches_for_a_limited_time() {
    let (code, stdout, stderr) = run(fixtures::all(), &["Counter", "--watch", "--for", "1s"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.starts_with("class Counter"), "{stdout}");
}

#[test]
fn unknown_classes_and_clusters_are_errors() {
    let (code, _, stderr) = run(fixtures::all(), &["Other"]);
    assert_eq!(code, Some(3));
    assert!(stderr.contains("deployed classes: Counter"), "{stderr}");
    let (code, _, stderr) = run(fixtures::all(), &["Counter", "--cluster", "west"]);
    assert_eq!(code, Some(3));
    assert!(stderr.contains("no cluster \"west\"; `oprc cluster list`"), "{stderr}");
}

#[test]
fn says_what_to_do_if_a_class_is_not_measured() {
    let with = |prometheus: Option<bool>, mode: &str, reason: &str| {
        let mut responses = fixtures::all();
        let cluster = &mut responses.get_mut("GET /api/v1/clusters").unwrap()["items"][0];
        cluster["capabilities"] = prometheus.map_or(json!({}), |it| json!({"prometheus": it}));
        let deployment = responses.get_mut("GET /api/v1/deployments/counter").unwrap();
        deployment["plan"]["units"][0]["spec"] = json!({"nfr": {"enforcement": {"mode": mode}}});
        let path = "GET /api/v1/class-runtimes/counter.Counter..east";
        let unit = &mut responses.get_mut(path).unwrap()["unit"];
        unit["contact"] = json!("FRESH");
        unit["functions"][0].as_object_mut().unwrap().remove("nfrCompliance");
        unit["nfrHistory"] = json!([]);
        unit["nfrRecommendations"] = json!([]);
        unit["oomKills"] = json!([]);
        unit["nfrObserved"] = json!({"reason": reason});
        if reason.is_empty() {
            unit.as_object_mut().unwrap().remove("nfrObserved");
        }
        run(responses, &["Counter"])
    };
    for (prometheus, mode, reason, expected) in [
        (Some(false), "observe", "", "set prometheus.url of CRM, and"),
        (None, "observe", "", "set prometheus.url of CRM; if it is set"),
        (Some(true), "off", "", "set enforcement.mode of the deployment"),
        (Some(true), "observe", "PrometheusUnavailable", "check prometheus.url of CRM"),
        (Some(true), "observe", "Measured", "only the leader of CRM measures"),
        (Some(true), "observe", "", "retry in a minute"),
    ] {
        let (code, stdout, stderr) = with(prometheus, mode, reason);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{expected}");
        assert!(stderr.contains("hint: ") && stderr.contains(expected), "{expected}: {stderr}");
    }
}

#[test]
fn shows_verdicts_of_a_crm_that_is_not_the_leader() {
    let mut responses = fixtures::all();
    let path = "GET /api/v1/class-runtimes/counter.Counter..east";
    let unit = &mut responses.get_mut(path).unwrap()["unit"];
    unit["contact"] = json!("FRESH");
    let latency = json!({"requirement": "latency", "state": "violated", "required": 200.0});
    unit["functions"][0]["nfrCompliance"] = json!({"requirements": [latency]});
    let (code, stdout, stderr) = run(responses, &["Counter"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    for part in [
        "function increment: no live values",
        "latency p95   <= 200ms   -          violated",
        "no live values: only the leader of CRM measures; retry in a minute",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}
