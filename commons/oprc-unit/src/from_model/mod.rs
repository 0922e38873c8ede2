//! Converts a class of a package and its deployment to a unit. The planner adds the numbers that
//! neither sets.

mod container;
mod function;
mod grid;
mod macros;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use oprc_models::{self as model, FunctionState, Member, OClassDeployment, ResolvedClass};

pub use self::grid::{grid_member, shard_assignments};

use crate::{
    replication::ODGM,
    spec::{
        self, ClassReference, Constraints, DeploymentUnit, Enforcement, KeySpec, NfrSpec,
        Requirements, ResourceAllocation, Rollout, StateSpec, Telemetry, UnitSpec,
    },
    unit_id::{parse_unit_id, unit_id},
};

#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Id of the unit.
    pub id: &'a str,
    pub package: &'a str,
    pub version: &'a model::Version,
    pub class: &'a ResolvedClass,
    /// All classes of the package.
    pub classes: &'a [ResolvedClass],
    pub deployment: &'a OClassDeployment,
    /// The member of the deployment that the unit belongs to, if it has members.
    pub member: Option<&'a Member>,
    /// Empty for the cluster's default environment.
    pub environment: &'a str,
}

impl Source<'_> {
    fn disabled(&self) -> BTreeSet<&str> {
        let here = self.member.map(|it| it.disabled_fn.as_slice()).unwrap_or_default();
        let functions =
            self.class.functions.iter().filter(|it| {
                it.function.state() == FunctionState::Disabled || here.contains(&it.key)
            });
        functions.map(|it| it.key.as_str()).collect()
    }

    fn standby(&self, disabled: &BTreeSet<&str>) -> Vec<String> {
        let here = self.member.map(|it| it.standby_fn.as_slice()).unwrap_or_default();
        let functions = self.class.functions.iter().map(|it| &it.key);
        let standby = functions.filter(|it| here.contains(it) && !disabled.contains(it.as_str()));
        standby.cloned().collect()
    }

    /// The class with that qualified name, if it is in the package.
    fn class_named(&self, name: &str) -> Option<&ResolvedClass> {
        let key = name.strip_prefix(self.package)?.strip_prefix('.')?;
        self.classes.iter().find(|it| it.key == key)
    }
}

pub fn unit_spec(source: &Source<'_>) -> UnitSpec {
    let Source { class, deployment, .. } = source;
    let disabled = source.disabled();
    let options = deployment.options.clone().unwrap_or_default();
    let telemetry = Telemetry {
        metrics: options.metrics,
        metrics_path: options.metrics_path,
        otlp_endpoint: options.otlp_endpoint,
    };
    let rollout = Rollout {
        progress_deadline_seconds: options.progress_deadline_seconds,
        rollback: deployment.rollback_on_failure.unwrap_or_default(),
        drain_seconds: options.drain_seconds,
    };
    let forced = source.member.and_then(|it| it.force_template.clone());
    UnitSpec {
        deployment_unit: Some(DeploymentUnit {
            id: source.id.to_owned(),
            package: Some(source.package.to_owned()),
            package_version: Some(source.version.to_string()),
            class: Some(class.key.clone()),
            partition_info: None,
        }),
        target_environment: (!source.environment.is_empty()).then(|| source.environment.to_owned()),
        selected_template: forced.or_else(|| deployment.template.clone()),
        template_hint: None,
        function: None,
        functions: class.functions.iter().map(|it| function::spec(source, it)).collect(),
        state: state(class),
        references: references(source),
        nfr_requirements: class.requirements.as_ref().map(requirements),
        constraints: class.constraints.as_ref().map(constraints),
        proxy: class.proxy.map(Into::into),
        nfr: deployment
            .enforcement
            .as_ref()
            .map(|it| NfrSpec { enforcement: Some(enforcement(it)) }),
        addons: class.has_grid().then(|| ODGM.to_owned()).into_iter().collect(),
        resource_allocation: deployment
            .replica_count
            .map(|count| ResourceAllocation { replication_factor: Some(count) }),
        odgm_config: class.has_grid().then(|| grid::config(source, &disabled)),
        data_retention: class.has_grid().then(|| grid::retention(deployment)).flatten(),
        standby_functions: source.standby(&disabled),
        disabled_functions: disabled.into_iter().map(str::to_owned).collect(),
        telemetry: (telemetry != Telemetry::default()).then_some(telemetry),
        rollout: (rollout != Rollout::default()).then_some(rollout),
        paused: options.paused,
    }
}

