//! Members of a deployment: which data grid has which objects.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{member::Member, partition::partition};

/// The members that divide the partitions of the class among them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Membership {
    /// Id of the member that this grid belongs to.
    pub member: i32,
    /// All members.
    pub members: Vec<Member>,
    /// By collection: the member of each partition.
    pub partitions: BTreeMap<String, Vec<i32>>,
}

impl Membership {
    /// What is wrong with it.
    pub(super) fn problem(&self) -> Option<String> {
        let is_member = |id: &i32| self.members.iter().any(|it| it.id == *id);
        if !is_member(&self.member) {
            return Some(format!("member {} is not in members", self.member));
        }
        self.partitions.iter().find_map(|(name, owners)| {
            let unknown = owners.iter().find(|it| !is_member(it));
            match unknown {
                Some(id) => Some(format!("partitions of {name:?} have the unknown member {id}")),
                None if owners.is_empty() => Some(format!("{name:?} has no partitions")),
                None => None,
            }
        })
    }

    /// The member that has an object; none if the members of the collection aren't known.
    pub fn owner(&self, collection: &str, id: &str) -> Option<&Member> {
        let owners = self.partitions.get(collection)?;
        let at = partition(id, u32::try_from(owners.len()).ok()?);
        let owner = owners.get(usize::try_from(at).ok()?)?;
        self.members.iter().find(|it| it.id == *owner)
    }

    /// Whether this member has any partition of a collection.
    pub fn has_partitions(&self, collection: &str) -> bool {
        self.partitions.get(collection).is_some_and(|it| it.contains(&self.member))
    }
}
