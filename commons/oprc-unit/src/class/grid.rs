//! Resolves the data grid of a class: its nodes, collections, partitions, copies and triggers.

use oprc_models::{
    FieldPath, limits, parse_volume_size,
    rules::{is_collection_name, is_reserved_grid_env},
};

use super::{Identity, ValidFunction, schema_limits, violations::Violations};
use crate::{
    availability::MAX_COPIES,
    platform::Profile,
    replication,
    spec::{
        AccessPattern, CollectionSpec, EnvVar, EventTrigger, OdgmConfig, PersistenceMode,
        Resources, Route, ShardAssignment, ShardType, StateSpec, StateType, Storage, UnitSpec,
    },
};

/// The resolved data grid of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct OdgmPlan {
    /// The image, if the class sets one.
    pub image: Option<String>,
    /// Number of nodes.
    pub replicas: i32,
    pub cluster_id: String,
    pub node_id_prefix: String,
    pub collections: Vec<CollectionPlan>,
    pub triggers: Vec<EventTrigger>,
    /// Whether event processing is enabled.
    pub events: bool,
    /// Maximum length of a chain of triggered calls.
    pub trigger_depth: i32,
    pub trigger_timeout_ms: i32,
    /// Batch size and batch timeout in milliseconds.
    pub batch: Option<(i32, i32)>,
    /// Routes to functions outside the class.
    pub routes: std::collections::BTreeMap<String, Route>,
    pub storage: Storage,
    /// Set by the user; the platform's defaults apply to the rest.
    pub requests: Resources,
    /// Set by the user; the platform's defaults apply to the rest.
    pub limits: Resources,
    pub env: Vec<EnvVar>,
}

impl OdgmPlan {
    /// Whether any collection outlives its pods.
    pub fn persistent(&self) -> bool {
        self.collections.iter().any(|it| it.persistence == PersistenceMode::Persistent)
    }

    /// Whether its nodes need stable names: for their volumes, or to find each other.
    pub fn stateful(&self) -> bool {
        self.persistent() || self.replicas > 1
    }

    /// Nodes that must be ready before functions start: a majority if all collections use
    /// consensus, otherwise all, because each node has partitions of its own.
    pub fn needed(&self) -> i32 {
        let consensus = |it: &CollectionPlan| it.shard_type == ShardType::Raft;
        let all_consensus = !self.collections.is_empty() && self.collections.iter().all(consensus);
        if all_consensus { self.replicas / 2 + 1 } else { self.replicas }
    }
}

/// A resolved collection.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectionPlan {
    pub name: String,
    pub partitions: i32,
    /// Copies of each partition.
    pub replicas: i32,
    pub shard_type: ShardType,
    pub persistence: PersistenceMode,
    pub access_patterns: Vec<AccessPattern>,
    pub assignments: Vec<ShardAssignment>,
}

/// The shard type in the data grid's configuration.
pub fn shard_type(shard_type: ShardType) -> &'static str {
    match shard_type {
        ShardType::Raft => "raft",
        ShardType::Basic => "basic",
        ShardType::Mst => "mst",
    }
}

/// The persistence mode in the data grid's configuration.
pub fn persistence(mode: PersistenceMode) -> &'static str {
    match mode {
        PersistenceMode::Persistent => "persistent",
        PersistenceMode::Ephemeral => "ephemeral",
    }
}

