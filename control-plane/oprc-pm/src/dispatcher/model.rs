//! All decisions together, on a model of clusters: calls are lost before or after they are done, or
//! are done late by a process that is no more; clusters go away; somebody meddles; the process ends
//! after any step. Once that stops, the end is the one that it should be, and nothing is left over.

mod ends;

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{OClassDeployment, Policy};
use oprc_rest::{Plan, UnitPlan};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Kept, Limits, Outcome, Outlook, Seen, Sight, Step, UnitView, Units, after, former_of, is_good,
    outlook, perform, step, units_of,
};
use crate::{
    records::{DeploymentRecord, Stage, UnitRecord},
    stamp::{Millis, text},
};

type Key = (String, String);

#[derive(Clone, Debug)]
struct Object {
    uid: String,
    generation: i64,
    content: Value,
    phase: &'static str,
    deleting: bool,
}

#[derive(Clone, Debug, Default)]
struct Cluster {
    away_since: Option<Millis>,
    objects: BTreeMap<String, Object>,
}

#[derive(Clone, Debug)]
struct Call {
    key: Key,
    record: UnitRecord,
    step: Step,
}

#[derive(Debug, Default)]
struct World {
    now: Millis,
    count: u64,
    clusters: BTreeMap<String, Cluster>,
    // What is stored.
    record: Option<DeploymentRecord>,
    units: Units,
    // What the process knows.
    calls: Vec<Call>,
    refused: BTreeMap<Key, (String, String)>,
    // Calls of processes that are no more, or that weren't answered in time.
    ghosts: Vec<Call>,
}

