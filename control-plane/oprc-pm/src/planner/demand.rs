//! What a class and its functions demand together.

use oprc_models::{
    Collection, CollectionSpec, Consistency, OClassDeployment, Requirements, ResolvedClass,
    ShardType, StateType,
};

use super::availability::Needs;

/// What a class demands, taking the most demanding of it and its functions: what its data is made
/// of mustn't depend on which of them happen to run in a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'a> {
    class: &'a ResolvedClass,
    deployment: &'a OClassDeployment,
}

impl<'a> Demand<'a> {
    pub(super) fn new(class: &'a ResolvedClass, deployment: &'a OClassDeployment) -> Self {
        Self { class, deployment }
    }

    fn all(&self) -> impl Iterator<Item = (&'a str, &'a Requirements)> {
        let own = self.class.requirements.iter().map(|it| ("the class", it));
        let functions = self.class.functions.iter();
        own.chain(
            functions.filter_map(|it| Some((it.key.as_str(), it.function.requirements.as_ref()?))),
        )
    }

    /// The availability, and who demands it.
    pub(super) fn availability(&self) -> Option<(f64, &'a str)> {
        let all = self.all().filter_map(|(who, it)| Some((it.availability()?, who)));
        // Among equals the first is told.
        all.fold(None, |most: Option<(f64, &'a str)>, it| match most {
            Some(most) if most.0 >= it.0 => Some(most),
            _ => Some(it),
        })
    }

    /// Requests for each second, and who demands them.
    pub(super) fn throughput(&self) -> Option<(i32, &'a str)> {
        let all = self.all().filter_map(|(who, it)| Some((it.throughput?, who)));
        all.fold(None, |most: Option<(i32, &'a str)>, it| match most {
            Some(most) if most.0 >= it.0 => Some(most),
            _ => Some(it),
        })
    }

    /// Which copies of the data must be there: as CRM keeps them the same.
    pub(super) fn needs(&self) -> (Needs, &'static str) {
        if !self.class.has_grid() {
            return (Needs::Any, "it keeps nothing, so any one of them will do");
        }
        let latency = self.all().filter_map(|(_, it)| it.latency).min();
        let state = self.class.state_spec.as_ref().and_then(|it| it.consistency);
        let said = |wanted: Consistency| {
            self.all().any(|(_, it)| it.consistency == Some(wanted)).then_some(wanted)
        };
        let consistency =
            state.or_else(|| said(Consistency::Strong)).or_else(|| said(Consistency::Eventual));
        match (self.shard_type(), consistency) {
            (Some(ShardType::Raft), _) => (Needs::Quorum, "shardType RAFT takes more than half"),
            (Some(ShardType::Basic | ShardType::Mst), _) => {
                (Needs::Any, "without consensus any one of them will do")
            }
            (None, Some(Consistency::Strong)) => {
                (Needs::Quorum, "strong consistency takes more than half")
            }
            (None, Some(Consistency::Eventual)) => {
                (Needs::Any, "for eventual consistency any one of them will do")
            }
            (None, None) if latency.is_some_and(|latency| latency < 50) => {
                (Needs::Any, "answers within 50 ms rule out consensus")
            }
            (None, None) => {
                (Needs::Quorum, "copies agree by consensus, which takes more than half")
            }
        }
    }

    fn named(&self) -> impl Iterator<Item = &'a CollectionSpec> {
        let grid = self.deployment.odgm.as_ref().filter(|_| self.class.has_grid());
        grid.into_iter().flat_map(|it| &it.collections).map(|Collection(it)| it)
    }

    /// How copies are kept the same, where that is said of all: the most demanding collection
    /// decides.
    fn shard_type(&self) -> Option<ShardType> {
        let otherwise = self.deployment.shard_type;
        let all: Vec<_> = self.named().map(|it| it.shard_type.or(otherwise)).collect();
        if all.contains(&Some(ShardType::Raft)) {
            return Some(ShardType::Raft);
        }
        // What one doesn't say follows from the class.
        if all.contains(&None) { None } else { all.first().copied().unwrap_or(otherwise) }
    }

    /// How many copies there are to be, where the deployment says so.
    pub(super) fn copies(&self) -> Option<i32> {
        self.deployment.replica_count
    }

    /// In how many parts data is split, and why.
    pub(super) fn partitions(&self) -> (i32, String) {
        let (count, because) = match (self.deployment.partition_count, self.throughput()) {
            (Some(count), _) => (count, "partitionCount of the deployment".to_owned()),
            (None, None) => (4, "nothing is said of throughput".to_owned()),
            (None, Some((throughput, who))) => {
                let (count, band) = match throughput {
                    ..=1000 => (1, "up to 1000"),
                    1001..=5000 => (4, "above 1000"),
                    5001..=20_000 => (8, "above 5000"),
                    _ => (16, "above 20000"),
                };
                (count, format!("{who} demands {throughput} requests/s: {band} takes {count}"))
            }
        };
        let named = self.named().next().is_some();
        match self.class.state_type {
            StateType::Singleton => (1, "the class has one object".to_owned()),
            // What CRM makes of it where collections aren't named.
            StateType::Collection if count < 4 && !named => {
                (4, format!("{because}, and objects that are used many at a time take 4 at least"))
            }
            StateType::Normal | StateType::Collection => (count, because),
        }
    }

    /// The collections that its data grid has.
    pub(super) fn collections(&self) -> Vec<String> {
        let named: Vec<String> = self.named().map(|it| it.name.clone()).collect();
        if !named.is_empty() {
            return named;
        }
        let suffix = match self.class.state_type {
            StateType::Singleton => "singleton",
            StateType::Collection => "collection",
            StateType::Normal => "data",
        };
        vec![format!("{}_{suffix}", self.class.key)]
    }
}
