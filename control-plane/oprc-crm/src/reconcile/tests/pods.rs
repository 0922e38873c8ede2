//! Problems of pods.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::observe::pod_problem;
use crate::reason::{Failure, Reason};

fn pod(container: &Value) -> Option<Failure> {
    pod_at(container, "2026-01-01T00:02:00Z")
}

fn pod_at(container: &Value, now: &str) -> Option<Failure> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": {"oaas.io/owner": "shop", "oaas.io/function": "f"}},
        "status": {"containerStatuses": [container]},
    }))
    .unwrap();
    pod_problem(&pod, now.parse().unwrap()).map(|it| it.problem)
}

fn container(ready: bool, restarts: i32, state: &Value, ran_for: Option<&str>) -> Value {
    let mut container = json!({
        "name": "function", "image": "i", "imageID": "", "ready": ready,
        "restartCount": restarts, "state": state,
    });
    if let Some(until) = ran_for {
        container["lastState"] = json!({"terminated": {
            "exitCode": 7, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": until,
        }});
    }
    container
}

const SECONDS: Option<&str> = Some("2026-01-01T00:00:03Z");
const HOURS: Option<&str> = Some("2026-01-01T05:00:00Z");

#[test]
fn a_crash_loop_is_detected_in_all_of_its_states() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:01:00Z"}});
    let ended = json!({"terminated": {"exitCode": 7}});
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    let problems: Vec<_> = [
        container(false, 1, &waiting, SECONDS),
        container(false, 2, &running, SECONDS),
        container(false, 2, &ended, SECONDS),
        container(false, 2, &waiting, SECONDS),
        container(false, 3, &running, SECONDS),
    ]
    .iter()
    .map(pod)
    .collect();
    let expected = Failure {
        reason: Reason::CrashLoop,
        message: "a container of pod p exits repeatedly with exit code 7".to_owned(),
    };
    assert_eq!(problems, vec![Some(expected); 5]);
}

#[test]
fn one_exit_is_no_crash_loop() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:01:00Z"}});
    for fine in [
        container(false, 0, &running, None),
        container(false, 1, &running, SECONDS),
        container(true, 9, &running, SECONDS),
        // The first exit after a long run.
        container(false, 9, &running, HOURS),
    ] {
        assert_eq!(pod(&fine), None, "{fine}");
    }
}

/// It crashed twice at first, has run for long since, and fails a probe now.
#[test]
fn a_container_that_has_run_for_long_is_in_no_crash_loop() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:01:00Z"}});
    let container = container(false, 2, &running, SECONDS);
    for (now, detected) in [
        ("2026-01-01T00:10:59Z", true),
        ("2026-01-01T00:11:00Z", false),
        ("2026-01-08T00:00:00Z", false),
    ] {
        assert_eq!(pod_at(&container, now).is_some(), detected, "{now}");
    }
}

/// The kubelet alternates between pulling and backing off.
#[test]
fn a_failed_image_pull_keeps_its_message() {
    let waiting = |reason: &str, message: &str| {
        let state = json!({"waiting": {"reason": reason, "message": message}});
        pod(&container(false, 0, &state, None)).unwrap()
    };
    let cause = "failed to resolve reference \"x\": not found";
    let tries = waiting("ErrImagePull", cause);
    let waits = waiting(
        "ImagePullBackOff",
        &format!("Back-off pulling image \"x\": ErrImagePull: {cause}"),
    );
    assert_eq!(tries, waits);
    assert_eq!((tries.reason, tries.message), (Reason::ImagePullFailed, format!("pod p: {cause}")));
}
