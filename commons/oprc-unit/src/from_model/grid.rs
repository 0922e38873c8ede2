//! The data grid of a unit.

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{self as model, Events, Member, OClassDeployment};

use super::{
    Source,
    container::{resources, variables},
};
use crate::spec::{
    BatchProcessing, Collection, CollectionSpec, DataRetention, EventProcessing, EventTrigger,
    GridMember, OdgmConfig, Route, ShardAssignment, Storage,
};

/// The planner adds what depends on other units: members and assignments.
pub(super) fn config(source: &Source<'_>, disabled: &BTreeSet<&str>) -> OdgmConfig {
    let deployment = source.deployment;
    let grid = deployment.odgm.clone().unwrap_or_default();
    OdgmConfig {
        collections: grid.collections.iter().map(|it| collection(&it.0)).collect(),
        image: grid.image,
        replicas: grid.replicas,
        partition_count: deployment.partition_count,
        replica_count: deployment.replica_count,
        shard_type: deployment.shard_type.map(Into::into),
        shard_assignments: Vec::new(),
        member_id: None,
        members: Vec::new(),
        cluster_id: grid.cluster_id,
        node_id_prefix: grid.node_id_prefix,
        event_processing: grid.events.as_ref().map(|it| events(source, it, disabled)),
        invocation_routes: grid
            .routes
            .into_iter()
            .map(|(key, it)| {
                (key, Route { url: it.url, stateless: it.stateless, standby: it.standby })
            })
            .collect(),
        storage: grid
            .storage
            .map(|it| Storage { class: it.class, size: it.size.map(|size| size.0) }),
        requests: resources(grid.requests_cpu.as_ref(), grid.requests_memory.as_ref(), None),
        limits: resources(grid.cpu.as_ref(), grid.memory.as_ref(), None),
        env: variables(&grid.env),
    }
}

fn collection(spec: &model::CollectionSpec) -> Collection {
    Collection::Spec(CollectionSpec {
        name: spec.name.clone(),
        partition_count: spec.partition_count,
        replica_count: spec.replica_count,
        shard_type: spec.shard_type.map(Into::into),
        persistence_mode: spec.persistence.map(Into::into),
        access_patterns: spec.access_patterns.iter().map(|it| (*it).into()).collect(),
        shard_assignments: Vec::new(),
    })
}

/// A member of a deployment that runs in an environment of a cluster; empty for no environment.
pub fn grid_member(member: &Member, cluster: &str, environment: &str) -> GridMember {
    GridMember {
        id: member.id,
        cluster: cluster.to_owned(),
        environment: Some(environment).filter(|it| !it.is_empty()).map(str::to_owned),
        url: member.grid_url.clone(),
    }
}

/// Assignments of the partitions, given the member of each, to one member after the other.
pub fn shard_assignments(owners: &[i32]) -> Vec<ShardAssignment> {
    let mut by_member: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (partition, member) in (0..).zip(owners) {
        by_member.entry(*member).or_default().push(partition);
    }
    let assignment = |(member, shard_ids)| ShardAssignment {
        primary: Some(member),
        owners: vec![member],
        shard_ids,
    };
    by_member.into_iter().map(assignment).collect()
}

fn events(source: &Source<'_>, events: &Events, disabled: &BTreeSet<&str>) -> EventProcessing {
    // A deployment lists the triggers of all its classes; a unit has only those of functions that
    // run in it.
    let runs = |key: &str| {
        let function = source.class.function(key);
        function.is_some_and(|it| it.function.runs_in_container()) && !disabled.contains(key)
    };
    EventProcessing {
        enabled: events.enabled,
        max_trigger_depth: events.max_trigger_depth,
        trigger_timeout_ms: events.trigger_timeout,
        event_triggers: events
            .triggers
            .iter()
            .filter(|it| runs(&it.function))
            .map(|it| EventTrigger {
                function_key: it.function.clone(),
                collection_filters: it.collections.clone(),
                async_execution: it.async_execution,
                trigger_type: it.trigger_type.map(Into::into),
            })
            .collect(),
        batch_processing: events.batch.as_ref().map(|it| BatchProcessing {
            enabled: it.enabled,
            batch_size: it.size,
            batch_timeout_ms: it.timeout,
        }),
    }
}

/// `None` if the deployment doesn't set it.
pub(super) fn retention(deployment: &OClassDeployment) -> Option<DataRetention> {
    let grid = deployment.odgm.as_ref()?;
    let is_set = grid.on_delete.is_some() || grid.allow_data_loss;
    is_set.then(|| DataRetention {
        on_delete: grid.on_delete.unwrap_or_default().into(),
        allow_data_loss: grid.allow_data_loss,
    })
}
