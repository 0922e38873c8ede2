//! The order in which a new revision reaches the nodes of a replicated data grid, so that a majority of them
//! stays.
//!
//! A StatefulSet controller with the feature `MaxUnavailableStatefulSet` (the default since Kubernetes 1.37)
//! replaces nodes that aren't ready first, and one that is ready only while all others are. Without it, the
//! controller replaces nodes from the highest ordinal down, whether or not those below are ready, and waits
//! for each one: CRM has to hold it back with a partition.

use super::observe::{GridPod, Revisions};

/// What the rollout of a replicated grid depends on.
pub(super) struct ObservedRollout<'a> {
    /// The pods of the nodes that are desired, by ordinal.
    pub(super) pods: &'a [Option<GridPod>],
    pub(super) revisions: &'a Revisions,
    /// Whether `revisions` are about the latest specification of the StatefulSet.
    pub(super) is_current: bool,
    /// Whether the pod template is about to be changed.
    pub(super) is_new: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GridRollout {
    /// Pods with a lower ordinal must not be replaced.
    pub(super) partition: i32,
    /// Ordinals of nodes that must be ready before the rollout continues.
    pub(super) waits_for: Vec<usize>,
    /// Whether all pods must be replaced at once. Nodes are ready only if a majority runs, so a controller
    /// that waits for each one never replaces a majority that can't run.
    pub(super) must_restart: bool,
}

/// Decides how far a rollout may go.
pub(super) fn plan_rollout(observed: &ObservedRollout<'_>) -> GridRollout {
    let nodes: Vec<_> = observed.pods.iter().map(|pod| observed.node(pod.as_ref())).collect();
    let partition = lowest_replaceable(&nodes);
    let below = nodes.iter().take(partition).enumerate();
    let waits_for = below.filter(|(_, node)| !node.ready).map(|(ordinal, _)| ordinal).collect();
    if observed.revisions.keeps_others {
        return GridRollout { waits_for, ..GridRollout::default() };
    }
    let planned = i32::try_from(partition).unwrap_or(i32::MAX);
    // Before the controller has seen the latest write, it isn't known which nodes are outdated.
    let is_known = observed.is_current || observed.is_new;
    let partition = if is_known { planned } else { observed.revisions.partition };
    let none_runs =
        nodes.iter().all(|node| !node.ready) && nodes.iter().any(|node| node.has_problem);
    let must_restart = observed.is_new && none_runs;
    GridRollout { partition, waits_for, must_restart }
}

/// The lowest ordinal at which a node may be replaced, if that is done from the highest down: all nodes from
/// there on are updated, or not ready anyway, or all nodes are ready and it is the next one.
fn lowest_replaceable(nodes: &[Node]) -> usize {
    if nodes.iter().all(|node| node.ready) {
        return nodes.iter().rposition(Node::is_outdated).unwrap_or(0);
    }
    let serving = nodes.iter().rposition(|node| node.ready && node.is_outdated());
    let lowest = serving.map_or(0, |ordinal| ordinal + 1);
    // A failed rollout can be replaced, although the nodes above, which it reached before, come first.
    let failed = |it: &Node| !it.ready && it.has_problem && it.template == Template::Abandoned;
    nodes.iter().position(failed).map_or(lowest, |ordinal| ordinal.min(lowest))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Template {
    Latest,
    /// Of the last rollout that ended: all nodes have been ready with it.
    Complete,
    /// Of a rollout that another has replaced before it ended.
    Abandoned,
}

struct Node {
    ready: bool,
    has_problem: bool,
    template: Template,
}

impl Node {
    fn is_outdated(&self) -> bool {
        self.template != Template::Latest
    }
}

impl ObservedRollout<'_> {
    fn node(&self, pod: Option<&GridPod>) -> Node {
        let is_known = self.is_current && !self.is_new;
        let template = match pod.and_then(|it| it.revision.as_ref()) {
            Some(it) if is_known && *it == self.revisions.latest => Template::Latest,
            Some(it) if *it != self.revisions.complete => Template::Abandoned,
            _ => Template::Complete,
        };
        let ready = pod.is_some_and(|it| it.ready);
        Node { ready, has_problem: pod.is_some_and(|it| it.has_problem), template }
    }
}

#[cfg(test)]
mod tests;
