//! All decisions together on simulated clusters. Calls are lost before or after they are executed,
//! or arrive late from a process that has ended; clusters become unreachable; objects are modified
//! by others; the process ends after any step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use oprc_models::{OClassDeployment, Policy};
use oprc_rest::{Plan, UnitPlan};
use oprc_unit::{Phase, UnitSpec};
use proptest::prelude::*;

use super::super::*;

pub(super) const CLUSTERS: [&str; 3] = ["a", "b", "c"];
/// Longer than a cluster may be unreachable when it passes twice.
const CLOCK_STEP: Duration = Duration::from_secs(40);
/// A simulation that is still busy after so many rounds never comes to rest.
pub(super) const MAX_ROUNDS: usize = 60;

#[derive(Clone, Copy, Debug)]
pub(super) enum Disturbance {
    BeginCall {
        pick: usize,
    },
    FinishCall {
        pick: usize,
        fate: CallFate,
    },
    Transition,
    LateCallArrives,
    Crash,
    /// An unreachable cluster returns, a reachable one becomes unreachable.
    ToggleReachable(&'static str),
    Reconcile {
        healthy: bool,
    },
    DeleteObjects(&'static str),
    ModifyObject(&'static str),
    AdvanceClock,
    Update {
        clusters: usize,
        policy: Policy,
        rejected: bool,
    },
    Delete,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CallFate {
    Answered,
    AnswerLost,
    NeverArrives,
    ArrivesLate,
}

pub(super) fn disturbance() -> impl Strategy<Value = Disturbance> {
    let cluster = || prop::sample::select(&CLUSTERS);
    let fate = prop_oneof![
        Just(CallFate::Answered),
        Just(CallFate::AnswerLost),
        Just(CallFate::NeverArrives),
        Just(CallFate::ArrivesLate),
    ];
    let policy = prop_oneof![Just(Policy::BestEffort), Just(Policy::AllOrNothing)];
    let update = (1..=CLUSTERS.len(), policy, prop::bool::weighted(0.2));
    prop_oneof![
        10 => any::<usize>().prop_map(|pick| Disturbance::BeginCall { pick }),
        10 => (any::<usize>(), fate).prop_map(|(pick, fate)| Disturbance::FinishCall { pick, fate }),
        6 => Just(Disturbance::Transition),
        2 => Just(Disturbance::LateCallArrives),
        2 => Just(Disturbance::Crash),
        2 => cluster().prop_map(Disturbance::ToggleReachable),
        4 => prop::bool::weighted(0.75).prop_map(|healthy| Disturbance::Reconcile { healthy }),
        1 => cluster().prop_map(Disturbance::DeleteObjects),
        1 => cluster().prop_map(Disturbance::ModifyObject),
        2 => Just(Disturbance::AdvanceClock),
        4 => update.prop_map(|(clusters, policy, rejected)| {
            Disturbance::Update { clusters, policy, rejected }
        }),
        4 => Just(Disturbance::Delete),
    ]
}

#[derive(Clone, Debug)]
struct Object {
    uid: String,
    generation: i64,
    content: UnitSpec,
    phase: Phase,
    deleting: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) unreachable_since: Option<Timestamp>,
    objects: BTreeMap<String, Object>,
}

#[derive(Clone, Debug)]
struct Call {
    key: UnitKey,
    record: UnitRecord,
    /// The spec to deploy; none where the unit is deleted.
    spec: Option<UnitSpec>,
    step: Step,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) now: Timestamp,
    count: u64,
    pub(super) clusters: BTreeMap<String, Cluster>,
    // Stored.
    pub(super) record: Option<DeploymentRecord>,
    pub(super) units: Units,
    // In the memory of the process: revision and message by unit.
    calls: Vec<Call>,
    rejections: BTreeMap<UnitKey, (String, String)>,
    /// Calls of processes that have ended, or that were not answered in time.
    late_calls: Vec<Call>,
}

fn accepted(call: &Call, uid: &str, generation: i64) -> CallOutcome {
    CallOutcome::Accepted(Acknowledged {
        revision: call.record.revision.clone(),
        uid: uid.to_owned(),
        generation,
        namespace: String::new(),
    })
}

impl World {
    pub(super) fn new() -> Self {
        let clusters = CLUSTERS.map(|name| (name.to_owned(), Cluster::default())).into();
        Self { clusters, ..Self::default() }
    }

    fn next_id(&mut self) -> String {
        self.count += 1;
        format!("{:08}", self.count)
    }

    pub(super) fn views(&self) -> Vec<UnitView<'_>> {
        let view = |(key, record)| {
            let (key, record): (&UnitKey, &UnitRecord) = (key, record);
            let rejection = self
                .rejections
                .get(key)
                .filter(|(revision, _)| *revision == record.revision && record.desired)
                .map(|(_, why)| why.clone());
            let unreachable_since = self.clusters[&key.0].unreachable_since;
            let observation = self.observe(key);
            UnitView { key, record, observation, rejection, unreachable_since }
        };
        self.units.iter().map(view).collect()
    }

    fn observe(&self, (cluster, id): &UnitKey) -> Observation {
        let cluster = &self.clusters[cluster];
        if cluster.unreachable_since.is_some() {
            return Observation::Unknown;
        }
        cluster.objects.get(id).map_or(Observation::Absent, |object| {
            Observation::Present(ObservedUnit {
                uid: object.uid.clone(),
                generation: object.generation,
                observed_generation: object.generation,
                deleting: object.deleting,
                phase: object.phase,
                ..ObservedUnit::default()
            })
        })
    }

    fn evaluate(&self) -> Evaluation {
        self.record
            .as_ref()
            .map(|record| evaluate(record, &self.views(), self.now, Deadlines::default()))
            .unwrap_or_default()
    }

    /// The process stores a transition, if one is due.
    pub(super) fn transition(&mut self) -> bool {
        let Some(transition) = self.evaluate().transition else { return false };
        let record = self.record.clone().unwrap();
        let next = apply_transition(&transition, &record, &self.units, self.now);
        self.units.extend(next.units);
        self.record = next.record;
        true
    }

    /// The process begins one of the calls that are due.
    pub(super) fn begin_call(&mut self, pick: usize) -> bool {
        let evaluation = self.evaluate();
        let busy: BTreeSet<_> = self.calls.iter().map(|call| call.key.clone()).collect();
        let due: Vec<Call> = self
            .units
            .iter()
            .filter(|(key, _)| !busy.contains(key))
            .map(|(key, record)| Call {
                key: key.clone(),
                record: record.clone(),
                spec: self.planned_spec(key, &record.revision),
                step: next_step(record, &self.observe(key)),
            })
            .filter(|call| !evaluation.holds(call.step))
            .collect();
        if due.is_empty() {
            return false;
        }
        self.calls.push(due[pick % due.len()].clone());
        true
    }

    fn planned_spec(&self, key: &UnitKey, revision: &str) -> Option<UnitSpec> {
        Some(self.record.as_ref()?.planned_unit(key, revision)?.spec.clone())
    }

    /// A cluster executes a call.
    fn execute(&mut self, call: &Call) -> CallOutcome {
        let uid = self.next_id();
        let objects = &mut self.clusters.get_mut(&call.key.0).unwrap().objects;
        let id = call.key.1.clone();
        match (call.step, objects.get_mut(&id)) {
            (Step::Deploy, Some(object)) if object.deleting => {
                CallOutcome::Failed("terminating".to_owned())
            }
            (Step::Deploy, object) => {
                let content = call.spec.clone().unwrap();
                if content.paused {
                    return CallOutcome::Rejected("rejected".to_owned());
                }
                let Some(object) = object else {
                    let object = Object {
                        uid: uid.clone(),
                        generation: 1,
                        content,
                        phase: Phase::Progressing,
                        deleting: false,
                    };
                    objects.insert(id, object);
                    return accepted(call, &uid, 1);
                };
                if object.content != content {
                    object.content = content;
                    object.generation += 1;
                    object.phase = Phase::Progressing;
                }
                accepted(call, &object.uid, object.generation)
            }
            (_, Some(object)) => {
                if !object.deleting {
                    object.deleting = true;
                    object.generation += 1;
                }
                CallOutcome::Terminating
            }
            (_, None) => CallOutcome::NotFound,
        }
    }

    /// The process receives the answer to a call.
    fn receive(&mut self, call: &Call, outcome: &CallOutcome) {
        if let CallOutcome::Rejected(why) = outcome {
            let rejection = (call.record.revision.clone(), why.clone());
            self.rejections.insert(call.key.clone(), rejection);
        }
        // The transaction's check: the record may have changed meanwhile.
        if self.units.get(&call.key) != Some(&call.record) {
            return;
        }
        match record_update(&call.record, outcome) {
            RecordUpdate::Unchanged => {}
            RecordUpdate::Replaced(record) => {
                self.units.insert(call.key.clone(), *record);
            }
            // In doubt while an earlier call may still arrive.
            RecordUpdate::Deleted if self.late_calls.iter().any(|late| late.key == call.key) => {}
            RecordUpdate::Deleted => {
                self.units.remove(&call.key);
            }
        }
    }

    pub(super) fn finish_call(&mut self, pick: usize, fate: CallFate) {
        if self.calls.is_empty() {
            return;
        }
        let call = self.calls.remove(pick % self.calls.len());
        let unreachable = self.clusters[&call.key.0].unreachable_since.is_some();
        match fate {
            CallFate::ArrivesLate => self.late_calls.push(call),
            _ if unreachable => {}
            CallFate::NeverArrives => {}
            CallFate::AnswerLost => {
                self.execute(&call);
            }
            CallFate::Answered => {
                let outcome = self.execute(&call);
                self.receive(&call, &outcome);
            }
        }
    }

    fn late_call_arrives(&mut self) {
        if !self.late_calls.is_empty() {
            let late = self.late_calls.remove(0);
            self.execute(&late);
        }
    }

    /// The process ends and another one begins: calls under way may still arrive.
    fn crash(&mut self) {
        self.late_calls.append(&mut self.calls);
        self.lose_memory();
    }

    /// The process ends and its calls never arrive.
    pub(super) fn lose_memory(&mut self) {
        self.calls.clear();
        self.rejections.clear();
    }

    /// The CRMs reconcile their objects.
    pub(super) fn reconcile(&mut self, healthy: bool) -> bool {
        let mut changed = false;
        for cluster in self.clusters.values_mut() {
            let before = cluster.objects.len();
            cluster.objects.retain(|_, object| !object.deleting);
            changed |= before != cluster.objects.len();
            for object in cluster.objects.values_mut() {
                let phase = if healthy { Phase::Available } else { Phase::Degraded };
                changed |= object.phase != phase;
                object.phase = phase;
            }
        }
        changed
    }

    /// Applies a deployment with a unit on each of the first clusters; the first unit is one that
    /// its cluster rejects, if so desired.
    pub(super) fn update(&mut self, clusters: usize, policy: Policy, rejected: bool) {
        if self.record.as_ref().is_some_and(DeploymentRecord::is_deleting) {
            return;
        }
        let revision = self.next_id();
        let units = CLUSTERS[..clusters].iter().enumerate().map(|(at, cluster)| UnitPlan {
            id: format!("unit-{cluster}"),
            cluster: (*cluster).to_owned(),
            spec: UnitSpec {
                // Stands for a spec that the cluster rejects.
                paused: rejected && at == 0,
                target_environment: Some(revision.clone()),
                ..UnitSpec::default()
            },
            ..UnitPlan::default()
        });
        let plan = Plan { units: units.collect(), ..Plan::default() };
        let deployment = OClassDeployment {
            key: "it".to_owned(),
            policy: Some(policy),
            ..OClassDeployment::default()
        };
        let former = self.record.as_ref().and_then(|before| rollback_target(before, &deployment));
        let record = DeploymentRecord {
            deployment,
            revision,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: self.now,
            updated_by: None,
            correlation_id: String::new(),
            plan,
            stage: Stage::RollingOut,
            stage_since: self.now,
            former,
        };
        self.units.extend(desired_units(&record, &self.units));
        self.record = Some(record);
    }

    fn delete(&mut self) {
        if let Some(record) = &mut self.record {
            record.stage = Stage::Deleting;
            record.stage_since = self.now;
            record.former = None;
            self.units = desired_units(record, &self.units);
        }
    }

    fn cluster(&mut self, name: &str) -> &mut Cluster {
        self.clusters.get_mut(name).unwrap()
    }

    pub(super) fn disturb(&mut self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::BeginCall { pick } => {
                self.begin_call(pick);
            }
            Disturbance::FinishCall { pick, fate } => self.finish_call(pick, fate),
            Disturbance::Transition => {
                self.transition();
            }
            Disturbance::LateCallArrives => self.late_call_arrives(),
            Disturbance::Crash => self.crash(),
            Disturbance::ToggleReachable(name) => {
                let now = self.now;
                let cluster = self.cluster(name);
                cluster.unreachable_since = cluster.unreachable_since.is_none().then_some(now);
            }
            Disturbance::Reconcile { healthy } => {
                self.reconcile(healthy);
            }
            Disturbance::DeleteObjects(name) => self.cluster(name).objects.clear(),
            Disturbance::ModifyObject(name) => {
                if let Some(object) = self.cluster(name).objects.values_mut().next() {
                    object.content.template_hint = Some("modified".to_owned());
                    object.generation += 1;
                }
            }
            Disturbance::AdvanceClock => self.now += CLOCK_STEP,
            Disturbance::Update { clusters, policy, rejected } => {
                self.update(clusters, policy, rejected);
            }
            Disturbance::Delete => self.delete(),
        }
    }

