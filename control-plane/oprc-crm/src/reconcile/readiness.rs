//! Readiness of a class's components: each function, and the data grid. Combines the assessment of
//! the shapes with problems of pods and claims.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use oprc_unit::names;

use super::{
    ObservedClass,
    manifest::{FunctionPlan, ODGM_COMPONENT},
    observe::{Child, ClusterView, ObservedState},
    shapes::{
        self, Assessed, Component, Required, WorkloadShape,
        grid::{self, DesiredGrid},
    },
};
use crate::{
    crd::{ClassRuntimeStatus, GRID_KEY},
    kinds::{Kind, SERVICE, STATEFUL_SET},
    reason::{Failure, Reason},
};

/// What is required of a workload whose plan isn't known.
const ANY: Required = Required { min: 1, varies: true, scaled_by_others: false };

pub(super) struct Readiness<'a> {
    view: &'a dyn ClusterView,
    namespace: &'a str,
    uid: &'a str,
    base: String,
    children: Vec<Arc<Child>>,
}

impl<'a> Readiness<'a> {
    pub(super) fn new(class: &'a ObservedClass, view: &'a dyn ClusterView) -> Self {
        Self {
            view,
            namespace: &class.namespace,
            uid: &class.uid,
            base: names::base(&class.name),
            children: view.owned(&class.namespace, &class.uid),
        }
    }

    /// When the newest object of the class was created.
    pub(super) fn last_created(&self) -> Option<Timestamp> {
        self.children.iter().filter_map(|child| child.created).max()
    }

    /// An object of the class.
    pub(super) fn own(&self, kind: &Kind, name: &str) -> Option<Arc<Child>> {
        let named = self.view.named(kind, self.namespace, name);
        named.filter(|child| child.is_owned_by(self.uid))
    }

    /// `completed` says that a Job has completed for this generation.
    pub(super) fn function(
        &self,
        plan: &FunctionPlan,
        scaled_by_others: bool,
        completed: bool,
    ) -> Component {
        let shape = shapes::of(plan.shape);
        // What enforcement adds isn't required.
        let varies = plan.max > plan.min || plan.floor > plan.min;
        let required = Required { min: plan.min, varies, scaled_by_others };
        let mut component = match self.own(&shape.kind, &plan.workload) {
            Some(child) => self.assess(shape, &child, required),
            // A completed Job may have been deleted.
            None => {
                let completed = completed && shape.address_kind.is_none();
                let (ready, serving) = (completed, completed);
                Component { ready, serving, completed, ..Component::default() }
            }
        };
        component.url = component.url.or_else(|| plan.url.clone());
        component.serving |= self.former_shape_serves(plan);
        if !component.ready {
            let problems = self.pod_problems(Some(&plan.label));
            component.problem = worst(problems.chain(component.problem));
        }
        component
    }

    fn assess(&self, shape: &WorkloadShape, child: &Child, required: Required) -> Component {
        let component = (shape.assess)(&self.assessed(child, required));
        Component { ready_since: child.ready_since, ..component }
    }

