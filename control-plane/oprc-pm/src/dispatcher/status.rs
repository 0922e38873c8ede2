//! The status of deployments and units as the API reports it (docs/reference/states.md).

use oprc_grpc::deployment::{ClassRuntime, FunctionState};
use oprc_rest::{Condition, Contact, DeploymentStatus, FunctionStatus, GridStatus, UnitStatus};
use oprc_unit::Phase;

use super::CallBackoff;
use crate::{
    crm_client::{Clusters, observed_unit},
    rollout::{
        DeploymentRecord, ObservedUnit, UnitKey, UnitRecord, condition, is_available, is_current,
    },
    state::VersionedUnit,
};

pub fn status(
    record: &DeploymentRecord,
    units: &[VersionedUnit],
    clusters: &Clusters,
    call_backoff: &CallBackoff,
) -> DeploymentStatus {
    let (mut all, mut counted) = (Vec::new(), Vec::new());
    for (key, stored) in units {
        let unit = unit_status(key, &stored.record, clusters, call_backoff);
        // Units that are being deleted count only if the whole deployment is.
        if stored.record.desired || record.is_deleting() {
            counted.push(unit.clone());
        }
        all.push(unit);
    }
    let (condition, message) = condition(&record.stage, &counted);
    DeploymentStatus {
        condition,
        message,
        revision: record.revision.clone(),
        since: record.stage_since.to_string(),
        available: counted.iter().filter(|unit| is_available(unit)).count(),
        units_total: counted.len(),
        units: all,
    }
}

pub fn unit_status(
    key: &UnitKey,
    record: &UnitRecord,
    clusters: &Clusters,
    call_backoff: &CallBackoff,
) -> UnitStatus {
    let (cluster, id) = key;
    let cache = clusters.client(cluster).map(|client| client.class_cache());
    let contact = cache.as_ref().map_or(Contact::Unconfigured, |cache| cache.contact());
    let class = cache.as_ref().and_then(|cache| cache.class(id, record.object_namespace()));
    let reported = class.map(|class| class_status(cluster, class, contact)).unwrap_or_default();
    let mut unit = UnitStatus {
        id: id.clone(),
        cluster: cluster.clone(),
        environment: record.environment.clone(),
        class: record.class.clone(),
        contact,
        current: class.is_some_and(|class| is_current(record, &observed_unit(class))),
        ..reported
    };
    if unit.namespace.is_empty() {
        unit.namespace.clone_from(&record.namespace);
    }
    if !record.desired {
        unit.condition = Condition::Deleted;
    } else if !unit.current {
        // The report is about another spec than the desired one.
        unit.condition = if class.is_some() { Condition::Deploying } else { Condition::Pending };
    }
    if let Some(why) = call_backoff.rejection(key, record) {
        unit.condition = Condition::Down;
        "Rejected".clone_into(&mut unit.reason);
        unit.message = why;
    } else if !unit.current
        && let Some(error) = call_backoff.last_error(key, record)
    {
        unit.message = error;
    }
    unit
}

/// The status of a class as its cluster reports it.
pub fn class_status(cluster: &str, class: &ClassRuntime, contact: Contact) -> UnitStatus {
    let status = class.status.clone().unwrap_or_default();
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let functions = status.functions.into_iter().map(|function| FunctionStatus {
        condition: function_condition(function.condition()),
        unit: class.deployment_id.clone(),
        cluster: cluster.to_owned(),
        invocation_url: text(function.public_url).or(text(function.invocation_url.clone())),
        cluster_url: text(function.invocation_url),
        error_msg: text(function.error_msg),
        key: function.key,
    });
    UnitStatus {
        id: class.deployment_id.clone(),
        cluster: cluster.to_owned(),
        environment: class.environment.clone(),
        namespace: class.namespace.clone(),
        class: class.class.clone(),
        condition: unit_condition(&observed_unit(class)),
        reason: status.reason,
        message: status.message,
        template: status.selection.map(|it| it.template).unwrap_or_default(),
        current: true,
        contact,
        since: status
            .conditions
            .into_iter()
            .find(|condition| condition.r#type == status.phase)
            .map_or(status.last_updated, |condition| condition.last_transition_time),
        functions: functions.collect(),
        odgm: status.odgm.map(|grid| GridStatus {
            service: grid.service,
            ready: grid.ready,
            replicas: grid.replicas,
            collections: grid.collections.into_iter().map(|it| it.name).collect(),
        }),
        phase: status.phase,
    }
}

fn unit_condition(unit: &ObservedUnit) -> Condition {
    if unit.deleting {
        return Condition::Deleted;
    }
    match unit.phase {
        Phase::Pending => Condition::Pending,
        Phase::Applying | Phase::Progressing => Condition::Deploying,
        // The status is about an earlier generation.
        Phase::Available | Phase::Degraded if unit.current_phase().is_none() => {
            Condition::Deploying
        }
        Phase::Available => Condition::Running,
        Phase::Degraded => Condition::Down,
        Phase::Deleting => Condition::Deleted,
    }
}

fn function_condition(state: FunctionState) -> Condition {
    match state {
        FunctionState::FunctionRunning => Condition::Running,
        FunctionState::FunctionDeploying => Condition::Deploying,
        FunctionState::FunctionDown => Condition::Down,
        FunctionState::FunctionDeleted => Condition::Deleted,
        FunctionState::FunctionPending | FunctionState::Unspecified => Condition::Pending,
    }
}

#[cfg(test)]
mod tests {
    use oprc_grpc::deployment::Status;

    use super::*;

    fn condition(phase: &str, generation: i64, deleting: bool) -> Condition {
        let status =
            Status { phase: phase.to_owned(), observed_generation: 1, ..Status::default() };
        let class =
            ClassRuntime { generation, deleting, status: Some(status), ..ClassRuntime::default() };
        unit_condition(&observed_unit(&class))
    }

    #[test]
    fn maps_phases_to_conditions() {
        for (phase, expected) in [
            ("", Condition::Pending),
            ("Pending", Condition::Pending),
            ("Applying", Condition::Deploying),
            ("Progressing", Condition::Deploying),
            ("Available", Condition::Running),
            ("Degraded", Condition::Down),
            ("Deleting", Condition::Deleted),
        ] {
            assert_eq!(condition(phase, 1, false), expected, "{phase}");
            assert_eq!(condition(phase, 1, true), Condition::Deleted, "{phase}");
        }
        assert_eq!(condition("Available", 2, false), Condition::Deploying);
        let unreported = observed_unit(&ClassRuntime::default());
        assert_eq!(unit_condition(&unreported), Condition::Pending);
    }
}