pub(super) fn plan(
    violations: &mut Violations,
    identity: &Identity,
    spec: &UnitSpec,
    functions: &[ValidFunction],
    profile: Profile,
) -> OdgmPlan {
    let config = spec.odgm_config.clone().unwrap_or_default();
    let class = spec.deployment_unit.as_ref().and_then(|unit| unit.class.clone());
    let class = class.unwrap_or_else(|| identity.name.clone());
    let planned = spec.resource_allocation.as_ref().and_then(|it| it.replication_factor);
    let planned = planned.unwrap_or_else(|| replication::default_copies(spec));
    let nodes = config.replicas.unwrap_or(1).max(planned).clamp(1, MAX_COPIES);
    let (consensus, _) = replication::consensus(spec);
    let default_type = config.shard_type.unwrap_or(if nodes > 1 && consensus {
        ShardType::Raft
    } else {
        ShardType::Basic
    });
    let is_raft = |own: Option<ShardType>| own.unwrap_or(default_type) == ShardType::Raft;
    let any_raft = if config.collections.is_empty() {
        spec.state.is_some() && is_raft(None)
    } else {
        config.collections.iter().any(|it| is_raft(it.shard_type()))
    };
    let replicas = if any_raft { replication::raft_copies(nodes) } else { nodes };
    let latency = replication::required_latency(spec);
    let defaults = Defaults {
        partitions: replication::partitions(spec).0,
        replicas,
        shard_type: default_type,
        profile,
        state: spec.state.clone(),
        config: config.clone(),
    };
    check(violations, &config);
    let collections = collections(violations, &class, &defaults);
    check_uses(violations, spec, &collections);
    let events = config.event_processing.clone().unwrap_or_default();
    let triggers =
        triggers(violations, &class, spec, events.event_triggers, functions, &collections);
    let batch = events.batch_processing.unwrap_or_default();
    let named = identity.environment.as_deref().unwrap_or("default");
    OdgmPlan {
        image: config.image,
        replicas,
        cluster_id: config
            .cluster_id
            .unwrap_or_else(|| format!("{}-{named}-{}", identity.deployment_id, identity.name)),
        node_id_prefix: config.node_id_prefix.unwrap_or_else(|| {
            let package = spec.deployment_unit.as_ref().and_then(|unit| unit.package.as_deref());
            format!("crm-{named}-{}", package.unwrap_or(&identity.name))
        }),
        collections,
        events: events.enabled.unwrap_or(!triggers.is_empty()),
        triggers,
        trigger_depth: events.max_trigger_depth.unwrap_or(if latency.unwrap_or(1000) < 100 {
            5
        } else {
            10
        }),
        trigger_timeout_ms: events
            .trigger_timeout_ms
            .unwrap_or_else(|| latency.map_or(5000, |latency| (latency / 2).max(1000))),
        batch: batch
            .enabled
            .unwrap_or(true)
            .then(|| (batch.batch_size.unwrap_or(100), batch.batch_timeout_ms.unwrap_or(1000))),
        routes: config.invocation_routes,
        storage: config.storage.unwrap_or_default(),
        requests: config.requests.unwrap_or_default(),
        limits: config.limits.unwrap_or_default(),
        env: config.env,
    }
}