    fn assessed<'c>(&self, child: &'c Child, required: Required) -> Assessed<'c> {
        let service = self.own(&SERVICE, &child.name);
        Assessed {
            state: &child.state,
            deleting: child.deleting,
            has_service: service.is_some_and(|it| !it.deleting),
            creation_failure: self.view.pod_creation_failure(&child.uid),
            required,
        }
    }

    /// The workload of a function in a shape that serves calls.
    fn serving_workload(&self, label: &str, shape: &WorkloadShape) -> Option<&Child> {
        let mut all = self.children.iter().map(Arc::as_ref).filter(|it| it.kind == shape.kind);
        all.find(|it| shape.address_kind.is_some() && it.function.as_deref() == Some(label))
    }

    /// Whether a workload of another shape, which is being replaced, still serves.
    fn former_shape_serves(&self, plan: &FunctionPlan) -> bool {
        let required = Required { min: plan.min.max(1), ..ANY };
        shapes::others(plan.shape).any(|shape| {
            let workload = self.serving_workload(&plan.label, shape);
            workload.is_some_and(|child| self.assess(shape, child, required).serving)
        })
    }

    fn pod_problems(&self, function: Option<&str>) -> impl Iterator<Item = Failure> {
        let all = self.view.pod_problems(self.namespace, &self.base).into_iter();
        all.filter(move |it| it.function.as_deref() == function).map(|it| it.problem)
    }

    pub(super) fn grid(&self, grid: &DesiredGrid) -> Component {
        let workload = self.own(&grid.kind, &grid.workload);
        let assess = |child: Arc<Child>| self.assess_grid(&child, grid.replicas, grid.needed);
        let mut component = workload.map(assess).unwrap_or_default();
        if !component.ready {
            let stateful = grid.kind == STATEFUL_SET;
            let claims = stateful.then(|| claims(self.view, self.namespace, &self.base));
            let unbound = claims.iter().flatten().filter_map(|claim| unbound_claim(claim));
            let problems = unbound.chain(self.pod_problems(None)).chain(component.problem);
            component.problem = worst(problems);
        }
        component
    }

    fn assess_grid(&self, child: &Child, replicas: i32, needed: i32) -> Component {
        let required = Required { min: replicas, varies: false, scaled_by_others: false };
        grid::assess(&self.assessed(child, required), needed)
    }

    /// Updates the status of a class whose specification is rejected: its objects stay, and may
    /// fail and recover meanwhile. Returns whether all of its functions serve.
    pub(super) fn refresh(&self, status: &mut ClassRuntimeStatus) -> bool {
        let mut serving = status.selection.is_some();
        for function in &mut status.functions {
            let Some(shape) = shapes::labelled(function.runs_as.as_deref()) else { continue };
            // A completed Job stays completed.
            if shape.address_kind.is_none() {
                serving &= function.ready;
                continue;
            }
            let workload = self.serving_workload(&names::label(&function.key), shape);
            let component = workload.map(|child| self.assess(shape, child, ANY));
            let component = component.unwrap_or_default();
            serving &= component.serving;
            function.ready = component.ready;
            function.url = component.url.or_else(|| function.url.take());
            if function.ready {
                (function.reason, function.message) = (None, None);
            }
        }
        if let Some(odgm) = &mut status.odgm {
            odgm.ready = self.children.iter().any(|child| {
                child.template.as_deref() == Some(ODGM_COMPONENT)
                    && self.assess_grid(child, odgm.replicas, odgm.replicas).ready
            });
            serving &= odgm.ready;
            if odgm.ready {
                (odgm.reason, odgm.message) = (None, None);
            }
        }
        let all: Vec<(&str, bool)> = status
            .functions
            .iter()
            .filter(|it| it.runs_as.is_some())
            .map(|it| (it.key.as_str(), it.ready))
            .chain(status.odgm.iter().map(|it| (GRID_KEY, it.ready)))
            .collect();
        let ready = all.iter().filter(|(_, ready)| *ready).count();
        status.ready = status.ready.take().map(|_| format!("{ready}/{}", all.len()));
        status.stable_since.retain(|name, _| all.contains(&(name.as_str(), true)));
        serving
    }
}

/// The claims of a class's data grid. A label alone, which any client can set, doesn't make a claim
/// one of them: they may be deleted with the class.
pub(super) fn claims(view: &dyn ClusterView, namespace: &str, base: &str) -> Vec<Arc<Child>> {
    let mut all = view.claims(namespace, base);
    all.retain(|claim| {
        claim.template.as_deref() == Some(ODGM_COMPONENT) && names::is_odgm_claim(base, &claim.name)
    });
    all
}

fn unbound_claim(claim: &Child) -> Option<Failure> {
    let ObservedState::Claim(false, class) = &claim.state else { return None };
    let class = class.as_deref().unwrap_or("the cluster's default");
    let message = format!("claim {} isn't bound (storage class: {class})", claim.name);
    Some(Failure { reason: Reason::VolumeNotBound, message })
}

/// Permanent problems come first, and each transient one before those that it can cause: without
/// pods, claims may not be bound; without claims, pods have no node.
fn worst(problems: impl Iterator<Item = Failure>) -> Option<Failure> {
    let rank = |it: &Failure| match it.reason {
        Reason::QuotaExceeded => 1,
        Reason::VolumeNotBound => 2,
        Reason::Unschedulable => 3,
        _ => 0,
    };
    problems.min_by(|left, right| {
        rank(left).cmp(&rank(right)).then_with(|| left.message.cmp(&right.message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_other_problems_is_the_worst() {
        let all = [Reason::Unschedulable, Reason::VolumeNotBound, Reason::QuotaExceeded];
        let problems = all.map(|reason| Failure { reason, message: format!("{reason}") });
        for count in 1..=all.len() {
            let found = worst(problems.iter().take(count).cloned()).unwrap();
            assert_eq!(found.reason, all[count - 1]);
        }
        let permanent = Failure { reason: Reason::CrashLoop, message: "z".to_owned() };
        let found = worst(problems.into_iter().chain([permanent])).unwrap();
        assert_eq!(found.reason, Reason::CrashLoop);
    }
}
