//! What must be done so that what is becomes what is wanted. Nothing, in a steady state.

use oprc_unit::{Identity, Shape};
use std::sync::Arc;

use super::{
    observe::{Child, Sight},
    render::{Desired, FunctionPlan, ODGM_COMPONENT, ODGM_ENABLED, Wanted},
};
use crate::kinds::{AUTOSCALER, DEPLOYMENT, STATEFUL_SET};

/// An object to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// How it is to be.
    pub wanted: Wanted,
    /// The object that is to be changed; none where it is to be made.
    pub uid: Option<String>,
}

/// What must be done, and what can't be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Objects to be written, in order.
    pub writes: Vec<Write>,
    /// Objects that nobody wants any more.
    pub deletes: Vec<Arc<Child>>,
    /// Objects of another template, or a data grid that isn't wanted any more, that go on serving
    /// until nobody needs them.
    pub replaced: Vec<Arc<Child>>,
    /// Objects with a name of ours that belong to somebody else.
    pub foreign: Vec<String>,
    /// Deployments that a user's own autoscaler scales.
    pub scaled_by_others: Vec<String>,
    /// Objects that wait for the data grid, or for something else to be gone.
    pub held: usize,
}

/// Compares what is wanted with what is.
pub fn diff(
    identity: &Identity,
    desired: &Desired,
    sight: &dyn Sight,
    odgm_ready: bool,
    completed: &dyn Fn(&str) -> bool,
) -> Changes {
    let mut changes = Changes::default();
    let namespace = &identity.namespace;
    for wanted in &desired.objects {
        let live = sight.named(&wanted.kind, namespace, &wanted.name);
        if wanted.kind == AUTOSCALER && others_scale(sight, identity, &wanted.name) {
            // Whatever its name, theirs does the work; two would get in each other's way.
            changes.scaled_by_others.push(wanted.name.clone());
            let ours = |it: &Arc<Child>| it.owner.as_deref() == Some(&identity.uid) && !it.deleting;
            changes.deletes.extend(live.filter(ours));
            continue;
        }
        if let Some(live) = &live
            && live.owner.as_deref() != Some(&identity.uid)
        {
            // A former class of the same name is still being cleared away.
            if live.owner_name.as_deref() == Some(&identity.name) {
                changes.held += 1;
                continue;
            }
            changes.foreign.push(format!("{} {}", wanted.kind, wanted.name));
            continue;
        }
        let mut wanted = wanted.clone();
        if wanted.kind == DEPLOYMENT {
            let others = others_scale(sight, identity, &wanted.name);
            let scaled = others
                || desired.objects.iter().any(|it| it.kind == AUTOSCALER && it.name == wanted.name);
            // An autoscaler does nothing about a Deployment that somebody has scaled to nothing;
            // where it isn't ours, that may well be meant.
            let asleep = !others && live.as_ref().is_some_and(|live| live.has_no_replicas());
            if scaled && !asleep && live.as_ref().is_some_and(|live| live.replicas_elsewhere) {
                drop_replicas(&mut wanted);
            }
            if others && !changes.scaled_by_others.contains(&wanted.name) {
                changes.scaled_by_others.push(wanted.name.clone());
            }
        }
        if let Some(live) = live.as_ref().filter(|_| wanted.runs_once) {
            let Some(object) = live.with_its_pods(wanted.object) else { continue };
            wanted.object = object;
        }
        match live {
            // It comes back by itself once it is gone: its end is an event.
            Some(live) if live.deleting => {}
            // So does this: its end is awaited, and what it kept on disk stays.
            Some(live) if live.must_be_made_anew(&wanted.object) => {
                changes.held += 1;
                changes.deletes.push(live);
            }
            Some(live) if !live.differs_from(&wanted.object) => {}
            // Whoever admits objects changes it: to write it again would lead to the same.
            Some(live) if live.answers(&wanted.object) => {}
            None if wanted.runs_once && completed(&wanted.name) => {}
            None if wanted.waits_for_odgm && !odgm_ready => changes.held += 1,
            // One that is to begin with the grid waits for it as well; one that uses it already is
            // healed and changed however the grid is.
            Some(live)
                if wanted.runs_with_odgm
                    && !odgm_ready
                    && !live.mentions(ODGM_ENABLED)
                    && !live.is_written_for(&wanted.object) =>
            {
                changes.held += 1;
            }
            // Two grids with one name and one disk would each take themselves for the only one.
            None if former_grid(identity, desired, &wanted, sight).is_some() => changes.held += 1,
            live => {
                let uid = live.map(|live| live.uid.clone());
                changes.writes.push(Write { wanted, uid });
            }
        }
    }
    changes.scaled_by_others.sort();
    changes.scaled_by_others.dedup();
    leftovers(identity, desired, sight, &mut changes);
    changes
}

/// The data grid of the other kind, where it is still there.
fn former_grid(
    identity: &Identity,
    desired: &Desired,
    wanted: &Wanted,
    sight: &dyn Sight,
) -> Option<Arc<Child>> {
    let grid = desired.odgm.as_ref()?;
    if wanted.kind != grid.kind || wanted.name != grid.workload {
        return None;
    }
    let other = if grid.kind == DEPLOYMENT { STATEFUL_SET } else { DEPLOYMENT };
    let former = sight.named(&other, &identity.namespace, &grid.workload)?;
    (former.owner.as_deref() == Some(&identity.uid)).then_some(former)
}

/// Whether a user's own autoscaler scales a Deployment of ours.
fn others_scale(sight: &dyn Sight, identity: &Identity, deployment: &str) -> bool {
    let scalers = sight.scalers(&identity.namespace, deployment);
    scalers.iter().any(|scaler| scaler.owner.as_deref() != Some(&identity.uid))
}

fn drop_replicas(wanted: &mut Wanted) {
    if let Some(spec) = wanted.object.get_mut("spec").and_then(|spec| spec.as_object_mut()) {
        spec.remove("replicas");
    }
}

/// What belongs to the class and isn't wanted goes at once, unless it serves a function that is
/// about to be served by something else, or to do without.
fn leftovers(identity: &Identity, desired: &Desired, sight: &dyn Sight, changes: &mut Changes) {
    for child in sight.owned(&identity.namespace, &identity.uid) {
        let wanted = desired
            .objects
            .iter()
            .any(|wanted| wanted.kind == child.kind && wanted.name == child.name);
        if wanted || child.deleting {
            continue;
        }
        // Functions use a grid until all of their pods are those that don't.
        let grid = desired.odgm.is_none() && child.template.as_deref() == Some(ODGM_COMPONENT);
        if grid || serves_elsewhere(&child, &desired.functions) {
            changes.replaced.push(child);
        } else {
            changes.deletes.push(child);
        }
    }
}

fn serves_elsewhere(child: &Child, functions: &[FunctionPlan]) -> bool {
    functions.iter().any(|plan| {
        child.function.as_deref() == Some(&plan.label)
            && child.template.as_deref() != Some(plan.shape.as_str())
            // A run serves nobody.
            && child.template.as_deref() != Some(Shape::Job.as_str())
    })
}
