//! The one table of states: what a phase means to those who know other words. It stands in
//! `docs/states.md` too.

use oprc_grpc::deployment::{DeploymentState, FunctionState};

use crate::crd::{FunctionStatus, Phase};

/// What a deployment is.
pub fn deployment(phase: Phase, deleting: bool) -> DeploymentState {
    match phase {
        _ if deleting => DeploymentState::Deleted,
        Phase::Pending | Phase::Applying | Phase::Progressing => DeploymentState::Pending,
        Phase::Available => DeploymentState::Active,
        Phase::Degraded => DeploymentState::Failed,
        Phase::Deleting => DeploymentState::Deleted,
    }
}

/// What a function is.
pub fn function(function: &FunctionStatus, phase: Phase, deleting: bool) -> FunctionState {
    match phase {
        _ if deleting => FunctionState::FunctionDeleted,
        Phase::Deleting => FunctionState::FunctionDeleted,
        _ if function.ready => FunctionState::FunctionRunning,
        // It has no container, and is there when its class is.
        Phase::Available if function.reason.as_deref() == Some("NoContainer") => {
            FunctionState::FunctionRunning
        }
        _ if function.reason.as_deref() == Some("Disabled") => FunctionState::FunctionDown,
        Phase::Pending => FunctionState::FunctionPending,
        Phase::Applying | Phase::Progressing | Phase::Available => FunctionState::FunctionDeploying,
        Phase::Degraded => FunctionState::FunctionDown,
    }
}