fn took(uid: &str, generation: i64) -> Outcome {
    Outcome::Took { uid: uid.to_owned(), generation, namespace: String::new() }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl World {
    fn new() -> Self {
        let clusters = NAMES.map(|name| (name.to_owned(), Cluster::default())).into();
        Self { clusters, now: 1_000, ..Self::default() }
    }

    fn next(&mut self) -> String {
        self.count += 1;
        format!("{:08}", self.count)
    }

    fn views(&self) -> Vec<UnitView<'_>> {
        let view = |(key, record)| {
            let (cluster, id): &Key = key;
            let seen = self.seen(key);
            let record: &UnitRecord = record;
            let refused = self
                .refused
                .get(key)
                .filter(|(revision, _)| *revision == record.revision && record.spec.is_some())
                .map(|(_, why)| why.clone());
            let away_since = self.clusters[cluster].away_since;
            UnitView { cluster, id, record, seen, refused, away_since }
        };
        self.units.iter().map(view).collect()
    }

    fn seen(&self, (cluster, id): &Key) -> Seen {
        let cluster = &self.clusters[cluster];
        if cluster.away_since.is_some() {
            return Seen::Unknown;
        }
        cluster.objects.get(id).map_or(Seen::Absent, |object| {
            Seen::Present(Sight {
                uid: object.uid.clone(),
                generation: object.generation,
                observed_generation: object.generation,
                deleting: object.deleting,
                phase: object.phase.to_owned(),
                ..Sight::default()
            })
        })
    }

    fn outlook(&self) -> Outlook {
        self.record
            .as_ref()
            .map(|record| outlook(record, &self.views(), self.now, Limits::default()))
            .unwrap_or_default()
    }

    /// The process stores where a deployment goes.
    fn settle(&mut self) -> bool {
        let Some(transition) = self.outlook().transition else { return false };
        let record = self.record.clone().unwrap();
        let next = perform(&transition, &record, &self.views(), self.now);
        self.units.extend(next.units);
        self.record = next.record;
        true
    }

    /// The process begins a call, if there is one to make.
    fn begin(&mut self, pick: usize) -> bool {
        let outlook = self.outlook();
        let busy: BTreeSet<_> = self.calls.iter().map(|call| call.key.clone()).collect();
        let due: Vec<Call> = self
            .units
            .iter()
            .filter(|(key, _)| !busy.contains(key))
            .map(|(key, record)| Call {
                key: key.clone(),
                record: record.clone(),
                step: step(record, &self.seen(key)),
            })
            .filter(|call| match call.step {
                Step::Rest => false,
                Step::Deploy => !outlook.hold_deploys,
                Step::Delete => !outlook.hold_deletes,
            })
            .collect();
        if due.is_empty() {
            return false;
        }
        self.calls.push(due[pick % due.len()].clone());
        true
    }

    /// A cluster does what it is asked.
    fn land(&mut self, call: &Call) -> Outcome {
        let uid = self.next();
        let objects = &mut self.clusters.get_mut(&call.key.0).unwrap().objects;
        let id = call.key.1.clone();
        match (call.step, objects.get_mut(&id)) {
            (Step::Deploy, Some(object)) if object.deleting => Outcome::Failed("going".to_owned()),
            (Step::Deploy, object) => {
                let content = call.record.spec.clone().unwrap();
                if content["bad"] == true {
                    return Outcome::Refused("bad".to_owned());
                }
                let Some(object) = object else {
                    let object = Object {
                        uid: uid.clone(),
                        generation: 1,
                        content,
                        phase: "Progressing",
                        deleting: false,
                    };
                    objects.insert(id, object);
                    return took(&uid, 1);
                };
                if object.content != content {
                    object.content = content;
                    object.generation += 1;
                    object.phase = "Progressing";
                }
                took(&object.uid, object.generation)
            }
            (_, Some(object)) => {
                if !object.deleting {
                    object.deleting = true;
                    object.generation += 1;
                }
                Outcome::Going
            }
            (_, None) => Outcome::Gone,
        }
    }

    /// The process hears what came of a call.
    fn answer(&mut self, call: &Call, outcome: &Outcome) {
        if let Outcome::Refused(why) = outcome {
            let about = (call.record.revision.clone(), why.clone());
            self.refused.insert(call.key.clone(), about);
        }
        // The transaction's check: what is wanted may be another thing by now.
        if self.units.get(&call.key) != Some(&call.record) {
            return;
        }
        match after(&call.record, outcome) {
            Kept::Same => {}
            Kept::Changed(record) => {
                self.units.insert(call.key.clone(), *record);
            }
            // It isn't believed while a call may still be done.
            Kept::Dropped if self.ghosts.iter().any(|ghost| ghost.key == call.key) => {}
            Kept::Dropped => {
                self.units.remove(&call.key);
            }
        }
    }

    fn finish(&mut self, pick: usize, fate: u8) {
        if self.calls.is_empty() {
            return;
        }
        let call = self.calls.remove(pick % self.calls.len());
        let away = self.clusters[&call.key.0].away_since.is_some();
        match fate % 4 {
            // Done, and the answer is lost.
            0 if !away => {
                self.land(&call);
            }
            // Never arrived.
            1 => {}
            // Given up on, and done later.
            2 => self.ghosts.push(call),
            _ if away => {}
            _ => {
                let outcome = self.land(&call);
                self.answer(&call, &outcome);
            }
        }
    }

    fn haunt(&mut self) {
        if !self.ghosts.is_empty() {
            let ghost = self.ghosts.remove(0);
            self.land(&ghost);
        }
    }

    /// What the CRMs do by themselves.
    fn progress(&mut self, well: bool) -> bool {
        let mut changed = false;
        for cluster in self.clusters.values_mut() {
            let before = cluster.objects.len();
            cluster.objects.retain(|_, object| !object.deleting);
            changed |= before != cluster.objects.len();
            for object in cluster.objects.values_mut() {
                let phase = if well { "Available" } else { "Degraded" };
                changed |= object.phase != phase;
                object.phase = phase;
            }
        }
        changed
    }

    /// Somebody changes what is wanted: the first clusters have it, in this way.
    fn want(&mut self, on: usize, policy: Policy, bad: bool) {
        let deleting = |record: &DeploymentRecord| matches!(record.stage, Stage::Deleting { .. });
        if self.record.as_ref().is_some_and(deleting) {
            return;
        }
        let revision = self.next();
        let units = NAMES[..on].iter().enumerate().map(|(at, cluster)| UnitPlan {
            id: format!("unit-{cluster}"),
            cluster: (*cluster).to_owned(),
            spec: json!({ "revision": revision, "bad": bad && at == 0 }),
            ..UnitPlan::default()
        });
        let plan = Plan { units: units.collect(), ..Plan::default() };
        let deployment = OClassDeployment {
            key: "it".to_owned(),
            policy: Some(policy),
            ..OClassDeployment::default()
        };
        let former = self.record.as_ref().and_then(|before| former_of(before, &deployment));
        self.units.extend(units_of(Some((&revision, &plan)), "it", "", &self.units));
        self.record = Some(DeploymentRecord {
            deployment,
            revision,
            created_at: text(0),
            updated_at: text(self.now),
            updated_by: None,
            correlation_id: String::new(),
            plan,
            stage: Stage::Driving { since: text(self.now) },
            former,
        });
    }

    fn want_no_more(&mut self) {
        if let Some(record) = &mut self.record {
            record.stage = Stage::Deleting { since: text(self.now) };
            record.former = None;
            self.units = units_of(None, "it", "", &self.units);
        }
    }

    fn disturb(&mut self, (kind, pick, fate): (u8, usize, u8)) {
        let name = NAMES[pick % NAMES.len()];
        match kind {
            0..=4 => {
                self.begin(pick);
            }
            5..=9 => self.finish(pick, fate),
            10..=12 => {
                self.settle();
            }
            13 => self.haunt(),
            14 => {
                let (calls, now) = (std::mem::take(&mut self.calls), self.now);
                self.ghosts.extend(calls);
                self.refused.clear();
                self.now = now + 1;
            }
            15 => {
                let now = self.now;
                let cluster = self.clusters.get_mut(name).unwrap();
                cluster.away_since = cluster.away_since.is_none().then_some(now);
            }
            16 | 17 => {
                self.progress(fate % 4 != 0);
            }
            18 => {
                let objects = &mut self.clusters.get_mut(name).unwrap().objects;
                if fate % 2 == 0 {
                    objects.clear();
                } else if let Some(object) = objects.values_mut().next() {
                    object.content = json!("meddled");
                    object.generation += 1;
                }
            }
            19 => self.now += 40_000,
            20 | 21 => {
                let policy = if fate % 2 == 0 { Policy::BestEffort } else { Policy::AllOrNothing };
                self.want(1 + pick % NAMES.len(), policy, fate % 5 == 0);
            }
            _ => self.want_no_more(),
        }
    }

    /// Faults stop, and nobody wants anything else: how often something was still to be done.
    fn calm(&mut self) -> usize {
        self.calls.clear();
        while !self.ghosts.is_empty() {
            self.haunt();
        }
        for cluster in self.clusters.values_mut() {
            cluster.away_since = None;
        }
        for round in 0..60 {
            let mut busy = self.settle();
            let before = (self.units.clone(), self.refused.clone());
            while self.begin(0) {}
            while !self.calls.is_empty() {
                self.finish(0, 3);
            }
            // What is refused is asked for again and again, and changes nothing.
            busy |= before != (self.units.clone(), self.refused.clone());
            busy |= self.progress(true);
            if !busy {
                return round;
            }
        }
        60
    }

    /// What clusters have, by cluster and id.
    fn running(&self) -> BTreeMap<Key, Value> {
        let of = |(name, cluster): (&String, &Cluster)| {
            let objects = cluster.objects.iter();
            let name = name.clone();
            objects
                .map(move |(id, object)| ((name.clone(), id.clone()), object.content.clone()))
                .collect::<Vec<_>>()
        };
        self.clusters.iter().flat_map(of).collect()
    }
}
