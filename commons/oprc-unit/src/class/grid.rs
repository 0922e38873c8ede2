//! Resolves the data grid of a class: its nodes, collections, partitions, copies and triggers.

use oprc_models::{
    FieldPath, limits, parse_volume_size,
    rules::{is_collection_name, is_reserved_grid_env},
};

use super::{
    Identity, ValidFunction,
    membership::{self, DividedCollection, MembershipPlan},
    methods::{self, MacroPlan, MethodPlan, Resolved, TriggerPlan},
    schema_limits,
    violations::Violations,
};
use crate::{
    platform::Profile,
    replication::{self, MIN_RAFT_VOLUME},
    spec::{
        Access, AccessPattern, ClassReference, CollectionSpec, EnvVar, KeySpec, OdgmConfig,
        PersistenceMode, Resources, Route, ShardType, StateSpec, StateType, Storage, UnitSpec,
    },
};

/// The resolved data grid of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct OdgmPlan {
    /// The class: `package.class`, or its key if it is of no package.
    pub class: String,
    pub state_type: StateType,
    pub key_specs: Vec<KeySpec>,
    /// Who may read and write objects without calling a method.
    pub data_access: Access,
    pub references: Vec<ClassReference>,
    pub methods: Vec<MethodPlan>,
    pub macros: Vec<MacroPlan>,
    /// The engine that stores all collections.
    pub engine: ShardType,
    /// The image, if the class sets one.
    pub image: Option<String>,
    /// Number of nodes.
    pub replicas: i32,
    pub cluster_id: String,
    pub node_id_prefix: String,
    pub collections: Vec<CollectionPlan>,
    /// None if the grid serves all objects of the class.
    pub membership: Option<MembershipPlan>,
    pub triggers: Vec<TriggerPlan>,
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
        self.persistent() || self.is_replicated()
    }

    /// Whether its nodes hold copies of each other's objects.
    pub fn is_replicated(&self) -> bool {
        self.engine == ShardType::Raft
    }

    /// Nodes that must be ready before functions start: a majority.
    pub fn needed(&self) -> i32 {
        self.replicas / 2 + 1
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
    /// The member of each partition. Empty if the grid serves all objects.
    pub owners: Vec<i32>,
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
    let package = spec.deployment_unit.as_ref().and_then(|unit| unit.package.as_deref());
    let copies = replication::requested_copies(spec);
    let (engine, replicas) = replication::engine(copies, replication::requested_shard_type(spec));
    let latency = replication::required_latency(spec);
    let defaults = Defaults {
        partitions: replication::partitions(spec).0,
        replicas,
        engine,
        profile,
        state: spec.state.clone(),
        config: config.clone(),
    };
    check(violations, &config, engine);
    check_engine(violations, &config, spec.state.as_ref(), copies);
    let mut collections = collections(violations, &class, &defaults);
    let divided = collections.iter_mut().map(|it| DividedCollection {
        name: &it.name,
        partitions: it.partitions,
        owners: &mut it.owners,
    });
    let membership = membership::resolve(violations, &config, divided.collect());
    check_uses(violations, spec, &collections);
    let events = config.event_processing.clone().unwrap_or_default();
    let filters: Vec<String> = collections.iter().map(|it| it.name.clone()).collect();
    let Resolved { methods, macros, triggers } =
        methods::resolve(violations, identity, spec, functions, &filters);
    let batch = events.batch_processing.unwrap_or_default();
    let named = identity.environment.as_deref().unwrap_or("default");
    let state = spec.state.clone().unwrap_or_default();
    OdgmPlan {
        class: package.map_or_else(|| class.clone(), |package| format!("{package}.{class}")),
        state_type: state.state_type,
        key_specs: state.key_specs,
        data_access: state.access.unwrap_or_default(),
        references: spec.references.clone(),
        methods,
        macros,
        engine,
        image: config.image,
        replicas,
        cluster_id: config
            .cluster_id
            .unwrap_or_else(|| format!("{}-{named}-{}", identity.deployment_id, identity.name)),
        node_id_prefix: config
            .node_id_prefix
            .unwrap_or_else(|| format!("crm-{named}-{}", package.unwrap_or(&identity.name))),
        collections,
        membership,
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

fn check(violations: &mut Violations, config: &OdgmConfig, engine: ShardType) {
    violations.check_resources("odgm_config", config.requests.as_ref(), config.limits.as_ref());
    if let Some(size) = config.storage.as_ref().and_then(|storage| storage.size.as_ref()) {
        let (field, bytes) = ("odgm_config.storage.size", parse_volume_size(size));
        if engine == ShardType::Raft && bytes.as_ref().is_ok_and(|it| *it < MIN_RAFT_VOLUME) {
            violations.add(field, "nodes of a replicated grid need at least 512Mi");
        }
        violations.add_error(field, bytes);
    }
    violations.check_env("odgm_config.env", &config.env, is_reserved_grid_env);
}

/// All collections of a class are stored by one engine. Rejects what it can't do.
fn check_engine(
    violations: &mut Violations,
    config: &OdgmConfig,
    state: Option<&StateSpec>,
    copies: i32,
) {
    const ONE_ENGINE: &str = "one engine stores all collections of a class";
    let path = |at: usize, field: &str| format!("odgm_config.collections[{at}].{field}");
    let of_grid = config.shard_type.map(|it| ("odgm_config.shard_type".to_owned(), it));
    let collections = || config.collections.iter().enumerate();
    let own = collections().filter_map(|(at, it)| Some((path(at, "shard_type"), it.shard_type()?)));
    let types: Vec<_> = of_grid.into_iter().chain(own).collect();
    let raft = types.iter().any(|(_, it)| *it == ShardType::Raft) || copies > 1;
    for (field, shard_type) in &types {
        let first = types.first().map(|(_, it)| *it);
        match shard_type {
            ShardType::Mst => violations.add(
                field,
                "mst isn't supported: concurrent changes of its copies would lose updates; use raft",
            ),
            ShardType::Basic if copies > 1 => violations.add(
                field,
                format!("basic keeps one copy, but {copies} are required; use raft, or omit it"),
            ),
            _ if first != Some(*shard_type) => {
                violations.add(field, format!("{ONE_ENGINE}: set the same shard_type for all"));
            }
            ShardType::Basic | ShardType::Raft => {}
        }
    }
    let of_state = state.and_then(|it| it.persistence);
    let of_state = of_state.map(|it| ("state.persistence".to_owned(), it));
    let own = collections().filter_map(|(at, it)| {
        let mode = CollectionSpec::from(it.clone()).persistence_mode?;
        Some((path(at, "persistence_mode"), mode))
    });
    let own: Vec<_> = own.collect();
    let all_set = own.len() == config.collections.len() && !own.is_empty();
    let modes = of_state.into_iter().filter(|_| !all_set).chain(own);
    let modes: Vec<_> = modes.collect();
    for (field, mode) in &modes {
        let first = modes.first().map(|(_, it)| *it);
        if raft && *mode == PersistenceMode::Ephemeral {
            violations.add(
                field,
                "raft stores its log on volumes, so its collections are persistent; use one copy, or omit it",
            );
        } else if first != Some(*mode) {
            violations.add(field, format!("{ONE_ENGINE}: set the same persistence for all"));
        }
    }
}

/// Defaults of collections.
struct Defaults {
    partitions: i32,
    replicas: i32,
    engine: ShardType,
    profile: Profile,
    state: Option<StateSpec>,
    config: OdgmConfig,
}

impl Defaults {
    /// Outside production, one copy is persistent only if the class requests it.
    fn persistence(&self) -> PersistenceMode {
        if self.engine == ShardType::Raft {
            return PersistenceMode::Persistent;
        }
        let requested = self.state.as_ref().and_then(|state| state.persistence);
        requested.unwrap_or(match self.profile {
            Profile::Full => PersistenceMode::Persistent,
            Profile::Dev | Profile::Edge => PersistenceMode::Ephemeral,
        })
    }

    fn resolve(&self, spec: CollectionSpec) -> CollectionPlan {
        let patterns = if spec.access_patterns.is_empty() {
            self.state.as_ref().map(|state| state.access_patterns.clone()).unwrap_or_default()
        } else {
            spec.access_patterns
        };
        CollectionPlan {
            name: spec.name,
            partitions: spec.partition_count.unwrap_or(self.partitions),
            // Each node holds a copy of every partition.
            replicas: self.replicas,
            shard_type: self.engine,
            persistence: spec.persistence_mode.unwrap_or_else(|| self.persistence()),
            access_patterns: if patterns.is_empty() {
                vec![AccessPattern::ReadWrite]
            } else {
                patterns
            },
            owners: Vec::new(),
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
        all.push(defaults.resolve(spec));
    }
    if all.is_empty() {
        let state = defaults.state.clone().unwrap_or_default();
        let mut spec = replication::default_collection(class, state.state_type);
        if state.state_type == StateType::Collection && state.access_patterns.is_empty() {
            spec.access_patterns = vec![AccessPattern::ReadWrite, AccessPattern::BatchRead];
        }
        let path = FieldPath::default().field("deployment_unit").field("class");
        check_name(violations, &path, &spec.name);
        all.push(defaults.resolve(spec));
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
