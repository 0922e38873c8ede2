//! What a cluster reports on its watch stream: its classes, and facts about the cluster.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use oprc_grpc::deployment::{ClassRuntime, GetClusterInfoResponse, WatchEvent, watch_event::Kind};
use oprc_rest::Contact;
use oprc_unit::Phase;

use crate::rollout::{Acknowledged, Observation, ObservedUnit};

/// By id and namespace.
type Classes = BTreeMap<(String, String), Arc<ClassRuntime>>;

#[derive(Clone, Debug, Default)]
pub struct ClassCache {
    classes: Classes,
    /// A snapshot that isn't complete yet.
    incoming: Option<Classes>,
    /// Whether a snapshot was ever complete.
    synced: bool,
    pub connected: bool,
    /// Whether the stream hasn't delivered yet what happened while it was disconnected.
    behind: bool,
    /// Whether the CRM has lost its API server.
    stale: bool,
    pub resume_token: String,
    /// Nodes, capacity and capabilities as reported last; none if the cluster never connected.
    pub info: Option<Arc<GetClusterInfoResponse>>,
    pub unreachable_since: Option<Timestamp>,
    pub last_seen: Option<Timestamp>,
    /// Why the cache isn't fresh; empty if it is.
    pub problem: String,
}

impl ClassCache {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            unreachable_since: Some(now),
            problem: "not connected yet".to_owned(),
            ..Self::default()
        }
    }

    /// The stream is open, and the CRM has reported `info`.
    pub(crate) fn connected(&mut self, info: GetClusterInfoResponse, now: Timestamp) {
        self.connected = true;
        self.behind = true;
        self.stale = info.stale;
        self.info = Some(Arc::new(info));
        self.seen(now);
    }

    pub(crate) fn disconnected(&mut self, why: String, now: Timestamp) {
        self.connected = false;
        self.incoming = None;
        self.problem = why;
        self.unreachable_since.get_or_insert(now);
    }

    fn seen(&mut self, now: Timestamp) {
        self.last_seen = Some(now);
        if self.is_fresh() {
            self.unreachable_since = None;
            self.problem.clear();
        } else {
            self.unreachable_since.get_or_insert(now);
            if self.stale {
                "its CRM has lost the API server".clone_into(&mut self.problem);
            }
        }
    }

    pub(crate) fn apply(&mut self, event: WatchEvent, now: Timestamp) {
        let kind = event.kind();
        self.stale = event.stale;
        if !event.resume_token.is_empty() {
            self.resume_token = event.resume_token;
        }
        if let Some(info) = event.cluster_info {
            self.info = Some(Arc::new(info));
        }
        match (kind, event.class_runtime.map(Arc::new)) {
            (Kind::SnapshotBegin, _) => {
                self.incoming = Some(Classes::new());
                self.behind = true;
            }
            (Kind::Snapshot, Some(class)) => {
                if let Some(incoming) = &mut self.incoming {
                    incoming.insert(key(&class), class);
                }
            }
            (Kind::SnapshotEnd, _) => {
                if let Some(incoming) = self.incoming.take() {
                    self.classes = incoming;
                    self.synced = true;
                    self.behind = false;
                }
            }
            // A response may have reported a later generation already.
            (Kind::Changed, Some(class)) => self.insert_unless(class, |known, new| known > new),
            (Kind::Deleted, Some(class)) => {
                let key = key(&class);
                // A response may have reported a new object of the same name already.
                if self.classes.get(&key).is_some_and(|known| known.uid == class.uid) {
                    self.classes.remove(&key);
                }
            }
            // Also sent when a resumed stream has caught up.
            (Kind::Contact, _) => self.behind &= self.incoming.is_some(),
            _ => {}
        }
        self.seen(now);
    }

    /// Takes the class of a response if it is newer than the cached one: of the same generation the
    /// stream may have reported a later status.
    pub(crate) fn apply_response(&mut self, class: Arc<ClassRuntime>) {
        self.insert_unless(class, |known, new| known >= new);
    }

    /// Takes the measurements of a response unless those of the stream are newer.
    pub(crate) fn apply_measurements(&mut self, latest: &ClassRuntime) {
        let Some(known) = self.classes.get_mut(&key(latest)) else { return };
        // A response without measurements counts: the class may not be measured any more.
        let newer = observed_at(latest).is_some_and(|latest| observed_at(known) > Some(latest));
        if known.uid != latest.uid || newer {
            return;
        }
        let Some(latest) = &latest.status else { return };
        let Some(status) = &mut Arc::make_mut(known).status else { return };
        for function in &mut status.functions {
            let found = latest.functions.iter().find(|it| it.key == function.key);
            function.nfr_compliance = found.and_then(|it| it.nfr_compliance.clone());
        }
    }

    fn insert_unless(&mut self, class: Arc<ClassRuntime>, outdated: impl Fn(i64, i64) -> bool) {
        let key = key(&class);
        let known = self.classes.get(&key).filter(|known| known.uid == class.uid);
        if !known.is_some_and(|known| outdated(known.generation, class.generation)) {
            self.classes.insert(key, class);
        }
    }

    /// Whether the cache is complete and up to date.
    pub fn is_fresh(&self) -> bool {
        self.synced && self.connected && !self.behind && !self.stale
    }

    pub fn contact(&self) -> Contact {
        match (self.is_fresh(), self.synced) {
            (true, _) => Contact::Fresh,
            (false, true) => Contact::Stale,
            (false, false) => Contact::Unknown,
        }
    }

    /// All classes as reported last, however long ago.
    pub fn classes(&self) -> impl Iterator<Item = &Arc<ClassRuntime>> {
        self.classes.values()
    }

    /// An empty namespace matches any.
    pub fn class(&self, id: &str, namespace: &str) -> Option<&Arc<ClassRuntime>> {
        if !namespace.is_empty() {
            return self.classes.get(&(id.to_owned(), namespace.to_owned()));
        }
        let first = (id.to_owned(), String::new());
        self.classes.range(first..).take_while(|((of, _), _)| of == id).map(|(_, it)| it).next()
    }

    pub fn observe(&self, id: &str, namespace: &str) -> Observation {
        if !self.is_fresh() {
            return Observation::Unknown;
        }
        self.class(id, namespace)
            .map_or(Observation::Absent, |class| Observation::Present(observed_unit(class)))
    }
}

