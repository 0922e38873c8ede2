//! The data grid of a class: what it keeps, in how many parts and copies, and how.

use super::{
    Identity, ValidFunction,
    faults::{Faults, check_resources, check_variable},
};
use crate::{
    platform::Profile,
    quantity, replication,
    spec::{
        AccessPattern, Collection, CollectionSpec, EnvVar, EventTrigger, OdgmConfig,
        PersistenceMode, Resources, Route, ShardAssignment, ShardType, StateSpec, StateType,
        Storage, UnitSpec,
    },
};

/// A class's data grid, settled.
#[derive(Clone, Debug, PartialEq)]
pub struct OdgmPlan {
    /// The image, where the class names one.
    pub image: Option<String>,
    /// How many nodes.
    pub replicas: i32,
    /// What the nodes know each other by.
    pub cluster_id: String,
    /// What stands before a node's number.
    pub node_id_prefix: String,
    /// What it keeps.
    pub collections: Vec<CollectionPlan>,
    /// Functions that are called when objects change.
    pub triggers: Vec<Trigger>,
    /// Whether there are such.
    pub events: bool,
    /// How many calls may follow from one another.
    pub trigger_depth: i32,
    /// How long such a call may take.
    pub trigger_timeout_ms: i32,
    /// How many changes are handled at once, and for how many milliseconds more are waited for.
    pub batch: Option<(i32, i32)>,
    /// Where functions are called besides the class's own.
    pub routes: std::collections::BTreeMap<String, Route>,
    /// The disk.
    pub storage: Storage,
    /// What each node asks for, as far as it is said.
    pub requests: Resources,
    /// What each node may not exceed, as far as it is said.
    pub limits: Resources,
    /// More variables.
    pub env: Vec<EnvVar>,
}

impl OdgmPlan {
    /// Whether its data outlives its pods.
    pub fn persistent(&self) -> bool {
        self.collections.iter().any(|it| it.persistence == PersistenceMode::Persistent)
    }

    /// Whether its nodes need names of their own: for their disks, or to know each other.
    pub fn stateful(&self) -> bool {
        self.persistent() || self.replicas > 1
    }

    /// How many nodes must answer before anybody relies on it: where all copies agree by consensus
    /// more than half of them, and otherwise all, as each has parts of its own.
    pub fn needed(&self) -> i32 {
        let consensus = |it: &CollectionPlan| it.shard_type == ShardType::Raft;
        let agreed = !self.collections.is_empty() && self.collections.iter().all(consensus);
        if agreed { self.replicas / 2 + 1 } else { self.replicas }
    }
}

/// A collection, settled.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectionPlan {
    /// Its name.
    pub name: String,
    /// How many parts.
    pub partitions: i32,
    /// How many copies of each.
    pub replicas: i32,
    /// How copies are kept the same.
    pub shard_type: ShardType,
    /// Whether it outlives its pods.
    pub persistence: PersistenceMode,
    /// How it is used.
    pub access_patterns: Vec<AccessPattern>,
    /// Which node has which shards.
    pub assignments: Vec<ShardAssignment>,
}

/// A function that is called when objects change.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// The function.
    pub function_key: String,
    /// The collections.
    pub collection_filters: Vec<String>,
    /// Whether the call isn't waited for.
    pub async_execution: bool,
}

/// The data grid's word for a shard type.
pub fn shard_type(shard_type: ShardType) -> &'static str {
    match shard_type {
        ShardType::Raft => "raft",
        ShardType::Basic => "basic",
        ShardType::Mst => "mst",
    }
}

/// The data grid's word for persistence.
pub fn persistence(mode: PersistenceMode) -> &'static str {
    match mode {
        PersistenceMode::Persistent => "persistent",
        PersistenceMode::Ephemeral => "ephemeral",
    }
}

