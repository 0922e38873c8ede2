//! The difference between desired and live objects. Empty in a steady state.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use oprc_unit::Identity;
use serde_json::{Value, json};

use super::{
    grid_rollout::{ObservedRollout, plan_rollout},
    observe::{Child, ClusterView, GridPod},
    render::{
        Desired, DesiredGrid, DesiredObject, FunctionPlan, ODGM_COMPONENT, ODGM_ENABLED,
        RENEW_AFTER,
    },
    revision_scale::{RevisionScale, leave_revision},
    shapes,
};
use crate::kinds::{AUTOSCALER, DEPLOYMENT, KNATIVE_SERVICE, Kind, SECRET, STATEFUL_SET};

/// An object to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    pub desired: DesiredObject,
    /// The uid of the live object; none if it doesn't exist.
    pub uid: Option<String>,
}

/// Why an object can't be applied yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The data grid isn't ready.
    DataGrid,
    /// Another object must be deleted first.
    Deletion,
    /// The data grid must remove a member before its node is deleted.
    GridMember,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// In the order in which they are applied.
    pub applies: Vec<Apply>,
    /// Objects that aren't desired.
    pub deletes: Vec<Arc<Child>>,
    /// Objects of a former shape, or of a data grid that was removed. They serve until they are
    /// drained.
    pub draining: Vec<Arc<Child>>,
    /// Desired objects whose names belong to objects of another owner.
    pub conflicts: Vec<String>,
    /// Deployments that an autoscaler of another owner scales.
    pub scaled_by_others: Vec<String>,
    pub blocked: Vec<Blocked>,
    /// Pods of the data grid that must be ready before its rollout continues.
    pub waits_for_nodes: Vec<String>,
    /// Written before the objects are applied.
    pub revision_scales: Vec<RevisionScale>,
    /// When the next certificate is to be renewed.
    pub renew_after: Option<Timestamp>,
}

/// Compares desired objects with live ones. `completed` has the names of workloads that ran to
/// completion.
pub fn diff(
    identity: &Identity,
    desired: &Desired,
    view: &dyn ClusterView,
    grid_ready: bool,
    completed: &[&str],
    now: Timestamp,
) -> Changes {
    let comparison = Comparison { identity, desired, view, grid_ready, completed, now };
    let mut changes = Changes::default();
    for object in &desired.objects {
        comparison.add(object, &mut changes);
    }
    changes.scaled_by_others.sort();
    changes.scaled_by_others.dedup();
    comparison.add_leftovers(&mut changes);
    changes
}

/// What has to happen to one object.
enum Step {
    Keep,
    Apply,
    /// Delete it now, and create it when it is deleted.
    Recreate,
    Wait(Blocked),
}

struct Comparison<'a> {
    identity: &'a Identity,
    desired: &'a Desired,
    view: &'a dyn ClusterView,
    grid_ready: bool,
    completed: &'a [&'a str],
    now: Timestamp,
}

