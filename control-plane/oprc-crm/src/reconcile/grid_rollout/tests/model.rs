//! A grid of three nodes, its StatefulSet controller, CRM, lost nodes, and a user who updates it twice.

use std::collections::{HashSet, VecDeque};

use super::{super::*, REVISIONS, revisions};

const NODES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Controller {
    /// Without the feature `MaxUnavailableStatefulSet`.
    HighestFirst,
    /// With it.
    UnavailableFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pod {
    revision: usize,
    started: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Model {
    controller: Controller,
    /// The revision whose pods never run.
    broken: Option<usize>,
    pods: [Pod; NODES],
    /// The node whose machine is lost.
    lost: Option<usize>,
    complete: usize,
    latest: usize,
    partition: i32,
    /// What the user wants.
    desired: usize,
}

/// What a step of CRM and of the controller did.
#[derive(Default)]
struct Replaced {
    /// Nodes that were ready.
    ready: Vec<usize>,
    /// Whether a rollout had failed at a node and was replaced.
    after_failure: bool,
}

impl Model {
    pub(super) fn new(controller: Controller, broken: Option<usize>) -> Self {
        Self {
            controller,
            broken,
            pods: [Pod { revision: 0, started: false }; NODES],
            lost: None,
            complete: 0,
            latest: 0,
            partition: 0,
            desired: 0,
        }
    }

    fn is_broken(&self, at: usize) -> bool {
        self.broken == Some(self.pods[at].revision)
    }

    fn runs(&self, at: usize) -> bool {
        self.pods[at].started && self.lost != Some(at) && !self.is_broken(at)
    }

    fn is_ready(&self, at: usize) -> bool {
        self.runs(at) && (0..NODES).filter(|it| self.runs(*it)).count() > NODES / 2
    }

    fn ready(&self) -> Vec<usize> {
        (0..NODES).filter(|at| self.is_ready(*at)).collect()
    }

    fn replace(&mut self, at: usize) {
        let is_held = i32::try_from(at).unwrap() < self.partition;
        let revision = if is_held { self.complete } else { self.latest };
        self.pods[at] = Pod { revision, started: false };
    }

    /// CRM applies what it plans.
    fn reconcile(&mut self) -> Replaced {
        let pod = |at: usize| GridPod {
            ready: self.is_ready(at),
            revision: Some(REVISIONS[self.pods[at].revision].to_owned()),
            has_problem: self.is_broken(at),
        };
        let pods: Vec<_> = (0..NODES).map(|at| Some(pod(at))).collect();
        let keeps_others = self.controller == Controller::UnavailableFirst;
        let [complete, latest] = [self.complete, self.latest].map(|it| REVISIONS[it]);
        let rollout = plan_rollout(&ObservedRollout {
            pods: &pods,
            revisions: &revisions(complete, latest, self.partition, keeps_others),
            is_current: true,
            is_new: self.desired != self.latest,
        });
        let failed = |at: usize| self.is_broken(at) && self.pods[at].revision != self.desired;
        let after_failure = (0..NODES).any(failed);
        let mut replaced = Replaced { ready: Vec::new(), after_failure };
        (self.latest, self.partition) = (self.desired, rollout.partition);
        if rollout.must_restart {
            replaced.ready = self.ready();
            self.complete = self.latest;
            (0..NODES).for_each(|at| self.replace(at));
        }
        replaced
    }

    /// The nodes that the controller replaces.
    fn targets(&self) -> Vec<usize> {
        let lowest = usize::try_from(self.partition).unwrap();
        let is_outdated = |at: &usize| self.pods[*at].revision != self.latest;
        let mut outdated = (lowest..NODES).rev().filter(is_outdated);
        match self.controller {
            Controller::HighestFirst => {
                let above = |at: usize| (at + 1..NODES).all(|it| self.is_ready(it));
                outdated.next().filter(|at| above(*at)).into_iter().collect()
            }
            Controller::UnavailableFirst if self.ready().len() == NODES => {
                outdated.next().into_iter().collect()
            }
            Controller::UnavailableFirst => outdated.filter(|at| !self.is_ready(*at)).collect(),
        }
    }

    fn step(&mut self) -> Replaced {
        let mut replaced = self.reconcile();
        for at in self.targets() {
            replaced.ready.extend(Some(at).filter(|it| self.is_ready(*it)));
            self.replace(at);
        }
        if self.ready().len() == NODES && self.pods.iter().all(|it| it.revision == self.latest) {
            self.complete = self.latest;
        }
        replaced
    }

    /// Everything that can happen next.
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        add(&|it| drop(it.step()));
        for at in 0..NODES {
            add(&|it| it.pods[at].started = true);
            add(&|it| it.lost = it.lost.or(Some(at)));
        }
        add(&|it| it.lost = None);
        add(&|it| it.desired = (it.desired + 1).min(REVISIONS.len() - 1));
        // The user takes the second revision back.
        add(&|it| it.desired = if it.desired == 1 { 0 } else { it.desired });
        all
    }

    /// Checks all states that can be reached; returns how many.
    pub(super) fn explore(self, check: impl Fn(&Self)) -> usize {
        let mut known = HashSet::from([self.clone()]);
        let mut open = VecDeque::from([self]);
        while let Some(model) = open.pop_front() {
            check(&model);
            for next in model.next() {
                if known.insert(next.clone()) {
                    open.push_back(next);
                }
            }
        }
        known.len()
    }

    /// A node that is ready is replaced only while all are, except where a failed rollout is replaced and
    /// the controller starts at the top.
    pub(super) fn assert_majority_is_kept(&self) {
        let mut after = self.clone();
        let replaced = after.step();
        if self.controller == Controller::HighestFirst && replaced.after_failure {
            return;
        }
        let all_ready = self.ready().len() == NODES;
        assert!(replaced.ready.len() <= usize::from(all_ready), "{self:#?} to {after:#?}");
    }

    /// The rollout ends when no node is lost and the user wants a revision that runs.
    pub(super) fn assert_ends(&self) {
        let mut model = self.clone();
        model.lost = None;
        if model.broken == Some(model.desired) {
            model.desired = REVISIONS.len() - 1;
        }
        for _ in 0..20 {
            model.pods.iter_mut().for_each(|pod| pod.started = true);
            model.step();
        }
        let is_done = model.pods.iter().all(|it| it.revision == model.desired);
        assert!(is_done && model.ready().len() == NODES, "{self:#?} to {model:#?}");
        assert_eq!(model.partition, 0, "{model:#?}");
    }
}
