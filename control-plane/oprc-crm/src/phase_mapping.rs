//! Maps ClassRuntime phases to the gRPC deployment and function states (docs/reference/states.md).

use oprc_grpc::deployment::{DeploymentState, FunctionState};

use crate::{
    crd::{FunctionStatus, Phase},
    reason::Reason,
};

pub fn deployment_state(phase: Phase, deleting: bool) -> DeploymentState {
    match phase {
        _ if deleting => DeploymentState::Deleted,
        Phase::Pending | Phase::Applying | Phase::Progressing => DeploymentState::Pending,
        Phase::Available => DeploymentState::Active,
        Phase::Degraded => DeploymentState::Failed,
        Phase::Deleting => DeploymentState::Deleted,
    }
}

pub fn function_state(function: &FunctionStatus, phase: Phase, deleting: bool) -> FunctionState {
    let has = |reason: Reason| function.reason.as_deref() == Some(reason.as_str());
    match phase {
        _ if deleting => FunctionState::FunctionDeleted,
        Phase::Deleting => FunctionState::FunctionDeleted,
        _ if function.ready => FunctionState::FunctionRunning,
        // A function without a container runs when its class is Available.
        Phase::Available if has(Reason::NoContainer) => FunctionState::FunctionRunning,
        _ if has(Reason::Disabled) => FunctionState::FunctionDown,
        Phase::Pending => FunctionState::FunctionPending,
        Phase::Applying | Phase::Progressing | Phase::Available => FunctionState::FunctionDeploying,
        Phase::Degraded => FunctionState::FunctionDown,
    }
}
