//! The table of states as far as the package manager goes by it: docs/states.md.

use oprc_grpc::deployment::{ClassRuntime, DeploymentState, FunctionState};
use oprc_rest::Condition;

/// How a unit is, by what its cluster tells.
pub(crate) fn unit(class: &ClassRuntime) -> Condition {
    let status = class.status.as_ref();
    let observed = status.map(|status| status.observed_generation).unwrap_or_default();
    let phase = status.map(|status| status.phase.as_str()).unwrap_or_default();
    match phase {
        _ if class.deleting => Condition::Deleted,
        "Applying" | "Progressing" => Condition::Deploying,
        // About an earlier specification.
        "Available" | "Degraded" if observed < class.generation => Condition::Deploying,
        "Available" => Condition::Running,
        "Degraded" => Condition::Down,
        "Deleting" => Condition::Deleted,
        _ => Condition::Pending,
    }
}

/// How a function is.
pub(crate) fn function(state: FunctionState) -> Condition {
    match state {
        FunctionState::FunctionRunning => Condition::Running,
        FunctionState::FunctionDeploying => Condition::Deploying,
        FunctionState::FunctionDown => Condition::Down,
        FunctionState::FunctionDeleted => Condition::Deleted,
        FunctionState::FunctionPending | FunctionState::Unspecified => Condition::Pending,
    }
}

/// How a deployment record is, in the words of 000.
pub(crate) fn record(state: DeploymentState) -> &'static str {
    match state {
        DeploymentState::Active => "ACTIVE",
        DeploymentState::Failed => "FAILED",
        DeploymentState::Deleted => "DELETED",
        DeploymentState::Pending | DeploymentState::Unspecified => "PENDING",
    }
}

#[cfg(test)]
mod tests {
    use oprc_grpc::deployment::Status;

    use super::*;

    fn class(phase: &str, generation: i64, deleting: bool) -> ClassRuntime {
        let status =
            Status { phase: phase.to_owned(), observed_generation: 1, ..Status::default() };
        ClassRuntime { generation, deleting, status: Some(status), ..ClassRuntime::default() }
    }

    #[test]
    fn phases_are_conditions_of_units() {
        for (phase, condition) in [
            ("", Condition::Pending),
            ("Pending", Condition::Pending),
            ("Applying", Condition::Deploying),
            ("Progressing", Condition::Deploying),
            ("Available", Condition::Running),
            ("Degraded", Condition::Down),
            ("Deleting", Condition::Deleted),
        ] {
            assert_eq!(unit(&class(phase, 1, false)), condition, "{phase}");
            assert_eq!(unit(&class(phase, 1, true)), Condition::Deleted, "{phase}");
        }
        assert_eq!(unit(&class("Available", 2, false)), Condition::Deploying);
        assert_eq!(unit(&ClassRuntime::default()), Condition::Pending);
    }
}