/// Functions can use only collections of the class.
fn check_uses(violations: &mut Violations, spec: &UnitSpec, all: &[CollectionPlan]) {
    for (field, body) in spec.bodies() {
        let used = body.odgm.iter().flat_map(|odgm| &odgm.collections);
        for name in used.filter(|name| all.iter().all(|it| it.name != **name)) {
            let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            let message = format!(
                "the class has no collection {name:?}; it has: {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            );
            violations.add(format!("{field}.odgm.collections"), message);
        }
    }
}

fn check(violations: &mut Violations, config: &OdgmConfig) {
    violations.check_resources("odgm_config", config.requests.as_ref(), config.limits.as_ref());
    if let Some(size) = config.storage.as_ref().and_then(|storage| storage.size.as_ref()) {
        violations.add_error("odgm_config.storage.size", parse_volume_size(size));
    }
    violations.check_env("odgm_config.env", &config.env, is_reserved_grid_env);
}

/// Defaults of collections.
struct Defaults {
    partitions: i32,
    replicas: i32,
    shard_type: ShardType,
    profile: Profile,
    state: Option<StateSpec>,
    config: OdgmConfig,
}

impl Defaults {
    /// Outside production, data is persistent only if the class requests it.
    fn persistence(&self) -> PersistenceMode {
        let requested = self.state.as_ref().and_then(|state| state.persistence);
        requested.unwrap_or(match self.profile {
            Profile::Full => PersistenceMode::Persistent,
            Profile::Dev | Profile::Edge => PersistenceMode::Ephemeral,
        })
    }

    fn resolve(
        &self,
        spec: CollectionSpec,
        partitions: i32,
        default_copies: i32,
    ) -> CollectionPlan {
        let shard_type = spec.shard_type.unwrap_or(self.shard_type);
        let copies = spec.replica_count.or(self.config.replica_count).unwrap_or(default_copies);
        let copies =
            if shard_type == ShardType::Raft { replication::raft_copies(copies) } else { copies };
        // Each copy needs a node of its own.
        let replicas = copies.min(self.replicas);
        let patterns = if spec.access_patterns.is_empty() {
            self.state.as_ref().map(|state| state.access_patterns.clone()).unwrap_or_default()
        } else {
            spec.access_patterns
        };
        CollectionPlan {
            name: spec.name,
            partitions: spec.partition_count.unwrap_or(partitions),
            replicas,
            shard_type,
            persistence: spec.persistence_mode.unwrap_or_else(|| self.persistence()),
            access_patterns: if patterns.is_empty() {
                vec![AccessPattern::ReadWrite]
            } else {
                patterns
            },
            assignments: if spec.shard_assignments.is_empty() {
                self.config.shard_assignments.clone()
            } else {
                spec.shard_assignments
            },
        }
    }
}

fn collections(
    violations: &mut Violations,
    class: &str,
    defaults: &Defaults,
) -> Vec<CollectionPlan> {
    let mut all = Vec::new();
    let path = FieldPath::default().field("odgm_config").field("collections");
    // The limits of the schema reject more.
    let collections = defaults.config.collections.iter().take(limits::COLLECTIONS);
    for (at, collection) in collections.enumerate() {
        let (path, spec) = (path.index(at), CollectionSpec::from(collection.clone()));
        check_name(violations, &path, &spec.name);
        violations.check_schema(&schema_limits::COLLECTION, &path, &spec);
        if all.iter().any(|other: &CollectionPlan| other.name == spec.name) {
            violations.add(path.to_string(), format!("{:?} is given twice", spec.name));
        }
        all.push(defaults.resolve(spec, defaults.partitions, 2));
    }
    if let (true, Some(state)) = (all.is_empty(), &defaults.state) {
        let copies = match state.state_type {
            StateType::Singleton | StateType::Collection => 3,
            StateType::Normal => 2,
        };
        let mut spec = replication::default_collection(class, state.state_type);
        if state.state_type == StateType::Collection && state.access_patterns.is_empty() {
            spec.access_patterns = vec![AccessPattern::ReadWrite, AccessPattern::BatchRead];
        }
        let path = FieldPath::default().field("deployment_unit").field("class");
        check_name(violations, &path, &spec.name);
        all.push(defaults.resolve(spec, defaults.partitions, copies));
    }
    all
}

fn check_name(violations: &mut Violations, path: &FieldPath, name: &str) {
    if !is_collection_name(name) {
        let rule = "use 1 to 253 characters without commas, quotes, backslashes and whitespace";
        let message = format!("{name:?} isn't a valid name: {rule}");
        violations.add(path.field("name").to_string(), message);
    }
}

fn triggers(
    violations: &mut Violations,
    class: &str,
    spec: &UnitSpec,
    more: Vec<EventTrigger>,
    functions: &[ValidFunction],
    collections: &[CollectionPlan],
) -> Vec<EventTrigger> {
    let mut filters: Vec<String> = collections.iter().map(|it| it.name.clone()).collect();
    if filters.is_empty() {
        filters.push(format!("{class}_*"));
    }
    let single = spec.function.iter().map(|body| (None, body));
    let keyed = spec.functions.iter().map(|it| (Some(&it.key), &it.body));
    let mut all = Vec::new();
    for (key, body) in single.chain(keyed) {
        // The single function has the name of the class as its key.
        let runs = functions.iter().find(|it| key.is_none_or(|key| it.key == *key));
        let Some(function) = runs else { continue };
        for binding in body.bindings.iter().filter(|binding| binding.trigger_on_state_change) {
            all.push(EventTrigger {
                function_key: function.key.clone(),
                collection_filters: filters.clone(),
                async_execution: binding.async_execution,
            });
        }
    }
    for (at, trigger) in more.iter().enumerate() {
        if functions.iter().all(|function| function.key != trigger.function_key) {
            violations.add(
                format!("odgm_config.event_processing.event_triggers[{at}].function_key"),
                format!("{:?} isn't a function that runs in this unit", trigger.function_key),
            );
        }
    }
    all.extend(more);
    all
}
