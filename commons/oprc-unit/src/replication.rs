//! Partitions, copies and consistency of the state of a class.

use crate::{
    availability::{MAX_COPIES, Needs, floor},
    spec::{Collection, CollectionSpec, Requirements, ShardType, StateType, UnitSpec},
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
fn default_copies(spec: &UnitSpec) -> i32 {
    required_availability(spec).map_or(1, |(target, _)| floor(target))
}

/// The number of copies that a unit asks for: of its nodes, of its plan, or of a collection.
pub(crate) fn requested_copies(spec: &UnitSpec) -> i32 {
    let config = spec.odgm_config.as_ref();
    let planned = spec.resource_allocation.as_ref().and_then(|it| it.replication_factor);
    let collections = config.into_iter().flat_map(|it| &it.collections);
    collections
        .filter_map(Collection::replica_count)
        .chain(config.and_then(|it| it.replicas))
        .chain(config.and_then(|it| it.replica_count))
        .chain([planned.unwrap_or_else(|| default_copies(spec))])
        .max()
        .unwrap_or(1)
        .clamp(1, MAX_COPIES)
}

/// The number of nodes that hold some copies under consensus: odd, because an even number tolerates
/// no more failures than one less, and at least three, because two are less available than one.
pub fn raft_nodes(copies: i32) -> i32 {
    (copies | 1).max(3)
}

/// What the write-ahead log of a node needs at most.
const LOG_BYTES: f64 = 400.0 * 1024.0 * 1024.0;
/// Larger stores take too long to be copied to a new member.
const MAX_QUOTA_BYTES: f64 = 8.0 * 1024.0 * 1024.0 * 1024.0;
/// The smallest volume of a node of a replicated grid, in bytes.
pub const MIN_RAFT_VOLUME: f64 = 512.0 * 1024.0 * 1024.0;

/// How many bytes the objects of a replicated grid may take on volumes of a size. A node needs the space
/// twice while it writes its file again, or receives a copy.
pub fn store_quota(volume_bytes: f64) -> u64 {
    let quota = (volume_bytes.max(MIN_RAFT_VOLUME) - LOG_BYTES) / 2.0;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let quota = quota.min(MAX_QUOTA_BYTES) as u64;
    quota
}

/// The engine that stores all collections of a class: several copies need consensus, which `raft`
/// also asks for with one. `basic` keeps one copy.
pub fn engine(copies: i32, shard_type: Option<ShardType>) -> (ShardType, i32) {
    match shard_type {
        Some(ShardType::Basic | ShardType::Mst) => (ShardType::Basic, 1),
        None if copies <= 1 => (ShardType::Basic, 1),
        None | Some(ShardType::Raft) => (ShardType::Raft, raft_nodes(copies)),
    }
}

/// The shard type that a unit sets, for the grid or for any of its collections.
pub fn requested_shard_type(spec: &UnitSpec) -> Option<ShardType> {
    let config = spec.odgm_config.as_ref()?;
    config.collections.iter().find_map(Collection::shard_type).or(config.shard_type)
}

/// Which copies must be up for the state to be usable, and why.
pub fn copies_needed(spec: &UnitSpec) -> (Needs, &'static str) {
    if has_grid(spec) {
        (Needs::Quorum, "copies agree by consensus, which needs a majority")
    } else {
        (Needs::Any, "the class has no state, so any one instance is sufficient")
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
    if named.is_empty() {
        let state = spec.state.as_ref().map(|it| it.state_type).unwrap_or_default();
        return vec![default_collection(class, state).name];
    }
    named
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_quota_leaves_space_for_the_log_and_a_second_copy() {
        let mib = |size: f64| size * 1024.0 * 1024.0;
        for (volume, quota) in [(100.0, 56), (512.0, 56), (1024.0, 312), (1e6, 8192)] {
            assert_eq!(store_quota(mib(volume)), quota << 20, "{volume} MiB");
        }
    }

    proptest! {
        #[test]
        fn several_copies_get_an_odd_number_of_nodes(copies in 1..=MAX_COPIES) {
            let (engine_type, nodes) = engine(copies, None);
            prop_assert!(nodes >= copies && nodes <= MAX_COPIES);
            prop_assert_eq!(engine_type == ShardType::Raft, copies > 1);
            prop_assert!(nodes % 2 == 1 && nodes <= copies.max(2) + 1);
            prop_assert_eq!(engine(copies, Some(ShardType::Raft)).1, nodes.max(3));
            prop_assert_eq!(engine(copies, Some(ShardType::Basic)), (ShardType::Basic, 1));
        }
    }
}