    /// Disturbances stop: runs until nothing is left to be done, and returns how many rounds that
    /// took.
    pub(super) fn run_to_rest(&mut self) -> usize {
        self.calls.clear();
        while !self.late_calls.is_empty() {
            self.late_call_arrives();
        }
        for cluster in self.clusters.values_mut() {
            cluster.unreachable_since = None;
        }
        for round in 0..MAX_ROUNDS {
            let mut busy = self.transition();
            let before = (self.units.clone(), self.rejections.clone());
            while self.begin_call(0) {}
            while !self.calls.is_empty() {
                self.finish_call(0, CallFate::Answered);
            }
            // Rejected units are retried for ever, which changes nothing.
            busy |= before != (self.units.clone(), self.rejections.clone());
            busy |= self.reconcile(true);
            if !busy {
                return round;
            }
        }
        MAX_ROUNDS
    }

    /// The contents of all objects.
    pub(super) fn running(&self) -> BTreeMap<UnitKey, UnitSpec> {
        let of_cluster = |(name, cluster): (&String, &Cluster)| {
            let name = name.clone();
            let objects = cluster.objects.iter();
            objects
                .map(move |(id, object)| ((name.clone(), id.clone()), object.content.clone()))
                .collect::<Vec<_>>()
        };
        self.clusters.iter().flat_map(of_cluster).collect()
    }
}