fn key(class: &ClassRuntime) -> (String, String) {
    (class.deployment_id.clone(), class.namespace.clone())
}

/// The time of the latest measurement.
fn observed_at(class: &ClassRuntime) -> Option<Timestamp> {
    let functions = class.status.iter().flat_map(|status| &status.functions);
    functions.filter_map(|it| it.nfr_compliance.as_ref()?.observed_at.parse().ok()).max()
}

pub fn acknowledged(class: &ClassRuntime, revision: &str) -> Acknowledged {
    Acknowledged {
        revision: revision.to_owned(),
        uid: class.uid.clone(),
        generation: class.generation,
        namespace: class.namespace.clone(),
    }
}

pub fn observed_unit(class: &ClassRuntime) -> ObservedUnit {
    let status = class.status.clone().unwrap_or_default();
    ObservedUnit {
        uid: class.uid.clone(),
        generation: class.generation,
        observed_generation: status.observed_generation,
        deleting: class.deleting,
        // Also a phase that this version doesn't know counts as Pending.
        phase: Phase::parse(&status.phase).unwrap_or_default(),
        reason: status.reason,
        message: status.message,
    }
}

#[cfg(test)]
mod tests {
    use oprc_grpc::deployment::{FunctionStatus, NfrCompliance, Status};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn class(id: &str, uid: &str, generation: i64) -> ClassRuntime {
        ClassRuntime {
            deployment_id: id.to_owned(),
            namespace: "default".to_owned(),
            uid: uid.to_owned(),
            generation,
            ..ClassRuntime::default()
        }
    }

    fn event(kind: Kind, class: Option<ClassRuntime>) -> WatchEvent {
        WatchEvent { kind: kind.into(), class_runtime: class, ..WatchEvent::default() }
    }

    fn snapshot_begun() -> ClassCache {
        let mut cache = ClassCache::new(at(0));
        cache.connected(GetClusterInfoResponse::default(), at(1));
        cache.apply(event(Kind::SnapshotBegin, None), at(1));
        cache.apply(event(Kind::Snapshot, Some(class("a", "1", 1))), at(1));
        cache
    }

    #[test]
    fn is_unknown_until_a_snapshot_is_complete() {
        let mut cache = snapshot_begun();
        assert_eq!(cache.observe("a", ""), Observation::Unknown);
        assert_eq!(cache.contact(), Contact::Unknown);
        cache.apply(event(Kind::SnapshotEnd, None), at(2));
        assert!(matches!(cache.observe("a", ""), Observation::Present(_)));
        assert!(matches!(cache.observe("a", "default"), Observation::Present(_)));
        assert_eq!(cache.observe("a", "other"), Observation::Absent);
        assert_eq!(cache.observe("b", ""), Observation::Absent);
        assert_eq!(cache.unreachable_since, None);
    }

    #[test]
    fn complete_snapshot_replaces_all_and_an_interrupted_one_nothing() {
        let mut cache = snapshot_begun();
        cache.apply(event(Kind::SnapshotEnd, None), at(2));
        cache.apply(event(Kind::SnapshotBegin, None), at(3));
        cache.disconnected("cut".to_owned(), at(4));
        assert_eq!(cache.contact(), Contact::Stale);
        assert_eq!(cache.unreachable_since, Some(at(3)), "since the new snapshot began");
        assert_eq!(cache.classes().count(), 1);
        cache.connected(GetClusterInfoResponse::default(), at(5));
        cache.apply(event(Kind::SnapshotBegin, None), at(5));
        cache.apply(event(Kind::SnapshotEnd, None), at(5));
        assert_eq!(cache.observe("a", ""), Observation::Absent);
    }

