//! What pods complain about, in words that stay the same while they do.

use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod},
    jiff::{SignedDuration, Timestamp},
};

use super::render::{FUNCTION, OWNER};

/// A pod that has something to complain about.
#[derive(Clone, Debug, PartialEq)]
pub struct PodTrouble {
    /// Its name.
    pub pod: String,
    /// The class, by its label.
    pub class: String,
    /// The function, by its label; none for the data grid.
    pub function: Option<String>,
    /// What is wrong.
    pub trouble: Trouble,
}

/// What is wrong with a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: &'static str,
    /// In one sentence.
    pub message: String,
    /// Whether it may well go away by itself, so that it counts only when time is up.
    pub soft: bool,
}

/// What a pod has to complain about.
pub fn pod_trouble(pod: &Pod, now: Timestamp) -> Option<PodTrouble> {
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
        (scheduled.status == "False").then(|| Trouble {
            reason: "Unschedulable",
            message: format!(
                "pod {name} has no node: {}",
                scheduled.message.as_deref().unwrap_or("no reason given")
            ),
            soft: true,
        })
    };
    Some(PodTrouble {
        class: labels.get(OWNER)?.clone(),
        function: labels.get(FUNCTION).cloned(),
        trouble: of_container.or_else(unscheduled)?,
        pod: name,
    })
}

/// A run that lasted longer than that has done well: the kubelet too begins to count anew.
const DONE_WELL: SignedDuration = SignedDuration::from_mins(10);

/// A container that ends again and again does so in the moments, too, when it runs or has just
/// ended.
fn crash_loop(pod: &str, container: &ContainerStatus, now: Timestamp) -> Option<Trouble> {
    let state = container.state.as_ref()?;
    let last = container.last_state.as_ref().and_then(|it| it.terminated.as_ref());
    let waits = state.waiting.as_ref().and_then(|it| it.reason.as_deref());
    let briefly = |last: &ContainerStateTerminated| match (&last.started_at, &last.finished_at) {
        (Some(started), Some(finished)) => finished.0.duration_since(started.0) < DONE_WELL,
        _ => true,
    };
    // Why a run that does well by now isn't ready is something else.
    let begun = state.running.as_ref().and_then(|it| it.started_at.as_ref());
    let does_well = begun.is_some_and(|begun| now.duration_since(begun.0) >= DONE_WELL);
    let again = container.restart_count > 1
        && !container.ready
        && !does_well
        && matches!(waits, None | Some("ContainerCreating"))
        && last.is_some_and(briefly);
    if waits != Some("CrashLoopBackOff") && !again {
        return None;
    }
    let code = last.map_or_else(String::new, |it| format!(" with exit code {}", it.exit_code));
    let message = format!("pod {pod} ends again and again{code}");
    Some(Trouble { reason: "CrashLoop", message, soft: false })
}

/// Why a container hasn't begun.
fn waiting(pod: &str, container: &ContainerStatus) -> Option<Trouble> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let said = waiting.message.as_deref().unwrap_or("no reason given");
    // Between two attempts the kubelet says that it waits, and repeats what went wrong.
    let said = said.split_once("ErrImagePull: ").map_or(said, |(_, cause)| cause);
    let reason = match waiting.reason.as_deref()? {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError" => "ImagePullFailed",
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            "ContainerNotCreated"
        }
        _ => return None,
    };
    Some(Trouble { reason, message: format!("pod {pod}: {said}"), soft: false })
}
