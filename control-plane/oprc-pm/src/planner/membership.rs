//! Which member of a deployment has which partitions of a class.

use oprc_unit::{
    from_model::shard_assignments,
    spec::{self, GridMember},
};

/// The members of a class and the partitions of each, as every unit of the class has them.
pub(super) struct Membership {
    pub(super) members: Vec<GridMember>,
    /// The member of each partition of collections without an entry below.
    pub(super) owners: Vec<i32>,
    /// By position in the deployment's collections, if they differ.
    pub(super) by_collection: Vec<Option<Vec<i32>>>,
}

impl Membership {
    /// Sets the members and assignments of a unit of one of the members.
    pub(super) fn apply(&self, config: &mut spec::OdgmConfig, own: i32) {
        config.member_id = Some(own);
        config.members.clone_from(&self.members);
        config.shard_assignments = shard_assignments(&self.owners);
        for (collection, owners) in config.collections.iter_mut().zip(&self.by_collection) {
            if let (spec::Collection::Spec(it), Some(owners)) = (collection, owners) {
                it.shard_assignments = shard_assignments(owners);
            }
        }
    }
}