/// Enums that packages and units share. A variant that is missing in one of them doesn't compile.
macro_rules! same {
    ($($model:ident => $name:ident { $($variant:ident),* })*) => {
        $(impl From<model::$model> for spec::$name {
            fn from(value: model::$model) -> Self {
                match value {
                    $(model::$model::$variant => Self::$variant,)*
                }
            }
        })*
    };
}

same! {
    Access => Access { Private, Internal, Public }
    AccessMode => AccessMode { ReadWrite, ReadOnly, WriteOnly }
    AccessPattern => AccessPattern { ReadWrite, ReadOnly, WriteOnly, BatchRead }
    CachingStrategy => CachingStrategy { None, ReadThrough, WriteThrough }
    Consistency => Consistency { Eventual, Strong }
    Dimension => Dimension { Replicas, Memory, Cpu, Template }
    EnforcementMode => EnforcementMode { Off, Observe, Enforce }
    KeyType => KeyType { String, Integer, Double, Boolean, Json }
    FunctionType => FunctionType { Builtin, Task, Macro, Logical, Custom }
    OnDelete => OnDelete { Retain, Delete }
    Persistence => PersistenceMode { Persistent, Ephemeral }
    ProxyMode => ProxyMode { Auto, Always, Never }
    PullPolicy => PullPolicy { Always, IfNotPresent, Never }
    SecurityLevel => SecurityLevel { Restricted, Baseline }
    ShardType => ShardType { Basic, Raft, Mst }
    StateType => StateType { Normal, Collection, Singleton }
    TriggerType => TriggerType { StateChange, Create, Update, Delete }
}

fn state(class: &ResolvedClass) -> Option<StateSpec> {
    if class.state_spec.is_none() && class.state_type == model::StateType::default() {
        return None;
    }
    let spec = class.state_spec.clone().unwrap_or_default();
    Some(StateSpec {
        state_type: class.state_type.into(),
        consistency: spec.consistency.map(Into::into),
        persistence: spec.persistence.map(Into::into),
        access_patterns: spec.access_patterns.iter().map(|it| (*it).into()).collect(),
        key_specs: spec
            .key_specs
            .iter()
            .map(|it| KeySpec {
                name: it.name.clone(),
                kind: it.kind.into(),
                optional: it.optional,
                immutable: it.immutable,
            })
            .collect(),
        access: spec.access.map(Into::into),
    })
}

/// A class of the same deployment has a unit in the same cluster and environment.
fn references(source: &Source<'_>) -> Vec<ClassReference> {
    let unit = |class: &str| {
        let class = source.class_named(class)?;
        let deployed = source.deployment.classes().any(|it| it == class.key);
        let own = parse_unit_id(source.id).filter(|_| deployed && class.has_grid())?;
        Some(unit_id(own.deployment, &class.key, own.environment, own.cluster))
    };
    let all = source.class.references.iter().filter(|_| source.class.has_grid());
    all.map(|it| ClassReference {
        name: it.name.clone(),
        class: it.class.clone(),
        access: it.access.map(Into::into),
        unit: unit(&it.class),
        url: None,
    })
    .collect()
}

fn requirements(requirements: &model::Requirements) -> Requirements {
    Requirements {
        min_throughput_rps: requirements.throughput,
        max_latency_ms: requirements.latency,
        availability: requirements.availability,
        availability_pct: requirements.availability_pct,
        consistency: requirements.consistency.map(Into::into),
    }
}

fn constraints(constraints: &model::Constraints) -> Constraints {
    Constraints {
        hard_latency_ms: constraints.hard_latency,
        max_concurrency: constraints.max_concurrency,
        circuit_breaker: constraints.circuit_breaker,
    }
}

fn enforcement(enforcement: &model::Enforcement) -> Enforcement {
    Enforcement {
        mode: enforcement.mode.unwrap_or_default().into(),
        dimensions: enforcement.dimensions.iter().map(|it| (*it).into()).collect(),
    }
}
