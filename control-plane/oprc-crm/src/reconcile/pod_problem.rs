//! Problems that pods report, with reasons that stay the same while the problem does.

use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod},
    jiff::{SignedDuration, Timestamp},
};

use super::manifest::{FUNCTION, OWNER};
use crate::reason::{Failure, Reason};

#[derive(Clone, Debug, PartialEq)]
pub struct PodProblem {
    pub pod: String,
    /// The label [`OWNER`].
    pub class: String,
    /// The label [`FUNCTION`]; none for the data grid.
    pub function: Option<String>,
    pub problem: Failure,
}

pub fn pod_problem(pod: &Pod, now: Timestamp) -> Option<PodProblem> {
    let labels = pod.metadata.labels.as_ref()?;
    let status = pod.status.as_ref()?;
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let name = pod.metadata.name.clone()?;
    let of_container = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|it| crash_loop(&name, it, now).or_else(|| waiting(&name, it)));
    let unscheduled = || {
        let scheduled = status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled")?;
        let message = scheduled.message.as_deref().unwrap_or("no reason given");
        (scheduled.status == "False").then(|| Failure {
            reason: Reason::Unschedulable,
            message: format!("pod {name} can't be scheduled: {message}"),
        })
    };
    Some(PodProblem {
        class: labels.get(OWNER)?.clone(),
        function: labels.get(FUNCTION).cloned(),
        problem: of_container.or_else(unscheduled)?,
        pod: name,
    })
}

/// The kubelet resets its restart backoff after a run of this length.
const STABLE_RUN: SignedDuration = SignedDuration::from_mins(10);

/// A crash loop is detected between restarts as well, while the container runs or has just exited.
fn crash_loop(pod: &str, container: &ContainerStatus, now: Timestamp) -> Option<Failure> {
    let state = container.state.as_ref()?;
    let last = container.last_state.as_ref().and_then(|it| it.terminated.as_ref());
    let waiting = state.waiting.as_ref().and_then(|it| it.reason.as_deref());
    let short = |last: &ContainerStateTerminated| match (&last.started_at, &last.finished_at) {
        (Some(started), Some(finished)) => finished.0.duration_since(started.0) < STABLE_RUN,
        _ => true,
    };
    // A container that has run for long isn't ready for another reason.
    let started = state.running.as_ref().and_then(|it| it.started_at.as_ref());
    let stable = started.is_some_and(|started| now.duration_since(started.0) >= STABLE_RUN);
    let restarting = container.restart_count > 1
        && !container.ready
        && !stable
        && matches!(waiting, None | Some("ContainerCreating"))
        && last.is_some_and(short);
    if waiting != Some("CrashLoopBackOff") && !restarting {
        return None;
    }
    let code = last.map_or_else(String::new, |it| format!(" with exit code {}", it.exit_code));
    let message = format!("a container of pod {pod} exits repeatedly{code}");
    Some(Failure { reason: Reason::CrashLoop, message })
}

fn waiting(pod: &str, container: &ContainerStatus) -> Option<Failure> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let message = waiting.message.as_deref().unwrap_or("no reason given");
    // Between two attempts the kubelet prefixes the cause with its backoff.
    let message = message.split_once("ErrImagePull: ").map_or(message, |(_, cause)| cause);
    let reason = match waiting.reason.as_deref()? {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError" => Reason::ImagePullFailed,
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            Reason::ContainerNotCreated
        }
        _ => return None,
    };
    Some(Failure { reason, message: format!("pod {pod}: {message}") })
}