/// Settles the data grid of a class.
pub(super) fn plan(
    faults: &mut Faults,
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
    let nodes = config.replicas.unwrap_or(1).max(planned).clamp(1, 99);
    let (consensus, _) = replication::consensus(spec);
    let default_type = config.shard_type.unwrap_or(if nodes > 1 && consensus {
        ShardType::Raft
    } else {
        ShardType::Basic
    });
    let raft = |collection: &Collection| match collection {
        Collection::Name(_) => default_type == ShardType::Raft,
        Collection::Spec(spec) => spec.shard_type.unwrap_or(default_type) == ShardType::Raft,
    };
    let any_raft = if config.collections.is_empty() {
        spec.state.is_some() && default_type == ShardType::Raft
    } else {
        config.collections.iter().any(raft)
    };
    let replicas = if any_raft { replication::raft_copies(nodes) } else { nodes };
    let latency = replication::required_latency(spec);
    let rules = Rules {
        partitions: replication::partitions(spec).0,
        replicas,
        shard_type: default_type,
        profile,
        state: spec.state.clone(),
        config: config.clone(),
    };
    check(faults, &config);
    let collections = collections(faults, &class, &rules);
    check_uses(faults, spec, &collections);
    let events = config.event_processing.clone().unwrap_or_default();
    let triggers = triggers(faults, &class, spec, &events.event_triggers, functions, &collections);
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

/// A function can use what there is.
fn check_uses(faults: &mut Faults, spec: &UnitSpec, all: &[CollectionPlan]) {
    for (field, body) in spec.bodies() {
        let used = body.odgm.iter().flat_map(|odgm| &odgm.collections);
        for name in used.filter(|name| all.iter().all(|it| it.name != **name)) {
            let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            let message = format!(
                "{name:?} is no collection of the class; there is: {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            );
            faults.add(format!("{field}.odgm.collections"), message);
        }
    }
}

fn check(faults: &mut Faults, config: &OdgmConfig) {
    check_resources(faults, "odgm_config", config.requests.as_ref(), config.limits.as_ref());
    if let Some(size) = config.storage.as_ref().and_then(|storage| storage.size.as_ref())
        && let Some(reason) = quantity::disk_fault(size)
    {
        faults.add("odgm_config.storage.size", reason);
    }
    for (at, variable) in config.env.iter().enumerate() {
        let field = format!("odgm_config.env[{at}].name");
        if config.env.iter().take(at).any(|other| other.name == variable.name) {
            faults.add(field, format!("{:?} is given twice", variable.name));
        } else if variable.name.starts_with("ODGM_") || variable.name == "OPRC_ZENOH_PORT" {
            faults.add(field, format!("{} is set by the platform", variable.name));
        } else {
            check_variable(faults, &field, &variable.name);
        }
    }
}

/// What holds for collections that don't say.
struct Rules {
    partitions: i32,
    replicas: i32,
    shard_type: ShardType,
    profile: Profile,
    state: Option<StateSpec>,
    config: OdgmConfig,
}

impl Rules {
    /// Claims are for production: elsewhere data is kept only where somebody says so.
    fn persistence(&self) -> PersistenceMode {
        let said = self.state.as_ref().and_then(|state| state.persistence);
        said.unwrap_or(match self.profile {
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
        // A copy needs a node.
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

fn collections(faults: &mut Faults, class: &str, rules: &Rules) -> Vec<CollectionPlan> {
    let mut all = Vec::new();
    for (at, collection) in rules.config.collections.iter().enumerate() {
        let field = format!("odgm_config.collections[{at}]");
        let spec = match collection {
            Collection::Name(name) => CollectionSpec { name: name.clone(), ..Default::default() },
            Collection::Spec(spec) => spec.clone(),
        };
        check_collection(faults, &field, &spec);
        if all.iter().any(|other: &CollectionPlan| other.name == spec.name) {
            faults.add(field, format!("{:?} is given twice", spec.name));
        }
        all.push(rules.resolve(spec, rules.partitions, 2));
    }
    if let (true, Some(state)) = (all.is_empty(), &rules.state) {
        let copies = match state.state_type {
            StateType::Singleton | StateType::Collection => 3,
            StateType::Normal => 2,
        };
        let mut spec = replication::default_collection(class, state.state_type);
        if state.state_type == StateType::Collection && state.access_patterns.is_empty() {
            spec.access_patterns = vec![AccessPattern::ReadWrite, AccessPattern::BatchRead];
        }
        check_collection(faults, "deployment_unit.class", &spec);
        all.push(rules.resolve(spec, rules.partitions, copies));
    }
    all
}

fn check_collection(faults: &mut Faults, field: &str, spec: &CollectionSpec) {
    let name = &spec.name;
    // Names travel in a list with commas between.
    if name.is_empty()
        || name.len() > 253
        || name.contains([',', '"', '\\'])
        || name.contains(char::is_whitespace)
    {
        faults.add(
            format!("{field}.name"),
            format!(
                "{name:?} is no name: 1 to 253 characters without commas, quotes and white space"
            ),
        );
    }
    for (word, value, most) in
        [("partition_count", spec.partition_count, 4096), ("replica_count", spec.replica_count, 99)]
    {
        if let Some(value) = value
            && !(1..=most).contains(&value)
        {
            faults.add(format!("{field}.{word}"), format!("{value} isn't between 1 and {most}"));
        }
    }
}

fn triggers(
    faults: &mut Faults,
    class: &str,
    spec: &UnitSpec,
    more: &[EventTrigger],
    functions: &[ValidFunction],
    collections: &[CollectionPlan],
) -> Vec<Trigger> {
    let mut all = Vec::new();
    // Those that there are, whatever they are called.
    let mut filters: Vec<String> = collections.iter().map(|it| it.name.clone()).collect();
    if filters.is_empty() {
        filters.push(format!("{class}_*"));
    }
    let only = spec.function.iter().map(|body| (None, body));
    let many = spec.functions.iter().map(|it| (Some(it.key.as_str()), &it.body));
    let runs = |key: &str| functions.iter().any(|function| function.key == key);
    for (key, body) in only.chain(many) {
        if key.is_some_and(|key| !runs(key)) {
            continue;
        }
        for binding in body.bindings.iter().filter(|binding| binding.trigger_on_state_change) {
            let key = key.map_or_else(
                || functions.first().map(|it| it.key.clone()),
                |key| Some(key.to_owned()),
            );
            let Some(function_key) = key else { continue };
            all.push(Trigger {
                function_key,
                collection_filters: filters.clone(),
                async_execution: binding.async_execution,
            });
        }
    }
    for (at, trigger) in more.iter().enumerate() {
        if !runs(&trigger.function_key) {
            faults.add(
                format!("odgm_config.event_processing.event_triggers[{at}].function_key"),
                format!("{:?} is no function of the class that runs", trigger.function_key),
            );
        }
        all.push(Trigger {
            function_key: trigger.function_key.clone(),
            collection_filters: trigger.collection_filters.clone(),
            async_execution: trigger.async_execution,
        });
    }
    all
}
