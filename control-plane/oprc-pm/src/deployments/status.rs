//! How units and deployments are, as they are told.

use oprc_grpc::deployment::ClassRuntime;
use oprc_rest::{Condition, Contact, DeploymentStatus, FunctionStatus, GridStatus, UnitStatus};

use super::{KeptUnit, UnitKey};
use crate::{
    clusters::Clusters,
    dispatcher::{Troubles, condition, is_available, is_current, sight},
    records::{DeploymentRecord, Stage, UnitRecord},
    states,
};

/// How a deployment is.
pub fn status(
    record: &DeploymentRecord,
    units: &[KeptUnit],
    clusters: &Clusters,
    troubles: &Troubles,
) -> DeploymentStatus {
    let all: Vec<(bool, UnitStatus)> = units
        .iter()
        .map(|(key, kept)| {
            (kept.record.spec.is_some(), unit(key, &kept.record, clusters, troubles))
        })
        .collect();
    // What is on its way out doesn't count, unless all of it is.
    let deleting = matches!(record.stage, Stage::Deleting { .. });
    let counted: Vec<UnitStatus> = all
        .iter()
        .filter(|(wanted, _)| *wanted || deleting)
        .map(|(_, unit)| unit.clone())
        .collect();
    let (condition, message) = condition(&record.stage, &counted);
    DeploymentStatus {
        condition,
        message,
        revision: record.revision.clone(),
        since: since(&record.stage).to_owned(),
        available: counted.iter().filter(|unit| is_available(unit)).count(),
        units_total: counted.len(),
        units: all.into_iter().map(|(_, unit)| unit).collect(),
    }
}

fn since(stage: &Stage) -> &str {
    match stage {
        Stage::Driving { since }
        | Stage::Settled { since }
        | Stage::RollingBack { since, .. }
        | Stage::RolledBack { since, .. }
        | Stage::Deleting { since } => since,
    }
}

/// How a unit is.
pub(super) fn unit(
    key: &UnitKey,
    record: &UnitRecord,
    clusters: &Clusters,
    troubles: &Troubles,
) -> UnitStatus {
    let (cluster, id) = key;
    let known = clusters.link(cluster).map(|link| {
        let observed = link.observed();
        (observed.contact(), observed.class(id, record.place()).cloned())
    });
    let (contact, class) = known.unwrap_or((Contact::Unconfigured, None));
    let mut unit =
        class.as_deref().map(|class| of_class(cluster, class, contact)).unwrap_or_default();
    unit.id.clone_from(id);
    unit.cluster.clone_from(cluster);
    unit.environment.clone_from(&record.environment);
    unit.class.clone_from(&record.class);
    unit.contact = contact;
    if unit.namespace.is_empty() {
        unit.namespace.clone_from(&record.namespace);
    }
    unit.current = class.as_deref().is_some_and(|class| is_current(record, &sight(class)));
    if record.spec.is_none() {
        unit.condition = Condition::Deleted;
    } else if !unit.current {
        // What is told is about something else than what is wanted.
        unit.condition = if class.is_some() { Condition::Deploying } else { Condition::Pending };
    }
    if let Some(why) = troubles.refused(key, record) {
        unit.condition = Condition::Down;
        "Refused".clone_into(&mut unit.reason);
        unit.message = why;
    } else if !unit.current
        && let Some(why) = troubles.last(key, record)
    {
        unit.message = why;
    }
    unit
}

/// How a class is, by what its cluster tells alone.
pub(super) fn of_class(cluster: &str, class: &ClassRuntime, contact: Contact) -> UnitStatus {
    let status = class.status.clone().unwrap_or_default();
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let functions = status.functions.into_iter().map(|function| FunctionStatus {
        condition: states::function(function.condition()),
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
        condition: states::unit(class),
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