impl Comparison<'_> {
    fn add(&self, object: &DesiredObject, changes: &mut Changes) {
        let live = self.view.named(&object.kind, &self.identity.namespace, &object.name);
        if object.kind == AUTOSCALER && self.scaled_by_others(&object.name) {
            // Two autoscalers of one Deployment would work against each other.
            changes.scaled_by_others.push(object.name.clone());
            changes.deletes.extend(live.filter(|it| self.owns(it) && !it.deleting));
            return;
        }
        if let Some(other) = live.as_ref().filter(|it| !self.owns(it)) {
            if other.owner_name.as_deref() == Some(&self.identity.name) {
                // Left over from a deleted ClassRuntime of the same name.
                changes.blocked.push(Blocked::Deletion);
            } else {
                changes.conflicts.push(format!("{} {}", object.kind, object.name));
            }
            return;
        }
        if let Some(at) = live.as_ref().and_then(|live| live.renew_after) {
            changes.renew_after = Some(at);
        }
        let mut object = object.clone();
        if object.kind == DEPLOYMENT {
            self.leave_replicas_to_autoscaler(&mut object, live.as_deref(), changes);
        }
        let mut must_restart = false;
        if object.kind == STATEFUL_SET {
            self.keep_grid_members(&mut object, live.as_deref(), changes);
            must_restart = self.keep_grid_majority(&mut object, live.as_deref(), changes);
        }
        if let Some(live) = live.as_deref().filter(|_| object.kind == KNATIVE_SERVICE) {
            let plan = self.desired.functions.iter().find(|it| it.workload == object.name);
            let is_raised = plan.is_some_and(|plan| plan.floor > plan.min);
            changes.revision_scales.extend(leave_revision(&mut object, live, is_raised));
        }
        if let Some(live) = live.as_ref().filter(|_| object.runs_once()) {
            let Some(manifest) = live.with_live_pod_template(object.object) else { return };
            object.object = manifest;
        }
        let step = match &live {
            Some(live) if must_restart && !live.deleting => Step::Recreate,
            Some(live) => self.update_step(&object, live),
            None => self.create_step(&object),
        };
        match step {
            Step::Keep => {}
            Step::Wait(blocked) => changes.blocked.push(blocked),
            Step::Recreate => {
                changes.blocked.push(Blocked::Deletion);
                changes.deletes.extend(live);
            }
            Step::Apply => {
                let uid = live.map(|live| live.uid.clone());
                changes.applies.push(Apply { desired: object, uid });
            }
        }
    }

    fn update_step(&self, object: &DesiredObject, live: &Child) -> Step {
        // The end of its deletion is an event that leads to the next reconcile.
        if live.deleting {
            Step::Keep
        } else if object.kind == SECRET {
            self.certificate_step(object, live)
        } else if live.must_be_recreated(&object.object) {
            Step::Recreate
        } else if live.is_in_sync_with(&object.object) {
            Step::Keep
        } else if !self.grid_ready && starts_using_grid(live, object) {
            Step::Wait(Blocked::DataGrid)
        } else {
            Step::Apply
        }
    }

    /// A certificate is renewed in time, and issued again if others changed the Secret.
    fn certificate_step(&self, object: &DesiredObject, live: &Child) -> Step {
        let due = live.renew_after.filter(|at| *at > self.now);
        let manifest = due.map(|at| with_renewal(&object.object, at));
        if manifest.is_some_and(|manifest| live.is_in_sync_with(&manifest)) {
            Step::Keep
        } else {
            Step::Apply
        }
    }

    fn create_step(&self, object: &DesiredObject) -> Step {
        if object.runs_once() && self.completed.contains(&object.name.as_str()) {
            Step::Keep
        } else if object.waits_for_odgm && !self.grid_ready {
            Step::Wait(Blocked::DataGrid)
        } else if self.replaces_existing_grid(object) {
            Step::Wait(Blocked::Deletion)
        } else {
            Step::Apply
        }
    }

    fn is_desired(&self, kind: &Kind, name: &str) -> bool {
        self.desired.objects.iter().any(|it| it.kind == *kind && it.name == name)
    }

    fn owns(&self, child: &Child) -> bool {
        child.is_owned_by(&self.identity.uid)
    }

    /// Whether the grid's workload of the other kind still exists. Two grids with one name and one
    /// volume would each act as the only one.
    fn replaces_existing_grid(&self, object: &DesiredObject) -> bool {
        let is_grid = |it: &&DesiredGrid| object.kind == it.kind && object.name == it.workload;
        let Some(grid) = self.desired.odgm.as_ref().filter(is_grid) else { return false };
        let namespace = &self.identity.namespace;
        let other = self.view.named(&grid.other_kind(), namespace, &grid.workload);
        other.is_some_and(|it| self.owns(&it))
    }

    fn scaled_by_others(&self, deployment: &str) -> bool {
        is_scaled_by_others(self.view, self.identity, deployment)
    }

    /// Removes `spec.replicas` from the manifest if an autoscaler sets it.
    fn leave_replicas_to_autoscaler(
        &self,
        object: &mut DesiredObject,
        live: Option<&Child>,
        changes: &mut Changes,
    ) {
        let others = self.scaled_by_others(&object.name);
        let own = || self.is_desired(&AUTOSCALER, &object.name);
        // An autoscaler ignores a Deployment that is scaled to zero. Under an autoscaler of another
        // owner that may be intended.
        let asleep = !others && live.is_some_and(Child::has_no_replicas);
        let set_elsewhere = live.is_some_and(|live| live.replicas_elsewhere);
        if set_elsewhere && !asleep && (others || own()) {
            let spec = object.object.get_mut("spec").and_then(|spec| spec.as_object_mut());
            spec.map(|spec| spec.remove("replicas"));
        }
        if others {
            changes.scaled_by_others.push(object.name.clone());
        }
    }

    /// A node of a replicated grid is deleted only when the grid has removed it from its members, so that
    /// each step keeps a majority. The node with the highest index is deleted first.
    fn keep_grid_members(
        &self,
        object: &mut DesiredObject,
        live: Option<&Child>,
        changes: &mut Changes,
    ) {
        let Some(grid) = self.desired.odgm.as_ref().filter(|it| it.is_replicated) else { return };
        let nodes = live.and_then(Child::replicas).unwrap_or(0);
        if nodes <= grid.replicas {
            return;
        }
        let Identity { namespace, name, .. } = self.identity;
        let report = self.view.grid(namespace, name);
        let needed = report
            .filter(|it| it.desired_members == grid.replicas)
            .map_or(nodes, |it| it.needed_nodes.clamp(grid.replicas, nodes));
        if needed > grid.replicas {
            changes.blocked.push(Blocked::GridMember);
        }
        if let Some(replicas) = object.object.pointer_mut("/spec/replicas") {
            *replicas = needed.into();
        }
    }

    /// Holds the rollout of a replicated grid back while nodes are missing. Returns whether the workload must
    /// be created anew, because its controller can't replace nodes that only become ready together.
    fn keep_grid_majority(
        &self,
        object: &mut DesiredObject,
        live: Option<&Child>,
        changes: &mut Changes,
    ) -> bool {
        let Some(grid) = self.desired.odgm.as_ref().filter(|it| it.is_replicated) else {
            return false;
        };
        let Some(live) = live else { return false };
        let Some((revisions, is_current)) = live.revisions() else { return false };
        let applied = with_partition(&object.object, revisions.partition);
        let is_new = !live.has_pod_template_of(&object.object) && !live.was_applied_as(&applied);
        let (names, pods): (Vec<_>, Vec<_>) = self.grid_pods(grid, object).unzip();
        let rollout = plan_rollout(&ObservedRollout { pods: &pods, revisions, is_current, is_new });
        let waits_for = rollout.waits_for.iter().filter_map(|at| names.get(*at).cloned());
        changes.waits_for_nodes = waits_for.collect();
        object.object = with_partition(&object.object, rollout.partition);
        rollout.must_restart
    }

    /// Names and pods of the nodes that a grid is to have, by ordinal.
    fn grid_pods(
        &self,
        grid: &DesiredGrid,
        object: &DesiredObject,
    ) -> impl Iterator<Item = (String, Option<GridPod>)> {
        let nodes = object.object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        let names = (0..nodes).map(|ordinal| format!("{}-{ordinal}", grid.workload));
        names.map(|name| {
            let pod = self.view.grid_pod(&self.identity.namespace, &name);
            (name, pod)
        })
    }

    /// Objects of the class that aren't desired are deleted at once, or drained if they serve a
    /// function that gets another shape, or a grid that functions may still use.
    fn add_leftovers(&self, changes: &mut Changes) {
        for child in self.view.owned(&self.identity.namespace, &self.identity.uid) {
            if child.deleting || self.is_desired(&child.kind, &child.name) {
                continue;
            }
            let of_grid = child.template.as_deref() == Some(ODGM_COMPONENT);
            let former_grid = of_grid && self.desired.odgm.is_none();
            if former_grid || self.desired.functions.iter().any(|it| is_former_shape(&child, it)) {
                changes.draining.push(child);
            } else {
                changes.deletes.push(child);
            }
        }
    }
}