    #[test]
    fn is_stale_after_a_reconnect_until_it_has_caught_up() {
        let mut cache = snapshot_begun();
        cache.apply(event(Kind::SnapshotEnd, None), at(2));
        cache.disconnected("cut".to_owned(), at(3));
        cache.connected(GetClusterInfoResponse::default(), at(4));
        assert_eq!(cache.observe("a", ""), Observation::Unknown);
        cache.apply(event(Kind::Changed, Some(class("a", "1", 2))), at(5));
        assert_eq!(cache.observe("a", ""), Observation::Unknown);
        cache.apply(event(Kind::Contact, None), at(6));
        assert!(matches!(cache.observe("a", ""), Observation::Present(_)));
    }

    #[test]
    fn ignores_outdated_events() {
        let mut cache = snapshot_begun();
        cache.apply(event(Kind::SnapshotEnd, None), at(2));
        cache.apply_response(Arc::new(class("a", "1", 2)));
        cache.apply(event(Kind::Changed, Some(class("a", "1", 1))), at(3));
        let generation = |cache: &ClassCache| cache.class("a", "").unwrap().generation;
        assert_eq!(generation(&cache), 2);
        let reported = ClassRuntime { name: "reported".to_owned(), ..class("a", "1", 2) };
        cache.apply(event(Kind::Changed, Some(reported)), at(3));
        cache.apply_response(Arc::new(class("a", "1", 2)));
        assert_eq!(cache.class("a", "").unwrap().name, "reported");
        cache.apply_response(Arc::new(class("a", "2", 1)));
        cache.apply(event(Kind::Deleted, Some(class("a", "1", 2))), at(4));
        assert_eq!(generation(&cache), 1);
        cache.apply(event(Kind::Deleted, Some(class("a", "2", 1))), at(5));
        assert_eq!(cache.observe("a", ""), Observation::Absent);
    }

    #[test]
    fn takes_measurements_of_a_response_unless_the_stream_has_newer_ones() {
        let measured = |at: &str, uid: &str| {
            let compliance =
                |at: &str| NfrCompliance { observed_at: at.to_owned(), ..Default::default() };
            let function = FunctionStatus {
                key: "f".to_owned(),
                nfr_compliance: (!at.is_empty()).then(|| compliance(at)),
                ..FunctionStatus::default()
            };
            let status = Status { functions: vec![function], ..Status::default() };
            ClassRuntime { status: Some(status), ..class("a", uid, 1) }
        };
        let mut cache = snapshot_begun();
        cache.apply(event(Kind::SnapshotEnd, None), at(2));
        cache.apply(event(Kind::Changed, Some(measured("", "1"))), at(2));
        let found = |cache: &ClassCache| observed_at(cache.class("a", "").unwrap());
        let time = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let [first, second] = ["2026-11-17T12:00:00Z", "2026-11-17T12:00:00.5Z"];
        cache.apply_measurements(&measured(second, "1"));
        assert_eq!(found(&cache), time(second));
        cache.apply_measurements(&measured(first, "1"));
        assert_eq!(found(&cache), time(second), "the response is older");
        cache.apply_measurements(&measured("", "2"));
        assert_eq!(found(&cache), time(second), "the response is about another object");
        cache.apply_measurements(&measured("", "1"));
        assert_eq!(found(&cache), None, "it isn't measured any more");
    }

    #[test]
    fn is_stale_while_the_crm_has_lost_its_api_server() {
        let mut cache = snapshot_begun();
        cache.apply(event(Kind::SnapshotEnd, None), at(2));
        let cut = WatchEvent { stale: true, ..event(Kind::Contact, None) };
        cache.apply(cut, at(3));
        assert_eq!(cache.observe("a", ""), Observation::Unknown);
        assert_eq!(cache.unreachable_since, Some(at(3)));
        cache.apply(event(Kind::Contact, None), at(4));
        assert!(cache.is_fresh());
    }

    #[test]
    fn follows_cluster_info_events() {
        let mut cache = snapshot_begun();
        let info = GetClusterInfoResponse { ready_nodes: 5, ..GetClusterInfoResponse::default() };
        let event = WatchEvent { cluster_info: Some(info), ..event(Kind::ClusterInfo, None) };
        cache.apply(event, at(2));
        assert_eq!(cache.info.as_ref().unwrap().ready_nodes, 5);
        cache.disconnected("cut".to_owned(), at(3));
        assert_eq!(cache.info.as_ref().unwrap().ready_nodes, 5);
    }
}
