//! Partitions, copies and consistency of the state of a class.

use crate::{
    availability::{Needs, floor},
    spec::{
        Collection, CollectionSpec, Consistency, OdgmConfig, Requirements, ShardType, StateType,
        UnitSpec,
    },
};

/// The addon that gives a class a data grid.
pub const ODGM: &str = "odgm";

/// Whether the unit has a data grid.
pub fn has_grid(spec: &UnitSpec) -> bool {
    spec.addons.iter().any(|addon| addon == ODGM)
}

/// Requirements of the class and of each function, including functions that don't run here: the
/// layout of the state must not depend on which functions are enabled.
pub(crate) fn requirements(spec: &UnitSpec) -> impl Iterator<Item = (&str, &Requirements)> {
    let class = spec.nfr_requirements.iter().map(|it| ("the class", it));
    let single =
        spec.function.iter().filter_map(|it| Some(("the function", it.requirements.as_ref()?)));
    let functions = spec
        .functions
        .iter()
        .filter_map(|it| Some((it.key.as_str(), it.body.requirements.as_ref()?)));
    class.chain(single).chain(functions)
}

/// The highest required availability, and who requires it.
pub fn required_availability(spec: &UnitSpec) -> Option<(f64, &str)> {
    first_max(requirements(spec).filter_map(|(who, it)| Some((it.availability()?, who))))
}

/// The highest required throughput, and who requires it.
pub fn required_throughput(spec: &UnitSpec) -> Option<(i32, &str)> {
    first_max(requirements(spec).filter_map(|(who, it)| Some((it.min_throughput_rps?, who))))
}

pub(crate) fn required_latency(spec: &UnitSpec) -> Option<i32> {
    requirements(spec).filter_map(|(_, it)| it.max_latency_ms).min()
}

/// The first of the largest.
fn first_max<'a, T: PartialOrd>(all: impl Iterator<Item = (T, &'a str)>) -> Option<(T, &'a str)> {
    all.fold(None, |most, it| match most {
        Some(most) if most.0 >= it.0 => Some(most),
        _ => Some(it),
    })
}

/// Number of copies for the required availability, if no plan sets it.
pub(crate) fn default_copies(spec: &UnitSpec) -> i32 {
    required_availability(spec).map_or(1, |(target, _)| floor(target))
}

/// Raises two copies under consensus to three: two are less available than one, because a majority
/// needs both.
pub fn raft_copies(copies: i32) -> i32 {
    if copies == 2 { 3 } else { copies }
}

/// Whether collections without a shard type use consensus, and why.
pub fn consensus(spec: &UnitSpec) -> (bool, &'static str) {
    let state = spec.state.as_ref().and_then(|state| state.consistency);
    let required = |consistency: Consistency| {
        requirements(spec).any(|(_, it)| it.consistency == Some(consistency)).then_some(consistency)
    };
    let consistency =
        state.or_else(|| required(Consistency::Strong)).or_else(|| required(Consistency::Eventual));
    match consistency {
        Some(Consistency::Strong) => (true, "strong consistency needs a majority of the copies"),
        Some(Consistency::Eventual) => (false, "eventual consistency needs any one of the copies"),
        None if required_latency(spec).is_some_and(|latency| latency < 50) => (
            false,
            "a latency below 50 ms rules out consensus, so any one of the copies is sufficient",
        ),
        None => (true, "copies agree by consensus, which needs a majority"),
    }
}

/// Which copies must be up for the state to be usable, and why. The most demanding collection
/// decides.
pub fn copies_needed(spec: &UnitSpec) -> (Needs, &'static str) {
    if !has_grid(spec) {
        return (Needs::Any, "the class has no state, so any one instance is sufficient");
    }
    let config = spec.odgm_config.clone().unwrap_or_default();
    let types = shard_types(&config);
    if types.contains(&Some(ShardType::Raft)) {
        (Needs::Quorum, "shard type raft needs a majority of the copies")
    } else if types.contains(&None) {
        let (consensus, why) = consensus(spec);
        (if consensus { Needs::Quorum } else { Needs::Any }, why)
    } else {
        (Needs::Any, "without consensus any one of the copies is sufficient")
    }
}

/// Whether a collection with several copies uses consensus.
pub fn is_raft(spec: &UnitSpec, collection: &Collection) -> bool {
    let default = spec.odgm_config.as_ref().and_then(|config| config.shard_type);
    match collection.shard_type().or(default) {
        Some(shard_type) => shard_type == ShardType::Raft,
        None => consensus(spec).0,
    }
}

/// The shard type of each collection, where one is set.
fn shard_types(config: &OdgmConfig) -> Vec<Option<ShardType>> {
    if config.collections.is_empty() {
        vec![config.shard_type]
    } else {
        config.collections.iter().map(|it| it.shard_type().or(config.shard_type)).collect()
    }
}

/// The default number of partitions of collections, and why.
pub fn partitions(spec: &UnitSpec) -> (i32, String) {
    let config = spec.odgm_config.as_ref();
    let (count, why) = match (config.and_then(|it| it.partition_count), required_throughput(spec)) {
        (Some(count), _) => (count, "partition_count is set".to_owned()),
        (None, None) => (4, "no throughput is required".to_owned()),
        (None, Some((throughput, who))) => {
            let (count, band) = match throughput {
                ..=1000 => (1, "up to 1000"),
                1001..=5000 => (4, "above 1000"),
                5001..=20_000 => (8, "above 5000"),
                _ => (16, "above 20000"),
            };
            (count, format!("{who} requires {throughput} requests/s: {count} for {band}"))
        }
    };
    let named = config.is_some_and(|it| !it.collections.is_empty());
    match spec.state.as_ref().map(|state| state.state_type).unwrap_or_default() {
        StateType::Singleton => (1, "a SINGLETON class has one object".to_owned()),
        StateType::Collection if count < 4 && !named => {
            (4, format!("{why}, and a COLLECTION class has at least 4"))
        }
        StateType::Normal | StateType::Collection => (count, why),
    }
}

/// The collection of a class that defines none.
pub(crate) fn default_collection(class: &str, state: StateType) -> CollectionSpec {
    let suffix = match state {
        StateType::Singleton => "singleton",
        StateType::Collection => "collection",
        StateType::Normal => "data",
    };
    CollectionSpec { name: format!("{class}_{suffix}"), ..CollectionSpec::default() }
}

pub fn collection_names(spec: &UnitSpec, class: &str) -> Vec<String> {
    let named: Vec<String> = spec
        .odgm_config
        .iter()
        .flat_map(|config| &config.collections)
        .map(|collection| collection.name().to_owned())
        .collect();
    match &spec.state {
        Some(state) if named.is_empty() => vec![default_collection(class, state.state_type).name],
        _ => named,
    }
}