/// The manifest of a StatefulSet that replaces no pods with a lower ordinal. Without one, it has the default.
fn with_partition(manifest: &Value, partition: i32) -> Value {
    let mut manifest = manifest.clone();
    if let Some(spec) = manifest.get_mut("spec").filter(|_| partition > 0) {
        let partition = json!({"partition": partition});
        spec["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": partition});
    }
    manifest
}

/// The manifest of a Secret whose certificate is to be renewed at a time.
pub fn with_renewal(manifest: &Value, at: Timestamp) -> Value {
    let mut manifest = manifest.clone();
    let annotations = manifest.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        // Without fractions of a second.
        annotations.insert(RENEW_AFTER.to_owned(), format!("{at:.0}").into());
    }
    manifest
}

/// Whether an autoscaler of another owner scales a Deployment.
pub(super) fn is_scaled_by_others(
    view: &dyn ClusterView,
    identity: &Identity,
    deployment: &str,
) -> bool {
    let all = view.autoscalers(&identity.namespace, deployment);
    all.iter().any(|autoscaler| !autoscaler.is_owned_by(&identity.uid))
}

/// Whether the update makes pods use the data grid that don't yet. Pods that use it already are
/// updated whether or not the grid is ready.
fn starts_using_grid(live: &Child, object: &DesiredObject) -> bool {
    object.waits_for_odgm
        && object.object.to_string().contains(ODGM_ENABLED)
        && !live.mentions(ODGM_ENABLED)
        && !live.has_spec_hash_of(&object.object)
}

/// Whether an object serves a function that now has another shape.
fn is_former_shape(child: &Child, plan: &FunctionPlan) -> bool {
    let template = child.template.as_deref();
    child.function.as_deref() == Some(&plan.label)
        && template != Some(plan.shape.as_str())
        && shapes::labelled(template).is_none_or(|shape| shape.address_kind.is_some())
}
